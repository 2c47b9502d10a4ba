"""The study of docs/write-a-study.md, followed as its page says: run to its report, asked, shared with another."""

import re

import pandas as pd
import pytest
from beside import MINE
from project import ROOT, code_blocks, snakemake, tare

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(4500)]  # a whole study, on a machine that may be busy


def test_the_study_of_the_page_ends_in_what_the_page_names(written):
    table = (ROOT / "docs/write-a-study.md").read_text().partition("## 2.")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(results/[^`]*)`", table))
    assert "results/mine/report/index.html" in named
    assert [name for name in sorted(named) if not (written / name).exists()] == []
    metrics = pd.read_csv(written / "results/mine/tables/metrics.csv")
    runs = metrics[metrics["metric"] == "real_s"]
    assert set(runs["launch"]) == {"host", "host.control", "docker"} and set(metrics["workload"]) == {"mnist_cnn"}
    done = snakemake(written, "all", *MINE, "-n")
    assert "nothing to be done" in (done.stdout + done.stderr).lower()


def test_the_report_of_a_small_study_is_short_and_has_nothing_of_a_paper(written):
    """Of two environments and one workload: a short answer, and a figure for each thing that it measured."""
    results = written / "results/mine"
    drawn = [path.stem for path in (results / "figures").rglob("*.svg")]
    assert len(drawn) <= 21 and not [name for name in drawn if "nyu2022" in name], drawn
    assert not list((results / "report").glob("paper-*")) and not (results / "notebooks/nyu2022.html").exists()
    answer = (results / "report/index.html").read_text()
    told = re.sub(r"(?s)<style.*?</style>|<script.*?</script>|<svg.*?</svg>|<[^>]+>", " ", answer).split()
    assert answer.count("<svg") <= 2 and 200 < len(told) < 900 and len(answer) < 65_000


def test_the_commands_of_the_page_that_need_what_is_measured_find_it(written):
    lines = [
        line.split("#")[0] for block in code_blocks("write-a-study.md", "console") for line in block.splitlines()
    ]
    commands = [line.split()[3:] for line in lines if line.startswith("python -m tare ")]
    assert {command[0] for command in commands} == {"run", "plan"}
    for command in commands:
        done = tare(written, *command)
        assert done.returncode == 0, done.stderr
    made = [line.split()[1:] for line in lines if line.startswith("snakemake results/")]
    for command in made:
        done = snakemake(written, *command, *([] if "--configfile" in command else MINE), "-n")
        assert "nothing to be done" in (done.stdout + done.stderr).lower(), command


def test_another_study_begins_with_what_the_first_has_made(written):
    text = (written / "config/mine.yaml").read_text().replace("study: mine ", "study: another ")
    (written / "config/another.yaml").write_text(text)
    done = snakemake(written, "all", "--configfile", "config/another.yaml", "-n")
    planned = done.stdout + done.stderr
    assert "whole runs and training steps" in planned and "take the ceilings of this machine" in planned
    for made in ("try a launch", "build the tree", "the image of", "fetch and verify", "measure the ceilings"):
        assert made not in planned, made
