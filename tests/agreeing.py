"""Two studies of known truths, simulated: how often what is said of a difference is false."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tare.stats.agreement import Gap, Judged, Stated, fewest_degrees, judged
from tare.stats.intervals import student

CONFIDENCE, SHARE = 0.95, 0.61  # of a study; of alpha that a first try may spend
MARGIN = 0.05
EDGE = math.log1p(MARGIN)

Judge = Callable[[Sequence[Gap], Sequence[float], float], list[Judged]]


def stated(values: np.ndarray, alpha: float) -> Stated:
    """What a table states of a comparison of so many rounds."""
    found = student(values).interval(alpha)
    assert found.mean_low_high is not None
    mean, low, high = found.mean_low_high
    return Stated(mean=mean, low=low, high=high, alpha=alpha, degrees=fewest_degrees(len(values), "fixed"))


def false_rates(
    truths: Sequence[float],
    spreads: tuple[float, float],
    units: tuple[int, int],
    studies: int,
    seed: int = 2022,
    judge: Judge = judged,
) -> tuple[float, float]:
    """Shares of pairs of studies with a false "different", and with a false "compatible".

    Args:
        truths: true differences of the log-ratios, of a family of claims; "compatible" is false of one that is as
            large as the margin, "different" of none.
        spreads: standard deviation of a round's log-ratio, of either study.
        units: rounds of either study.
        studies: pairs that are simulated.
        seed: of the draws.
        judge: what says how each differs.
    """
    generator = np.random.default_rng(seed)
    printed = SHARE * (1 - CONFIDENCE) / len(truths)
    apart = inside = 0
    for _ in range(studies):
        gaps = []
        for truth in truths:
            first = generator.normal(0.01, spreads[0], units[0])
            second = generator.normal(0.01 + truth, spreads[1], units[1])
            gaps.append(Gap(first=stated(first, printed), second=stated(second, printed)))
        said = [one.agreement for one in judge(gaps, [MARGIN] * len(gaps), 1 - CONFIDENCE)]
        pairs = list(zip(truths, said, strict=True))
        apart += any(word == "different" and truth == 0 for truth, word in pairs)
        inside += any(word == "compatible" and abs(truth) >= EDGE for truth, word in pairs)
    return apart / studies, inside / studies
