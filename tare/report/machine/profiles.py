"""What profiled launches show: the metrics of the papers by environment, grouped, and how counters were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from tare.analysis.choice import PROFILE
from tare.model.records.measured import CounterPart, Counters, ProfileRecord
from tare.report.evidence import Evidence
from tare.report.words.labels import (
    env_title,
    metric_meaning,
    metric_order,
    metric_title,
    with_unit,
    workload_title,
)
from tare.report.words.layout import UNAVAILABLE, Cell, Row, Table
from tare.report.words.wording import listed

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


def counter_sentences(profiles: Mapping[str, Mapping[str, ProfileRecord]]) -> list[str]:
    """How the device's counters were read, by workload: tool, replay, clocks and caches, or why there are none.

    Args:
        profiles: records of the profiled launches by workload and environment.
    """
    lines = []
    for workload, by_env in profiles.items():
        told: dict[str, list[str]] = {}
        for env, record in by_env.items():
            if record.counters is not None:
                told.setdefault(_counted(record.counters), []).append(env_title(env))
        lines += [f"{workload_title(workload)}, {listed(envs)}: {text}." for text, envs in told.items()]
    return lines


def _counted(counters: Counters) -> str:
    if counters.status != "ok":
        return f"no counters, {counters.status}: {counters.reason}"
    steps = counters.steps
    parts = ", ".join(_passes(part) for part in counters.parts)
    controls = f"{_control('caches', counters.cache_control)}, {_control('clocks', counters.clock_control)}"
    return (
        f"counters by {counters.tool} over {steps} step{'' if steps == 1 else 's'}, replay by "
        f"{counters.replay}{': ' if parts else ''}{parts}; {controls}"
    )


def _passes(part: CounterPart) -> str:
    """What one launch under the tool counted, and how often kernels ran for it."""
    name = {"dram": "traffic of the memory", "operations": "operations"}.get(part.name, part.name)
    most = part.most_passes
    if most is None:
        return f"{name} in as many passes as they took"
    return f"{name} in one pass, so that no kernel was replayed" if most == 1 else f"{name} in up to {most} passes"


def _control(what: str, level: str | None) -> str:
    return f"{what} left as they were" if level == "none" else f"{what} by control {level!r}"
