"""The record that Tare's worker writes inside a launch, as it is read from outside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tare.core.errors import IntegrityError, UserError
from tare.core.files import read_json, text_of
from tare.model.records.launches import Facts, Inside
from tare.model.schema import parse

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_inside(path: Path) -> tuple[Inside | None, str | None]:
    """What the worker wrote, and no reason; or None, and the reason where what it wrote is no such record."""
    if not path.exists():
        return None, None
    if path.is_symlink():
        return None, "the record from inside is a link, which may lead to any file of this machine"
    try:
        value = read_json(path)
        if not isinstance(value, dict) or value.get("schema") != 1:
            found = value.get("schema") if isinstance(value, dict) else None
            found = found if isinstance(found, int) and found < 1000 else "none"
            raise IntegrityError(f"the record from inside has schema {found}, this version reads 1")
        inside = parse(Inside, value, "the record from inside")
    except (IntegrityError, UserError) as error:
        return None, str(error)
    facts = inside.facts
    own = None if on_another_kernel(facts) else tuple(own_namespaces(facts.namespaces))
    return inside.replace(facts=facts.replace(own_namespaces=own)), None


def on_another_kernel(facts: Facts) -> bool:
    """Whether a launch ran on another kernel than this process does, as in a virtual machine."""
    return facts.boot_id is not None and facts.boot_id != boot_id()


def boot_id() -> str | None:
    """What this kernel drew at its start; None where it is hidden."""
    return text_of(BOOT_ID)


def own_namespaces(inside: Mapping[str, str | None]) -> list[str]:
    """Names of the namespaces that a launch does not share with this process.

    Compared with ours, which live on: the kernel gives a number again once a launch's namespace is gone.
    """
    ours = {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
    return sorted(name for name, inode in inside.items() if inode is not None and inode != ours.get(name))
