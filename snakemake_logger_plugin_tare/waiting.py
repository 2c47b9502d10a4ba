"""Jobs that wait in Slurm's queue: after some minutes a person reads why, and what can be done."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

SENT = re.compile(r"has been submitted with SLURM jobid (\d+)")
WAITED_S = 300.0  # of a job, before it is asked why
LOOK_S = 60.0
ANSWER_S = 30.0
OF_JOB = "scontrol show job {job}"
# By the beginning of Slurm's reason. Reasons of the first group pass by themselves: each is written once.
ORDINARY = {
    "Resources": "its node runs another job",
    "Priority": "other jobs come first",
    "BeginTime": "Slurm starts it again soon",
    "Prolog": "its node is prepared",
    "Cleaning": "Slurm starts it again soon",
    "Reservation": "a reservation has not begun",
}
REMEDIES = {
    "ReqNodeNotAvail": "its node is down, drained or reserved: `sinfo -R` and `scontrol show reservation` say why",
    "NodeDown": "its node is down: `sinfo -R` says why",
    "Nodes required for job are DOWN": "its node is down, drained or reserved: `sinfo -R` says why",
    "QOS": "a limit of your QOS: wait for your other jobs, or name another `qos` in `machines`",
    "Assoc": "a limit of your account: wait for your other jobs, or name another `account` in `machines`",
    "MaxJobsPer": "a limit of your account: wait for your other jobs, or name another `account` in `machines`",
    "InvalidAccount": "it can never start: name another `account` in `machines`",
    "InvalidQOS": "it can never start: name another `qos` in `machines`",
    "Partition": "its partition is closed, or its limits forbid the job: name another `partition` in `machines`",
    "BadConstraints": "its node does not meet its constraint: change `constraint` in `machines`",
    "JobHeldUser": "it is held: `scontrol release {job}`",
    "JobHeldAdmin": "an administrator holds it: ask them",
    "JobHoldMaxRequeue": "it failed to start too often: `scontrol release {job}`",
    "launch failed": "it failed to start: `scontrol release {job}`",
    "Licenses": "a licence that it needs is in use",
}
# What Slurm has before it has looked at a job.
NOT_YET = ("", "None", "Dependency")


def reasons_of(answer: str) -> dict[str, list[str]]:
    """Jobs by the reason why they wait, from the lines of `squeue --format=%i|%r`."""
    found: dict[str, list[str]] = {}
    for line in answer.splitlines():
        job, _, reason = line.strip().partition("|")
        reason = reason.strip("() ")
        if job and reason not in NOT_YET:
            found.setdefault(reason, []).append(job)
    return found


def line_of(reason: str, jobs: Sequence[str], minutes: int) -> str:
    """Why jobs wait, with the remedy. `minutes`: since the first of them was sent."""
    known = {**ORDINARY, **REMEDIES}
    remedy = next((text for begin, text in known.items() if reason.startswith(begin)), f"`{OF_JOB}` says more")
    which = f"job {jobs[0]} waits" if len(jobs) == 1 else f"jobs {', '.join(jobs)} wait"
    return f"tare: Slurm {which}, sent {minutes} min ago ({reason}): {remedy.format(job=jobs[0])}"


class Waiting:
    """Watches the jobs of a workflow in a thread, from the first one on."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """`write`: takes a line."""
        self._write = write
        self._sent: dict[str, float] = {}  # by job when
        self._written: set[str] = set()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, text: str) -> None:
        """Take up a job, where the plugin for Slurm says that it was sent."""
        if (found := SENT.search(text)) is None:
            return
        self._sent[found[1]] = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="waiting", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def look(self) -> None:
        """Write why jobs wait, each reason of a job once."""
        long = [job for job, sent_s in list(self._sent.items()) if time.monotonic() - sent_s >= WAITED_S]
        if not long:
            return
        words = ["squeue", "--noheader", "--states=PENDING", "--me", "--format=%i|%r"]
        answer = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
        if answer.returncode:
            return
        for reason, jobs in reasons_of(answer.stdout).items():
            keys = {job: reason if reason.startswith(tuple(ORDINARY)) else f"{job} {reason}" for job in jobs}
            new = [job for job, key in keys.items() if job in long and key not in self._written]
            if new and not self._ended.is_set():
                self._written.update(keys[job] for job in new)
                waited_s = time.monotonic() - min(self._sent[job] for job in new)
                self._write(line_of(reason, new, round(waited_s / 60)))

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                self.look()
