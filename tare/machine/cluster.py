"""What a Slurm cluster says of its nodes: those that a study names, how many CPUs, how long a job may take."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tare.core.errors import UnavailableError, UserError
from tare.core.process import run
from tare.model.studies.machines import Measured, Nodes

SINFO_S = 20.0
FORMAT = "%N|%c|%G|%l|%f"
WHERE = "config: machines"
UP = "--states=idle,allocated,mixed,completing"
SPARE = 3.0  # a job may take so many times what the plan expects of the longest: machines differ
LEAST_MINUTES = 10
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node as sinfo tells it.

    Attributes:
        gres: GPUs and their like, as Slurm writes them; empty for none.
        minutes: the longest that a job may take in the partition; None for no limit.
        features: what constraints ask for.
    """

    name: str
    cpus: int
    gres: str
    minutes: float | None
    features: tuple[str, ...]


def read_sinfo(text: str) -> list[Node]:
    """Nodes from the lines of `sinfo --Node --noheader --format=%N|%c|%G|%l|%f`.

    Raises:
        UnavailableError: a line of another form.
    """
    found = []
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != FORMAT.count("%") or not fields[1].isdigit():
            raise UnavailableError(f"{WHERE}: sinfo answers {line.strip()!r}, which is no node as {FORMAT}")
        name, cpus, gres, limit, features = fields
        found.append(
            Node(
                name=name,
                cpus=int(cpus),
                gres="" if gres == "(null)" else gres,
                minutes=_minutes(limit),
                features=() if features == "(null)" else tuple(features.split(",")),
            )
        )
    return found


def _minutes(limit: str) -> float | None:
    """`1-02:03:04`, `02:03:04` or `03:04` in minutes; None for `infinite` and `n/a`."""
    found = _TIME.fullmatch(limit)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + minutes + seconds / 60


@cache
def nodes_of(name: str, asked: Nodes) -> tuple[Node, ...]:
    """The nodes that a machine of a study may be measured on.

    Raises:
        UnavailableError: no Slurm answers here.
        UserError: there are none, or they differ in CPUs or GPUs, so that they are no one machine.
    """
    if shutil.which("sinfo") is None:
        raise UnavailableError(
            f"{WHERE}: {name}: sinfo is not installed here: run the workflow where jobs are submitted (a login "
            "node), or drop `machines` to measure on this machine"
        )
    words = [f"--partition={asked.partition}"] if asked.partition else []
    words += [f"--nodes={asked.node}"] if asked.node else []
    words += ["--responding", UP] if asked.nodes > 1 else []  # each of them is named to sbatch
    answer = run(["sinfo", "--Node", "--noheader", f"--format={FORMAT}", *words], timeout_s=SINFO_S)
    if answer.returncode:
        said = (answer.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UnavailableError(f"{WHERE}: {name}: sinfo failed: {said}")
    found = fitting(read_sinfo(answer.stdout), asked.constraint)
    if not found:
        raise UserError(f"{WHERE}: {name}: Slurm has no node {_asked(asked)}; `sinfo` lists what there is")
    kinds = {(node.cpus, node.gres) for node in found}
    if asked.node is None and len(kinds) > 1:
        few = sorted(f"{cpus} CPUs{f' and {gres}' if gres else ''}" for cpus, gres in kinds)
        raise UserError(
            f"{WHERE}: {name}: its nodes differ ({'; '.join(few)}), and numbers of one machine would be of either: "
            "name a constraint or a node"
        )
    if len(found) < asked.nodes:
        raise UserError(
            f"{WHERE}: {name}: nodes: {asked.nodes} are asked for, and Slurm has {len(found)} that work "
            f"({', '.join(node.name for node in found)}); `sinfo` lists what there is"
        )
    return tuple(found)


def fitting(nodes: Sequence[Node], constraint: str | None) -> list[Node]:
    """One entry for each node that a constraint of features joined by `&` leaves; others are left to Slurm."""
    wanted = set() if constraint is None else set(constraint.split("&"))
    plain = all(re.fullmatch(r"[\w.:+-]+", word) for word in wanted)
    named = {node.name: node for node in nodes if not plain or wanted <= set(node.features)}
    return [named[name] for name in sorted(named)]


def _asked(asked: Nodes) -> str:
    told = {"in partition": asked.partition, "named": asked.node, "with": asked.constraint}
    return " ".join(f"{word} {value}" for word, value in told.items() if value) or "at all"


def resources(machine: Measured, expected_s: float) -> dict[str, int | str]:
    """What a job that measures is submitted with, in the words of Snakemake's plugin for Slurm.

    Args:
        machine: that is measured.
        expected_s: seconds that the plan expects of the job.

    Raises:
        UnavailableError, UserError: as `nodes_of`; or the job may not take as long there as it is expected to.
    """
    name, asked = machine.kind, machine.nodes
    nodes = nodes_of(name, asked)
    node = asked.node if machine.number is None else nodes[machine.number - 1].name
    limits = [limit for limit in (asked.minutes, *(node.minutes for node in nodes)) if limit is not None]
    longest, needed = min(limits, default=math.inf), expected_s / 60
    if longest < needed:
        raise UserError(
            f"{WHERE}: {name}: a job is expected to take {math.ceil(needed)} minutes, and may take {longest:g} "
            "there: choose another partition, or a smaller study"
        )
    extra = ["--exclusive", *([f"--nodelist={node}"] if node else [])]
    found: dict[str, int | str | None] = {
        "slurm_partition": asked.partition,
        "slurm_account": asked.account,
        "qos": asked.qos,
        "constraint": asked.constraint,
        "gpu": asked.gpus or None,
        "cpus_per_task": asked.cpus or min(node.cpus for node in nodes),
        "runtime": math.floor(min(longest, max(LEAST_MINUTES, math.ceil(SPARE * needed)))),
        "slurm_extra": " ".join(extra),
        "mem_mb": 0,  # none is asked for: a node that is taken whole comes with its memory
    }
    return {word: value for word, value in found.items() if value is not None}
