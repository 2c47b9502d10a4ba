"""Tables of this machine: the machine itself, its software, its device."""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis import ceilings
from tare.analysis.roofs import roofs
from tare.literature import published
from tare.model.records.machine import MachineRecord
from tare.model.studies.study import HOST
from tare.report.evidence import Evidence
from tare.report.machine.conditions import first_facts
from tare.report.machine.gpus import gpu_rows
from tare.report.machine.material import packages
from tare.report.words.labels import decimal_prefix, env_title, size_bytes
from tare.report.words.layout import UNAVAILABLE, Row, Table, value_text

MACHINE = {
    "cpu_model": "Processor",
    "cpu_logical": "Logical CPUs",
    "cpu_allowed": "Logical CPUs that we may use",
    "cpu_physical": "Physical cores",
    "memory_bytes": "Memory",
    "swap_bytes": "Swap",
    "virtualisation": "Virtualisation",
    "architecture": "Architecture",
    "disk": "Disk of the cache",
    "cgroups": "Control groups",
    "load_1min": "Load when it was described (1 min)",
}
SOFTWARE = {
    "distribution": "Operating system",
    "kernel": "Kernel",
    "libc": "C library",
    "transparent_huge_pages": "Transparent huge pages",
}
DEVICE = {
    "cpu_flags": "Instruction sets",
    "cpu_caches_bytes": "Caches",
    "cpu_governor": "Frequency governor",
    "cpu_mitigations": "Mitigations, where affected",
}
SHOWN_PACKAGES = ("torch", "torchvision", "tokenizers", "numpy")


def _fact_rows(machine: MachineRecord | None, names: Mapping[str, str]) -> list[Row]:
    """A row for each of these facts that the record has."""
    told = machine.told() if machine else {}
    rows: list[Row] = []
    for key, title in names.items():
        if key not in told:
            continue
        value = told[key]
        if key == "cpu_mitigations" and isinstance(value, Mapping):
            value = {name: state for name, state in value.items() if state != "Not affected"}
        text = value_text(key, value)
        reason = machine.reasons.get(key)
        rows.append([title, f"{UNAVAILABLE}: {reason or 'no reason was recorded'}" if value is None else text])
    return rows


def _in_paper(evidence: Evidence, about: str) -> str:
    """Which tables of papers a table of this machine stands beside, where the study repeats any."""
    found = [
        (study.paper, table.name)
        for study in map(published.load, evidence.papers)
        for table in study.table_files.values()
        if table.about == about
    ]
    if len(evidence.papers) == 1:
        return "".join(f" (the paper's Table {name})" for _, name in found)
    return f" ({', '.join(f'Table {name} of {paper}' for paper, name in found)})" if found else ""


def machine_table(evidence: Evidence) -> Table:
    """The machine, as papers have a table of theirs."""
    rows = _fact_rows(evidence.machine, MACHINE)
    return Table(caption=f"This machine{_in_paper(evidence, 'machine')}", columns=["", "value"], rows=rows)


def software_table(evidence: Evidence) -> Table:
    """Software: operating system, runtimes, and what runs inside."""
    rows = _fact_rows(evidence.machine, SOFTWARE)
    for env in evidence.environments:
        probe = evidence.probes.get(env)
        if probe is not None and env != HOST:
            text = probe.version or "available" if probe.available else f"{UNAVAILABLE}: {probe.reason}"
            rows.append([env_title(env), text])
    inside = first_facts(evidence).get(HOST)
    if inside:
        rows.append(["Python inside", inside.python])
        rows.append(["PyTorch inside", inside.framework and inside.framework.version])
    for name, version in packages(evidence).items():
        if name in SHOWN_PACKAGES and name != "torch":
            rows.append([f"{name} inside", version])
    rows.append(["Stack", evidence.study.stack])
    return Table(caption=f"Software{_in_paper(evidence, 'software')}", columns=["", "version"], rows=rows)


def package_list(evidence: Evidence) -> list[str]:
    """Every package of the stack with its version."""
    return [f"{name} {version}" for name, version in sorted(packages(evidence).items())]


def device_table(evidence: Evidence) -> Table:
    """The device that trains, with rates that were measured here."""
    record = evidence.machine
    device = evidence.study.device
    rows: list[Row] = [["Device of the study", "the CPU" if device == "cpu" else device]]
    rows += _fact_rows(record, {"cpu_model": "Processor", **DEVICE} if device == "cpu" else DEVICE)
    rows += gpu_rows(record.told() if record else {}) or _fact_rows(record, {"gpus": "NVIDIA devices"})
    if evidence.ceilings is not None:
        roof = roofs(evidence.ceilings)
        for name, row in (("Memory bandwidth", roof["memory"]), ("Best bandwidth", roof["cache"])):
            text = f"{name} ({row['kernel']}, {size_bytes(row['working_set_bytes'])})"
            rows.append([text, f"{decimal_prefix(row['bytes_per_s'])}B/s, measured"])
        for precision, row in ceilings.peaks(evidence.ceilings).items():
            text = f"Matrix product, {precision} ({row['kernel']}, n = {row['size']})"
            rows.append([text, f"{decimal_prefix(row['flop_per_s'])}FLOP/s, measured"])
        for precision, peak in ceilings.claimed(evidence.ceilings).items():
            rows.append([f"Peak, {precision}", f"{decimal_prefix(peak)}FLOP/s, modelled"])
        rows.append(["Source of the peaks", ceilings.claim_source(evidence.ceilings)])
    threads = evidence.study.conditions.threads
    note = f"Rates: best repetition with {threads} thread{'s' if threads > 1 else ''}, as the study trains."
    return Table(caption=f"Device{_in_paper(evidence, 'device')}", columns=["", "value"], rows=rows, note=note)
