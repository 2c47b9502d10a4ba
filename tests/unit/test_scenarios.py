"""What runs beside a unit: how a scenario begins, lasts and ends, and what it says where it does not."""

import contextlib
import os
import time
from types import SimpleNamespace

import pytest
from asked import CONDITIONS, spec

from tare.core.errors import UnavailableError, UserError
from tare.launch import scenarios
from tare.launch.networks import Wires
from tare.launch.place import Site
from tare.launch.scenarios import Span, barred, co_runner, distributed, launcher, scenario, surrounded
from tare.model.conditions import Group
from tare.model.environment import Environment

AROUND = scenarios.around([0, 2], CONDITIONS)
GROUP = Group(
    **{"workers": 2, "exchange": "parameter-server", "network": "switch"},
    **{"rate_mbit_per_s": 1000.0, "delay_ms": 0.5},
)


def test_a_scenario_is_told_of_its_unit():
    assert (AROUND.cpus, AROUND.conditions, set(AROUND.environment)) == ((0, 2), CONDITIONS, {"PATH"})


@pytest.mark.parametrize(("began", "reason", "lived"), [(5, None, True), (5, "x", False), (None, None, False)])
def test_a_scenario_lived_where_it_began_and_nothing_is_wrong(began, reason, lived):
    told = Span("it", began_ns=began, ended_ns=7, reason=reason).to_json()
    assert told == {"name": "it", "began_ns": began, "ended_ns": 7, "lived": lived, "reason": reason}


def test_scenarios_are_the_modules_of_their_folder():
    assert scenario("distributed") is distributed.surround is scenario("distributed")
    assert launcher("distributed") is distributed.launched
    assert launcher("single") is None and launcher("nothing") is None
    with pytest.raises(UserError):
        scenario("nothing")


def test_what_has_no_reason_is_not_barred(monkeypatch):
    sites = {name: Site(environment=name) for name in ("a", "b")}
    says = {("a", "switch"): None, ("b", "switch"): "it can't"}
    monkeypatch.setattr(distributed, "barred", lambda environment, network: says[environment, network])
    assert barred("distributed", sites, "switch") == {"b": "it can't"}
    assert barred("single", sites, "switch") == {}


@pytest.mark.parametrize("wrong", [None, "it died"])
def test_a_scenario_that_begins_has_both_instants(monkeypatch, wrong):
    seen = []

    @contextlib.contextmanager
    def own(around):
        seen.append(around)
        yield lambda: wrong
        seen.append("over")

    monkeypatch.setitem(scenarios.SCENARIOS, "own", own)
    with surrounded("own", AROUND) as span:
        assert span.began_ns <= time.monotonic_ns() and span.ended_ns is None and seen == [AROUND]
    assert span.began_ns < span.ended_ns and seen == [AROUND, "over"]
    assert (span.reason is None) == (wrong is None) and (wrong is None or wrong in span.reason)


@pytest.mark.parametrize("error", [UnavailableError("it is not there"), OSError("it is not there")])
def test_a_scenario_that_cannot_begin_is_a_span_with_its_reason(monkeypatch, error):
    @contextlib.contextmanager
    def own(around):
        raise error
        yield

    monkeypatch.setitem(scenarios.SCENARIOS, "own", own)
    with surrounded("own", AROUND) as span:
        pass
    assert (span.began_ns, span.ended_ns) == (None, None) and "it is not there" in span.reason
    error = UserError("nobody asks so")
    monkeypatch.setitem(scenarios.SCENARIOS, "own", lambda around: (_ for _ in ()).throw(error))
    with pytest.raises(UserError), surrounded("own", AROUND):
        pass


def gone(pid):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_a_program_beside_a_unit_is_ended_with_all_that_it_started(tmp_path):
    script = f"sleep 60 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/own; wait"
    with co_runner(["/bin/sh", "-c", script], AROUND) as problem:
        while not (tmp_path / "own").exists() or not (tmp_path / "own").read_text():
            time.sleep(0.01)
        assert problem() is None
        pids = [int((tmp_path / name).read_text()) for name in ("own", "child")]
    assert all(gone(pid) for pid in pids)


def test_a_program_that_ends_is_a_problem(monkeypatch):
    monkeypatch.setattr(scenarios, "SETTLE_S", 3.0)
    with pytest.raises(UnavailableError, match="status 3"), co_runner(["/bin/sh", "-c", "exit 3"], AROUND):
        pass
    monkeypatch.setattr(scenarios, "SETTLE_S", 0.0)
    with co_runner(["/bin/sh", "-c", "sleep 0.5; exit 4"], AROUND) as problem:
        deadline = time.monotonic() + 10
        while problem() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "status 4" in problem()


# --- instances that train together


@pytest.mark.parametrize(("network", "asked"), [("switch", [1]), ("".join(["ho", "st"]), [])])
def test_a_switch_is_tried_where_a_group_meets_on_one(monkeypatch, network, asked):
    tried = []
    monkeypatch.setattr(
        distributed,
        "switched",
        lambda environment, size, wires: contextlib.nullcontext(tried.append((environment, size, wires))),
    )
    around = scenarios.around([0], CONDITIONS.replace(group=GROUP.replace(network=network)))
    with distributed.surround(around) as problem:
        assert problem() is None
    assert [size for _, size, _ in tried] == asked
    assert all(environment == around.environment and isinstance(wires, Wires) for environment, _, wires in tried)


def test_a_whole_run_of_a_group_trains_on_all_samples_in_each_instance(monkeypatch):
    class Own(Environment):
        def network_of(self, kind):
            return "overlay"

        probe = prepare = command = None

    monkeypatch.setattr(distributed, "launch_group", lambda *given, **named: (given, named))
    site, conditions = Site(environment=Own()), CONDITIONS.replace(group=GROUP)
    given, named = distributed.launched(site, spec(batch=4), conditions, 7)
    wanted = spec(batch=4, exchange="parameter-server", servers=1, samples_each=True)
    assert given == (site, wanted, conditions)
    assert named == {
        **{"size": 3, "pad_bytes": 7},
        "network": Wires(rate_bit_per_s=1e9, delay_ms=0.5, overlay=True),
    }
    for none in (None, CONDITIONS):
        with pytest.raises(AssertionError):
            distributed.group_of(none)
    guest = SimpleNamespace(network_of=lambda kind: kind, bridges_networks=True, title="Guest")
    assert distributed.barred(guest, "switch") is None and distributed.barred(guest, "overlay") is not None
