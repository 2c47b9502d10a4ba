"""How long the user's commands take here, from a fresh clone: run by hand, results in benchmarks/history.csv.

    python3.11 benchmarks/workflow.py [--cold]     (standard library only; --cold also starts from an empty cache)

Absolute seconds are what was observed on a named machine, not a claim.
"""

import argparse
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def timed(name, argv, folder, environment):
    """Run a command; print and return its row."""
    started = time.monotonic()
    done = subprocess.run(argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False)
    seconds = time.monotonic() - started
    row = f"| {name} | `{' '.join(argv)}` | {seconds:.1f} s | {'ok' if done.returncode == 0 else done.returncode} |"
    print(row, flush=True)
    return row


def steps(cold):
    """Name and command of each timed step, in order."""
    snakemake = ".venv/bin/snakemake"
    smoke = ["--configfile", "config/smoke.yaml"]
    yield "the default study from nothing" if cold else "the default study, caches warm", ["make", "report"]
    yield "again, finished", ["make", "report"]
    yield "dry run, finished", [snakemake, "-n", "-q", "all"]
    yield "dry run of one rule", [snakemake, "-n", "-q", "--snakefile", "one.smk"]
    yield "smoke preset, images there", [snakemake, "all", *smoke]
    yield "doctor", [".venv/bin/python", "-m", "tare", "doctor"]
    yield "command line's start", [".venv/bin/python", "-m", "tare", "--help"]
    yield "tests", ["make", "test"]


def main():
    """Clone, run, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cold", action="store_true", help="start from an empty cache")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tare-benchmark-") as temporary:
        clone = Path(temporary) / "tare"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
        if arguments.cold:
            environment["TARE_CACHE"] = str(Path(temporary) / "cache")
        (clone / "one.smk").write_text('rule one:\n    output: "one"\n    shell: "touch one"\n')
        rows = [timed(name, argv, clone, environment) for name, argv in steps(arguments.cold)]
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown CPU",
    )
    print(f"\n{cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}, {time.strftime('%Y-%m-%d')}\n")
    print("| what | command | wall time | status |\n| --- | --- | --- | --- |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
