"""Cells of a grid as rows to train on: timed steps with what they do and the target they ran on.

What an environment adds to a step is the median difference of its cells from the host's of the same job, threads
and settings, and of its launches in sealed campaigns. It is never less than nothing: predictions have no place for
an environment that makes steps faster. What a setting multiplies a step by is the median over networks of such
ratios; of a row's own, that of the other networks. One that makes some networks faster and others slower is not
predicted.
Cells that shared the machine with the host's say how many times as long as its steps theirs are, and no more.
Settings that are modelled on the target multiply by nothing (`Target.modelled`); of several, the others count.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tare.core.errors import TareError, UnavailableError
from tare.core.files import canonical_json
from tare.core.progress import say
from tare.model.records.measured import GridCell
from tare.model.registry import HOST, whole_options
from tare.model.schema import read
from tare.predict.cases import Observation, Setting, Settings
from tare.predict.targets import TargetRecord
from tare.predict.work import Work, of_counts

Job = tuple[str, str, int]  # workload, its options, batch
# By settings and network, log-ratios of steps on the host with and without them.
SettingLogs = Mapping[Settings, Mapping[str, Sequence[float]]]
Failed = tuple[Job, str, int, Settings]  # environment, threads
MIXED = 0.05  # share by which a setting makes steps longer or shorter that is more than noise


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A step as others are compared with it."""

    network: str
    job: Hashable  # with its threads
    env: str
    settings: Settings
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What environments add to a step, and log-ratios of steps with settings to those without them."""

    added: Mapping[str, float]
    setting_logs: SettingLogs
    modelled: frozenset[Setting]

    @classmethod
    def of(cls, timed: Sequence[Timed], modelled: frozenset[Setting]) -> Effects:
        """As these steps say, and no others; `modelled`: settings that multiply by nothing."""
        host = {(one.job, one.settings): one.seconds for one in timed if one.env == HOST}
        pairs: dict[str, list[float]] = {}
        logs: dict[Settings, dict[str, list[float]]] = {}
        for one in timed:
            there = host.get((one.job, one.settings))
            if one.env != HOST and there is not None:
                pairs.setdefault(one.env, []).append(one.seconds - there)
            without = host.get((one.job, ()))
            if one.env == HOST and one.settings and without is not None:
                own = logs.setdefault(one.settings, {}).setdefault(one.network, [])
                own.append(math.log(one.seconds / without))
        more = {env: max(0.0, statistics.median(values)) for env, values in pairs.items()}
        return cls(added={HOST: 0.0, **more}, setting_logs=logs, modelled=modelled)

    def measured(self, settings: Settings) -> Settings:
        """Those of them whose effect is not modelled."""
        return tuple(one for one in settings if one not in self.modelled)

    def factor(self, settings: Settings, *, without: str | None = None) -> float | None:
        """What settings multiply a step by, if two networks were timed with them, or one that is not `without`.

        None where it was not, or where networks differ too much in it (`differs`). `without`: the network that is
        predicted or trained on, which has no part in this.
        """
        measured = self.measured(settings)
        if not measured:
            return 1.0
        own = self._logs(measured, without)
        if len(own) < (2 if without is None else 1) or self.differs(settings, without=without):
            return None
        return math.exp(statistics.median(own))

    def differs(self, settings: Settings, *, without: str | None = None) -> tuple[float, float] | None:
        """The factors of settings that make some networks faster and others slower, each by more than MIXED: the
        ends between which 80% of the networks are. None of others.
        """
        own = self._logs(self.measured(settings), without)
        if len(own) < 2:
            return None
        low, high = map(math.exp, np.quantile(own, (0.1, 0.9)))
        return (low, high) if low < 1 - MIXED and high > 1 + MIXED else None

    def _logs(self, measured: Settings, without: str | None) -> list[float]:
        """Of each network the median."""
        found = self.setting_logs.get(measured, {})
        return [statistics.median(logs) for title, logs in found.items() if title != without]


def _unpredictable(effects: Effects, settings: Settings, title: str) -> str:
    mixed = effects.differs(settings, without=title)
    if mixed is None:
        return "no other network was timed with and without its settings"
    return f"its settings multiply steps of other networks by {mixed[0]:.2f} to {mixed[1]:.2f}"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a grid gives: rows, work by job, what environments add, peak memory by job and threads."""

    rows: tuple[Observation, ...]
    work: Mapping[Job, Work]
    effects: Effects
    memory_bytes: Mapping[Job, int]  # the most of any of its cells
    left_out: tuple[str, ...]  # cells, each with why
    failed: Mapping[Failed, str] = field(default_factory=dict)  # why launches on the target had no step
    controls: tuple[float, ...] = ()  # log-ratios of two launches of the host's that were compared with each other

    def failure(self, job: Job, env: str, threads: int, settings: Settings) -> str | None:
        """Why a job is known to fail so; settings that fail on the host fail anywhere, and with other settings."""
        for (of, tried_in, tried_with, own), reason in self.failed.items():
            is_place = (tried_in, tried_with, settings) == (env, threads, ())
            if of == job and (set(own) <= set(settings) if own else is_place):
                return reason
        return None


def job_of(workload: str, options: Mapping[str, int | float], batch: int) -> Job:
    """A job by what it is given; options that are not given have their defaults."""
    return workload, json.dumps(whole_options(workload, options), sort_keys=True), batch


def read_cells(folder: Path) -> list[GridCell]:
    """The cells in a folder; one that can't be read is reported and passed over."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(read(GridCell, path))
        except TareError as error:
            say(f"passed over: {error}")
    return found


def trained_on(
    cells: Iterable[GridCell], target: TargetRecord, *, held_out: str | None = None, sealed: Sequence[Timed] = ()
) -> Trained:
    """The rows of a target's own cells; those of another machine, processor or stack are left out, and why.

    `sealed`: steps that campaigns timed, by which environments add to a step too (`sealed_steps`).
    `held_out`: the title of a network whose times and failures are not used, as if nobody had timed it; work and
    memory of its jobs are.
    """
    own, left_out, failed = [], [], dict[Failed, str]()
    for cell in cells:
        if reason := _unfit(cell, target):
            left_out.append(f"{name_of(cell)}: {reason}")
            if not (cell.ok or cell.again or cell.title == held_out) and _elsewhere(cell, target) is None:
                job = job_of(cell.workload, cell.options, cell.batch)
                later = "" if cell.is_final else "; `tare grid` tries it again"
                failed[job, cell.env, cell.threads, _settings_of(cell)] = reason + later
        else:
            own.append(cell)
    work, memory = _work(own), dict[Job, int]()
    for cell in own:
        job = job_of(cell.workload, cell.options, cell.batch)
        memory[job] = max(memory.get(job, 0), cell.seen_inside().memory.peak_rss_bytes)
    known = [cell for cell in own if cell.title != held_out]
    steps = _steps(known)
    controls = tuple(
        math.log(cell.host_step_s[1] / cell.host_step_s[0])
        for cell in known
        if cell.again == 1 and len(cell.host_step_s) > 1
    )
    firsts = [cell for cell in known if not cell.again]
    for cell in [cell for cell in firsts if id(cell) not in steps]:
        left_out.append(f"{name_of(cell)}: the host has no launch alone to compare it with")
        firsts.remove(cell)
    effects = Effects.of([*(_timed(cell, steps[id(cell)].seconds) for cell in firsts), *sealed], target.modelled)
    added, rows = effects.added, []
    for cell in firsts:
        if (job := job_of(cell.workload, cell.options, cell.batch)) not in work:
            left_out.append(f"{name_of(cell)}: no cell of its job counts a step")
        elif cell.env not in added:
            left_out.append(f"{name_of(cell)}: the host has no cell of the same job and threads")
        elif (factor := effects.factor(_settings_of(cell), without=cell.title)) is None:
            left_out.append(f"{name_of(cell)}: {_unpredictable(effects, _settings_of(cell), cell.title)}")
        elif added[cell.env] >= steps[id(cell)].seconds:
            left_out.append(f"{name_of(cell)}: what {cell.env} adds to steps is longer than this one")
        else:
            rows.append(
                Observation(
                    workload=cell.title,
                    environment=cell.env,
                    stack=cell.stack,
                    batch=cell.batch,
                    work=work[job],
                    target=target.with_threads(cell.threads),
                    environment_step_s=added[cell.env],
                    settings=_settings_of(cell),
                    factor=factor,
                    variant=job[1],
                    **asdict(steps[id(cell)]),
                )
            )
    return Trained(
        rows=tuple(rows),
        work=work,
        effects=effects,
        memory_bytes=memory,
        left_out=tuple(left_out),
        failed=failed,
        controls=controls,
    )


@dataclass(frozen=True, kw_only=True)
class _Step:
    """Seconds of a step, as an observation has them."""

    seconds: float
    alone_s: float | None = None
    in_slices_s: float | None = None


def _steps(cells: Sequence[GridCell]) -> dict[int, _Step]:
    """The step of each cell whose launch is the first of its place, by the cell's `id`.

    A cell that shared the machine in slices has its ratio to the host's launches in the same slices, times the
    host's seconds. These are the geometric mean of its launch alone and of those in slices, whose steps are longer:
    by the median over all jobs. Of several launches alone in one place the geometric mean counts.
    """
    alone: dict[tuple[Job, int, str, Settings], list[float]] = {}
    for cell in cells:
        if not cell.host_step_s:
            alone.setdefault(_place(cell), []).append(math.log(cell.step_s))
    on_host = {job: threads for job, threads, env, settings in sorted(alone) if env == HOST and not settings}
    logs = {job: statistics.mean(alone[job, threads, HOST, ()]) for job, threads in on_host.items()}  # most threads
    shared = {
        _key(cell)[0]: statistics.mean(map(math.log, cell.host_step_s))
        for cell in cells
        if cell.again == 1 and cell.host_step_s and _key(cell)[0] in logs
    }
    longer = statistics.median([own - logs[job] for job, own in shared.items()] or [0.0])
    in_slices = {job: math.exp(own - longer) for job, own in shared.items()}
    hosts = {job: math.sqrt(math.exp(own) * in_slices.get(job, math.exp(own))) for job, own in logs.items()}
    found = {}
    for cell in (cell for cell in cells if not cell.again):
        job, *_ = place = _place(cell)
        if place == (job, on_host.get(job), HOST, ()):
            own = hosts[job], math.exp(logs[job]), in_slices.get(job)
            found[id(cell)] = _Step(seconds=own[0], alone_s=own[1], in_slices_s=own[2])
        elif not cell.host_step_s:
            found[id(cell)] = _Step(seconds=math.exp(statistics.mean(alone[place])))
        elif job in hosts:
            ratio = cell.step_s / math.exp(statistics.mean(map(math.log, cell.host_step_s)))
            there = in_slices.get(job)
            found[id(cell)] = _Step(
                seconds=hosts[job] * ratio, in_slices_s=None if there is None else there * ratio
            )
    return found


def name_of(cell: GridCell) -> str:
    """A cell as messages name it."""
    own = [f"{factor}={level}" for factor, level in _settings_of(cell)]
    return ", ".join([cell.title, f"batch {cell.batch}", f"{cell.threads} threads", cell.env, *own])


def _unfit(cell: GridCell, target: TargetRecord) -> str | None:
    if not cell.ok:
        return f"{cell.status}: {cell.reason}"
    if reason := _elsewhere(cell, target):
        return reason
    if cell.threads not in target.threads:
        return f"the target was not measured with {cell.threads} threads"
    return None if cell.profiled().plain_step_s else "it timed no step"


def _elsewhere(cell: GridCell, target: TargetRecord) -> str | None:
    """By what a cell is another target's."""
    for what in ("machine", "processor", "device", "stack"):
        has, wanted = getattr(cell, what), getattr(target, what)
        if has != wanted:
            return f"its {what} is {has}, the target's {wanted}"
    return None


def _work(cells: Sequence[GridCell]) -> dict[Job, Work]:
    found = {}
    for cell in cells:
        try:
            work = of_counts(cell.profiled().counts)
        except UnavailableError:
            continue
        found[job_of(cell.workload, cell.options, cell.batch)] = work
    return found


def _key(cell: GridCell) -> tuple[Job, int]:
    return job_of(cell.workload, cell.options, cell.batch), cell.threads


def _settings_of(cell: GridCell) -> Settings:
    return tuple(sorted(cell.settings.items()))


def _place(cell: GridCell) -> tuple[Job, int, str, Settings]:
    return *_key(cell), cell.env, _settings_of(cell)


def _timed(cell: GridCell, seconds: float) -> Timed:
    return Timed(network=cell.title, job=_key(cell), env=cell.env, settings=_settings_of(cell), seconds=seconds)


def timed_of(row: Observation) -> Timed:
    """A row as others are compared with it: a job is what its step does."""
    job = row.workload, row.batch, canonical_json(row.work.to_json()), row.target.threads
    return Timed(network=row.workload, job=job, env=row.environment, settings=row.settings, seconds=row.seconds)
