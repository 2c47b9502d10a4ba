"""Sliced rounds of real launches find what was planted, bill what a job waits for, and refuse what they can't see.

The tolerances are those of a machine that does much else; benchmarks/planted_slices.py says how exact it is.
"""

import statistics
import subprocess
import time

import pytest
import truths
from matrix import REQUIRED

from tare.launch.place import site_of
from tare.launch.slicing import freezing
from tare.model.registry import environment

pytestmark = [pytest.mark.runtime, pytest.mark.quiet]
BODY_S = 0.6
PERCENT, WAITS_PERCENT = 10.0, 15.0


@pytest.fixture(scope="module", params=sorted(REQUIRED))
def bench(request, forms):
    name = request.param
    adapter = environment(name)
    with adapter.session():
        yield truths.measured(site_of(name, adapter, forms(name), None), BODY_S)


def test_planted_effects_are_found(bench):
    planted = {name: truths.PLANTED[name] for name in ("0%", "+40%")}
    for name, found in truths.effects(bench, 3, planted).items():
        assert len(found.values) == 3, (name, found.voided)
        assert abs(statistics.median(found.values)) < PERCENT, (name, found.values)
        assert abs(statistics.median(found.cpu)) < PERCENT, (name, found.cpu)


def test_a_wait_costs_what_it_takes(bench):
    found = truths.kinds(bench, 3, {"sleep": truths.KINDS["sleep"]})["sleep"]
    assert found.refused and "was idle in" in found.refused
    assert len(found.values) == 3, found.voided
    assert abs(statistics.median(found.values)) < WAITS_PERCENT, found.values


@pytest.mark.parametrize("kind", [name for name, truth in truths.KINDS.items() if truth.refused])
def test_what_waits_beside_its_work_is_refused(bench, kind):
    found = truths.kinds(bench, 1, {kind: truths.KINDS[kind]})[kind]
    assert found.refused, found


@pytest.mark.parametrize("kind", ["threads", "page faults"])
def test_what_only_works_is_not_refused(bench, kind):
    whole = bench.run({kind: truths.KINDS[kind]}, kind, None)
    assert whole.voided is None
    assert truths.refusal_of(whole.records[kind], kind) is None


def test_what_is_billed_is_the_processor_time_and_no_less(bench):
    names = ("plain", "other")
    found = bench.run(dict.fromkeys(names, truths.PLAIN), "slices", truths.Pace.equal(names))
    assert found.voided is None
    for record in found.records.values():
        assert record.slices.is_sliced and len(record.slices.began_us) > 5
        assert record.slices.body_s >= 0.999 * truths.cpu_s(record)
        assert record.slices.cpu_us == tuple(sorted(record.slices.cpu_us))


def test_a_stop_soon_after_a_start_is_seen_at_once():
    """The kernel tells of a group's changes at most every 10 ms, which made each short slice one of 15 ms."""
    seen_s = []
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        holder = freezing.hold([busy.pid], f"soon-{busy.pid}")
        try:
            for _ in range(21):
                holder.resume()
                time.sleep(0.003)
                began = time.monotonic()
                holder.stop()
                seen_s.append(time.monotonic() - began)
        finally:
            busy.kill()
            holder.kill()
            holder.resume()
    holder.close()
    assert statistics.median(seen_s) < 0.003, seen_s
