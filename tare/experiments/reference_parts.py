"""The parts of a reference campaign, in order of worth: what each runs, under which deadline, what came of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import process
from tare.core.errors import UnavailableError
from tare.core.files import project_root, read_json
from tare.core.progress import duration, say
from tare.experiments.campaign import DEADLINE
from tare.machine.facts import machine_name
from tare.model.journals.references import NO_TIME
from tare.model.registry import HOST, SINGLE, describe_workload
from tare.model.studies import arms, layout
from tare.model.studies.campaigns import campaigns
from tare.model.studies.layout import SEALED, below_results, campaign_name
from tare.model.studies.stacks import BOUND
from tare.model.studies.study import Study, part_of

# Seconds with which a part of a kind is worth starting, before one of that kind has shown what it takes.
LEAST_S = {
    "ceilings": 10, "profile": 10, "setting": 30, "rounds": 40, "pipeline": 30, "sweep": 30,
}  # fmt: skip
GRACE_S = 10.0  # beyond its deadline: a campaign ends by itself between units
POLL_S = 0.1
# The most of the whole budget that one part may take, so that an early one can't eat all the others.
SHARES = {
    "ceilings": 0.15, "profile": 0.35, "setting": 0.2, "rounds": 0.35, "pipeline": 0.2, "sweep": 0.2,
}  # fmt: skip
LEAST_CAP_S = 75.0  # whatever the shares: a campaign has to calibrate first
SYNTHETIC = arms.Arm(factor="input", level="synthetic")  # of every workload that makes a batch by itself
NOT_ASKED = "it was not asked for (--only)"
NOT_REACHED = f"{NO_TIME}: the run was ended before this part was finished"

Row = dict[str, Any]
NO_ROWS: Mapping[str, Row] = {}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One piece of work: a command of the harness and the record that it writes."""

    kind: str
    arguments: tuple[str, ...]
    out: str
    workload: str | None = None
    env: str | None = None
    arm: str | None = None

    @property
    def name(self) -> str:
        """For people: `setting mnist_cnn amp=bf16`."""
        return " ".join(filter(None, (self.kind, self.workload, self.env, self.arm)))


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The time that a reference campaign may take; instants are of CLOCK_MONOTONIC, in seconds."""

    started: float
    budget_s: float

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return self.started + self.budget_s - time.monotonic()

    @property
    def gone_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started


def parts_of(whole: Study, usable: Sequence[str]) -> list[Part]:
    """All parts in order of worth; pure, but for the name of this machine in their paths."""
    others = [name for name in whole.environments if name in usable and name != HOST]
    here = whole.replace(environments=(HOST, *others))
    found = [Part(kind="ceilings", arguments=_arguments(here, "ceilings"), out=layout.CEILINGS_FILE)]
    found += [_profile(here, workload, HOST) for workload in here.workloads]
    found += _campaigns(here, "rounds")
    found += _campaigns(here, "rounds", of_arms=True)
    found += [_profile(here, workload, env) for workload in here.workloads for env in others]
    makers = [name for name in here.workloads if SYNTHETIC.level in describe_workload(name).get("inputs", ())]
    found += [_synthetic(here, workload) for workload in makers]
    found += [_pipeline(here, workload) for workload in (here.pipeline.workloads if here.pipeline else ())]
    return [*found, *_campaigns(here, "sweep")]


def _place(path: Path) -> str:
    """Path of a record or a folder of records in the folder of the reference."""
    return below_results(path).as_posix()


def _arguments(
    whole: Study, kind: str, workload: str | None = None, arm: arms.Arm | None = None
) -> tuple[str, ...]:
    common = (kind, "--study", part_of(whole, kind, workload, arm))
    return (*common, "--workload", workload) if workload else common


def _profile(whole: Study, workload: str, env: str) -> Part:
    return Part(
        kind="profile",
        arguments=(*_arguments(whole, "profile", workload), "--env", env),
        out=_place(layout.profile_record(whole.study, machine_name(), workload, layout.profile_name(env))),
        workload=workload,
        env=env,
    )


def _synthetic(whole: Study, workload: str) -> Part:
    """Whole runs without what reading takes, in every environment."""
    name = campaign_name("rounds", whole.environments, SYNTHETIC.name)
    arguments = (*_arguments(whole, "rounds", workload, SYNTHETIC), "--environments", *whole.environments)
    return Part(
        kind="setting",
        arguments=(*arguments, "--arm", SYNTHETIC.name),
        out=_place(layout.sealed_record(whole.study, machine_name(), workload, name)),
        workload=workload,
        arm=SYNTHETIC.name,
    )


def _pipeline(whole: Study, workload: str) -> Part:
    """The input alone, on the host."""
    return Part(
        kind="pipeline",
        arguments=_arguments(whole, "pipeline", workload),
        out=_place(layout.pipeline_record(whole.study, machine_name(), workload)),
        workload=workload,
    )


def _campaigns(whole: Study, kind: str, *, of_arms: bool = False) -> Iterator[Part]:
    """The campaigns of one kind, of the headline or of arms of the same stack."""
    for found in campaigns(whole):
        other = found.stack != whole.stack or found.scenario != SINGLE
        if found.kind != kind or (found.arm is not None) != of_arms or other:
            continue
        arguments = _arguments(whole, kind, found.workload, arms.parse(found.arm) if found.arm else None)
        if kind != "sweep":
            arguments += ("--environments", *found.environments)
        yield Part(
            kind="setting" if found.arm else kind,
            arguments=(*arguments, "--arm", found.arm) if found.arm else arguments,
            out=_place(layout.sealed_record(whole.study, machine_name(), found.workload, found.name)),
            workload=found.workload,
            arm=found.arm,
        )


def run_parts(
    parts: Sequence[Part],
    workloads: Mapping[str, Mapping[str, Any]],
    out: Path,
    clock: Clock,
    earlier: Mapping[str, Row] = NO_ROWS,
    keep: Callable[[Sequence[Row]], None] = lambda rows: None,
) -> list[Row]:
    """Run parts while there is time; a row for each, whatever came of it.

    Args:
        parts: in order of worth.
        workloads: `reason` of each whose data are not there.
        clock: how long it may take.
        earlier: rows of the run before, by part.
        keep: is called with all rows so far after each part, so that an abrupt end loses one part at most.
    """
    rows: list[Row] = []
    took: dict[str, float] = {}  # the cheapest of a kind: one that has less left is not started
    for part in parts:
        lost = part.workload and workloads[part.workload]["reason"]
        wanted = 0.8 * took.get(part.kind, LEAST_S[part.kind])
        if lost:
            row = _row(part, "unavailable", lost)
        elif clock.left_s < wanted:
            reason = f"{NO_TIME}: {max(0.0, clock.left_s):.0f} s, and it would take {wanted:.0f} s or more"
            row = _row(part, "unavailable", reason)
        else:
            say(f"[{duration(clock.gone_s)} gone, {duration(clock.left_s)} left] {part.name}")
            with better(earlier.get(part.name), out) as tried:
                tried.append(run_part(part, out, clock))
            (row,) = tried
            if row["status"] == "ok":
                took[part.kind] = min(took.get(part.kind, row["seconds"]), row["seconds"])
        before = earlier.get(part.name)
        rows.append(before if before and before["record"] and row["record"] is None else row)
        keep(rows)
    return rows


def _row(part: Part, status: str, reason: str | None, seconds: float = 0.0) -> Row:
    identity = {"name": part.name, "kind": part.kind, "workload": part.workload, "env": part.env, "arm": part.arm}
    record = part.out if status in ("ok", "ended") else None
    return {**identity, "status": status, "reason": reason, "seconds": round(seconds, 1), "record": record}


def wants_again(row: Mapping[str, Any]) -> bool:
    """Whether a part of an earlier run is worth another try: there was too little time, or it was not asked for."""
    return row["status"] in ("unavailable", "ended") and str(row["reason"]).startswith((NO_TIME, NOT_ASKED))


@contextlib.contextmanager
def better(row: Row | None, out: Path) -> Iterator[list[Row]]:
    """Try a part again whose campaign was cut short: what it left is put back unless the new try leaves as much.
    `row`: of the earlier try; None where there was none. Yields a list for the new row, which afterwards holds the
    row that counts.
    """
    rows: list[Row] = []
    if row is None or row["record"] is None:
        yield rows
        return
    kept = out / row["record"]
    with tempfile.TemporaryDirectory(prefix=".earlier-", dir=out) as name:
        aside, units = Path(name) / "campaign", read_json(kept)["units"]
        kept.parent.rename(aside)
        try:
            yield rows
        finally:
            found = read_json(kept)["units"] if rows and rows[0]["record"] else -1
            if found < units:
                shutil.rmtree(kept.parent, ignore_errors=True)
                aside.rename(kept.parent)
                rows[:] = [row]


def not_run(part: Part, chosen: Sequence[Part]) -> Row:
    """The row of a part that `--only` left out, or to which a run that was ended did not come."""
    return _row(part, "unavailable", NOT_REACHED if part in chosen else NOT_ASKED)


def run_part(part: Part, out: Path, clock: Clock) -> Row:
    """Run one part in a separate process, which is given its deadline and ended a little after it."""
    started = time.monotonic()
    most_s = min(clock.left_s, max(LEAST_CAP_S, SHARES[part.kind] * clock.budget_s))
    images = str(out / _place(layout.IMAGES / BOUND))
    argv = [sys.executable, "-m", "tare", *part.arguments, "--images", images]
    if part.workload:
        record = layout.data_record(describe_workload(part.workload)["dataset"])
        argv += ["--data", str(out / _place(record))]
    variables = {**os.environ, DEADLINE: repr(started + most_s)}
    with tempfile.TemporaryFile() as log:
        ended = _wait([*argv, "--out", str((out / part.out).absolute())], variables, log, most_s + GRACE_S)
        log.seek(0)
        printed = log.read().decode(errors="replace")
    status, reason = outcome(out / part.out, ended, printed)
    return _row(part, status, reason, time.monotonic() - started)


def _wait(argv: Sequence[str], variables: Mapping[str, str], log: Any, timeout_s: float) -> int | None:
    """Exit status of a command; None where it was interrupted at its timeout, and killed if that did not help."""
    ends = time.monotonic() + timeout_s
    child = process.start(
        argv, env=variables, cwd=project_root(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )
    try:
        while child.poll() is None and time.monotonic() < ends:
            time.sleep(POLL_S)
        return child.poll()
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)  # it ends what it has started
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
        process.kill_group(child.pid)  # also what it left behind in its group
        child.wait()
        process.ended(child.pid)


def outcome(record: Path, ended: int | None, printed: str) -> tuple[str, str | None]:
    """(status, reason) of a part from its record, its exit status and what it printed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    last = lines[-1].removeprefix("tare: ") if lines else "it printed nothing"
    if ended is None:
        return "unavailable", f"{NO_TIME}: it was still running at its deadline"
    if ended == UnavailableError.exit_code and NO_TIME in last:  # not one unit of a campaign fitted
        return "unavailable", last[last.index(NO_TIME) :].removesuffix("; run it again")[:500]
    if ended or not record.exists():
        return "failed", last[:500]
    found = read_json(record)
    status = found.get("status")
    if record.name == SEALED and status == "ended":
        return ("ended" if found["units"] else "unavailable"), found["reason"]
    if status in ("ok", "sealed"):
        if record.name == SEALED and not found["units"]:
            return "unavailable", next(iter(found["failures"].values()), None) or _why_empty(record)
        return "ok", None
    return "unavailable" if status == "unavailable" else "failed", found.get("reason")


def _why_empty(sealed: Path) -> str:
    lost = read_json(sealed.with_name("plan.json")).get("unavailable") or {}
    return "; ".join(f"{name}: {reason}" for name, reason in lost.items()) or "no unit counts"
