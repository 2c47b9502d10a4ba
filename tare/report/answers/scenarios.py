"""One matrix: what each environment costs a whole run alone, in several instances, and beside a second job.

Beside the study's environments stand those that a paper it repeats had and it has not, with the reason.
"""

from __future__ import annotations

from tare.analysis.launch_rows import SLOWDOWN
from tare.literature import published
from tare.literature.measured_here import why_absent
from tare.model.registry import DISTRIBUTED, HOST, SHARED, SINGLE
from tare.model.roles import CONTROL, alone_of
from tare.model.studies.papers import repeated
from tare.report.evidence import Evidence
from tare.report.number_tables import interval_text, ratio_text
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Row, Table
from tare.report.words.wording import missing

OWN = "own"  # a run beside a second job by the same environment's without one
# Head of a column: its scenario, the metric of its comparisons, whose value is the other one.
COLUMNS = {
    "alone ÷ host": (SINGLE, "real_s", HOST),
    "several instances ÷ host": (DISTRIBUTED, "real_s", HOST),
    "beside a second job ÷ alone": (SHARED, "real_s", OWN),
    "that slowdown ÷ the host's": (SHARED, SLOWDOWN, HOST),
}
NOTE = (
    "Ratios of the time of whole runs, with their intervals: by the host's in the same scenario, or beside a "
    "second job by the same without one. The second host, which differs in nothing, shows the instrument's own "
    "error. A dash: this study compares nothing there."
)


def matrix(evidence: Evidence) -> Table | None:
    """Environments by scenarios, workload by workload; None where the study has one scenario alone."""
    if len(evidence.study.scenarios) == 1:
        return None
    columns = {head: asked for head, asked in COLUMNS.items() if asked[0] in evidence.study.scenarios}
    keys = ["workload", "campaign", "launch", "metric", "reference"]
    verdicts = {tuple(row[key] for key in keys): row for row in evidence.verdicts.to_dict("records")}
    found = [one for one in evidence.campaigns if one.kind == "rounds" and one.arm is None]
    headlines = {(one.workload, one.plan.scenario): one for one in found}
    known = {*evidence.environments, CONTROL}

    def cell(workload: str, env: str, asked: tuple[str, str, str]) -> str | Cell | None:
        scenario, metric, other = asked
        campaign = headlines.get((workload, scenario))
        if campaign is None or env not in known:
            return None if campaign is None else UNAVAILABLE
        place = (workload, campaign.name, metric)
        own = {key[2]: row for key, row in verdicts.items() if (*key[:2], key[3]) == place
               and key[4] == (alone_of(key[2]) if other == OWN else other)}  # fmt: skip
        if env == CONTROL:  # it is the same beside any environment's comparison
            rows = [row for row in own.values() if row["reference"] == other and not missing(row["control_ratio"])]
            return _told(rows[0], "control_") if rows else None
        if env in campaign.plan.unavailable:
            return Cell(text=UNAVAILABLE, below=campaign.plan.unavailable[env])
        return _told(own[env]) if env in own else None

    papers = {name: _of_papers(evidence, name) for name in evidence.workloads}
    rows: list[Row] = []
    for workload in evidence.workloads:
        own = [
            [env_title(env, short=True), *(cell(workload, env, asked) for asked in columns.values())]
            for env in sorted(known | papers[workload], key=env_order)
        ]
        rows += [[workload_title(workload)], *(row for row in own if any(row[1:]))]
    absence = why_absent(sorted(set().union(*papers.values()) - known, key=env_order))
    return Table(
        caption="Whole runs: environments by scenarios",
        columns=["", *columns],
        rows=rows,
        note=NOTE
        + "".join(f" {why}. A scenario with `environments` of its own names them too." for why in absence),
        numeric=True,
        wide=True,
    )


def _of_papers(evidence: Evidence, workload: str) -> set[str]:
    """Environments of the papers that a workload repeats."""
    papers = (published.load(name) for name in repeated(evidence.papers, [workload]))
    return {env for paper in papers if paper.measured_with for env in paper.measured_with.environments}


def _told(row: dict[str, object], of: str = "") -> Cell:
    """A ratio with its interval and verdict, or the control's."""
    text = ratio_text(row[f"{of}ratio"])
    if text is None:
        return Cell(text=UNAVAILABLE, below=str(row["reason"]))
    interval = interval_text(row[f"{of}ci_low"], row[f"{of}ci_high"])
    return Cell(text=text, below=interval if of else f"{interval}: {row['verdict']}")
