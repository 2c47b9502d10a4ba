"""Relocates Apptainer from a newer suite of the machine's own Debian archive, where its release has none.

It is unpacked into the cache, with that suite's libc next to it, and nothing of the system replaced. Its signatures
are checked by apt as ever.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.process import run
from tare.core.progress import step
from tare.runtimes.programs import apt, install_packages, relocated_prefix, which
from tare.runtimes.table import RELOCATED, RELOCATED_SUITE

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PATCH_S = 60.0


def debian_archive() -> tuple[str, str]:
    """(address, keyring) of the Debian archive of this machine's apt; raises UnavailableError without one."""
    fields = "$(CREATED_BY)|$(ORIGIN)|$(REPO_URI)|$(SIGNED_BY)|$(RELEASE)"
    listing = apt("apt-get", "indextargets", "--format", fields, timeout_s=60).stdout
    for line in listing.splitlines():
        kind, origin, address, keyring, release = [*line.split("|"), *[""] * 5][:5]
        if kind == "Packages" and origin == "Debian" and "security" not in release:
            named = keyring if keyring.startswith("/") else str(KEYRING)
            if not Path(named).exists():
                raise UnavailableError(f"the archive's keyring {named} is missing")
            return address, named
    raise UnavailableError("apt has no Debian archive as a source, so no newer suite is available")


def private_apt(folder: Path, address: str, keyring: str) -> Callable[..., str]:
    """apt's output, with its own state that knows RELOCATED_SUITE; raises UnavailableError where it fails."""
    for name in ("state/lists/partial", "cache/archives/partial", "parts"):
        (folder / name).mkdir(parents=True)
    sources = folder / "sources.list"
    sources.write_text(f"deb [signed-by={keyring}] {address} {RELOCATED_SUITE} main\n", encoding="utf-8")
    (folder / "status").touch()
    settings = (
        f"Dir::State={folder}/state",
        f"Dir::State::status={folder}/status",
        f"Dir::Cache={folder}/cache",
        f"Dir::Etc::SourceList={sources}",
        f"Dir::Etc::SourceParts={folder}/parts",
        f"Dir::Etc::Preferences={folder}/none",
        f"Dir::Etc::PreferencesParts={folder}/parts",
        "APT::Sandbox::User=root",
        "APT::Update::Post-Invoke-Success=",
    )
    options = [part for setting in settings for part in ("-o", setting)]

    def ask(program: str, *arguments: str, cwd: Path | None = None) -> str:
        done = apt(program, *options, *arguments, cwd=cwd)
        if not done.ok:
            raise UnavailableError(done.explain())
        return done.stdout

    return ask


def install_relocated() -> str:
    """Apptainer of RELOCATED_SUITE in its own prefix in the cache, with its own libc; what it consists of.
    Raises UnavailableError where there is none, its place is unfit, or it does not run.
    """
    prefix = relocated_prefix()
    if reason := unfit(prefix):
        raise UnavailableError(reason)
    address, keyring = debian_archive()
    if not which("patchelf") and (failed := install_packages(["patchelf"])):
        raise UnavailableError(f"patchelf is missing: {failed['patchelf']}")
    building = prefix.with_name("apptainer.building")
    shutil.rmtree(building, ignore_errors=True)
    try:
        with step(f"fetching Apptainer from the suite {RELOCATED_SUITE} of the distribution's archive"):
            ask = private_apt(building / "apt", address, keyring)
            ask("apt-get", "update")
            needs = re.findall(r"^ *Depends: (lib[^<\s]+)$", ask("apt-cache", "depends", RELOCATED), re.MULTILINE)
            versions = unpack(ask, [RELOCATED, *needs], building)
            relocate(building / "root", prefix)
        shutil.rmtree(prefix, ignore_errors=True)
        (building / "root").rename(prefix)
        run([str(prefix / "usr/bin/apptainer"), "--version"], timeout_s=20, check=True)
    except BaseException:
        shutil.rmtree(prefix, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return ", ".join(versions)


def unfit(prefix: Path) -> str | None:
    """Why a relocated Apptainer can't be at a place; None where it can.

    Its mounts are below it, and it looks for those by FUSE in /proc/self/mountinfo, where a blank is written as
    \\040: after 20 s it gives up. In a guest, whose kernel mounts the image, it works below a blank as well.
    """
    if any(character.isspace() for character in str(prefix)):
        return f"{prefix} has a space in its path, and the relocated Apptainer does not find its mounts then"
    return None


def unpack(ask: Callable[..., str], packages: Sequence[str], folder: Path) -> list[str]:
    """Download packages, signatures checked by apt, and unpack them into folder/root; name=version of each."""
    archives, root = folder / "archives", folder / "root"
    archives.mkdir()
    root.mkdir()
    ask("apt-get", "download", *packages, cwd=archives)
    found = sorted(archives.glob("*.deb"))
    for archive in found:
        run(["dpkg-deb", "--extract", str(archive), str(root)], timeout_s=PATCH_S, check=True)
    return ["=".join(archive.name.split("_")[:2]) for archive in found]


def relocate(root: Path, prefix: Path) -> None:
    """Make the tree in `root` work once it is at `prefix`.

    Apptainer takes its prefix from where its programs are: `apptainer` finds usr/, `starter` finds usr/lib/
    (one folder more on a multiarch system). So settings and session folder are put where either looks.
    --force-rpath: a runpath would not reach the libraries of libraries.
    """
    libraries = next((root / "usr/lib").glob("*-linux-gnu*"))
    loader = next(libraries.glob("ld-linux*.so.*"))
    inside = libraries.relative_to(root)
    for program, library_path in (
        (root / "usr/bin/apptainer", f"$ORIGIN/../lib/{libraries.name}"),
        (libraries / "apptainer/bin/starter", "$ORIGIN/../.."),
    ):
        interpreter = ["--set-interpreter", str(prefix / inside / loader.name)]
        argv = ["patchelf", *interpreter, "--force-rpath", "--set-rpath", library_path, str(program)]
        run(argv, timeout_s=PATCH_S, check=True)
    for base in (root / "usr", root / "usr/lib"):
        shutil.copytree(root / "etc/apptainer", base / "etc/apptainer")
        (base / "var/lib/apptainer/mnt/session").mkdir(parents=True)
