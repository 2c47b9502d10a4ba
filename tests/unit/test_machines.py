"""Compute nodes that a study names: how they are given, which a run takes, what Slurm is asked and told."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from project import ROOT
from snakemake_executor_plugin_slurm.submit_string import get_submit_command

from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.machine import cluster, facts
from tare.model.machines import FOUND, MACHINE
from tare.model.studies import checks, layout, loading, machines

SINFO = """n1|32|64000|(null)|infinite|icelake,ssd|idle
n2|32|64000|(null)|infinite|milan|alloc
g1|64|64000|gpu:a100:4|1-02:00:00|milan,ssd|drain*
n1|32|64000|(null)|30:00|icelake,ssd|idle
"""


def asked(**words):
    return machines.Nodes(**words)


def resources(nodes, expected_s, folder=Path("/nowhere")):
    machine = machines.Measured(kind="thin", nodes=nodes)
    (node,) = cluster.placed({"thin": machine}, {"thin": folder / "node.json"}, ["thin"]).values()
    return cluster.resources(machine, node, expected_s)


def places(tmp_path, wanted=None, **named):
    """Names of the nodes that machines get whose places are written in a folder, and are written there."""
    found = machines.measured(named)
    files = {name: tmp_path / f"{name}.json" for name in found}
    nodes = cluster.placed(found, files, wanted or list(found))
    for name, node in nodes.items():
        cluster.Place(node=node.name).write(files[name])
    return {name: node.name for name, node in nodes.items()}


@pytest.fixture
def told(monkeypatch, tmp_path):
    """Has sinfo answer what a test says, and notes how it was asked."""

    def answer(text, status=0):
        program = tmp_path / "sinfo"
        program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/answer\nexit {status}\n')
        program.chmod(0o755)
        (tmp_path / "answer").write_text(text)
        (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "scontrol").chmod(0o755)
        cluster.nodes_of.cache_clear()
        return tmp_path / "asked"

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    yield answer
    cluster.nodes_of.cache_clear()


def test_a_list_of_partitions_is_short_for_machines_of_their_names():
    config = {**loading.load("config/config.yaml"), "machines": ["Debug_A", "gpu"]}
    found = checks.check(config).machines
    assert {name: nodes.partition for name, nodes in found.items()} == {"debug-a": "Debug_A", "gpu": "gpu"}
    with pytest.raises(UserError, match="one name"):
        checks.check({**config, "machines": ["a-b", "a_b"]})


@pytest.mark.parametrize(
    ("nodes", "key"),
    [
        ({"partition": "-x"}, "partition"),
        ({"constraint": "a;b"}, "constraint"),
        ({"cpus": 0}, "cpus"),
        ({"gpus": -1}, "gpus"),
        ({"minutes": 0}, "minutes"),
        ({"memory_mib": 8}, "memory_mib"),
        ({"scratch": "/tmp"}, "scratch"),
        ({"queue": "x"}, "queue"),
    ],
)
def test_what_sbatch_could_misread_is_refused_by_its_key(nodes, key):
    with pytest.raises(UserError, match=f"machines.*{key}"):
        checks.check({**loading.load("config/config.yaml"), "machines": {"thin": nodes}})


def test_a_run_measures_on_all_machines_or_on_one():
    both = {"thin": asked(nodes=2), "fat": asked()}
    assert machines.chosen({}, "box") == [] and machines.chosen({"thin": asked()}, None) == ["thin"]
    assert machines.chosen(both, None) == ["thin-1", "thin-2", "fat"]
    assert machines.chosen(both, "thin-2") == ["thin-2"]
    with pytest.raises(UserError, match="no machine 'box': it names thin-1, thin-2, fat"):
        machines.chosen(both, "box")


def test_equal_nodes_are_machines_of_one_kind():
    found = machines.measured({"thin": asked(nodes=2), "fat": asked()})
    assert [(name, one.kind, one.number) for name, one in found.items()] == [
        ("thin-1", "thin", 1), ("thin-2", "thin", 2), ("fat", "fat", None),
    ]  # fmt: skip
    with pytest.raises(UserError, match="thin-1 would be two"):
        machines.measured({"thin-1": asked(), "thin": asked(nodes=2)})
    with pytest.raises(UserError, match="drop one of them"):
        checks.check({**loading.load("config/config.yaml"), "machines": {"thin": {"node": "n1", "nodes": 2}}})


def test_a_study_that_leaves_it_open_trains_on_the_device_of_the_nodes():
    assert asked().device == "cpu" and asked(gpus=1).device == "cuda"


def test_the_name_made_of_hardware_is_not_taken_to_other_hardware(monkeypatch):
    monkeypatch.delenv(MACHINE)
    monkeypatch.delenv(FOUND, raising=False)
    monkeypatch.setattr(facts, "_hardware_name", lambda: "front-end")
    assert facts.name_for_jobs(None) == "front-end" and os.environ[MACHINE] == os.environ[FOUND] == "front-end"
    assert facts.name_for_jobs(None) == "front-end", "a job on the same machine"
    monkeypatch.setattr(facts, "_hardware_name", lambda: "node")
    with pytest.raises(UserError, match="sent to node"):
        facts.name_for_jobs(None)
    monkeypatch.setenv(MACHINE, "front-end")
    monkeypatch.setenv(FOUND, "front-end")
    assert facts.name_for_jobs("thin") == "thin" == os.environ[MACHINE] and FOUND not in os.environ
    monkeypatch.setenv(MACHINE, "given")
    assert facts.name_for_jobs(None) == "given" and FOUND not in os.environ


def test_nodes_are_read_as_sinfo_tells_them():
    first, _, device, again = cluster.read_sinfo(SINFO)
    assert (first.name, first.cpus, first.gres, first.minutes) == ("n1", 32, "", None)
    assert first.features == ("icelake", "ssd") and first.works and not device.works
    assert (device.cpus, device.gres, device.minutes) == (64, "gpu:a100:4", 26 * 60)
    assert again.minutes == 30
    lines = [f"n|1|64000|(null)|{limit}|(null)|idle" for limit in ("05:30", "2:00:00", "n/a")]
    assert [node.minutes for node in cluster.read_sinfo("\n".join(lines))] == [5.5, 120, None]


@pytest.mark.parametrize(
    ("constraint", "left"),
    [
        (None, ["g1", "n1", "n2"]), ("milan", ["g1", "n2"]), ("milan&ssd", ["g1"]), ("icelake|ssd", ["g1", "n1"]),
        ("[icelake|rome]", ["n1"]), ("ssd&(icelake|rome)", ["n1"]), ("(icelake|milan)&ssd", ["g1", "n1"]),
        ("icelake|milan&ssd", ["g1", "n1"]), ("[icelake*1&milan*2]", ["g1", "n1", "n2"]),
        ("[(milan&ssd)*1&icelake*1]", ["g1", "n1"]), ("[a|b]", []), ("milan*2", ["g1", "n2"]),
    ],
)  # fmt: skip
def test_a_constraint_leaves_the_nodes_that_have_its_features(constraint, left):
    """Slurm reads it from left to right."""
    assert [node.name for node in cluster.fitting(cluster.read_sinfo(SINFO), constraint)] == left


@pytest.mark.parametrize("constraint", ["a&", "|a", "(a", "a)", "[a|b", "a b", "a**2", "()", "a(b)"])
def test_a_constraint_that_sbatch_would_refuse_is_refused(constraint):
    with pytest.raises(UserError, match="is no constraint as sbatch takes it"):
        cluster.fitting(cluster.read_sinfo(SINFO), constraint)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("", 0), ("gpu:4", 4), ("gpu:a100:4(S:0-1)", 4), ("gpu:a100:2,gpu:h100:1", 3), ("gpu:1g.5gb:7", 7),
        ("gpu:a100", 1), ("gpu", 1), ("nvme:2", 0), ("shard:gpu:8", 0), ("gpu:2(S:0-1),nvme:1", 2),
    ],
)  # fmt: skip
def test_gpus_are_counted_as_slurm_writes_them(gres, gpus):
    (node, *_) = cluster.read_sinfo(SINFO)
    assert replace(node, gres=gres).gpus == gpus


@pytest.mark.parametrize(
    ("says", "cpus", "memory_mib"),
    [
        (
            "NodeName=n1 CPUAlloc=0 CPUEfctv=30 CPUTot=32 CoreSpecCount=1 CPUSpecList=0-1 MemSpecLimit=4000",
            30,
            60000,
        ),
        ("NodeName=n1 CPUAlloc=0 CPUTot=32 ThreadsPerCore=2 CoreSpecCount=2 OS=Linux 5.4 #1 SMP", 28, 64000),
        ("NodeName=n1 CPUAlloc=0 CPUTot=32 RealMemory=64000", 32, 64000),
        ("slurm_load_node error: Unable to contact", 32, 64000),
    ],
)
def test_a_job_asks_for_no_more_than_slurm_gives_to_jobs(told, tmp_path, says, cpus, memory_mib):
    told("n1|32|64000|(null)|infinite|a|idle\n")
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/shown\necho '{says}'\n")
    (tmp_path / "scontrol").chmod(0o755)
    found = resources(asked(), 60)
    assert (found["cpus_per_task"], found["mem_mb"]) == (cpus, memory_mib)
    assert (tmp_path / "shown").read_text() == "--oneliner show node n1\n"
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    assert resources(asked(), 60)["mem_mb"] == 64000


def test_a_job_on_a_node_that_failed_is_not_excluded_from_it(told):
    """The plugin puts `--exclude=n1` before what is asked for: of an option that is given twice the last counts."""
    told("n1|32|64000|(null)|infinite|a|idle\n")

    class Given(dict):
        __getattr__ = dict.__getitem__

    words = SimpleNamespace(resources=Given(resources(asked(), 60)), threads=1, is_group=lambda: False)
    given = {
        "run_uuid": "1",
        "slurm_logfile": "log",
        "comment_str": "",
        "account": "",
        "partition": "",
        "workdir": "",
    }
    call = get_submit_command(words, given, failed_nodes={"n1"})
    assert call.index(" --exclude=n1 ") < call.index("--nodelist=n1 --exclude=") and call.endswith("--exclude=")


def test_a_job_is_sent_as_the_study_says_and_takes_a_node_whole(told):
    question = told("n1|32|64000|gpu:2|2:00:00|(null)|idle\nn2|32|64000|gpu:2|2:00:00|(null)|idle\n")
    nodes = asked(partition="thin", account="mine", qos="long", node="n1", gpus=2)
    found = resources(nodes, 600.0)
    assert {"--partition=thin", "--nodes=n1", "--Node"} <= set(question.read_text().split())
    assert found == {
        "slurm_partition": "thin", "slurm_account": "mine", "qos": "long", "gpu": 2, "cpus_per_task": 32,
        "runtime": 30, "slurm_extra": "--exclusive --nodelist=n1 --exclude=", "mem_mb": 64000,
    }  # fmt: skip
    assert resources(asked(cpus=8), 600.0) == {
        "cpus_per_task": 8, "runtime": 30, "slurm_extra": "--exclusive --nodelist=n1 --exclude=", "mem_mb": 64000,
    }  # fmt: skip


def test_without_a_partition_a_machine_is_of_the_default_one(told, tmp_path):
    told("")
    (tmp_path / "sinfo").write_text(
        "#!/bin/sh\ncase \"$*\" in *--format=%P*) printf 'short\\nlong*\\ngpu\\n' ;;\n"
        "*--partition=long*) echo 'n1|32|64000|(null)|infinite|a|idle' ;;\n"
        "*--partition=short*) echo 'n1|32|64000|(null)|1:00|a|idle' ;;\n"
        "*) printf 'n1|32|64000|(null)|infinite|a|idle\\nn1|32|64000|(null)|1:00|a|idle\\n'\n"
        "echo 'n0|64|64000|gpu:2|infinite|a|idle' ;;\nesac\n"
    )
    found = resources(asked(), 600.0)
    assert (found["runtime"], found["slurm_extra"]) == (30, "--exclusive --nodelist=n1 --exclude=")
    with pytest.raises(UserError, match="11 minutes, but the limit there is 1 min"):
        resources(asked(partition="short", node="n1"), 601)


def test_a_job_gets_the_memory_that_is_asked_for(told):
    told("n1|32|64000|(null)|infinite|a|idle\n")
    assert resources(asked(memory_mib=4000), 60)["mem_mb"] == 4000


NODES = "".join(f"n{number}|32|64000|(null)|infinite|a|{{}}\n" for number in (1, 2, 3))


def test_a_machine_is_one_node_an_idle_one_first_and_stays_it(told, tmp_path):
    told(NODES.format("alloc", "idle", "idle"))
    assert places(tmp_path, thin=asked()) == {"thin": "n2"}
    told(NODES.format("idle", "mix", "idle"))
    assert places(tmp_path, thin=asked()) == {"thin": "n2"}, "what was written counts"
    several = dict.fromkeys(("thin", "fat", "wide", "more"), asked())
    assert places(tmp_path, **several) == {"thin": "n2", "fat": "n1", "wide": "n3", "more": "n1"}


def test_a_machine_of_groups_is_a_set_of_nodes_and_a_job_takes_as_many_as_train(told, tmp_path):
    told(NODES.format("alloc", "idle", "idle"))
    machine, file = machines.Measured(kind="thin", nodes=asked(partition="thin")), {"thin": tmp_path / "thin.json"}
    (node,) = cluster.placed({"thin": machine}, file, ["thin"], 2).values()
    assert (node.name, node.others) == ("n2", ("n3",))
    cluster.Place(node=node.name, others=node.others).write(file["thin"])
    (more,) = cluster.placed({"thin": machine}, file, ["thin"], 3).values()
    assert (more.name, more.others) == ("n2", ("n3", "n1")), "those that it has stay"
    (fewer,) = cluster.placed({"thin": machine}, file, ["thin"]).values()
    assert fewer.others == ("n3",)
    alone, both = cluster.resources(machine, node, 60.0, 1), cluster.resources(machine, node, 60.0, 2)
    assert both == {
        "slurm_partition": "thin", "cpus_per_task": 32, "runtime": 10, "mem_mb": 64000, "nodes": 2, "tasks": 2,
        "slurm_extra": "--exclusive --nodelist=n2,n3 --exclude=",
    }  # fmt: skip
    assert alone == {**both, "nodes": 1, "tasks": 1, "slurm_extra": "--exclusive --nodelist=n2 --exclude="}
    devices = replace(machine, nodes=asked(partition="thin", gpus=4))
    on_gpus = cluster.resources(devices, replace(node, gres="gpu:4"), 60.0, 2)
    assert on_gpus["gres"] == "gpu:4" and not {"gpu", "tasks"} & set(on_gpus), "of each node"
    told(NODES.format("alloc", "idle", "down*"))
    with pytest.raises(UserError, match=r"its node n3 is down\*"):
        cluster.placed({"thin": machine}, file, ["thin"], 2)
    assert cluster.placed({"thin": machine}, file, ["thin"])["thin"].others == ("n3",), "one that is not needed now"
    told(NODES.format("idle", "idle", "idle").splitlines(keepends=True)[0])
    with pytest.raises(UserError, match="2 of its nodes are needed, and 1 work"):
        cluster.placed({"thin": machine}, {"thin": tmp_path / "none.json"}, ["thin"], 2)


@pytest.fixture
def in_checkout(told, tmp_path, monkeypatch):
    """Gives the nodes of a study's machines, which it notes as the workflow does, in one checkout."""
    monkeypatch.chdir(tmp_path)

    def nodes(study, size=1, **named):
        found = machines.measured(named)
        files = {name: layout.place_record(study, name) for name in found}
        chosen = cluster.placed(found, files, list(found), size, layout.place_records)
        for name, node in chosen.items():
            cluster.note(name, cluster.Place(node=node.name, others=node.others), files[name], layout.place_records)
        return {name: [node.name, *node.others] for name, node in chosen.items()}

    return nodes


def test_one_name_is_one_node_in_all_studies_of_a_checkout(in_checkout, told):
    told(NODES.format("idle", "alloc", "idle"))
    assert in_checkout("first", compute=asked()) == {"compute": ["n1"]}
    told(NODES.format("alloc", "idle", "idle"))
    assert in_checkout("second", compute=asked(), other=asked()) == {"compute": ["n1"], "other": ["n2"]}
    assert in_checkout("third", size=2, compute=asked()) == {"compute": ["n1", "n2"]}
    assert in_checkout("first", size=3, compute=asked()) == {"compute": ["n1", "n2", "n3"]}
    assert in_checkout("second", compute=asked()) == {"compute": ["n1", "n2", "n3"]}


@pytest.mark.parametrize(
    ("states", "nodes", "says"),
    [
        (
            "idle",
            asked(node="n2"),
            "was measured on n1, and the study now names n2: .* another name: results/.*/first",
        ),
        (
            "down",
            asked(),
            "its node n1 is down: wait for it; to begin on another node, give the machine another name",
        ),
        (None, asked(partition="b"), "no longer has its node n1 in partition b: .* give the machine another name"),
    ],
)
def test_a_name_that_another_study_has_for_another_node_is_refused(in_checkout, told, states, nodes, says):
    told(NODES.format("idle", "alloc", "alloc"))
    in_checkout("first", thin=asked())
    told(NODES.format(states, "idle", "idle") if states else "n2|32|64000|(null)|infinite|a|idle\n")
    with pytest.raises(UserError, match=says):
        in_checkout("second", thin=nodes)
    assert [path.parts[2] for path in layout.place_records("thin")] == ["first"]


def test_two_studies_that_have_chosen_two_nodes_for_a_name_are_refused(in_checkout, told):
    told(NODES.format("idle", "idle", "idle"))
    cluster.Place(node="n1").write(layout.place_record("first", "thin"))
    note = (cluster.Place(node="n2"), layout.place_record("second", "thin"), layout.place_records)
    with pytest.raises(UserError, match="another study has just chosen another node"):
        cluster.note("thin", *note)
    assert not note[1].exists()
    note[0].write(note[1])
    with pytest.raises(
        UserError, match="is n1 in results/campaigns/first/thin, and n2 in results/campaigns/second"
    ):
        in_checkout("third", thin=asked())


def test_machines_of_groups_share_no_node(told, tmp_path):
    told(NODES.format("idle", "idle", "idle"))
    pair = machines.measured({"thin": asked(), "fat": asked()})
    with pytest.raises(UserError, match="fat: all of its working nodes are already used"):
        cluster.placed(pair, {name: tmp_path / name for name in pair}, list(pair), 3)


def test_equal_nodes_are_different_nodes_also_when_one_is_measured_alone(told, tmp_path):
    told(NODES.format("idle", "down*", "idle~"))
    thin = asked(nodes=2)
    assert places(tmp_path, wanted=["thin-2"], thin=thin) == {"thin-2": "n1"}
    assert places(tmp_path, thin=thin) == {"thin-1": "n3", "thin-2": "n1"}
    with pytest.raises(UserError, match="all of its working nodes are already used"):
        places(tmp_path, thin=thin, slim=asked(nodes=2))


@pytest.mark.parametrize(
    ("states", "nodes", "says"),
    [
        (("idle", "drain", "idle"), asked(), "its node n2 is drain: wait for it; to begin on another node, move"),
        (None, asked(), "Slurm no longer has its node n2: to begin on another node, move"),
        (("idle", "idle", "idle"), asked(node="n3"), "was measured on n2, and the study now names n3"),
    ],
)
def test_a_machine_whose_node_is_not_what_it_was_is_refused(told, tmp_path, states, nodes, says):
    told(NODES.format("alloc", "idle", "alloc"))
    assert places(tmp_path, thin=asked()) == {"thin": "n2"}
    told(NODES.format(*states) if states else "n1|32|64000|(null)|infinite|a|idle\n")
    with pytest.raises(UserError, match=says):
        places(tmp_path, thin=nodes)


def test_a_place_that_is_damaged_is_refused(told, tmp_path):
    told(NODES.format("idle", "idle", "idle"))
    (tmp_path / "thin.json").write_text('{"schema": 1, "no')
    with pytest.raises(IntegrityError, match=r"thin\.json"):
        places(tmp_path, thin=asked())


def test_too_few_nodes_that_work_are_refused_with_their_states(told, tmp_path):
    told(NODES.format("idle", "drng", "down*"))
    says = r"2 of its nodes are needed, and 1 work \(n1 is idle, n2 is drng, n3 is down\*\); `sinfo -R` says why"
    with pytest.raises(UserError, match=says):
        places(tmp_path, thin=asked(nodes=2))


@pytest.mark.parametrize(("minutes", "expected_s", "runtime"), [(None, 30, 10), (None, 3600, 120), (90, 3600, 90)])
def test_the_walltime_is_three_times_what_is_expected_within_the_limits(told, minutes, expected_s, runtime):
    told("n1|32|64000|(null)|2:00:00|(null)|idle\n")
    assert resources(asked(minutes=minutes), expected_s)["runtime"] == runtime


@pytest.mark.parametrize(
    ("answer", "nodes", "expected_s", "says"),
    [
        ("", {"partition": "nowhere"}, 60, "no node in partition nowhere"),
        ("", {}, 60, "no node at all"),
        ("n1|32|64000|(null)|10:00|a|idle\n", {"constraint": "b"}, 60, "no node with b"),
        ("n1|32|64000|(null)|10:00|a|idle\n", {}, 601, "11 minutes, but the limit there is 10 min"),
        (
            "n1|32|64000|(null)|10:00|a|idle\n",
            {"memory_mib": 64001},
            60,
            "asks for 64,001, and n1 has 64,000 for jobs: ask",
        ),
        ("n1|32|64000|(null)|10:00|a|idle\n", {"cpus": 33}, 60, "cpus asks for 33, and n1 has 32 for jobs: ask"),
        ("n1|32|64000|gpu:a100:2|10:00|a|idle\n", {"gpus": 3}, 60, "gpus asks for 3, and n1 has 2 for jobs: ask"),
        ("n1|32|64000|(null)|infinite|a|idle\nn2|64|64000|(null)|infinite|a|idle\n", {}, 60, "32 CPUs; 64 CPUs"),
        (
            "n1|32|64000|(null)|infinite|a|idle\nn2|32|64000|gpu:2|infinite|a|idle\n",
            {},
            60,
            "32 CPUs; 32 CPUs and gpu:2",
        ),
    ],
)
def test_what_the_cluster_has_not_is_refused_before_anything_is_sent(told, answer, nodes, expected_s, says):
    told(answer)
    with pytest.raises(UserError, match=says):
        resources(asked(**nodes), expected_s)


@pytest.mark.parametrize("line", ["n1|32|64000|(null)|infinite|a", "n1|32+|64000|(null)|infinite|a|idle"])
def test_an_answer_of_another_form_is_refused(line):
    with pytest.raises(UnavailableError, match="not a node of the form"):
        cluster.read_sinfo(f"n0|1|64000|(null)|infinite|a|idle\n{line}\n")


def test_the_profile_of_a_cluster_says_of_measuring_what_the_default_one_says():
    files = [ROOT / f"profiles/{name}/profile.yaml" for name in ("default", "slurm")]
    default, slurm = (yaml.safe_load(path.read_text()) for path in files)
    common = default.keys() - {"cores", "executor", "resources"}
    assert {key: slurm.get(key) for key in common} == {key: default[key] for key in common}


def test_one_named_node_may_differ_from_the_others(told):
    told("n2|64|64000|(null)|infinite|a|idle\n")
    assert resources(asked(node="n2"), 60)["cpus_per_task"] == 64


def test_where_no_slurm_answers_it_says_so(told, monkeypatch):
    told("slurm_load_partitions: Unable to contact slurm controller\n", status=1)
    with pytest.raises(UnavailableError, match="sinfo failed"):
        cluster.nodes_of("thin", asked())
    monkeypatch.setenv("PATH", "/nowhere")
    cluster.nodes_of.cache_clear()
    with pytest.raises(UnavailableError, match="login node"):
        cluster.nodes_of("thin", asked())
