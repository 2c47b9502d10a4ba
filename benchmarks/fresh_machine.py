"""Tries Tare on a machine made for it: a root file system by mmdebstrap, a user in it, an empty clone, one command.

    python3 benchmarks/fresh_machine.py --release trixie --user ordinary --out fresh/trixie
    python3 benchmarks/fresh_machine.py --release bookworm --user root --out fresh/bookworm \\
        --command "make report STUDY=config/smoke.yaml" --command "make clean-runtimes"
    python3 benchmarks/fresh_machine.py --user ordinary --place work --read-only-home --out fresh/read-only \\
        --env "TARE_CACHE=/srv/tare/a cache"

Standard library only; needs root, mmdebstrap, overlayfs and a network. The machine has namespaces of its own for
mounts and processes, and this one's kernel and network: what needs another kernel or a boot is not shown by it.
A release of Ubuntu needs its archive's keyring (--keyring). What reaches a package index from here is the affair
of this machine: --bind shows a file or folder of it at the same place or another, read-only, --env passes a
variable on, and --cached copies what was fetched here (~/.cache/tare/data) into the machine's cache.

--offline makes a machine without a network, --cache-mb one whose cache is a disk of so many MB of its own, empty at
each command.

--remedies gives what was printed as a remedy and is a command of apt's, as the user whom it asks to (no service
starts for it), and runs the first command again. --without-apt makes a machine where nothing can be installed.
--kill ends the first command as Ctrl-C does (INT) or at once (KILL), after some seconds or at a random moment.

It tells how each command ended, what it printed, and what was there afterwards that had not been before: processes,
mounts, and files outside the checkout and the cache that belong to no package.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASES = {"bookworm": "debian", "trixie": "debian", "noble": "ubuntu"}
# What somebody has who cloned this repository: no compiler, no pip, no python3-venv.
PACKAGES = ("ca-certificates", "git", "make", "mount", "passwd", "python3", "sudo")
USERS = {"root": (0, "/root"), "sudo": (1000, "/home/sudoer"), "ordinary": (1001, "/home/ordinary")}
WORK = "/srv/tare"
NAMES = {"root": "root", "sudo": "sudoer", "ordinary": "ordinary"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHOWN = 40
SETTLE_S = 40  # the private Docker daemon ends 20 s after its last user
REMOVE_S = 20
REMEDY = re.compile(r"(?:mend it|to have them): (?:ask an administrator for `([^`]*)`|(.*?apt-get .*))")
# sudo asks for no password, and apt for no consent: a person would give them.
ANSWERS = {
    "etc/sudoers.d/answers": "%sudo ALL=(ALL) NOPASSWD: ALL",
    "etc/apt/apt.conf.d/90answers": 'APT::Get::Assume-Yes "true";',
}
ANNOUNCED = ("tare", "pip", "snakemake", "matplotlib")  # in ~/.cache, by the README
LOOSE = (
    "dev/",
    "etc/alternatives/",
    "proc/",
    "run/",
    "sys/",
    "var/cache/",
    "var/lib/apt/",
    "var/lib/dpkg/",
    "var/log/",
)
# The first process of the machine mounts, becomes the user, runs the command, and looks at what is left.
FIRST_PROCESS = r"""
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$CASE/upper,workdir=$CASE/work" "$CASE/root"
cd "$CASE/root"
mount --rbind /sys sys
mount --rbind /dev dev
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p "./$HOME_INSIDE" "./$WORK_INSIDE"
mount --bind "$CASE/home" "./$HOME_INSIDE"
mount --bind "$CASE/work_folder" "./$WORK_INSIDE"
printf '%s\n' "$BINDS" | while IFS='=' read -r path place; do
    [ -n "$path" ] || continue
    place=.${place:-$path}
    if [ -d "$path" ]; then mkdir -p "$place"; else mkdir -p "${place%/*}"; rm -f "$place"; : > "$place"; fi
    mount --bind "$path" "$place"
    mount -o remount,bind,ro "$place"
done
[ -z "$WITHOUT_APT" ] || rm -f usr/bin/apt* usr/bin/dpkg*
[ -z "$CACHE_MB" ] || mount -t tmpfs -o "size=${CACHE_MB}m,uid=$OWNER_ID,gid=$OWNER_ID" tmpfs "./$CACHE_INSIDE"
[ -z "$OFFLINE" ] || ip link set lo up
[ -z "$READ_ONLY_HOME" ] || mount -o remount,bind,ro "./$HOME_INSIDE"
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old
set +e
processes() {
    for p in /proc/[0-9]*; do
        cmp -s /proc/1/cmdline "$p/cmdline" || { tr '\0\n' '  ' < "$p/cmdline"; echo; } 2> /dev/null | grep .
    done
}
cut -d' ' -f5 /proc/self/mountinfo | sort > /run/before
policy=/usr/sbin/policy-rc.d
[ -z "$WITHOUT_SERVICES" ] || { printf '#!/bin/sh\nexit 101\n' > $policy; chmod 755 $policy; }
cd "$FOLDER" || exit 99
# What a shell starts in the background ignores Ctrl-C.
setsid env --default-signal=INT,QUIT \
    setpriv --reuid "$USER_ID" --regid "$USER_ID" --init-groups --reset-env sh -c "cd \"\$1\"
    export PATH=$PATH HOME=\"$HOME_INSIDE\" $VARIABLES
    exec sh -c \"\$2\"" sh "$FOLDER" "$COMMAND" < /dev/null 3>&- &
pid=$!
if [ -n "$KILL_AFTER" ]; then sleep "$KILL_AFTER"; kill "-$KILL_SIGNAL" "-$pid"; fi
wait $pid
echo "status $?" >&3
[ -z "$WITHOUT_SERVICES" ] || rm -f $policy
waited=0
while [ -n "$(processes)" ] && [ $waited -lt "$SETTLE_S" ]; do sleep 1; waited=$((waited + 1)); done
left=$(processes)
[ -z "$left" ] || printf '%s\n' "$left" | sed 's/^/process /' >&3
cut -d' ' -f5 /proc/self/mountinfo | sort > /run/after
comm -13 /run/before /run/after | sed 's/^/mount /' >&3
"""


@dataclass(kw_only=True)
class Ended:
    """How a command ended, and what it left.

    `killed` says by which signal of ours and when; `files` are paths outside the checkout, the cache and every
    package; `packages` those added since the beginning.
    """

    command: str
    status: int | None = None
    killed: str | None = None
    seconds: float = 0.0
    processes: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)


def main(argv: Sequence[str]) -> int:
    """Make the machine, run the commands, tell what came of them; 0 when each ended well and left nothing."""
    arguments = parse(argv)
    if os.getuid() != 0 or shutil.which("mmdebstrap") is None:
        print("fresh_machine: needs root and mmdebstrap (mend it: apt-get install mmdebstrap)", file=sys.stderr)
        return 3
    base = make_base(arguments.bases, arguments.release, arguments.keyring)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with machine(arguments, base) as case:
        found = []
        kill: tuple[str, float] | None = chosen_end(arguments.kill) if arguments.kill else None
        for command in arguments.command:
            found.append(run(arguments, base, case, command, kill=kill))
            tell(found[-1])
            kill = None
        if arguments.remedies:
            given: list[str] = []
            for who, remedy in remedies((arguments.out / "output.log").read_text(errors="replace")):
                found.append(run(arguments, base, case, remedy, user=who, without_services=True))
                given, found[-1].files = found[-1].files, []  # what an administrator installs is no trace of ours
                tell(found[-1])
            found.append(run(arguments, base, case, arguments.command[0]))
            found[-1].files = [path for path in found[-1].files if path not in given]
            tell(found[-1])
        keep_pages(place_of(arguments, case), arguments.out)
        (arguments.out / "ended.json").write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    return int(any(one.status or one.processes or one.mounts or one.files for one in found))


def chosen_end(text: str) -> tuple[str, float]:
    """`INT:30` or, at a random moment, `INT:5-90`: a signal, and the seconds before it."""
    name, _, span = text.partition(":")
    first, _, last = span.partition("-")
    return name, round(random.uniform(float(first), float(last or first)), 1)


def remedies(output: str) -> list[tuple[str | None, str]]:
    """The commands of apt's that were printed as remedies, each once: (root or None for the user, command)."""
    found = []
    for asked, own in REMEDY.findall(output):
        if "apt-get" in asked:
            found.append(("root", asked))
        elif own:
            found.append((None, own.strip().removesuffix(")")))
    return list(dict.fromkeys(found))


def tell(one: Ended) -> None:
    """Print how a command ended, and what it left."""
    killed = f" ({one.killed})" if one.killed else ""
    print(
        f"{one.command}: status {one.status} after {one.seconds:.0f} s{killed}, packages added: {len(one.packages)}"
    )
    for what in ("processes", "mounts", "files"):
        for line in getattr(one, what)[:SHOWN]:
            print(f"    left, {what}: {line}")
    sys.stdout.flush()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", choices=RELEASES, default="bookworm")
    parser.add_argument(
        "--user", choices=USERS, default="ordinary", help="sudo: an ordinary user in the group sudo"
    )
    parser.add_argument("--command", action="append", help="more than one run one after the other")
    parser.add_argument(
        "--remedies", action="store_true", help="give what was printed, and run the first command again"
    )
    parser.add_argument("--folder", default="a folder/tare", help="the clone's place, below the home or --place")
    parser.add_argument("--place", choices=("home", "work"), default="home", help="work: /srv/tare")
    parser.add_argument("--read-only-home", action="store_true")
    parser.add_argument("--without-apt", action="store_true")
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--cache-mb", type=int, metavar="N")
    parser.add_argument("--bind", action="append", default=[], metavar="PATH[=PLACE]")
    parser.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]")
    parser.add_argument("--cached", type=Path, action="append", default=[], metavar="FOLDER", help="of our cache")
    parser.add_argument(
        "--kill", metavar="SIGNAL:SECONDS[-SECONDS]", help="end the first command's group meanwhile"
    )
    parser.add_argument("--keyring", type=Path, help="of the release's archive")
    parser.add_argument("--bases", type=Path, default=Path("/var/tmp/tare-fresh"), help="root file systems, kept")
    parser.add_argument(
        "--scratch", type=Path, default=Path("/var/tmp"), help="where the machine lies; goes afterwards"
    )
    parser.add_argument("--keep", action="store_true", help="the machine's files stay")
    parser.add_argument("--out", type=Path, default=Path("fresh"))
    arguments = parser.parse_args(argv)
    arguments.command = arguments.command or ["make report STUDY=config/smoke.yaml"]
    return arguments


def make_base(folder: Path, release: str, keyring: Path | None) -> Path:
    """The release's root file system, made once: packages of a small installation, and the users."""
    base = folder / release
    if base.exists():
        return base
    folder.mkdir(parents=True, exist_ok=True)
    making = folder / f".{release}.{os.getpid()}"
    argv = base_command(release, making, keyring)
    print(f"making {base}", flush=True)
    try:
        subprocess.run(argv, check=True)
        making.rename(base)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return base


def base_command(release: str, folder: Path, keyring: Path | None) -> list[str]:
    """mmdebstrap's argument list; pure."""
    family = RELEASES[release]
    users = [
        f'chroot "$1" useradd --create-home --uid {USERS[name][0]} --shell /bin/bash '
        f"{'--groups sudo ' if name == 'sudo' else ''}{NAMES[name]}"
        for name in ("sudo", "ordinary")
    ]
    answers = [f"echo '{text}' > \"$1/{path}\"" for path, text in ANSWERS.items()]
    return [
        *("mmdebstrap", "--quiet", "--variant=apt", "--format=directory", f"--include={','.join(PACKAGES)}"),
        *([f"--keyring={keyring}"] if keyring else []),
        *(f"--customize-hook={hook}" for hook in (*users, *answers)),
        *(["--components=main,universe"] if family == "ubuntu" else []),
        *(release, str(folder)),  # from the archive that mmdebstrap knows for it
    ]


@contextlib.contextmanager
def machine(arguments: argparse.Namespace, base: Path) -> Iterator[Path]:
    """The folder of a machine with an empty clone in it: what it changes, its home, its place for work."""
    case = arguments.scratch / f"tare-fresh-{os.getpid()}"
    user, home = USERS[arguments.user]
    try:
        for name in ("upper", "work", "root", "home", "work_folder"):
            (case / name).mkdir(parents=True)
        (case / "upper").chmod(0o755)
        if (base / home.lstrip("/")).is_dir():
            shutil.copytree(base / home.lstrip("/"), case / "home", symlinks=True, dirs_exist_ok=True)
        (case / "upper/etc").mkdir()
        shutil.copy("/etc/resolv.conf", case / "upper/etc/resolv.conf")
        for folder in arguments.cached:
            shutil.copytree(folder, cache_of(arguments, case) / folder.name, symlinks=True)
        if arguments.cache_mb:  # a place to mount at
            cache_of(arguments, case).mkdir(parents=True, exist_ok=True)
        clone = place_of(arguments, case)
        clone.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        for name in ("home", "work_folder"):
            subprocess.run(["chown", "--recursive", f"{user}:{user}", str(case / name)], check=True)
        yield case
    finally:
        if not arguments.keep:
            remove(case)


def remove(folder: Path) -> None:
    """Remove a machine's folder; what still ends in it may hold it up for a moment."""
    until = time.monotonic() + REMOVE_S
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.2)


def place_of(arguments: argparse.Namespace, case: Path) -> Path:
    """The clone, seen from outside."""
    return Path(case, "home" if arguments.place == "home" else "work_folder", arguments.folder)


def cache_of(arguments: argparse.Namespace, case: Path) -> Path:
    """The machine's cache, seen from outside: TARE_CACHE of --env, below the home or /srv/tare, or the usual."""
    chosen = dict(pair.partition("=")[::2] for pair in arguments.env).get("TARE_CACHE")
    if not chosen:
        return case / "home/.cache/tare"
    home = USERS[arguments.user][1]
    folder, inside = (case / "home", home) if Path(chosen).is_relative_to(home) else (case / "work_folder", WORK)
    return folder / Path(chosen).relative_to(inside)


def cache_inside(arguments: argparse.Namespace, case: Path) -> str:
    """The machine's cache, seen from inside."""
    cache, home = cache_of(arguments, case), case / "home"
    if cache.is_relative_to(home):
        return f"{USERS[arguments.user][1]}/{cache.relative_to(home)}"
    return f"{WORK}/{cache.relative_to(case / 'work_folder')}"


def variables_of(names: Sequence[str]) -> str:
    """Words for the shell that pass variables on."""
    found = (
        name if "=" in name else f"{name}={os.environ[name]}" for name in names if "=" in name or name in os.environ
    )
    return " ".join(f"{key}='{value}'" for key, _, value in (pair.partition("=") for pair in found))


def run(
    arguments: argparse.Namespace,
    base: Path,
    case: Path,
    command: str,
    *,
    user: str | None = None,
    kill: tuple[str, float] | None = None,
    without_services: bool = False,
) -> Ended:
    """Run one command in the machine; its output goes to a log.

    Args:
        arguments: of the command line.
        base: the root file system.
        case: the machine's folder.
        command: words for a shell.
        user: who runs it, where not the machine's user.
        kill: signal for its process group, and after how many seconds.
        without_services: no service starts for a package that it installs: Docker's own would change this machine's
            network.
    """
    home = USERS[arguments.user][1]
    inside = home if arguments.place == "home" else WORK
    number, seconds = kill or ("", "")
    settings = {
        "BASE": base, "CASE": case, "COMMAND": command, "HOME_INSIDE": home, "WORK_INSIDE": WORK,
        "FOLDER": f"{inside}/{arguments.folder}", "USER_ID": USERS[user or arguments.user][0], "PATH": PATH,
        "SETTLE_S": SETTLE_S, "VARIABLES": variables_of(arguments.env), "BINDS": "\n".join(arguments.bind),
        "READ_ONLY_HOME": "yes" if arguments.read_only_home else "", "KILL_AFTER": seconds, "KILL_SIGNAL": number,
        "WITHOUT_APT": "yes" if arguments.without_apt else "",
        "WITHOUT_SERVICES": "yes" if without_services else "", "OFFLINE": "yes" if arguments.offline else "",
        "CACHE_MB": arguments.cache_mb or "", "CACHE_INSIDE": cache_inside(arguments, case),
        "OWNER_ID": USERS[arguments.user][0],
    }  # fmt: skip
    ended = Ended(command=command, killed=f"SIG{number} after {seconds} s" if kill else None)
    facts, log = case / "facts", arguments.out / "output.log"
    argv = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        *(["--net"] if arguments.offline else []),
        "sh",
        "-c",
        f"exec 3> '{facts}'\n{FIRST_PROCESS}",
    ]
    started = time.monotonic()
    with log.open("ab") as file:
        file.write(f"$ {command}\n".encode())
        file.flush()
        environment = {key: str(value) for key, value in settings.items()}
        with subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file) as child:
            try:
                child.wait()
            except BaseException:
                child.send_signal(signal.SIGKILL)
                raise
    ended.seconds = round(time.monotonic() - started, 1)
    for line in facts.read_text().splitlines():
        kind, _, value = line.partition(" ")
        if kind == "status":
            ended.status = int(value)
        else:
            (ended.processes if kind == "process" else ended.mounts).append(value)
    ended.packages, ended.files = added_packages(base, case), foreign_files(arguments, case)
    return ended


def added_packages(base: Path, case: Path) -> list[str]:
    """Packages that dpkg has now and had not."""

    def installed(root: Path) -> set[str]:
        status = root / "var/lib/dpkg/status"
        if not status.exists():
            return set()
        blocks = status.read_text(errors="replace").split("\n\n")
        return {
            block.partition("Package: ")[2].partition("\n")[0] for block in blocks if "Status: install" in block
        }

    return sorted(installed(case / "upper") - installed(base))


def foreign_files(arguments: argparse.Namespace, case: Path) -> list[str]:
    """Files that were not there, outside the checkout and the cache, and that no package lists; folders in /tmp."""
    listed = set()
    for path in (case / "upper/var/lib/dpkg/info").glob("*.list"):
        listed |= set(path.read_text(errors="replace").splitlines())
    shown = {(bind.partition("=")[2] or bind).lstrip("/") for bind in arguments.bind} | {"etc/resolv.conf"}
    found = []
    for path in sorted((case / "upper").rglob("*")):
        name = str(path.relative_to(case / "upper"))
        whiteout = path.is_char_device()
        if path.is_symlink() and str(path.readlink()).startswith("/etc/alternatives/"):
            continue
        folder = path.is_dir() and not path.is_symlink() and path.parent.name != "tmp"
        if folder or whiteout or name in shown or name.startswith(LOOSE):
            continue
        usr = f"/usr/{name}" if not name.startswith("usr/") else f"/{name.removeprefix('usr/')}"
        if f"/{name}" not in listed and usr not in listed and "__pycache__" not in name:
            found.append(f"/{name}")
    expected = {place_of(arguments, case), cache_of(arguments, case)}
    expected |= {case / "home/.cache" / name for name in ANNOUNCED}
    for folder, inside in ((case / "home", USERS[arguments.user][1]), (case / "work_folder", WORK)):
        for path in sorted(folder.rglob("*")):
            skipped = bool(expected & {path, *path.parents}) or path.name.startswith((".bash", ".profile"))
            if (
                not path.is_dir()
                and not skipped
                and f"{inside}/{path.relative_to(folder)}".lstrip("/") not in shown
            ):
                found.append(f"{inside}/{path.relative_to(folder)}")
    return found


def keep_pages(clone: Path, out: Path) -> None:
    """Copy the reports that were made, each a folder of pages, out of the machine."""
    for report in (*clone.glob("results/report"), *clone.glob("results/*/report")):
        shutil.copytree(report, out / report.parent.name, dirs_exist_ok=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
