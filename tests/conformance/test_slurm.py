"""Small studies on a real Slurm: what is sent to nodes, jobs that are cut short, several machines, bad input."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from image_builders import rootfs
from job_plans import plan, ranked, with_venv
from ordinary import APPTAINER, HOME, NAME, NUMBER, PYTHON, as_user
from project import ROOT, copy_checkout
from slurm import ACCOUNT, MEMORY_MIB, cluster
from waiting import wait_until

from envs.slurm_oci import config_of
from tare.analysis.plans.expected import by_rule
from tare.core.errors import UnavailableError
from tare.launch.prepare import mount_points, own_folder
from tare.launch.trial import judge, trial_form, trial_launch
from tare.machine.cluster import SMALL_JOBS, TOGETHER, minutes
from tare.model.registry import environment as adapter_of
from tare.model.studies.loading import load_checked
from tare.predict.jobs import submit, write_files

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
    "wide": "Nodes=n1,n2,n5 MaxTime=INFINITE",
    "bare": "Nodes=n3 MaxTime=INFINITE",
    "apart": "Nodes=n4 MaxTime=INFINITE",
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
QUICK = ("--slurm-init-seconds-before-status-checks", "2")


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A folder that the node n3 does not see; nor has that Charliecloud. The node n4 does not see the checkout."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory, hidden):
    lacking = {"n3": [hidden, Path(shutil.which("ch-run"))], "n4": [ROOT]}
    with cluster(tmp_path_factory.mktemp("slurm"), PARTITIONS, lacking) as found:
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


def is_whole(folder, rounds, campaign=None):
    """Whether each unit of a campaign (else COUNTED) is there once: the first, and so many more that count."""
    journal = folder / (campaign or COUNTED) / "units.jsonl"
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    found = [row for row in rows if "unit" in row]
    kept = [row for row in found if row["voided"] is None]
    return [row["unit"] for row in found] == list(range(len(found))) and len(kept) == rounds + 1


def test_what_measures_is_sent_to_nodes_and_a_job_that_is_cancelled_is_gone_on_with(slurm, tmp_path):
    seal, machine = f"{CAMPAIGN}/sealed.json", "results/clustered/machines/thin/machine.json"
    journal = tmp_path / CAMPAIGN / "units.jsonl"
    before = len(slurm.jobs())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(TINY))
    with working(slurm, tmp_path, seal) as workflow:
        while len(units(tmp_path)) < 2:
            assert workflow.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.2)
        (job,) = [one["JobId"] for one in slurm.jobs() if one["JobState"] == "RUNNING"]
        slurm.say("scancel", job)
        assert workflow.wait() != 0
    wait_until(lambda: not processes_of(tmp_path, "tare"), "nothing of the job is left", 120)
    kept = journal.read_text()
    assert len(units(tmp_path)) >= 2 and not (tmp_path / seal).exists()
    status, said = run(slurm, tmp_path, seal, machine)
    assert status == 0, said
    assert journal.read_text().startswith(kept) and sorted(set(units(tmp_path))) == units(tmp_path)
    described = json.loads((tmp_path / machine).read_text())
    assert described["name"] == "thin" and described["cpu_allowed"] == os.cpu_count()
    assert described["limits"]["memory"] == f"{MEMORY_MIB << 20} bytes"
    jobs = slurm.jobs()[before:]
    sent = [(re.sub("^rule_|_wildcards_.*", "", one["Comment"]), one["JobState"]) for one in jobs]
    assert sorted(sent) == [
        ("describe_machine", "COMPLETED"), ("probe_environment", "COMPLETED"),
        ("run_rounds", "CANCELLED"), ("run_rounds", "COMPLETED"),
    ], "data, trees and images are made here"  # fmt: skip
    assert all(one["OverSubscribe"] == "NO" for one in jobs), "each has its node for itself"
    status, said = run(slurm, tmp_path, seal, machine)
    assert status == 0 and "nothing to be done" in said.lower()
    assert len(slurm.jobs()) == before + len(jobs)


SMALL = (
    "results/clustered/machines/thin/ceilings.json",
    "results/campaigns/clustered/thin/mnist_cnn/starts.host/sealed.json",
    "results/profiles/clustered/thin/mnist_cnn/host/profile.json",
)


def processes_of(folder, words):
    """Processes that work in a folder, and whose command has these words."""
    found = subprocess.run(["pgrep", "-f", words], capture_output=True, text=True).stdout.split()
    return [pid for pid in map(int, found) if os.path.realpath(f"/proc/{pid}/cwd") == str(folder.resolve())]


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_small_jobs_are_sent_as_one_and_lose_nothing_where_one_fails(slurm, tmp_path, monkeypatch):
    """They copy what they launch to a folder of the node, empty again at the end of each, killed or not."""
    machines = {"thin": {"partition": "thin", "scratch": "always"}}
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv(SMALL_JOBS, TOGETHER)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**TINY, "machines": machines}))
    before = len(slurm.jobs())
    with working(slurm, tmp_path, *SMALL) as workflow:
        while not processes_of(tmp_path, "^python -m tare profiles"):
            assert workflow.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.1)
        kill(processes_of(tmp_path, "^python -m tare profiles"))
        assert workflow.wait() != 0
    said = (tmp_path / "said").read_text()
    assert re.findall(r"FAILED: rule (\w+)", said) == ["run_profile"], said
    made = [*(tmp_path / "results/ceilings/thin").glob("*.json"), tmp_path / SMALL[1]]
    times = {path: path.stat().st_mtime_ns for path in made}
    assert len(times) == 2
    assert not (tmp_path / SMALL[2]).exists() and not (tmp_path / "results/.together").exists()
    wait_until(lambda: not list(scratch.glob("tare-images-*")), "copies are removed", 120)
    status, said = run(slurm, tmp_path, *SMALL, machines=machines)
    assert status == 0 and (tmp_path / SMALL[2]).exists(), said
    assert times == {path: path.stat().st_mtime_ns for path in made}, "they are not made again"
    sent = [(re.sub("^rule_", "", one["Comment"]), one["TimeLimit"]) for one in slurm.jobs()[before:]]
    assert sorted(sent) == [
        ("looks_probe_environment", "00:10:00"),
        ("small_measure_ceilings_measure_starts_run_profile", "00:30:00"),
        ("small_run_profile", "00:10:00"),
    ]  # fmt: skip
    profile = json.loads((tmp_path / SMALL[2]).read_text())
    assert ", copied from " in profile["provenance"]["images"]["host"]["read_from"]
    assert not list(scratch.glob("tare-images-*"))


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
    """Processes that work in this folder, or have it in their command or environment: Tare's and those launched."""
    word, found = os.fsencode(folder.resolve()), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name = (process / "comm").read_text().strip()
            texts = [(process / file).read_bytes() for file in ("cmdline", "environ")]
            texts.append(os.fsencode((process / "cwd").readlink()))
            if any(word in text for text in texts) and name not in ("slurmd", "slurmctld"):
                found.append(int(process.name))
    return sorted(set(found) - {os.getpid()})


@pytest.mark.timeout(1800)
def test_a_campaign_outlives_what_happens_on_a_cluster(slurm, tmp_path):
    """Restarted controller, preemption, drained and lost node, no time left, closed queue: each unit is once."""
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
        wait_until(lambda: now("Restarts") == "1" and now("JobState") == "RUNNING", "it runs again", 300)
        more_units(tmp_path, workflow)
        slurm.say("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=repair")
        more_units(tmp_path, workflow)
        assert now("JobState") == "RUNNING", "a job that is there may end"
        slurm.say("scontrol", "update", f"NodeName={node}", "State=RESUME")
        slurm.kill(node)
        wait_until(lambda: now("JobState") == "PENDING", "the job of a lost node waits again", 300)
        slurm.node(node)
        wait_until(lambda: now("Restarts") == "2" and now("JobState") == "RUNNING", "it runs again", 300)
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
    told = why(said)
    assert status and told.startswith("tare: Slurm does not accept the job: ") and "`partition`" in told, said
    assert journal.read_text() == before
    slurm.say("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=repair")
    wait_until(lambda: slurm.states().get(node) == "drain", "no job is on the node", 120)
    status, said = run(slurm, tmp_path, seal, **study)
    slurm.say("scontrol", "update", f"NodeName={node}", "State=RESUME")
    told = [line for line in said.splitlines() if "machines" in line]
    again = (
        f"its node {node} is drain: wait for it; to begin on another node, move results/campaigns/sides/thin away"
    )
    assert status and again in told[0] and "Traceback" not in said, said
    assert journal.read_text() == before
    status, said = run(slurm, tmp_path, seal, **study)
    assert status == 0, said
    assert journal.read_text().startswith(before) and is_whole(tmp_path, 90)
    assert json.loads((tmp_path / COUNTED / "plan.json").read_text())["machine"]["node"] == node
    assert measured_by(tmp_path) == []


# From the eleventh run on a launch takes 1,040 MiB at its most: by itself more than the job may use at first.
GROWS = """echo >> runs; n=0; while read -r _; do n=$((n+1)); done < runs
a=0123456789abcdef; while [ $n -gt 10 ] && [ ${#a} -lt 536870912 ]; do a=$a$a; done
i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"""


def counting(folder, *command, **changed):
    """The study SIDES of one node and of a job in a folder, which counts where no other command is given."""
    (folder / "job").mkdir(parents=True)
    command = command or ("sh", "-c", COUNT.format(400_000))
    job = {"command": list(command), "folder": str(folder / "job")}
    job["images"] = {"charliecloud": str(rootfs(folder / "image"))}
    workloads = {"mnist_cnn": None, "sentiment_rnn": None, "count": job}
    return {**SIDES, "machines": {"thin": {"partition": "thin"}}, "workloads": workloads, **changed}


def on(**nodes):
    """A study's part that names one machine, `thin`."""
    return {"machines": {"thin": nodes}}


def why(said):
    """The reason that stands below the line of a job that failed."""
    lines = said.splitlines()
    (at,) = [number for number, line in enumerate(lines) if "FAILED: rule" in line]
    assert "Traceback" not in said, said
    return lines[at + 1].strip()


def test_a_job_out_of_memory_says_so_and_goes_on_with_more(slurm, tmp_path):
    study = counting(tmp_path, "sh", "-c", GROWS)
    seal, journal = f"{COUNTED}/sealed.json", tmp_path / COUNTED / "units.jsonl"
    status, said = run(slurm, tmp_path, seal, **study | on(partition="thin", memory_mib=1000))
    assert status and re.fullmatch(
        r"tare: Slurm job \d+ on n\d: the kernel ended a process for lack of memory: the job may use "
        r"1,000 MiB; raise `memory_mib` of its machine in `machines`, .*",
        why(said),
    ), said
    before = journal.read_text()
    found = units(tmp_path, COUNTED)
    assert found == list(range(len(found))) and found and not (tmp_path / seal).exists()
    assert measured_by(tmp_path) == []
    status, said = run(slurm, tmp_path, seal, **study | on(partition="thin", memory_mib=6000))
    assert status == 0, said
    assert journal.read_text().startswith(before) and is_whole(tmp_path, 6)


@contextlib.contextmanager
def small_disk(folder, mib):
    """A file system of so many MiB there."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


# As a program says it that asks the C library.
WRITES = "; echo . > $TMPDIR/$$ || { echo 'count: write error: No space left on device' >&2; exit 1; }"


@pytest.mark.parametrize("full", ["results", "tmp"])
def test_a_disk_that_fills_up_loses_nothing(slurm, tmp_path, monkeypatch, full):
    study = counting(tmp_path / "study", "sh", "-c", COUNT.format(400_000) + WRITES)
    study["rounds"] = {**study["rounds"], "units": 20}
    study["workloads"]["count"] |= {
        "variables": {"TMPDIR": str(tmp_path / "tmp")},
        "binds": [str(tmp_path / "tmp")],
    }
    seal = f"{COUNTED}/sealed.json"
    with contextlib.ExitStack() as stack:
        for name in ("results", "tmp"):
            stack.enter_context(small_disk(tmp_path / name, 16))
        monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
        folder, filler = tmp_path / "results", tmp_path / full / "filler"
        (folder / "mine.yaml").write_text(yaml.safe_dump(study))
        with working(slurm, folder, seal) as workflow:
            more_units(folder, workflow, 2)
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            assert workflow.wait() != 0
        said = (folder / "said").read_text()
        wait_until(lambda: not measured_by(folder), "nothing of the job is left", 120)
        journal = folder / COUNTED / "units.jsonl"
        before = journal.read_text()
        filler.unlink()
        status, said = run(slurm, folder, seal, **study)
        assert status == 0, said
        kept = before[: before.rfind("\n") + 1]
        assert journal.read_text().startswith(kept) and is_whole(folder, 20)


def test_two_studies_at_once_wait_for_each_other(slurm, tmp_path):
    """On one node for Slurm; on two that are one machine, as on a node that is shared, for the machine's lock.

    The first would take longer than the others need to come, and is cancelled once they wait.
    """
    seal, nodes = f"{COUNTED}/sealed.json", {"first": "n1", "second": "n1", "third": "n2"}
    with contextlib.ExitStack() as stack:
        flows = {}
        for name, node in nodes.items():
            study = counting(tmp_path / name, **on(partition="thin", node=node))
            study["rounds"] = {**study["rounds"], "units": 1000 if name == "first" else 6}
            (tmp_path / name / "mine.yaml").write_text(yaml.safe_dump(study))
            flows[name] = stack.enter_context(working(slurm, tmp_path / name, seal))
            if name == "first":
                more_units(tmp_path / name, flows[name])
                (job,) = [one["JobId"] for one in slurm.jobs() if one["JobState"] == "RUNNING"]

        def states():
            return [one["JobState"] for one in slurm.jobs() if one["ReqNodeList"] == "n1"][-2:]

        wait_until(lambda: states() == ["RUNNING", "PENDING"], "the second waits in the queue", 300)

        def said():
            return "".join(log.read_text() for log in tmp_path.glob("third/.snakemake/slurm_logs/**/*.log"))

        wait_until(lambda: "waiting for another process: it measures on this machine" in said(), "it waits", 300)
        assert units(tmp_path / "second", COUNTED) == units(tmp_path / "third", COUNTED) == []
        slurm.say("scancel", job)
        assert flows.pop("first").wait() != 0
        for name, flow in flows.items():
            assert flow.wait() == 0, (tmp_path / name / "said").read_text()
            assert is_whole(tmp_path / name, 6)


def test_a_node_that_does_not_see_results_or_checkout_is_told_in_one_line(slurm, hidden):
    study, seal = counting(hidden / "study"), f"{COUNTED}/sealed.json"
    for partition in ("bare", "apart"):
        status, said = run(slurm, hidden / "study", seal, **study | on(partition=partition))
        assert status and re.fullmatch(
            r"tare: Slurm job \d+ did not begin \(.*\): its node must see this folder, .* the nodes share",
            why(said),
        ), said
        assert units(hidden / "study", COUNTED) == []
        shutil.rmtree(hidden / "study/results/campaigns")  # where it says which node the machine is
    status, said = run(slurm, hidden / "study", seal, **study)
    assert status == 0, said


def test_a_node_without_a_runtime_measures_the_others_and_says_which_it_lacks(slurm, tmp_path):
    study = counting(tmp_path, **on(partition="bare"))
    status, said = run(slurm, tmp_path, f"{COUNTED}/sealed.json", **study)
    plan = json.loads((tmp_path / COUNTED / "plan.json").read_text())
    assert status == 0 and "execute ch-run" in plan["unavailable"]["charliecloud"], said


def test_an_account_that_is_refused_is_one_line_and_a_run_that_is_in_order_is_calm(slurm, tmp_path):
    study, seal = counting(tmp_path), f"{COUNTED}/sealed.json"
    status, said = run(slurm, tmp_path, seal, **study | on(partition="thin", account="nobody"))
    told = [line for line in said.splitlines() if "account" in line]
    assert status and told == [
        "tare: config: machines: thin: root has no account nobody in Slurm: name one of root, or leave "
        "`account` out"
    ], said
    status, said = run(slurm, tmp_path, seal, **study | on(partition="thin", account=ACCOUNT))
    assert status == 0, said
    profile, job, done = said.splitlines()
    assert profile.startswith("Using workflow specific profile") and job.startswith("[1/1") and "1 job done" in done


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
    assert is_whole(tmp_path, 20, ON_PBS)
    sent = slurm.jobs()[before:]
    assert {one["NodeList"] for one in sent} == {"n2"}
    assert {one["NumCPUs"] for one in sent} == {str(os.cpu_count())}, "a job has its node for itself"
    limit = minutes(by_rule(load_checked(tmp_path / "mine.yaml"), max)["run_command"])
    assert {one["TimeLimit"] for one in sent} == {f"00:{limit}:00"} and {one["Requeue"] for one in sent} == {"1"}
    names = {one["JobName"] for one in sent}
    assert "tare.run_command" in names and names <= {"tare.run_command", "tare.probe_environment"}


@pytest.mark.timeout(1800)
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
        home, words, before=[f"mkdir --mode=755 {there}"], within=[PYTHON, ROOT / "tests/slurm.py", there, NAME],
        folder=f"{HOME}/tare", timeout_s=1500,
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
        ({"thin": {"partition": "short"}}, "the limit there is 1 min"),
        ({"thin": {"partition": "thin", "minutes": 1}}, "the limit there is 1 min"),
        ({"thin": {"partition": "thin", "memory_mib": 9000}}, "n1 has 8,000"),
        ({"thin": {"partition": "thin", "constraint": "gpu"}}, "with gpu"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_sent(slurm, tmp_path, machines, says):
    before = len(slurm.jobs())
    status, said = run(slurm, tmp_path, "all", machines=machines)
    told = [line for line in said.splitlines() if "machines" in line]
    assert status and says in told[0] and "Traceback" not in said and len(slurm.jobs()) == before


# Groups over nodes: two that train together in each environment, by all-reduce or with a third that serves.
GROUPED = {
    "study": "grouped",
    "environments": ["host", "charliecloud"],
    "machines": {"set": {"partition": "wide"}},
    "workloads": {"mnist_cnn": {"batch": 256, "sweep_batches": []}},
    "papers": [], "stacks": [], "arms": {"rounds": []},
    "conditions": {"page_cache": "as_found"},
    "scenarios": ["single", "distributed"],
    "distributed": {
        "network": "slurm", "workers": 2, "steps": 12, "units": 3, "arms": ["exchange=parameter-server"],
        "arm_units": 3, "sizes_kib": [1, 64], "repetitions": 3,
    },
}  # fmt: skip
TRAINED = "results/campaigns/grouped/set/mnist_cnn/rounds.charliecloud+host.distributed"
SERVED = "results/campaigns/grouped/set/mnist_cnn/rounds.charliecloud+host.exchange-parameter-server.distributed"
AFFINITY = "import os; print(sorted(os.sched_getaffinity(0)))"


def rows(folder, campaign):
    """Launches of every unit of a campaign, by the launch's name."""
    found = [json.loads(line) for line in (folder / campaign / "units.jsonl").read_text().splitlines()]
    return [row["launches"] for row in found if "launches" in row]


def workers(slurm, *words):
    """Processes of Tare's worker in jobs of this cluster, in whose environment these words are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = b"tare/worker/main.py" in (process / "cmdline").read_bytes()
            named = {*map(str.encode, words)} <= set((process / "environ").read_bytes().split(b"\0"))
            if inside and named and is_below(process, f"SLURM_CONF={slurm.conf}".encode()):
                found.append(int(process.name))
    return found


def is_below(process, word):
    """Whether a process that this one descends from has a word in its environment."""
    parent = Path("/proc", (process / "stat").read_text().rpartition(")")[2].split()[1])
    if parent.name in ("0", "1"):
        return False
    return word in (parent / "environ").read_bytes().split(b"\0") or is_below(parent, word)


@pytest.mark.timeout(900)
def test_groups_over_nodes_are_measured_to_their_seals(slurm, tmp_path):
    machine, network = (f"results/grouped/machines/set/{name}.json" for name in ("machine", "network"))
    before = len(slurm.jobs())
    seals = [f"{campaign}/sealed.json" for campaign in (TRAINED, SERVED)]
    status, said = run(slurm, tmp_path, *seals, machine, network, **GROUPED)
    assert status == 0, said
    place = json.loads((tmp_path / "results/campaigns/grouped/set/node.json").read_text())
    everyone = [place["node"], *place["others"]]
    assert sorted(everyone) == ["n1", "n2", "n5"]
    for campaign, size in ((TRAINED, 2), (SERVED, 3)):
        for launches in rows(tmp_path, campaign):
            for name, launch in launches.items():
                assert launch["status"] == "ok", (name, launch["reason"])
                if len(launch["instances"]) == size:
                    assert launch["network"] == {**launch["network"], "kind": "slurm", "nodes": everyone[:size]}
                inside = [one["inside"] for one in launch["instances"]]
                assert len({one["results"]["weights_sha256"] for one in inside}) == 1
                assert all(len(one["facts"]["affinity"]) == 2 for one in inside), "every CPU of the plan"
                assert launch["deviations"] == []
    jobs = slurm.jobs()[before:]
    sizes = {re.sub("^rule_|_wildcards_.*", "", one["Comment"]): int(one["NumNodes"]) for one in jobs}
    assert sizes == {"describe_machine": 3, "measure_network": 3, "run_rounds_of_arm": 3, "probe_environment": 1}
    assert all(one["OverSubscribe"] == "NO" and one["JobState"] == "COMPLETED" for one in jobs)
    described = json.loads((tmp_path / machine).read_text())
    assert list(described["nodes"]) == everyone and described["nodes"]["n2"]["cpu_model"] == described["cpu_model"]
    measured = json.loads((tmp_path / network).read_text())
    assert measured["group"]["network"] == "slurm"
    assert {one["status"] for one in measured["launches"].values()} == {"ok"}
    assert workers(slurm) == []


@pytest.mark.timeout(900)
def test_a_group_outlives_a_member_that_dies_and_a_node_that_is_lost(slurm, tmp_path):
    study = {**GROUPED, "environments": ["host"]}
    study["distributed"] = {**GROUPED["distributed"], "arms": [], "steps": 60, "units": 6}
    campaign = TRAINED.replace("charliecloud+", "")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    with working(slurm, tmp_path, f"{campaign}/sealed.json") as workflow:

        def wait(until, what, seconds=180):
            def holds():
                assert workflow.poll() is None, (tmp_path / "said").read_text()
                return until()

            wait_until(holds, what, seconds)

        wait(lambda: units(tmp_path, campaign), "a unit is measured")
        wait(lambda: workers(slurm, "RANK=1"), "the second rank trains")
        done = len(units(tmp_path, campaign))
        kill(workers(slurm, "RANK=1"))
        wait(lambda: len(units(tmp_path, campaign)) > done, "the unit of the member that died is over")
        failed = [one for unit in rows(tmp_path, campaign) for one in unit.values() if one["status"] != "ok"]
        assert re.fullmatch(r"rank 1 on n\d: srun ended with status 137: .*Killed", failed[0]["reason"]), failed
        (job,) = [one for one in slurm.jobs() if one["JobState"] == "RUNNING"]
        lost = json.loads((tmp_path / "results/campaigns/grouped/set/node.json").read_text())["others"][0]

        def now(word):
            (found,) = [one[word] for one in slurm.jobs() if one["JobId"] == job["JobId"]]
            return found

        slurm.kill(lost)
        wait(lambda: now("JobState") == "PENDING", "the job of a lost node waits again")
        wait(lambda: not workers(slurm), "nothing trains any more")
        slurm.node(lost)
        wait(lambda: now("Restarts") == "1" and now("JobState") == "RUNNING", "it runs again")
        assert workflow.wait() == 0, (tmp_path / "said").read_text()
    found = units(tmp_path, campaign)
    assert found == sorted(set(found)) and (tmp_path / campaign / "sealed.json").exists()
    journal = [json.loads(line) for line in (tmp_path / campaign / "units.jsonl").read_text().splitlines()]
    counted = [one for row in journal if row.get("voided") is None for one in row.get("launches", {}).values()]
    assert [one["status"] for one in counted].count("ok") == len(counted) - 1, "a lost node counts for nobody"
    assert workers(slurm) == [] and measured_by(tmp_path) == []
    wait_until(lambda: not slurm.say("squeue", "--noheader", "--steps"), "no step is left", 60)


def test_a_step_without_its_cpus_has_one_and_ours_has_all(slurm, tmp_path):
    """Where steps are exact, as a site may have them, srun takes no CPUs from its job from Slurm 22.05 on."""
    allocation = "from tare.launch.nodes import allocation; a = allocation(2); print(*a.step(a.nodes[1], 'looks'))"
    bare = "srun --jobid=$SLURM_JOB_ID --overlap --ntasks=1 --nodes=1 --nodelist=n2"
    script = tmp_path / "job"
    script.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={ROOT} PATH={slurm.environment['PATH']}\n"
        "unset SLURM_CPUS_PER_TASK\nexport SLURM_EXACT=1\n"
        f"{bare} {sys.executable} -c '{AFFINITY}'\n"
        f"$({sys.executable} -c \"{allocation}\") {sys.executable} -c '{AFFINITY}'\n"
    )
    slurm.say(
        *("sbatch", "--wait", "--partition=wide", "--nodelist=n1,n2", "--nodes=2", "--ntasks=2", "--exclusive"),
        *(f"--cpus-per-task={os.cpu_count()}", f"--output={tmp_path}/said", str(script)),
    )
    one, ours = (tmp_path / "said").read_text().splitlines()
    assert len(json.loads(one)) == 1, "the trap is there"
    assert json.loads(ours) == sorted(os.sched_getaffinity(0))


# Containers that Slurm starts: the bundle of a launch by itself, and by srun as its site's oci.conf has it.


def test_a_bundle_is_run_by_an_oci_runtime_under_every_condition(tmp_path):
    adapter = adapter_of("slurm_oci")
    form = trial_form(adapter)
    with own_folder() as (name, folder):
        planned = trial_launch(name, form.reference, folder, contained=True)
        bundle = folder / "bundle"
        (bundle / "rootfs").mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps(config_of(planned)))
        words = ["runc", "--root", tmp_path, "run", "--bundle", bundle, name]
        pinned = ["taskset", "-c", str(planned.cpus[0]), *words]  # Slurm's part
        with mount_points(adapter, planned):
            done = subprocess.run(list(map(str, pinned)), input="token\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trial = judge(planned, done.stdout, contained=True)
    assert trial.violations == () and trial.facts["readonly_binds"] and trial.facts["isolates_network"]


@pytest.mark.timeout(600)
def test_slurm_runs_launches_in_oci_containers_to_a_seal(slurm, tmp_path):
    """The probe and a campaign by `srun --container`, in jobs; no container and no bundle is left."""
    study = {
        **TINY,
        "study": "oci",
        "environments": ["host", "slurm_oci"],
        "machines": {"thin": {"partition": "thin"}},
    }
    study |= {
        "workloads": {"mnist_cnn": {"batch": 256, "sweep_batches": []}},
        "rounds": {"units": 2, "discarded": 0, "steps": None},
    }
    campaign = "results/campaigns/oci/thin/mnist_cnn/rounds.host+slurm_oci"
    status, said = run(slurm, tmp_path, f"{campaign}/sealed.json", **study)
    assert status == 0, said
    (probe,) = (tmp_path / "results/probe/thin").glob("slurm_oci.json")
    assert json.loads(probe.read_text())["available"], probe.read_text()
    launches = [one["slurm_oci"] for one in rows(tmp_path, campaign)]
    assert {one["status"] for one in launches} == {"ok"}, launches
    for one in launches:
        assert {"mnt", "net", "pid", "ipc", "uts"} <= set(one["inside"]["facts"]["own_namespaces"])
        assert one["deviations"] == []
    left = subprocess.run(
        ["runc", "--root", slurm.folder / "runc", "list", "--quiet"], capture_output=True, text=True
    )
    assert left.stdout == ""


def test_a_chosen_candidate_runs_as_a_job_with_its_cpus_or_is_refused_in_one_line(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    (tmp_path / "train.py").write_text("import os, time\ntime.sleep(1)\nprint(len(os.sched_getaffinity(0)))\n")
    made = with_venv(plan(tmp_path, ranked(10.0, half=9.5), command=("python3", "train.py"), queue="thin"))
    write_files(made)
    assert "s, inside the predicted interval: 10 s" in submit(made, "slurm")
    assert [path.read_text() for path in tmp_path.glob("slurm-*.out")] == ["2\n"]
    write_files(plan(tmp_path, ranked(10.0), queue="short"))  # five minutes and more, of one
    with pytest.raises(UnavailableError, match=r"^Slurm would never start the job \(PartitionTimeLimit\)"):
        submit(made, "slurm")
    write_files(made)
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(UnavailableError, match=r"^the job failed: FAILED; slurm-"):
        submit(made, "slurm")


def test_a_script_for_pbs_is_taken_by_the_commands_of_torque(slurm, tmp_path, monkeypatch):
    """Slurm says what they make of its lines; the script runs in its folder with its CPUs. Their qsub takes no path
    with a space in it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    (tmp_path / "train.py").write_text("import os\nopen('cpus', 'w').write(str(len(os.sched_getaffinity(0))))\n")
    wanted = {"command": ("python3", "train.py"), "queue": "thin", "memory_bytes": 1 << 30}
    made = with_venv(
        dataclasses.replace(plan(tmp_path, ranked(10.0, half=9.5), **wanted), folder=tmp_path / "chosen")
    )
    write_files(made)
    said = submit(made, "pbs")
    times = made.folder / "elapsed.txt"
    assert said.endswith(f"; {times} will have when it began and ended, and its status")
    wait_until(times.exists, "the job has ended", 60)
    began, ended, status = times.read_text().split()
    assert 0 < float(ended) - float(began) < 60 and status == "0"
    assert (tmp_path / "cpus").read_text() == "2"
    number = said.removeprefix("submitted as ").partition(";")[0].partition(".")[0]
    (job,) = [one for one in slurm.jobs() if one["JobId"] == number]
    assert (job["JobName"], job["Partition"], job["NumCPUs"]) == ("mnist_cnn", "thin", "2")
    assert job["TimeLimit"] == f"00:{made.minutes:02}:00" and "1G" in job.get("MinMemoryNode", "") + job.get(
        "TRES", ""
    )
    write_files(dataclasses.replace(made, request=made.request.model_copy(update={"queue": "none"})))
    with pytest.raises(UnavailableError, match=r"^PBS refuses the job: "):
        submit(made, "pbs")
