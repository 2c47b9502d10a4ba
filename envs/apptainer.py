"""Apptainer (formerly Singularity): a .sif image, built through spython from the one OCI archive.

How the .sif is mounted is a factor, `sif`: `kernel` (the starter mounts it, which needs root or a set-uid
installation), `fuse` (a FUSE server, in a user namespace), `unpacked` (a folder of the same files).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from envs import _orphans
from envs._conditions import GPU, confirm_gpu, gpu_mode, image_of, mount_option, prefix
from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, cache_path, home_dir, project_root
from tare.core.manifest import allocated_bytes
from tare.core.process import run
from tare.launch.trial import Trial, probe_by_trial
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.runtimes.apptainer import unfit
from tare.runtimes.programs import find_apptainer, may_install, origin, relocated_prefix

BUILD_S = 600.0
COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "3")
GUIDE = "https://apptainer.org/docs/admin/main/installation.html"
AS_ROOT = f"tare runtimes install; if that finds no Apptainer, follow {GUIDE}"
REMEDY = AS_ROOT if os.getuid() == 0 else f"ask an administrator for Apptainer: {GUIDE}"
ELSEWHERE = "point TARE_CACHE at a folder whose path has no blank, and run `make setup`"
# /tmp is a scratch folder and /dev/shm the host's; nothing else of the host is seen but the launch's binds.
HIDDEN = "home,tmp,cwd,bind-paths,hostfs"
# Levels of the factor, each with the mounts that show it.
MODES = {"kernel": ("kernel squashfs",), "fuse": ("squashfuse_ll", "squashfuse"), "unpacked": ("unpacked",)}
SIF = {"sif": tuple(MODES)}


def root_lacks_capabilities(status: str, last_capability: int) -> bool:
    """Whether root (by /proc/self/status) lacks a capability; Apptainer's root mode asks for all of them."""
    user = re.search(r"^Uid:\s+\d+\s+(\d+)", status, re.MULTILINE)
    permitted = re.search(r"^CapPrm:\s+([0-9a-f]+)", status, re.MULTILINE)
    if user is None or permitted is None or user.group(1) != "0":
        return False
    every = (1 << (last_capability + 1)) - 1
    return int(permitted.group(1), 16) & every != every


def mount_mode(parent_mounts: str) -> str | None:
    """How the .sif is mounted, by the runtime's own mounts: squashfs (kernel), squashfuse_ll, unpacked, …"""
    for line in parent_mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) > 4 and fields[4].endswith("/session/rootfs"):
            kind = after.split()[0]
            if kind == "squashfs":
                return "kernel squashfs"
            return kind.removeprefix("fuse.") if kind.startswith("fuse") else "unpacked"
    return None


@register("apptainer")
class Apptainer(Environment):
    """A .sif image run by Apptainer or Singularity; needs user namespaces or root."""

    title = "Apptainer"
    description = "A single-file squashfs image (.sif), mounted for each launch; host user, no daemon."
    programs = (
        *("apptainer", "singularity", "mksquashfs", "squashfuse_ll", "squashfuse"),
        *("fusermount3", "fusermount", "newuidmap"),
    )
    factors: ClassVar[Mapping[str, tuple[str, ...]]] = {**SIF, **GPU}  # /dev is the host's: plain needs no option
    in_user_namespace = True  # but for an installation that is set-uid

    def __init__(self, program: str | None = None, userns: bool | None = None) -> None:
        self._program = program
        self._userns = userns

    @cached_property
    def program(self) -> str:
        """The machine's own program, else the relocated one; its bare name where there is none."""
        found = find_apptainer()
        return self._program or (str(found) if found else "apptainer")

    @cached_property
    def userns(self) -> bool:
        """Whether launches and builds must ask for a user namespace: root without every capability."""
        if self._userns is not None:
            return self._userns
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
        return root_lacks_capabilities(Path("/proc/self/status").read_text(), last)

    def probe(self) -> Probe:
        """Build the trial image, launch it, and see how it is mounted."""
        found = find_apptainer()
        try:
            refuse_unfit(found)
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason, remedy=error.remedy)
        if found is None:
            return Probe(available=False, reason="neither apptainer nor singularity is installed", remedy=REMEDY)
        try:
            answer = run([self.program, "--version"], timeout_s=10, check=True).stdout.strip()
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason, remedy=REMEDY)
        version = answer.rpartition("version ")[2]

        def examine(trial: Trial) -> dict[str, Any]:
            mode = mount_mode(trial.seen["parent_mounts"])
            if mode == "unpacked":
                raise UnavailableError(
                    "it unpacks the image at each launch, which would be measured with it: squashfuse is missing",
                    "apt-get install squashfuse fuse3",
                )
            return {"mount_mode": mode, "origin": origin(found), "userns": self.userns}

        return probe_by_trial(self, version, remedy=REMEDY, examine=examine)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Build the .sif with zstd; raises UnavailableError with Apptainer's own last line where that fails."""
        squash = " ".join([*COMPRESSION, "-processors", str(len(os.sched_getaffinity(0)))])
        target = folder / f"{_short(image)}.sif"
        return self._made(image, target, ["--mksquashfs-args", squash], compression=" ".join(COMPRESSION))

    def form(self, options: Mapping[str, str]) -> str | None:
        """A folder is a separate form; the .sif is the same however it is mounted."""
        return "unpacked" if options.get("sif") == "unpacked" else None

    def prepare_form(self, form: str, image: OciImage, folder: Path) -> Prepared:
        """Build a sandbox (folder) from the .sif's archive; raises UnavailableError as `prepare`."""
        return self._made(image, folder / _short(image), ["--sandbox"], image_format="folder")

    def _made(self, image: OciImage, target: Path, options: list[str], **details: Any) -> Prepared:
        """Build through spython, which has to be a separate process, next to the target; then move it there."""
        options = [*(["--userns"] if self.userns else []), "--disable-cache", *options]
        target.parent.mkdir(parents=True, exist_ok=True)
        # Another build of the same image has another folder.
        with tempfile.TemporaryDirectory(prefix=".building-", dir=target.parent) as temporary:
            partial = Path(temporary) / target.name
            started = time.monotonic()
            run(
                [sys.executable, "-m", "envs.apptainer", f"docker-archive:{image.archive}", str(partial), *options],
                timeout_s=BUILD_S,
                env=self._build_environment(partial.parent),
                cwd=project_root(),
                check=True,
            )
            seconds = {"build": time.monotonic() - started}
            if target.is_dir():
                target.rename(Path(temporary) / "old")
            partial.replace(target)
        details["origin"] = origin(Path(self.program))
        return Prepared(reference=str(target), bytes=allocated_bytes(target), seconds=seconds, details=details)

    def confirm(
        self, options: Mapping[str, str], facts: Mapping[str, Any], seen: Mapping[str, str]
    ) -> dict[str, Any]:
        """The mount is seen to be the one that was asked for."""
        mode = mount_mode(seen["parent_mounts"])
        level = options.get("sif")
        if level is not None and mode not in MODES[level]:
            raise UnavailableError(
                f"sif={level} was asked for, but the trial launch had {mode or 'no recognised mount'}"
            )
        return {"mount_mode": mode} | confirm_gpu(options)

    def command(self, launch: Launch) -> list[str]:
        """`apptainer exec` behind the common prefix; the limits are inherited."""
        mounts = (mount_option(bind, target="destination", read_only="ro") for bind in launch.binds)
        sif = launch.options.get("sif", "")
        return [
            *prefix(launch),
            *(self.program, "--quiet", "exec"),
            # Only outside of a user namespace does the starter mount the .sif by the kernel.
            *(["--userns"] if {"kernel": False, "fuse": True}.get(sif, self.userns) else []),
            *(["--no-privs"] if launch.uid == 0 else []),  # root keeps all capabilities else
            *("--cleanenv", "--no-home", "--no-mount", HIDDEN, "--scratch", "/tmp"),
            *(part for mount in mounts for part in ("--mount", mount)),
            *("--pwd", str(launch.workdir)),
            *(["--nv"] if gpu_mode(launch) == "toolkit" else []),
            *(image_of(launch), *launch.argv),
        ]

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """The FUSE server of a killed launch outlives it."""
        return [[sys.executable, str(Path(_orphans.__file__)), image_of(launch)]]

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """End what killed harnesses left; UnavailableError where each launch would wait for a mount in vain."""
        refuse_unfit(find_apptainer())
        _orphans.end_orphans(cache_path())
        yield

    def environment_variables(self) -> dict[str, str]:
        """A PATH that has the FUSE helpers, and settings and cache away from the user's own."""
        own = cache_dir("apptainer")
        path = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path.lstrip(":"), "HOME": str(home_dir()), "APPTAINER_CONFIGDIR": str(own / "config")}

    def _build_environment(self, folder: Path) -> dict[str, str]:
        """spython calls its program `singularity`, so a link of that name leads to ours."""
        links = cache_dir("apptainer", "bin")
        link, program = links / "singularity", shutil.which(self.program) or self.program
        if not link.is_symlink() or str(link.readlink()) != program:
            fresh = links / f"singularity.{os.getpid()}"
            fresh.symlink_to(program)
            fresh.replace(link)
        variables = self.environment_variables()
        temporary = {"APPTAINER_TMPDIR": str(folder), "SINGULARITY_TMPDIR": str(folder)}
        if "PYTHONPATH" in os.environ:  # spython may have been brought along (tare.experiments.carried)
            temporary["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return {**variables, **temporary, "PATH": f"{links}:{variables['PATH']}"}


def refuse_unfit(found: Path | None) -> None:
    """Raise UnavailableError where the relocated Apptainer, if it is the one to be used, is at an unfit place."""
    ours = may_install() is None if found is None else origin(found) == "relocated"
    if ours and (reason := unfit(relocated_prefix())):
        raise UnavailableError(reason, ELSEWHERE)


def _short(image: OciImage) -> str:
    return image.digest.removeprefix("sha256:")[:16]


def build_with_spython(recipe: str, target: str, options: list[str]) -> None:
    """Build `target` anew from `recipe` through spython; raises CalledProcessError, its output printed."""
    from spython.main import Client

    _, lines = Client.build(recipe=recipe, image=target, sudo=False, force=True, stream=True, options=options)
    for line in lines:
        print(line, end="", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m envs.apptainer", description="Build an image through spython.")
    parser.add_argument("recipe", help="what it is built from, such as docker-archive:FILE")
    parser.add_argument("target", help="file or folder to make")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of `apptainer build`")
    asked = parser.parse_args()
    try:
        build_with_spython(asked.recipe, asked.target, asked.options)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode or 1)
