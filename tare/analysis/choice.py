"""Which rows of the tables a figure or a table shows: the headline's, an arm's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pandas as pd

from tare.model import tables
from tare.model.journals.units import share_of
from tare.model.levels import level_column, read_levels
from tare.model.registry import HOST, SHARED, SINGLE
from tare.model.roles import reference_of
from tare.model.studies import arms, layout
from tare.model.studies.layout import kind_of

KINDS = ("rounds", "steps")
PROFILE, SWEEP = "profile", "sweep"  # in place of a campaign's name where there is one of a kind
PRIMARY, EXPLORATORY = "primary", "exploratory"  # roles of comparisons
METRIC_OF = {"rounds": "real_s", "steps": "step_s"}  # what a kind of campaign answers
ENVIRONMENT, SETTING, STACK = "environment", "setting", "stack"  # what is weighed


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a row of the headlines answers: a metric, at the headline's level or at that of an arm."""

    metric: str
    arm: arms.Arm | None = None


def share(verdicts: pd.DataFrame) -> float:
    """Of alpha, what the campaign of these verdicts may spend: that of its try; all where none says which it is."""
    tries = verdicts["attempt"].dropna()
    return share_of(int(tries.max())) if len(tries) else 1.0


def joint(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of the headline campaigns of each workload: of either kind the one with the most environments."""
    rows = table[table["campaign"].map(layout.is_headline).astype(bool)]
    if rows.empty:
        return rows
    kinds = rows["campaign"].map(kind_of)
    sizes = rows.groupby(["workload", kinds.rename("kind"), "campaign"])["launch"].nunique()
    chosen = {key: part.idxmax()[2] for key, part in sizes.groupby(level=["workload", "kind"])}
    wanted = [chosen[key] for key in zip(rows["workload"], kinds, strict=True)]
    return rows[rows["campaign"] == wanted]


def compared(table: pd.DataFrame, kind: str, level: str | None = None, scenario: str = SINGLE) -> pd.DataFrame:
    """Rows of the campaigns of one kind that compare environments at one level of a factor.

    `table`: metrics or verdicts. `kind`: `rounds` or `steps`. `level`: written `factor=level`; None is the
    headline's. A level that the headline itself has is there too. `scenario`: what ran while the units did.
    """
    rows = table[(table["scenario"] == scenario) & (table["campaign"].map(kind_of) == kind)]
    found = {name: layout.arm_of(name) for name in rows["campaign"].unique()}
    headline = rows[rows["campaign"].map(lambda name: found[name] is None).astype(bool)]
    if level is None:
        return headline
    own = rows[
        rows["campaign"].map(lambda name: (arm := found[name]) is not None and arm.name == level).astype(bool)
    ]
    if len(own):
        return own
    ((factor, wanted),) = read_levels(level).items()
    levels = headline.get(level_column(factor), pd.Series(index=headline.index, dtype=object))
    if (levels == wanted).any():
        return headline[levels == wanted]
    first = {**arms.COMMON, **arms.SETTINGS, **arms.INPUTS}.get(factor, ("",))[0]
    return headline if wanted == first and levels.isna().all() else headline.iloc[:0]


def headlines(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Verdicts of the headline campaigns, and of the other campaigns that are headlines at another level.

    Returns the rows, with what each answers as `asked`.
    """
    rows = joint(verdicts)
    found = [_asked(rows, None)]
    for (workload, campaign), own in verdicts[verdicts["role"] == PRIMARY].groupby(["workload", "campaign"]):
        named = layout.read_name(campaign)
        arm, main = named.arm, replace(named, arm=None, scenario=SINGLE).text
        if arm is not None and ((rows["workload"] == workload) & (rows["campaign"] == main)).any():
            found.append(_asked(own, arm))
    return pd.concat(found)


def _asked(rows: pd.DataFrame, arm: arms.Arm | None) -> pd.DataFrame:
    return rows.assign(asked=[Asked(metric=metric, arm=arm) for metric in rows["metric"]])


def of_causes(table: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Rows of a workload's campaigns of causes."""
    wanted = table["campaign"].map(lambda name: layout.is_headline(name, "causes")).astype(bool)
    return table[wanted & (table["workload"] == workload)]


def of_rounds(table: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Rows of a workload's headline campaign of whole runs."""
    rows = joint(table)
    return rows[(rows["workload"] == workload) & (rows["campaign"].map(kind_of) == "rounds")]


def is_ours(arm: arms.Arm | None, *, stacks: bool) -> bool:
    """Whether an arm has every environment at its level: of the same packages, or of another stack.

    Settings of the framework run on the host alone: they are weighed apart (`setting_campaigns`).
    """
    return arm is not None and not arm.is_setting and bool(arm.other_stack) == stacks


def arm_campaigns(table: pd.DataFrame, workload: str, *, stacks: bool = False) -> list[str]:
    """Names of the arms' campaigns of one workload, rounds first: of the same packages, or of other stacks."""
    return [name for name in _varied(table, workload) if is_ours(layout.arm_of(name), stacks=stacks)]


def setting_campaigns(table: pd.DataFrame, workload: str) -> list[str]:
    """Names of the campaigns of the framework's settings of one workload, rounds first."""
    return [name for name in _varied(table, workload) if (arm := layout.arm_of(name)) and arm.is_setting]


def _varied(table: pd.DataFrame, workload: str) -> list[str]:
    names = table.loc[(table["workload"] == workload) & (table["scenario"] == SINGLE), "campaign"].unique()
    found = [name for name in names if layout.arm_of(name) is not None]
    return sorted(found, key=lambda n: (KINDS.index(kind_of(n)), n))


def level_campaigns(table: pd.DataFrame, workload: str) -> list[str]:
    """Names of all campaigns of one workload with a level other than the headline's: arms, settings, stacks."""
    return [
        *arm_campaigns(table, workload),
        *setting_campaigns(table, workload),
        *arm_campaigns(table, workload, stacks=True),
    ]


def arm_verdicts(table: pd.DataFrame, workload: str, campaign: str) -> pd.DataFrame:
    """Verdicts of an arm's campaign on what its kind answers: on levels and on environments."""
    own = (table["workload"] == workload) & (table["campaign"] == campaign)
    return table[own & (table["metric"] == METRIC_OF[kind_of(campaign)])]


def weighed(verdicts: pd.DataFrame, workload: str) -> pd.DataFrame:
    """What environments, settings and other stacks move on the host, farthest first, as rows of the verdict table.

    Returns headline rows against the host, and levels against the headline's on the host, with `group`, `level` (of
    a setting or stack, as `factor=level`), `size` and `rank`. `size` is the distance of the ratio's logarithm from
    zero, NaN where there is no ratio; rows of one metric are next to each other and are ranked together.
    """
    headline = joint(verdicts)
    own = (headline["workload"] == workload) & (headline["reference"] == HOST)
    rows = headline[own & headline["metric"].isin(METRIC_OF.values())]
    parts = [rows.assign(group=ENVIRONMENT, level=None)]
    for name in level_campaigns(verdicts, workload):
        rows, arm = arm_verdicts(verdicts, workload, name), layout.arm_of(name)
        assert arm is not None  # a campaign of a level has one
        level = rows[(rows["reference"] == reference_of(HOST)) & (rows["launch"] == HOST)]
        parts.append(level.assign(group=STACK if arm.other_stack else SETTING, level=arm.name))
    found = pd.concat([part for part in parts if len(part)] or parts[:1])
    order = {METRIC_OF[kind]: -number for number, kind in enumerate(KINDS)}
    sizes = [abs(math.log(ratio)) if pd.notna(ratio) and ratio > 0 else math.nan for ratio in found["ratio"]]
    found = found.assign(order=found["metric"].map(order), size=sizes)
    found = found.sort_values(
        ["order", "size"], ascending=[True, False], na_position="last", kind="stable", ignore_index=True
    )
    return found.assign(rank=found.groupby("metric").cumcount() + 1)


def is_level(row: pd.Series | dict[str, object]) -> bool:
    """Whether a verdict compares an arm's level with the headline's, not an environment with the host."""
    return bool(row["compares"] == tables.LEVEL)


def of_hosts(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of the host and of its A/A control; of units with co-runners, of the launches that have one."""
    hosts = (table["environment"] == HOST) & table["launch_role"].isin(("reference", "control"))
    return table[hosts & ~without_co_runner(table)]


def without_co_runner(table: pd.DataFrame) -> pd.Series:
    """Which rows are of launches that ran without the co-runner that others of their unit had."""
    return (table["scenario"] == SHARED) & ~table["co_runner"].astype(bool)
