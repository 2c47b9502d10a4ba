"""Jobs that are sent to a cluster together: what one of them has made outlives the failure of another.

Snakemake takes a group for one job: where one of its jobs fails, it removes the outputs of all. So each job on a
node links its outputs into a folder next to the results once it has made them, and the workflow that sent it puts
back, at its end, what has been removed. Snakemake has noted by then what they were made from.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import TareError
from tare.core.files import read_json, sha256_text, write_json
from tare.core.progress import say

MADE = Path("results/.together")  # with a folder for each workflow that has sent jobs
SENDER = "TARE_SENDER"  # process and start of the workflow that has sent a job
OLD_S = 14 * 86400.0  # for which what is kept of a workflow that was killed stays
LIST, UNFINISHED = "made.json", ".part"


@dataclass(frozen=True)
class Watched:
    """Outputs of a job on a node, and what lay there before it began."""

    outputs: tuple[Path, ...]
    before: tuple[tuple[int, int] | None, ...]

    def keep(self, folder: Path) -> None:
        """Link them where they last, if the job has made all of them; links to what lay there before are none."""
        made = [_identity(path) for path in self.outputs]
        if None in made or any(now == then for now, then in zip(made, self.before, strict=True)):
            return
        names = [str(path) for path in self.outputs]
        place = folder / sha256_text("\n".join(names))[:16]
        begun = place.with_name(place.name + UNFINISHED)
        for old in (begun, place):
            shutil.rmtree(old, ignore_errors=True)
        begun.mkdir(parents=True)
        for number, path in enumerate(self.outputs):
            _copy(path, begun / str(number), _link)
        write_json(begun / LIST, {"outputs": names})
        begun.rename(place)


def watch(outputs: Iterable[str | Path]) -> Watched:
    """What is where a job will write its outputs, whose paths are relative to the present folder."""
    paths = tuple(Path(path).absolute() for path in outputs)
    return Watched(paths, tuple(map(_identity, paths)))


def made_for() -> Path:
    """Where jobs keep what they made for the workflow that has sent them."""
    return (MADE / sha256_text(os.environ.get(SENDER, ""))[:16]).absolute()


def put_back(folder: Path) -> None:
    """Put back what was made and has been removed since; then nothing is kept any more."""
    for place in sorted(folder.glob("*")):
        with contextlib.suppress(TareError, OSError, KeyError, TypeError):  # of a job that was killed as it kept it
            outputs = [Path(name) for name in read_json(place / LIST)["outputs"]]
            missing = [number for number, path in enumerate(outputs) if not path.exists()]
            for number in missing:
                outputs[number].parent.mkdir(parents=True, exist_ok=True)
                _copy(place / str(number), outputs[number], _link)
            if missing:
                say(f"{outputs[0]} is kept: it was made before another job of its group failed")
        shutil.rmtree(place, ignore_errors=True)
    for other in folder.parent.glob("*"):
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > OLD_S:
                shutil.rmtree(other)
    for empty in (folder, folder.parent):
        with contextlib.suppress(OSError):
            empty.rmdir()


def _identity(path: Path) -> tuple[int, int] | None:
    """The file or folder and when it was written; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _copy(source: Path, target: Path, copy: Callable[[str, str], object]) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, copy_function=copy)
    else:
        copy(str(source), str(target))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target, follow_symlinks=False)
