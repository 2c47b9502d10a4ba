"""What a launch runs: Tare's own worker, or any command; the arguments, files and results of both."""

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from asked import CONDITIONS, spec
from campaign_builders import sealed_campaign
from test_launch import SPEC, Bare, Streams, alive

from tare.analysis.launch_rows import whole_run_rows
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.process import Finished
from tare.experiments import designs
from tare.launch import group, prepare, warmth
from tare.launch.conditions import CONDITIONS_INSIDE, PATH
from tare.launch.place import Site
from tare.launch.program import CommandProgram, Program, Result, WorkerProgram, as_program, with_more
from tare.launch.program.base import TAIL_CHARACTERS, Needs
from tare.launch.program.command import LONGEST_REASON, ended_as, last_lines
from tare.launch.run import Order, launch, launch_side_by_side
from tare.model.environment import Bind
from tare.model.journals.units import real_s, start_s
from tare.model.records.launches import COMMAND, LaunchRecord
from tare.model.registry import HOST, environment
from tare.model.roles import CONTROL
from tare.model.schema import parse

LOADED = Path("/opt/driver")


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TARE_CACHE", folder)
        yield Path(folder)


@pytest.fixture
def workdir(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


class In(Bare):
    """The same, which starts in the folder that it is told, and has a daemon's words before the program's."""

    def command(self, launch):
        return ["/usr/bin/env", "-C", str(launch.workdir), *launch.argv]


SITE = Site(environment=In())


def sh(script, **more):
    return CommandProgram(["/bin/sh", "-c", script], **more)


# --- arguments, files and binds


def test_the_worker_is_started_as_ever_and_reads_its_specification(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    job = spec(workload="mnist_cnn", batch=4, device="cpu")
    site = Site(environment=In(), python="/opt/python3", reference=None, data=data, folders=(LOADED,))
    with prepare.ready(site, job, CONDITIONS, pad_bytes=3, keep={"trace": Path("/x/trace.gz")}) as ready:
        folder, code = ready.folder, ready.cargo[0].source
        command = ("/opt/python3", "-s", f"{code}/tare/worker/main.py", f"{folder}/spec.json")
        assert ready.command == command and ready.planned.argv[-4:] == command
        assert ready.planned.argv[:3] == ("/usr/bin/env", "-i", f"PATH={PATH}")
        assert ready.planned.argv[-5] == "TARE_PAD=xxx" and f"HOME={folder}" in ready.planned.argv
        assert ready.planned.binds == (
            Bind(source=LOADED, target=LOADED),
            Bind(source=code, target=code),
            Bind(source=folder, target=folder, writable=True),
            Bind(source=data, target=data),
        )
        assert ready.planned.workdir == folder and ready.program == WorkerProgram(job)
        assert json.loads((folder / "spec.json").read_text()) == {
            **{"mode": "train", "workload": "mnist_cnn", "batch": 4, "device": "cpu"},
            "threads": 1,
            "settings": {},
            "record": f"{folder}/record.json",
            "trace": f"{folder}/trace.gz",
            "data": str(data),
        }
        assert {path.name for path in folder.iterdir()} == {"owner", "spec.json"}


def test_a_command_is_started_in_its_own_folder_with_variables_of_its_own(workdir, tmp_path):
    reads = tmp_path / "reads"
    reads.mkdir()
    asked = CommandProgram(
        ["./train.sh", "--x=1"],
        workdir=workdir,
        binds=(Bind(source=reads, target=Path("/data")),),
        variables={"OMP_NUM_THREADS": "7", "MINE": "a b"},
    )
    with prepare.ready(replace(SITE, variables={"OF_THE_SITE": "1"}), asked, CONDITIONS, pad_bytes=2) as ready:
        folder, planned = ready.folder, ready.planned
        assert planned.argv[:2] == ("/usr/bin/env", "-i") and planned.argv[-2:] == ("./train.sh", "--x=1")
        told = dict(word.split("=", 1) for word in planned.argv[2:-2])
        assert told == {
            **{"PATH": PATH, "LANG": "C.UTF-8", "HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp"},
            **{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"},
            **{"MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"},
            **{"OMP_NUM_THREADS": "7", "MINE": "a b", "OF_THE_SITE": "1", "TARE_PAD": "xx"},
            **{name: text for name, text in told.items() if name.startswith("MALLOC_")},
        }
        assert planned.workdir == workdir
        assert planned.binds == (
            Bind(source=reads, target=Path("/data")),
            Bind(source=workdir, target=workdir, writable=True),
            Bind(source=folder, target=folder, writable=True),
        )
        assert {path.name for path in folder.iterdir()} == {"owner", "home", "tmp"}
        assert ready.program is asked and ready.code_sha256 is None and ready.cargo == ()


def test_an_argument_may_be_empty_and_a_name_come_after_ours():
    assert CommandProgram(["x", ""], variables={"ZONE": "1"}).argv == ("x", "")


def test_a_command_without_a_folder_starts_in_that_of_the_launch():
    with prepare.ready(SITE, CommandProgram(["true"]), CONDITIONS, pad_bytes=0) as ready:
        assert ready.planned.workdir == ready.folder
        assert ready.planned.binds == (Bind(source=ready.folder, target=ready.folder, writable=True),)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda: CommandProgram([]), r"^a command is a list of a program and its arguments, not \[\]$"),
        (lambda: CommandProgram("train --x"), "not 'train --x'$"),
        (lambda: CommandProgram(["", "x"]), r"not \['', 'x'\]$"),
        (lambda: CommandProgram(["a=b"]), "'a=b'.*can't hold '='"),
        (lambda: CommandProgram(["a", "b\0"]), "'a'.*NUL"),
        (lambda: sh("", variables={"A": "\0"}), "'/bin/sh'.*NUL"),
        (lambda: sh("", variables={"A B": "1"}), "variable 'A B'"),
        (lambda: sh("", variables={"_".join(["TARE", "PAD"]): "1"}), "variable 'TARE_PAD'"),
        (lambda: sh("", workdir=Path("here")), "'here': give an absolute path"),
        (lambda: sh("", workdir=Path("/a/../b")), "'/a/../b': give an absolute path"),
        (lambda: sh("", workdir=Path("/")), "'/': give an absolute path below /"),
        (lambda: sh("", workdir=Path("/a:b")), "'/a:b'.*separators"),
        (
            lambda: sh("", workdir=Path("/a"), binds=(Bind(source=Path("/b"), target=Path("/a")),)),
            "two folders at /a",
        ),
    ],
)
def test_what_nothing_could_run_is_refused_in_one_line(wrong, reason):
    with pytest.raises(UserError, match=reason) as caught:
        wrong()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "more", "reason"),
    [
        (sh("", workdir=Path("/nowhere/at/all")), {}, "working directory /nowhere/at/all .* no such folder"),
        (
            sh("", binds=(Bind(source=Path("/nowhere"), target=Path("/b")),)),
            {},
            "see /nowhere, which does not exist",
        ),
        (sh(""), {"keep": {"trace": Path("/x/trace")}}, r"files to keep \(trace\)"),
    ],
)
def test_what_this_machine_lacks_is_told_before_the_launch(asked, more, reason, cache):
    with pytest.raises(UserError, match=reason):
        launch(SITE, asked, CONDITIONS, **more)
    assert not (cache / "launches").exists() or list((cache / "launches").iterdir()) == []


def test_a_transport_without_files_refuses_a_command_in_one_line():
    with pytest.raises(UnavailableError, match=r"shares no files can't run a command.*only brought Tare's own"):
        launch(Site(environment=Streams()), sh("exit 0"), CONDITIONS)


def test_the_worker_needs_an_interpreter_of_its_site():
    with pytest.raises(UnavailableError, match="names no Python"):
        launch(SITE, SPEC, CONDITIONS)


def test_a_specification_is_the_workers_program_and_only_that_has_further_entries():
    command = CommandProgram(["true"])
    assert as_program(SPEC) == WorkerProgram(SPEC) and as_program(command) is command
    assert with_more(spec(batch=1), steps=2) == spec(batch=1, steps=2)
    assert with_more(WorkerProgram(spec(batch=1)), batch=2) == WorkerProgram(spec(batch=2))
    assert with_more(command, steps=2) is command


# --- results


def test_a_command_that_succeeds_is_a_record_without_anything_from_inside(workdir, cache):
    script = 'pwd; echo "$HOME $TMPDIR"; touch "$TMPDIR/t" "$HOME/h" made; echo late >&2'
    found = launch(SITE, sh(script, workdir=workdir), CONDITIONS, pad_bytes=5)
    assert found.ok and found.reason is None and found.inside is None
    assert (found.program, found.exit_status, found.pad_bytes, found.code_sha256) == (COMMAND, 0, 5, None)
    where, homes = found.stdout.splitlines()
    own = cache / "launches" / found.launch
    assert where == str(workdir) and homes == f"{own}/home {own}/tmp" and found.stderr == "late\n"
    assert (workdir / "made").exists() and not own.exists()
    assert found.deviations == () and set(found.unseen) == {*CONDITIONS_INSIDE, *Bare.unseen}
    assert real_s(found) == (found.end_ns - found.spawn_ns) / 1e9 > 0
    assert parse(LaunchRecord, json.loads(json.dumps(found.to_json())), "a record") == found


def test_readers_of_marks_get_none_or_one_clear_line():
    found = launch(SITE, sh("exit 0"), CONDITIONS)
    assert start_s(found) is None
    with pytest.raises(IntegrityError, match="a launch of a command has no record from inside"):
        found.seen_inside()
    (row,) = whole_run_rows(found)
    assert row["metric"] == "real_s" and row["value"] == real_s(found)


def test_records_of_the_worker_have_no_new_keys():
    written = launch(Site(environment=Bare(), python=sys.executable), SPEC, CONDITIONS).to_json()
    assert written["status"] == "ok" and not {"program", "exit_status", "stdout", "metrics"} & set(written)


@pytest.mark.parametrize(
    ("script", "status", "exit_status", "reason"),
    [
        ("echo one; echo two >&2; exit 7", "failed", 7, "/bin/sh ended with status 7: two"),
        ("for i in 1 2 3 4; do echo $i; done; exit 1", "failed", 1, "/bin/sh ended with status 1: 2 | 3 | 4"),
        ("exit 3", "failed", 3, "/bin/sh ended with status 3: it printed nothing"),
        ("echo bye; kill -9 $$", "failed", -9, "/bin/sh was ended by SIGKILL: bye"),
        ("exit 143", "failed", 143, "/bin/sh ended with status 143 (SIGTERM): it printed nothing"),
        ("printf 'a\\377\\000\\033[31mb\\n'; exit 2", "failed", 2, "/bin/sh ended with status 2: a\ufffd b"),
        ("exec /nowhere/program", "failed", 127, "/bin/sh ended with status 127: "),
    ],
)  # fmt: skip
def test_a_command_that_fails_is_a_record_with_its_last_lines(script, status, exit_status, reason):
    found = launch(SITE, sh(script), CONDITIONS)
    assert (found.status, found.exit_status, found.inside) == (status, exit_status, None)
    assert found.reason.startswith(reason) and "\n" not in found.reason
    assert found.reason == reason or reason.endswith(": ")
    assert parse(LaunchRecord, json.loads(json.dumps(found.to_json())), "a record") == found


def test_a_program_that_is_not_there_is_told_by_what_was_to_start_it():
    found = launch(SITE, CommandProgram(["no-such-program"]), CONDITIONS)
    assert (found.status, found.exit_status) == ("failed", 127)
    assert "no-such-program" in found.reason.partition(": ")[2]


def test_a_command_that_goes_on_is_killed_at_its_limit(workdir):
    script = "echo begun; sleep 600 & echo $! > child; wait"
    found = launch(SITE, sh(script, workdir=workdir), CONDITIONS.replace(launch_timeout_s=0.7))
    assert (found.status, found.exit_status, found.stdout) == ("timeout", None, "begun\n")
    assert found.reason == "/bin/sh was still running after 1 s and was killed: begun"
    child, deadline = int((workdir / "child").read_text()), time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def test_of_much_output_the_end_is_kept():
    found = launch(SITE, sh("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"), CONDITIONS)
    assert len(found.stdout) == TAIL_CHARACTERS and found.stdout.endswith("line 2999\n")


def finished(**more):
    return Finished(
        **{
            **{"argv": ("x",), "returncode": 1, "stdout": "", "stderr": "", "started_ns": 0, "ended_ns": 1},
            **{"user_s": 0.0, "system_s": 0.0, "timed_out": False},
            **more,
        }
    )


def test_last_lines_are_short_and_one_line():
    assert last_lines(finished(stderr="x" * 5000 + "END")) == "…" + "x" * (LONGEST_REASON - 3) + "END"
    assert last_lines(finished(stderr="x" * LONGEST_REASON)) == "x" * LONGEST_REASON
    assert last_lines(finished(stderr="a" + "\n" * TAIL_CHARACTERS, stdout="out")) == "out"
    assert last_lines(finished(stderr=" \n", stdout="a\rb\n")) == "a | b"
    assert last_lines(finished(stderr="\x1b[31mred\x1b[0m\n", stdout="out")) == "red"
    assert last_lines(finished(stderr="one\x07two\tthree\x0efour\rfive\n\x0b\n")) == "one two three four | five"


def test_the_worker_tells_its_result_by_its_record(tmp_path):
    worker = WorkerProgram(SPEC)
    assert worker.result(finished(stderr="it broke"), tmp_path, Bare()).reason == "x ended with status 1: it broke"
    (tmp_path / "record.json").write_text('{"schema": 2}')
    result = worker.result(finished(returncode=0), tmp_path, Bare())
    assert (result.status, result.reason) == (
        "failed",
        "the record from inside has schema 2, this version reads 1",
    )
    late = worker.result(finished(timed_out=True, returncode=-9), tmp_path, Bare())
    assert late.status == "timeout" and "was killed" in late.reason


def test_every_signal_has_a_name_or_a_number():
    assert ended_as(-signal.SIGSEGV) == "was ended by SIGSEGV"
    assert ended_as(-signal.SIGHUP) == "was ended by SIGHUP" and ended_as(0) == "ended with status 0"
    assert ended_as(-50) == "was ended by signal 50" and ended_as(255) == "ended with status 255"


@pytest.mark.parametrize("returncode", [0, 7])
def test_the_ends_of_both_streams_are_kept(tmp_path, returncode):
    ends = finished(returncode=returncode, stdout="x" * 9000, stderr="y" * 9000)
    result = sh("").result(ends, tmp_path, Bare())
    assert (result.stdout, result.stderr) == ("x" * TAIL_CHARACTERS, "y" * TAIL_CHARACTERS)


def test_of_what_a_program_tells_only_that_is_a_field_of_the_record():
    assert Result(status="ok").values() == {}
    assert Result(status="ok", stdout="", exit_status=0, metrics={"a_s": 0.0}).values() == {
        "metrics": {"a_s": 0.0},
        "stdout": "",
        "exit_status": 0,
    }


def test_what_a_program_is_unless_it_says_otherwise():
    assert Program.__abstractmethods__ == {"needs", "argv_at", "result"}
    counting, command, worker = Counting(), sh("exit 0"), WorkerProgram(SPEC)
    for plain in (counting, command):
        assert (plain.talks, plain.uses_gpu, plain.reads_counters) == (False, False, False)
        assert (plain.announces, plain.keeps_output, plain.as_given) == (False, True, False)
    assert counting.variables_at(None) == {} and counting.workdir_at(None) is None
    assert sh("exit 0", gpu=True).uses_gpu
    assert (worker.announces, worker.keeps_output, worker.as_given) == (True, False, False)


@dataclass(frozen=True)
class Counting(Program):
    """A program of another kind: it measures something itself."""

    kind = "counting"

    def needs(self, site, conditions):
        return Needs()

    def argv_at(self, place):
        return ("/bin/sh", "-c", f"echo 2.5 > {place.inside}/count")

    def result(self, finished, folder, environment):
        return Result(status="ok", metrics={"counted_s": float((folder / "count").read_text())})


def test_what_a_program_measures_itself_is_in_the_record():
    found = launch(SITE, Counting(), CONDITIONS)
    assert found.ok and found.metrics == {"counted_s": 2.5} and found.program == "counting"


# --- everything that launches takes either


def test_commands_side_by_side_have_a_result_each():
    scripts = {"good": "echo out; echo err >&2; read line && exit 9; exit 0", "bad": "echo why; exit 7"}
    orders = {name: Order(site=SITE, program=sh(text), conditions=CONDITIONS) for name, text in scripts.items()}
    orders["worker"] = Order(
        site=Site(environment=Bare(), python=sys.executable), program=SPEC, conditions=CONDITIONS
    )
    found = launch_side_by_side(orders)
    assert {name: one.status for name, one in found.items()} == {"good": "ok", "bad": "failed", "worker": "ok"}
    assert (found["good"].stdout, found["good"].stderr) == ("out\n", "err\n"), "and its input was at its end"
    assert (found["bad"].exit_status, found["bad"].reason) == (7, "/bin/sh ended with status 7: why")
    assert found["worker"].seen_inside().mode == "device"


def test_a_group_of_commands_gets_its_ranks(workdir, monkeypatch):
    monkeypatch.setattr(group, "START_S", 0.2)  # commands never say that they have begun
    script = 'sleep 0.6; echo "$RANK of $WORLD_SIZE" > rank$RANK'
    found = group.launch_group(SITE, sh(script, workdir=workdir), CONDITIONS, size=2, network="host")
    assert found.ok, found.reason
    assert [one.inside for one in found.instances] == [None, None] and found.program == COMMAND
    assert {path.read_text() for path in workdir.iterdir()} == {"0 of 2\n", "1 of 2\n"}
    assert real_s(found) >= 0.6


def test_a_round_takes_commands_and_nobody_knows_what_they_leave_in_memory(workdir, monkeypatch):
    plan = sealed_campaign({"kind": "rounds", "launches": [HOST, CONTROL], "discarded": 1}).plan
    plan = plan.replace(conditions=CONDITIONS, headline_conditions=None)
    names = [HOST, CONTROL]
    commands = {HOST: sh("echo host"), CONTROL: sh("echo control; exit 4")}
    for done in ([], [SimpleNamespace(voided=None, launches={})]):
        row = designs.one_after_other(
            plan, dict.fromkeys(names, SITE), done, names, dict.fromkeys(names, 1), commands.__getitem__
        )
        assert row["launches"][HOST].stdout == "host\n" and row["launches"][HOST].ok
        assert row["launches"][CONTROL].reason == "/bin/sh ended with status 4: control"
    assert not warmth.in_memory(replace(SITE, reference="/x"), commands[HOST])
    assert not list(workdir.iterdir())


def test_a_command_runs_on_the_host_under_its_conditions(workdir):
    adapter = environment("host")
    probe = adapter.probe()
    if not probe.available:
        pytest.skip(probe.reason)
    script = "ulimit -n; taskset -pc $$ | sed 's/.*: //'; id -u; touch made"
    site = Site(environment=adapter, isolates_network=probe.isolates_network)
    found = launch(site, sh(script, workdir=workdir), CONDITIONS)
    assert found.ok, found.reason
    files, cpus, user = found.stdout.split()
    assert files == str(CONDITIONS.open_files) and user == str(os.getuid())
    assert cpus in {str(cpu) for cpu in os.sched_getaffinity(0)}
    assert (workdir / "made").exists()
