"""Names and numbers as readers see them: titles of metrics and environments, units scaled to size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

from tare.model.roles import CONTROL, read_role
from tare.model.studies.study import HOST

TIMES = {"s": "time", "calls": "calls"}


def _copies(kind: str, title: str, way: str, pinned: str = "") -> dict[str, tuple[str, str]]:
    """Metrics of copies in one direction; `pinned`: how page-locked memory takes part, where it is told apart."""
    found = {f"{kind}_{part}": (f"{title}, {word}", f"copies {way}, of one step") for part, word in TIMES.items()}
    found[f"{kind}_bytes"] = (f"{title}, bytes", f"copied {way}, of one step")
    if pinned:
        found[f"{kind}_pinned_bytes"] = (f"{title}, pinned", f"of these bytes, {pinned} page-locked memory")
    return found


# Metric -> (title, what it is). The order is the order of tables and figures.
METRICS = {
    "real_s": ("Whole run", "from just before the runtime starts to its end, one epoch, as the paper timed it"),
    "runtime_start_s": ("Runtime start", "from the launcher's call to the first line of our program"),
    "later_step_s": ("Later steps", "mean time of a whole run's step after its first, loader included"),
    "imports_s": ("Imports", "Python's imports of the framework"),
    "data_s": ("Data", "opening the data set"),
    "model_s": ("Model", "building the model and its optimizer"),
    "first_step_s": ("First step", "from the model to the end of the first training step, loader start included"),
    "epoch_rest_s": ("Rest of epoch", "the remaining steps of the paper's one epoch"),
    "exit_s": ("Exit", "from the program's last line to the end of the runtime"),
    "data_imports_s": ("Imports of data", "part of that phase: modules first loaded there"),
    "model_imports_s": ("Imports of the model", "part of that phase: modules first loaded there"),
    "first_step_imports_s": ("Imports of the first step", "part of that phase: modules first loaded there"),
    "boot_firmware_s": ("Firmware", "from the launcher's call to the first instant of the guest's clock"),
    "boot_kernel_s": ("Boot of the kernel", "from there to the guest's first program, to 10 ms"),
    "boot_mount_s": ("Root of the guest", "from there to the launch's own first program, to 10 ms"),
    "shutdown_s": ("Shutdown", "from the launch's last word to the end of the virtual machine"),
    "clock_error_s": (
        "Error between clocks",
        "of times between the launcher's clock and the launch's own",
    ),
    "step_s": (
        "Training step",
        "on batches in memory, after a whole run's epoch; what all launches of a round share taken out",
    ),
    "step_mean_s": ("Training step, mean", "of the same steps: stalls weigh in full"),
    "runtime_first_s": (
        "Start, to the first instruction",
        "from the runtime's call to the program's first instruction",
    ),
    "body_s": (
        "Own time of the program",
        "sum of its slices, its servers' part and measured training steps included",
    ),
    "servers_s": ("Own time of servers alone", "part of it in which only the runtime's own servers still ran"),
    "tail_share": ("Share of the tail", "of a launch's own time after both hosts of its round had ended"),
    "step_cpu_s": ("CPU time of a step", "user and system"),
    "step_system_s": ("System time of a step", "CPU time in the kernel"),
    "step_page_faults": ("Page faults of a step", "minor ones"),
    "step_preemptions": ("Preemptions of a step", "involuntary switches"),
    "step_loss_last": ("Last loss of the steps", "after equal steps from equal seeds"),
    "step_peak_rss_bytes": (
        "Peak memory of the steps",
        "largest resident set of a replicate, a process that makes the measured steps",
    ),
    "samples_per_s": ("Throughput", "samples of the epoch by its time, loader included"),
    "images_per_s": ("Images per second", "images by the time of the steps after the warm-up, loader included"),
    "join_s": ("Rendezvous", "from the imports until all instances have met"),
    "join_imports_s": ("Imports of the rendezvous", "part of that phase: modules first loaded there"),
    "group_step_s": ("Step of an instance", "one of several that train together, its exchange included"),
    "compute_step_s": ("Computing in a step", "the step less the exchange that nothing hides"),
    "exchange_s": ("Exchange", "time of a step with gradients under way, beside computing or not"),
    "exposed_exchange_s": (
        "Exposed exchange",
        "time of a step in which nothing but the exchange is left to be done",
    ),
    "exchange_share": ("Share of the exchange", "exposed exchange by the steps"),
    "exchange_bytes": ("Gradients of a step", "that an instance hands over"),
    "exchange_bytes_per_s": ("Rate of the exchange", "gradients of a step by the time with any under way"),
    "user_s": ("User time", "CPU time in user mode inside, loader worker included"),
    "system_s": ("System time", "CPU time in the kernel inside, loader worker included"),
    "runtime_cpu_s": (
        "CPU around the program",
        "CPU time of runtime and interpreter, before the first line and after the last",
    ),
    "peak_rss_bytes": ("Peak memory", "largest resident set of the training process"),
    "loss_mean": ("Mean loss", "over the epoch"),
    "loss_last": ("Last loss", "of the epoch's last step"),
    "files_first_s": ("First reading of files", "modules read, libraries mapped, before the launch imports them"),
    "files_first_read_s": ("First reading of modules", "their bytecode, before the launch imports them"),
    "libraries_first_map_s": ("First mapping of libraries", "touching the pages that imports leave resident"),
    "imports_after_read_s": ("Imports after reading", "of a launch that has read and mapped their files before"),
    "files_stat_s": ("Look-up of modules", "the status of every file, once the launch has read them"),
    "files_read_s": ("Repeated reading of modules", "their bytecode, once the launch has read it"),
    "libraries_map_s": ("Repeated mapping of libraries", "and touching, once the launch has done it"),
    "files_count": ("Module files", "that imports read, bytecode nearly always"),
    "files_bytes": ("Bytes of module files", "that imports read"),
    "libraries_count": ("Shared libraries", "that imports map"),
    "libraries_touched_bytes": ("Library bytes touched", "pages of the libraries that imports leave resident"),
    "kernels_per_step": ("Kernels called, CPU", "primitives of oneDNN and calls of MKL in one step"),
    "plain_step_s": ("Step, not profiled", "median step of the profiled launch before the profiler starts"),
    "profiler_slowdown": ("Profiler's slow-down", "profiled step by plain step of the same launch"),
    "operator_s_per_step": ("Operators, own time", "sum over operators of one step, while profiled"),
    "operators_per_step": ("Operators called", "of one step"),
    "flops_per_step": ("FLOPs", "of one step, counted from operators: two per multiply-add"),
    "operator_bytes_per_step": ("Operator bytes", "of one step, read and written as if no cache kept any"),
    "host_fill_s": ("Fills on the host", "own time of fill_ and zero_ in one step"),
    "host_copy_s": ("Copies on the host", "own time of copy_ in one step"),
    "memset_s": ("Memset time", "on the device, of one step"),
    "memset_calls": ("Memset calls", "on the device, of one step"),
    "memset_bytes": ("Memset bytes", "set on the device, of one step"),
    **_copies("htod", "Host to device", "to the device", pinned="from"),
    **_copies("dtoh", "Device to host", "from the device", pinned="to"),
    **_copies("dtod", "Device to device", "within the device"),
    **_copies("htoh", "Host to host", "between two places of the host by the driver"),
    **_copies("ptop", "Device to other device", "between two devices"),
    **_copies("copy", "Other copies", "whose direction the profiler does not say"),
    "kernel_s": ("Kernel time", "on the device, of one step"),
    "kernel_calls": ("Kernels called", "on the device, of one step"),
    "device_busy_s": ("Device busy", "some kernel, copy or memset ran, of one step"),
    "device_gap_s": ("Device idle", "between activities, of one step"),
    "device_gaps": ("Gaps of the device", "between activities, of one step"),
    "device_longest_gap_s": ("Longest gap", "between two activities of the device"),
    "counted_kernel_calls": ("Kernels counted", "by the tool that reads counters, beside those that were timed"),
    "dram_read_bytes": ("DRAM read", "counted by the memory controller"),
    "dram_write_bytes": ("DRAM written", "counted by the memory controller"),
    "dram_read_sectors": ("DRAM sectors read", "of 32 B, on the device"),
    "dram_write_sectors": ("DRAM sectors written", "of 32 B, on the device"),
    "dram_read_bytes_per_s": ("DRAM read throughput", "counted by the memory controller"),
    "dram_write_bytes_per_s": ("DRAM write throughput", "counted by the memory controller"),
    "hbm_transactions": ("HBM transactions", "of 32 B, on the device"),
    "l2_bytes": ("L2 traffic", "between the multiprocessors and the second-level cache, of one step"),
    "flops_measured": ("FLOPs, counted", "executed by all units of the device, of one step"),
    **{
        f"flops_{name}": (f"FLOPs, {name}", "of one step, without tensor cores; two per multiply-add")
        for name in ("fp64", "fp32", "fp16")
    },
    **{
        f"flops_tensor_{name}": (f"FLOPs, {'TF32' if name == 'tf32' else name}, tensor cores", "of one step")
        for name in ("fp64", "tf32", "bf16", "fp16", "fp8")
    },
    "flops_tensor_int8": ("Operations, int8, tensor cores", "of one step; no floating point"),
    "input_samples_per_s": ("input alone", "samples a second that the loader gives, nothing trained on them"),
    "input_first_batch_s": ("input alone, first batch", "from asking the loader for it"),
    "input_demand_per_s": ("input, asked for", "samples a second that training takes from memory"),
    "gpu_utilization_mean": ("GPU use, mean", "share of samples' periods in which some kernel ran"),
    "gpu_memory_used_peak_bytes": ("GPU memory, peak", "in use on the device, all processes"),
    "gpu_power_mean_w": ("GPU power, mean", "of the board"),
    "gpu_sm_clock_mean_hz": ("SM clock, mean", "of the multiprocessors"),
    "gpu_throttled_share": ("GPU throttled", "share of samples with a reason to run slower"),
    "gpu_utilization_sd": ("GPU use, spread", "standard deviation of the samples"),
    "gpu_utilization_cv": ("GPU use, relative spread", "standard deviation of the samples by their mean"),
    "gpu_utilization_peak": ("GPU use, largest", "largest sample: some kernel ran"),
    "step_samples_per_s": ("Rate in memory", "samples a second of plain steps on batches in memory"),
    "loaded_samples_per_s": ("Rate with the loader", "samples a second, the wait for each batch included"),
    "step_flop_per_s": ("FLOPs a second", "counted from operators, by the time of a plain step"),
    "sampled_read_bytes": ("Read from the disk", "by the program and its children, page cache aside"),
    "sampled_written_bytes": ("Written to the disk", "by the program and its children"),
    "sampled_asked_bytes": ("Read calls", "bytes of read calls, cached or not"),
    "throttled_s": ("Throttled", "time in which the CPU quota of its cgroup was spent"),
    "throttled_periods": ("Periods throttled", "in which the CPU quota of its cgroup was spent"),
    "sampling_cpu_share": ("Cost of sampling", "CPU time of the sampling thread by the time sampled"),
    "sampling_slowdown": ("Sampling's slow-down", "steps with the sampler by steps without, alternating"),
    "cpu_percent_mean": ("CPU use, mean", "per cent of one CPU, over the profiled launch"),
    "slowdown": ("Slow-down by a neighbour", "whole run beside a second job, by the same run without one"),
    "waited_s": ("Waited for a CPU", "time in which the program's own threads were ready and did not run"),
    "preemptions": ("Preemptions", "involuntary switches of the program, in a whole run"),
    "machine_cpu_s": ("CPU time of the machine", "on the launches' CPUs, in the time of a whole run"),
    "others_cpus": ("Processors that others used", "while launches ran, less what they and Tare used"),
    "stolen_cpus": ("Processors that a hypervisor took", "from whoever wanted to run, in the same time"),
    "machine_steal_s": ("Taken by the hypervisor", "of the launches' CPUs, in the time of a whole run"),
    "cpu_wait_s": ("Something waited for a CPU", "seconds of a whole run, anywhere on the machine"),
    "memory_wait_s": ("Something waited for memory", "seconds of a whole run, anywhere on the machine"),
    "io_wait_s": ("Something waited for a disk", "seconds of a whole run, anywhere on the machine"),
    "disk_read_bytes": ("Read from disks", "by the machine, in the time of a whole run"),
    "disk_written_bytes": ("Written to disks", "by the machine, in the time of a whole run"),
    "major_faults": ("Major faults", "of the machine, in the time of a whole run"),
    "cache_misses": ("Misses of the last cache", "of the launches' CPUs, in the time of a whole run"),
    "dram_bytes": ("Memory traffic", "read and written by the machine, in the time of a whole run"),
    "neighbour_steps_per_s": ("Neighbour's steps", "a second, in the time of the whole run beside it"),
    "neighbour_cpus": ("Neighbour's CPUs", "CPU time by time, of all its training"),
}
HIGHER_IS_BETTER = {"samples_per_s", "images_per_s"}
TITLES = {HOST: "Host", CONTROL: "Host again (control)"}
SHORT = {CONTROL: "Host again"}
# What a level of a factor is, as a noun; others are shown by their own names.
LEVELS = {
    "allocator=default": "default allocator",
    "allocator=steady": "steady allocator",
    "allocator=huge": "steady allocator in huge pages",
    "stack=native": "native installs",
    "stack=same": "one stack for all",
    "gpu=plain": "GPU by its device files",
    "gpu=toolkit": "GPU by the runtime's own way",
    "root=disk": "root on a disk",
    "root=virtiofs": "shared root (virtiofs)",
    "vcpus=free": "processors share CPUs",
    "vcpus=pinned": "a CPU for each processor",
    "memory=ordinary": "ordinary guest memory",
    "memory=huge": "reserved huge pages",
    "seccomp=unconfined": "no seccomp filter",
    "sif=fuse": ".sif by FUSE",
    "sif=kernel": ".sif by the kernel",
    "sif=unpacked": ".sif unpacked",
    "tf32=on": "TF32 products",
    "tf32=off": "no TF32 anywhere",
    "amp=bf16": "mixed precision, bf16",
    "amp=fp16": "mixed precision, fp16",
    "layout=channels-last": "channels-last layout",
    "compile=inductor": "compilation (torch.compile)",
    "compile=torchscript": "TorchScript",
    "compile=xla": "compilation (XLA)",
    "compile=ngraph": "compilation (nGraph)",
    "input=synthetic": "synthetic input",
    "exchange=all-reduce": "all-reduce",
    "exchange=parameter-server": "a parameter server",
    "network=switch": "a switch of its own",
    "network=overlay": "an overlay network (VXLAN)",
    "network=overlay-of-containers": "an overlay network (VXLAN) of containers alone",
    "network=host": "the host's network",
    "graph=capture": "CUDA graph of the step",
    "cudnn=benchmark": "kernels picked by trial (cuDNN)",
    "onednn=off": "no oneDNN",
    "isa=avx2": "kernels up to AVX2",
    "isa=sse4": "kernels up to SSE4",
    "stack=bound": "the machine's own packages",
    "neighbour=small": "a smaller neighbour",
    "limits=cpuset": "half of the CPUs each",
    "limits=quota": "half of the CPU time each",
}
UNIT_NAMES = {"rounds": "round", "steps": "round", "causes": "unit"}
BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
DECIMAL = ("", "k", "M", "G", "T", "P")


def metric_title(metric: str) -> str:
    """Title of a metric; an unknown one is shown by its own name."""
    return METRICS[metric][0] if metric in METRICS else metric


def metric_meaning(metric: str) -> str:
    """What a metric is, in a few words; empty where unknown."""
    return METRICS[metric][1] if metric in METRICS else ""


def metric_order(metric: str) -> tuple[int, str]:
    """Sort key: known metrics in this file's order, the others after them by name."""
    return (list(METRICS).index(metric) if metric in METRICS else len(METRICS), metric)


def env_title(env: str, *, short: bool = False) -> str:
    """Title of an environment, as its adapter calls itself."""
    role = read_role(env)
    if role.is_alone:
        return f"{env_title(role.place.name, short=short)}, alone"
    if role.is_reference:
        return f"{env_title(role.place.name, short=short)}, as in the headline"
    if short and env in SHORT:
        return SHORT[env]
    return TITLES.get(env) or _adapter_title(env)


def arm_title(arm: str) -> str:
    """Title of an arm, written `factor=level`: `allocator=default` is the default allocator."""
    factor, _, level = arm.partition("=")
    return LEVELS.get(arm, f"{factor} {level}")


def sentence_case(text: str) -> str:
    """First letter large, the rest as it is."""
    return text[:1].upper() + text[1:]


def units_text(count: int, kind: str) -> str:
    """How many units of a kind of campaign: 1 round, 6 rounds."""
    return f"{count:,} {UNIT_NAMES.get(kind, 'unit')}{'' if count == 1 else 's'}"


@cache
def _adapter_title(env: str) -> str:
    from tare.core.errors import TareError
    from tare.model.registry import environment

    try:
        return environment(env).title
    except (TareError, ImportError):
        return env.replace("_", " ").capitalize()


@cache
def workload_title(workload: str) -> str:
    """Title of a workload from its description; its own name where the module is gone."""
    from tare.core.errors import TareError
    from tare.model.registry import describe_workload

    try:
        return str(describe_workload(workload)["title"])
    except (TareError, ImportError):
        return workload


def env_order(env: str) -> tuple[int, str]:
    """Sort key: host, then the environments by name, the control, what is as in the headline or alone."""
    role = read_role(env)
    return (3 if role.is_reference or role.is_alone else {HOST: 0, CONTROL: 2}.get(env, 1), env)


def span(numbers: Iterable[float]) -> str:
    """Whole numbers by their least and greatest: 6, 6 to 7."""
    low, high = min(numbers := list(numbers)), max(numbers)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def significant(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, without an exponent, thousands apart."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else decimals
    return f"{rounded:,.{decimals}f}"


def seconds(value: float) -> str:
    """Seconds with three significant digits: 812 ns, 3.20 µs, 14.0 ms, 2.51 s, 4 min 05 s."""
    size = abs(value)
    if size >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if size >= factor * 0.9995:
            return f"{significant(value / factor)} {unit}"
    return f"{significant(value * 1e9)} ns" if value else "0 s"


def size_bytes(value: float) -> str:
    """Bytes in binary units with three significant digits."""
    index = 0
    while abs(value) >= 1023.5 and index < len(BINARY) - 1:
        value, index = value / 1024, index + 1
    return f"{significant(value) if index else f'{value:.0f}'} {BINARY[index]}"


def decimal_prefix(value: float) -> str:
    """A count or a rate with a decimal prefix and three significant digits: 1.20 G."""
    index = 0
    while abs(value) >= 999.5 and index < len(DECIMAL) - 1:
        value, index = value / 1000, index + 1
    text = significant(value) if index or value != int(value) else f"{int(value)}"
    return f"{text} {DECIMAL[index]}".strip()


def with_unit(value: float, unit: str) -> str:
    """A metric's value as a reader sees it, in its unit scaled to size."""
    if unit == "s":
        return seconds(value)
    if unit == "B":
        return size_bytes(value)
    if unit == "B/s":
        text = decimal_prefix(value)
        return f"{text}B/s" if text[-1].isalpha() else f"{text} B/s"
    if unit == "Hz":
        return f"{decimal_prefix(value)}Hz"
    if unit == "1":
        return decimal_prefix(value) if abs(value) >= 1000 else significant(value, 4).rstrip("0").rstrip(".") \
            if "." in significant(value, 4) else significant(value, 4)  # fmt: skip
    return f"{significant(value)} {unit}"
