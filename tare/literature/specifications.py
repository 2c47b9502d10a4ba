"""Tables of a study's machine and software, beside this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.literature.finding import amount
from tare.literature.measured_here import NO_PROPERTY, Here, Value
from tare.literature.published import Published
from tare.literature.published_file import Row
from tare.model.records.machine import MachineRecord
from tare.model.registry import HOST
from tare.model.studies.stacks import load_stack, stack_names, with_setting

NO_RECORD = "there is no record of the machine"
# What a machine with a GPU has, and its record does not hold.
OF_GPU = ("cuda", "cuda_cores", "tensor_cores", "tensor_peak", "gpu_memory_kind", "gpu_memory_rate", "interface")
# Versions: of which environment's trial launch.
Gpus = Sequence[Mapping[str, Any]]
PROGRAMS = {"docker": "docker", "singularity": "apptainer"}


def beside(published: Published, here: Here, finding: Mapping[str, Any]) -> Value:
    """What stands beside a row of a table: of this machine, or of what was measured of a model."""
    model, env, name = (finding[key] for key in ("workload", "env", "metric"))
    if model is not None:
        return _of_model(here, finding, model, env or HOST)
    table = published.table_files[finding["figure"].removeprefix("table ")]
    return _beside(next(row for row in table.rows if row.specification == name), here)


def _beside(row: Row, here: Here) -> Value:
    """What stands beside a row that is of no model."""
    if row.why_not is not None:
        return _none(row.why_not)
    return _here(row.specification, here) if row.packages is None else _packages(row.packages, row.setting, here)


def _packages(names: Sequence[str], setting: str | None, here: Here) -> Value:
    """Versions of packages in the locks of the stacks that were measured, all or those with a setting."""
    measured = here.metrics[here.metrics["kind"] == "measured"]
    pairs = measured[["stack", "arm"]].dropna().drop_duplicates().itertuples(index=False)
    wanted = {stack for stack, arm in pairs if setting is None or with_setting(of_stack(arm))[1] == setting}
    locked = {
        (one.name, one.version.partition("+")[0])
        for stack in wanted & set(stack_names())
        for one in load_stack(stack).requirements
    }
    found = {name: sorted({version for own, version in locked if own == name}, key=_in_order) for name in names}
    told = [f"{name} {', '.join(versions)}" for name, versions in found.items() if versions]
    if told:
        return _is("; ".join(told))
    return _none(f"no stack with {names[0]} was measured{f' with {setting}' if setting else ''}")


def of_stack(arm: str) -> str:
    """The level of the stack in an arm's name: `tensorflow-2.1+xla` of `stack=tensorflow-2.1+xla,allocator=…`."""
    return next((level for one in arm.split(",") if (level := one.removeprefix("stack=")) != one), "")


def _in_order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _here(name: str, here: Here) -> Value:
    """This machine's own: a number, a name in the note, or why there is none."""
    if name in PROGRAMS:
        return _program(here, PROGRAMS[name])
    if name == "python":
        return _python(here)
    if here.machine is None:
        return _none(NO_RECORD)
    if name in OF_GPU:
        return _none(_no_gpu(here.machine))
    return OF_MACHINE[name](here.machine) if name in OF_MACHINE else _none(NO_PROPERTY)


def _of_model(here: Here, finding: Mapping[str, Any], model: str, env: str) -> Value:
    """What was measured of a model in an environment; the number is said in the sentence, too."""
    value = here.of_table(model, env, finding["metric"])
    if value.value is None or finding["published"] is None:
        return _none(value.note)
    number = amount(value.value, finding["unit"])
    return Value(value=value.value, kind=value.kind, note=f"{number}, {value.kind}: {value.note}")


def _none(reason: str) -> Value:
    return Value(value=None, kind="unavailable", note=f"unavailable, {reason}")


def _is(note: str, value: float | None = None) -> Value:
    return Value(value=value, kind="measured", note=note)


def _program(here: Here, env: str) -> Value:
    probe = here.probes.get(env)
    if probe is None:
        return _none(f"no trial launch of {env} is recorded")
    return _is(f"{env} {probe.version}") if probe.available else _none(str(probe.reason))


def _python(here: Here) -> Value:
    """The interpreter is told by the folder of its library, mapped in every launch."""
    paths = here.fingerprints["path"].dropna().astype(str)
    versions = sorted(set(paths.str.extract(r"/python(3\.\d+)/")[0].dropna()))
    return _is(f"Python {', '.join(versions)}") if versions else _none("no launch recorded what it mapped")


def _clock(machine: MachineRecord) -> Value:
    clock = machine.cpu_clock
    if clock is None:
        return _none(machine.reasons.get("cpu_clock", "not recorded"))
    return _is(f"{amount(clock.hz, 'Hz')}, {clock.source}", clock.hz)


def _number(value: float | None, what: str) -> Value:
    return _none("not recorded") if value is None else _is(f"{value:,} {what}", float(value))


def _gpus(machine: MachineRecord, told: Callable[[Gpus], Value]) -> Value:
    """What the machine's GPUs tell, or why nothing is known of one."""
    return told(machine.gpus) if machine.gpus else _none(_no_gpu(machine))


def _of_gpu(gpu: Mapping[str, Any], field: str, factor: float, unit: str) -> Value:
    """A number of a GPU, as nvidia-smi writes it."""
    try:
        value = float(str(gpu.get(field))) * factor
    except ValueError:
        return _none(f"nvidia-smi says {gpu.get(field)!r}")
    return _is(amount(value, unit), value)


def _no_gpu(machine: MachineRecord) -> str:
    return machine.reasons.get("gpus") or "the record of the machine does not hold it"


def _names(gpus: Gpus) -> Value:
    return _is(", ".join(str(gpu.get("name")) for gpu in gpus))


OF_MACHINE: dict[str, Callable[[MachineRecord], Value]] = {
    "vcpu": lambda machine: _number(machine.cpu_logical, "logical CPUs"),
    "memory": lambda machine: _number(machine.memory_bytes, "bytes of memory"),
    "boot_disk": lambda machine: _number(
        machine.disk.total_bytes if machine.disk else None, "bytes on the disk of the cache"
    ),
    "clock": _clock,
    "operating_system": lambda machine: _is(str(machine.distribution or "not known")),
    "machine_type": lambda machine: _is(f"{machine.cpu_model}, {machine.virtualisation or 'bare'}"),
    "gpu": lambda machine: _gpus(machine, _names),
    "gpus": lambda machine: _gpus(machine, lambda gpus: _is("GPUs", float(len(gpus)))),
    "gpu_memory": lambda machine: _gpus(machine, lambda gpus: _of_gpu(gpus[0], "memory_mib", 2**20, "B")),
    "max_power": lambda machine: _gpus(machine, lambda gpus: _of_gpu(gpus[0], "power_limit_w", 1, "W")),
}
