"""The workflow's output for people, from a real Snakemake on a toy workflow."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from snakemake_logger_plugin_tare import slurm, waiting

ROOT = Path(__file__).resolve().parents[2]

SNAKEFILE = """
rule all:
    input: "good.txt", "plain.txt", "bad.txt"

rule good:
    output: "good.txt"
    log: "logs/good.log"
    message: "make something good"
    shell: "echo '    half way'; echo hi > {output}"

rule plain:
    output: "{name}.txt"
    shell: "echo hi > {output}"

rule bad:
    output: "bad.txt"
    log: "logs/bad.log"
    message: "try something bad"
    shell: "(echo one detail; echo 'tare: the disk is full'; exit 3) 2> {log} >&2"

ruleorder: good > bad > plain
"""

TIMED = """
import snakemake_logger_plugin_tare

snakemake_logger_plugin_tare.expect({"first": 600, "last": 60})

rule all:
    input: "last.txt"

rule last:
    input: "first.txt"
    output: "last.txt"
    shell: "touch {output}"

rule first:
    output: "first.txt"
    shell: "test ! -e fails; touch {output}"

rule beside:
    output: "beside.txt"
    priority: -1
    shell: "touch {output}"
"""


@pytest.fixture
def toy(tmp_path):
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    profile = tmp_path / "profiles" / "default" / "profile.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text((ROOT / "profiles/default/profile.yaml").read_text())

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if not line.startswith("Using workflow specific profile")]


def test_a_job_is_one_line_and_its_own_output_passes_through(toy):
    done = toy("good.txt", "plain.txt")
    assert done.returncode == 0
    assert done.stdout == "    half way\n"
    lines = said(done)
    assert sorted(re.sub(r"^\[ ?\d/2  00:\d\d\] ", "", line) for line in lines[:-1]) == [
        "make something good",
        "run plain (name=plain)",
    ]
    assert re.fullmatch(r"2 jobs done in \d+ s", lines[-1])


def test_nothing_to_be_done_is_one_line(toy):
    toy("good.txt")
    done = toy("good.txt")
    assert said(done) == ["Nothing to be done: everything requested exists and is up to date."]


def test_about_how_long_all_jobs_will_take_stands_at_a_start_where_it_has_changed(toy, tmp_path):
    (tmp_path / "timed").write_text(TIMED)
    lines = said(toy("-s", "timed", "all"))
    assert [re.sub(r"^\[\d/3  00:\d\d\] ", "", line) for line in lines[:-1]] == [
        "run first (about 11 min left in all)",
        "run last (about 60 s left in all)",
    ]


def test_after_a_failure_the_time_left_counts_jobs_that_will_not_be_run(toy, tmp_path):
    (tmp_path / "timed").write_text(TIMED)
    (tmp_path / "fails").touch()
    text = "\n".join(said(toy("-s", "timed", "--cores", "1", "all", "beside.txt")))
    assert "run first (about 11 min left in all)" in text
    assert "run beside (at most about 60 s left in all)" in text


def test_quiet_leaves_out_what_is_asked_for(toy):
    assert said(toy("-q", "all", "--", "good.txt")) == []
    assert not [line for line in said(toy("-q", "rules", "--", "plain.txt")) if "plain" in line]
    assert said(toy("-q", "rules", "--", "plain.txt")) == [], "nothing is to be done"


def test_what_runs_no_job_says_what_it_did(toy):
    toy("good.txt")
    assert "Would delete good.txt" in toy("-n", "--delete-all-output", "good.txt").stderr
    assert "unlocked" in toy("--unlock").stderr.lower()


def test_a_failure_names_rule_reason_log_and_its_last_lines_and_the_others_go_on(toy):
    done = toy("all")
    assert done.returncode == 1
    text = "\n".join(said(done))
    assert "FAILED: rule bad, try something bad\n    tare: the disk is full\n" in text
    assert "    its log: logs/bad.log\n    | one detail\n    | tare: the disk is full\n" in text
    assert [line for line in said(done)[:-1] if not line.startswith(("[", "    "))] == []
    assert re.search(r"2 of 4 jobs done in \d+ s, 1 failed: try something bad\.", text.splitlines()[-1])


SLURM = "SLURM-job '7' failed, SLURM status is: '{}'. Detailed failure reason unavailable (no 'sacct')."


@pytest.mark.parametrize(
    ("said", "told", "tail", "reason"),
    [
        (
            SLURM.format("TIMEOUT"),
            "tare: interrupted",
            ["x"],
            "tare: Slurm ended job 7 (TIMEOUT): its time limit was reached: give the same command again, which "
            "goes on with a campaign; --set-resources RULE:runtime=MINUTES gives",
        ),
        (
            SLURM.format("OUT_OF_MEMORY"),
            None,
            ["x"],
            "tare: Slurm ended job 7 (OUT_OF_MEMORY): one of its processes used",
        ),
        (SLURM.format("OUT_OF_MEMORY"), "tare: 9 MiB", ["x"], "tare: 9 MiB"),
        (SLURM.format("CANCELLED"), None, [], "tare: Slurm ended job 7 (CANCELLED): somebody cancelled it"),
        (SLURM.format("FAILED"), "tare: a reason", ["x"], "tare: a reason"),
        (SLURM.format("FAILED"), None, ["x", "y"], "tare: Slurm job 7 failed: y"),
        (
            SLURM.format("FAILED"),
            None,
            [],
            "tare: Slurm job 7 did not begin (it wrote nothing): its node must see",
        ),
        (
            "SLURM sbatch failed. The error message was 'sbatch: error: no such thing'.\n    sbatch call:\n sbatch",
            "tare: of another try",
            [],
            "tare: Slurm does not accept the job: no such thing",
        ),
        (
            "SLURM sbatch failed. The error message was 'sbatch: error: Batch job submission failed: Required "
            "partition not available (inactive or drain)'.\n    sbatch call:\n sbatch",
            None,
            [],
            "tare: Slurm does not accept the job: Batch job submission failed: Required partition not available "
            "(inactive or drain) (to fix it: in `machines`, name another `partition`, or wait until it is open",
        ),
        (
            "Job submission failed with exception: The given account x appears to be invalid.",
            None,
            [],
            "tare: Slurm does not accept the job: The given account x appears to be invalid.",
        ),
        ("None", "tare: a reason", [], None),
    ],
)
def test_what_the_plugin_for_slurm_says_is_one_line_with_its_remedy(said, told, tail, reason):
    found = slurm.why_it_failed(said, told, tail, began=bool(tail))
    assert found == reason or found.startswith(reason)


FILLS = 'rule fills:\n    output: "all"\n    log: "fills.log"\n    shell: "cat /dev/zero > filler 2> {log}"\n'
SMALL_DISK = 'mount -t tmpfs -o size=8m tmpfs disk; cp -r profiles fills disk; cd disk; exec "$@"'


def test_a_job_that_can_not_even_write_its_log_is_of_a_full_disk(toy, tmp_path):
    (tmp_path / "fills").write_text(FILLS)
    (tmp_path / "disk").mkdir()
    as_root = [] if os.getuid() == 0 else ["--map-root-user"]
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            *as_root,
            "sh",
            "-ec",
            SMALL_DISK,
            "sh",
            sys.executable,
            "-m",
            "snakemake",
            "-s",
            "fills",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    text = "\n".join(said(done))
    assert done.returncode == 1 and f"    tare: no space left in {tmp_path / 'disk'}: free some" in text, text
    assert "Traceback" not in text


def test_the_log_of_an_earlier_run_is_not_taken_for_this_ones(toy, tmp_path):
    (tmp_path / "mute").write_text('rule mute:\n    output: "mute.txt"\n    log: "mute.log"\n    shell: "exit 3"\n')
    (tmp_path / "mute.log").write_text("tare: an old reason\n")
    text = "\n".join(said(toy("-s", "mute", "mute.txt")))
    assert "FAILED: rule mute" in text and "old reason" not in text


def test_a_dry_run_says_what_would_run_and_why(toy):
    done = toy("-n", "good.txt")
    assert "would make something good  (Missing output files: good.txt)" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 job would run"


def test_errors_of_snakemake_itself_are_not_swallowed(toy):
    done = toy("nothing.here")
    assert done.returncode == 1
    assert "nothing.here" in "\n".join(said(done))


def test_a_study_file_that_there_is_not_is_one_line(toy, tmp_path):
    done = toy("good.txt", "--configfile", "config/mine.yml")
    assert done.returncode == 1 and not (tmp_path / "good.txt").exists()
    (line,) = said(done)
    assert line.startswith("tare: Snakemake ended with FileNotFoundError") and "config/mine.yml" in line


REFUSED = """
import snakemake_logger_plugin_tare

def found(wildcards):
    snakemake_logger_plugin_tare.refuse("no such thing")
    raise ValueError("no such thing")

rule made:
    input: found
    output: "made.txt"
    shell: "touch {output}"
"""


def test_what_the_rules_refuse_is_one_line(toy, tmp_path):
    (tmp_path / "refused").write_text(REFUSED)
    done = toy("-s", "refused", "made.txt")
    assert done.returncode == 1 and said(done) == ["tare: no such thing"]


def test_a_lock_says_how_it_is_removed_and_that_mends_it(toy, tmp_path):
    """A workflow that is killed leaves its lock and an output that may not be whole."""
    (tmp_path / "slow").write_text('rule slow:\n    output: "slow.txt"\n    shell: "touch {output}; sleep 60"\n')
    words = [sys.executable, "-m", "snakemake", "-s", "slow", "slow.txt"]
    with subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        while not (tmp_path / "slow.txt").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    (tmp_path / "slow").write_text('rule slow:\n    output: "slow.txt"\n    shell: "echo whole > {output}"\n')
    done = toy("-s", "slow", "slow.txt")
    (line,) = said(done)
    assert done.returncode == 1 and line.startswith("tare: nothing was done: ") and "snakemake --unlock`" in line
    assert toy("-s", "slow", "--unlock").returncode == 0
    done = toy("-s", "slow", "slow.txt", "--workflow-profile", "none")
    assert done.returncode == 1, "without the profile Snakemake asks"
    assert toy("-s", "slow", "slow.txt").returncode == 0
    assert (tmp_path / "slow.txt").read_text() == "whole\n"


def test_what_snakemake_itself_can_not_write_is_one_line(toy, tmp_path):
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/locks").write_text("in the way")
    done = toy("good.txt")
    assert done.returncode == 1
    (line,) = said(done)
    assert re.fullmatch(r"tare: Snakemake ended with .*\.snakemake/locks.*", line)


def test_a_workflow_file_that_there_is_not_is_one_line(toy):
    done = toy("good.txt", "-s", "Snakefle")
    assert done.returncode == 1
    assert len(said(done)) == 1 and "Snakefle" in said(done)[0] and "Traceback" not in done.stderr


def where_standard_error_is_full(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with Path("/dev/full").open("wb") as full:
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=120,
        )


def test_where_standard_error_is_full_the_workflow_runs_to_its_end(toy, tmp_path):
    """It reads no profile, of which Snakemake itself would print a line first: that case is the next test's."""
    options = ("--workflow-profile", "none", "--logger", "tare", "--cores", "1", "--keep-going")
    done = where_standard_error_is_full(tmp_path, *options, "good.txt", "plain.txt")
    assert (done.returncode, done.stdout) == (0, "    half way\n")
    assert (tmp_path / "plain.txt").exists()
    (tmp_path / "good.txt").unlink()
    done = where_standard_error_is_full(tmp_path, *options, "bad.txt", "good.txt")
    assert done.returncode == 1 and (tmp_path / "good.txt").exists() and not (tmp_path / "bad.txt").exists()


def test_where_standard_error_is_full_snakemake_itself_ends_at_the_line_of_its_profile(toy, tmp_path):
    """As docs/design.md says, with a way around it; once this fails, that sentence can go."""
    done = where_standard_error_is_full(tmp_path, "good.txt")
    assert (done.returncode, done.stdout) == (1, "") and not (tmp_path / "good.txt").exists()
    assert not (tmp_path / ".snakemake").exists(), "it came to the workflow"
    options = "--workflow-profile none --logger tare"
    assert f"`{options}`" in (ROOT / "docs/design.md").read_text()


def test_verbose_gives_snakemakes_own_output(toy):
    done = toy("--verbose", "good.txt")
    assert "Building DAG of jobs" in done.stderr
    assert "Reason: Missing output files: good.txt" in done.stderr


@pytest.mark.parametrize(
    ("job", "tail", "says"),
    [
        (
            "7",
            ["slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"],
            "(TIMEOUT)",
        ),
        ("7", ["slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0."], "(OUT_OF_MEMORY)"),
        ("7", ["slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"], "(CANCELLED)"),
        ("7", ["srun: error: n1: task 0: Exited with exit code 1"], None),
        (None, [], "TARE_SMALL_JOBS=alone"),
    ],
)
def test_why_jobs_that_were_sent_as_one_failed_is_read_from_slurms_log(job, tail, says):
    found = slurm.why_a_group_failed(job, tail)
    assert found is None if says is None else says in found


def test_a_node_that_failed_is_said_as_it_is_here():
    """The plugin says that later jobs avoid the node; ours name it."""
    said = (
        "Job '7' failed with status 'NODE_FAIL', but requeue is enabled. Failed node will be excluded from future."
    )
    found = slurm.in_our_words(said)
    assert (
        found.startswith("tare: the node of Slurm job 7 failed: the job is in the queue again")
        and "\n" not in found
    )
    assert slurm.in_our_words("another warning") == "another warning"


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("Priority", "(Priority): other jobs come first"),
        ("QOSMaxJobsPerUserLimit", "name another `qos`"),
        ("AssocGrpCpuLimit", "name another `account`"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n1",
            "(ReqNodeNotAvail, UnavailableNodes:n1): its node is down, drained",
        ),
        ("Reservation", "a reservation has not begun"),
        ("JobHeldUser", "`scontrol release 7`"),
        ("PartitionInactive", "name another `partition`"),
        ("SomethingNew", "`scontrol show job 7` says more"),
    ],
)
def test_why_a_job_waits_has_its_remedy(reason, says):
    (found,) = waiting.reasons_of(f"7|{reason}\n8|None\n").items()
    assert found == (reason, ["7"])
    line = waiting.line_of(*found, 5)
    assert line.startswith("tare: Slurm job 7 waits, sent 5 min ago (") and says in line
    assert waiting.line_of(reason, ["7", "9"], 5).startswith("tare: Slurm jobs 7, 9 wait, sent 5 min ago (")


def test_jobs_that_wait_for_minutes_are_said_once(tmp_path, monkeypatch):
    answer, lines, now_s = tmp_path / "answer", [], [0.0]
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat {answer}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(waiting, "LOOK_S", 3600.0)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now_s[0])
    jobs = waiting.Waiting(lines.append)

    def look(text, at_s):
        answer.write_text(text)
        now_s[0] = at_s
        lines.clear()
        jobs.look()
        return [line.partition("(")[0] for line in lines]

    jobs.note("Job 3 has been submitted with SLURM jobid 11 (log: x).")
    jobs.note("another line")
    assert look("11|Resources\n", 60.0) == [], "it has not waited for long"
    now_s[0] = 200.0
    jobs.note("Job 4 has been submitted with SLURM jobid 12 (log: x).")
    assert look("11|Resources\n12|Resources\n99|QOSMaxJobsPerUserLimit\n", 400.0) == [
        "tare: Slurm job 11 waits, sent 7 min ago "
    ]
    assert look("11|Resources\n12|Resources\n", 600.0) == [], "a reason that passes by itself"
    both = "11|QOSMaxJobsPerUserLimit\n12|QOSMaxJobsPerUserLimit\n"
    assert look(both, 660.0) == ["tare: Slurm jobs 11, 12 wait, sent 11 min ago "]
    assert look(both, 720.0) == []
    jobs.end()
