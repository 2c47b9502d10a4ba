"""One launch to its end, or several side by side: what is kept, what is cleaned up, how long each may take."""

import contextlib
from types import SimpleNamespace

import pytest
from asked import CONDITIONS, conditions, spec

from tare.launch import run
from tare.launch.run import Order, launch, launch_side_by_side
from tare.model.records.launches import LaunchRecord

SPEC = spec(mode="start")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Launches of nobody: `done` is what was asked of them, in order; `status` is how each ends, by its site."""
    given = SimpleNamespace(done=[], status={}, folder=tmp_path / "own", pads=[], now_s=100.0, takes_s=3.0)
    given.folder.mkdir()

    class Talk:
        def __init__(self, site):
            self.site = site

        def go(self):
            given.done.append(f"go {self.site}")

        def end(self, *, timeout_s):
            given.done.append((f"end {self.site}", timeout_s))
            given.now_s += given.takes_s
            if given.status.get(self.site) == "interrupted":
                raise KeyboardInterrupt
            return self.site

        def kill(self):
            given.done.append(f"kill {self.site}")

    class One(SimpleNamespace):
        def start(self):
            given.done.append(f"start {self.planned}")
            return Talk(self.planned)

        def run(self, timeout_s):
            given.done.append(("run", timeout_s))
            status = given.status.get(self.planned, "ok")
            if status == "interrupted":
                raise KeyboardInterrupt
            return SimpleNamespace(ok=status == "ok", site=self.planned)

    @contextlib.contextmanager
    def ready(site, program, asked, *, pad_bytes, **more):
        given.pads.append(pad_bytes)
        yield One(planned=site, environment=None, folder=given.folder)

    def record_of(finished, prepared, asked):
        status = given.status.get(prepared.planned, "ok")
        return LaunchRecord(status=status, reason=None if status == "ok" else "it died")

    monkeypatch.setattr(run, "ready", ready)
    monkeypatch.setattr(run, "record_of", record_of)
    monkeypatch.setattr(run, "clean_up", lambda environment, planned: given.done.append(f"clean {planned}"))
    monkeypatch.setattr(run, "drop_page_cache", lambda: given.done.append("drop"))
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: given.now_s))
    return given


@pytest.mark.parametrize(("cache", "done"), [("warm", []), ("cold", ["drop"])])
def test_only_a_launch_from_a_cold_disk_drops_what_is_in_memory(machine, cache, done):
    found = launch("a", SPEC, conditions(page_cache=cache, launch_timeout_s=7.0))
    assert found.ok and machine.done == [*done, ("run", 7.0)] and machine.pads == [0]


@pytest.mark.parametrize(("status", "cleaned"), [("ok", []), ("failed", ["clean a"]), ("interrupted", ["clean a"])])
def test_a_launch_that_did_not_end_well_is_cleaned_up(machine, status, cleaned):
    machine.status["a"] = status
    with pytest.raises(KeyboardInterrupt) if status == "interrupted" else contextlib.nullcontext():
        assert launch("a", SPEC, CONDITIONS).status == status
    assert machine.done[1:] == cleaned


@pytest.mark.parametrize(
    ("status", "always", "written", "kept"),
    [
        ("ok", None, True, True), ("ok", None, False, None), ("ok", True, False, False),
        ("failed", None, True, False), ("failed", True, True, True), ("failed", True, False, False),
    ],
)  # fmt: skip
def test_what_is_kept_of_a_launch(machine, tmp_path, status, always, written, kept):
    machine.status["a"] = status
    target = tmp_path / "deep/er/kept.bin"
    more = {} if always is None else {"keep_always": always}
    for _ in range(2):  # also where its folder is there already
        if written:
            (machine.folder / "kept.bin").write_text("it")
        with pytest.raises(FileNotFoundError) if kept is None else contextlib.nullcontext():
            launch("a", SPEC, CONDITIONS, keep={"it": target}, **more)
    assert target.exists() == bool(kept)


def orders(*names, limit_s=5.0):
    return {name: Order(site=name, program=SPEC, conditions=conditions(launch_timeout_s=limit_s)) for name in names}


def test_launches_side_by_side_are_all_started_before_any_goes_and_share_their_time(machine):
    found = launch_side_by_side(orders("a", "b", "c"))
    assert list(found) == ["a", "b", "c"] and all(record.ok for record in found.values())
    assert machine.done == [
        "start a", "start b", "start c", "go a", "go b", "go c", ("end a", 5.0), ("end b", 2.0), ("end c", 0.0),
        "kill a", "kill b", "kill c",
    ]  # fmt: skip
    assert machine.pads == [0] * 3


def test_of_launches_side_by_side_those_that_did_not_end_well_are_cleaned_up(machine):
    machine.status = {"b": "failed"}
    launch_side_by_side(orders("a", "b", "c"))
    assert [each for each in machine.done if "clean" in each] == ["clean b"]
    machine.status, machine.done[:] = {"b": "interrupted"}, []
    with pytest.raises(KeyboardInterrupt):
        launch_side_by_side(orders("a", "b", "c"))
    assert machine.done[-5:] == ["kill a", "kill b", "clean b", "kill c", "clean c"]
