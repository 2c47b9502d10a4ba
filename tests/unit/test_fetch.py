"""Fetching: sources in order, short timeouts, hashes, and a cache that is not believed blindly."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import socket
import time
import urllib.request

import pytest
from data_server import CONTENT, GOOD, dataset, https_source, kept_files

from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import read_json, write_json
from tare.datasets import fetch

pytestmark = pytest.mark.usefixtures("data_cache")

# --- sources


def test_the_first_source_that_answers_is_used_and_recorded(server):
    got = fetch.fetch(dataset(https_source(f"{server.base}/ok/a"), https_source(f"{server.base}/ok/b", "second")))
    assert got.paths["content"].read_bytes() == CONTENT
    assert got.source.name == "first" and got.source.canonical is True
    assert server.hits == ["/ok/a"]


@pytest.mark.parametrize("trouble", ["missing", "short", "stall", "mute", "drop", "moved"])
def test_a_source_that_fails_gives_way_to_the_next(server, data_cache, monkeypatch, trouble):
    monkeypatch.setattr(fetch, "SILENCE_S", 0.3)
    started = time.monotonic()
    got = fetch.fetch(
        dataset(https_source(f"{server.base}/{trouble}/a"), https_source(f"{server.base}/ok/b", "second"))
    )
    assert got.source.name == "second" and got.source.canonical is False
    assert time.monotonic() - started < 120, "it waited for a source that is silent for 600 s"
    assert not list(data_cache.rglob(".partial-*")), "a partial download was left behind"


def test_a_host_that_does_not_accept_a_connection_gives_way_within_the_connect_timeout(server, monkeypatch):
    monkeypatch.setattr(fetch, "SILENCE_S", 0.3)
    with contextlib.closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        clients = [socket.socket() for _ in range(3)]
        for client in clients:  # fill the backlog, so that a further connection is never answered
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(("127.0.0.1", port))
        started = time.monotonic()
        got = fetch.fetch(
            dataset(https_source(f"http://127.0.0.1:{port}/a"), https_source(f"{server.base}/ok/b", "second"))
        )
        assert got.source.name == "second"
        assert time.monotonic() - started < 60, "the kernel itself gives up after two minutes"
        for client in clients:
            client.close()


def test_no_answer_at_all_names_every_reason(server, data_cache):
    with pytest.raises(UnavailableError) as caught:
        fetch.fetch(
            dataset(https_source(f"{server.base}/missing/a"), https_source("http://127.0.0.1:9/b", "second"))
        )
    assert "404" in str(caught.value) and "refused" in str(caught.value)
    assert kept_files(data_cache) == []


def test_a_wrong_hash_stops_with_both_hashes_and_the_name_and_keeps_nothing(server, data_cache):
    expected = "0" * 64
    with pytest.raises(IntegrityError) as caught:
        fetch.fetch(
            dataset(
                https_source(f"{server.base}/ok/a"),
                https_source(f"{server.base}/ok/b", "second"),
                sha256=expected,
            )
        )
    message = str(caught.value)
    assert expected in message and GOOD in message and "content" in message
    assert kept_files(data_cache) == []
    assert server.hits == ["/ok/a"], "another source must not hide a changed file"


def test_a_wrong_md5_of_what_travels_is_refused(server, data_cache):
    server.bodies["x.gz"] = gzip.compress(CONTENT)
    source = https_source(f"{server.base}/ok/x.gz", unpack="gzip", md5="f" * 32)
    with pytest.raises(IntegrityError, match=r"x\.gz.*MD5"):
        fetch.fetch(dataset(source))
    assert kept_files(data_cache) == []


def test_gzip_is_unpacked_and_a_broken_one_refused(server, data_cache):
    server.bodies["x.gz"] = gzip.compress(CONTENT)
    server.bodies["broken.gz"] = gzip.compress(CONTENT)[:-20]
    with pytest.raises(IntegrityError, match="does not unpack"):
        fetch.fetch(dataset(https_source(f"{server.base}/ok/broken.gz", unpack="gzip")))
    assert kept_files(data_cache) == []
    got = fetch.fetch(dataset(https_source(f"{server.base}/ok/x.gz", unpack="gzip")))
    assert got.paths["content"].read_bytes() == CONTENT


def test_a_page_of_html_is_never_taken_for_a_file_whose_hash_nobody_knows(server, data_cache):
    made = dataset(https_source(f"{server.base}/moved/a"), sha256=None)
    with pytest.raises(UnavailableError, match=r"page/sign-in\.html is a page of HTML, not a file"):
        fetch.fetch(made)
    assert kept_files(data_cache) == []
    server.mode = "good"
    assert fetch.fetch(made).hashes["content"] == GOOD


# --- cache


def test_cached_content_is_hashed_again_before_it_is_trusted(server, capsys):
    made = dataset(https_source(f"{server.base}/ok/a"))
    first = fetch.fetch(made)
    assert fetch.fetch(made).paths == first.paths
    assert server.hits == ["/ok/a"], "cached content was downloaded again"
    path = first.paths["content"]
    stat = path.stat()
    path.write_bytes(b"X" + CONTENT[1:])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert fetch.fetch(made).paths["content"].read_bytes() == CONTENT
    assert len(server.hits) == 2
    assert "is damaged (content is not what was built): made again" in capsys.readouterr().out


def test_trust_on_first_use_refuses_a_later_change(server, data_cache):
    made = dataset(https_source(f"{server.base}/ok/a"), sha256=None)
    first = fetch.fetch(made)
    assert first.hashes["content"] == GOOD
    shutil.rmtree(data_cache / "data/fetched")
    assert fetch.fetch(made).hashes["content"] == GOOD
    shutil.rmtree(data_cache / "data/fetched")
    server.bodies["a"] = CONTENT + b"changed"
    with pytest.raises(IntegrityError, match=GOOD):
        fetch.fetch(made)
    assert not list((data_cache / "data/fetched").glob("*.json"))


def test_a_note_of_an_older_version_in_the_cache_is_read(server, data_cache):
    made = dataset(https_source(f"{server.base}/ok/a"), sha256=None)
    fetch.fetch(made)
    shutil.rmtree(data_cache / "data/fetched")
    note = data_cache / "data/first-use/content.json"
    content = read_json(note)
    assert content.pop("schema") == 1
    write_json(note, content)
    assert fetch.fetch(made).hashes["content"] == GOOD
    shutil.rmtree(data_cache / "data/fetched")
    note.write_text('{"sha256": "0"}')
    with pytest.raises(IntegrityError, match="delete it to trust the next download"):
        fetch.fetch(made)


def test_a_cache_that_can_not_be_made_is_one_clear_line(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="point TARE_CACHE at"):
        fetch.fetch(dataset(https_source(f"{server.base}/ok/a")))


@pytest.fixture
def proxied(monkeypatch):
    """Sets the proxy of http; no address goes past it."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # it knows the proxies of the first address that it opened
    return lambda address: monkeypatch.setenv("http_proxy", address)


def test_a_source_is_asked_through_the_proxy_of_the_environment(server, proxied):
    proxied(server.base)
    got = fetch.fetch(dataset(https_source("http://elsewhere.invalid/ok/a")))
    assert got.paths["content"].read_bytes() == CONTENT
    assert server.hits == ["http://elsewhere.invalid/ok/a"]


def test_a_proxy_that_does_not_answer_is_named_without_its_password(proxied):
    proxied("http://me:secret@127.0.0.1:9")
    with pytest.raises(UnavailableError, match=r"elsewhere\.invalid: .*refused") as caught:
        fetch.fetch(dataset(https_source("http://elsewhere.invalid/a")))
    assert "through the proxy http://127.0.0.1:9: unset http_proxy, or fix it" in str(caught.value)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_where_an_address_goes_past_the_proxy_it_is_not_named(server, proxied, monkeypatch):
    proxied("http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    fetch.fetch(dataset(https_source(f"{server.base}/ok/a")))
    with pytest.raises(UnavailableError, match="refused") as caught:
        fetch.fetch(dataset(https_source("http://127.0.0.1:9/b"), name="other"))
    assert "proxy" not in str(caught.value)


def test_a_long_download_shows_how_far_it_is(server, monkeypatch, capsys):
    monkeypatch.setattr(fetch, "REPORT_EVERY_S", 0.0)
    server.bodies["a"] = CONTENT * 100
    with pytest.raises(IntegrityError):
        fetch.fetch(dataset(https_source(f"{server.base}/ok/a")))
    assert "of 3.3 MB after" in capsys.readouterr().out


def test_a_crawling_server_gives_way(server, monkeypatch):
    monkeypatch.setattr(fetch, "PATIENCE_S", 0.0)
    monkeypatch.setattr(fetch, "SLOWEST_BYTES_S", 1e12)
    with pytest.raises(UnavailableError, match="crawls"):
        fetch.fetch(dataset(https_source(f"{server.base}/ok/a")))
