"""Do preemptions of a turn come from the harness's own streams, and what removes them?

    .venv/bin/python benchmarks/preemptions.py --minutes 5 --environments docker

Blocks as in a campaign, with two launches of every environment: one is talked to over two FIFOs in its folder, as
campaigns do it, the other (`.streams`) over standard input and output, which the runtime forwards. Every other
cycle, in random order, the threads of Docker's clients and of the private daemon, containerd and shims included,
are kept off the turns' core (`apart`).

Each row of the output is one turn: block, draw, cycle, core, launch, apart, preemptions, faults, steps, the seconds
from start to end, and where the kernel's tracer can be used (root, tracefs) `by`: for every involuntary switch
within the turn the seconds since its first step began, the command that got the core, and the launch whose client
or shim that is. At the end a summary of all rows is printed: preemptions a turn, and how many of them gave the core
to a runtime's process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.experiments.blocks import Block, Burst, live_block

from tare.core.files import project_root
from tare.experiments import turns
from tare.launch import transport
from tare.launch.place import Site
from tare.launch.prepare import carriers_of
from tare.launch.sites import sites
from tare.launch.transport import Binds
from tare.model.studies.study import HOST, load_checked
from tare.runtimes.daemon import state

DRAWS, CYCLES = 1, 24
STREAMS = ".streams"
RUNTIME = re.compile("docker|containerd|starter|squashfuse|ch-run")
FIRST_S = 0.005  # of a turn
TRACE = """
mount -t tracefs tracefs /sys/kernel/tracing || exit 1
cd /sys/kernel/tracing/instances && mkdir {name} && cd {name} || exit 1
echo mono > trace_clock; echo 16384 > buffer_size_kb
echo 'prev_comm ~ "python3*" && (prev_state == 0 || prev_state == 256)' > events/sched/sched_switch/filter
echo 1 > events/sched/sched_switch/enable
echo ready; read _; echo 0 > tracing_on; cat trace; cd ..; rmdir {name}
"""
SWITCH = re.compile(
    r"\[(\d+)\].* (\d+\.\d+): sched_switch: prev_comm=\S+ prev_pid=(\d+) .*next_comm=(.+) next_pid=(\d+)"
)


class Streams(Binds):
    """As binds, but talked to over standard streams."""

    name = "streams"
    shares_files = False


def over_streams(site: Site) -> Site:
    """The same environment, talked to over its standard streams."""
    kind = type(site.environment)
    return replace(site, environment=type(kind.__name__, (kind,), {"transport": Streams.name})())


class Tracer:
    """The kernel's record of involuntary switches, in an instance and a mount namespace of its own."""

    def __init__(self, folder: Path) -> None:
        self.output = (folder / "trace").open("w+")
        name = f"tare-{os.getpid()}-{time.monotonic_ns()}"
        argv = ["unshare", "--mount", "sh", "-c", TRACE.format(name=name)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=self.output, stderr=subprocess.DEVNULL)
        time.sleep(0.5)

    def end(self) -> list[tuple[float, int, str, int]]:
        """Second of the monotonic clock, process, who got the core: name and number; empty without a tracer."""
        self.process.communicate(b"\n")
        self.output.seek(0)
        found = map(SWITCH.search, self.output)
        switches = [(float(m[2]), int(m[3]), m[4], int(m[5])) for m in found if m]
        self.output.close()
        return switches


def own_processes(block: Block) -> dict[int, str]:
    """Docker's clients and shims by number, with the launch that each of them serves."""
    found = {}
    for worker in block.started:
        if worker.name.startswith("docker"):
            found[worker.talk.pid] = worker.name
            for pid in carriers_of(worker.prepared.planned.name):
                with contextlib.suppress(OSError):
                    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                    if Path(f"/proc/{parent}/comm").read_text().startswith("containerd-shim"):
                        found[parent] = worker.name
    return found


def daemon_processes() -> list[int]:
    """The private daemon and containerd; others on this machine may use them as well."""
    folder, found = str(state().folder).encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder in (process / "cmdline").read_bytes() and b"shim" not in (process / "comm").read_bytes():
                found.append(int(process.name))
    return found


def threads_of(processes: dict[int, str]) -> dict[int, str]:
    """The same by thread."""
    found = {}
    for process, name in processes.items():
        with contextlib.suppress(OSError):
            found |= {int(thread.name): name for thread in Path(f"/proc/{process}/task").iterdir()}
    return found


def place(processes: Sequence[int], cpus: set[int]) -> None:
    """Let all threads of some processes run on these logical CPUs."""
    for process in processes:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread.name), cpus)


def draw_pids(block: Block, core: int) -> dict[int, str]:
    """Processes that take turns, by number: those of a launch that have been put on the core."""
    found = {}
    for worker in block.workers:
        for pid in carriers_of(worker.prepared.planned.name):
            with contextlib.suppress(OSError):
                if os.sched_getaffinity(pid) == {core} and b"main.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found[pid] = worker.name
    return found


def one_block(study: Any, workload: str, available: dict[str, Any], number: int, burst: Burst) -> Iterator[dict]:
    """The turns of one block."""
    conditions = turns.as_started(study["conditions"])
    spec = turns.turn_spec(workload, study["workloads"][workload]["batch"], study) | {
        "lanes": [{"workload": workload, "batch": study["workloads"][workload]["batch"], "allocator": "steady"}]
    }
    generator = random.Random(f"{time.time_ns()}")
    everywhere = os.sched_getaffinity(0)
    cores = turns.cores_of(number, conditions)
    names = generator.sample(sorted(available), len(available))
    rows = []
    with live_block(
        available,
        spec,
        dict.fromkeys(names, conditions),
        order=names,
        pads={name: generator.randrange(4096) for name in names},
        cores=cores,
        generator=generator,
    ) as (block, record):
        own = own_processes(block)
        processes = [*own, *daemon_processes()]
        tracer = Tracer(block.started[0].prepared.folder)
        pids: dict[int, str] = {}
        for draw in range(DRAWS):
            block.draw(draw, turns.WARMUP_STEPS)
            pids |= draw_pids(block, cores[0])
            apart = [bool(generator.getrandbits(1))]
            while len(apart) < CYCLES:
                apart += [not apart[-1]] if len(apart) % 2 else [bool(generator.getrandbits(1))]
            for cycle in range(CYCLES):
                place(processes, everywhere - set(cores) if apart[cycle] else everywhere)
                block.cycles(1, burst)
                for worker in block.workers:
                    found = block.draws(worker)[-1]["turns"]
                    rows.append(
                        {"block": number, "draw": draw, "cycle": cycle, "core": cores[0], "launch": worker.name}
                        | {"apart": apart[cycle], "steps": burst.discard + burst.steps}
                        | {name: found[name][-1] for name in ("preemptions", "faults", "started_ns", "ended_ns")}
                    )
            place(processes, everywhere)
            block.drop()
        switches = tracer.end()
        threads = threads_of(own)
    if record["voided"]:
        print(record["voided"])
        return
    for row in rows:
        started, ended = row.pop("started_ns") / 1e9, row.pop("ended_ns") / 1e9
        row["s"] = ended - started
        row["by"] = [
            [round(at - started, 4), who, threads.get(taker)]
            for at, pid, who, taker in switches
            if pids.get(pid) == row["launch"] and started - 0.02 <= at <= ended + 0.001
        ]
        yield row


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each launch, its core shared with the runtimes' threads or not."""
    turns_of: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in rows:
        turns_of.setdefault((row["launch"], row["apart"]), []).append(row)
    for (launch, apart), own in sorted(turns_of.items()):
        seen = [(at, f"{who} of {whose}" if whose else who) for row in own for at, who, whose in row["by"]]
        seen = [(at, who) for at, who in seen if RUNTIME.match(who)]
        hit = sum(any(RUNTIME.match(who) for _, who, _ in row["by"]) for row in own)
        names = ", ".join(f"{who} {count}" for who, count in Counter(who for _, who in seen).most_common())
        yield (
            f"{launch}{', runtimes apart' if apart else ''}: {len(own)} turns, "
            f"{sum(row['preemptions'] for row in own) / len(own):.2f} preemptions a turn, of which "
            f"{len(seen) / len(own):.2f} by runtimes, in {hit} turns ({names or 'none'}; "
            f"{sum(at < FIRST_S for at, _ in seen)} within the first {FIRST_S * 1e3:.0f} ms)"
        )


def main() -> None:
    """Blocks until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--workload", default="sentiment_rnn")
    parser.add_argument("--environments", nargs="*", default=[HOST, "docker"])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", type=Path, default=project_root() / "results/benchmarks/preemptions.jsonl")
    chosen = parser.parse_args()
    transport.TRANSPORTS = {**transport.TRANSPORTS, Streams.name: Streams()}
    ends = time.monotonic() + 60 * chosen.minutes
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    study = load_checked("config/config.yaml").to_json() | {"device": "cpu"}
    with sites(study, chosen.workload, chosen.environments, None, None) as (found, _, _):
        available = found | {f"{name}{STREAMS}": over_streams(site) for name, site in found.items()}
        number = 0
        with chosen.out.open("a") as out:
            while time.monotonic() < ends:
                for row in one_block(
                    study, chosen.workload, available, number, Burst(discard=3, steps=chosen.steps)
                ):
                    out.write(json.dumps(row) + "\n")
                out.flush()
                number += 1
    print("\n".join(summary([json.loads(line) for line in chosen.out.read_text().splitlines()])))


if __name__ == "__main__":
    main()
