"""Standard deviations from sliced rounds: on simulated ones with known parts, and of the folder of a campaign."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from types import SimpleNamespace

import host_rounds
import numpy as np
import pytest

from tare.core.files import project_root, read_json
from tare.model.studies.loading import load_checked

BENCHMARKS = project_root() / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import launch_variance  # noqa: E402
import recorded  # noqa: E402
import round_variance  # noqa: E402

SPREADS = {"mood": 0.3, "launch": 0.02, "replicate": 0.01, "epoch": 0.03}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rows = host_rounds.simulated(np.random.default_rng(1), 300, **SPREADS)
    return host_rounds.write_rounds(tmp_path_factory.mktemp("campaign") / "w/rounds.host", rows)


def test_the_parts_of_one_launch_are_found_in_ratios_of_two():
    generator = np.random.default_rng(2)
    launches = generator.normal(0, 0.02, (2, 3000, 1)) + generator.normal(0, 0.01, (2, 3000, 4))
    found = round_variance.components(launches[1] - launches[0])
    assert found["replicates_sd"] == pytest.approx(0.01, rel=0.03)
    assert found["launches_own_sd"] == pytest.approx(0.02, rel=0.05) and found["p"] < 1e-9
    assert found["launches_sd"] == pytest.approx(math.hypot(0.02, 0.01 / 2), rel=0.05)


def test_launches_that_add_nothing_are_not_told_from_their_replicates():
    generator = np.random.default_rng(3)
    small = [round_variance.components(generator.normal(0, 0.01, (12, 3)))["p"] < 0.05 for _ in range(1000)]
    assert np.mean(small) == pytest.approx(0.05, abs=0.02)
    assert set(round_variance.components(np.zeros((1, 3))).values()) == {None}


def test_the_interval_of_a_standard_deviation_holds_it_as_often_as_it_says():
    generator = np.random.default_rng(4)
    found = [round_variance.deviation(generator.normal(0, 0.01, 12)) for _ in range(1000)]
    assert np.mean([one["low"] <= 0.01 <= one["high"] for one in found]) == pytest.approx(0.95, abs=0.02)
    assert round_variance.deviation([0.1]) is None
    assert round_variance.robust([-0.01, 0.0, 0.01, 5.0, -0.01]) == pytest.approx(0.0148, abs=1e-4)


def test_every_quantity_of_a_running_campaign_has_its_spread(folder):
    rows = {row["quantity"]: row for row in round_variance.rows_of(recorded.recorded(folder))}
    assert list(rows) == ["whole run", "body", "step, default", "step, steady"]
    assert {row["rounds"] for row in rows.values()} == {300}
    assert rows["body"]["ratio_sd"]["value"] == pytest.approx(math.sqrt(2) * 0.03, rel=0.1)
    assert "replicates_sd" not in rows["body"]
    for level in host_rounds.LEVELS:
        row = rows[f"step, {level}"]
        assert row["replicates_sd"] == pytest.approx(0.01, rel=0.1)
        assert row["launches_own_sd"] == pytest.approx(0.02, rel=0.15)
        assert row["host_rounds_sd"]["value"] == pytest.approx(0.3, rel=0.15), "the machine's mood"
        assert row["ratio_sd"]["value"] < 0.05, "which no ratio holds"
        assert len(row["replicate_log_ratios"]) == 300 and len(row["replicate_log_ratios"][0]) == 3


def test_the_program_reads_campaigns_and_prints_its_file_again(folder, tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARKS / "launch_variance.py")]
    done = subprocess.run(
        [*command, "--campaign", str(folder), "--out", str(out)], capture_output=True, text=True, check=True
    )
    found = read_json(out)
    assert (found["schema"], len(found["rows"])) == (2, 4) and len(done.stdout.splitlines()) == 5
    again = subprocess.run([*command, "--again", str(out)], capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout
    wrong = subprocess.run([*command, "--campaign", str(tmp_path)], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and len(wrong.stderr.splitlines()) == 1


def test_a_campaign_is_asked_for_that_a_study_may_have():
    arguments = SimpleNamespace(
        levels=["default", "steady"], replicates=3, warmup=2, seconds=0.6, minutes=15.0, seed=7
    )
    study = load_checked(launch_variance.study_of(arguments))
    assert study.rounds.budget_s == 900.0 and study.seed == 7
    assert tuple(study.rounds.steps.levels) == ("default", "steady") and study.rounds.units is None
    assert json.loads(launch_variance.study_of(arguments))["rounds"]["half_width"] == launch_variance.HALF_WIDTH
