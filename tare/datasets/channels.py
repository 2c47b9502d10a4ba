"""Mean and spread of a set's pixels by channel, as its files hold them: neither cropped nor normalised."""

from __future__ import annotations

import math
from pathlib import Path

from tare.datasets.tiny_imagenet import CLASSES
from tare.model.records.images import Channels

MOST = 2000  # images that are looked at
LEVELS = 256


def channels_of(folder: Path, most: int = MOST) -> Channels | None:
    """Of training images, evenly chosen from all in the order of their paths; None of what is no set of images."""
    from PIL import Image

    if not (folder / CLASSES).exists():
        return None
    paths = sorted(folder.glob("train/*/images/*.JPEG"))
    chosen = paths[:: max(1, -(-len(paths) // most))]
    counts = [0] * (3 * LEVELS)
    for path in chosen:
        with Image.open(path) as image:
            counts = [one + other for one, other in zip(counts, image.convert("RGB").histogram(), strict=True)]
    found = [_moments(counts[first : first + LEVELS]) for first in range(0, 3 * LEVELS, LEVELS)]
    mean, spread = ((red, green, blue) for red, green, blue in zip(*found, strict=True))
    return Channels(images=len(chosen), mean=mean, spread=spread)


def _moments(counts: list[int]) -> tuple[float, float]:
    """Mean and standard deviation of one channel, from its histogram; both as shares of the largest level."""
    total = sum(counts)
    mean = sum(level * count for level, count in enumerate(counts)) / total
    square = sum(level * level * count for level, count in enumerate(counts)) / total
    return mean / (LEVELS - 1), math.sqrt(max(0.0, square - mean * mean)) / (LEVELS - 1)
