"""A study that names several machines, as it is planned: whose command measures where, with which images."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from project import ROOT

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(600)]

STUDY = {
    "study": "two",
    "environments": ["host", "apptainer"],
    "machines": {"thin": {"partition": "thin", "nodes": 2}, "wide": {"partition": "gpu", "gpus": 1}},
    "workloads": {"mnist_cnn": {"batch": 64, "sweep_batches": []}, "sentiment_rnn": None},
    "papers": [], "stacks": [], "arms": {"rounds": []},
}  # fmt: skip
SINFO = """#!/bin/sh
case "$*" in
*thin*) printf 'n1|2|64000|(null)|infinite|(null)|idle\\nn2|2|64000|(null)|infinite|(null)|idle\\n' ;;
*gpu*) printf 'g1|8|64000|gpu:1|infinite|(null)|idle\\n' ;;
esac
"""
MACHINES = ("thin-1", "thin-2", "wide")
MEASURES = ("rounds", "causes", "profiles", "starts", "ceilings", "machine", "probe")


@pytest.fixture
def plan(tmp_path):
    """Runs Snakemake in an empty folder where a made-up Slurm answers; returns status and what it said."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sinfo").write_text(SINFO)
    (tmp_path / "bin/sinfo").chmod(0o755)
    (tmp_path / "bin/scontrol").symlink_to("/bin/false")
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    for name in ("TARE_MACHINE", "TARE_MACHINE_FOUND", "TARE_WORKFLOW"):
        environment.pop(name, None)

    def run(*words, profile="slurm", machine=None, program=(ROOT / ".venv/bin/snakemake",), **changed):
        (tmp_path / "two.yaml").write_text(yaml.safe_dump({**STUDY, **changed}))
        done = subprocess.run(
            [*program, "--snakefile", ROOT / "Snakefile", "--directory", tmp_path,
             "--workflow-profile", ROOT / f"profiles/{profile}", *words, "--configfile", tmp_path / "two.yaml"],
            env=environment | ({"TARE_MACHINE": machine} if machine else {}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return run


def commands(said):
    """By machine the commands that are told it, and those that are told none."""
    found = {}
    for line in re.findall(r"^\s+\$ (.*)$", said, re.MULTILINE):
        machine = re.match(r"TARE_MACHINE=(\S+) ", line)
        found.setdefault(machine and machine[1], []).append(line)
    return found


def test_every_machine_is_measured_with_its_own_images_and_they_are_compared(plan):
    status, said = plan("-n", "-p", "all")
    assert status == 0, said
    found = commands(said)
    assert {name for name in found if name} == set(MACHINES)
    for machine in MACHINES:
        own = "\n".join(found[machine])
        for command in MEASURES:
            assert f"-m tare {command} " in own, (machine, command)
        for other in set(MACHINES) - {machine}:
            assert f"/{other}/" not in own and f"@{other}" not in own, (machine, other)
        device = "cuda" if machine == "wide" else "cpu"
        assert f"--images results/images/@{machine}/torch-2.13 " in own and f'"device": "{device}"' in own
        assert f"--out results/two/on/{machine}/report/index.html" in own
    shared = "\n".join(found[None])
    assert "--machines thin-1 thin-2 wide " in shared and "--variant cuda " in shared and "--variant cpu " in shared
    assert not [command for command in MEASURES if f"-m tare {command} " in shared]


def test_one_of_them_alone_is_measured_and_nothing_compared(plan):
    status, said = plan("-n", "-p", "all", machine="thin-2")
    assert status == 0, said
    found = commands(said)
    assert {name for name in found if name} == {"thin-2"} and "compare-machines" not in said


def test_an_environment_is_measured_on_all_of_them(plan):
    status, said = plan("-n", "-p", "apptainer")
    assert status == 0, said
    assert {name for name in commands(said) if name} == set(MACHINES)


def test_one_machine_has_the_paths_of_any_study(plan):
    status, said = plan("-n", "-p", "all", machines={"thin": {"partition": "thin"}})
    assert status == 0, said
    assert "--out results/two/report/index.html" in said and "results/two/on" not in said
    assert set(commands(said)) == {None}, "the workflow tells its jobs by their environment"


# What Snakemake would note of each job: its rule, machine and parameters.
PARAMETERS = """
import json, sys
from snakemake import cli
from snakemake.scheduling.job_scheduler import JobScheduler
def schedule(self):
    jobs = [one for one in self.workflow.dag.jobs if one.output]
    of = self.workflow.persistence._params
    print(json.dumps([[one.rule.name, one.wildcards_dict.get("machine"), of(one)] for one in jobs]), flush=True)
    return True
JobScheduler.schedule = schedule
cli.main(sys.argv[1:])
"""


def parameters(plan, **changed):
    """By rule and machine what would be noted of its jobs."""
    _, said = plan("-n", "all", program=[sys.executable, "-c", PARAMETERS], **changed)
    assert "[[" in said, said
    (line,) = [line for line in said.splitlines() if line.startswith("[[")]
    found = {}
    for rule, machine, noted in json.loads(line):
        found.setdefault((rule, machine), []).append(noted)
    return found


def test_what_a_node_makes_is_made_again_on_another_one_and_nothing_else(plan, tmp_path):
    one = {"machines": {"thin": {"partition": "thin"}}, "environments": ["host", "docker"]}
    first = parameters(plan, **one)
    place = tmp_path / "results/campaigns/two/thin/node.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"schema": 1, "node": "n2"}')
    second = parameters(plan, **one)
    assert first.keys() == second.keys()
    again = {rule for (rule, machine), noted in first.items() if noted != second[rule, machine]}
    assert again == {
        *("probe_environment", "describe_machine", "measure_ceilings", "run_rounds", "run_causes", "run_profile"),
        *("measure_starts", "load_image"),
    }
    place.parent.rename(tmp_path / "results/away")
    assert parameters(plan, **one) == first
    here = parameters(plan, profile="default", machines={})
    assert not [noted for jobs in here.values() for noted in jobs if "n1" in str(noted)]


GROUPS = {
    "scenarios": ["single", "distributed"],
    "distributed": {"network": "slurm", "units": 4},
    "workloads": {"mnist_cnn": {"batch": 64, "sweep_batches": []}},
}


def test_groups_over_nodes_are_planned_on_one_machine_and_on_several(plan, tmp_path):
    status, said = plan("-n", "-p", "all", machines={"thin": {"partition": "thin"}}, **GROUPS)
    assert status == 0 and "-m tare machine --nodes 2 --out" in said and '"network": "slurm"' in said, said
    nodes = "".join(rf"{name}|2|64000|(null)|infinite|(null)|idle\n" for name in ("n1", "n2", "n3", "n4"))
    (tmp_path / "bin/sinfo").write_text(f"#!/bin/sh\nprintf '{nodes}'\n")
    status, said = plan("-n", "-p", "all", machines={"thin": {"partition": "thin", "nodes": 2}}, **GROUPS)
    assert status == 0, said
    for machine in ("thin-1", "thin-2"):
        own = "\n".join(commands(said)[machine])
        assert "-m tare machine --nodes 2 --out" in own and "--scenario distributed" in own


@pytest.mark.parametrize(
    ("words", "changed", "says"),
    [
        (["all", "--cores", "1"], {"profile": "default"}, "this run would measure here"),
        (["-n", "all", "--config", "minutes=60"], {}, "the study names several"),
        (["-n", "all"], {"machine": "fat"}, "the study has no machine 'fat': it names thin-1, thin-2, wide"),
        (
            ["-n", "all"],
            {"machines": {"thin": {"partition": "thin", "nodes": 3}}},
            "3 of its nodes are needed, and 2 work",
        ),
        (
            ["-n", "all"],
            {
                "machines": {"thin": {"partition": "thin"}},
                **GROUPS,
                "distributed": {"network": "slurm", "workers": 3},
            },
            "thin: 3 of its nodes are needed, and 2 work",
        ),
    ],
)
def test_bad_input_is_one_line(plan, words, changed, says):
    status, said = plan(*words, **changed)
    assert status and "Traceback" not in said
    (told,) = [line for line in said.splitlines() if line.strip().startswith("tare: ")]
    assert says in told
