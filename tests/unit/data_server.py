"""What the data tests share: a cache of their own, and a web server that behaves as a request's path says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from injecting import serving

from tare.datasets import catalog
from tare.model.data_sets import DataSet, HttpsSource, KnownFile, Part

CONTENT = b"the same bytes from every source\n" * 1000
GOOD = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def data_cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("TARE_CACHE", str(folder))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(catalog, "PAUSES_S", ())  # nobody is asked again
    return folder


@pytest.fixture
def server():
    with serving(CONTENT) as running:
        yield running


def https_source(url: str, name: str = "first", gives: str = "content", **part) -> HttpsSource:
    parts = (Part(**{"gives": gives, "url": url, "unpack": "none", **part}),)
    return HttpsSource(name=name, kind="https", canonical=name == "first", parts=parts)


def dataset(*sources, sha256: str | None = GOOD, name: str = "made", **more) -> DataSet:
    about = {"title": "t", "licence": "l", "citation": "c", "recipe": "mnist-raw", "rows": 1}
    (gives,) = sources[0].gives
    return DataSet(name=name, files={gives: KnownFile(sha256=sha256)}, sources=sources, **(about | more))


def kept_files(cache: Path) -> list[Path]:
    """What lies in a cache but locks, and hashes of programs, which the first test of a process leaves."""
    found = (path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")
    return [path for path in found if path.relative_to(cache).parts[0] != "closure"]
