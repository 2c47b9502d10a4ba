"""The one report page: self-contained, opens from disk with no network; every number from a table or a record."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tare import __version__
from tare.core.errors import UserError
from tare.core.files import project_root, write_text
from tare.model import tables
from tare.model.study import CONTROL
from tare.report import answer, figures
from tare.report.evidence import Evidence, gather
from tare.report.figures import style
from tare.report.labels import workload_title
from tare.report.sections import present

FOLDER = "tare/report/templates"
NOTEBOOKS = {
    "nyu2022": "The paper's figures",
    "job_length": "What a job costs, by its length",
    "environments": "Environments",
    "why": "Why",
    "image_costs": "What an image costs",
    "choices": "Environment or settings",
    "device": "The device",
    "reference": "Reference machines",
    "batch_size": "Batch size",
    "roofline": "Roofline",
}


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
    shared = {
        "figure": lambda name: _figure(evidence.results, name),
        "links": _links(evidence.results, folder),
        **_context(evidence),
    }
    sections = [
        {
            "name": section.name,
            "title": section.title,
            "html": Markup(templates.get_template(f"sections/{section.name}.html.j2").render(**shared, **context)),
        }
        for section, context in present(evidence)
    ]
    return templates.get_template("report.html.j2").render(css=Markup(css), sections=sections, **shared)


def _context(evidence: Evidence) -> dict[str, Any]:
    """What every section shares, and the head of the page."""
    return {
        "study": evidence.study,
        "version": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "workloads": [{"name": name, "title": workload_title(name)} for name in evidence.workloads],
        "summary": answer.summary(evidence),
        "together": answer.together(evidence),
        "glances": answer.glances(evidence),
        "colours": {env: style.paint(env) for env in (*evidence.environments, CONTROL)},
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
        "tables": existing({results / f"tables/{name}.csv": name for name in tables.NAMES}),
    }
