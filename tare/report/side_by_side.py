"""The page of a study that several machines measured: a column for each, and the combined result of equal ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from tare.analysis.choice import Asked
from tare.analysis.machines import ALONE, TOGETHER
from tare.core.files import write_text
from tare.literature.finding import listed
from tare.machine.shared_files import clock_is_off
from tare.model.records.machine import OF_GPUS, MachineRecord, unlike
from tare.model.roles import CONTROL
from tare.model.studies.layout import arm_of
from tare.report import pages
from tare.report.answer import KINDS, Shown, asked_title, glance
from tare.report.figures import style
from tare.report.words.labels import alike_titles, env_title, workload_title
from tare.report.words.layout import Cell, Row, Table, value_text
from tare.report.words.wording import missing, percent, signed, tally, verdict_text

NOT_COMPARED = "not compared"
QUESTION = ["workload", "metric", "campaign", "environment"]
SPREADS = ("between_sd", "between_low", "between_high")
NONE = 5e-5  # of a ratio: no spread worth a digit
CONTROLS = ["control_ci_low", "control_ci_high"]


def write(
    study: str, table: pd.DataFrame, machines: Mapping[str, MachineRecord], kinds: Mapping[str, str], folder: Path
) -> Path:
    """Write the page; returns its path.

    `table`: `machines`. `kinds`: by machine the kind that it is of. `folder`: of the page; the reports of the
    machines are in ../on/<machine>/report.
    """
    page = folder / pages.INDEX
    html = pages.alone(
        "side_by_side.html.j2",
        study=study,
        summary=summary(table),
        glances=glances(table),
        colours={env: style.paint(env) for env in (*table["environment"].unique(), CONTROL)},
        warnings=warnings(machines, kinds),
        together=together(table),
        level=", ".join(
            f"{1 - alpha:.0%}" for alpha in sorted(table[table["scope"] == TOGETHER]["alpha"].unique())
        ),
        facts=facts(machines),
        reports=[{"title": name, "href": f"../on/{name}/report/{pages.INDEX}"} for name in machines],
    )
    write_text(page, html)
    return page


def summary(table: pd.DataFrame) -> list[str]:
    """How many comparisons came out how, in how many all machines agree, and whether equal ones are equal."""
    alone, kinds = table[table["scope"] == ALONE], table[table["scope"] == TOGETHER]
    lines = [
        tally(rows.to_dict("records"), f"{what} on {rows['machine'].nunique()} machines")
        for metric, what in KINDS.items()
        if len(rows := alone[(alone["metric"] == metric) & alone["verdict"].notna()])
    ]
    verdicts = alone.groupby(QUESTION, sort=False)["verdict"].agg(
        lambda own: own.notna().all() and own.nunique() == 1
    )
    lines.append(f"In {verdicts.sum()} of {len(verdicts)} comparisons, the verdict is the same on every machine.")
    for kind, rows in kinds[kinds["kind"] == "measured"].groupby("machine_kind", sort=False):
        differ = int((rows["between_low"] > 0).sum())
        lines.append(f"Machines of {kind} differ from each other in {differ or 'none'} of {len(rows)} comparisons.")
    return lines


def glances(table: pd.DataFrame) -> list[SimpleNamespace]:
    """A table of each question: a row for each environment, a column for each machine and kind."""
    found = []
    for (workload, metric, campaign), rows in table.groupby(QUESTION[:-1], sort=False):
        columns = [(row["scope"], row["machine_kind"], _name(row)) for row in rows.to_dict("records")]
        columns = sorted(dict.fromkeys(columns), key=lambda one: one[0] != ALONE)
        cells = {(row["environment"], row["scope"], _name(row)): row for row in rows.to_dict("records")}
        shown = {
            env: [_cell(cells.get((env, scope, name))) for scope, _, name in columns]
            for env in rows["environment"].unique()
        }
        alone = rows[rows["scope"] == ALONE].drop_duplicates("machine").set_index("machine")
        ends = [alone.loc[name, CONTROLS] if scope == ALONE else None for scope, _, name in columns]
        shown[CONTROL] = [("–" if own is None else signed(*own), None) for own in ends]
        titles = [name if scope == ALONE else f"{kind}, all {_count(rows, kind)}" for scope, kind, name in columns]
        found.append(glance(f"{workload_title(workload)}, {asked(metric, campaign)}", titles, shown.items()))
    return found


def asked(metric: str, campaign: str) -> str:
    """What a campaign's metric answers, in the words of the pages."""
    title = asked_title(Asked(metric=metric, arm=arm_of(campaign)))
    return title[:1].lower() + title[1:]


def _name(row: Mapping[str, Any]) -> str:
    return str(row["machine"] if row["scope"] == ALONE else row["machine_kind"])


def _count(rows: pd.DataFrame, kind: str) -> int:
    return int(rows.loc[(rows["machine_kind"] == kind) & (rows["scope"] == TOGETHER), "n"].max())


def _cell(row: Mapping[str, Any] | None) -> Shown:
    if row is None:
        return NOT_COMPARED, None
    if row["kind"] == "unavailable" and missing(row["verdict"]):
        return str(row["reason"]), None
    return signed(row["ci_low"], row["ci_high"]), row["verdict"]


def together(table: pd.DataFrame) -> Table | None:
    """The combined result of equal machines, and how far they differ; None without any."""
    rows = table[table["scope"] == TOGETHER].to_dict("records")
    if not rows:
        return None
    columns: dict[str, Callable[[Mapping[str, Any]], str | Cell | None]] = {
        "": lambda row: Cell(
            text=f"{workload_title(row['workload'])}, {env_title(row['environment'], short=True)}",
            below=asked(row["metric"], row["campaign"]),
        ),
        "machines": lambda row: f"{row['n']} of {row['machine_kind']}",
        "mean": lambda row: Cell(text=_cell(row)[0], below=verdict_text(_cell(row)[1] or "")),
        "between machines": lambda row: _between(row),
        "one more machine": lambda row: (
            None if missing(row["further_low"]) else signed(row["further_low"], row["further_high"])
        ),
    }
    return Table.of(rows, columns, caption="Machines of one kind together")


def _between(row: Mapping[str, Any]) -> str | None:
    """Standard deviation of the ratio between machines, with its interval."""
    if missing(row["between_sd"]):
        return None
    sd, low, high = ("0%" if row[name] < NONE else percent(row[name]) for name in SPREADS)
    return f"{sd} ({low} to {high})"


def warnings(machines: Mapping[str, MachineRecord], kinds: Mapping[str, str]) -> list[str]:
    """Machines of one kind that are not equal, and names of one machine."""
    lines = []
    for kind in dict.fromkeys(kinds.values()):
        names = [name for name in machines if kinds[name] == kind]
        differing = unlike([machines[name] for name in names])
        if other := [title for fact, title in alike_titles() if fact in differing]:
            lines.append(
                f"Machines of {kind} should be equal, but differ in: {listed(other)}. The combined result is for "
                "unequal machines. Set “constraint” so that only equal ones match."
            )
    for name, record in machines.items():
        if off := clock_is_off(record.clock_ahead_s):
            lines.append(f"The clock of {name} is {off}: times of day in its records are wrong, durations are not.")
    hosts: dict[str, list[str]] = {}
    for name, record in machines.items():
        if record.host_name is not None:
            hosts.setdefault(record.host_name, []).append(name)
    for host, names in hosts.items():
        if len(names) > 1:
            lines.append(
                f"{listed(names)} are the same machine, {host}: differences between them are not differences "
                "between machines."
            )
    return lines


def facts(machines: Mapping[str, MachineRecord]) -> Table:
    """What each machine is."""
    rows: list[Row] = [
        [title, *(value_text(fact, getattr(record, fact)) for record in machines.values())]
        for fact, title in [*alike_titles(), ("host_name", "Host name")]
        if fact not in ("cpu_mitigations", "gpus")
    ]
    rows.append(["GPUs", *(_gpus(record) for record in machines.values())])
    return Table(caption="The machines", columns=["", *machines], rows=rows)


def _gpus(record: MachineRecord) -> str:
    """Names of its GPUs, each kind with what should be alike: `4 of A100 (40960 MiB, driver 550, 400.00 W)`."""
    kinds = Counter(tuple(gpu.get(name) for name in OF_GPUS) for gpu in record.gpus or ())
    found = []
    for (name, memory_mib, driver, power_w), count in kinds.items():
        known = {f"{memory_mib} MiB": memory_mib, f"driver {driver}": driver, f"{power_w} W": power_w}
        details = ", ".join(text for text, value in known.items() if value is not None)
        found.append(f"{f'{count} of ' if count > 1 else ''}{name}{f' ({details})' if details else ''}")
    return ", ".join(found) or "none"
