"""A load on the machine while something is measured, until it or its parent is ended.

python busy.py loop CPU       a busy loop, bound to one logical CPU
python busy.py bursts SEED    copies memory for a while, rests for a while; lengths are exponential, two seconds
                              on average, so that it takes half a CPU; the seed makes them the same again
"""

from __future__ import annotations

import os
import random
import sys
import time

MEAN_S = 2.0
COPIED_BYTES = 16 << 20  # beyond most last caches: it takes bandwidth too
LOOKS = 100_000  # turns of the loop between two looks at the parent


def loop(cpu: str) -> None:
    """Keep one logical CPU busy until the parent has ended."""
    os.sched_setaffinity(0, [int(cpu)])
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(LOOKS):
            pass


def bursts(seed: str) -> None:
    """Work and rest until the parent has ended."""
    generator, block, parent = random.Random(seed), bytearray(COPIED_BYTES), os.getppid()
    while os.getppid() == parent:
        ends = time.monotonic() + generator.expovariate(1 / MEAN_S)
        while time.monotonic() < ends:
            bytes(block)
        time.sleep(generator.expovariate(1 / MEAN_S))


if __name__ == "__main__":
    if len(sys.argv) != 3 or {"-h", "--help"} & set(sys.argv):
        sys.exit(__doc__)
    {"loop": loop, "bursts": bursts}[sys.argv[1]](sys.argv[2])
