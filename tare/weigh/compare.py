"""Two answers of `tare weigh`: of each environment that both have, how what it costs has changed.

Each answer compares an environment with the reference of its day and machine. What is compared here is the ratio
of two ratios, whose logarithm has the variance of both. A change of the machine itself drops out.
"""

from __future__ import annotations

import math

from tare.weigh.answer import Answer, Ratio
from tare.weigh.words import between, ratio_text

HEADINGS = ("environment", "before", "after", "change")


def changed(before: Ratio, after: Ratio) -> Ratio | None:
    """The ratio of two ratios, with the interval of independent ones; None where one has no interval."""
    first, second = before.log, after.log
    if first.mean_low_high is None or second.mean_low_high is None:
        return None
    mean = second.mean_low_high[0] - first.mean_low_high[0]
    half = math.hypot(second.width / 2, first.width / 2)
    rounds = min(before.rounds, after.rounds)
    return Ratio(ratio=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), rounds=rounds)


def compared(before: Answer, after: Answer) -> str:
    """What has changed, in lines."""
    lines, rows = [], [HEADINGS]
    for one in after.environments:
        earlier = before.named(one.name)
        if earlier is None or earlier.run is None or one.run is None:
            rows.append((one.name, ratio_text(earlier.run if earlier else None), ratio_text(one.run), "–"))
            continue
        ratio = changed(earlier.run, one.run)
        rows.append((one.name, ratio_text(earlier.run), ratio_text(one.run), ratio_text(ratio)))
        if ratio is None:
            lines.append(f"{one.name}: one of the two answers has too few rounds.")
        elif ratio.holds_one:
            lines.append(f"{one.name}: the data show no change ({between(ratio)}).")
        else:
            lines.append(f"{one.name}: relative to the reference, a whole run takes {between(ratio)} than before.")
    for one in before.environments:
        if after.named(one.name) is None:
            rows.append((one.name, ratio_text(one.run), ratio_text(None), "–"))
    if before.command != after.command:
        lines.append("The jobs differ: their commands are not the same.")
    if before.reference_text != after.reference_text:
        lines.append(f"The references differ: {before.reference_text} before, {after.reference_text} after.")
    if before.machine != after.machine:
        lines.append(f"The machines differ: {before.machine} before, {after.machine} after.")
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEADINGS))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*table, "", *lines])
