"""What the figures of a published study say in words: titles, notes, and sentences with every number."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tare.literature import finding
from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import CHANGE, LINE, RATES, UNIT_METRICS, kind_of
from tare.report.figures.paper_rows import (
    CONFIDENCE,
    HERE,
    LOGGED,
    MEAN,
    MOST,
    PRINTED,
    REDONE,
    STATED,
    Numbers,
    amount,
    limits,
    said,
    scale_of,
    stated,
)
from tare.report.words.labels import significant, span, workload_title

DONE_RIGHT = {"flops": "calls × average", "hbm_transactions": "calls × average"}
WITH_UNITS = "with units"
NAMES = {PRINTED: "published", LOGGED: "the authors' log", MEAN: "its mean", MOST: "at most", STATED: "its text"}


def title_of(plot: Plot) -> str:
    """Figure 7: Host to device, CNN on MNIST; of several workloads without their names."""
    of = f", {workload_title(plot.subjects[0])}" if len(plot.subjects) == 1 and plot.metrics else ""
    return f"Figure {plot.figure}: {plot.title}{of}"


def series_name(found: Numbers, series: str) -> str:
    """What a series is called in a legend."""
    if series == REDONE:
        return redone_name(found)
    if series == HERE:
        return "modelled here" if is_modelled(found) else "here"
    if series == LOGGED and found.title:
        return "recorded"
    return "as printed" if series == PRINTED and found.title else NAMES[series]


def redone_name(found: Numbers) -> str:
    """How what the authors summed was recomputed."""
    return DONE_RIGHT.get(str(found.of(REDONE)["metric"].iloc[0]), WITH_UNITS)


def is_modelled(found: Numbers) -> bool:
    """Whether this machine's numbers are modelled."""
    return bool((found.of(HERE)["kind"] == "modelled").any())


def note(found: Numbers, plot: Plot) -> str:
    """Below the axes: what marks and axes are, and n."""
    printed, here, parts = found.of(PRINTED), found.of(HERE), []
    heights = printed["kind"] == "figure_digitised"
    if heights.any():
        what = "heights" if heights.all() else "some heights"
        error = (printed["high"] - printed["value"]).max()
        parts.append(f"Published: {what} read off the figure, ±{amount(error, printed['unit'].iloc[0], 2)}.")
    elif (printed["kind"] == "figure_label").any():
        parts.append("Published: labels printed in the figure.")
    elif printed.empty:
        parts.append("The paper prints no numbers in this figure.")
    if (found.of(LOGGED)["agrees"] == "no").any():
        parts.append("≠: not what its own log has.")
    if plot.relative:
        better = "less" if plot.metrics[0] in RATES else "more"
        parts.append(f"Ratios to the host, which is the line at 1; {better} is worse.")
    if plot.by_itself:
        parts.append("The time beside a neighbour by the time without one, which is the line at 1.")
    if plot.kind == CHANGE:
        return "Bars: 95% intervals (Welch), wider for a later try, each comparison by itself." if len(here) else ""
    if not here.empty:
        parts.append(_here_note(found, here, plot))
    else:
        parts.append(f"Measured here: unavailable. {' '.join(_sentence(reason) for reason in found.missing())}")
    low, high = limits(found.rows if found.is_joint else here, found.from_zero)
    if ((here["low"] < low) | (here["high"] > high) | (here["low"].isna() != here["high"].isna())).any():
        parts.append("Arrows: cut at the axis.")
    if not found.from_zero and not found.is_joint:
        parts.append("Axes don't start at 0.")
    return " ".join(parts)


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


def _here_note(found: Numbers, here: pd.DataFrame, plot: Plot) -> str:
    if is_modelled(found):
        return "Here: counted from operators, n = 1 profiled launch each."
    metric = plot.metrics[0]
    of_units = metric in UNIT_METRICS
    run = "launches" if plot.kind == LINE else kind_of(metric) if of_units else "profiled launches"
    if here["n"].max() == 1:
        return f"Here: n = 1 {run[:-1]} each, so no interval."
    if plot.relative or plot.by_itself:
        return f"Here: n = {span(here['n'])} {run}, with the interval of the verdict."
    return f"Here: mean of n = {span(here['n'])} {run}, with its {CONFIDENCE:.0%} t interval."


def caption(published: Published, plot: Plot, found: Numbers, above: list[Numbers]) -> list[str]:
    """What was published, what recomputing gives, what is measured here; the figure itself says why nothing is."""
    printed, here = found.of(PRINTED), found.of(HERE)
    if len(printed):
        labels = not (printed["kind"] == "figure_digitised").any()
        told = [f"Published {'as labels' if labels else 'as heights without labels'}; {_kept(found)}."]
    else:
        text = [f"{said(fact, published.names)} ({fact.where})" for fact in stated(published, plot)]
        what = f"; its text says {'; '.join(text)}" if text else ""
        told = [f"Published without numbers in the figure{what}.", *above_caption(published, above)]
    if not found.of(REDONE).empty:
        low, high = _against_printed(found)
        told.append(f"Recomputed from their kernels ({redone_name(found)}): {low} to {high} times the published.")
    if here.empty:
        return [*told, "Here: unavailable."]
    what = "Modelled" if is_modelled(found) else "Measured"
    if len(plot.subjects) > 1:
        return [*told, f"Here: {what.lower()}."]
    return [*told, f"{what} here: {_values(here, plain=True)}."]


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
    printed, lines = found.of(PRINTED), []
    if len(printed):
        kinds = tuple(sorted(set(printed["kind"])))
        how = {("figure_label",): "labels", ("figure_digitised",): "read off the figure"}
        lines.append(f"Published ({how.get(kinds, 'labels, some heights read off')}): {_values(printed)}.")
        logged = found.of(LOGGED)
        lines.append(
            f"The authors' own logs: {_values(logged)}." if len(logged) else "No log of the authors has it."
        )
    if len(redone := found.of(REDONE)):
        lines.append(f"Recomputed from their kernels, {redone_name(found)}: {_values(redone)}.")
    if len(here := found.of(HERE)):
        what = "Modelled here, of one training step" if is_modelled(found) else "Measured here"
        lines.append(f"{what}: {_values(here)}.")
    missing = found.rows[(found.rows["series"] == HERE) & found.rows["value"].isna()]
    several = found.rows["workload"].nunique() > 1
    for reason, rows in missing.groupby("reason", sort=False):
        names = map(workload_title, rows["workload"]) if several else rows["label"]
        who = [name for name in dict.fromkeys(names) if name and len(here)]
        lines.append(f"{finding.listed(who) if who else 'Measured here'}: unavailable, {reason}.")
    return lines


def _values(rows: pd.DataFrame, *, plain: bool = False) -> str:
    """Every value of a series, group by group; `plain` leaves out intervals and marks."""
    parts = []
    for group, own in rows.groupby("group", sort=False):
        told = "; ".join(_value(row, plain) for row in own.to_dict("records"))
        parts.append(f"{group}: {told}" if group else told)
    return ". ".join(parts)


def _value(row: dict[str, Any], plain: bool) -> str:
    text = f"{row['label']} {number(row)}"
    if plain:
        return text
    if row["series"] == HERE and pd.notna(row["low"]):
        size, unit = scale_of(row["unit"], row["value"])
        unit = "" if row["unit"] in ("ratio", "slowdown") else f" {unit}"
        low, high = (significant(row[end] / size) for end in ("low", "high"))
        text += f" ({low} to {high}{unit}, n = {row['n']})"
    return f"{text} (≠)" if row["series"] == LOGGED and row["agrees"] == "no" else text


def number(row: dict[str, Any]) -> str:
    """As printed; recomputed with the digits of its source; three digits of what has a spread."""
    if pd.notna(row["printed"]) and row["unit"] != "1":
        return str(row["printed"])
    if row["series"] == HERE or row["unit"] in ("ratio", "slowdown"):
        return amount(row["value"], row["unit"])
    return finding.amount(row["value"], row["unit"]).replace(" us", " µs")


# --- largest values of what was published without numbers


def above_caption(published: Published, above: list[Numbers]) -> list[str]:
    """What stands above a figure without numbers, in short; empty where nothing does."""
    if not above:
        return []
    rows = pd.concat([one.rows for one in above])
    printed = set(rows.loc[rows["series"] == PRINTED, "metric"])
    tables = dict.fromkeys(fact.where for fact in published.stated if fact.id in printed)
    parts = [f"as {finding.listed(list(tables))} prints them"] if tables else []
    if (rows["series"] == LOGGED).any():
        parts.append(_whose(rows[rows["series"] == LOGGED]))
    parts += ["by its formula"] if (rows["series"] == MOST).any() else []
    return [f"Above, its largest values: {finding.listed(parts)}."]


def above_sentences(above: list[Numbers]) -> list[str]:
    """Every number of the panels above, as it was printed."""
    lines = []
    for one in above:
        whose = _whose(one.of(LOGGED))
        what = {PRINTED: "Published, {}, largest", LOGGED: f"Recomputed, {{}}, largest {whose}",
                MEAN: f"Recomputed, {{}}, mean {whose}"}  # fmt: skip
        for series, words in what.items():
            if len(rows := one.of(series)):
                lines.append(f"{words.format(one.title)}: {_values(rows)}.")
        for row in one.of(MOST).itertuples():
            most = amount(row.value, row.unit, 4)
            lines.append(f"Recomputed, {one.title}: its formula gives {most} at most, whatever ran.")
    return lines


def _whose(rows: pd.DataFrame) -> str:
    """Of which rows of the recordings a largest value is."""
    return "of the recordings" if rows["env"].isna().all() else "of the recordings' own rows"
