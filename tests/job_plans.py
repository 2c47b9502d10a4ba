"""Candidates of `tare optimise` that are built and run, without a target or a grid."""

import sys

from tare.predict.choose import Candidate, Choice, Ranked
from tare.predict.elapsed import Elapsed
from tare.predict.jobs import BUILT, Plan
from tare.predict.requests import Request

COMMAND = ("python3", "train.py", "--name", "a b")


def ranked(seconds, env="host", threads=2, half=1.0, **more):
    low, high = (None, None) if half is None else (seconds - half, seconds + half)
    candidate = Candidate(**{"env": env, "stack": "torch-2.13", "threads": threads, "batch": 64, **more})
    elapsed = Elapsed(seconds=seconds, low=low, high=high, terms={"steps": seconds})
    return Ranked(candidate=candidate, rank=1, tied=False, steps=9, step_s=1.0, elapsed=elapsed, why="steps")


def plan(tmp_path, row=None, others=(), **request):
    row = row or ranked(10.0)
    wanted = Request(**{"workload": "mnist_cnn", "batches": (64,), "command": COMMAND, **request})
    choice = Choice(
        ranked=(row, *others), excluded=(), model="linear", errors={}, lacking={}, workloads=1, rows=1,
        workloads_wanted=0,
    )  # fmt: skip
    return Plan(request=wanted, choice=choice, row=row, folder=tmp_path / "a folder", processor="P")


def with_venv(made):
    """The environment of `host`, as its build script would make it."""
    found = made.folder / "venv" / "bin"
    found.mkdir(parents=True)
    (found / "python3").symlink_to(sys.executable)
    (made.folder / BUILT).write_text(f"{made.build}\n")
    return made
