"""Notebooks by papermill, and as pages that need no network.

The kernel is the Python that runs this, whatever kernels a user has installed, and nothing is read from or left in
the user's own Jupyter folders. A notebook gets explicit parameters: paths relative to the folder it is run from.
"""

from __future__ import annotations

import html
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tare.core.errors import TareError, UserError
from tare.core.files import atomic_path, project_root, write_json, write_text
from tare.core.process import run, scratch_folder
from tare.core.progress import step
from tare.model.words import nearest

KERNEL = "tare"
LIMIT_S = 600.0
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body class="notebook">
<main>
{body}
</main>
</body>
</html>
"""


def names() -> list[str]:
    """Notebooks of this project."""
    return sorted(path.stem for path in (project_root() / "notebooks").glob("*.ipynb"))


def execute(name: str, results: Path, workloads: Sequence[str], out: Path) -> None:
    """Run a notebook on a study's results; writes the executed notebook, its page, and the figures it draws.

    Args:
        name: of the notebook.
        results: folder with the study's tables; figures go to its folder `figures`.
        workloads: those whose figures are drawn.
        out: the executed notebook; the page gets the suffix .html.

    Raises:
        UserError: there is no such notebook.
        TareError: a cell failed; the last line of its error is in the message.
    """
    if name not in names():
        raise UserError(f"no notebook {name!r} in notebooks/: {nearest(name, names())}")
    with scratch_folder("jupyter") as folder, step(f"notebook {name}"):
        executed = folder / f"{name}.ipynb"
        _papermill(name, results, workloads, executed, folder)
        page = to_page(executed)
        with atomic_path(out) as temporary:
            shutil.copyfile(executed, temporary)
        write_text(out.with_suffix(".html"), page)


def _papermill(name: str, results: Path, workloads: Sequence[str], executed: Path, folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(project_root() / "notebooks" / f"{name}.ipynb"),
        str(executed),
        *("--kernel", KERNEL, "--no-progress-bar", "--log-level", "ERROR"),
        *("-p", "results", str(results)),
        *("-p", "workloads", " ".join(workloads)),
    ]
    finished = run(command, timeout_s=LIMIT_S, env=_environment(folder))
    if not finished.ok:
        print(finished.stderr[-20_000:], file=sys.stderr)
        lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        why = (
            f"not done after {LIMIT_S:.0f} s" if finished.timed_out else lines[-1] if lines else finished.explain()
        )
        raise TareError(f"notebook {name}: {why}")


def _environment(folder: Path) -> dict[str, str]:
    """Jupyter's folders in a place of our own, with one kernel: this Python."""
    kernel = folder / "data/kernels" / KERNEL / "kernel.json"
    write_json(
        kernel,
        {
            "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "Tare",
            "language": "python",
        },
    )
    places = {
        "HOME": folder,
        "JUPYTER_DATA_DIR": folder / "data",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "JUPYTER_CONFIG_DIR": folder / "config",
        "IPYTHONDIR": folder / "ipython",
        "MPLCONFIGDIR": folder / "matplotlib",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(project_root()), os.environ.get("PYTHONPATH")])),
    }
    return {**os.environ, "JUPYTER_NO_CONFIG": "1", **{key: str(value) for key, value in places.items()}}


def to_page(notebook: Path) -> str:
    """An executed notebook as one HTML page: no scripts, no fonts, nothing from elsewhere."""
    import nbformat
    from nbconvert import HTMLExporter
    from pygments.formatters import HtmlFormatter

    content = nbformat.read(notebook, as_version=4)
    # The cell with the parameters and the one that papermill adds say the same: the second is what ran.
    content.cells = [cell for cell in content.cells if "parameters" not in cell.metadata.get("tags", [])]
    exporter = HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.exclude_anchor_links = True
    body, _ = exporter.from_notebook_node(content)
    title = next(
        (cell.source.splitlines()[0].lstrip("# ") for cell in content.cells if cell.cell_type == "markdown"),
        notebook.stem,
    )
    style = (project_root() / "tare/report/templates/page.css").read_text(encoding="utf-8")
    light = HtmlFormatter(style="friendly", nobackground=True).get_style_defs(".highlight")
    return PAGE.format(title=html.escape(title), style=f"{style}\n{light}", body=body)
