"""One matrix: what each environment costs a whole run alone, in several instances, and beside a second job.

Rows of the table `verdicts` of each scenario's headline campaign in, one table out; nothing is computed. Beside the
study's environments stand those that a paper it repeats had and it has not, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.launch_rows import SLOWDOWN
from tare.literature import published
from tare.literature.measured_here import why_absent
from tare.model.registry import DISTRIBUTED, HOST, SHARED, SINGLE
from tare.model.roles import CONTROL, alone_of
from tare.model.studies.papers import repeated
from tare.report.evidence import Evidence
from tare.report.number_tables import interval_text, ratio_text
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Table
from tare.report.words.wording import missing

OWN = "own"  # a run beside a second job by the same environment's without one
# Head of a column: its scenario, the metric of its comparisons, whose value is the other one.
COLUMNS = {
    "alone ÷ host": (SINGLE, "real_s", HOST),
    "several instances ÷ host": (DISTRIBUTED, "real_s", HOST),
    "beside a second job ÷ alone": (SHARED, "real_s", OWN),
    "that slowdown ÷ the host's": (SHARED, SLOWDOWN, HOST),
}


def matrix(evidence: Evidence) -> Table | None:
    """Environments by scenarios, workload by workload; None where the study has one scenario alone."""
    if len(evidence.study.scenarios) == 1:
        return None
    columns = {head: asked for head, asked in COLUMNS.items() if asked[0] in evidence.study.scenarios}
    verdicts = {
        (row["workload"], row["campaign"], row["launch"], row["metric"], row["reference"]): row
        for row in evidence.verdicts.to_dict("records")
    }
    headlines = {
        (one.workload, one.plan.scenario): one
        for one in evidence.campaigns
        if one.kind == "rounds" and one.arm is None
    }

    def cell(workload: str, env: str, asked: tuple[str, str, str]) -> str | Cell | None:
        scenario, metric, other = asked
        campaign = headlines.get((workload, scenario))
        if campaign is None:
            return None
        if env not in known:
            return UNAVAILABLE
        key = (workload, campaign.name, metric)
        if env == CONTROL:
            return _second_host(
                [row for one, row in verdicts.items() if (*one[:2], one[3]) == key and one[4] == other]
            )
        row = verdicts.get((workload, campaign.name, env, metric, alone_of(env) if other == OWN else other))
        return _told(row, campaign.plan.unavailable.get(env))

    def row_of(workload: str, env: str) -> list[str | Cell | None]:
        return [env_title(env, short=True), *(cell(workload, env, asked) for asked in columns.values())]

    known = {*evidence.environments, CONTROL}
    absent = sorted(
        {env for name in evidence.workloads for env in _of_papers(evidence, name)} - known, key=env_order
    )
    absence = why_absent(absent)
    rows: list[list[str | Cell | None]] = []
    for workload in evidence.workloads:
        places = sorted({*known, *_of_papers(evidence, workload)}, key=env_order)
        found = [row_of(workload, env) for env in places]
        rows += [[workload_title(workload)], *(own for own in found if any(own[1:]))]
    return Table(
        caption="Whole runs: environments by scenarios",
        columns=["", *columns],
        rows=rows,
        note="Ratios of the time of whole runs, with their intervals: by the host's in the same scenario, or "
        "beside a second job by the same without one. The second host, which differs in nothing, shows the "
        "instrument's own error. A dash: this study compares nothing there."
        + "".join(f" {why}. A scenario with `environments` of its own names them too." for why in absence),
        numeric=True,
        wide=True,
    )


def _of_papers(evidence: Evidence, workload: str) -> set[str]:
    """Environments of the papers that a workload repeats."""
    papers = (published.load(name) for name in repeated(evidence.papers, [workload]))
    return {env for paper in papers if paper.measured_with for env in paper.measured_with.environments}


def _second_host(rows: Sequence[Mapping[str, Any]]) -> Cell | None:
    """The control beside any environment's comparison: it is the same in all."""
    row = next((row for row in rows if not missing(row["control_ratio"])), None)
    if row is None:
        return None
    return Cell(
        text=ratio_text(row["control_ratio"]) or "",
        below=interval_text(row["control_ci_low"], row["control_ci_high"]),
    )


def _told(row: Mapping[str, Any] | None, unavailable: str | None) -> Cell | str | None:
    if unavailable is not None:
        return Cell(text=UNAVAILABLE, below=unavailable)
    if row is None:
        return None
    if missing(row["ratio"]):
        return Cell(text=UNAVAILABLE, below=str(row["reason"]))
    interval = interval_text(row["ci_low"], row["ci_high"])
    return Cell(text=ratio_text(row["ratio"]) or "", below=f"{interval}: {row['verdict']}")
