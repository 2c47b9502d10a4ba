"""Fixtures that several unit tests share.

The synthetic study is built once for all of them and only read: a test that edits builds a copy of its own.
"""

import struct
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis
import pytest
import quick
from data_server import data_cache, server

from tare.core import errors

__all__ = ["data_cache", "server"]

hypothesis.settings.register_profile("busy", deadline=None)  # an example takes long where something else is busy
hypothesis.settings.load_profile("busy")


@pytest.fixture(scope="session", autouse=True)
def apt_lists(tmp_path_factory):
    """apt has read its archives' lists, so that remedies read the same on every machine."""
    folder = tmp_path_factory.mktemp("lists")
    (folder / "archive_Packages").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(errors, "APT_LISTS", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_portable_python():
    """A machine that lacks a CPython asks nobody for a portable one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_PYTHON_DOWNLOADS", "never")
        yield


@pytest.fixture
def launch_cache(monkeypatch):
    """A cache of its own, with a path short enough for a launch's folder."""
    with tempfile.TemporaryDirectory(prefix="tare-") as folder:
        monkeypatch.setenv("TARE_CACHE", folder)
        yield Path(folder)


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A folder of images of MNIST's form whose row of bright pixels is their label."""
    folder = tmp_path_factory.mktemp("digits")
    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True)
    labels = [index * 7 % 10 for index in range(512)]
    pixels = b"".join(bytes(255 * (place // 56 == label) for place in range(784)) for label in labels)
    (raw / "train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, 512, 28, 28) + pixels)
    (raw / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, 512) + bytes(labels))
    for name in ("images-idx3", "labels-idx1"):  # torchvision looks for them
        (raw / f"t10k-{name}-ubyte").touch()
    return folder


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="leave out what tests/unit/quick.py names")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("quick", default=False):
        return
    begins = {item: quick.left_out(item.nodeid.rpartition("tests/unit/")[2]) for item in items}
    config.left_out = Counter(begin for begin in begins.values() if begin)
    unknown = sorted(set(quick.LEFT_OUT) - set(config.left_out))
    if unknown:
        raise pytest.UsageError(f"tests/unit/quick.py names tests that there are not: {', '.join(unknown)}")
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(config.left_out)
    config.hook.pytest_deselected(items=[item for item in items if begins[item]])
    items[:] = [item for item in items if not begins[item]]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """A process that ran a part has ended: all of them leave out the same."""
    if "left_out" in getattr(node, "workeroutput", {}):
        node.config.left_out = Counter(node.workeroutput["left_out"])


def pytest_terminal_summary(terminalreporter, config):
    for begin, count in getattr(config, "left_out", {}).items():
        terminalreporter.write_line(f"left out: {begin}* ({count}): {quick.LEFT_OUT[begin]}")
    if hasattr(config, "left_out"):
        count = sum(config.left_out.values())
        terminalreporter.write_line(
            f"left out: {count} unit tests and all that are not: `make test ALL=1` runs them"
        )


def files_of(folder):
    """Name, size and time of change of every file."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {(path, path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Results of the default synthetic study, with stand-ins for its figures."""
    import builders  # a test file that asks for no study does without pandas and seaborn
    from pages import draw

    folder = builders.build_results(tmp_path_factory.mktemp("study") / "results")
    draw(folder)
    before = files_of(folder)
    yield folder
    assert files_of(folder) == before, f"changed by a test, and shared: {files_of(folder) ^ before}"


@pytest.fixture(scope="session")
def evidence(results):
    """What the report reads of these results."""
    import builders

    from tare.report.evidence import gather

    return gather(results, results, builders.STUDY)


@pytest.fixture(scope="session")
def page(results, tmp_path_factory):
    """Its page, as HTML."""
    import builders
    from pages import whole

    from tare.report import build

    return whole(build(results, results, builders.STUDY, tmp_path_factory.mktemp("page") / "index.html"))
