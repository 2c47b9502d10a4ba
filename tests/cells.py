"""A notebook's cells run in this process, without papermill: a second instead of several."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat

from tare.core.files import project_root


def run_cells(name: str, results: Path, workloads: Sequence[str], paper: str = "nyu2022") -> str:
    """HTML of all that a notebook shows, and what it prints; its figures are drawn below `results`."""
    shown: list[str] = []

    def show(value: Any) -> None:
        if value is not None:
            shown.append(value._repr_html_())

    names: dict[str, Any] = {
        "display": show,
        "print": lambda *words, sep=" ": shown.append(sep.join(map(str, words))),
    }
    with mock.patch("IPython.display.display", show):
        for cell in nbformat.read(project_root() / f"notebooks/{name}.ipynb", as_version=4).cells:
            if cell.cell_type == "code":
                show(_run(cell.source, names))
            if "parameters" in cell.metadata.get("tags", []):
                names |= {"results": str(results), "workloads": " ".join(workloads), "paper": paper}
    return "\n".join(shown)


def _run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; returns the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(last, "cell", "eval"), names) if last else None
