"""The page on the fault campaign (faults.py), from its JSON alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
TITLES = {
    "kill": "killed (SIGKILL)",
    "full_disk": "disk full",
    "read_only": "read-only results",
    "memory": "memory limit hit",
    "hang": "process hangs, run interrupted",
    "network": "bad download",
    "journal": "journal cut in its last row",
    "two_runs": "two runs at once",
    "clock": "clock steps by an hour",
    "leftovers": "leftovers of a crash",
}
PLACES = {
    "kill": {"command": "Tare's command", "client": "runtime's client", "worker": "worker", "all": "all at once"},
    "hang": {},
    "network": {
        "missing": "status 404",
        "mute": "no answer",
        "short": "half of the file",
        "stall": "silence after half of the file",
        "drop": "reset after half of the file",
        "other": "other bytes",
        "moved": "redirect to a page of HTML",
    },
}
HEADER = (
    *("fault", "where", "tried", "next run finished", "each unit once", "tables equal, apart from timings"),
    *("failed launches recorded", "something left"),
)


def page(found: Record) -> str:
    """The whole page."""
    rows: Sequence[Record] = found["trials"]
    lines = ["# Faults", ""]
    lines += [_about(found, rows), ""]
    lines += [
        "Each trial starts the workflow on a copy of a small study in which one stage is missing. It disturbs that "
        "stage at a random moment, and then gives the same command again. A launch whose own process was disturbed "
        "is recorded as failed. Its campaign is then not compared row by row. `benchmarks/faults.py` describes the "
        "trials, and `benchmarks/faults.json` has each of them.",
        "",
    ]
    lines += [line for remark in found.get("remarks", ()) for line in (remark, "")]
    lines += [*_table(HEADER, [_cells(one) for one in found["counts"]]), ""]
    lines += [*_kills(rows), *_problems(rows, "What was wrong")]
    lines += [*_problems(found["repeated"], "What was wrong, and was tried again"), *_loose(found["loose"])]
    return "\n".join(lines).rstrip("\n") + "\n"


def _about(found: Record, rows: Sequence[Record]) -> str:
    tried = [row for row in rows if row["reason"] is None]
    days = sorted({row["at"][:10] for row in rows})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    kernels = {
        cpu: sorted({row["kernel"] for row in rows if row["cpu"] == cpu}) for cpu in {row["cpu"] for row in rows}
    }
    machines = "; ".join(f"{cpu}, Linux {', '.join(found)}" for cpu, found in sorted(kernels.items()))
    bad = sum(bool(row["problems"] or row["left"]) for row in tried)
    seconds = ", ".join(f"{took:.0f} s in {name}" for name, took in sorted(found["undisturbed_s"].items()))
    planned = sum(one["planned"] for one in found["counts"])
    text = f"{len(tried)} of {planned} planned trials have run, on {machines}, {when}. "
    text += f"In {bad} of them something was wrong. " if bad else "Nothing was wrong in the last try of each. "
    return text + (f"An undisturbed run of the study took {seconds}." if seconds else "")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"


def _cells(one: Record) -> list[str]:
    where = PLACES.get(one["kind"], {}).get(one["where"], one["where"])
    tried = f"{one['tried']} of {one['planned']}"
    if one["tried"] == 0:
        why = f": {_in_a_cell(one['reason'])}" if one["reason"] else ""
        return [TITLES[one["kind"]], where, f"{tried}{why}", *[""] * (len(HEADER) - 3)]
    good = [_of(one[name]) for name in ("finished", "units", "tables")]
    return [TITLES[one["kind"]], where, tried, *good, str(one["recorded"] or ""), str(one["left"])]


def _of(pair: Sequence[int] | None) -> str:
    """Good ones of those that were looked at; in bold where one was not good."""
    if pair is None:
        return ""
    text = f"{pair[0]} of {pair[1]}"
    return text if pair[0] == pair[1] else f"**{text}**"


def _in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _kills(rows: Sequence[Record]) -> Iterator[str]:
    """How often which part was killed in which stage."""
    killed = [row["where"].partition(" of ") for row in rows if row["kind"] == "kill" and row["reason"] is None]
    if not killed:
        return
    parts, stages = (list(dict.fromkeys(sorted(row[place] for row in killed))) for place in (0, 2))
    yield "## Kills by stage"
    yield ""
    yield "The table counts trials. Where no process of the part was alive, one of another part was killed."
    yield ""
    counts = [
        [str(sum((row[0], row[2]) == (part, stage) for row in killed) or "") for stage in stages] for part in parts
    ]
    yield from _table(["", *stages], [[part, *row] for part, row in zip(parts, counts, strict=True)])
    yield ""


def _problems(rows: Sequence[Record], title: str) -> Iterator[str]:
    """Each trial in which something was wrong, in full."""
    bad = [row for row in rows if row["problems"] or row["left"]]
    if not bad:
        return
    yield f"## {title}"
    yield ""
    for row in bad:
        yield f"### {TITLES[row['kind']]}: {row['where']} ({row['environment']}, trial {row['number']})"
        yield ""
        yield "```text"
        yield from (line.rstrip() for text in row["disturbed"] for line in text.splitlines())
        yield from (line.rstrip() for text in (*row["problems"], *row["left"]) for line in text.splitlines())
        yield "```"
        yield ""


def _loose(loose: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What is not compared, since undisturbed runs differ in it."""
    if not any(loose.values()):
        return
    yield "## What is not compared"
    yield ""
    yield "Columns of timings (`tests/equal_tables.py`) are not compared. Undisturbed runs also differed in these."
    yield ""
    for name, lines in sorted(loose.items()):
        if lines:
            yield from (f"{name}, by table and column:", "", "```text", *lines, "```", "")
