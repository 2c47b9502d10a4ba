"""The peak of a processor's arithmetic, modelled from what the machine says of itself.

peak = cores x fused multiply-add units x lanes of a vector x 2 FLOP x clock. It is no measurement. The clock is the
one that the machine shows: in a virtual machine usually the nominal one, so a boosting processor exceeds the model.
Sources of units and vector widths: the vendors' optimisation guides (AMD 56305, 57647 and 58455; Intel 248966).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.core.errors import UnavailableError

FLOP_PER_FMA = 2
PRECISION_BYTES = {"float64": 8, "float32": 4}
GIGA = 1e9
MEMORY_REASON = (
    "the number and speed of the memory channels are unknown"
    " (a virtual machine hides them; on other machines, reading them needs root and dmidecode)"
)


@dataclass(frozen=True, kw_only=True)
class Core:
    """The arithmetic of one core: number of FMA units, and bytes of the vectors that each takes in a cycle."""

    name: str
    units: int
    vector_bytes: int
    needs: str


# By vendor, family and model: the first and the last model of a range. A processor that is not here has no peak.
CORES: tuple[tuple[str, int, range, Core], ...] = (
    ("AuthenticAMD", 23, range(0x00, 0x30), Core(name="Zen", units=2, vector_bytes=16, needs="fma")),
    ("AuthenticAMD", 23, range(0x30, 0xB0), Core(name="Zen 2", units=2, vector_bytes=32, needs="fma")),
    ("AuthenticAMD", 25, range(0x00, 0x10), Core(name="Zen 3", units=2, vector_bytes=32, needs="fma")),
    ("AuthenticAMD", 25, range(0x20, 0x60), Core(name="Zen 3", units=2, vector_bytes=32, needs="fma")),
    ("AuthenticAMD", 25, range(0x10, 0x20), Core(name="Zen 4", units=2, vector_bytes=32, needs="fma")),
    ("AuthenticAMD", 25, range(0x60, 0xB0), Core(name="Zen 4", units=2, vector_bytes=32, needs="fma")),
    ("AuthenticAMD", 26, range(0x00, 0x20), Core(name="Zen 5", units=2, vector_bytes=64, needs="avx512f")),
    ("AuthenticAMD", 26, range(0x40, 0x50), Core(name="Zen 5", units=2, vector_bytes=64, needs="avx512f")),
    ("GenuineIntel", 6, range(63, 64), Core(name="Haswell", units=2, vector_bytes=32, needs="fma")),
    ("GenuineIntel", 6, range(79, 80), Core(name="Broadwell", units=2, vector_bytes=32, needs="fma")),
    ("GenuineIntel", 6, range(106, 107), Core(name="Ice Lake", units=2, vector_bytes=64, needs="avx512f")),
    ("GenuineIntel", 6, range(143, 144), Core(name="Sapphire Rapids", units=2, vector_bytes=64, needs="avx512f")),
    ("GenuineIntel", 6, range(207, 208), Core(name="Emerald Rapids", units=2, vector_bytes=64, needs="avx512f")),
)


def modelled(machine: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Peak FLOP/s by precision for `threads` threads, with its assumptions; or None and the reason.

    `machine`: facts as `tare.machine.facts.describe` gives them: cpu_signature, cpu_flags, cpu_clock. Returns
    {"kind", "peak_flop_per_s": {precision: number}, "assumptions": [text], "reason"}: kind `modelled`, or
    `unavailable` with a reason; and memory_bytes_per_s, which is unavailable, with its reason.
    """
    memory = {"memory_bytes_per_s": None, "memory_reason": MEMORY_REASON}
    try:
        core, clock = _core(machine), machine.get("cpu_clock")
        if not clock:
            reason = (machine.get("reasons") or {}).get("cpu_clock", "no clock was recorded")
            raise UnavailableError(f"the processor's clock is not known: {reason}")
    except UnavailableError as error:
        return {"kind": "unavailable", "peak_flop_per_s": {}, "assumptions": [], "reason": error.reason, **memory}
    per_cycle = {
        name: core.units * (core.vector_bytes // size) * FLOP_PER_FMA for name, size in PRECISION_BYTES.items()
    }
    assumptions = [
        f"{core.name}: {core.units} FMA units per core, each for vectors of {core.vector_bytes * 8} bits: "
        f"{per_cycle['float32']} FLOP per cycle in float32",
        f"clock {clock['hz'] / GIGA:.2f} GHz, {clock['source']}",
        f"{threads} thread{'s' if threads != 1 else ''}, each on its own core",
    ]
    peaks = {name: threads * flop * clock["hz"] for name, flop in per_cycle.items()}
    return {"kind": "modelled", "peak_flop_per_s": peaks, "assumptions": assumptions, "reason": None, **memory}


def _core(machine: Mapping[str, Any]) -> Core:
    signature = machine.get("cpu_signature")
    if not signature:
        raise UnavailableError("the machine does not name its processor's family and model")
    vendor, family, model = signature["vendor"], signature["family"], signature["model"]
    found = [row[-1] for row in CORES if row[:2] == (vendor, family) and model in row[2]]
    if not found:
        raise UnavailableError(
            f"Tare does not know how many FMA units a core of {vendor} family {family} model {model} has"
        )
    core = found[0]
    if core.needs not in (machine.get("cpu_flags") or []):
        raise UnavailableError(f"this {core.name} does not show {core.needs}, so its vectors are not known")
    return core
