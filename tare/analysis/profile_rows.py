"""One profiled launch as rows: metrics, operators, families, samples, fingerprints, and what a device showed."""

from __future__ import annotations

import gzip
import io
import statistics
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis.choice import PROFILE
from tare.analysis.launch_rows import Row, failure
from tare.core.errors import IntegrityError
from tare.core.files import sha256_file
from tare.machine import nvml
from tare.model.journals.units import launched_ns
from tare.model.records.launches import Count, ProfileResults
from tare.model.records.measured import CounterPart, Counters, ProfileRecord, Timeline
from tare.model.rows import measured, modelled, unavailable
from tare.model.schema import read
from tare.model.studies.arms import stack_of
from tare.profilers import activity, counters, timeline, torch_trace
from tare.profilers.ncu import read_metrics

NO_DEVICE = "the device is a CPU: it has no memory of its own that data would be copied to"
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
# Host-side operators under their own names, as a CPU has no memset or HtoD.
HOST_SIDE = {"host_fill_s": ("aten::fill_", "aten::zero_"), "host_copy_s": ("aten::copy_",)}


def read_profile(path: Path) -> ProfileRecord:
    """The record of a profiled launch, which lies under its own workload and environment.

    Raises:
        IntegrityError: it is no such record, or another's.
    """
    record = read(ProfileRecord, path)
    for key, has, folder in (
        ("workload", record.workload, path.parent.parent.name),
        ("env", record.env, path.parent.name),
    ):
        if has != folder:
            raise IntegrityError(f"{path} is of {key} {has!r} and lies under {folder!r}: run it again")
    try:
        if record.ok:
            record.profiled()
    except IntegrityError as error:
        raise IntegrityError(f"{path}: {error}: run it again") from None
    return record


class ProfileRows:
    """Tables of one profiled launch whose files lie in `folder`."""

    def __init__(self, record: ProfileRecord, folder: Path) -> None:
        self.record = record
        self.folder = folder
        self.ok = record.ok
        self.identity = {
            **{"study": record.study, "campaign": PROFILE, "scenario": record.scenario},
            **{"workload": record.workload, "env": record.env, "stack": stack_of(record.arm, record.stack)},
            **{"arm": record.arm, "batch": record.batch},
        }
        self.results = record.profiled() if self.ok else None
        self.events = self._events()

    def _events(self) -> list[dict[str, Any]] | None:
        """The trace's events. One of another launch may hold as many steps: then its hash differs.

        Raises:
            IntegrityError: the trace is not this launch's.
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

    @property
    def _told(self) -> ProfileResults:
        """What a launch that succeeded gave; nobody asks another."""
        assert self.results is not None
        return self.results

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return self._told.profiled_steps

    def metrics(self) -> list[Row]:
        """Metric rows of the launch, per training step where the name says so."""
        if not self.ok:
            rows = [unavailable("flops_per_step", "1", "operator count", failure(self.record))]
        else:
            rows = [*self._counted(), *self._timed(), *self._device(), *self._counters(), *self._usage()]
        return [{**self.identity, "rep": None, **row} for row in rows]

    def _counted(self) -> list[Row]:
        counts = self._told.counts
        names = {"flops_per_step": ("flops", "1"), "operator_bytes_per_step": ("bytes", "B")}
        if counts.operators is None:
            return [
                unavailable(name, unit, "operator count", counts.reason or "") for name, (_, unit) in names.items()
            ]
        return [
            modelled(name, sum(getattr(row, key) for row in counts.operators.values()), unit, "operator count")
            for name, (key, unit) in names.items()
        ]

    def _timed(self) -> list[Row]:
        source = "torch.profiler"
        plain = statistics.median(self._told.plain_step_s)
        rows = [measured("plain_step_s", plain, "s", "marks")]
        if self.events is None:
            why = self._told.profiler_reason or NO_TRACE
            return [*rows, unavailable("profiler_slowdown", "1", source, why)]
        operators = torch_trace.operators(self.events).set_index("name")
        slowdown = statistics.median(self._told.profiled_step_s) / plain
        rows += [
            measured("profiler_slowdown", slowdown, "1", source),
            measured("operator_s_per_step", operators["self_s"].sum() / self.steps, "s", source),
            measured("operators_per_step", operators["calls"].sum() / self.steps, "1", source),
        ]
        for metric, names in HOST_SIDE.items():
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
                "at_s": (sample.at_ns - self._spawn_ns) / 1e9,
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
        peak = self.record.seen_inside().memory.peak_rss_bytes
        return [
            measured("peak_rss_bytes", peak, "B", "getrusage"),
            measured("cpu_percent_mean", statistics.fmean(busy), "%", "sampler")
            if busy
            else unavailable("cpu_percent_mean", "%", "sampler", "fewer than two samples"),
        ]

    def sample_rows(self) -> list[Row]:
        """Utilisation over time; per cent of one CPU between a sample and the one before it."""
        samples = self.results.samples if self.results else ()
        rows = []
        for before, sample in zip((None, *samples), samples, strict=False):
            percent = None
            if before is not None and sample.at_ns > before.at_ns:
                percent = 100 * (sample.cpu_s - before.cpu_s) / ((sample.at_ns - before.at_ns) / 1e9)
            rows.append(
                {
                    **self.identity,
                    "at_s": (sample.at_ns + self.record.clock.offset_ns - self._spawn_ns) / 1e9,
                    "cpu_percent": percent,
                    "rss_bytes": sample.rss_bytes,
                    "cgroup_memory_bytes": sample.cgroup_memory_bytes,
                }
            )
        return rows

    def operator_rows(self) -> list[Row]:
        """One row per operator: profiled calls and own time beside counted FLOPs and bytes, per step."""
        if self.results is None:
            return []
        counted = self.results.counts.operators or {}
        timed: dict[Any, dict[Any, Any]] = {}
        if self.events is not None:
            timed = torch_trace.operators(self.events).set_index("name").to_dict("index")
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
        """One row per family of operators: own time per profiled step with its spread, beside what was counted.

        Where kernels run on a device of their own, a CPU operator's time is not theirs, and there is no time.
        """
        if self.results is None:
            return []
        counted = self.results.counts.families or {}
        timed: dict[str, list[Mapping[Any, Any]]] = {}
        if self.events is not None and not self.record.on_cuda:
            for row in torch_trace.families(self.events).to_dict("records"):
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


def device_rows(record: ProfileRecord, folder: Path, timed: Iterable[Row]) -> list[Row]:
    """What ncu counted, what nsys saw, what the sensors of a CUDA device said; without identity.

    Args:
        record: of a profiled launch that succeeded.
        folder: holds the files that it names.
        timed: rows of the launch's own timeline, `kernel_s` among them.

    Raises:
        IntegrityError: a file is not the one that the record names.
    """
    return [*_by_ncu(record.counters, folder, timed), *_by_nsys(record.nsys, folder), *_sensors(record)]


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
    """Bytes of the counted launch by the kernels' time of the timed one: a launch under ncu has no time."""
    found, source = [], "ncu, torch.profiler"
    for name, unit in counters.RATES.items():
        moved = counted[name.removesuffix("_per_s")]
        reason = moved["reason"] or kernels["reason"] or (None if kernels["value"] else "no kernel ran")
        if reason:
            found.append(unavailable(name, unit, source, reason))
        else:
            found.append(measured(name, moved["value"] / kernels["value"], unit, source))
    return found


def _by_nsys(found: Timeline | None, folder: Path) -> list[Row]:
    """Rows of the same names as torch.profiler's, by another tool; none where the machine has no nsys."""
    if found is None or found.status != "ok" or found.file is None or found.sha256 is None:
        return []
    table = pd.read_csv(io.StringIO(_stored(folder / found.file, found.sha256))).astype(object)
    made = activity.make(table.where(table.notna(), None).to_dict("records"), found.file)
    return timeline.rows(made, None, found.steps, "nsys")


def _sensors(record: ProfileRecord) -> list[Row]:
    """Means while the launch trained unwatched."""
    offset_ns = record.clock.offset_ns
    marks = {mark.name: mark.at_ns + offset_ns for mark in record.seen_inside().marks}
    first, last = marks.get("plain_steps", 0), marks.get("steady", -1)
    chosen = [sample.model_dump() for sample in record.device_samples if first <= sample.at_ns <= last]
    return [
        unavailable(name, row["unit"], "NVML", row["reason"])
        if row["value"] is None
        else measured(name, row["value"], row["unit"], "NVML")
        for name, row in nvml.summarise(chosen, record.device_sample_reasons).items()
    ]


def read_counters(parts: Iterable[CounterPart], folder: Path) -> pd.DataFrame:
    """Metrics of every kernel that ncu counted, of all its launches (tare.profilers.printed.METRIC_COLUMNS).

    Raises:
        IntegrityError: a file is not the one that the record names, or cut short.
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
