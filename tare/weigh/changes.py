"""What changes of an environment need: another form of its image, a copy of a folder, the reference's Python."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import cache_path, sha256_text
from tare.core.process import run
from tare.core.progress import step
from tare.model.choices import Choice
from tare.weigh.causes import Change
from tare.weigh.facts import PythonFacts
from tare.weigh.runtimes import Apptainer, image_folder

BUILD_S = 1800.0
MOST_STAGED_BYTES = 4 << 30
KEPT = "{kept}"  # in a variable's value: a folder that stays from launch to launch
SYSTEMS = (Path("/"), Path("/usr"), Path("/usr/local"))


def apply(
    change: Change, choice: Choice, reference: PythonFacts | None, results: Path, stack: contextlib.ExitStack
) -> Choice:
    """An environment with a change.

    Args:
        change: what is otherwise.
        choice: the environment.
        reference: of the reference's job, whose Python may be shown inside.
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
        made = with_tree(made, reference)
    return made


def unpacked(choice: Choice, stack: contextlib.ExitStack) -> Path:
    """An Apptainer image as a folder, for as long as the stack is.

    Raises:
        UnavailableError: Apptainer can't build it.
    """
    adapter = Apptainer(choice, {})
    source = adapter.find(image_folder()).reference
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


def with_tree(choice: Choice, reference: PythonFacts | None) -> Choice:
    """An environment that has the reference's Python, with all its packages, first in its PATH.

    Raises:
        UnavailableError: that is a part of its system, which can't be shown over another.
    """
    if reference is None:
        raise UnavailableError("it is not known which Python the reference runs")
    prefixes = [Path(one) for one in dict.fromkeys(reference.prefixes)]
    if any(prefix in SYSTEMS for prefix in prefixes):
        raise UnavailableError(f"the reference's Python belongs to its system ({reference.executable})")
    path = f"{prefixes[0]}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    binds = tuple(f"{prefix}:{prefix}:ro" for prefix in prefixes)
    return choice.replace(binds=(*choice.binds, *binds), variables={**choice.variables, "PATH": path})
