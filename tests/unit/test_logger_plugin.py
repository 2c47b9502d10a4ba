"""The workflow's output for people, from a real Snakemake on a toy workflow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_a_dry_run_says_what_would_run_and_why(toy):
    done = toy("-n", "good.txt")
    assert "would make something good  (Missing output files: good.txt)" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 job would run"


def test_errors_of_snakemake_itself_are_not_swallowed(toy):
    done = toy("nothing.here")
    assert done.returncode == 1
    assert "nothing.here" in "\n".join(said(done))


def test_verbose_gives_snakemakes_own_output(toy):
    done = toy("--verbose", "good.txt")
    assert "Building DAG of jobs" in done.stderr
    assert "Reason: Missing output files: good.txt" in done.stderr
