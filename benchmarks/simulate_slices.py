"""Sliced rounds, simulated: what pacing does to the spread of a round, and how often intervals hold the truth.

    .venv/bin/python benchmarks/simulate_slices.py [--campaigns 2000]

Writes benchmarks/sliced_rounds_simulated.json, from which docs/proof.md has its section (slices_page.py).
Seeds are fixed. The simulated machine is in tests/slicing.py.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from slicing import (  # noqa: E402
    PACINGS,
    Design,
    Noise,
    autocorrelation,
    jobs,
    play,
    sequential,
)

from tare.core.files import write_json  # noqa: E402
from tare.model.registry import HOST  # noqa: E402
from tare.model.roles import CONTROL  # noqa: E402
from tare.stats.intervals import (  # noqa: E402
    MOST_PRIOR,
    TRIM,
    TRIM_FROM,
    TRIM_WIDER,
    body_estimates,
    t_quantile,
)
from tare.stats.sliced.steps import step_effects  # noqa: E402
from tare.stats.sliced.switches import at_long_quantum, switch_cost  # noqa: E402
from tare.stats.sliced.whole import Once, whole_run  # noqa: E402

FOUND = ROOT / "benchmarks/sliced_rounds_simulated.json"
EFFECTS = {"0%": 0.0, "3%": 0.03, "10%": 0.1, "40%": 0.4}
NAMES = [HOST, CONTROL, *EFFECTS]
ALPHA = 0.05 / 3
ROUNDS = (6, 8, 10, 12)
MOST = max(ROUNDS)
AT_ONCE = 100  # campaigns
PACED = 3600  # rounds of each pacing
TRACE_S = 60.0
METHODS = ("Student", "trimmed", "Student or moderated", "trimmed or moderated", "moderated")
START_S, EXIT_S, PLANTED_S, ONCE_SPREAD, GROUPS = 0.3, 0.1, 0.05, 0.15, 20


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Rounds of one kind: where environments are slower, how phases feel the noise, how slices are paced."""

    where: str
    sensitivity: tuple[float, float] = (1.0, 1.0)
    pacing: str = "by phase"
    launch_spread: float = 0.01
    switch_s: tuple[float, float] = (0.0, 0.0)  # of the hosts, of the environments
    steps: bool = False

    @property
    def design(self) -> Design:
        """For the simulator."""
        costs = {name: self.switch_s[0 if name in (HOST, CONTROL) else 1] for name in NAMES}
        return Design(
            jobs=jobs(self.where, EFFECTS, costs), pacing=self.pacing, sensitivity=self.sensitivity,
            launch_spread=self.launch_spread, campaign=MOST,
        )  # fmt: skip


@dataclass(kw_only=True)
class Rounds:
    """What was played of a scenario: `logs` of own seconds, shape [campaigns, rounds, launches], and the truth."""

    logs: np.ndarray
    truth: np.ndarray
    alone: np.ndarray | None
    tail: np.ndarray
    switches: np.ndarray
    steps: np.ndarray | None = None  # log-ratios of steps, shape as `logs`
    of_steps: tuple[np.ndarray, ...] = ()  # own seconds, switches, assigned: [campaigns, rounds, steps, launches]


def collect(scenarios: Sequence[Scenario], campaigns: int, seed: int, *, alone: bool = False) -> list[Rounds]:
    """Play all scenarios on the same traces of noise."""
    generator, found = np.random.default_rng(seed), [[] for _ in scenarios]
    for first in range(0, campaigns, AT_ONCE):
        count = min(AT_ONCE, campaigns - first)
        slowdown = Noise().slowdown(generator, count * MOST, TRACE_S)
        for number, scenario in enumerate(scenarios):
            own = np.random.default_rng([seed, first, number])
            found[number].append(play(scenario.design, slowdown, own, with_steps=scenario.steps, with_alone=alone))
    return [_gather(played) for played in found]


def _gather(played: Sequence[Any]) -> Rounds:
    def together(name: str) -> np.ndarray:
        values = np.concatenate([getattr(one, name) for one in played])
        return values.reshape(-1, MOST, *values.shape[1:])

    truth = np.mean([one.truth for one in played], axis=0)
    alone = np.mean([one.alone.mean(axis=0) for one in played], axis=0) if played[0].alone is not None else None
    found = Rounds(
        logs=np.log(together("own_s")), truth=truth - truth[0], alone=None if alone is None else alone - alone[0],
        tail=together("tail").mean(axis=(0, 1)), switches=together("switches"),
    )  # fmt: skip
    if played[0].step_s is not None:
        found.of_steps = tuple(together(name) for name in ("step_s", "step_switches", "assigned"))
        found.steps = step_effects(np.log(found.of_steps[0]))
    return found


def contrast(logs: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Log-ratios to either host, shape [campaigns, rounds] each."""
    own = logs[:, :, NAMES.index(name)]
    second = 0 if name == CONTROL else 1
    return own - logs[:, :, 0], own - logs[:, :, second]


def spreads(first: np.ndarray, second: np.ndarray, trim: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, standard error and degrees of freedom by campaign, as tare.stats.intervals' student and trimmed."""
    both, n = np.stack([first, second]), first.shape[1]
    cut = int(TRIM * n) if trim and n >= TRIM_FROM else 0
    if not cut:
        middle = both.mean(axis=0)
        return middle.mean(axis=1), middle.std(axis=1, ddof=1) / math.sqrt(n), n - 1
    ordered, kept = np.sort(both, axis=2), n - 2 * cut
    mean = ordered[:, :, cut : n - cut].mean(axis=(0, 2))
    low, high = ordered[:, :, [cut]], ordered[:, :, [n - 1 - cut]]
    variance = np.clip(both, low, high).mean(axis=0).var(axis=1, ddof=1)
    return mean, TRIM_WIDER * np.sqrt(variance * (n - 1) / (kept * (kept - 1))), kept - 1


def moderated(own: np.ndarray, others: np.ndarray, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Error and degrees of freedom drawn towards the others', as tare.stats.intervals.moderated, by campaign."""
    halves = np.linspace(0.05, MOST_PRIOR / 2, 4000)
    logs = np.log(others**2) - special.digamma(degrees / 2) + math.log(degrees / 2)
    scatter = logs.var(axis=0, ddof=1) - special.polygamma(1, degrees / 2)
    prior = 2 * np.interp(-scatter, -special.polygamma(1, halves), halves)
    variance = np.exp(logs.mean(axis=0) + special.digamma(prior / 2) - np.log(prior / 2))
    return np.sqrt((prior * variance + degrees * own**2) / (prior + degrees)), prior + degrees


def intervals(logs: np.ndarray, n: int) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Means and half-widths of the first n rounds, by method and launch; shape [campaigns] each."""
    found: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {method: {} for method in METHODS}
    launches = [CONTROL, *EFFECTS]
    pairs = {name: contrast(logs[:, :n], name) for name in launches}
    for trim, word in ((False, "Student"), (True, "trimmed")):
        own = {name: spreads(*pairs[name], trim) for name in launches}
        scale = {name: math.sqrt(4 / 3) if name == CONTROL else 1.0 for name in launches}
        for name in launches:
            mean, error, degrees = own[name]
            half = t_quantile(ALPHA, degrees) * error
            others = np.stack([own[one][1] * scale[name] / scale[one] for one in launches if one != name])
            drawn, more = moderated(error, others, degrees)
            other_half = -special.stdtrit(more, ALPHA / 2) * drawn
            found[word][name] = mean, half
            found[f"{word} or moderated"][name] = mean, np.maximum(half, other_half)
            if not trim:
                found["moderated"][name] = mean, other_half
    return found


def coverage(logs: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Shares of intervals that hold the truth, and median half-widths, by number of rounds, method and launch."""
    found: dict[str, Any] = {}
    for n in ROUNDS:
        for method, launches in intervals(logs, n).items():
            for name, (mean, half) in launches.items():
                held = np.abs(mean - truth[NAMES.index(name)]) <= half
                place = found.setdefault(str(n), {}).setdefault(method, {"held": {}, "half_width": {}})
                place["held"][name] = round(float(held.mean()), 5)
                place["half_width"][name] = round(float(np.median(half)), 6)
    return found


def by_launch(rounds: Rounds) -> dict[str, Any]:
    """Bias and standard deviation of a round's log-ratio, and the tail, by launch."""
    found = {}
    for name in (CONTROL, *EFFECTS):
        place, ratios = NAMES.index(name), np.mean(contrast(rounds.logs, name), axis=0)
        found[name] = {
            "truth": round(float(rounds.truth[place]), 6),
            "bias": round(float(ratios.mean() - rounds.truth[place]), 6),
            "error": round(float(ratios.std() / math.sqrt(ratios.size)), 6),
            "sd": round(float(ratios.std(axis=1, ddof=1).mean()), 6),
            "tail": round(float(rounds.tail[place]), 5),
        }
        if rounds.alone is not None:
            found[name]["alone"] = round(float(rounds.alone[place]), 6)
    return found


def paced(rounds: int) -> list[dict[str, Any]]:
    """Spread of one round by pacing, with launches that do not vary: what slicing itself leaves."""
    tried = [("both", (1.0, 1.0)), ("imports", (1.0, 1.0)), ("steps", (1.0, 1.0))]
    tried += [("imports", (0.3, 1.0)), ("imports", (1.0, 0.3))]
    scenarios = [
        Scenario(where=where, sensitivity=felt, pacing=pacing, launch_spread=0.0)
        for where, felt in tried
        for pacing in PACINGS
    ]
    played = collect(scenarios, rounds // MOST, 7, alone=True)
    return [{**_named(one), "launches": by_launch(got)} for one, got in zip(scenarios, played, strict=True)]


def _named(scenario: Scenario) -> dict[str, Any]:
    return {"where": scenario.where, "sensitivity": list(scenario.sensitivity), "pacing": scenario.pacing}


def covered(campaigns: int) -> list[dict[str, Any]]:
    """Coverage of bodies at the deployed design; launches vary by 1% between rounds."""
    felt = [(1.0, 1.0), (0.5, 1.0), (1.0, 0.5)]
    scenarios = [Scenario(where=where, sensitivity=one) for where in ("imports", "steps", "both") for one in felt]
    scenarios += [Scenario(where="imports", sensitivity=one, pacing="by length") for one in felt]
    played = collect(scenarios, campaigns, 8)
    return [
        {**_named(one), "launches": by_launch(got), "intervals": coverage(got.logs, got.truth)}
        for one, got in zip(scenarios, played, strict=True)
    ]


AFTER = ("", "_after", "_alike")  # without a correction, by each cost, by the common one
STEPPED = (("steps", "by phase"), ("imports", "by phase"), ("imports", "by length"), ("steps", "by length"))


def stepped(campaigns: int, numbers: Sequence[int] = range(len(STEPPED))) -> list[dict[str, Any]]:
    """Coverage of steps, by launch + row in each round."""
    found = []
    for number in numbers:
        scenario = Scenario(where=STEPPED[number][0], pacing=STEPPED[number][1], steps=True)
        got = collect([scenario], campaigns, 9 + number)[0]
        truth = np.array([math.log1p(EFFECTS.get(name, 0.0)) * (scenario.where == "steps") for name in NAMES])
        ratios = {name: np.mean(contrast(got.steps, name), axis=0) for name in (CONTROL, *EFFECTS)}
        spread = {name: round(float(own.std(axis=1, ddof=1).mean()), 6) for name, own in ratios.items()}
        bias = {name: round(float(own.mean() - truth[NAMES.index(name)]), 6) for name, own in ratios.items()}
        kept = {n: {"Student": methods["Student"]} for n, methods in coverage(got.steps, truth).items()}
        found.append({**_named(scenario), "sd": spread, "bias": bias, "intervals": kept})
    return found


def switched(campaigns: int) -> list[dict[str, Any]]:
    """What is found of switch costs that are alike, and of ones that are not; bodies before and after."""
    found = []
    for number, costs in enumerate([(0.001, 0.001), (0.001, 0.003)]):
        scenario = Scenario(where="both", switch_s=costs, steps=True)
        got = collect([scenario], campaigns, 20 + number)[0]
        own = np.exp(got.logs)
        rows: dict[str, list[list[float]]] = {name: [] for name in EFFECTS}
        common = []
        for c in range(campaigns):
            measured = switch_cost(*(values[c] for values in got.of_steps), NAMES)
            common.append([measured.common.seconds or math.nan, measured.common.error or math.nan])
            rates = (got.switches[c] / own[c]).mean(axis=0)
            estimates = body_estimates([dict(zip(NAMES, one, strict=True)) for one in own[c]], NAMES)
            for name in EFFECTS:
                place, one = NAMES.index(name), measured.to_host[name]
                both_rates = rates[place], rates[:2].mean()
                tried = [estimates[name]] + [
                    at_long_quantum(estimates[name], measured, name, both_rates, alike=alike)
                    for alike in (False, True)
                ]
                row = [one.seconds or math.nan, one.error or math.nan]
                for each in tried:
                    row += [each.mean - got.truth[place], _holds(each, got.truth[place]), each.half_width(ALPHA)]
                rows[name].append(row)
        heads = ["difference_s", "error_s"]
        heads += [f"{what}{when}" for when in AFTER for what in ("bias", "held", "half_width")]
        found.append(
            {
                "host_s": costs[0], "env_s": costs[1],
                "common_s": _mean(common, 0), "common_error_s": _mean(common, 1),
                "launches": {
                    name: {**{head: _mean(one, k) for k, head in enumerate(heads)}, "sd_s": _sd(one, 0)}
                    for name, one in rows.items()
                },
            }
        )  # fmt: skip
    return found


def _holds(estimate: Any, truth: float) -> float:
    return float(abs(estimate.mean - truth) <= estimate.half_width(ALPHA))


def _mean(rows: Sequence[Sequence[float]], column: int) -> float:
    return round(float(np.nanmean([row[column] for row in rows])), 7)


def _sd(rows: Sequence[Sequence[float]], column: int) -> float:
    return round(float(np.nanstd([row[column] for row in rows], ddof=1)), 7)


def once(generator: np.random.Generator, count: int, host_s: float, more_s: float) -> Once:
    """Seconds of a term by observation; a group of launches shares slow noise, each has its own as well."""
    shared = 0.2 * generator.standard_normal(count)
    own = np.exp(shared + ONCE_SPREAD * generator.standard_normal((3, count)))
    # What is planted is the difference of the means, so that it is alike in quiet and in slow groups.
    return Once(env=host_s * own[0] + more_s, host=host_s * own[1], control=host_s * own[2])


def whole(campaigns: int) -> list[dict[str, Any]]:
    """Whole runs: 50 ms or nothing planted at the start, with bodies that are slower by 0 to 40%."""
    got = collect([Scenario(where="both")], campaigns, 30)[0]
    own, generator, found = np.exp(got.logs), np.random.default_rng(31), []
    level = float(np.exp(got.logs[:, :, :2].mean()))
    for n in (6, 12):
        for planted in (0.0, PLANTED_S):
            for name in EFFECTS:
                place, rows = NAMES.index(name), []
                once_s = (START_S, EXIT_S)
                body = level * math.exp(got.truth[place])
                truth = math.log((sum(once_s) + planted + body) / (sum(once_s) + level))
                for c in range(campaigns):
                    start, exit = (
                        once(generator, GROUPS + n, s, m) for s, m in zip(once_s, (planted, 0.0), strict=True)
                    )
                    run = whole_run(
                        start, Once(env=own[c, :n, place], host=own[c, :n, 0], control=own[c, :n, 1]), exit
                    )
                    of_start = run.seconds["start"]
                    rows.append(
                        [
                            *(
                                _holds(run.estimate, truth),
                                run.estimate.half_width(ALPHA),
                                _holds(of_start, planted),
                            ),
                            *(
                                of_start.half_width(ALPHA),
                                run.estimate.spreads[0].degrees,
                                run.estimate.mean - truth,
                            ),
                        ]
                    )
                heads = ("held", "half_width", "start_held", "start_half_width_s", "degrees", "bias")
                found.append(
                    {"rounds": n, "planted_s": planted, "body": name}
                    | {head: _mean(rows, k) for k, head in enumerate(heads)}
                )
    return found


def machine(rounds: int = 2000) -> dict[str, float]:
    """What the simulated machine is like, as it would be recorded."""
    slowdown = Noise().slowdown(np.random.default_rng(6), rounds, 30.0)
    return {
        "sequential_sd": round(float(sequential(slowdown).std()), 4),
        "step_correlation": round(autocorrelation(slowdown, 0.03, 1), 3),
        "correlation_1600_ms": round(autocorrelation(slowdown, 0.03, 53), 3),
    }


def simulate(campaigns: int) -> dict[str, Any]:
    """All of it, as it is kept; the parts on as many processes as there are processors."""
    parts = {
        "covered": (covered, campaigns), "stepped": (stepped, campaigns), "whole": (whole, campaigns),
        "switched": (switched, max(2, campaigns // 4)), "paced": (paced, PACED),
    }  # fmt: skip
    with ProcessPoolExecutor() as pool:
        running = {name: pool.submit(make, count) for name, (make, count) in parts.items()}
        found = {name: one.result() for name, one in running.items()}
    return {"campaigns": campaigns, "alpha": ALPHA, "machine": machine(), **found}


def main() -> None:
    """Simulate, and keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--campaigns", type=int, default=2000)
    write_json(FOUND, simulate(parser.parse_args().campaigns))


if __name__ == "__main__":
    main()
