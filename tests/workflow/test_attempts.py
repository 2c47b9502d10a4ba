"""When Snakemake runs a measuring job again, with each form of its own notes: a new attempt, or the one there is.

Real runs of a workflow of one short campaign. Its job can be held after its command has sealed the campaign, before
Snakemake counts the job as done: there everything is killed.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.core.files import project_root
from tare.experiments.attempts import NOTE
from tare.model.journals.sealed import read_sealed

pytestmark = pytest.mark.workflow

ROOT = project_root()
SNAKEFILE = f"""
import os
from tare.experiments.alone import WORKFLOW, process_stamp
from tare.experiments.attempts import attend
os.environ[WORKFLOW] = process_stamp(os.getpid())
attend()

rule all:
    input:
        "results/campaigns/a/sealed.json"

rule measure:
    output:
        "results/campaigns/a/sealed.json"
    params:
        code=config.get("code", "c")
    log:
        "a.log"
    shell:
        "TARE_CODE={{params.code:q}} "
        "{sys.executable} {ROOT}/tests/quick_campaign.py {{output}} notes 1 > {{log}} 2>&1; "
        "while [ -e hold ]; do touch held; sleep 0.05; done"
"""
BACKENDS = {"files": (), "database": ("--persistence-backend", "db")}


@pytest.fixture(params=BACKENDS)
def workflow(request, tmp_path, monkeypatch):
    """A way to run the workflow with one form of Snakemake's notes; its folder is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "locks").mkdir()
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    program = Path(sys.executable).with_name("snakemake")
    common = ("--cores", "1", "--rerun-incomplete", *BACKENDS[request.param])

    def run(*words, cwd=None):
        unlock = [str(program), "--unlock", *BACKENDS[request.param], *words]
        subprocess.run(unlock, cwd=cwd, capture_output=True, check=True)
        return subprocess.Popen(
            [str(program), *common, *words], stdout=subprocess.DEVNULL, stderr=Path("errors").open("ab"), cwd=cwd,
            start_new_session=True,
        )  # fmt: skip

    return run


def whole(running):
    """Let a run come to its end; the units of the campaign, and how many attempts were set aside."""
    assert running.wait(120) == 0, Path("errors").read_text()[-3000:]
    return state()


def state():
    found = read_sealed(Path("results/campaigns/a/sealed.json"))
    assert [unit.unit for unit in found.units] == [0, 1]
    return found.sealed.units_sha256, len(list(Path("results/campaigns/a").glob("superseded-*")))


def killed_after_the_seal(running):
    """Kill a run once its command has sealed and ended; as `whole`."""
    until = time.monotonic() + 120
    while not Path("held").exists() and running.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert Path("held").exists(), Path("errors").read_text()[-3000:]
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    Path("hold").unlink()
    Path("held").unlink()
    assert Path("results/campaigns/a", NOTE).exists()
    return state()


@pytest.mark.timeout(300)
def test_a_job_that_a_person_forces_is_measured_anew_each_time(workflow):
    first, _ = whole(workflow())
    assert not Path("results/campaigns/a", NOTE).exists()
    assert whole(workflow()) == (first, 0)
    second, aside = whole(workflow("-R", "measure"))
    assert second != first and aside == 1
    third, aside = whole(workflow("-f", "results/campaigns/a/sealed.json"))
    assert third not in (first, second) and aside == 2


@pytest.mark.timeout(300)
def test_a_job_whose_parameters_changed_is_measured_anew(workflow):
    first, _ = whole(workflow())
    second, aside = whole(workflow("--config", "code=another"))
    assert second != first and aside == 1


@pytest.mark.timeout(300)
def test_one_killed_between_the_seal_and_its_acceptance_does_not_measure_again(workflow):
    Path("hold").touch()
    first, _ = killed_after_the_seal(workflow())
    assert whole(workflow()) == (first, 0)
    Path("results/campaigns/a/sealed.json").unlink()  # the run before came to its end: this one is a new start
    second, aside = whole(workflow())
    assert second != first and aside == 1


@pytest.mark.timeout(300)
def test_a_forced_one_that_was_killed_is_carried_on_by_the_same_command_and_then_forced_again(workflow):
    first, _ = whole(workflow())
    Path("hold").touch()
    second, aside = killed_after_the_seal(workflow("-R", "measure"))
    assert second != first and aside == 1
    assert whole(workflow("-R", "measure")) == (second, 1)
    third, aside = whole(workflow("-R", "measure"))
    assert third != second and aside == 2


@pytest.mark.timeout(300)
def test_one_that_was_killed_is_carried_on_where_it_is_forced_and_then_measured_anew(workflow):
    Path("hold").touch()
    first, _ = killed_after_the_seal(workflow())
    assert whole(workflow("-R", "measure")) == (first, 0)
    second, aside = whole(workflow("-R", "measure"))
    assert second != first and aside == 1


MODULE = """
module measured:
    snakefile: "../Snakefile"
use rule * from measured as measured_*
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("as_module", [False, True])
def test_in_another_folder_and_as_a_module_it_is_the_same(workflow, tmp_path, monkeypatch, as_module):
    for name in ("runs/notes", "mine"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "mine/Snakefile").write_text(MODULE)
    monkeypatch.chdir(tmp_path / "runs")
    snakefile, rule = ("Snakefile", "measured_measure") if as_module else ("../Snakefile", "measure")
    words = ("-s", snakefile, "--directory", "../runs")

    def given(*more):
        return workflow(*words, *more, cwd=tmp_path / "mine")

    Path("hold").touch()
    first, _ = killed_after_the_seal(given())
    assert whole(given()) == (first, 0)
    assert not Path("results/campaigns/a", NOTE).exists()
    second, aside = whole(given("-R", rule))
    assert second != first and aside == 1
    assert not list((tmp_path / "mine").glob("[!S]*"))
