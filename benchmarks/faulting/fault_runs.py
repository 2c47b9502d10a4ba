"""What the fault campaign (faults.py) starts: `make` on a small study, with its own disks and control groups.

A pool has finished runs that nobody disturbed. Trials begin with copies of them and are compared with them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import equal_tables  # noqa: E402
import injecting  # noqa: E402
from project import copy_checkout  # noqa: E402
from tiny_study import LEAST  # noqa: E402

from tare.core.errors import UnavailableError  # noqa: E402
from tare.core.files import read_json, write_json  # noqa: E402
from tare.core.machine_lock import LOCKS  # noqa: E402
from tare.machine.facts import machine_name  # noqa: E402
from tare.model.registry import HOST  # noqa: E402
from tare.model.studies.layout import SEALED  # noqa: E402

TOKEN = "TARE_FAULTS"  # of the environment of all that a trial starts
WORKLOAD = "mnist_cnn"
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
RUN_S = 600.0  # the longest run
BEGIN_S = 180.0  # until a stage begins
MOST_TRIES = 3
ALL = ("all",)
TABLES = ("{study}/tables",)
OF_TABLES = ("{study}/tables/metrics.csv", "{study}/tables/image_costs.csv")
CAMPAIGNS = ("rounds", "causes", "starts")
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the study that a trial makes again.

    Attributes:
        command: of `python -m tare`, by which its beginning is seen.
        seed: the folder of results that a trial copies: `whole`, or the one without this campaign.
        gone: what is removed of the copy, below `results`; {study} is replaced by the study's name.
        wanted: what is asked of Snakemake, as `gone`.
    """

    command: str
    seed: str = "whole"
    gone: tuple[str, ...] = TABLES
    wanted: tuple[str, ...] = OF_TABLES


STAGES = {
    "trial launches": Stage(command="probe", gone=("images", "probe"), wanted=("images/{stack}/{env}.json",)),
    "ceilings": Stage(
        command="ceilings",
        gone=("ceilings", "{study}/machines", *TABLES),
        wanted=(*OF_TABLES, "{study}/machines/{machine}/ceilings.json"),
    ),
    "rounds": Stage(command="rounds", seed="rounds"),
    "causes": Stage(command="causes", seed="causes"),
    "profiles": Stage(command="profiles", gone=("profiles/{study}", *TABLES)),
    "starts": Stage(command="starts", seed="starts"),
    "tables": Stage(command="tables"),
    "figures": Stage(
        command="notebook", gone=("{study}/notebooks", "{study}/figures", "{study}/report"), wanted=ALL
    ),
    "report": Stage(command="report", gone=("{study}/report",), wanted=ALL),
}
# In which launches run in an environment.
LAUNCHING = ("rounds", "causes", "profiles", "starts")


class Run:
    """`make` on a study in a folder, with all that it starts.

    Attributes:
        folder: that Snakemake works in; `seen`: the same as this process sees it.
    """

    def __init__(
        self,
        pool: Pool,
        folder: Path,
        wanted: Sequence[str],
        *,
        prefix: Sequence[str] = (),
        checkout: Path | None = None,
        seen: Path | None = None,
        **variables: str,
    ) -> None:
        self.pool, self.folder, self.seen = pool, folder, seen or folder
        self.checkout, self.prefix = checkout or pool.checkout, list(prefix)
        self.log = pool.logs / f"{time.time_ns()}.log"
        common = [str(SNAKEMAKE), "--cores", "all", "--directory", str(folder), "--configfile", str(pool.config)]
        self.unlock = [*common, "--unlock"]
        makefile = pool.home / f"{folder.name}.mk"
        makefile.write_text("run:\n\t@" + " ".join(f"'{word}'" for word in (*common, "--", *wanted)) + "\n")
        self.argv = ["make", "--no-print-directory", "-f", str(makefile), "run"]
        dropped = ("MAKE", "MFLAGS", "TARE_WORKFLOW", "TARE_CODE", "PYTEST")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        kept |= {"PYTHONPATH": str(self.checkout), LOCKS: str(pool.home / "locks"), TOKEN: pool.token}
        self.env = kept | variables
        self.process = self._started()
        pool.runs.append(self)

    def _started(self) -> subprocess.Popen[bytes]:
        self.began = time.monotonic()
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self.prefix, *self.argv],
                cwd=self.checkout,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def again(self) -> tuple[int | None, int]:
        """Give the same command until it ends well, as a user would; its last status, and how often."""
        status, tries = None, 0
        while status != 0 and tries < MOST_TRIES:
            tries += 1
            if any((self.seen / ".snakemake/locks").glob("*")):  # as docs/run-the-workflow.md says
                unlock = [*self.prefix, *self.unlock]
                subprocess.run(unlock, cwd=self.checkout, env=self.env, capture_output=True, check=False)
            self.process = self._started()
            status = self.wait()
        return status, tries

    def processes(self) -> dict[str, list[injecting.Process]]:
        """What is alive of it, by part of the chain."""
        found = injecting.processes(f"{TOKEN}={self.pool.token}")
        return injecting.by_role(found, injecting.ours(found, [self.process.pid], self.pool.spared))

    def wait_for(self, command: str) -> bool:
        """Wait until a stage runs; False where the run has ended before."""
        return self._until(lambda: any(runs(one, command) for one in self.processes().get("command", ())), BEGIN_S)

    def wait_for_part(self, part: str, seconds: float) -> bool:
        """Wait until there is a process of a part."""
        return self._until(lambda: bool(self.processes().get(part)), seconds)

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if condition():
                return True
            time.sleep(0.05)
        return False

    def wait(self, seconds: float = RUN_S) -> int | None:
        """Its status; None where it did not end in time, and was killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            return None

    def end(self) -> None:
        """Kill all of it."""
        for _ in range(20):
            own = [one for each in self.processes().values() for one in each]
            if not own and self.process.poll() is not None:
                return
            injecting.kill(own)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)

    def interrupt(self) -> None:
        """As Ctrl-C on its terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    @property
    def said(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-1500:].strip()


def end_all(runs: list[Run]) -> None:
    """Kill what is alive of runs, and forget them."""
    for run in runs:
        run.end()
    runs.clear()


def runs(one: injecting.Process, command: str) -> bool:
    """Whether a process is this command of Tare."""
    return one.words[1:4] == ("-m", "tare", command)


# --- disks and groups


class Disk:
    """A small disk, or a read-only view, in a mount namespace that a process of ours keeps.

    Raises:
        UnavailableError: this user can't mount.
    """

    def __init__(self, pool: Pool, script: str, *words: str) -> None:
        if os.getuid():
            raise UnavailableError("only root can mount")
        self.pool = pool
        shell = ["sh", "-euc", f"{script}\necho ready; exec cat", "sh", *words]
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", *shell],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        pool.spared.add(self.holder.pid)
        assert self.holder.stdout is not None and self.holder.stderr is not None
        if self.holder.stdout.readline() != b"ready\n":
            said = self.holder.stderr.read().decode(errors="replace").strip()
            self.close()
            raise UnavailableError(f"no disk for a trial: {said}")

    @property
    def prefix(self) -> list[str]:
        """Before a command that is to see it."""
        enter = ["nsenter", f"--target={self.holder.pid}", "--mount", "--", "sh", "-c", 'cd "$0" && exec "$@"']
        return [*enter, str(self.pool.checkout)]

    def seen(self, path: Path) -> Path:
        """A path as it is there, for this process."""
        return Path(f"/proc/{self.holder.pid}/root{path}")

    def do(self, *command: str) -> None:
        """Run a command there."""
        subprocess.run([*self.prefix, *command], check=True, capture_output=True)

    def close(self) -> None:
        """Its mounts go with its last process."""
        if self.holder.stdin is not None:
            self.holder.stdin.close()
        self.holder.wait()
        self.pool.spared.discard(self.holder.pid)


def fill(folder: Path, leave_kib: int) -> Path:
    """Write a file until so many KiB of a small disk are free; the file."""
    path, chunk = folder / "filler", bytes(1 << 16)
    with path.open("ab", buffering=0) as file:
        while True:
            space = os.statvfs(folder)
            free = space.f_bavail * space.f_frsize - (leave_kib << 10)
            if free <= 0:
                return path
            try:
                file.write(chunk[: min(len(chunk), free)])
            except OSError:
                return path


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[tuple[Path, list[str]]]:
    """A control group with a limit, and what puts a command into it.

    Raises:
        UnavailableError: this machine has none that we may make.
    """
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(",") if names else [""], path))
    places = (
        (Path("/sys/fs/cgroup/memory") / own.get("memory", "/").lstrip("/"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup") / own.get("", "/").lstrip("/"), "memory.max"),
    )
    for home, file in places:
        group = home / f"tare-faults-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / file).exists():  # not so in a hierarchy without this controller
                (group / file).write_text(str(limit_bytes))
                yield group, ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]
                return
        finally:
            remove_group(group)
    raise UnavailableError("no control group with a memory limit can be made here (it takes root)")


def ended_for_memory(group: Path) -> int:
    """Processes of a group that the kernel ended since its memory was used up."""
    path = next(path for name in ("memory.oom_control", "memory.events") if (path := group / name).exists())
    return int(dict(map(str.split, path.read_text().splitlines()))["oom_kill"])


def remove_group(group: Path) -> None:
    """Remove a group, whose processes may still be ending."""
    for _ in range(50):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.2)


# --- finished runs


class Pool:
    """Runs of the study in one environment that nobody disturbed: what trials begin with and are compared with.

    home/checkout   a copy of the checkout, which all runs use
    home/whole      a finished run; home/without-<campaign>: all but that one; home/done-<campaign>: that, finished
    home/trial      of the trial that runs; home/kept: folders of trials that had problems
    """

    def __init__(self, home: Path, environment: str) -> None:
        self.home, self.environment = home, environment
        self.study, self.machine = f"faults-{environment}", machine_name()
        self.checkout, self.config, self.logs = home / "checkout", home / "study.yaml", home / "logs"
        self.record = home / "pool.json"
        self.token, self.spared = uuid.uuid4().hex, set[int]()
        self.runs: list[Run] = []  # of the trial that runs
        self.about: Record = {}
        self.stack = ""

    def prepare(self) -> None:
        """Make what is not there yet: minutes, the first time."""
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.home / "locks").mkdir(exist_ok=True)
        if not self.record.exists():
            shutil.rmtree(self.checkout, ignore_errors=True)
            copy_checkout(self.checkout)
            shutil.rmtree(self.checkout / "results", ignore_errors=True)  # campaigns of other machines
            self.config.write_text(yaml.safe_dump(study_of(self.environment)))
            write_json(self.record, self._make())
        self.about = read_json(self.record)
        self.stack = self.about["stack"]

    def _make(self) -> Record:
        self.stack = yaml.safe_load((self.checkout / "config/config.yaml").read_text())["stack"]
        whole = self.home / "whole"
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        run = Run(self, whole, ALL)
        seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)
        parts: set[str] = set()
        last = time.monotonic()
        while run.process.poll() is None and time.monotonic() - run.began < RUN_S:
            there, now = run.processes(), time.monotonic()
            parts |= there.keys()
            for name, stage in STAGES.items():
                if any(runs(one, stage.command) for one in there.get("command", ())):
                    seconds[name] += now - last
            last = now
            time.sleep(0.1)
        took_s = time.monotonic() - run.began
        self._ended(run, "the undisturbed run")
        for name in CAMPAIGNS:
            self._without(name)
        stages = {name: round(one, 1) for name, one in seconds.items()}
        about = {"undisturbed_s": round(took_s, 1), "stage_s": stages, "parts": sorted(parts)}
        return {**about, "stack": self.stack, "commit": commit()}

    def _without(self, name: str) -> None:
        """All but one campaign; then that one too, which is one more undisturbed run."""
        whole, lacking, finished = (self.home / one for one in ("whole", f"without-{name}", f"done-{name}"))
        copy(whole, lacking)
        others = [path for path in self.sealed("whole") if not path.parent.name.startswith(name)]
        gone = [f"campaigns/{self.study}", f"{self.study}/tables", f"{self.study}/report"]
        if name == CAMPAIGNS[0]:  # one of them profiles again, too, so that what differs between profiles is known
            others += sorted((whole / "results/profiles" / self.study).glob("*/*/*/profile.json"))
            gone.append(f"profiles/{self.study}")
        for path in gone:
            shutil.rmtree(lacking / "results" / path, ignore_errors=True)
        run = Run(self, lacking, [str(path.relative_to(whole)) for path in others])
        self._ended(run, f"the undisturbed run without {name}")
        copy(lacking, finished)
        self._ended(Run(self, finished, self.targets(STAGES[name])), f"the undisturbed run of {name}")

    def _ended(self, run: Run, what: str) -> None:
        if run.wait() != 0:
            raise UnavailableError(f"{what} failed, see {run.log}: {run.said[-400:]}")

    def sealed(self, name: str) -> list[Path]:
        """Seals of campaigns in one of its folders."""
        return sorted((self.home / name / "results/campaigns" / self.study).glob(f"*/*/*/{SEALED}"))

    def targets(self, stage: Stage) -> list[str]:
        """What is asked of Snakemake."""
        names = {"study": self.study, "stack": self.stack, "env": self.environment, "machine": self.machine}
        return [one if one in ALL else f"results/{one.format(**names)}" for one in stage.wanted]

    def seed(self, stage: Stage, folder: Path) -> None:
        """Copy what a trial begins with."""
        copy(self.home / ("whole" if stage.seed == "whole" else f"without-{stage.seed}"), folder)
        for name in stage.gone:
            shutil.rmtree(folder / "results" / name.format(study=self.study), ignore_errors=True)

    def references(self) -> list[dict[str, list[equal_tables.Row]]]:
        """Tables of the undisturbed runs; of the first all that a study has."""
        folders = [self.home / name for name in ("whole", *(f"done-{name}" for name in CAMPAIGNS))]
        return [equal_tables.read(folder / "results" / self.study / "tables") for folder in folders]


def study_of(environment: str) -> Record:
    """A study as small as it can be: one workload, the host and one environment, no paper."""
    return {
        **LEAST,
        **{"study": f"faults-{environment}", "environments": [HOST, environment], "papers": []},
        "workloads": {WORKLOAD: {"batch": 64, "sweep_batches": []}, "sentiment_rnn": None},
    }


def copy(source: Path, target: Path) -> None:
    """Copy a folder with all its times, in place of what is there."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)


def commit() -> str:
    """Of this checkout."""
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
