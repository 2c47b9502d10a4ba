"""What this machine measured, for the side-by-side with what others published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis.choice import SWEEP, compared
from tare.analysis.profile_rows import read_profile
from tare.literature.finding import listed
from tare.literature.vocabulary import UNIT_METRICS, kind_of
from tare.model import tables
from tare.model.journals import references
from tare.model.records.images import ProbeRecord, read_probes
from tare.model.records.machine import MachineRecord, read_machine
from tare.model.registry import DISTRIBUTED, HOST, SHARED, SINGLE
from tare.model.studies import layout
from tare.model.studies.layout import below_results

NO_SCENARIO = "the study runs no such scenario"
# Metrics of papers that have another name in a profiled launch.
OURS = {"flop_per_s": "step_flop_per_s", "gpu_utilization": "gpu_utilization_peak"}
COUNTED = "flops_measured"  # by ncu, of all units of the device
# They boot with every launch; where their processor is emulated they say nothing about speed.
GUESTS = ("vm",)
# Kinds of campaigns in a reader's words, and their units.
PLAIN = {"rounds": "whole runs", "steps": "training steps"}
AMONG = {SHARED: " next to a second job", DISTRIBUTED: " in several instances"}
MEDIAN_OF = {"rounds": "whole runs", "steps": "rounds"}
NO_STEPS = "; rounds.steps in its file adds them"
# What tables of papers call a quantity that was sampled or counted.
OF_TABLES = {"gpu_utilisation": "gpu_utilization", "flops": "flop_per_s", "memory_bandwidth": "dram_bytes_per_s"}
MEANS = {"gpu_utilisation": "gpu_utilization_mean"}
NOTES = {
    "step_flop_per_s": "an operator count divided by the unprofiled steps of one profiled launch",
    "gpu_utilization_peak": "largest sample of one launch while it trained unwatched: some kernel ran",
    "gpu_utilization_mean": "mean of the samples of one launch while it trained unwatched",
    "gpu_utilization_sd": "standard deviation of the samples of one launch while it trained unwatched",
    "gpu_utilization_cv": "standard deviation by mean of the samples of one launch while it trained unwatched",
}
NO_PROPERTY = "a setting of the paper's, and nothing that a machine has"
NO_GPU = "no profiled launch trained on a GPU"
COUNT = "an operator count of one training step, where the paper's is of the kernels of its profile"
PER_STEP = "per training step, where the paper's is of the whole run"


@dataclass(frozen=True, kw_only=True)
class Value:
    """One number of this machine in its metric's base unit, what it is, or why there is none.

    `kind` is measured, modelled or unavailable.
    """

    value: float | None
    kind: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a workload was measured with, as a launch on the host saw it; `stack` has versions by name."""

    device_class: str
    device: str
    stack: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Here:
    """Tables and records of one study on this machine; None is what was not recorded.

    `probes` are the trial launches by environment; a workload whose profiled launch on the host left no facts is in
    no `measured_with`.
    """

    metrics: pd.DataFrame
    verdicts: pd.DataFrame
    fingerprints: pd.DataFrame
    kernels: pd.DataFrame | None = None
    image_costs: pd.DataFrame | None = None
    machine: MachineRecord | None = None
    probes: Mapping[str, ProbeRecord]
    measured_with: Mapping[str, Conditions] = field(default_factory=dict)

    def lacks(self, env: str) -> bool:
        """Whether the study has nothing of an environment."""
        return not (self.metrics["launch"] == env).any()

    def scaled(
        self, workload: str, scenario: str = SINGLE, level: str | None = None, batch: int | None = None
    ) -> str | None:
        """How a workload's job was smaller than the published one; None where it was not, or not measured."""
        own = self.metrics[(self.metrics["workload"] == workload) & (self.metrics["scenario"] == scenario)]
        own = own[own["campaign"] != SWEEP] if batch is None else own[own["batch"] == batch]
        if scenario != SINGLE:
            own = compared(own, "rounds", level, scenario)
        texts = own["scaled"].dropna()
        return str(texts.iloc[0]) if len(texts) else None

    def value(
        self, workload: str, env: str, metric: str, batch: int | None = None, *,
        level: str | None = None, scenario: str = SINGLE,
    ) -> Value:  # fmt: skip
        """The number for a published one: at a batch size and a level, or the study's own and the headline's."""
        if lacking := no_scenario(self.metrics, scenario):
            return _none(lacking)
        own = self.metrics[self.metrics["workload"] == workload]
        if own.empty:
            return _none("this workload is not part of this study")
        metric = OURS.get(metric, metric)
        if metric in UNIT_METRICS:
            return _of_units(own, env, metric, batch, level, scenario)
        profile = own[(own["campaign"] == "profile") & (own["launch"] == env)]
        if profile.empty:
            return _none(f"{env} has no profiled launch in this study")
        if metric in ("log2_intensity", "log2_gflops"):
            return of_model(profile, metric)
        if metric == "flops" and ((profile["metric"] == COUNTED) & (profile["kind"] == "measured")).any():
            return _one(profile, COUNTED, "counted by ncu, of one training step")
        if metric == "flops" and not (profile["metric"] == "flops").any():
            return _one(profile, "flops_per_step", COUNT)
        if metric == OURS["flop_per_s"] and not (profile["metric"] == metric).any():
            return of_model(profile, "flop_per_s")
        if metric == "dram_bytes_per_s":
            return _both_ways(profile)
        if metric in NOTES:
            return _one(profile, metric, NOTES[metric])
        return _one(profile, metric, PER_STEP if metric.endswith("_s") and "per_s" not in metric else "one launch")

    def of_table(self, model: str, env: str, specification: str) -> Value:
        """The number for a row of a published table: what the paper sampled or counted of a model."""
        if specification not in OF_TABLES:
            return _none(NO_PROPERTY)
        return self.value(model, env, OF_TABLES[specification])

    def mean_of_table(self, model: str, env: str, specification: str) -> Value:
        """The mean over a launch for a row of a published table, which has the largest."""
        if specification not in MEANS:
            return _none("no mean of it is measured")
        return self.value(model, env, MEANS[specification])


def why_absent(envs: Sequence[str], scenario: str = SINGLE) -> list[str]:
    """Why a study lacks environments, and what would change that; what runs in a guest counts as a guest."""
    guests = [env for env in envs if env.rpartition(".")[2] in GUESTS]
    others = [env for env in envs if env not in guests]
    key = "" if scenario == SINGLE else f" and in {scenario}.environments"
    kvm, emulated = "on a machine where KVM boots a guest, ", "; an emulated one says nothing about speed"
    found = []
    for names, where, rest in ((guests, kvm, emulated), (others, "", "")):
        are, them = ("is", "it") if len(names) == 1 else ("are", "them")
        if names:
            mend = f"{where}name {them} there{key}{rest}"
            found.append(f"{listed(names)} {are} none of this study's environments: {mend}")
    return found


def no_scenario(metrics: pd.DataFrame, scenario: str) -> str | None:
    """Why nothing was measured under a scenario; None where something was."""
    ran = scenario == SINGLE or (metrics["scenario"] == scenario).any()
    return None if ran else f"{NO_SCENARIO}: {scenario}"


def gather(results: Path, shared: Path) -> Here:
    """Read what an audit needs: a study's tables and its machine's record, and what studies share.

    Raises UserError: a table is missing. IntegrityError: a table or a record is not what was written.
    """
    folder = results / "tables"
    kernels, costs = (
        tables.read(name, folder / f"{name}.csv") if (folder / f"{name}.csv").exists() else None
        for name in ("kernels", "image_costs")
    )
    metrics = tables.read("metrics", folder / "metrics.parquet")
    machine = tables.machine_of(metrics) or ""
    described = layout.of_machine(results, machine, layout.MACHINE_FILE)
    probes = shared / below_results(layout.probes_folder(machine))
    return replace(_read(folder, metrics, described, probes, shared), kernels=kernels, image_costs=costs)


def of_reference(folder: Path, made: Path) -> Here:
    """What another machine measured, from its reference campaign as recorded, and the tables made of it.

    Raises errors as `gather`.
    """
    metrics = tables.read("metrics", made / "metrics.parquet")
    return _read(made, metrics, folder / layout.MACHINE_FILE, references.probes_folder(folder), folder)


def _read(folder: Path, metrics: pd.DataFrame, machine: Path, probes: Path, shared: Path) -> Here:
    described = read_machine(machine)
    return Here(
        metrics=metrics,
        verdicts=tables.read("verdicts", folder / "verdicts.csv"),
        fingerprints=tables.read("fingerprints", folder / "fingerprints.csv"),
        machine=described,
        probes=read_probes(probes, set(metrics["environment"])),
        measured_with=measured_with(metrics, shared, described or MachineRecord()),
    )


def measured_with(metrics: pd.DataFrame, shared: Path, machine: MachineRecord) -> dict[str, Conditions]:
    """What each workload was measured with, from the facts of its profiled launch on the host.

    Raises IntegrityError: a profile is not what was written.
    """
    found = {}
    cells = metrics[["study", "machine", "workload"]].drop_duplicates()
    for study, machine_name, workload in cells.itertuples(index=False):
        path = references.profile_below(shared, study, machine_name, workload, HOST)
        record = read_profile(path) if path.exists() else None
        if record is None or not record.ok:
            continue
        facts = record.seen_inside().facts
        framework, stack = facts.framework, {"python": facts.python}
        device: Mapping[str, Any] = (machine.gpus or ({},))[0]
        if framework is not None:
            stack |= {framework.name: framework.version} | ({"cuda": framework.cuda} if framework.cuda else {})
            device = framework.device or device
        name = device.get("name") if record.on_cuda else machine.cpu_model
        found[workload] = Conditions(device_class="gpu" if record.on_cuda else "cpu", device=str(name), stack=stack)
    return found


def _none(reason: str) -> Value:
    return Value(value=None, kind="unavailable", note=reason)


def _of_units(
    own: pd.DataFrame, env: str, metric: str, batch: int | None, level: str | None, scenario: str
) -> Value:
    """Median over the units of whole runs or of their steps, or of the sweep at one batch size."""
    if batch is None:
        what = kind_of(metric)
        chosen = compared(own, what, level, scenario)
        if chosen.empty and level is not None:
            return _none(f"this study measured no {PLAIN[what]} at {level}{AMONG.get(scenario, '')}")
    else:
        chosen = own[(own["campaign"] == SWEEP) & (own["batch"] == batch)]
        what = f"runs at batch {batch}"
        swept = sorted({int(size) for size in own.loc[own["campaign"] == SWEEP, "batch"].dropna()})
        if chosen.empty and swept:
            return _none(f"this study's batch sizes are {', '.join(map(str, swept))}")
    only = ""
    if chosen.empty and what == "steps" and not compared(own, "rounds", None, scenario).empty:
        only = f", only whole runs{NO_STEPS}"
    chosen = chosen[(chosen["launch"] == env) & (chosen["metric"] == metric)]
    if chosen.empty:
        return _none(f"this study measured no {PLAIN.get(what, what)} of {env}{AMONG.get(scenario, '')}{only}")
    values = chosen.loc[chosen["kind"] == "measured", "value"]
    if values.empty:
        return _none(str(chosen["reason"].iloc[0]))
    return Value(
        value=float(values.median()), kind="measured", note=f"median of {len(values)} {MEDIAN_OF.get(what, what)}"
    )


def _both_ways(profile: pd.DataFrame) -> Value:
    """Bytes a second read and written together, by the device's counters."""
    read, written = (_one(profile, f"dram_{way}_bytes_per_s", "") for way in ("read", "write"))
    if read.value is None or written.value is None:
        return _none(read.note or written.note)
    return Value(value=read.value + written.value, kind="measured", note="counters of one launch, read and written")


def _one(profile: pd.DataFrame, metric: str, note: str) -> Value:
    """One metric of a profiled launch."""
    rows = profile[profile["metric"] == metric]
    if rows.empty:
        return _none(NO_GPU if metric.startswith("gpu_") else f"no profiled launch gives {metric}")
    row = rows.iloc[0]
    if row["kind"] == "unavailable":
        return _none(str(row["reason"]))
    return Value(value=float(row["value"]), kind=str(row["kind"]), note=note)


def of_model(profile: pd.DataFrame, metric: str) -> Value:
    """A point of the roofline from operator counts: its rate, or either axis in a paper's logarithms."""
    found = {
        name: _one(profile, name, "") for name in ("flops_per_step", "operator_bytes_per_step", "plain_step_s")
    }
    for name, one in found.items():
        if not one.value:
            return _none(f"{name}: {one.note or 'nothing was counted'}")
    flops, moved, step_s = (one.value or math.nan for one in found.values())
    if metric == "log2_intensity":
        note = "operator FLOPs divided by operator bytes"
        return Value(value=math.log2(flops / moved), kind="modelled", note=note)
    rate = flops / step_s
    value = rate if metric == "flop_per_s" else math.log2(rate / 1e9)
    note = "operator FLOPs divided by the unprofiled steps of one profiled launch"
    return Value(value=value, kind="modelled", note=note)
