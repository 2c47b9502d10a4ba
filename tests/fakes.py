"""Launches that take turns without a framework: a script that speaks the protocol and misbehaves where told.

A fault is `<point>:<number>:<what>`: at the number-th (from 0) `ready`, `draw`, `turn`, `drop` or `end`.
Steps last what the script says they do; nothing is computed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.launch.place import Site
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe

CONDITIONS = {
    "threads": 1,
    "cpus": 1,
    "open_files": 1024,
    "page_cache": "warm",
    "allocator": "steady",
    "launch_timeout_s": 20.0,
}
SCRIPT = r"""
import json, os, random, signal, sys, time
settings = json.loads(sys.argv[2])
spec = json.load(open(sys.argv[1]))
open(os.path.join(settings["pids"], str(os.getpid())), "w").close()
PROTOCOL = "tare-turns/1"
os.dup2(os.open(os.path.join(spec["fifos"], "orders"), os.O_RDONLY), 0)
os.dup2(os.open(os.path.join(spec["fifos"], "answers"), os.O_WRONLY), 1)
noise = random.Random(settings["seed"])
seen, clock_ns = {}, 0

def say(word, **values):
    sys.stdout.write("%s %s %s\n" % (PROTOCOL, word, json.dumps(values)))
    sys.stdout.flush()

def now():
    return time.monotonic_ns() + clock_ns

def fault(point):
    number = seen.get(point, 0)
    seen[point] = number + 1
    wanted = settings["fault"].split(":")
    what = wanted[2] if wanted[:2] == [point, str(number)] else None
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        sys.exit("the framework broke")
    if what == "hang":
        time.sleep(600)
    if what == "nonsense":
        print("WARNING: something to do with the driver", flush=True)
    if what == "fail":
        say("failed", reason="RuntimeError: out of memory")
        time.sleep(600)
    return what

def burst(discard, steps, what):
    global clock_ns
    started = now()
    if what == "clock":
        clock_ns -= 3600 * 10**9
    profile = [1.1] + [1.0] * (discard + steps)
    times = [settings["step_s"] * profile[i] * noise.gauss(1, 0.002) for i in range(discard + steps)]
    if what == "step-clock":
        times[-1] = -0.01
    if what == "short":
        times = times[:-1]
    answer = dict(started_ns=started, ended_ns=now(), discarded_s=times[:discard], step_s=times[discard:],
                  cpu_s=0.01, system_s=0.001, faults=1, preemptions=0, loss_first=2.0, loss_last=1.0)
    if what == "loss":
        answer["loss_last"] = float("nan")
    if what == "lacks":
        del answer["cpu_s"]
    return answer

def mark(name):
    return {"name": name, "at_ns": now(), "user_s": 0.0, "system_s": 0.0}

marks = [mark("entry")]
fault("ready")
say("ready", batches=8)
dropped, drawn = True, 0
while True:
    line = sys.stdin.readline()
    if not line:
        break
    word, values = line.split(" ", 2)[1], json.loads(line.split(" ", 2)[2])
    if word == "draw":
        fault("draw")
        say("drawn", id=values["id"], warmup=burst(0, values["warmup_steps"], None), cpus=values["cpus"],
            peak_rss_bytes=settings["peak_rss_bytes"])
    elif word == "turn":
        what = fault("turn")
        answer = burst(values["discard"], values["steps"], what)
        say("turned", id=values["id"] + (what == "id"), **answer)
    elif word == "drop":
        what = fault("drop")
        say("dropped", peak_rss_bytes=settings["peak_rss_bytes"])
        if what == "die-after":
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        break
what = fault("end")
torch = {"version": "0", "threads": 7 if what == "threads" else spec["threads"], "interop_threads": 1, "cuda": None,
         "cuda_available": False, "cudnn_benchmark": False}
mount = {"point": "/", "type": None, "source": None}
facts = {"python": "3", "executable": sys.executable, "libc": "", "kernel": "", "hostname": "", "uid": 0, "gid": 0,
         "cwd": "/", "affinity": [], "open_files": {"soft": 1024, "hard": 1024}, "shm_bytes": 1,
         "environment_names": [], "environment_bytes": 0, "interfaces": ["lo"], "status": {}, "namespaces": {},
         "cgroups": {}, "cpu_quota": None, "cpu_stat": None, "transparent_hugepage": None, "root_mount": mount,
         "tree_mount": mount, "torch": torch}
marks.append(mark("last"))
record = {"schema": 1, "mode": spec["mode"], "status": "ok", "reason": None, "results": {}, "facts": facts,
          "memory": {"peak_rss_bytes": 1, "children_peak_rss_bytes": 1}, "marks": marks}
with open(spec["record"] + ".tmp", "w") as handle:
    json.dump(record, handle)
os.rename(spec["record"] + ".tmp", spec["record"])  # whole or not at all, as the real one
"""


class Fake(Environment):
    """An environment whose launches are the script.

    Args:
        pids: folder in which every launch leaves its process number.
        faults: by number of the launch; a missing one behaves.
        step_s: how long a step takes, says the script.
        peak_rss_bytes: how much memory a draw takes, says the script.
    """

    title = "Fake"
    description = "A script without a framework."

    def __init__(
        self,
        pids: Path,
        faults: Mapping[int, str] | None = None,
        step_s: float = 0.02,
        peak_rss_bytes: int = 1 << 20,
    ) -> None:
        self.pids = pids
        self.faults = faults or {}
        self.step_s = step_s
        self.peak_rss_bytes = peak_rss_bytes
        self.launched = 0

    def probe(self) -> Probe:
        return Probe(available=True)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        raise AssertionError("nothing is ever prepared")

    def command(self, launch: Launch) -> list[str]:
        settings = {
            "pids": str(self.pids),
            "fault": self.faults.get(self.launched, ""),
            "step_s": self.step_s,
            "seed": f"{self.pids}{self.launched}{self.step_s}",
            "peak_rss_bytes": self.peak_rss_bytes,
        }
        self.launched += 1
        return [
            sys.executable,
            "-E",
            "-s",
            "-S",
            "-c",
            SCRIPT,
            str(launch.workdir / "spec.json"),
            json.dumps(settings),
        ]


def site(environment: Environment) -> Site:
    """A launch site of a fake."""
    return Site(environment=environment, python=sys.executable, reference=None, data=None)


def study(**turns: Any) -> dict[str, Any]:
    """The part of a study that turns depend on, small; `turns` are laid over its settings."""
    return {
        "study": "fakes",
        "seed": 1,
        "stack": "none",
        "device": "cpu",
        "conditions": {key: value for key, value in CONDITIONS.items() if key != "allocator"},
        "confidence": 0.95,
        "margins": {"run": 0.05, "step": 0.02},
        "turns": {
            "allocator": "steady",
            "units": 3,
            "pilot": 6,
            "half_width": 0.01,
            "budget_s": 4,
            "arm_budget_s": 4,
            "prior": {"block": 0.001, "draw": 0.001},
            **turns,
        },
        "workloads": {"mnist_cnn": {"batch": 64}},
    }


def still_running(pids: Path) -> Sequence[int]:
    """Launches that have left their number and live; zombies do not."""
    found = []
    for path in pids.iterdir():
        try:
            state = Path(f"/proc/{path.name}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            found.append(int(path.name))
    return found
