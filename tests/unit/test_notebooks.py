"""The notebooks: thin, stripped, executed by this Python, and pages that need no network.

What each of them shows is seen by running its cells here; one of them runs as the workflow runs it as well,
as all but `reference` do in the studies of tests/workflow.
"""

from __future__ import annotations

import json
import re
import shutil

import builders
import nbformat
import pytest
from cells import run_cells
from looking import unfilled_texts
from matrix import in_turn
from nbclient import NotebookClient

from tare.core.errors import TareError, UserError
from tare.core.files import project_root
from tare.report import notebooks

LONGEST_CELL = 5
NAMES = [*(name for name in notebooks.names() if name not in ("batch_size", notebooks.OF_A_PAPER)), "nyu2022"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return builders.build_results(tmp_path_factory.mktemp("notebooks") / "results")


@pytest.mark.parametrize("name", notebooks.names())
def test_a_notebook_is_thin_and_stripped(name):
    content = nbformat.read(project_root() / f"notebooks/{name}.ipynb", as_version=4)
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
    assert all(len(cell.source.splitlines()) <= LONGEST_CELL for cell in code)
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    first = content.cells[0]
    assert first.cell_type == "markdown" and first.source.splitlines()[0].endswith("?"), "the question first"


def test_a_notebook_runs_in_this_python_and_draws_where_home_is_odd(results, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("JUPYTER_PATH", "")
    out = tmp_path / "out" / "batch_size.ipynb"
    notebooks.execute_all(["batch_size"], results, list(builders.WORKLOADS), out.parent)
    for workload in builders.WORKLOADS:
        assert (results / f"figures/batch_size_{workload}.svg").read_text().startswith("<svg")
    executed = json.loads(out.read_text())
    assert all(cell.get("execution_count") for cell in executed["cells"] if cell["cell_type"] == "code")
    page = out.with_suffix(".html").read_text()
    assert page.count("<svg") == len(builders.WORKLOADS)
    assert "spread_percent" in page
    assert "<script" not in page
    outside = re.findall(r'(?:src|href)="(?!#|data:)([^"]+)"|@import|url\((?!#)([^)]+)\)', page)
    assert outside == []


@pytest.mark.parametrize("name", in_turn(2, [name for name in notebooks.names() if name != "device"]))
def test_a_notebook_runs_in_jupyter_from_its_folder(name, results, tmp_path, monkeypatch):
    """As in JupyterLab: by a kernel, in notebooks/ of a clone with results, with its parameters as they are."""
    monkeypatch.setenv("PYTHONPATH", str(project_root()))
    shutil.copytree(results, tmp_path / "results")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    content = nbformat.read(project_root() / f"notebooks/{name}.ipynb", as_version=4)
    NotebookClient(content, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    shown = [one.data for cell in content.cells for one in cell.get("outputs", ()) if "data" in one]
    assert name == "why" or any("<svg" in data.get("text/html", "") for data in shown)


@pytest.mark.parametrize("name", in_turn(0, NAMES))
def test_a_notebook_in_turn_runs_as_in_the_workflow(name, request, tmp_path):
    results = request.getfixturevalue("device_results" if name == "device" else "results")
    notebooks.execute_all([name], results, list(builders.WORKLOADS), tmp_path)
    shown = run_cells(notebooks.source_of(name)[0], results, builders.WORKLOADS)
    page = (tmp_path / f"{name}.html").read_text()
    assert page.count("<svg") == shown.count("<svg")
    assert unfilled_texts(page) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_no_value_that_nobody_filled_in(name, results):
    assert unfilled_texts(run_cells(notebooks.source_of(name)[0], results, builders.WORKLOADS)) == []


def test_the_environments_notebook_draws_every_figure_that_its_rule_declares(results):
    page = run_cells("environments", results, builders.WORKLOADS)
    for workload in builders.WORKLOADS:
        for name in ("intervals", "units"):
            assert (results / f"figures/{name}_{workload}.svg").exists(), name
    assert (results / "figures/split.svg").exists()
    assert page.count("<svg") == 2 * len(builders.WORKLOADS) + 1


def test_the_notebook_of_profiled_launches_draws_use_and_operators(results):
    page = run_cells("profile", results, builders.WORKLOADS)
    for workload in builders.WORKLOADS:
        for name in ("utilisation", "operators"):
            assert (results / f"figures/{name}_{workload}.svg").exists(), name
    assert page.count("<svg") == 2 * len(builders.WORKLOADS)


def test_the_papers_notebook_draws_every_figure_that_its_rule_declares(results):
    page = run_cells("paper", results, builders.WORKLOADS)
    declared = {f"nyu2022_fig{number:02d}.svg" for number in range(2, 19)}
    assert {path.name for path in (results / "figures").glob("nyu2022_*.svg")} == declared
    assert page.count("<svg") == len(declared)
    assert "0.00091093" in page, "the table of every value"


def test_an_unknown_notebook_has_its_nearest_name(results, tmp_path):
    with pytest.raises(UserError, match="did you mean 'roofline'"):
        notebooks.execute_all(["rofline"], results, ["mnist_cnn"], tmp_path)


def test_the_notebook_of_papers_goes_by_their_names(results, tmp_path):
    assert notebooks.source_of("nyu2022") == ("paper", {"paper": "nyu2022"})
    with pytest.raises(UserError, match="did you mean 'nyu2022'"):
        notebooks.execute_all(["nyu2020"], results, ["mnist_cnn"], tmp_path)
    with pytest.raises(UserError, match="no notebook 'paper'"):
        notebooks.execute_all(["paper"], results, ["mnist_cnn"], tmp_path)


def test_a_cell_that_fails_is_one_line_and_its_notebook_leaves_nothing(results, tmp_path):
    broken = tmp_path / "results"
    shutil.copytree(results / "tables", broken / "tables")
    (broken / "tables/metrics.parquet").unlink()
    with pytest.raises(TareError, match=r"notebook batch_size: .*no table .*metrics\.parquet") as caught:
        notebooks.execute_all(["batch_size", "device"], broken, ["mnist_cnn"], tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["device.html", "device.ipynb"], (
        "the other"
    )


def test_the_page_is_drawn_from_the_notebooks_that_worked_and_names_the_others(results, tmp_path, capsys):
    """One command of nine notebooks: what fails in one of them must not keep the page away."""
    broken = tmp_path / "results"
    shutil.copytree(results, broken, ignore=shutil.ignore_patterns("report", "figures", "notebooks"))
    lost = broken / "tables/job_length.csv"
    saved = lost.read_bytes()
    lost.unlink()
    drawn = {
        name: [broken / f"figures/{name}_{workload}.svg" for workload in builders.WORKLOADS]
        for name in ("batch_size", "job_length")
    }
    out = broken / "notebooks"
    notebooks.execute_all([*drawn, "why"], broken, list(builders.WORKLOADS), out, 1, drawn)
    assert list(notebooks.failed(out)) == ["job_length"]
    assert "job_length failed, and the page says so: " in capsys.readouterr().out
    for name, figures in drawn.items():
        for path in figures:
            assert ("The notebook job_length failed" in path.read_text()) == (name == "job_length")
        assert ("The notebook job_length failed" in (out / f"{name}.html").read_text()) == (name == "job_length")
        nbformat.read(out / f"{name}.ipynb", as_version=4)
    assert "failed:" not in (out / "why.html").read_text()
    lost.write_bytes(saved)
    notebooks.execute_all([*drawn], broken, list(builders.WORKLOADS), out, 1, drawn)
    assert notebooks.failed(out) == {}


@pytest.fixture(scope="module")
def device_results(tmp_path_factory):
    found = builders.build_results(tmp_path_factory.mktemp("device") / "results", device="cuda", units=3)
    return found


def test_the_choices_notebook_draws_what_was_varied(results):
    page = run_cells("choices", results, builders.WORKLOADS)
    for workload in builders.WORKLOADS:
        assert (results / f"figures/choices_{workload}.svg").exists()
    assert page.count("<svg") == len(builders.WORKLOADS) and "control_ci_low" in page


def test_the_device_notebook_draws_steps_and_samples(device_results):
    page = run_cells("device", device_results, builders.WORKLOADS)
    for workload in builders.WORKLOADS:
        for name in ("device_time", "device_samples"):
            assert (device_results / f"figures/{name}_{workload}.svg").exists()
    assert page.count("<svg") == 2 * len(builders.WORKLOADS)


def test_the_device_notebook_says_where_no_launch_ran_on_a_device(results):
    page = run_cells("device", results, ["mnist_cnn"])
    assert "no profiled launch ran on a device" in page and "the driver gave no samples" in page
    for name in ("device_time", "device_samples"):
        assert (results / f"figures/{name}_mnist_cnn.svg").exists()
