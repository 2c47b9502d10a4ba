"""Everything that the report reads, in one place: tables and records of one study, nothing computed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pandas as pd

from tare.analysis.capacity.ceilings import read_ceilings
from tare.analysis.capacity.pipeline import read_pipeline
from tare.analysis.choice import KINDS, is_ours
from tare.analysis.decisions import Decision, read_decisions
from tare.machine.facts import machine_name
from tare.model import tables
from tare.model.journals.sealed import SealedCampaign, read_sealed, views
from tare.model.records import images as image_records
from tare.model.records import measured
from tare.model.records.machine import MachineRecord, read_machine
from tare.model.registry import SINGLE, describe_workload
from tare.model.schema import AnyFile, read
from tare.model.studies import layout
from tare.model.studies.campaigns import campaigns
from tare.model.studies.layout import SEALED, below_results, is_headline
from tare.model.studies.loading import load_checked
from tare.model.studies.papers import repeated
from tare.model.studies.stacks import BOUND, is_official
from tare.model.studies.study import Study, at_published_size
from tare.predict.answers import Answer, read_answers
from tare.report.figures.paper_rows import SAMPLE_TABLES
from tare.report.references import Broken, Reference
from tare.report.references import gather as gather_references

Campaign = SealedCampaign
Key = TypeVar("Key")
COPIES = "copies"  # a benchmark, by its name
IMAGE_COSTS = "image_costs"
TABLES = (
    "verdicts", "decisions", "job_length", "fingerprints", "families", "stack_profiles",
    "kernels", "image_costs", "ledger",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a finished study left behind: the whole study file, its folder of results, its tables and records.

    `published`, `claims`: of other studies (`papers`), judged by their own data and by this machine. `probes`,
    `images`: by environment. `trees`, `official`: trees and official images of all stacks, by stack. `campaigns`:
    all that are sealed, superseded ones left out. `profiles`: by workload and environment. `pipelines`: of the
    input alone. `answers`: of `tare optimise`. `references`: newest first.
    """

    study: Study
    results: Path
    metrics: pd.DataFrame
    verdicts: pd.DataFrame
    decisions: pd.DataFrame
    job_length: pd.DataFrame
    fingerprints: pd.DataFrame
    families: pd.DataFrame
    stack_profiles: pd.DataFrame
    kernels: pd.DataFrame
    image_costs: pd.DataFrame
    ledger: pd.DataFrame
    published: pd.DataFrame
    claims: pd.DataFrame
    papers: tuple[str, ...]
    machine: MachineRecord | None
    ceilings: measured.CeilingsRecord | None
    probes: Mapping[str, image_records.ProbeRecord]
    images: Mapping[str, image_records.AnyImage]
    data: Mapping[str, image_records.DataRecord]
    campaigns: tuple[Campaign, ...]
    trees: Mapping[str, image_records.TreeRecord] = field(default_factory=dict)
    official: Mapping[str, image_records.OciRecord] = field(default_factory=dict)
    curves: Mapping[tuple[str, str], measured.CurvesRecord] = field(default_factory=dict)
    samples: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    copies: measured.CopiesRecord | None = None
    profiles: Mapping[str, Mapping[str, measured.ProfileRecord]] = field(default_factory=dict)
    pipelines: Mapping[str, measured.PipelineRecord] = field(default_factory=dict)
    network: measured.NetworkRecord | None = None
    answers: Sequence[Answer] = ()
    references: Sequence[Reference] = ()
    broken_references: Sequence[Broken] = ()

    @cached_property
    def decided(self) -> list[Decision]:
        """What the tables decide, typed."""
        return read_decisions(self.decisions)

    @cached_property
    def views(self) -> tuple[Campaign, ...]:
        """The campaigns, and of each that measured training steps those alone, by level of the allocator."""
        return tuple(view for one in self.campaigns for view in views(one))

    @property
    def workloads(self) -> list[str]:
        """All of which the study measures whole runs: Tare's networks, then the user's own jobs."""
        return list(self.study.measured)

    @property
    def networks(self) -> list[str]:
        """Tare's own of them, which alone have profiles, causes, training steps and losses."""
        return list(self.study.workloads)

    @property
    def own_jobs(self) -> list[str]:
        """The user's own of them, each a command."""
        return list(self.study.own_jobs)

    @property
    def environments(self) -> list[str]:
        """The study's environments, in its order."""
        return list(self.study.environments)

    def headline(self, workload: str, kind: str) -> Campaign | None:
        """The workload's campaign of all the study's environments, of whole runs or of their steps."""
        return next((c for c in self.views if c.workload == workload and is_headline(c.name, kind)), None)

    def headlines(self, kind: str | None = None) -> list[Campaign]:
        """The headline campaigns of all workloads, of one kind or of both."""
        kinds = (kind,) if kind else KINDS
        found = (self.headline(workload, one) for workload in self.workloads for one in kinds)
        return [campaign for campaign in found if campaign is not None]

    def arms(self, workload: str | None = None) -> list[Campaign]:
        """The campaigns of arms with every environment at their level, of one workload or of all."""
        return [c for c in self._varied(workload) if is_ours(c.arm, stacks=False)]

    def other_stacks(self, workload: str | None = None) -> list[Campaign]:
        """The campaigns of other stacks, of one workload or of all."""
        return [c for c in self._varied(workload) if is_ours(c.arm, stacks=True)]

    def _varied(self, workload: str | None) -> list[Campaign]:
        alone = [c for c in self.views if c.plan.scenario == SINGLE]
        return [c for c in alone if c.arm is not None and workload in (None, c.workload)]


def gather(
    results: Path, shared: Path, study_source: str, images: Path | None = None, references: Path | None = None
) -> Evidence:
    """Read all that a report needs; the arguments are those of `tare.report.build`.

    `references`: the folder that has reference campaigns and their tables, if that is another than `shared`.

    Raises UserError: a table is missing, or the study is wrong. IntegrityError: something is not what was written.
    """
    study, images = load_checked(study_source), images or shared / "images"
    folder = results / "tables"
    metrics = tables.read("metrics", folder / "metrics.parquet")
    machine = tables.machine_of(metrics) or machine_name()
    papers, stacks = repeated(study.papers, study.workloads), study.stacks_needed

    def here(record: Path) -> Path:
        return shared / below_results(record)

    def table(name: str) -> pd.DataFrame:
        return tables.read(name, folder / f"{name}.csv")

    campaigns_folder = here(layout.study_folder(study.study, machine))
    sealed = tuple(
        read_sealed(path)
        for one in campaigns(study)
        if (path := campaigns_folder / one.workload / one.name / SEALED).exists()
    )
    roofs = layout.of_machine(results, machine, layout.CEILINGS_FILE)
    ceilings = read_ceilings(roofs) if roofs.exists() else None
    network = layout.of_machine(results, machine, layout.NETWORK_FILE)
    copies = here(layout.benchmark_record(machine, COPIES))
    found, broken = gather_references(references or shared)
    trees = {name: images / name / "tree.json" for name in stacks if name != BOUND}
    official = {name: images / name / "oci.json" for name in stacks if is_official(name)}
    curves = {(one.workload, one.name): one.path.with_name(measured.CURVES) for one in sealed}
    passes = study.pipeline.workloads if study.pipeline else ()
    profiles = {
        name: {env: here(layout.profile_record(study.study, machine, name, env)) for env in study.environments}
        for name in study.workloads
    }
    return Evidence(
        study=at_published_size(study.replace(device=_device(study, ceilings, sealed))),
        results=results,
        metrics=metrics,
        **{name: table(name) for name in TABLES if name != IMAGE_COSTS},
        # Commands alone have no image whose costs are counted.
        image_costs=table(IMAGE_COSTS) if study.workloads else tables.make(IMAGE_COSTS, []),
        # Of a study that repeats no paper nothing was judged.
        **{name: table(name) if papers else tables.make(name, []) for name in ("published", "claims")},
        samples={name: table(name) for name in SAMPLE_TABLES} if papers else {},
        papers=papers,
        machine=read_machine(layout.of_machine(results, machine, layout.MACHINE_FILE)),
        ceilings=ceilings,
        probes=image_records.read_probes(here(layout.probes_folder(machine)), study.environments),
        images=image_records.read_images(images / study.stack) if study.workloads else {},
        trees=_existing(image_records.TreeRecord, trees) if study.workloads else {},
        official=_existing(image_records.OciRecord, official),
        data=_data_of(study, shared / "data"),
        campaigns=sealed,
        curves=_existing(measured.CurvesRecord, curves),
        copies=read(measured.CopiesRecord, copies) if copies.exists() else None,
        answers=read_answers(results, machine),
        references=found,
        broken_references=broken,
        profiles={name: _existing(measured.ProfileRecord, paths) for name, paths in profiles.items()},
        pipelines={
            name: read_pipeline(path)
            for name in passes
            if (path := here(layout.pipeline_record(study.study, machine, name))).exists()
        },
        network=read(measured.NetworkRecord, network) if study.distributed and network.exists() else None,
    )


def _existing(kind: type[AnyFile], paths: Mapping[Key, Path]) -> dict[Key, AnyFile]:
    """The records that are there, by what they are of."""
    return {key: read(kind, path) for key, path in paths.items() if path.exists()}


def _device(study: Study, ceilings: measured.CeilingsRecord | None, sealed: Sequence[Campaign]) -> str:
    """Where the study trained: its own word, or what the machine that measured made of `auto`."""
    used = [ceilings.device if ceilings else None, *(campaign.plan.spec.device for campaign in sealed)]
    return study.device if study.device != "auto" else next(filter(None, used), "cpu")


def _data_of(study: Study, folder: Path) -> dict[str, image_records.DataRecord]:
    """Records of the data sets that the study's workloads use; others of the same folder are not its own."""
    used = sorted({describe_workload(name)["dataset"] for name in study.workloads})
    paths = {name: folder / f"{study.data.record_of(name)}.json" for name in used}
    return _existing(image_records.DataRecord, paths)
