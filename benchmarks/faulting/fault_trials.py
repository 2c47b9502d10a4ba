"""One trial of the fault campaign (faults.py): what is done to a run, and what the next run has made of it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/faulting"), str(ROOT / "benchmarks"), str(ROOT / "tests"), str(ROOT)]

import equal_tables  # noqa: E402
import injecting  # noqa: E402
import leavings  # noqa: E402
from fault_runs import (  # noqa: E402
    ALL,
    LAUNCHING,
    RUN_S,
    STAGES,
    TOKEN,
    Disk,
    Pool,
    Record,
    Run,
    Stage,
    copy,
    end_all,
    ended_for_memory,
    fill,
    memory_group,
)

from tare.core.errors import TareError, UnavailableError  # noqa: E402
from tare.core.files import Journal, cache_path, read_json  # noqa: E402
from tare.core.guard import started_at  # noqa: E402
from tare.datasets import catalog, fetch  # noqa: E402
from tare.launch.prepare import OWNER, STOPPED  # noqa: E402
from tare.machine.facts import describe  # noqa: E402
from tare.model.journals import ledger  # noqa: E402
from tare.model.journals.sealed import UNITS, read_rows, read_sealed  # noqa: E402
from tare.model.studies.layout import SEALED  # noqa: E402
from tare.runtimes.daemon import LINGER_S, PATIENCE_S  # noqa: E402

SEED = 2022
HANG_S, INTERRUPTED_S = 12.0, 60.0
PART_S, ELSE_S = 10.0, 1.0  # until there is a process of a part, where launches run, and elsewhere
SETTLE_S = 5.0
ENDED = "the run ended before it was disturbed"
STEP_S = 3600
LEAVE_KIB = 8  # of a disk that fills up
SPARE_MIB = 96  # of a small disk before that
MEMORY_BYTES = 256 << 20  # less than Snakemake, a command and a launch take together
MOST_KEPT = 10  # folders of trials that had problems
# Parts of the chain whose end Tare sees and records as a failed launch.
RECORDED = ("client", "daemon", "worker")
# Of a record, in addition to times: what says where it was made, and from where, and blocks that a disk allocated.
OF_ITS_RUN = frozenset(
    {"at", "seconds", "cached", "argv", "source", "folder", "canonical", "disk_bytes", "shared_bytes"}
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One trial: what is disturbed where; `number` distinguishes those that are alike."""

    kind: str
    where: str
    environment: str
    number: int = 0

    @property
    def key(self) -> tuple[str, str, str, int]:
        """By which its row is found."""
        return self.kind, self.where, self.environment, self.number

    @property
    def chance(self) -> random.Random:
        """Its own random numbers, the same in every call."""
        return random.Random("/".join(map(str, (SEED, *self.key))))

    @property
    def stage(self) -> str:
        """The stage that it says, by its last words."""
        return next(name for name in STAGES if self.where.endswith(name))


# --- what is looked at afterwards


def journals(folder: Path) -> dict[str, bytes]:
    """Whole rows of journals and ledgers, by their path below a folder."""
    found = {}
    for path in (folder / "results/campaigns").rglob("*.jsonl"):
        data = path.read_bytes()
        found[str(path.relative_to(folder))] = data[: data.rfind(b"\n") + 1]
    return found


def unit_problems(folder: Path, reference: Path, study: str, before: Mapping[str, bytes]) -> list[str]:
    """Whether each unit is in every campaign once.

    Args:
        folder: of the run, and `reference` that of an undisturbed one.
        study: whose campaigns they are.
        before: whole rows of journals as the fault left them.
    """
    lines, root = [], Path("results/campaigns", study)
    lines += [f"{path.relative_to(folder)} was set aside" for path in (folder / root).rglob("superseded-*")]
    for sealed in sorted((reference / root).glob(f"*/*/*/{SEALED}")):
        name = str(sealed.relative_to(reference).parent)
        try:
            numbers = [unit.unit for unit in read_sealed(folder / name / SEALED).units]
        except TareError as error:
            lines.append(f"{name}: {error}")
            continue
        if numbers != list(range(len(numbers))):
            lines.append(f"{name}: its units are {numbers}")
    for text, rows in before.items():
        path = folder / text
        if not path.exists() or not path.read_bytes().startswith(rows):
            lines.append(f"{text}: rows from before the fault are gone or changed")
    for path in sorted((folder / root).glob(f"*/{ledger.LEDGER}")):
        try:
            entries = ledger.read_ledger(path.parent)
        except TareError as error:
            lines.append(str(error))
            continue
        seen = Counter((one.event, one.workload, one.campaign) for one in entries)
        lines += [
            f"the ledger has {event} {name} {count} times" for (event, _, name), count in seen.items() if count > 1
        ]
    return lines


def failed_launches(folder: Path, study: str) -> dict[str, list[str]]:
    """By campaign, or `profile`, the launches that are recorded as failed."""
    found: dict[str, list[str]] = {}
    for path in sorted((folder / "results/campaigns" / study).glob(f"*/*/*/{SEALED}")):
        with contextlib.suppress(TareError):
            for unit in read_sealed(path).units:
                for name, why in unit.failures.items():
                    found.setdefault(path.parent.name, []).append(f"unit {unit.unit}, {name}: {why}")
    for path in sorted((folder / "results/profiles" / study).rglob("profile.json")):
        record = read_json(path)
        if record["status"] != "ok":
            found.setdefault("profile", []).append(f"{path.parent.name}: {record['reason']}")
    return found


def same_content(first: Any, second: Any, where: str = "") -> list[str]:
    """Places at which two records differ, but for times, and for what depends on where they were made."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = [key for key in sorted({*first, *second}) if not _is_of_its_run(key)]
        return [line for key in keys for line in same_content(first.get(key), second.get(key), f"{where}/{key}")]
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [line for at, pair in pairs for line in same_content(*pair, f"{where}/{at}")]
    return [] if first == second else [f"{where}: {json.dumps(first)[:80]} is now {json.dumps(second)[:80]}"]


def last_line(said: str) -> str:
    """The last line of what a run said."""
    return (said.strip().splitlines() or ["it said nothing"])[-1]


def _is_of_its_run(key: str) -> bool:
    return key.endswith(("_s", "_ns", "_at")) or key in OF_ITS_RUN


def wall_clock(library: Path, offset: Path) -> dict[str, str]:
    """Variables of programs whose wall clock is moved by as many seconds as a file says whenever they look.

    libfaketime 0.9.10, which could do it, lets Python's `time.sleep` fail where it leaves CLOCK_MONOTONIC alone.
    """
    source = Path(__file__).with_name("wall_clock.c")
    if shutil.which("gcc") is None:
        raise UnavailableError("gcc is not there: apt-get install gcc libc6-dev")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library), "TARE_CLOCK_STEP": str(offset)}


def step_files(folder: Path, since: float, step_s: int) -> int:
    """Move the times of files that were written since, as a clock that had stepped would have; how many."""
    moved = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            seen = path.lstat()
            if seen.st_mtime >= since and not path.is_symlink():
                os.utime(path, (seen.st_atime, seen.st_mtime + step_s))
                moved += 1
    return moved


# --- trials


class Trial:
    """One case on one pool: a method for each kind."""

    def __init__(self, pool: Pool, case: Case) -> None:
        self.pool, self.case, self.chance = pool, case, case.chance
        self.folder = pool.home / "trial"
        self.disturbed: list[str] = []
        self.problems: list[str] = []
        self.status: int | None = None
        self.tries = 0
        self.may_fail = False  # launches, since one of theirs was disturbed
        self.kept: dict[str, bytes] = {}

    def row(self) -> Record:
        """Make the trial; its row."""
        shutil.rmtree(self.folder, ignore_errors=True)
        started, before, reason = time.monotonic(), self._look(), None
        found: Record = {}
        try:
            found = getattr(self, self.case.kind)()
        except UnavailableError as error:
            reason = str(error)
        except Exception as error:  # what a fault leaves may break what looks at it, too
            at = traceback.extract_tb(error.__traceback__)[-1]
            self.problems.append(f"the trial broke off: {error!r} ({Path(at.filename).name}, line {at.lineno})")
        left = leavings.settled(before, self._look, self._patience_s())
        end_all(self.pool.runs)  # what is reported as left is not left for the next trial
        self._put_away(bool(left or self.problems))
        case = {name: getattr(self.case, name) for name in ("kind", "where", "environment", "number")}
        about = {"cpu": describe()["cpu_model"], "kernel": platform.release(), "commit": self.pool.about["commit"]}
        return {
            **case,
            **about,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(time.monotonic() - started, 1),
            **{"disturbed": self.disturbed, "status": self.status, "tries": self.tries, "reason": reason},
            **{"finished": None, "units": None, "tables": None, "recorded": {}, **found},
            **{"left": left, "problems": self.problems},
        }

    def _look(self) -> leavings.Look:
        return leavings.look(f"{TOKEN}={self.pool.token}", self.pool.home, self.pool.spared)

    def _patience_s(self) -> float:
        """A private daemon of Docker's ends some time after its last user."""
        # A user who comes in the middle of its wait lets the daemon wait once more.
        return 2 * LINGER_S + PATIENCE_S + 15 if self.case.environment == "docker" else SETTLE_S

    def _put_away(self, keep: bool) -> None:
        kept = self.pool.home / "kept"
        if keep and self.folder.exists() and len(list(kept.glob("*"))) < MOST_KEPT:
            name = f"{self.case.kind} {self.case.where} {self.case.number}".replace(" ", "-").replace(",", "")
            shutil.rmtree(kept / name, ignore_errors=True)
            kept.mkdir(exist_ok=True)
            self.folder.rename(kept / name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def begun(self, stage: Stage, **more: Any) -> Run:
        """A run of a stage on a fresh copy."""
        self.pool.seed(stage, self.folder)
        return Run(self.pool, self.folder, self.pool.targets(stage), **more)

    def moment(self, run: Run, stage: Stage) -> None:
        """Wait for a random moment of a stage. Raises UnavailableError: the run has ended before."""
        name = next(key for key, one in STAGES.items() if one is stage)
        wait_s = self.chance.uniform(0, 0.9 * max(1.0, self.pool.about["stage_s"][name]))
        begun = run.wait_for(stage.command)
        if begun:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(wait_s)
        if run.process.poll() is not None:
            raise UnavailableError(f"{ENDED}: {last_line(run.said)}")
        self.disturbed.append(
            f"{wait_s:.1f} s after `{stage.command}` began" if begun else f"`{stage.command}` had not begun"
        )

    def chosen(self, run: Run, number: signal.Signals) -> str:
        """Signal a random process of the part that the case names; the part that it had. Raises UnavailableError:
        nothing of the run is alive.
        """
        part = self.case.where.split(" ")[0]
        if part != injecting.ALL:
            run.wait_for_part(part, PART_S if self.case.stage in LAUNCHING else ELSE_S)
        role, chosen = injecting.victims(run.processes(), part, self.chance)
        self.may_fail = role in RECORDED
        if not (done := injecting.kill(chosen, number)):
            raise UnavailableError(f"{ENDED}: {last_line(run.said)}")
        self.disturbed.append(
            f"{number.name} to {done}, {role}: {'; '.join(one.text[:120] for one in chosen[:12])}"
        )
        return role

    def over(self, run: Run) -> int | None:
        """Status of a disturbed run, once nothing of it measures any more.

        Snakemake survives make, and goes on with what does not need the job that failed: a user waits for it.
        """
        status = run.wait()
        if status is None:
            self.problems.append(f"the disturbed run had not ended after {RUN_S:.0f} s, and was killed")
        until = time.monotonic() + RUN_S
        while "snakemake" in run.processes() and time.monotonic() < until:
            time.sleep(0.2)
        until = time.monotonic() + INTERRUPTED_S
        while there := set(run.processes()) & {"command", "guard", "client", "worker"}:
            if time.monotonic() > until:
                self.problems.append(
                    f"{INTERRUPTED_S:.0f} s after its end there is still: {', '.join(sorted(there))}"
                )
                break
            time.sleep(0.2)
        return status

    def recovered(self, run: Run, stage: Stage) -> Record:
        """What the next run makes of what is left."""
        self.kept = journals(run.seen)
        status, self.tries = run.again()
        found = self.judged(run, stage, status)
        if status == 0 and self.tries > 1:
            self.problems.append(f"only run {self.tries} after the fault ended with status 0")
        return found | {"finished": status == 0 and self.tries == 1}

    def judged(self, run: Run, stage: Stage, status: int | None) -> Record:
        """What a run that should have finished has left."""
        if status != 0:
            self.problems.append(f"the next run ended with status {status}: {run.said}")
            return {"finished": False, "units": None, "tables": None}
        folder = run.seen
        units = unit_problems(folder, self.pool.home / "whole", self.pool.study, self.kept)
        failed = failed_launches(folder, self.pool.study)
        tables = self.table_problems(folder, stage, list(failed))
        if not self.may_fail:
            tables += [f"{name}: recorded as failed: {line}" for name, lines in failed.items() for line in lines]
        self.problems += [*units, *tables]
        return {"finished": True, "units": not units, "tables": not tables, "recorded": failed}

    def table_problems(self, folder: Path, stage: Stage, failed: Sequence[str]) -> list[str]:
        """What differs from undisturbed runs; of trial launches, which have no tables, the records of images."""
        if stage is STAGES["trial launches"]:
            place = Path("results/images", self.pool.stack, f"{self.case.environment}.json")
            return same_content(read_json(self.pool.home / "whole" / place), read_json(folder / place), str(place))
        undisturbed = self.pool.references()
        loose = equal_tables.loose_of(undisturbed)
        found = equal_tables.read(folder / "results" / self.pool.study / "tables")
        wanted = set(undisturbed[0]) if stage.wanted == ALL else set(undisturbed[-1])
        reference = {name: rows for name, rows in undisturbed[0].items() if name in wanted}
        return equal_tables.differences(reference, found, loose, failed)

    # --- kinds

    def kill(self) -> Record:
        """One process of the chain, or all."""
        stage = STAGES[self.case.stage]
        run = self.begun(stage)
        self.moment(run, stage)
        self.chosen(run, signal.SIGKILL)
        self.status = self.over(run)
        return self.recovered(run, stage)

    def full_disk(self) -> Record:
        """The disk with the results fills up at a random moment; then there is room."""
        stage = STAGES[self.case.stage]
        with self.small(stage) as run:
            self.moment(run, stage)
            filler = fill(run.seen, LEAVE_KIB)
            self.disturbed.append(f"filled except for {LEAVE_KIB} KiB")
            self.status = self.over(run)
            filler.unlink()
            return self.recovered(run, stage)

    def read_only(self) -> Record:
        """Results, or a part of them, can't be written from the beginning; then they can."""
        stage = STAGES["tables" if self.case.where == "tables" else "rounds"]
        part = {"all results": "", "campaigns": "/results/campaigns", "tables": f"/results/{self.pool.study}"}
        where = f'"$2{part[self.case.where]}"'
        with self.small(stage, f"mount --bind {where} {where}; mount -o remount,bind,ro {where}") as run:
            self.disturbed.append(f"read-only: {self.case.where}")
            self.status = self.over(run)
            if self.status == 0:
                self.problems.append("a run that could not write its results ended with status 0")
            self.disk.do("umount", f"{self.folder}{part[self.case.where]}")
            return self.recovered(run, stage)

    @contextlib.contextmanager
    def small(self, stage: Stage, more: str = "") -> Iterator[Run]:
        """A run on a small disk over the trial's folder, with what it begins with and SPARE_MIB free."""
        self.folder.mkdir(parents=True, exist_ok=True)
        copied = self.pool.home / "seed"
        self.pool.seed(stage, copied)
        used = subprocess.run(
            ["du", "-sm", str(copied)], capture_output=True, text=True, check=True
        ).stdout.split()[0]
        script = f'mount -t tmpfs -o size="$1"m tmpfs "$2"; cp -a "$3"/. "$2"\n{more}'
        self.disk = Disk(self.pool, script, str(int(used) + SPARE_MIB), str(self.folder), str(copied))
        try:
            yield Run(
                self.pool, self.folder, self.pool.targets(stage), prefix=self.disk.prefix,
                seen=self.disk.seen(self.folder),
            )  # fmt: skip
        finally:
            self.disk.close()
            shutil.rmtree(copied, ignore_errors=True)

    def memory(self) -> Record:
        """All of a run together may take less memory than one launch needs; then more."""
        stage = STAGES[self.case.stage]
        with memory_group(MEMORY_BYTES) as (group, prefix):
            run = self.begun(stage, prefix=prefix)
            self.status, self.may_fail = self.over(run), True
            ended = ended_for_memory(group)
        if not ended:
            raise UnavailableError(f"{MEMORY_BYTES >> 20} MiB were enough: {last_line(run.said)}")
        self.disturbed.append(f"limited to {MEMORY_BYTES >> 20} MiB: the kernel ended {ended} of its processes")
        run.prefix = []
        return self.recovered(run, stage)

    def hang(self) -> Record:
        """A process is stopped for good; after a while a person interrupts the run."""
        stage = STAGES[self.case.stage]
        run = self.begun(stage)
        self.moment(run, stage)
        role = self.chosen(run, signal.SIGSTOP)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(HANG_S)
        if run.process.poll() is None:
            run.interrupt()
            self.disturbed.append(f"interrupted after {HANG_S:.0f} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(INTERRUPTED_S)
        # A command that is stopped hears of nothing: only a person can end it.
        if run.process.poll() is None or (role == "command" and run.processes().get(role)):
            run.end()
            self.disturbed.append("what had not ended then was killed")
        self.status = self.over(run)
        return self.recovered(run, stage)

    def network(self) -> Record:
        """A data set whose only source answers badly, and then well; the cache is the trial's own."""
        paths = fetch.fetch(catalog.load_registry().datasets["mnist"]).paths
        target, checkout = "results/data/mnist.json", self.pool.home / "network"
        self.folder.mkdir(parents=True)
        copy(self.pool.checkout, checkout)
        with injecting.serving(b"", {name: path.read_bytes() for name, path in paths.items()}) as server:
            parts = [{"gives": name, "url": f"{server.base}/good/{name}", "unpack": "none"} for name in paths]
            registry = checkout / "data/registry.yaml"
            content = yaml.safe_load(registry.read_text())
            source = {"name": "a server of this machine", "kind": "https", "canonical": True, "parts": parts}
            content["datasets"]["mnist"]["sources"] = [source]
            registry.write_text(yaml.safe_dump(content))
            server.mode = self.case.where
            own = {"TARE_CACHE": str(self.folder / "cache"), "no_proxy": "127.0.0.1"}
            run = Run(self.pool, self.folder, [target], checkout=checkout, **own)
            self.status = self.over(run)
            self.disturbed.append(f"{self.case.where}: asked {len(server.hits)} times")
            if self.status == 0:
                self.problems.append("a bad download was taken for a good one")
            server.mode = None
            server.release.set()
            status, self.tries = run.again()
        shutil.rmtree(checkout, ignore_errors=True)
        if status != 0:
            self.problems.append(f"the next run ended with status {status}: {run.said}")
            return {"finished": False}
        pair = [read_json(folder / target) for folder in (self.pool.home / "whole", self.folder)]
        tables = same_content(*pair, target)
        self.problems += tables
        return {"finished": True, "tables": not tables}

    def journal(self) -> Record:
        """A journal that a crash cut in its last row: read at every cut, or gone on with by a run."""
        copy(self.pool.home / "done-rounds", self.folder)
        (sealed,) = (self.folder / "results/campaigns" / self.pool.study).glob(f"*/*/rounds*/{SEALED}")
        path, listed = sealed.with_name(UNITS), sealed.parents[2] / ledger.LEDGER
        if "read" in self.case.where:
            return self.cut_everywhere(listed if "ledger" in self.case.where else path)
        rows = path.read_bytes().splitlines(keepends=True)
        while self.case.where == "the last unit" and "unit" not in json.loads(rows[-1]):
            rows.pop()
        cut = self.chance.randrange(1, len(rows[-1]))
        path.write_bytes(b"".join([*rows[:-1], rows[-1][:cut]]))
        listed.write_bytes(
            b"".join(listed.read_bytes().splitlines(keepends=True)[:-1])
        )  # which comes after the seal
        sealed.unlink()
        shutil.rmtree(self.folder / "results" / self.pool.study / "tables")
        self.kept = {str(path.relative_to(self.folder)): b"".join(rows[:-1])}
        self.disturbed.append(f"{self.case.where}: cut after {cut} of {len(rows[-1])} bytes")
        stage = STAGES["rounds"]
        run = Run(self.pool, self.folder, self.pool.targets(stage))
        self.tries = 1
        return self.judged(run, stage, run.wait())

    def cut_everywhere(self, path: Path) -> Record:
        """A ledger cut in its last row; a journal of units in its seal, and in its last unit."""
        of_units = path.name == UNITS
        found = [self._cut(path, of_units)]
        if of_units:
            rows = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(row for row in rows if "unit" in json.loads(row)))
            found.append(self._cut(path, of_units))
        tried, wrong = sum(one[0] for one in found), [line for one in found for line in one[1]]
        self.disturbed.append(f"cut at {tried} bytes")
        self.problems += wrong[:20]
        return {"finished": not wrong, "units": not wrong, "cuts": tried}

    def _cut(self, path: Path, of_units: bool) -> tuple[int, list[str]]:
        def read() -> object:
            return read_rows(path.parent) if of_units else ledger.read_ledger(path.parent)

        def append(row: bytes) -> None:
            Journal(path).append(json.loads(row))

        return injecting.cut_everywhere(path, read, append)

    def two_runs(self) -> Record:
        """The same command twice, in one folder or in two."""
        stage, other = STAGES["rounds"], self.pool.home / "other"
        first = self.begun(stage)
        if self.case.where == "one folder":
            first.wait_for(stage.command)
            second = Run(self.pool, self.folder, self.pool.targets(stage))
        else:
            self.pool.seed(stage, other)
            second = Run(self.pool, other, self.pool.targets(stage))
        self.status, self.tries = second.wait(), 1
        status = first.wait()
        self.disturbed.append(f"the second ended with {self.status}, the first with {status}")
        if self.case.where == "one folder":
            if self.status == 0:
                self.problems.append("a second run in the same folder was not refused")
            return self.judged(first, stage, status)
        found = [self.judged(first, stage, status), self.judged(second, stage, self.status)]
        shutil.rmtree(other, ignore_errors=True)
        return {name: all(one[name] for one in found) for name in ("finished", "units", "tables")}

    def clock(self) -> Record:
        """A step of an hour: for programs while they run, or for the times of files behind a kill."""
        stage, step = STAGES["rounds"], STEP_S if self.case.where.startswith("forwards") else -STEP_S
        if self.case.where.endswith("programs"):
            offset = self.pool.home / "clock"
            offset.write_text("0")
            moved_clock = wall_clock(self.pool.home / "wall_clock.so", offset)
            run = self.begun(stage, **moved_clock)
            self.moment(run, stage)
            offset.write_text(f"{step:d}")
            self.disturbed.append(f"stepped by {step:+d} s")
            self.status = self.over(run)
            run.env = {name: value for name, value in run.env.items() if name not in moved_clock}
            return self.recovered(run, stage)
        began = time.time()
        run = self.begun(stage)
        self.moment(run, stage)
        injecting.kill(injecting.victims(run.processes(), injecting.ALL, self.chance)[1])
        self.status = self.over(run)
        moved = step_files(self.folder, began, step)
        self.disturbed.append(f"all was killed; times of {moved} files that it wrote were moved by {step:+d} s")
        return self.recovered(run, stage)

    def leftovers(self) -> Record:
        """What an earlier crash has left: the next run ends it and takes it away."""
        stage = STAGES["rounds"]
        if self.case.where.startswith("launches"):
            run = self.begun(stage)
            run.wait_for(stage.command)
            run.wait_for_part("worker", RUN_S)
            parts = run.processes()
            upper = [
                one for part in ("guard", "make", "snakemake", "shell", "command") for one in parts.get(part, ())
            ]
            self.disturbed.append(f"killed {injecting.kill(upper)}, the guard first; launches live on")
            self.status, self.may_fail = run.wait(), True
            return self.recovered(run, stage)
        name = f"tare-{uuid.uuid4().hex[:12]}"
        folder = cache_path("launches", name)
        folder.mkdir(parents=True)
        code = "import time\nwhile True: time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code, name], start_new_session=True)
        try:
            os.kill(child.pid, signal.SIGSTOP)
            stopped = [{"means": "signals", "pids": {str(child.pid): started_at(child.pid)}}]
            (folder / OWNER).write_text(json.dumps({"commands": [], "env": {"PATH": os.environ["PATH"]}}))
            (folder / STOPPED).write_text(json.dumps(stopped))
            self.disturbed.append(f"{name}: a stopped process and its folder")
            run = self.begun(stage)
            self.status, self.tries = run.wait(), 1
            if child.poll() is None or folder.exists():
                self.problems.append(f"{name} was not ended and removed by the next run")
            return self.judged(run, stage, self.status)
        finally:
            child.kill()
            child.wait()
            shutil.rmtree(folder, ignore_errors=True)
