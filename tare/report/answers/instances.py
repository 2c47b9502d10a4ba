"""Several instances that train together: what a step exchanges, what the network gives, its roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tare.analysis.choice import compared
from tare.analysis.network import Wire, gradient_rates, measured_on, points, wires
from tare.model.levels import levels_in, levels_text
from tare.model.records.measured import NetworkRecord
from tare.model.registry import DISTRIBUTED
from tare.model.studies.arms import GROUPED, INPUTS
from tare.model.studies.study import Batch, Distributed
from tare.report.evidence import Evidence
from tare.report.figures import style
from tare.report.figures.network import all_reduce, network_roofline
from tare.report.number_tables import compared as compared_columns
from tare.report.words.labels import (
    env_order,
    env_title,
    metric_title,
    seconds,
    significant,
    size_bytes,
    workload_title,
)
from tare.report.words.layout import UNAVAILABLE, Table
from tare.report.words.wording import missing
from tare.stats.costs import ALL_REDUCE, SERVER

JUDGED = ("real_s", "images_per_s", "samples_per_s", "group_step_s", "compute_step_s", "exposed_exchange_s")
WAYS = {ALL_REDUCE: "all-reduce", SERVER: "parameter server"}
SHOWN = (*GROUPED, *INPUTS)  # of a campaign's levels
NETWORKS = {
    "switch": "switch",
    "overlay": "overlay (VXLAN)",
    "overlay-of-containers": "overlay (VXLAN) for containers, switch for others",
    "host": "host's network",
}


def section(evidence: Evidence) -> Mapping[str, Any] | None:
    """What its section shows; None where the study trains no instances together."""
    wanted = evidence.study.distributed
    if wanted is None:
        return None
    record = evidence.network
    if record is None:
        return {"about": about(evidence), "split": None, "verdicts": verdict_table(evidence), "network": [],
                "all_reduce": None, "roofline": None}  # fmt: skip
    found, seen = points(evidence.metrics, record), wires(record)
    own = found[(found["network"] == measured_on(record)) & found["intensity"].notna() & (found["input"] == "real")]
    return {
        "about": about(evidence),
        "split": None if found.empty else split_table(evidence, found),
        "verdicts": verdict_table(evidence),
        "network": network_sentences(record, seen),
        "all_reduce": style.drawn(all_reduce(seen), "all_reduce") if seen else None,
        "roofline": None
        if found.empty
        else style.drawn(network_roofline(own, gradient_rates(record)), "network_roofline"),
    }


def steps_of(wanted: Distributed, job: Batch) -> str | None:
    """How many steps each instance takes, beside what was published; None where its samples say it."""
    if wanted.steps is None:
        return None
    samples = job.published.options.get("samples") if job.published else None
    published = f" (published {math.ceil(samples / job.published.batch)})" if job.published and samples else ""
    return f"steps {wanted.steps}{published}"


def about(evidence: Evidence) -> str:
    """What trains together, over what, and how long."""
    wanted = evidence.study.distributed
    assert wanted is not None
    jobs = {name: evidence.study.workloads[name] for name in wanted.trained(evidence.workloads)}
    told = {name: words for name, job in jobs.items() if (words := steps_of(wanted, job)) is not None}
    each = "; ".join(f"{workload_title(name)} {words}" for name, words in told.items())
    served = " and one more that serves parameters" if wanted.exchange == SERVER else ""
    return (
        f"{wanted.workers} instances train together{served}, by {WAYS[wanted.exchange]}, {_wires(wanted)}. All run "
        "on this one machine and share its CPUs, memory and caches: what is measured is the network's and the "
        "runtime's part, not what more machines would add."
    ) + (f" Each stops after its steps, whatever its samples: {each}." if each else "")


def _wires(wanted: Distributed) -> str:
    """What instances meet on."""
    if wanted.network == "host":
        return "all on the host's own network, without a limit"
    rate, delay = wanted.rate_mbit_per_s, wanted.delay_ms
    cable = "as fast as this machine is" if rate is None else f"{significant(rate)} Mbit/s either way (tc tbf)"
    late = f", packets held back by {significant(delay)} ms (netem)" if delay else ""
    return f"each in a network namespace of its own ({NETWORKS[wanted.network]}), {cable}{late}"


def split_table(evidence: Evidence, found: pd.DataFrame) -> Table:
    """Steps split into computing and exchange, beside what the model expects and what one instance alone does."""

    def speed(row: Mapping[str, Any]) -> str | None:
        alone = _alone(evidence.metrics, row)
        return None if alone is None else f"{row['samples_per_s'] / alone:.2f}"

    rows = found.sort_values(["workload", "exchange", "network", "input"], kind="stable").to_dict("records")
    rows.sort(key=lambda row: (evidence.workloads.index(row["workload"]), env_order(row["env"])))
    return Table.of(
        rows,
        {
            "": lambda row: f"{workload_title(row['workload'])}, {env_title(row['env'], short=True)}",
            "exchange": lambda row: WAYS[row["exchange"]],
            "network": lambda row: NETWORKS[row["network"]],
            "input": lambda row: row["input"],
            "n": lambda row: str(row["n"]),
            "step": lambda row: seconds(row["step_s"]),
            "computing": lambda row: seconds(row["compute_s"]),
            "exchange alone": lambda row: seconds(row["exposed_s"]),
            "its share": lambda row: f"{row['share']:.0%}",
            "any exchange": lambda row: seconds(row["exchange_s"]),
            "modelled": lambda row: None if missing(row["modelled_s"]) else seconds(row["modelled_s"]),
            "gradients": lambda row: size_bytes(row["bytes"]),
            "speed-up": speed,
        },
        caption="A step of one of several instances",
        note="Medians over units of rank 0's median step. Exchange alone: nothing else was left to be done, "
        "waiting for a slower instance included. Modelled: the exchange by the measured stream. Speed-up: samples "
        "a second of all instances by those of one alone on all CPUs, whole runs of the same environment.",
        numeric=True,
        wide=True,
    )


def _alone(metrics: pd.DataFrame, row: Mapping[str, Any]) -> float | None:
    """Samples per second of an instance alone, in the headline's runs of the same environment and input."""
    level = None if row["input"] == "real" else f"input={row['input']}"
    own = compared(metrics[metrics["workload"] == row["workload"]], "rounds", level)
    own = own[(own["launch"] == row["env"]) & (own["metric"] == "samples_per_s") & (own["kind"] == "measured")]
    return None if own.empty else float(own["value"].median())


def _shown(row: Mapping[str, Any]) -> str:
    return levels_text({factor: level for factor, level in levels_in(row).items() if factor in SHOWN})


def verdict_table(evidence: Evidence) -> Table | None:
    """Every comparison of the scenario's campaigns."""
    rows = evidence.verdicts
    rows = rows[(rows["scenario"] == DISTRIBUTED) & rows["metric"].isin(JUDGED)]
    if rows.empty:
        return None
    return Table.of(
        rows.to_dict("records"),
        {
            "": lambda row: f"{workload_title(row['workload'])}, {env_title(row['launch'], short=True)}",
            "by": lambda row: env_title(row["reference"], short=True),
            "metric": lambda row: metric_title(row["metric"]),
            "levels": _shown,
            **compared_columns("n", "ratio", "interval", "control", "verdict"),
        },
        caption="Instances that train together: every comparison",
        numeric=True,
        wide=True,
    )


def network_sentences(record: NetworkRecord, seen: Mapping[str, Wire]) -> list[str]:
    """What the network gave without training."""
    absent = {env: launch.reason for env, launch in record.launches.items() if not launch.ok}
    told = record.iperf3
    return [
        *(
            f"{env_title(env)}: TCP stream {_mbit(seen[env].stream_bytes_per_s)}, "
            f"round trip {seconds(seen[env].round_trip_s)}."
            for env in sorted(seen, key=env_order)
        ),
        *(f"{env_title(env)}: {UNAVAILABLE}: {why}." for env, why in {**absent, **record.unavailable}.items()),
        f"iperf3: {UNAVAILABLE}: {told.reason}."
        if told.bits_per_s is None
        else f"{told.version}, one stream on the host: {_mbit(told.bits_per_s / 8)}.",
    ]


def _mbit(bytes_per_s: float) -> str:
    return f"{significant(bytes_per_s * 8 / 1e6)} Mbit/s"
