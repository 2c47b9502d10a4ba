"""Images that Tare loaded into a Docker daemon that is not its own, so that they can be taken away again.

What lies in the private daemon goes with the cache. Standard library only, as all that `make clean-runtimes` runs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tare.core.files import cache_path, locked, read_json, write_json
from tare.core.process import run
from tare.core.progress import say

REMOVE_S = 120.0
GONE = "No such image"


def path() -> Path:
    """The record: by the daemon's address, which is empty for the client's own choice, the images' IDs."""
    return cache_path("runtimes", "daemon-images.json")


def noted() -> dict[str, list[str]]:
    """What was loaded and has not been taken away: the daemon's address -> image IDs."""
    return read_json(path()) if path().exists() else {}


def note(address: str, image_id: str) -> None:
    """Write down an image that is about to be loaded; one whose load fails is found to be gone later."""
    with locked(path().with_suffix(".lock"), waiting_for="images of a Docker daemon are noted"):
        images = noted()
        write_json(path(), {**images, address: sorted({*images.get(address, []), image_id})})


def remove() -> bool:
    """Remove what is noted from its daemon, and say so; false where something had to stay.

    An image of which a container is left, or that has another name since, stays and is named.
    """
    with locked(path().with_suffix(".lock"), waiting_for="images of a Docker daemon are noted"):
        images = noted()
        staying = {address: left for address, ids in images.items() if (left := _remove(address, ids))}
        if staying:
            write_json(path(), staying)
        else:
            path().unlink(missing_ok=True)
    return not staying


def _remove(address: str, image_ids: list[str]) -> list[str]:
    """Those that stay."""
    if shutil.which("docker") is None:
        say(
            f"{len(image_ids)} images stay in a Docker daemon{_at(address)}: there is no docker to ask it by "
            f"({path()} names them)"
        )
        return image_ids
    staying, removed = [], 0
    for image_id in image_ids:
        done = run(["docker", "image", "rm", image_id], timeout_s=REMOVE_S, env=_variables(address))
        if not done.ok and GONE not in done.stderr:
            say(f"{image_id} stays in the Docker daemon{_at(address)}: {done.explain()}")
            staying.append(image_id)
        removed += done.ok
    if removed:
        say(f"removed {removed} images that Tare had loaded into the Docker daemon{_at(address)}")
    return staying


def _at(address: str) -> str:
    return f" at {address}" if address else ""


def _variables(address: str) -> Mapping[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "DOCKER_CONFIG") if key in os.environ}
    return {**kept, **({"DOCKER_HOST": address} if address else {})}
