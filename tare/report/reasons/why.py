"""Why environments differ: what was found of each, where extra time sits and what of it files account for.

Host against host stands in the note wherever two hosts can be compared: what they differ by, no container caused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tare.analysis import causes, suspects
from tare.analysis.choice import ENVIRONMENT, of_causes
from tare.analysis.decisions import Decision
from tare.analysis.reasons import Case, says_much
from tare.analysis.verdicts import CAUSE_METRICS
from tare.model.tables import INCONCLUSIVE
from tare.report.evidence import Evidence
from tare.report.machine.conditions import first_facts
from tare.report.reasons import why_tables
from tare.report.words.decisions import because
from tare.report.words.labels import metric_title, significant, workload_title
from tare.report.words.layout import Table, by_environment
from tare.report.words.wording import percent

NAMED = 4  # names in one cell; the tables have all


class Argument(NamedTuple):
    """What the page shows of one workload: what was found, then every number."""

    name: str
    title: str
    findings: list[Table]
    tables: list[Table]


def has_causes(evidence: Evidence) -> bool:
    """Whether any campaign looked for causes."""
    return any(len(of_causes(evidence.metrics, workload)) for workload in evidence.workloads)


def arguments(evidence: Evidence) -> list[Argument]:
    """One per workload of the study."""
    return [_argument(evidence, case_of(evidence, name), workload_title(name)) for name in evidence.workloads]


def case_of(evidence: Evidence, workload: str) -> Case:
    """What is known of a workload, by the rules of its own campaigns."""
    made = {name: getattr(evidence, name) for name in ("metrics", "verdicts", "kernels", "fingerprints")}
    plans = {kind: one.plan.sampling for kind in ("rounds", "causes") if (one := evidence.headline(workload, kind))}
    fewest = {kind: sampling.verdict_units for kind, sampling in plans.items()}
    return Case(workload, made, evidence.study.confidence, fewest)


def _argument(evidence: Evidence, case: Case, title: str) -> Argument:
    facts, own = first_facts(evidence), [one for one in evidence.decided if one.workload == case.workload]
    questions: dict[str, Callable[[str], str | None]] = {
        "Are the bytes the same?": lambda env: bytes_text(case, env),
        "Where do the stack's files lie?": lambda env: facts[env].tree_mount.type if env in facts else None,
        "Do they run the same operators and kernels?": lambda env: sets_text(case, env),
        "What stays unexplained?": lambda env: unexplained_text(case, env),
        "Put down to": lambda env: put_down(own, env),
    }
    names = [env for env in evidence.environments if env in case.environments]
    findings = Table.of(
        questions.items(),
        {"": lambda one: one[0], **by_environment(names, lambda one, env: one[1](env))},
        caption=f"{title}: what was found of each environment",
        note=" ".join(_notes(case)),
        wide=True,
    )
    accounts = why_tables.accounts_table(list(case.accounts.values()), title)
    numbers = [
        why_tables.files_table(case.metrics, title),
        why_tables.operators_table(case.times, title),
        why_tables.kernels_table(case.kernels, title),
    ]
    return Argument(case.workload, title, [findings, why_tables.phases_table(case.costs, title), accounts], numbers)


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def bytes_text(case: Case, env: str) -> str:
    """Mapped files against the host's."""
    if env not in case.differences:
        return "not recorded"
    mapped, same = suspects.tree_files(case.files, env)
    others = [one for one in case.differences[env] if not one.in_tree]
    told = [f"{same} of {mapped} mapped files of the stack are the host's"]
    for how in dict.fromkeys(one.how for one in others):
        told.append(f"{some([one.name for one in others if one.how == how])}: {how}")
    return "; ".join(told)


def sets_text(case: Case, env: str) -> str:
    """Operators, then kernels."""
    return "; ".join(f"{what}: {_set(compared, env)}" for what, compared in case.sets.items())


def _set(compared: Sequence[causes.SetComparison], env: str) -> str:
    own = next((one for one in compared if one.env == env), None)
    if own is None:
        return "not recorded"
    if not own.differs:
        return f"the host's in {own.equal} of {own.pairs} pairs of launches"
    counts = [f"{name} {significant(now)} times, not {significant(before)}" for name, before, now in own.counts]
    here = [f"only here {some(own.only_here)}"] if own.only_here else []
    host = [f"only on the host {some(own.only_host)}"] if own.only_host else []
    return ", ".join([*here, *host, *counts[:NAMED]])


def unexplained_text(case: Case, env: str) -> str:
    """Differences with and without a suspect among the files; then files that are suspect of nothing."""
    found, cleared = case.suspicions(env)
    told = [_suspicion(case, one, env) for one in found]
    told += [f"{one.name.rsplit('/', 1)[-1]} differs, and nothing that it serves does" for one in cleared]
    return "; ".join(told) or "nothing"


def _suspicion(case: Case, one: suspects.Suspicion, env: str) -> str:
    name = metric_title(one.what).lower() if one.is_phase else one.what
    account = case.accounts.get(env)
    if one.files:
        return f"{name}: {some(one.files)}, which serves it, differs too: a suspect, no proof"
    if one.what == "imports_s" and account is not None and says_much(account):
        least, most = (100 * max(0.0, 1 - end) for end in (account.high, account.low))
        return f"{name}: {least:.0f}% to {most:.0f}% of its extra time is no first reading of files"
    if one.what == "imports_s" and env in case.slow_files():
        return f"{name}: so does the reading of its files, but its share is open"
    return f"{name}: no cause found"


def put_down(found: Sequence[Decision], env: str) -> str | None:
    """The reasons of the decisions on whole runs and steps of the headline."""
    own = [one for one in found if one.rank is not None and (one.factor, one.level) == (ENVIRONMENT, env)]
    told = [f"{metric_title(one.metric).lower()}: {text}" for one in own if (text := because(one.reason))]
    return "; ".join(told) or None


def _notes(case: Case) -> list[str]:
    """What two hosts differ by, and how much can't be told yet."""
    found = []
    for what, compared in case.sets.items():
        if compared:
            host = compared[0]
            found.append(
                f"Host against host ran the same {host.kernels} {what} equally often in {host.equal} of "
                f"{host.pairs} pairs of launches; what comes and goes there proves nothing."
            )
    missing = case.metrics[(case.metrics["metric"] == "kernels_per_step") & case.metrics["reason"].notna()]
    if not case.sets["kernels"] and len(missing):
        found.append(f"Kernels are unavailable: {missing.iloc[0]['reason']}.")
    singles = [one for one in case.times if one.operator != causes.ALL_OPERATORS]
    if singles:
        reach = max(max(one.control_high, 1 / one.control_low) for one in singles)
        found.append(
            f"No operator differs within what two hosts show of it, {percent(reach - 1, up=True)} at most."
        )
    parts = case.verdicts[case.verdicts["metric"].isin(causes.PHASE_METRICS)]
    files = case.judged[case.judged["metric"].isin(CAUSE_METRICS)]
    for rows, what in ((parts, "parts of whole runs"), (files, "what files cost")):
        if unsure := int((rows["verdict"] == INCONCLUSIVE).sum()):
            found.append(f"Of {len(rows)} comparisons of {what}, {unsure} can't be told yet.")
    return found
