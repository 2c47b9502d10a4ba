"""How often the deployed interval of sliced rounds holds the truth, from recorded rounds of host and second host.

    .venv/bin/python benchmarks/recorded_coverage.py results/campaigns/*/*/*/rounds.host* --out FILE.json

Recorded rounds are made into pseudo-campaigns of 6, 8, 10 and 12 rounds, for whole runs, their bodies and the
training step at each level of the allocator:

- `windows`: consecutive rounds of one campaign, each start once. They keep what rounds near each other share.
- `resampled`: rounds of one campaign drawn with replacement.

Each has the interval of the second host's log-ratio that verdicts use (stats.intervals.body_estimates, 95%). It
covers where it holds the mean of all rounds of its campaign; it is a false alarm where it leaves zero out, which
two hosts can give even though they are alike, or because their copies of the files differ. Windows overlap:
`apart` says how many do not, and only as many say something new. Where a campaign is hardly longer than its windows
its mean follows theirs, so that their coverage flatters; false alarms do not depend on that mean.

Each campaign as a whole also says whether its interval holds zero, which is the truth of launches that run the
same: the hosts, and those that `--alike` names (`zero` of planted_campaigns.py). Pairs of one campaign share
launches, so that their intervals are not independent. `f` tests whether campaigns differ by more than their rounds
predict (Welch's analysis of variance: a noisy campaign weighs less).

`lag1` is the correlation of a round's log-ratio with the next one's within a campaign, pooled over campaigns;
without any its standard deviation is `lag1_error`. The JSON file holds the rows of both tables, and the log-ratios
of all pairs. Campaigns that are in the file already stay: those of several machines are put together so.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from recorded import Recorded, recorded  # noqa: E402

from tare.core.errors import TareError, UserError  # noqa: E402
from tare.core.files import canonical_json, read_json, sha256_text, write_json  # noqa: E402
from tare.model.registry import HOST  # noqa: E402
from tare.model.roles import CONTROL  # noqa: E402
from tare.stats.intervals import Interval, body_estimates  # noqa: E402

SCHEMA = 2
ALPHA = 0.05
BETWEEN = ", "  # of the names of a pair
SIZES = (6, 8, 10, 12)
HOSTS = BETWEEN.join((HOST, CONTROL))
SEED = 2022
FEWEST = 3  # rounds of a campaign that has an interval
DRAWS = 2000  # pseudo-campaigns of each size, of all campaigns of a workload together


def deployed(logs: Sequence[float] | np.ndarray) -> Interval:
    """The interval of verdicts from log-ratios of the second host to the host, one a round."""
    rounds = [{HOST: 1.0, CONTROL: math.exp(value)} for value in logs]
    return body_estimates(rounds, [HOST, CONTROL])[CONTROL].interval(ALPHA)


def windows(logs: np.ndarray, size: int) -> list[np.ndarray]:
    """All runs of `size` consecutive rounds."""
    return [logs[start : start + size] for start in range(len(logs) - size + 1)]


def resampled(logs: np.ndarray, size: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Rounds drawn with replacement, shape [count, size]."""
    return generator.choice(logs, (count, size))


def covered(samples: Iterable[np.ndarray], truth: float) -> dict[str, Any]:
    """Of pseudo-campaigns: how many there are, hold the truth, leave zero out; their half-widths."""
    ends = [interval.mean_low_high for interval in map(deployed, samples)]
    spans = [(one[1], one[2]) for one in ends if one is not None]
    return {
        "campaigns": len(spans),
        "hold": sum(low <= truth <= high for low, high in spans),
        "alarms": sum(not low <= 0 <= high for low, high in spans),
        "half_widths": [(high - low) / 2 for low, high in spans],
    }


def lag1(series: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """Correlation of each value with the next one, less the mean of their series; its error without any.

    Returns:
        None where no series has three values, or none varies.
    """
    pairs, squares, count = 0.0, 0.0, 0
    for values in series:
        if len(values) < 3:
            continue
        rest = values - values.mean()
        pairs += float((rest[1:] * rest[:-1]).sum())
        squares += float((rest**2).sum())
        count += len(values)
    return (pairs / squares, 1 / math.sqrt(count)) if squares else (None, None)


def rows_of(workload: str, quantity: str, series: Sequence[np.ndarray], draws: int) -> list[dict[str, Any]]:
    """A row for each size and way, over all campaigns of a workload.

    Args:
        workload, quantity: names.
        series: log-ratios by campaign, in the order of rounds.
        draws: resampled pseudo-campaigns of each size, shared out by rounds.
    """
    correlation, error = lag1(series)
    total = sum(map(len, series))
    every = np.concatenate(series)
    common = {
        "workload": workload,
        "quantity": quantity,
        "campaigns": len(series),
        "rounds": total,
        "mean": float(every.mean()),
        "sd": math.sqrt(_pooled(series)) if total > len(series) else None,
        "lag1": correlation,
        "lag1_error": error,
    }
    rows = []
    for size in SIZES:
        generator = np.random.default_rng([SEED, size])
        long = [values for values in series if len(values) >= size]
        parts = {
            "windows": [covered(windows(values, size), float(values.mean())) for values in long],
            "resampled": [
                covered(
                    resampled(values, size, round(draws * len(values) / total), generator), float(values.mean())
                )
                for values in series
            ],
        }
        for way, found in parts.items():
            apart = sum(len(values) // size for values in long) if way == "windows" else None
            rows.append({**common, "size": size, "way": way, "apart": apart, **_shares(found)})
    return rows


def _pooled(series: Sequence[np.ndarray]) -> float:
    """Variance within campaigns."""
    return sum(float(((one - one.mean()) ** 2).sum()) for one in series) / (sum(map(len, series)) - len(series))


def _shares(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    count = sum(one["campaigns"] for one in found)
    halves = [half for one in found for half in one["half_widths"]]
    return {
        "intervals": count,
        "coverage": sum(one["hold"] for one in found) / count if count else None,
        "false_alarms": sum(one["alarms"] for one in found) / count if count else None,
        "half_width": float(np.median(halves)) if halves else None,
    }


def entry_of(one: Recorded) -> dict[str, Any]:
    """What is kept of a campaign: log-ratios by quantity and pair, and their hash, by which it is known again."""
    logs = {
        name: {
            BETWEEN.join(pair): [round(float(value), 7) for value in _known(one.ratios(name, pair))]
            for pair in one.pairs
        }
        for name in one.quantities
    }
    return {
        "sha256": sha256_text(canonical_json(logs)),
        "folder": "/".join(one.folder.parts[-3:]),
        "machine": one.machine,
        "workload": one.workload,
        "rounds": len(one.rounds),
        "left_out": one.left_out,
        "log_ratios": logs,
    }


def series_of(found: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[np.ndarray]]:
    """Log-ratios of each campaign, by workload, quantity and pair; of campaigns that have any."""
    series: dict[tuple[str, str, str], list[np.ndarray]] = {}
    for one in sorted(found, key=lambda one: one["workload"]):
        for quantity, pairs in one["log_ratios"].items():
            for pair, logs in pairs.items():
                if logs:
                    series.setdefault((one["workload"], quantity, pair), []).append(np.array(logs))
    return series


def rows_of_all(found: Sequence[Mapping[str, Any]], draws: int) -> list[dict[str, Any]]:
    """Rows of every workload and quantity, of the second host to the host."""
    return [
        row
        for (workload, quantity, pair), series in series_of(found).items()
        if pair == HOSTS
        for row in rows_of(workload, quantity, series, draws)
    ]


def whole_campaigns(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Intervals of whole campaigns, how many hold zero, and the F test, by machine, workload, quantity and pair."""
    rows = []
    for machine in dict.fromkeys(one["machine"] for one in found):
        own = series_of([one for one in found if one["machine"] == machine])
        for (workload, quantity, pair), every in own.items():
            series = [values for values in every if len(values) >= FEWEST]
            if not series:
                continue
            held = covered(series, 0.0)
            ratio, p = f_test(series)
            rows.append(
                {
                    "machine": machine,
                    **{"workload": workload, "quantity": quantity, "pair": pair.split(BETWEEN)},
                    **{"campaigns": held["campaigns"], "rounds": sum(map(len, series)), "hold": held["hold"]},
                    **{"half_width": float(np.median(held["half_widths"])), "f": ratio, "p": p},
                }
            )
    return rows


def f_test(series: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """Welch's F (1951) of campaigns, whose variances may differ, and how often chance makes it so large.

    Returns:
        None for one campaign.
    """
    if len(series) < 2:
        return None, None
    found = stats.f_oneway(*series, equal_var=False)
    return float(found.statistic), float(found.pvalue)


def campaigns_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of whole campaigns as text."""
    lines = [
        f"{'machine':18}{'workload':15}{'quantity':16}{'pair':30}"
        f"{'campaigns':>10}{'hold 0':>8}{'half-width':>12}{'F':>7}{'p':>8}"
    ]
    lines += [
        f"{row['machine']:18}{row['workload']:15}{row['quantity']:16}{', '.join(row['pair']):30}"
        f"{row['campaigns']:10}{row['hold']:8}"
        f"{_text(row['half_width'], '.2%'):>12}{_text(row['f'], '.2f'):>7}{_text(row['p'], '.3f'):>8}"
        for row in rows
    ]
    return "\n".join(lines)


def _known(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text."""
    head = f"{'workload':15}{'quantity':16}{'rounds':>7}{'sd':>8}{'lag 1':>15}{'size':>6} {'way':10}"
    lines = [head + f"{'intervals':>10}{'apart':>7}{'coverage':>10}{'alarms':>8}{'half-width':>12}"]
    for row in rows:
        lag = "-" if row["lag1"] is None else f"{row['lag1']:+.2f} ± {row['lag1_error']:.2f}"
        shares = [_text(row[name], ".1%") for name in ("coverage", "false_alarms")]
        lines.append(
            f"{row['workload']:15}{row['quantity']:16}{row['rounds']:7}{_text(row['sd'], '.2%'):>8}{lag:>15}"
            f"{row['size']:6} {row['way']:10}{row['intervals']:10}{_text(row['apart'], 'd'):>7}"
            f"{shares[0]:>10}{shares[1]:>8}{_text(row['half_width'], '.2%'):>12}"
        )
    return "\n".join(lines)


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def kept_before(path: Path | None) -> list[dict[str, Any]]:
    """Campaigns that a file has already; none where there is none.

    Raises:
        UserError: it is of another version.
    """
    if path is None or not path.exists():
        return []
    before = read_json(path)
    if before.get("schema") != SCHEMA:
        raise UserError(f"{path} is of another version of this benchmark: name another --out, or remove it")
    kept: list[dict[str, Any]] = before["recorded"]
    return kept


def main() -> None:
    """Read, count, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="of campaigns of rounds, sealed or running")
    parser.add_argument(
        "--alike", nargs="*", default=[], metavar="NAME", help="launches that run what the host runs"
    )
    parser.add_argument("--draws", type=int, default=DRAWS, help="resampled pseudo-campaigns of each size")
    parser.add_argument("--out", type=Path, help="the JSON file, to which campaigns are added")
    arguments = parser.parse_args()
    new = [entry_of(recorded(folder, arguments.alike)) for folder in arguments.folders]
    own = {one["sha256"] for one in new}
    found = [*(one for one in kept_before(arguments.out) if one["sha256"] not in own), *new]
    if not found:
        raise UserError("no campaign is named, and no file has any")
    rows, whole = rows_of_all(found, arguments.draws), whole_campaigns(found)
    if arguments.out:
        kept = {"schema": SCHEMA, "alpha": ALPHA, "seed": SEED, "draws": arguments.draws, "recorded": found}
        write_json(arguments.out, {**kept, "rows": rows, "whole_campaigns": whole})
    print(table(rows), campaigns_table(whole), sep="\n\n")


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        print(f"recorded_coverage: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
