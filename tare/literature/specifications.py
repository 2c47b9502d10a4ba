"""Tables of a study's machine and software, compared with this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.literature.finding import amount
from tare.literature.measured_here import NO_PROPERTY, Here, Value
from tare.literature.published import Published
from tare.literature.published_file import Row
from tare.model.levels import STACK, level_column
from tare.model.records.machine import MachineRecord
from tare.model.registry import HOST
from tare.model.studies.stacks import load_stack, stack_names, with_setting

NO_RECORD = "there is no record of the machine"
NOT_RECORDED = "the record of the machine does not hold it"
# What a machine with a GPU has, and its record does not hold.
OF_GPU = ("cuda", "cuda_cores", "tensor_cores", "tensor_peak", "gpu_memory_kind", "gpu_memory_rate", "interface")
PROGRAMS = {"docker": "docker", "singularity": "apptainer"}  # of which environment's trial launch


def value_here(published: Published, here: Here, finding: Mapping[str, Any]) -> Value:
    """The value here for a row of a table: of this machine, or of what was measured of a model."""
    model, env, name = (finding[key] for key in ("workload", "env", "metric"))
    if model is not None:
        value = here.of_table(model, env or HOST, name)
        if value.value is None or finding["published"] is None:
            return _none(value.note)
        number = amount(value.value, finding["unit"])  # is said in the sentence, too
        return Value(value=value.value, kind=value.kind, note=f"{number}, {value.kind}: {value.note}")
    table = published.table_files[finding["figure"].removeprefix("table ")]
    return _of_machine(next(row for row in table.rows if row.specification == name), here)


def _of_machine(row: Row, here: Here) -> Value:
    """This machine's value for a row that is of no model: a number, a name in the note, or why there is none."""
    name = row.specification
    if row.why_not is not None:
        return _none(row.why_not)
    if row.packages is not None:
        return _packages(row.packages, row.setting, here)
    if name in PROGRAMS:
        probe = here.probes.get(PROGRAMS[name])
        if probe is None:
            return _none(f"no trial launch of {PROGRAMS[name]} is recorded")
        return _is(f"{PROGRAMS[name]} {probe.version}") if probe.available else _none(str(probe.reason))
    if name == "python":  # the interpreter's version is that in the folder of its library, mapped in every launch
        paths = here.fingerprints["path"].dropna().astype(str)
        versions = sorted(set(paths.str.extract(r"/python(3\.\d+)/")[0].dropna()))
        return _is(f"Python {', '.join(versions)}") if versions else _none("no launch recorded what it mapped")
    if here.machine is None:
        return _none(NO_RECORD)
    if name in OF_GPU or (name in OF_GPUS and not here.machine.gpus):
        return _none(here.machine.reasons.get("gpus") or NOT_RECORDED)
    if name in OF_GPUS:
        return OF_GPUS[name](here.machine.gpus or ())
    return OF_MACHINE[name](here.machine) if name in OF_MACHINE else _none(NO_PROPERTY)


def _packages(names: Sequence[str], setting: str | None, here: Here) -> Value:
    """Versions of packages in the locks of the stacks that were measured, all or those with a setting."""
    measured = here.metrics[here.metrics["kind"] == "measured"]
    pairs = measured.reindex(columns=["stack", level_column(STACK)]).dropna().drop_duplicates()
    settings = {(stack, with_setting(level)[1]) for stack, level in pairs.itertuples(index=False)}
    wanted = {stack for stack, own in settings if setting in (None, own)} & set(stack_names())
    locked = {
        (one.name, one.version.partition("+")[0]) for stack in wanted for one in load_stack(stack).requirements
    }
    found = []
    for name in names:
        versions = sorted((version for own, version in locked if own == name), key=_in_order)
        found += [f"{name} {', '.join(versions)}"] if versions else []
    if found:
        return _is("; ".join(found))
    return _none(f"no stack with {names[0]} was measured{f' with {setting}' if setting else ''}")


def _in_order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _none(reason: str) -> Value:
    return Value(value=None, kind="unavailable", note=f"unavailable, {reason}")


def _is(note: str, value: float | None = None) -> Value:
    return Value(value=value, kind="measured", note=note)


def _clock(machine: MachineRecord) -> Value:
    clock = machine.cpu_clock
    if clock is None:
        return _none(machine.reasons.get("cpu_clock", "not recorded"))
    return _is(f"{amount(clock.hz, 'Hz')}, {clock.source}", clock.hz)


def _number(value: float | None, what: str) -> Value:
    return _none("not recorded") if value is None else _is(f"{value:,} {what}", float(value))


def _of_first(gpus: Sequence[Mapping[str, Any]], field: str, factor: float, unit: str) -> Value:
    """A number of the first GPU, as nvidia-smi writes it."""
    reported = gpus[0].get(field)
    if reported is None:
        return _none("nvidia-smi did not report it")
    try:
        value = float(str(reported)) * factor
    except ValueError:
        return _none(f"nvidia-smi says {reported!r}")
    return _is(amount(value, unit), value)


OF_MACHINE: dict[str, Callable[[MachineRecord], Value]] = {
    "vcpu": lambda machine: _number(machine.cpu_logical, "logical CPUs"),
    "memory": lambda machine: _number(machine.memory_bytes, "bytes of memory"),
    "boot_disk": lambda machine: _number(
        machine.disk.total_bytes if machine.disk else None, "bytes on the disk of the cache"
    ),
    "clock": _clock,
    "operating_system": lambda machine: _is(str(machine.distribution or "not known")),
    "machine_type": lambda machine: _is(f"{machine.cpu_model}, {machine.virtualisation or 'bare'}"),
}
OF_GPUS: dict[str, Callable[[Sequence[Mapping[str, Any]]], Value]] = {
    "gpu": lambda gpus: _is(", ".join(str(gpu.get("name")) for gpu in gpus)),
    "gpus": lambda gpus: _is("GPUs", float(len(gpus))),
    "gpu_memory": lambda gpus: _of_first(gpus, "memory_mib", 2**20, "B"),
    "max_power": lambda gpus: _of_first(gpus, "power_limit_w", 1, "W"),
}
