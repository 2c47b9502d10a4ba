"""One launch of a shell in an environment, from a process that lives under limits; prints what became of it.

    python limited.py ENVIRONMENT TURNS

The launch runs TURNS turns of a loop. The line printed is JSON: status, reason, seconds of its own, of a processor.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sliced_harness import CONDITIONS, site_of_trial

from tare.launch.program import CommandProgram
from tare.launch.run import Order
from tare.launch.slicing.rounds import Way, run_launches
from tare.model.registry import environment

LOOP = "i=0; while [ $i -lt $0 ]; do i=$((i + 1)); done"


def main(name: str, turns: str) -> None:
    """Launch, and say how it went."""
    with environment(name).session():
        program = CommandProgram(["/bin/sh", "-c", LOOP, turns])
        order = Order(site=site_of_trial(name), program=program, conditions=CONDITIONS)
        found = run_launches({"it": order}, Way(pace=None, orders=itertools.repeat((0,)), seed="limited"))
    record = found.records["it"]
    told = {"status": record.status, "reason": record.reason}
    if record.slices is not None:
        told |= {"body_s": record.slices.body_s, "cpu_s": record.slices.cpu_s}
    print(json.dumps(told))


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
