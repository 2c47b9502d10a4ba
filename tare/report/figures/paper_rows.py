"""Numbers of the figures of a published study: as printed, as its own logs have them, as this machine gives them.

Nothing is judged here. What was recomputed comes from the table `published`, what was measured from the tables of
metrics and verdicts; a mean over units has Student's t interval of that mean. It belongs to one environment alone:
whether two environments differ is decided by ratios within a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis.capacity.ceilings import ceilings_of, read_ceilings
from tare.analysis.choice import PROFILE, SWEEP, compared, without_co_runner
from tare.literature.contrasts import At, to_alone, to_host
from tare.literature.finding import listed
from tare.literature.level_claims import change_of
from tare.literature.measured_here import OURS, no_scenario, of_model
from tare.literature.published import Fact, Published
from tare.literature.published_file import FASTER, Claim, Plot
from tare.literature.vocabulary import (
    CHANGE,
    FIGURE_METRICS,
    LINE,
    ON_A_CPU,
    RATES,
    SAMPLED,
    SLOWDOWN,
    TIMELINE,
    UNIT_METRICS,
    kind_of,
)
from tare.model import tables
from tare.model.records.measured import CeilingsRecord
from tare.model.registry import HOST
from tare.report.rows import having
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.quantities import significant
from tare.stats.intervals import t_interval

CONFIDENCE = 0.95
PAIR = 2  # units whose t interval is 13 times as wide as they are apart: both are drawn instead of it
SAMPLE_TABLES = ("samples", "device_samples", "steps")
COLUMNS = (
    "series", "group", "label", "workload", "env", "batch", "metric", "value", "low", "high", "n", "kind", "unit",
    "agrees", "printed", "reason",
)  # fmt: skip
PRINTED, LOGGED, REDONE, MEAN, MOST, STATED, HERE, HERE_MEAN = SERIES = (
    "printed", "logged", "redone", "mean", "most", "stated", "here", "mean_here",
)  # fmt: skip
NEAREST = "nearest"  # the kind of what is measured here and no more than near to what was published
# The check whose `recomputed` is what a figure's number would be, done right.
DONE_RIGHT = {
    "flops": "sum_of_maxima",
    "hbm_transactions": "sum_of_maxima",
    "dram_read_bytes_per_s": "units",
    "dram_write_bytes_per_s": "units",
}
STANDS_IN = {"flops": "flops_per_step"}  # for a metric that no device here measures
METRIC_WORDS = {"real_s": "real time", "system_s": "system time"}  # next to others of their figure
QUANTITIES = {
    "cpu_percent": "CPU use",
    "rss_bytes": "resident memory",
    "cgroup_memory_bytes": "memory of its group",
    "gpu_utilization_percent": "GPU use",
    "memory_utilization_percent": "use of the GPU's memory interface",
    "memory_used_bytes": "GPU memory",
    "power_w": "GPU power",
    "sm_clock_hz": "SM clock",
    "samples_per_s": "rate with the loader",
}
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
Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """What figures of a published study are drawn from: the table `published` and what the study measured here."""

    findings: pd.DataFrame
    metrics: pd.DataFrame
    verdicts: pd.DataFrame
    samples: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    ceilings: CeilingsRecord | None = None


def read_given(results: Path) -> Given:
    """Read the tables of a study. Raises UserError: one is missing. IntegrityError: it is not what was written."""
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
    """Numbers of one panel, a row each, published and measured here, with the panel's title where it has one.

    `rows` have COLUMNS and values in base units: `group` and `label` say what a row is about, `low` and `high` are
    the reading error of a height, or an interval. `from_zero`: whether their axis begins at zero.
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

    @property
    def is_above(self) -> bool:
        """Whether it is largest values of what was published, and nothing of this machine."""
        return bool(self.title) and not (self.rows["series"] == HERE).any()

    @property
    def is_modelled(self) -> bool:
        """Whether this machine's numbers are modelled."""
        return bool((self.of(HERE)["kind"] == "modelled").any())

    def missing(self) -> list[str]:
        """Why this machine has no number, each reason once; empty where nothing is missing."""
        here = self.rows[self.rows["series"] == HERE]
        return list(dict.fromkeys(here.loc[here["value"].isna(), "reason"].dropna()))


def limits(rows: pd.DataFrame, from_zero: bool) -> tuple[float, float]:
    """Where an axis begins and ends: at the intervals, unless those would press the numbers into a point."""
    ends = pd.concat([rows[name].dropna() for name in ("value", "low", "high")])
    low, high = rows["value"].min(), rows["value"].max()
    if rows["unit"].isin((RATIO, TIMES_ALONE)).any():
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


def called(names: Mapping[str, str], env: str | None) -> str:
    """`Host (Bare VM)`: our title of an environment, and what the paper calls it."""
    if env is None:
        return ""
    own, other = env_title(env, short=True), names.get(env)
    return f"{own} ({other})" if other and other != own else own


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


def _table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows in COLUMNS and their types."""
    table = pd.DataFrame(list(rows), columns=list(COLUMNS))
    return table.astype({"batch": "Int64", "n": "Int64", "value": float, "low": float, "high": float})


def numbers(published: Published, given: Given, plot: Plot) -> Numbers:
    """Everything that a figure of bars, lines or changes shows."""
    if plot.kind == CHANGE:
        return Numbers(rows=_table(_changes(published, given, plot)), from_zero=False)
    findings = having(given.findings, paper=published.paper)
    in_ratios, by_batch = plot.relative or plot.by_itself, plot.kind == LINE
    rows = _printed(published, plot)
    if not in_ratios:
        rows += _recomputed(LOGGED, findings, "figure_value", figure=plot.figure)
    for workload in plot.subjects:
        for metric in plot.metrics:
            if not by_batch and not in_ratios:
                rows += _recomputed(REDONE, findings, DONE_RIGHT.get(metric), workload=workload, metric=metric)
            found, reason = _here(given, plot, workload, metric)
            about = {"series": HERE, "workload": workload, "metric": metric}
            rows += [{**about, **row} for row in found or [{"kind": "unavailable", "reason": reason}]]
    for row in rows:
        word = METRIC_WORDS.get(row["metric"], row["metric"]) if len(plot.metrics) > 1 else ""
        row["group"] = ", ".join(filter(None, (_model(plot, row["workload"]), word)))
        row["label"] = f"batch {row.get('batch')}" if by_batch else called(published.names, row.get("env"))
        if not by_batch:  # what was measured has the study's batch size, of which such a figure says nothing
            row["batch"] = None
    if by_batch:
        rows.sort(key=lambda row: row.get("batch") or 0)
    else:  # the paper's environments in its order, then ours
        order = list(dict.fromkeys(row["env"] for row in rows if row["series"] == PRINTED))
        places = {env: at for at, env in enumerate(order)}
        rows.sort(key=lambda row: (places.get(row.get("env"), len(places)), env_order(row.get("env") or "")))
    return Numbers(rows=_table([*rows, *_stated(published, plot)]), from_zero=not by_batch and not in_ratios)


def _model(plot: Plot, model: str) -> str:
    return workload_title(model) if len(plot.subjects) > 1 else ""


def _printed(published: Published, plot: Plot) -> Rows:
    """Printed values; by those of the host where the figure is drawn in ratios."""
    own = having(published.figures, figure=plot.figure)
    hosts = having(own, env=HOST).set_index(["workload", "metric"])["value"].to_dict() if plot.relative else {}
    found = []
    for row in own.to_dict("records"):
        unit, by = TIMES_ALONE if row["metric"] == SLOWDOWN else row["unit"], 1.0
        if plot.relative and FIGURE_METRICS[row["metric"]] != "1":
            key = (row["workload"], row["metric"])
            if key not in hosts or row["env"] == HOST:
                continue
            unit, by = RATIO, hosts[key]
        found.append(
            {
                "series": PRINTED, **{name: row[name] for name in ("workload", "env", "batch", "metric", "kind")},
                "value": row["value"] / by, "low": (row["value"] - row["error"]) / by,
                "high": (row["value"] + row["error"]) / by, "unit": unit,
                "printed": row["printed"].replace(" us", " µs"),
            }
        )  # fmt: skip
    return found


def _recomputed(series: str, findings: pd.DataFrame, check: str | None, **labels: str) -> Rows:
    """What a check recomputed, of the findings with these labels."""
    own = having(findings[findings["recomputed"].notna()], check=check, **labels)
    own = own.rename(columns={"recomputed": "value"}).assign(series=series, kind="derived")
    found: Rows = own[[column for column in COLUMNS if column in own.columns]].to_dict("records")
    return found


def _here(given: Given, plot: Plot, workload: str, metric: str) -> tuple[Rows, str]:
    """This machine's numbers of one workload, by environment or by batch size; why there is none."""
    if lacking := why_nothing(given.metrics, plot, workload):
        return [], lacking
    at = f" at {plot.arm}" if plot.arm else ""
    if plot.relative or plot.by_itself:
        what = "itself without a co-runner" if plot.by_itself else "the host"
        return _ratios(given, plot, workload, metric), f"this study compares no environment with {what}{at}"
    own = having(given.metrics, workload=workload)
    if plot.kind == LINE:
        chosen = having(own, campaign=SWEEP)
    elif metric in UNIT_METRICS:
        chosen = compared(own, kind_of(metric), plot.arm, plot.scenario)
        if len(chosen):  # of several campaigns the one with the most environments
            chosen = chosen[chosen["campaign"] == chosen.groupby("campaign")["launch"].nunique().idxmax()]
    else:
        chosen = having(own, campaign=PROFILE)
    chosen = _shown(chosen[(chosen["launch_role"] != "control") & ~without_co_runner(chosen)], plot)
    rows = having(chosen, metric=OURS.get(metric, metric))
    if rows.empty and metric == "flop_per_s":
        return _modelled_rates(chosen), "this study has no profiled launch"
    if rows.empty and metric in STANDS_IN:
        rows = having(chosen, metric=STANDS_IN[metric])
    keys = rows["batch"] if plot.kind == LINE else rows["launch"]
    found = [_of_units(part) for _, part in rows.groupby(keys, sort=True)]
    return found, f"this study has no launch{at} that measures it"


def _shown(rows: pd.DataFrame, plot: Plot) -> pd.DataFrame:
    return rows[rows["launch"].isin(plot.environments)] if plot.environments else rows


def why_nothing(metrics: pd.DataFrame, plot: Plot, workload: str) -> str | None:
    """Why a study has nothing of what a figure shows of a workload; None where it may have."""
    if lacking := no_scenario(metrics, plot.scenario):
        return lacking
    return None if (metrics["workload"] == workload).any() else "this workload is not part of this study"


def _modelled_rates(profiles: pd.DataFrame) -> Rows:
    """FLOP/s of the profiled launch of each environment: counted operators by measured steps."""
    found = []
    for env, own in profiles.groupby("launch", sort=True):
        value = of_model(own, "flop_per_s")
        reason = value.note if value.value is None else None
        row = {"env": env, "unit": "FLOP/s", "n": 1, "kind": value.kind}
        found.append({**row, "value": value.value, "reason": reason})
    return found


def _of_units(rows: pd.DataFrame) -> dict[str, Any]:
    """Mean of the units of one environment with its interval, of two with their range, or why there is none."""
    first = rows.iloc[0]
    found = rows[rows["kind"] != "unavailable"]
    labels = {"env": first["launch"], "batch": first["batch"], "unit": first["unit"]}
    if found.empty:
        return {**labels, "kind": "unavailable", "reason": str(first["reason"])}
    values, kind = list(found["value"]), str(found["kind"].iloc[0])
    interval = t_interval(values, 1 - CONFIDENCE)
    low, high = interval.low, interval.high
    if len(values) == PAIR:
        low, high = min(values), max(values)
    elif low is not None:
        low = max(low, 0.0)  # few units; nothing here can be negative
    spread = {"low": low, "high": high} if kind == "measured" else {}
    return {**labels, **spread, "value": interval.mean, "n": len(values), "kind": kind}


def _ratios(given: Given, plot: Plot, workload: str, metric: str) -> Rows:
    """The ratio of every environment to the host in one metric, or to itself without a co-runner."""
    at, alone = At(level=plot.arm, scenario=plot.scenario), metric == SLOWDOWN
    found = []
    for ratio in to_alone(given, workload, at) if alone else to_host(given, workload, metric, at):
        if plot.environments and ratio.env not in plot.environments:
            continue
        row: dict[str, Any] = {"env": ratio.env, "unit": TIMES_ALONE if alone else RATIO, "kind": "measured"}
        if ratio.ratio is None:
            row |= {"kind": "unavailable", "reason": f"no interval from {ratio.units} units"}
        else:
            row |= {"value": ratio.ratio, "low": ratio.low, "high": ratio.high, "n": ratio.units}
        found.append(row)
    return found


def stated(published: Published, plot: Plot) -> list[Fact]:
    """What the text says of a figure; statements of a scenario that is not the figure's are left out."""
    facts = (fact for name in plot.facts for fact in published.facts_of(name))
    return [fact for fact in facts if fact.labels.get("scenario") in (None, plot.scenario)]


def _stated(published: Published, plot: Plot) -> Rows:
    """What the text states of a figure of ratios: a share is a loss, upwards of a time, downwards of a rate."""
    found = []
    for fact in stated(published, plot) if plot.relative or plot.by_itself else ():
        quantity = fact.quantity
        if quantity is None or quantity.unit not in ("%", "1"):
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


def claims_of(published: Published, plot: Plot) -> list[Claim]:
    """The claims that a figure of changes shows."""
    return [one for one in published.claims if one.rule == FASTER and plot.figure in one.figures]


def claim_label(claim: Claim) -> str:
    """What a claim compares, in few words."""
    names = [level.partition("=")[2] for level in (claim.level, claim.against) if level is not None]
    return claim.label or " by ".join(names)


def _changes(published: Published, given: Given, plot: Plot) -> Iterator[dict[str, Any]]:
    """Of each claim of a figure and workload the published change in percent, and the measured one."""
    for claim in claims_of(published, plot):
        device = f", published on a {claim.device.class_.upper()}" if claim.device else ""
        for workload in claim.subjects:
            speed, reason = change_of(claim, workload, given)
            row = {"group": claim_label(claim), "label": workload_title(workload) + device, "workload": workload,
                   "metric": claim.id, "unit": "%", "reason": reason or None}  # fmt: skip
            if claim.change is not None:
                value = claim.change.value
                yield {**row, "series": PRINTED, "kind": "text", "value": value, "printed": f"{value:+.0f}%"}
            if speed is None:
                yield {**row, "series": HERE, "kind": "unavailable"}
            else:
                value, low, high = (100 * (one - 1) for one in speed.three)
                row |= {"series": HERE, "kind": NEAREST if reason else "measured", "printed": str(speed)}
                yield {**row, "value": value, "low": low, "high": high}


def largest(published: Published, given: Given, plot: Plot) -> list[Numbers]:
    """Largest values of what a figure shows without numbers: as a table prints them, of the recordings' own rows.

    One of each quantity that the study's file names; the most that its formula can give is a row too.
    """
    own = having(given.findings, paper=published.paper)
    found = []
    for name, title in plot.largest.items():
        rows = [
            {"workload": model, "group": _model(plot, model), "metric": name, **row}
            for model in plot.subjects
            for row in _largest(published, own, name, model, plot.environments)
        ]
        for check in ("formula_ceiling", "formula"):
            most = having(own, metric=name, check=check)
            if rows and len(most):
                rows.append({"series": MOST, "group": "", "label": "its formula", "metric": name,
                             "value": most["recomputed"].iloc[0], "unit": most["unit"].iloc[0]})  # fmt: skip
                break
        if rows:
            found.append(Numbers(title=title, rows=_table(rows)))
    return found


def _largest(
    published: Published, findings: pd.DataFrame, name: str, model: str, environments: Iterable[str] | None
) -> Rows:
    """Of one model: largest as printed, largest and mean of the recordings' own rows, by environment."""
    wrong = having(findings, check="own_maximum", metric=name, workload=model)
    agrees = wrong.set_index("env")["agrees"].to_dict()
    facts: list[tuple[str, str | None, Fact]] = [
        (series, env, fact)
        for series, key in {PRINTED: name, LOGGED: f"own_{name}_max", MEAN: f"own_{name}_mean"}.items()
        for env, fact in sorted(published.of_model(key, model).items(), key=lambda item: env_order(item[0]))
        if environments is None or env in environments
    ]
    if not facts:
        of_all = [fact for fact in published.facts_of(name, model=model) if not fact.labels.get("env")]
        facts = [(LOGGED, None, fact) for fact in of_all]
    counted = {env: f", of {fact.quantity}" for env, fact in published.of_model("own_rows", model).items()}
    return [
        {"series": series, "env": env, "value": fact.quantity.value, "unit": fact.quantity.unit,
         "label": called(published.names, env) or "all together",
         "printed": f"{fact.quantity}{counted.get(env or '', '') if series == LOGGED else ''}",
         "agrees": agrees.get(env) if series == LOGGED else None}
        for series, env, fact in facts if fact.quantity is not None
    ]  # fmt: skip


def sampled(published: Published, given: Given, plot: Plot) -> Iterator[Numbers]:
    """Largest sample and mean of each quantity of a figure over time, in the profiled launch of each environment.

    A machine without a device has the processor's own quantity in its place, under its own name.
    """
    for quantity in plot.metrics:
        rows, title = [], quantity
        for workload in plot.subjects:
            about: dict[str, Any] = {"series": HERE, "group": _model(plot, workload), "label": ""}
            about["workload"] = workload
            lacking = why_nothing(given.metrics, plot, workload)
            own = None if lacking else _samples(given, plot, workload, quantity)
            if own is None:
                reason = lacking or f"no profiled launch sampled {QUANTITIES[quantity]}"
                rows.append({**about, "metric": quantity, "kind": "unavailable", "reason": reason})
                continue
            title = own.name
            for env, values in sorted(own.groupby(level=0), key=lambda item: env_order(item[0])):
                about |= {"label": called(published.names, env), "env": env, "metric": title, "n": 1}
                about |= {"unit": SAMPLED[title][1], "kind": "measured"}
                rows += [{**about, "value": values.max()}, {**about, "series": HERE_MEAN, "value": values.mean()}]
        yield Numbers(title=QUANTITIES[title], rows=_table(rows))


def _samples(given: Given, plot: Plot, workload: str, quantity: str) -> pd.Series | None:
    """Samples of a quantity by environment, or of what stands in for it; None without any."""
    for name in filter(None, (quantity, ON_A_CPU.get(quantity))):
        table = given.samples.get(SAMPLED[name][0])
        if table is not None:
            own = _shown(table[(table["workload"] == workload) & table[name].notna()], plot)
            if len(own):
                return own.set_index("launch")[name]
    return None


def panels_of(published: Published, given: Given, plot: Plot) -> list[Numbers]:
    """What a figure shows: largest values of what it has no numbers of, then its rows with this machine's."""
    rows = sampled(published, given, plot) if plot.kind == TIMELINE else [numbers(published, given, plot)]
    return [*largest(published, given, plot), *rows]
