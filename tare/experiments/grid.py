"""A grid of cheap launches that a performance model is trained on: jobs by batch, threads and environment.

Each cell is one launch of some seconds, which times steps on batches in memory and watches nothing, and is a
separate record, so that the grid goes on where it was left. A job with a batch is a group of cells. The first is
launched alone on the host and counts a step. The others share the machine in slices with a second launch of the
host's, since they are compared with it: other numbers of threads, and of the middle batch all environments and
settings, and the host once more (A/A control). Where launches can't be sliced, they run one right after the other.
Middle batches come first, of all jobs in turn, so that any part of the grid has some cells of each.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.progress import say, time_left
from tare.core.remedies import require
from tare.experiments import sliced
from tare.experiments.alone import alone_on_this_machine, measuring
from tare.experiments.designs import LARGEST_PAD_BYTES
from tare.experiments.orders import balanced_orders
from tare.launch.place import Site
from tare.launch.run import Order, launch
from tare.launch.sites import data_of, data_record, sites
from tare.launch.slicing.pacing import Pace
from tare.launch.slicing.rounds import Round, Way, run_launches
from tare.machine import facts
from tare.machine.fitting import settled
from tare.machine.memory import available_memory_bytes
from tare.model import closure
from tare.model.conditions import Conditions
from tare.model.levels import ALLOCATOR
from tare.model.records.launches import Counts, LaunchRecord, ProfileResults
from tare.model.records.measured import GridCell
from tare.model.registry import HOST, SINGLE, describe_workload, whole_options
from tare.model.schema import read
from tare.model.specification import Specification
from tare.model.studies.layout import grid_folder
from tare.model.studies.loading import load_part
from tare.model.studies.stacks import framework_of
from tare.model.studies.study import RunPart
from tare.worker import plain

WARMUP_STEPS = 2
STEADY_S = 2.5  # of steps that count
AGAIN = ("", "again", "control")  # names of the host's launches
ATTEMPTS = 3  # to measure a group in slices
LEAST_CELL_S = 3.0  # that a launch takes, before one has been made
# Workload, options, batches; the middle one is trained in every environment.
JOBS: Sequence[tuple[str, Mapping[str, int | float], tuple[int, ...]]] = (
    ("mnist_cnn", {}, (16, 64, 256)),
    ("sentiment_rnn", {}, (16, 64, 256)),
    ("sentiment_lstm", {}, (4, 8, 32)),
    ("transformer_lm", {}, (4, 12, 48)),
    ("resnet18", {"image_px": 64}, (2, 8, 32)),
    ("resnet18", {"image_px": 128}, (2, 4, 8)),
    ("resnet50", {"image_px": 64}, (2, 4, 16)),
    ("alexnet", {"image_px": 64}, (4, 16, 64)),
    ("alexnet", {"image_px": 128}, (4, 16)),
    ("inception3", {"image_px": 299}, (2,)),
    *(("further_networks", {"network": number, "image_px": 64}, (2, 8, 24)) for number in range(1, 9)),
    *(("further_networks", {"network": number, "image_px": 112}, (4,)) for number in (1, 2, 3, 4, 6, 8)),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A launch of the grid; `counts`: it counts a step from shapes too, which is the same in every environment."""

    workload: str
    batch: int
    threads: int
    env: str
    options: Mapping[str, int | float] = field(default_factory=dict)
    counts: bool = False
    setting: tuple[str, str] | None = None  # factor and level; None for the framework's default
    again: int = 0  # 1, 2: the host's second and third launch, with which those of its group are compared

    @property
    def job(self) -> str:
        """Workload, options and batch, as names of records have them."""
        chosen = [f"{key}-{value:g}" for key, value in sorted(self.options.items())]
        return ".".join([self.workload, *chosen, f"b{self.batch}"])

    @property
    def name(self) -> str:
        """Name of its record."""
        own = [] if self.setting is None else ["-".join(self.setting)]
        own += [AGAIN[self.again]] if self.again else []
        return ".".join([self.job, f"t{self.threads}", self.env, *own])


def groups(
    environments: Sequence[str], threads: Sequence[int], settings: Sequence[tuple[str, str]] = ()
) -> list[list[Cell]]:
    """The whole grid, in the order in which it is measured; `threads` in rising order. Of each group the first cell
    counts a step, and the last is the host's again, unless there is nothing to compare with it.
    """
    middles, later = list[list[Cell]](), list[list[list[Cell]]]()
    for workload, options, batches in JOBS:
        middle, own = batches[len(batches) // 2], list[list[Cell]]()
        for batch in sorted(batches, key=lambda batch: batch != middle):
            host = Cell(workload=workload, options=options, batch=batch, threads=threads[-1], env=HOST)
            others = [replace(host, threads=count) for count in reversed(threads[:-1])]
            if batch == middle:
                others += [replace(host, env=env) for env in environments if env != HOST]
                others += [replace(host, setting=setting) for setting in settings]
                others.append(replace(host, again=2))
            if others:
                others.append(replace(host, again=1))
            own.append([replace(host, counts=True), *others])
        middles.append(own[0])
        later.append(own[1:])
    return middles + [row[turn] for turn in range(max(map(len, later))) for row in later if turn < len(row)]


def makes_batches(cell: Cell) -> bool:
    """Whether its workload makes a batch itself, so that no data are needed."""
    return "inputs" in describe_workload(cell.workload, cell.options)


def settings_of(cell: Cell) -> dict[str, str]:
    """Settings of its launch."""
    own = [cell.setting] if cell.setting is not None and cell.setting[0] != ALLOCATOR else []
    return {**({"input": "synthetic"} if makes_batches(cell) else {}), **dict(own)}


def specification(cell: Cell, study: RunPart, steps: int = 0) -> Specification:
    """What the launch of a cell does inside. `steps`: how many it times; 0: as many as take STEADY_S."""
    return Specification(
        mode="profile",
        workload=cell.workload,
        batch=cell.batch,
        options=whole_options(cell.workload, cell.options),
        device=study.found_device,
        seed=study.seed,
        plain=True,
        counts=cell.counts,
        warmup_steps=WARMUP_STEPS,
        plain_steps=steps,
        steady_s=0.0 if steps else STEADY_S,
    )


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Where cells are measured."""

    study: RunPart
    folder: Path
    sites: Mapping[str, Site]
    processor: str

    def kept(self, cell: Cell, programs: str) -> GridCell | None:
        """The record of a cell, if these programs measured it, whatever came of it."""
        path = self.folder / f"{cell.name}.json"
        if not path.exists():
            return None
        try:
            found = read(GridCell, path)
        except IntegrityError as error:
            say(f"{error}: measured again")
            return None
        return found if found.programs_sha256 == programs else None

    def is_there(self, cell: Cell, programs: str) -> bool:
        """Whether these programs measured a cell, or found that it can't be had; others are tried in each run."""
        found = self.kept(cell, programs)
        return found is not None and found.is_final

    def measure(self, cell: Cell, programs: str) -> GridCell:
        """Launch a cell alone and write its record, whatever came of it."""
        order = self._order(cell)
        return self._written(cell, programs, launch(order.site, order.program, order.conditions))

    def measure_group(self, group: Sequence[Cell], programs: Mapping[str, str]) -> Iterator[tuple[Cell, GridCell]]:
        """Measure the missing cells of a group: in slices with the host's later launches, where that can be, and
        else alone. `programs`: hash by name. Gives the launches that were made, of which the last of a cell counts.
        """
        first, *others = group
        alone = self.kept(first, programs[first.name])
        if alone is None or not alone.ok:
            alone = self.measure(first, programs[first.name])
            yield first, alone
        missing = [cell for cell in others if not self.is_there(cell, programs[cell.name])]
        known = {cell.name for cell in missing if self.kept(cell, programs[cell.name])}  # that failed before
        if len(known) < len(missing):
            together, reason = self._fitting([cell for cell in others if cell.again or cell in missing], alone)
            if together:
                found, voided = self._round(together, alone)
                if voided is None:
                    yield from self._of_round(together, found, programs)
                reason = voided or reason
            if reason is not None:
                say(f"{first.job}: cells are measured one after the other: {reason}")
        for cell in missing:
            if not self.is_there(cell, programs[cell.name]):
                yield cell, self.measure(cell, programs[cell.name])

    def _fitting(self, cells: Sequence[Cell], alone: GridCell) -> tuple[list[Cell], str | None]:
        """Those of them that can share the machine in slices, the host's first; why others can't."""
        if not alone.ok:
            return [], "the launch that counts failed"
        if reason := sliced.refusal(SINGLE, self.study.found_device, "as_found"):
            return [], reason
        reasons = [f"{cell.env}: {why}" for cell in cells if (why := sliced.not_held(self.sites[cell.env]))]
        held = [cell for cell in cells if sliced.not_held(self.sites[cell.env]) is None]
        share = sliced.MEMORY_SHARE
        most = int(share * available_memory_bytes() / alone.seen_inside().memory.peak_rss_bytes)
        if most < len(held):
            reasons.append(f"{len(held)} launches would take more than {share:.0%} of the free memory")
        found = sorted(held, key=lambda cell: not cell.again)[:most]
        if all(cell.again for cell in found):
            found = []
        return found, reasons[0] if reasons else None

    def _round(self, cells: Sequence[Cell], alone: GridCell) -> tuple[Round, str | None]:
        """A round of these, and why it does not count. With fewer threads a step takes longer, so such a launch
        makes fewer of them, and ends with the others.
        """
        generator = random.Random(f"{self.study.seed}/{cells[0].job}")
        steps = STEADY_S / statistics.median(alone.profiled().plain_step_s)
        names = generator.sample([cell.name for cell in cells], len(cells))
        orders = {}
        for cell in cells:
            own = math.ceil(steps * cell.threads / alone.threads)
            order = self._order(cell, min(plain.MOST_STEPS, max(plain.LEAST_STEPS, own)))
            orders[cell.name] = replace(order, pad_bytes=generator.randrange(LARGEST_PAD_BYTES))
        for _ in range(ATTEMPTS):
            way = Way(
                pace=Pace.equal(names),
                orders=balanced_orders(len(names), generator),
                seed=str(generator.random()),
            )
            found = run_launches({name: orders[name] for name in names}, way)
            voided = found.voided or self._hosts_failed(cells, found)
            if voided is None:
                break
        return found, voided

    def _hosts_failed(self, cells: Sequence[Cell], found: Round) -> str | None:
        """Why none of the host's later launches has a time; None where one has."""
        hosts = [found.records[cell.name] for cell in cells if cell.again]
        return None if any(one.ok for one in hosts) else next((one.reason for one in hosts), "none was launched")

    def _of_round(
        self, cells: Sequence[Cell], found: Round, programs: Mapping[str, str]
    ) -> Iterator[tuple[Cell, GridCell]]:
        """Write the records of a round; one that failed in it takes no other's place."""
        hosts = tuple(
            statistics.mean(one.seen_inside().results_as(ProfileResults).plain_step_s)
            for one in (
                found.records[cell.name] for cell in sorted(cells, key=lambda cell: cell.again) if cell.again
            )
            if one.ok
        )
        for cell in cells:
            result = found.records[cell.name]
            if result.ok or self.kept(cell, programs[cell.name]) is None:
                yield cell, self._written(cell, programs[cell.name], result, hosts)

    def _order(self, cell: Cell, steps: int = 0) -> Order:
        return Order(
            site=with_data(self.sites[cell.env], cell, self.study),
            program=specification(cell, self.study, steps),
            conditions=_conditions(cell, self.study),
        )

    def _written(self, cell: Cell, programs: str, result: LaunchRecord, hosts: tuple[float, ...] = ()) -> GridCell:
        study = self.study
        found = GridCell(
            **result.given(),
            machine=facts.machine_name(),
            processor=self.processor,
            stack=study.stack,
            env=cell.env,
            device=study.found_device,
            workload=cell.workload,
            title=describe_workload(cell.workload, cell.options)["title"],
            batch=cell.batch,
            options=cell.options,
            threads=cell.threads,
            settings=dict([cell.setting] if cell.setting else []),
            again=cell.again,
            host_step_s=hosts,
            programs_sha256=programs,
        )
        found.write(self.folder / f"{cell.name}.json")
        return found


def measure_grid(
    source: str,
    images: Path | None,
    names: Sequence[str],
    *,
    minutes: float | None = None,
    only: Sequence[str] = (),
    settings: Sequence[tuple[str, str]] = (),
    out: Path | None = None,
) -> None:
    """Measure the cells that are missing, as many as begin in so many minutes.

    `source`: a study, for its stack, seed and conditions. `images`: folder of its image records. `names`:
    environments. `only`: workloads, all where none is named. `settings`: of the framework, each by itself. `out`:
    the folder; the machine's own where it is None.

    Raises UserError: the study is wrong, or a record of an image or of data is missing.
    """
    study = settled(load_part(RunPart, source))
    threads = sorted({1, study.conditions.cpus})
    wanted = [group for group in groups(names, threads, settings) if not only or group[0].workload in only]
    if not wanted:
        known = ", ".join(sorted({workload for workload, _, _ in JOBS}))
        raise UserError(f"the grid has none of {', '.join(only)}: it has {known}")
    own_data = sorted({group[0].workload for group in wanted if not makes_batches(group[0])})
    require([data_record(workload, study) for workload in own_data])
    folder = out or grid_folder(facts.machine_name(), study.stack)
    began = time.monotonic()
    with (
        measuring(folder / "any"),
        sites(study, None, [HOST, *(name for name in names if name != HOST)], images, None) as (here, gone, _),
    ):
        grid = Grid(study=study, folder=folder, sites=here, processor=facts.processor_name(study.found_device))
        possible = [[cell for cell in group if cell.env not in gone] for group in wanted]
        programs = {cell.name: programs_of(cell, study.stack) for group in possible for cell in group}
        missing = [
            group for group in possible if not all(grid.is_there(cell, programs[cell.name]) for cell in group)
        ]
        every, left = sum(map(len, possible)), sum(map(len, missing))
        say(f"{every} cells, {left} in groups to be measured into {folder}")
        done = launched = 0
        for group in missing:
            spent = time.monotonic() - began
            each = spent / launched if launched else LEAST_CELL_S
            if minutes is not None and done and spent + each * len(group) > minutes * 60:
                say(f"{left - done} cells are left for the next run: {minutes:g} minutes are over")
                return
            for cell, found in grid.measure_group(group, programs):
                launched += 1
                result = f"{1000 * found.step_s:.4g} ms a step" if found.ok else f"{found.status}: {found.reason}"
                say(f"{cell.name}: {result}")
            done += len(group)
            each = (time.monotonic() - began) / max(1, launched)
            say(f"{done} of {left} cells, {time_left(each * (left - done))}")


def count_job(
    source: str, images: Path | None, workload: str, options: Mapping[str, int | float], batch: int
) -> Counts:
    """What a step of a job does, counted from shapes by a launch on the host which trains nothing. Raises
    UserError: the study is wrong, or a record of an image or of data is missing. UnavailableError: the launch
    failed, and why.
    """
    study = settled(load_part(RunPart, source))
    cell = Cell(workload=workload, options=options, batch=batch, threads=1, env=HOST, counts=True)
    with sites(study, None, [HOST], images, None) as (here, _, _):
        spec = specification(cell, study).replace(steady_s=0.0)
        result = launch(with_data(here[HOST], cell, study), spec, _conditions(cell, study))
    if not result.ok:
        raise UnavailableError(f"a step of {workload} with batch {batch} could not be counted: {result.reason}")
    return result.seen_inside().results_as(ProfileResults).counts


def time_job(
    source: str, images: Path | None, workload: str, options: Mapping[str, int | float], batch: int, threads: int
) -> float:
    """Seconds of a training step of a job in one launch on the host, as the grid times its own. Raises as
    `count_job` does.
    """
    study = settled(load_part(RunPart, source))
    cell = Cell(workload=workload, options=options, batch=batch, threads=threads, env=HOST)
    with sites(study, None, [HOST], images, None) as (here, _, _), alone_on_this_machine():
        spec = specification(cell, study)
        result = launch(with_data(here[HOST], cell, study), spec, _conditions(cell, study))
    if not result.ok:
        raise UnavailableError(f"a step of {workload} with batch {batch} could not be timed: {result.reason}")
    return statistics.median(result.seen_inside().results_as(ProfileResults).plain_step_s)


def with_data(site: Site, cell: Cell, study: RunPart) -> Site:
    """A site with the data of a cell whose workload needs any."""
    if makes_batches(cell):
        return site
    return replace(site, data=data_of(cell.workload, data_record(cell.workload, study))[0])


def _conditions(cell: Cell, study: RunPart) -> Conditions:
    """Of a cell's launch: the study's, with the threads of the cell and the page cache as it is."""
    own = study.conditions.replace(threads=cell.threads, page_cache="as_found")
    chosen = dict([cell.setting] if cell.setting else []).get(ALLOCATOR, study.rounds.allocator)
    return own.of_launch(allocator=chosen, settings=settings_of(cell))


def programs_of(cell: Cell, stack: str) -> str:
    """Hash of all programs that a cell depends on."""
    return closure.code_sha256("grid", cell.workload, [cell.env], settings_of(cell), [framework_of(stack)])
