"""A grid of cheap launches that a performance model is trained on: jobs by batch, threads and environment.

Each cell is one launch of some seconds, which times steps on batches in memory and watches nothing, and is a
separate record, so that the grid goes on where it was left. First comes the middle batch of each job at most
threads, in every environment and with every setting one right after the other, since each is compared with the
host's cell. At the end of these the host's cell is measured once more (A/A control). Then come the host's other
batches and threads, of all jobs in turn, so that any part of the grid has some cells of each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.progress import say, time_left
from tare.core.remedies import require
from tare.experiments.alone import measuring
from tare.launch.place import Site
from tare.launch.run import launch
from tare.launch.sites import data_of, data_record, sites
from tare.machine import facts
from tare.machine.fitting import settled
from tare.model import closure
from tare.model.conditions import Conditions
from tare.model.levels import ALLOCATOR
from tare.model.records.launches import Counts, ProfileResults
from tare.model.records.measured import GridCell
from tare.model.registry import HOST, describe_workload, whole_options
from tare.model.schema import read
from tare.model.specification import Specification
from tare.model.studies.layout import grid_folder
from tare.model.studies.loading import load_part
from tare.model.studies.stacks import framework_of
from tare.model.studies.study import RunPart

WARMUP_STEPS = 2
STEADY_S = 1.5  # of steps that count
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
    again: bool = False  # the A/A control: the same launch a second time

    @property
    def job(self) -> str:
        """Workload, options and batch, as names of records have them."""
        chosen = [f"{key}-{value:g}" for key, value in sorted(self.options.items())]
        return ".".join([self.workload, *chosen, f"b{self.batch}"])

    @property
    def name(self) -> str:
        """Name of its record."""
        own = [] if self.setting is None else ["-".join(self.setting)]
        own += ["again"] * self.again
        return ".".join([self.job, f"t{self.threads}", self.env, *own])


def cells(
    environments: Sequence[str], threads: Sequence[int], settings: Sequence[tuple[str, str]] = ()
) -> list[Cell]:
    """The whole grid, in the order in which it is measured; `threads` in rising order."""
    most, first, later = threads[-1], list[Cell](), list[list[Cell]]()
    for workload, options, batches in JOBS:
        middle = batches[len(batches) // 2]
        own = [
            Cell(workload=workload, options=options, batch=batch, threads=count, env=HOST, counts=count == most)
            for batch in sorted(batches, key=lambda batch: batch != middle)
            for count in reversed(threads)
        ]
        elsewhere = [
            Cell(workload=workload, options=options, batch=middle, threads=most, env=env)
            for env in environments
            if env != HOST
        ]
        set_otherwise = [replace(own[0], setting=setting, counts=False) for setting in settings]
        first += [own[0], *elsewhere, *set_otherwise, replace(own[0], counts=False, again=True)]
        later.append(own[1:])
    return first + [row[turn] for turn in range(max(map(len, later))) for row in later if turn < len(row)]


def makes_batches(cell: Cell) -> bool:
    """Whether its workload makes a batch itself, so that no data are needed."""
    return "inputs" in describe_workload(cell.workload, cell.options)


def settings_of(cell: Cell) -> dict[str, str]:
    """Settings of its launch."""
    own = [cell.setting] if cell.setting is not None and cell.setting[0] != ALLOCATOR else []
    return {**({"input": "synthetic"} if makes_batches(cell) else {}), **dict(own)}


def specification(cell: Cell, study: RunPart) -> Specification:
    """What the launch of a cell does inside."""
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
        steady_s=STEADY_S,
    )


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Where cells are measured."""

    study: RunPart
    folder: Path
    sites: Mapping[str, Site]
    processor: str

    def is_there(self, cell: Cell, programs: str) -> bool:
        """Whether a cell was measured by these programs; one that failed is tried once in each run."""
        path = self.folder / f"{cell.name}.json"
        if not path.exists():
            return False
        try:
            found = read(GridCell, path)
        except IntegrityError as error:
            say(f"{error}: measured again")
            return False
        return found.ok and found.programs_sha256 == programs

    def measure(self, cell: Cell, programs: str) -> GridCell:
        """Launch a cell and write its record, whatever came of it."""
        study, described = self.study, describe_workload(cell.workload, cell.options)
        result = launch(
            with_data(self.sites[cell.env], cell, study), specification(cell, study), _conditions(cell, study)
        )
        found = GridCell(
            **result.given(),
            machine=facts.machine_name(),
            processor=self.processor,
            stack=study.stack,
            env=cell.env,
            device=study.found_device,
            workload=cell.workload,
            title=described["title"],
            batch=cell.batch,
            options=cell.options,
            threads=cell.threads,
            settings=dict([cell.setting] if cell.setting else []),
            again=cell.again,
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
    wanted = [cell for cell in cells(names, threads, settings) if not only or cell.workload in only]
    if not wanted:
        known = ", ".join(sorted({workload for workload, _, _ in JOBS}))
        raise UserError(f"the grid has none of {', '.join(only)}: it has {known}")
    own_data = sorted({cell.workload for cell in wanted if not makes_batches(cell)})
    require([data_record(workload, study) for workload in own_data])
    folder = out or grid_folder(facts.machine_name(), study.stack)
    began = time.monotonic()
    with (
        measuring(folder / "any"),
        sites(study, None, [HOST, *(name for name in names if name != HOST)], images, None) as (here, gone, _),
    ):
        grid = Grid(study=study, folder=folder, sites=here, processor=facts.processor_name(study.found_device))
        missing = [
            (cell, programs)
            for cell in wanted
            if cell.env not in gone and not grid.is_there(cell, programs := programs_of(cell, study.stack))
        ]
        say(f"{len(wanted)} cells, {len(missing)} of them to be measured into {folder}")
        for number, (cell, programs) in enumerate(missing):
            spent = time.monotonic() - began
            each = spent / number if number else LEAST_CELL_S
            if minutes is not None and spent + each > minutes * 60:
                say(f"{len(missing) - number} cells are left for the next run: {minutes:g} minutes are over")
                return
            found = grid.measure(cell, programs)
            result = f"{_median_ms(found):.4g} ms a step" if found.ok else f"{found.status}: {found.reason}"
            left = time_left(each * (len(missing) - number - 1))
            say(f"{number + 1} of {len(missing)}, {cell.name}: {result}, {left}")


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


def _median_ms(found: GridCell) -> float:
    return statistics.median(found.profiled().plain_step_s) * 1000
