"""Records to metrics: every number with its unit, its kind, its source, and the reason where there is none.

Kinds: `measured` was read off a clock or a counter; `modelled` follows from a model (operator counts);
`unavailable` could not be had, and says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis import device_rows
from tare.analysis.cause_rows import FIRST, cause_metrics, kernel_rows
from tare.analysis.launch_rows import whole_run_metrics
from tare.core.errors import IntegrityError
from tare.core.files import sha256_file
from tare.experiments import turns
from tare.experiments.campaign import counted
from tare.model.arms import stack_of
from tare.model.rows import measured, modelled, unavailable
from tare.model.study import BASELINE, HOST
from tare.profilers import timeline, torch_trace

SCENARIO = "single"  # one training job alone on the machine
NO_DEVICE = "the device is a CPU: it has no memory of its own that data would be copied to"
NO_COUNTERS = "needs hardware counters of the memory controller, which this device or machine does not give"
COUNTER_METRICS = {
    "dram_read_bytes": "B",
    "dram_write_bytes": "B",
    "dram_read_bytes_per_s": "B/s",
    "dram_write_bytes_per_s": "B/s",
    "hbm_transactions": "1",
}
# Host-side operators under their own names, as a CPU has no memset or HtoD.
HOST_SIDE = {"host_fill_s": ("aten::fill_", "aten::zero_"), "host_copy_s": ("aten::copy_",)}

# Metric and source that stand for a launch that could not be.
ANSWERS = {
    "rounds": ("real_s", "launcher"),
    "sweep": ("real_s", "launcher"),
    "turns": ("turn_step_s", "turns"),
    "causes": (FIRST, "marks"),
}


def campaign_metrics(plan: Mapping[str, Any], units: Iterable[Mapping[str, Any]], campaign: str) -> list[dict]:
    """Rows of a sealed campaign; units that are discarded or void are left out."""
    rows = []
    for unit in counted(list(units)):
        for env, batch, found in _unit_rows(plan, unit):
            identity = identify(plan, campaign, env, batch)
            rows += [{**identity, "rep": unit["unit"], **row} for row in found]
    metric, source = ANSWERS[plan["kind"]]
    for env, reason in plan["unavailable"].items():
        identity = identify(plan, campaign, env, plan["spec"]["batch"])
        rows.append({**identity, "rep": None, **unavailable(metric, "s", source, reason)})
    return rows


def campaign_kernels(
    plan: Mapping[str, Any], units: Iterable[Mapping[str, Any]], campaign: str
) -> list[dict[str, Any]]:
    """Kernel rows of a campaign of causes; none of any other."""
    if plan["kind"] != "causes":
        return []
    return [
        {**identify(plan, campaign, env, plan["spec"]["batch"]), "rep": unit["unit"], **row}
        for unit in counted(list(units))
        for env, launch in unit["launches"].items()
        for row in kernel_rows(launch)
    ]


def _unit_rows(plan: Mapping[str, Any], unit: Mapping[str, Any]) -> Iterable[tuple[str, int, list[dict[str, Any]]]]:
    if plan["kind"] == "turns":
        values = turns.unit_values(unit)
        for name, launch in unit["launches"].items():
            yield name, plan["spec"]["batch"], turn_metrics(launch, values.get(name))
        return
    if plan["kind"] == "causes":
        for name, launch in unit["launches"].items():
            yield name, plan["spec"]["batch"], cause_metrics(launch)
        return
    for name, launch in unit["launches"].items():
        env, batch = (HOST, int(name)) if plan["kind"] == "sweep" else (name, plan["spec"]["batch"])
        yield env, batch, whole_run_metrics(launch)


def turn_metrics(launch: Mapping[str, Any], step_s: float | None) -> list[dict[str, Any]]:
    """Metrics of one launch of a block: its robust step, the mean of its counted steps, and what goes with them.

    Args:
        launch: its record.
        step_s: from the block's fit (`turns.unit_values`).
    """
    if launch["status"] != "ok" or step_s is None:
        reason = f"{launch['status']}: {launch['reason'] or 'the block has no fit'}"
        return [unavailable("turn_step_s", "s", "turns", reason)]
    turned = [draw["turns"] for draw in launch["draws"]]
    steps = [step for turn in turned for burst in turn["step_s"] for step in burst]
    made = sum(len(burst) for turn in turned for key in ("discarded_s", "step_s") for burst in turn[key])
    return [
        measured("turn_step_s", step_s, "s", "turns"),
        measured("turn_step_mean_s", statistics.fmean(steps), "s", "turns"),
        measured("step_cpu_s", sum(sum(turn["cpu_s"]) for turn in turned) / made, "s", "getrusage"),
        measured("step_system_s", sum(sum(turn["system_s"]) for turn in turned) / made, "s", "getrusage"),
        measured("step_page_faults", sum(sum(turn["faults"]) for turn in turned) / made, "1", "getrusage"),
        measured("turn_loss_last", turned[-1]["loss_last"][-1], "1", "workload"),
        measured("turn_peak_rss_bytes", max(draw["peak_rss_bytes"] for draw in launch["draws"]), "B", "getrusage"),
    ]


def identify(plan: Mapping[str, Any], campaign: str, env: str, batch: int | None) -> dict[str, Any]:
    """The identity that every row carries."""
    arm = plan["headline_arm"] if env.endswith(BASELINE) else plan["arm"]
    return {
        "study": plan["study"],
        "campaign": campaign,
        "scenario": SCENARIO,
        "workload": plan["workload"],
        "env": env,
        "stack": stack_of(arm, plan["stack"]),
        "arm": arm,
        "batch": batch,
    }


class ProfileRows:
    """Tables of one profiled launch: metrics, operators, samples, fingerprints."""

    def __init__(self, record: Mapping[str, Any], folder: Path) -> None:
        self.record = record
        self.folder = folder
        self.identity = identify(record, "profile", record["env"], record["batch"])
        self.ok = record["status"] == "ok"
        self.results = record["inside"]["results"] if self.ok else {}
        self.events = torch_trace.read_events(folder / record["trace"]) if self.ok and record["trace"] else None
        self._refuse_other_trace(folder)
        if self.events is not None and torch_trace.step_count(self.events) != self.results["profiled_steps"]:
            raise IntegrityError(
                f"{folder / record['trace']} holds {torch_trace.step_count(self.events)} steps, its record says "
                f"{self.results['profiled_steps']}: it belongs to another launch; run the profile again"
            )

    def _refuse_other_trace(self, folder: Path) -> None:
        """A trace of another launch may hold as many steps; its hash differs. Old records have none."""
        wanted = self.record.get("trace_sha256")
        if self.events is not None and wanted and sha256_file(folder / self.record["trace"]) != wanted:
            raise IntegrityError(
                f"{folder / self.record['trace']} is not the trace that its record names: it belongs to another "
                "launch; run the profile again"
            )

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return self.results["profiled_steps"]

    def metrics(self) -> list[dict[str, Any]]:
        """Metric rows of the launch, per training step where the name says so."""
        if not self.ok:
            reason = f"{self.record['status']}: {self.record['reason']}"
            rows = [unavailable("flops_per_step", "1", "operator count", reason)]
        else:
            rows = [*self._counted(), *self._timed(), *self._device(), *self._counters(), *self._usage()]
        return [{**self.identity, "rep": None, **row} for row in rows]

    def _counted(self) -> list[dict[str, Any]]:
        counts = self.results["counts"]
        if counts["operators"] is None:
            return [
                unavailable(name, unit, "operator count", counts["reason"])
                for name, unit in (("flops_per_step", "1"), ("operator_bytes_per_step", "B"))
            ]
        table = counts["operators"].values()
        return [
            modelled("flops_per_step", sum(row["flops"] for row in table), "1", "operator count"),
            modelled("operator_bytes_per_step", sum(row["bytes"] for row in table), "B", "operator count"),
        ]

    def _timed(self) -> list[dict[str, Any]]:
        plain = statistics.median(self.results["plain_step_s"])
        rows = [measured("plain_step_s", plain, "s", "marks")]
        if self.events is None:
            return [
                *rows,
                unavailable(
                    "profiler_slowdown",
                    "1",
                    "torch.profiler",
                    self.results["profiler_reason"] or "no trace was recorded",
                ),
            ]
        operators = torch_trace.operators(self.events).set_index("name")
        rows += [
            measured(
                "profiler_slowdown",
                statistics.median(self.results["profiled_step_s"]) / plain,
                "1",
                "torch.profiler",
            ),
            measured("operator_s_per_step", operators["self_s"].sum() / self.steps, "s", "torch.profiler"),
            measured("operators_per_step", operators["calls"].sum() / self.steps, "1", "torch.profiler"),
        ]
        for metric, names in HOST_SIDE.items():
            found = operators.loc[operators.index.isin(names), "self_s"].sum()
            rows.append(measured(metric, found / self.steps, "s", "torch.profiler"))
        return rows

    def _device(self) -> list[dict[str, Any]]:
        """What the device did in the recorded steps: fills, copies by direction, kernels, idleness."""
        if not self._on_cuda():
            return timeline.missing_rows("torch.profiler", NO_DEVICE)
        if self.events is None:
            return timeline.missing_rows("torch.profiler", "no trace was recorded")
        activity, window = torch_trace.steps_activity(self.events)
        return timeline.rows(activity, window, self.steps, "torch.profiler")

    def _counters(self) -> list[dict[str, Any]]:
        if not self._on_cuda():
            return [unavailable(name, unit, "counters", NO_COUNTERS) for name, unit in COUNTER_METRICS.items()]
        return device_rows.rows(self.record, self.folder, self._device())

    def _on_cuda(self) -> bool:
        """Whether it trained on a CUDA device; one that is there may have been left alone (`device: cpu`)."""
        there = bool(self.record["inside"]["facts"]["torch"]["cuda_available"])
        return there and self.record.get("device", "cuda") == "cuda"

    def device_sample_rows(self) -> list[dict[str, Any]]:
        """Sensors of the device over time; none on a CPU."""
        return [{**self.identity, **row} for row in device_rows.samples(self.record)] if self.ok else []

    def _usage(self) -> list[dict[str, Any]]:
        samples = self.sample_rows()
        busy = [row["cpu_percent"] for row in samples if row["cpu_percent"] is not None]
        rows = [measured("peak_rss_bytes", self.record["inside"]["memory"]["peak_rss_bytes"], "B", "getrusage")]
        if busy:
            rows.append(measured("cpu_percent_mean", statistics.fmean(busy), "%", "sampler"))
        else:
            rows.append(unavailable("cpu_percent_mean", "%", "sampler", "fewer than two samples"))
        return rows

    def sample_rows(self) -> list[dict[str, Any]]:
        """Utilisation over time; per cent of one CPU between a sample and the one before it."""
        rows, before = [], None
        for sample in self.results.get("samples", []):
            percent = None
            if before is not None and sample["at_ns"] > before["at_ns"]:
                percent = 100 * (sample["cpu_s"] - before["cpu_s"]) / ((sample["at_ns"] - before["at_ns"]) / 1e9)
            rows.append(
                {
                    **self.identity,
                    "at_s": (sample["at_ns"] - self.record["spawn_ns"]) / 1e9,
                    "cpu_percent": percent,
                    "rss_bytes": sample["rss_bytes"],
                    "cgroup_memory_bytes": sample["cgroup_memory_bytes"],
                }
            )
            before = sample
        return rows

    def operator_rows(self) -> list[dict[str, Any]]:
        """One row per operator: profiled calls and own time beside counted FLOPs and bytes, per step."""
        if not self.ok:
            return []
        counted = self.results["counts"]["operators"] or {}
        timed: dict[str, Mapping[str, float]] = {}
        if self.events is not None:
            timed = torch_trace.operators(self.events).set_index("name").to_dict("index")
        rows = []
        for name in sorted({*counted, *timed}):
            rows.append(
                {
                    **self.identity,
                    "operator": name,
                    "calls_per_step": timed[name]["calls"] / self.steps if name in timed else None,
                    "self_s_per_step": timed[name]["self_s"] / self.steps if name in timed else None,
                    "flops_per_step": counted[name]["flops"] if name in counted else None,
                    "bytes_per_step": counted[name]["bytes"] if name in counted else None,
                }
            )
        return rows

    def family_rows(self) -> list[dict[str, Any]]:
        """One row per family of operators: own time per profiled step with its spread, beside what was counted.

        Where kernels run on a device of their own, a CPU operator's time is not theirs, and there is no time.
        """
        if not self.ok:
            return []
        counted = self.results["counts"].get("families") or {}
        timed: dict[str, list[Mapping[str, Any]]] = {}
        if self.events is not None and not self._on_cuda():
            for row in torch_trace.families(self.events).to_dict("records"):
                timed.setdefault(row["family"], []).append(row)
        return [
            self._family_row(name, timed.get(name, []), counted.get(name)) for name in sorted({*counted, *timed})
        ]

    def _family_row(self, name: str, timed: list, counted: Mapping[str, Any] | None) -> dict[str, Any]:
        seconds = [row["self_s"] for row in timed] + [0.0] * (self.steps - len(timed) if timed else 0)
        counts = {
            f"{key}_per_step": counted[key] if counted else None for key in ("flops", "elementwise_flops", "bytes")
        }
        return {
            **self.identity,
            "family": name,
            "steps": len(seconds),
            "calls_per_step": sum(row["calls"] for row in timed) / self.steps if timed else None,
            "self_s_per_step": statistics.fmean(seconds) if seconds else None,
            "self_s_sd": statistics.stdev(seconds) if len(seconds) > 1 else None,
            **counts,
        }

    def fingerprint_rows(self) -> list[dict[str, Any]]:
        """Every file that was really mapped; the tree's own files by their path inside the tree."""
        if not self.ok:
            return []
        tree = str(Path(self.record["inside"]["facts"]["executable"]).parent.parent) + "/"
        rows = []
        for row in self.results["mapped"]:
            path = row["path"]
            path = "{tree}/" + path.removeprefix(tree) if path.startswith(tree) else path
            rows.append(
                {
                    **self.identity,
                    "path": path,
                    "soname": row["soname"],
                    "build_id": row["build_id"],
                    "sha256": row["sha256"],
                }
            )
        return rows


def pivot(metrics: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Measured values of one metric: one row per repetition, one column per environment."""
    chosen = metrics[(metrics["metric"] == metric) & (metrics["kind"] != "unavailable")]
    return chosen.pivot_table(index="rep", columns="env", values="value")
