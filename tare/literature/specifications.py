"""Tables of a study's machine and software, beside this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tare.literature.finding import Finding, amount
from tare.literature.measured_here import Here, Value
from tare.literature.published import Fact, Published

NO_RECORD = "there is no record of the machine"
# Versions: of which environment's trial launch.
PROGRAMS = {"docker": "docker", "singularity": "apptainer"}


def findings(published: Published, here: Here) -> list[Finding]:
    """A row for each row of each table; names stand in the note."""
    found = []
    for table, rows in published.table_facts.items():
        for row in rows:
            value = _here(row, here)
            said = _said(row)
            found.append(
                Finding(
                    figure=f"table {table}",
                    check="specification",
                    metric=row.id,
                    unit=row.quantity.unit if row.quantity else "text",
                    published=row.quantity.value if row.quantity else None,
                    measured=value.value,
                    measured_kind=value.kind if value.value is not None or value.kind == "unavailable" else None,
                    agrees="not recomputable",
                    note=f"Published: {said}. Here: {value.note}.",
                )
            )
    return found


def _said(row: Fact) -> str:
    if row.quantity is None:
        return ", ".join(row.names)
    return str(row.quantity).removesuffix("s") if row.quantity.printed == "1" else str(row.quantity)


def _here(row: Fact, here: Here) -> Value:
    """This machine's own: a number, a name in the note, or why there is none."""
    machine = here.machine
    if row.id in PROGRAMS:
        return _program(here, PROGRAMS[row.id])
    if row.id == "python":
        return _python(here)
    if machine is None:
        return Value(value=None, kind="unavailable", note=f"unavailable, {NO_RECORD}")
    number = NUMBERS.get(row.id)
    if number is not None:
        value, note = number(machine)
        return Value(value=value, kind="measured" if value is not None else "unavailable", note=note)
    if row.id == "operating_system":
        return Value(value=None, kind="measured", note=str(machine.get("distribution") or "not known"))
    if row.id == "machine_type":
        return Value(
            value=None, kind="measured", note=f"{machine['cpu_model']}, {machine.get('virtualisation') or 'bare'}"
        )
    if row.id == "gpu" and machine.get("gpus"):
        return Value(value=None, kind="measured", note=", ".join(_gpu_name(gpu) for gpu in machine["gpus"]))
    return Value(value=None, kind="unavailable", note=f"unavailable, {_no_gpu(machine)}")


def _clock(machine: Mapping[str, Any]) -> tuple[float | None, str]:
    clock = machine.get("cpu_clock")
    if not clock:
        reason = (machine.get("reasons") or {}).get("cpu_clock", "not recorded")
        return None, f"unavailable, {reason}"
    return float(clock["hz"]), f"{amount(clock['hz'], 'Hz')}, {clock['source']}"


def _of_gpu(field: str, factor: float, unit: str) -> Callable[[Mapping[str, Any]], tuple[float | None, str]]:
    """A number of the first GPU, as nvidia-smi writes it."""

    def read(machine: Mapping[str, Any]) -> tuple[float | None, str]:
        gpus = machine.get("gpus")
        if not gpus:
            return None, f"unavailable, {_no_gpu(machine)}"
        try:
            value = float(gpus[0][field]) * factor
        except (KeyError, ValueError):
            return None, f"unavailable, nvidia-smi says {gpus[0].get(field)!r}"
        return value, amount(value, unit)

    return read


def _program(here: Here, env: str) -> Value:
    probe = here.probes.get(env)
    if probe is None:
        return Value(value=None, kind="unavailable", note=f"unavailable, no trial launch of {env} is recorded")
    if not probe["available"]:
        return Value(value=None, kind="unavailable", note=f"unavailable, {probe['reason']}")
    return Value(value=None, kind="measured", note=f"{env} {probe['version']}")


def _python(here: Here) -> Value:
    """The interpreter is told by the folder of its library, mapped in every launch."""
    paths = here.fingerprints["path"].dropna().astype(str)
    versions = sorted(set(paths.str.extract(r"/python(3\.\d+)/")[0].dropna()))
    if not versions:
        return Value(value=None, kind="unavailable", note="unavailable, no launch recorded what it mapped")
    return Value(value=None, kind="measured", note=f"Python {', '.join(versions)}")


def _vcpu(machine: Mapping[str, Any]) -> tuple[float | None, str]:
    return _number(machine, "cpu_logical", "logical CPUs")


def _memory(machine: Mapping[str, Any]) -> tuple[float | None, str]:
    return _number(machine, "memory_bytes", "bytes of memory")


def _disk(machine: Mapping[str, Any]) -> tuple[float | None, str]:
    return _number(machine.get("disk") or {}, "total_bytes", "bytes on the disk of the cache")


def _gpus(machine: Mapping[str, Any]) -> tuple[float | None, str]:
    gpus = machine.get("gpus")
    return (float(len(gpus)), "GPUs") if gpus else (None, f"unavailable, {_no_gpu(machine)}")


def _number(record: Mapping[str, Any], key: str, what: str) -> tuple[float | None, str]:
    value = record.get(key)
    return (None, "unavailable, not recorded") if value is None else (float(value), f"{value:,} {what}")


def _no_gpu(machine: Mapping[str, Any]) -> str:
    reasons = machine.get("reasons") or {}
    return str(reasons.get("gpus") or "the record of the machine does not hold it")


def _gpu_name(gpu: Any) -> str:
    return str(gpu.get("name")) if isinstance(gpu, Mapping) else str(gpu)


NUMBERS: dict[str, Callable[[Mapping[str, Any]], tuple[float | None, str]]] = {
    "vcpu": _vcpu,
    "memory": _memory,
    "boot_disk": _disk,
    "gpus": _gpus,
    "clock": _clock,
    "gpu_memory": _of_gpu("memory_mib", 2**20, "B"),
    "max_power": _of_gpu("power_limit_w", 1, "W"),
}
