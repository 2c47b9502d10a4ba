"""What is known to be in the page cache: no launch is discarded to bring it there again."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import asked
import pytest
from fakes import Fake, site

from tare.experiments import designs
from tare.experiments.designs import identity
from tare.launch import pages, warmth
from tare.model.journals.units import IN_MEMORY
from tare.model.records.campaigns import Plan, Sampling
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_roles
from tare.runtimes import daemon

NAMES = (HOST, CONTROL, "docker")
COUNTS = "pgsteal_kswapd 5\npgsteal_direct 2\ndrop_pagecache 1\ndrop_slab 0\npgpgin 9\n"


@pytest.fixture
def vmstat(tmp_path, monkeypatch):
    """The kernel's counts; this machine's boot is its own."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "vmstat"
    path.write_text(COUNTS)
    monkeypatch.setattr(warmth, "VMSTAT", path)
    return path


def own_files(folder, name):
    return replace(site(Fake(folder)), reference=f"/images/{name}")


def spec(workload="mnist_cnn", mode="train"):
    return asked.spec(mode=mode, workload=workload, batch=64)


def shared(*workloads, mode="causes"):
    return asked.spec(mode=mode, jobs=[{"workload": name} for name in workloads])


def test_what_trained_at_a_site_is_in_memory_there(tmp_path, vmstat):
    here = own_files(tmp_path, "a")
    assert not warmth.in_memory(here, spec())
    warmth.note(here, spec(mode="start"))
    assert not warmth.in_memory(here, spec()), "a start trains nothing"
    warmth.note(here, shared("mnist_cnn"))
    assert warmth.in_memory(here, spec()) and not warmth.in_memory(here, spec("sentiment_rnn"))
    warmth.note(here, spec("sentiment_rnn"))
    assert warmth.in_memory(here, shared("mnist_cnn", "sentiment_rnn")) and warmth.in_memory(here, spec())
    assert not warmth.in_memory(own_files(tmp_path, "b"), spec()), "each has files of its own"


def test_a_daemon_that_may_have_ended_is_warmed_again(tmp_path, vmstat, monkeypatch):
    class Served(Fake):
        has_daemon = True

    here = replace(own_files(tmp_path, "a"), environment=Served(tmp_path))
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(warmth, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    warmth.note(here, spec())
    clock.now_s += warmth.SERVED_S
    assert warmth.in_memory(here, spec())
    clock.now_s += 1
    assert not warmth.in_memory(here, spec())
    assert warmth.SERVED_S < daemon.LINGER_S


@pytest.mark.parametrize("now", ["pgsteal_kswapd 6\n", "drop_pagecache 2\n", "pgsteal_direct many\n"])
def test_pages_that_the_kernel_took_back_are_forgotten(tmp_path, vmstat, now):
    here = own_files(tmp_path, "a")
    warmth.note(here, spec())
    vmstat.write_text(COUNTS.replace("pgpgin 9", "pgpgin 99"))
    assert warmth.in_memory(here, spec()), "what is read takes nothing away"
    vmstat.write_text(COUNTS + now)
    assert not warmth.in_memory(here, spec())


def test_another_boot_and_pages_that_are_drawn_anew_are_forgotten(tmp_path, vmstat, monkeypatch):
    here, there = own_files(tmp_path, "a"), own_files(tmp_path, "b")
    for one in (here, there):
        warmth.note(one, spec())
    pages.draw_anew({HOST: here}, "warm")
    assert (warmth.in_memory(here, spec()), warmth.in_memory(there, spec())) == (False, True)
    other = tmp_path / "boot"
    other.write_text("another\n")
    monkeypatch.setattr(warmth, "BOOT_ID", other)
    assert not warmth.in_memory(there, spec())


def test_nobody_knows_of_sites_without_files_and_machines_that_count_nothing(tmp_path, vmstat, monkeypatch):
    nameless, here = site(Fake(tmp_path)), own_files(tmp_path, "a")
    warmth.note(nameless, spec())
    warmth.forget([nameless, here])
    assert not warmth.in_memory(nameless, spec()) and not warmth._file().exists()
    monkeypatch.setattr(warmth, "VMSTAT", Path("/nonexistent"))
    warmth.note(here, spec())
    warmth.forget([here])
    assert not warmth.in_memory(here, spec())


def a_plan():
    return Plan(
        **{
            "kind": "rounds", "study": "s", "workload": "mnist_cnn", "launches": read_roles(NAMES), "spec": spec(),
            "conditions": asked.CONDITIONS, "sampling": Sampling(units=2, confidence=0.95), "seed": 1,
            "discarded": 1,
            "arm": "stack=same", "headline_arm": "stack=same", "stack": "none", "code_sha256": "0",
            "provenance": {}, "machine": identity(on_gpu=False),
        }
    )  # fmt: skip


def test_a_discarded_round_leaves_out_what_is_in_memory_but_for_what_is_needed(tmp_path, vmstat, monkeypatch):
    started = []

    def launched(site, **order):
        started.append(site.reference)
        return LaunchRecord(status="ok", reason=None, inside=None, deviations=())

    monkeypatch.setattr(designs, "launched", launched)
    monkeypatch.setattr(
        designs,
        "launch_side_by_side",
        lambda orders: {name: launched(one.site) for name, one in orders.items()},
    )
    sites = {name: own_files(tmp_path, name) for name in NAMES}
    warmth.note(sites["docker"], spec())
    warmth.note(sites[HOST], spec())
    pads = dict.fromkeys(NAMES, 0)

    def unit(done, **more):
        started.clear()
        return designs.one_after_other(a_plan(), sites, done, NAMES, pads, **more)["launches"]

    first = unit([], needed=[HOST])
    assert sorted(started) == ["/images/host", "/images/host.control"]
    assert first["docker"].status == "skipped" and first["docker"].reason == IN_MEMORY
    assert unit([])[CONTROL].reason == IN_MEMORY and started == []
