"""What changes of an environment need: another form of its image, a copy of a folder, the reference's Python."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import cache_path, sha256_text
from tare.core.process import run
from tare.core.progress import step
from tare.model.choices import Choice
from tare.weigh.causes import DOCKERS, Change, of_system
from tare.weigh.facts import PythonFacts
from tare.weigh.places import Place
from tare.weigh.runtimes import Apptainer, image_folder

BUILD_S = 1800.0
MOST_STAGED_BYTES = 4 << 30
KEPT = "{kept}"  # in a variable's value: a folder that stays from launch to launch


def apply(
    change: Change,
    choice: Choice,
    first: Place,
    python: PythonFacts | None,
    results: Path,
    stack: contextlib.ExitStack,
) -> Choice:
    """An environment with a change.

    Args:
        change: what is otherwise.
        choice: the environment.
        first: the reference. python: of its job, which may be shown inside.
        results: folder of what is kept.
        stack: removes at its end what is made for the change.

    Raises:
        UnavailableError: what it needs can't be made here.
        OSError: a file can't be copied.
    """
    made = change.of(choice)
    if any(KEPT in value for value in change.variables.values()):
        kept = results / "kept"
        stack.callback(remove, kept)
        kept = kept / made.name
        kept.mkdir(parents=True, exist_ok=True)
        variables = {name: value.replace(KEPT, str(kept)) for name, value in made.variables.items()}
        made = made.replace(variables=variables, binds=(*made.binds, f"{kept}:{kept}"))
    if change.form == "unpacked":
        made = made.replace(image=str(unpacked(choice, stack)))
    if change.stage is not None:
        source, target = change.stage
        made = made.replace(binds=(*made.binds, f"{staged(Path(source), stack)}:{target}"))
    if change.tree is not None:
        made = with_tree(made, first, python, stack)
    return made


def unpacked(choice: Choice, stack: contextlib.ExitStack) -> Path:
    """An Apptainer image as a folder, for as long as the stack is.

    Raises:
        UnavailableError: Apptainer can't build it.
    """
    adapter = Apptainer(choice, {})
    source = Path(str(adapter.find(image_folder()).reference))
    if source.is_dir():
        return source
    target = image_folder() / f"{choice.name}.sandbox"
    remove(target)  # of a start that was killed
    stack.callback(remove, target)
    with step(f"unpack {source}"):
        # Root without every capability has them all in a user namespace; Apptainer asks for them when it unpacks.
        inside = ["unshare", "--map-root-user"] if adapter.lacks_capabilities else []
        words = [*inside, *adapter.program, "build", "--sandbox", str(target), str(source)]
        built = run(words, timeout_s=BUILD_S, env=adapter.environment_variables())
    if not built.ok:
        raise UnavailableError(f"the image can't be unpacked: {built.explain()}")
    return target


def remove(folder: Path) -> None:
    """Remove a folder, also where an image allows nobody to write into folders of it."""
    for place, names, _ in os.walk(folder):
        for path in (Path(place, name) for name in names):
            if not path.is_symlink():  # which may lead to this machine's own folders
                with contextlib.suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def staged(folder: Path, stack: contextlib.ExitStack) -> Path:
    """A copy of a folder on the disk of the cache, for as long as the stack is.

    Raises:
        UnavailableError: it is too large, or holds the cache.
        OSError: a file can't be copied.
    """
    own = f"{folder.name}-{sha256_text(str(folder))[:8]}"
    target = cache_path("weigh", "staged", str(os.getuid()), own)
    if target.is_relative_to(folder.resolve()):
        raise UnavailableError(f"{folder} holds the folder that it would be copied to: point TARE_CACHE elsewhere")
    size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    if size > MOST_STAGED_BYTES:
        raise UnavailableError(f"{folder} has {size / 1e9:.1f} GB, too much to copy it for a trial")
    remove(target)
    stack.callback(remove, target)
    shutil.copytree(folder, target, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    return target


def with_tree(choice: Choice, first: Place, python: PythonFacts | None, stack: contextlib.ExitStack) -> Choice:
    """An environment that has the reference's Python, with all its packages, first in its PATH.

    Raises:
        UnavailableError: it is a part of its system, or can't be copied out of its image.
    """
    if python is None:
        raise UnavailableError("it is not known which Python the reference runs")
    prefixes = list(dict.fromkeys(python.prefixes))
    if (reason := of_system(first.choice, prefixes)) is not None:
        raise UnavailableError(reason)
    path = f"{prefixes[0]}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    binds = tuple(f"{folder_of(first, Path(prefix), stack)}:{prefix}:ro" for prefix in prefixes)
    return choice.replace(binds=(*choice.binds, *binds), variables={**choice.variables, "PATH": path})


def folder_of(place: Place, path: Path, stack: contextlib.ExitStack) -> Path:
    """A folder that an environment has, as one of this machine, for as long as the stack is.

    Raises:
        UnavailableError: it can't be copied out of its image.
    """
    choice = place.choice
    if not choice.is_contained:
        return path
    if choice.runtime in DOCKERS:
        target = cache_path("weigh", "copied", str(os.getuid()), f"{choice.name}-{sha256_text(str(path))[:8]}")
        remove(target)
        stack.callback(remove, target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with step(f"copy {path} out of {choice.image}"):
            copy_out(choice, place.adapter.environment_variables(), path, target)
        return target
    root = Path(str(choice.image)) if choice.runtime == "charliecloud" else unpacked(choice, stack)
    return Path(f"{root.expanduser().absolute()}{path}")


def copy_out(choice: Choice, variables: Mapping[str, str], path: Path, target: Path) -> None:
    """Copy a folder out of an image of Docker or Podman.

    Raises:
        UnavailableError: the runtime refuses it.
    """

    def call(*words: str) -> str:
        ended = run([choice.runtime, *words], timeout_s=BUILD_S, env=variables)
        if not ended.ok:
            raise UnavailableError(f"{path} can't be copied out of {choice.image}: {ended.explain()}")
        return ended.stdout.strip()

    container = call("create", str(choice.image), "/bin/sh")
    try:
        call("cp", f"{container}:{path}", str(target))
    finally:
        call("rm", "--force", container)
