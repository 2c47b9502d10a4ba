"""Notebooks by papermill, and as pages that need no network.

Cells are run by the Python that runs this, whatever kernels a user has installed, and nothing is read from or left
in the user's own Jupyter folders. A notebook gets explicit parameters: paths relative to the folder it is run from.
"""

from __future__ import annotations

import errno
import html
import multiprocessing
import os
import re
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tare.core.errors import TareError, UserError, explain_os_error, is_full
from tare.core.files import atomic_path, cache_dir, data_root, project_root, read_json, write_json, write_text
from tare.core.forked import forked, terminate
from tare.core.process import scratch_folder
from tare.core.progress import say, step
from tare.model.studies.papers import paper_names
from tare.model.words import nearest

OF_A_PAPER = "paper"  # the notebook that is run once for each published study, under the study's name
FAILED = "failed.json"  # next to the notebooks: those that failed, each with its error
ENGINE = "tare"  # as papermill knows what runs the cells
LIMIT_S = 600.0
_BLANK_HEADER = re.compile(r'<th( class="blank[^"]*")[^>]*>(?:&nbsp;|\xa0)?</th>')


def names() -> list[str]:
    """Notebooks of this project."""
    return sorted(path.stem for path in (data_root() / "notebooks").glob("*.ipynb"))


def source_of(name: str) -> tuple[str, dict[str, str]]:
    """The notebook that makes what has this name, and its further parameters: a paper's is made by `paper`.

    Raises UserError: there is no such notebook, and no such published study.
    """
    if name in paper_names():
        return OF_A_PAPER, {"paper": name}
    own = [one for one in names() if one != OF_A_PAPER]
    if name not in own:
        raise UserError(f"no notebook {name!r} in notebooks/: {nearest(name, [*own, *paper_names()])}")
    return name, {}


def execute_all(
    chosen: Sequence[str], results: Path, workloads: Sequence[str], folder: Path, at_once: int = 1,
    drawn: Mapping[str, Sequence[Path]] | None = None,
) -> None:  # fmt: skip
    """Run notebooks on a study's results; writes each executed notebook, its page, and the figures it draws.

    What all of them import, which takes longer than most of them draw, is imported once, by this process. Each
    notebook then runs in one that is forked from it, so that none sees names or settings of another. A name is that
    of a notebook, or of a published study, whose figures the notebook `paper` draws.

    Where `drawn` gives the figures of each notebook, one that fails stops nothing: in its place, and in that of
    each figure that is missing, the reason is shown, and FAILED lists it.

    Raises UserError: there is no such notebook. TareError: cells failed; each notebook's name and its error are in
    the message. The others are whole.
    """
    for name in chosen:
        source_of(name)
    _prepare()
    problems: dict[str, str] = {}
    late = False
    with forked(at_once, tasks_each=1) as pool:
        running = [(name, pool.apply_async(_execute, (name, results, workloads, folder))) for name in chosen]
        for name, one in running:
            with step(f"notebook {name}"):
                try:
                    problem = one.get(LIMIT_S)
                except multiprocessing.TimeoutError:
                    problem, late = f"not done after {LIMIT_S:.0f} s", True
            if problem is not None:
                problems[name] = problem
        if late:
            terminate(pool)
    if drawn is not None:
        for name, problem in problems.items():
            _stand_in(name, problem, folder, drawn.get(name, ()))
            say(f"notebook {name} failed, and the page says so: {problem}")
        write_json(folder / FAILED, problems)
    elif problems:
        raise TareError("; ".join(f"notebook {name}: {problem}" for name, problem in problems.items()))


def failed(folder: Path) -> dict[str, str]:
    """Why notebooks of a folder failed, by name; empty where none did."""
    path = folder / FAILED
    found: dict[str, str] = read_json(path) if path.exists() else {}
    return found


def _stand_in(name: str, problem: str, folder: Path, drawn: Sequence[Path]) -> None:
    """Say in the place of a notebook that failed, and of what it did not draw, why it is not there."""
    import nbformat
    import nbformat.v4

    from tare.report.figures import style

    reason = f"The notebook {name} failed: {problem}"
    cell = nbformat.v4.new_markdown_cell(f"# {name}\n\n{reason}", id=f"{name}-0")  # equal text, equal file
    notebook = nbformat.v4.new_notebook(cells=[cell])
    write_text(folder / f"{name}.ipynb", nbformat.writes(notebook))
    write_text(folder / f"{name}.html", to_page(folder / f"{name}.ipynb"))
    for path in drawn:
        if not path.exists():
            style.write(style.empty(path.stem, reason), path)


def without_grammars() -> None:
    """Before nbformat is imported: what checks addresses in JSON is left out, as where it is not installed.

    jsonschema builds 38 grammars for it when it is imported, two seconds for what no notebook has.
    """
    sys.modules.setdefault("rfc3987_syntax", ModuleType("rfc3987_syntax"))


def _prepare() -> None:
    """Import what all notebooks need, and write one page, for which nbconvert loads its templates."""
    # No user's settings, and the list of fonts is kept.
    os.environ.setdefault("MPLCONFIGDIR", str(cache_dir("matplotlib")))
    without_grammars()
    import nbformat.v4
    import pyarrow.parquet  # noqa: F401

    import tare.analysis.why.causes
    import tare.report.cells  # noqa: F401
    from tare.report.figures import style

    with scratch_folder("figure") as folder:  # matplotlib's first figure finds its fonts
        style.write(style.empty("none", "none"), folder / "none.svg")
    cells = [nbformat.v4.new_markdown_cell("none"), nbformat.v4.new_code_cell("none")]
    _exporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))


def _execute(name: str, results: Path, workloads: Sequence[str], folder: Path) -> str | None:
    """Run a notebook in a separate process; why it failed, in a line, or None."""
    from papermill.exceptions import PapermillExecutionError

    with scratch_folder("jupyter") as scratch:
        executed = scratch / f"{name}.ipynb"
        try:
            _papermill(name, results, workloads, executed, scratch)
            page = to_page(executed)
        except PapermillExecutionError as error:
            print("\n".join(error.traceback), file=sys.stderr)
            found = f"{error.ename}: {next(iter(error.evalue.splitlines()), '')}"
            return f"{found}: free some" if os.strerror(errno.ENOSPC) in found else found
        except Exception as error:  # what a process says to another has to be plain
            traceback.print_exc()
            if is_full(error):
                error.filename = error.filename or scratch
                return explain_os_error(error)
            return f"{type(error).__name__}: {error}"
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / executed.name) as temporary:
            shutil.copyfile(executed, temporary)
        write_text(folder / f"{name}.html", page)
    return None


def _papermill(name: str, results: Path, workloads: Sequence[str], executed: Path, folder: Path) -> None:
    """By papermill, whose cells run in this process: starting a kernel takes longer than drawing."""
    os.environ["IPYTHONDIR"] = str(folder)
    from papermill import execute_notebook
    from papermill.engines import papermill_engines

    from tare.report.cells import InThisProcess

    papermill_engines.register(ENGINE, InThisProcess)
    notebook, further = source_of(name)
    execute_notebook(
        data_root() / "notebooks" / f"{notebook}.ipynb",
        executed,
        {"results": str(results), "workloads": " ".join(workloads), **further},
        engine_name=ENGINE,
        kernel_name=ENGINE,
        language="python",
        progress_bar=False,
    )


@cache
def _exporter() -> Any:
    """nbconvert's, which loads its templates at its first page."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.exclude_anchor_links = True
    return exporter


def to_page(notebook: Path) -> str:
    """An executed notebook as one HTML page: no scripts, no fonts, nothing from elsewhere."""
    import nbformat
    from jinja2 import Template

    content = nbformat.read(notebook, as_version=4)
    # The cell with the parameters and the one that papermill adds say the same: the second is what ran.
    content.cells = [cell for cell in content.cells if "parameters" not in cell.metadata.get("tags", [])]
    body, _ = _exporter().from_notebook_node(content)
    title = next(
        (cell.source.splitlines()[0].lstrip("# ") for cell in content.cells if cell.cell_type == "markdown"),
        notebook.stem,
    )
    templates = project_root() / "tare/report/templates"
    style, page = ((templates / name).read_text(encoding="utf-8") for name in ("page.css", "notebook.html.j2"))
    # The keyboard reaches what can be scrolled, and a cell without a word is no header.
    scrolled = re.sub(r'<(pre|div class="output_area")>', r'<\1 tabindex="0">', body)
    body = _BLANK_HEADER.sub(r"<td\1></td>", scrolled)
    shown = {"title": html.escape(title), "style": style, "body": body}
    return str(Template(page, keep_trailing_newline=True).render(shown))
