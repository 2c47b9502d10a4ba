"""A study's jobs of the user's own: what is asked for, what is planned and measured, and what pages say of them."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import builders
import campaign_builders
import pages
import pytest
import yaml

from tare import report
from tare.analysis import extract
from tare.analysis.plans import expected, minutes
from tare.analysis.reported_steps import FEWEST_STEPS, WARMUP_STEPS
from tare.cli.main import main
from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root, sha256_text, write_text
from tare.model import closure
from tare.model.journals.sealed import read_sealed
from tare.model.studies import campaigns, checks, loading, own_jobs, stamps, study
from tare.model.studies.layout import campaign_name
from tare.model.studies.study import CommandPart
from tare.report import figures
from tare.report.evidence import gather
from tare.report.own_jobs import no_steps
from tare.report.sections import SECTIONS
from tare.weigh import studied
from tare.weigh.variables import chosen, without_folder

NAMES = ("host", "host.control", "docker", "apptainer")
ROUNDS = "rounds.apptainer+docker+host"


def job(folder="/job", **more):
    images = {"docker": "my/image:tag --cpus 2", "apptainer": "job.sif"}
    return {"command": ["python", "train.py", "--epochs", "1"], "folder": str(folder), "images": images, **more}


def config(*dropped, **jobs):
    """The default study in three environments, with these jobs of the user's own, without `dropped` networks."""
    base = loading.load(project_root() / "config/config.yaml")
    change = {
        "study": "mine",
        "environments": ["host", "docker", "apptainer"],
        "workloads": {**dict.fromkeys(dropped), **(jobs or {"train_mine": job()})},
    }
    return loading.merge(base, change)


NETWORKS = ("mnist_cnn", "sentiment_rnn")


def alone(**jobs):
    return checks.check(config(*NETWORKS, **jobs))


def test_own_jobs_stand_beside_tares_networks_or_alone():
    beside, only = checks.check(config()), alone()
    assert list(beside.workloads) == list(NETWORKS) and not only.workloads
    assert list(beside.own_jobs) == list(only.own_jobs) == ["train_mine"]
    assert beside.measured == (*NETWORKS, "train_mine")
    for one in (beside, only):
        assert checks.check(one.to_json()) == one, "as its jobs are handed it"
    (own,) = campaigns.campaigns(only)
    assert (own.kind, own.part, own.name, own.stack) == ("rounds", "command", ROUNDS, own_jobs.OWN_IMAGES)
    assert own in campaigns.campaigns(beside) and own in campaigns.headlines(beside)
    networks = [one for one in campaigns.campaigns(beside) if not one.is_command]
    assert networks == list(campaigns.campaigns(checks.check(config(train_mine=None)))), "theirs stay as they are"


def test_its_part_has_all_that_it_depends_on_and_no_more():
    whole = checks.check(config(train_mine=job(), other=job("/other")))
    part = json.loads(study.part_of(whole, "command", "train_mine"))
    assert list(part["own_jobs"]) == ["train_mine"] and not {"workloads", "stack", "causes"} & set(part)
    assert "steps" not in part["rounds"], "no step of Tare's own is measured of it"
    assert loading.load_part(CommandPart, json.dumps(part)).own_jobs["train_mine"].command[0] == "python"
    for kind in ("rounds", "causes", "sweep", "profile"):
        assert "own_jobs" not in json.loads(study.part_of(whole, kind, "mnist_cnn"))


def test_a_choice_is_what_weigh_takes(tmp_path):
    own = alone(train_mine=job(tmp_path)).own_jobs["train_mine"]
    docker, apptainer = own.choice("docker"), own.choice("apptainer")
    assert (docker.image, docker.options) == ("my/image:tag", ("--cpus", "2"))
    assert apptainer.image == str(tmp_path / "job.sif"), "a path counts from the job's folder"
    assert own.choice("host").runtime == "host"
    images = {"docker": "a", "apptainer": "docker://a", "host": "venv=.venv"}
    own = alone(train_mine=job(tmp_path) | {"images": images}).own_jobs["train_mine"]
    assert own.choice("apptainer").image == "docker://a"
    host = own.choice("host")
    assert (host.name, host.runtime, host.image) == ("host", "venv", str(tmp_path / ".venv"))


WRONG = [
    ({"train_mine": {"folder": "/job"}}, "workloads: train_mine: command missing"),
    ({"train_mine": job(command="python train.py")}, "workloads: train_mine: command: it is a list of words"),
    ({"train_mine": job(command=[])}, "workloads: train_mine: command: [] must not be empty"),
    ({"train_mine": job(command=["python", 1])}, "workloads: train_mine: command: 1: 1 must be text"),
    ({"train_mine": {"command": ["a"]}}, "workloads: train_mine: folder missing"),
    ({"train_mine": job(images={"docker": "a"})}, "workloads: train_mine: images: apptainer has no image"),
    ({"train_mine": job(images={"dokcer": "a"})}, "workloads: train_mine: images: no environment 'dokcer'"),
    ({"train_mine": job(images={"host": "a"})}, "workloads: train_mine: images: host: 'a' is no image of a host"),
    ({"train_mine": job(images={"docker": "'a"})}, "workloads: train_mine: images: docker: no closing quotation"),
    (
        {"train_mine": job(images={"docker": "a --name b"})},
        "workloads: train_mine: images: docker: option --name of docker",
    ),
    ({"train_mine": job(batch=64)}, "workloads: train_mine: batch: only Tare's own networks have it"),
    ({"train_mine": job(sweep_batches=[])}, "workloads: train_mine: sweep_batches: only Tare's own networks"),
    ({"train_mine": job(comand=[])}, "workloads: train_mine: unknown key 'comand': did you mean 'command'?"),
    ({"train_mine": job(steps="(")}, "workloads: train_mine: steps: '(' is no regular expression"),
    ({"mnist_cnn": job()}, "workloads: mnist_cnn: command: it is the name of one of Tare's own networks"),
    ({"Mine": job()}, "workloads: 'Mine' must be lower-case letters, digits and hyphens"),
]


@pytest.mark.parametrize(("jobs", "says"), WRONG)
def test_what_is_wrong_is_told_in_one_line(jobs, says):
    with pytest.raises(UserError) as told:
        checks.check(config(**jobs))
    assert str(told.value).startswith(f"config: {says}") and "\n" not in str(told.value)


def test_an_environment_that_starts_no_image_of_a_user_is_told():
    with pytest.raises(UserError, match=r"train_mine: images: a command can't be run in vm: those that can are"):
        checks.check(config() | {"environments": ["host", "vm"]})


def test_a_study_that_measures_nothing_is_refused():
    with pytest.raises(UserError, match=r"workloads: \{\} must not be empty"):
        checks.check(config(*NETWORKS, train_mine=None))


def test_what_is_not_on_this_machine_is_told_before_anything_runs(tmp_path):
    lost = job(tmp_path / "lost")
    for change, says in (
        (lost, f"workloads: mine: folder: there is no folder {tmp_path}/lost"),
        (job(tmp_path), f"workloads: mine: images: apptainer: there is no {tmp_path}/job.sif"),
        (job(tmp_path, binds=["/nowhere"]), "workloads: mine: binds: bind '/nowhere': there is no /nowhere"),
    ):
        whole = alone(mine=change)
        if "binds" in change:
            (tmp_path / "job.sif").touch()
        with pytest.raises(UserError) as told:
            own_jobs.refuse_missing(whole.own_jobs, whole.environments)
        assert str(told.value) == says


def test_files_that_its_command_names_are_what_it_depends_on(tmp_path):
    (tmp_path / "train.py").write_text("pass")
    own = alone(mine=job(tmp_path)).own_jobs["mine"]
    assert own.named_files() == {"train.py": sha256_text("pass")}


def test_sources_of_a_job_are_those_of_its_folder_and_no_packages(tmp_path):
    own = alone(mine=job(tmp_path)).own_jobs["mine"]
    (tmp_path / "train.py").write_text("import model")
    before = own.sources_sha256()
    for name in ("log.txt", ".git/hook.py", "__pycache__/train.py", "venv/lib/numpy.py", "data/numbers.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("other")
    (tmp_path / "venv/pyvenv.cfg").touch()
    assert own.sources_sha256() == before
    (tmp_path / "package").mkdir()
    (tmp_path / "package/model.py").write_text("layers = 2")
    two = own.sources_sha256()
    (tmp_path / "package/model.py").write_text("layers = 3")
    assert len({before, two, own.sources_sha256()}) == 3
    (tmp_path / "package/model.py").rename(tmp_path / "package/net.py")
    assert own.sources_sha256() not in (before, two)


def test_code_of_a_command_is_that_of_weigh_and_nothing_of_the_worker():
    found = closure.measurement("command", None, ["host", "docker"])
    assert {"tare/weigh/studied.py", "tare/weigh/job.py", "tare/weigh/hook/sitecustomize.py"} <= set(found)
    assert "envs/docker.py" in found and "tare/worker/train.py" not in found
    assert "tare/weigh/job.py" not in closure.measurement("rounds", "mnist_cnn", ["host", "docker"])


def test_what_it_is_expected_to_take():
    only, beside = alone(), checks.check(config())
    assert [rule for rule, _ in expected.jobs(only)] == ["run_command"]
    rules = [rule for rule, _ in expected.jobs(beside)]
    assert rules.count("run_command") == 1 and rules.count("run_rounds") == 2
    (seconds,) = (seconds for _, seconds in expected.jobs(only))
    assert seconds >= only.rounds.budget_s
    assert 0 < expected.whole_s(only) < expected.whole_s(beside)
    longer = minutes.planned(only, 30, Path("nowhere"), 0.0)
    assert list(longer.chosen) == ["train_mine"] and longer.chosen["train_mine"].budget_s > seconds
    assert only.only("train_mine") == only and list(beside.only("mnist_cnn").measured) == ["mnist_cnn"]


def test_the_python_of_the_workflow_is_not_the_jobs():
    variables = {"PATH": "/tare/bin:/usr/bin", "VIRTUAL_ENV": "/tare", "LANG": "C"}
    assert without_folder(variables, Path("/tare/bin")) == {"PATH": "/usr/bin", "LANG": "C"}
    assert without_folder({"PATH": "/usr/bin"}, Path("/tare/bin")) == {"PATH": "/usr/bin"}


def test_numbers_of_threads_and_processes_go_on_to_the_job():
    """Of Joblib's processes, Numba, and the tokenizers of transformers."""
    own = {"LOKY_MAX_CPU_COUNT": "1", "NUMBA_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    assert chosen({**own, "EDITOR": "vi"}) == (own, ("EDITOR",))


STEPPING = """
import time
for _ in range(12):
    sum(k * k for k in range(50_000))
    print("step", flush=True)
"""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Measures a job on the host alone, in two rounds; gives the campaign."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))

    def measure(source=STEPPING, **more):
        (tmp_path / "train.py").write_text(source)
        whole = checks.check(
            loading.merge(
                config(*NETWORKS, mine=job(tmp_path, **more) | {"command": [sys.executable, "train.py"]}),
                {"environments": ["host"], "rounds": {"units": 2}},
            )
        )
        out = Path("results/campaigns/mine/box/mine/rounds.host/sealed.json")
        studied.measure(study.part_of(whole, "command", "mine"), "mine", ["host"], out)
        return whole, read_sealed(out)

    return measure


def test_it_is_measured_as_a_campaign_of_the_study(measured):
    whole, found = measured(steps="step")
    plan = found.plan
    assert (plan.kind, plan.study, plan.workload, plan.stack) == ("rounds", "mine", "mine", "own")
    assert plan.is_command and plan.discarded == 1 and len(found.counted) == 2
    assert plan.margins == dict(whole.margins) and plan.part == study.reduced(whole.to_json(), "command", "mine")
    assert list(plan.provenance["files"]) == ["train.py"]
    assert not stamps.departures(stamps.stamp_of(whole, "2026-01-02T03:04:05Z", None), plan)
    rows = extract.build([found.path], [])["metrics"]
    host = rows[(rows["launch"] == "host") & (rows["kind"] == "measured")]
    own = host.pivot_table(index="rep", columns="metric", values="value")
    parts = own[["runtime_start_s", "program_s", "exit_s"]].sum(axis=1)
    assert (abs(parts - own["real_s"]) < 1e-6).all(), "its parts are the whole run"
    assert (own["reported_step_s"] * (12 - WARMUP_STEPS) < own["program_s"]).all()
    assert {"before_steps_s", "after_steps_s"} <= set(own) and set(rows["stack"]) == {"own"}


def test_a_job_that_fails_on_the_host_ends_with_its_own_last_line(measured):
    with pytest.raises(UnavailableError, match=r"the job fails in host, .* ended with status 1: no data"):
        measured("raise SystemExit('no data')")


def test_the_command_names_a_job_that_the_study_has(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config(*NETWORKS)))
    words = ["--workload", "train_mines", "--environments", "host", "--out", "sealed.json"]
    assert main(["command", "--study", "mine.yaml", *words]) == UserError.exit_code
    assert "no workload 'train_mines': did you mean 'train_mine'?" in capfd.readouterr().err


# --- pages


def launch(seconds, steps):
    """A run of a command, with steps behind its first half."""
    spawn_ns = 1_000_000_000
    end_ns = spawn_ns + round(seconds * 1e9)
    half_ns = (spawn_ns + end_ns) // 2
    ends = [half_ns + round(number * seconds * 1e7) for number in range(steps)]
    told = {"teller": "mark", "ends_ns": ends} if steps else {"teller": None, "ran": False}
    return {
        **{"status": "ok", "reason": None, "program": "command", "exit_status": 0, "argv": ["python", "train.py"]},
        **{"spawn_ns": spawn_ns, "end_ns": end_ns, "deviations": [], "steps": told},
    }


def own_campaign(root, name="mine", workload="train_mine", steps=0, name_of=ROUNDS):
    """A sealed campaign in which docker takes 0.4 s longer than 2 s, of six rounds in slices."""
    plan = campaign_builders.base_plan(name, workload, "rounds", NAMES, 6) | {
        "spec": {"mode": "command", "command": {"argv": ["python", "train.py"], "workdir": "/job"}},
        "stack": own_jobs.OWN_IMAGES,
        "provenance": {
            "control": {"files": "shared", "reason": studied.ONE_COPY},
            "images": {"host": {"digest": None, "text": "host"}, "docker": {"digest": "sha256:" + "ab" * 32,
                       "text": "docker=my/image:tag"}},
            "files": {"train.py": "cd" * 32},
        },
    }  # fmt: skip
    rows = []
    for number in range(7):
        seconds = {"host": 2.0, "host.control": 2.001, "docker": 2.4, "apptainer": 2.01}
        moved = 0.002 * (number % 3)
        launches = {each: launch(own + moved, steps) for each, own in seconds.items()}
        unit = campaign_builders._unit(number, NAMES, launches, 20.0)
        rows.append(campaign_builders.in_slices(unit) if number else unit)
    folder = root / "campaigns" / name / campaign_builders.MACHINE / workload / name_of
    campaign_builders.write_campaign(folder, plan, rows)
    return folder / "sealed.json"


@pytest.fixture(scope="module")
def of_commands(tmp_path_factory):
    """Results of a study of one command, and the study."""
    root = tmp_path_factory.mktemp("own") / "results"
    sealed = own_campaign(root, steps=FEWEST_STEPS)
    made = extract.build([sealed], [])
    extract.write(made, root / "tables")
    builders.machine_records(root, root, ["host", "docker", "apptainer"], {})
    own, headline = figures.joint(made["metrics"]), figures.joint(made["verdicts"])
    drawn = {
        "split": figures.split(own, ["train_mine"]),
        "intervals_train_mine": figures.intervals(headline, "train_mine"),
        "units_train_mine": figures.units(own, "train_mine"),
    }
    for name, drawing in drawn.items():
        figures.write(drawing, root / f"figures/{name}.svg")
    return root, alone(), made


def test_tables_of_a_command_have_verdicts_and_decisions(of_commands):
    _, _, made = of_commands
    verdicts = made["verdicts"].set_index(["metric", "launch"])
    assert set(made["verdicts"]["metric"]) == {
        *("real_s", "runtime_start_s", "program_s", "exit_s"),
        *("before_steps_s", "reported_step_s", "after_steps_s"),
    }
    docker, apptainer = verdicts.loc[("real_s", "docker")], verdicts.loc[("real_s", "apptainer")]
    assert docker["verdict"] == "different" and docker["ratio"] == pytest.approx(1.2, rel=0.01)
    assert apptainer["verdict"] in ("equivalent", "different within margin")
    assert docker["role"] == "primary" and docker["sliced"] and verdicts.loc[("program_s", "docker")]["ratio"] > 1
    decided = made["decisions"].set_index(["metric", "launch"]).loc[("real_s", "docker")]
    assert (decided["cause"], decided["cause_what"]) == ("phase", "program_s")
    assert made["job_length"].empty


def test_pages_of_a_study_of_commands_say_what_there_is_and_why_the_rest_is_not(of_commands, tmp_path):
    root, own, _ = of_commands
    index = report.build(root, root, json.dumps(own.to_json()), tmp_path / "report/index.html")
    text = {path.stem: pages.visible(path.read_text()) for path in index.parent.glob("*.html")}
    assert "train_mine" in text["index"] and "different" in text["index"]
    lacked = [section for section in SECTIONS if section.lacks]
    for section in lacked:
        assert own_jobs.NOT_OF_COMMANDS[section.lacks] in text[section.page], section.name
    assert own_jobs.NOT_OF_COMMANDS["conditions"] in text["machine"]
    assert "python train.py" in text["method"] and "docker=my/image:tag" in text["method"]
    assert {section.lacks for section in lacked} | {"conditions"} == set(own_jobs.NOT_OF_COMMANDS)
    assert "torch-2.13" not in text["machine"] and "batches that are already in memory" not in text["environments"]


def test_why_a_command_has_no_steps_is_said(of_commands, tmp_path):
    root, own, _ = of_commands
    found = gather(root, root, json.dumps(own.to_json()))
    assert len(no_steps(found)) == 1, "the study asks for none"
    asked = own.own_jobs["train_mine"].replace(steps="auto")
    found = replace(found, study=own.replace(own_jobs={"train_mine": asked}))
    assert no_steps(found) == []


def test_pages_of_networks_and_a_command_have_both(tmp_path):
    """Of results of a study a copy, with one more job."""
    root = builders.build_results(tmp_path / "results")
    environments = [*builders.ENVIRONMENTS, *builders.UNAVAILABLE]
    own_campaign(root, "nyu2022", name_of=campaign_name("rounds", environments))
    campaigns = list(root.glob("campaigns/nyu2022/*/*/*/sealed.json"))
    profiles = list(root.glob("profiles/nyu2022/*/*/*/profile.json"))
    extract.write(extract.build(campaigns, profiles), root / "tables")
    pages.draw(root)
    for name in ("intervals_train_mine", "units_train_mine"):
        write_text(root / f"figures/{name}.svg", pages.stand_in(name))
    base = loading.load_checked(builders.STUDY)
    own = {"train_mine": job() | {"images": dict.fromkeys(environments[1:], "an-image")}}
    whole = checks.check(base.to_json() | {"workloads": {**base.to_json()["workloads"], **own}})
    found = gather(root, root, json.dumps(whole.to_json()))
    assert found.workloads == [*NETWORKS, "train_mine"] and found.networks == list(NETWORKS)
    assert [one.workload for one in found.campaigns if one.plan.is_command] == ["train_mine"]
    index = report.build(root, root, json.dumps(whole.to_json()), tmp_path / "report/index.html")
    text = {path.stem: pages.visible(path.read_text()) for path in index.parent.glob("*.html")}
    for section in (section for section in SECTIONS if section.lacks):
        assert own_jobs.NOT_OF_COMMANDS[section.lacks] in text[section.page], section.name
    assert "train_mine" in text["index"] and "byte for byte" in text["method"] and "my/image" in text["method"]
