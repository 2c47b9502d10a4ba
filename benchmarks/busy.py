"""A load on the machine while something is measured, until it or its parent is ended.

python busy.py loop CPU       a busy loop, bound to one logical CPU
python busy.py bursts SEED    copies memory for a while, rests for a while; lengths are exponential, two seconds
                              on average, so that it takes half a CPU; the seed makes them the same again
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

CONDITIONS = ("quiet", "busy", "bursts")
MEAN_S = 2.0
COPIED_BYTES = 16 << 20  # beyond most last caches: it takes bandwidth too
LOOKS = 100_000  # passes of the loop between two looks at the parent


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


@contextlib.contextmanager
def loaded(condition: str, cpus: Sequence[int], seed: str) -> Iterator[dict[str, float]]:
    """The load of a condition; when it has ended, `load_cpu_s` says how much CPU time it took.

    Args:
        condition: quiet: none; busy: a loop on each CPU; bursts: half as many programs that copy memory and rest.
        cpus: of the launches.
        seed: of the bursts.
    """
    asked = {
        "quiet": [],
        "busy": [["loop", str(cpu)] for cpu in cpus],
        "bursts": [["bursts", f"{seed}/{number}"] for number in range(max(1, len(cpus) // 2))],
    }[condition]
    found = {"load_cpu_s": 0.0}
    started = [subprocess.Popen([sys.executable, __file__, *words]) for words in asked]
    try:
        yield found
    finally:
        for process in started:
            process.terminate()
            _, process.returncode, usage = os.wait4(process.pid, 0)
            found["load_cpu_s"] += usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("loop", "bursts"))
    parser.add_argument("number", help="the CPU, or the seed")
    chosen = parser.parse_args()
    {"loop": loop, "bursts": bursts}[chosen.kind](chosen.number)
