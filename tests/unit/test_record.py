"""The record of a launch, from how its client ended and what its program left: values by hand, without a launch."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import campaign_builders
import pytest
from asked import CONDITIONS
from processes import finished
from test_adapters import LAUNCH

from tare.launch import record
from tare.launch.conditions import CONDITIONS_INSIDE
from tare.launch.program.base import TAIL_CHARACTERS, Result
from tare.launch.transport import Carried
from tare.model.records.launches import COMMAND, WORKER, Clock, Inside
from tare.model.schema import parse
from tare.model.virtual_machine import VirtualMachine

GUEST = VirtualMachine(
    accelerator="tcg", emulated=True, cpu_model="max", vcpus=1, cpus=(0,), memory_bytes=1, kernel="6.1"
)
ENDED = replace(finished(), ended_ns=100)
FULL = replace(finished(returncode=1, stderr="write: No space left on device"), ended_ns=100)


def inside(*instants, processors=None, **facts):
    """What a worker wrote, with marks at these instants."""
    marks = [{"name": f"m{at}", "at_ns": at, "user_s": 0.0, "system_s": 0.0} for at in instants]
    told = campaign_builders.inside("host", "train", marks, {"processors": processors} if processors else {})
    return parse(Inside, {**told, "facts": {**told["facts"], **facts}}, "a record of a test")


def recorded(folder, result, *, ended=ENDED, kind=WORKER, vm=None, unseen=(), **carried):
    """The record of a launch with this result."""
    prepared = SimpleNamespace(
        planned=replace(LAUNCH, cpus=(0, 1), nofile=4096, interfaces=("lo",)),
        carried=Carried(**carried),
        program=SimpleNamespace(kind=kind, result=lambda *_: result),
        environment=SimpleNamespace(virtual_machine=lambda planned: vm, unseen_here=lambda: unseen),
        folder=folder,
        inside=Path("/w"),
        code_sha256="0",
        pad_bytes=3,
    )
    return record.record_of(ended, prepared, CONDITIONS)


def test_a_launch_as_asked_is_told_as_it_went(tmp_path):
    found = recorded(tmp_path, Result(status="ok", inside=inside(10), metrics={"rate": 2.0}), put_s=0.5)
    assert (found.status, found.reason, found.deviations, found.unseen, found.vm) == ("ok", None, (), (), None)
    assert (found.spawn_ns, found.end_ns, found.pad_bytes, found.launch) == (0, 100, 3, "tare-7")
    assert (found.program, found.put_s, found.metrics) == (WORKER, 0.5, {"rate": 2.0})


def test_a_channels_problem_is_the_launchs_with_the_end_of_its_errors(tmp_path):
    ended = replace(ENDED, stderr="x" * TAIL_CHARACTERS + "end")
    found = recorded(tmp_path, Result(status="ok", inside=inside(10)), ended=ended, problem="its channel: cut")
    assert (found.status, found.reason) == ("failed", "its channel: cut")
    assert len(found.stderr) == TAIL_CHARACTERS and found.stderr.endswith("end")


@pytest.mark.parametrize(
    ("xla", "ngraph", "told"), [({"a": 1}, {"b": 2}, {"a": 1}), (None, {"b": 2}, {"b": 2}), (None, None, None)]
)
def test_what_a_compiler_said_of_its_graphs_is_kept(tmp_path, monkeypatch, xla, ngraph, told):
    monkeypatch.setattr(record, "xla_clusters", lambda text: xla)
    monkeypatch.setattr(record, "ngraph_clusters", lambda text: ngraph)
    assert recorded(tmp_path, Result(status="ok", inside=inside(10))).compiled == told


def test_of_a_command_nothing_inside_is_seen(tmp_path):
    found = recorded(tmp_path, Result(status="ok"), kind=COMMAND)
    assert (found.status, found.program, found.unseen) == ("ok", COMMAND, CONDITIONS_INSIDE)


@pytest.mark.parametrize(("clock", "status"), [(None, "failed"), (Clock(offset_ns=20, error_ns=5), "ok")])
def test_a_launch_on_another_kernel_needs_a_clock_that_was_compared(tmp_path, monkeypatch, clock, status):
    monkeypatch.setattr(record, "on_another_kernel", lambda facts: True)
    found = recorded(
        tmp_path, Result(status="ok", inside=inside(10, affinity=[7])), unseen=("user", "affinity"), clock=clock
    )
    assert (found.status, found.unseen) == (status, ("user", "affinity", "namespaces"))
    assert found.deviations == ()
    broken = recorded(tmp_path, Result(status="failed", reason="it died", inside=inside(10)))
    assert broken.reason == "it died", "only what ended well is refused"


@pytest.mark.parametrize(
    ("inner", "status", "begins"),
    [
        ({}, "ok", []),
        ({"affinity": [7]}, "ok", ["affinity"]),
        ({"processors": 1.5}, "ok", []),
        ({"processors": 1.6}, "failed", ["threads"]),
        ({"torch": {"version": "2", "threads": 7}}, "failed", ["threads"]),
    ],
)
def test_a_launch_with_other_threads_is_refused_and_other_deviations_are_told(tmp_path, inner, status, begins):
    found = recorded(tmp_path, Result(status="ok", inside=inside(10, **inner)))
    assert found.status == status and [line.split()[0] for line in found.deviations] == begins
    assert (found.reason is None) == (status == "ok")
    failed = recorded(tmp_path, Result(status="failed", reason="it died", inside=inside(10, **inner)))
    assert (failed.reason, failed.deviations) == ("it died", ())


@pytest.mark.parametrize(("instants", "status"), [((10, 20), "ok"), ((20, 10), "failed"), ((101,), "failed")])
def test_a_launch_whose_clock_stepped_back_is_refused(tmp_path, instants, status):
    assert recorded(tmp_path, Result(status="ok", inside=inside(*instants))).status == status


def test_of_a_guest_that_left_nothing_the_console_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "console_reason", lambda problem, console: f"{problem} / {console}")
    ended = replace(ENDED, returncode=1, stderr="panic")
    found = recorded(tmp_path, Result(status="failed", reason="no word"), ended=ended, vm=GUEST)
    assert found.reason == "no word / panic" and found.vm.kernel == "6.1"
    assert recorded(tmp_path, Result(status="failed"), ended=ended, vm=GUEST).reason == f"{ended.explain()} / panic"
    for status, told in (("failed", inside(10)), ("timeout", None)):
        found = recorded(tmp_path, Result(status=status, reason="late", inside=told), ended=ended, vm=GUEST)
        assert (found.status, found.reason) == (status, "late")


@pytest.mark.parametrize(
    ("status", "reason", "ended", "vm", "told"),
    [
        ("failed", "it died", FULL, None, "{full}; its own files are in {folder} (it died)"),
        ("failed", FULL.explain(), FULL, None, "{full}; its own files are in {folder}"),
        ("timeout", "late", FULL, None, "late"),
        ("failed", "it died", FULL, GUEST, "it died"),
        ("failed", "it died", replace(FULL, stderr="no"), None, "it died"),
    ],
)
def test_a_launch_that_found_a_disk_full_says_where_its_files_lie(tmp_path, status, reason, ended, vm, told):
    inner = inside(10) if vm else None
    found = recorded(tmp_path, Result(status=status, reason=reason, inside=inner), ended=ended, vm=vm)
    assert found.reason == told.format(full=FULL.explain(), folder=tmp_path)


def test_phases_of_a_guest_are_told_as_far_as_it_came():
    begun = replace(ENDED, stderr="tare-guest: init 1.254\n")
    found = record.with_phases(GUEST, begun, Carried(clock=Clock()))
    assert (found.firmware_s, found.kernel_s, found.mount_s) == (None, 1.254, None), "the clock is ours"
    went = replace(ENDED, stderr="tare-guest: init 1.254\ntare-guest: program 3.115\n")
    assert record.with_phases(GUEST, went, Carried()).mount_s == 1.86
    odd = replace(ENDED, stderr="tare-guest: program 3.115\n")
    assert record.with_phases(GUEST, odd, Carried()).mount_s is None


def test_of_a_console_the_last_line_that_tells_is_cut_to_300_characters():
    assert record.console_reason("cut", "error: first\nerror: second\n").endswith(": error: second")
    line = "error " + "x" * 400
    assert record.console_reason("cut", line).endswith(line[:300]) and line[:301] not in record.console_reason(
        "", line
    )
    known = f"it said {line[:300]}"
    assert record.console_reason(known, line) == known


@pytest.mark.parametrize(
    ("instants", "end", "problems"),
    [
        ((90,), 200, 0), ((89,), 200, 1), ((150, 150), 200, 0), ((150, 149), 200, 1), ((150,), 140, 0),
        ((150,), 139, 1),
    ],
)  # fmt: skip
def test_a_clock_steps_back_by_more_than_the_error_of_its_offset(instants, end, problems):
    """The launcher calls at 100, by its own clock; the marks are those of one that is 1000 behind, to 10."""
    ended = replace(ENDED, started_ns=100, ended_ns=end)
    clock = Clock(shared=False, offset_ns=1000, error_ns=10)
    found = record.clock_problems(ended, inside(*(at - 1000 for at in instants)), clock)
    assert len(found) == problems
