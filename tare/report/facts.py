"""Tables of records: this machine, its software, its device; images, data, conditions, what was mapped, provenance.

A Table is what the page shows as it is: every cell a text, every number already in its unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tare.figures.roofs import roofs
from tare.labels import decimal_prefix, env_title, seconds, size_bytes, workload_title
from tare.report.evidence import Campaign, Evidence, Record
from tare.study import CONTROL, HOST


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell with a second line, or one that spans columns."""

    text: str
    below: str = ""
    span: int = 1


Row = list[str | Cell | None]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for people.

    Attributes:
        caption: what it is.
        columns: heads, the first that of the row heads.
        rows: texts or cells; None is shown as a dash.
        note: below it.
        numeric: whether all columns but the first are numbers, to be set right.
        wide: whether it has many columns.
    """

    caption: str
    columns: list[str]
    rows: list[Row]
    note: str = ""
    numeric: bool = False
    wide: bool = field(default=False)


UNAVAILABLE = "unavailable"
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
    "cpu_mitigations": "Mitigations",
    "gpus": "NVIDIA devices",
}
SHOWN_PACKAGES = ("torch", "torchvision", "tokenizers", "numpy")


def value_text(key: str, value: Any) -> str:
    """A fact of any shape as one text: lists by commas, mappings as key and value, bytes scaled."""
    if isinstance(value, Mapping):
        # A mapping of sizes is named so itself; the names of its members need not be.
        tail = "_bytes" if key.endswith("_bytes") else ""
        return "; ".join(
            f"{str(name).removesuffix('_bytes').replace('_', ' ')}: {value_text(f'{name}{tail}', inner)}"
            for name, inner in value.items()
        )
    if isinstance(value, (list, tuple)):
        return ", ".join(value_text(key, inner) for inner in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return size_bytes(value)
    if key.endswith("_s") and isinstance(value, (int, float)):
        return seconds(value)
    if value is None:
        return UNAVAILABLE
    return f"{value:g}" if isinstance(value, float) else str(value)


def _fact_rows(record: Record, names: Mapping[str, str]) -> list[Row]:
    reasons = record.get("reasons") or {}
    rows: list[Row] = []
    for key, title in names.items():
        if key not in record:
            continue
        value = record[key]
        text = value_text(key, value)
        reason = reasons.get(key) or record.get(f"{key}_reason")
        rows.append([title, f"{UNAVAILABLE}: {reason or 'no reason was recorded'}" if value is None else text])
    return rows


def machine_table(evidence: Evidence) -> Table:
    """The paper's table I, for this machine; facts that have no place elsewhere come last."""
    record = evidence.machine or {}
    rows = _fact_rows(record, MACHINE)
    placed = {*MACHINE, *SOFTWARE, *DEVICE, "reasons", "shm_bytes", "schema"}
    others = {key: key.replace("_", " ").capitalize() for key in record if key not in placed}
    rows += _fact_rows(record, {key: title for key, title in others.items() if not key.endswith("_reason")})
    return Table(caption="This machine (the paper's Table I)", columns=["", "value"], rows=rows)


def software_table(evidence: Evidence) -> Table:
    """The paper's table IV: operating system, runtimes, and what runs inside."""
    rows = _fact_rows(evidence.machine or {}, SOFTWARE)
    for env in evidence.environments:
        probe = evidence.probes.get(env)
        if probe is not None:
            text = probe["version"] or "available" if probe["available"] else f"{UNAVAILABLE}: {probe['reason']}"
            rows.append([env_title(env), text])
    inside = _first_facts(evidence).get(HOST)
    if inside:
        rows.append(["Python inside", inside["python"]])
        rows.append(["PyTorch inside", (inside.get("torch") or {}).get("version")])
    for name, version in _packages(evidence).items():
        if name in SHOWN_PACKAGES and name != "torch":
            rows.append([f"{name} inside", version])
    rows.append(["Stack", evidence.study["stack"]])
    return Table(caption="Software (the paper's Table IV)", columns=["", "version"], rows=rows)


def _packages(evidence: Evidence) -> dict[str, str]:
    for record in evidence.images.values():
        if record.get("packages"):
            return {package["name"]: package["version"] for package in record["packages"]}
    return {}


def package_list(evidence: Evidence) -> list[str]:
    """Every package of the stack with its version."""
    return [f"{name} {version}" for name, version in sorted(_packages(evidence).items())]


def device_table(evidence: Evidence) -> Table:
    """The paper's table V: the device that trains, with rates that were measured here."""
    record = evidence.machine or {}
    device = evidence.study["device"]
    rows: list[Row] = [["Device of the study", "the CPU" if device == "cpu" else device]]
    rows += _fact_rows(record, {"cpu_model": "Processor", **DEVICE} if device == "cpu" else DEVICE)
    if evidence.ceilings is not None:
        roof = roofs(evidence.ceilings)
        rows += [
            [
                f"Memory bandwidth ({roof['memory']['kernel']}, {size_bytes(roof['memory']['working_set_bytes'])})",
                f"{decimal_prefix(roof['memory']['bytes_per_s'])}B/s, measured",
            ],
            [
                f"Best bandwidth ({roof['cache']['kernel']}, {size_bytes(roof['cache']['working_set_bytes'])})",
                f"{decimal_prefix(roof['cache']['bytes_per_s'])}B/s, measured",
            ],
            [
                f"Matrix product, fp32 (n = {roof['product']['size']})",
                f"{decimal_prefix(roof['product']['flop_per_s'])}FLOP/s, measured",
            ],
        ]
    threads = evidence.study["conditions"]["threads"]
    note = f"Rates: best repetition with {threads} thread{'s' if threads > 1 else ''}, as the study trains."
    return Table(caption="Device (the paper's Table V)", columns=["", "value"], rows=rows, note=note)


def images_table(evidence: Evidence) -> Table:
    """Bytes, build seconds and base of each environment's form of the one image."""
    rows: list[Row] = []
    order = [env for env in ("tree", "oci", *evidence.environments) if env in evidence.images]
    for name in order:
        record = evidence.images[name]
        title = {"tree": "Tree of the stack", "oci": "OCI image"}.get(name) or env_title(name)
        if record.get("status") not in (None, "ok"):
            rows.append([title, f"{UNAVAILABLE}: {record.get('reason')}", None, None, None])
            continue
        size = record.get("bytes")
        rows.append(
            [
                title,
                UNAVAILABLE if size is None else size_bytes(size),
                _stages(_own_stages(record.get("seconds") or {}, record.get("details") or {})),
                _base(record.get("base")),
                _short_digest(record.get("digest")),
            ]
        )
    note = (
        f"Packages: {len(_packages(evidence))}, the same in every form. Stages that came from the cache show what "
        "they took when they were made."
    )
    return Table(
        caption="Images: one recipe, one image, each environment's own form of it",
        columns=["form", "size on disk", "seconds by stage", "base", "digest"],
        rows=rows,
        note=note,
        wide=True,
    )


def _own_stages(stages: Mapping[str, float], details: Mapping[str, Any]) -> Mapping[str, float]:
    """Stages without the parts of one that is listed whole."""
    return {name: value for name, value in stages.items() if not any(name.startswith(f"{o}_") for o in stages)}


def _stages(stages: Mapping[str, float]) -> str:
    if not stages:
        return "none of its own"
    return ", ".join(f"{name.replace('_', ' ')} {seconds(value)}" for name, value in stages.items())


def _base(base: Any) -> str | None:
    if isinstance(base, Mapping):
        return " ".join(str(base[key]) for key in ("kind", "name", "release") if base.get(key)) or None
    return None if base is None else str(base)


def _short_digest(digest: str | None) -> str | None:
    return None if not digest else f"{digest[:19]}…" if len(digest) > 20 else digest


def data_sentences(evidence: Evidence) -> list[str]:
    """Which data stood behind each data set, where it came from, and whether it is the paper's."""
    lines = []
    for name, record in evidence.data.items():
        source = record.get("source") or {}
        where = source.get("name") or "an unnamed source"
        lines.append(f"{record['title']}: {record['rows']:,} rows, {size_bytes(record['bytes'])}, from {where}.")
        if name == "sentiment" and record["dataset"] != "imdb":
            lines.append(
                "These are not the IMDB reviews of the paper, which could not be had or were not asked for. "
                f"{record.get('note') or ''} Shapes and steps are the paper's; losses can't be compared with its."
            )
        elif not record["canonical"]:
            lines.append("The files came from another place than their authors', and are verified by their hashes.")
    return lines


def _rounds(evidence: Evidence) -> list[Campaign]:
    found = [evidence.joint(workload) for workload in evidence.workloads]
    return [campaign for campaign in found if campaign is not None]


def _ok_launches(campaigns: Iterable[Campaign]) -> Iterable[tuple[str, Record]]:
    for campaign in campaigns:
        for unit in campaign.units:
            for env, launch in unit["launches"].items():
                if launch["status"] == "ok":
                    yield (env if campaign.plan["kind"] == "rounds" else HOST), launch


def _first_facts(evidence: Evidence) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for env, launch in _ok_launches(evidence.campaigns):
        found.setdefault(env, launch["inside"]["facts"])
    return found


def deviation_sentences(evidence: Evidence) -> list[str]:
    """Where effective conditions differed from those asked for, and in how many launches."""
    total, found = 0, Counter()
    for env, launch in _ok_launches(evidence.campaigns):
        total += 1
        for line in launch["deviations"]:
            found[f"{env_title(env)}: {line}"] += 1
    if not total:
        return ["No launch succeeded, so nothing can be said of effective conditions."]
    if not found:
        return [f"All {total} successful launches ran under the conditions that were asked for."]
    return [f"{line} ({count} of {total} successful launches)" for line, count in found.most_common()]


SECCOMP = {"0": "off", "1": "strict", "2": "filter"}
EFFECTIVE = {
    "Threads of the framework": lambda f: (f.get("torch") or {}).get("threads"),
    "CPU affinity": lambda f: ", ".join(map(str, f["affinity"])),
    "CPU quota": lambda f: f["cpu_quota"],
    "Open files (soft)": lambda f: f["open_files"]["soft"],
    "/dev/shm": lambda f: size_bytes(f["shm_bytes"]) if f["shm_bytes"] is not None else None,
    "Network interfaces": lambda f: ", ".join(f["interfaces"]),
    "User id": lambda f: f["uid"],
    "Seccomp": lambda f: SECCOMP.get(f["status"].get("Seccomp"), f["status"].get("Seccomp")),
    "Speculative store bypass": lambda f: f["status"].get("Speculation_Store_Bypass"),
    "Huge pages": lambda f: f["transparent_hugepage"],
    "C library": lambda f: f["libc"],
    "Root file system": lambda f: f["root_mount"]["type"],
    "File system of the tree": lambda f: f["tree_mount"]["type"],
}


def conditions_table(evidence: Evidence) -> Table:
    """Effective conditions as seen from inside the first successful launch of each environment."""
    facts = {env: record for env, record in _first_facts(evidence).items() if env != CONTROL}
    names = [env for env in evidence.environments if env in facts]
    rows: list[Row] = []
    for title, reader in EFFECTIVE.items():
        rows.append([title, *(_read(reader, facts[env]) for env in names)])
    host = facts.get(HOST, {}).get("namespaces", {})
    shared = [
        ", ".join(name for name, inode in facts[env]["namespaces"].items() if name in host and inode != host[name])
        for env in names
    ]
    rows.append(["Namespaces other than the host's", *(text or "none" for text in shared)])
    asked = evidence.study["conditions"]
    note = f"Asked of all: {value_text('', {key: value for key, value in asked.items()})}."
    return Table(
        caption="Effective conditions, seen from inside",
        columns=["", *(env_title(env, short=True) for env in names)],
        rows=rows,
        note=note,
        wide=True,
    )


def _read(reader: Any, record: Record) -> str:
    try:
        value = reader(record)
    except (KeyError, TypeError):
        value = None
    return "not visible" if value is None else str(value)


def mapped_table(evidence: Evidence) -> Table:
    """What was really mapped after training, against the host's: files of the tree, files of the system."""
    rows: list[Row] = []
    for workload in evidence.workloads:
        own = evidence.fingerprints[evidence.fingerprints["workload"] == workload]
        host = own[own["env"] == HOST].set_index("path")["sha256"].to_dict()
        for env in evidence.environments:
            found = own[own["env"] == env].set_index("path")["sha256"].to_dict()
            if found:
                rows.append([workload_title(workload), env_title(env), *_mapped(found, host)])
    return Table(
        caption="Files that were really mapped",
        columns=[
            "workload",
            "environment",
            "files",
            "of the tree, as on the host",
            "other files that differ",
        ],
        rows=rows,
        note="By path and SHA-256, read from inside at the end of the profiled launch.",
        wide=True,
    )


def _mapped(found: Mapping[str, str], host: Mapping[str, str]) -> list[str]:
    tree = {path: digest for path, digest in found.items() if path.startswith("{tree}/")}
    same = sum(host.get(path) == digest for path, digest in tree.items())
    # A library may lie at another path in the image: the name counts, and the bytes.
    by_name = {path.rsplit("/", 1)[-1]: digest for path, digest in host.items()}
    others = {path.rsplit("/", 1)[-1]: digest for path, digest in found.items() if path not in tree}
    differing = sorted(name for name, digest in others.items() if by_name.get(name) != digest)
    return [str(len(found)), f"{same} of {len(tree)}", ", ".join(differing) or "none"]


def provenance_table(evidence: Evidence) -> Table:
    """Plans by hash, seeds, code, and when each campaign was sealed."""
    rows: list[Row] = []
    for campaign in evidence.campaigns:
        rows.append(
            [
                workload_title(campaign.workload),
                campaign.name,
                str(campaign.plan["seed"]),
                f"{campaign.sealed['units']} of {campaign.plan['units']}",
                campaign.sealed["plan_sha256"][:16],
                campaign.plan["code_sha256"][:16],
                campaign.sealed["sealed_at"],
            ]
        )
    return Table(
        caption="Campaigns",
        columns=["workload", "campaign", "seed", "units", "plan (SHA-256)", "code inside (SHA-256)", "sealed"],
        rows=rows,
        wide=True,
    )
