"""What page faults cost a step with the default allocator: rows of the table `fault_costs` in, a table out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tare.model.studies.layout import read_name
from tare.model.studies.study import HOST
from tare.report.evidence import Campaign, Evidence
from tare.report.number_tables import interval_text
from tare.report.words.labels import arm_title, env_order, env_title, seconds, significant, workload_title
from tare.report.words.layout import Cell, Row, Table, ends
from tare.report.words.wording import missing, percent

DEFAULT = "allocator=default"
COLUMNS: dict[str, tuple[str, Callable[[float, float], str]]] = {
    "page faults more a step": ("more_faults", partial(ends, text=partial(significant, digits=3))),
    "their share of a step, modelled": ("fault_share", partial(ends, text=percent)),
    "what the level takes of a step, measured": ("level_share", partial(ends, text=percent)),
    "what it takes, by fault": ("level_cost_s", partial(ends, text=seconds)),
    "ratio to the host, measured": ("measured_ratio", interval_text),
    "at equal faults, modelled": ("equal_faults_ratio", interval_text),
    "from steady steps and faults, modelled": ("modelled_ratio", interval_text),
    "measured by that": ("measured_by_modelled", interval_text),
}
NOTE = (
    "Exploratory, from rounds that hold both levels of the allocator; each interval at {level}. A fault's cost "
    "{cost}; it holds all that comes with one. Modelled with it: the faults' share; the ratio as if all launches "
    "had had the hosts' faults; the ratio from the steady step, what the level takes on the hosts, and the "
    "launch's own faults. Where what was measured departs from that, a fault or something else of the level costs "
    "more or less there than on the host. The control's ratios are to the first host."
)
Rows = Mapping[tuple[str, str], Mapping[str, Any]]


def fault_costs(evidence: Evidence, campaign: Campaign) -> Table | None:
    """Of a campaign that varies the allocator, whichever level is the headline's; None of any other."""
    if campaign.arm is None or campaign.arm.factor != "allocator" or campaign.kind != "steps":
        return None
    found = evidence.fault_costs
    own = campaign.key.environments
    alike = found["campaign"].map(lambda name: read_name(name).environments == own)  # of the same environments
    own = found[alike & (found["workload"] == campaign.workload)]
    rows = {(row["launch"], row["item"]): row for row in own.to_dict("records")}
    return _table(rows, campaign) if rows else None


def _table(rows: Rows, campaign: Campaign) -> Table:
    cost = rows[HOST, "fault_cost_s"]
    alpha = next((row["alpha"] for row in rows.values() if not missing(row["alpha"])), None)
    told = missing(cost["reason"])
    return Table(
        caption=f"{workload_title(campaign.workload)}, {arm_title(DEFAULT)}: what page faults cost a step",
        columns=["", "rounds", *COLUMNS],
        rows=[_cells(rows, env) for env in sorted({env for env, _ in rows}, key=env_order)],
        note=NOTE.format(
            level="no level yet" if alpha is None else f"{100 * (1 - alpha):.3g}%",
            cost=f"is {ends(cost['low'], cost['high'], seconds)}" if told else f"can't be told: {cost['reason']}",
        ),
        wide=True,
    )


def _cells(rows: Rows, env: str) -> Row:
    first = rows[env, "more_faults"]
    cells: Row = [env_title(env, short=True), str(first["n_units"])]
    if not missing(first["reason"]):
        return [*cells, Cell(text=f"can't be told: {first['reason']}", span=len(COLUMNS))]
    return [*cells, *(_cell(rows.get((env, item)), text) for item, text in COLUMNS.values())]


def _cell(row: Mapping[str, Any] | None, text: Callable[[float, float], str]) -> str | None:
    """An interval, "none" where there is none, nothing where there can't be one."""
    return None if row is None else text(row["low"], row["high"]) if missing(row["reason"]) else "none"
