"""The command `tare weigh` as a whole, on the host alone.

Whatever a user may get wrong ends with one line that says what, where, and what to do.
"""

import json
import re
import shlex
import sys
from pathlib import Path

import canaries
import jsonschema
import pytest
import yaml

from tare.cli.main import build_parser, main
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import project_root
from tare.launch.slicing.freezing import state_of
from tare.model.choices import read_choices
from tare.model.journals.sealed import read_sealed
from tare.stats.intervals import Interval
from tare.weigh import gate
from tare.weigh.answer import schema
from tare.weigh.causes import Change, Suspicion
from tare.weigh.conclude import Cost
from tare.weigh.rounds import NO_TERMINAL


@pytest.fixture
def said(tmp_path, monkeypatch, capfd):
    """Weighs in an empty folder, under a lock of its own; gives the exit status and the last line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))

    def weigh(*words, command=("true",), to="weigh"):
        status = main([to, *words, "--", *command] if to == "weigh" else [to, *words])
        told = capfd.readouterr()
        errors = [line for line in told.err.splitlines() if line.startswith("tare: ")]
        assert "Traceback" not in told.err and len(errors) <= 1
        return status, errors[0] if errors else told.out

    return weigh


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--env host --env foo=bar", "--env foo=bar: 'bar' is no runtime"),
        ("", "name what is compared: --env host --env docker=IMAGE"),
        ("--env host --minutes 0", "--minutes 0: it must be above 0"),
        ("--env host --minutes nan", "--minutes nan: it must be above 0"),
        ("--env host --timeout 0", "--timeout 0: it must be above 0"),
        ("--env host --margin 0", "--margin 0: it must be above 0% and below 100%: write it as 2% or 0.02"),
        ("--env host --margin much", "--margin much: it must be above 0%"),
        ("--env host --confidence 100%", "--confidence 100%: it must be above 0% and below 100%: write it as 95%"),
        ("--env host --steps (", "--steps '(': no regular expression"),
        ("--env host --workdir /nowhere", "--workdir /nowhere: there is no such folder"),
        ("--env host --envs /nowhere.yaml", "cannot read the environments /nowhere.yaml"),
        ("--env host --bind /nowhere", "bind '/nowhere': there is no /nowhere"),
        ("--env host --bind /tmp:tmp", "bind '/tmp:tmp': its target tmp has to be an absolute path"),
        ("--env host --setenv NOT_SET_HERE", "--setenv NOT_SET_HERE: this shell has no NOT_SET_HERE"),
        ("--env host --name ../x", "--name '../x': it names a folder"),
        ("--env host --markdown .", "--markdown .: it is a folder: name a file in it"),
        ("--env host --fail-if host>5%", "--fail-if 'host > 5%': no environment host: only the reference"),
        ("--env host --env a=host --fail-if b>5%", "--fail-if 'b > 5%': no environment b: there are a, any"),
        ("--env host --setup false", "--setup 'false' failed: /bin/sh ended with status 1"),
        ("--env venv=/nowhere", "venv=/nowhere: /nowhere has no bin/python"),
        ("--env charliecloud=/nowhere", "charliecloud=/nowhere: /nowhere is not an unpacked image"),
    ],
)
def test_what_is_wrong_before_anything_runs(said, words, says):
    status, line = said(*words.split())
    assert status == UserError.exit_code and line.startswith(f"tare: {says}")


def test_a_weighing_needs_a_job(said):
    status, line = said("--env", "host", command=())
    assert status == 2 and line.startswith("tare: name the job after two hyphens: tare weigh --env")


@pytest.mark.parametrize(
    ("words", "command", "says"),
    [
        ("", ["no-such-command"], "the job fails in host, the reference: no-such-command ended with status 127"),
        (
            "",
            [sys.executable, "-c", "raise SystemExit('no data')"],
            f"the job fails in host, the reference: {sys.executable} ended with status 1: no data",
        ),
        (
            "--timeout 0.3",
            ["sh", "-c", "echo waiting for a lock; sleep 5"],
            "the job takes too long in host, the reference (limit: 0.3 s, --timeout): "
            "host was still running after 0 s of its own time: waiting for a lock",
        ),
        (
            "",
            ["sh", "-c", "echo Temporary failure in name resolution; exit 2"],
            "the job fails in host, the reference: sh ended with status 2: Temporary failure in name resolution "
            "(the job has no network: --network on gives it this machine's)",
        ),
        (
            "--network on",
            ["sh", "-c", "echo Temporary failure in name resolution; exit 2"],
            "the job fails in host, the reference: sh ended with status 2: Temporary failure in name resolution",
        ),
    ],
)
def test_a_job_that_can_not_be_weighed(said, words, command, says):
    status, line = said("--env", "host", *words.split(), command=command)
    assert status == UnavailableError.exit_code and line.startswith(f"tare: {says}")


@pytest.mark.parametrize("command", [["sh", "-c", "read answer < /dev/tty"], ["stty", "size"]])
def test_a_job_that_asks_for_a_terminal_is_told_that_there_is_none(said, command):
    _, line = said("--env", "host", command=command)
    assert line.endswith(NO_TERMINAL)


def test_a_host_without_a_program_python_is_told_its_other_name(said):
    missing = ["sh", "-c", "echo sh: 1: exec: python: not found; exit 127"]
    assert said("--env", "host", command=missing)[1].endswith("(this machine calls it python3)")
    assert said("--env", "host", command=["no-such-command"])[1].endswith("not found")


def test_bytes_that_are_no_text_are_told_as_text(said):
    _, line = said("--env", "host", command=["sh", "-c", BINARY])
    assert line.isprintable() and line.endswith("no data")


def test_a_job_that_forks_away_is_told_and_leaves_nothing(said, tmp_path, monkeypatch):
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    (tmp_path / "job.py").write_text(FORKS)
    status, text = said("--env", "host", "--minutes", "0.01", command=[sys.executable, "job.py"])
    assert status == 0 and "leaves processes running" in " ".join(text.split())
    started = [int(number) for number in (tmp_path / "started").read_text().split()]
    alive = [number for number in started if state_of(Path(f"/proc/{number}/stat")) not in (None, "Z", "X")]
    assert started and alive == []
    assert said("--env", "host", "--minutes", "0.01")[1].count("leaves processes") == 0


def test_a_job_that_changes_its_input_is_told_in_the_answer(said, tmp_path, monkeypatch):
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    (tmp_path / "seen.txt").write_text("1\n")
    words = ("--env", "host", "--minutes", "0.01", "--steps", "none")
    status, text = said(*words, command=["sh", "-c", "echo 2 >> seen.txt; echo 3 > new.txt"])
    assert status == 0 and "changes files that existed before (seen.txt)" in " ".join(text.split())
    status, text = said(*words, "--between", "rm -f new.txt", command=["sh", "-c", "echo 3 > new.txt"])
    assert status == 0 and "changes files" not in text


def test_runs_that_are_in_each_others_way_are_told_what_helps(said, tmp_path, monkeypatch):
    """As jobs that make a folder of a fixed name, write a model there and read it again."""
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    (tmp_path / "job.py").write_text(OWN_FOLDER)
    words = ("--env", "host", "--minutes", "0.01", "--steps", "none")
    status, text = said(*words, command=[sys.executable, "job.py"])
    assert status == 0 and "use --between true" in " ".join(text.split())
    status, text = said(*words, "--between", "true", command=[sys.executable, "job.py"])
    assert status == 0 and "use --between true" not in " ".join(text.split())


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("a=host: taskset --no-such-option", "taskset: unrecognized option '--no-such-option'"),
        ("a=host: no-such-program", "no-such-program"),
    ],
)
def test_options_that_a_runtime_refuses(said, env, says):
    status, line = said("--env", env)
    assert status == UnavailableError.exit_code and ": no program can be started in it: " in line and says in line


BINARY = r"printf '\000\377\033[2Jno \001data\r\n' >&2; exit 4"
OWN_FOLDER = """
import os, shutil, time
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
os.mkdir("out"); work(0.3); open("out/best", "w").close(); work(0.3); open("out/best").close(); shutil.rmtree("out")
"""
FORKS = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    with open("started", "a") as handle:
        handle.write("%d\\n" % os.getpid())
    time.sleep(600)
os.wait()
while not os.path.exists("started") or not open("started").read().endswith("\\n"):
    time.sleep(0.01)
"""
PODMAN = """#!/bin/sh
case $1 in
    image) echo 'Error: nope:1: image not known' >&2 ;;
    pull) echo 'Error: initializing source docker://nope:1: manifest unknown' >&2 ;;
esac
exit 125
"""


def test_an_image_that_is_not_there(said, tmp_path, monkeypatch):
    (tmp_path / "podman").write_text(PODMAN)
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    status, line = said("--env", "podman=nope:1")
    assert status == UnavailableError.exit_code and line.startswith(
        "tare: podman=nope:1: podman ended with status 125"
    )
    assert "manifest unknown" in line
    status, line = said("--env", "apptainer=nowhere.sif")
    assert status == UserError.exit_code and line.endswith(f"{tmp_path}/nowhere.sif does not exist")


@pytest.mark.parametrize("program", ["podman", "docker", "ch-run"])
def test_a_runtime_that_is_not_installed(said, tmp_path, monkeypatch, program):
    monkeypatch.setenv("PATH", str(tmp_path))
    status, line = said("--env", "charliecloud=/" if program == "ch-run" else f"{program}=a")
    assert status == UnavailableError.exit_code and f"{program} is not installed" in line


def test_an_environment_that_fails_leaves_the_others(said, tmp_path, monkeypatch):
    """What is wrong with one that is not the reference stands in its row; the answer is whole."""
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    words = ["--env", "host", "--env", "lost=venv=/nowhere", "--env", "bad=host: env BAD=1", "--minutes", "0.01"]
    status, text = said(*words, "--no-causes", command=["sh", "-c", 'test -z "$BAD" || { echo no data; exit 3; }'])
    assert status == 0 and "lost was not measured" in text and "bad was not measured" in text
    answer = json.loads((tmp_path / "results/weigh/job/answer.json").read_text())
    found = {one["name"]: (one["status"], one["reason"]) for one in answer["environments"]}
    assert found["lost"][0] == "unavailable" and "/nowhere has no bin/python" in found["lost"][1]
    assert found["bad"][0] == "failed" and found["bad"][1].endswith("sh ended with status 3: no data")
    page = (tmp_path / "results/weigh/job/index.html").read_text()
    assert "no data" in page and page.rstrip().endswith("</html>")


def test_a_program_that_is_another_in_one_environment_is_told(said, tmp_path, monkeypatch):
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    for name in ("base", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.sh").write_text(f"true {name}\n")
    monkeypatch.setattr("tare.weigh.runtimes.OnTheMachine.command", _in_the_folder_of_its_name(tmp_path))
    words = ["--env", "base=host", "--env", "same=host", "--env", "other=host", "--minutes", "0.01"]
    (tmp_path / "same").symlink_to("base")
    status, text = said(*words, "--no-causes", command=["sh", "train.sh"])
    assert status == 0 and " ".join(text.split()).count("train.sh is a different file than in base") == 1
    answer = json.loads((tmp_path / "results/weigh/job/answer.json").read_text())
    assert [len(one.get("remarks", ())) for one in answer["environments"]] == [0, 1]


def _in_the_folder_of_its_name(folder):
    def command(self, launch):
        return ["env", "-C", str(folder / self.choice.name), *launch.argv]

    return command


def test_json_stands_alone_on_standard_output(said, tmp_path, monkeypatch):
    """Progress goes elsewhere; a variable that is passed on is not told as left out."""
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    monkeypatch.setenv("OF_THE_SESSION", "1")
    monkeypatch.setenv("A_TOKEN", "2")
    words = ["--env", "host", "--minutes", "0.01", "--json", "--setenv", "A_TOKEN"]
    status, text = said(*words, command=["sh", "-c", 'test "$A_TOKEN" = 2 && test -z "$OF_THE_SESSION"'])
    answer = json.loads(text)
    assert status == 0 and answer == json.loads((tmp_path / "results/weigh/job/answer.json").read_text())
    jsonschema.validate(answer, schema())
    assert "OF_THE_SESSION" in answer["left_out"] and "A_TOKEN" not in answer["left_out"]


def test_a_summary_is_appended_to_whatever_the_file_is(said, tmp_path, monkeypatch):
    """A link stays one, and bytes that are no text stay as they are."""
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    (tmp_path / "real.md").write_bytes(b"caf\xe9\n")
    (tmp_path / "link.md").symlink_to("real.md")
    for file in ("link.md", "new/summary.md"):
        assert said("--env", "host", "--minutes", "0.01", "--markdown", file)[0] == 0
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_bytes().startswith(b"caf\xe9\n**`true`**")
    assert (tmp_path / "new/summary.md").read_text().startswith("**`true`**")


def test_setup_and_between_have_the_whole_shell_and_take_as_long_as_they_do(said, tmp_path, monkeypatch):
    """Launches wait meanwhile; whoever watches over them is told that nothing hangs. The third call takes long."""
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    monkeypatch.setattr("tare.core.process.LEASE_S", 3.0)
    monkeypatch.setenv("OF_THE_SESSION", "1")
    between = "rm -f out; echo >> calls; test $(wc -l < calls) -ne 3 || sleep 4.5"
    commands = ("--setup", 'test "$OF_THE_SESSION$GIVEN" = 12 && touch made', "--between", between)
    words = ["--env", "host", "--minutes", "0.01", "--no-causes", "--setenv", "GIVEN=2", *commands]
    job = ["sh", "-c", "test -e made && test ! -e out && touch out"]
    status, text = said(*words, command=job)
    assert status == 0, text
    units = read_sealed(tmp_path / "results/weigh/job/campaign/sealed.json").units
    assert [unit.voided for unit in units] == [None, None]


def test_bytes_of_variables_that_are_no_text_are_no_reason_to_stop(said, monkeypatch):
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/caf\udce9")
    status, text = said("--env", "host", "--minutes", "0.01")
    assert status == 0, text


def test_where_nothing_is_left_to_compare_nothing_is_measured(said, tmp_path):
    status, line = said("--env", "host", "--env", "lost=venv=/nowhere")
    assert status == UnavailableError.exit_code
    assert line == (
        "tare: nothing can be compared with host: lost=venv=/nowhere: /nowhere has no bin/python: "
        "name the folder of the environment"
    )
    assert not (tmp_path / "results/weigh/job/campaign/units.jsonl").exists()


def test_each_start_begins_anew(said, tmp_path, monkeypatch):
    """The job's files may have changed since one was interrupted: its units are set aside."""
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    words, campaign = ["--env", "host", "--minutes", "0.01"], tmp_path / "results/weigh/job/campaign"
    assert said(*words)[0] == 0
    rows = (campaign / "units.jsonl").read_text().splitlines(keepends=True)
    (campaign / "units.jsonl").write_text(rows[0])
    (campaign / "sealed.json").unlink()
    assert said(*words)[0] == 0
    assert (campaign / "superseded-1/units.jsonl").read_text() == rows[0]


@pytest.mark.meets(design="weigh")
def test_its_campaign_is_sealed_as_any_other(said, tmp_path, monkeypatch):
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    assert said("--env", "host", "--minutes", "0.01")[0] == 0
    folder = tmp_path / "results/weigh/job/campaign"
    found = read_sealed(folder / "sealed.json")
    assert found.plan.spec.mode == "command" and found.plan.spec.command.argv == ("true",)
    assert {name for unit in found.counted for name in unit.launches} == {"host", "host.control"}
    journal = folder / "units.jsonl"
    journal.write_text(journal.read_text().replace('"ok"', '"failed"', 1))
    with pytest.raises(IntegrityError, match=r"units\.jsonl"):
        read_sealed(folder / "sealed.json")


def test_a_job_that_may_use_a_gpu_is_not_sliced(said, tmp_path, monkeypatch):
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    monkeypatch.setattr("tare.machine.nvidia_driver.device_files", lambda places: ("/dev/nvidia0",))
    words = ["--env", "host", "--env", "a=host", "--minutes", "0.01"]
    for command, refused in ((["true"], True), ([sys.executable, "-c", "pass"], False)):
        assert said(*words, command=command)[0] == 0
        (told,) = json.loads((tmp_path / "results/weigh/job/answer.json").read_text())["environments"]
        assert ("queued on a GPU" in (told["unsliced_reason"] or "")) is refused


def test_the_hook_costs_what_launches_without_it_say(said, tmp_path, monkeypatch):
    """They write no steps; the interval is in the answer, and worded."""
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 2)
    monkeypatch.setattr("tare.weigh.tried.FEWEST_ROUNDS", 0)
    (tmp_path / "job.py").write_text("import tare\nfor _ in range(9):\n    tare.mark()\n")
    words = ["--env", "host", "--env", "a=host", "--minutes", "0.5"]
    status, text = said(*words, command=[sys.executable, "job.py"])
    answer = json.loads((tmp_path / "results/weigh/job/answer.json").read_text())
    jsonschema.validate(answer, schema())
    assert status == 0 and answer["hook"]["low"] < answer["hook"]["ratio"] < answer["hook"]["high"]
    assert "With the hook that detects steps, a run of host takes" in " ".join(text.split())
    last = read_sealed(tmp_path / "results/weigh/job/causes/sealed.json").units[-1].launches
    assert len(last["host"].steps.ends_ns) == 9 and last["host+no-hook"].steps is None


def test_verdicts_outlive_an_interruption_of_the_search_for_causes(said, tmp_path, monkeypatch):
    """They are said, and in the file, before the first cause is tried."""
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    kept, slower = tmp_path / "results/weigh/job/answer.json", Interval(n=6, mean=0.1, low=0.09, high=0.11)
    monkeypatch.setattr("tare.weigh.found.cost_of", lambda *_, **__: Cost(run=slower, parts={}, step=None))
    change = Change(name="one thread", advice="set it")
    threads = Suspicion(cause="threads", confidence="high", evidence=(), changes=(change,))
    monkeypatch.setattr("tare.weigh.found.suspects", lambda *_: [threads])
    before = []

    def interrupt(*_):
        before.append(json.loads(kept.read_text()))
        raise KeyboardInterrupt

    monkeypatch.setattr("tare.weigh.tried._try_batch", interrupt)
    words = ["--env", "host", "--env", "a=host", "--minutes", "0.01", "--between", ":", "--json"]
    status, line = said(*words)
    assert (status, line) == (130, "tare: interrupted: the verdicts are complete, the causes are not")
    (told,) = json.loads(kept.read_text())["environments"]
    assert told["verdict"] == "different" and told["causes"][0]["reason"] == "you interrupted the rounds"
    assert before[0]["interrupted"] and before[0]["environments"][0]["verdict"] == "different"
    assert (kept.parent / "index.html").exists()


@pytest.mark.parametrize(("limit", "expected"), [("5%", 1), ("500%", 0)])
def test_a_gate_decides_the_exit_status(said, tmp_path, limit, expected):
    """Of a job that computes for longer in one environment, as it is measured."""
    (tmp_path / "job.py").write_text("import os\nfor _ in range(int(os.environ['N'])):\n    sum(range(400_000))\n")
    words = ["--env", "a=host: env N=8", "--env", "b=host: env N=40", "--minutes", "0.1", "--no-causes"]
    job = [sys.executable, "job.py"]
    status, text = said(*words, "--fail-if", f"b > {limit}", command=job)
    (one,) = json.loads((tmp_path / "results/weigh/job/answer.json").read_text())["environments"]
    assert (status, one["verdict"]) == (expected, "different"), text


def test_a_variable_that_was_left_out_is_named_where_the_job_fails_without_it(said, monkeypatch):
    monkeypatch.setenv("DATA_ROOT", "/data")
    status, line = said("--env", "host", command=["sh", "-c", 'echo "${DATA_ROOT:?DATA_ROOT is not set}"'])
    assert status == 3 and line.endswith("(Tare does not pass DATA_ROOT on: add --setenv DATA_ROOT)")


def test_an_interrupted_weighing_says_what_is_left_of_it(said, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tare.weigh.session.weigh", interrupt)
    assert said("--env", "host") == (
        130,
        "tare: interrupted before there was an answer; the next call starts again",
    )


@pytest.mark.parametrize(
    ("text", "says"), [(None, "cannot read before.json"), ("{", "before.json is cut short or not JSON")]
)
def test_an_answer_that_can_not_be_read(said, tmp_path, text, says):
    if text is not None:
        (tmp_path / "before.json").write_text(text)
    status, line = said("before.json", "before.json", to="compare")
    assert status and line.startswith(f"tare: {says}")


FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
GUIDES = (
    "README.md",
    "docs/tutorial.md",
    "docs/weigh.md",
    "docs/slower-base-image.md",
    "docs/sif-or-sandbox.md",
    "docs/ci-gate.md",
)


def shown_commands():
    """Commands of documents, those of pipelines with one line each."""
    for path in GUIDES:
        for kind, text in FENCE.findall((project_root() / path).read_text(encoding="utf-8")):
            lines = text.replace("\\\n", " ").splitlines() if kind == "console" else []
            if kind == "yaml":
                found = yaml.safe_load(text)
                steps = found if isinstance(found, list) else [{"run": one} for one in found["weigh"]["script"]]
                lines = [step["run"] for step in steps if "run" in step]
            for line in lines:
                if shown := re.search(r"\btare (weigh .* -- .*)", line, re.DOTALL):
                    yield path, shown[1].split("   #")[0]


def test_commands_of_the_documents_are_read():
    found = list(shown_commands())
    assert {path for path, _ in found} == {*GUIDES} and len(found) > 5
    for path, text in found:
        words = shlex.split(text.replace("${{ github.sha }}", "1"))
        arguments = build_parser().parse_args(words)
        assert arguments.job[:1] == ["--"] and len(arguments.job) > 1, (path, text)
        names = [one.name for one in read_choices(arguments.env, None)]
        gate.check_names([gate.read_gate(one) for one in arguments.fail_if], names[1:])


def test_secrets_of_shell_and_home_are_nowhere_in_what_is_written(said, launch_cache, tmp_path, monkeypatch):
    """Nor is a secret that the job was given on purpose; its output tells which variables it has."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    for name, value in canaries.plant(home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tare.weigh.rounds.PILOT", 1)
    monkeypatch.chdir(work)
    given = ("--setenv", "HF_TOKEN", "--setenv", f"MY_PASSWORD={canaries.MARK}-given")
    job = ["sh", "-c", 'test -n "$HF_TOKEN$MY_PASSWORD" || exit 9; unset HF_TOKEN MY_PASSWORD; env']
    other = f"a=host: env API_KEY={canaries.MARK} env -u API_KEY"
    status, text = said("--env", "host", "--env", other, "--minutes", "0.01", *given, command=job)
    assert status == 0, text
    assert (work / "results/weigh/job/index.html").exists() and canaries.MARK not in text
    assert canaries.found_in([work, launch_cache]) == []
    (work / "planted").write_text(canaries.MARK)
    assert canaries.found_in([work]) == [str(work / "planted")], "it would be found"
