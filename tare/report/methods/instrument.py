"""What other protocols would have said of host against host, and what a benchmark of them found."""

from __future__ import annotations

import math

from tare.analysis import other_designs
from tare.analysis.verdicts import margin_of
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.report.evidence import Campaign, Evidence
from tare.report.number_tables import interval_text, ratio_text
from tare.report.words.labels import env_title, seconds, workload_title
from tare.report.words.layout import Cell, Row, Table
from tare.report.words.wording import margin_text, missing, percent
from tare.stats.intervals import Interval, judge

BENCHMARK_SCHEMA = 3  # a benchmark that another version wrote is shown when it is run again
BENCHMARK_PARTS = ("quiet", "busy", "bursts")


def spread_text(value: float) -> str:
    """A standard deviation of logs as per cent."""
    return percent(value) if value >= 0.0001 else "0%"


def protocol_tables(evidence: Evidence) -> list[Table]:
    """By workload, what other protocols would have said of host against host, from the same launches."""
    return [table for name in evidence.workloads if (table := _protocols(evidence, name)) is not None]


def _protocols(evidence: Evidence, workload: str) -> Table | None:
    campaigns = [evidence.headline(workload, kind) for kind in ("steps", "rounds")]
    own = [campaign for campaign in campaigns if campaign is not None and campaign.counted]
    if not own:
        return None
    heads = {"steps": "training step", "rounds": "whole run"}
    sides = [(campaign, other_designs.hosts_of(campaign)) for campaign in own]
    rows: list[Row] = [
        [
            Cell(text="One after the other", below="the median of one launch, then of another"),
            *(_one_after_the_other(campaign, hosts) for campaign, hosts in sides),
        ],
        [
            Cell(text="Like pyperf", below="all of one, then all of the other; Student's t test of means"),
            *(_pyperf(hosts) for _, hosts in sides),
        ],
        [
            Cell(text="Like hyperfine", below="all of one, then all of the other; mean ± standard deviation"),
            *(
                _hyperfine(hosts) if campaign.kind == "rounds" else "times whole runs only"
                for campaign, hosts in sides
            ),
        ],
        [
            Cell(text="Tare", below="unit by unit, both hosts in the same moments"),
            *(_paired(campaign) for campaign, _ in sides),
        ],
    ]
    return Table(
        caption=f"{workload_title(workload)}: what other protocols would have said of host against host",
        columns=["", *(heads[campaign.kind] for campaign in own)],
        rows=rows,
        wide=True,
    )


def benchmark_table(evidence: Evidence) -> Table | None:
    """What a benchmark of protocols found, each with the same machine time; None where none was run here.

    Its keys are those that benchmarks/protocols.py documents.
    """
    found = evidence.protocols
    if not found or found.get("schema") != BENCHMARK_SCHEMA or not found["summary"]:
        return None
    counted = [
        {"title": row["title"], "machine": part, "planted": row[part]["planted"], **row[part]["equal"]}
        for row in found["summary"].values()
        for part in BENCHMARK_PARTS
        if row[part]["equal"]["answers"]
    ]
    return Table.of(
        counted,
        {
            "": lambda row: str(row["title"]),
            "machine": lambda row: str(row["machine"]),
            "falsely called different": lambda row: f"{row['claims']} of {row['answers']}",
            "half-width, median": lambda row: (
                None if row["half_width"] is None else f"±{percent(row['half_width'])}"
            ),
            "ratios": lambda row: f"{ratio_text(row['lowest'])} to {ratio_text(row['highest'])}",
            f"misses of +{percent(found['planted'])}": lambda row: (
                f"{row['planted']['missed']} of {row['planted']['answers']}"
            ),
            "machine time each, median": lambda row: seconds(row["median_machine_s"]),
        },
        caption=f"{workload_title(found['workload'])}: host against host, the same machine time for each protocol",
        note=f"A benchmark of its own, on {found['cpu']}, kernel {found['kernel']}, {found['at']}. In further "
        "measurements one side took more processor time, as much as the misses say.",
        wide=True,
    )


def _one_after_the_other(campaign: Campaign, hosts: other_designs.Hosts) -> str | Cell:
    margin = margin_of(campaign)
    found = other_designs.one_after_the_other(hosts, margin)
    if found is None:
        return "too few units"
    return Cell(
        text=f"ratios from {ratio_text(found.lowest)} to {ratio_text(found.highest)}",
        below=f"{found.beyond} of {found.pairs} pairs of units beyond the {margin_text(margin)} margin",
    )


def _pyperf(hosts: other_designs.Hosts) -> str | Cell:
    found = other_designs.pyperf_like(hosts)
    if found is None:
        return "too few units"
    return Cell(
        text=f"ratio {ratio_text(found.ratio)}, {'significant' if found.significant else 'not significant'}",
        below=f"|t| = {abs(found.t):.2f}, critical {found.critical:.2f}; {found.n} launches a side",
    )


def _hyperfine(hosts: other_designs.Hosts) -> str | Cell:
    found = other_designs.hyperfine_like(hosts)
    if found is None:
        return "too few units"
    slower = CONTROL if found.faster == HOST else HOST
    names = {name: env_title(name, short=True).lower() for name in (HOST, CONTROL)}
    sides = " and ".join(f"{seconds(mean)} ± {seconds(spread)}" for mean, spread in (found.host, found.control))
    times = f"{found.ratio:.2f} ± {found.ratio_sd:.2f} times faster"
    return Cell(
        text=f"“{names[found.faster]} ran {times} than {names[slower]}”",
        below=f"{sides}; {found.n} launches a side",
    )


def _paired(campaign: Campaign) -> str | Cell:
    found: Interval = other_designs.paired(campaign)
    if missing(found.low):
        return "too few units"
    low, high = (math.exp(end) for end in (found.low, found.high))
    fewest = campaign.plan.sampling.verdict_units
    said = judge(found, margin_of(campaign)) if found.n >= fewest else f"{fewest} units are needed for a verdict"
    return Cell(
        text=f"{interval_text(low, high)}: {said}",
        below=f"n = {found.n}; the control that stands beside every verdict",
    )
