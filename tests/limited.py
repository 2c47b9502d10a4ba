"""One launch of a shell in an environment, from a process that lives under limits; prints what became of it.

    python limited.py ENVIRONMENT REFERENCE ISOLATES TURNS

REFERENCE is the trial image's form there, empty without one; ISOLATES is 1 where launches get no network. The
launch runs TURNS turns of a loop. The line printed is JSON: status and reason, the loop's seconds and those of a
processor, what the shell saw of its CPUs and its niceness, and all limits. A guest of QEMU tells of its loop
alone; all else is then of QEMU, which lives under the limits.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sliced_harness import CONDITIONS

from tare.launch.place import Site
from tare.launch.program import CommandProgram
from tare.launch.run import Order
from tare.launch.slicing.rounds import Way, run_launches
from tare.launch.transport import transport_of
from tare.launch.trial import trial_launch
from tare.machine import caller
from tare.model.environment import Environment
from tare.model.registry import environment

LOOP = """
turns=$0
while read -r key value; do [ "$key" = Cpus_allowed_list: ] && echo "cpus $value"; done < /proc/self/status
read -r stat < /proc/self/stat; set -- $stat; echo "nice ${19}"
echo begins
i=0; while [ $i -lt $turns ]; do i=$((i + 1)); done
echo ends
"""


def held(site: Site, turns: str) -> dict[str, Any]:
    """As campaigns launch: held at its first instruction, where its limits are looked at."""
    program = CommandProgram(["/bin/sh", "-c", LOOP, turns])
    order = Order(site=site, program=program, conditions=CONDITIONS)
    found = run_launches({"it": order}, Way(pace=None, orders=itertools.repeat((0,)), seed="limited"))
    record = found.records["it"]
    said = dict(line.split(" ", 1) for line in (record.stdout or "").splitlines() if " " in line)
    told = {"status": record.status, "reason": record.reason, **said}
    if record.slices is not None:
        told |= {"body_s": record.slices.body_s, "cpu_s": record.slices.cpu_s}
    return told


def guest(adapter: Environment, reference: str, turns: str) -> dict[str, Any]:
    """A guest of QEMU, which can't be held: QEMU is looked at while the loop runs."""
    launch = trial_launch(f"tare-{uuid.uuid4().hex[:12]}", reference, Path(), contained=True, shares_files=False)
    launch = replace(launch, argv=("/bin/sh", "-c", LOOP, turns))
    client = {"PATH": os.environ["PATH"], **adapter.environment_variables()}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}  # the channel is open while both are
    with subprocess.Popen(adapter.command(launch), env=client, text=True, **pipes) as qemu:
        try:
            at = {}
            for line in qemu.stdout:
                if line.strip() in ("begins", "ends"):
                    at[line.strip()] = time.monotonic(), cpu_s(qemu.pid)
                if line.strip() == "ends":
                    break
            if "ends" not in at:
                return {"status": "failed", "reason": "the guest ended before its loop"}
            reason = caller.refused(qemu.pid)
            cpus = ",".join(map(str, sorted(os.sched_getaffinity(qemu.pid))))
        finally:
            qemu.kill()
    body_s, used_s = (last - first for first, last in zip(at["begins"], at["ends"], strict=True))
    status = "failed" if reason else "ok"
    return {"status": status, "reason": reason, "body_s": body_s, "cpu_s": used_s, "cpus": cpus}


def cpu_s(pid: int) -> float:
    """A process's seconds of a processor until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(name: str, reference: str, isolates: str, turns: str) -> None:
    """Launch, and say how it went."""
    adapter = environment(name)
    with adapter.session():
        if transport_of(adapter).shares_files:
            site = Site(environment=adapter, reference=reference or None, isolates_network=isolates == "1")
            told = held(site, turns)
        else:
            told = guest(adapter, reference, turns)
    limits = {name: one.value for name, one in caller.limits_of().items()}
    print(json.dumps({**told, "limits": limits}))


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
