"""Studies as Snakemake sees them, with no command run.

    python tests/planned_jobs.py note FOLDER [--with-gpu] STUDY...   prints by study what it would note of each job
    python tests/planned_jobs.py play FOLDER ARGUMENTS...            runs Snakemake; of jobs, outputs are written

FOLDER is a copy of the project. Of many studies each is planned in a fork of one process.
"""

import contextlib
import hashlib
import importlib
import json
import os
import sys
from pathlib import Path

# As NVML tells of it (`tare.machine.facts.gpus`): a GPU for which every build for CUDA has kernels.
GPU = {"name": "a GPU of a test", "compute_capability": "8.0"}
# What every plan imports: once, before it is forked.
SHARED = ("pandas", "snakemake.cli", "snakemake.scheduling.job_scheduler", "tare.experiments.alone")


def noted(workflow):
    """Every job of the DAG, as Snakemake's persistence would note it."""
    kept = workflow.persistence
    return [
        {
            "rule": job.rule.name,
            "output": sorted(map(str, job.output)),
            "input": list(map(str, kept._input(job))),
            "params": kept._params(job),
            "code": kept._code(job.rule),
        }
        for job in workflow.dag.jobs
        if job.output
    ]


def note(study, out):
    """Plan one study in this process, and write its jobs into a file."""
    from snakemake import cli
    from snakemake.scheduling.job_scheduler import JobScheduler

    def schedule(self):
        Path(out).write_text(json.dumps(noted(self.workflow)))
        return True  # no job runs

    JobScheduler.schedule = schedule
    with contextlib.suppress(SystemExit):
        cli.main(["--dry-run", "--cores", "1", "all", "--configfile", study])


def note_all(folder, studies, *, with_gpu):
    """Jobs by study."""
    for name in SHARED:
        importlib.import_module(name)
    fitting = importlib.import_module("tare.machine.fitting")
    fitting.gpus = lambda: (GPU,) if with_gpu else ()
    from snakemake.cli import get_argument_parser

    get_argument_parser()  # finds the plug-ins
    os.chdir(folder)
    found = {}
    for study in studies:
        out = Path(folder) / f"noted-{Path(study).stem}.json"
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)
            try:
                note(study, out)
            finally:
                sys.stdout.flush()
                os._exit(0)
        os.waitpid(child, 0)
        if not out.exists():
            raise SystemExit(f"{study} has no plan")
        found[study] = json.loads(out.read_text())
        out.unlink()
    return found


def play(folder, words):
    """Run Snakemake with these words; instead of running a job's command its outputs are written.

    What a file holds depends on the command, but for whether the study could go on without it.
    """
    from snakemake import cli
    from snakemake.shell import shell
    from snakemake.utils import format as formatted

    def played(cls, cmd, *args, **kwargs):
        said = formatted(cmd, stepout=2).replace("--optional", "")
        for path in map(Path, sys._getframe(1).f_locals["output"]):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix:
                path.write_text(hashlib.sha256(f"{said} {path}".encode()).hexdigest())
            else:
                path.mkdir()

    shell.__new__ = played
    os.chdir(folder)
    cli.main(words)


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    what, where, *given = sys.argv[1:]
    if what == "play":
        play(where, given)
    names = [word for word in given if word != "--with-gpu"]
    json.dump(note_all(where, names, with_gpu="--with-gpu" in given), sys.stdout)
