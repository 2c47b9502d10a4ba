"""The section of recorded reference campaigns: each beside this machine and beside what the paper published."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tare.analysis.choice import SWEEP, level_campaigns, of_hosts
from tare.analysis.decisions import compared_rows
from tare.literature.answers import NOTHING
from tare.literature.published import Published, load
from tare.model.journals.references import NO_TIME
from tare.model.levels import columns_of_levels, level_column, levels_text
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.arms import SETTINGS
from tare.report import figures, number_tables
from tare.report.answers import answer
from tare.report.arms import settings
from tare.report.evidence import Evidence
from tare.report.figures import joint
from tare.report.machine import gpus, profiles, rooflines
from tare.report.papers import beside_published
from tare.report.references import Reference
from tare.report.words.labels import env_title, seconds, sentence_case, significant, workload_title
from tare.report.words.layout import Cell, Row, Table, value_text
from tare.report.words.wording import listed, missing, tally
from tare.stats.intervals import log_ratios_of, t_interval

NONE = (
    "No reference campaign is recorded in this copy: on a machine with an NVIDIA GPU “make reference” writes one "
    "in under ten minutes."
)
NO_CEILINGS = "Unavailable: the reference has no record of measured ceilings."
CONFIDENCE = 0.95  # of the A/A control of steps
FACTS = {"at": "Recorded", "tare": "Tare", "torch": "PyTorch", "stack": "Stack"}


def section(evidence: Evidence) -> Mapping[str, Any]:
    """What there is to show: every reference, newest first, and those that can't be read."""
    papers = [load(name) for name in evidence.papers] if evidence.references else []
    return {
        "references": [_reference(one, papers) for one in evidence.references],
        "broken": [f"The reference {one.name} can't be read: {one.reason}" for one in evidence.broken_references],
        "absent": NONE if not evidence.references else None,
    }


def _reference(reference: Reference, papers: Sequence[Published]) -> dict[str, Any]:
    names, record = reference.workloads, reference.ceilings
    pairs = [(paper, name) for paper in papers for name in names]
    swept = set(reference.metrics.loc[reference.metrics["campaign"] == SWEEP, "workload"])
    return {
        "name": reference.name,
        "lead": lead(reference),
        "facts": facts_table(reference),
        "notes": [
            *environment_sentences(reference),
            *part_sentences(reference),
            *(f"{sentence_case(note).rstrip('.')}." for note in reference.record["notes"]),
        ],
        "steps": _filled([steps_table(reference)]),
        "claims": _filled([claims_table(reference, [paper.paper for paper in papers])]),
        "ceilings": rooflines.ceiling_sentences(record) if record else [NO_CEILINGS],
        "ceiling_tables": [rooflines.bandwidth_table(record), rooflines.product_table(record)] if record else [],
        "glances": answer.glances(reference),
        "verdict_tables": _filled(number_tables.verdicts_table(reference, name) for name in names),
        "choices": [
            settings.weighed(
                compared_rows(reference.verdicts, reference.metrics, name), reference.metrics, name
            )._replace(drawing=_drawing(reference, f"choices_{name}"))
            for name in names
            if level_campaigns(reference.metrics, name)
        ],
        "device_time": [_drawing(reference, f"device_time_{name}") for name in names],
        "device_samples": [_drawing(reference, f"device_samples_{name}") for name in names],
        "profiles": _filled(
            profiles.metrics_table(reference.metrics, name, reference.environments,
                                   f"{workload_title(name)}: a profiled launch there")
            for name in names
        ),
        "batches": [
            (number_tables.batch_sentence(reference, name), number_tables.batch_numbers(reference, name))
            for name in names if name in swept
        ],
        "beside_tables": _filled(beside_published.table(reference, paper, name) for paper, name in pairs),
    }  # fmt: skip


def lead(reference: Reference) -> str:
    """Which machine it was, and what its comparisons gave."""
    rows = joint(reference.verdicts)
    text = f"{reference.device}, recorded {str(reference.record['at'])[:10]}."
    if rows.empty:
        return f"{text} No environment but the host ran there: there is nothing to compare with it."
    counted = rows[rows["metric"].isin(("real_s", "step_s"))].to_dict("records")
    return f"{text} {tally(counted, 'Whole runs and training steps')}"


def facts_table(reference: Reference) -> Table:
    """The reference machine: what its record says, its processor and its GPUs."""
    rows: list[Row] = [["Device", reference.device]]
    rows += [[title, _named(key, reference.record[key])] for key, title in FACTS.items()]
    machine = reference.machine.told() if reference.machine else {}
    for key, title in (("cpu_model", "Processor"), ("cpu_logical", "Logical CPUs"), ("memory_bytes", "Memory")):
        if machine.get(key) is not None:
            rows.append([title, value_text(key, machine[key])])
    rows += gpus.gpu_rows(machine)
    return Table(caption=f"The reference machine {reference.name}", columns=["", "value"], rows=rows)


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
    lines = [f"Ran there: {listed(ran)}." if ran else "No environment ran there."]
    return lines + [
        f"{env_title(env)} did not: {row['reason']}." for env, row in found.items() if not row["available"]
    ]


def steps_table(reference: Reference) -> Table:
    """A training step on the host, and its A/A control: how far two hosts that are the same lie apart."""
    rows = reference.metrics
    rows = of_hosts(rows[(rows["metric"] == "step_s") & rows["batch"].notna()])
    factors = [factor for factor in SETTINGS if level_column(factor) in rows]
    made: list[Row] = []
    for (workload, *_, batch), own in rows.groupby(
        ["workload", *columns_of_levels(rows.columns), "batch"], sort=False, dropna=False
    ):
        levels = {factor: own[level_column(factor)].iloc[0] for factor in factors}
        setting = levels_text({factor: str(level) for factor, level in levels.items() if not missing(level)})
        step_s = float(own.loc[own["launch"] == HOST, "value"].mean())
        units = own.pivot_table(index="rep", columns="launch", values="value").to_dict("index")
        ratios = log_ratios_of(list(units.values()), [CONTROL])[CONTROL]
        found = t_interval(ratios, 1 - CONFIDENCE)
        ends = (None, None) if found.low is None else (math.exp(found.low), math.exp(found.high))
        made.append(
            [Cell(text=workload_title(workload), below=setting or None), str(int(batch)), seconds(step_s),
             significant(batch / step_s), str(len(ratios)), number_tables.interval_text(*ends)]
        )  # fmt: skip
    return Table(
        caption="A training step on the host, and the A/A control",
        columns=["", "batch", "step", "samples per second", "n", "A/A control"],
        rows=made,
        note="A step: mean over launches of the host. A/A control: ratio of the second host's step to the first's, "
        f"{100 * CONFIDENCE:.0f}% confidence interval of n pairs of launches, one after the other: how small a "
        "difference this machine could have shown.",
        numeric=True,
    )


def claims_table(reference: Reference, papers: Collection[str]) -> Table:
    """What papers claim of a device, with what this one says; claims of which nothing was measured are left out."""
    rows = reference.claims[reference.claims["paper"].isin(papers) & (reference.claims["evidence"] != NOTHING)]
    return Table.of(
        rows.to_dict("records"),
        {
            "": lambda row: Cell(text=workload_title(row["workload"]), below=row["paper"]),
            "claim": lambda row: row["statement"],
            "here": lambda row: row["here"],
            "measured": lambda row: row["evidence"],
            "why": lambda row: None if missing(row["reason"]) else row["reason"],
        },
        caption=f"What papers claim of a device, by {reference.device}",
        note="Another device of the same class, with another stack: it can neither confirm nor refute a claim on "
        "the paper's own machine.",
        wide=True,
    )


def part_sentences(reference: Reference) -> list[str]:
    """How long it took, and the parts that gave less than was planned, each with its reason."""
    record = reference.record
    done = sum(part["status"] == "ok" for part in record["parts"])
    took = sum(run["wall_s"] for run in record["runs"])
    lines = [f"{done} of {len(record['parts'])} parts ran whole, in {seconds(took)}."]
    short = [part for part in record["parts"] if part["status"] != "ok"]
    late = [part["name"] for part in short if part["record"] is None and part["reason"].startswith(NO_TIME)]
    lines += [f"{sentence_case(NO_TIME)} for {listed(late)}."] if late else []
    return lines + [f"{one['name']}: {one['status']}: {one['reason']}." for one in short if one["name"] not in late]


def _filled(found: Iterable[Table]) -> list[Table]:
    return [table for table in found if table.rows]


def _drawing(reference: Reference, name: str) -> Markup | None:
    """A drawing of the notebook, for the inside of the page; None where it was not drawn."""
    path = reference.figures.get(name)
    return Markup(figures.inline(path)) if path else None
