"""An Apptainer definition file as people write it: the ways to build it, and what a build that failed printed.

The file is containers/naive/apptainer.def; its context is that of the Dockerfile beside it. Nothing here starts a
program: tare.experiments.definition_image does.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.core.process import COLOUR, Finished
from tare.images import naive
from tare.images.tree import Tree
from tare.images.wheels import Wheel
from tare.model.records.naive_image import Way

DEFINITION = "containers/naive/apptainer.def"
BASE = "base.tar"  # as the definition names it
COMPRESSION = "-comp zstd -Xcompression-level 3"  # of every .sif here, those that are converted too
NO_NETWORK = ("unshare", "--net", "--")
SUBUID = Path("/etc/subuid")
FIRST_SUBUID, SUBUIDS = 100_000, 65_536
FALLBACK = "trying root-mapped namespace"  # what --fakeroot does for a user without further ids
NO_IDS = ("/etc/subuid", "/etc/subgid")
TOO_FEW = "Requesting capability set"
LONGEST = 300
OF_APPTAINER = re.compile(r"^(INFO|WARNING|DEBUG|VERBOSE): ")
MARKED = re.compile(r"^(ERROR|FATAL)\s*:\s*")


@dataclass(frozen=True, kw_only=True)
class Means:
    """How to be root while a definition is built.

    Attributes:
        before: what stands before Apptainer, for root; `before_user`: for anybody else, None where only root can.
        options: of `apptainer build`.
    """

    before: tuple[str, ...] = NO_NETWORK
    before_user: tuple[str, ...] | None = ()
    options: tuple[str, ...] = ()


_OWN_ROOT = ("unshare", "--user", "--map-root-user", "--net", "--")
WAYS: Mapping[Way, Means] = {
    "root": Means(before_user=None),
    "fakeroot": Means(options=("--fakeroot",)),
    "namespace": Means(before=_OWN_ROOT, before_user=_OWN_ROOT),
}


def write_context(folder: Path, tree: Tree, wheels: Sequence[Wheel], base: Path) -> Path:
    """Fill an empty folder with what the definition copies, as `naive.write_context`; the definition in it.

    Args:
        folder: from which it is built: its paths are relative.
        tree: whose interpreter is taken.
        wheels: that %post installs.
        base: archive of the base image; moved there.

    Raises:
        UnavailableError: this Python has no pip that could be taken along.
    """
    naive.write_context(folder, tree, wheels)
    base.rename(folder / BASE)
    return Path(shutil.copyfile(project_root() / DEFINITION, folder / Path(DEFINITION).name))


def build_command(
    program: Path, way: Way, definition: Path, target: Path, *, root: bool, processors: int
) -> list[str]:
    """The argument list of a build, without a network where the way allows that; pure.

    Args:
        program: Apptainer.
        way: who is root.
        definition, target: the file, and the .sif.
        root: whether we are root.
        processors: for compressing.

    Raises:
        UnavailableError: only root can build this way.
    """
    means = WAYS[way]
    before = means.before if root else means.before_user
    if before is None:
        raise UnavailableError("only root builds so, and this user is not", "run the study as root")
    squash = f"{COMPRESSION} -processors {processors}"
    return [
        *(*before, str(program), "build", "--disable-cache", *means.options),
        *("--mksquashfs-args", squash, str(target), str(definition)),
    ]


def variables(own: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """The environment of a build: the runtime's own, and where it unpacks; pure."""
    return {**own, "APPTAINER_TMPDIR": str(temporary), "SINGULARITY_TMPDIR": str(temporary)}


def subuid() -> str:
    """What /etc/subuid gives to whom; nothing where it is missing."""
    return SUBUID.read_text(encoding="utf-8") if SUBUID.exists() else ""


def refused(finished: Finished, user: str, given: str) -> UnavailableError | None:
    """Why a build failed, or did not go the way that was asked for; None where it did; pure.

    Args:
        finished: the build.
        user: our name.
        given: text of /etc/subuid.
    """
    printed = _lines(finished.stderr)
    other_way = next((line for line in printed if FALLBACK in line), None)
    if finished.ok and other_way is None:
        return None
    reason = OF_APPTAINER.sub("", other_way).strip() if other_way else explain(finished)
    if other_way or any(name in reason for name in NO_IDS):
        return UnavailableError(reason, _adding(user, given))
    return UnavailableError(reason, "run it where root has every capability" if TOO_FEW in reason else None)


def explain(finished: Finished) -> str:
    """One line on a build that failed: its step, and the last words of that; pure."""
    printed = _lines(finished.stderr)
    fatal = next((line for line in reversed(printed) if line.startswith("FATAL")), None)
    if finished.timed_out or finished.found_full:
        return replace(finished, argv=("apptainer",)).explain()
    if fatal is None:
        return finished.explain()
    told = MARKED.sub("", fatal).removeprefix("While performing build: ")
    if section := re.search(r"%\w+", told):
        return f"{section[0]} failed: {_last_words(finished) or told.rpartition(': ')[2]}"[:LONGEST]
    if "copy files" in told:
        return f"%files failed: {told.rpartition(']: ')[2]}"[:LONGEST]
    return told[:LONGEST]


def _last_words(finished: Finished) -> str:
    """What a section printed last: an error before what it said, before the command that the shell ran."""
    others = [line for line in _lines(finished.stderr) if not line.startswith("FATAL")]
    own = [MARKED.sub("", line) for line in others if not OF_APPTAINER.match(line)]
    errors = [line for line in own if not line.startswith("+ ")]
    return next((lines[-1] for lines in (errors, own, _lines(finished.stdout)) if lines), "")


def _lines(printed: str) -> list[str]:
    return [line.strip() for line in COLOUR.sub("", printed).splitlines() if line.strip()]


def _adding(user: str, given: str) -> str:
    """What gives a user further ids, beyond those that others have."""
    taken = [line.split(":") for line in given.splitlines() if line.count(":") == 2]
    ends = [int(start) + int(count) for _, start, count in taken if start.isdigit() and count.isdigit()]
    first = max([FIRST_SUBUID, *ends])
    ids = f"{first}-{first + SUBUIDS - 1}"
    return f"usermod --add-subuids {ids} --add-subgids {ids} {user}"
