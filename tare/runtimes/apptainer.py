"""Installs Apptainer: upstream's package by hash, else the distribution's, else a relocated newer one.

Relocated means: from the newest suite of the machine's own Debian archive, unpacked into the cache, with that
suite's libc beside it, and nothing of the system replaced. Its signatures are checked by apt as ever.
"""

from __future__ import annotations

import os
import platform
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from tare.core.errors import TareError, UnavailableError, reason_of
from tare.core.files import cache_dir, sha256_file
from tare.core.process import run
from tare.core.progress import say, step
from tare.core.remedies import through_proxy
from tare.runtimes.programs import (
    apt,
    candidate,
    find_apptainer,
    install_packages,
    note,
    origin,
    relocated_prefix,
    which,
)

VERSION = "1.4.5"
UPSTREAM = f"https://github.com/apptainer/apptainer/releases/download/v{VERSION}/apptainer_{VERSION}_amd64.deb"
UPSTREAM_SHA256 = "70f19af846501acfbc2e42e7cfeee9ee11ddbbfa1c3502d0d99cde34e8e0af05"
UPSTREAM_CONNECT_S = 5.0
NEWEST_SUITE = "unstable"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PATCH_S = 60.0


def install_apptainer() -> None:
    """Try each source in turn, say which one gave it or why none did, and record it."""
    refusals = []
    for source in (from_upstream, from_distribution, from_newest_suite):
        try:
            how = source()
        except (TareError, OSError) as error:
            refusals.append(getattr(error, "reason", None) or reason_of(error))
            continue
        found = find_apptainer()
        if found is None:
            refusals.append(f"{how}: installed, but no apptainer is found")
            continue
        version = run([str(found), "--version"], timeout_s=20).stdout.strip()
        note("apptainer", how=how, origin=origin(found), version=version, tried_before=refusals)
        say(f"{version}: {how}")
        return
    note("apptainer", how=None, tried_before=refusals)
    say("Apptainer could not be had: " + "; ".join(refusals))


def from_upstream() -> str:
    """Upstream's own package, installed only if its hash is the one recorded here.

    Raises:
        UnavailableError: another architecture, no answer, another hash, or apt refuses it.
    """
    if platform.machine() != "x86_64":
        raise UnavailableError(f"no hash is recorded of upstream's package for {platform.machine()}")
    target = cache_dir("runtimes") / UPSTREAM.rpartition("/")[2]
    try:
        with (
            urllib.request.urlopen(UPSTREAM, timeout=UPSTREAM_CONNECT_S) as answer,
            target.open("wb") as file,
            step(f"downloading Apptainer {VERSION} from upstream"),
        ):
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        proxy = "" if isinstance(error, urllib.error.HTTPError) else through_proxy(UPSTREAM)
        raise UnavailableError(f"upstream does not answer ({getattr(error, 'reason', error)}){proxy}") from error
    try:
        if (found := sha256_file(target)) != UPSTREAM_SHA256:
            raise UnavailableError(f"{target.name} has SHA-256 {found}, not {UPSTREAM_SHA256}: not installed")
        if failed := install_packages([str(target)]):
            raise UnavailableError(f"upstream's package: {failed[str(target)]}")
    finally:
        target.unlink(missing_ok=True)
    return f"upstream's package {VERSION}, by hash"


def from_distribution() -> str:
    """The distribution's own package.

    Raises:
        UnavailableError: it has none.
    """
    for name in ("apptainer", "singularity-container"):
        if version := candidate(name):
            if failed := install_packages([name]):
                raise UnavailableError(f"the distribution's package: {failed[name]}")
            return f"the distribution's package {name} {version}"
    raise UnavailableError("this release of the distribution has no package of it")


def debian_archive() -> tuple[str, str]:
    """(address, keyring) of the machine's own Debian archive, from its apt configuration.

    Raises:
        UnavailableError: apt reads from no Debian archive.
    """
    fields = "$(CREATED_BY)|$(ORIGIN)|$(REPO_URI)|$(SIGNED_BY)|$(RELEASE)"
    listing = apt("apt-get", "indextargets", "--format", fields, timeout_s=60).stdout
    for line in listing.splitlines():
        kind, origin, address, keyring, release = [*line.split("|"), *[""] * 5][:5]
        if kind == "Packages" and origin == "Debian" and "security" not in release:
            named = keyring if keyring.startswith("/") else str(KEYRING)
            if not Path(named).exists():
                raise UnavailableError(f"the archive's keyring {named} is missing")
            return address, named
    raise UnavailableError("apt reads from no Debian archive here, so none has a newer suite")


class PrivateApt:
    """apt with a state of its own that knows one suite of one archive; the system's lists stay untouched."""

    def __init__(self, folder: Path, address: str, keyring: str, suite: str) -> None:
        self.folder = folder
        for name in ("state/lists/partial", "cache/archives/partial", "parts"):
            (folder / name).mkdir(parents=True)
        sources = folder / "sources.list"
        sources.write_text(f"deb [signed-by={keyring}] {address} {suite} main\n", encoding="utf-8")
        (folder / "status").touch()
        self._options = [
            part
            for option in (
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
            for part in ("-o", option)
        ]

    def __call__(self, program: str, *arguments: str) -> str:
        """Standard output of apt-get or apt-cache.

        Raises:
            UnavailableError: it failed.
        """
        done = apt(program, *self._options, *arguments)
        if not done.ok:
            raise UnavailableError(done.explain())
        return done.stdout

    def library_packages(self, package: str) -> list[str]:
        """The shared-library packages on which a package depends directly."""
        lines = [line.strip() for line in self("apt-cache", "depends", package).splitlines()]
        names = [line.removeprefix("Depends: ") for line in lines if line.startswith("Depends: lib")]
        return [name for name in names if "<" not in name]


def from_newest_suite() -> str:
    """Apptainer of the newest Debian suite in a prefix of its own in the cache, with its own libc.

    Raises:
        UnavailableError: no Debian archive, no such package there, its place is unfit, or the result does not run.
    """
    if reason := unfit(relocated_prefix()):
        raise UnavailableError(reason)
    address, keyring = debian_archive()
    if not which("patchelf") and (failed := install_packages(["patchelf"])):
        raise UnavailableError(f"patchelf is missing: {failed['patchelf']}")
    prefix = relocated_prefix()
    building = prefix.with_name("apptainer.building")
    shutil.rmtree(building, ignore_errors=True)
    try:
        with step("fetching Apptainer from the newest suite of the distribution's archive"):
            private = PrivateApt(building / "apt", address, keyring, NEWEST_SUITE)
            private("apt-get", "update")
            packages = ["apptainer", *private.library_packages("apptainer")]
            versions = unpack(private, packages, building / "root")
            relocate(building / "root", prefix)
        shutil.rmtree(prefix, ignore_errors=True)
        (building / "root").rename(prefix)
        check_relocated(prefix)
    except BaseException:
        shutil.rmtree(prefix, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return f"relocated from the archive's suite {NEWEST_SUITE} ({', '.join(versions)})"


def unfit(prefix: Path) -> str | None:
    """Why a relocated Apptainer can't lie at a place; None where it can.

    Its mounts are below it, and it looks for them in /proc/self/mountinfo, where a blank is written as \\040.
    """
    if any(character.isspace() for character in str(prefix)):
        return f"{prefix} has a blank in its path, and the relocated Apptainer finds no mount of its own below one"
    return None


def unpack(private: PrivateApt, packages: list[str], root: Path) -> list[str]:
    """Download packages, signatures checked by apt, and unpack them into `root`; returns name=version of each."""
    archives = private.folder / "archives"
    archives.mkdir()
    root.mkdir()
    here = Path.cwd()
    os.chdir(archives)  # apt-get download writes into the working directory
    try:
        private("apt-get", "download", *packages)
    finally:
        os.chdir(here)
    for archive in archives.glob("*.deb"):
        run(["dpkg-deb", "--extract", str(archive), str(root)], timeout_s=PATCH_S, check=True)
    return sorted("=".join(archive.name.split("_")[:2]) for archive in archives.glob("*.deb"))


def relocate(root: Path, prefix: Path) -> None:
    """Make the tree in `root` work once it lies at `prefix`.

    Apptainer takes its prefix from where its programs lie: `apptainer` finds usr/, `starter` finds usr/lib/
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
        interpreter = str(prefix / inside / loader.name)
        argv = [
            "patchelf",
            "--set-interpreter",
            interpreter,
            "--force-rpath",
            "--set-rpath",
            library_path,
            str(program),
        ]
        run(argv, timeout_s=PATCH_S, check=True)
    for base in (root / "usr", root / "usr/lib"):
        shutil.copytree(root / "etc/apptainer", base / "etc/apptainer")
        (base / "var/lib/apptainer/mnt/session").mkdir(parents=True)


def check_relocated(prefix: Path) -> None:
    """Run it once.

    Raises:
        UnavailableError: it does not start.
    """
    run([str(prefix / "usr/bin/apptainer"), "--version"], timeout_s=20, check=True)
