"""The network of instances that train together: what it gives, and what a model expects of an exchange.

The model of an exchange is that of tare.stats.costs, with half the median round trip and the measured TCP stream.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from tare.model.levels import columns_of_levels, level_column
from tare.model.records.launches import NetworkResults
from tare.model.records.measured import NetworkRecord
from tare.model.registry import DISTRIBUTED, HOST, environment
from tare.stats.costs import exchange_s

COLUMNS = (
    *("workload", "env", "exchange", "network", "input", "n", "real_s", "samples_per_s", "step_s", "compute_s"),
    *("exposed_s", "exchange_s", "share", "bytes", "modelled_s"),
)
# Of these the metrics whose medians they are.
MEDIANS = {
    **{
        "real_s": "real_s",
        "samples_per_s": "samples_per_s",
        "step_s": "group_step_s",
        "compute_s": "compute_step_s",
    },
    **{"exposed_s": "exposed_exchange_s", "exchange_s": "exchange_s", "share": "exchange_share"},
    "bytes": "exchange_bytes",
}


@dataclass(frozen=True, kw_only=True)
class Wire:
    """What an environment's members saw of the network."""

    workers: int  # how many they were
    stream_bytes_per_s: float  # of one TCP stream, at its receiver
    round_trip_s: float  # median of one byte there and back
    all_reduce: Mapping[int, float]  # median seconds by bytes


def wires(record: NetworkRecord) -> dict[str, Wire]:
    """By environment, those that measured it. Raises IntegrityError: a launch left something else."""
    found = {}
    for env, launch in record.launches.items():
        if not launch.ok:
            continue
        first, second = (
            one.inside.results_as(NetworkResults) for one in launch.instances[:2] if one.inside is not None
        )
        if first.stream is None:
            continue
        found[env] = Wire(
            workers=first.size,
            stream_bytes_per_s=first.stream.bytes / first.stream.s,
            round_trip_s=statistics.median(second.round_trip_s),
            all_reduce={one.bytes: statistics.median(one.s) for one in first.all_reduce},
        )
    return found


def modelled_s(exchange: str, size_bytes: float, workers: int, wire: Wire) -> float:
    """Seconds of a step's exchange, as the model has it."""
    return exchange_s(exchange, size_bytes, workers, wire.stream_bytes_per_s, wire.round_trip_s)


def points(metrics: pd.DataFrame, record: NetworkRecord) -> pd.DataFrame:
    """A row for each workload, environment and arm of the scenario: medians over units.

    COLUMNS: levels; the number of units; times, shares and bytes, measured; `modelled_s` of the exchange, where the
    network is the one that was measured alone.
    """
    own = metrics[(metrics["scenario"] == DISTRIBUTED) & (metrics["kind"] == "measured")]
    wire = wires(record).get(HOST)
    rows = []
    varied = columns_of_levels(own.columns)
    for (workload, env, place, *found), unit in own.groupby(
        ["workload", "launch", "environment", *varied], dropna=False
    ):
        of = unit.groupby("metric")["value"].median()
        if "group_step_s" not in of:
            continue
        levels = dict(zip(varied, found, strict=True))
        exchange, read = levels[level_column("exchange")], levels.get(level_column("input"))
        met_on = environment(str(place)).network_of(levels[level_column("network")])
        is_measured = met_on == measured_on(record)
        rows.append(
            {
                "workload": workload,
                "env": env,
                "exchange": exchange,
                "network": met_on,
                "input": "real" if pd.isna(read) else read,
                "n": int((unit["metric"] == "group_step_s").sum()),
                **{column: of[metric] for column, metric in MEDIANS.items()},
                "modelled_s": modelled_s(exchange, of["exchange_bytes"], int(record.group["workers"]), wire)
                if wire is not None and is_measured
                else None,
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def measured_on(record: NetworkRecord) -> str:
    """The network that a record is of, as a campaign's level names it."""
    return str(record.group.get("network", "switch"))
