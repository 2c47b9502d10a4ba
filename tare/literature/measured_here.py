"""What this machine measured, for the side-by-side with what others published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
# They boot with every launch; where their processor is emulated they tell nothing of speed.
GUESTS = ("vm",)
# Kinds of campaigns in a reader's words, and their units.
PLAIN = {"rounds": "whole runs", "steps": "training steps"}
AMONG = {SHARED: " beside a second job", DISTRIBUTED: " in several instances"}
MEDIAN_OF = {"rounds": "whole runs", "steps": "rounds"}
NO_STEPS = "; rounds.steps in its file adds them"
# What tables of papers call a quantity that was sampled or counted.
OF_TABLES = {"gpu_utilisation": "gpu_utilization", "flops": "flop_per_s", "memory_bandwidth": "dram_bytes_per_s"}
MEANS = {"gpu_utilisation": "gpu_utilization_mean"}
NOTES = {
    "step_flop_per_s": "an operator count by the unprofiled steps of one profiled launch",
    "gpu_utilization_peak": "largest sample of one launch while it trained unwatched: some kernel ran",
    "gpu_utilization_mean": "mean of the samples of one launch while it trained unwatched",
    "gpu_utilization_sd": "standard deviation of the samples of one launch while it trained unwatched",
    "gpu_utilization_cv": "standard deviation by mean of the samples of one launch while it trained unwatched",
}
NO_PROPERTY = "a setting of the paper's, and nothing that a machine has"
NO_GPU = "no profiled launch trained on a GPU"
PER_STEP = "per training step, where the paper's is of the whole run"


@dataclass(frozen=True, kw_only=True)
class Value:
    """One number of this machine.

    Attributes:
        value: in the metric's base unit; None where it is unavailable.
        kind: measured, modelled or unavailable.
        note: what it is, or why there is none.
    """

    value: float | None
    kind: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a workload was measured with here, as a launch on the host saw it.

    Attributes:
        device_class: cpu or gpu.
        device: its name.
        stack: versions by name: `python`, the framework's, and `cuda` where it has one.
    """

    device_class: str
    device: str
    stack: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Here:
    """Tables and records of one study on this machine.

    Attributes:
        metrics, verdicts, fingerprints: its tables.
        kernels: the table of kernels, None where no campaign of causes was run.
        image_costs: what images cost, None where it was not counted.
        machine: record of the machine, None where it is missing.
        probes: records of the trial launches, by environment.
        measured_with: by workload; one whose profiled launch on the host left no facts is not in it.
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
        told = own["scaled"].dropna()
        return str(told.iloc[0]) if len(told) else None

    def value(
        self, workload: str, env: str, metric: str, batch: int | None = None, *,
        level: str | None = None, scenario: str = SINGLE,
    ) -> Value:  # fmt: skip
        """The number beside a published one: a metric of a figure, in one environment.

        Args:
            workload: ours.
            env: ours.
            metric: of the published figure.
            batch: of a figure by batch size; None takes the study's own.
            level: of a factor, `factor=level`; None takes the headline's.
            scenario: what ran beside it.
        """
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
            return _one(
                profile,
                "flops_per_step",
                "an operator count of one training step, where the paper's is of the kernels of its profile",
            )
        if metric == OURS["flop_per_s"] and not (profile["metric"] == metric).any():
            return of_model(profile, "flop_per_s")
        if metric == "dram_bytes_per_s":
            return _both_ways(profile)
        if metric in NOTES:
            return _one(profile, metric, NOTES[metric])
        return _one(profile, metric, PER_STEP if metric.endswith("_s") and "per_s" not in metric else "one launch")

    def of_table(self, model: str, env: str, specification: str) -> Value:
        """The number beside a row of a published table: what the paper sampled or counted of a model."""
        if specification not in OF_TABLES:
            return _none(NO_PROPERTY)
        return self.value(model, env, OF_TABLES[specification])

    def mean_of_table(self, model: str, env: str, specification: str) -> Value:
        """The mean over a launch beside a row of a published table, which has the largest."""
        if specification not in MEANS:
            return _none("no mean of it is measured")
        return self.value(model, env, MEANS[specification])


def why_absent(envs: Sequence[str], scenario: str = SINGLE) -> list[str]:
    """Why a study lacks environments, and what would change that; what runs in a guest stands with the guests."""
    guests = [env for env in envs if env.rpartition(".")[2] in GUESTS]
    others = [env for env in envs if env not in guests]
    found, key = [], "" if scenario == SINGLE else f" and in {scenario}.environments"
    for names, where, rest in (
        (guests, "on a machine where KVM boots a guest, ", "; an emulated one tells nothing of speed"),
        (others, "", ""),
    ):
        if names:
            are, them = ("is", "it") if len(names) == 1 else ("are", "them")
            found.append(
                f"{listed(names)} {are} none of this study's environments: {where}name {them} there{key}{rest}"
            )
    return found


def no_scenario(metrics: pd.DataFrame, scenario: str) -> str | None:
    """Why nothing was measured under a scenario; None where something was."""
    ran = scenario == SINGLE or (metrics["scenario"] == scenario).any()
    return None if ran else f"{NO_SCENARIO}: {scenario}"


def gather(results: Path, shared: Path) -> Here:
    """Read what an audit needs.

    Args:
        results: folder of the study's tables, and of the record of the machine that they are of.
        shared: folder of what studies share: the probes and the profiled launches.

    Raises:
        UserError: a table is missing.
        IntegrityError: a table or a record is not what was written.
    """
    folder = results / "tables"
    kernels, costs = folder / "kernels.csv", folder / "image_costs.csv"
    metrics = tables.read("metrics", folder / "metrics.parquet")
    machine = tables.machine_of(metrics) or ""
    described = read_machine(layout.of_machine(results, machine, layout.MACHINE_FILE))
    return Here(
        metrics=metrics,
        verdicts=tables.read("verdicts", folder / "verdicts.csv"),
        fingerprints=tables.read("fingerprints", folder / "fingerprints.csv"),
        kernels=tables.read("kernels", kernels) if kernels.exists() else None,
        image_costs=tables.read("image_costs", costs) if costs.exists() else None,
        machine=described,
        probes=read_probes(shared / below_results(layout.probes_folder(machine)), set(metrics["environment"])),
        measured_with=measured_with(metrics, shared, described or MachineRecord()),
    )


def of_reference(folder: Path, made: Path) -> Here:
    """What another machine measured, from its reference campaign.

    Args:
        folder: as it was recorded.
        made: the tables that were made of it.

    Raises:
        UserError, IntegrityError: as `gather`.
    """
    metrics = tables.read("metrics", made / "metrics.parquet")
    machine = read_machine(folder / layout.MACHINE_FILE)
    return Here(
        metrics=metrics,
        verdicts=tables.read("verdicts", made / "verdicts.csv"),
        fingerprints=tables.read("fingerprints", made / "fingerprints.csv"),
        machine=machine,
        probes=read_probes(references.probes_folder(folder), set(metrics["environment"])),
        measured_with=measured_with(metrics, folder, machine or MachineRecord()),
    )


def measured_with(metrics: pd.DataFrame, shared: Path, machine: MachineRecord) -> dict[str, Conditions]:
    """What each workload was measured with, from the facts of its profiled launch on the host.

    Args:
        metrics: the table; its workloads count.
        shared: as for `gather`.
        machine: record of the machine, which names what the launch does not; empty where it is missing.

    Raises:
        IntegrityError: a profile is not what was written.
    """
    found = {}
    cells = metrics[["study", "machine", "workload"]].drop_duplicates()
    for study, machine_name, workload in cells.itertuples(index=False):
        path = references.profile_below(shared, study, machine_name, workload, HOST)
        record = read_profile(path) if path.exists() else None
        if record is None or not record.ok:
            continue
        facts = record.seen_inside().facts
        framework = facts.framework
        stack = {"python": facts.python}
        if framework is not None:
            stack[framework.name] = framework.version
            stack.update({"cuda": framework.cuda} if framework.cuda else {})
        device: Mapping[str, Any] = (framework.device if framework else None) or (machine.gpus or ({},))[0]
        found[workload] = Conditions(
            device_class="gpu" if record.on_cuda else "cpu",
            device=str(device.get("name") if record.on_cuda else machine.cpu_model),
            stack=stack,
        )
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
    stepless = chosen.empty and what == "steps"
    chosen = chosen[(chosen["launch"] == env) & (chosen["metric"] == metric)]
    if chosen.empty:
        only = (
            f", only whole runs{NO_STEPS}" if stepless and not compared(own, "rounds", None, scenario).empty else ""
        )
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
    names = ("flops_per_step", "operator_bytes_per_step", "plain_step_s")
    found = {name: _one(profile, name, "") for name in names}
    flops, moved, step_s = (found[name].value for name in names)
    for name in names:
        if not found[name].value:
            return _none(f"{name}: {found[name].note or 'nothing was counted'}")
    assert flops is not None and moved is not None and step_s is not None
    if metric == "log2_intensity":
        return Value(value=math.log2(flops / moved), kind="modelled", note="operator FLOPs by operator bytes")
    rate = flops / step_s
    return Value(
        value=rate if metric == "flop_per_s" else math.log2(rate / 1e9),
        kind="modelled",
        note="operator FLOPs by the unprofiled steps of one profiled launch",
    )
