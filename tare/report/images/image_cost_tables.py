"""The tables of what an image costs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tare.analysis import image_costs
from tare.model.journals.units import COLD, WARM
from tare.report.words.labels import env_order, env_title, sentence_case, size_bytes, with_unit
from tare.report.words.layout import UNAVAILABLE, Cell, Row, Table

FIRST = "ready_s"  # the sum of the stages stands above them
PRICE_ITEMS = (FIRST, *(item for item in image_costs.ITEMS if item != FIRST and not item.endswith("_start_s")))


def cost_list(table: pd.DataFrame, stack: str) -> Table:
    """Seconds and bytes of every form: items as rows, environments as columns."""
    environments = sorted(image_costs.environments_of(table, stack), key=env_order)
    rows: list[Row] = [
        [sentence_case(image_costs.ITEMS[item]), *(_cell(table, stack, env, item) for env in environments)]
        for item in PRICE_ITEMS
        if any(_cell(table, stack, env, item) is not None for env in environments)
    ]
    reasons = _reasons(table, stack, environments, PRICE_ITEMS)
    note = (
        f"What is carried: {_carried(table, stack, environments)}. A dash: the form needs no such stage. Added: "
        "blocks that the host's own tree does not hold by the same inode."
    )
    return Table(
        caption=f"What the images of {stack} cost",
        columns=["", *(env_title(env) for env in environments)],
        rows=rows,
        note=" ".join([note, *reasons]),
        numeric=True,
        wide=True,
    )


def _cell(table: pd.DataFrame, stack: str, env: str, item: str) -> str | None:
    value = image_costs.cost(table, stack, env, item)
    if value is not None:
        return with_unit(value, image_costs.unit_of(item))
    return UNAVAILABLE if image_costs.why_not(table, stack, env, item) else None


def _carried(table: pd.DataFrame, stack: str, environments: Sequence[str]) -> str:
    """What the archive of each environment is, by the table's own sources."""
    found: dict[str, list[str]] = {}
    for env in environments:
        own = table[(table["stack"] == stack) & (table["launch"] == env) & (table["item"] == "archive_bytes")]
        for source in own[own["value"].notna()]["source"]:
            found.setdefault(str(source), []).append(env_title(env))
    return "; ".join(f"{', '.join(names)}: {source}" for source, names in found.items()) or "nothing was counted"


def _reasons(table: pd.DataFrame, stack: str, environments: Sequence[str], items: Sequence[str]) -> list[str]:
    """Why something is unavailable, each reason once, with the environments that it holds for."""
    found: dict[str, list[str]] = {}
    for env in environments:
        for item in items:
            reason = image_costs.why_not(table, stack, env, item)
            if reason and env_title(env) not in found.setdefault(reason, []):
                found[reason].append(env_title(env))
    return [f"Unavailable of {', '.join(names)}: {reason}." for reason, names in found.items()]


def starts_table(table: pd.DataFrame, stack: str) -> Table:
    """Every start: environment, median and range of cold and warm ones, and what the disk delivered."""
    own = table[(table["stack"] == stack) & table["item"].isin([f"{phase}_start_s" for phase in (COLD, WARM)])]
    rows: list[Row] = []
    for env in sorted(own["launch"].unique(), key=env_order):
        for phase in (COLD, WARM):
            values = sorted(image_costs.repeated(table, stack, env, f"{phase}_start_s").values())
            if not values:
                reason = image_costs.why_not(table, stack, env, f"{phase}_start_s") or "no such start"
                rows.append([env_title(env), phase, Cell(text=f"{UNAVAILABLE}: {reason}", span=6)])
                continue
            parts = [
                image_costs.cost(table, stack, env, f"{phase}_{item}_s")
                for item in ("start", "runtime_start", "imports")
            ]
            texts = ["–" if part is None else with_unit(part, "s") for part in parts]
            spread = f"{with_unit(values[0], 's')} to {with_unit(values[-1], 's')}"
            cell = Cell(text=texts[0], below=f"{spread}, n = {len(values)}")
            rows.append([env_title(env), phase, cell, *texts[1:], *_disk(table, stack, env, phase)])
    return Table(
        caption=f"First starts, {stack}",
        columns=[
            "environment", "page cache", "start, median", "runtime", "imports", "machine read", "process read",
            "major faults",
        ],
        rows=rows,
        note="Bytes read from block devices: by the whole machine meanwhile, and by the process itself. Where a "
        "server in user space reads for it (an image by FUSE), its own are few. Medians.",
        wide=True,
    )  # fmt: skip


def _disk(table: pd.DataFrame, stack: str, env: str, phase: str) -> list[str]:
    read = [image_costs.cost(table, stack, env, f"{phase}_{who}_read_bytes") for who in ("machine", "own")]
    faults = image_costs.cost(table, stack, env, f"{phase}_major_faults")
    return [
        *(UNAVAILABLE if value is None else size_bytes(value) for value in read),
        "–" if faults is None else f"{faults:,.0f}",
    ]
