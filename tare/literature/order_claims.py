"""Which model uses most: workloads in the order that a study claims, by this machine's numbers.

A claim of the rule `ordered` names its workloads from the one with the largest numbers on. Of each it asks whether
it belongs there: below all that are named before it, above all that are named after it. Here two workloads are two
campaigns, so that the ratio of one to another has Welch's interval. The order of jobs of other sizes than those
published is that of these jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tare.analysis.choice import compared, share
from tare.literature.answers import NOTHING, Answer, decide, sentence
from tare.literature.contrasts import CONFIDENCE, FEWEST_TO_SETTLE, At, units, values_of
from tare.literature.finding import amount, words
from tare.literature.level_claims import Speed, speed_of
from tare.literature.measured_here import Here, why_absent
from tare.literature.published_file import Claim
from tare.literature.vocabulary import FIGURE_METRICS, UNIT_METRICS, kind_of
from tare.model.registry import HOST
from tare.model.roles import CONTROL


def pairs(claim: Claim, workload: str) -> list[tuple[str, str]]:
    """A workload paired with each other one of the claim, in the claimed order: the larger first."""
    names = claim.subjects
    return [(one, other) for at, one in enumerate(names) for other in names[at + 1 :] if workload in (one, other)]


def ordered(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> Answer:
    """Rule `ordered`: HOLDS where every interval says so, FAILS where one is wholly on the other side."""
    ratios, asked = {}, []
    for metric in claim.metrics:
        for env in environments:
            for pair in pairs(claim, workload):
                asked.append((metric, env, pair))
                ratios[asked[-1]] = _ratio(claim, metric, env, pair, here, len(environments))
    evidence = (
        sentence(list(filter(None, (_ratio_text(*one, ratios[one], claim, here) for one in asked)))) or NOTHING
    )
    spans = {one: ratio for one, ratio in ratios.items() if ratio is not None}
    held = {f"{words(metric)} of {one} compared with {other} in {env}": ratio.low > 1
            for (metric, env, (one, other)), ratio in spans.items()}  # fmt: skip
    failed = any(ratio.high < 1 for ratio in spans.values())
    why = _why_missing(claim, here, set(asked) - set(spans)) if len(spans) < len(asked) else None
    return decide(evidence, held, failed, why, "the intervals leave it open")


def _ratio(
    claim: Claim, metric: str, env: str, pair: tuple[str, str], here: Here, environments: int
) -> Speed | None:
    """The ratio of one workload's numbers to another's in one environment; None where either has too few units."""
    logs = [_logs(claim, metric, env, name, here) for name in pair]
    if any(len(one) < FEWEST_TO_SETTLE for one in logs):
        return None
    own = here.verdicts[here.verdicts["workload"].isin(pair)]
    judged = compared(own, kind_of(metric), claim.arm, claim.scenario)
    together = len(claim.metrics) * environments * (len(claim.subjects) - 1)
    return speed_of([(1.0, logs[0]), (-1.0, logs[1])], share(judged) * (1 - CONFIDENCE) / together)


def _logs(claim: Claim, metric: str, env: str, workload: str, here: Here) -> pd.Series:
    """Log of a metric by unit; the host's is the mean of two."""
    if metric not in UNIT_METRICS:
        return pd.Series(dtype=float)
    values = values_of(here, workload, metric, At(level=claim.arm, scenario=claim.scenario))
    if env not in values.columns:
        return pd.Series(dtype=float)
    logs = np.log(values)
    return (logs[[HOST, CONTROL]].mean(axis=1, skipna=False) if env == HOST else logs[env]).dropna()


def _ratio_text(
    metric: str, env: str, pair: tuple[str, str], ratio: Speed | None, claim: Claim, here: Here
) -> str | None:
    what = f"{words(metric)} in {env}, {pair[0]} / {pair[1]}"
    if ratio is not None:
        return f"{what} {ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    found = [here.value(name, env, metric, level=claim.arm, scenario=claim.scenario) for name in pair]
    numbers = [one.value for one in found if one.value is not None]
    if len(numbers) == len(pair):
        unit = FIGURE_METRICS[metric]
        return f"{what} {amount(numbers[0], unit)} / {amount(numbers[1], unit)}, no interval"
    return None


def _why_missing(claim: Claim, here: Here, missing: set[tuple[str, str, tuple[str, str]]]) -> str:
    reasons = []
    for metric, env, pair in sorted(missing):
        for name in pair:
            value = here.value(name, env, metric, level=claim.arm, scenario=claim.scenario)
            count = len(_logs(claim, metric, env, name, here))
            if here.lacks(env):
                reasons += why_absent([env], claim.scenario)
            elif value.value is None:
                reasons.append(f"{name}: {value.note}")
            elif metric not in UNIT_METRICS:
                reasons.append(f"one number of {words(metric)}, and no interval")
            elif count < FEWEST_TO_SETTLE:
                reasons.append(
                    f"{name}: an interval from {units(count)} settles nothing, one from {FEWEST_TO_SETTLE} may"
                )
    return "; ".join(dict.fromkeys(reasons))
