"""Scenarios: alone, as one of several instances that train together, and with a co-runner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pandas as pd

from tare.analysis import choice
from tare.analysis.capacity.network import Wire, points, wires
from tare.analysis.launch_rows import SLOWDOWN
from tare.literature import published
from tare.literature.finding import listed
from tare.literature.measured_here import why_absent
from tare.model.conditions import SLURM
from tare.model.levels import levels_in, levels_text
from tare.model.records.launches import CONTENTION
from tare.model.records.measured import NetworkRecord
from tare.model.registry import DISTRIBUTED, HOST, SHARED, SINGLE
from tare.model.roles import CONTROL, alone_of
from tare.model.studies.arms import GROUPED, INPUTS
from tare.model.studies.papers import repeated
from tare.model.studies.sections import Batch, Distributed, Shared
from tare.report.evidence import Campaign, Evidence
from tare.report.number_tables import compared, interval_text, means_table, ratio_text
from tare.report.rows import having
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Row, Table, field
from tare.report.words.quantities import prefixed, seconds, significant, size_bytes
from tare.report.words.wording import verdict_text
from tare.stats.costs import ALL_REDUCE, SERVER

ITSELF = "own"  # a run with a co-runner, divided by the same environment's without one
# Head of a column: its scenario, the metric of its comparisons, whose value is the other one.
SCENARIOS = {
    "alone ÷ host": (SINGLE, "real_s", HOST),
    "several instances ÷ host": (DISTRIBUTED, "real_s", HOST),
    "with a co-runner ÷ alone": (SHARED, "real_s", ITSELF),
    "that slowdown ÷ the host's": (SHARED, SLOWDOWN, HOST),
}
NOTE = (
    "Ratios of whole-run times with intervals: environment to host in the same scenario, or with a co-runner to "
    "without one. The second host is the A/A control: it shows the error of the measurement. A dash: this study "
    "compares nothing there."
)
CO_RUNNERS = ("co_runner_steps_per_s", "co_runner_cpus")
OWN = ("real_s", "user_s", "system_s", "waited_s", "preemptions")
REASONS_OF = (*OWN, *CONTENTION, *CO_RUNNERS)
JUDGED = ("real_s", "images_per_s", "samples_per_s", "group_step_s", "compute_step_s", "exposed_exchange_s")
WAYS = {ALL_REDUCE: "all-reduce", SERVER: "parameter server"}
SHOWN = (*GROUPED, *INPUTS)  # of a campaign's levels
NETWORKS = {
    "switch": "switch",
    "overlay": "overlay (VXLAN)",
    "overlay-of-containers": "overlay (VXLAN) for containers, switch for others",
    "host": "host's network",
    SLURM: "nodes of a cluster",
}


def matrix(evidence: Evidence) -> Table | None:
    """Environments by scenarios, workload by workload; None where the study has one scenario alone."""
    if len(evidence.study.scenarios) == 1:
        return None
    columns = {head: asked for head, asked in SCENARIOS.items() if asked[0] in evidence.study.scenarios}
    found = [one for one in evidence.campaigns if one.kind == "rounds" and one.arm is None]
    headlines = {(one.workload, one.plan.scenario): one for one in found}
    known = {*evidence.environments, CONTROL}

    def cell(workload: str, env: str, asked: tuple[str, str, str]) -> str | Cell | None:
        scenario, metric, other = asked
        campaign = headlines.get((workload, scenario))
        if campaign is None or env not in known:
            return None if campaign is None else UNAVAILABLE
        rows = having(evidence.verdicts, workload=workload, campaign=campaign.name, metric=metric)
        if env == CONTROL:  # it is the same in every environment's comparison
            rows = having(rows[rows["control_ratio"].notna()], reference=other)
        elif env in campaign.plan.unavailable:
            return Cell(text=UNAVAILABLE, below=campaign.plan.unavailable[env])
        else:
            rows = having(rows, launch=env, reference=alone_of(env) if other == ITSELF else other)
        return _ratio_cell(rows.iloc[0].to_dict(), "control_" if env == CONTROL else "") if len(rows) else None

    theirs = {}
    for name in evidence.workloads:
        papers = [published.load(paper).measured_with for paper in repeated(evidence.papers, [name])]
        theirs[name] = {env for paper in papers if paper for env in paper.environments}
    rows: list[Row] = []
    for workload in evidence.workloads:
        own = [
            [env_title(env, short=True), *(cell(workload, env, asked) for asked in columns.values())]
            for env in sorted(known | theirs[workload], key=env_order)
        ]
        rows += [[workload_title(workload)], *(row for row in own if any(row[1:]))]
    absence = why_absent(sorted(set().union(*theirs.values()) - known, key=env_order))
    further = "".join(f" {why}. To measure them, name them in the “environments” of a scenario." for why in absence)
    return Table(
        caption="Whole runs: environments by scenarios",
        columns=["", *columns],
        rows=rows,
        note=NOTE + further,
        numeric=True,
    )


def _ratio_cell(row: Mapping[str, Any], of: str = "") -> Cell:
    """A ratio with its interval and verdict, or the control's."""
    text = ratio_text(row[f"{of}ratio"])
    if text is None:
        return Cell(text=UNAVAILABLE, below=str(row["reason"]))
    interval = interval_text(row[f"{of}ci_low"], row[f"{of}ci_high"])
    return Cell(text=text, below=interval if of else f"{interval}: {verdict_text(row['verdict'])}")


def with_co_runner(evidence: Evidence) -> list[SimpleNamespace]:
    """One answer for each campaign with a co-runner: what it costs, what the machine did, what is lacking."""
    return [_with_co_runner(evidence, one) for one in evidence.campaigns if one.plan.scenario == SHARED]


def _with_co_runner(evidence: Evidence, campaign: Campaign) -> SimpleNamespace:
    own = {"workload": campaign.workload, "campaign": campaign.name}
    rows = sorted(having(evidence.verdicts, **own).to_dict("records"), key=lambda row: env_order(row["launch"]))
    itself = [row for row in rows if row["metric"] == "real_s" and row["reference"] == alone_of(row["launch"])]
    host = [row for row in rows if row["metric"] == SLOWDOWN and row["reference"] == HOST]
    metrics = having(evidence.metrics, **own)
    lacking = [f"{env_title(env)}: unavailable, {reason}" for env, reason in campaign.plan.unavailable.items()]
    table = Table.of(
        [*itself, *host],
        {
            "environment": field("launch", env_title),
            "by": field("reference", env_title),
            "metric": field("metric", metric_title),
            **compared("n", "ratio", "interval", "control", "margin", "verdict"),
        },
        caption="What the co-runner costs each environment, and whether that is more than on the host",
    )
    meanwhile = means_table(
        metrics,
        {name: metric_title(name) for name in REASONS_OF},
        caption="Where the time went, and what the machine did meanwhile: means over rounds",
        note="Whole run, user and system time, waiting and preemptions are those of the launch. Everything else is "
        "of the whole machine.",
    )
    title = _title(campaign, evidence.study.shared)
    return SimpleNamespace(title=title, table=table, meanwhile=meanwhile, lacking=[*lacking, *_lacking(metrics)])


def _title(campaign: Campaign, settings: Shared | None) -> str:
    part: Any = (campaign.plan.part or {}).get("shared") or (settings.to_json() if settings else {})
    arm = campaign.arm
    small = arm is not None and arm.factor == "co_runner_load"
    is_cut = arm is not None and arm.level == "cpuset"  # to its CPUs
    threads = f" in {part['threads']} threads" if part.get("threads") and not is_cut else ""
    batch = part.get("small_batch") if small else part.get("batch")
    how = f", {arm_title(arm.name)}" if arm is not None and not small else ""
    other = workload_title(part.get("workload", "a job"))
    return f"{workload_title(campaign.workload)} with {other} as co-runner, at batch {batch}{threads}{how}"


def _lacking(metrics: pd.DataFrame) -> list[str]:
    """What could not be counted, and why, each reason once."""
    own = having(metrics, metric=REASONS_OF, kind=UNAVAILABLE)
    reasons = own[own["launch_role"] != "control"].groupby("reason", sort=True)["metric"].unique()
    return [
        f"{', '.join(metric_title(name) for name in names)}: unavailable, {reason}"
        for reason, names in reasons.items()
    ]


def instances(evidence: Evidence) -> Mapping[str, Any] | None:
    """What its instances shows; None where the study trains no instances together."""
    wanted = evidence.study.distributed
    if wanted is None:
        return None
    shown: dict[str, Any] = {"about": about(evidence), "verdicts": verdict_table(evidence), "network": []}
    shown["split"] = None
    if (record := evidence.network) is not None:
        shown["network"] = network_sentences(record, wires(record))
        if len(found := points(evidence.metrics, record)):
            shown["split"] = split_table(evidence, found)
    return shown


def steps_of(wanted: Distributed, job: Batch) -> str | None:
    """How many steps each instance takes, and how many were published; None where its samples determine it."""
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
    steps = {name: words for name, job in jobs.items() if (words := steps_of(wanted, job)) is not None}
    each = "; ".join(f"{workload_title(name)} {words}" for name, words in steps.items())
    served = " with one more that serves parameters" if wanted.exchange == SERVER else ""
    until = f" Each stops after a fixed number of steps: {each}." if each else ""
    shares = (
        "The numbers are for these nodes together, including their network."
        if wanted.network == SLURM
        else "All run on this one machine and share its CPUs, memory and caches. So the numbers show the cost of "
        "the network and the runtime, not the gain from more machines."
    )
    return (
        f"{wanted.workers} instances train together{served}, by {WAYS[wanted.exchange]}, {_wires(wanted)}. "
        f"{shares}{until}"
    )


def _wires(wanted: Distributed) -> str:
    """What instances meet on."""
    if wanted.network == "host":
        return "all on the host's own network, without a limit"
    if wanted.network == SLURM:
        return "each on its own node of the cluster, over the network that Slurm uses to reach the node"
    rate, delay = wanted.rate_mbit_per_s, wanted.delay_ms
    cable = "as fast as this machine is" if rate is None else f"{significant(rate)} Mbit/s either way (tc tbf)"
    late = f", packets held back by {significant(delay)} ms (netem)" if delay else ""
    return f"each in its own network namespace ({NETWORKS[wanted.network]}), {cable}{late}"


def split_table(evidence: Evidence, found: pd.DataFrame) -> Table:
    """Steps split into computing and exchange, compared with the model and with one instance alone."""

    def speed(row: Mapping[str, Any]) -> str | None:
        """By an instance alone, in the headline's runs of the same environment and input."""
        level = None if row["input"] == "real" else f"input={row['input']}"
        own = choice.compared(having(evidence.metrics, workload=row["workload"]), "rounds", level)
        own = having(own, launch=row["env"], metric="samples_per_s", kind="measured")
        return None if own.empty else f"{row['samples_per_s'] / float(own['value'].median()):.2f}"

    rows = found.sort_values(["workload", "exchange", "network", "input"], kind="stable").to_dict("records")
    rows.sort(key=lambda row: (evidence.workloads.index(row["workload"]), env_order(row["env"])))
    return Table.of(
        rows,
        {
            "": lambda row: f"{workload_title(row['workload'])}, {env_title(row['env'], short=True)}",
            "exchange": field("exchange", WAYS.__getitem__),
            "network": field("network", NETWORKS.__getitem__),
            "input": field("input"),
            "n": field("n"),
            "step": field("step_s", seconds),
            "computing": field("compute_s", seconds),
            "exchange alone": field("exposed_s", seconds),
            "its share": field("share", "{:.0%}".format),
            "any exchange": field("exchange_s", seconds),
            "modelled": field("modelled_s", seconds),
            "gradients": field("bytes", size_bytes),
            "speed-up": speed,
        },
        caption="A step of one of several instances",
        note="Medians over rounds of rank 0's median step. Exchange alone: time in which only the exchange ran, "
        "including the wait for a slower instance. Modelled: the exchange at the measured rate of a stream. "
        "Speed-up: samples per second of all instances, divided by those of one instance alone on all CPUs (whole "
        "runs of the same environment).",
        numeric=True,
    )


def verdict_table(evidence: Evidence) -> Table | None:
    """Every comparison of the scenario's campaigns."""
    rows = having(evidence.verdicts, scenario=DISTRIBUTED, metric=JUDGED)
    if rows.empty:
        return None

    def levels(row: Mapping[str, Any]) -> str:
        return levels_text({factor: level for factor, level in levels_in(row).items() if factor in SHOWN})

    columns = {
        "": lambda row: f"{workload_title(row['workload'])}, {env_title(row['launch'], short=True)}",
        "by": lambda row: env_title(row["reference"], short=True),
        "metric": field("metric", metric_title),
        "levels": levels,
        **compared("n", "ratio", "interval", "control", "verdict"),
    }
    caption = "Instances that train together: every comparison"
    return Table.of(rows.to_dict("records"), columns, caption=caption, numeric=True)


def network_sentences(record: NetworkRecord, seen: Mapping[str, Wire]) -> list[str]:
    """What the network gave without training."""
    absent = {env: one.reason for env, one in record.launches.items() if not one.ok}
    reasons = {**absent, **record.unavailable}
    lines = []
    for env, wire in sorted(seen.items(), key=lambda one: env_order(one[0])):
        rates = [f"{prefixed(size / s, 'B/s')} ({size_bytes(size)})" for size, s in sorted(wire.all_reduce.items())]
        lines.append(
            f"{env_title(env)}: TCP stream {significant(wire.stream_bytes_per_s * 8 / 1e6)} Mbit/s, "
            f"round trip {seconds(wire.round_trip_s)}, all-reduce {listed(rates)}."
        )
    return lines + [f"{env_title(env)}: {UNAVAILABLE}: {why}." for env, why in reasons.items()]
