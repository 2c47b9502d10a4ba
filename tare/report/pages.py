"""The pages of a report: which sections each has, the navigation that all share, and the files next to them.

Every page is whole in itself and opens from disk with no network; a content-security policy keeps strings from
outside from being anything but text. `index` is the answer, `print` has all of it, to print and to search, and the
overview links the reports of all studies under the results of this checkout.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tare import __version__
from tare.core.errors import UserError
from tare.core.files import project_root, write_text
from tare.core.policy import allowed
from tare.model import tables
from tare.model.roles import CONTROL
from tare.model.studies.study import Study
from tare.report import answer, machine, method, notebooks, scenarios
from tare.report.evidence import Evidence
from tare.report.figures import style
from tare.report.sections import present
from tare.report.words.labels import titles_in, workload_title
from tare.report.words.layout import remedy, unbroken
from tare.report.words.wording import verdict_text

FOLDER = "tare/report/templates"
INDEX, PRINT = "index.html", "print.html"
OVERVIEW = "studies.html"
# Every page runs COPY, and SCRIPTS by its sections; the page that has all of them, FIND.
COPY, FIND = "copy.js", "search.js"
SCRIPTS = {"break_even": "break_even.js"}
NOTEBOOKS = {
    "environments": "What each environment costs",
    "job_length": "What a job costs, by its length",
    "why": "Why environments differ",
    "profile": "What a launch does while it trains",
    "choices": "Environment or settings",
    "batch_size": "Batch size",
    "roofline": "Roofline",
    "device": "The GPU",
}


class Page(NamedTuple):
    """One page: its name, as sections call it and of its file, its title in the navigation, and its heading.

    `about`: what a reader finds there.
    """

    name: str
    title: str
    heading: str
    about: str = ""

    @property
    def file(self) -> str:
        """Its name on the disk."""
        return f"{self.name}.html"


ANSWER = Page("index", "Answer", "What does an execution environment cost this training?")
AFTER_IT = titles_in("pages.csv")  # title, heading, what is there; in the order of the navigation


def pages_of(papers: Sequence[str]) -> list[Page]:
    """Every page that a study which repeats these papers may have, in the order of the navigation."""
    pages = [ANSWER]
    for name, texts in AFTER_IT.items():
        each = [{"paper": paper} for paper in papers] if "{paper}" in name else [{}]
        pages += [Page(*(text.format(**one) for text in (name, *texts))) for one in each]
    return pages


def write_site(evidence: Evidence, folder: Path, overview: Path | None = None) -> Path:
    """Write every page, the answer last; pages of an earlier report that it has no longer are removed.

    `overview` is the folder of all results of this checkout, which gets the page that links every study's report;
    None where the pages are elsewhere. Returns the answer's page. Raises UserError: a figure is missing.
    """
    found = render(evidence, folder, os.path.relpath(overview / OVERVIEW, folder) if overview else None)
    for path in set(folder.glob("*.html")) - {folder / name for name in found}:
        if 'content="Tare ' in path.read_text(encoding="utf-8")[:4096]:
            path.unlink()
    for name in sorted(found, key=lambda name: name == INDEX):
        write_text(folder / name, found[name])
    if overview:
        write_overview(overview)
    return folder / INDEX


def render(evidence: Evidence, folder: Path, overview: str | None = None) -> dict[str, str]:
    """The HTML of every page by its file's name; links to other results are relative to `folder`."""
    shelf = templates()
    shared = {
        **_head(),
        "overview": overview,
        "figure": lambda name: _figure(evidence.results, name),
        "links": _links(evidence, folder),
        **_context(evidence),
    }

    def page_of(template: str, file: str, heading: str, script: str | None = None, **own: Any) -> str:
        """A page by its template, with its scripts and the hash that allows them."""
        text = "\n".join(read_template(name) for name in (COPY, script) if name)
        run = {"scripts": Markup(allowed(text)), "script": Markup(text)}
        return shelf.get_template(template).render(**shared, **run, **own, file=file, heading=heading)

    sections: dict[str, list[dict[str, Any]]] = {}
    for section, found in present(evidence):
        html = shelf.get_template("parts.html.j2").render(**shared, section=section, found=found)
        own = {"name": section.name, "title": section.title, "html": Markup(html)}
        sections.setdefault(section.page, []).append(own)
    pages = [page for page in pages_of(evidence.papers) if page is ANSWER or page.name in sections]
    shared["pages"] = [{"file": page.file, **page._asdict()} for page in pages]
    done = {}
    for page in pages:
        its = sections.setdefault(page.name, [])
        script = next((SCRIPTS[one["name"]] for one in its if one["name"] in SCRIPTS), None)
        template = "index.html.j2" if page is ANSWER else "page.html.j2"
        done[page.file] = page_of(template, page.file, page.heading, script, sections=its)
    every = [section for page in pages for section in sections[page.name]]
    done[PRINT] = _opened(page_of("print.html.j2", PRINT, ANSWER.heading, FIND, sections=every))
    return done


def alone(template: str, **shown: Any) -> str:
    """A page that is no part of a report, by the name of its template."""
    return templates().get_template(template).render(**_head(), **shown)


def _head() -> dict[str, Any]:
    """What every page says of itself, and its style."""
    written = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return {"css": Markup(read_template("page.css")), "version": __version__, "written": written}


def templates() -> Templates:
    """Those of the pages, with the filters that they use."""
    found = Templates(
        loader=FileSystemLoader(project_root() / FOLDER), undefined=StrictUndefined,
        autoescape=True, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters.update(unbroken=unbroken, verdict_text=verdict_text)
    return found


def read_template(name: str) -> str:
    """The text of a file in the folder of the templates."""
    return (project_root() / FOLDER / name).read_text(encoding="utf-8")


def _opened(html: str) -> str:
    """Nothing is folded on paper, and links lead within the one page."""
    html = html.replace("<details>", "<details open>")
    return re.sub(r'href="[a-z0-9-]+\.html#', 'href="#', html)


def _context(evidence: Evidence) -> dict[str, Any]:
    """What every section shares, and the head of the pages."""
    return {
        "study": evidence.study,
        "place": evidence.machine.name if evidence.study.machines and evidence.machine else None,
        "scaled": scaled(evidence.study),
        "failed": notebooks.failed(evidence.results / "notebooks"),
        "summary": answer.summary(evidence),
        "together": answer.together(evidence),
        "others_note": machine.others_note(evidence),
        "glances": answer.glances(evidence),
        "interval_notes": answer.notes(evidence),
        "not_run": [
            one._replace(remedy=remedy(one.remedy) if one.remedy else None)
            for env, one in method.absent(evidence).items()
            if env not in set(evidence.verdicts["launch"])  # nor in another scenario
        ],
        "colours": {env: style.paint(env) for env in (*evidence.environments, CONTROL)},
    }


def scaled(study: Study) -> list[str]:
    """What of each workload's job is not as it was published, next to the published value; heads every page."""
    texts = {workload_title(name): settings.scaled(name) for name, settings in study.workloads.items()}
    if (groups := study.distributed) is not None:
        for name in groups.trained(study.workloads):
            if (words := scenarios.steps_of(groups, study.workloads[name])) is not None:
                texts[f"{workload_title(name)} in several instances"] = words
    if (shared := study.shared) is not None:
        texts[f"The co-runner, {workload_title(shared.workload)}"] = shared.scaled(shared.workload)
    return [f"{name}: {text}" for name, text in texts.items() if text]


def _figure(results: Path, name: str) -> Markup:
    path = results / "figures" / f"{name}.svg"
    if not path.exists():
        raise UserError(f"no figure {path}: make it with `snakemake {path}`")
    return Markup(style.inline(path))  # our own drawing: its texts were escaped when it was written


def _links(evidence: Evidence, folder: Path) -> dict[str, list[dict[str, str]]]:
    """Notebooks and tables of the same study, by relative address."""

    def existing(paths: dict[Path, str]) -> list[dict[str, str]]:
        found = {Path(os.path.relpath(path, folder)): title for path, title in paths.items() if path.exists()}
        return [{"href": path.as_posix(), "title": title} for path, title in found.items()]

    results = evidence.results
    named = {**{paper: f"Figures of {paper}" for paper in evidence.papers}, **NOTEBOOKS}
    return {
        "notebooks": existing({results / f"notebooks/{name}.html": title for name, title in named.items()}),
        "tables": existing({results / f"tables/{name}.csv": name for name in tables.NAMES}),
    }


def write_overview(results: Path) -> Path:
    """Write the page that links the report of every study below `results`; returns its path."""
    found = sorted(
        (path for path in (results / "report" / INDEX, *results.glob(f"*/report/{INDEX}")) if path.exists()),
        key=lambda path: (path.parent.parent != results, path),
    )
    studies = [{"href": path.relative_to(results).as_posix(), **_head_of(path)} for path in found]
    write_text(results / OVERVIEW, alone("studies.html.j2", studies=studies))
    return results / OVERVIEW


def _head_of(path: Path) -> Mapping[str, str]:
    """What a report's page says of itself in its head."""
    text = path.read_text(encoding="utf-8")[:16384]
    found = dict(re.findall(r'<meta name="([a-z]+)" content="([^"]*)">', text))
    head = {"study": found.get("study", path.parent.parent.name), "written": found.get("written", ""),
            "summary": found.get("description", "")}  # fmt: skip
    return {name: unescape(text) for name, text in head.items()}
