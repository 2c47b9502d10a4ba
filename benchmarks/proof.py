"""The proof of the instrument, with more campaigns than its tests run: writes docs/proof.md.

    .venv/bin/python benchmarks/proof.py [--campaigns 1000] [--out docs/proof.md]

Simulated campaigns of steps, campaigns of units that are normal or of other worlds, and recorded host-host units
drawn again, all through the functions that real campaigns go through (tests/proving.py). Seeds are fixed: the same
page each time. The last section, on sliced rounds, is written from what benchmarks/simulate_slices.py has kept:
nothing is simulated for it here.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

import measured_page  # noqa: E402
from proving import (  # noqa: E402
    NORMAL_SPREAD,
    ONCE_S,
    PLANTED_S,
    RECORDED,
    RECORDED_HALF_WIDTH,
    RUN_WORLDS,
    UNIT_WORLDS,
    Design,
    Outcome,
    World,
    autocorrelation,
    binomial_error,
    consecutive,
    control_logs,
    cover,
    covers,
    decided_size,
    ladder,
    normal_campaigns,
    planted_seconds,
    read_recorded,
    resample,
    share,
    simulate,
    summary,
)
from simulate_slices import FOUND  # noqa: E402
from slices_page import page  # noqa: E402

from tare.core.files import read_json, write_text  # noqa: E402
from tare.model.roles import CONTROL  # noqa: E402
from tare.model.studies.loading import load_checked  # noqa: E402

HEAD = ["covers the truth", "excludes zero", "equivalent", "different", "units, mean (most)"]


def prose(text: str) -> str:
    """A paragraph, however it is broken here."""
    return " ".join(text.split())


def cells(found: dict[str, float]) -> list[str]:
    """What every table shows of one design and effect."""
    shares = [f"{100 * found[name]:.1f}%" for name in ("coverage", "excludes zero", "equivalent", "different")]
    return [*shares, f"{found['units']:.1f} ({found['most_units']})"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"


GROUPS = {"replicates": 3, "groups": 4}  # of steps, of each launch
CALM = {"group_spread": 0.01, "drift": 0.003, "jump_share": 0.0, "stall_share": 0.0, "launch_spread": 0.002}
PLANTED = (0.03, 0.5)
WORLD_UNITS = (6, 9, 12, 20)


def stalls(campaigns: int) -> Iterator[str]:
    """Stalls planted in one environment, on a calm machine and on one that stalls by itself."""
    rows, usual = [], World(effects={})
    planted = {"stalls": PLANTED[0] * PLANTED[1], "none": 0.0}
    for (machine, changes), steps, units in product({"calm": CALM, "unquiet": {}}.items(), (1, 4), (6, 12, 20)):
        world = World(
            effects={"none": 0.0, "stalls": 0.0}, steps=steps, step_spread=0.01, stalled={"stalls": PLANTED},
            **GROUPS, **changes,
        )  # fmt: skip
        generator, design = np.random.default_rng(5), Design(half_width=None, confidence=0.95, cap=units)
        found = [simulate(world, generator, design) for _ in range(campaigns)]
        pairs = []
        for name, more in planted.items():
            words = [outcome.verdicts[name] for outcome in found]
            whole = [outcome.totals[name] for outcome in found]
            pairs.append(
                (
                    f"{100 * share([word == 'equivalent' for word in words]):.1f}%",
                    f"{100 * share([word == 'equivalent apart from stalls' for word in words]):.1f}%",
                    f"{100 * share([covers(interval, more) for interval in whole]):.1f}%",
                    f"±{100 * float(np.median([interval.width / 2 for interval in whole])):.2g}%",
                )
            )
        rows.append([machine, str(units), str(steps), *(", ".join(pair) for pair in zip(*pairs, strict=True))])
    yield "## Stalls"
    yield ""
    yield prose(f"""
        {campaigns} campaigns each. A launch makes {math.prod(GROUPS.values())} groups of steps (column “steps”: in
        each). The typical step is fitted as in a sliced round; its interval is that of rounds that ran whole. In
        one environment {100 * PLANTED[0]:g}% of the steps take {100 * PLANTED[1]:g}% longer:
        {100 * PLANTED[0] * PLANTED[1]:.2g}% more of all time, inside the margin of 2%. Cells have this environment
        first, then one without planted stalls. Each interval claims 97.5%. Planted stalls may pass as “equivalent”
        in at most 5% of campaigns. On the unquiet machine speed is a random walk of {100 * usual.drift:g}% a group.
        {100 * usual.jump_share:g}% of groups change it for good by {100 * usual.jump:g}% (standard deviation), and
        {100 * usual.stall_share:g}% are 10 to {100 * usual.stall:g}% slower, in every environment. There, or where
        few steps are timed (rule of three), the interval of all time is wider than the margin. Then “apart
        from stalls” is said of both.
    """)
    yield ""
    head = ["machine", "units", "steps", "equivalent", "equivalent apart from stalls"]
    yield from table([*head, "all time covered", "its half-width"], rows)


def worlds(campaigns: int) -> Iterator[str]:
    """Units of worlds that are not normal, or not alike."""
    alpha, rows = 0.05 / 3, []
    for world in UNIT_WORLDS:
        found = [cover(world, units, campaigns, alpha) for units in WORLD_UNITS]
        rows.append([world, *(f"{100 * min(one.covered.values()):.2f}% ({one.width:.2f})" for one in found)])
    yield "## Worlds of units"
    yield ""
    yield prose(f"""
        {campaigns} campaigns with fixed numbers of units, and environments with planted means of 0, 0.5 and 2%. The
        table has the one that is covered least often. In the normal world the standard deviation is
        {100 * NORMAL_SPREAD:g}%. Each interval claims {100 * (1 - alpha):.2f}%; such a share has a standard error
        of {100 * binomial_error(1 - alpha, campaigns):.2f} points. In brackets: the median width relative to
        Student's interval.
    """)
    yield ""
    yield from table(["world", *(f"{units} units" for units in WORLD_UNITS)], rows)


def seconds(campaigns: int) -> Iterator[str]:
    """Seconds planted in what happens once, and what a job of any length then costs."""
    alpha, rows = 0.05 / len(PLANTED_S), []
    for world, units in product(RUN_WORLDS, (6, 12)):
        found = planted_seconds(world, units, campaigns, alpha)
        shares = [f"{100 * one:.2f}%" for one in found.covered.values()]
        excluded = [f"{100 * one:.1f}%" for one in found.found.values()]
        boxes = f"{100 * min(found.boxes.values()):.2f}%"
        rows.append([world, str(units), *shares, " / ".join(excluded), f"±{found.half_width_s:.2g} s", boxes])
    planted = [f"{once_s:g} s" for once_s, _ in PLANTED_S.values()]
    yield "## Start seconds"
    yield ""
    yield prose(f"""
        {campaigns} campaigns. The host takes {ONCE_S:g} s once (start, imports, exit). Three environments take
        {", ".join(planted[:-1])} and {planted[-1]} more, and
        {", ".join(f"{100 * step:g}%" for _, step in PLANTED_S.values())} more in every step. Their launches vary
        by {100 * NORMAL_SPREAD:g}%. Each interval of the seconds claims {100 * (1 - alpha / 2):.2f}%; such a share
        has a standard error of {100 * binomial_error(1 - alpha / 2, campaigns):.2f} points. “Excludes zero” is by
        environment. A box of both parts claims {100 * (1 - alpha):.2f}%: it must hold the true cost of jobs of
        1 s to 12 days. It must also hold the length beyond which that is below 1%. The column has the
        environment for which it does so least often.
    """)
    yield ""
    head = ["runs", "units", *planted, "excludes zero", "half-width", "all jobs in the box"]
    yield from table(head, rows)


def families(studies: int) -> Iterator[str]:
    """What Holm's ladder lets through in a study of twelve primary comparisons."""
    tried = {
        "no environment differs": [0.0] * 12,
        "half of them differ by 3%": [0.0, 0.03] * 6,
        "all on the margin, 2%": [0.02] * 12,
        "half on the margin, half at 10%": [0.02, 0.1] * 6,
    }
    rows = []
    for title, effects in tried.items():
        false, inside = ladder(effects, studies)
        rows.append([title, f"{100 * false:.1f}%", f"{100 * inside:.1f}%"])
    yield "## The family of primary comparisons"
    yield ""
    yield prose(f"""
        {studies} studies of two workloads, two metrics and three environments, eight units each. Each false claim
        may be in at most 5% of studies (standard error {100 * binomial_error(0.05, studies):.1f} points).
    """)
    yield ""
    yield from table(["truth", "any false “different”", "any false “inside the margin”"], rows)


def designs(campaigns: int) -> Iterator[str]:
    """What the choice of the number of units alone does to coverage."""
    rows = []
    tried = [("never", 0.01, 10**6)]
    tried += [("always", 0.0001, cap) for cap in (8, 20, 40)]
    # The spread of three launches of a block, and so what the cap corresponds to, decide where a part is capped.
    tried += [("in part", 0.0236 / math.sqrt(cap), cap) for cap in (8, 20, 40)]
    for title, half_width, cap in tried:
        design = Design(half_width=half_width, confidence=0.95, cap=cap)
        outcomes = normal_campaigns(design, campaigns)
        env, control = (summary(outcomes, name, 0.0) for name in ("none", CONTROL))
        shares = [f"{100 * env['capped']:.0f}%", *(f"{100 * found['coverage']:.1f}%" for found in (env, control))]
        rows.append(["none" if title == "never" else str(cap), title, *shares])
    yield "## Two-stage and fixed designs"
    yield ""
    yield prose(f"""
        {campaigns} campaigns of normal units. Where the pilot decides whether a campaign is capped, quiet pilots
        get Stein's number of units and noisy ones all that the budget pays for. With Stein's interval alone for the
        one and Student's for the other, coverage was 92.6% at worst. So in Stein's design the wider of Stein's and
        that of all units decides.
    """)
    yield ""
    yield from table(
        ["cap", "it decides", "campaigns capped", "environment covered, of 95%", "control covered"], rows
    )


def recorded(campaigns: int) -> Iterator[str]:
    """Recorded host-host units, drawn again."""
    yield "## Recorded hosts"
    yield ""
    if not RECORDED.exists():
        yield f"Unavailable: `{RECORDED.relative_to(ROOT)}` is missing; record it, then run this again."
        return
    logs = control_logs(read_recorded(RECORDED))
    half_width, margin = RECORDED_HALF_WIDTH, load_checked(ROOT / "config/config.yaml").margins.step
    size = decided_size(logs, half_width, 0.95)
    designs = {
        f"Stein, ±{100 * half_width:g}% wanted": Design(half_width=half_width, confidence=0.95, margin=margin),
        "fixed, the pilot's 6": Design(half_width=None, confidence=0.95, margin=margin, cap=6),
        f"fixed, the decided {size}": Design(half_width=None, confidence=0.95, margin=margin, cap=size),
    }
    rows = []
    for title, design in designs.items():
        for swap in (True, False):
            outcomes: list[Outcome] = resample(logs, design, campaigns, np.random.default_rng(1), swap=swap)
            rows.append([title, "yes" if swap else "no", *cells(summary(outcomes, CONTROL, 0.0))])
    cpu = read_json(RECORDED.with_suffix(".json"))["cpu_model"]
    error = logs.std(ddof=1) / math.sqrt(len(logs))
    held = consecutive(logs, 6, 0.05)
    yield prose(f"""
        `benchmarks/{RECORDED.name}` has {len(logs)} units of host against host on an {cpu}, from an earlier design
        in which launches alternated on bursts of steps. Log-ratios: mean {100 * logs.mean():+.2f}% ±
        {100 * error:.2f} (standard error), standard deviation {100 * logs.std(ddof=1):.2f}%, largest
        {100 * np.abs(logs).max():.1f}%. {campaigns} pseudo-campaigns of each kind, drawn with replacement. The
        truth is zero: exactly if the hosts' names are exchanged at random, otherwise nearly, by the pool's mean.
        “Excludes zero” is the share of false alarms, “different” those beyond the margin of {100 * margin:g}%.
    """)
    yield ""
    yield from table(["design", "hosts exchanged", *HEAD], rows)
    yield ""
    yield prose(f"""
        In recorded order, {sum(held)} of {len(held)} runs of six consecutive units have an interval that holds zero
        (95% should; standard error {100 * binomial_error(0.95, len(held)):.1f} points). A unit's log-ratio
        correlates with the one before by {autocorrelation(logs):+.2f} (standard error
        {1 / math.sqrt(len(logs)):.2f}).
    """)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--campaigns", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/proof.md", help="the page")
    arguments = parser.parse_args()
    campaigns = arguments.campaigns
    lines = [
        "# The proof of the instrument",
        "",
        prose("""
            How often do the intervals and verdicts of [method.md](method.md) hold what they claim?
            [Planted campaigns](#planted-campaigns) and [A/A controls](#aa-controls-of-recorded-campaigns) are real
            measurements, [sliced rounds](#sliced-rounds-simulated) are simulated. The other sections simulate the
            intervals of rounds that ran whole, and rules that sliced rounds share. `benchmarks/proof.py` writes
            this page. `tests/unit/test_proof.py` repeats it with fewer campaigns.
            `tests/conformance/test_planted.py` plants 0% and 3% on the real machine (more where that is noisy).
        """),
        "",
        *stalls(campaigns),
        "",
        *worlds(2 * campaigns),
        "",
        *seconds(2 * campaigns),
        "",
        *families(2 * campaigns),
        "",
        *designs(4 * campaigns),
        "",
        *recorded(campaigns),
        "",
        *measured_page.pages(),
        *page(read_json(FOUND)),
    ]
    write_text(arguments.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
