"""A study's claims against its own figures and logs: does what it shows say what it says?

Each claim is held against every figure that it names and against the logs. `highest` and `lowest` compare values;
`equal` asks whether largest and smallest differ by no more than EQUAL_WITHIN; `ordered` asks for the place of a
model among others; `repays` whether building an image is paid back, and not by the first run. A comparison is clear
where neither errors of reading a height off a figure nor the spread between its runs could turn it. Where there is
one run in each environment it has no spread: numbers as claimed may still be chance, and establish
nothing. Where a claim is held against several numbers of one run, such as its last step and the mean of its steps,
each may be off by as much as they differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from checks.figure_values import logged
from checks.finding import Finding, yes_no
from checks.sources import Sources
from tare.literature.finding import amount, listed, words
from tare.literature.order_claims import pairs
from tare.literature.published import Fact
from tare.literature.published_file import AT_LEAST, BOUNDED, OF_TWO, ORDERED, REPAYS, Claim
from tare.literature.vocabulary import FIGURE_METRICS, RATES, SLOWDOWN
from tare.model.registry import HOST
from tare.stats.costs import NEVER, runs_until_paid
from tare.stats.intervals import t_quantile

# A study that says "the same" names no margin; this is what we allow a whole run before we call it different.
EQUAL_WITHIN = 0.05
ARCHITECTURE = re.compile(r"compute_\d+")
SET_METRICS = {"kernels_differ": "kernels", "same_files": "binaries"}
ALPHA = 0.05  # of the difference of two means of several runs
CONTRADICTED, ESTABLISHED = "contradicted", "established by its data"
NOT_ESTABLISHED, NO_DATA = "not established by its data", "not recomputable"
AGAIN = "Its numbers, done again"  # title of the section of a study's page


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One claim held against one figure, the logs, or numbers that are stated.

    Attributes:
        source: number of a figure, or `log`.
        metric: of the values.
        holds: whether the values are as claimed.
        clear: whether reading errors, and the spread between runs where it is known, could not turn that.
        repeated: whether the values are of several runs with a spread.
        note: the values.
        claimed, against: the two values that decide, in base units of `unit`; None for sets.
        unit: of these.
    """

    source: str
    metric: str
    holds: bool
    clear: bool
    note: str
    repeated: bool = False
    claimed: float | None = None
    against: float | None = None
    unit: str = "1"


def apart(given: Iterable[Mapping[str, float]]) -> float:
    """By how much numbers of one run differ at most: each by environment, of the same runs; 0 of a single one."""
    numbers = list(given)
    runs = [[one[env] for one in numbers if env in one] for env in {env for one in numbers for env in one}]
    return max((max(run) - min(run) for run in runs), default=0.0)


def _values(stated: Mapping[str, Mapping[str, Fact]]) -> dict[str, dict[str, float]]:
    """By name and environment, the numbers of facts."""
    return {
        name: {env: fact.quantity.value for env, fact in facts.items() if fact.quantity}
        for name, facts in stated.items()
    }


def shown(published: Sources, claim: Claim, workload: str) -> list[Shown]:
    """The claim held against each figure that it names and against the logs; empty where they hold nothing."""
    if claim.rule in SET_METRICS:
        return _sets(published, claim, workload)
    if claim.rule in OF_TWO:  # of figures without values alone
        return []
    if claim.rule == ORDERED:
        return _orders(published, claim, workload)
    if claim.rule == REPAYS:
        return _repaid(published, claim, workload)
    found = []
    figures = published.figures
    for metric in claim.metrics:
        for figure in claim.figures:
            own = figures[
                (figures["figure"] == figure) & (figures["workload"] == workload) & (figures["metric"] == metric)
            ]
            if len(own):
                values = dict(zip(own["env"], own["value"], strict=True))
                if (claim.env or HOST) not in values:
                    continue  # the figure does not show what the claim is about
                found.append(_compare(claim, metric, figure, values, str(own["unit"].iloc[0]), _doubt(own)))
        logs = [one for one in logged(published, metric) if one.workload == workload and one.series != "batches"]
        if logs:
            values = {one.env: one.value for one in logs}
            unit = FIGURE_METRICS[metric]
            found.append(_compare(claim, metric, "log", values, unit, Doubt(error=0.0, chance=0.0, repeated=False)))
    return found + _stated(published, claim, workload)


def _stated(published: Sources, claim: Claim, model: str) -> list[Shown]:
    """The claim held against what text, files and tables state of a model in two environments or more."""
    stated = {name: facts for name in claim.facts if (facts := published.of_model(name, model))}
    values = _values(stated)
    doubt = Doubt(
        error=apart(values.values()), chance=0.0, repeated=False, of="numbers that its data give for one run"
    )
    found = []
    for name, numbers in values.items():
        if len(numbers) > 1:
            where = next(iter(stated[name].values())).where
            unit = FIGURE_METRICS[claim.metrics[0]]
            source = "log" if where == "logs" else where
            found.append(_compare(claim, claim.metrics[0], source, numbers, unit, doubt, name))
    return found


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """How far a figure's values are to be trusted, in their base unit.

    Attributes:
        error: of reading a height.
        chance: half-width of Student's interval of the difference of two means of several runs; 0 with one run.
        repeated: whether there are several runs and their spread.
        of: what the error is of.
    """

    error: float
    chance: float
    repeated: bool
    of: str = "reading two heights"


def _doubt(rows: pd.DataFrame) -> Doubt:
    """Of a figure's rows."""
    error, runs = float(rows["error"].fillna(0).max()), rows["runs"].min()
    if pd.isna(runs):
        return Doubt(error=error, chance=0.0, repeated=False)
    chance = t_quantile(ALPHA, 2 * (int(runs) - 1)) * float(rows["spread"].max()) * math.sqrt(2 / int(runs))
    return Doubt(error=error, chance=chance, repeated=True)


def _place(source: str) -> str:
    if source == "log":
        return "the logs"
    return f"figure {source}" if source.isdecimal() else source


def _compare(
    claim: Claim,
    metric: str,
    source: str,
    values: Mapping[str, float],
    unit: str,
    doubt: Doubt,
    name: str | None = None,
) -> Shown:
    """Values by environment as the claim has them; `name` is theirs, where it is not the metric's."""
    # Each of two values may be off by the error, and their difference by chance.
    error = doubt.error + doubt.chance / 2
    numbers = listed([f"{env} {amount(value, unit)}" for env, value in values.items()])
    called = words(metric) if name is None else f"{words(metric)} ({name})"
    note = f"{called} in {_place(source)}: {numbers}"
    if claim.rule == "equal":
        low, high = min(values.values()), max(values.values())
        apart = high / low - 1
        holds = apart <= EQUAL_WITHIN
        surely = ((high + error) / (low - error) - 1) if holds else ((high - error) / (low + error) - 1)
        clear = (surely <= EQUAL_WITHIN) == holds
        across = f"could move that across {EQUAL_WITHIN:.0%}"
        open_end = f". An error of {amount(error, unit)} in each {across}"
        if doubt.of != Doubt.of:
            open_end = f". {_capital(doubt.of)} differ by up to {amount(error, unit)}, which {across}"
        shares = f"{apart:.3%}" if apart < 0.001 else f"{apart:.1%}"
        note += f", {shares} between smallest and largest"
        claimed, against = high, low
    elif claim.rule in BOUNDED:
        assert claim.bound is not None
        bound, least = claim.bound.value / 100, claim.rule == AT_LEAST
        # A slow-down by a co-runner is a ratio by itself: to the same environment without one.
        than, host = ("without a co-runner", 1.0) if metric == SLOWDOWN else (HOST, values[HOST])
        judged = [value for env, value in values.items() if env != HOST or not least or metric == SLOWDOWN]
        claimed, against = (min if (metric in RATES) != least else max)(judged), host
        worse = (host - claimed if metric in RATES else claimed - host) / host
        holds, clear = (worse >= bound if least else worse <= bound), abs(worse - bound) > 2 * error / host
        open_end = f". The gap to it is less than errors of {amount(error, unit)} each could turn"
        which = "least" if least else "worst"
        note += f"; the {which} is {worse:.1%} worse than {than}, where {bound:.0%} is claimed"
    else:
        assert claim.env is not None
        claimed = values[claim.env]
        others = [value for env, value in values.items() if env != claim.env]
        against = max(others) if claim.rule == "highest" else min(others)
        gap = claimed - against if claim.rule == "highest" else against - claimed
        holds, clear = gap > 0, abs(gap) > 2 * error
        chance = " and chance" if doubt.chance else ""
        open_end = f". The gap is less than the errors of reading two heights{chance}, {amount(error, unit)} each"
        if doubt.of != Doubt.of:
            open_end = f". {_capital(doubt.of)} differ by up to {amount(error, unit)}, so this may be chance"
        note += f"; {claim.env} is {'' if holds else 'not '}the {claim.rule}"
    if not clear:
        note += open_end
    return Shown(
        source=source,
        metric=metric,
        holds=holds,
        clear=clear,
        repeated=doubt.repeated,
        note=note,
        claimed=claimed,
        against=against,
        unit=unit,
    )


def _sets(published: Sources, claim: Claim, workload: str) -> list[Shown]:
    """Names of kernels, and the architectures that the binaries were built for, as the logs list them."""
    kernels = {env: set(names) for (name, env), names in published.kernels_listed.items() if name == workload}
    if len(kernels) < 2:
        return []
    if claim.rule == "kernels_differ":
        assert claim.env is not None
        others = [names for env, names in kernels.items() if env != claim.env]
        holds = all(kernels[claim.env] != names for names in others)
        common = kernels[claim.env].intersection(*others)
        counts = listed([f"{env} {len(names)}" for env, names in kernels.items()])
        own = sorted(kernels[claim.env].difference(*others))
        theirs = sorted(set().union(*others) - kernels[claim.env])
        note = f"kernels in the logs: {counts}; {len(common)} in common"
        if own and theirs:
            note += f". On {claim.env} alone: {', '.join(own)}. On others alone: {', '.join(theirs)}"
    else:
        built = {env: _architectures(names) for env, names in kernels.items()}
        holds = len({tuple(names) for names in built.values()}) == 1
        note = "kernels in the logs were built for " + listed(
            [f"{', '.join(names) or 'no architecture named'} on {env}" for env, names in built.items()]
        )
        if not holds:
            note += ": they are of different builds of the framework"
    return [Shown(source="log", metric=SET_METRICS[claim.rule], holds=holds, clear=True, note=note)]


def _architectures(names: Sequence[str] | set[str]) -> list[str]:
    return sorted({match for name in names for match in ARCHITECTURE.findall(name)})


def verdicts(published: Sources, *, has_limits: bool) -> list[Finding]:
    """What the study's own data say of each claim and workload, and the sentence for it.

    `has_limits`: whether there are findings of what can't be recomputed, so that a reader can be sent there.
    """
    return [
        Finding(
            figure=claim.where, check="claim", claim=claim.id, workload=workload,
            metric=claim.metrics[0] if claim.metrics else SET_METRICS[claim.rule], unit="1", agrees=says, note=note,
        )
        for claim in published.claims
        for workload in claim.subjects
        for says, note in [_verdict(shown(published, claim, workload), has_limits)]
    ]  # fmt: skip


def _verdict(found: Sequence[Shown], has_limits: bool) -> tuple[str, str]:
    """What all that a claim was held against says of it, and why.

    CONTRADICTED where a figure or the logs clearly show otherwise. ESTABLISHED where all clearly show it, each from
    several runs with a spread. NOT_ESTABLISHED where they are as claimed without one, or where reading errors or
    chance leave it open. NO_DATA where there are no data.
    """
    if not found:
        there = f" '{AGAIN}' lists what cannot be recomputed." if has_limits else ""
        return NO_DATA, f"The study's data do not hold what this would take.{there}"
    note = f"{'. '.join(_capital(one.note) for one in found)}."
    if not all(one.repeated for one in found):
        note += " One run in each environment, so no spread."
    if any(one.clear and not one.holds for one in found):
        return CONTRADICTED, _capital(note)
    if all(one.clear and one.holds and one.repeated for one in found):
        return ESTABLISHED, _capital(note)
    return NOT_ESTABLISHED, _capital(note)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def findings(published: Sources) -> list[Finding]:
    """A row for each claim, workload, and figure or log that it is held against."""
    found = []
    for claim in published.claims:
        for workload in claim.subjects:
            for one in shown(published, claim, workload):
                found.append(
                    Finding(
                        figure=one.source,
                        check="contradiction",
                        claim=claim.id,
                        workload=workload,
                        env=claim.env,
                        metric=one.metric,
                        unit=one.unit,
                        published=one.claimed,
                        recomputed=one.against,
                        agrees=yes_no(one.holds),
                        note=f"The paper: {claim.statement} {_capital(one.note)}.",
                    )
                )
    return found


# --- orders of models


def _orders(published: Sources, claim: Claim, workload: str) -> list[Shown]:
    """The place of one model among the others, by each number that the study states of them, by environment."""
    found = []
    for name in claim.facts:
        stated: dict[str, dict[str, float]] = {}
        where = {}
        for fact in published.stated:
            if fact.id == name and fact.quantity and fact.labels.get("model") in claim.subjects:
                env = str(fact.labels.get("env") or "all")
                stated.setdefault(env, {})[str(fact.labels["model"])] = fact.quantity.value
                where[env] = fact.where
        for env, values in stated.items():
            known = [pair for pair in pairs(claim, workload) if set(pair) <= set(values)]
            if known:
                found.append(_order(claim, workload, f"{name}, {env}", where[env], values, known))
    return found


def _order(
    claim: Claim, workload: str, name: str, where: str, values: Mapping[str, float], known: list[tuple[str, str]]
) -> Shown:
    unit = FIGURE_METRICS[claim.metrics[0]]
    turned = [pair for pair in known if values[pair[0]] <= values[pair[1]]]
    shows = listed([f"{model} {amount(values[model], unit)}" for model in claim.subjects if model in values])
    wrong = f"; {listed([f'{one} is not above {other}' for one, other in turned])}" if turned else ""
    one, other = (turned or known)[0]
    return Shown(
        source="log" if where == "logs" else where, metric=claim.metrics[0], holds=not turned, clear=True,
        note=f"{words(claim.metrics[0])} ({name}) in {where}: {shows}{wrong}", claimed=values[workload],
        against=values[other if one == workload else one], unit=unit,
    )  # fmt: skip


# --- what is paid back


def _repaid(published: Sources, claim: Claim, model: str) -> list[Shown]:
    """By each number that the study states of both environments: after how many of its runs the build is paid."""
    assert claim.env is not None and claim.once is not None and claim.times is not None
    once, times = published.fact(claim.once).quantity, published.fact(claim.times).quantity
    if once is None or times is None:
        return []
    stated = {name: published.of_model(name, model) for name in claim.facts}
    values = _values(stated)
    error = apart(values.values())
    found = []
    for name, numbers in values.items():
        if not {HOST, claim.env} <= set(numbers):
            continue
        saved_s = (numbers[HOST] - numbers[claim.env]) * times.value
        runs = runs_until_paid(once.value, saved_s, saved_s).fewest
        clear = abs(numbers[HOST] - numbers[claim.env]) > 2 * error
        way = "saves" if saved_s > 0 else "takes"
        more = "" if saved_s > 0 else " more"
        paid = "is never paid back" if runs == NEVER else f"is paid back after {amount(runs, '1')} runs"
        where = next(iter(stated[name].values())).where
        both = " and ".join(f"{env} {amount(numbers[env], 's')}" for env in (HOST, claim.env))
        note = (
            f"By {name} in {where}: {both}. A run of {times} {way} {amount(abs(saved_s), 's')}{more}, so that "
            f"a build of {once} {paid}"
        )
        if not clear:
            note += f". Numbers of one run differ by up to {amount(error, 's')}, so this may be chance"
        found.append(
            Shown(
                source="log" if where == "logs" else where, metric=claim.metrics[0], holds=1 < runs < NEVER,
                clear=clear, note=note, claimed=numbers[claim.env], against=numbers[HOST], unit="s",
            )
        )  # fmt: skip
    return found
