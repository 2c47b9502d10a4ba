"""What page faults cost a step with the default allocator, in plain words: rows of the table `fault_costs` in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.literature.finding import listed
from tare.model.roles import CONTROL
from tare.model.studies.layout import read_name
from tare.model.studies.study import HOST
from tare.report.evidence import Campaign, Evidence
from tare.report.number_tables import interval_text
from tare.report.words.labels import (
    arm_title,
    env_order,
    env_title,
    seconds,
    sentence_case,
    significant,
    workload_title,
)
from tare.report.words.layout import Cell, Row, Table
from tare.report.words.wording import missing, percent, signed

DEFAULT = "allocator=default"
ENDS = ("low", "high")
RATIOS = {
    "measured_ratio": "ratio to the host, measured",
    "equal_faults_ratio": "at equal faults, modelled",
    "modelled_ratio": "from steady steps and faults, modelled",
    "measured_by_modelled": "measured by that",
}
COLUMNS = (
    "page faults more a step",
    "their share of a step, modelled",
    "what the level takes of a step, measured",
    "what it takes, by fault",
    *RATIOS.values(),
)
NOTE = (
    "Exploratory, from rounds that hold both levels of the allocator; each interval at {level}. A fault's cost "
    "{cost}; it holds all that comes with one. Modelled with it: the faults' share; the ratio as "
    "if all launches had had the hosts' faults; the ratio from the steady step, what the level takes on the hosts, "
    "and the launch's own faults. The control's ratios are to the first host."
)
Rows = Mapping[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class FaultCosts:
    """What the page says of the page faults of one workload's steps."""

    sentences: list[str]
    table: Table


def fault_costs(evidence: Evidence, campaign: Campaign) -> FaultCosts | None:
    """Of a campaign that varies the allocator, whichever level is the headline's; None of any other."""
    if campaign.arm is None or campaign.arm.factor != "allocator" or campaign.kind != "steps":
        return None
    found = evidence.fault_costs
    own = campaign.key.environments
    alike = found["campaign"].map(lambda name: read_name(name).environments == own)  # of the same environments
    own = found[alike & (found["workload"] == campaign.workload)]
    if own.empty:
        return None
    rows = {(row["launch"], row["item"]): row for row in own.to_dict("records")}
    return FaultCosts(sentences=[_of_host(rows), *_compared(rows)], table=_table(rows, campaign))


def beside_measured(costs: pd.DataFrame, row: Mapping[str, Any]) -> str | None:
    """What a step takes against the host's had all launches the hosts' page faults, for a verdict on steps with the
    default allocator; None for any other, and where nothing can be told."""
    alike = (costs["campaign"] == row["campaign"]) & (costs["workload"] == row["workload"])
    own = costs[alike & (costs["launch"] == row["launch"]) & (costs["item"] == "equal_faults_ratio")]
    found = next((one for one in own.to_dict("records") if missing(one["reason"])), None)
    if found is None or row["metric"] != "step_s":
        return None
    return f"At equal page faults, modelled: {_signed(found)}"


def _environments(rows: Rows) -> list[str]:
    return sorted({env for env, _ in rows}, key=env_order)


def _of_host(rows: Rows) -> str:
    """How much of a step on the host is page faults."""
    share, level, more, cost = (
        rows[HOST, item] for item in ("fault_share", "level_share", "more_faults", "fault_cost_s")
    )
    if not missing(share["reason"]):
        reason = share["reason"] if missing(cost["reason"]) else cost["reason"]
        return f"What page faults cost a step can't be told: {reason}"
    return (
        f"On the host {_shares(share)} of a step is page faults (modelled): {significant(more['value'], 2)} more "
        f"than with the steady allocator, at {_seconds(cost)} each; the level as a whole takes {_shares(level)} "
        "(measured)"
    )


def _compared(rows: Rows) -> list[str]:
    """What environments cost at equal page faults, and whether the model is what was measured."""
    if not missing(rows[HOST, "fault_share"]["reason"]):
        return []
    found = {
        env: {item: rows[env, item] for item in RATIOS} for env in _environments(rows) if env not in (HOST, CONTROL)
    }
    told = {env: own for env, own in found.items() if missing(own["equal_faults_ratio"]["reason"])}
    sentences = [
        f"{env_title(env)}: {own['equal_faults_ratio']['reason']}" for env, own in found.items() if env not in told
    ]
    parts = [
        f"{_signed(own['equal_faults_ratio'])} in {env_title(env)} (measured, whatever the faults: "
        f"{_signed(own['measured_ratio'])})"
        for env, own in told.items()
    ]
    if parts:
        sentences.append(
            "How many faults it has differs from process to process. Had all launches had the hosts', a step would "
            f"take, against the host's (modelled): {listed(parts)}"
        )
    within = {env: own["measured_by_modelled"] for env, own in told.items()}
    agree = [
        f"{env_title(env)} to within {percent(max(row['high'] - 1, 1 - row['low']), up=True)}"
        for env, row in within.items()
        if row["low"] <= 1 <= row["high"]
    ]
    predicted = "what steady steps and page faults predict (modelled)"
    if agree:
        sentences.append(f"{sentence_case(predicted)} agrees with what was measured: {listed(agree)}")
    for env, row in within.items():
        if not row["low"] <= 1 <= row["high"]:
            costs = "costs more" if row["low"] > 1 else "costs less"
            sentences.append(
                f"{env_title(env)}: what was measured departs by {_signed(row)} from {predicted}: a fault, or "
                f"something else of this level, {costs} there than on the host"
            )
    return sentences


def _table(rows: Rows, campaign: Campaign) -> Table:
    cost = rows[HOST, "fault_cost_s"]
    alpha = next((row["alpha"] for row in rows.values() if not missing(row["alpha"])), None)
    return Table(
        caption=f"{workload_title(campaign.workload)}, {arm_title(DEFAULT)}: what page faults cost a step",
        columns=["", "rounds", *COLUMNS],
        rows=[_cells(rows, env) for env in _environments(rows)],
        note=NOTE.format(
            level="no level yet" if alpha is None else f"{100 * (1 - alpha):.3g}%",
            cost=f"is {_seconds(cost)}" if missing(cost["reason"]) else "can't be told",
        ),
        wide=True,
    )


def _cells(rows: Rows, env: str) -> Row:
    first = rows[env, "more_faults"]
    cells: Row = [env_title(env, short=True), str(first["n_units"])]
    if not missing(first["reason"]):
        return [*cells, Cell(text=f"can't be told: {first['reason']}", span=len(COLUMNS))]
    shown = {"more_faults": _counts, "fault_share": _shares, "level_share": _shares, "level_cost_s": _seconds}
    cells += [_cell(rows[env, item], text) for item, text in shown.items()]
    return [*cells, *(_cell(rows.get((env, item)), _ratios) for item in RATIOS)]


def _cell(row: Mapping[str, Any] | None, text: Callable[[Mapping[str, Any]], str]) -> str | None:
    """An interval, "none" where there is none, nothing where there can't be one."""
    return None if row is None else text(row) if missing(row["reason"]) else "none"


def _ratios(row: Mapping[str, Any]) -> str:
    return interval_text(row["low"], row["high"])


def _signed(row: Mapping[str, Any]) -> str:
    return signed(row["low"], row["high"])


def _counts(row: Mapping[str, Any]) -> str:
    return " to ".join(f"{'−' if row[end] < 0 else ''}{significant(abs(row[end]), 3)}" for end in ENDS)


def _seconds(row: Mapping[str, Any]) -> str:
    return " to ".join(seconds(row[end]) for end in ENDS)


def _shares(row: Mapping[str, Any]) -> str:
    return " to ".join(f"{'−' if row[end] < 0 else ''}{percent(row[end])}" for end in ENDS)
