"""The one report page: self-contained, opens from disk with no network; every number from a table or a record."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tare import __version__, figures
from tare.errors import UserError
from tare.figures import style
from tare.files import project_root, write_text
from tare.labels import workload_title
from tare.report import answer, conditions, facts, instrument, material, method, number_tables, settings
from tare.report.evidence import Evidence, gather
from tare.study import CONTROL

FOLDER = "tare/templates"
NOTEBOOKS = {
    "environments": "Environments",
    "batch_size": "Batch size",
    "roofline": "Roofline",
}
TABLES = ("metrics", "verdicts", "operators", "samples", "fingerprints")


def build(results: Path, shared: Path, study_source: str, out: Path) -> Path:
    """Write the report of a study; returns its path.

    Args:
        results: folder of the study's tables, figures and notebooks.
        shared: folder of campaigns, images, data and probes.
        study_source: study file, or the study as inline JSON.
        out: the page.

    Raises:
        UserError: a table or a figure is missing.
        IntegrityError: a table, a record or a campaign is damaged.
    """
    write_text(out, render(gather(results, shared, study_source), out.parent))
    return out


def render(evidence: Evidence, folder: Path) -> str:
    """The page's HTML; links to other results are relative to `folder`."""
    templates = Templates(
        loader=FileSystemLoader(project_root() / FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = (project_root() / FOLDER / "page.css").read_text(encoding="utf-8")
    return templates.get_template("report.html.j2").render(
        css=Markup(css),
        figure=lambda name: _figure(evidence.results, name),
        links=_links(evidence.results, folder),
        **_context(evidence),
    )


def _context(evidence: Evidence) -> dict[str, Any]:
    return {
        "study": evidence.study,
        "version": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "workloads": [{"name": name, "title": workload_title(name)} for name in evidence.workloads],
        "summary": answer.summary(evidence),
        "glances": answer.glances(evidence),
        "answers": answer.answers(evidence),
        "colours": {env: style.paint(env) for env in (*evidence.environments, CONTROL)},
        "unavailable": answer.unavailable(evidence),
        "troubles": answer.troubles(evidence),
        "losses": answer.loss_checks(evidence),
        "times": {name: number_tables.times_table(evidence, name) for name in evidence.workloads},
        "steps": {name: number_tables.steps_table(evidence, name) for name in evidence.workloads},
        "arms": settings.sections(evidence),
        "verdicts": {name: number_tables.verdicts_table(evidence, name) for name in evidence.workloads},
        "batches": {name: number_tables.batch_numbers(evidence, name) for name in evidence.workloads},
        "batch_sentences": [number_tables.batch_sentence(evidence, name) for name in evidence.workloads],
        "roofline_sentences": number_tables.roofline_sentences(evidence),
        "profiles": {name: number_tables.profile_table(evidence, name) for name in evidence.workloads},
        "images": material.images_table(evidence),
        "packages": facts.package_list(evidence),
        "data": material.data_sentences(evidence),
        "machine": facts.machine_table(evidence),
        "software": facts.software_table(evidence),
        "device": facts.device_table(evidence),
        "conditions": conditions.conditions_table(evidence),
        "deviations": conditions.deviation_sentences(evidence),
        "mapped": material.mapped_table(evidence),
        "method": method.method_sentences(evidence),
        "instrument": [t for t in (instrument.settled_table(evidence), instrument.components_table(evidence)) if t],
        "protocols": instrument.protocol_tables(evidence),
        "benchmark": instrument.benchmark_table(evidence),
        "limits": method.limit_sentences(evidence),
        "provenance": conditions.provenance_table(evidence),
    }


def _figure(results: Path, name: str) -> Markup:
    path = results / "figures" / f"{name}.svg"
    if not path.exists():
        raise UserError(f"no figure {path}: make it with `snakemake {path}`")
    return Markup(figures.inline(path))  # our own drawing: its texts were escaped when it was written


def _links(results: Path, folder: Path) -> dict[str, list[dict[str, str]]]:
    """Notebooks and tables that lie beside the page, by relative address."""

    def existing(paths: dict[Path, str]) -> list[dict[str, str]]:
        return [
            {"href": Path(os.path.relpath(path, folder)).as_posix(), "title": title}
            for path, title in paths.items()
            if path.exists()
        ]

    return {
        "notebooks": existing({results / f"notebooks/{name}.html": title for name, title in NOTEBOOKS.items()}),
        "tables": existing({results / f"tables/{name}.csv": name for name in TABLES}),
    }
