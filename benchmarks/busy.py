"""A load beside what is measured: copies memory for a while, rests for a while, until it or its parent is ended.

    python busy.py SEED

Lengths of work and rest are exponential, two seconds on average, so that a load takes half a CPU. The seed makes
them the same again.
"""

from __future__ import annotations

import os
import random
import sys
import time

MEAN_S = 2.0
COPIED_BYTES = 16 << 20  # beyond most last caches: it takes bandwidth too


def main(seed: str) -> None:
    """Work and rest until the parent has ended."""
    generator, block, parent = random.Random(seed), bytearray(COPIED_BYTES), os.getppid()
    while os.getppid() == parent:
        ends = time.monotonic() + generator.expovariate(1 / MEAN_S)
        while time.monotonic() < ends:
            bytes(block)
        time.sleep(generator.expovariate(1 / MEAN_S))


if __name__ == "__main__":
    main(sys.argv[1])
