"""One launch as rows: every number with its unit, its kind, its source, or its reason (`tare.model.rows`).

Instants from inside are put on the launcher's clock. Where the two clocks differ, the time between one of each is
off by no more than `clock_error_s`.
"""

from __future__ import annotations

import statistics
from typing import Any

from tare.analysis.reported_steps import AFTER, BEFORE, parts_by_steps, step_times
from tare.core.errors import IntegrityError
from tare.model.journals.units import TRAIN, launched_ns, mark_ns, real_s, replicates_at
from tare.model.records.campaigns import Unit
from tare.model.records.launches import (
    CONTENTION,
    WORKER,
    CausesResults,
    Exchange,
    FilePasses,
    FirstPass,
    Inside,
    Kernels,
    LaunchRecord,
    Scheduling,
    TrainResults,
)
from tare.model.rows import measured, unavailable

Row = dict[str, Any]

# Phases of a whole run: metric -> (from mark, to mark); None is the launcher's call.
PHASES = {
    "runtime_start_s": (None, "entry"),
    "imports_s": ("entry", "imports"),
    "data_s": ("imports", "data"),
    "model_s": ("data", "model"),
    "first_step_s": ("model", "first_step"),
    "epoch_rest_s": ("first_step", "epoch_end"),
}
# Phase -> metric of the imports within it: a framework imports some of its modules at first use.
LATE_IMPORTS = {
    phase: f"{phase.removesuffix('_s')}_imports_s" for phase in ("join_s", "data_s", "model_s", "first_step_s")
}
PROGRAM = "program_s"  # of a command, of which no phase is known, from its first instruction to its end
# Of a command whose hook reported its steps: the parts of its program around them, and the median of a step.
REPORTED_STEPS = ("before_steps_s", "reported_step_s", "after_steps_s")
SLOWDOWN = "slowdown"
JOINED = "joined"  # the mark of a group's member when all have met
# Metrics of an exchange, and what each is of its members' steps: the median of those behind the warm-up.
EXCHANGE_SOURCE = {"all-reduce": "communication hook", "parameter-server": "send and receive"}
EXCHANGE_TIMES = ("group_step_s", "compute_step_s", "exchange_s", "exposed_exchange_s", "exchange_share")
# What names the operators of a framework, by its name.
PROFILERS = {"torch": "torch.profiler", "tensorflow": "TensorFlow's own profiler"}
REPLICATES = "replicates"  # source of training steps: processes that make them after a whole run's epoch
# Metric and source of the row of a launch that could not be, by kind of campaign.
ANSWERS = {
    "rounds": ("real_s", "launcher"),
    "sweep": ("real_s", "launcher"),
    "steps": ("step_s", REPLICATES),
    "causes": ("imports_after_read_s", "marks"),
}


def failure(launch: LaunchRecord) -> str:
    """Why a launch has no numbers; of a group, also each member's reason."""
    members = [f"rank {one.rank}: {one.reason}" for one in launch.instances if one.status != "ok" and one.reason]
    reasons = "; ".join([launch.reason or "", *members])
    return f"{launch.status}: {reasons}"


def profiler_of(launch: LaunchRecord) -> str:
    """What named, or would name, the operators of a launch that succeeded."""
    framework = launch.seen_inside().facts.framework
    name = framework.name if framework else "torch"
    return PROFILERS.get(name, f"a profiler of {name}")


def absent(kind: str, reason: str) -> Row:
    """The row of a launch that could not be."""
    metric, source = ANSWERS[kind]
    return unavailable(metric, "s", source, reason)


def whole_run_rows(launch: LaunchRecord) -> list[Row]:
    """Metrics of one launch of a whole run.

    `real_s` runs from just before the runtime's start to its end, without the harness's own bookkeeping, which is
    between the end of the paper's epoch and the last mark, and without what a transport takes to carry files
    (`put_s`, `fetch_s`). `user_s` and `system_s`
    are getrusage inside, loader worker included, from the program's first line to the end of the epoch. Of a group,
    `real_s` is of all members, rates are of all that train, everything else is rank 0's. Of a command, `real_s`,
    what is seen of it from outside, and what the machine did meanwhile are all that is known.
    """
    if launch.program != WORKER:
        run = measured("real_s", real_s(launch), "s", "launcher")
        return [run, *command_rows(launch), *contention_rows(launch)]
    inside = launch.seen_inside()
    results = inside.results_as(TrainResults)
    entry, end = inside.mark("entry"), inside.mark("epoch_end")
    spawn_ns, end_ns = launched_ns(launch)
    whole = "launcher" if results.runs == 1 else f"launcher; start and end are those of {results.runs} runs"
    trained = _trained(launch)
    joins = any(mark.name == JOINED for mark in inside.marks)
    phases = {**PHASES, **({"join_s": ("imports", JOINED), "data_s": (JOINED, "data")} if joins else {})}

    def at_ns(mark: str | None) -> float:
        return spawn_ns if mark is None else mark_ns(launch, mark)

    return [
        measured("real_s", real_s(launch), "s", whole),
        measured("user_s", end.user_s - entry.user_s, "s", "getrusage"),
        measured("system_s", end.system_s - entry.system_s, "s", "getrusage"),
        *(measured(name, (at_ns(to) - at_ns(start)) / 1e9, "s", "marks") for name, (start, to) in phases.items()),
        *(
            measured(LATE_IMPORTS[name], seconds, "s", "import system")
            for name, (_, to) in phases.items()
            if name in LATE_IMPORTS and (seconds := inside.mark(to).imports_s) is not None
        ),
        measured("exit_s", (end_ns - at_ns("last")) / 1e9, "s", "launcher"),
        *_later_step(results, (end.at_ns - inside.mark("first_step").at_ns) / 1e9),
        measured("samples_per_s", sum(_epoch_rate(*one) for one in trained), "1/s", "marks"),
        *_timed_rate([one for _, one in trained]),
        *_compiled(launch),
        *exchange_rows(results),
        measured("loss_mean", statistics.fmean(results.losses), "1", "workload"),
        measured("loss_last", results.losses[-1], "1", "workload"),
        measured("peak_rss_bytes", inside.memory.peak_rss_bytes, "B", "getrusage"),
        _runtime_cpu(launch),
        *clock_rows(launch),
        *boot_rows(launch),
        *contention_rows(launch),
    ]


def command_rows(launch: LaunchRecord) -> list[Row]:
    """Parts of a run of a command that was held at its first instruction; its steps where a hook reported them."""
    if launch.slices is None:
        return []
    start_s, exit_s = launch.slices.start_s, launch.slices.exit_s
    rows = [
        measured("runtime_start_s", start_s, "s", "launcher"),
        measured(PROGRAM, real_s(launch) - start_s - exit_s, "s", "slices"),
        measured("exit_s", exit_s, "s", "launcher"),
    ]
    parts, steps = parts_by_steps(launch), step_times(launch)
    if parts is None or launch.steps is None:
        return rows
    seconds = (parts[BEFORE], statistics.median(steps), parts[AFTER])
    source = f"{launch.steps.teller}, {len(steps)} steps"
    return rows + [measured(name, value, "s", source) for name, value in zip(REPORTED_STEPS, seconds, strict=True)]


def slowdown_row(shared: LaunchRecord | None, alone: LaunchRecord | None) -> Row:
    """The ratio of a whole run with a co-runner to the same run without one, in the same unit.

    `shared`, `alone`: None where there was none; with one that failed there is no ratio.
    """
    source, unit = "launcher", "1"
    for launch, what in ((shared, "with the co-runner"), (alone, "without the co-runner")):
        if launch is None or not launch.ok:
            reason = failure(launch) if launch else "there was no launch"
            return unavailable(SLOWDOWN, unit, source, f"{what}: {reason}")
    assert shared is not None and alone is not None
    return measured(SLOWDOWN, real_s(shared) / real_s(alone), unit, source)


def others_rows(unit: Unit) -> list[Row]:
    """How many processors others kept busy in a unit, and a hypervisor withheld; none where nobody watched."""
    if unit.others is None:
        return []
    used = {"others_cpus": unit.others.cpu_s, "stolen_cpus": unit.others.stolen_s}
    return [measured(name, spent / unit.others.seconds, "1", "/proc/stat") for name, spent in used.items()]


def contention_rows(launch: LaunchRecord) -> list[Row]:
    """What the machine did in the time of a launch, and how fast its co-runner trained; none of an ordinary one."""
    if launch.contention is None:
        return []
    counted, reasons = launch.contention.values, launch.contention.reasons
    source = "the machine's counters"
    found = [
        measured(name, counted.get(name), unit, source, reasons.get(name)) for name, unit in CONTENTION.items()
    ]
    if launch.program == WORKER:
        found += _scheduling_rows(launch.seen_inside().scheduling)
    if launch.co_runner is not None:
        started, ended = launched_ns(launch)
        found += [
            measured(
                "co_runner_steps_per_s", launch.co_runner.steps / ((ended - started) / 1e9), "1/s", "co-runner"
            ),
            measured("co_runner_cpus", launch.co_runner.cpu_s / launch.co_runner.seconds, "1", "co-runner"),
        ]
    return found


def _scheduling_rows(found: Scheduling | None) -> list[Row]:
    """How a launch's own threads came to run."""
    why = "the kernel does not count how long threads wait to run"
    waited = measured("waited_s", found.waited_s if found else None, "s", "schedstat", why)
    return [waited, *([measured("preemptions", found.preemptions, "1", "getrusage")] if found else [])]


def _later_step(results: TrainResults, rest_s: float) -> list[Row]:
    """Mean time of the steps after the first, loader included; none for a run of one step."""
    later = results.steps - 1
    return [measured("later_step_s", rest_s / later, "s", "steps")] if later else []


def _compiled(launch: LaunchRecord) -> list[Row]:
    """Graphs that a compiler made, breaks between them, operators in and outside; none without a compiler.

    In addition the memory of the programs that it calls, where it calls any, and what it says to have taken.
    """
    inside = launch.seen_inside()
    framework = inside.facts.framework
    found = launch.compiled or (framework.compiled if framework else None)
    if not found:
        return []
    rows = [measured(f"compiled_{name}", count, "1", "framework") for name, count in found.items()]
    if inside.memory.children_peak_rss_bytes:
        rows.append(measured("children_peak_rss_bytes", inside.memory.children_peak_rss_bytes, "B", "getrusage"))
    if framework and framework.compile_s is not None:
        rows.append(measured("compile_s", framework.compile_s, "s", "framework"))
    return rows


def _trained(launch: LaunchRecord) -> list[tuple[Inside, TrainResults]]:
    """What was written by whoever trained: the launch, or each member of a group but its parameter server."""
    members = [one.inside for one in launch.instances if one.inside is not None] or [launch.seen_inside()]
    found = [(inside, inside.results_as(TrainResults)) for inside in members]
    return [(inside, results) for inside, results in found if results.samples]


def _epoch_rate(inside: Inside, results: TrainResults) -> float:
    """Samples per second of the epoch."""
    return results.samples / ((inside.mark("epoch_end").at_ns - inside.mark("model").at_ns) / 1e9)


def _timed_rate(members: list[TrainResults]) -> list[Row]:
    """Images per second over the steps that follow the warm-up, loader included; none for a job without one."""
    rate = 0.0
    for one in members:
        first = one.warmup_steps
        if not first or len(one.step_ends_ns) <= first:
            return []
        timed_s = (one.step_ends_ns[-1] - one.step_ends_ns[first - 1]) / 1e9
        rate += (one.samples - one.warmup_samples) / timed_s
    return [measured("images_per_s", rate, "1/s", "steps")]


def exchange_rows(results: TrainResults) -> list[Row]:
    """What a step of a group's member took: its own computing, and what it exchanged; none of a launch alone.

    `compute_step_s` is the step less the time in which nothing but the exchange was left to be done
    (`exposed_exchange_s`); `exchange_s` is all time with an exchange under way, during computing or not.
    `exchange_bytes_per_s` is the payload divided by that. Medians over the steps behind the warm-up, the first one
    apart.
    """
    found = results.exchange
    if found is None:
        return []
    source = EXCHANGE_SOURCE[found.kind]
    payload = measured("exchange_bytes", found.payload_bytes, "B", "parameters")
    first = max(1, results.warmup_steps)
    reason = found.reason or ("" if len(found.step_ns) > first else "no step is left behind the warm-up")
    if reason:
        absent = [
            unavailable(name, "1" if name.endswith("share") else "s", source, reason) for name in EXCHANGE_TIMES
        ]
        return [payload, *absent, unavailable("exchange_bytes_per_s", "B/s", source, reason)]
    return [payload, *_exchange_times(found, first, source)]


def _exchange_times(found: Exchange, first: int, source: str) -> list[Row]:
    step, busy, exposed = (
        [ns / 1e9 for ns in column[first:]] for column in (found.step_ns, found.in_flight_ns, found.exposed_ns)
    )
    busy_s = statistics.median(busy)
    rate = found.payload_bytes / busy_s if busy_s > 0 else None
    return [
        measured("group_step_s", statistics.median(step), "s", source),
        measured(
            "compute_step_s", statistics.median(a - b for a, b in zip(step, exposed, strict=True)), "s", source
        ),
        measured("exchange_s", busy_s, "s", source),
        measured("exposed_exchange_s", statistics.median(exposed), "s", source),
        measured("exchange_share", sum(exposed) / sum(step), "1", source),
        measured("exchange_bytes_per_s", rate, "B/s", source, "no exchange took any time"),
    ]


def clock_rows(launch: LaunchRecord) -> list[Row]:
    """How far off times between a launch's clock and the launcher's may be; none where they share one."""
    if launch.clock.shared:
        return []
    return [measured("clock_error_s", launch.clock.error_ns / 1e9, "s", f"{launch.clock.exchanges} exchanges")]


def boot_rows(launch: LaunchRecord) -> list[Row]:
    """What start and end of a launch's virtual machine took, as parts of `runtime_start_s` and `exit_s`."""
    if launch.vm is None:
        return []
    parts = {
        "boot_firmware_s": (launch.vm.firmware_s, "clocks", "the clocks were not compared"),
        "boot_kernel_s": (launch.vm.kernel_s, "console", "it does not say when the guest's first program began"),
        "boot_mount_s": (launch.vm.mount_s, "console", "it does not say when the launch's program began"),
        "shutdown_s": (launch.vm.shutdown_s, "launcher", "the launch's last word was not heard"),
    }
    return [measured(name, value, "s", source, reason) for name, (value, source, reason) in parts.items()]


def _runtime_cpu(launch: LaunchRecord) -> Row:
    """CPU time before the first line of the program and after its last: what was reaped, less what is between."""
    entry, last = (launch.seen_inside().mark(name) for name in ("entry", "last"))
    why = "the program is no descendant of the client, so its helpers can't be distinguished from others"
    if launch.client_user_s is None or launch.client_system_s is None:
        return unavailable("runtime_cpu_s", "s", "wait4", "the transport does not say what its client used")
    inside = last.user_s + last.system_s - entry.user_s - entry.system_s
    helpers = launch.client_user_s + launch.client_system_s - inside
    return measured("runtime_cpu_s", None if helpers < 0 else helpers, "s", "wait4", why)


def step_rows(launch: LaunchRecord, level: str, step_s: float) -> list[Row]:
    """Metrics of the training steps that a whole run measured at a level of the allocator.

    `step_s`: from the round's fit (`tare.stats.fits.step_values`).
    """
    own = replicates_at(launch, level)
    steps = [seconds for one in own for seconds in one.seconds]
    count = len(steps)
    return [
        measured("step_s", step_s, "s", REPLICATES),
        measured("step_mean_s", statistics.fmean(steps), "s", REPLICATES),
        measured("step_cpu_s", sum(one.cpu_s for one in own) / count, "s", REPLICATES),
        measured("step_system_s", sum(one.system_s for one in own) / count, "s", REPLICATES),
        measured("step_page_faults", sum(one.faults for one in own) / count, "1", REPLICATES),
        measured("step_preemptions", sum(one.preemptions for one in own) / count, "1", REPLICATES),
        measured("step_loss_last", own[-1].loss_last, "1", REPLICATES),
        measured("step_peak_rss_bytes", max(one.peak_rss_bytes for one in own), "B", REPLICATES),
    ]


def no_steps(launch: LaunchRecord, level: str) -> str:
    """Why a launch has no training steps at a level of the allocator."""
    if not launch.ok:
        return failure(launch)
    if launch.inside is None or launch.inside.mode != TRAIN:
        return "it measured no training steps: only Tare's own program does"
    reason = launch.inside.results_as(TrainResults).levels_left_out.get(level)
    return f"allocator {level} was left out: {reason}" if reason else "it measured no training steps"


def cause_rows(launch: LaunchRecord) -> list[Row]:
    """Metrics of one launch that looked for causes.

    The first pass over the files comes before the imports of the same launch; the later ones after them, their
    median counts.

    Raises IntegrityError: the record is of another kind of launch.
    """
    first, files, kernels, operators = looked_for_causes(launch)
    after_read_s = (mark_ns(launch, "imports") - mark_ns(launch, "read")) / 1e9
    return [
        measured("files_first_s", first.modules_s + first.libraries_s, "s", "clock"),
        measured("files_first_read_s", first.modules_s, "s", "clock"),
        measured("libraries_first_map_s", first.libraries_s, "s", "clock"),
        measured("imports_after_read_s", after_read_s, "s", "marks"),
        measured("files_stat_s", statistics.median(files.stat_s), "s", "clock"),
        measured("files_read_s", statistics.median(files.read_s), "s", "clock"),
        measured("libraries_map_s", statistics.median(files.map_s), "s", "clock"),
        measured("files_count", files.modules, "1", "imports"),
        measured("files_bytes", files.modules_bytes, "B", "imports"),
        measured("libraries_count", files.libraries, "1", "/proc/self/maps"),
        measured("libraries_touched_bytes", files.touched_bytes, "B", "/proc/self/pagemap"),
        _calls(operators, "operators_per_step", profiler_of(launch)),
        _calls(kernels, "kernels_per_step", "oneDNN and MKL"),
    ]


def _calls(found: Kernels, metric: str, source: str) -> Row:
    """Calls of one step, or the reason why nobody counted them."""
    calls = None if found.rows is None else sum(row.calls for row in found.rows) / found.steps
    return measured(metric, calls, "1", source, found.reason)


def kernel_rows(launch: LaunchRecord) -> list[Row]:
    """Operators, kernels of libraries and kernels of a device, each with its calls and own seconds per step."""
    if not launch.ok:
        return []
    _, _, kernels, operators = looked_for_causes(launch)
    return [
        {
            "library": row.library,
            "kernel": row.kernel,
            "shape": row.shape or None,
            "calls_per_step": row.calls / part.steps,
            "s_per_step": row.s / part.steps,
        }
        for part in (operators, kernels)
        for row in part.rows or ()
    ]


def looked_for_causes(launch: LaunchRecord) -> tuple[FirstPass, FilePasses, Kernels, Kernels]:
    """What a launch of a campaign of causes found: first and later passes over files, kernels, operators.

    Raises IntegrityError: it looked for something else.
    """
    results = launch.seen_inside().results_as(CausesResults)
    first, files, kernels, operators = results.first, results.files, results.kernels, results.operators
    if first is None or files is None or kernels is None or operators is None:
        parts = {"first": first, "files": files, "kernels": kernels, "operators": operators}
        missing = [name for name, part in parts.items() if part is None]
        raise IntegrityError(
            f"a launch in a campaign of causes has no {', '.join(missing)}: run the campaign again"
        )
    return first, files, kernels, operators
