"""Numbers of the figures of a published study: as printed, as its own logs have them, as this machine gives them.

Nothing is judged here. What was recomputed comes from the table `published`, what was measured from the tables of
metrics and verdicts; a mean over units has Student's t interval of that mean. It belongs to one environment alone:
whether two environments differ is told by ratios within a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis.ceilings import ceilings_of, read_ceilings
from tare.analysis.choice import PROFILE, SWEEP, compared, without_co_runner
from tare.literature.contrasts import At, to_alone, to_host
from tare.literature.finding import listed
from tare.literature.measured_here import OURS, no_scenario, of_model
from tare.literature.published import Fact, Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import FIGURE_METRICS, LINE, RATES, SLOWDOWN, UNIT_METRICS, kind_of
from tare.model import tables
from tare.model.records.measured import CeilingsRecord
from tare.model.registry import HOST
from tare.report.words.labels import env_order, env_title, significant, workload_title
from tare.stats.intervals import t_interval

CONFIDENCE = 0.95
PAIR = 2  # units whose t interval is 13 times as wide as they are apart: both are drawn instead of it
SAMPLE_TABLES = ("samples", "device_samples", "steps")
COLUMNS = (
    "series", "group", "label", "workload", "env", "batch", "metric", "value", "low", "high", "n", "kind", "unit",
    "agrees", "printed", "reason",
)  # fmt: skip
PRINTED, LOGGED, REDONE, MEAN, MOST, STATED, HERE = SERIES = (
    "printed", "logged", "redone", "mean", "most", "stated", "here",
)  # fmt: skip
# The check whose `recomputed` is what a figure's number would be, done right.
DONE_RIGHT = {
    "flops": "sum_of_maxima",
    "hbm_transactions": "sum_of_maxima",
    "dram_read_bytes_per_s": "units",
    "dram_write_bytes_per_s": "units",
}
STANDS_IN = {"flops": "flops_per_step"}  # for a metric that no device here measures
METRIC_WORDS = {"real_s": "real time", "system_s": "system time"}  # beside others of their figure
MOST_SPREAD = 2.2  # an interval farther out than this many times the span of the numbers is cut
RATIO, TIMES_ALONE = "ratio", "slowdown"
SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s")),
    "1": ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")),
    "1/s": ((1e3, "thousand a second"), (1.0, "a second")),
    "B": ((1e9, "GB"), (1e6, "MB")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")),
    RATIO: ((1.0, "times the host's"),),
    TIMES_ALONE: ((1.0, "times the run alone"),),
    "%": ((1.0, "%"),),
    "W": ((1.0, "W"),),
    "Hz": ((1e9, "GHz"), (1e6, "MHz")),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """The tables that figures of a published study are drawn from.

    Attributes:
        findings: the table `published`.
        metrics, verdicts: of the study here.
        samples: its tables of samples, by name.
        ceilings: of this machine; None where there is no record.
    """

    findings: pd.DataFrame
    metrics: pd.DataFrame
    verdicts: pd.DataFrame
    samples: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    ceilings: CeilingsRecord | None = None


def read_given(results: Path) -> Given:
    """Read the tables of a study.

    Raises:
        UserError: one is missing.
        IntegrityError: one is not what was written.
    """
    folder = results / "tables"
    metrics = tables.read("metrics", folder / "metrics.parquet")
    roofs = ceilings_of(metrics, results)
    return Given(
        findings=tables.read("published", folder / "published.csv"),
        metrics=metrics,
        verdicts=tables.read("verdicts", folder / "verdicts.csv"),
        samples={name: tables.read(name, folder / f"{name}.csv") for name in SAMPLE_TABLES},
        ceilings=read_ceilings(roofs) if roofs.exists() else None,
    )


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Numbers that stand one below the other, published beside here.

    Attributes:
        title: of their panel, where it is not the figure's.
        rows: COLUMNS; values in base units. `group` and `label` say what a row is about; `low` and `high` are the
            reading error of a height, or an interval.
        from_zero: whether their axis begins at zero.
    """

    title: str = ""
    rows: pd.DataFrame
    from_zero: bool = True

    def of(self, *series: str) -> pd.DataFrame:
        """Rows of these series that have a value."""
        return self.rows[self.rows["series"].isin(series) & self.rows["value"].notna()]

    @property
    def is_joint(self) -> bool:
        """Whether all of it has one axis: ratios and changes, which mean the same on any machine."""
        return bool(self.rows["unit"].dropna().isin((RATIO, TIMES_ALONE, "%")).all())

    def missing(self) -> list[str]:
        """Why this machine has no number, each reason once; empty where nothing is missing."""
        here = self.rows[self.rows["series"] == HERE]
        return list(dict.fromkeys(here.loc[here["value"].isna(), "reason"].dropna()))


def limits(rows: pd.DataFrame, from_zero: bool) -> tuple[float, float]:
    """Where an axis begins and ends: at the intervals, unless those would press the numbers into a point."""
    ends = pd.concat([rows[name].dropna() for name in ("value", "low", "high")])
    low, high = rows["value"].min(), rows["value"].max()
    if rows["unit"].isin(("ratio", "slowdown")).any():
        low, high = min(low, 1.0), max(high, 1.0)
    if from_zero:
        return 0.0, min(ends.max(), MOST_SPREAD * high)
    reach = MOST_SPREAD * max(high - low, 0.02 * abs(high))
    return max(min(low, ends.min()), low - reach), min(max(high, ends.max()), high + reach)


def figure_names(published: Published) -> list[str]:
    """Numbers of the figures that are drawn, in the study's order: all but those that are tables."""
    return [plot.figure for plot in published.plotted if plot.table is None]


def file_name(paper: str, figure: str) -> str:
    """Name of the file of a figure, without its suffix: nyu2022_fig07."""
    return f"{paper}_fig{int(figure):02d}"


def theirs(names: Mapping[str, str], env: str) -> str:
    """What a paper calls an environment, or our own title."""
    return names.get(env) or env_title(env)


def numbers(published: Published, given: Given, plot: Plot) -> Numbers:
    """Everything that a figure of bars or lines shows."""
    findings = given.findings[given.findings["paper"] == published.paper]
    in_ratios = plot.relative or plot.by_itself
    rows = _printed(published, plot)
    if not in_ratios:
        rows += _recomputed(LOGGED, findings, "figure_value", figure=plot.figure)
    for workload in plot.subjects:
        for metric in plot.metrics:
            if plot.kind != LINE and not in_ratios:
                rows += _recomputed(REDONE, findings, DONE_RIGHT.get(metric), workload=workload, metric=metric)
            rows += (_ratios if in_ratios else _here)(given, plot, workload, metric)
    rows = [{**_about(published, plot, row), **row} for row in rows]
    if plot.kind == LINE:
        rows.sort(key=lambda row: row.get("batch") or 0)
    else:  # what was measured has the study's batch size, of which such a figure says nothing
        rows = [{**row, "batch": None} for row in rows]
        in_order = list(dict.fromkeys(row["env"] for row in rows if row["series"] == PRINTED))
        rows.sort(key=lambda row: _place(in_order, row.get("env")))
    return Numbers(rows=as_table([*rows, *_stated(published, plot)]), from_zero=plot.kind != LINE and not in_ratios)


def as_table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows in COLUMNS and their types."""
    table = pd.DataFrame(list(rows), columns=list(COLUMNS))
    return table.astype({"batch": "Int64", "n": "Int64", "value": float, "low": float, "high": float})


def _place(in_order: list[str], env: str | None) -> tuple[int, tuple[int, str]]:
    """The paper's environments in its order, then ours."""
    return (in_order.index(env) if env in in_order else len(in_order), env_order(env or ""))


def _about(published: Published, plot: Plot, row: Mapping[str, Any]) -> dict[str, Any]:
    """Group and label of a row: workload and metric where there are several, environment or batch size."""
    metric = METRIC_WORDS.get(row["metric"], row["metric"]) if len(plot.metrics) > 1 else ""
    label = f"batch {row.get('batch')}" if plot.kind == LINE else called(published.names, row.get("env"))
    return {"group": ", ".join(filter(None, (_model(plot, row["workload"]), metric))), "label": label}


def called(names: Mapping[str, str], env: str | None) -> str:
    """`Host (Bare VM)`: our title of an environment, and what the paper calls it."""
    if env is None:
        return ""
    own, other = env_title(env, short=True), names.get(env)
    return f"{own} ({other})" if other and other != own else own


def _printed(published: Published, plot: Plot) -> list[dict[str, Any]]:
    """Printed values; by those of the host where the figure is drawn in ratios."""
    own = published.figures[published.figures["figure"] == plot.figure]
    found = []
    for row in own.to_dict("records"):
        unit, by = TIMES_ALONE if row["metric"] == SLOWDOWN else row["unit"], 1.0
        if plot.relative and FIGURE_METRICS[row["metric"]] != "1":
            host = own[
                (own["workload"] == row["workload"]) & (own["metric"] == row["metric"]) & (own["env"] == HOST)
            ]
            if host.empty or row["env"] == HOST:
                continue
            unit, by = RATIO, float(host["value"].iloc[0])
        labels = {name: row[name] for name in ("workload", "env", "batch", "metric", "kind")}
        spread = {"low": (row["value"] - row["error"]) / by, "high": (row["value"] + row["error"]) / by}
        printed = row["printed"].replace(" us", " µs")
        found.append(
            {"series": PRINTED, **labels, **spread, "value": row["value"] / by, "n": 1, "unit": unit,
             "printed": printed}
        )  # fmt: skip
    return found


def _recomputed(series: str, findings: pd.DataFrame, check: str | None, **labels: str) -> list[dict[str, Any]]:
    """What a check recomputed, of the findings with these labels."""
    own = findings[(findings["check"] == check) & findings["recomputed"].notna()]
    for name, value in labels.items():
        own = own[own[name] == value]
    return [
        {
            "series": series, "workload": row.workload, "env": row.env, "batch": row.batch, "metric": row.metric,
            "value": row.recomputed, "n": 1, "kind": "derived", "unit": row.unit, "agrees": row.agrees,
        }
        for row in own.itertuples()
    ]  # fmt: skip


def _here(given: Given, plot: Plot, workload: str, metric: str) -> list[dict[str, Any]]:
    """This machine's numbers of one workload, by environment or by batch size; a reason where there is none."""
    metrics = given.metrics
    if lacking := why_nothing(metrics, plot, workload):
        return [none_here(workload, metric, lacking)]
    own = metrics[metrics["workload"] == workload]
    if plot.kind == LINE:
        chosen = own[own["campaign"] == SWEEP]
    elif metric in UNIT_METRICS:
        chosen = _widest(compared(own, kind_of(metric), plot.arm, plot.scenario))
    else:
        chosen = own[own["campaign"] == PROFILE]
    chosen = chosen[(chosen["launch_role"] != "control") & ~without_co_runner(chosen)]
    if plot.environments:
        chosen = chosen[chosen["launch"].isin(plot.environments)]
    rows = chosen[chosen["metric"] == OURS.get(metric, metric)]
    if rows.empty and metric == "flop_per_s":
        return _modelled_rates(workload, chosen)
    if rows.empty and metric in STANDS_IN:
        rows = chosen[chosen["metric"] == STANDS_IN[metric]]
    if rows.empty:
        at = f" at {plot.arm}" if plot.arm else ""
        return [none_here(workload, metric, f"this study has no launch{at} that would give it")]
    keys = rows["batch"] if plot.kind == LINE else rows["launch"]
    return [_of_units(metric, part) for _, part in rows.groupby(keys, sort=True)]


def why_nothing(metrics: pd.DataFrame, plot: Plot, workload: str) -> str | None:
    """Why a study has nothing of what a figure shows of a workload; None where it may have."""
    if lacking := no_scenario(metrics, plot.scenario):
        return lacking
    return None if (metrics["workload"] == workload).any() else "this workload is not part of this study"


def _widest(rows: pd.DataFrame) -> pd.DataFrame:
    """Of several campaigns the one with the most environments."""
    if rows.empty:
        return rows
    return rows[rows["campaign"] == rows.groupby("campaign")["launch"].nunique().idxmax()]


def _modelled_rates(workload: str, profiles: pd.DataFrame) -> list[dict[str, Any]]:
    """FLOP/s of the profiled launch of each environment: counted operators by measured steps."""
    found = []
    for env, own in profiles.groupby("launch", sort=True):
        value = of_model(own, "flop_per_s")
        labels = {"series": HERE, "workload": workload, "env": env, "metric": "flop_per_s", "unit": "FLOP/s"}
        reason = value.note if value.value is None else None
        found.append({**labels, "n": 1, "value": value.value, "kind": value.kind, "reason": reason})
    return found or [none_here(workload, "flop_per_s", "this study has no profiled launch")]


def _of_units(metric: str, rows: pd.DataFrame) -> dict[str, Any]:
    """Mean of the units of one environment with its interval, of two with their range, or why there is none."""
    first = rows.iloc[0]
    found = rows[rows["kind"] != "unavailable"]
    labels = {"series": HERE, "metric": metric, **{name: first[name] for name in ("workload", "batch", "unit")}}
    labels["env"] = first["launch"]
    if found.empty:
        return {**labels, "kind": "unavailable", "reason": str(first["reason"])}
    values = list(found["value"])
    interval, kind = t_interval(values, 1 - CONFIDENCE), str(found["kind"].iloc[0])
    low, high = interval.low, interval.high
    if len(values) == PAIR:
        low, high = min(values), max(values)
    elif low is not None:
        low = max(low, 0.0)  # few units; nothing here can be negative
    spread = {"low": low, "high": high} if kind == "measured" else {}
    return {**labels, "value": interval.mean, **spread, "n": len(values), "kind": kind}


def none_here(workload: str, metric: str, reason: str) -> dict[str, Any]:
    """The row of what this machine has no number of."""
    return {"series": HERE, "workload": workload, "metric": metric, "kind": "unavailable", "reason": reason}


def _ratios(given: Given, plot: Plot, workload: str, metric: str) -> list[dict[str, Any]]:
    """Every environment by the host in one metric, or by itself without a neighbour, or why there is none."""
    if lacking := why_nothing(given.metrics, plot, workload):
        return [none_here(workload, metric, lacking)]
    at = At(level=plot.arm, scenario=plot.scenario)
    alone = metric == SLOWDOWN
    found = []
    for ratio in to_alone(given, workload, at) if alone else to_host(given, workload, metric, at):
        if plot.environments and ratio.env not in plot.environments:
            continue
        row = {"series": HERE, "workload": workload, "env": ratio.env, "metric": metric,
               "unit": TIMES_ALONE if alone else RATIO}  # fmt: skip
        if ratio.ratio is None:
            found.append({**row, "kind": "unavailable", "reason": f"no interval from {ratio.units} units"})
        else:
            interval = {"value": ratio.ratio, "low": ratio.low, "high": ratio.high}
            found.append({**row, **interval, "n": ratio.units, "kind": "measured"})
    where = f" at {plot.arm}" if plot.arm else ""
    what = "itself without a neighbour" if alone else "the host"
    return found or [none_here(workload, metric, f"this study compares no environment with {what}{where}")]


def stated(published: Published, plot: Plot) -> list[Fact]:
    """What the text says of a figure; statements of a scenario that is not the figure's are left out."""
    return [
        fact
        for name in plot.facts
        for fact in published.facts_of(name)
        if fact.labels.get("scenario") in (None, plot.scenario)
    ]


def _stated(published: Published, plot: Plot) -> list[dict[str, Any]]:
    """What the text states of a figure of ratios: a share is a loss, upwards of a time, downwards of a rate."""
    found = []
    for fact in stated(published, plot):
        quantity = fact.quantity
        if not (plot.relative or plot.by_itself) or quantity is None or quantity.unit not in ("%", "1"):
            continue
        share = quantity.value / 100 if quantity.unit == "%" else quantity.value - 1
        place = 1 - share if plot.metrics[0] in RATES else 1 + share
        row = {"series": STATED, "group": "Its text", "label": said(fact, published.names), "value": place}
        found.append({**row, "metric": plot.metrics[0], "unit": TIMES_ALONE if plot.by_itself else RATIO})
    return found


def said(fact: Fact, names: Mapping[str, str]) -> str:
    """`<= 15 %, Container on VM`: a statement with what it is about."""
    number = str(fact.quantity) if fact.quantity is not None else listed(list(fact.names))
    if fact.quantity is not None and fact.quantity.printed_unit == "1":
        number = f"{fact.quantity.printed} times"
    relation = f"{fact.labels['relation']} " if fact.labels.get("relation") else ""
    text = f"{relation}{number}" + (f" to {fact.upper}" if fact.upper else "")
    about = fact.labels.get("envs") or ([fact.labels["env"]] if fact.labels.get("env") else [])
    return f"{text}, {listed([theirs(names, env) for env in about])}" if about else text


def largest(published: Published, given: Given, plot: Plot) -> list[Numbers]:
    """Largest values of what a figure shows without numbers: as a table prints them, of the recordings' own rows.

    One of each quantity that the study's file names; the most that its formula can give is a row too.
    """
    own = given.findings[given.findings["paper"] == published.paper]
    found = []
    for name, title in plot.largest.items():
        rows = [
            {"workload": model, "group": _model(plot, model), "metric": name, **row}
            for model in plot.subjects
            for row in _largest(published, own, name, model, plot.environments)
        ]
        most = own[(own["metric"] == name) & own["check"].isin(("formula_ceiling", "formula"))]
        most = most.sort_values("check", key=lambda checks: checks != "formula_ceiling", kind="stable")
        if rows and len(most):
            first = most.iloc[0]
            rows.append({"series": MOST, "group": "", "label": "its formula, at most", "metric": name,
                         "value": first["recomputed"], "unit": first["unit"]})  # fmt: skip
        if rows:
            found.append(Numbers(title=title, rows=as_table(rows)))
    return found


def _model(plot: Plot, model: str) -> str:
    return workload_title(model) if len(plot.subjects) > 1 else ""


def _largest(
    published: Published, findings: pd.DataFrame, name: str, model: str, environments: Iterable[str] | None
) -> list[dict[str, Any]]:
    """Of one model: largest as printed, largest and mean of the recordings' own rows, by environment."""
    wrong = findings[(findings["check"] == "own_maximum") & (findings["metric"] == name)]
    agrees = wrong[wrong["workload"] == model].set_index("env")["agrees"].to_dict()
    keys = {PRINTED: name, LOGGED: f"own_{name}_max", MEAN: f"own_{name}_mean"}
    facts = [
        (series, env, fact)
        for series, key in keys.items()
        for env, fact in sorted(published.of_model(key, model).items(), key=lambda item: env_order(item[0]))
        if environments is None or env in environments
    ]
    if not facts:
        of_all = [fact for fact in published.facts_of(name, model=model) if not fact.labels.get("env")]
        facts = [(LOGGED, None, fact) for fact in of_all if fact.quantity]
    counted = {env: fact.quantity for env, fact in published.of_model("own_rows", model).items()}
    found = []
    for series, env, fact in facts:
        of = f", of {counted[env]}" if series == LOGGED and env in counted else ""
        found.append(
            {"series": series, "env": env, "value": fact.quantity.value, "unit": fact.quantity.unit,
             "label": called(published.names, env) or "all together", "printed": f"{fact.quantity}{of}",
             "agrees": agrees.get(env) if series == LOGGED else None}
        )  # fmt: skip
    return found


def scale_of(unit: str, largest: float) -> tuple[float, str]:
    """The size and name of the unit in which a panel is read, from its largest value."""
    known = SCALES[unit]
    return next(((size, name) for size, name in known if largest >= size), known[-1])


def amount(value: float, unit: str, digits: int = 3) -> str:
    """A number in its own best unit, such as 871 µs or 1.40 billion."""
    if unit in (RATIO, TIMES_ALONE) or (unit == "1" and abs(value) < 1e3):
        return significant(value, digits)
    size, name = scale_of(unit, abs(value))
    return f"{significant(value / size, digits)} {name}"
