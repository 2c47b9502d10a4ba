"""What the figures of a published study say in words: titles, notes, and sentences with every number."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from tare.literature import finding
from tare.literature.published_file import Plot
from tare.literature.vocabulary import UNIT_METRICS, kind_of
from tare.report.figures.paper_rows import (
    CONFIDENCE,
    HERE,
    LOGGED,
    PRINTED,
    REDONE,
    Numbers,
    amount,
    scale_of,
)
from tare.report.words.labels import env_title, significant, span, workload_title

WORDS = {"real_s": "real", "system_s": "system"}
DONE_RIGHT = {"flops": "calls × average", "hbm_transactions": "calls × average"}
MOST_SPREAD = 2.2  # an interval farther out than this many times the largest bar is cut
WITH_UNITS = "with units"


def title_of(plot: Plot) -> str:
    """Figure 7: Host to device, CNN on MNIST; of several workloads without their names."""
    of = f", {workload_title(plot.subjects[0])}" if len(plot.subjects) == 1 else ""
    return f"Figure {plot.figure}: {plot.title}{of}"


def theirs(names: Mapping[str, str], env: str) -> str:
    """What a paper calls an environment, or our own title."""
    return names.get(env) or env_title(env)


def legend_names(found: Numbers) -> dict[str, str]:
    """What each series of the upper panel is called."""
    names = {PRINTED: "published", LOGGED: "the authors' log"}
    if not found.of(REDONE).empty:
        names[REDONE] = redone_name(found)
    return {series: name for series, name in names.items() if not found.of(series).empty}


def cut(found: Numbers) -> bool:
    """Whether an interval reaches farther than its axis."""
    here = found.of(HERE)
    if found.by_batch:
        bottom, top = ends(here)
        return bool(((here["low"] < bottom) | (here["high"] > top)).any())
    return bool((here["high"] > MOST_SPREAD * here["value"].max()).any())


def ends(rows: pd.DataFrame) -> tuple[float, float]:
    """Where an axis of points ends: at their intervals, unless those would press the points into a line."""
    low, high = rows["value"].min(), rows["value"].max()
    reach = MOST_SPREAD * max(high - low, 0.02 * high)
    spread = rows[["low", "high"]]
    return max(min(low, spread.min().min()), low - reach), min(max(high, spread.max().max()), high + reach)


def redone_name(found: Numbers) -> str:
    """How the third bar was recomputed."""
    return DONE_RIGHT.get(found.metrics[0], WITH_UNITS)


def note(found: Numbers) -> str:
    """Below the axes: what whiskers, marks and axes are, and n."""
    digitised = found.of(PRINTED)["kind"] == "figure_digitised"
    parts = []
    if digitised.any():
        heights = "heights" if digitised.all() else "some heights"
        errors = sorted({high - value for high, value in found.of(PRINTED)[["high", "value"]].dropna().to_numpy()})
        unit = found.of(PRINTED)["unit"].iloc[0]
        parts.append(f"Published: {heights} read off the figure, ±{amount(errors[-1], unit, 2)}.")
    else:
        parts.append("Published: labels printed in the figure.")
    if (found.of(LOGGED)["agrees"] == "no").any():
        parts.append("≠: not what its own log has.")
    here = found.of(HERE)
    if not here.empty:
        parts.append(_here_note(found, here))
    if cut(found):
        parts.append("Arrows: cut at the axis.")
    if found.by_batch:
        parts.append("Axes don't start at 0.")
    return " ".join(parts)


def _here_note(found: Numbers, here: pd.DataFrame) -> str:
    if (here["kind"] == "modelled").any():
        return "Here: counted from operators, n = 1 profiled launch each."
    of_units = found.metrics[0] in UNIT_METRICS
    run = "launches" if found.by_batch else kind_of(found.metrics[0]) if of_units else "profiled launches"
    if here["n"].max() == 1:
        return f"Here: n = 1 {run[:-1]} each, so no interval."
    return f"Here: mean of n = {span(here['n'])} {run}, with its {CONFIDENCE:.0%} t interval."


def caption(found: Numbers) -> list[str]:
    """What was published, what recomputing gives, what is measured here; the figure itself says why nothing is."""
    labels = not (found.of(PRINTED)["kind"] == "figure_digitised").any()
    said = [f"Published {'as labels' if labels else 'as heights without labels'}; {_kept(found)}."]
    if not found.of(REDONE).empty:
        low, high = _against_printed(found)
        said.append(f"Recomputed from their kernels ({redone_name(found)}): {low} to {high} times the published.")
    here = found.of(HERE)
    if here.empty:
        return [*said, "Here: unavailable."]
    modelled = (here["kind"] == "modelled").any()
    return [*said, f"{'Modelled' if modelled else 'Measured'} here: {_values(found, HERE, plain=True)}."]


def _kept(found: Numbers) -> str:
    """How many of the published values are those of the authors' own logs."""
    logged, count = found.of(LOGGED), len(found.of(PRINTED))
    if logged.empty:
        return "no log of the authors has them"
    agree = int((logged["agrees"] == "yes").sum())
    if agree == count:
        return f"the authors' own logs have all {count} values"
    return f"the authors' own logs have {agree or 'none'} of the {count} values"


def _against_printed(found: Numbers) -> tuple[str, str]:
    """Smallest and largest ratio of what was recomputed to what was printed."""
    by_place = [found.of(series).set_index(["env", "metric"])["value"] for series in (REDONE, PRINTED)]
    ratios = (by_place[0] / by_place[1]).dropna()
    return significant(ratios.min(), 2), significant(ratios.max(), 2)


def sentences(found: Numbers) -> list[str]:
    """What was printed, what the logs give, what is measured here, each with all its numbers."""
    said = [f"{_published_as(found)}: {_values(found, PRINTED)}."]
    if found.of(LOGGED).empty:
        said.append("No log of the authors has it.")
    else:
        said.append(f"The authors' own logs: {_values(found, LOGGED)}.")
    if not found.of(REDONE).empty:
        said.append(f"Recomputed from their kernels, {redone_name(found)}: {_values(found, REDONE)}.")
    return [*said, *_here_sentences(found)]


def _published_as(found: Numbers) -> str:
    kinds = set(found.of(PRINTED)["kind"])
    return {("figure_label",): "Published (labels)", ("figure_digitised",): "Published (read off the figure)"}.get(
        tuple(sorted(kinds)), "Published (labels, some heights read off)"
    )


def _here_sentences(found: Numbers) -> list[str]:
    here = found.of(HERE)
    said = []
    if not here.empty:
        modelled = (here["kind"] == "modelled").any()
        what = "Modelled here, of one training step" if modelled else "Measured here"
        said.append(f"{what}: {_values(found, HERE)}.")
    for reason in found.missing():
        rows = found.rows[(found.rows["series"] == HERE) & (found.rows["reason"] == reason)]
        who = [env_title(env, short=True) for env in rows["env"].dropna()] if not here.empty else []
        said.append(f"{finding.listed(who) + ': unavailable' if who else 'Measured here: unavailable'}, {reason}.")
    return said


def _values(found: Numbers, series: str, *, plain: bool = False) -> str:
    """Every value of a series by its place; `plain` leaves out intervals and marks."""
    parts = []
    for metric in found.metrics:
        rows = found.of(series)
        own = rows[rows["metric"] == metric]
        own = own.sort_values("batch" if found.by_batch else "env", key=lambda keys: keys.map(found.places().index))
        told = "; ".join(_value(found, row, plain) for row in own.to_dict("records"))
        parts.append(f"{WORDS[metric]} time {told}" if len(found.metrics) > 1 and told else told)
    return ", and ".join(part for part in parts if part)


def _value(found: Numbers, row: dict, plain: bool) -> str:
    name = f"batch {row['batch']}" if found.by_batch else _name(found, row["env"], row["series"])
    text = f"{name} {_number(row)}"
    if plain:
        return text
    if row["series"] == HERE and pd.notna(row["low"]):
        size, unit = scale_of(row["unit"], row["value"])
        low, high = (significant(row[end] / size) for end in ("low", "high"))
        text += f" ({low} to {high} {unit}, n = {row['n']})"
    if row["series"] == LOGGED and row["agrees"] == "no":
        text += " (≠)"
    return text


def _number(row: dict) -> str:
    """As printed; recomputed with the digits of its source; three digits of what has a spread."""
    if row["series"] == PRINTED and row["unit"] != "1":
        return str(row["printed"])
    if row["series"] == HERE:
        return amount(row["value"], row["unit"])
    return finding.amount(row["value"], row["unit"]).replace(" us", " µs")


def _name(found: Numbers, env: str, series: str) -> str:
    return env_title(env, short=True) if series == HERE else theirs(found.names, env)
