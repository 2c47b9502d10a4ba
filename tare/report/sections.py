"""The sections of the report, in their order: each has a template, a page that it stands on, and what it shows.

A section's template sees its own context and what every section shares (`workloads`, `colours`, `figure`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tare.literature import published
from tare.report import number_tables
from tare.report.answers import advice, answer, instances, job_length, minutes, more_time, neighbours, scenarios
from tare.report.arms import choices, settings, stacks
from tare.report.evidence import Evidence
from tare.report.images import break_even, image_costs, naive_image
from tare.report.machine import conditions, differing, facts, gpus, material, others, pipeline, profiles, rooflines
from tare.report.methods import designs, failures, instrument, losses, method, tries
from tare.report.papers import audit_tables, paper, reference_section
from tare.report.reasons import count_tables, why

Context = Mapping[str, Any]


class Section(NamedTuple):
    """One section of the report.

    Attributes:
        name: of its template and its anchor.
        title: in the contents.
        page: which page it stands on, as tare.report.pages calls it.
        context: what its template shows; None where there is nothing to show: it is left out of page and contents.
    """

    name: str
    title: str
    page: str
    context: Callable[[Evidence], Context | None]


def present(evidence: Evidence) -> list[tuple[Section, Context]]:
    """The sections of this report, each with its context; every paper has one of its own."""
    papers = [_paper_section(published.load(name)) for name in evidence.papers]
    found = ((section, section.context(evidence)) for section in (*BESIDE_THE_HOST, *papers, *BEHIND))
    return [(section, context) for section, context in found if context is not None]


def _paper_section(study: published.Published) -> Section:
    page = f"paper-{study.paper}"
    return Section(
        "paper", f"The paper {study.paper}", page, lambda evidence: {"paper": _one_paper(evidence, study)}
    )


def _answer(evidence: Evidence) -> Context:
    return {
        "answers": answer.answers(evidence),
        "unavailable": designs.unavailable(evidence),
        "troubles": designs.troubles(evidence),
    }


def _job(evidence: Evidence) -> Context | None:
    found = job_length.sections(evidence)
    return {"jobs": found} if found else None


def _scenarios(evidence: Evidence) -> Context | None:
    found = scenarios.matrix(evidence)
    return {"matrix": found} if found else None


def _more(evidence: Evidence) -> Context | None:
    found = more_time.section(evidence)
    return {"more": found, "minutes": minutes.sentence(evidence)} if found else None


def _one_paper(evidence: Evidence, study: published.Published) -> Context:
    return {
        "title": study.title,
        "summary": paper.summary(evidence, study.paper),
        "claims": paper.claim_cards(evidence, study.paper),
        "figures": paper.figure_rows(evidence, study),
        "audit": audit_tables.groups(evidence, study),
        "tables": paper.tables_apart(evidence, study),
        "more": paper.more_time_lines(evidence, study.paper),
        "names": paper.names(study),
    }


def _time(evidence: Evidence) -> Context:
    return {
        "times": {name: number_tables.times_table(evidence, name) for name in evidence.workloads},
        "steps": {name: number_tables.steps_table(evidence, name) for name in evidence.workloads},
        "counts": {name: count_tables.counts_table(evidence, name) for name in evidence.workloads},
        "verdicts": {name: number_tables.verdicts_table(evidence, name) for name in evidence.workloads},
    }


def _beside(evidence: Evidence) -> Context | None:
    found = neighbours.answers(evidence)
    return {"beside": found} if found else None


def _batch(evidence: Evidence) -> Context | None:
    swept = [name for name in evidence.workloads if evidence.study.workloads[name].sweep_batches]
    if not swept:
        return None
    return {
        "batches": {name: number_tables.batch_numbers(evidence, name) for name in swept},
        "as_published": [told for name in evidence.papers if (told := paper.lines_of(published.load(name)))],
        "batch_sentences": [number_tables.batch_sentence(evidence, name) for name in swept],
    }


def _profiles(evidence: Evidence) -> Context:
    return {
        "profiles": {name: profiles.profile_table(evidence, name) for name in evidence.workloads},
        "counters": profiles.counter_sentences(evidence.profiles),
        "on_device": evidence.study.device == "cuda",
    }


def _images(evidence: Evidence) -> Context:
    return {
        "costs": image_costs.parts(evidence),
        "images": material.images_table(evidence),
        "packages": facts.package_list(evidence),
        "mapped": material.mapped_table(evidence),
    }


def _naive(evidence: Evidence) -> Context | None:
    found = naive_image.table(evidence)
    return {"naive": found} if found else None


def _break_even(evidence: Evidence) -> Context | None:
    found = break_even.section(evidence)
    return {**found, "defaults": json.dumps(found["defaults"])} if found else None


def _data(evidence: Evidence) -> Context:
    return {"data": material.data_sentences(evidence), "losses": losses.loss_checks(evidence)}


def _machine(evidence: Evidence) -> Context:
    return {
        "machine": facts.machine_table(evidence),
        "software": facts.software_table(evidence),
        "device": facts.device_table(evidence),
        "gpu_flags": gpus.flag_sentences(evidence.campaigns),
        "on_device": evidence.study.device == "cuda",
    }


def _conditions(evidence: Evidence) -> Context:
    return {
        "conditions": conditions.conditions_table(evidence),
        "differing": differing.differing_table(evidence),
        "others": others.others_table(evidence),
        "deviations": conditions.deviation_sentences(evidence),
    }


def _method(evidence: Evidence) -> Context:
    return {
        "method": method.method_sentences(evidence),
        "protocols": instrument.protocol_tables(evidence),
        "benchmark": instrument.benchmark_table(evidence),
        "failures": failures.failures_table(evidence),
        "limits": method.limit_sentences(evidence),
    }


def _provenance(evidence: Evidence) -> Context:
    return {
        "provenance": conditions.provenance_table(evidence),
        "ledger": tries.ledger_table(evidence),
        "ledger_sentences": tries.ledger_sentences(evidence),
    }


def _choices(evidence: Evidence) -> Context | None:
    found = choices.sections(evidence.metrics, evidence.verdicts, evidence.workloads, evidence.curves)
    return {"choices": found} if found else None


def _why(evidence: Evidence) -> Context | None:
    return {"arguments": why.arguments(evidence)} if why.has_causes(evidence) else None


def _arms(evidence: Evidence) -> Context | None:
    found = settings.sections(evidence)
    return {"arms": found} if found else None


def _stacks(evidence: Evidence) -> Context | None:
    found = stacks.sections(evidence)
    return (
        {
            "stacks": found,
            "stack_packages": stacks.package_table(evidence),
            "stack_steps": stacks.step_tables(evidence),
            "stack_losses": {item.name: stacks.loss_sentences(evidence, item.name) for item in found},
        }
        if evidence.other_stacks()
        else None
    )


BESIDE_THE_HOST = (
    Section("job", "By job length", "index", _job),
    Section("scenarios", "By scenario", "index", _scenarios),
    Section("advice", "What to do", "index", lambda evidence: {"advice": advice.lines(evidence)}),
    Section("more", "More time", "index", _more),
    Section("answer", "Answer", "environments", _answer),
    Section("time", "Time", "environments", _time),
    Section("beside", "Beside another job", "environments", _beside),
    Section("batch", "Batch size", "environments", _batch),
    Section("instances", "Several instances", "environments", instances.section),
)
BEHIND = (  # the papers
    Section("why", "Why", "why", _why),
    Section("profiles", "Profiles", "step", _profiles),
    Section("roofline", "Roofline", "step", lambda evidence: {"roof": rooflines.section(evidence)}),
    Section("choices", "Environment or settings?", "settings", _choices),
    Section("arms", "Arms", "settings", _arms),
    Section("stacks", "Stacks", "settings", _stacks),
    Section("images", "Images", "images", _images),
    Section("naive", "A naive image", "images", _naive),
    Section("break_even", "When building pays", "images", _break_even),
    Section("machine", "Machine", "machine", _machine),
    Section("pipeline", "Input", "machine", pipeline.section),
    Section("conditions", "Conditions", "machine", _conditions),
    Section("reference", "Reference machine", "machine", reference_section.section),
    Section("method", "Method", "method", _method),
    Section("data", "Data", "provenance", _data),
    Section("provenance", "Provenance", "provenance", _provenance),
)
SECTIONS = (*BESIDE_THE_HOST, *BEHIND)
