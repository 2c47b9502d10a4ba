"""What a Slurm cluster says of its nodes: those that a study names, how many CPUs, how long a job may take.

A machine of a study is one node, or with groups over several nodes a set of them. Which is chosen once, and written
down before the first job: all that is said of the machine, and all rounds of its campaigns, are of this node and,
where a group trains, of those with it.
"""

from __future__ import annotations

import getpass
import math
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from tare.core.errors import UnavailableError, UserError
from tare.core.process import run
from tare.model.schema import FileRecord, read
from tare.model.studies.machines import Measured, Nodes

SINFO_S = 20.0
FORMAT = "%N|%c|%m|%G|%l|%f|%t"
WHERE = "config: machines"
# As sinfo has them in short; a sign behind says more: `*` does not answer, `~` is asleep and wakes for a job.
STATES = ("idle", "mix", "alloc", "comp", "plnd", "resv")
SPARE = 3.0  # a job may take so many times what the plan expects of the longest: machines differ
LEAST_MINUTES = 10
# More small jobs than this are sent together, which costs what docs/cluster.md says. TOGETHER says it otherwise.
MOST_ALONE = 200
SMALL_JOBS, TOGETHER, ALONE = "TARE_SMALL_JOBS", "together", "alone"
_LIMITS = ("CPUEfctv", "CPUTot", "CoreSpecCount", "ThreadsPerCore", "MemSpecLimit")
_GPUS = re.compile(r"(?:^|,)gpu(?::(?!\d+(?:[,(]|$))[^:,()]+)?(?::(\d+))?(?=[,(]|$)")
_WORDS = re.compile(r"[\w.:@+-]+|[&|()\[\]]|\*\d+")
_CLOSING = {"(": ")", "[": "]"}
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node as sinfo reports it."""

    name: str
    cpus: int
    memory_mib: int
    gres: str  # GPUs and their like, as Slurm writes them; empty for none
    minutes: float | None  # the longest that a job may take in the partition; None for no limit
    features: tuple[str, ...]  # what constraints ask for
    state: str  # as sinfo has it in short, such as `idle`, `alloc`, `drain*`
    others: tuple[str, ...] = ()  # names of the nodes on which further members of its groups train

    @property
    def gpus(self) -> int:
        """How many it has."""
        return sum(int(number or 1) for number in _GPUS.findall(self.gres))

    @property
    def works(self) -> bool:
        """Whether it runs jobs, now or after those that it has."""
        return self.state.rstrip("~#!%$@^-+") in STATES


class Place(FileRecord):
    """The node that is a machine of a study; the file is next to the machine's campaigns."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "remove it: a node is then chosen again, and measured if it is another one"

    node: str
    others: tuple[str, ...] = ()  # those with it, on which further members of its groups train

    @property
    def nodes(self) -> tuple[str, ...]:
        """All of them, in order."""
        return (self.node, *self.others)


def read_sinfo(text: str) -> list[Node]:
    """Nodes from the lines of `sinfo --Node --noheader --format=%N|%c|%m|%G|%l|%f|%t`. Raises UnavailableError: a
    line of another form.
    """
    found = []
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != FORMAT.count("%") or not (fields[1].isdigit() and fields[2].isdigit()):
            raise UnavailableError(f"{WHERE}: sinfo answers {line.strip()!r}, not a node of the form {FORMAT}")
        name, cpus, memory, gres, limit, features, state = fields
        found.append(
            Node(
                name=name,
                cpus=int(cpus),
                memory_mib=int(memory),
                gres="" if gres == "(null)" else gres,
                minutes=_minutes(limit),
                features=() if features == "(null)" else tuple(features.split(",")),
                state=state,
            )
        )
    return found


def read_limits(text: str) -> dict[str, tuple[int | None, int]]:
    """By node how many CPUs jobs may have, None where Slurm does not say it, and the MiB that it keeps from them:
    from the lines of `scontrol --oneliner show node`.
    """
    found = {}
    for line in text.splitlines():
        words = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        number = {name: int(words[name]) for name in _LIMITS if words.get(name, "").isdigit()}
        if "NodeName" not in words:
            continue
        cpus = number.get("CPUEfctv")
        if cpus is None and "CPUTot" in number:  # before Slurm 22.05
            cpus = number["CPUTot"] - number.get("CoreSpecCount", 0) * number.get("ThreadsPerCore", 1)
        found[words["NodeName"]] = (cpus, number.get("MemSpecLimit", 0))
    return found


def _for_jobs(nodes: Sequence[Node]) -> list[Node]:
    """Nodes with the CPUs and the memory that Slurm gives to jobs: a site may keep some for the system. Where
    scontrol does not answer, with all.
    """
    if not nodes or shutil.which("scontrol") is None:
        return list(nodes)
    names = ",".join(node.name for node in nodes)
    answer = run(["scontrol", "--oneliner", "show", "node", names], timeout_s=SINFO_S)
    limits = read_limits(answer.stdout) if answer.ok else {}
    return [
        replace(node, cpus=min(node.cpus, cpus or node.cpus), memory_mib=node.memory_mib - kept)
        for node in nodes
        for cpus, kept in [limits.get(node.name, (None, 0))]
    ]


def _minutes(limit: str) -> float | None:
    """`1-02:03:04`, `02:03:04` or `03:04` in minutes; None for `infinite` and `n/a`."""
    found = _TIME.fullmatch(limit)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + minutes + seconds / 60


@cache
def nodes_of(name: str, asked: Nodes) -> tuple[Node, ...]:
    """The nodes that a machine of a study may be measured on. Raises UnavailableError: no Slurm answers here.
    UserError: there are none, or they differ in CPUs or GPUs, so that they are no one machine.
    """
    if shutil.which("sinfo") is None:
        raise UnavailableError(
            f"{WHERE}: {name}: sinfo is not installed here: run the workflow where jobs are submitted (a login "
            "node), or drop `machines` to measure on this machine"
        )
    partition = asked.partition or _default_partition(_sinfo(name, ["--format=%P"]))
    words = [f"--partition={partition}"] if partition else []
    words += [f"--nodes={asked.node}"] if asked.node else []
    found = fitting(read_sinfo(_sinfo(name, ["--Node", f"--format={FORMAT}", *words])), asked.constraint)
    if not found:
        raise UserError(f"{WHERE}: {name}: Slurm has no node {_asked(asked)}; `sinfo` lists what there is")
    kinds = {(node.cpus, node.gres) for node in found}
    if asked.node is None and len(kinds) > 1:
        few = sorted(f"{cpus} CPUs{f' and {gres}' if gres else ''}" for cpus, gres in kinds)
        raise UserError(
            f"{WHERE}: {name}: its nodes differ ({'; '.join(few)}), so results could come from either kind: name a "
            "constraint or a node"
        )
    return tuple(found)


def _sinfo(name: str, words: Sequence[str]) -> str:
    """What sinfo answers, for a machine of a study. Raises UnavailableError: it fails."""
    answer = run(["sinfo", "--noheader", *words], timeout_s=SINFO_S)
    if answer.returncode:
        said = (answer.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UnavailableError(f"{WHERE}: {name}: sinfo failed: {said}")
    return answer.stdout


def _default_partition(names: str) -> str | None:
    """The partition to which Slurm sends jobs that name none, which a sign marks; None where there is no such."""
    found = re.search(r"^([^\s|]+)\*\s*$", names, re.MULTILINE)
    return found[1] if found else None


def fitting(nodes: Sequence[Node], constraint: str | None) -> list[Node]:
    """One entry for each node that a constraint leaves. Raises UserError: it is none as sbatch takes it."""
    named = {node.name: node for node in nodes if constraint is None or _meets(node.features, constraint)}
    return [named[name] for name in sorted(named)]


def _meets(features: Collection[str], constraint: str) -> bool:
    """Whether a node with these features may run a job of a constraint, as Slurm reads it: `&` and `|` from left to
    right, parentheses first. In brackets, which a job of several nodes has for features that are not the same on
    all of them, one part is enough, and numbers of nodes (`*2`) are passed over. Raises UserError: it is none.
    """
    words = _WORDS.findall(constraint)
    wrong = UserError(f"{WHERE}: constraint: {constraint} is no constraint as sbatch takes it")
    if "".join(words) != constraint:
        raise wrong

    def expression(closing: str | None) -> bool:
        found, counted = operand(), False
        values = [found]
        while words and words[0] != closing:
            if (word := words.pop(0)).startswith("*"):
                counted = True
            elif word in ("&", "|"):
                values.append(operand())
                found = (found and values[-1]) if word == "&" else (found or values[-1])
            else:
                raise wrong
        if closing is not None and not (words and words.pop(0) == closing):
            raise wrong
        return any(values) if counted and closing == "]" else found

    def operand() -> bool:
        word = words.pop(0) if words else ""
        if word in _CLOSING:
            return expression(_CLOSING[word])
        if not word or word in ("&", "|", ")", "]") or word.startswith("*"):
            raise wrong
        return word in features

    return expression(None)


def _asked(asked: Nodes) -> str:
    given = {"in partition": asked.partition, "named": asked.node, "with": asked.constraint}
    return " ".join(f"{word} {value}" for word, value in given.items() if value) or "at all"


def placed(
    machines: Mapping[str, Measured],
    files: Mapping[str, Path],
    wanted: Collection[str],
    size: int = 1,
    everywhere: Callable[[str], Iterable[Path]] = lambda name: (),
) -> dict[str, Node]:
    """The node of each machine: what its file says, else the file of another study; of the others one that works,
    idle ones first, each another. `files`: where the place of each is written, or will be. `wanted`: names of those
    that are measured now. `size`: nodes that each has, itself and `Node.others`. `everywhere`: files of all studies
    with a machine of that name, which is one node: ceilings, trial launches and campaigns are shared. Raises
    UnavailableError, UserError: as `nodes_of`; a node is gone or does not work; there are too few; studies have two
    nodes of one name. IntegrityError: a file is damaged.
    """
    noted = {name: _noted(name, path, everywhere(name)) for name, path in files.items()}
    before = {name: place for name, places in noted.items() if (place := _longest_of(places)) is not None}
    taken = {node for one in before.values() for node in one.nodes}
    found = {}
    for name in wanted:
        machine, others = machines[name], list(before[name].others) if name in before else []
        if name in before:
            again = _again(files[name], list(noted[name]))
            node, *_ = [_as_before(name, machine, one, again) for one in before[name].nodes[:size]]
        else:
            node = _another(machine, taken, size)
            taken.add(node.name)
        while len(others) < size - 1:
            others.append(_another(machine, taken, size, first=node.name).name)
            taken.add(others[-1])
        found[name] = replace(node, others=tuple(others))
    return dict(zip(found, _for_jobs([*found.values()]), strict=True))


def note(name: str, place: Place, path: Path, everywhere: Callable[[str], Iterable[Path]]) -> None:
    """Write down which node a machine is; arguments as of `placed`. Raises UserError: a workflow of another study
    has chosen another one in the meantime; nothing is then changed.
    """
    before = read(Place, path) if path.exists() else None
    if before == place:
        return
    place.write(path)
    try:
        _noted(name, path, everywhere(name))
    except UserError as error:
        if before is None:
            path.unlink()
        else:
            before.write(path)
        raise UserError(
            f"{WHERE}: {name}: another study has just chosen another node for it: give the same command again"
        ) from error


def _noted(name: str, own: Path, files: Iterable[Path]) -> dict[Path, Place]:
    """What studies have noted of a machine, by file, this study's first. Raises UserError: it is two nodes."""
    found = {path: read(Place, path) for path in dict.fromkeys([own, *files]) if path.exists()}
    longest = _longest_of(found)
    for path, place in found.items():
        if longest is not None and place.nodes != longest.nodes[: len(place.nodes)]:
            (other,) = [one for one, its in found.items() if its is longest]
            ours, theirs = ", ".join(longest.nodes), ", ".join(place.nodes)
            raise UserError(
                f"{WHERE}: {name}: is {ours} in {other.parent}, and {theirs} in {path.parent}, but studies share "
                "what is measured of a machine: give it another name in one study, or move one folder away"
            )
    return found


def _longest_of(places: Mapping[Path, Place]) -> Place | None:
    """The place with most nodes, of which the others are the beginning."""
    return max(places.values(), key=lambda place: len(place.nodes), default=None)


def _again(own: Path, files: Sequence[Path]) -> str:
    """How a machine is begun on another node. `files`: in which its node is."""
    folders = " and ".join(str(path.parent) for path in files)
    if own in files and len(files) == 1:
        return f"to begin on another node, move {folders} away"
    if own in files:
        return f"to begin on another node, move {folders} away, or give the machine another name"
    return f"to begin on another node, give the machine another name: {folders} has this node for it"


def _as_before(name: str, machine: Measured, before: str, again: str) -> Node:
    """The node that a machine had, if it can still be had."""
    asked = machine.nodes.node
    if asked is not None and asked != before:
        raise UserError(f"{WHERE}: {name}: was measured on {before}, and the study now names {asked}: {again}")
    for node in nodes_of(machine.kind, machine.nodes):
        if node.name == before:
            if not node.works:
                raise UserError(f"{WHERE}: {name}: its node {before} is {node.state}: wait for it; {again}")
            return node
    where = f" {_asked(machine.nodes)}" if machine.nodes.partition or machine.nodes.constraint else ""
    raise UserError(f"{WHERE}: {name}: Slurm no longer has its node {before}{where}: {again}")


def _another(machine: Measured, taken: Collection[str], size: int, first: str | None = None) -> Node:
    """A node that works, and is no other machine if it can be helped; those of one kind are never the same.
    `first`: name of the first node of the group that it joins, which is another one.
    """
    nodes = nodes_of(machine.kind, machine.nodes)
    work, needed = [node for node in nodes if node.works], machine.nodes.nodes * size
    if len(work) < needed:
        states = ", ".join(f"{node.name} is {node.state}" for node in nodes)
        raise UserError(
            f"{WHERE}: {machine.kind}: {needed} of its nodes are needed, and {len(work)} work "
            f"({states}); `sinfo -R` says why"
        )
    free = [node for node in work if node.name not in taken]
    if not free and (machine.number is not None or first is not None):
        raise UserError(
            f"{WHERE}: {machine.kind}: all of its working nodes are already used as other machines of the study; "
            "ask for fewer `nodes`"
        )
    return min(free or work, key=lambda node: (not node.state.startswith("idle"), node.name))


def minutes(expected_s: float) -> int:
    """The longest that a job may take of which a plan expects so many seconds, where nothing limits it."""
    return max(LEAST_MINUTES, math.ceil(SPARE * expected_s / 60))


def resources(machine: Measured, node: Node, expected_s: float, size: int | None = None) -> dict[str, int | str]:
    """What a job that measures is submitted with, in the words of Snakemake's plugin for Slurm. `expected_s`:
    seconds that the plan expects of the job. `size`: nodes that it takes, a task on each; None where no job of the
    study takes several. Raises UserError: the job may not take as long there as it is expected to, or is to have
    memory, CPUs or GPUs that the node has not.
    """
    asked = machine.nodes
    wanted = {
        "memory_mib": (asked.memory_mib or 0, node.memory_mib),
        "cpus": (asked.cpus or 0, node.cpus),
        "gpus": (asked.gpus, node.gpus),
    }
    for word, (number, there) in wanted.items():
        if number > there:
            raise UserError(
                f"{WHERE}: {machine.kind}: {word} asks for {number:,}, and {node.name} has {there:,} for jobs: ask "
                "for less, or for another node"
            )
    longest, needed, names = _longest(machine, node), expected_s / 60, [node.name, *node.others][: size or 1]
    if longest < needed:
        raise UserError(
            f"{WHERE}: {machine.kind}: a job is expected to take {math.ceil(needed)} minutes, but the limit there "
            f"is {longest:g} min: choose another partition, or a smaller study"
        )
    found: dict[str, int | str | None] = {
        "slurm_partition": asked.partition,
        "slurm_account": asked.account,
        "qos": asked.qos,
        "constraint": asked.constraint,
        **_devices(asked.gpus, size),
        "cpus_per_task": asked.cpus or node.cpus,
        "runtime": math.floor(min(longest, minutes(expected_s))),
        "nodes": size,
        # After a node has failed, the plugin excludes it from later jobs, also those that name it: the last counts.
        "slurm_extra": f"--exclusive --nodelist={','.join(names)} --exclude=",
        "mem_mb": asked.memory_mib or node.memory_mib,  # named: a site may else give a share that goes by CPUs
    }
    return {word: value for word, value in found.items() if value is not None}


def _devices(gpus: int, size: int | None) -> dict[str, int | str | None]:
    """GPUs and tasks: of each node, where a job takes several. The plugin gives tasks to each GPU of a job that has
    some; without them Slurm gives one to each node.
    """
    if size is None:
        return {"gpu": gpus or None}
    return {"gres": f"gpu:{gpus}"} if gpus else {"tasks": size}


def pays_together(jobs: int, variables: Mapping[str, str]) -> bool:
    """Whether so many small jobs are sent together, if they may. Raises UserError: the variable that decides says
    something else.
    """
    word = variables.get(SMALL_JOBS, TOGETHER if jobs > MOST_ALONE else ALONE)
    if word not in (TOGETHER, ALONE):
        raise UserError(f"{SMALL_JOBS}: it is {word!r}: give `{TOGETHER}` or `{ALONE}`, or leave it out")
    return word == TOGETHER


def refuse_unknown_account(machine: Measured) -> None:
    """Before anything is sent; nothing where Slurm keeps no accounts. Raises UserError: this user may not use an
    account that the study names.
    """
    wanted = machine.nodes.account
    if wanted is None or shutil.which("sacctmgr") is None:
        return
    user = getpass.getuser()
    shows = ["show", "associations", f"user={user}", "format=account"]
    answer = run(["sacctmgr", "--noheader", "--parsable2", *shows], timeout_s=SINFO_S)
    known = sorted(set(answer.stdout.split())) if answer.ok else []
    if known and wanted.lower() not in map(str.lower, known):
        raise UserError(
            f"{WHERE}: {machine.kind}: {user} has no account {wanted} in Slurm: name one of {', '.join(known)}, or "
            "leave `account` out"
        )


def go_together(machine: Measured, node: Node, expected_s: Iterable[float]) -> bool:
    """Whether jobs of so many seconds may be sent as one, whose limit is the sum of theirs."""
    return sum(map(minutes, expected_s)) <= _longest(machine, node)


def _longest(machine: Measured, node: Node) -> float:
    """Minutes that a job may take there."""
    return min((limit for limit in (machine.nodes.minutes, node.minutes) if limit is not None), default=math.inf)
