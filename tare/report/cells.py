"""The cells of a notebook run in this process, for papermill: one engine that starts no kernel.

Outputs are those that a kernel would have sent: what is printed or displayed, the value of a cell's last line.
"""

from __future__ import annotations

from typing import Any

import nbformat.v4
from IPython.core.displayhook import CapturingDisplayHook
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output
from papermill.engines import Engine, NotebookExecutionManager
from traitlets.config import Config


class InThisProcess(Engine):  # type: ignore[misc]
    """Runs cells in this process, which is used for one notebook: it keeps their names."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: NotebookExecutionManager, kernel_name: str, **options: Any) -> None:
        """Run the cells up to the first that fails, which papermill then reports."""
        shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
        for index, cell in enumerate(nb_man.nb.cells):
            nb_man.cell_start(cell, index)
            failure = run_cell(shell, cell) if cell.cell_type == "code" else None
            if failure is not None:
                nb_man.cell_exception(cell, index, exception=failure)
            nb_man.cell_complete(cell, index)
            if failure is not None:
                return


def run_cell(shell: InteractiveShell, cell: Any) -> BaseException | None:
    """Run a cell and keep what it put out; what it raised, or None."""
    values: list[Any] = []
    shell.display_trap.hook = CapturingDisplayHook(shell, values)
    with capture_output() as captured:
        result = shell.run_cell(cell.source, store_history=True)
    cell.execution_count = result.execution_count
    cell.outputs = outputs(captured, values, result.execution_count)
    failure: BaseException | None = result.error_before_exec or result.error_in_exec
    if failure is not None:
        name, text = type(failure).__name__, str(failure)
        cell.outputs.append(nbformat.v4.new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"]))
    return failure


def outputs(captured: CapturedIO, values: list[Any], count: int | None) -> list[Any]:
    """As a notebook holds them."""
    found = [
        nbformat.v4.new_output("stream", name=name, text=text)
        for name, text in (("stdout", captured.stdout), ("stderr", captured.stderr))
        if text
    ]
    found += [
        nbformat.v4.new_output("display_data", data=one.data, metadata=one.metadata or {})
        for one in (captured.outputs or [])
    ]
    return found + [
        nbformat.v4.new_output("execute_result", data=one["data"], metadata=one["metadata"], execution_count=count)
        for one in values
    ]
