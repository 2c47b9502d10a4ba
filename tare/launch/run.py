"""One launch: the same program under the same conditions in any environment, and the record of how it went."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.process import Finished
from tare.launch.channel import Conversation
from tare.launch.conditions import drop_page_cache
from tare.launch.limits import Share
from tare.launch.place import Site
from tare.launch.prepare import clean_up, ready
from tare.launch.program import Runnable
from tare.launch.record import record_of
from tare.launch.transport import Ready
from tare.model.conditions import Conditions
from tare.model.records.launches import LaunchRecord


def launch(
    site: Site,
    program: Runnable,
    conditions: Conditions,
    *,
    pad_bytes: int = 0,
    keep: Mapping[str, Path] | None = None,
    keep_always: bool = False,
    wrapper: Sequence[str] = (),
    share: Share | None = None,
) -> LaunchRecord:
    """Run one launch to its end and give its record; a failure is a record too, with its reason.

    Args:
        program: what to run; of Tare's worker, the specification is enough.
        keep: files that the worker writes, by their key in its specification, and where they go on success.
        keep_always: move those that are there also when the launch failed.
        wrapper: a program, with its options, that starts the other, such as a profiler.
        share: what it may use of the CPUs, where another one has a part; None for all.
    """
    with ready(site, program, conditions, pad_bytes=pad_bytes, keep=keep, wrapper=wrapper, share=share) as prepared:
        if conditions.page_cache == "cold":
            drop_page_cache()
        record = record_of(_execute(prepared, conditions.launch_timeout_s), prepared, conditions)
        for path in (keep or {}).values() if record.ok or keep_always else ():
            written = prepared.folder / path.name
            if written.exists() or not keep_always:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(written, path)
        return record


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a launch is made of; as for `launch`."""

    site: Site
    program: Runnable
    conditions: Conditions
    pad_bytes: int = 0


def launch_side_by_side(orders: Mapping[str, Order]) -> dict[str, LaunchRecord]:
    """Run launches at the same time, for what they leave in the page cache: what they time is not worth reading.
    `orders`: by whatever names them. Returns their records, as of `launch`; when one ended is no earlier than when
    those before it had.
    """
    records: dict[str, LaunchRecord] = {}
    talks: dict[str, Conversation] = {}
    with contextlib.ExitStack() as stack:
        prepared = {
            name: stack.enter_context(ready(one.site, one.program, one.conditions, pad_bytes=one.pad_bytes))
            for name, one in orders.items()
        }
        try:
            started = time.monotonic()
            for name, one in prepared.items():
                talks[name] = one.start()
            for talk in talks.values():
                talk.go()
            for name, order in orders.items():
                left_s = max(0.0, started + order.conditions.launch_timeout_s - time.monotonic())
                finished = talks[name].end(timeout_s=left_s)
                records[name] = record_of(finished, prepared[name], order.conditions)
        finally:
            for name, talk in talks.items():
                talk.kill()  # where it has not ended: the others of an interruption
                if name not in records or not records[name].ok:
                    clean_up(prepared[name].environment, prepared[name].planned)
    return records


def _execute(prepared: Ready, timeout_s: float) -> Finished:
    ended_well = False
    try:
        finished = prepared.run(timeout_s)
        ended_well = finished.ok
        return finished
    finally:
        # Also after an interruption: a daemon would keep the program running while the next launch runs.
        if not ended_well:
            clean_up(prepared.environment, prepared.planned)
