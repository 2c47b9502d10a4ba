"""A measuring command whose launches are programs that sleep: `python quick_campaign.py OUT NOTES UNITS`.

Each launch leaves its process number in NOTES while it lives, and says there when it was alive: two that were alive
at the same time were not alone. While there is a file NOTES/hold, no launch ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from asked import CONDITIONS, spec

from tare.core.process import run
from tare.experiments.attempts import measuring_campaigns
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design, Row, identity
from tare.model.records.campaigns import Plan, Sampling, Unit
from tare.model.roles import read_roles

NAMES = ("host", "host.control")
LAUNCH = 'touch "$0/alive-$$"; sleep 0.08; while [ -e "$0/hold" ]; do sleep 0.05; done; rm "$0/alive-$$"'


def plan_of(units: int) -> Plan:
    """A plan of this machine."""
    return Plan(
        kind="rounds",
        study="quick",
        workload="none",
        launches=read_roles(NAMES),
        spec=spec(),
        conditions=CONDITIONS,
        sampling=Sampling(units=units, confidence=0.95),
        seed=1,
        discarded=1,
        arm="stack=same",
        headline_arm="stack=same",
        stack="none",
        code_sha256="0",
        provenance={},
        machine=identity(on_gpu=False),
    )


def main(out: Path, notes: Path, units: int) -> None:
    """Measure until there are enough units."""

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        launches = {}
        for name in NAMES:
            began = time.monotonic_ns()
            ended = run(["sh", "-c", LAUNCH, str(notes)], timeout_s=60)
            told = {"status": "ok", "reason": None} if ended.ok else {"status": "failed", "reason": ended.explain()}
            launches[name] = {**told, "spawn_ns": began, "end_ns": ended.ended_ns}
        return {"order": list(NAMES), "launches": launches}

    (notes / f"measuring-{os.getpid()}").touch()
    with measuring_campaigns(out):
        run_campaign(out.parent, Design(plan=plan_of(units), run_unit=run_unit, what=out.parent.name))
    (notes / f"measuring-{os.getpid()}").unlink()


def interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, interrupted)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
