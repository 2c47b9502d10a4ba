"""Whether the tables of a study equal those of an undisturbed run, but for what is measured.

Runs of one study differ in what they time and in what follows from that: verdicts, how many samples there are.
Columns of that kind are named here (MEASURED). What else differs between undisturbed runs is left out as well, by
table, group (a metric or an item) and column, and is told. All other cells have to be equal, and each row has to
stand there as often.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Numbers that are timed or counted, and words that follow from them.
MEASURED = frozenset(
    {
        "value", "ratio", "ci_low", "ci_high", "low", "high", "total_ratio", "total_ci_low", "total_ci_high",
        "total_verdict", "stalls_ci_low", "stalls_ci_high", "steps", "verdict", "all_within", "control_ratio",
        "control_ci_low", "control_ci_high", "control_reaches", "sliced", "unsliced_reason", "switch_factor",
        "switch_more_ms", "switch_more_ci_low_ms", "switch_more_ci_high_ms",
        "more_units", "host", "difference", "control_difference", "failure_share_low", "failure_share_high",
        "calls_per_step", "self_s_per_step", "self_s_sd", "s_per_step", "plain_step_s", "at_s", "aligned_s",
        "cpu_percent", "rss_bytes", "cgroup_memory_bytes", "processes", "read_bytes_per_s", "written_bytes_per_s",
        "asked_bytes_per_s", "throttled_percent", "start_s", "end_s", "samples_per_s", "seconds_low",
        "seconds_high", "rank", "weight", "cause", "cause_what", "cause_share_low", "cause_share_high",
        "change_factor", "change_level", "change_ratio_low", "change_ratio_high", "opened_at", "last_at",
        "plan_sha256", "note", "reason",
    }
)  # fmt: skip
# Metrics that are computed and not timed: equal in each run of a study.
EXACT = ("loss", "flops", "samples_per_epoch", "parameters")
# Of the correction for several comparisons: they count those of the whole study that have an interval.
OF_ALL = frozenset({"alpha", "family_alpha", "family_size"})
INSTANTS = ("samples", "device_samples")  # tables whose rows are as many as a launch lasted
WHAT = ("metric", "item", "operator", "family", "kernel", "path")  # the first that a table has groups its rows
Row = dict[str, str]
Tables = Mapping[str, Sequence[Row]]


@dataclass(frozen=True, kw_only=True)
class Loose:
    """What differs between undisturbed runs: cells by (table, group, column), rows by (table, group)."""

    cells: frozenset[tuple[str, str, str]] = frozenset()
    rows: frozenset[tuple[str, str]] = frozenset()

    def lines(self) -> list[str]:
        """A line for each."""
        cells = [f"{table}: {group}: {column}" for table, group, column in sorted(self.cells)]
        return [*cells, *(f"{table}: {group}: its rows" for table, group in sorted(self.rows))]


def read(folder: Path) -> dict[str, list[Row]]:
    """The CSV tables of a folder by their names."""
    found = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as handle:
            found[path.stem] = list(csv.DictReader(handle))
    return found


def group_of(row: Row) -> str:
    """A row's metric, item or the like; empty where its table has none."""
    return next((row[name] for name in WHAT if name in row), "")


def is_compared(table: str, group: str, column: str, loose: Loose) -> bool:
    """Whether a cell has to be equal."""
    if (table, group, column) in loose.cells:
        return False
    exact = column == "value" and any(word in group for word in EXACT)
    return exact or column not in MEASURED


def rounded(text: str) -> str:
    """A number with nine digits, anything else as it is: the last digits of a sum follow its order."""
    try:
        return f"{float(text):.9g}"
    except ValueError:
        return text


def shown(table: str, rows: Sequence[Row], loose: Loose) -> dict[str, Counter[tuple[tuple[str, str], ...]]]:
    """By group how often each row stands there, with its compared cells alone."""
    found: dict[str, Counter[tuple[tuple[str, str], ...]]] = defaultdict(Counter)
    for row in rows:
        group = group_of(row)
        cells = [(name, text) for name, text in row.items() if is_compared(table, group, name, loose)]
        found[group][tuple((name, rounded(text)) for name, text in cells)] += 1
    return found


def loose_of(runs: Sequence[Tables]) -> Loose:
    """What differs between undisturbed runs of one study."""
    cells: set[tuple[str, str, str]] = set()
    rows: set[tuple[str, str]] = set()
    nothing = Loose()
    for table, group in {(name, group_of(row)) for run in runs for name, lines in run.items() for row in lines}:
        each = [[row for row in run[table] if group_of(row) == group] for run in runs if table in run]
        columns = [name for name in next(filter(None, each))[0] if is_compared(table, group, name, nothing)]
        differing = {
            name for name in columns if len({tuple(sorted(row[name] for row in lines)) for lines in each}) > 1
        }
        if table in INSTANTS or len({len(lines) for lines in each}) > 1:
            rows.add((table, group))
            continue
        cells |= {(table, group, name) for name in differing}
        rest = Loose(cells=frozenset(cells))
        if len({str(sorted(shown(table, lines, rest)[group].items())) for lines in each}) > 1:
            rows.add((table, group))
    return Loose(cells=frozenset(cells), rows=frozenset(rows))


def differences(
    reference: Tables, found: Tables, loose: Loose, campaigns_apart: Sequence[str] = (), most: int = 20
) -> list[str]:
    """What of a run's tables differs from an undisturbed run's, a line for each; none where they are equal.

    `campaigns_apart`: in whose rows a failure is recorded, which are compared by their presence alone.
    """
    lines = [f"{name}.csv is missing" for name in sorted(reference.keys() - found.keys())]
    lines += [f"{name}.csv is new" for name in sorted(found.keys() - reference.keys())]
    for table in sorted(reference.keys() & found.keys()):
        if _columns(reference[table]) != _columns(found[table]) and reference[table] and found[table]:
            lines.append(f"{table}.csv has other columns")
            continue
        sides = [_without(rows, campaigns_apart) for rows in (reference[table], found[table])]
        wanted, got = (shown(table, rows, loose) for rows in sides)
        for group in sorted({*wanted, *got}):
            if (table, group) in loose.rows:
                if group not in got or group not in wanted:
                    lines.append(f"{table}.csv: {group or 'rows'}: {'gone' if group in wanted else 'new'}")
                continue
            for name, more in (("missing", wanted[group] - got[group]), ("too much", got[group] - wanted[group])):
                lines += [f"{table}.csv: {name}, {count} times: {_short(row)}" for row, count in more.items()]
        lines += _gone(table, reference[table], found[table], campaigns_apart)
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(rows[0]) if rows else []


def _without(rows: Sequence[Row], campaigns: Sequence[str]) -> list[Row]:
    """Rows of other campaigns; where there are some apart, without what all comparisons of a study share."""
    shared = OF_ALL if campaigns else frozenset()
    return [
        {name: text for name, text in row.items() if name not in shared}
        for row in rows
        if not _is_of(row, campaigns)
    ]


def _is_of(row: Row, campaigns: Sequence[str]) -> bool:
    own = row.get("campaign", "")
    names = {own, own.replace("steps", "rounds", 1)}
    return any(name in names or name.partition(".")[0] == own for name in campaigns)  # `starts` is a kind alone


def _gone(table: str, reference: Sequence[Row], found: Sequence[Row], campaigns: Sequence[str]) -> list[str]:
    """Campaigns with a recorded failure of which a table has nothing at all."""
    wanted, got = ({row["campaign"] for row in rows if _is_of(row, campaigns)} for rows in (reference, found))
    return [f"{table}.csv: nothing of the campaign {name}" for name in sorted(wanted - got)]


def _short(row: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {text}" for name, text in row if text)[:300]
