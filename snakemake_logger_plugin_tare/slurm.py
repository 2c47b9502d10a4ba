"""What Snakemake's plugin for Slurm says, which has no event: why a job failed in one line, and what is noise."""

from __future__ import annotations

import re
from collections.abc import Sequence

# What the plugin for Slurm says of a job, and what that means: by the state in which Slurm has ended it.
NOT_SUBMITTED = re.compile(
    r"(?:SLURM sbatch failed\. The error message was '(?:sbatch: error: )?(?P<sbatch>.*?)'\.\n"
    r"|Job submission failed with exception: (?P<plugin>.*))",
    re.DOTALL,
)
FAILED_IN_SLURM = re.compile(r"SLURM-job '(\S+)' failed, SLURM status is: '([A-Z_]+)")
STATES = {
    "OUT_OF_MEMORY": (
        "one of its processes used more memory than Slurm allows: raise `memory_mib` of its machine in `machines`, "
        "or name nodes with more"
    ),
    "TIMEOUT": (
        "its time limit was reached: give the same command again, which goes on with a campaign; "
        "--set-resources RULE:runtime=MINUTES gives the rule that is named above more time"
    ),
    "DEADLINE": "its deadline was reached",
    "CANCELLED": "somebody cancelled it, or Slurm did",
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node did not start",
}
# What helps where sbatch takes no job, by what it says.
REFUSALS = {
    "partition not available": "name another `partition`, or wait until it is open (`sinfo -s`)",
    "partition name": "name another `partition`",
    "nvalid account": "name another `account`",
    "nvalid qos": "name another `qos`",
    "node configuration is not available": "ask for less in `memory_mib`, `cpus` or `gpus`, or change `constraint`",
    "Memory specification": "ask for less in `memory_mib`",
    "time limit": "ask for less in `minutes`",
    "olicy": "name another `account` or `qos`, or send fewer jobs at a time (`--jobs 1`)",
    "nvalid feature": "change `constraint`",
    "nvalid generic resource": "ask for fewer `gpus`",
}
# What Slurm writes into a job's log, and the state in which it has ended it then.
WRITTEN = {
    "DUE TO TIME LIMIT": "TIMEOUT",
    "oom-kill": "OUT_OF_MEMORY",
    "oom_kill": "OUT_OF_MEMORY",
    "DUE TO NODE FAILURE": "NODE_FAIL",
    "CANCELLED AT": "CANCELLED",
}
ALONE = "TARE_SMALL_JOBS=alone"  # as tare.machine.cluster reads it
UNSEEN = (
    "its node must see this folder, the checkout with its .venv, and the cache: put them on a file system that the "
    "nodes share"
)
# An account that is not given is the site's own; why a job is not taken is printed below its name.
NOT_WORTH_SAYING = re.compile(
    r"No SLURM account given, trying to guess|No account was given, not able to get a SLURM account"
    r"|Unable to guess SLURM account|Exception in run_job for rule "
)

# It says that later jobs avoid the node. Ours name their node, and lift that again (tare.machine.cluster).
NODE_FAILED = re.compile(r"Job '(\S+)' failed with status 'NODE_FAIL', but requeue is enabled")


def in_our_words(text: str) -> str:
    """What the plugin says, where that is not so here: otherwise the text."""
    if failed := NODE_FAILED.match(text):
        return (
            f"tare: the node of Slurm job {failed[1]} failed: the job is in the queue again, and goes on when the "
            "node is back; `sinfo -R` says why"
        )
    return text


def is_noise(text: str) -> bool:
    """Whether a warning or an error of the plugin is of no use, or is printed below a failed job as well."""
    return NOT_WORTH_SAYING.match(text) is not None


def why_a_group_failed(job: str | None, tail: Sequence[str]) -> str | None:
    """Why jobs that were sent as one failed, whose words of the plugin are lost; None where Slurm ended none.

    Args:
        job: its number; None where Slurm has not taken it.
        tail: of its log.
    """
    if job is None:
        return f"tare: Slurm does not accept these jobs as one: put {ALONE} in front of the command to see why"
    said = "\n".join(tail)
    state = next((state for words, state in WRITTEN.items() if words in said), None)
    return state and f"tare: Slurm ended job {job} ({state}): {STATES[state]}"


def why_it_failed(said: str, known: str | None, tail: Sequence[str], began: bool) -> str | None:
    """Why a job failed, by the words of the plugin for Slurm; None where those are not of it.

    Args:
        said: by the plugin.
        known: what is known to be wrong, by the job itself or else.
        tail: of its logs.
        began: whether the rule's own log is of this run.
    """
    if refused := NOT_SUBMITTED.match(said):
        words = refused["sbatch"] or refused["plugin"]
        remedy = next(
            (f" (to fix it: in `machines`, {text})" for begin, text in REFUSALS.items() if begin in words), ""
        )
        return f"tare: Slurm does not accept the job: {words}{remedy}"
    if (failed := FAILED_IN_SLURM.match(said)) is None:
        return None
    job, state = failed.groups()
    if state in STATES and (known is None or state != "OUT_OF_MEMORY"):
        return f"tare: Slurm ended job {job} ({state}): {STATES[state]}"
    if known is not None:
        return known
    last = tail[-1][:100] if tail else "it wrote nothing"
    return (
        f"tare: Slurm job {job} failed: {last}"
        if began
        else f"tare: Slurm job {job} did not begin ({last}): {UNSEEN}"
    )
