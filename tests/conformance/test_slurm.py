"""Small studies on a real Slurm: what is sent to nodes, jobs that are cut short, several machines, bad input."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time

import pandas as pd
import pytest
import yaml
from image_builders import rootfs
from ordinary import APPTAINER, HOME, NUMBER, PYTHON, as_user
from project import ROOT, copy_checkout
from slurm import cluster
from waiting import wait_until

from tare.analysis.plans.expected import by_rule
from tare.machine.cluster import minutes
from tare.model.studies.study import load_checked

pytestmark = [pytest.mark.runtime, pytest.mark.meets(environment="host")]

TINY = {
    "study": "clustered",
    "environments": ["host"],
    "machines": {"thin": {"partition": "thin"}},
    "workloads": {"mnist_cnn": {"batch": 64, "sweep_batches": []}, "sentiment_rnn": None},
    "papers": [], "stacks": [], "arms": {"rounds": []},
    "conditions": {"page_cache": "as_found"},
    "rounds": {"units": 6, "discarded": 0, "steps": {"replicates": 1, "seconds": 0.3}},
    "causes": {"units": 1, "steps": 2},
    "profile": {"warmup_steps": 1, "steps": 2},
    "starts": {"repetitions": 1},
    "ceilings": {"working_sets_kib": [32, 262144], "gemm_sizes": [512], "repetitions": 2},
}  # fmt: skip
PARTITIONS = {
    "thin": "Nodes=n1,n2 Default=YES MaxTime=INFINITE",
    "short": "Nodes=n1 MaxTime=1",
    "mixed": "Nodes=n1,n2 MaxTime=INFINITE",
    "urgent": "Nodes=n1,n2 MaxTime=INFINITE PriorityTier=10",
}
# Two nodes, a shell that counts, and an image that is a folder with the same shell.
SIDES = {
    "study": "sides",
    "environments": ["host", "charliecloud"],
    "machines": {"thin": {"partition": "thin", "nodes": 2}},
    "papers": [], "stacks": [], "arms": {"rounds": []},
    "conditions": {"page_cache": "as_found"},
    "rounds": {"units": 6, "discarded": 0, "steps": None},
}  # fmt: skip
COUNT = "i=0; while [ $i -lt {} ]; do i=$((i+1)); done"
CAMPAIGN = "results/campaigns/clustered/thin/mnist_cnn/rounds.host"
QUICK = ("--slurm-init-seconds-before-status-checks", "2", "--slurm-status-command", "squeue")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm"), PARTITIONS) as found:
        yield found


def command(folder, *words, profile=None):
    """The workflow of this checkout, its results in another folder, as it is run on a login node."""
    of_cluster = [ROOT / "profiles/slurm", *QUICK] if profile is None else [profile]
    return [
        "setpriv", "--pdeathsig", "TERM", ROOT / ".venv/bin/snakemake", "--snakefile", ROOT / "Snakefile",
        "--directory", folder, "--workflow-profile", *of_cluster, *words,
        "--configfile", folder / "mine.yaml",
    ]  # fmt: skip


def environment(slurm, machine=None):
    found = {**os.environ, **slurm.environment}
    for name in ("TARE_MACHINE", "TARE_MACHINE_FOUND", "TARE_WORKFLOW"):
        found.pop(name, None)
    return found if machine is None else {**found, "TARE_MACHINE": machine}


@contextlib.contextmanager
def working(slurm, folder, *words, profile=None, machine=None):
    """A workflow of what mine.yaml holds, which is ended at the end; it prints into `said`."""
    with (folder / "said").open("w") as out:
        workflow = subprocess.Popen(
            list(map(str, command(folder, *words, profile=profile))),
            env=environment(slurm, machine), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        yield workflow
    finally:
        workflow.send_signal(signal.SIGTERM)
        workflow.wait()


def run(slurm, folder, *words, **changed):
    """Run it to its end; returns its status and what it printed."""
    (folder / "mine.yaml").write_text(yaml.safe_dump(changed if "study" in changed else {**TINY, **changed}))
    done = subprocess.run(
        list(map(str, command(folder, *words))),
        env=environment(slurm), stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def units(folder, campaign=CAMPAIGN):
    """Numbers of the units in the journal of a campaign; none while there is no journal."""
    journal = folder / campaign / "units.jsonl"
    rows = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    return [row["unit"] for row in rows if "unit" in row]


def test_what_measures_is_sent_to_nodes_and_a_job_that_is_cancelled_is_gone_on_with(slurm, tmp_path):
    seal, machine = f"{CAMPAIGN}/sealed.json", "results/clustered/machines/thin/machine.json"
    journal = tmp_path / CAMPAIGN / "units.jsonl"
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(TINY))
    with working(slurm, tmp_path, seal) as workflow:
        while len(units(tmp_path)) < 2:
            assert workflow.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.2)
        (job,) = [one["JobId"] for one in slurm.jobs() if one["JobState"] == "RUNNING"]
        slurm.say("scancel", job)
        assert workflow.wait() != 0
    before = journal.read_text()
    assert len(units(tmp_path)) >= 2 and not (tmp_path / seal).exists()
    status, said = run(slurm, tmp_path, seal, machine)
    assert status == 0, said
    assert journal.read_text().startswith(before) and sorted(set(units(tmp_path))) == units(tmp_path)
    described = json.loads((tmp_path / machine).read_text())
    assert described["name"] == "thin" and described["cpu_allowed"] == os.cpu_count()
    sent = [(re.sub("^rule_|_wildcards_.*", "", one["Comment"]), one["JobState"]) for one in slurm.jobs()]
    assert sorted(sent) == [
        ("describe_machine", "COMPLETED"), ("probe_environment", "COMPLETED"),
        ("run_rounds", "CANCELLED"), ("run_rounds", "COMPLETED"),
    ], "data, trees and images are made here"  # fmt: skip
    assert all(one["OverSubscribe"] == "NO" for one in slurm.jobs()), "each has its node for itself"
    status, said = run(slurm, tmp_path, seal, machine)
    assert status == 0 and "nothing to be done" in said.lower() and len(slurm.jobs()) == 4


def test_two_nodes_are_measured_and_stand_side_by_side(slurm, tmp_path):
    job = {"command": ["sh", "-c", COUNT.format(400_000)], "folder": str(tmp_path / "job")}
    (tmp_path / "job").mkdir()
    job["images"] = {"charliecloud": str(rootfs(tmp_path / "image"))}
    before = len(slurm.jobs())
    workloads = {"mnist_cnn": None, "sentiment_rnn": None, "count": job}
    status, said = run(slurm, tmp_path, "all", **SIDES, workloads=workloads)
    assert status == 0, said
    sent = slurm.jobs()[before:]
    ran = {one["NodeList"] for one in sent if "run_command" in one["Comment"]}
    assert ran == {"n1", "n2"} and {one["JobState"] for one in sent} == {"COMPLETED"}
    results = tmp_path / "results/sides"
    table = pd.read_csv(results / "tables/machines.csv")
    alone = table[table["scope"] == "machine"]
    assert set(alone["environment"]) == {"charliecloud"}
    assert (
        set(alone["machine"]) == {"thin-1", "thin-2"}
        and (alone["n"] == 6).all()
        and (alone["kind"] == "measured").all()
    )
    (together,) = table[table["scope"] == "kind"].to_dict("records")
    assert together["kind"] == "unavailable" and "several of its machines are one" in together["reason"]
    page = (results / "report/index.html").read_text()
    for name in ("thin-1", "thin-2"):
        assert f'href="../on/{name}/report/index.html"' in page
        assert (results / f"on/{name}/report/index.html").exists()
    status, said = run(slurm, tmp_path, "all", **SIDES, workloads=workloads)
    assert status == 0 and "nothing to be done" in said.lower()


COUNTED = "results/campaigns/sides/thin/count/rounds.charliecloud+host"


def more_units(folder, workflow, count=1):
    """Wait until so many more are in the journal of COUNTED."""
    wanted = len(units(folder, COUNTED)) + count
    while len(units(folder, COUNTED)) < wanted:
        assert workflow.poll() is None, (folder / "said").read_text()
        time.sleep(0.2)


def measured_by(folder):
    """Processes that work on a campaign in this folder."""
    found = subprocess.run(["pgrep", "-f", f"tare command.*{folder}|--directory {folder}"], capture_output=True)
    return found.stdout.split()


@pytest.mark.timeout(1800)
def test_a_campaign_outlives_what_happens_on_a_cluster(slurm, tmp_path):
    """A controller restarted, a job preempted, its node lost, out of time, a closed queue: each unit is once."""
    (tmp_path / "job").mkdir()
    job = {"command": ["sh", "-c", COUNT.format(1_000_000)], "folder": str(tmp_path / "job")}
    job["images"] = {"charliecloud": str(rootfs(tmp_path / "image"))}
    study = {**SIDES, "machines": {"thin": {"partition": "thin"}}, "rounds": {**SIDES["rounds"], "units": 90}}
    study["workloads"] = {"mnist_cnn": None, "sentiment_rnn": None, "count": job}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    seal, journal = f"{COUNTED}/sealed.json", tmp_path / COUNTED / "units.jsonl"
    with working(slurm, tmp_path, seal) as workflow:
        more_units(tmp_path, workflow)
        (job,) = [one for one in slurm.jobs() if one["JobState"] == "RUNNING"]
        node = job["NodeList"]
        place = json.loads((tmp_path / "results/campaigns/sides/thin/node.json").read_text())
        assert place["node"] == node

        def now(word):
            (found,) = [one[word] for one in slurm.jobs() if one["JobId"] == job["JobId"]]
            return found

        slurm.kill("slurmctld")
        slurm.controller()
        more_units(tmp_path, workflow)
        slurm.say(
            "sbatch",
            "--partition=urgent",
            f"--nodelist={node}",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=sleep 2",
        )
        wait_until(lambda: now("Restarts") == "1" and now("JobState") == "RUNNING", "it runs again", 180)
        more_units(tmp_path, workflow)
        slurm.kill(node)
        wait_until(lambda: now("JobState") == "PENDING", "the job of a lost node waits again", 180)
        slurm.node(node)
        wait_until(lambda: now("Restarts") == "2" and now("JobState") == "RUNNING", "it runs again", 180)
        assert now("NodeList") == node, "a machine is one node"
        more_units(tmp_path, workflow)
        slurm.say("scontrol", "update", f"JobId={job['JobId']}", "TimeLimit=1")
        assert workflow.wait() != 0 and now("JobState") == "TIMEOUT", (tmp_path / "said").read_text()
    wait_until(lambda: not measured_by(tmp_path), "what measured on the node is gone", 120)
    assert not (tmp_path / seal).exists()
    before = journal.read_text()
    slurm.say("scontrol", "update", "PartitionName=thin", "State=INACTIVE")
    status, said = run(slurm, tmp_path, seal, **study)
    slurm.say("scontrol", "update", "PartitionName=thin", "State=UP")
    assert status and "Traceback" not in said and journal.read_text() == before, said
    status, said = run(slurm, tmp_path, seal, **study)
    assert status == 0, said
    found = units(tmp_path, COUNTED)
    assert journal.read_text().startswith(before) and found == list(range(91)), "90 rounds behind the first"
    assert measured_by(tmp_path) == []


def pbs_profile(folder, **changed):
    """A copy of the profile for Torque and PBS, as a site has it: one node with all of its processors."""
    profile = yaml.safe_load((ROOT / "profiles/pbs/profile.yaml").read_text())
    profile["default-resources"] = ["node='n2'", f"ppn={os.cpu_count()}"]
    profile["cluster-generic-status-cmd"] = str(ROOT / "profiles/pbs/status.sh")
    (folder / "pbs").mkdir(exist_ok=True)
    (folder / "pbs/profile.yaml").write_text(yaml.safe_dump({**profile, **changed}))
    return folder / "pbs"


def pbs_study(folder, turns):
    """A study of one command in two environments, of a machine that the study does not name."""
    (folder / "job").mkdir()
    job = {"command": ["sh", "-c", COUNT.format(turns)], "folder": str(folder / "job")}
    job["images"] = {"charliecloud": str(rootfs(folder / "image"))}
    study = {name: value for name, value in SIDES.items() if name != "machines"}
    return {**study, "workloads": {"mnist_cnn": None, "sentiment_rnn": None, "count": job}}


ON_PBS = "results/campaigns/sides/batch/count/rounds.charliecloud+host"


def test_submit_commands_of_torque_take_a_campaign_to_its_seal(slurm, tmp_path):
    """One job that is ended goes on; time, node and processors are those that the plan and the profile say."""
    before = len(slurm.jobs())
    study = {**pbs_study(tmp_path, 400_000), "rounds": {**SIDES["rounds"], "units": 20}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    words = {"profile": pbs_profile(tmp_path), "machine": "batch"}
    seal = f"{ON_PBS}/sealed.json"
    with working(slurm, tmp_path, seal, **words) as workflow:
        while len(units(tmp_path, ON_PBS)) < 2:
            assert workflow.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.2)
        (job,) = [one for one in slurm.jobs() if one["JobState"] == "RUNNING"]
        slurm.say("qdel", job["JobId"])
        assert workflow.wait() != 0
    journal = (tmp_path / ON_PBS / "units.jsonl").read_text()
    with working(slurm, tmp_path, seal, **words) as workflow:
        assert workflow.wait() == 0, (tmp_path / "said").read_text()
    assert (tmp_path / ON_PBS / "units.jsonl").read_text().startswith(journal)
    assert units(tmp_path, ON_PBS) == list(range(21)), "20 rounds behind the first"
    sent = slurm.jobs()[before:]
    assert {one["NodeList"] for one in sent} == {"n2"}
    assert {one["NumCPUs"] for one in sent} == {str(os.cpu_count())}, "a job has its node for itself"
    limit = minutes(by_rule(load_checked(tmp_path / "mine.yaml"), max)["run_command"])
    assert {one["TimeLimit"] for one in sent} == {f"00:{limit}:00"} and {one["Requeue"] for one in sent} == {"1"}
    names = {one["JobName"] for one in sent}
    assert "tare.run_command" in names and names <= {"tare.run_command", "tare.probe_environment"}


def test_an_ordinary_user_comes_from_a_checkout_of_their_own_to_the_page(tmp_path):
    """With Apptainer, on a cluster that only this user's jobs are on: nothing that they do is root's."""
    home = tmp_path / "home"
    checkout = copy_checkout(home / "tare")
    (checkout / ".venv").symlink_to((ROOT / ".venv").resolve())
    rootfs(home / "image")
    (home / "job").mkdir()
    job = {"command": ["sh", "-c", COUNT.format(400_000)], "folder": f"{HOME}/job"}
    study = {
        **SIDES, "environments": ["host", "apptainer"], "machines": ["compute"],
        "workloads": {"mnist_cnn": None, "sentiment_rnn": None, "count": {**job, "images": {}}},
    }  # fmt: skip
    study["workloads"]["count"]["images"] = {"apptainer": f"{HOME}/image"}
    (checkout / "config/mine.yaml").write_text(yaml.safe_dump(study))
    words = [
        ".venv/bin/snakemake", "--workflow-profile", "profiles/slurm", *QUICK, "all",
        "--configfile", "config/mine.yaml",
    ]  # fmt: skip
    there = "/tmp/slurm"
    done = as_user(
        home, words, before=[f"mkdir --mode=755 {there}"], within=[PYTHON, ROOT / "tests/slurm.py", there],
        folder=f"{HOME}/tare", timeout_s=600,
        variables={"PYTHONPATH": f"{HOME}/tare", "PATH": f"{there}/bin:{APPTAINER}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = checkout / "results/sides"
    rows = pd.read_csv(results / "tables/metrics.csv")
    assert set(rows["machine"]) == {"compute"} and "apptainer" in set(rows["environment"])
    assert (results / "report/index.html").exists()
    (sealed,) = checkout.glob("results/campaigns/sides/compute/count/*/sealed.json")
    assert sealed.stat().st_uid == NUMBER


@pytest.mark.parametrize(
    ("told", "status", "says"),
    [
        ("    job_state = R\n", 0, "running"),
        ("    job_state = E\n    exit_status = 1\n", 0, "running"),
        ("    job_state = C\n    exit_status = 0\n", 0, "success"),
        ("    job_state = F\n    Exit_status = 0\n", 0, "success"),
        ("    job_state = C\n    exit_status = 271\n", 0, "failed"),
        ("    job_state = C\n", 0, "failed"),
        ("qstat: Unknown Job Id 7.server\n", 153, "failed"),
        ("qstat: cannot connect to server (errno=111)\n", 255, "running"),
    ],
)
def test_the_state_of_a_job_by_what_qstat_says(tmp_path, told, status, says):
    qstat = tmp_path / "qstat"
    (tmp_path / "told").write_text(told)
    qstat.write_text(f"#!/bin/sh\ncat {tmp_path}/told\nexit {status}\n")
    qstat.chmod(0o755)
    done = subprocess.run(
        [ROOT / "profiles/pbs/status.sh", "7.server"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{says}\n", "")


@pytest.mark.parametrize(
    ("machines", "says"),
    [
        ({"thin": {"partition": "nowhere"}}, "nowhere"),
        ({"thin": {"partition": "thin", "node": "n9"}}, "n9"),
        ({"thin": {"partition": "thin", "nodes": 3}}, "3 of its nodes are needed, and 2 work"),
        ({"thin": {"partition": "thin"}, "fat": {"partition": "short"}}, "fat: a job is expected"),
        ({"thin": {"partition": "short"}}, "may take 1 there"),
        ({"thin": {"partition": "thin", "constraint": "gpu"}}, "with gpu"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_sent(slurm, tmp_path, machines, says):
    before = len(slurm.jobs())
    status, said = run(slurm, tmp_path, "all", machines=machines)
    told = [line for line in said.splitlines() if "machines" in line]
    assert status and says in told[0] and "Traceback" not in said and len(slurm.jobs()) == before
