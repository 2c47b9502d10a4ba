"""Who else used this machine's processors while the headline was measured."""

from __future__ import annotations

from collections.abc import Iterator

from tare.model.journals.units import counted, others_in
from tare.model.records.campaigns import Others
from tare.model.registry import SINGLE
from tare.report.evidence import Campaign, Evidence
from tare.report.words.labels import workload_title
from tare.report.words.layout import UNAVAILABLE, Row, Table

KINDS = {"rounds": "whole runs and their training steps"}
WORTH_TELLING = 0.1  # processors, on the first page
UNWATCHED = "nobody watched who else used the processors"


def _watched(evidence: Evidence) -> Iterator[tuple[Campaign, Others | None]]:
    """Campaigns of the headline, and who else used the processors in all their units that count."""
    for campaign in evidence.campaigns:
        plan = campaign.plan
        if plan.kind in KINDS and plan.arm == plan.headline_arm and plan.scenario == SINGLE:
            yield campaign, others_in(unit.others for unit in counted(campaign.units))


def _cpus(used_s: float, seen: Others) -> str:
    return f"{used_s / seen.seconds:.2f}"


def others_table(evidence: Evidence) -> Table | None:
    """What others used, by campaign of the headline; None without one."""
    rows: list[Row] = []
    for campaign, seen in _watched(evidence):
        place = [workload_title(campaign.workload), KINDS[campaign.kind]]
        if seen is None:
            rows.append([*place, *[f"{UNAVAILABLE}: {UNWATCHED}"] * 3])
            continue
        units = [unit.others for unit in counted(campaign.units) if unit.others is not None]
        most = max(one.cpu_s / one.seconds for one in units)
        rows.append([*place, _cpus(seen.cpu_s, seen), f"{most:.2f}", _cpus(seen.stolen_s, seen)])
    if not rows:
        return None
    return Table(
        caption="Who else used the processors",
        columns=["workload", "measured", "others, mean", "others, in the busiest unit", "taken by a hypervisor"],
        rows=rows,
        note="Processors, of all that the machine has: what the kernel counted as busy while launches ran, less "
        "what they and Tare used.",
    )


def others_note(evidence: Evidence) -> str | None:
    """One sentence where others, or a hypervisor, used enough to widen intervals; None where they did not."""
    seen = [found for _, found in _watched(evidence) if found is not None]
    told = []
    for what, used in (
        ("other programs used", [one.cpu_s / one.seconds for one in seen]),
        ("its hypervisor withheld", [one.stolen_s / one.seconds for one in seen]),
    ):
        if used and max(used) >= WORTH_TELLING:
            low, high = (f"{value:.2g}" for value in (min(used), max(used)))
            told.append(f"{what} {high if low == high else f'{low} to {high}'}")
    if not told:
        return None
    processors = max(one.processors for one in seen)
    return (
        f"While this was measured, {' and '.join(told)} of this machine's {processors} processors: a quieter hour "
        "gives narrower intervals."
    )
