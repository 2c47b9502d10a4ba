"""Recorded reference campaigns, each compared with this machine and with what papers published of their devices."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd

from tare.analysis.choice import PROFILE, SWEEP, joint, level_campaigns, of_hosts
from tare.analysis.decisions import compared_rows
from tare.literature import audit
from tare.literature.answers import NOTHING
from tare.literature.finding import listed
from tare.literature.published import Published, load
from tare.model import datasheet
from tare.model.datasheet import Datasheet
from tare.model.journals.references import NO_TIME
from tare.model.levels import columns_of_levels, level_column, levels_text
from tare.model.registry import HOST, describe_workload
from tare.model.roles import CONTROL
from tare.model.studies.arms import SETTINGS
from tare.report import answer, inside, number_tables, settings
from tare.report.evidence import Evidence
from tare.report.machine import gpu_rows
from tare.report.references import Reference
from tare.report.rows import having
from tare.report.words.labels import env_title, facts_of, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Reader, Row, Table, field, value_text
from tare.report.words.quantities import seconds, significant, with_unit
from tare.report.words.wording import missing, sentence_case, tally
from tare.stats.intervals import log_ratios_of, t_interval

NOT_COUNTED = "unavailable: the reference's profile did not count it"
PUBLISHED_ZERO = "unavailable: the published number is zero"
CALL = "mean over the calls of a profile"
# Title, meaning, unit; published, by check and metric, here, by metric: two names are a quotient.
# CALL: of the paper's profile, else of its kernels. With {}: of an epoch, ours a step's times its steps.
NUMBERS = (
    ("Memset, a call", CALL, "s", [(CALL, "memset_s")], ["memset_s", "memset_calls"]),
    ("Host to device, a call", CALL, "s", [(CALL, "htod_s")], ["htod_s", "htod_calls"]),
    ("Device to host, a call", CALL, "s", [(CALL, "dtoh_s")], ["dtoh_s", "dtoh_calls"]),
    ("DRAM read throughput", "bytes read, divided by the kernels' time", "B/s",
     [("mean_throughput", "dram_read_bytes_per_s")], ["dram_read_bytes_per_s"]),
    ("DRAM write throughput", "bytes written, divided by the kernels' time", "B/s",
     [("mean_throughput", "dram_write_bytes_per_s")], ["dram_write_bytes_per_s"]),
    ("FLOP rate of the kernels", "counted FLOPs, divided by the kernels' time", "FLOP/s",
     [("sum_of_maxima", "flops"), ("kernel_time", "kernel_s")], ["flops_measured", "kernel_s"]),
    ("Kernels' time, an epoch", "ours: a step's, {} times (modelled)", "s",
     [("kernel_time", "kernel_s")], ["kernel_s"]),
    ("HBM transactions, an epoch", "of 32 B; ours: a step's, {} times (modelled)", "1",
     [("sum_of_maxima", "hbm_transactions")], ["hbm_transactions"]),
    ("FLOPs, an epoch", "counted; ours: a step's, {} times (modelled)", "1",
     [("sum_of_maxima", "flops")], ["flops_measured"]),
)  # fmt: skip
NONE = (
    "This copy has no recorded reference campaign. On a machine with an NVIDIA GPU, “make reference” records one "
    "in under ten minutes."
)
NO_CEILINGS = "Unavailable: the reference has no record of measured ceilings."
CONFIDENCE = 0.95  # of the A/A control of steps


class ComparedNumber(NamedTuple):
    """A published number and a reference's, in `unit`; `meaning`: how both were obtained."""

    title: str
    meaning: str
    unit: str
    published: float
    here: float | None

    @property
    def ratio(self) -> float | None:
        """The ratio of the reference's number to the published one."""
        return None if self.here is None or not self.published else self.here / self.published

    @property
    def ratio_text(self) -> str:
        """The ratio, or why there is none."""
        if self.ratio is None:
            return NOT_COUNTED if self.here is None else PUBLISHED_ZERO
        return f"{significant(self.ratio)}×"


def compared_numbers(reference: Reference, published: Published, workload: str) -> list[ComparedNumber]:
    """Every published CUDA metric of one workload on the host, compared with a reference's."""
    if reference.record["device"]["kind"] != "cuda":
        return []
    rows = having(reference.metrics, campaign=PROFILE, workload=workload, launch=HOST)
    here = rows[rows["kind"] != UNAVAILABLE].drop_duplicates("metric").set_index("metric")["value"].to_dict()
    averages = having(_profile_log(published, workload), statistic="average")
    averages = averages.drop_duplicates("metric").set_index("metric")["value"]
    total = having(audit.computed(published.paper), workload=workload, env=HOST)
    theirs = total.drop_duplicates(["check", "metric"]).set_index(["check", "metric"])["recomputed"].to_dict()
    theirs |= {(CALL, metric): float(value) for metric, value in averages.items()}
    steps = epoch_steps(reference, workload)
    found = []
    for title, meaning, unit, was, ours in NUMBERS:
        before, now = _quotient(*map(theirs.get, was)), _quotient(*map(here.get, ours))
        if before is None:
            continue
        if "{}" in meaning:
            now = now * steps if now is not None and steps else None
        found.append(ComparedNumber(title, meaning.format(steps), unit, before, now))
    return found


def _quotient(number: float | None, by: float | None = 1.0) -> float | None:
    """The first divided by the second where there are two; None where one is missing."""
    return None if number is None or not by else number / by


def _profile_log(published: Published, workload: str) -> pd.DataFrame:
    return having(published.logs, workload=workload, env=HOST, series="profile")


def _sheets(reference: Reference, published: Published, workload: str) -> tuple[Datasheet, Datasheet] | None:
    """Datasheets of the device in the paper's log and of the reference's; None where one has none."""
    named = _profile_log(published, workload)["device"].dropna()
    old, new = datasheet.find(str(named.iloc[0])) if len(named) else None, datasheet.find(reference.device)
    return None if old is None or new is None else (old, new)


def epoch_steps(reference: Reference, workload: str) -> int | None:
    """Training steps of the paper's one epoch at the reference's batch size; None where the batch is unknown."""
    batches = having(reference.metrics, campaign=PROFILE, workload=workload)["batch"].dropna()
    return math.ceil(describe_workload(workload)["samples"] / int(batches.iloc[0])) if len(batches) else None


def comparison_table(reference: Reference, published: Published, workload: str) -> Table:
    """Published numbers and the reference's, with their ratio."""
    model = published.measured_with.device.name.split()[-1] if published.measured_with else "device"
    note = (
        "Published: recomputed from the paper's logs by kernel, on its host. Another release of the framework runs "
        "other kernels, so a ratio need not come from the device."
    )
    if (sheets := _sheets(reference, published, workload)) is not None:
        old, new = sheets
        memory = significant(new.memory_bytes_per_s / old.memory_bytes_per_s, 2)
        peak = significant(new.peak_flop_per_s["fp32"] / old.peak_flop_per_s["fp32"], 2)
        note += (
            f" According to the datasheets, {new.name} has {memory} times the bandwidth of {old.name} and {peak} "
            "times its fp32 peak. A kernel that is bound by its launch gains neither."
        )
    columns: dict[str, Reader] = {
        "": lambda one: Cell(text=one.title, below=one.meaning),
        "published": lambda one: with_unit(one.published, one.unit),
        "reference": lambda one: None if one.here is None else with_unit(one.here, one.unit),
        "ratio": field("ratio_text"),
    }
    caption = f"{workload_title(workload)}: the paper's {model} compared with {reference.device}"
    return Table.of(compared_numbers(reference, published, workload), columns, caption=caption, note=note)


def section(evidence: Evidence) -> Mapping[str, Any]:
    """What there is to show: every reference, newest first, and those that can't be read."""
    papers = [load(name) for name in evidence.papers] if evidence.references else []
    return {
        "references": [_reference(one, papers) for one in evidence.references],
        "broken": [f"The reference {one.name} can't be read: {one.reason}" for one in evidence.broken_references],
        "absent": NONE if not evidence.references else None,
    }


def _reference(reference: Reference, papers: Sequence[Published]) -> dict[str, Any]:
    names, metrics, record = reference.workloads, reference.metrics, reference.ceilings
    swept = set(having(metrics, campaign=SWEEP)["workload"])
    weighed = (name for name in names if level_campaigns(metrics, name))
    found = {name: compared_rows(reference.verdicts, metrics, name) for name in weighed}
    notes = (f"{sentence_case(note).rstrip('.')}." for note in reference.record["notes"])
    shown = {
        "name": reference.name,
        "lead": lead(reference),
        "facts": facts_table(reference),
        "notes": [*environment_sentences(reference), *part_sentences(reference), *notes],
        "steps": _filled([steps_table(reference)]),
        "claims": _filled([claims_table(reference, [paper.paper for paper in papers])]),
        "ceilings": inside.ceiling_sentences(record) if record else [NO_CEILINGS],
        "ceiling_tables": [inside.bandwidth_table(record), inside.product_table(record)] if record else [],
        "glances": answer.glances(reference),
        "verdict_tables": _filled(number_tables.verdicts_table(reference, name) for name in names),
        "choices": [settings.weighed(rows, metrics, name) for name, rows in found.items()],
        "profiles": _filled(
            inside.metrics_table(
                metrics, name, reference.environments, f"{workload_title(name)}: a profiled launch there"
            )
            for name in names
        ),
        "batches": [number_tables.batch_numbers(reference, name) for name in names if name in swept],
        "comparison_tables": _filled(
            comparison_table(reference, paper, name) for paper in papers for name in names
        ),
    }
    return {part: _there(found, reference.name) for part, found in shown.items()}


def _there(shown: Any, name: str) -> Any:
    """What is shown, each table with the machine's name in its caption: this machine's has the same otherwise."""
    if isinstance(shown, Table):
        return shown if name in shown.caption else replace(shown, caption=f"{shown.caption}, on {name}")
    if isinstance(shown, SimpleNamespace):
        return SimpleNamespace(**{part: _there(found, name) for part, found in vars(shown).items()})
    return [_there(one, name) for one in shown] if isinstance(shown, list) else shown


def lead(reference: Reference) -> str:
    """Which machine it was, and what its comparisons gave."""
    rows = joint(reference.verdicts)
    text = f"{reference.device}, recorded {str(reference.record['at'])[:10]}."
    if rows.empty:
        return f"{text} Only the host ran there, so there is nothing to compare."
    counted = rows[rows["metric"].isin(("real_s", "step_s"))].to_dict("records")
    return f"{text} {tally(counted, 'Whole runs and training steps')}"


def facts_table(reference: Reference) -> Table:
    """The reference machine: what its record says, its processor and its GPUs."""
    rows: list[Row] = [["Device", reference.device]]
    rows += [[title, _named(key, reference.record[key])] for key, title in facts_of("campaign").items()]
    machine = reference.machine.facts() if reference.machine else {}
    known = {key: title for key, title in facts_of("reference").items() if machine.get(key) is not None}
    rows += [[title, value_text(key, machine[key])] for key, title in known.items()]
    rows += gpu_rows(machine)
    return Table(caption=f"The reference machine {reference.name}", columns=["", "value"], rows=rows, wide=False)


def _named(key: str, value: Any) -> str:
    """A fact that is a text, or a mapping with its version first."""
    if not isinstance(value, Mapping):
        return value_text(key, value)
    rest = {name: inner for name, inner in value.items() if name != "version" and inner is not None}
    if rest.get("commit"):
        rest["commit"] = str(rest["commit"])[:10]
    return f"{value.get('version')}; {value_text(key, rest)}" if rest else str(value.get("version"))


def environment_sentences(reference: Reference) -> list[str]:
    """Which environments ran there, and why the others did not."""
    found = reference.record["environments"]
    ran = [env_title(env) for env in reference.environments]
    absent = {env: row["reason"] for env, row in found.items() if not row["available"]}
    lines = [f"Ran there: {listed(ran)}." if ran else "No environment ran there."]
    return lines + [f"{env_title(env)} did not run: {reason}." for env, reason in absent.items()]


def steps_table(reference: Reference) -> Table:
    """A training step on the host, and its A/A control: how far apart two equal hosts are."""
    rows = reference.metrics
    rows = of_hosts(rows[(rows["metric"] == "step_s") & rows["batch"].notna()])
    factors = [factor for factor in SETTINGS if level_column(factor) in rows]
    made: list[Row] = []
    parts = ["workload", *columns_of_levels(rows.columns), "batch"]
    for (workload, *_, batch), own in rows.groupby(parts, sort=False, dropna=False):
        levels = {factor: own[level_column(factor)].iloc[0] for factor in factors}
        setting = levels_text({factor: str(level) for factor, level in levels.items() if not missing(level)})
        step_s = own.loc[own["launch"] == HOST, "value"].mean()  # NaN of a setting that ran nowhere
        timed = [None, None] if missing(step_s) else [seconds(step_s), significant(batch / step_s)]
        units = own.pivot_table(index="rep", columns="launch", values="value").to_dict("index")
        ratios = log_ratios_of(list(units.values()), [CONTROL])[CONTROL]
        found = t_interval(ratios, 1 - CONFIDENCE)
        ends: list[float | None] = (
            [math.exp(end) for end in found.mean_low_high[1:]] if found.mean_low_high else [None, None]
        )
        made.append(
            [Cell(text=workload_title(workload), below=setting), str(int(batch)), *timed,
             str(len(ratios)), number_tables.interval_text(*ends)]
        )  # fmt: skip
    return Table(
        caption="A training step on the host, and the A/A control",
        columns=["", "batch", "step", "samples per second", "n", "A/A control"],
        rows=made,
        note="A step: mean over launches of the host. A/A control: ratio of the second host's step to the first's, "
        f"{100 * CONFIDENCE:.0f}% confidence interval over n pairs of consecutive launches. It shows how small a "
        "difference this machine could have shown.",
        numeric=True,
        wide=False,
    )


def claims_table(reference: Reference, papers: Collection[str]) -> Table:
    """What papers claim of a device, with what this one says; claims of which nothing was measured are left out."""
    rows = reference.claims[reference.claims["paper"].isin(papers) & (reference.claims["evidence"] != NOTHING)]
    return Table.of(
        rows.to_dict("records"),
        {
            "": lambda row: Cell(text=workload_title(row["workload"]), below=row["paper"]),
            "claim": field("statement"),
            "here": field("here"),
            "measured": field("evidence"),
            "why": field("reason"),
        },
        caption=f"Claims of papers about a device, checked on {reference.device}",
        note="This is another device of the same class, with another stack. It can neither confirm nor refute a "
        "claim about the paper's own machine.",
    )


def part_sentences(reference: Reference) -> list[str]:
    """How long it took, and the parts that gave less than was planned, each with its reason."""
    record = reference.record
    done = sum(part["status"] == "ok" for part in record["parts"])
    took = sum(run["wall_s"] for run in record["runs"])
    lines = [f"{done} of {len(record['parts'])} parts ran completely, in {seconds(took)}."]
    short = [part for part in record["parts"] if part["status"] != "ok"]
    late = [part["name"] for part in short if part["record"] is None and part["reason"].startswith(NO_TIME)]
    lines += [f"{sentence_case(NO_TIME)} for {listed(late)}."] if late else []
    return lines + [f"{one['name']}: {one['status']}: {one['reason']}." for one in short if one["name"] not in late]


def _filled(found: Iterable[Table]) -> list[Table]:
    return [table for table in found if table.rows]
