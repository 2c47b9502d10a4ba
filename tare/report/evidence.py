"""Everything that the report reads, in one place: tables and records of one study, nothing computed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd

from tare.analysis.ceilings import read_ceilings
from tare.analysis.choice import KINDS, is_ours
from tare.analysis.decisions import Decision, read_decisions
from tare.analysis.network import read_network
from tare.analysis.pipeline import read_pipeline
from tare.machine.facts import machine_name
from tare.model import tables
from tare.model.journals.sealed import SealedCampaign, read_sealed, views
from tare.model.records.images import (
    AnyImage,
    DataRecord,
    OciRecord,
    ProbeRecord,
    TreeRecord,
    read_images,
    read_probes,
)
from tare.model.records.machine import MachineRecord, read_machine
from tare.model.records.measured import (
    CURVES,
    CeilingsRecord,
    CopiesRecord,
    CurvesRecord,
    NetworkRecord,
    PipelineRecord,
    ProfileRecord,
)
from tare.model.registry import SINGLE, describe_workload
from tare.model.schema import read
from tare.model.studies import layout
from tare.model.studies.layout import SEALED, below_results, is_headline
from tare.model.studies.papers import repeated
from tare.model.studies.stacks import BOUND, is_official
from tare.model.studies.study import Study, at_published_size, campaigns, load_checked
from tare.report.figures.paper_rows import SAMPLE_TABLES
from tare.report.references import Broken, Reference
from tare.report.references import gather as gather_references

Campaign = SealedCampaign
COPIES = "copies"  # a benchmark, by its name
IMAGE_COSTS = "image_costs"
TABLES = (
    "verdicts", "decisions", "job_length", "counts", "fingerprints", "families", "stack_profiles",
    "kernels", "image_costs", "ledger",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a finished study left behind.

    Attributes:
        study: the whole study file.
        results: its folder of results.
        metrics, verdicts, decisions, counts, job_length, fingerprints, families, stack_profiles,
            kernels, image_costs, ledger: its tables.
        published, claims: what other studies published, judged by their own data and by this machine.
        samples: its tables of samples, by name.
        papers: those that it repeats.
        machine, ceilings: records of the machine, None where they are missing.
        probes, images, data: records by environment, by environment, by data set.
        trees: records of the trees of all stacks, by stack.
        campaigns: all that are sealed, superseded ones left out: headlines, arms, causes, sweeps; `views` are these
            and the training steps that they measured.
        copies: how much copies of the files differ on this machine, None where nobody measured it.
        profiles: records of profiled launches by workload and environment.
        pipelines: of the input alone, by workload.
        network: of instances that train together, None where it was not measured.
        references, broken_references: campaigns recorded on other machines, newest first; those that can't be read.
    """

    study: Study
    results: Path
    metrics: pd.DataFrame
    verdicts: pd.DataFrame
    decisions: pd.DataFrame
    job_length: pd.DataFrame
    counts: pd.DataFrame
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
    ceilings: CeilingsRecord | None
    probes: Mapping[str, ProbeRecord]
    images: Mapping[str, AnyImage]
    data: Mapping[str, DataRecord]
    campaigns: tuple[Campaign, ...]
    trees: Mapping[str, TreeRecord] = field(default_factory=dict)
    official: Mapping[str, OciRecord] = field(default_factory=dict)
    curves: Mapping[tuple[str, str], CurvesRecord] = field(default_factory=dict)
    samples: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    copies: CopiesRecord | None = None
    profiles: Mapping[str, Mapping[str, ProfileRecord]] = field(default_factory=dict)
    pipelines: Mapping[str, PipelineRecord] = field(default_factory=dict)
    network: NetworkRecord | None = None
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


def gather(results: Path, shared: Path, study_source: str, images: Path | None = None) -> Evidence:
    """Read all that a report needs.

    Args:
        results: folder of the study's tables, and of what it says of the machine that they are of.
        shared: folder of what studies share: campaigns, profiles, images, data, probes.
        study_source: the study file, or the study as inline JSON.
        images: folder of the images of all stacks; None for that of `shared`.

    Raises:
        UserError: a table is missing, or the study is wrong.
        IntegrityError: a table or a campaign is not what was written.
    """
    study, images = load_checked(study_source), images or shared / "images"
    folder = results / "tables"
    metrics = tables.read("metrics", folder / "metrics.parquet")
    machine = tables.machine_of(metrics) or machine_name()
    roofs = layout.of_machine(results, machine, layout.CEILINGS_FILE)
    ceilings = read_ceilings(roofs) if roofs.exists() else None
    sealed = _campaigns(shared / below_results(layout.study_folder(study.study, machine)), study)
    copies = shared / below_results(layout.benchmark_record(machine, COPIES))
    found, broken = gather_references(shared, results)
    papers = repeated(study.papers, study.workloads)
    return Evidence(
        study=at_published_size(study.replace(device=_device(study, ceilings, sealed))),
        results=results,
        metrics=metrics,
        **{name: _table(name, folder, study) for name in TABLES},
        published=_judged("published", folder, papers),
        claims=_judged("claims", folder, papers),
        samples={name: tables.read(name, folder / f"{name}.csv") for name in SAMPLE_TABLES} if papers else {},
        papers=papers,
        machine=read_machine(layout.of_machine(results, machine, layout.MACHINE_FILE)),
        ceilings=ceilings,
        probes=read_probes(shared / below_results(layout.probes_folder(machine)), study.environments),
        images=read_images(images / study.stack) if study.workloads else {},
        trees=_trees(images, study) if study.workloads else {},
        official=_official(images, study),
        data=_data_of(study, shared / "data"),
        campaigns=sealed,
        curves=_curves(sealed),
        copies=read(CopiesRecord, copies) if copies.exists() else None,
        references=found,
        broken_references=broken,
        profiles=_profiles(shared, study, machine),
        pipelines=_pipelines(shared, study, machine),
        network=_network(layout.of_machine(results, machine, layout.NETWORK_FILE), study),
    )


def _table(name: str, folder: Path, study: Study) -> pd.DataFrame:
    """A table of the study; one of commands alone counts the costs of no image."""
    if name == IMAGE_COSTS and not study.workloads:
        return tables.make(name, [])
    return tables.read(name, folder / f"{name}.csv")


def _curves(sealed: Sequence[Campaign]) -> dict[tuple[str, str], CurvesRecord]:
    """Curves of losses, by workload and campaign of another stack or of a graph compiler."""
    paths = {(one.workload, one.name): one.path.with_name(CURVES) for one in sealed}
    return {key: read(CurvesRecord, path) for key, path in paths.items() if path.exists()}


def _trees(folder: Path, study: Study) -> dict[str, TreeRecord]:
    paths = {name: folder / name / "tree.json" for name in study.stacks_needed if name != BOUND}
    return {name: read(TreeRecord, path) for name, path in paths.items() if path.exists()}


def _official(folder: Path, study: Study) -> dict[str, OciRecord]:
    paths = {name: folder / name / "oci.json" for name in study.stacks_needed if is_official(name)}
    return {name: read(OciRecord, path) for name, path in paths.items() if path.exists()}


def _device(study: Study, ceilings: CeilingsRecord | None, sealed: Sequence[Campaign]) -> str:
    """Where the study trained: its own word, or what the machine that measured made of `auto`."""
    if study.device != "auto":
        return study.device
    used = [ceilings.device if ceilings else None, *(campaign.plan.spec.device for campaign in sealed)]
    return next((device for device in used if device), "cpu")


def _judged(name: str, folder: Path, papers: Sequence[str]) -> pd.DataFrame:
    """What was judged of the papers that the study repeats; one that repeats none has nothing judged."""
    return tables.read(name, folder / f"{name}.csv") if papers else tables.make(name, [])


def _profiles(shared: Path, study: Study, machine: str) -> dict[str, dict[str, ProfileRecord]]:
    """The profiled launches that left a record."""
    found: dict[str, dict[str, ProfileRecord]] = {}
    for workload in study.workloads:
        for env in study.environments:
            path = shared / below_results(layout.profile_record(study.study, machine, workload, env))
            if path.exists():
                found.setdefault(workload, {})[env] = read(ProfileRecord, path)
    return found


def _pipelines(shared: Path, study: Study, machine: str) -> dict[str, PipelineRecord]:
    """What was measured of the input alone, where the study asks for it."""
    named = study.pipeline.workloads if study.pipeline else ()
    records = {name: layout.pipeline_record(study.study, machine, name) for name in named}
    paths = {name: shared / below_results(record) for name, record in records.items()}
    return {name: read_pipeline(path) for name, path in paths.items() if path.exists()}


def _network(path: Path, study: Study) -> NetworkRecord | None:
    """What was measured of the network, where the study trains instances together."""
    return read_network(path) if study.distributed and path.exists() else None


def _data_of(study: Study, folder: Path) -> dict[str, DataRecord]:
    """Records of the data sets that the study's workloads use; others of the same folder are not its own."""
    used = sorted({describe_workload(name)["dataset"] for name in study.workloads})
    paths = {name: folder / f"{study.data.record_of(name)}.json" for name in used}
    return {name: read(DataRecord, path) for name, path in paths.items() if path.exists()}


def _campaigns(folder: Path, study: Study) -> tuple[Campaign, ...]:
    """The campaigns that the study's tables judge, of each workload: headlines, arms, causes, the sweep."""
    paths = [folder / one.workload / one.name / SEALED for one in campaigns(study)]
    return tuple(read_sealed(path) for path in paths if path.exists())
