"""Real trial launches of a runtime, of a tiny image (tare.images.skeleton).

It shows whether a runtime starts a process here under the flags of a measured launch, and what that process
sees. It cannot show that a large image fits on the disk, nor how fast anything is.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import resource
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from tare.core.errors import TareError, UnavailableError, UserError, explain_defect, reason_of
from tare.core.files import cache_dir, home_dir, locked, read_json, write_json
from tare.core.process import run
from tare.images.skeleton import trial_image
from tare.launch.prepare import clean_up, ended_with_us, mount_points, own_folder
from tare.launch.record import console_reason
from tare.launch.transport import transport_of
from tare.machine.facts import shm_bytes
from tare.machine.security import restriction_behind
from tare.machine.shared_files import read_mounts
from tare.model.environment import Bind, Environment, Launch, Prepared, Probe
from tare.model.records.images import ProbeRecord
from tare.runtimes.programs import where

NO_OPTIONS: Mapping[str, str] = {}
# Interfaces that exist in every new network namespace, without an address or a way out.
INERT = {"lo", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"}
OWN_VARIABLES = {"PATH", "PWD", "TRIAL_WRITABLE", "TRIAL_READONLY", "TRIAL_ROOT"}

SECTIONS = (
    "environment",
    "nofile",
    "workdir",
    "interfaces",
    "status",
    "mounts",
    "shm",
    "parent_mounts",
    "stdin",
    "writes",
)
# What the trial prints: one section per line "## name", read by `sections`.
SCRIPT = """\
echo "## environment"; env
echo "## nofile"; ulimit -n
echo "## workdir"; pwd -P
echo "## interfaces"; cat /proc/net/dev
echo "## status"; cat /proc/self/status
echo "## mounts"; cat /proc/self/mountinfo
echo "## shm"; stat -f -c "%S %b" /dev/shm
echo "## parent_mounts"; cat "/proc/$PPID/mountinfo" 2>/dev/null
echo "## stdin"; read -r token; echo "$token"
echo "## writes"
(echo written > "$TRIAL_WRITABLE/answer") 2>/dev/null && echo bind
(echo wrong > "$TRIAL_READONLY/answer") 2>/dev/null && echo readonly_bind
[ -n "$TRIAL_ROOT" ] && (echo wrong > "$TRIAL_ROOT") 2>/dev/null && echo root
echo "## end"
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a process saw that a runtime launched under the conditions of a measured launch.

    `violations` names each condition that did not hold; `facts` what is worth recording; `seen` is what the
    script printed, by section.
    """

    violations: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)


def trial_launch(
    name: str,
    reference: str | None,
    scratch: Path,
    *,
    contained: bool,
    isolated: bool = True,
    shares_files: bool = True,
) -> Launch:
    """A launch of the trial image that uses every field that an adapter must honour.

    `scratch` is a folder of the host; two folders below it become binds, one writable. Where nothing is shared, a
    folder of the image and /tmp take their place.
    """
    readonly, writable = (
        (scratch / "read only", scratch / "writable") if shares_files else (Path("/usr"), Path("/tmp"))
    )
    binds: tuple[Bind, ...] = ()
    if shares_files:
        for folder in (readonly, writable):
            folder.mkdir(parents=True, exist_ok=True)
        binds = (Bind(source=readonly, target=readonly), Bind(source=writable, target=writable, writable=True))
    variables = {
        "PATH": "/usr/bin:/bin",
        "TRIAL_WRITABLE": str(writable),
        "TRIAL_READONLY": str(readonly),
    }
    if contained:
        variables["TRIAL_ROOT"] = "/usr/trial-write"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return Launch(
        name=name,
        argv=("/usr/bin/env", "-i", *(f"{k}={v}" for k, v in variables.items()), "/bin/sh", "-c", SCRIPT),
        reference=reference,
        binds=binds,
        workdir=writable,
        cpus=(min(os.sched_getaffinity(0)),),
        shm_bytes=shm_bytes(),
        nofile=1024 if hard < 0 else min(1024, hard),
        uid=os.getuid(),
        gid=os.getgid(),
        isolate_network=isolated,
    )


def sections(output: str) -> dict[str, str]:
    """The parts of what SCRIPT printed, by name."""
    parts = re.split(r"^## (\w+)\n", output, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip("\n") for part in parts[2::2]), strict=True))


def mount_of(mountinfo: str, target: str) -> dict[str, str] | None:
    """Filesystem type, source and options of what is mounted last at `target`, from /proc/self/mountinfo."""
    there = [mount for mount in read_mounts(mountinfo) if str(mount.point) == target]
    return (
        {"type": there[-1].kind, "source": there[-1].source, "options": ",".join(there[-1].options)}
        if there
        else None
    )


def judge(launch: Launch, output: str, *, contained: bool, unseen: Iterable[str] = ()) -> Trial:
    """Compare what a trial launch printed with what its Launch asked for, but for what its transport can't set."""
    seen = {name: "" for name in SECTIONS} | sections(output)
    status = dict(re.findall(r"^(\w+):\s*(.*)$", seen["status"], re.MULTILINE))
    interfaces = re.findall(r"^\s*(\S+):", seen["interfaces"], re.MULTILINE)
    foreign = {line.partition("=")[0] for line in seen["environment"].splitlines()} - OWN_VARIABLES
    shm_bytes = math.prod(int(number) for number in seen["shm"].split()) if seen["shm"] else None
    wanted_cpus = ",".join(str(cpu) for cpu in launch.cpus)
    writes = seen["writes"].split()
    checks = {
        "its output was cut short": "end" in sections(output),
        f"standard input was not forwarded ({seen['stdin']!r})": seen["stdin"] == "token",
        f"the working directory is {seen['workdir']}": seen["workdir"] == str(launch.workdir),
        f"open files are limited to {seen['nofile']}": seen["nofile"] == str(launch.nofile),
        f"the CPUs are {status.get('Cpus_allowed_list')}": "affinity" in unseen
        or status.get("Cpus_allowed_list") == wanted_cpus,
        f"the user is {status.get('Uid')}": "user" in unseen
        or status.get("Uid", "").split()[:1] == [str(launch.uid)],
        f"the group is {status.get('Gid')}": "user" in unseen
        or status.get("Gid", "").split()[:1] == [str(launch.gid)],
        f"/dev/shm has {shm_bytes} bytes": shm_bytes == launch.shm_bytes,
        "a writable folder cannot be written": "bind" in writes,
        "the image can be written": not contained or "root" not in writes,
        f"foreign variables are set: {', '.join(sorted(foreign))}": not foreign,
        f"it has a network: {', '.join(interfaces)}": not launch.isolate_network or set(interfaces) <= INERT,
    }
    facts = {
        "isolates_network": launch.isolate_network,
        "readonly_binds": "readonly_bind" not in writes,
        "seccomp": status.get("Seccomp"),
        "speculation_store_bypass": status.get("Speculation_Store_Bypass"),
        "no_new_privileges": status.get("NoNewPrivs"),
        "root_mount": mount_of(seen["mounts"], "/"),
        "shm_mount": mount_of(seen["mounts"], "/dev/shm"),
        "tmp_mount": mount_of(seen["mounts"], "/tmp"),
    }
    violations = tuple(text for text, holds in checks.items() if not holds)
    return Trial(violations=violations, facts=facts, seen=seen)


def try_launch(
    adapter: Environment,
    reference: str | None,
    *,
    isolated: bool = True,
    options: Mapping[str, str] = NO_OPTIONS,
) -> Trial:
    """Launch the trial image for real and judge what it saw. Raises UnavailableError: the launch failed; the reason
    is the runtime's own last line.
    """
    with own_folder() as (name, scratch):
        shares = transport_of(adapter).shares_files
        launch = trial_launch(
            name, reference, scratch, contained=adapter.contained, isolated=isolated, shares_files=shares
        )
        launch = replace(launch, options=options)
        variables = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(home_dir())}
        variables |= adapter.environment_variables()
        with mount_points(adapter, launch), ended_with_us(adapter, launch, scratch), _token(shares) as stdin:
            ended = None
            try:
                ended = run(adapter.command(launch), timeout_s=adapter.trial_s, env=variables, stdin=stdin)
            finally:
                if ended is None or not ended.ok:
                    clean_up(adapter, launch)
        if not ended.ok:
            raise UnavailableError(f"a trial launch failed: {ended.explain()}")
        if adapter.virtual_machine(launch) is not None and "end" not in sections(ended.stdout):
            raise UnavailableError(console_reason("a trial launch did not come to its end", ended.stderr))
        trial = judge(launch, ended.stdout, contained=adapter.contained, unseen=adapter.unseen_here())
        return replace(trial, facts={**trial.facts, "trial_s": round(ended.wall_s, 3)})


@contextlib.contextmanager
def _token(ends: bool) -> Iterator[bytes | IO[bytes]]:
    """What a trial launch reads; where it has nothing but streams, their end would be that of the launch."""
    if ends:
        yield b"token\n"
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, b"token\n")
        with os.fdopen(reading, "rb", buffering=0) as stdin:
            yield stdin
    finally:
        os.close(writing)


def _try_both(adapter: Environment, reference: str | None, options: Mapping[str, str]) -> Trial:
    """Without a network, as measured launches want it; with one only where that cannot be had."""
    try:
        return try_launch(adapter, reference, options=options)
    except UnavailableError as error:
        try:
            return try_launch(adapter, reference, isolated=False, options=options)
        except UnavailableError:
            raise error from None


def trial_form(adapter: Environment, options: Mapping[str, str] = NO_OPTIONS) -> Prepared:
    """The trial image in the form that an adapter launches at these levels, made anew by one process at a time.

    It counts as used by this process until that ends: one that another process uses, and that is whole, is kept.
    Raises UnavailableError: the adapter can't make it; its reason is given.
    """
    form = adapter.form(options)
    folder = cache_dir("trial", "prepared", adapter.name, *([form] if form else []))
    note = folder / "form.json"
    with locked(folder / "lock", waiting_for=f"another trial of {adapter.name}"):
        image = trial_image()
        known = read_json(note) if not _use(folder) and note.exists() else {}
        if known.get("image") == image.digest and adapter.is_intact(kept := Prepared(**known["prepared"])):
            return kept
        note.unlink(missing_ok=True)
        for left in folder.glob(".*-*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        prepared = adapter.prepare_at(options, image, folder)
        write_json(note, {"image": image.digest, "prepared": asdict(prepared)})
        return prepared


_used: dict[Path, int] = {}  # a descriptor of each folder whose form this process uses; its lock ends with us


def _use(folder: Path) -> bool:
    """Share the lock of those that use a form; whether no other process does. For the holder of the form's lock."""
    if folder not in _used:
        _used[folder] = os.open(folder / "users", os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(_used[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        fcntl.flock(_used[folder], fcntl.LOCK_SH)
    return True


def probe_by_trial(
    adapter: Environment,
    version: str | None,
    *,
    remedy: str | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
    examine: Callable[[Trial], dict[str, Any]] = lambda trial: {},
) -> Probe:
    """Prepare the trial image, launch it, and say whether every condition held; never raises. `remedy`: the command
    that mends a failure which names none itself. `options`: levels of the adapter's factors. `examine`:
    further details from what the trial saw; raises UnavailableError where it rules the runtime out.
    """
    details: dict[str, Any] = {}
    try:
        reference = None
        if adapter.contained:
            prepared = trial_form(adapter, options)
            reference, details = prepared.reference, dict(prepared.details)
        trial = _try_both(adapter, reference, options)
        details |= trial.facts
        if trial.violations:
            raise UnavailableError(f"a trial launch ran, but not as asked: {'; '.join(trial.violations)}")
        details |= examine(trial)
    except (TareError, OSError) as error:
        reason = getattr(error, "reason", None) or reason_of(error)
        own = getattr(error, "remedy", None)
        itself = isinstance(error, UserError | OSError)  # it says what mends it
        mend = own or (None if itself else remedy)
        if own is None and (behind := restriction_behind(reason, in_namespace=adapter.in_user_namespace)):
            reason, mend = f"{reason}; {behind.says}", behind.remedy
        return Probe(available=False, version=version, reason=reason, remedy=mend, details=details)
    return Probe(available=True, version=version, details=details)


def probe(adapter: Environment) -> Probe:
    """The probe of an environment; of a runtime that does not even report its version, what keeps it from that."""
    found = adapter.probe()
    if not isinstance(found, Probe) or found.available or found.version is not None:
        return found
    behind = restriction_behind(found.reason or "", in_namespace=adapter.in_user_namespace)
    if behind is None:
        return found
    return replace(found, reason=f"{found.reason}; {behind.says}", remedy=behind.remedy)


def describe_error(error: Exception, module: str) -> str:
    """What an adapter raised, in one line, with the line in its module."""
    frames = traceback.extract_tb(error.__traceback__)
    own = f"{module.replace('.', '/')}.py"
    lines = [frame.lineno for frame in frames if frame.filename.endswith(own)]
    said = (str(error).strip().splitlines() or [""])[0]
    return f"{own}{f' line {lines[-1]}' if lines else ''}: {type(error).__name__}: {said}"


def probe_record(adapter: Environment) -> ProbeRecord:
    """What the probe of an environment gave, and the programs that it found. Raises UserError: its module raises
    what no probe may.
    """
    try:
        found = probe(adapter)
    except (TareError, OSError):
        raise
    except Exception as error:  # an adapter may be anybody's
        raise UserError(
            f"the probe of {adapter.name} failed: "
            f"{explain_defect(error) or describe_error(error, type(adapter).__module__)}"
        ) from error
    if not isinstance(found, Probe):
        raise UserError(f"the probe of {adapter.name} gave {str(found)[:80]!r}, which is no Probe")
    return ProbeRecord(
        env=adapter.name,
        title=adapter.title,
        description=adapter.description,
        available=found.available,
        version=found.version,
        reason=found.reason,
        remedy=found.remedy,
        details=found.details,
        programs=where(adapter.programs),
    )
