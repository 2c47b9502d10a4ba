"""Secrets as a user's shell, home and Docker configuration hold them, planted to be looked for."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

MARK = "canary7f3a91"
VARIABLES = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "DB_PASSWORD", "OPENAI_API_KEY", "OF_THE_SESSION", "TARE_NOTE")
FILES = (
    *(".netrc", ".ssh/id_ed25519", ".aws/credentials", ".bash_history", ".config/pip/pip.conf", ".kube/config"),
    *(".docker/config.json", ".config/containers/auth.json", ".apptainer/docker-config.json"),
)
SETTINGS = (".config/pip/pip.conf", ".npmrc")
LARGEST = 64 << 20  # of a file that is looked into; a tree's and an image's have no text of ours


def plant(home: Path) -> dict[str, str]:
    """Write secrets into a home; variables with others, and those that lead there."""
    for name in FILES:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        word = f"{MARK}-{path.name}"
        secret = base64.b64encode(f"user:{word}".encode()).decode()
        docker = (
            f'{{"auths": {{"registry.example": {{"auth": "{secret}"}}}}, "HttpHeaders": {{"X-Meta": "{word}"}}}}'
        )
        path.write_text(docker if name.endswith(".json") else f"password = {word}\n")
    for name in SETTINGS:  # of the real user, without which this machine may have no packages
        own = Path.home() / name
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"# {MARK}-settings\n" + (own.read_text() if own.is_file() else ""))
    return {**variables(), "HOME": str(home), "DOCKER_CONFIG": str(home / ".docker")}


def variables() -> dict[str, str]:
    """Secrets of an environment."""
    return {name: f"{MARK}-{name}" for name in VARIABLES}


def words() -> list[bytes]:
    """What would give a secret away."""
    encoded = [base64.b64encode(f"user:{MARK}-{Path(name).name}".encode())[4:-4] for name in FILES]
    return [MARK.encode(), *encoded]


def found_in(folders: Iterable[Path], since: float = 0.0) -> list[str]:
    """Files below some folders, changed since an instant, that hold a secret."""
    return [str(path) for path in _files(folders, since) if any(word in path.read_bytes() for word in words())]


def _files(folders: Iterable[Path], since: float) -> Iterator[Path]:
    for folder in folders:
        for place, _, names in os.walk(folder):
            for path in (Path(place, name) for name in names):
                if path.is_file() and not path.is_symlink():
                    about = path.stat()
                    if about.st_size <= LARGEST and about.st_mtime >= since:
                        yield path
