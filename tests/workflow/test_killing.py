"""Each process of make, Snakemake, its shell, the measuring command and its launch, and all of them, are killed.

At moments drawn by the run's seed; then the same command is given again at once, as a user would. In the end every
campaign has each unit once, no two launches were ever alive together, and nothing is left running.
"""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import matrix
import pytest

from tare.core.files import project_root
from tare.model.journals.sealed import read_sealed

ROOT = project_root()
QUICK = ROOT / "tests/quick_campaign.py"
BIN = Path(sys.executable).parent
CAMPAIGNS = ("a", "b")
UNITS = 60  # more than are measured before the last is killed
KILLS = 20  # of each kind three or more: the first while all of it starts, others once a launch has lived
VICTIMS = ("make", "snakemake", "shell", "command", "launch", "all")
SNAKEFILE = """
import os
from tare.experiments.alone import WORKFLOW, process_stamp
from tare.experiments.attempts import attend
os.environ[WORKFLOW] = process_stamp(os.getpid())
attend()

rule all:
    input:
        expand("results/campaigns/{{name}}/sealed.json", name={names})

rule measure:
    output:
        "results/campaigns/{{name}}/sealed.json"
    log:
        "logs/{{name}}.log"
    shell:
        "{python} {quick} {{output}} notes {units} > {{log}} 2>&1"
"""
MAKEFILE = "report:\n\t@{snakemake} --cores 2 --nolock --rerun-incomplete --quiet all -- all\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A workflow of two campaigns that Snakemake would run at once; `of_units` says how long they are."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "locks").mkdir()
    (tmp_path / "Makefile").write_text(MAKEFILE.format(snakemake=BIN / "snakemake"))
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def of_units(folder, units):
    """Give each campaign this many units."""
    text = SNAKEFILE.format(names=list(CAMPAIGNS), python=sys.executable, quick=QUICK, units=units)
    (folder / "Snakefile").write_text(text)


def report(folder):
    """`make report`, started."""
    return subprocess.Popen(
        ["make", "report"], cwd=folder, stdout=subprocess.DEVNULL, stderr=(folder / "errors").open("ab"),
        start_new_session=True,
    )  # fmt: skip


def chain(make):
    """Living processes below make, by their part."""
    found = {"make": [make], "snakemake": [], "shell": [], "command": [], "launch": []}
    for pid in below(make):
        words = words_of(pid)
        if "quick_campaign.py" in words and "python" in words.split(" ")[0]:
            found["command"].append(pid)
        elif "snakemake" in words and "quick_campaign" not in words:
            found["snakemake"].append(pid)
        elif "alive-" in words:
            found["launch"].append(pid)
        elif "quick_campaign" in words:
            found["shell"].append(pid)
    return found


def below(pid):
    children = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]


def words_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def wait_for(condition, seconds, what):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what() if callable(what) else what
        time.sleep(0.05)


def measuring_in(folder):
    """Processes that measure, or are launches, in this folder, whoever their parents are."""
    return [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if str(folder / "notes") in (words := words_of(entry.name)) or
        ("quick_campaign.py" in words and _cwd(entry) == str(folder))
    ]  # fmt: skip


def going_on(folder, victim):
    """What still measures, for a message."""
    left = {pid: words_of(pid)[:200] for pid in measuring_in(folder)}
    return f"after {victim} was killed, measuring goes on: {left}"


def _cwd(entry):
    try:
        return str((entry / "cwd").readlink())
    except OSError:
        return ""


def has_begun(running, part="command"):
    """Whether there is a process of this part, or nothing to measure any more."""
    return running.poll() is not None or bool(chain(running.pid)[part])


def kill(running, victim):
    """Kill a process of a kind, once there is one, or all that there are; returns how many."""
    killed = 0
    until = time.monotonic() + 30
    while not killed and running.poll() is None and time.monotonic() < until:
        parts = chain(running.pid)
        for pid in list(itertools.chain(*parts.values())) if victim == "all" else parts[victim][:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed


def end(running):
    """End what is left of a make and reap it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


@pytest.mark.timeout(900)
def test_whatever_is_killed_each_unit_is_measured_once(folder):
    of_units(folder, UNITS)
    chance = random.Random(matrix.SEED)
    killed = []
    for number in range(KILLS):
        running = report(folder)
        part = "command" if number < len(VICTIMS) else "launch"
        wait_for(partial(has_begun, running, part), 180, "nothing was started")
        time.sleep(chance.uniform(0, 0.8))
        victim = VICTIMS[number % len(VICTIMS)]
        killed.append((victim, kill(running, victim)))
        if victim in ("snakemake", "all"):
            # Nobody is told: what measures has to notice by itself that its workflow is gone.
            wait_for(lambda: not measuring_in(folder), 30, partial(going_on, folder, victim))
        end(running)
    assert all(count for _, count in killed), killed
    assert any(folder.glob("results/campaigns/*/units.jsonl")), "what was killed had measured nothing"
    finished = report(folder)
    assert finished.wait(300) == 0, (folder / "errors").read_text()[-2000:]
    spans = []
    for name in CAMPAIGNS:
        found = read_sealed(folder / "results/campaigns" / name / "sealed.json")
        assert [unit.unit for unit in found.units] == list(range(UNITS + 1))
        assert not list((folder / "results/campaigns" / name).glob("superseded-*"))
        spans += [(row.spawn_ns, row.end_ns) for unit in found.units for row in unit.launches.values()]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(sorted(spans))), "two were not alone"
    assert measuring_in(folder) == []
