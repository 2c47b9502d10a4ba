"""How many units, why that many, how precise they made it, and what went wrong: in sentences from plan and seal."""

from __future__ import annotations

import math

import pandas as pd

from tare.analysis.choice import METRIC_OF
from tare.analysis.launch_rows import failure
from tare.model.journals.units import given_up
from tare.model.registry import SINGLE
from tare.report.evidence import Campaign, Evidence
from tare.report.words.labels import arm_title, env_title, metric_title, seconds, units_text, workload_title
from tare.report.words.wording import listed, margin_text, width_text

WHAT = {"rounds": "whole runs", "steps": "training steps", "causes": "causes", "sweep": "batch sweep"}
REACHED = (("ci_low", "ci_high"), ("control_ci_low", "control_ci_high"))


def design_sentence(campaign: Campaign, verdicts: pd.DataFrame) -> str:
    """Number of units, where it comes from, and the half-width that was reached beside the one wanted."""
    adopted = campaign.plan.adopted
    if adopted is None:
        return _units_sentence(campaign, verdicts)
    when = adopted.sealed_at.replace("T", " ").removesuffix("Z")
    said = _units_sentence(campaign, verdicts)
    return f"{said}; taken over from the study {adopted.study}, which had the same plan ({when} UTC)"


def _units_sentence(campaign: Campaign, verdicts: pd.DataFrame) -> str:
    sampling, decision = campaign.plan.sampling, campaign.decision
    count = units_text(len(campaign.counted), campaign.kind)
    reached = half_width(campaign, verdicts)
    got = "no interval yet" if reached is None else f"{width_text(reached)} reached"
    if sampling.units is not None:
        return f"{count}, a number fixed by the study; {got}"
    wanted = f"±{margin_text(sampling.half_width)}"
    if decision is None or campaign.ended:
        return f"{count}; {wanted} wanted, {got}"
    if decision.design == "stein":
        return f"{count}, chosen from the spread of a pilot of {sampling.pilot} (Stein); {wanted} wanted, {got}"
    paid = f"{count}, all that the budget of {seconds(sampling.budget_s)} pays for"
    if decision.wanted > decision.units:
        return f"{paid}; {units_text(decision.wanted, campaign.kind)} were needed for the wanted {wanted}; {got}"
    return f"{paid}; {wanted} wanted, {got}"


def half_width(campaign: Campaign, verdicts: pd.DataFrame) -> float | None:
    """Half-width of the widest interval of what the campaign answers, control included, as a relative number."""
    rows = verdicts[verdicts["metric"] == METRIC_OF[campaign.kind]]
    widths = [
        math.sqrt(high / low) - 1
        for low_name, high_name in REACHED
        for low, high in zip(rows[low_name], rows[high_name], strict=True)
        if low == low and high == high and low > 0
    ]
    return max(widths, default=None)


def verdicts_of(evidence: Evidence, campaign: Campaign) -> pd.DataFrame:
    """Rows of the verdict table of one campaign."""
    table = evidence.verdicts
    return table[(table["workload"] == campaign.workload) & (table["campaign"] == campaign.name)]


def designs(evidence: Evidence, workload: str) -> list[tuple[str, str]]:
    """What the headline campaigns of a workload answer, and their designs."""
    own = [campaign for campaign in evidence.headlines() if campaign.workload == workload]
    return [(metric_title(METRIC_OF[c.kind]), design_sentence(c, verdicts_of(evidence, c))) for c in own]


def name_of(campaign: Campaign) -> str:
    """A campaign as a reader knows it: workload, what it answers, its arm."""
    what = WHAT[campaign.kind]
    return ", ".join([workload_title(campaign.workload), what, *_levels(campaign)])


def _levels(campaign: Campaign) -> list[str]:
    """What sets a campaign apart from the headline: its arm, its scenario."""
    found = [arm_title(campaign.arm.name)] if campaign.arm else []
    return found + ([campaign.plan.scenario] if campaign.plan.scenario != SINGLE else [])


def troubles(evidence: Evidence) -> list[str]:
    """Campaigns that ended early, units that are void, environments that were given up, launches that failed."""
    lines = []
    for campaign in evidence.campaigns:
        lines += _troubles(campaign)
    return lines


def _troubles(campaign: Campaign) -> list[str]:
    name, kind = name_of(campaign), campaign.kind
    lines = []
    if campaign.ended:
        count = units_text(len(campaign.counted), kind)
        lines.append(f"{name}: ended before its time, with {count}: {campaign.ended}")
    void = [unit for unit in campaign.units if unit.voided is not None]
    if void:
        reasons = listed(list(dict.fromkeys(str(unit.voided) for unit in void)))
        were = "is void, was repeated and counts" if len(void) == 1 else "are void, were repeated and count"
        lines.append(f"{name}: {units_text(len(void), kind)} {were} nowhere ({reasons})")
    gone = given_up(campaign.units)
    names = list(dict.fromkeys(env for unit in campaign.units for env in unit.launches))
    for env in names:
        where = env_title(env) if kind != "sweep" else f"batch {env}"
        tried = [unit.launches[env] for unit in campaign.units if env in unit.launches]
        tried = [row for row in tried if row.status in ("ok", "failed", "timeout")]
        bad = [row for row in tried if not row.ok]
        if bad:
            end = f"; {_left_out(campaign, env, gone[env])}" if env in gone else ""
            lines.append(
                f"{name}, {where}: {len(bad)} of {len(tried)} launches did not succeed ({failure(bad[-1])}){end}"
            )
    return lines


def _left_out(campaign: Campaign, env: str, reason: str) -> str:
    """What giving up meant: the units in which it was not tried any more."""
    skipped = sum(env in unit.launches and unit.launches[env].status == "skipped" for unit in campaign.units)
    return f"{reason.split(':')[0]}, so {units_text(skipped, campaign.kind)} went on without it"


def absent(evidence: Evidence) -> dict[str, str]:
    """Environments of the study that did not run, each with its reason."""
    reasons: dict[str, str] = {}
    for env in evidence.environments:
        probe = evidence.probes.get(env)
        if probe is not None and not probe.available:
            reasons[env] = probe.reason or "no reason was recorded"
    for campaign in evidence.campaigns:
        if not _levels(campaign) and not (campaign.arm is not None and campaign.arm.is_setting):
            for env, reason in campaign.plan.unavailable.items():
                if env in evidence.environments:
                    reasons.setdefault(env, reason)
    return dict(sorted(reasons.items()))


def unavailable(evidence: Evidence) -> list[dict[str, str | None]]:
    """Environments of the study that did not run, each with its reason and remedy; then an arm's own gaps."""
    reasons = absent(evidence)
    only_in_arms: dict[tuple[str, str], str] = {}
    for campaign in evidence.campaigns:
        if campaign.arm is not None and campaign.arm.is_setting:
            continue  # no environment's fault: it is told where settings are weighed
        for env, reason in campaign.plan.unavailable.items():
            levels = ", ".join(_levels(campaign))
            if levels and env not in reasons:
                only_in_arms.setdefault((env, levels), reason)
    rows = [
        {
            "title": env_title(env),
            "reason": reason,
            "remedy": evidence.probes[env].remedy if env in evidence.probes else None,
        }
        for env, reason in reasons.items()
    ]
    return rows + [
        {"title": f"{env_title(env)}, {levels}", "reason": reason, "remedy": None}
        for (env, levels), reason in only_in_arms.items()
        if env not in reasons
    ]
