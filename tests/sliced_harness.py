"""Runs rounds of two endless or short jobs in one environment, in processes that a test may kill.

    python sliced_harness.py ENVIRONMENT FOLDER

Each line of standard input is `round TAG WORK`, or `clean TAG`: a process of its own, whose number is printed, runs
a round whose launches are named `tare-TAG…` and whose jobs do WORK turns of a loop, or ends what others have left.
When it has ended, FOLDER/TAG holds why the round was void, or nothing.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

from asked import conditions

from tare.launch import prepare
from tare.launch.place import Site
from tare.launch.program import CommandProgram
from tare.launch.run import Order
from tare.launch.slicing.pacing import Pace
from tare.launch.slicing.rounds import Way, run_launches
from tare.launch.trial import trial_form
from tare.model.registry import environment

CONDITIONS = conditions(launch_timeout_s=60.0)
NAMES = ("a", "b")
SCRIPT = """
i=0; while [ $i -lt $0 ]; do i=$((i + 1)); done &
i=0; while [ $i -lt $0 ]; do i=$((i + 1)); done
wait
"""


def site_of_trial(name: str) -> Site:
    """A site of an environment with an image of a shell; in its session."""
    adapter = environment(name)
    reference = None
    if adapter.contained:
        reference = trial_form(adapter).reference
    return Site(environment=adapter, reference=reference, isolates_network=adapter.probe().isolates_network)


def run_round(site: Site, tag: str, work: str) -> str:
    """A sliced round; why it was void."""
    numbers = itertools.count()
    prepare.uuid = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{tag}{next(numbers):02d}"))
    program = CommandProgram(["/bin/sh", "-c", SCRIPT, work])
    orders = {name: Order(site=site, program=program, conditions=CONDITIONS) for name in NAMES}
    way = Way(pace=Pace.equal(NAMES), orders=itertools.repeat((0, 1)), seed=tag)
    found = run_launches(orders, way)
    reasons = [record.reason for record in found.records.values() if not record.ok]
    return found.voided or "; ".join(filter(None, reasons))


def child(site: Site, folder: Path, word: str, tag: str, work: str) -> None:
    """What a process of its own does."""
    prepare._end_leftovers_in.cache_clear()
    try:
        if word == "clean":
            prepare.end_leftovers()
            said = ""
        else:
            said = run_round(site, tag, work)
    except KeyboardInterrupt:
        said = "interrupted"
    except BaseException:
        said = traceback.format_exc()
    (folder / f".{tag}").write_text(said)
    (folder / f".{tag}").rename(folder / tag)


def main(name: str, folder: Path) -> None:
    """Serve standard input."""
    with environment(name).session():
        site = site_of_trial(name)
        print("ready", flush=True)
        while line := sys.stdin.readline():
            word, tag, *work = line.split()
            pid = os.fork()
            if pid == 0:
                os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
                child(site, folder, word, tag, *(work or ["0"]))
                os._exit(0)
            print(pid, flush=True)
            sys.stdin.readline()  # the test has seen its end, or killed it
            os.waitpid(pid, 0)
            print("reaped", flush=True)


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    main(sys.argv[1], Path(sys.argv[2]))
