"""Image records and starts as a finished study leaves them, without any image."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign_builders import MACHINE, base_plan, launch_record, write_campaign

from tare.analysis import image_costs
from tare.core.files import write_json
from tare.model import tables
from tare.model.journals import units
from tare.model.records.images import NaiveImageRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL, started
from tare.model.studies.layout import SEALED

STACK = "torch-2.13"
SHARED_S = {"fetch": 5.0, "tree": 15.0, "tree_unpack": 4.0, "tree_compile": 11.0}
IMAGE_S = {"base": 4.0, "assemble": 6.0}
IMAGE_BYTES = 860_000_000
# By environment: name and seconds of its own stage, bytes on the disk, whether the form is one file.
OWN = {
    "docker": ("load", 10.0, 880_000_000, False),
    "apptainer": ("build", 18.0, 250_000_000, True),
    "charliecloud": ("unpack", 9.0, 884_000_000, False),
}
OTHER = ("load", 12.0, 881_000_000, False)
# By environment: seconds of runtime and imports of a warm start, and what a cold one adds to the imports.
STARTS = {"docker": (0.25, 2.2, 0.8), "apptainer": (0.2, 3.7, 0.1), "charliecloud": (0.03, 2.2, 1.2)}
OTHER_START = (0.02, 2.0, 0.8)


def image_records(folder: Path, names: Sequence[str], unavailable: Mapping[str, str], stack: str = STACK) -> None:
    """Records of tree, image and every environment's form in `folder`/`stack`."""
    packages = [{"name": "torch", "version": "2.13.0", "sha256": None}]
    common = {"schema": 1, "status": "ok", "reason": None, "stack": stack, "variant": "cpu", "packages": packages}
    write_json(
        folder / stack / "tree.json",
        {**common, "bytes": 830_000_000, "seconds": SHARED_S, "wheel_bytes": 244_000_000},
    )
    shared = {"bytes": IMAGE_BYTES, "seconds": {**SHARED_S, **IMAGE_S}, "storage": storage(2 * IMAGE_BYTES, 3)}
    tree = {"inside": "/opt/tare", "digest": None}
    write_json(folder / stack / "oci.json", {**common, **shared, "tree": tree, "cached": True})
    for name in names:
        write_json(folder / stack / f"{name}.json", {**common, **form_fields(name)})
    nothing = dict.fromkeys(("path", "digest", "image_id", "bytes", "base"))
    for name, reason in unavailable.items():
        form = {**form_fields(name), **nothing, "status": "unavailable", "reason": reason, "seconds": {}}
        write_json(folder / stack / f"{name}.json", {**common, **form})


def storage(disk_bytes: int, files: int, shared_bytes: int = 0) -> dict[str, Any]:
    """What a form takes on the disk."""
    counted = {"disk_bytes": disk_bytes, "shared_bytes": shared_bytes, "files": files}
    return {**counted, "places": ["/cache/form"], "reason": None}


def form_fields(name: str) -> dict[str, Any]:
    """What the record of one environment's form says."""
    base = {"kind": "mmdebstrap", "name": "bookworm", "digest": "sha256:" + "b" * 64, "glibc": "2.36", "bytes": 1}
    common = {"env": name, "digest": "sha256:" + "e" * 64, "base": {**base, "reason": None}, "cached": True}
    common |= {**dict.fromkeys(("reference", "python", "tree", "tree_digest", "key")), "details": {}}
    if name == HOST:
        size = {"bytes": 863_000_000, "path": "/cache/tree", "storage": storage(863_000_000, 13000, 863_000_000)}
        return {**common, **size, "image_id": None, "seconds": SHARED_S}
    stage, seconds, size, is_file = OWN.get(name, OTHER)
    return {
        **common,
        "image_id": "sha256:" + "f" * 64,
        "path": None if stage == "load" else "/cache/form",
        "bytes": size - 30_000_000 if stage == "load" else size,
        "seconds": {**SHARED_S, **IMAGE_S, stage: seconds},
        "storage": storage(size, 1 if is_file else 13000),
        "details": {"compression": "-comp zstd"} if is_file else {},
    }


def start_record(env: str, phase: str, generator: random.Random) -> dict[str, Any]:
    """One start that succeeded."""
    runtime, imports, cold = STARTS.get(env, OTHER_START)
    record = launch_record(env, generator)
    is_cold = phase == units.COLD
    entry = record["spawn_ns"] + int(1e9 * runtime * generator.gauss(1, 0.02))
    imported = entry + int(1e9 * (imports + cold * is_cold) * generator.gauss(1, 0.02))
    instants = {"entry": entry, "imports": imported, "last": imported + 1_000_000}
    record["inside"]["marks"] = [
        {"name": name, "at_ns": at, "user_s": 1.0, "system_s": 0.1} for name, at in instants.items()
    ]
    record["inside"]["mode"] = "start"
    record["inside"]["results"] = {
        "read_bytes": 366_000_000 if is_cold else 5_000_000,
        "read_bytes_reason": None,
        "major_faults": 190 if is_cold else 9,
        "minor_faults": 40_000,
    }
    return {**record, "machine_read_bytes": 370_000_000 if is_cold else 6_000_000}


def starts_record(
    names: Sequence[str],
    unavailable: Mapping[str, str],
    *,
    study: str = "nyu2022",
    repetitions: int = 3,
    obstacle: str | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """Starts by repetition, launch and page cache, for `write_starts`; with an obstacle, none could be cold."""
    generator = random.Random(seed)
    first = units.AS_FOUND if obstacle else units.COLD
    launches = [HOST, CONTROL, *(name for name in names if name != HOST)]
    repeated = [
        {
            "unit": number,
            "order": launches,
            "launches": {
                name: {phase: start_record(name, phase, generator) for phase in (first, units.WARM)}
                for name in launches
            },
        }
        for number in range(repetitions)
    ]
    return {
        "study": study, "arm": "stack=same, allocator=default", "no_cold": obstacle, "environments": launches,
        "unavailable": dict(unavailable), "units": repeated,
    }  # fmt: skip


def write_starts(folder: Path, record: Mapping[str, Any]) -> Path:
    """The sealed campaign of such starts, in place of an earlier one; returns its seal."""
    shutil.rmtree(folder, ignore_errors=True)
    rows = []
    for unit in record["units"]:
        launches = {
            started(name, phase): one for name in unit["order"] for phase, one in unit["launches"][name].items()
        }
        common = {"discarded": False, "voided": None, "cost_s": 1.0, "order": list(launches)}
        rows.append({"unit": unit["unit"], **common, "launches": launches})
    plan = base_plan(record["study"], "mnist_cnn", "starts", record["environments"], len(rows))
    plan |= {"arm": record["arm"], "unavailable": record["unavailable"], "discarded": 0}
    write_campaign(folder, plan | {"spec": {"mode": "start", "no_cold": record["no_cold"]}}, rows)
    return folder / SEALED


def naive_record(**reasons: str) -> dict[str, Any]:
    """The record of both naive builds; one that can't be had has a reason, by its builder."""
    sizes = {"docker": ("20.10.24", 90.0, 1_600_000_000), "apptainer": ("1.4.5", 79.0, 651_000_000)}
    builds = [
        {
            "builder": name,
            "status": "unavailable",
            "reason": reasons[name],
            "version": None,
            "seconds": None,
            "bytes": None,
        }
        if name in reasons
        else {"builder": name, "status": "ok", "reason": None, "version": version, "seconds": took, "bytes": size}
        for name, (version, took, size) in sizes.items()
    ]
    return {
        "schema": NaiveImageRecord.VERSION, "stack": STACK, "variant": "cpu",
        "packages": [{"name": "torch", "version": "2.13.0", "sha256": None}], "builds": builds,
    }  # fmt: skip


def image_cost_tables(root: Path, names: Sequence[str], unavailable: Mapping[str, str], **starting: Any) -> None:
    """Starts and the table of what images cost, by the real code from the records below `root`."""
    record = starts_record(names, unavailable, **starting)
    naive = root / "images" / STACK / "naive" / MACHINE / "record.json"
    write_json(naive, naive_record())
    forms = image_costs.read_forms(root / "images", STACK, [*names, *unavailable], naive)
    made = image_costs.build(
        record["study"], MACHINE, [forms], image_costs.read_starts(write_starts(root / "starts", record))
    )
    tables.write("image_costs", made, root / "tables/image_costs.csv")
