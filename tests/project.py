"""Copies of the checkout for tests that run the workflow, and what they ask of it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tare.core.files import project_root

ROOT = project_root()
# As the messages of the rules say it.
ROUNDS, PROFILE = "whole runs and training steps", "profiled launch"


def copy_checkout(target: Path) -> Path:
    """The checkout's own files (tracked, or new and not ignored), copied: results and environment stay behind."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    return target


def snakemake(
    folder: Path, *arguments: str, check: bool = True, masked: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess:
    """Run this environment's Snakemake in a copy of the project, as a user would who did not activate anything.

    `masked` programs are hidden from it: each is covered by /dev/null in a mount namespace of its own.
    """
    command = [str(Path(sys.executable).with_name("snakemake")), *arguments]
    if masked:
        cover = "".join(f"mount --bind /dev/null {path} && " for path in masked)
        as_root = [] if os.getuid() == 0 else ["--map-root-user"]
        command = ["unshare", "--mount", *as_root, "sh", "-c", cover + 'exec "$@"', "sh", *command]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=2400,  # other studies and tests run beside it, perhaps from an empty cache
        stdin=subprocess.DEVNULL,
    )
    if check and done.returncode:
        raise AssertionError(
            f"snakemake {' '.join(arguments)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        )
    return done


def take_for_done(folder: Path, command: tuple[str, ...]) -> None:
    """Have Snakemake take a study for done: empty files and folders, with its records of how they came."""
    listed = snakemake(folder, "--summary", *command).stdout.splitlines()[1:]
    for name in (line.split("\t")[0] for line in listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not Path(name).suffix:  # a folder that is declared
            (folder / name).mkdir(exist_ok=True)
        else:
            (folder / name).write_text("{}")
    snakemake(folder, "--touch", "--forceall", *command)


def tare(folder: Path, *arguments: str, **variables: str):
    """Run `python -m tare` in a copy of the project."""
    return subprocess.run(
        [sys.executable, "-m", "tare", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
    )


def code_blocks(page: str, language: str) -> list[str]:
    """Fenced code blocks of one language in a page of docs/."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
