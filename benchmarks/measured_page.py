"""The sections of docs/proof.md on what was planted and recorded on a real machine, from files of this folder.

planted_campaigns.jsonl (planted_campaigns.py), recorded_coverage.json (recorded_coverage.py) and protocols.json
(protocols.py). A file that is not there has no section.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests"), str(ROOT)]

from planted_campaigns import EFFECT, HEADER, counts  # noqa: E402
from recorded_coverage import HOSTS, deployed  # noqa: E402

from tare.core.files import read_json  # noqa: E402

FOLDER = ROOT / "benchmarks"
CONFIDENCE = 0.95
CONDITIONS = {
    "quiet": "The machine as it is",
    "busy": "A busy loop on each processor of the launches",
    "bursts": "Programs that copy memory and rest at random",
}
QUANTITIES = {"body": "body: whole runs without start and exit", "step, steady": "step: training steps"}


def pages(folder: Path = FOLDER) -> Iterator[str]:
    """The sections of the files that are in a folder, a blank line after each."""
    campaigns = folder / "planted_campaigns.jsonl"
    if campaigns.exists():
        rows = [json.loads(line) for line in campaigns.read_text(encoding="utf-8").splitlines()]
        yield from (*planted_campaigns(rows), "")
    coverage, methods = folder / "recorded_coverage.json", folder / "protocols.json"
    if coverage.exists() and methods.exists():
        yield from (*recorded_controls(read_json(coverage), read_json(methods)), "")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"


def planted_campaigns(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How often campaigns with a known effect excluded zero, and had the effect inside their interval."""
    days = sorted({row["at"][:10] for row in rows})
    yield "## Planted campaigns"
    yield ""
    yield (
        f"{len(rows)} campaigns on real machines (`benchmarks/planted_campaigns.py`), {' and '.join(days)}. Each "
        f"has the host, its control, and two more launches of the host, whose steps take {EFFECT:.0%} and 0% more "
        "processor time. Intervals are at 95% for both comparisons of a campaign together."
    )
    kinds = dict.fromkeys((row.get("condition", "quiet"), row["cpu"]) for row in rows)
    for condition, cpu in sorted(kinds, key=lambda kind: list(CONDITIONS).index(kind[0])):
        own = [row for row in rows if (row.get("condition", "quiet"), row["cpu"]) == (condition, cpu)]
        loads = sorted(row["load_1min"] for row in own)
        numbers = sorted({row["n_units"] for row in own})
        sizes = " to ".join(str(count) for count in dict.fromkeys((numbers[0], numbers[-1])))
        (budget_s,) = {row.get("budget_s", 240.0) for row in own}
        yield ""
        yield (
            f"{CONDITIONS[condition]}, {cpu}: {len(own)} campaigns of {budget_s:.0f} s for everything, with "
            f"{sizes} rounds of `{own[0]['workload']}`. The load before a campaign was {loads[0]:.1f} to "
            f"{loads[-1]:.1f} on two processors."
        )
        yield ""
        yield from table(HEADER, counts(own))


def recorded_controls(found: Mapping[str, Any], methods: Mapping[str, Any]) -> Iterator[str]:
    """How often intervals of two equal hosts held zero, and those of other measurements whose truth is known."""
    kept = found["recorded"]
    rounds, machines = sum(one["rounds"] for one in kept), " and ".join(sorted({one["machine"] for one in kept}))
    yield "## A/A controls of recorded campaigns"
    yield ""
    yield (
        f"The control of {len(kept)} campaigns with {rounds} sliced rounds, recorded on {machines} "
        "(`benchmarks/recorded_coverage.py`), some while other programs ran. The last row has the sliced "
        "measurements of [protocols.md](protocols.md), whose truth is zero or planted. Each interval claims 95%; "
        "the Monte Carlo error of the share follows it."
    )
    yield ""
    lines = []
    for quantity, title in QUANTITIES.items():
        logs = [one["log_ratios"][quantity][HOSTS] for one in kept if quantity in one["log_ratios"]]
        intervals = [interval for one in logs if (interval := deployed(one).mean_low_high) is not None]
        lines.append(_share(title, sum(low <= 0 <= high for _, low, high in intervals), len(intervals)))
    own = [one for one in methods["conclusions"] if one["method"] == "sliced" and one["low"] is not None]
    held = sum(one["low"] <= math.exp(one["truth"]) <= one["high"] for one in own)
    lines.append(_share("whole runs without their end, five methods", held, len(own)))
    yield from table(("what", "the truth inside the interval", "share"), lines)
    yield ""
    tested = [one for one in found["whole_campaigns"] if one["quantity"] in QUANTITIES and one["f"] is not None]
    yield (
        "Do campaigns differ by more than their rounds predict? F is Welch's ratio of the variance between "
        "campaigns to that within. `zero` is a launch that runs what the host runs. Pairs of one campaign share "
        "launches."
    )
    yield ""
    header = ("machine", "workload", "what", "pair", "campaigns", "rounds", "F", "p")
    rows = [
        [
            *(one["machine"], one["workload"], one["quantity"].partition(",")[0], ", ".join(one["pair"])),
            *(str(one["campaigns"]), str(one["rounds"]), f"{one['f']:.2f}", f"{one['p']:.3f}"),
        ]
        for one in tested
    ]
    yield from table(header, rows)
    yield ""
    low = [one for one in tested if one["p"] < 1 - CONFIDENCE]
    yield (
        f"{len(low)} of {len(tested)} tests have p below {1 - CONFIDENCE:.2f}. "
        + ("Intervals may be too narrow there. The cause is unknown, and more campaigns are needed." if low else "")
    ).rstrip()


def _share(title: str, held: int, count: int) -> list[str]:
    error = math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / count)
    return [title, f"{held} of {count}", f"{held / count:.0%} ± {100 * error:.0f} points"]
