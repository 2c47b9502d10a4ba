"""An ordinary user of a site, in namespaces of their own: nothing of the machine changes, and all ends with them.

Root alone can make such a place. The user has a home, no group beside their own, and none of root's files but those
that a test needs: the checkout, its Python, and an Apptainer that root's runs have relocated.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from project import ROOT
from waiting import wait_until

from tare.runtimes.programs import relocated_prefix

# A number for each process of tests: limits of processes count all that are of one.
NAME, NUMBER, HOME = "eve", 64000 + os.getpid() % 1000, "/home/eve"
PYTHON = ROOT / ".venv/bin/python"
APPTAINER = relocated_prefix() / "usr/bin"
PRIVATE = (Path.home(), Path("/tmp"))  # of whoever runs the tests
ENTERED_S = 10.0
MOUNTS = ("--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")


def _shown() -> list[Path]:
    """Folders of the private ones that the user needs."""
    wanted = {ROOT, (ROOT / ".venv").resolve(), Path(sys.base_prefix).resolve(), relocated_prefix()}
    return sorted(path for path in wanted if any(path.is_relative_to(one) for one in PRIVATE) and path.is_dir())


def _place(home: Path, fuse: bool) -> list[str]:
    """Commands of root's, given in mounts of their own, that make the user's place."""
    kept = "/mnt"
    lines = ["set -e", f"mount -t tmpfs -o mode=755 none {kept}"]
    for number, path in enumerate(_shown()):
        lines += [f"mkdir {kept}/{number}", f"mount --rbind {shlex.quote(str(path))} {kept}/{number}"]
    lines += ["mount -t tmpfs -o mode=755 none /home", f"mkdir {HOME}", f"mount --bind {home} {HOME}"]
    lines += [f"mount -t tmpfs -o mode={'1777' if one.name == 'tmp' else '755'} none {one}" for one in PRIVATE]
    for number, path in enumerate(_shown()):
        there = shlex.quote(str(path))
        lines += [f"mkdir --parents {there}", f"mount --rbind {kept}/{number} {there}"]
    for name, row in (("passwd", f"{NAME}:x:{NUMBER}:{NUMBER}::{HOME}:/bin/sh"), ("group", f"{NAME}:x:{NUMBER}:")):
        lines += [f"(cat /etc/{name}; echo {row}) > /home/{name}", f"mount --bind /home/{name} /etc/{name}"]
    if fuse:  # where it is root's alone, as on a machine without udev
        lines += ["mknod --mode=666 /home/fuse c 10 229", "mount --bind /home/fuse /dev/fuse"]
    return [*lines, f"chown --recursive {NUMBER}:{NUMBER} {HOME}"]


def as_user(
    home: Path,
    command: Sequence[str | Path],
    *,
    before: Sequence[str] = (),
    mapped: bool = False,
    network: bool = True,
    within: Sequence[str | Path] = (),
    behind: Sequence[str] = (),
    folder: str | Path = ROOT,
    variables: dict[str, str] | None = None,
    timeout_s: float = 300.0,
) -> subprocess.CompletedProcess[str]:
    """Run a command as the user, in a folder.

    `home`: a folder that becomes theirs. `before`: further commands of root's in the place. `mapped`: in a user
    namespace with the same users, which has switches of the kernel of its own, and no FUSE. `network`: whether
    there is one. `within`: a program of root's that starts the user's. `behind`: one of the user's that starts it.
    """
    if os.getuid() != 0:
        pytest.skip("only root can make a place for another user")
    block = {"HOME": HOME, "USER": NAME, "PATH": f"{APPTAINER}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    block |= {"PYTHONPATH": str(ROOT), **(variables or {})}
    user = ["setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups", *behind]
    argv = [
        *map(str, within),
        *user,
        "env",
        "-i",
        *(f"{name}={value}" for name, value in block.items()),
        *map(str, command),
    ]
    script = "\n".join([*_place(home, fuse=not mapped), *before, f"cd {folder}", f"exec {shlex.join(argv)}"])
    inside = ["unshare", *MOUNTS, *([] if network else ["--net"]), "sh", "-c", script]
    if mapped:
        inside = ["unshare", "--user", "sh", "-c", 'read go; exec "$@"', "sh", *inside]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(inside, text=True, **pipes) as process:
        if mapped:
            own, its = (Path(f"/proc/{one}/ns/user") for one in ("self", process.pid))
            wait_until(lambda: its.readlink() != own.readlink(), "it has entered", ENTERED_S)
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{process.pid}/{name}").write_text("0 0 65536")
        try:
            out, err = process.communicate("go\n" if mapped else "", timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(inside, process.returncode, out, err)
