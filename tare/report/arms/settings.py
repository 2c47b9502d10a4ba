"""Arms: what a setting itself costs, what environments cost at that level, and which of the two matters more.

Every sentence follows from intervals of one campaign; the headline's stand beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.choice import METRIC_OF, arm_verdicts, is_level
from tare.model.studies.stacks import image_kind
from tare.model.studies.study import HOST
from tare.report.arms.fault_costs import FaultCosts, fault_costs
from tare.report.evidence import Campaign, Evidence
from tare.report.figures import joint
from tare.report.methods.designs import design_sentence, verdicts_of
from tare.report.number_tables import compared, interval_text
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, sentence_case, workload_title
from tare.report.words.layout import Comparison, Table, folded
from tare.report.words.wording import TIMES_FROM, control_sentence, missing, percent, signed, verdict_sentence

Verdict = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ArmAnswer:
    """What one arm of one workload says.

    Attributes:
        title: the arm and what was timed.
        weighing: whether the setting or the environment matters more, by the intervals alone.
        levels: what the level itself costs.
        environments: what environments cost at this level, each beside its headline.
        control, design: sentences.
        table: every number.
        faults: what page faults cost a step, of the default allocator.
    """

    title: str
    weighing: str
    levels: list[Comparison]
    environments: list[Comparison]
    control: str
    design: str
    table: Table
    faults: FaultCosts | None

    @property
    def is_told(self) -> bool:
        """Whether the level itself, or an environment at it, is told from what it is compared with."""
        return any(not one.verdict.startswith("inconclusive") for one in (*self.levels, *self.environments))


@dataclass(frozen=True, kw_only=True)
class ArmAnswers:
    """What the arms, or other stacks, of a workload say: an answer for each campaign that compared anything."""

    name: str
    title: str
    answers: list[ArmAnswer]

    @property
    def shown(self) -> list[ArmAnswer]:
        """Those that stand open: of many the ones that tell something apart."""
        return folded(self.answers, lambda one: one.is_told)[0]

    @property
    def rest(self) -> list[ArmAnswer]:
        """Those that are folded."""
        return folded(self.answers, lambda one: one.is_told)[1]


def arm_answers(evidence: Evidence, workload: str) -> list[ArmAnswer]:
    """One answer per arm of a workload; none where the study has none."""
    found = (arm_answer(evidence, campaign) for campaign in evidence.arms(workload))
    return [answer for answer in found if answer is not None]


def arm_answer(evidence: Evidence, campaign: Campaign) -> ArmAnswer | None:
    """The answer of one campaign of an arm or of another stack; None where nothing was compared."""
    rows = arm_verdicts(evidence.verdicts, campaign.workload, campaign.name).to_dict("records")
    return _answer(evidence, campaign, sorted(rows, key=lambda row: env_order(row["launch"]))) if rows else None


def _answer(evidence: Evidence, campaign: Campaign, rows: Sequence[Verdict]) -> ArmAnswer:
    levels = [row for row in rows if is_level(row)]
    others = [row for row in rows if not is_level(row)]
    beside = _headline(evidence, campaign)
    design = design_sentence(campaign, verdicts_of(evidence, campaign))
    if campaign.arm.other_stack:
        own, base = campaign.arm.other_stack, campaign.plan.stack
        design += f". Kind of image: {own}, {image_kind(own)}; {base}, {image_kind(base)}"
    return ArmAnswer(
        title=f"{sentence_case(arm_title(campaign.arm.name))}: {metric_title(METRIC_OF[campaign.kind]).lower()}",
        weighing=weighing(
            levels,
            others,
            arm_title(campaign.arm.name),
            "stack" if campaign.arm.other_stack else "setting",
        ),
        levels=[_level(row, campaign) for row in levels],
        environments=[_environment(row, beside.get(row["launch"]), campaign) for row in others],
        control=sentence_case(control_sentence(rows[0])),
        design=design,
        table=_table(campaign, [*levels, *others], beside),
        faults=fault_costs(evidence, campaign),
    )


def _headline(evidence: Evidence, campaign: Campaign) -> dict[str, Verdict]:
    """Verdicts of the headline on what the arm's campaign answers, by environment."""
    rows = joint(evidence.verdicts)
    own = rows[(rows["workload"] == campaign.workload) & (rows["metric"] == METRIC_OF[campaign.kind])]
    return {row["launch"]: row for row in own.to_dict("records")}


def _level(row: Verdict, campaign: Campaign) -> Comparison:
    if campaign.arm.other_stack:
        other = f"with {campaign.plan.stack}"
        return Comparison(
            title=f"{campaign.arm.on_host} instead of {campaign.plan.stack}, on the host",
            verdict=row["verdict"],
            sentence=sentence_case(verdict_sentence(row, other=other, whose=f"its own {other}")),
        )
    sentence = verdict_sentence(row, other="at the headline's level", whose="its own at the headline's level")
    return Comparison(
        title="The level itself, on the host"
        if row["launch"] == HOST
        else f"The level itself, {env_title(row['launch'])}",
        verdict=row["verdict"],
        sentence=sentence_case(sentence),
    )


def _environment(row: Verdict, beside: Verdict | None, campaign: Campaign) -> Comparison:
    sentence = sentence_case(verdict_sentence(row))
    if campaign.arm.on_host != campaign.arm.level:
        title = f"{campaign.arm.level} in {env_title(row['launch'])} beside {campaign.arm.on_host} on the host"
        return Comparison(title=title, verdict=row["verdict"], sentence=sentence)
    if beside is not None and not missing(beside["ci_low"]):
        sentence += f"; in the headline: {signed(beside['ci_low'], beside['ci_high'])}, {beside['verdict']}"
    return Comparison(title=env_title(row["launch"]), verdict=row["verdict"], sentence=sentence)


def weighing(levels: Sequence[Verdict], others: Sequence[Verdict], setting: str, noun: str = "setting") -> str:
    """Which moves the metric more: the setting, or an environment at that setting? By the intervals alone.

    `setting` is its title, `noun` what it is.

    Sizes are distances of log-ratios from zero: an interval gives the least and the most that each can be.
    """
    found = heavier(levels, others)
    if found is None:
        return f"Which matters more, the environment or the {noun}, can't be said: one of the two has no interval"
    outcome, (least, most), surest, farthest = found
    environments = sizes(others)
    what, sure = f"the {metric_title(levels[0]['metric']).lower()}", together([*levels, *others])
    if outcome == "level":
        return (
            f"Here the {noun} matters more than the environment: {setting} moves {what} by at least "
            f"{size_text(least, up=False)}, no environment by more than "
            f"{size_text(environments[farthest][1], up=True)} ({env_title(farthest)}){sure}"
        )
    if outcome == "environment":
        return (
            f"Here an environment matters more than the {noun}: {env_title(surest)} moves {what} by at least "
            f"{size_text(environments[surest][0], up=False)}, {setting} by no more than "
            f"{size_text(most, up=True)}{sure}"
        )
    return (
        f"Which matters more here, the environment or the {noun}, we can't tell yet: {setting} moves {what} by "
        f"{_range(least, most)}, {env_title(farthest)}, which may move it most, by "
        f"{_range(*environments[farthest])}{sure}"
    )


def heavier(
    levels: Sequence[Verdict], others: Sequence[Verdict]
) -> tuple[str, tuple[float, float], str, str] | None:
    """Which moves a metric more, by the intervals alone; None where one side has none.

    The level does where the least that its intervals hold is more than the most that any environment's holds, an
    environment the other way round; where they overlap it is open.

    Returns:
        `level`, `environment` or `open`; least and most that the level moves; the environment that moves it most
        for sure; the one that may move it most.
    """
    own, environments = sizes(levels), sizes(others)
    if not own or not environments:
        return None
    least, most = (max(ends) for ends in zip(*own.values(), strict=True))
    surest = max(environments, key=lambda env: environments[env][0])
    farthest = max(environments, key=lambda env: environments[env][1])
    outcome = "environment" if environments[surest][0] > most else "open"
    return "level" if least > environments[farthest][1] else outcome, (least, most), surest, farthest


def sizes(rows: Sequence[Verdict]) -> dict[str, tuple[float, float]]:
    """Least and largest distance from zero that each interval of a log-ratio holds."""
    found = {}
    for row in rows:
        if not missing(row["ci_low"]) and not missing(row["ci_high"]):
            low, high = math.log(row["ci_low"]), math.log(row["ci_high"])
            least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
            found[row["launch"]] = (least, max(abs(low), abs(high)))
    return found


def together(rows: Sequence[Verdict]) -> str:
    """How sure these intervals are: each by itself, and that they explore."""
    return f" (each interval {100 * (1 - max(row['alpha'] for row in rows)):.3g}%; exploratory)"


def size_text(size: float, *, up: bool) -> str:
    """A size as per cent, from twice on as a factor: rounded up where it is the most, down where it is the least.

    A factor says it of both directions; "124%" would be read as longer where it is shorter.
    """
    if math.exp(size) < TIMES_FROM:
        return percent(math.expm1(size), up=up, down=not up)
    scaled = 100 * math.exp(size)
    return f"a factor of {(math.ceil(scaled - 1e-6) if up else math.floor(scaled + 1e-6)) / 100:.2f}"


def _range(least: float, most: float) -> str:
    high = size_text(most, up=True)
    return f"at most {high}" if least == 0 else f"{size_text(least, up=False)} to {high}"


def _table(campaign: Campaign, rows: Sequence[Verdict], beside: Mapping[str, Verdict]) -> Table:
    def in_headline(row: Verdict) -> str | None:
        own = None if is_level(row) else beside.get(row["launch"])
        return None if own is None else interval_text(own["ci_low"], own["ci_high"])

    return Table.of(
        rows,
        {
            "comparison": lambda row: f"{env_title(row['launch'])}{': the level itself' if is_level(row) else ''}",
            **compared("n", "ratio", "interval", "ratio of totals"),
            "interval in the headline": in_headline,
            **compared("control", "margin", "verdict"),
        },
        caption=f"{workload_title(campaign.workload)}, {arm_title(campaign.arm.name)}: every comparison",
        wide=True,
    )


def sections(evidence: Evidence) -> list[ArmAnswers]:
    """Workloads that have arms, each with its answers; the page has no section where there are none."""
    return [
        ArmAnswers(name=name, title=workload_title(name), answers=arm_answers(evidence, name))
        for name in evidence.workloads
        if evidence.arms(name)
    ]
