"""The input alone: images per second by loader processes, and from how many on training need not wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tare.analysis.pipeline import CACHES, Rate, demand, enough, rates
from tare.core.process import scratch_folder
from tare.model.records.measured import PipelineRecord
from tare.report import figures
from tare.report.evidence import Evidence
from tare.report.figures.pipeline import pipeline
from tare.report.words.labels import workload_title
from tare.report.words.layout import UNAVAILABLE, Row, Table

CACHE_TITLES = {"cold": "an empty page cache", "warm": "a full page cache"}
ALONE = (
    "The input is measured alone. Loader processes beside training on the same cores are slower, and so is "
    "training: a number of processes that is enough here is the fewest that can be."
)


def section(evidence: Evidence) -> Mapping[str, Any] | None:
    """What the template shows, by workload; None where the study measures no input alone."""
    if not evidence.pipelines:
        return None
    found = {name: _told(evidence, name, record) for name, record in evidence.pipelines.items()}
    return {"pipelines": found, "pipeline_note": ALONE}


def _told(evidence: Evidence, workload: str, record: PipelineRecord) -> Mapping[str, Any]:
    title = workload_title(workload)
    if not record.ok:
        return {"sentences": [f"{title}: {UNAVAILABLE}: {record.reason}."], "table": None, "figure": None}
    found = rates(record, evidence.study.confidence)
    return {
        "sentences": sentences(title, record, found),
        "table": rate_table(title, record, found),
        "figure": _drawn(workload, pipeline(found, demand(record), title)),
    }


def _drawn(workload: str, drawing: figures.Drawing) -> Markup:
    """The figure as a page takes it in; its texts are escaped when it is written."""
    with scratch_folder("figure") as folder:
        return Markup(figures.inline(figures.write(drawing, Path(folder) / f"pipeline_{workload}.svg")))


def sentences(title: str, record: PipelineRecord, found: Sequence[Rate]) -> list[str]:
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
    rows: list[Row] = [
        [
            f"{rate.workers}, {CACHE_TITLES[rate.cache]}",
            f"{rate.images_per_s:,.0f}",
            "" if rate.low is None or rate.high is None else f"{rate.low:,.0f} to {rate.high:,.0f}",
            "" if rate.first_batch_s is None else f"{1000 * rate.first_batch_s:,.0f}",
            str(rate.n),
        ]
        for rate in found
    ]
    samples = record.settings.get("images")
    return Table(
        caption=f"{title}: input alone, by loader processes",
        columns=["Loader processes", "Images/s", "Interval", "First batch, ms", "n"],
        rows=rows,
        note=f"Measured. Passes over {samples} images in batches of {record.batch}, the start of loader processes "
        "in them; geometric means over repetitions, each interval by itself.",
        numeric=True,
    )
