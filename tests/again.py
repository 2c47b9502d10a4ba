"""Runs the tests that failed once more, one after the other, as `make test` does when a few failed.

    python tests/again.py STATUS

Three processes share two processors there, and other machines share these: a test of what happens in time may fail
for that. A defect fails alone as well. The last lines name what failed beside others and passed alone. Where more
than FILES files have failures, they are no accident, and nothing is run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

FAILED = 1  # as pytest says that it ran to its end, and tests failed
FILES = 8
LONGEST_S = 600.0
CACHE = Path(".pytest_cache/v/cache/lastfailed")


def failed_tests(cache: Path) -> list[str]:
    """What pytest has kept as failed."""
    return sorted(json.loads(cache.read_text())) if cache.is_file() else []


def alone() -> int:
    """Exit status of a run of what failed."""
    command = [sys.executable, "-m", "pytest", "--last-failed", "--last-failed-no-failures", "none"]
    try:
        return subprocess.run(command, timeout=LONGEST_S).returncode
    except subprocess.TimeoutExpired:
        print(f"not finished in {LONGEST_S / 60:.0f} minutes")
        return FAILED


def again(status: int, cache: Path = CACHE, run: Callable[[], int] = alone) -> tuple[int, Sequence[str]]:
    """The exit status that counts, and lines to say about it."""
    failed = failed_tests(cache)
    files = {name.partition("::")[0] for name in failed}
    if status != FAILED or not failed:
        return status, ()
    if len(files) > FILES:
        return status, [f"failures in {len(files)} files: not run again"]
    print(f"{len(failed)} failed beside others; now they run alone:", *failed, sep="\n  ", flush=True)
    second = run()
    passed = [name for name in failed if name not in failed_tests(cache)] if second in (0, FAILED) else []
    return second, [f"failed beside others, passed alone: {name}" for name in passed]


def main() -> int:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("status", metavar="STATUS", type=int, help="exit status of pytest, which ran before")
    status, lines = again(parser.parse_args().status)
    print(*lines, sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
