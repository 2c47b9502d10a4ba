"""The sentences of the argument why environments differ. Pure: results of the analysis in, sentences out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.causes import (
    ALL_OPERATORS,
    FileAccount,
    OperatorTime,
    PhaseCost,
    SetComparison,
    differing_operators,
)
from tare.analysis.suspects import FileDifference, Suspicion
from tare.report.words.labels import env_title, metric_title, seconds, significant
from tare.report.words.wording import TIMES_FROM, between, listed, percent
from tare.stats.intervals import FEWEST_UNITS, LARGEST_RATIO, Interval

MOST_SHARE = 2.0
NAMED = 4  # names that a sentence holds; the table has all
OWN_TIME = "self_s_per_step"


def grouped(bodies: Mapping[str, str]) -> list[str]:
    """One sentence per different body, with the titles of all environments that share it."""
    found: dict[str, list[str]] = {}
    for env, body in bodies.items():
        found.setdefault(body, []).append(env_title(env))
    return [f"{listed(titles)}: {body}." for body, titles in found.items()]


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - NAMED
    return listed(list(names)) if rest <= 0 else f"{', '.join(names[:NAMED])} and {rest} more"


def signed_s(value: float) -> str:
    """Seconds with their sign."""
    return f"{'−' if value < 0 else '+'}{seconds(abs(value))}"


def span_s(interval: Interval) -> str:
    """Mean and interval of extra seconds."""
    if interval.mean is None:
        return "no number"
    if interval.low is None:
        return f"{signed_s(interval.mean)}, no interval from {interval.n} unit"
    return f"{signed_s(interval.mean)} ({signed_s(interval.low)} to {signed_s(interval.high)})"


def listed_span_s(interval: Interval, share: float | None) -> str:
    """Mean of extra seconds; in brackets its share of the whole, where it is known, and its interval."""
    part = "" if share is None else f"{100 * share:.0f}% of it; "
    return f"{signed_s(interval.mean)} ({part}{signed_s(interval.low)} to {signed_s(interval.high)})"


def bytes_body(tree: tuple[int, int], differences: Sequence[FileDifference]) -> str:
    """Whether the mapped files are the host's.

    Args:
        tree: files of the tree that are mapped, and those of them that are the host's byte for byte.
        differences: all files that are not the same on both sides.
    """
    mapped, same = tree
    which = f"all {mapped}" if same == mapped else f"{same} of {mapped}"
    text = f"{which} mapped files of the stack are the host's, byte for byte"
    others = [f for f in differences if not f.in_tree]
    if not others:
        return f"{text}, and so are the system's"
    parts = [
        f"{some([f.name for f in others if f.how == how])} ({how})" for how in dict.fromkeys(f.how for f in others)
    ]
    return f"{text}; of the system's, {listed(parts)} {'is' if len(others) == 1 else 'are'} not"


def set_sentences(comparisons: Sequence[SetComparison], noun: str) -> list[str]:
    """Host against host, then each environment: the same kernels, or which not."""
    if not comparisons:
        return [f"No launch on the host says which {noun} it ran."]
    host, *others = comparisons
    first = (
        f"Host against host, one training step ran the same {host.kernels} {noun} equally often in {host.equal} of "
        f"{host.pairs} pairs of launches."
    )
    if host.equal < host.pairs:
        first += f" What comes and goes there proves nothing: only {noun} of every launch of one side count below."
    return [first, *grouped({comparison.env: _set_body(comparison, noun) for comparison in others})]


def _set_body(comparison: SetComparison, noun: str) -> str:
    if not comparison.differs:
        same = f"the host's {noun} in {comparison.equal} of {comparison.pairs} pairs of launches"
        return same if comparison.equal == comparison.pairs else f"{same}, and what differs does not last"
    parts = [f"only here {some(comparison.only_here)}"] if comparison.only_here else []
    parts += [f"only on the host {some(comparison.only_host)}"] if comparison.only_host else []
    parts += [
        f"{name} {significant(now)} times a step, not {significant(before)}"
        for name, before, now in comparison.counts[:NAMED]
    ]
    return f"other {noun}, launch after launch: {'; '.join(parts)}"


def operator_sentences(times: Sequence[OperatorTime]) -> list[str]:
    """What two hosts differ by, then what each environment's operators do."""
    singles = [time for time in times if time.operator != ALL_OPERATORS]
    if not singles:
        return ["No operator's own time can be compared: no unit has it from two hosts and an environment."]
    widest = max(singles, key=lambda time: max(time.control_high, 1 / time.control_low))
    reach = max(widest.control_high, 1 / widest.control_low)
    count = len({time.operator for time in singles})
    size = f"by {percent(reach - 1, up=True)}" if reach < TIMES_FROM else f"{significant(reach, 2)}-fold"
    first = (
        f"{count} operators take 1% of a step's own time or more. Host against host, one of them "
        f"({widest.operator}) differed {size} in a single unit, the others less: no operator counts as different "
        "within what two hosts show of it."
    )
    bodies = {env: _operators_body(times, env) for env in dict.fromkeys(time.env for time in times)}
    return [first, *grouped(bodies)]


def _operators_body(times: Sequence[OperatorTime], env: str) -> str:
    together = next((time for time in times if time.env == env and time.operator == ALL_OPERATORS), None)
    different = differing_operators(times, env)
    all_of_them = ""
    if together and together.low is not None and together.high is not None:
        all_of_them = f"all together {between(OWN_TIME, together.low, together.high)}"
    elif together:
        all_of_them = _no_interval(together.units)
    if not different:
        return f"no operator is told apart from the host's; {all_of_them}"
    parts = [f"{time.operator} {between(OWN_TIME, time.low, time.high)}" for time in different[:NAMED]]
    more = f" and {len(different) - NAMED} more" if len(different) > NAMED else ""
    return f"{listed(parts)}{more}; {all_of_them}"


def _no_interval(units: int) -> str:
    """Why there is none of all operators together."""
    if units < FEWEST_UNITS:
        return f"an interval of all together needs {FEWEST_UNITS} units, and this is {units}"
    return f"all together have no interval: that of {units} units would reach beyond a factor of {LARGEST_RATIO:,}"


def phase_body(costs: Sequence[PhaseCost]) -> str:
    """Where one environment's extra time sits: the whole run, then the phases that are told apart from none."""
    by_phase = {cost.phase: cost for cost in costs}
    whole, fewest = by_phase["real_s"].extra, by_phase["real_s"].fewest
    if whole.n < fewest:
        return f"a whole run takes {span_s(whole)}: nothing is told apart from none before {fewest} rounds"
    longer = [cost for cost in costs if cost.phase != "real_s" and cost.told]
    longer.sort(key=lambda cost: -abs(cost.extra.mean))
    parts = [f"{metric_title(cost.phase).lower()} {listed_span_s(cost.extra, cost.share)}" for cost in longer]
    phases = f"told apart from none in {listed(parts)}" if parts else "no phase alone is told apart from none"
    if by_phase["real_s"].told:
        return f"a whole run takes {span_s(whole)}; {phases}"
    why = "holds zero" if whole.low is not None else "is missing"
    return f"a whole run takes {span_s(whole)}: the interval {why}, so that no share is said; {phases}"


def account_body(account: FileAccount) -> str:
    """How much of the extra time of imports reading their files accounts for."""
    files = f"reading and mapping the imports' files for the first time takes {span_s(account.files)}"
    if account.ratio is None:
        return f"{files}; {account.reason}"
    after = f"once they are read, the imports still take {span_s(account.after)}"
    imports = f"the extra time of imports, {span_s(account.imports)}"
    if not says_much(account):
        return f"{files}; {after}; what share that is of {imports}, can't be told yet"
    return f"{files}, between {100 * account.low:.0f}% and {100 * account.high:.0f}% of {imports}; {after}"


def says_much(account: FileAccount) -> bool:
    """Whether the share of files has an interval that excludes none at all, and twice everything."""
    return account.ratio is not None and account.low > 0 and account.high < MOST_SHARE


def runtime_body(costs: Sequence[PhaseCost]) -> str | None:
    """What the launch takes before our first line and after our last; None where it is not told apart.

    The start is the runtime's and the interpreter's; the end holds the end of our own process, which nothing here
    parts from that of the runtime.
    """
    own = [cost for cost in costs if cost.phase in ("runtime_start_s", "exit_s") and cost.told]
    if not own:
        return None
    said = {
        "runtime_start_s": "before our program's first line, where the runtime starts, {}",
        "exit_s": "after its last line, where our process and the runtime end, {}",
    }
    return "; ".join(said[cost.phase].format(span_s(cost.extra)) for cost in own)


def verdicts_body(rows: Sequence[Mapping[str, Any]]) -> str:
    """What of one environment's file costs is decided, from rows of the verdict table."""
    parts = [
        f"{metric_title(row['metric']).lower()} {between(row['metric'], row['ci_low'], row['ci_high'])}"
        for row in rows
    ]
    return f"told apart from the host's: {'; '.join(parts)}"


def places_sentence(places: Mapping[str, str]) -> str:
    """On which file systems the stack lies, by environment."""
    kinds: dict[str, list[str]] = {}
    for env, kind in places.items():
        kinds.setdefault(kind, []).append(env_title(env))
    return f"The stack's files lie on {listed([f'{kind} ({listed(titles)})' for kind, titles in kinds.items()])}."


def unexplained_body(
    suspicions: Sequence[Suspicion],
    cleared: Sequence[FileDifference],
    account: FileAccount | None,
    slow_files: bool,
) -> str:
    """What has a suspect, what has none, and what is cleared, of one environment.

    Args:
        suspicions: all differences of operators and phases, with their suspects.
        cleared: files that differ and are suspect of nothing.
        account: what reading files accounts for.
        slow_files: whether the first reading of files is beyond doubt longer.
    """
    parts = [_suspicion(suspicion, account, slow_files) for suspicion in suspicions]
    if cleared:
        names = some([f"{file.name.rsplit('/', 1)[-1]} ({file.service.what})" for file in cleared])
        parts.append(f"{names} has other bytes, but nothing that it serves is told apart")
    return "; ".join(parts) or "nothing that is told apart stays without a cause"


def _suspicion(suspicion: Suspicion, account: FileAccount | None, slow_files: bool) -> str:
    name = f"the phase {metric_title(suspicion.what).lower()}" if suspicion.is_phase else suspicion.what
    if suspicion.files:
        return f"{name} differs, and so does {some(suspicion.files)}, which serves it: a suspect, no proof"
    if suspicion.what == "imports_s" and account is not None and says_much(account):
        return _rest(name, account)
    if suspicion.what == "imports_s" and slow_files:
        return (
            f"{name} differs and the reading of its files does too, but its share is open; no mapped file that "
            "serves it differs"
        )
    return f"{name} differs, and no file that serves it does: no cause found"


def _rest(name: str, account: FileAccount) -> str:
    """What reading files leaves of the extra time of imports."""
    most, least = 100 * (1 - account.low), 100 * (1 - account.high)
    text = f"no mapped file that serves {name} differs"
    if least <= 0:
        return f"{text}; reading files may be all of its extra time, or leave up to {most:.0f}% of it unexplained"
    return f"{text}; {least:.0f}% to {most:.0f}% of its extra time is no first reading and has no cause here"
