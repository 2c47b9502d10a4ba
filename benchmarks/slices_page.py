"""The section of docs/proof.md on sliced rounds, from what benchmarks/simulate_slices.py has kept."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tare.model.roles import CONTROL

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests"), str(ROOT)]

from simulate_slices import (  # noqa: E402
    AFTER,
    EFFECTS,
    EXIT_S,
    GROUPS,
    METHODS,
    MOST,
    ROUNDS,
    START_S,
)
from slicing import IMPORTS_S, STEP_S, STEPS  # noqa: E402

SHOWN = ("3%", "10%", "40%")


def _prose(text: str) -> str:
    return " ".join(text.split())


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """The section of docs/proof.md."""
    yield "## Sliced rounds, simulated"
    yield ""
    yield from _page_of_pacing(found)
    yield ""
    yield from _page_of_intervals(found)
    yield ""
    yield from _page_of_the_rest(found)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}%"


def _range(values: Sequence[float]) -> str:
    return f"±{100 * min(values):.1f} to {100 * max(values):.1f}%"


def _page_of_pacing(found: Mapping[str, Any]) -> Iterator[str]:
    like, both = found["machine"], found["paced"][0]["launches"]["40%"]
    most = max(one["launches"]["40%"]["error"] for one in found["paced"])
    yield _prose(f"""
        Written from `benchmarks/sliced_rounds_simulated.json` (`benchmarks/simulate_slices.py`). On the
        simulated machine equal runs one after the other differ by {_percent(like["sequential_sd"], 0)} (standard
        deviation). Its slowdown is correlated by {like["step_correlation"]:.2f} from one step of 30 ms to the
        next and by {like["correlation_1600_ms"]:.2f} over 1.6 s, and storms are one-sided. A round has two hosts
        and four environments, a job {IMPORTS_S:g} s of imports and {STEPS} steps of {1000 * STEP_S:g} ms. The two
        phases may feel the noise differently. Expected seconds are wrong by 10% in common and by 1% each. The truth
        is the ratio of times in the long run. (The mean log-ratio of jobs alone that start at any instant is
        {100 * (both["alone"] - both["truth"]):+.1f}% from it at 40% in both.) The table has the standard deviation
        of one round at true effects of {", ".join(SHOWN)}. Slices are equal, by length or by phase. Biases
        are in the same order (standard error {100 * most:.1f} points at most). Launches do not vary in it.
    """)
    yield ""
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in found["paced"]:
        felt = ", ".join(f"{value:g}" for value in one["sensitivity"])
        rows.setdefault((one["where"], felt), []).append(one["launches"])
    lines = [
        [
            *kind,
            *(", ".join(_percent(launches[name]["sd"]) for name in SHOWN) for launches in paced),
            ", ".join(f"{100 * launches['40%']['bias']:+.1f}%" for launches in paced),
        ]
        for kind, paced in rows.items()
    ]
    pacings = dict.fromkeys(one["pacing"] for one in found["paced"])
    head = ["slower in", "noise felt", *(f"sd, {pacing}" for pacing in pacings), "bias at 40%"]
    yield from _table(head, lines)
    yield ""
    yield _prose(f"""
        Equal slices leave the longer job alone at its end ({_percent(both["tail"], 0)} of its time at 40% in both).
        There it meets noise that no host met. Slices by phase tie the weight of a phase to its noise, and bias
        steps where phases differ much (below). Tare uses slices by length.
    """)


def _cells(entries: Sequence[Mapping[str, Any]], n: int, method: str) -> tuple[list[float], list[float]]:
    """Shares held and half-widths of all launches of all scenarios."""
    places = [entry["intervals"][str(n)][method] for entry in entries]
    held = [place["held"][name] for place in places for name in (CONTROL, *EFFECTS)]
    return held, [place["half_width"][name] for place in places for name in (CONTROL, *EFFECTS)]


def _page_of_intervals(found: Mapping[str, Any]) -> Iterator[str]:
    error = math.sqrt(found["alpha"] * (1 - found["alpha"]) / found["campaigns"])
    yield _prose(f"""
        From here on launches vary by 1% between rounds. There are {found["campaigns"]} campaigns
        of each of {len(found["covered"])} kinds, with five comparisons each. A kind is slower in imports, steps or
        both. It feels noise equally, or half as much in one phase. Slices are by phase, and also by length where
        imports differ. Each interval claims
        {_percent(1 - found["alpha"], 2)}; such a share has a standard error of {100 * error:.2f} points. Cells have
        the mean of all comparisons, the lowest, and the mean half-width.
    """)
    yield ""
    rows = []
    for method in METHODS:
        row = [method]
        for n in ROUNDS:
            held, halves = _cells(found["covered"], n, method)
            row.append(
                f"{_percent(float(np.mean(held)), 2)} ({_percent(min(held))}), ±{_percent(float(np.mean(halves)))}"
            )
        rows.append(row)
    yield from _table(["interval of the body", *(f"{n} rounds" for n in ROUNDS)], rows)
    yield ""
    yield _prose("""
        Tare uses Student's interval with the comparison's own spread. There are no storms to trim. A spread
        moderated by others covers too little where a comparison varies more than they do; the wider of both covers
        more than it claims.
    """)
    yield ""
    yield _prose("""
        Steps in the next table are fitted by least absolute deviations of launch + row, in rounds of six launches.
        Tare fits by medians of pairs, which has no bias with odd numbers of launches either.
    """)
    yield ""
    rows = []
    for one in found["stepped"]:
        row = [f"slower in {one['where']}, {one['pacing']}"]
        for n in ROUNDS:
            held, _ = _cells([one], n, "Student")
            half = one["intervals"][str(n)]["Student"]["half_width"]
            row.append(f"{_percent(float(np.mean(held)), 2)} ({_percent(min(held))}), ±{_percent(half['3%'])}")
        rows.append([*row, f"{100 * one['bias']['40%']:+.1f}%"])
    head = ["steps, Student's interval; half-width at 3%", *(f"{n} rounds" for n in ROUNDS), "bias at 40%"]
    yield from _table(head, rows)


def _page_of_the_rest(found: Mapping[str, Any]) -> Iterator[str]:
    yield _prose(f"""
        Switches that cost time, {max(2, found["campaigns"] // 4)} campaigns of {MOST} rounds: the cost is estimated
        from the assigned quanta. Bias, coverage and half-width of the body (worst of four environments) are by
        correction to long quanta. One cost for all adds little width, and holds only where switches cost the same
        everywhere.
    """)
    yield ""
    rows = []
    for one in found["switched"]:
        launches = one["launches"].values()
        more = [
            1000 * float(np.mean([each[key] for each in launches])) for key in ("difference_s", "sd_s", "error_s")
        ]
        corrected = []
        for when in AFTER:
            bias = max((each[f"bias{when}"] for each in launches), key=abs)
            held, half = ([each[f"{what}{when}"] for each in launches] for what in ("held", "half_width"))
            corrected.append(f"{100 * bias:+.1f}%, {_percent(min(held))}, ±{_percent(max(half))}")
        costs = f"{1000 * one['host_s']:g} and {1000 * one['env_s']:g} ms"
        difference = f"{more[0]:+.2f} ms, sd {more[1]:.2f} (expected {more[2]:.2f})"
        rows.append([costs, f"{1000 * one['common_s']:.2f} ms", difference, *corrected])
    head = [
        "host and environments",
        "mean of all",
        "difference",
        "not corrected",
        "by each cost",
        "by one cost for all",
    ]
    yield from _table(head, rows)
    yield ""
    yield _prose(f"""
        Whole runs: a start of {START_S:g} s, the bodies above (slower in both by 0 to 40%) and an exit of
        {EXIT_S:g} s. In addition to those of the rounds there are {GROUPS} starts without a job.
    """)
    yield ""
    rows = []
    for n, planted in sorted({(one["rounds"], one["planted_s"]) for one in found["whole"]}):
        own = [one for one in found["whole"] if (one["rounds"], one["planted_s"]) == (n, planted)]
        held, start = ([one[key] for one in own] for key in ("held", "start_held"))
        rows.append(
            [
                str(n), f"{1000 * planted:g} ms", f"{_percent(float(np.mean(held)), 2)} ({_percent(min(held))})",
                _range([one["half_width"] for one in own]), _percent(float(np.mean(start)), 2),
                f"±{1000 * float(np.mean([one['start_half_width_s'] for one in own])):.0f} ms",
            ]
        )  # fmt: skip
    head = ["rounds", "planted at the start", "whole run covered", "half-width", "start covered", "half-width"]
    yield from _table(head, rows)
