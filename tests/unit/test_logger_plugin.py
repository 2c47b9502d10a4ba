"""The workflow's output for people, from a real Snakemake on a toy workflow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import snakemake_logger_plugin_tare as plugin

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

HALVES = """
rule half:
    output: "first.txt", "second.txt"
    shell: "echo hi > first.txt; test -e there && echo hi > second.txt"
"""
ORDERED = """
from tare.core import remaining

onstart:
    for number, due in remaining.order_of(workflow.dag).items():
        print(number, due.rule, ",".join(due.outs), *due.behind)

rule all:
    input: "last.txt"

rule last:
    input: "first.txt", "there.txt"
    output: "last.txt"
    shell: "touch {output}"

rule first:
    output: "first.txt"
    shell: "touch {output}"

rule there:
    output: "there.txt"
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
    assert said(done) == ["Nothing to be done (all requested files are present and up to date)."]


def test_a_failure_names_rule_reason_log_and_its_last_lines_and_the_others_go_on(toy):
    done = toy("all")
    assert done.returncode == 1
    text = "\n".join(said(done))
    assert "FAILED: rule bad, try something bad\n    tare: the disk is full\n" in text
    assert "    its log: logs/bad.log\n    | one detail\n    | tare: the disk is full\n" in text
    assert "Traceback" not in text and "CalledProcessError" not in text
    assert re.search(r"2 of 4 jobs done in \d+ s, 1 failed: try something bad\.", text.splitlines()[-1])


def test_what_a_job_made_before_it_failed_is_kept_and_the_job_done_again(toy, tmp_path):
    (tmp_path / "halves").write_text(HALVES)
    done = toy("-s", "halves", "half")
    assert done.returncode == 1 and (tmp_path / "first.txt").read_text() == "hi\n"
    assert "keep-incomplete" not in done.stderr
    (tmp_path / "there").touch()
    done = toy("-s", "halves", "half")
    assert done.returncode == 0 and "1 job done" in done.stderr
    assert (tmp_path / "second.txt").read_text() == "hi\n"


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
    assert line.startswith("tare: there is no study file config/mine.yml: there are ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["all", "--configfile", "whole.yaml", "-n"], None),
        (["all", "--configfile=mine.yaml"], "there is no study file mine.yaml: there are "),
        (["--configfiles", "whole.yaml", "torn.yaml", "-n", "other"], "torn.yaml line 3 is not YAML"),
        (["--configfile", "."], "cannot read the study .: Is a directory"),
        (["--cores", "1", "--configfile", "whole.yaml", "all"], "; what is to be made stands before --configfile"),
    ],
)
def test_what_is_wrong_with_a_study_file_is_told(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "whole.yaml").write_text("study: mine\n")
    (tmp_path / "torn.yaml").write_text("study: mine\nseed: [1\n")
    found = plugin._wrong_study(words, Path.cwd())
    assert says in found if says else found is None


def test_a_folder_that_another_workflow_has_locked_is_one_line(toy, tmp_path):
    lock = tmp_path / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("good.txt\n")
    done = toy("good.txt")
    assert done.returncode == 1 and lock.exists()
    assert said(done) == ["tare: nothing was done: another workflow has locked this folder"]


def test_what_snakemake_itself_can_not_write_is_one_line(toy, tmp_path):
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/locks").write_text("in the way")
    done = toy("good.txt")
    assert done.returncode == 1
    (line,) = said(done)
    assert re.fullmatch(r"tare: (cannot use|Snakemake ended with) .*\.snakemake/locks.*", line)


def test_a_workflow_file_that_there_is_not_is_one_line(toy):
    done = toy("good.txt", "-s", "Snakefle")
    assert done.returncode == 1
    assert len(said(done)) == 1 and "Snakefle" in said(done)[0] and "Traceback" not in done.stderr


def test_what_stands_behind_a_job_is_known_from_snakemakes_own_graph(toy, tmp_path):
    (tmp_path / "ordered").write_text(ORDERED)
    (tmp_path / "there.txt").touch()
    done = toy("-s", "ordered", "all")
    assert done.returncode == 0, done.stderr
    jobs = {rule: (number, outs, behind) for number, rule, outs, *behind in map(split, done.stdout.splitlines())}
    assert set(jobs) == {"first", "last", "all"}, "what is there has no job"
    assert jobs["first"][1:] == ("first.txt", [jobs["last"][0]])
    assert jobs["last"][1:] == ("last.txt", [jobs["all"][0]]) and jobs["all"][1:] == ("", [])


def split(line: str) -> list[str]:
    return line.split(" ")


def test_verbose_gives_snakemakes_own_output(toy):
    done = toy("--verbose", "good.txt")
    assert "Building DAG of jobs" in done.stderr
    assert "Reason: Missing output files: good.txt" in done.stderr
