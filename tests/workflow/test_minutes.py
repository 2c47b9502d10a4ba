"""A study that is run for a number of minutes, as Snakemake sees it: what runs, and that it runs once."""

import re
import subprocess

import pytest
from project import ROOT, copy_checkout, snakemake, take_for_done

pytestmark = pytest.mark.workflow

SMOKE = ("--configfile", "config/smoke.yaml")
HOUR = ("--config", "minutes=60")
COMMAND = ("--cores", "1", "all", *SMOKE)
ROUNDS = re.compile(r"whole runs and training steps, ([^ \n]*)")
OTHERS = ("batch sweep", "kernels, operators and files", "profiled launch", "start every environment", "ceilings")


def planned(folder, *words):
    done = snakemake(folder, "-n", *COMMAND, *words)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A copy in which the smoke study is taken for done in an hour."""
    folder = copy_checkout(tmp_path_factory.mktemp("hour") / "tare")
    assert "minutes: 60: " in planned(folder, *HOUR)
    assert not (folder / "results/campaigns/smoke/box/minutes-60.json").exists(), "a dry run declares nothing"
    take_for_done(folder, (*COMMAND, *HOUR))
    return folder


def test_the_budgets_are_declared_and_a_second_run_has_nothing_to_do(finished):
    declared = finished / "results/campaigns/smoke/box/minutes-60.json"
    before = declared.read_text()
    done = snakemake(finished, *COMMAND, *HOUR)  # not dry: had it anything to do, it would try
    assert "nothing to be done" in (done.stdout + done.stderr).lower()
    assert declared.read_text() == before
    text = planned(finished, *HOUR)
    assert "nothing to be done" in text.lower() and "minutes: 60: " in text


@pytest.mark.parametrize("words", [("--config", "minutes=45"), ()])
def test_other_minutes_measure_the_headline_campaigns_again_and_nothing_else(finished, words):
    text = planned(finished, *words)
    environments = set(ROUNDS.findall(text))
    assert environments and all("." not in name for name in environments), "headlines have neither arm nor scenario"
    assert not [what for what in OTHERS if what in text]
    assert "write the report" in text


@pytest.mark.parametrize("value", ["4", "10001", "soon", "[60]", "true"])
def test_what_is_no_number_of_minutes_is_one_clear_line(finished, value):
    done = snakemake(finished, "-n", *COMMAND, "--config", f"minutes={value}", check=False)
    said = done.stdout + done.stderr
    lines = [line for line in said.splitlines() if line.startswith("tare: minutes: ")]
    assert done.returncode != 0 and len(lines) == 1 and "Traceback" not in said


def test_a_study_file_that_says_it_is_refused(finished):
    path = finished / "config/hour.yaml"
    path.write_text("study: hour\nminutes: 60\n")
    done = snakemake(finished, "-n", "--cores", "1", "all", "--configfile", "config/hour.yaml", check=False)
    path.unlink()
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "minutes: no study file holds it" in said and "Traceback" not in said


def test_make_passes_it_on_beside_scenarios():
    command = ["make", "-n", "-o", "setup", "-o", "study-file", "report", "MINUTES=60", "SCENARIOS=single"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in said.splitlines() if "snakemake" in line]
    assert line.count("--config ") == 1 and "'minutes=60'" in line and "'scenarios=[single]'" in line
    said = subprocess.run(command[:-2], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--config " not in said
