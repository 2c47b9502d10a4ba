"""One profiled launch as rows: metrics, operators, families, samples, fingerprints, and what a device showed."""

from __future__ import annotations

import gzip
import statistics
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis.choice import PROFILE
from tare.analysis.launch_rows import PROFILERS, Row, failure, profiler_of
from tare.core.errors import IntegrityError
from tare.core.files import sha256_file
from tare.machine import nvml
from tare.model.journals.recorded import with_machine
from tare.model.journals.units import launched_ns
from tare.model.levels import SAME, STACK, read_levels
from tare.model.records.launches import Count, ProfileResults, Sample
from tare.model.records.measured import CounterPart, Counters, ProfileRecord
from tare.model.roles import LaunchRole
from tare.model.rows import measured, modelled, unavailable
from tare.model.schema import read
from tare.model.studies.arms import stack_of
from tare.model.studies.cells import CellKey
from tare.model.studies.layout import read_profile_name
from tare.profilers import counters, timeline, torch_trace
from tare.profilers.ncu import read_metrics

NO_DEVICE = "the device is a CPU: it has no separate memory that data would be copied to"
NO_COUNTERS = "needs hardware counters of the memory controller, which this device or machine does not give"
NO_LAUNCH = "no launch was made under the profiler"
NO_TRACE = "no trace was recorded"
OTHER_LAUNCH = "it belongs to another launch; run the profile again"
COUNTER_METRICS = {
    "dram_read_bytes": "B",
    "dram_write_bytes": "B",
    "dram_read_bytes_per_s": "B/s",
    "dram_write_bytes_per_s": "B/s",
    "hbm_transactions": "1",
}
NOT_SAMPLED = "it was not sampled; run the profile again"
# Rates between two samples: the total that grows, and by what its seconds are multiplied.
SAMPLED_RATES = {
    "cpu_percent": ("cpu_s", 100.0),
    "read_bytes_per_s": ("read_bytes", 1.0),
    "written_bytes_per_s": ("written_bytes", 1.0),
    "asked_bytes_per_s": ("asked_bytes", 1.0),
    "throttled_percent": ("throttled_s", 100.0),
}
# Totals of a launch: field of its last sample, unit, under which name its reason is.
TOTALS = {
    "sampled_read_bytes": ("read_bytes", "B", "io"),
    "sampled_written_bytes": ("written_bytes", "B", "io"),
    "sampled_asked_bytes": ("asked_bytes", "B", "io"),
    "throttled_s": ("throttled_s", "s", "throttled"),
    "throttled_periods": ("throttled_periods", "1", "throttled"),
}
NOT_NAMED = "only PyTorch's operators for it are known by name"
# PyTorch's host-side operators under their own names, as a CPU has no memset or HtoD.
HOST_SIDE = {"host_fill_s": ("aten::fill_", "aten::zero_"), "host_copy_s": ("aten::copy_",)}


def read_profile(path: Path) -> ProfileRecord:
    """The record of a profiled launch, which is under its own workload and environment.

    Raises IntegrityError: it is no such record, or another's.
    """
    named = read(ProfileRecord, path)
    record = with_machine(named, path)
    env, level = read_profile_name(path.parent.name)
    machine = path.parent.parent.parent.name if named.machine else record.machine  # older paths named none
    for key, has, folder in (
        ("machine", record.machine, machine),
        ("workload", record.workload, path.parent.parent.name),
        ("env", record.env, env),
        ("stack", read_levels(record.arm).get(STACK, SAME), level),
    ):
        if has != folder:
            raise IntegrityError(f"{path} is of {key} {has!r} but is under {folder!r}: run it again")
    try:
        if record.ok:
            record.profiled()
    except IntegrityError as error:
        raise IntegrityError(f"{path}: {error}: run it again") from None
    return record


class ProfileRows:
    """Tables of one profiled launch whose files are in `folder`."""

    def __init__(self, record: ProfileRecord, folder: Path) -> None:
        self.record = record
        self.folder = folder
        self.ok = record.ok
        levels = read_levels(record.arm)
        cell = CellKey(
            study=record.study,
            machine=record.measured_on,
            campaign=PROFILE,
            workload=record.workload,
            launch=LaunchRole(environment=record.env),
            stack=stack_of(levels, record.stack),
            levels=levels,
            batch=record.batch,
            scenario=record.scenario,
        )
        self.identity = cell.row()
        self.results = record.profiled() if self.ok else None
        self.events = self._events()

    def _events(self) -> list[dict[str, Any]] | None:
        """The trace's events. One of another launch may hold as many steps: then its hash differs.

        Raises IntegrityError: the trace is not this launch's.
        """
        if self.results is None or self.record.trace is None:
            return None
        path, wanted = self.folder / self.record.trace, self.record.trace_sha256
        events = torch_trace.read_events(path)
        if wanted and sha256_file(path) != wanted:
            raise IntegrityError(f"{path} is not the trace that its record names: {OTHER_LAUNCH}")
        steps = torch_trace.step_count(events)
        if steps != self.results.profiled_steps:
            raise IntegrityError(
                f"{path} holds {steps} steps, its record says {self.results.profiled_steps}: {OTHER_LAUNCH}"
            )
        return events

    @cached_property
    def _own_times(self) -> torch_trace.OwnTimes:
        return torch_trace.own_times(self.events or ())

    @cached_property
    def _operators(self) -> pd.DataFrame:
        """What the trace says of each operator, by its name."""
        return torch_trace.operators(self.events or (), self._own_times).set_index("name")

    @property
    def _succeeded(self) -> ProfileResults:
        """Results of a launch that succeeded; not called of another."""
        assert self.results is not None
        return self.results

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return self._succeeded.profiled_steps

    def metrics(self) -> list[Row]:
        """Metric rows of the launch, per training step where the name says so."""
        if not self.ok:
            rows = [unavailable("flops_per_step", "1", "operator count", failure(self.record))]
        else:
            rows = [*self._counted(), *self._timed(), *self._device(), *self._counters(), *self._usage()]
        return [{**self.identity, "rep": None, **row} for row in rows]

    def _counted(self) -> list[Row]:
        counts = self._succeeded.counts
        names = {"flops_per_step": ("flops", "1"), "operator_bytes_per_step": ("bytes", "B")}
        rows = None if counts.operators is None else counts.operators.values()
        return [
            modelled(name, _sum(rows, key), unit, "operator count", counts.reason)
            for name, (key, unit) in names.items()
        ]

    def _timed(self) -> list[Row]:
        source = profiler_of(self.record)
        plain = statistics.median(self._succeeded.plain_step_s)
        rows = [measured("plain_step_s", plain, "s", "marks")]
        if self.events is None:
            why = self._succeeded.profiler_reason or NO_TRACE
            return [*rows, unavailable("profiler_slowdown", "1", source, why)]
        operators = self._operators
        slowdown = statistics.median(self._succeeded.profiled_step_s) / plain
        rows += [
            measured("profiler_slowdown", slowdown, "1", source),
            measured("operator_s_per_step", operators["self_s"].sum() / self.steps, "s", source),
            measured("operators_per_step", operators["calls"].sum() / self.steps, "1", source),
        ]
        for metric, names in HOST_SIDE.items():
            if source != PROFILERS["torch"]:
                rows.append(unavailable(metric, "s", source, NOT_NAMED))
                continue
            found = operators.loc[operators.index.isin(names), "self_s"].sum()
            rows.append(measured(metric, found / self.steps, "s", source))
        return rows

    def _device(self) -> list[Row]:
        """What the device did in the recorded steps: fills, copies by direction, kernels, idleness."""
        if not self.record.on_cuda:
            return timeline.missing_rows("torch.profiler", NO_DEVICE)
        if self.events is None:
            return timeline.missing_rows("torch.profiler", NO_TRACE)
        found, window = torch_trace.steps_activity(self.events)
        return timeline.rows(found, window, self.steps, "torch.profiler")

    def _counters(self) -> list[Row]:
        if not self.record.on_cuda:
            return [unavailable(name, unit, "counters", NO_COUNTERS) for name, unit in COUNTER_METRICS.items()]
        return device_rows(self.record, self.folder, self._device())

    def device_sample_rows(self) -> list[Row]:
        """Sensors of the device over time, from the launcher's call on; none on a CPU."""
        return [
            {
                **self.identity,
                **self._instant(sample.at_ns),
                **{name: getattr(sample, name) for name in nvml.SENSORS},
                "throttle_reasons": "; ".join(sample.throttle_reasons or ()) or None,
            }
            for sample in (self.record.device_samples if self.ok else ())
        ]

    @cached_property
    def _spawn_ns(self) -> int:
        return launched_ns(self.record)[0]

    def _usage(self) -> list[Row]:
        busy = [row["cpu_percent"] for row in self.sample_rows() if row["cpu_percent"] is not None]
        mean = statistics.fmean(busy) if busy else None
        peak = self.record.seen_inside().memory.peak_rss_bytes
        return [
            measured("peak_rss_bytes", peak, "B", "getrusage"),
            measured("cpu_percent_mean", mean, "%", "sampler", "fewer than two samples"),
            *(self._total(name, of, unit, key) for name, (of, unit, key) in TOTALS.items()),
            *self._rates(),
            *self._sampling_cost(),
        ]

    def _total(self, name: str, of: str, unit: str, key: str) -> Row:
        """What was used until the last sample."""
        results = self._succeeded
        last = getattr(results.samples[-1], of) if results.samples else None
        return measured(name, last, unit, "sampler", results.sample_reasons.get(key, NOT_SAMPLED))

    def _rates(self) -> list[Row]:
        """Samples a second with the loader and on batches in memory; modelled operations by measured time."""
        results, plain_s = self._succeeded, statistics.median(self._succeeded.plain_step_s)
        counted = results.counts.operators
        rate, steps = None, results.loaded_steps
        if steps:
            rate = sum(step[2] for step in steps) * 1e9 / (steps[-1][1] - steps[0][0])
        flops = None if counted is None else sum(row.flops for row in counted.values()) / plain_s
        source = "operator count" if counted is None else "operator count by marks"
        return [
            measured("step_samples_per_s", self.record.batch / plain_s, "1/s", "marks"),
            measured("loaded_samples_per_s", rate, "1/s", "marks", "no step took its batch from the loader"),
            modelled("step_flop_per_s", flops, "FLOP/s", source, results.counts.reason),
        ]

    def _sampling_cost(self) -> list[Row]:
        """Of sampling itself: ratios of its thread's CPU time to the time sampled, and of steps with it to those
        without it.
        """
        results, source = self._succeeded, "sampler"
        sampled_ns = results.samples[-1].at_ns - results.samples[0].at_ns if results.samples else 0
        share = slowdown = None
        if results.sampler_cpu_s is not None and sampled_ns:
            share = results.sampler_cpu_s * 1e9 / sampled_ns
        if results.sampled_step_s and results.unsampled_step_s:
            slowdown = statistics.median(results.sampled_step_s) / statistics.median(results.unsampled_step_s)
        how = source if slowdown is None else "alternating steps, with the profiler and without it"
        return [
            measured("sampling_cpu_share", share, "1", source, NOT_SAMPLED),
            measured("sampling_slowdown", slowdown, "1", how, NOT_SAMPLED),
        ]

    def sample_rows(self) -> list[Row]:
        """Utilisation over time: what is used at an instant, and rates between a sample and the one before it."""
        samples = self.results.samples if self.results else ()
        offset_ns = self.record.clock.offset_ns
        return [
            {
                **self.identity,
                **self._instant(sample.at_ns + offset_ns),
                **{name: _rate(before, sample, total, factor) for name, (total, factor) in SAMPLED_RATES.items()},
                **{name: getattr(sample, name) for name in ("rss_bytes", "cgroup_memory_bytes", "processes")},
            }
            for before, sample in zip((None, *samples), samples, strict=False)
        ]

    def _instant(self, at_ns: float) -> Row:
        """An instant of the launcher's clock, from its call on, and from the start of the first step on."""
        first = self._first_step_ns
        aligned = None if first is None else (at_ns - first) / 1e9
        return {"at_s": (at_ns - self._spawn_ns) / 1e9, "aligned_s": aligned}

    @cached_property
    def _first_step_ns(self) -> int | None:
        """Start of the first step on the launcher's clock; None in records from before it was marked."""
        marks = {mark.name: mark.at_ns for mark in self.record.seen_inside().marks}
        at_ns = marks.get("first_step_start")
        return None if at_ns is None else at_ns + self.record.clock.offset_ns

    def step_rows(self) -> list[Row]:
        """Steps on batches of the loader, the wait for their batch included."""
        first = self._first_step_ns if self.ok else None
        if self.results is None or first is None:
            return []
        offset_ns = self.record.clock.offset_ns
        return [
            {
                **self.identity,
                "step": number,
                "start_s": (start + offset_ns - first) / 1e9,
                "end_s": (end + offset_ns - first) / 1e9,
                "samples_per_s": samples * 1e9 / (end - start),
            }
            for number, (start, end, samples) in enumerate(self.results.loaded_steps, start=1)
        ]

    def operator_rows(self) -> list[Row]:
        """One row per operator: profiled calls and own time, counted FLOPs and bytes, per step."""
        if self.results is None:
            return []
        counted = self.results.counts.operators or {}
        timed: dict[Any, dict[Any, Any]] = {}
        if self.events is not None:
            timed = self._operators.to_dict("index")
        return [
            {
                **self.identity,
                "operator": name,
                "calls_per_step": timed[name]["calls"] / self.steps if name in timed else None,
                "self_s_per_step": timed[name]["self_s"] / self.steps if name in timed else None,
                "flops_per_step": counted[name].flops if name in counted else None,
                "bytes_per_step": counted[name].bytes if name in counted else None,
            }
            for name in sorted({*counted, *timed})
        ]

    def family_rows(self) -> list[Row]:
        """One row per family of operators: own time per profiled step with its spread, and what was counted.

        Where kernels run on a separate device, a CPU operator's time is not theirs, and there is no time.
        """
        if self.results is None:
            return []
        counted = self.results.counts.families or {}
        timed: dict[str, list[Mapping[Any, Any]]] = {}
        if self.events is not None and not self.record.on_cuda:
            for row in torch_trace.families(self.events, self._own_times).to_dict("records"):
                timed.setdefault(row["family"], []).append(row)
        return [
            self._family_row(name, timed.get(name, []), counted.get(name)) for name in sorted({*counted, *timed})
        ]

    def _family_row(self, name: str, timed: list[Mapping[Any, Any]], counted: Count | None) -> Row:
        seconds = [row["self_s"] for row in timed] + [0.0] * (self.steps - len(timed) if timed else 0)
        return {
            **self.identity,
            "family": name,
            "steps": len(seconds),
            "calls_per_step": sum(row["calls"] for row in timed) / self.steps if timed else None,
            "self_s_per_step": statistics.fmean(seconds) if seconds else None,
            "self_s_sd": statistics.stdev(seconds) if len(seconds) > 1 else None,
            **{f"{key}_per_step": getattr(counted, key, None) for key in ("flops", "elementwise_flops", "bytes")},
        }

    def fingerprint_rows(self) -> list[Row]:
        """Every file that was really mapped; the tree's own files by their path inside the tree."""
        if self.results is None:
            return []
        tree = str(Path(self.record.seen_inside().facts.executable).parent.parent) + "/"
        return [
            {
                **self.identity,
                "path": f"{{tree}}/{file.path.removeprefix(tree)}" if file.path.startswith(tree) else file.path,
                "soname": file.soname,
                "build_id": file.build_id,
                "sha256": file.sha256,
            }
            for file in self.results.mapped
        ]


def _sum(rows: Iterable[Count] | None, key: str) -> float | None:
    return None if rows is None else sum(getattr(row, key) for row in rows)


def _rate(before: Sample | None, sample: Sample, total: str, factor: float) -> float | None:
    """Rate of a total between two samples; None where it is unknown or a child took its part away."""
    if before is None or sample.at_ns <= before.at_ns:
        return None
    first, second = getattr(before, total), getattr(sample, total)
    if first is None or second is None or second < first:
        return None
    return factor * float(second - first) / ((sample.at_ns - before.at_ns) / 1e9)


def stack_profile_rows(record: ProfileRecord, folder: Path) -> list[Row]:
    """Families of operators of a profiled launch in another stack, and what a step took without the profiler.

    A launch that could not be, or whose framework names no operators, is one row with its reason.
    """
    rows = ProfileRows(record, folder)
    level = read_levels(record.arm).get(STACK, SAME)
    own = {**rows.identity, "level": level, "source": None, "plain_step_s": None, "reason": None}
    nothing = {"family": None, "steps": 0, "calls_per_step": None, "self_s_per_step": None, "self_s_sd": None}
    if rows.results is None:
        return [{**own, **nothing, "reason": failure(record)}]
    own |= {"source": profiler_of(record), "plain_step_s": statistics.median(rows.results.plain_step_s)}
    if rows.events is None:
        return [{**own, **nothing, "reason": rows.results.profiler_reason or NO_TRACE}]
    return [{**own, **{key: row[key] for key in nothing}} for row in rows.family_rows()]


def device_rows(record: ProfileRecord, folder: Path, timed: Iterable[Row]) -> list[Row]:
    """What ncu counted, what the sensors of a CUDA device said; without identity.

    `record`: of a profiled launch that succeeded. `folder`: holds the files that it names. `timed`: rows of the
    launch's own timeline, `kernel_s` among them. Raises IntegrityError: a file is not the one that the record
    names.
    """
    return [*_by_ncu(record.counters, folder, timed), *_sensors(record)]


def _by_ncu(found: Counters | None, folder: Path, timed: Iterable[Row]) -> list[Row]:
    if found is None or found.status != "ok":
        why = NO_LAUNCH if found is None else found.reason or ""
        return [unavailable(name, unit, "ncu", why) for name, unit in {**counters.UNITS, **counters.RATES}.items()]
    counted = counters.metric_rows(read_counters(found.parts, folder), found.steps, "ncu")
    calls = found.parts[0].launches / found.steps
    return [
        *(row for row in counted if row["metric"] not in counters.RATES),
        *_rates({row["metric"]: row for row in counted}, {row["metric"]: row for row in timed}["kernel_s"]),
        measured("counted_kernel_calls", calls, "1", "ncu"),  # kernel_calls of the timed launch should be as many
    ]


def _rates(counted: Mapping[str, Row], kernels: Row) -> list[Row]:
    """Bytes of the counted launch, divided by the kernels' time of the timed one; under ncu there is no time."""
    found, source = [], "ncu, torch.profiler"
    for name, unit in counters.RATES.items():
        moved = counted[name.removesuffix("_per_s")]
        reason = moved["reason"] or kernels["reason"] or (None if kernels["value"] else "no kernel ran")
        rate = None if reason else moved["value"] / kernels["value"]
        found.append(measured(name, rate, unit, source, reason))
    return found


def _sensors(record: ProfileRecord) -> list[Row]:
    """Means while the launch trained unwatched."""
    offset_ns = record.clock.offset_ns
    marks = {mark.name: mark.at_ns + offset_ns for mark in record.seen_inside().marks}
    first, last = marks.get("plain_steps", 0), marks.get("steady", -1)
    chosen = [sample.model_dump() for sample in record.device_samples if first <= sample.at_ns <= last]
    means = nvml.summarise(chosen, record.device_sample_reasons)
    return [measured(name, row["value"], row["unit"], "NVML", row["reason"]) for name, row in means.items()]


def read_counters(parts: Iterable[CounterPart], folder: Path) -> pd.DataFrame:
    """Metrics of every kernel that ncu counted, of all its launches (tare.profilers.printed.METRIC_COLUMNS).

    Raises IntegrityError: a file is not the one that the record names, or cut short.
    """
    tables, first = [], 0
    for part in parts:
        table = read_metrics(_stored(folder / part.file, part.sha256), part.file)
        tables.append(table.assign(kernel_index=table["kernel_index"] + first))
        first += int(table["kernel_index"].max())
    return pd.concat(tables, ignore_index=True)


def _stored(path: Path, sha256: str) -> str:
    if not path.exists() or sha256_file(path) != sha256:
        raise IntegrityError(f"{path} is not the file that its record names: run the profile again")
    return gzip.decompress(path.read_bytes()).decode()
