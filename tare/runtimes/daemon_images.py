"""Images that Tare loaded into a Docker daemon that is not its own, so that they can be taken away again.

What the private daemon holds goes with the cache. Standard library only, as all that `make clean-runtimes` runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
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
    with _record() as images:
        images[address] = [*images.get(address, []), image_id]


def remove() -> bool:
    """Remove what is noted from its daemon, naming what stays: in use, or renamed; false where something did."""
    with _record() as images:
        for address, image_ids in images.items():
            images[address] = _remove(address, image_ids)
        return not any(images.values())


@contextlib.contextmanager
def _record() -> Iterator[dict[str, list[str]]]:
    """The record, to be changed by nobody else meanwhile; written at the end, and gone where it is empty."""
    with locked(path().with_suffix(".lock"), waiting_for="images of a Docker daemon are noted"):
        images = noted()
        yield images
        if any(images.values()):
            write_json(path(), {address: sorted(set(ids)) for address, ids in images.items() if ids})
        else:
            path().unlink(missing_ok=True)


def _remove(address: str, image_ids: list[str]) -> list[str]:
    at = f" at {address}" if address else ""
    if shutil.which("docker") is None:
        here = f"there is no docker command to remove them with ({path()} lists them)"
        say(f"{len(image_ids)} images stay in a Docker daemon{at}: {here}")
        return image_ids
    variables = {key: os.environ[key] for key in ("PATH", "HOME", "DOCKER_CONFIG") if key in os.environ}
    variables |= {"DOCKER_HOST": address} if address else {}
    staying, removed = [], 0
    for image_id in image_ids:
        done = run(["docker", "image", "rm", image_id], timeout_s=REMOVE_S, env=variables)
        if not done.ok and GONE not in done.stderr:
            say(f"{image_id} stays in the Docker daemon{at}: {done.explain()}")
            staying.append(image_id)
        removed += done.ok
    say(f"removed {removed} images that Tare had loaded into the Docker daemon{at}")
    return staying
