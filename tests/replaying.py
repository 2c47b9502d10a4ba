"""Recorded timelines of workflows through the estimate of the time left: as if they ran, without a clock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.core.remaining import Plan, Remaining
from tare.core.status import Status


def events_of(path: Path) -> list[dict[str, Any]]:
    """Events of a timeline (tare.core.timeline), in their order."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def replay(
    events: Sequence[Mapping[str, Any]],
    plan: Plan,
    *,
    earlier: Mapping[str, Sequence[float]] | None = None,
    every_s: float = 10.0,
) -> Iterator[tuple[float, float, float, float]]:
    """Seconds gone, seconds left as estimated and as they were, share done; every so many seconds."""
    waiting = sorted(events, key=lambda event: event["at_s"])
    begin_s, end_s = waiting[0]["at_s"], waiting[-1]["at_s"]
    remaining = Remaining(plan, cores=2, earlier=earlier, started_s=begin_s)
    told: dict[tuple[str, ...], Status] = {}
    now_s = begin_s
    while now_s < end_s:
        while waiting and waiting[0]["at_s"] <= now_s:
            event = waiting.pop(0)
            if event["event"] == "due":
                remaining.due(event["counts"])
            elif event["event"] == "start":
                remaining.start(event["job"], event["rule"], event["title"], event["outs"], event["at_s"])
            elif event["event"] == "end":
                remaining.end(event["job"], event["at_s"], succeeded=event["succeeded"])
            elif event["event"] == "told":  # of `left`, what was estimated then, nothing follows
                status = Status(**{**event["status"], "outs": tuple(event["status"]["outs"])})
                told[status.outs] = status
        remaining.hear(told.values())
        outlook = remaining.outlook(now_s)
        yield now_s - begin_s, outlook.left_s, end_s - now_s, outlook.share
        now_s += every_s
