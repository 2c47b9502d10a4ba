"""Why environments differ: what was found of each, where extra time sits, and every number behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pandas as pd

from tare.analysis.choice import ENVIRONMENT, of_causes
from tare.analysis.decisions import Decision
from tare.analysis.why import causes, suspects
from tare.analysis.why.causes import ALL_OPERATORS, FileAccount, OperatorTime, PhaseCost
from tare.analysis.why.reasons import Case, files_share
from tare.report.evidence import Evidence
from tare.report.machine import first_facts
from tare.report.number_tables import interval_text, ratio_text
from tare.report.words.decisions import because
from tare.report.words.labels import env_order, env_title, metric_order, metric_title, workload_title
from tare.report.words.layout import Table, by_environment, ends, field, signed_s
from tare.report.words.quantities import seconds, significant, with_unit
from tare.stats.intervals import Interval

NAMED = 4  # names in one cell; the tables have all


def has_causes(evidence: Evidence) -> bool:
    """Whether any campaign looked for causes."""
    return any(len(of_causes(evidence.metrics, workload)) for workload in evidence.networks)


def arguments(evidence: Evidence) -> list[SimpleNamespace]:
    """Of each workload of the study what was found, then every number."""
    return [_argument(evidence, case_of(evidence, name), workload_title(name)) for name in evidence.networks]


def case_of(evidence: Evidence, workload: str) -> Case:
    """What is known of a workload, by the rules of its campaigns."""
    made = {name: getattr(evidence, name) for name in ("metrics", "verdicts", "kernels", "fingerprints")}
    plans = {kind: one.plan.sampling for kind in ("rounds", "causes") if (one := evidence.headline(workload, kind))}
    fewest = {kind: sampling.verdict_units for kind, sampling in plans.items()}
    return Case(workload, made, evidence.study.confidence, fewest)


def _argument(evidence: Evidence, case: Case, title: str) -> SimpleNamespace:
    def sets_text(env: str) -> str:
        return "; ".join(f"{what}: {_set(compared, env)}" for what, compared in case.sets.items())

    facts, own = first_facts(evidence), [one for one in evidence.decided if one.workload == case.workload]
    questions: dict[str, Callable[[str], str | None]] = {
        "Are the bytes the same?": lambda env: bytes_text(case, env),
        "Where are the stack's files?": lambda env: facts[env].tree_mount.type if env in facts else None,
        "Do they run the same operators and kernels?": lambda env: sets_text(env),
        "What is not explained?": lambda env: unexplained_text(case, env),
        "Attributed to": lambda env: put_down(own, env),
    }
    names = [env for env in evidence.environments if env in case.environments]
    findings = Table.of(
        questions.items(),
        {"": lambda one: one[0], **by_environment(names, lambda one, env: one[1](env))},
        caption=f"{title}: what was found of each environment",
        note=" ".join(_notes(case)),
    )
    accounts = accounts_table(list(case.accounts.values()), title)
    return SimpleNamespace(
        name=case.workload, title=title, findings=[findings, phases_table(case.costs, title), accounts],
        tables=[files_table(case.metrics, title), operators_table(case.times, title)],
    )  # fmt: skip


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
    parts = [f"{same} of {mapped} mapped files of the stack are the host's"]
    for how in dict.fromkeys(one.how for one in others):
        parts.append(f"{some([one.name for one in others if one.how == how])}: {how}")
    return "; ".join(parts)


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
    parts = [_suspicion(case, one, env) for one in found]
    parts += [f"{one.name.rsplit('/', 1)[-1]} differs, but nothing that uses it does" for one in cleared]
    return "; ".join(parts) or "nothing"


def _suspicion(case: Case, one: suspects.Suspicion, env: str) -> str:
    name = metric_title(one.what).lower() if one.is_phase else one.what
    share = files_share(case.accounts.get(env))
    if one.files:
        return f"{name}: {some(one.files)}, which it uses, differs too: a possible cause, not a proof"
    if one.what == "imports_s" and share is not None:
        least, most = (100 * max(0.0, 1 - end) for end in reversed(share))
        left = f"{least:.0f}% to {most:.0f}%"
        return f"{name}: {left} of the extra time is not explained by the first reading of files"
    if one.what == "imports_s" and env in case.slow_files():
        return f"{name}: reading its files is slower too, but the share is not known"
    return f"{name}: no cause found"


def put_down(found: Sequence[Decision], env: str) -> str | None:
    """The reasons of the decisions on whole runs and steps of the headline."""
    own = [one for one in found if one.rank is not None and (one.factor, one.level) == (ENVIRONMENT, env)]
    reasons = [f"{metric_title(one.metric).lower()}: {text}" for one in own if (text := because(one.reason))]
    return "; ".join(reasons) or None


def _notes(case: Case) -> list[str]:
    """What two hosts differ by."""
    found = []
    for what, compared in case.sets.items():
        if compared:
            host = compared[0]
            found.append(
                f"The two hosts ran the same {host.kernels} {what} equally often in {host.equal} of {host.pairs} "
                "pairs of launches. What differs between the two hosts proves nothing about a container."
            )
    missing = case.metrics[(case.metrics["metric"] == "kernels_per_step") & case.metrics["reason"].notna()]
    if not case.sets["kernels"] and len(missing):
        found.append(f"Kernels are unavailable: {missing.iloc[0]['reason']}.")
    return found


def span_s(interval: Interval) -> str:
    """Mean and interval of extra seconds."""
    if interval.mean is None:
        return "no number"
    if interval.low is None:
        return f"{signed_s(interval.mean)}, no interval from {interval.n} unit"
    return f"{signed_s(interval.mean)} ({ends(interval.low, interval.high, seconds)})"


def files_table(causes: pd.DataFrame, title: str) -> Table:
    """Medians over launches of what files cost, by environment."""
    own = causes[causes["kind"] != "unavailable"]
    units = own.groupby("metric")["unit"].first()
    table = own.pivot_table(index="metric", columns="launch", values="value", aggfunc="median")

    def cell(metric: str, env: str) -> str | None:
        value = table.loc[metric, env]
        return None if pd.isna(value) else with_unit(value, units[metric])

    return Table.of(
        sorted(table.index, key=metric_order),
        {"": metric_title, **by_environment(sorted(table.columns, key=env_order), cell)},
        caption=f"{title}: files of the imports, calls of a step (medians over launches)",
        note="In each launch, the first reading is before the imports, and the repeated reading after them.",
        numeric=True,
    )


def phases_table(costs: Sequence[PhaseCost], title: str) -> Table:
    """Extra seconds of each phase with its interval and its share, by environment."""
    by_key = {(cost.phase, cost.env): cost for cost in costs}

    def cell(phase: str, env: str) -> str | None:
        cost = by_key.get((phase, env))
        if cost is None:
            return None
        return f"{span_s(cost.extra)}{'' if cost.share is None else f', {100 * cost.share:.0f}%'}"

    return Table.of(
        dict.fromkeys(cost.phase for cost in costs),
        {"": metric_title, **by_environment(sorted({cost.env for cost in costs}, key=env_order), cell)},
        caption=f"{title}: extra time of a whole run and its phases, compared with the host",
        note="Exploratory: mean differences within rounds. The intervals of a phase hold for all environments "
        "together (Bonferroni). Shares are given if the interval of the whole run excludes zero.",
    )


def accounts_table(accounts: Sequence[FileAccount], title: str) -> Table:
    """What reading files accounts for, by environment."""
    columns = {
        "": field("env", env_title),
        "imports in whole runs": field("imports", span_s),
        "first reading of files": field("files", span_s),
        "imports after reading": field("after", span_s),
        "share of files": lambda one: one.reason if one.low is None else f"{one.low:.0%} to {one.high:.0%}",
    }
    caption = f"{title}: extra time of imports, and of reading their files"
    note = "Exploratory, from two campaigns: the bounds of the share are quotients of the ends of both intervals."
    return Table.of(accounts, columns, caption=caption, note=note)


def operators_table(times: Sequence[OperatorTime], title: str) -> Table:
    """Own time of each operator, as a ratio to the hosts."""
    return Table.of(
        times,
        {
            "operator": field("operator"),
            "environment": field("env", env_title),
            "host": field("host_s", seconds),
            "share": lambda time: f"{100 * time.share:.0f}%",
            "ratio": lambda time: ratio_text(time.ratio),
            "interval": lambda time: interval_text(time.low, time.high),
            "host to host": lambda time: interval_text(time.control_low, time.control_high),
            "": lambda time: "differs" if time.differs else "not shown to differ",
        },
        caption=f"{title}: own time of operators while profiled, compared with the two hosts",
        note=f"Exploratory: {ALL_OPERATORS} and those of 1% or more. Each operator and environment has its own "
        "spread, moderated by those of the environment's other operators. Levels are chosen by selection over all "
        "rows (Benjamini and Hochberg). An operator differs if there are as many units as a verdict needs, its "
        "interval excludes 1, and its ratio is beyond what the two hosts show in any unit.",
    )
