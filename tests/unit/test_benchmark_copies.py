"""The benchmark of copies: its variance components on made-up tables, its budget; nothing is measured here."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import time
from types import SimpleNamespace

import host_rounds
import numpy as np
import pytest
from asked import CONDITIONS

from tare.core import store
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import Journal, project_root, write_json
from tare.model.records.campaigns import Unit
from tare.model.records.measured import CopiesRecord
from tare.model.schema import parse, read

BENCHMARKS = project_root() / "benchmarks"


@pytest.fixture(scope="module")
def copies():
    """The script as a module, which finds the other benchmarks as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        spec = importlib.util.spec_from_file_location("copies", BENCHMARKS / "copies.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def table(generator, between, within, rounds=9, copies=6):
    logs = generator.normal(0, within, (rounds, copies)) + generator.normal(0, between, copies)
    return logs + generator.normal(0, 0.05, (rounds, 1))  # each round has a mood


def test_the_components_by_hand(copies):
    # Two rounds, three copies; effects -1, 0, 1, and residuals of 0.5 that cancel in rows and columns.
    logs = np.array([[-1.0, 0, 1], [-1, 0, 1]]) + 0.5 * np.array([[1, -1, 0], [-1, 1, 0]]) + [[10], [20]]
    found = copies.components(logs)
    assert found["effects"] == pytest.approx([-1, 0, 1])
    assert found["sd_within"]["value"] == pytest.approx(math.sqrt(4 * 0.25 / 2))
    assert found["sd_between"]["value"] == pytest.approx(math.sqrt((4 / 2 - 0.5) / 2))


@pytest.mark.parametrize("between", [0.0, 0.002, 0.01])
def test_the_intervals_cover_the_truth_as_often_as_they_say(copies, between):
    generator, tries, within = np.random.default_rng(6), 1000, 0.005
    misses, found_all = {"sd_between": 0, "sd_within": 0}, []
    for _ in range(tries):
        found = copies.components(table(generator, between, within))
        found_all.append(found)
        for name, true in (("sd_between", between), ("sd_within", within)):
            misses[name] += not found[name]["low"] <= true <= found[name]["high"]
    allowed = 0.05 + 2 * math.sqrt(0.05 * 0.95 / tries)
    assert all(count / tries <= allowed for count in misses.values())
    if between == 0.0:
        assert np.mean([found["p"] < 0.05 for found in found_all]) <= allowed
    else:
        squares = [found["sd_between"]["value"] ** 2 for found in found_all]
        assert np.mean(squares) == pytest.approx(between**2, rel=0.15)


def test_what_copies_add_to_a_half_width(copies):
    assert copies.widened(0.0, 0.005, 5) == 1.0
    t = 2.570582
    assert copies.widened(0.002, 0.005, 5) == pytest.approx(math.sqrt(1 + t**2 * 1.5 * 0.4**2), rel=1e-6)


def test_the_ratio_to_two_hosts_holds_three_halves_of_the_variance_between_copies():
    generator = np.random.default_rng(8)
    env, first, second = generator.normal(0, 1, (3, 200_000))
    assert np.var(env - (first + second) / 2) == pytest.approx(1.5, rel=0.02)


def row(number, machine_s=30.0, voided=None, **values):
    return {
        **{"round": number, "machine_s": machine_s, "voided": voided, "at": "2026-01-01T00:00:00Z"},
        **{"others_cpus": 0.1 * number, "load_1min": 1.0, "pages": {"a": "drawn anew"}},
        **{"settings": {"warmup_steps": 2, "replicates": 4, "steps": 12}, "step_s": values},
    }


def test_the_minutes_hold_what_was_measured_before(copies):
    rows = [row(number) for number in range(3)]
    assert copies.next_row([], 10.0) == 0
    assert copies.next_row(rows, 120.0) == 3 and copies.next_row(rows, 119.0) is None


def test_void_rounds_count_for_nothing_and_too_few_are_refused(copies):
    generator = np.random.default_rng(5)
    names = ["a", "b", "c"]
    key = {"copies": names, "workload": "mnist_cnn", "stack": "s"}
    good = [
        row(number, **dict(zip(names, 0.05 * np.exp(generator.normal(0, 0.01, 3)), strict=True)))
        for number in range(4)
    ]
    found = copies.summary([*good, row(4, voided="a: it died")], key, 0.005)
    assert found["rounds"] == 4 and found["load"]["others_cpus"] == pytest.approx({"median": 0.15, "highest": 0.3})
    assert set(found["effects"]) == set(names) and found["widened"]["value"] >= 1
    with pytest.raises(UnavailableError, match="1 whole rounds say nothing of copies"):
        copies.summary(good[:1], key, 0.005)


def test_what_it_writes_is_read_by_the_tables(copies, tmp_path):
    key = {
        "schema": copies.SCHEMA,
        "workload": "mnist_cnn",
        "stack": "torch-2.13",
        "tree": "sha256:0",
        "copies": list("abc"),
    }
    key |= {"allocator": "steady", "page_cache": "warm", "kernel": "6.1"}
    rows = [row(number, a=0.05, b=0.0501 + 1e-6 * number, c=0.0502) for number in range(3)]
    write_json(tmp_path / "copies.json", copies.summary(rows, key, 0.005))
    found = read(CopiesRecord, tmp_path / "copies.json")
    assert (found.rounds, found.replicates, found.warmup_steps, found.steps) == (3, 4, 2, 12)
    assert found.sd_between.value == pytest.approx(0.002, rel=0.01) and found.p < 0.05
    write_json(tmp_path / "copies.json", {"schema": copies.SCHEMA})
    with pytest.raises(IntegrityError, match=r"copies\.json: .* missing") as told:
        read(CopiesRecord, tmp_path / "copies.json")
    assert "\n" not in str(told.value)


def test_copies_are_apart_checked_and_removed_but_for_the_second_hosts(copies, tmp_path):
    def make(folder):
        (folder / "lib").mkdir()
        (folder / "lib/a.so").write_bytes(b"library" * 999)
        return {}

    first = store.keep(tmp_path / "trees", "0" * 32, make, what="making a tree").path
    made = copies.copies_of(first, 4)
    assert len({(path / "lib/a.so").stat().st_ino for path in made}) == 4
    assert len({len(str(path)) for path in made}) == 1
    assert copies.existing(first) == made
    names = [copies.identity_of(path) for path in made]
    assert len(set(names)) == 4
    copies.remove_copies(first)
    assert copies.existing(first) == made[:2]
    time.sleep(0.01)
    again = [copies.identity_of(path) for path in copies.copies_of(first, 4)]
    assert again[:2] == names[:2] and not set(again[2:]) & set(names)


def test_a_round_says_how_long_a_step_takes_in_each_copy_and_a_void_one_why(copies):
    rest = np.array([0.05, 0.06, 0.05, 0.04])
    launches = {
        name: host_rounds.host_launch(1.0, {"steady": [(share * rest).tolist()]})
        for name, share in (("a", 1.0), ("b", 1.02), ("c", 1.0))
    }
    others = {"cpu_s": 6.0, "stolen_s": 0.0, "seconds": 30.0, "processors": 2}
    unit = host_rounds.host_round(1, launches, cost_s=30.0, others=others)
    found = copies.row_of(parse(Unit, unit, "a round"), 0, "warm")
    assert found["step_s"]["b"] / found["step_s"]["a"] == pytest.approx(1.02, rel=1e-6)
    assert found["step_s"]["c"] == pytest.approx(found["step_s"]["a"])
    assert found["others_cpus"] == pytest.approx(0.2) and found["machine_s"] == 30.0
    void = copies.row_of(parse(Unit, unit | {"voided": "a: it died"}, "a round"), 0, "warm")
    assert void["voided"] == "a: it died" and void["step_s"] == {}


class Rounds:
    """A bench whose rounds take 30 s: the first calibrates, some are void."""

    conditions = CONDITIONS

    def __init__(self, void=()):
        self.made, self.void = 0, void

    def round(self, number):
        self.made += 1
        return SimpleNamespace(
            discarded=self.made == 1, voided="it died" if self.made in self.void else None, cost_s=30.0,
            others=None, launches={}, counts=True,
        )  # fmt: skip


@pytest.fixture
def journal(copies, tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "step_values", lambda unit, level: {})
    return Journal(tmp_path / "copies.jsonl")


def test_calibration_is_paid_for_and_is_no_row(copies, journal):
    rows = []
    copies.take_rounds(journal, rows, {"workload": "w"}, Rounds(), 120.0)
    assert [row["round"] for row in journal.read()] == [0, 1, 2] and len(rows) == 3


def test_two_void_rounds_in_a_row_end_it(copies, journal):
    with pytest.raises(UnavailableError, match="2 rounds in a row are void: it died"):
        copies.take_rounds(journal, [], {"workload": "w"}, Rounds(void=(3, 4)), 900.0)
    assert [row["voided"] for row in journal.read()] == [None, "it died", "it died"]


def test_too_few_copies_are_one_line():
    command = [sys.executable, str(BENCHMARKS / "copies.py"), "--copies", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project_root(), check=False)
    assert done.returncode == 2
    assert done.stderr == "copies: --copies 2: a variance between copies needs three or more\n"
