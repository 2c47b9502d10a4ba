"""The ways in which Tare ends early, each with its exit code.

0 success; 1 a defect of Tare (with a traceback); 2 a user's mistake; 3 something that this machine
lacks; 4 data that fails its check; 130 interrupted. The last four print one line and no traceback.
"""

import contextlib
import errno
import grp
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from tare.core.places import cache_root, project_root

APT_LISTS = Path("/var/lib/apt/lists")
ROOT_COMMANDS = ("apt-get ", "chmod ", "dpkg ", "modprobe ", "sh -c ", "sysctl ", "systemctl ", "usermod ")
ADMINISTRATORS = {"sudo", "wheel", "admin"}
OURS = {"tare", "envs", "workloads", "snakemake_logger_plugin_tare"}
LIBRARIES = {"libstdc++.so.6": "libstdc++6", "libgomp.so.1": "libgomp1"}  # that wheels need: packages of Debian
_NO_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")  # as the loader says it
NOT_MAPPED = ("cannot allocate memory", "failed to map segment")  # as the loader says it
# Limits of a process and of the machine: what happened, what mends it.
LIMITS = {
    errno.EFBIG: ("a file would be larger than this shell's limit", "raise it (ulimit -f)"),
    errno.EMFILE: ("more files are open than this shell's limit", "raise it (ulimit -n)"),
    errno.ENFILE: ("more files are open than this machine allows", "close other programs, or raise fs.file-max"),
    errno.EAGAIN: ("no further process or thread may be started", "close some, or raise the limit (ulimit -u)"),
    errno.ENOMEM: ("there was no memory left", "close other programs, or raise this shell's limit (ulimit -v)"),
}
UNUSABLE = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENODEV, errno.ELOOP, errno.EIO,
    errno.ESTALE, errno.ENXIO, errno.EEXIST, errno.EINVAL, errno.EBUSY,
}  # fmt: skip


class TareError(Exception):
    """An expected failure: one line says what is wrong, where, and what to do."""

    exit_code = 2


class UserError(TareError):
    """The configuration, an argument or a file given by the user is wrong."""

    exit_code = 2


class UnavailableError(TareError):
    """This machine lacks something: `reason` is what was tried, `remedy` the command that mends it, or None."""

    exit_code = 3

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self.reason = reason
        self.remedy = None if remedy is None else as_we_can(remedy)
        super().__init__(reason if remedy is None else f"{reason} (to fix it: {self.remedy})")


class IntegrityError(TareError):
    """Content that does not match its recorded hash, or a record cut short."""

    exit_code = 4


@contextlib.contextmanager
def advising(advice: str) -> Iterator[None]:
    """Adds to an error of content what to do about it."""
    try:
        yield
    except IntegrityError as error:
        raise IntegrityError(f"{error}; {advice}") from error


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether it is of a disk, or of a user's share of it, that is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def explain_os_error(error: OSError) -> str | None:
    """One line for failures that a user can mend, of a disk or of a process's limits; None for the others."""
    where = error.filename or "a file"
    if is_full(error):
        where = error.filename2 or where  # of a copy the second is written
        return f"no space left while writing {where}: free some, or point TARE_CACHE at a larger disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"no permission for {where}: {os.strerror(error.errno)}{_instead(error.filename)}"
    if error.errno == errno.ENOENT and not _has_working_directory():
        return "the working directory has been removed: change into another one"
    if error.errno in LIMITS:
        return ": ".join(LIMITS[error.errno])
    if error.errno in UNUSABLE:
        return f"cannot use {where}: {os.strerror(error.errno)}"
    return None


def _instead(name: object) -> str:
    """What to do where a file can't be written: by the place that it is in."""
    if not isinstance(name, str) or not name:
        return ""
    path = Path(name).absolute()
    with contextlib.suppress(RuntimeError, OSError):
        root = cache_root()
        if path.is_relative_to(root.absolute()) or path.is_relative_to(root.resolve()):
            return "; point TARE_CACHE at a folder that may be written"
    if path.is_relative_to(project_root()):
        return "; copy the checkout, or run the workflow in a folder that may be written (--directory FOLDER)"
    return "; name another place, or have its owner let you use it"


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def explain_defect(error: BaseException) -> str | None:
    """One line for an exception that the Python or the limits are the cause of; None for a defect of Tare."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return ": ".join(LIMITS[errno.ENOMEM if isinstance(error, MemoryError) else errno.EAGAIN])
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] not in OURS:
        root = project_root()
        if not (root / "Makefile").is_file():
            extra = "install Tare with its extra `workflow` (pip install 'WHEEL[workflow]')"
            return f"{sys.executable} has no {error.name}: {extra}"
        own = root / ".venv/bin/python"
        mended = f"call {own}, which `make setup` in {root} makes"
        if Path(sys.executable) == own:
            mended = f"`make setup` in {root} installs it"
        return f"{sys.executable} has no {error.name}: {mended}"
    if isinstance(error, ImportError) and any(words in str(error) for words in NOT_MAPPED):
        return f"there was no memory left to load {error.name}: raise this shell's limit (ulimit -v)"
    if isinstance(error, ImportError) and (found := _NO_LIBRARY.search(str(error))):
        package = LIBRARIES.get(found[1])
        remedy = as_we_can(f"apt-get install {package}") if package else "install the package that has it"
        return f"{sys.executable} can't load the system library {found[1]}: {remedy}"
    return None


def reason_of(error: TareError | OSError) -> str:
    """Why something could not be had, in a record: one line, with what a user can do about a disk or a limit."""
    return (explain_os_error(error) if isinstance(error, OSError) else None) or str(error)


def as_we_can(remedy: str) -> str:
    """A remedy that works where it is read: a command of root's by sudo where we may, else for an administrator.

    Where there is no such program, a package is only named: other distributions have it by a similar name. Where
    apt has no lists of packages yet, as on a machine that was just made, they come first.
    """
    if not remedy.startswith(ROOT_COMMANDS):
        return remedy
    program, *words = remedy.split()
    if program == "apt-get" and shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/bin") is None:
        packages = " ".join(word for word in words[1:] if not word.startswith("-"))
        return f"install what Debian packs as {packages}"
    if remedy.startswith("apt-get install ") and not apt_has_lists():
        remedy = f"apt-get update && {remedy}"
    if os.getuid() == 0:
        return remedy
    return remedy.replace(program, f"sudo {program}") if may_sudo() else f"ask an administrator for `{remedy}`"


def apt_has_lists() -> bool:
    """Whether apt has read what its archives have."""
    return any(APT_LISTS.glob("*_Packages*"))


def may_sudo() -> bool:
    """Whether this user is, by a group, one who may use sudo; nothing is asked and no password is needed."""
    names = set()
    for number in os.getgroups():
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return shutil.which("sudo") is not None and bool(names & ADMINISTRATORS)
