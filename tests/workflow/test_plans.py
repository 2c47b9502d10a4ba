"""The workflow without a study that has run: format, lint, plans, edits, locks, wrong settings."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from project import PROFILE, ROOT, ROUNDS, code_blocks, copy_checkout, snakemake, take_for_done, tare

from tare.experiments.alone import LOCKS
from tare.model.journals.sealed import read_sealed
from tare.model.studies.campaigns import profiled_stacks
from tare.model.studies.loading import load_checked
from tare.model.studies.sections import DataChoices

pytestmark = pytest.mark.workflow
MACHINE_RECORD = "results/machines/box/machine.json"  # conftest.py names the machine

# Findings of `snakemake --lint` that we accept, with the reason.
ACCEPTED_LINTS = {
    "Specify a conda environment or container for each rule": "environments are measured: adapters launch them",
    "Mixed rules and functions in same snakefile": "common.smk holds the helpers of all rule files",
    "Environment variable PATH used but not asserted": "the Python of the rules is put before what is there",
    "Path composition with '+'": "of commands and messages: what is added says which machine",
    "Environment variable PYTHONPATH used but not asserted": "so is the checkout, where it runs elsewhere",
}


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of the project in a path with a space."""
    return copy_checkout(tmp_path_factory.mktemp("with space") / "tare")


def test_snakefiles_are_formatted():
    files = [str(ROOT / "Snakefile"), *map(str, sorted((ROOT / "rules").glob("*.smk")))]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("snakefmt")), "--check", *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_lint_finds_nothing_but_what_we_accept(checkout):
    done = snakemake(checkout, "--lint", check=False)
    found = re.findall(r"^    \* (.*?):?$", done.stdout + done.stderr, re.MULTILINE)
    assert found, "lint printed nothing: its form has changed"
    assert not [line for line in found if not line.startswith(tuple(ACCEPTED_LINTS))]


PROFILED = "modak2020-resnet50"  # the study that profiles its stacks
IMAGES = ("columbia2025", "nthu2018", "nthu2018-kvm")
PRESETS = ("config", "smoke", "full", "thorough", "sequences", "modak2020", PROFILED, *IMAGES)
STACK_PROFILE = "profiled launch in host.stack-"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_plans(checkout, preset):
    done = snakemake(checkout, "-n", "--cores", "1", "all", "--configfile", f"config/{preset}.yaml")
    said = done.stdout + done.stderr
    assert ROUNDS in said and "turns" not in said
    wanted = profiled_stacks(load_checked(ROOT / f"config/{preset}.yaml"))
    assert said.count(STACK_PROFILE) == len(wanted) and bool(wanted) == (preset == PROFILED)


def test_rules_of_one_checkout_and_a_package_of_another_are_refused_in_one_line(checkout, tmp_path):
    """As where the environment of another clone is active."""
    done = snakemake(checkout, "-n", "--cores", "1", "all", check=False, PYTHONPATH=str(ROOT))
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in said
    (line,) = [line for line in said.splitlines() if str(checkout.resolve()) in line and str(ROOT) in line]
    assert f"PYTHONPATH='{checkout.resolve()}'" in line
    link = tmp_path / "a link to it"
    link.symlink_to(checkout)
    assert snakemake(link, "-n", "--cores", "1", MACHINE_RECORD, PYTHONPATH=str(link)).returncode == 0


def test_small_jobs_of_a_node_are_one_call_of_sbatch():
    """Nine jobs that measure on each node are four calls, and sinfo is asked once for all nodes."""
    command = [sys.executable, str(ROOT / "benchmarks/cluster_plans.py"), "--nodes", "3"]
    together = {**os.environ, "TARE_SMALL_JOBS": "together"}  # as it is by itself above 200 of them
    done = subprocess.run(command, env=together, capture_output=True, text=True, check=True)
    _, nodes, launches, _, measuring, sent, asked, *_ = done.stdout.splitlines()[-1].split("|")
    assert (int(nodes), int(launches)) == (3, 192)
    assert (int(measuring), int(sent), int(asked)) == (27, 12, 1)


OF_SNAKEMAKE = ("Using ", "Config file ")  # what it says before it reads the rules


def own_lines(done):
    """What was said but for that."""
    return [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(OF_SNAKEMAKE)]


def test_one_environment_touches_nothing_of_the_others(checkout):
    done = snakemake(checkout, "-n", "--cores", "1", "--summary", "docker")
    files = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert any("docker" in name for name in files)
    assert not [name for name in files if any(other in name for other in ("apptainer", "charliecloud", "podman"))]
    assert any("rounds.docker+host/" in name for name in files)
    assert not any("turns." in name for name in files)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config", "enviroments=[host]"], "did you mean 'environments'"),
        (["--config", "seed=-1"], "seed: -1 must be at least 0"),
        (
            ["--config", "turns={units: 4}"],
            "tare: --config: turns: this key has gone: training steps are",
        ),
        (["--config", "environments=[host, dokcer]"], "did you mean 'docker'"),
        (
            ["--configfile", "config/nameless.yaml"],
            "tare: config/nameless.yaml: study missing: its results would be",
        ),
        (["--configfile", "config/mistyped.yaml"], "tare: config/mistyped.yaml: unknown key 'sede'"),
        (["--configfile", "config/wrong.yaml"], "tare: config/wrong.yaml: seed: 'five' must be of type integer"),
        (["-R", "run_round"], "tare: -R: no rule 'run_round': did you mean 'run_rounds'?"),
        (["--omit-from=run_round"], "tare: --omit-from: no rule 'run_round': did you mean 'run_rounds'?"),
        (["--shared-fs-usage", "none"], "tare: --shared-fs-usage: a campaign goes on with files"),
        (["results/nope.json"], "tare: No rule to produce results/nope.json"),
        (["dokcer"], "no environment 'dokcer': did you mean 'docker'"),
        (["podman"], "podman is no environment of the study"),
    ],
)
def test_bad_configuration_is_one_clear_line(checkout, arguments, says):
    files = {
        "nameless": "seed: 5\n",
        "mistyped": "study: mistyped\nsede: 5\n",
        "wrong": "study: wrong\nseed: five\n",
    }
    for name, text in files.items():
        (checkout / f"config/{name}.yaml").write_text(text)
    done = snakemake(checkout, "-n", "--cores", "1", "all", *arguments, check=False)
    for name in files:
        (checkout / f"config/{name}.yaml").unlink()
    (line,) = own_lines(done)
    assert done.returncode != 0 and says in line


PROFILE_OF_A_USER = """
retries: 3
forceall: true
rerun-triggers: [mtime]
rerun-incomplete: false
touch: true
max-checksum-file-size: 0
executor: touch
"""


def test_a_users_own_profile_does_not_change_what_is_measured_and_how_often(checkout, tmp_path):
    path = tmp_path / "profile.yaml"
    words = ("-n", "--cores", "1", MACHINE_RECORD)

    def with_profile(text):
        path.write_text(text)
        return snakemake(checkout, *words, check=False, SNAKEMAKE_PROFILE=str(tmp_path))

    take_for_done(checkout, (MACHINE_RECORD,))
    plain, done = snakemake(checkout, *words), with_profile(PROFILE_OF_A_USER)
    assert done.returncode == 0 and own_lines(done) == own_lines(plain) and "would" not in plain.stdout
    for word in ("forcerun", "--forcerun", "forcer"):
        done = with_profile(f"{word}: [describe_machine]\n")
        (line,) = own_lines(done)
        assert done.returncode != 0
        assert line.startswith(f"tare: {path} says forcerun, which is said of one run, on its command line: ")
    (checkout / MACHINE_RECORD).unlink()


@pytest.mark.parametrize("method", ["conda", "apptainer", "env-modules"])
def test_deployment_by_snakemake_is_without_effect(checkout, method):
    """No rule asks for software: our adapters launch what is measured."""
    plain = snakemake(checkout, "-n", "--cores", "1", MACHINE_RECORD)
    done = snakemake(checkout, "-n", "--cores", "1", MACHINE_RECORD, "--sdm", method)
    assert own_lines(done) == own_lines(plain)


def test_a_data_set_of_ones_own_that_is_refused_is_refused_once(checkout, tmp_path):
    (tmp_path / "set.zip").write_text("no zip")
    chosen = ["--config", f'data={{"tiny_imagenet": "{tmp_path}/set.zip"}}']
    name = DataChoices(sentiment="auto", tiny_imagenet=f"{tmp_path}/set.zip").record_of("tiny_imagenet")
    record, cache = f"results/data/{name}.json", str(tmp_path / "cache")
    done = snakemake(checkout, "--cores", "1", record, *chosen, check=False, TARE_CACHE=cache)
    refused = [line for line in (done.stdout + done.stderr).splitlines() if "is no whole zip" in line]
    assert done.returncode != 0 and len(refused) == 1, done.stdout + done.stderr


def test_an_environment_that_is_called_like_a_rule_is_refused(checkout, tmp_path):
    folder = shutil.copytree(checkout, tmp_path / "copy")
    adapter = (folder / "envs/host.py").read_text().replace('@register("host")', '@register("all")')
    (folder / "envs/all.py").write_text(adapter)
    done = snakemake(folder, "-n", "--cores", "1", "all", "--config", "environments=[host, all]", check=False)
    assert done.returncode != 0
    assert (
        "--config: environments: all is the name of a rule; give envs/all.py another name"
        in done.stderr + done.stdout
    )


@pytest.fixture
def mine(checkout):
    """The study of docs/write-a-study.md in a copy, as its page says."""
    path = checkout / "config/mine.yaml"
    path.write_text(code_blocks("write-a-study.md", "yaml")[0])
    yield checkout
    path.unlink()


def test_every_command_of_the_page_on_studies_does_what_it_says(mine):
    """Dry; of two commands of which one is the beginning of the other, the longer one."""
    assert len(code_blocks("write-a-study.md", "yaml")[0].splitlines()) <= 20
    lines = "\n".join(code_blocks("write-a-study.md", "console")).splitlines()
    commands = {line.split("#")[0].strip() for line in lines if line.startswith("snakemake ")}
    chosen = [one for one in commands if not any(other.startswith(f"{one} ") for other in commands)]
    found = {}
    for command in chosen:
        done = snakemake(mine, *command.split()[1:], *([] if command.endswith(" -n") else ["-n"]))
        found[command] = done.stdout + done.stderr
    text = found["snakemake all --configfile config/mine.yaml -n"]
    assert "write the report" in text and "nyu2022" not in text and "apptainer" not in text
    text = next(text for command, text in found.items() if "--until" in command)
    assert "describe this machine" in text and ROUNDS not in text


MEASUREMENTS = (ROUNDS, PROFILE, "kernels, operators and files", "batch sweep", "measure the ceilings")


SMOKE = ("--cores", "1", "all", "--configfile", "config/smoke.yaml")


def planned(folder, command=SMOKE):
    done = snakemake(folder, "-n", *command)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A copy in which the smoke study is taken for done."""
    folder = copy_checkout(tmp_path_factory.mktemp("finished") / "tare")
    take_for_done(folder, SMOKE)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy", symlinks=True)


def append(path, text="\nEDITED = 1\n"):
    path.write_text(path.read_text() + text)


def test_an_edit_elsewhere_reruns_no_measurement(copied):
    """A plot, a sentence, an arm's definition, an unused setting, a comment, another data set, a touched file."""
    assert "nothing to be done" in planned(copied).lower()
    for name in (
        "report/words/labels.py",
        "report/figures/style.py",
        "model/studies/arms.py",
        "worker/settings/layout.py",
    ):
        append(copied / "tare" / name)
    append(copied / "tare/worker/main.py", "\n# edited\n")
    append(copied / "workloads/mnist_cnn.py", "\n# edited\n")
    append(copied / "workloads/sentiment_rnn.py")
    append(copied / "envs/podman.py")
    for path in [*(copied / "tare/launch").glob("*.py"), *(copied / "workloads").glob("*.py")]:
        path.touch()
    registry = copied / "data/registry.yaml"
    registry.write_text(registry.read_text().replace("title: ", "title: The "))
    text = planned(copied)
    assert "write the report" in text
    assert not [message for message in (*MEASUREMENTS, "fetch and verify") if message in text]


def test_an_edit_of_what_is_run_reruns_what_runs_it(copied):
    (copied / "workloads/helper.py").write_text("ONE = 1\n")
    append(copied / "envs/_engine.py")  # docker imports it, apptainer and the host do not
    text = planned(copied)
    assert ROUNDS in text and "profiled launch in docker" in text and "profiled launch in host" not in text
    append(
        copied / "workloads/mnist_cnn.py",
        "\n\ndef helped():\n    from workloads.helper import ONE\n\n    return ONE\n",
    )
    text = planned(copied)
    assert not [message for message in MEASUREMENTS[:-1] if message not in text]
    assert "profiled launch in host" in text and MEASUREMENTS[-1] not in text  # ceilings train nothing


def test_tables_are_made_after_every_campaign_and_again_after_a_stamp(copied):
    """The table of the ledger lists all campaigns, first starts among them, and mentions stamps."""
    (seal,) = copied.glob("results/campaigns/smoke/*/*/starts.*/sealed.json")
    seal.write_text("{ }")
    assert "extract metrics" in planned(copied), "not without the last campaign, which may have failed before"
    take_for_done(copied, SMOKE)
    assert "nothing to be done" in planned(copied).lower()
    stamps = seal.parents[2] / "stamps"
    stamps.mkdir()
    (stamps / "0123456789abcdef.json").write_text("{}")
    text = planned(copied)
    assert "extract metrics" in text and not [message for message in MEASUREMENTS if message in text]


def test_an_arm_that_could_not_compile_is_measured_once_a_compiler_is_there(tmp_path):
    """The copy looks for a compiler that is nowhere; then for those that there are."""
    folder = copy_checkout(tmp_path / "tare")
    study = code_blocks("write-a-study.md", "yaml")[0]
    (folder / "config/mine.yaml").write_text(study.replace("rounds: []", "rounds: [compile=inductor]"))
    command = ("--cores", "1", "all", "--configfile", "config/mine.yaml")
    headers = folder / "tare/images/headers.py"
    theirs = headers.read_text()
    headers.write_text(theirs.replace('("c++", "g++", "clang++")', '("c++-of-nobody",)'))
    assert headers.read_text() != theirs
    take_for_done(folder, command)
    assert "nothing to be done" in planned(folder, command).lower()
    headers.write_text(theirs)
    text = planned(folder, command)
    assert "compile-inductor" in text and "write the report" in text
    assert len(re.findall(rf"^\[?.*{ROUNDS}", text, re.MULTILINE)) == 1


DESCRIBE = ("--cores", "1", MACHINE_RECORD, "--forcerun", "describe_machine")


def test_a_killed_workflow_says_how_it_is_unlocked_and_is_then_carried_on(checkout):
    """SIGKILL leaves Snakemake's lock, as its manual says."""
    running = subprocess.Popen(
        [str(Path(sys.executable).with_name("snakemake")), *DESCRIBE],
        cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list((checkout / ".snakemake/locks").glob("*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.kill()
    running.wait()
    done = snakemake(checkout, *DESCRIBE, check=False)
    (line,) = own_lines(done)
    assert done.returncode != 0 and line.startswith("tare: nothing was done: ") and "--unlock`" in line
    snakemake(checkout, "--unlock")
    done = snakemake(checkout, *DESCRIBE)
    assert "1 job done" in done.stdout + done.stderr


QUICK = """
rule quick:
    output:
        "results/quick/sealed.json",
    log:
        "results/logs/quick.log",
    shell:
        "python tests/quick_campaign.py {{output}} '{notes}' 1 2> {{log}}"
"""


@pytest.mark.timeout(300)
def test_a_second_workflow_beside_the_first_names_it_and_one_in_another_checkout_waits(tmp_path):
    """Both real, with a campaign of launches that sleep until they may end."""
    notes, folders = tmp_path / "notes", [copy_checkout(tmp_path / name) for name in ("one", "other")]
    (tmp_path / "locks").mkdir()
    notes.mkdir()
    (notes / "hold").touch()
    for folder in folders:
        append(folder / "Snakefile", QUICK.format(notes=notes))
    words = ("--cores", "1", "results/quick/sealed.json")

    def begin(folder):
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("snakemake")), *words],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(folder), LOCKS: str(tmp_path / "locks")},
            stdout=(folder / "said").open("wb"), stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def said(folder, words):
        until = time.monotonic() + 120
        while not (found := [line for line in (folder / "said").read_text().splitlines() if words in line]):
            assert time.monotonic() < until, (folder / "said").read_text()
            time.sleep(0.05)
        return found

    one, other = folders
    first = begin(one)
    until = time.monotonic() + 120
    while not (lives := list(notes.glob("alive-*"))) and first.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert lives, (one / "said").read_text()
    (holder,) = (path.name.removeprefix("measuring-") for path in notes.glob("measuring-*"))
    waiting = begin(other)
    second = snakemake(one, *words, check=False)
    lines = (second.stdout + second.stderr).splitlines()
    assert second.returncode != 0 and lines[-1].startswith("tare: nothing was done: a workflow runs"), lines
    (line,) = said(other, "waiting for another process")
    assert f"it measures on this machine (process {holder}, since " in line
    (notes / "hold").unlink()
    assert (first.wait(60), waiting.wait(60)) == (0, 0), (one / "said").read_text() + (other / "said").read_text()
    assert all(len(read_sealed(folder / "results/quick/sealed.json").units) == 2 for folder in folders)
    assert not [path for folder in folders for path in (folder / ".snakemake/locks").glob("*")]


def test_an_unwritable_or_full_place_is_one_line(checkout, tmp_path):
    done = tare(checkout, "machine", "--out", "/proc/nowhere/machine.json")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("tare: ")


def test_the_doctor_tells_all_as_json(checkout):
    done = tare(checkout, "doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    text = json.dumps(found)
    for word in ("docker", "apptainer", "charliecloud", "podman", "torch.profiler", "mnist"):
        assert word in text
