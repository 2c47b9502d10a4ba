"""The input alone: images per second by loader processes, and from how many on training need not wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.pipeline import CACHES, Rate, demand, enough, rates
from tare.model.records.measured import PipelineRecord
from tare.report.evidence import Evidence
from tare.report.figures import style
from tare.report.figures.lines import pipeline
from tare.report.words.labels import workload_title
from tare.report.words.layout import UNAVAILABLE, Table, field

CACHE_TITLES = {"cold": "an empty page cache", "warm": "a full page cache"}
ALONE = (
    "The input is measured alone. Loader processes beside training on the same cores are slower, and so is "
    "training: a number of processes that is enough here is the fewest that can be."
)


def sections(evidence: Evidence) -> list[Mapping[str, Any]]:
    """What is shown of each workload of which the study measures the input alone."""
    return [_told(evidence, name, record) for name, record in evidence.pipelines.items()]


def _told(evidence: Evidence, workload: str, record: PipelineRecord) -> Mapping[str, Any]:
    title = workload_title(workload)
    if not record.ok:
        return {"sentences": [f"{title}: {UNAVAILABLE}: {record.reason}."], "table": None, "figure": None}
    found = rates(record, evidence.study.confidence)
    return {
        "sentences": sentences(title, record, found),
        "table": rate_table(title, record, found),
        "figure": style.drawn(pipeline(found, demand(record), title), f"pipeline_{workload}"),
    }


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
