"""How planning grows with nodes and launches: time, memory and files of a dry run, calls of sbatch and sinfo.

    .venv/bin/python benchmarks/cluster_plans.py --nodes 1 10 300
    .venv/bin/python benchmarks/cluster_plans.py --nodes 100 --rounds 2 32 333

A study of two environments and one workload is planned for ever more nodes of a made-up cluster, and ever more
rounds on each, by `snakemake -n` with profiles/slurm. Nothing is measured. docs/cluster.md has both tables as one.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tare.core.files import project_root
from tare.model.studies.campaigns import campaigns
from tare.model.studies.checks import check
from tare.model.studies.loading import load, merge

ROOT = project_root()
STUDY = {
    "study": "grown",
    "environments": ["host", "apptainer"],
    "workloads": {"mnist_cnn": {"batch": 64, "sweep_batches": []}, "sentiment_rnn": None},
    "papers": [],
    "stacks": [],
    "arms": {"rounds": []},
}
SINFO = """#!/bin/sh
echo >> "$0.calls"
i=1
while [ $i -le {nodes} ]; do echo "n$i|32|64000|(null)|infinite|(null)|idle"; i=$((i+1)); done
"""
# The executor of Snakemake asks it, too.
SCONTROL = '#!/bin/sh\ncase "$*" in *"show node"*) echo >> "$0.calls" ;; esac\n'
# Rules whose jobs are made where the command is given, as they say themselves (`localrule`).
HERE = re.compile(r"^\s*\$ (?:\w+=\S+ )*python -m tare (\S+)", re.MULTILINE)
SENT = ("probe", "machine", "ceilings", "rounds", "causes", "profiles", "starts")
AS_ONE = re.compile(r"^would send (\d+) jobs? as one", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a plan of a number of nodes took, and holds."""

    nodes: int
    launches: int
    jobs: int
    measuring: int
    sent: int
    asked: int  # of sinfo and of scontrol, each
    seconds: float
    mebibytes: float
    files: int  # written by the dry run
    written: int  # their bytes


def launches(study: dict[str, object]) -> int:
    """Launches of the campaigns of one node, each round with a second host."""
    own = check(merge(load(ROOT / "config/config.yaml"), study))
    total = 0
    for one in campaigns(own):
        if one.kind == "rounds":
            total += (own.rounds.units or 0) * (len(one.environments) + 1)
        elif one.kind == "causes":
            total += own.causes.units * len(one.environments)
    return total


def planned(nodes: int, rounds: int, folder: Path) -> Planned:
    """Plan the study for so many nodes, each with so many rounds, in an empty folder."""
    (folder / "bin").mkdir()
    (folder / "bin/sinfo").write_text(SINFO.format(nodes=nodes))
    (folder / "bin/scontrol").write_text(SCONTROL)
    for name in ("sinfo", "scontrol"):
        (folder / "bin" / name).chmod(0o755)
    study = {**STUDY, "machines": {"thin": {"partition": "thin", "nodes": nodes}}, "rounds": {"units": rounds}}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    command = [
        *("/usr/bin/env", "time", "-f", "%M", "-o", str(folder / "memory"), str(ROOT / ".venv/bin/snakemake")),
        *("--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)),
        *("--workflow-profile", str(ROOT / "profiles/slurm"), "-n", "-p", "all"),
        *("--configfile", str(folder / "study.yaml")),
    ]
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    environment.pop("TARE_MACHINE", None)
    before = set(folder.rglob("*"))
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    said = done.stdout + done.stderr
    if done.returncode:
        sys.exit("\n".join(said.splitlines()[-3:]))
    made = [path for path in set(folder.rglob("*")) - before if path.is_file() and path.parent != folder / "bin"]
    (jobs,) = re.findall(r"^(\d+) jobs would run", said, re.MULTILINE)
    measuring = sum(name in SENT for name in HERE.findall(said))
    groups = [int(count) for count in AS_ONE.findall(said)]
    return Planned(
        nodes=nodes,
        launches=nodes * launches(study),
        jobs=int(jobs),
        measuring=measuring,
        sent=measuring - sum(groups) + len(groups),
        asked=max(len(calls.read_text().splitlines()) for calls in (folder / "bin").glob("*.calls")),
        seconds=seconds,
        files=len(made) - 1,  # without that of `time`
        written=sum(path.stat().st_size for path in made if path.name != "memory"),
        mebibytes=int((folder / "memory").read_text().split()[-1]) / 1024,
    )


def show(rows: Sequence[Planned]) -> None:
    """The table, and where it was made."""
    print(f"Linux {platform.release()}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}\n")
    titles = (
        *("nodes", "launches", "jobs", "of them measure", "calls of sbatch", "of sinfo"),
        *("dry run", "memory", "files written"),
    )
    print(f"| {' | '.join(titles)} |\n{'| --- ' * len(titles)}|")
    for one in rows:
        print(
            f"| {one.nodes:,} | {one.launches:,} | {one.jobs:,} | {one.measuring:,} | {one.sent:,} | "
            f"{one.asked} | {one.seconds:.0f} s | {one.mebibytes:,.0f} MiB | {one.files} ({one.written:,} bytes) |"
        )


def main() -> None:
    """Plan for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", nargs="+", type=int, default=[1, 10, 100])
    parser.add_argument("--rounds", nargs="+", type=int, default=[20], help="of the campaign of each node")
    asked, rows = parser.parse_args(), []
    for nodes in asked.nodes:
        for rounds in asked.rounds:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(planned(nodes, rounds, Path(folder)))
    show(rows)


if __name__ == "__main__":
    main()
