"""Job steps whose containers Slurm starts itself: srun with a special option, on a node of this process's job.

What is common to them: CPUs by a mask, which takes Slurm's plugin task/affinity, the limit of open files as srun
passes it on, and the end of a step whose srun was killed.
"""

from __future__ import annotations

import os
from typing import ClassVar

from tare.core.errors import UnavailableError
from tare.core.process import run
from tare.launch.nodes import ELSEWHERE, HERE, JOB, PASSED, Allocation
from tare.model.environment import Environment, Launch

ASK_S = 10.0


class Step(Environment):
    """An environment whose launches are steps of the job of Slurm that this process is in."""

    is_step = True
    programs: ClassVar[tuple[str, ...]] = ("srun", "squeue", "scancel")
    option: ClassVar[str]  # of srun, which not every Slurm has
    lacking: ClassVar[str]  # what it is without

    def version(self) -> str:
        """Slurm's version, where its srun has the option and this is a job; else UnavailableError."""
        answer = run(["srun", "--help"], timeout_s=ASK_S, check=True)
        if self.option not in {word.partition("=")[0] for word in answer.stdout.split()}:
            raise UnavailableError(f"srun has no option {self.option}: {self.lacking}")
        if JOB not in os.environ:
            raise UnavailableError(f"its launches are steps of a job of Slurm, and this is none: {ELSEWHERE}")
        return run(["srun", "--version"], timeout_s=ASK_S, check=True).stdout.strip().removeprefix("slurm-wlm ")

    def step(self, launch: Launch) -> list[str]:
        """`srun` with every condition that it has an option for; UnavailableError where it has none."""
        if launch.quota is not None:
            raise UnavailableError(f"{self.title}: no limit of CPU time can be set for a step")
        node = launch.node or os.environ.get(HERE, "")
        found = Allocation(
            job=os.environ.get(JOB, ""), nodes=(node,), addresses=(), cpus=len(os.sched_getaffinity(0))
        )
        mask = sum(1 << cpu for cpu in launch.cpus)
        words = [word for word in found.step(node, launch.name) if not word.startswith("--cpu-bind=")]
        return [
            *("prlimit", f"--nofile={launch.nofile}:{launch.nofile}", "--"),
            *words,
            *(f"--cpu-bind=mask_cpu:{mask:#x}", "--propagate=NOFILE"),
        ]

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """A step outlives an srun that is killed."""
        return [Allocation(job=os.environ.get(JOB, ""), nodes=(), addresses=(), cpus=0).ending(launch.name)]

    def environment_variables(self) -> dict[str, str]:
        """A PATH that finds Slurm's commands, and where a site says that its Slurm is."""
        path = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        return path | {name: os.environ[name] for name in PASSED if name in os.environ}
