"""Whole runs without a framework: a script that computes for a while, writes a record, and misbehaves where asked.

It is started as the worker is, so that it can be held at its first instruction and sliced.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asked import OF_A_STUDY, part

from tare.launch.place import Site
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.studies.study import RoundsPart

WORKER_WORDS = 4  # of the worker's own command: interpreter, -s, program, specification
SCRIPT = r"""
import json, os, signal, sys, time
settings = json.loads(sys.argv[2])
spec = json.load(open(sys.argv[1]))
open(os.path.join(settings["pids"], str(os.getpid())), "w").close()
fault = settings["fault"]

def compute(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

def mark(name):
    marks.append({"name": name, "at_ns": time.monotonic_ns(), "user_s": time.process_time(), "system_s": 0.0})

def timed(count):
    ends = []
    for _ in range(count):
        compute(settings["step_s"])
        ends.append(time.monotonic_ns())
    return ends

def replicate(level, number, wanted):
    warm, started, used_s = timed(wanted["warmup_steps"]), time.monotonic_ns(), time.process_time()
    ends = timed(wanted["steps"])
    return dict(allocator=level, replicate=number, forked=True, reason=None, pad_bytes=0, warmup_ends_ns=warm,
                started_ns=started, step_ends_ns=ends, cpu_s=time.process_time() - used_s, system_s=0.0, faults=0,
                preemptions=0, loss_first=2.0, loss_last=1.0, peak_rss_bytes=settings["peak_rss_bytes"])

marks = []
mark("entry")
for name in ("imports", "data", "model", "first_step"):
    compute(settings["work_s"] / 8)
    mark(name)
if fault == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if fault == "exit":
    sys.exit("the framework broke")
if fault == "wait":
    time.sleep(settings["work_s"])
if fault == "hang":
    compute(600)
compute(settings["work_s"] / 2)
mark("epoch_end")
results = {"samples": 8, "steps": 2, "step_ends_ns": [row["at_ns"] for row in marks[-2:]], "losses": [2.0, 1.0]}
if "measured" in spec:
    wanted = spec["measured"]
    made = [replicate(level, n, wanted) for level in wanted["levels"] for n in range(wanted["replicates"])]
    results.update(replicates=made, levels_left_out={})
    mark("measured_end")
threads = 7 if fault == "threads" else spec["threads"]
torch = {"version": "0", "threads": threads, "interop_threads": 1, "cuda": None, "cuda_available": False,
         "cudnn_benchmark": False}
mount = {"point": "/", "type": None, "source": None}
facts = {"python": "3", "executable": sys.executable, "libc": "", "kernel": "", "hostname": "", "uid": 0, "gid": 0,
         "cwd": "/", "affinity": [], "open_files": {"soft": 1024, "hard": 1024}, "shm_bytes": 1,
         "environment_names": [], "environment_bytes": 0, "interfaces": ["lo"], "status": {}, "namespaces": {},
         "cgroups": {}, "cpu_quota": None, "cpu_stat": None, "transparent_hugepage": None, "root_mount": mount,
         "tree_mount": mount, "torch": torch}
mark("last")
record = {"schema": 1, "mode": spec["mode"], "status": "ok", "reason": None, "results": results, "facts": facts,
          "memory": {"peak_rss_bytes": settings["peak_rss_bytes"], "children_peak_rss_bytes": 1}, "marks": marks}
with open(spec["record"] + ".tmp", "w") as handle:
    json.dump(record, handle)
os.rename(spec["record"] + ".tmp", spec["record"])  # whole or not at all, as the real one
"""


class Fake(Environment):
    """An environment whose launches are the script.

    Args:
        pids: folder in which every launch leaves its process number.
        faults: by number of the launch: `die`, `exit`, `hang`, `wait` or `threads`; a missing one behaves.
        work_s: processor time of a whole run until the end of its epoch.
        step_s: processor time of each measured step.
        peak_rss_bytes: how much memory it takes, says the script.
    """

    title = "Fake"
    description = "A script without a framework."

    def __init__(
        self,
        pids: Path,
        faults: Mapping[int, str] | None = None,
        work_s: float = 0.12,
        step_s: float = 0.01,
        peak_rss_bytes: int = 1 << 20,
    ) -> None:
        self.pids = pids
        self.faults = faults or {}
        self.work_s = work_s
        self.step_s = step_s
        self.peak_rss_bytes = peak_rss_bytes
        self.launched = 0
        self.specs: list[dict[str, Any]] = []

    def probe(self) -> Probe:
        return Probe(available=True)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        raise AssertionError("nothing is ever prepared")

    def command(self, launch: Launch) -> list[str]:
        spec = launch.workdir / "spec.json"
        if not spec.exists():  # another program than the worker's
            return list(launch.argv)
        settings = {
            "pids": str(self.pids),
            "fault": self.faults.get(self.launched, ""),
            "work_s": self.work_s,
            "step_s": self.step_s,
            "peak_rss_bytes": self.peak_rss_bytes,
        }
        self.launched += 1
        self.specs.append(json.loads(spec.read_text()))
        script = [sys.executable, "-E", "-s", "-S", "-c", SCRIPT, str(spec), json.dumps(settings)]
        return [*launch.argv[:-WORKER_WORDS], *script]


def site(environment: Environment) -> Site:
    """A launch site of a fake."""
    return Site(environment=environment, python=sys.executable, reference=None, data=None)


def study_json(**rounds: Any) -> dict[str, Any]:
    """A small study as JSON holds it; `rounds` are laid over its settings of whole runs."""
    return {
        "study": "fakes",
        "seed": 1,
        "stack": "none",
        "device": "cpu",
        "conditions": OF_A_STUDY.to_json(),
        "confidence": 0.95,
        "margins": {"run": 0.05, "step": 0.02},
        "rounds": {
            "allocator": "steady",
            "discarded": 1,
            "units": 3,
            "pilot": 6,
            "half_width": 0.01,
            "budget_s": 4,
            "arm_budget_s": 4,
            "steps": {"levels": ["steady"], "replicates": 2, "warmup_steps": 1, "seconds": 0.05},
            **rounds,
        },
        "workloads": {"mnist_cnn": {"batch": 64}},
    }


def study(**rounds: Any) -> RoundsPart:
    """The part of it that whole runs depend on."""
    return part(RoundsPart, study_json(**rounds))


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
