"""The sections of docs/proof.md on what was planted and recorded on a real machine, from files of this folder.

planted_campaigns.jsonl (planted_campaigns.py), planted_slices.json (planted_slices.py) and recorded_coverage.json
(recorded_coverage.py). A file that is not there has no section.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests"), str(ROOT)]

from planted_campaigns import EFFECT, TRUTHS  # noqa: E402

FOLDER = ROOT / "benchmarks"


def pages(folder: Path = FOLDER) -> Iterator[str]:
    """The sections of the files that are in a folder, a blank line after each."""
    campaigns = folder / "planted_campaigns.jsonl"
    if campaigns.exists():
        rows = [json.loads(line) for line in campaigns.read_text(encoding="utf-8").splitlines()]
        yield from (*planted_campaigns(rows), "")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"


def planted_campaigns(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How often campaigns with a known effect told it from zero, and had it inside their interval."""
    days = sorted({row["at"][:10] for row in rows})
    loads = sorted(row["load_1min"] for row in rows)
    counts = sorted({row["n_units"] for row in rows})
    yield "## Planted campaigns"
    yield ""
    sizes = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    yield (
        f"{len(rows)} campaigns on a real machine (`benchmarks/planted_campaigns.py`), {' and '.join(days)}. Each "
        f"has the host, its control, and two more launches of the host: the steps of one take {EFFECT:.0%} more "
        "processor time, those of the other take no more. A campaign has 240 s for everything; "
        f"{sizes} rounds of the steps of `{rows[0]['workload']}` count. Intervals are at 95% for both comparisons "
        f"of a campaign together. The load of the last minute before a campaign was {loads[0]:.1f} to "
        f"{loads[-1]:.1f} on two processors."
    )
    yield ""
    lines = []
    for name, truth in TRUTHS.items():
        own = [row[name] for row in rows if row[name]["ci_low"] is not None]
        inside = sum(one["ci_low"] <= truth <= one["ci_high"] for one in own)
        told = sum(one["ci_low"] > 1 or one["ci_high"] < 1 for one in own)
        halves = sorted((one["ci_high"] - one["ci_low"]) / 2 for one in own)
        middle = f"±{halves[len(halves) // 2]:.2%}" if halves else "–"
        lines.append([f"{truth - 1:.0%}", f"{inside} of {len(rows)}", f"{told} of {len(rows)}", middle])
    yield from table(("planted", "truth inside the interval", "told from zero", "median half-width"), lines)
