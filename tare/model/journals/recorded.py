"""Of which machine a recorded reference campaign is. Those of older versions name it by their device alone.

Their files are checked by hash and stay as they are: what they lack is added where they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from tare.core.errors import IntegrityError, TareError
from tare.core.files import read_json
from tare.model.machines import slug_of
from tare.model.records.measured import OnMachine
from tare.model.studies.layout import REFERENCE

AnyOnMachine = TypeVar("AnyOnMachine", bound=OnMachine)
DEEPEST = 7  # folders between a record and the reference campaign that holds it


def machine_of(record: Mapping[str, Any]) -> str:
    """Name of the machine of a reference campaign, from its record as JSON holds it."""
    device = record.get("device")
    name = device.get("name") if isinstance(device, Mapping) else None
    return str(record.get("machine") or slug_of(str(name or "")))


def reference_of(path: Path) -> Path | None:
    """The folder of the reference campaign that holds a file; None where none does."""
    folders = path.absolute().parents[:DEEPEST]
    return next((folder for folder in folders if (folder / REFERENCE).is_file()), None)


def recorded_machine(path: Path) -> str | None:
    """Name of the machine that a file was recorded on; None where it is in no reference campaign."""
    folder = reference_of(path)
    if folder is None:
        return None
    try:
        found = read_json(folder / REFERENCE)
    except TareError:
        return None
    return machine_of(found) if isinstance(found, Mapping) else None


def with_machine(record: AnyOnMachine, path: Path) -> AnyOnMachine:
    """A record with the machine that it was measured on. Raises IntegrityError: it names none, and is in no
    reference campaign.
    """
    if record.machine is not None:
        return record
    machine = recorded_machine(path)
    if machine is None:
        raise IntegrityError(f"{path} is of an older version, which named no machine: {record.REMAKE}")
    return record.replace(machine=machine)
