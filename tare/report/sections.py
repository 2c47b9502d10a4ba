"""The sections of the page, in its order: each has one template of its name, and what that template shows.

A section's template sees its own context and what every section shares (`workloads`, `colours`, `figure`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tare.report import (
    answer,
    audit_tables,
    choices,
    conditions,
    facts,
    gpus,
    image_costs,
    instrument,
    material,
    method,
    number_tables,
    paper,
    profiles,
    reference_section,
    rooflines,
    settings,
    stacks,
    why,
)
from tare.report.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section of the page.

    Attributes:
        name: of its template and its anchor.
        title: in the contents.
        context: what its template shows.
        fills: whether there is anything to show; an empty section is left out of page and contents.
    """

    name: str
    title: str
    context: Callable[[Evidence], Mapping[str, Any]]
    fills: Callable[[Evidence], bool] = lambda evidence: True


def present(evidence: Evidence) -> list[tuple[Section, Mapping[str, Any]]]:
    """The sections of this page, each with its context."""
    return [(section, section.context(evidence)) for section in SECTIONS if section.fills(evidence)]


def _answer(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "answers": answer.answers(evidence),
        "unavailable": answer.unavailable(evidence),
        "troubles": answer.troubles(evidence),
    }


def _paper(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "paper": {
            "title": paper.title(),
            "summary": paper.summary(evidence),
            "claims": paper.claim_cards(evidence),
            "figures": paper.figure_rows(evidence),
            "audit": audit_tables.groups(evidence),
            "tables": paper.specification_tables(evidence),
        }
    }


def _time(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "times": {name: number_tables.times_table(evidence, name) for name in evidence.workloads},
        "steps": {name: number_tables.steps_table(evidence, name) for name in evidence.workloads},
        "verdicts": {name: number_tables.verdicts_table(evidence, name) for name in evidence.workloads},
    }


def _batch(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "batches": {name: number_tables.batch_numbers(evidence, name) for name in evidence.workloads},
        "batch_sentences": [number_tables.batch_sentence(evidence, name) for name in evidence.workloads],
    }


def _profiles(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "profiles": {name: profiles.profile_table(evidence, name) for name in evidence.workloads},
        "counters": profiles.counter_sentences(evidence.profiles),
        "on_device": evidence.study.device == "cuda",
    }


def _images(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "costs": image_costs.parts(evidence),
        "images": material.images_table(evidence),
        "packages": facts.package_list(evidence),
        "mapped": material.mapped_table(evidence),
    }


def _data(evidence: Evidence) -> Mapping[str, Any]:
    return {"data": material.data_sentences(evidence), "losses": answer.loss_checks(evidence)}


def _machine(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "machine": facts.machine_table(evidence),
        "software": facts.software_table(evidence),
        "device": facts.device_table(evidence),
        "gpu_flags": gpus.flag_sentences(evidence.campaigns),
        "on_device": evidence.study.device == "cuda",
    }


def _conditions(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "conditions": conditions.conditions_table(evidence),
        "deviations": conditions.deviation_sentences(evidence),
    }


def _method(evidence: Evidence) -> Mapping[str, Any]:
    return {
        "method": method.method_sentences(evidence),
        "instrument": [t for t in (instrument.settled_table(evidence), instrument.components_table(evidence)) if t],
        "protocols": instrument.protocol_tables(evidence),
        "benchmark": instrument.benchmark_table(evidence),
        "limits": method.limit_sentences(evidence),
    }


def _tables_of(evidence: Evidence) -> tuple[Any, Any, list[str]]:
    return evidence.metrics, evidence.verdicts, evidence.workloads


def _stacks(evidence: Evidence) -> Mapping[str, Any]:
    found = stacks.sections(evidence)
    return {
        "stacks": found,
        "stack_packages": stacks.package_table(evidence),
        "stack_losses": {item.name: stacks.loss_sentence(evidence, item.name) for item in found},
    }


SECTIONS = (
    Section(name="answer", title="Answer", context=_answer),
    Section(name="paper", title="The paper", context=_paper),
    Section(
        name="choices",
        title="Environment or settings?",
        context=lambda evidence: {"choices": choices.sections(*_tables_of(evidence))},
        fills=lambda evidence: bool(choices.sections(*_tables_of(evidence))),
    ),
    Section(name="time", title="Time", context=_time),
    Section(
        name="why",
        title="Why",
        context=lambda evidence: {"arguments": why.arguments(evidence)},
        fills=why.has_causes,
    ),
    Section(
        name="arms",
        title="Arms",
        context=lambda evidence: {"arms": settings.sections(evidence)},
        fills=lambda evidence: bool(settings.sections(evidence)),
    ),
    Section(
        name="stacks",
        title="Stacks",
        context=_stacks,
        fills=lambda evidence: bool(evidence.other_stacks()),
    ),
    Section(name="batch", title="Batch size", context=_batch),
    Section(
        name="roofline",
        title="Roofline",
        context=lambda evidence: {"roof": rooflines.section(evidence)},
    ),
    Section(name="profiles", title="Profiles", context=_profiles),
    Section(name="reference", title="Reference machine", context=reference_section.section),
    Section(name="images", title="Images", context=_images),
    Section(name="data", title="Data", context=_data),
    Section(name="machine", title="Machine", context=_machine),
    Section(name="conditions", title="Conditions", context=_conditions),
    Section(name="method", title="Method", context=_method),
    Section(
        name="provenance",
        title="Provenance",
        context=lambda evidence: {"provenance": conditions.provenance_table(evidence)},
    ),
)
