"""Studies that share a checkout leave each other's results alone: run in turn, none has anything to be done again.

Two questions. Of every pair of studies: would Snakemake note the same of each job that makes what both use? And of
studies that are run one after the other, with jobs that are played: is there anything to be done?
"""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from project import ROOT, copy_checkout

from tare.model.studies.loading import study_files

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(600)]

SHIPPED = sorted(f"config/{Path(path).name}" for path in study_files())
# Studies that people may write: each asks for something else of what all share.
WRITTEN = {
    "on-cpu": {"device": "cpu", "arms": {"rounds": ["stack=native"]}},
    "own-stack": {"stack": "paper-2022", "stacks": ["torch-2.13", "torch-2.13-openblas", "tensorflow-2.21"]},
    "beside": {"stacks": ["paper-2022"]},  # on the host alone, as the default study has it
    "host-alone": {"environments": ["host"], "stacks": ["torch-2.13-openblas", "tensorflow-2.21"]},
    "naive": {"environments": ["docker", "host"], "stacks": [], "naive_image": True},
    "stamps": {
        "data": {"sentiment": "snippets", "tiny_imagenet": "stamps"},
        "workloads": {"resnet18": {"batch": 4}},
    },
    "path": {
        "data": {"tiny_imagenet": "/images", "broken_images": "skip"},
        "workloads": {"resnet18": {"batch": 4}},
        "scenarios": ["single", "shared"],
        "shared": {"workload": "resnet18", "batch": 4},
    },
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the project with a few studies more."""
    folder = copy_checkout(tmp_path_factory.mktemp("alternation") / "tare")
    for name, content in WRITTEN.items():
        (folder / f"config/{name}.yaml").write_text(json.dumps({"study": name, **content}))
    return folder


def ask(folder, what, *words):
    """What tests/planned_jobs.py says, of a machine that has no GPU of its own; its errors follow."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/planned_jobs.py"), what, str(folder), *words],
        env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def by_output(folder, *words):
    """By study and output the job that makes it."""
    found = json.loads(ask(folder, "note", *words).stdout)
    return {study: {path: job for job in jobs for path in job["output"]} for study, jobs in found.items()}


def conflicts(studies):
    """What two studies share, and would have made anew in turn: output, studies, what differs."""
    found = []
    for (one, jobs), (other, others) in itertools.combinations(studies.items(), 2):
        for path in sorted(jobs.keys() & others.keys()):
            differ = [key for key in jobs[path] if jobs[path][key] != others[path][key]]
            found += [(path, one, other, differ)] if differ else []
    return found


@pytest.fixture(scope="module")
def planned(checkout):
    return by_output(checkout, *SHIPPED, *(f"config/{name}.yaml" for name in WRITTEN))


def test_what_two_studies_share_is_made_by_the_same_job_for_both(planned):
    assert len(SHIPPED) > 8 and set(SHIPPED) < set(planned)
    assert conflicts(planned) == []


def test_studies_share_what_they_ask_alike(planned):
    """They are not kept apart by paths of their own: what is the same is made once."""
    common = {f"results/{name}.json" for name in ("images/torch-2.13/tree", "images/torch-2.13/host", "data/mnist")}
    for study in ("config/config.yaml", "config/modak2020.yaml", "config/smoke.yaml", "config/on-cpu.yaml"):
        assert common <= set(planned[study])
    for study in ("config/beside.yaml", "config/full.yaml", "config/own-stack.yaml"):
        assert "results/images/paper-2022/host.json" in planned[study]


def test_what_differs_has_a_path_of_its_own(planned):
    names = ("stamps", "path", "columbia2025")
    sets = {name: {path for path in planned[f"config/{name}.yaml"] if "/data/" in path} for name in names}
    assert sets["stamps"] == {
        *("results/data/mnist.json", "results/data/sentiment@snippets.json"),
        "results/data/tiny_imagenet@stamps.json",
    }
    assert "results/data/tiny_imagenet.json" in sets["columbia2025"]
    (own,) = (path for path in sets["path"] if "tiny_imagenet" in path)
    assert own.endswith("-skip.json")
    beside = [job for path, job in planned["config/path.yaml"].items() if path.endswith(".shared/sealed.json")]
    assert beside and all(own in job["input"] for job in beside)
    assert all(any(f"--co-runner-data {own}" in param for param in job["params"]) for job in beside)


def test_what_runs_on_the_host_alone_has_no_image(planned):
    assert "results/images/paper-2022/tree.json" in planned["config/beside.yaml"]
    assert "results/images/paper-2022/oci.json" not in planned["config/beside.yaml"]
    assert "results/images/paper-2022/oci.json" in planned["config/full.yaml"]


def test_each_job_that_seals_a_campaign_hands_on_the_hash_of_its_programs(planned):
    """It decides whether what was cut short is gone on with (tare.experiments.attempts)."""
    jobs = [job for study in planned.values() for path, job in study.items() if path.endswith("/sealed.json")]
    assert {"run_rounds", "run_causes", "measure_starts"} <= {job["rule"] for job in jobs}
    assert {job["rule"] for job in jobs if "TARE_CODE={params.code:q}" not in job["code"]} == set()


def test_beside_a_gpu_a_study_on_the_cpu_has_its_own_images(checkout):
    words = ("config/config.yaml", "config/modak2020.yaml", "config/on-cpu.yaml")
    found = by_output(checkout, "--with-gpu", *words)
    assert conflicts(found) == []
    images = {study: {path for path in jobs if path.startswith("results/images/")} for study, jobs in found.items()}
    assert not images["config/config.yaml"] & images["config/modak2020.yaml"]
    assert images["config/modak2020.yaml"] & images["config/on-cpu.yaml"]
    tree = found["config/on-cpu.yaml"]["results/images/@cpu/torch-2.13/tree.json"]
    assert "'cpu'" in tree["params"]
    assert "'auto'" in found["config/config.yaml"]["results/images/torch-2.13/tree.json"]["params"]


def words_of(study, *more):
    return ("--cores", "1", "all", "--configfile", study, *more)


def left(folder, study, *more):
    """The jobs that a study has yet to run, as Snakemake tells them."""
    done = ask(folder, "play", *words_of(study, "--dry-run", *more))
    said = done.stdout + done.stderr
    return [] if "nothing to be done" in said.lower() else said.splitlines()


def test_studies_that_are_run_in_turn_have_nothing_to_be_done(checkout):
    studies = [f"config/{name}.yaml" for name in ("config", "modak2020", "smoke", "full")]
    for study in studies:
        ask(checkout, "play", *words_of(study))
    assert all((checkout / f"results/{name}report").is_dir() for name in ("", "full/", "smoke/"))
    assert [line for study in studies for line in left(checkout, study)] == []


@pytest.mark.parametrize("backend", ["file", "db"])
def test_a_record_that_is_made_again_makes_nothing_old_unless_it_differs(tmp_path, backend):
    folder, study = copy_checkout(tmp_path / "tare"), "config/smoke.yaml"
    kept = ("--persistence-backend", backend)
    kept += ("--persistence-backend-db-url", f"sqlite:///{tmp_path}/notes.db") if backend == "db" else ()
    ask(folder, "play", *words_of(study, *kept))
    records = sorted((folder / "results/images/torch-2.13").glob("*.json"))
    assert len(records) > 4 and left(folder, study, *kept) == []
    for path in records:
        path.write_text(path.read_text())
        later = time.time() + 5
        os.utime(path, (later, later))
    assert left(folder, study, *kept) == []
    (folder / "results/images/torch-2.13/host.json").write_text("another")
    assert any("whole runs and training steps" in line for line in left(folder, study, *kept))
