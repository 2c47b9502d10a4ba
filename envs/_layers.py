"""Where the overlay drivers of Docker and Podman keep the layers of an image."""

from __future__ import annotations

import json
from pathlib import Path

from tare.core.errors import UnavailableError

OVERLAYS = ("overlay2", "overlay")


def layer_folders(answer: str) -> tuple[Path, ...]:
    """Folders of an image's layers, lowest first, by GraphDriver of `image inspect`; else UnavailableError."""
    try:
        driver = json.loads(answer) or {}
    except ValueError as error:
        raise UnavailableError(f"the runtime does not say where it keeps layers: {answer.strip()[:100]}") from error
    name, data = driver.get("Name"), driver.get("Data") or {}
    if name not in OVERLAYS or "UpperDir" not in data:
        raise UnavailableError(f"the storage driver {name or 'of this runtime'} does not say where its layers lie")
    lower = [part for part in data.get("LowerDir", "").split(":") if part]
    folders = tuple(Path(part) for part in (*reversed(lower), data["UpperDir"]))
    for folder in folders:
        try:
            next(folder.iterdir(), None)
        except OSError as error:
            raise UnavailableError(f"the layers' folder {folder} can't be looked into: {error.strerror}") from error
    return folders
