"""Environment or settings: what each environment, each setting and each other stack moves, ranked on one axis.

An environment is the headline's ratio to the host. A setting is its level by the headline's level, on the host,
from a campaign of its own: both are ratios within units, so that they may stand beside each other.
"""

from __future__ import annotations

import pandas as pd

from tare.analysis.choice import ENVIRONMENT, SETTING, STACK, level_campaigns, weighed
from tare.report.figures import style
from tare.report.figures.forest import Line, Panel, confidence, forest
from tare.report.words.labels import arm_title, env_title, metric_title, sentence_case, span, workload_title

LOOKS = {SETTING: ("P", "#c07a1c"), STACK: ("X", "#a06cb8")}
LABEL_LETTERS = 24


def choice_rows(verdicts: pd.DataFrame, workload: str) -> pd.DataFrame:
    """What is weighed (tare.analysis.choice), with the `title` of each row."""
    found = weighed(verdicts, workload)
    titles = [
        env_title(env, short=True) if pd.isna(level) else sentence_case(arm_title(level))
        for env, level in zip(found["launch"], found["level"], strict=True)
    ]
    return found.assign(title=titles)


def choice_workloads(table: pd.DataFrame) -> list[str]:
    """Workloads of which a setting or a stack was varied, from the table of metrics or of verdicts."""
    return [name for name in sorted(table["workload"].unique()) if level_campaigns(table, name)]


def choices(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """Every environment and every setting of one workload on one axis of ratios, the farthest from zero first."""
    title = f"{workload_title(workload)}: environment or settings?"
    rows = choice_rows(verdicts, workload)
    if not (rows["group"] != ENVIRONMENT).any():
        return style.empty(title, "no setting was varied on the host: there is nothing to weigh")
    groups = [
        (f"{metric_title(str(metric))}, farthest first", [_line(row) for row in own.to_dict("records")])
        for metric, own in rows.groupby("metric", sort=False)
    ]
    marks = "Plus: a setting by the headline's, on the host."
    if (rows["group"] == STACK).any():
        marks += " Cross: another stack by the study's, on the host."
    note = (
        f"{marks} The other marks: an environment by the host. Bars: the {confidence(rows.iloc[0]):.0f}% intervals "
        f"that decide, n = {span(rows['n_units'])} units. Grey: host against host in the same campaign. "
        "Shaded: the margin."
    )
    return forest(title, [Panel(groups=groups)], note)


def _line(row: dict) -> Line:
    name, look = style.wrap(row["title"], LABEL_LETTERS), {}
    if row["group"] in LOOKS:
        marker, colour = LOOKS[row["group"]]
        look = {"marker": marker, "color": colour, "markeredgecolor": colour, "markerfacecolor": colour}
    return Line(name=name, row=row, on_control=True, look=look)
