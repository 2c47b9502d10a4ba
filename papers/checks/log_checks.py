"""The logs against themselves: totals against calls x average, and numbers that two runs share to a digit."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations

import pandas as pd

from checks.finding import Finding, yes_no
from checks.sources import Sources
from tare.literature.finding import amount
from tare.model.quantities import Quantity, parse

DETAIL = ("average", "smallest", "largest")  # what two runs do not share to the last digit


def findings(published: Sources) -> list[Finding]:
    """Totals, then numbers that repeat."""
    return [*_totals(published), *_repeats(published)]


def _operations(published: Sources) -> pd.DataFrame:
    logs = published.logs
    return logs[(logs["series"] == "profile") & (logs["statistic"] != "summary")]


def _totals(published: Sources) -> list[Finding]:
    """Total = calls x average, as far as the printed digits show."""
    found = []
    for (workload, env, metric), rows in _operations(published).groupby(["workload", "env", "metric"], sort=False):
        printed = {row.statistic: parse(row.printed, f"{workload} {env} {metric}") for row in rows.itertuples()}
        product, slack = printed["calls"].exact * printed["average"].exact, _slack(printed)
        total = printed["total"].exact
        off = abs(total - product)
        note = (
            f"{printed['calls'].printed} calls x {printed['average']} = {amount(float(product), 's')}; the log "
            f"says {printed['total']}. The printed digits allow {amount(float(slack), 's')}, it is "
            f"{amount(float(off), 's')} off."
        )
        about = {"workload": workload, "env": env, "published": float(total), "recomputed": float(product)}
        found.append(
            Finding(
                figure="log", check="calls_times_average", metric=metric, unit="s", **about,
                agrees=yes_no(off <= slack), note=note,
            )
        )  # fmt: skip
    return found


def _slack(printed: dict[str, Quantity]) -> Decimal:
    return printed["calls"].exact * printed["average"].exact_rounding + printed["total"].exact_rounding


def _repeats(published: Sources) -> list[Finding]:
    """Pairs of logs of one workload: how many details of their operations are the same to the last digit."""
    found = []
    details = _operations(published)
    details = details[details["statistic"].isin(DETAIL)]
    for workload, own in details.groupby("workload", sort=False):
        numbers = own.pivot(index=["metric", "statistic"], columns="env", values="printed")
        for first, second in combinations(own["env"].drop_duplicates(), 2):
            both = numbers[[first, second]].dropna()
            equal = int((both[first] == both[second]).sum())
            found.append(_repeat(published, str(workload), first, second, equal, len(both)))
    return found


def _repeat(published: Sources, workload: str, first: str, second: str, equal: int, compared: int) -> Finding:
    same = equal == compared
    note = (
        f"Times of copies and fills (average, smallest, largest): {equal} of {compared} are the same to the last "
        f"digit in the logs of {first} and {second}."
    )
    if same:
        note += " Two independent runs do not do that."
        stated = {fact.id: fact for fact in published.text if fact.labels.get("workload") == workload}
        lines, differ = (stated.get(name) for name in ("profile_lines", "profile_lines_that_differ"))
        if lines is not None and differ is not None:
            note += f" The whole logs differ in {differ.quantity} of {lines.quantity}."
    return Finding(
        figure="log", check="repeated", workload=workload, env=second, metric="operations", unit="1",
        published=float(equal), recomputed=None, agrees=yes_no(not same), note=note,
    )  # fmt: skip
