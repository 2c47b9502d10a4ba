"""The sections of the page, in its order: each has one template of its name, and what that template shows.

A section's template sees its own context and what every section shares (`workloads`, `colours`, `figure`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tare.literature import published
from tare.report import (
    answer,
    audit_tables,
    choices,
    conditions,
    count_tables,
    designs,
    facts,
    gpus,
    image_costs,
    instrument,
    job_length,
    losses,
    material,
    method,
    number_tables,
    paper,
    profiles,
    reference_section,
    rooflines,
    settings,
    stacks,
    tries,
    why,
)
from tare.report.evidence import Evidence

Context = Mapping[str, Any]


class Section(NamedTuple):
    """One section of the page.

    Attributes:
        name: of its template and its anchor.
        title: in the contents.
        context: what its template shows; None where there is nothing to show: it is left out of page and contents.
    """

    name: str
    title: str
    context: Callable[[Evidence], Context | None]


def present(evidence: Evidence) -> list[tuple[Section, Context]]:
    """The sections of this page, each with its context."""
    found = ((section, section.context(evidence)) for section in SECTIONS)
    return [(section, context) for section, context in found if context is not None]


def _answer(evidence: Evidence) -> Context:
    return {
        "answers": answer.answers(evidence),
        "unavailable": designs.unavailable(evidence),
        "troubles": designs.troubles(evidence),
    }


def _job(evidence: Evidence) -> Context | None:
    found = job_length.sections(evidence)
    return {"jobs": found} if found else None


def _paper(evidence: Evidence) -> Context | None:
    found = [_one_paper(evidence, published.load(name)) for name in evidence.papers]
    return {"papers": found} if found else None


def _one_paper(evidence: Evidence, study: published.Published) -> Context:
    return {
        "title": study.title,
        "summary": paper.summary(evidence, study.paper),
        "claims": paper.claim_cards(evidence, study.paper),
        "figures": paper.figure_rows(evidence, study),
        "audit": audit_tables.groups(evidence, study.paper),
        "tables": paper.specification_tables(evidence, study.paper),
    }


def _time(evidence: Evidence) -> Context:
    return {
        "times": {name: number_tables.times_table(evidence, name) for name in evidence.workloads},
        "steps": {name: number_tables.steps_table(evidence, name) for name in evidence.workloads},
        "counts": {name: count_tables.counts_table(evidence, name) for name in evidence.workloads},
        "verdicts": {name: number_tables.verdicts_table(evidence, name) for name in evidence.workloads},
    }


def _batch(evidence: Evidence) -> Context:
    return {
        "batches": {name: number_tables.batch_numbers(evidence, name) for name in evidence.workloads},
        "repeats_a_paper": bool(evidence.papers),
        "batch_sentences": [number_tables.batch_sentence(evidence, name) for name in evidence.workloads],
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
        "deviations": conditions.deviation_sentences(evidence),
    }


def _method(evidence: Evidence) -> Context:
    return {
        "method": method.method_sentences(evidence),
        "instrument": [t for t in (instrument.settled_table(evidence), instrument.components_table(evidence)) if t],
        "protocols": instrument.protocol_tables(evidence),
        "benchmark": instrument.benchmark_table(evidence),
        "limits": method.limit_sentences(evidence),
    }


def _provenance(evidence: Evidence) -> Context:
    return {
        "provenance": conditions.provenance_table(evidence),
        "ledger": tries.ledger_table(evidence),
        "ledger_sentences": tries.ledger_sentences(evidence),
    }


def _choices(evidence: Evidence) -> Context | None:
    found = choices.sections(evidence.metrics, evidence.verdicts, evidence.workloads)
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
            "stack_losses": {item.name: stacks.loss_sentence(evidence, item.name) for item in found},
        }
        if evidence.other_stacks()
        else None
    )


SECTIONS = (
    Section("job", "By job length", _job),
    Section("answer", "Answer", _answer),
    Section("paper", "The paper", _paper),
    Section("choices", "Environment or settings?", _choices),
    Section("time", "Time", _time),
    Section("why", "Why", _why),
    Section("arms", "Arms", _arms),
    Section("stacks", "Stacks", _stacks),
    Section("batch", "Batch size", _batch),
    Section("roofline", "Roofline", lambda evidence: {"roof": rooflines.section(evidence)}),
    Section("profiles", "Profiles", _profiles),
    Section("reference", "Reference machine", reference_section.section),
    Section("images", "Images", _images),
    Section("data", "Data", _data),
    Section("machine", "Machine", _machine),
    Section("conditions", "Conditions", _conditions),
    Section("method", "Method", _method),
    Section("provenance", "Provenance", _provenance),
)
