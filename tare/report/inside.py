"""Inside a step: metrics of profiled launches, the roofline, and the input alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tare.analysis import ceilings
from tare.analysis.choice import PROFILE
from tare.analysis.pipeline import CACHES, Rate, demand, enough, rates
from tare.analysis.roofs import (
    PRECISION,
    attainable,
    family_points,
    left_out,
    points,
    roof_precision,
    roofline_table,
    roofs,
)
from tare.literature.finding import listed
from tare.model.records.measured import CeilingsRecord, PipelineRecord, ProfileRecord
from tare.report.evidence import Evidence
from tare.report.figures import style
from tare.report.figures.lines import pipeline
from tare.report.figures.rooflines import SHORT
from tare.report.words.labels import (
    decimal_prefix,
    env_title,
    metric_meaning,
    metric_order,
    metric_title,
    seconds,
    significant,
    size_bytes,
    with_unit,
    workload_title,
)
from tare.report.words.layout import UNAVAILABLE, Cell, Row, Table, field
from tare.report.words.wording import missing

LAUNCH = "The launch and its operators"
# Headings in their order, each with the beginnings of its metrics' names; the first that fits takes a metric.
GROUPS = {
    "Memset and copies, on the device": ("memset_", "htod_", "dtoh_", "dtod_", "htoh_", "ptop_", "copy_"),
    "Kernels and idle time, on the device": ("kernel_", "device_"),
    "Memory traffic of the device, counted": ("dram_", "hbm_", "l2_", "counted_"),
    "FLOPs of the device by precision, counted": ("flops_measured", "flops_fp", "flops_tensor_"),
    "What the driver reports": ("gpu_",),
}
FEW = 4  # metrics that a merged row names one by one
NO_CEILINGS = (
    "Unavailable: this study has no record of measured ceilings, which are measured where its stack has PyTorch."
)
CACHE_TITLES = {"cold": "an empty page cache", "warm": "a full page cache"}
ALONE = (
    "The input is measured alone. Loader processes beside training on the same cores are slower, and so is "
    "training: a number of processes that is enough here is the fewest that can be."
)


def group_of(metric: str) -> str:
    """Heading of a metric."""
    return next((name for name, starts in GROUPS.items() if metric.startswith(starts)), LAUNCH)


def profile_table(evidence: Evidence, workload: str) -> Table:
    """The metrics of one workload's profiled launches, by environment, under headings."""
    caption = f"{workload_title(workload)}: metrics of the papers, from one profiled launch per environment"
    return metrics_table(evidence.metrics, workload, evidence.environments, caption)


def metrics_table(metrics: pd.DataFrame, workload: str, environments: Sequence[str], caption: str) -> Table:
    """As `profile_table`, from a table of metrics."""
    own = metrics[(metrics["campaign"] == PROFILE) & (metrics["workload"] == workload)]
    ran = [env for env in environments if (own[own["launch"] == env]["kind"] != UNAVAILABLE).any()]
    own = own[own["launch"].isin(ran)]
    own = own.assign(heading=own["metric"].map(group_of))
    rows: list[Row] = []
    for heading in (LAUNCH, *GROUPS):
        part = own[own["heading"] == heading]
        if len(part):
            rows += [[Cell(text=heading)], *_group_rows(part, ran)]
    return Table(
        caption=caption,
        columns=["metric", *(env_title(env, short=True) for env in ran), "kind", "source"],
        rows=rows,
        note="Per training step where the name says so. A profiled launch is never a timed one.",
        wide=True,
    )


def _group_rows(part: pd.DataFrame, ran: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    absent: dict[str, list[str]] = {}
    for metric in sorted(part["metric"].unique(), key=metric_order):
        own = part[part["metric"] == metric]
        if (own["kind"] == UNAVAILABLE).all():
            absent.setdefault(_why(own), []).append(metric)
            continue
        several = own["source"].nunique() > 1
        for source in own["source"].unique():
            one = own[own["source"] == source].set_index("launch")
            below = f"{metric_meaning(metric)}{f'; by {source}' if several else ''}"
            cells = [_cell(one.loc[env]) if env in one.index else None for env in ran]
            kinds = ", ".join(sorted(set(one["kind"]) - {UNAVAILABLE})) or UNAVAILABLE
            rows.append([Cell(text=metric_title(metric), below=below), *cells, kinds, _source(one)])
    return [*rows, *(_absent_row(names, why, len(ran) + 2) for why, names in absent.items())]


def _absent_row(names: Sequence[str], why: str, span: int) -> Row:
    """One line for all metrics of a group that nobody has, for one reason."""
    titles = [metric_title(name) for name in names]
    if len(titles) > FEW:
        titles = [*titles[: FEW - 1], f"{len(titles) - FEW + 1} more of this group"]
    below = metric_meaning(names[0]) if len(names) == 1 else ""
    return [Cell(text=listed(titles), below=below), Cell(text=f"{UNAVAILABLE}: {why}", span=span)]


def _cell(row: pd.Series) -> str:
    return "–" if row["kind"] == UNAVAILABLE else with_unit(row["value"], row["unit"])


def _why(own: pd.DataFrame) -> str:
    """Why nobody has a metric."""
    return "; ".join(own["reason"].dropna().unique())


def _source(own: pd.DataFrame) -> str:
    """Where a metric is from, and of environments that lack it why.

    Args:
        own: its rows by environment (index).
    """
    parts = [", ".join(own.loc[own["kind"] != UNAVAILABLE, "source"].unique())]
    for reason, rows in own[own["kind"] == UNAVAILABLE].groupby("reason", sort=False):
        parts.append(f"not {listed([env_title(str(env)) for env in rows.index])}: {reason}")
    return "; ".join(parts)


def counters_table(profiles: Mapping[str, Mapping[str, ProfileRecord]]) -> Table | None:
    """How the device's counters were read in each profiled launch, or why there are none; None where nothing asked.

    Args:
        profiles: records of the profiled launches by workload and environment.
    """
    found = [
        (workload, env, record.counters)
        for workload, by_env in profiles.items()
        for env, record in by_env.items()
        if record.counters is not None
    ]
    if not found:
        return None
    return Table.of(
        found,
        {
            "": lambda row: f"{workload_title(row[0])}, {env_title(row[1], short=True)}",
            "counters by": lambda row: (
                row[2].tool if row[2].status == "ok" else f"{row[2].status}: {row[2].reason}"
            ),
            "steps": lambda row: str(row[2].steps),
            "replay by": lambda row: row[2].replay,
            "passes at most": lambda row: (
                ", ".join(f"{part.name} {part.most_passes or 'not told'}" for part in row[2].parts) or None
            ),
            "control of caches, clocks": lambda row: f"{row[2].cache_control}, {row[2].clock_control}",
        },
        caption="How the device's counters were read",
        note="In one pass no kernel is replayed. Control none: caches or clocks were left as they were.",
        wide=True,
    )


def roofline(evidence: Evidence) -> Mapping[str, Any]:
    """What its roofline shows: points, families and ceilings, or why there are none."""
    record = evidence.ceilings
    if record is None:
        return {"absent": NO_CEILINGS, "record": None}
    return {
        "absent": None,
        "record": record,
        "networks": evidence.networks,
        "points": points_table(evidence, record),
        "families": [families_table(evidence, record, name) for name in evidence.networks],
        "ceilings": ceiling_sentences(record),
        "tables": [bandwidth_table(record), product_table(record)],
    }


def ceiling_sentences(record: CeilingsRecord) -> list[str]:
    """How the ceilings were taken, what they are beside a datasheet or a model, and what could not be had."""
    peak = ceilings.peaks(record)[PRECISION]
    claim = ceilings.claimed(record).get(PRECISION)
    memory, why = ceilings.claimed_memory(record)
    source = ceilings.claim_source(record)
    lines = [
        f"The {SHORT[PRECISION]} roof is the product by {peak['kernel']} at n = {peak['size']}, the faster of "
        "what the framework has. Bytes count as in STREAM: two arrays for copy, three for triad.",
        f"Peak by datasheet or model: {source}."
        if claim is None
        else f"That is {100 * peak['flop_per_s'] / claim:.0f}% of {decimal_prefix(claim)}FLOP/s, {source}.",
        f"Bandwidth of memory by datasheet: {UNAVAILABLE}: {why}."
        if memory is None
        else f"The measured bandwidth of memory is {100 * ceilings.memory(record)['bytes_per_s'] / memory:.0f}% of "
        f"{decimal_prefix(memory)}B/s, {why}.",
    ]
    caches, found = ceilings.caches_of(record) or {}, ceilings.levels(record)
    wanted = [*(name.removesuffix("d") for name in sorted(caches) if not name.endswith("i")), ceilings.MEMORY]
    absent = [name for name in wanted if name not in found]
    if not caches:
        lines.append("The record has no sizes of caches, so working sets have no level; the largest is memory's.")
    elif absent:
        lines.append(f"No working set of this study lies in {', '.join(absent)} alone.")
    return lines


def _share(share: pd.Series) -> str:
    text = f"{significant(share['percent_of_roof'], 2)}%"
    if missing(share["percent_low"]):
        return text
    return f"{text} ({significant(share['percent_low'], 2)} to {significant(share['percent_high'], 2)}%)"


def points_table(evidence: Evidence, record: CeilingsRecord) -> Table:
    """Every workload in every environment."""
    table = roofline_table(evidence.metrics, record)
    return Table.of(
        points(evidence.metrics).itertuples(),
        {
            "": lambda row: f"{workload_title(row.workload)}, {env_title(row.env, short=True)}",
            "intensity": lambda row: f"{significant(row.intensity)} FLOP/B",
            "rate": lambda row: f"{decimal_prefix(row.rate)}FLOP/s",
            "95% interval": _ends,
            "n": lambda row: str(row.n),
            "time of": lambda row: row.basis,
            "bound": lambda row: f"{table['bound'][row.Index]}, {_precision(row, record)}",
            "FLOPs, bytes": lambda row: row.kind,
            "share of the roof": lambda row: _share(table.loc[row.Index]),
        },
        caption="Whole workloads under the roofs of this machine",
        note="Modelled: FLOPs and bytes of operators. Measured: counted by the device. Times are measured.",
        wide=True,
    )


def _precision(row: Any, record: CeilingsRecord) -> str:
    """Whose roof stands above a point: of the precision that ran, or of one in its place."""
    ran, used = str(row.precision), roof_precision(str(row.precision), record)
    return SHORT.get(used, used) + ("" if ran == used else f" in place of {SHORT.get(ran, ran)}, not measured")


def _ends(row: Any) -> str:
    if missing(row.low):
        return "none"
    high = "no upper end" if row.high == float("inf") else decimal_prefix(row.high)
    return f"{decimal_prefix(row.low)} to {high}"


def families_table(evidence: Evidence, record: CeilingsRecord, workload: str) -> Table:
    """Every family of one workload's operators on the host."""
    roof = roofs(record)
    points_of, rest = family_points(evidence.families, workload), left_out(evidence.families, workload)

    def share(row: Any) -> str:
        limit = float(attainable(row.intensity, roof["product"]["flop_per_s"], roof["memory"]["bytes_per_s"]))
        return f"{significant(100 * row.rate / limit, 2)}%"

    columns = {
        "": lambda row: row.family,
        "own time": lambda row: seconds(row.self_s),
        "intensity": lambda row: f"{significant(row.intensity)} FLOP/B",
        "rate": lambda row: f"{decimal_prefix(row.rate)}FLOP/s",
        "95% interval": _ends,
        "FLOPs": lambda row: "one per output element" if row.convention else "counted multiply-adds",
        "share of the roof": share,
    }
    rows = [[cell(row) for cell in columns.values()] for row in points_of.itertuples()]
    for row in rest.itertuples():
        rows.append([row.family, seconds(row.self_s_per_step), None, None, None, "not drawn", None])
    note = "Times of profiled steps, which the profiler slows. More than 100%: a cache feeds it, not memory."
    if points_of.empty:
        note = "Unavailable: no times and counts by operator on the host."
    if points_of.empty and record.device != "cpu":
        note = "Unavailable: kernels run on the device, so that an operator's time on the processor is not theirs."
    return Table(
        caption=f"{workload_title(workload)}: families of operators, host, per training step",
        columns=list(columns),
        rows=rows,
        note=note,
        wide=True,
    )


def bandwidth_table(record: CeilingsRecord) -> Table:
    """Every working set."""
    return Table.of(
        ceilings.bandwidths(record).itertuples(),
        {
            "level": lambda row: f"{row.level}, {row.kernel}",
            "arrays together": lambda row: size_bytes(row.working_set_bytes),
            "best": lambda row: _rate(row.bytes_per_s, "B/s"),
            "median": lambda row: _rate(row.median_bytes_per_s, "B/s"),
            "spread": lambda row: f"{100 * row.spread:.0f}%",
            "repetitions": lambda row: str(row.repetitions),
            "traffic, modelled": lambda row: _rate(row.traffic_bytes_per_s, "B/s"),
        },
        caption="Bandwidth by working set",
        note="Spread: the best by the worst repetition, less one. In L1 the framework's loop weighs as much as the "
        "work: a lower bound of the hardware's rate.",
        numeric=True,
        wide=True,
    )


def _rate(value: float | None, unit: str) -> str | None:
    return None if value is None or missing(value) else f"{decimal_prefix(value)}{unit}"


def product_table(record: CeilingsRecord) -> Table:
    """Every product of matrices, and what was left out."""
    skipped = ceilings.skipped(record)
    return Table.of(
        ceilings.products(record).itertuples(),
        {
            "precision, kernel": lambda row: f"{row.precision}, {row.kernel}",
            "n": lambda row: str(row.size),
            "best": lambda row: _rate(row.flop_per_s, "FLOP/s"),
            "median": lambda row: _rate(row.median_flop_per_s, "FLOP/s"),
            "spread": lambda row: f"{100 * row.spread:.0f}%",
            "claimed peak": lambda row: _rate(row.modelled_flop_per_s, "FLOP/s"),
            "share": lambda row: None if missing(row.share) else f"{100 * row.share:.0f}%",
        },
        caption="Products of matrices by precision",
        note=f"Left out: {'; '.join(skipped)}." if skipped else "Nothing was left out.",
        numeric=True,
        wide=True,
    )


def inputs(evidence: Evidence) -> list[Mapping[str, Any]]:
    """What is shown of each workload of which the study measures the input alone."""
    return [_input(evidence, name, record) for name, record in evidence.pipelines.items()]


def _input(evidence: Evidence, workload: str, record: PipelineRecord) -> Mapping[str, Any]:
    title = workload_title(workload)
    if not record.ok:
        return {"sentences": [f"{title}: {UNAVAILABLE}: {record.reason}."], "table": None, "figure": None}
    found = rates(record, evidence.study.confidence)
    return {
        "sentences": input_sentences(title, record, found),
        "table": rate_table(title, record, found),
        "figure": style.drawn(pipeline(found, demand(record), title), f"pipeline_{workload}"),
    }


def input_sentences(title: str, record: PipelineRecord, found: Sequence[Rate]) -> list[str]:
    """What training asks for, from how many processes on the input gives it, and why there are no cold passes."""
    wanted = demand(record)
    lines = [f"{title}: training on batches of {record.batch} in memory takes {wanted:,.0f} images/s."]
    for cache in CACHES:
        own = [rate for rate in found if rate.cache == cache]
        if not own:
            continue
        workers, most = enough(own, cache, wanted), max(own, key=lambda rate: rate.images_per_s)
        if workers is None:
            lines.append(
                f"From {CACHE_TITLES[cache]} no number of loader processes that was tried gives as much for sure; "
                f"{most.workers} give most, {most.images_per_s:,.0f} images/s."
            )
        else:
            lines.append(f"From {CACHE_TITLES[cache]} the input is no bottleneck {_from(workers)}.")
    if record.no_cold:
        lines.append(f"From an empty page cache: {UNAVAILABLE}: {record.no_cold}.")
    return lines


def _from(workers: int) -> str:
    if workers == 0:
        return "even where the training process loads by itself"
    return f"from {'one loader process' if workers == 1 else f'{workers} loader processes'} on"


def rate_table(title: str, record: PipelineRecord, found: Sequence[Rate]) -> Table:
    """Every rate with its interval."""
    return Table.of(
        found,
        {
            "Loader processes": lambda rate: f"{rate.workers}, {CACHE_TITLES[rate.cache]}",
            "Images/s": field("images_per_s", "{:,.0f}".format),
            "Interval": lambda rate: None if rate.low is None else f"{rate.low:,.0f} to {rate.high:,.0f}",
            "First batch, ms": field("first_batch_s", lambda value: f"{1000 * value:,.0f}"),
            "n": field("n"),
        },
        caption=f"{title}: input alone, by loader processes",
        note=f"Measured. Passes over {record.settings.get('images')} images in batches of {record.batch}, the "
        "start of loader processes in them; geometric means over repetitions, each interval by itself.",
        numeric=True,
    )
