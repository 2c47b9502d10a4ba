"""The fault campaign: whom it kills, what it looks at afterwards, what it writes; and the faults that take no run.

Quick faults of real runs are elsewhere: kills of the chain in workflow/test_killing.py, a disk that fills up under
a campaign in test_full_disk.py, leftovers of killed launches in test_leftovers.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import equal_tables
import injecting
import leavings
import pytest
from data_server import GOOD, dataset, https_source, kept_files
from injecting import Process
from ledger_builders import NAME, run, simple_values
from waiting import wait_until

from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import Journal, project_root, read_json, write_json
from tare.datasets import fetch
from tare.model.journals import ledger
from tare.model.journals.sealed import SEAL_KEY, UNITS, read_rows
from tare.model.studies.layout import SEALED

BENCHMARKS = project_root() / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "faulting")]

import fault_runs  # noqa: E402
import fault_trials  # noqa: E402
import faults  # noqa: E402
import faults_page  # noqa: E402

# --- whom


FAR = 7_000_000  # beyond the numbers of real processes


def chain():
    """A run in Docker and Apptainer, the daemon that it started, and other programs of the machine."""
    python, launch = "/venv/bin/python3.11", "tare-0123456789ab"
    rows = [
        (1, 0, "/sbin/init", False),
        (50, 1, "bash", False),
        (100, 50, "make --no-print-directory -f trial.mk run", True),
        (101, 100, f"{python} /venv/bin/snakemake --cores all", True),
        (102, 101, "/bin/bash -c set -euo pipefail; python -m tare rounds --out x", True),
        (103, 102, f"{python} -m tare rounds --out x", True),
        (104, 103, f"{python} -I -S /t/tare/core/guard.py 103 TARE_STARTED_BY 1", True),
        (105, 103, f"docker run --rm --name {launch} image python worker", False),
        (106, 103, f"Apptainer runtime parent /c/launches/{launch}", False),
        (107, 106, "/usr/bin/squashfuse_ll image.sif /rootfs", False),
        (108, 106, "/opt/tare/bin/python3.11 /w/boot.py", False),
        (109, 103, f"/cache/tree/bin/python3.11 /c/launches/{launch}/boot.py", False),
        (200, 1, f"{python} -m tare.runtimes.daemon /run/tare-0 /c/docker /usr/sbin/dockerd 20", True),
        (201, 200, "unshare --pid --fork -- /bin/sh -c exec 3<&0 sh /run/tare-0 /usr/sbin/dockerd", True),
        (202, 201, "/usr/sbin/dockerd --data-root /c/docker", True),
        (203, 202, "containerd --config /run/tare-0/containerd.toml", True),
        (204, 203, "/usr/bin/containerd-shim-runc-v2 -id abc", True),
        (205, 204, "/opt/tare/bin/python3.11 /w/boot.py", False),
        (300, 50, "python train.py", False),
        (301, 50, f"tail -f /pool/trial/log {launch}", False),
    ]
    return {
        FAR + pid: Process(
            pid=FAR + pid, parent=FAR + parent, start=pid, words=tuple(text.split(" ")), marked=marked
        )
        for pid, parent, text, marked in rows
    }


PARTS = {
    **{"make": [100], "snakemake": [101], "shell": [102], "command": [103], "guard": [104]},
    **{"client": [105, 106, 107], "worker": [108, 109, 205], "daemon": [200, 201, 202, 203, 204]},
}


def parts_of(found):
    return injecting.by_role(found, injecting.ours(found, [FAR + 100]))


def test_each_process_of_the_chain_has_its_part_and_no_other_program_is_of_it():
    found = {role: [one.pid - FAR for one in own] for role, own in parts_of(chain()).items()}
    assert found == PARTS
    assert set(PARTS) == set(injecting.ROLES)


def test_without_its_root_a_run_is_found_by_its_token_and_what_watches_it_is_spared():
    found = chain()
    own = injecting.ours(found, [FAR + 100])
    assert injecting.ours(found) == own and injecting.ours(found, spared=[FAR + 104]) == own - {FAR + 104}
    assert injecting.traces(found, "/pool/trial") == own | {FAR + 301}
    this = Process(pid=os.getpid(), parent=FAR + 103, start=1)
    assert os.getpid() not in injecting.ours({**found, os.getpid(): this})


@pytest.mark.parametrize("role", injecting.ROLES)
def test_a_victim_is_drawn_of_the_wanted_part_by_the_seed(role):
    parts = parts_of(chain())
    drawn = {injecting.victims(parts, role, random.Random(seed))[1][0].pid - FAR for seed in range(40)}
    assert drawn == set(PARTS[role])
    first, again = (injecting.victims(parts, role, random.Random(7)) for _ in range(2))
    assert first == again and first[0] == role


def test_a_part_that_is_not_there_gives_way_and_all_means_all_the_outermost_first():
    parts = parts_of(chain())
    del parts["worker"], parts["client"]
    role, (one,) = injecting.victims(parts, "worker", random.Random(1))
    assert one.pid - FAR in PARTS[role] and role in parts
    role, everyone = injecting.victims(parts, injecting.ALL, random.Random(1))
    assert role == injecting.ALL and {one.pid for one in everyone} == {
        one.pid for own in parts.values() for one in own
    }
    assert [one.pid - FAR for one in everyone][:4] == [100, 101, 102, 103]
    assert injecting.victims({}, "make", random.Random(1)) == ("make", [])


def test_a_real_process_is_found_by_its_token_and_one_with_its_number_only_is_not_killed():
    argv = [sys.executable, "-I", "-S", "-c", "input()"]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, env={"TARE_FAULTS": "a-token"})
    try:
        wait_until(lambda: child.pid in injecting.ours(injecting.processes("TARE_FAULTS=a-token")), "its token")
        assert injecting.ours(injecting.processes("TARE_FAULTS=a-tok")) == set()
        one = injecting.processes("TARE_FAULTS=a-token")[child.pid]
        assert one.words == tuple(argv) and one.parent == os.getpid()
        assert injecting.kill([Process(pid=one.pid, parent=one.parent, start=one.start + 1)]) == 0
        assert child.poll() is None
        assert injecting.kill([one], signal.SIGSTOP) == 1
        wait_until(lambda: injecting.processes("")[child.pid].state == "T", "it is stopped")
        alive, stopped = leavings.of_processes(injecting.processes("TARE_FAULTS=a-token"), "/nowhere")
        assert (
            {line for line in alive if line.startswith(f"{child.pid} ")} == {f"{child.pid} {one.text}"} <= stopped
        )
        assert injecting.kill([one]) == 1
        assert child.wait(20) == -signal.SIGKILL
    finally:
        child.kill()
        child.communicate()


# --- what is left


def test_what_is_left_is_what_came_in_between_and_is_of_the_run():
    found = chain()
    own, nothing = leavings.of_processes(found, "/pool/trial")
    assert len(own) == len(injecting.ours(found)) + 1 and nothing == frozenset()
    assert not any("train.py" in line for line in own)
    one = Process(pid=FAR + 108, parent=1, start=108, state="T", words=("python3.11", "tare-0123456789ab"))
    found[one.pid] = one
    _, stopped = leavings.of_processes(found, "/pool/trial")
    line = f"{one.pid} python3.11 tare-0123456789ab"
    assert stopped == {line}
    before = leavings.Look(processes=frozenset(["1 a"]), mounts=frozenset(["/x"]))
    after = leavings.Look(processes=frozenset(["1 a", "2 b"]), stopped=stopped, mounts=frozenset(["/x"]))
    assert leavings.left(before, after) == ["processes: 2 b", f"stopped: {line}"]
    assert leavings.left(after, after) == []


def test_mounts_of_a_run_are_those_below_its_folder_of_launches_and_of_its_daemon():
    text = "\n".join(
        f"{number} 1 0:1 / {point} rw - tmpfs tmpfs rw"
        for number, point in enumerate(
            ["/", "/pool/trial", "/c/launches/tare-0123456789ab/root", "/run/tare-0-1/exec"]
        )
    )
    assert leavings.of_mounts(text, "/pool/trial") == {
        "/pool/trial",
        "/c/launches/tare-0123456789ab/root",
        "/run/tare-0-1/exec",
    }


def test_half_files_are_told_and_whole_ones_and_hidden_ones_are_not(tmp_path):
    for name in (".metrics.csv.a1b2c3d_", ".key.making.x", ".partial-1", ".lock", ".gitkeep", "metrics.csv"):
        (tmp_path / name).touch()
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/.a.csv.a1b2c3d4").touch()
    found = {Path(path).name for path in leavings.half_files([tmp_path])}
    assert found == {".metrics.csv.a1b2c3d_", ".key.making.x", ".partial-1"}


def test_a_frozen_group_is_told_and_a_daemon_has_time_to_end(tmp_path):
    assert not leavings.is_frozen(tmp_path)
    (tmp_path / "cgroup.freeze").write_text("0\n")
    assert not leavings.is_frozen(tmp_path)
    (tmp_path / "cgroup.freeze").write_text("1\n")
    assert leavings.is_frozen(tmp_path)
    looks = [leavings.Look(groups=frozenset(["/g"])), leavings.Look(groups=frozenset(["/g"])), leavings.Look()]
    assert leavings.settled(leavings.Look(), lambda: looks.pop(0), 20.0, 0.01) == []
    assert leavings.settled(leavings.Look(), lambda: leavings.Look(groups=frozenset(["/g"])), 0.05, 0.01) == [
        "groups: /g"
    ]


# --- tables


def table(scale, loss=1.25, units=2, verdict="equivalent", faults="7"):
    """A study's tables, with times of this scale."""
    launches = ("host", "host.control", "docker")
    metrics = [
        {"campaign": "rounds.docker+host", "launch": launch, "rep": str(rep), "metric": metric, "value": value}
        for launch in launches
        for rep in range(units)
        for metric, value in (
            *(("real_s", str(scale + rep)), ("loss_last", str(loss)), ("page_faults", faults)),
            *(("flops_per_step", "4580179968.0"),),
        )
    ]
    verdicts = [
        {"campaign": "rounds.docker+host", "launch": "docker", "metric": "real_s", "n_units": str(units)}
        | {"ratio": str(scale), "verdict": verdict, "failures": "0"}
    ]
    samples = [{"campaign": "profile", "launch": "host", "at_s": str(n)} for n in range(int(10 * scale))]
    return {"metrics": metrics, "verdicts": verdicts, "samples": samples}


UNDISTURBED = [table(1.0), table(1.3, verdict="inconclusive")]
LOOSE = equal_tables.loose_of(UNDISTURBED)


def differing(found, **more):
    return equal_tables.differences(UNDISTURBED[0], found, LOOSE, **more)


def test_tables_that_differ_in_timings_and_what_follows_from_them_are_equal():
    assert differing(table(0.8, verdict="different", faults="9")) == []
    assert LOOSE.lines() == ["samples: : its rows"]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (
            lambda found: found["metrics"].pop(),
            "metrics.csv: missing, 1 times: campaign rounds.docker+host, launch docker",
        ),
        (lambda found: found["metrics"].append(dict(found["metrics"][0])), "metrics.csv: too much, 1 times"),
        (lambda found: found["metrics"][1].update(value="1.26"), "value 1.26"),
        (lambda found: found["verdicts"][0].update(n_units="1"), "n_units 1"),
        (lambda found: found["verdicts"][0].update(failures="1"), "failures 1"),
        (lambda found: found.pop("verdicts"), "verdicts.csv is missing"),
        (lambda found: found.update(claims=[]), "claims.csv is new"),
        (lambda found: found["samples"].clear(), "samples.csv: rows: gone"),
        (lambda found: [row.pop("launch") for row in found["verdicts"]], "verdicts.csv has other columns"),
    ],
)
def test_what_else_differs_is_told(edit, says):
    found = table(1.1)
    edit(found)
    assert any(says in line for line in differing(found)), differing(found)


def test_a_campaign_with_a_recorded_failure_is_compared_by_its_presence():
    found = table(1.0, units=1)
    assert differing(found)
    assert differing(found, campaigns_apart=["rounds.docker+host"]) == []
    found["verdicts"] = [{**found["verdicts"][0], "campaign": "other"}]
    assert "verdicts.csv: nothing of the campaign rounds.docker+host" in differing(
        found, campaigns_apart=["rounds.docker+host"]
    )


def test_a_failure_changes_the_correction_of_all_comparisons():
    """Rows of another campaign keep all but what the correction for several comparisons gives them."""

    def causes(**more):
        return {"verdicts": [{"campaign": "causes.docker+host", "n_units": "1", "alpha": "0.05", **more}]}

    nothing = equal_tables.Loose()
    assert equal_tables.differences(causes(), causes(alpha="0.01"), nothing)
    assert equal_tables.differences(causes(), causes(alpha="0.01"), nothing, ["rounds.docker+host"]) == []
    assert equal_tables.differences(causes(), causes(n_units="2"), nothing, ["rounds.docker+host"])


def test_starts_that_failed_are_found_by_the_kind_that_their_table_names():
    rows = [{"campaign": "starts", "launch": "docker", "item": "cold_start_s", "kind": "measured"}]
    failed = [{**rows[0], "kind": "unavailable"}]
    sides = {"image_costs": rows}, {"image_costs": failed}, equal_tables.Loose()
    assert equal_tables.differences(*sides)
    assert equal_tables.differences(*sides, ["starts.docker+host"]) == []


def test_what_differs_between_undisturbed_runs_is_left_out_and_told():
    loose = equal_tables.loose_of([table(1.0), table(1.0, loss=1.5)])
    assert "metrics: loss_last: value" in loose.lines()
    assert equal_tables.differences(table(1.0), table(1.0, loss=9.0), loose) == []
    assert equal_tables.rounded("0.10000000001") == equal_tables.rounded("0.1") != equal_tables.rounded("0.1001")


def test_tables_are_read_from_files(tmp_path):
    (tmp_path / "metrics.csv").write_text("metric,value\nloss,1\n")
    assert equal_tables.read(tmp_path) == {"metrics": [{"metric": "loss", "value": "1"}]}


# --- journals


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """A study with a sealed campaign and its ledger, by the real engine, in a folder of results."""
    simple_values(monkeypatch)
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "results/campaigns/s/box"
    run(study)
    return study / "w" / NAME


def cut(path, read):
    return injecting.cut_everywhere(path, read, lambda row: Journal(path).append(json.loads(row)))


def test_a_journal_cut_at_every_byte_of_its_seal_is_read_and_written_again(campaign):
    path = campaign / UNITS
    assert SEAL_KEY in json.loads(injecting.last_row(path.read_bytes()))
    assert cut(path, lambda: read_rows(campaign)) == (len(injecting.last_row(path.read_bytes())), [])


def test_a_journal_cut_at_every_byte_of_its_last_unit_is_read_and_written_again(campaign):
    path = campaign / UNITS
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(row for row in rows if "unit" in json.loads(row)))
    assert len(read_rows(campaign).units) == 4
    assert cut(path, lambda: read_rows(campaign)) == (len(injecting.last_row(path.read_bytes())), [])


def test_a_ledger_cut_at_every_byte_of_its_last_row_is_read_and_written_again(campaign):
    study = campaign.parents[1]
    path = study / ledger.LEDGER
    tried, wrong = cut(path, lambda: ledger.read_ledger(study))
    assert wrong == [] and tried > 100


def test_a_writer_that_leaves_what_was_cut_is_found(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    whole = path.read_bytes()

    def append(row):
        with path.open("ab") as file:
            file.write(row)

    tried, wrong = injecting.cut_everywhere(path, Journal(path).read, append)
    assert tried == 8 and len(wrong) == 7, "with nothing of the row there, it was right"
    assert path.read_bytes() == whole


def test_units_that_stand_twice_or_are_gone_are_told(campaign, tmp_path):
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "results", whole / "results")
    before = fault_trials.journals(tmp_path)
    assert set(before) == {f"results/campaigns/s/box/w/{NAME}/{UNITS}", f"results/campaigns/s/box/{ledger.LEDGER}"}

    def problems():
        return fault_trials.unit_problems(tmp_path, whole, "s", before)

    assert problems() == [] and fault_trials.failed_launches(tmp_path, "s") == {}
    rows = (campaign / UNITS).read_bytes().splitlines(keepends=True)
    (campaign / UNITS).write_bytes(b"".join([rows[0], *rows]))
    told = problems()
    assert any("is not what was sealed" in line for line in told)
    assert any("rows from before the fault are gone or changed" in line for line in told)
    (campaign / SEALED).unlink()
    assert any("cannot read" in line for line in problems())
    shutil.copytree(whole / "results", tmp_path / "results", dirs_exist_ok=True)
    assert problems() == []
    run(campaign.parents[1])
    told = problems()
    assert any("superseded-1 was set aside" in line for line in told)
    assert any("the ledger has opened" in line for line in told)


@pytest.mark.parametrize("where", faults.PLACES["journal"])
def test_a_trial_cuts_a_journal_and_the_real_engine_goes_on_with_it(campaign, tmp_path, monkeypatch, where):
    home = tmp_path / "home"
    for name in ("whole", "done-rounds"):
        shutil.copytree(tmp_path / "results", home / name / "results")
    (home / "done-rounds/results/s/tables").mkdir(parents=True)

    class Run:
        def __init__(self, _, folder, wanted):
            self.seen = folder

        def wait(self):
            run(self.seen / "results/campaigns/s/box")
            return 0

    monkeypatch.setattr(fault_trials, "Run", Run)
    monkeypatch.setattr(fault_trials.Trial, "table_problems", lambda *_: [])
    pool = SimpleNamespace(home=home, study="s", targets=lambda _: [])
    trial = fault_trials.Trial(pool, fault_trials.Case(kind="journal", where=where, environment="apptainer"))
    found = trial.journal()
    assert trial.problems == [] and found["finished"] and found["units"]
    if "read" in where:
        assert found["cuts"] > 300
        return
    path = home / "trial" / (campaign / UNITS).relative_to(tmp_path)
    assert injecting.last_row(path.read_bytes()).startswith(b'{"seal"')
    assert len(trial.kept[str(path.relative_to(home / "trial"))].splitlines()) == (4 if where == "the seal" else 3)


def test_records_are_compared_but_for_seconds_and_places():
    first = {
        "digest": "a",
        "build_s": 1.0,
        "seconds": {"x": 1},
        "layers": [{"size": 1, "at": "now"}],
        "folder": "/a",
    }
    second = {"digest": "a", "build_s": 9.0, "seconds": {}, "layers": [{"size": 1, "at": "then"}], "folder": "/b"}
    assert fault_trials.same_content(first, second) == []
    second["layers"][0]["size"] = 2
    assert fault_trials.same_content(first, second) == ["/layers/0/size: 1 is now 2"]
    assert fault_trials.same_content(first, {**first, "digest": None}) == ['/digest: "a" is now null']


def test_times_of_files_step_that_were_written_since(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (old, new):
        path.touch()
    os.utime(old, (1000, 1000))
    since = time.time() - 60
    assert fault_trials.step_files(tmp_path, since, -3600) == 1
    assert old.stat().st_mtime == 1000 and new.stat().st_mtime < since - 3000


# --- networks and disks


TROUBLES = {
    **dict.fromkeys(("missing", "mute", "short", "stall", "drop", "moved"), UnavailableError),
    "other": IntegrityError,
}


@pytest.mark.parametrize("mode", faults.PLACES["network"])
def test_a_bad_download_is_refused_keeps_nothing_and_the_next_try_is_good(server, data_cache, monkeypatch, mode):
    monkeypatch.setattr(fetch, "SILENCE_S", 0.3)
    made = dataset(https_source(f"{server.base}/good/a"))
    server.mode = mode
    with pytest.raises(TROUBLES[mode]) as caught:
        fetch.fetch(made)
    assert "\n" not in str(caught.value) and kept_files(data_cache) == []
    server.mode = None
    assert fetch.fetch(made).hashes["content"] == GOOD


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_a_small_disk_is_full_for_whom_sees_it_and_goes_with_its_last_process(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    pool = SimpleNamespace(spared=set(), checkout=tmp_path)
    disk = fault_runs.Disk(pool, 'mount -t tmpfs -o size="$1"k tmpfs "$2"', "256", str(place))
    try:
        assert pool.spared == {disk.holder.pid}
        journal = Journal(disk.seen(place) / "rows.jsonl")
        journal.append({"row": 0})
        filler = fault_runs.fill(disk.seen(place), 0)
        with pytest.raises(OSError, match="No space left"):
            for number in range(1, 2000):
                journal.append({"row": number})
        assert subprocess.run([*disk.prefix, "pwd"], capture_output=True, text=True).stdout.strip() == str(tmp_path)
        filler.unlink()
        kept = Journal(journal.path).read()
        Journal(journal.path).append({"row": len(kept)})
        assert [row["row"] for row in Journal(journal.path).read()] == list(range(len(kept) + 1))
    finally:
        disk.close()
    assert list(place.iterdir()) == [] and pool.spared == set()
    assert str(place) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_a_part_of_the_results_is_read_only_until_it_is_given_back(tmp_path, monkeypatch):
    pool = SimpleNamespace(
        home=tmp_path, checkout=tmp_path, spared=set(), runs=[], study="s", targets=lambda _: ["out"],
        seed=lambda _, folder: (folder / "results/campaigns").mkdir(parents=True),
    )  # fmt: skip
    seen = []

    def over(trial, run):
        for name in ("results/campaigns/a", "results/b"):
            try:
                (run.seen / name).write_text("x")
            except OSError as error:
                seen.append((name, error.strerror))
        return 2

    def recovered(trial, run, stage):
        (run.seen / "results/campaigns/a").write_text("x")
        return {"finished": True}

    monkeypatch.setattr(fault_trials, "Run", lambda *_, **more: SimpleNamespace(**more))
    monkeypatch.setattr(fault_trials.Trial, "over", over)
    monkeypatch.setattr(fault_trials.Trial, "recovered", recovered)
    trial = fault_trials.Trial(
        pool, fault_trials.Case(kind="read_only", where="campaigns", environment="apptainer")
    )
    assert trial.read_only() == {"finished": True} and trial.problems == []
    assert seen == [("results/campaigns/a", "Read-only file system")]
    assert list((tmp_path / "trial").iterdir()) == [] and not (tmp_path / "seed").exists()


def test_what_takes_more_memory_than_its_group_may_is_killed_and_the_group_goes():
    take = [sys.executable, "-I", "-S", "-c", f"print(len(bytearray({64 << 20})))"]
    try:
        with fault_runs.memory_group(24 << 20) as (group, prefix):
            assert group.is_dir()
            done = subprocess.run([*prefix, *take], capture_output=True, text=True)
            assert done.returncode == -signal.SIGKILL and not done.stdout
            assert fault_runs.ended_for_memory(group) == 1
    except UnavailableError:
        pytest.skip("no control group with a memory limit can be made here")
    assert not group.exists()
    assert subprocess.run(take, capture_output=True, text=True).stdout.strip() == str(64 << 20)


# --- a trial, on a workflow that is made up

SNAKEMAKE = """#!{python}
import pathlib, subprocess, sys
words = sys.argv[1:]
folder = pathlib.Path(words[words.index("--directory") + 1])
lock = folder / ".snakemake/locks/0"
if "--unlock" in words:
    lock.unlink()
    sys.exit()
out = folder / words[-1]
lock.parent.mkdir(parents=True, exist_ok=True)
lock.touch(exist_ok=False)
if not out.exists():
    subprocess.run(["bash", "-c", f"python -m tare rounds {{out}}; exit $?"], check=True)
lock.unlink()
"""
COMMAND = """
import pathlib, sys, time
time.sleep(1.0)
pathlib.Path(sys.argv[-1]).write_text("done")
"""


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """As a pool, of a workflow whose one command takes a second."""
    home, bin = tmp_path / "home", tmp_path / "bin"
    for folder in (home / "logs", home / "checkout/tare", bin):
        folder.mkdir(parents=True)
    (home / "checkout/tare/__init__.py").touch()
    (home / "checkout/tare/__main__.py").write_text(COMMAND)
    (bin / "snakemake").write_text(SNAKEMAKE.format(python=sys.executable))
    (bin / "snakemake").chmod(0o755)
    monkeypatch.setattr(fault_runs, "SNAKEMAKE", bin / "snakemake")
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}")
    return SimpleNamespace(
        home=home, checkout=home / "checkout", config=home / "study.yaml", logs=home / "logs", token=tmp_path.name,
        spared=set(), runs=[], about={"stage_s": {"rounds": 0.5}, "commit": "abc"}, targets=lambda _: ["out"],
        seed=lambda _, folder: folder.mkdir(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "part"),
    [*(("kill", part) for part in ("make", "snakemake", "shell", "command", "all")), ("hang", "command")],
)
def test_a_trial_disturbs_waits_until_nothing_runs_and_gives_the_command_again(pool, monkeypatch, kind, part):
    seen = []

    def judged(trial, run, stage, status):
        seen.append((status, (run.seen / "out").read_text()))
        return {"finished": True}

    monkeypatch.setattr(fault_trials.Trial, "judged", judged)
    monkeypatch.setattr(fault_trials, "HANG_S", 0.3)
    monkeypatch.setattr(fault_trials, "INTERRUPTED_S", 5.0)
    monkeypatch.setattr(fault_trials, "SETTLE_S", 0.0)
    case = fault_trials.Case(kind=kind, where=f"{part} of rounds", environment="apptainer")
    row = fault_trials.Trial(pool, case).row()
    assert row["problems"] == [] and row["reason"] is None and seen == [(0, "done")]
    number = "SIGKILL" if kind == "kill" else "SIGSTOP"
    assert any(line.startswith(f"{number} to ") and f", {part}: " in line for line in row["disturbed"])
    assert row["tries"] == 1 and row["status"] != 0 and row["finished"]
    assert not [line for line in row["left"] if str(pool.home) in line] and pool.runs == []
    assert injecting.ours(injecting.processes(f"{fault_runs.TOKEN}={pool.token}")) == set()


@pytest.mark.parametrize(("status", "tries", "finished"), [(0, 1, True), (0, 2, False), (1, 3, False)])
def test_a_next_run_that_fails_is_told_though_a_later_one_finishes(tmp_path, monkeypatch, status, tries, finished):
    monkeypatch.setattr(fault_trials.Trial, "judged", lambda *_: {"finished": status == 0, "units": True})
    (tmp_path / "results/campaigns").mkdir(parents=True)
    run = SimpleNamespace(seen=tmp_path, again=lambda: (status, tries))
    case = fault_trials.Case(kind="kill", where="make of rounds", environment="apptainer")
    trial = fault_trials.Trial(SimpleNamespace(home=tmp_path), case)
    assert trial.recovered(run, fault_runs.STAGES["rounds"]) == {"finished": finished, "units": True}
    assert [line for line in trial.problems if "only run 2" in line] == trial.problems * ((status, tries) == (0, 2))


def test_a_run_that_ends_before_it_is_disturbed_was_not_tried(pool, monkeypatch):
    monkeypatch.setattr(fault_trials, "SETTLE_S", 0.0)

    def seed(_, folder):
        folder.mkdir()
        (folder / "out").touch()  # there is nothing to do

    pool.seed = seed
    case = fault_trials.Case(kind="kill", where="command of rounds", environment="apptainer")
    row = fault_trials.Trial(pool, case).row()
    assert row["reason"].startswith(fault_trials.ENDED) and row["problems"] == [] and row["finished"] is None


def test_a_disturbed_run_that_never_ends_is_told_and_so_is_a_trial_that_breaks(pool, monkeypatch):
    monkeypatch.setattr(fault_trials, "SETTLE_S", 0.0)
    case = fault_trials.Case(kind="kill", where="command of rounds", environment="apptainer")
    trial = fault_trials.Trial(pool, case)
    assert trial.over(SimpleNamespace(wait=lambda: None, processes=dict)) is None
    assert "had not ended after" in trial.problems[0]
    monkeypatch.setattr(fault_trials.Trial, "begun", lambda *_: 1 / 0)
    row = fault_trials.Trial(pool, case).row()
    assert row["problems"] == [row["problems"][0]] and "ZeroDivisionError" in row["problems"][0]
    assert "test_faults.py, line" in row["problems"][0] and row["reason"] is None


def test_what_is_interrupted_leaves_nothing_running(tmp_path, monkeypatch):
    ended = []

    class Pool:
        def __init__(self, home, environment):
            self.home, self.record, self.about = home, tmp_path, {"commit": faults.commit()}
            self.runs = [SimpleNamespace(end=lambda: ended.append(environment))]

        def prepare(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(faults, "Pool", Pool)
    asked = SimpleNamespace(minutes=1.0, out=tmp_path / "faults.json", fresh=False)
    with pytest.raises(KeyboardInterrupt):
        faults.take(asked, faults.cases(["network"], ["docker"]), [], Journal(tmp_path / "faults.jsonl"))
    assert ended == ["docker"]


# --- the campaign


def test_a_campaign_kills_a_hundred_times_each_part_in_each_stage_and_all_kinds_come_early():
    every = faults.cases(faults.KINDS, faults.ENVIRONMENTS)
    assert len({case.key for case in every}) == len(every)
    killed = [case for case in every if case.kind == "kill"]
    assert len(killed) == 100
    parts = Counter(case.where.partition(" of ")[0] for case in killed)
    assert set(parts) == {*injecting.ROLES, injecting.ALL} and min(parts.values()) >= 4
    assert {case.stage for case in killed} == set(faults.STAGES)
    assert {case.environment for case in killed} == set(faults.ENVIRONMENTS)
    assert set(faults.KINDS) == {case.kind for case in every[:30]} == set(faults_page.TITLES)
    assert faults.cases(faults.KINDS, faults.ENVIRONMENTS) == every
    alone = faults.cases(faults.KINDS, ["apptainer"])
    assert all(case.environment == "apptainer" for case in alone) and set(alone) < set(every), "a part of the same"
    assert all(hasattr(fault_trials.Trial, kind) for kind in faults.KINDS)
    assert [case.kind for case in faults.cases(["network"], ["docker"])] == ["network"] * 7


def test_what_was_interrupted_goes_on_and_what_was_wrong_can_be_made_again():
    every = faults.cases(faults.KINDS, faults.ENVIRONMENTS)
    rows = [row_of(case) for case in every[:9]]
    assert faults.remaining(rows, every) == every[9:]
    again = [*rows, row_of(every[0], problems=["it"])]
    assert len(faults.latest(again)) == 9 and faults.is_bad(faults.latest(again)[0])
    assert faults.is_bad(row_of(every[0], left=["processes: 1 x"])) and not faults.is_bad(rows[0])


def test_the_study_is_small_and_is_checked():
    from tare.model.studies import campaigns, checks, loading

    config = loading.merge(loading.load(project_root() / "config/config.yaml"), fault_runs.study_of("docker"))
    found = checks.check(config)
    assert found.environments == ("host", "docker") and list(found.workloads) == ["mnist_cnn"]
    kinds = Counter(one.kind for one in campaigns.campaigns(found))
    assert kinds == {"rounds": 1, "causes": 1}, "beside the starts"


def row_of(case, **changes):
    about = {"kind": case.kind, "where": case.where, "environment": case.environment, "number": case.number}
    good = {
        "finished": True,
        "units": True,
        "tables": True,
        "recorded": {},
        "left": [],
        "problems": [],
        "reason": None,
    }
    found = {"at": "2026-01-02T03:04:05Z", "cpu": "A Processor", "kernel": "6.1", "commit": "abc", "seconds": 40.0}
    return {
        **about,
        **found,
        "disturbed": ["SIGKILL to 1"],
        "status": 2,
        "tries": 1,
        "reason": None,
        **good,
        **changes,
    }


def a_result():
    every = faults.cases(faults.KINDS, faults.ENVIRONMENTS)
    rows = [row_of(case) for case in every]
    at = next(n for n, case in enumerate(every) if case.where.startswith("guard of"))
    rows[at] |= {"tables": False, "problems": ["metrics.csv: missing,\n1 times"], "left": ["mounts: /x"]}
    at = next(n for n, case in enumerate(every) if case.kind == "kill" and case.where.startswith("worker of"))
    rows[at] |= {"recorded": {"rounds.docker+host": ["unit 1, docker: killed"]}}
    for row in rows:
        if row["kind"] == "clock":
            row |= dict.fromkeys(("finished", "units", "tables")) | {"reason": "gcc is not there | install it"}
        if row["kind"] == "network":
            row |= {"units": None}
    before = {**rows[0], "problems": ["it was repaired"]}
    return faults.result([before, *rows], {"docker": {"undisturbed_s": 61.2, "loose": ["samples: : its rows"]}})


def test_the_page_has_each_kind_and_place_with_its_counts_and_what_was_wrong_in_full(tmp_path):
    write_json(tmp_path / "found.json", a_result())
    found = read_json(tmp_path / "found.json")
    page = faults_page.page(found)
    lines = page.splitlines()
    cells = {tuple(line.strip("| ").split(" | ")[:2]): line for line in lines if line.startswith("| ")}
    assert sum(one["tried"] for one in found["counts"] if one["kind"] == "kill") == 100
    guard = next(one for one in found["counts"] if one["where"] == "guard")
    count = guard["tried"]
    assert guard["planned"] == count and guard["tables"] == [count - 1, count] and guard["left"] == 1
    all_of = f"{count} of {count}"
    assert f"| {all_of} | {all_of} | {all_of} | **{count - 1} of {count}** |" in cells["killed (SIGKILL)", "guard"]
    worker = next(one for one in found["counts"] if one["where"] == "worker")
    assert worker["recorded"] == 1
    assert "| 0 of 1: gcc is not there \\| install it |" in cells["clock steps by an hour", "forwards, programs"]
    assert "| 1 of 1 | 1 of 1 |  | 1 of 1 |" in cells["bad download", "redirect to a page of HTML"]
    assert len(found["counts"]) == len(lines_of_first_table(lines)) - 2
    assert "metrics.csv: missing,\n1 times\nmounts: /x" in page and "\nsamples: : its rows\n" in page
    first, again = page.split("## What was wrong, and was tried again")
    assert "it was repaired" in again and "it was repaired" not in first
    tried, planned = (sum(one[name] for one in found["counts"]) for name in ("tried", "planned"))
    assert planned > tried > 100
    assert f"{tried} of {planned} planned trials have run, on A Processor, Linux 6.1, 2026-01-02. In 1 of" in page
    assert "61 s in docker" in page


def test_a_campaign_that_has_only_begun_says_what_has_not_run():
    every = faults.cases(faults.KINDS, faults.ENVIRONMENTS)
    found = faults.result([row_of(case) for case in every[:3]], {})
    assert sum(one["planned"] for one in found["counts"]) == len(every)
    text = faults_page.page(found)
    assert (
        f"3 of {len(every)} planned trials have run" in text
        and "Nothing was wrong in the last try of each." in text
    )
    assert "| bad download | status 404 | 0 of 1 |  |" in text


def test_what_is_published_has_no_path_of_this_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(faults, "PAGE", tmp_path / "faults.md")
    (case, *_) = faults.cases(faults.KINDS, faults.ENVIRONMENTS)
    row = row_of(case, problems=[f"cannot read {faults.ROOT}/results/a.json"])
    write_json(tmp_path / "made.json", faults.result([row], {}))
    faults.publish(tmp_path / "made.json")
    assert read_json(faults.KEPT)["trials"][0]["problems"] == ["cannot read results/a.json"]
    assert "\ncannot read results/a.json\n" in faults.PAGE.read_text()


def lines_of_first_table(lines):
    start = next(n for n, line in enumerate(lines) if line.startswith("| fault |"))
    return lines[start : lines.index("", start)]


@pytest.mark.skipif(not faults.KEPT.exists(), reason="no results of the campaign are kept yet")
def test_the_page_is_the_one_that_the_kept_results_give():
    kept = read_json(faults.KEPT)
    assert faults.PAGE.read_text() == faults_page.page(kept)
    assert faults.counts(kept["trials"], faults.cases(faults.KINDS, faults.ENVIRONMENTS)) == kept["counts"]


def test_the_wall_clock_of_a_program_steps_while_it_runs_and_no_other_clock(tmp_path):
    offset = tmp_path / "offset"
    offset.write_text("0")
    code = (
        "import pathlib, sys, time, datetime\n"
        "was, began = time.time(), time.monotonic()\n"
        "pathlib.Path(sys.argv[1]).write_text('-3600')\n"
        "time.sleep(0.01)\n"
        "print(time.time() - was, datetime.datetime.now().timestamp() - was, time.monotonic() - began)"
    )
    moved = fault_trials.wall_clock(tmp_path / "clock.so", offset)
    done = subprocess.run(
        [sys.executable, "-c", code, str(offset)], env={**os.environ, **moved}, capture_output=True, text=True
    )
    by_time, by_date, monotonic = map(float, done.stdout.split())
    assert -3600 < by_time < -3590 and -3600 < by_date < -3590 and 0.01 <= monotonic < 10, done.stderr


def test_a_campaign_goes_on_with_the_trials_that_are_kept(tmp_path, monkeypatch):
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(faults, "KEPT", kept)
    assert faults.kept_rows() == []
    first, again = (row_of(case) for case in faults.cases(["journal"], ["apptainer"])[:2])
    write_json(kept, {"schema": faults.SCHEMA, "trials": [again], "repeated": [first]})
    assert faults.kept_rows() == [first, again]
    write_json(kept, {"schema": faults.SCHEMA + 1, "trials": [again], "repeated": []})
    assert faults.kept_rows() == [], "of another form"


def test_what_is_left_is_listed_and_nothing_is_published_before_there_is_anything(tmp_path):
    def call(*words):
        command = [sys.executable, str(BENCHMARKS / "faults.py"), "--out", str(tmp_path / "faults.json"), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=project_root(), check=False)

    listed = call("--list", "--kinds", "network", "journal")
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) == 11, listed.stderr
    refused = call("--publish")
    assert refused.returncode == 2 and "run the campaign first" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1 and list(tmp_path.iterdir()) == []
    journal = Journal(tmp_path / "faults.jsonl")
    for case, reason in zip(faults.cases(["journal"], ["apptainer"]), (None, "no disk"), strict=False):
        journal.append({"schema": faults.SCHEMA, **row_of(case, reason=reason)})
    left = call("--list", "--kinds", "network", "journal").stdout.splitlines()
    assert len(left) == 10, "what was not possible is tried again"
