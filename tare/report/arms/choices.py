"""Environment or settings: which of the two moves a training more on this machine? By the intervals alone.

Pure: tables in, sentences out, so that a recorded reference campaign is told by the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.analysis.choice import METRIC_OF, kind_of, level_campaigns
from tare.model.records.curves import CurvesRecord
from tare.model.roles import reference_of
from tare.model.studies.layout import arm_of
from tare.model.studies.study import HOST
from tare.model.tables import DIFFERENT
from tare.report.arms.compilers import compiler_table
from tare.report.arms.settings import heavier, size_text, sizes, together
from tare.report.figures.choices import ENVIRONMENT, STACK, choice_rows
from tare.report.methods.curves import curve_check
from tare.report.methods.losses import LARGEST_RELATIVE_LOSS, LOSS_OF
from tare.report.number_tables import compared
from tare.report.words.labels import arm_title, env_title, metric_title, sentence_case, significant, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Comparison, Table, folded
from tare.report.words.wording import between, control_sentence, listed, missing, percent, words

Verdict = Mapping[str, Any]
Curves = Mapping[tuple[str, str], CurvesRecord]
NO_CURVES: Curves = {}
MATTERS = {"level": "matters more", ENVIRONMENT: "matters less", "open": "can't be told"}
OPEN = "can't be told apart from the environments yet"
LEADS = {
    "level": ("matters more than any environment", "matter more than any environment"),
    ENVIRONMENT: ("matters less than an environment", "matter less than an environment"),
    "open": (OPEN, OPEN),
}
MOST_NAMED = 5  # settings and stacks in one sentence
UNIT_OF = {"real_s": "whole runs", "step_s": "training steps"}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One setting, or one other stack, beside all environments.

    Attributes:
        name: of the setting or stack, as it stands within a sentence.
        title: the setting and what was timed.
        outcome: a key of MATTERS.
        sentence: what the intervals say.
        loss: what it did to the last loss; None where no loss was left.
        metric: what was timed.
        moved: how much it moves that, where its own verdict says that it does.
        is_open: whether its own verdict leaves open whether it does.
    """

    name: str
    title: str
    outcome: str
    sentence: str
    loss: str | None
    metric: str = ""
    moved: str | None = None
    is_open: bool = False

    @property
    def finding(self) -> Comparison:
        """As the page shows it, with its outcome in two words."""
        return Comparison(
            title=self.title,
            verdict=MATTERS[self.outcome],
            sentence=self.sentence,
            note=self.loss,
            look=self.outcome,
            note_look="loss",
        )


@dataclass(frozen=True, kw_only=True)
class WorkloadChoices:
    """The answer for one workload.

    Attributes:
        lead: one sentence for each thing that was timed.
        choices: of settings and stacks, as the figure ranks them.
        unavailable: settings that could not be had, each with its reason.
        controls: what host against host showed.
        table: every number.
        compilers: graph compilers with and without; None where none was measured in whole runs.
        drawing: of another machine's, drawn already; this machine's is a figure.
    """

    name: str
    title: str
    lead: list[str]
    choices: list[Choice]
    unavailable: list[str]
    controls: list[str]
    table: Table
    compilers: Table | None
    drawing: str | None = None

    @property
    def shown(self) -> list[Choice]:
        """Those that stand open: of many the ones that are told from the environments."""
        return folded(self.choices, lambda one: one.outcome != "open")[0]

    @property
    def rest(self) -> list[Choice]:
        """Those that are folded."""
        return folded(self.choices, lambda one: one.outcome != "open")[1]

    @property
    def moves(self) -> str | None:
        """Which settings and stacks move what was timed first, farthest first; None where none is sure to."""
        own = [one for one in self.choices if one.metric == self.choices[0].metric]
        sure = [f"{one.moved} with {one.name}" for one in own if one.moved is not None]
        if not sure:
            return None
        more = f"; {len(sure) - MOST_NAMED} more move it less" if len(sure) > MOST_NAMED else ""
        count = sum(one.is_open for one in own)
        told = f"; whether {count} move it can't be told yet" if count else ""
        what = metric_title(own[0].metric).lower()
        return f"Beside the study's own, the {what} is {'; '.join(sure[:MOST_NAMED])}{more}{told}."


def sections(
    metrics: pd.DataFrame, verdicts: pd.DataFrame, workloads: Sequence[str], curves: Curves = NO_CURVES
) -> list[WorkloadChoices]:
    """One answer per workload of which a setting or a stack was varied; none where nothing was."""
    varied = [name for name in workloads if level_campaigns(metrics, name)]
    return [workload_choices(metrics, verdicts, name, curves) for name in varied]


def workload_choices(
    metrics: pd.DataFrame, verdicts: pd.DataFrame, workload: str, curves: Curves = NO_CURVES
) -> WorkloadChoices:
    """The answer of one workload, from its rows of the tables; `curves` by workload and campaign."""
    rows = choice_rows(verdicts, workload).to_dict("records")
    environments = [row for row in rows if row["group"] == ENVIRONMENT]
    found, lead = [], []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        beside = [row for row in environments if row["metric"] == metric]
        own = [row for row in rows if row["metric"] == metric and row["group"] != ENVIRONMENT]
        chosen = [_choice(row, beside, metrics, curves.get((workload, row["campaign"]))) for row in own]
        lead += [lead_sentence(metric, chosen, weighable=bool(sizes(beside)))] if chosen else []
        found += chosen
    firsts = {row["metric"]: row for row in reversed(environments)}
    return WorkloadChoices(
        name=workload,
        title=workload_title(workload),
        lead=lead or ["No setting ran on the host beside the headline's: there is nothing to weigh."],
        choices=found,
        unavailable=unavailable_settings(metrics, workload),
        controls=[sentence_case(control_sentence(row)) for row in reversed(firsts.values())],
        table=_table(workload, rows),
        compilers=compiler_table(metrics, workload, curves),
    )


def lead_sentence(metric: str, chosen: Sequence[Choice], *, weighable: bool = True) -> str:
    """How many settings matter more, less, or can't be told, for one thing that was timed.

    Args:
        metric: what was timed.
        chosen: settings and stacks.
        weighable: whether any environment has an interval.
    """
    if not weighable:
        return (
            f"{metric_title(metric)}: no environment has an interval here that a setting could be weighed against."
        )
    total = len(chosen)
    if total == 1:
        return f"{metric_title(metric)}: {chosen[0].name} {LEADS[chosen[0].outcome][0]}."
    parts = []
    for outcome, (one, more) in LEADS.items():
        count = sum(choice.outcome == outcome for choice in chosen)
        parts += [f"{count} {more if count > 1 else one}"] if count else []
    return f"{metric_title(metric)}: of {total} settings and stacks, {listed(parts)}."


def _choice(
    row: Verdict, environments: Sequence[Verdict], metrics: pd.DataFrame, curves: CurvesRecord | None
) -> Choice:
    outcome, sentence = weigh(row, environments)
    return Choice(
        name=arm_title(row["level"]),
        title=f"{row['title']}: {metric_title(row['metric']).lower()}",
        outcome=outcome,
        sentence=sentence,
        loss=loss_sentence(metrics, row["workload"], row["campaign"], curves),
        metric=row["metric"],
        moved=between(row["metric"], row["ci_low"], row["ci_high"]) if row["verdict"] in DIFFERENT else None,
        is_open=row["verdict"].startswith("inconclusive"),
    )


def weigh(row: Verdict, environments: Sequence[Verdict]) -> tuple[str, str]:
    """Outcome (`level`, `environment`, `open`) and sentence of one level on the host beside all environments.

    The rule is that of `heavier`.
    """
    noun = "stack" if row["group"] == STACK else "setting"
    others, found = sizes(environments), heavier([row], environments)
    what = metric_title(row["metric"]).lower()
    if not sizes([row]):
        why = row["reason"] if not missing(row["reason"]) else f"{row['n_units']} complete units"
        return "open", f"{row['title']}: we can't tell yet what it does to the {what}: {why}"
    text = f"{row['title']} makes the {what} {between(row['metric'], row['ci_low'], row['ci_high'])}"
    beside = "with the study's own" if noun == "stack" else "at the headline's level"
    text += f" {'than' if text.endswith(words(row['metric'])[:2]) else 'as'} {beside}"
    if found is None:
        return "open", f"{text}; no environment has an interval here, so there is nothing to weigh it against"
    outcome, _, surest, farthest = found
    most_moved = size_text(others[farthest][1], up=True)
    sure = together([row, *environments])
    if outcome == "level":
        text += f"; no environment moves it by more than {most_moved} ({env_title(farthest)})"
        return "level", f"{text}: the {noun} matters more{sure}"
    if outcome == "environment":
        moved = size_text(others[surest][0], up=False)
        text += f"; {env_title(surest)} moves it by at least {moved}"
        return "environment", f"{text}: the environment matters more{sure}"
    text += f"; {env_title(farthest)} moves it by at most {most_moved}"
    return "open", f"{text}: which matters more can't be told yet{sure}"


def loss_sentence(
    metrics: pd.DataFrame, workload: str, campaign: str, curves: CurvesRecord | None = None
) -> str | None:
    """The last loss at the level beside the headline's, unit by unit on the host; None where there is none.

    Another loss is no failure: a setting may round otherwise, and a stack may draw other numbers. Which of these it
    is, or whether a stack computes something else, `curves` say, where there are any.
    """
    own = metrics[
        (metrics["workload"] == workload)
        & (metrics["campaign"] == campaign)
        & (metrics["metric"] == LOSS_OF[kind_of(campaign)])
        & (metrics["kind"] == "measured")
    ]
    pairs = own.pivot_table(index="rep", columns="launch", values="value").reindex(
        columns=[HOST, reference_of(HOST)]
    )
    pairs = pairs.dropna()
    if pairs.empty:
        return None
    level, headline = pairs[HOST], pairs[reference_of(HOST)]
    distance = ((level - headline).abs() / headline.abs()).max()
    units = "one unit" if len(pairs) == 1 else f"{len(pairs)} units"
    if distance == 0:
        return f"The last loss is the very same in {units}"
    shown = f"{significant(level.median(), 5)} beside {significant(headline.median(), 5)} (medians)"
    if distance <= LARGEST_RELATIVE_LOSS:
        return f"The last loss is the same but for rounding: {shown}, at most {distance:.1e} apart in {units}"
    apart = percent(distance, up=True)
    why = "other rounding, grown over the steps, or another computation"
    if curves is not None:
        why = curve_check(curves).clause
    return f"The last loss is another: {shown}, up to {apart} apart in {units}: {why}"


def unavailable_settings(metrics: pd.DataFrame, workload: str) -> list[str]:
    """Settings and stacks that ran nowhere on the host, each with the reasons that its rows give."""
    lines: dict[str, None] = {}
    for name in level_campaigns(metrics, workload):
        own = metrics[(metrics["workload"] == workload) & (metrics["campaign"] == name)]
        host = own[(own["launch"] == HOST) & (own["metric"] == METRIC_OF[kind_of(name)])]
        if host.empty or (host["kind"] != UNAVAILABLE).any():
            continue
        why = "; ".join(dict.fromkeys(host["reason"]))
        lines[f"{sentence_case(arm_title(arm_of(name).name))}, {UNIT_OF[host['metric'].iloc[0]]}: {why}"] = None
    return list(lines)


def _table(workload: str, rows: Sequence[Verdict]) -> Table:
    return Table.of(
        rows,
        {
            "what": lambda row: Cell(
                text=row["title"], below=row["group"] + ("" if row["group"] == ENVIRONMENT else ", host")
            ),
            "metric": lambda row: metric_title(row["metric"]),
            **compared("n", "ratio", "interval", "control", "margin", "verdict"),
        },
        caption=f"{workload_title(workload)}: environments and settings, farthest from zero first",
        note="Environments: ratio to the host in the headline's campaign. Settings and stacks: the level by the "
        "headline's, on the host, each in a campaign of its own with its own control.",
        wide=True,
    )
