"""Studies that tests look at, run beside the tests before those: `python tests/beside.py FOLDER NAME...`.

One after the other, in a process of its own, each in a copy of the checkout, FOLDER/<name>/tare; FOLDER/<name>.json
says how it ended. Several processes of tests look at the same studies: the first starts them, and they end when the
last is gone. Who is there is told by locks of the kernel: each of the tests shares FOLDER/users, and a process that
runs studies holds FOLDER/<its first>.alive. They need no quiet, so each process has its own lock for measuring:
none waits for another, nor for what is measured on this machine otherwise.
In a run of limited time (limit.py), studies of which nothing in the core is seen start when the first test asks for
them, and end with the time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import canaries
import core
import job_sizes
import limit
import yaml
from project import ROOT, code_blocks, copy_checkout, snakemake
from tiny_study import BROKEN, TINY, VARIED

from tare.core.files import cache_dir
from tare.experiments.alone import LOCKS
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.loading import merge

END_S = 20.0
MASKED = tuple(path for name in ("ch-run", "dockerd") if (path := shutil.which(name)))
# A machine on which neither Docker's daemon nor ch-run is to be had.
POOR = {"masked": MASKED, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
MINE = ("--configfile", "config/mine.yaml")  # as the pages of docs/ call it
SMOKE = ("all", "--configfile", "config/smoke.yaml")


def extended(folder: Path) -> None:
    """The documentation's environment, workload, scenario and study, run to the report on a poor machine.

    The study is a preset, as a newcomer writes it. One environment is broken on purpose; neither Docker's daemon
    nor ch-run is to be had. Then the new environment alone, its whole runs measured anew.
    """
    (folder / "tare/launch/scenarios/busy_core.py").write_text(code_blocks("add-a-scenario.md", "python")[0])
    (folder / "envs/broken.py").write_text(BROKEN)
    study = with_additions(folder, TINY) | the_study_of("add-a-scenario.md")
    assert set(the_study_of("add-an-environment.md")["environments"]) <= set(study["environments"])
    (folder / "config/mine.yaml").write_text(yaml.safe_dump(study))
    snakemake(folder, "--cores", "2", "all", *MINE, **POOR)
    snakemake(folder, "--cores", "2", "namespaces", *MINE, "-R", "run_rounds", **POOR)


def varied(folder: Path) -> None:
    """The same workload with arms, settings and another stack, in the same new environment beside the host."""
    study = with_additions(folder, VARIED)
    assert set(the_study_of("add-a-stack.md", "stacks")) <= set(study)
    (folder / "config/mine.yaml").write_text(yaml.safe_dump(study))
    snakemake(folder, "--cores", "2", "all", *MINE)


def with_additions(folder: Path, small: Mapping[str, Any]) -> dict[str, Any]:
    """The pages' study made small, with their workload; that and their environment are put into a copy."""
    (folder / "envs/namespaces.py").write_text(code_blocks("add-an-environment.md", "python")[0])
    (folder / "workloads/softmax_mnist.py").write_text(code_blocks("add-a-workload.md", "python")[0])
    study: dict[str, Any] = merge(the_study_of("write-a-study.md"), small)
    study["workloads"] = the_study_of("add-a-workload.md")["workloads"]
    study["workloads"]["softmax_mnist"]["sweep_batches"] = [16]
    return study


def the_study_of(page: str, key: str | None = None) -> dict[str, Any]:
    """What a page of docs/ says of a study: its first block of YAML, or the first that has a key."""
    blocks: list[dict[str, Any]] = [yaml.safe_load(text) for text in code_blocks(page, "yaml")]
    return next(block for block in blocks if key is None or key in block)


def smoke(folder: Path) -> None:
    """The smoke preset, run to its report on the real runtimes, by a user with secrets in environment, home and
    Docker's configuration; what it printed is in progress.txt.
    """
    home = folder.parent / "home"
    done = snakemake(folder, *SMOKE, **canaries.plant(home), TARE_CACHE=str(cache_dir()))
    (folder / "progress.txt").write_text(done.stdout + done.stderr)


def written(folder: Path) -> None:
    """The study of docs/write-a-study.md as its page has it, run to its report by the page's command."""
    (folder / "config/mine.yaml").write_text(code_blocks("write-a-study.md", "yaml")[0])
    snakemake(folder, "all", *MINE)


def slow_steps(folder: Path) -> None:
    """A campaign of steps of two seconds, sealed in FOLDER/../out."""
    steps = {"levels": ["steady"], "replicates": 1, "warmup_steps": 1, "seconds": 4.0}
    job_sizes.campaign(folder.parent, "slow", [HOST, CONTROL], steps=steps)


STUDIES = {
    **{"extended": extended, "varied": varied, "smoke": smoke},
    **{"slow_steps": slow_steps, "written": written},
}
# Each line is a process; what stands in one line is run one after the other.
LINES = (("smoke", "extended"), ("slow_steps", "written", "varied"))


class Beside:
    """The processes that run some studies.

    Args:
        folder: for their copies of the checkout, the same for all processes of a run of the tests.
        wanted: which of STUDIES; other names do not matter.
    """

    def __init__(self, folder: Path, wanted: Collection[str]) -> None:
        self.folder = folder
        self.users = (folder / "users").open("a")
        fcntl.flock(self.users, fcntl.LOCK_SH)
        self.lines = self._split([names for line in LINES if (names := [name for name in line if name in wanted])])
        for names in self.lines:
            if not limit.given() or names[0] in core.STUDIES:
                self._start(names)

    @staticmethod
    def _split(lines: Sequence[Sequence[str]]) -> list[list[str]]:
        """Where time is limited, those of the core apart from the others."""
        if not limit.given():
            return [list(names) for names in lines]
        parts = [
            [name for name in names if (name in core.STUDIES) == ours] for names in lines for ours in (True, False)
        ]
        return [names for names in parts if names]

    def _start(self, names: Sequence[str]) -> None:
        """Unless another process has."""
        with contextlib.suppress(FileExistsError):
            self._launch(names)

    def _launch(self, names: Sequence[str]) -> None:
        first = self.folder / names[0]
        partly = self.folder / f"{names[0]}.alive.part"
        with first.with_suffix(".log").open("xb") as log, partly.open("w") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)  # which the process inherits
            subprocess.Popen(
                [sys.executable, __file__, str(self.folder), *names],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), LOCKS: str(first)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[alive.fileno()],
                start_new_session=True,
            )
            partly.rename(first.with_suffix(".alive"))

    def wait(self, name: str) -> Path:
        """The copy of the checkout in which a study has been run; fails with what it printed if it failed."""
        ended = self.folder / f"{name}.json"
        line = next(names for names in self.lines if name in names)
        self._start(line)
        first = line[0]
        while not ended.exists():
            if name not in core.STUDIES:
                limit.skip_when_over()
            gone = (self.folder / f"{first}.alive").exists() and not self._lives(first) and not ended.exists()
            assert not gone, f"what runs {name} has ended: see {self.folder}/*.log"
            time.sleep(0.2)
        error = json.loads(ended.read_text())["error"]
        assert error is None, error
        return self.folder / name / "tare"

    def _lives(self, first: str) -> bool:
        return not is_free(self.folder / f"{first}.alive")

    def end(self) -> None:
        """End what still runs, unless others look at it."""
        try:
            fcntl.flock(self.users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        finally:
            self.users.close()
        until = time.monotonic() + END_S
        started = [names[0] for names in self.lines if (self.folder / f"{names[0]}.alive").exists()]
        while any(map(self._lives, started)):
            assert time.monotonic() < until, f"what runs studies in {self.folder} does not end"
            time.sleep(0.1)


def wait_for_all(folder: Path) -> None:
    """Wait until no study runs in a folder, for tests beside which nothing may."""
    while not all(map(is_free, folder.glob("*.alive"))):
        time.sleep(0.2)


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock of a file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _end_with_users(users: Path) -> None:
    with users.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    os.killpg(0, signal.SIGTERM)


def main(folder: Path, names: Sequence[str]) -> None:
    """Run studies; one that fails stops no other."""
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGTERM))
    threading.Thread(target=_end_with_users, args=(folder / "users",), daemon=True).start()
    for name in names:
        if limit.given() and name not in core.STUDIES:
            signal.alarm(max(1, math.ceil(limit.left_s())))
        error = None
        try:
            STUDIES[name](copy_checkout(folder / name / "tare"))
        except Exception as problem:
            error = f"{problem}\n{traceback.format_exc()[-2000:]}"
        partly = folder / f"{name}.json.part"
        partly.write_text(json.dumps({"error": error}))
        partly.rename(folder / f"{name}.json")


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
