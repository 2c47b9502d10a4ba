"""Inside a step: metrics of profiled launches, the roofline, and the input alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from tare.analysis.capacity import ceilings, roofs
from tare.analysis.capacity.pipeline import CACHES, Rate, demand, enough, rates
from tare.analysis.choice import PROFILE
from tare.literature.finding import listed
from tare.model.records.measured import CeilingsRecord, PipelineRecord, ProfileRecord
from tare.report.evidence import Evidence
from tare.report.figures.rooflines import SHORT
from tare.report.rows import having
from tare.report.words.labels import env_title, metric_meaning, metric_order, metric_title, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Reader, Row, Table, field
from tare.report.words.quantities import decimal_prefix, prefixed, seconds, significant, size_bytes, with_unit
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
    "The input is measured alone. If training runs on the same cores, both are slower. So a number of loader "
    "processes that is enough here is a lower bound."
)


_flops, _bytes = partial(prefixed, unit="FLOP/s"), partial(prefixed, unit="B/s")


def profile_table(evidence: Evidence, workload: str) -> Table:
    """The metrics of one workload's profiled launches, by environment, under headings."""
    caption = f"{workload_title(workload)}: metrics of the papers, from one profiled launch per environment"
    return metrics_table(evidence.metrics, workload, evidence.environments, caption)


def metrics_table(metrics: pd.DataFrame, workload: str, environments: Sequence[str], caption: str) -> Table:
    """As `profile_table`, from a table of metrics."""
    own = having(metrics, campaign=PROFILE, workload=workload)
    ran = [env for env in environments if (having(own, launch=env)["kind"] != UNAVAILABLE).any()]
    own = having(own, launch=tuple(ran))
    starts = [(start, name) for name, own_starts in GROUPS.items() for start in own_starts]
    headings = own["metric"].map(lambda metric: next((n for s, n in starts if metric.startswith(s)), LAUNCH))
    rows: list[Row] = []
    for heading in (LAUNCH, *GROUPS):
        if (headings == heading).any():
            rows += [[Cell(text=heading)], *_group_rows(own[headings == heading], ran)]
    return Table(
        caption=caption,
        columns=["metric", *(env_title(env, short=True) for env in ran), "kind", "source"],
        rows=rows,
        note="Per training step where the name says so. A timed launch is never profiled.",
    )


def _group_rows(part: pd.DataFrame, ran: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    absent: dict[str, list[str]] = {}
    for metric in sorted(part["metric"].unique(), key=metric_order):
        own = part[part["metric"] == metric]
        if (own["kind"] == UNAVAILABLE).all():
            absent.setdefault("; ".join(own["reason"].dropna().unique()), []).append(metric)
            continue
        several = own["source"].nunique() > 1
        for source in own["source"].unique():
            one = own[own["source"] == source].set_index("launch")
            below = f"{metric_meaning(metric)}{f'; by {source}' if several else ''}"
            there = one[one["kind"] != UNAVAILABLE].to_dict("index")
            texts = {env: with_unit(row["value"], row["unit"]) for env, row in there.items()}
            cells = [texts.get(env, "–" if env in one.index else None) for env in ran]
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


def _source(own: pd.DataFrame) -> str:
    """Where a metric is from, and of environments that lack it why: of its rows, by environment (index)."""
    parts = [", ".join(own.loc[own["kind"] != UNAVAILABLE, "source"].unique())]
    for reason, rows in own[own["kind"] == UNAVAILABLE].groupby("reason", sort=False):
        parts.append(f"not {listed([env_title(str(env)) for env in rows.index])}: {reason}")
    return "; ".join(parts)


def counters_table(profiles: Mapping[str, Mapping[str, ProfileRecord]]) -> Table | None:
    """How the device's counters were read in each profiled launch, or why there are none; None where nothing asked.

    Of the records of the profiled launches by workload and environment.
    """
    found = [
        (f"{workload_title(workload)}, {env_title(env, short=True)}", record.counters)
        for workload, by_env in profiles.items() for env, record in by_env.items() if record.counters is not None
    ]  # fmt: skip
    if not found:
        return None

    def how(counters: Any) -> str:
        return counters.tool if counters.status == "ok" else f"{counters.status}: {counters.reason}"

    columns = {
        "": lambda row: row[0],
        "counters by": lambda row: how(row[1]),
        "steps": lambda row: str(row[1].steps),
        "replay by": lambda row: row[1].replay,
        "passes at most": lambda row: (
            ", ".join(f"{part.name} {part.most_passes or 'not reported'}" for part in row[1].parts) or None
        ),
        "control of caches, clocks": lambda row: f"{row[1].cache_control}, {row[1].clock_control}",
    }
    note = "With one pass, no kernel is replayed. Control none: caches or clocks were not changed."
    return Table.of(found, columns, caption="How the device's counters were read", note=note)


def roofline(evidence: Evidence) -> Mapping[str, Any]:
    """What its roofline shows: points, families and ceilings, or why there are none."""
    record = evidence.ceilings
    if record is None:
        return {"absent": NO_CEILINGS, "record": None}
    return {
        "absent": None, "record": record, "networks": evidence.networks,
        "points": points_table(evidence, record),
        "families": [families_table(evidence, record, name) for name in evidence.networks],
        "ceilings": ceiling_sentences(record),
        "tables": [bandwidth_table(record), product_table(record)],
    }  # fmt: skip


def ceiling_sentences(record: CeilingsRecord) -> list[str]:
    """How the ceilings were measured, how they compare with a datasheet or a model, and what is unavailable."""
    peak = ceilings.peaks(record)[roofs.PRECISION]
    claim = ceilings.claimed(record).get(roofs.PRECISION)
    memory, why = ceilings.claimed_memory(record)
    source = ceilings.claim_source(record)
    lines = [
        f"The {SHORT[roofs.PRECISION]} roof is the matrix product by {peak['kernel']} at n = {peak['size']}, the "
        "fastest that the framework has. Bytes are counted as in STREAM: two arrays for copy, three for triad.",
        f"Peak by datasheet or model: {source}."
        if claim is None
        else f"That is {100 * peak['flop_per_s'] / claim:.0f}% of {_flops(claim)}, {source}.",
        f"Bandwidth of memory by datasheet: {UNAVAILABLE}: {why}."
        if memory is None
        else f"The measured bandwidth of memory is {100 * ceilings.memory(record)['bytes_per_s'] / memory:.0f}% of "
        f"{_bytes(memory)}, {why}.",
    ]
    caches, found = ceilings.caches_of(record) or {}, ceilings.levels(record)
    wanted = [*(name.removesuffix("d") for name in sorted(caches) if not name.endswith("i")), ceilings.MEMORY]
    absent = [name for name in wanted if name not in found]
    if not caches:
        lines.append("The cache sizes are not known, so working sets have no level. The largest counts as memory.")
    elif absent:
        lines.append(f"No working set of this study fits in {', '.join(absent)} alone.")
    return lines


def _share(share: pd.Series) -> str:
    text = f"{significant(share['percent_of_roof'], 2)}%"
    if missing(share["percent_low"]):
        return text
    return f"{text} ({significant(share['percent_low'], 2)} to {significant(share['percent_high'], 2)}%)"


def points_table(evidence: Evidence, record: CeilingsRecord) -> Table:
    """Every workload in every environment."""
    table = roofs.roofline_table(evidence.metrics, record)
    columns = {
        "": lambda row: f"{workload_title(row.workload)}, {env_title(row.env, short=True)}",
        **POINT,
        "n": field("n"),
        "time of": field("basis"),
        "bound": lambda row: f"{table['bound'][row.Index]}, {_precision(row, record)}",
        "FLOPs, bytes": field("kind"),
        "share of the roof": lambda row: _share(table.loc[row.Index]),
    }
    caption = "Whole workloads under the roofs of this machine"
    note = "FLOPs and bytes: modelled from operators, or measured (counted by the device). Times are measured."
    return Table.of(roofs.points(evidence.metrics).itertuples(), columns, caption=caption, note=note)


def _precision(row: Any, record: CeilingsRecord) -> str:
    """Whose roof bounds a point: that of the precision that ran, or of one in its place."""
    ran, used = str(row.precision), roofs.roof_precision(str(row.precision), record)
    return SHORT.get(used, used) + ("" if ran == used else f" in place of {SHORT.get(ran, ran)}, not measured")


def _ends(row: Any) -> str:
    if missing(row.low):
        return "none"
    high = "no upper end" if row.high == float("inf") else decimal_prefix(row.high)
    return f"{decimal_prefix(row.low)} to {high}"


# Columns of a point below the roofs.
POINT: dict[str, Reader] = {
    "intensity": lambda row: f"{significant(row.intensity)} FLOP/B",
    "rate": field("rate", _flops),
    "95% interval": _ends,
}


def families_table(evidence: Evidence, record: CeilingsRecord, workload: str) -> Table:
    """Every family of one workload's operators on the host."""
    roof = roofs.roofs(record)
    points_of, rest = roofs.family_points(evidence.families, workload), roofs.left_out(evidence.families, workload)

    def share(row: Any) -> str:
        limit = float(roofs.attainable(row.intensity, roof["product"]["flop_per_s"], roof["memory"]["bytes_per_s"]))
        return f"{significant(100 * row.rate / limit, 2)}%"

    columns = {
        "": field("family"),
        "own time": field("self_s", seconds),
        **POINT,
        "FLOPs": lambda row: "one per output element" if row.convention else "counted multiply-adds",
        "share of the roof": share,
    }
    rows = [[cell(row) for cell in columns.values()] for row in points_of.itertuples()]
    for row in rest.itertuples():
        rows.append([row.family, seconds(row.self_s_per_step), None, None, None, "not drawn", None])
    note = "Times of profiled steps; the profiler slows them. More than 100%: data came from a cache, not memory."
    if points_of.empty:
        note = "Unavailable: no times and counts by operator on the host."
    if points_of.empty and record.device != "cpu":
        note = "Unavailable: kernels run on the device, and operator times are those of the processor."
    return Table(
        caption=f"{workload_title(workload)}: families of operators, host, per training step",
        columns=list(columns),
        rows=rows,
        note=note,
    )


def bandwidth_table(record: CeilingsRecord) -> Table:
    """Every working set."""
    return Table.of(
        ceilings.bandwidths(record).itertuples(),
        {
            "level": lambda row: f"{row.level}, {row.kernel}",
            "arrays together": field("working_set_bytes", size_bytes),
            "best": field("bytes_per_s", _bytes),
            "median": field("median_bytes_per_s", _bytes),
            "spread": field("spread", "{:.0%}".format),
            "repetitions": field("repetitions"),
            "traffic, modelled": field("traffic_bytes_per_s", _bytes),
        },
        caption="Bandwidth by working set",
        note="Spread: best divided by worst repetition, minus one. In L1 the framework's loop takes as long as the "
        "work, so the rate is a lower bound for the hardware.",
        numeric=True,
    )


def product_table(record: CeilingsRecord) -> Table:
    """Every product of matrices, and what was left out."""
    skipped = ceilings.skipped(record)
    columns = {
        "precision, kernel": lambda row: f"{row.precision}, {row.kernel}",
        "n": field("size"),
        "best": field("flop_per_s", _flops),
        "median": field("median_flop_per_s", _flops),
        "spread": field("spread", "{:.0%}".format),
        "claimed peak": field("modelled_flop_per_s", _flops),
        "share": field("share", "{:.0%}".format),
    }
    caption = "Products of matrices by precision"
    note = f"Left out: {'; '.join(skipped)}." if skipped else "Nothing was left out."
    return Table.of(ceilings.products(record).itertuples(), columns, caption=caption, note=note, numeric=True)


def inputs(evidence: Evidence) -> list[Mapping[str, Any]]:
    """What is shown of each workload of which the study measures the input alone."""
    shown: list[Mapping[str, Any]] = []
    for workload, record in evidence.pipelines.items():
        title = workload_title(workload)
        if not record.ok:
            lines = [f"{title}: {UNAVAILABLE}: {record.reason}."]
            shown.append({"sentences": lines, "table": None})
            continue
        found = rates(record, evidence.study.confidence)
        lines, table = input_sentences(title, record, found), rate_table(title, record, found)
        shown.append({"sentences": lines, "table": table})
    return shown


def input_sentences(title: str, record: PipelineRecord, found: Sequence[Rate]) -> list[str]:
    """What training asks for, from how many processes on the input gives it, and why there are no cold passes."""
    wanted = demand(record)
    lines = [f"{title}: training on batches of {record.batch} in memory needs {wanted:,.0f} images/s."]
    for cache in CACHES:
        own = [rate for rate in found if rate.cache == cache]
        if not own:
            continue
        workers, most = enough(own, cache, wanted), max(own, key=lambda rate: rate.images_per_s)
        if workers is None:
            lines.append(
                f"From {CACHE_TITLES[cache]}, no tested number of loader processes reaches this rate for certain. "
                f"The best is {most.workers}, with {most.images_per_s:,.0f} images/s."
            )
        else:
            by_itself = "even if the training process loads the data itself"
            several = f"with {'one loader process' if workers == 1 else f'{workers} loader processes'} or more"
            when = several if workers else by_itself
            lines.append(f"From {CACHE_TITLES[cache]}, the input is no bottleneck {when}.")
    if record.no_cold:
        lines.append(f"From an empty page cache: {UNAVAILABLE}: {record.no_cold}.")
    return lines


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
        note=f"Measured. Passes over {record.settings.get('images')} images in batches of {record.batch}, "
        "including the start of loader processes. Geometric means over repetitions, each interval by itself.",
        numeric=True,
        wide=False,
    )
