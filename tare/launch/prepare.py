"""All that a launch needs before it is started: its own folder, what its program needs, its Launch.

A launch's folder is locked for as long as whoever made it lives, and holds what ends the launch should its maker be
killed: the guard of tare.core.process does that at once, `end_leftovers` later where the guard died as well.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError, UserError
from tare.core.files import cache_dir
from tare.core.guard import kill_stopped, let_go, remove_groups
from tare.core.process import MARK, at_death, mark, run
from tare.launch import barrier
from tare.launch.conditions import choose_cpus, launcher_environment, program_environment, shared_memory_bytes
from tare.launch.limits import Share
from tare.launch.place import Site
from tare.launch.program import Cargo, Place, Runnable, as_program
from tare.launch.transport import FETCH_S, Ready, transport_of
from tare.machine.caller import inherited_limits
from tare.model.conditions import Conditions
from tare.model.environment import Environment, Launch

FOLDER = "{folder}"  # in the words of a wrapper: the launch's own folder
LONGEST_FOLDER = 70  # a UNIX socket's path holds 108 bytes, and the loader's worker makes one in here
OWNER = "owner"  # in a launch's folder: locked while its maker lives; what ends the launch after that
STOPPED = "stopped"  # in a held launch's folder: what can be stopped of it, as tare.core.guard has it
END_S = 30.0
NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, kw_only=True)
class Member:
    """One of a group of launches that are one run."""

    rank: int
    size: int
    address: str  # where they meet: rank 0 listens there
    port: int
    network: str  # its own, as `Launch.network` has it
    cpus: tuple[int, ...]  # its own logical CPUs
    interface: str = "lo"  # that it talks over
    interfaces: tuple[str, ...] | None = ("lo",)  # all that it should see; None where that is not known
    own_address: str | None = None  # where it has to be set by hand
    alone_there: bool = False  # no other member is on its machine

    def variables(self) -> dict[str, str]:
        """What the members' frameworks find each other by, named as torchrun, gloo and NCCL name it."""
        return {
            "GLOO_SOCKET_IFNAME": self.interface,
            "NCCL_SOCKET_IFNAME": self.interface,
            "RANK": str(self.rank),
            **(
                {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"} if self.alone_there else {"LOCAL_RANK": str(self.rank)}
            ),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


@contextlib.contextmanager
def ready(
    site: Site,
    program: Runnable,
    conditions: Conditions,
    *,
    pad_bytes: int,
    keep: Mapping[str, Path] | None = None,
    wrapper: Sequence[str] = (),
    member: Member | None = None,
    share: Share | None = None,
    held: bool = False,
) -> Iterator[Ready]:
    """Make all that a launch needs, and clean up after it. Arguments as for `launch`; `member` of a group.

    A launch that is `held` waits at a barrier (tare.launch.barrier) at its program's first instruction. Raises
    UserError: the program can't run at this site, such as a workload that is not written for its framework.
    UnavailableError: the environment's transport can't bring what the launch needs.
    """
    program = as_program(program)
    adapter, transport = site.environment, transport_of(site.environment)
    gpu = site.gpu if program.uses_gpu else None
    folders = (*site.folders, *(gpu.folders if gpu else ()))
    transport.check(program, folders=folders, scratch=site.scratch, wrapper=wrapper)
    needs = program.needs(site, conditions)
    if held and not transport.shares_files:
        raise UnavailableError(f"{adapter.title} shares no files with this machine: its program can't be held")
    with own_folder() as (name, folder):
        check_path(folder)
        inside = transport.inside(folder)
        inputs = {key: transport.place(source, inside, key) for key, source in needs.inputs.items()}
        cargo = [Cargo(source=source, target=inputs[key]) for key, source in needs.inputs.items()]
        place = Place(
            site=site,
            conditions=conditions,
            folder=folder,
            inside=inside,
            inputs=inputs,
            keep=keep or {},
            shares_files=transport.shares_files,
            rank=member.rank if member else None,
            size=member.size if member else None,
        )
        program.write(place)
        more = {**site.variables, **(gpu.variables if gpu else {}), **(member.variables() if member else {})}
        more |= program.variables_at(place)
        variables = more if program.as_given else program_environment(conditions, inside, pad_bytes, more)
        wrapped = [word.replace(FOLDER, str(inside)) for word in wrapper]
        command = (*wrapped, *program.argv_at(place))
        planned = Launch(
            name=name,
            argv=inside_argv({**variables, MARK: mark()}, barrier.words(inside, command), program.as_given)
            if held
            else inside_argv(variables, transport.words(site, command), program.as_given),
            reference=site.reference,
            binds=transport.binds(folder, cargo, folders, site.scratch, needs.binds),
            workdir=program.workdir_at(place) or transport.workdir(folder),
            cpus=own.cpus if (own := member or share) else choose_cpus(conditions.cpus),
            shm_bytes=shared_memory_bytes(),
            nofile=conditions.open_files,
            inherited=inherited_limits(),
            uid=os.getuid(),
            gid=os.getgid(),
            isolate_network=site.isolates_network,
            network=member.network if member else None,
            address=member.own_address if member else None,
            interfaces=member.interfaces if member else ("lo",),
            gpu=gpu.mode if gpu else None,
            devices=gpu.devices if gpu else (),
            counters=gpu is not None and program.reads_counters,
            options=site.options,
            quota=share.quota if share else None,
        )
        with mount_points(adapter, planned), ended_with_us(adapter, planned, folder):
            yield Ready(
                environment=adapter,
                planned=planned,
                folder=folder,
                inside=inside,
                program=program,
                command=command,
                cargo=tuple(cargo),
                kept=tuple(path.name for path in (keep or {}).values()),
                code_sha256=needs.code_sha256,
                pad_bytes=pad_bytes,
                client={**launcher_environment(adapter), "TARE_LAUNCH": name},
                fifos=folder if transport.shares_files and program.talks else None,
                limit_s=None if program.talks else conditions.launch_timeout_s + FETCH_S,
            )


def inside_argv(variables: Mapping[str, str], command: Sequence[str], on_top: bool = False) -> tuple[str, ...]:
    """What the runtime starts inside: a program and its arguments, with exactly these environment variables.
    `on_top`: with these on top of those that the runtime gives.
    """
    return (
        "/usr/bin/env",
        *(() if on_top else ("-i",)),
        *(f"{name}={value}" for name, value in variables.items()),
        *command,
    )


@contextlib.contextmanager
def own_folder() -> Iterator[tuple[str, Path]]:
    """A fresh folder of the cache and its unique name; gone afterwards, and locked while it is ours."""
    end_leftovers()
    name = f"tare-{uuid.uuid4().hex[:12]}"
    folder = cache_dir("launches") / name
    with at_death(f"{name} folder", folder=folder):
        folder.mkdir()
        try:
            with (folder / f".{OWNER}").open("w") as owner:
                fcntl.flock(owner, fcntl.LOCK_EX)
                owner.write("{}")
                owner.flush()
                (folder / f".{OWNER}").rename(folder / OWNER)
                yield name, folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def check_path(folder: Path) -> None:
    """See that runtimes and the framework can work with the path of a launch's folder. Raises UserError: they
    can't; the cache has to be elsewhere.
    """
    if len(str(folder)) > LONGEST_FOLDER:
        raise UserError(
            f"the cache folder's path is too long for sockets ({folder}): point TARE_CACHE at a shorter one"
        )
    if any(character in str(folder) for character in ":,\n"):
        raise UserError(f"the cache folder's path holds ':' or ',' ({folder}), which runtimes take as separators")


@contextlib.contextmanager
def mount_points(adapter: Environment, planned: Launch) -> Iterator[None]:
    """The folders that the adapter names, made before the launch; those of it alone are removed after it.

    Raises UnavailableError: the image is not ours to write to.
    """
    try:
        for point in adapter.mount_points(planned):
            if planned.reference and Path(planned.reference).is_dir():  # never a folder where an image should be
                try:
                    point.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    if error.errno not in NOT_OURS:
                        raise
                    reason = f"{point}, where a folder should appear, can't be made: {error.strerror}"
                    raise UnavailableError(reason, "name a copy of the image that you may write to") from error
        yield
    finally:
        for folder in own_mount_points(adapter, planned):
            with contextlib.suppress(OSError):
                folder.rmdir()


def own_mount_points(adapter: Environment, planned: Launch) -> list[Path]:
    """Those folders that no other launch will ever need, the deepest first; pure."""
    points = adapter.mount_points(planned)
    own = {folder for point in points for folder in (point, *point.parents) if planned.name in folder.parts}
    return sorted(own, key=lambda folder: -len(folder.parts))


@contextlib.contextmanager
def ended_with_us(adapter: Environment, planned: Launch, folder: Path) -> Iterator[None]:
    """Should we be killed, the launch is ended and its folders go: by the guard, or when one next starts."""
    own = [str(point) for point in own_mount_points(adapter, planned)]
    commands = [*adapter.cleanup(planned), *([["rmdir", *own]] if own else [])]
    client = launcher_environment(adapter)
    (folder / OWNER).write_text(json.dumps({"commands": commands, "env": client}), encoding="utf-8")
    with at_death(planned.name, commands=commands, env=client, folder=folder):
        yield


def clean_up(adapter: Environment, planned: Launch) -> None:
    """End for good what a killed launch may have left running."""
    for command in adapter.cleanup(planned):
        run(command, timeout_s=END_S, env=launcher_environment(adapter))


def end_leftovers() -> None:
    """End what launches have left whose maker was killed together with its guard; once in each process."""
    _end_leftovers_in(cache_dir("launches"))


@cache
def _end_leftovers_in(launches: Path) -> None:
    for owner in launches.glob(f"tare-*/{OWNER}"):
        with contextlib.suppress(OSError, ValueError), owner.open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note, stopped = _read(owner, {}), _read(owner.with_name(STOPPED), [])
            kill_stopped(stopped)
            let_go(stopped)
            for pid in carriers_of(owner.parent.name):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for command in note.get("commands", ()):
                run(command, timeout_s=END_S, env=note["env"])
            remove_groups(stopped)
            shutil.rmtree(owner.parent, ignore_errors=True)


def note_stopped(folder: Path, stopped: Sequence[Mapping[str, Any]]) -> None:
    """Note in a launch's folder what can be stopped of it, for `end_leftovers`."""
    (folder / f".{STOPPED}").write_text(json.dumps([dict(one) for one in stopped]), encoding="utf-8")
    (folder / f".{STOPPED}").rename(folder / STOPPED)


def _read(path: Path, otherwise: Any) -> Any:
    """What a JSON file holds; a maker that was killed may have left half of it, or none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return otherwise


def carriers_of(name: str) -> list[int]:
    """Processes whose arguments or environment hold the unique name of a launch."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(name.encode() in (process / part).read_bytes() for part in ("cmdline", "environ")):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]
