"""Images per second of the input alone, and from how many loader processes on it is no bottleneck.

A rate is the geometric mean over repetitions, with Student's interval of its logarithm at the study's confidence,
of each rate by itself. A job's demand is its batch over the median of its steps in memory. From the fewest
processes whose interval lies at or above the demand the input is called no bottleneck; that counts the input alone,
and beside training on the same cores it is slower.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import IntegrityError
from tare.model.records.launches import PipelinePass, PipelineResults
from tare.model.records.measured import PipelineRecord
from tare.model.schema import read
from tare.stats.intervals import t_interval

CACHES = ("cold", "warm")


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Images per second with a state of the page cache and a number of loader processes.

    Attributes:
        low, high: of the interval; None with fewer than two repetitions.
        first_batch_s: median time to the first batch.
    """

    cache: str
    workers: int
    n: int
    images_per_s: float
    low: float | None
    high: float | None
    first_batch_s: float | None


def read_pipeline(path: Path) -> PipelineRecord:
    """The record of a measured pipeline, of a launch that worked or of one that did not.

    Raises:
        IntegrityError: it is not what `tare pipeline` writes.
    """
    record = read(PipelineRecord, path)
    if record.ok:
        try:
            results(record)
        except IntegrityError as error:
            raise IntegrityError(f"{path}: {error}; {record.REMAKE}") from None
    return record


def results(record: PipelineRecord) -> PipelineResults:
    """What was measured inside."""
    return record.seen_inside().results_as(PipelineResults)


def rates(record: PipelineRecord, confidence: float) -> list[Rate]:
    """Every rate: cold before warm, fewest processes first."""
    measured = results(record).passes
    cells: dict[tuple[str, int], list[PipelinePass]] = {}
    for one in measured:
        cells.setdefault((one.cache, one.workers), []).append(one)
    order = sorted(cells, key=lambda cell: (CACHES.index(cell[0]), cell[1]))
    return [_rate(cells[cell], 1 - confidence) for cell in order]


def _rate(passes: Sequence[PipelinePass], alpha: float) -> Rate:
    logs = [math.log(one.samples / one.seconds) for one in passes]
    interval = t_interval(logs, alpha)
    told = interval.told
    first = [one.first_batch_s for one in passes if one.first_batch_s is not None]
    return Rate(
        cache=passes[0].cache,
        workers=passes[0].workers,
        n=len(passes),
        images_per_s=math.exp(statistics.fmean(logs)),
        low=math.exp(told[1]) if told else None,
        high=math.exp(told[2]) if told else None,
        first_batch_s=statistics.median(first) if first else None,
    )


def demand(record: PipelineRecord) -> float:
    """Images per second that training takes from memory."""
    return record.batch / statistics.median(results(record).step_s)


def enough(found: Sequence[Rate], cache: str, wanted: float) -> int | None:
    """The fewest loader processes whose interval lies at or above `wanted`; None where none of those tried does."""
    return next((one.workers for one in found if one.cache == cache and (one.low or 0.0) >= wanted), None)
