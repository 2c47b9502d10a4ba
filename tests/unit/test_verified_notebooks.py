"""Notebooks of an archive against those that its tables give: every cell, every output, and nothing else."""

import contextlib
import json
import shutil
from types import SimpleNamespace

import builders
import pytest

from tare.archive.checks import Notes, pages
from tare.core.files import write_json
from tare.report import notebooks

NAMES = ("batch_size", "job_length")
WORKLOADS = list(builders.WORKLOADS)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Two folders with the same results, in which notebooks were run: by the workflow, and to check them."""
    folder = tmp_path_factory.mktemp("drawn")
    first = builders.build_results(folder / "first/results")
    shutil.copytree(first, folder / "second/results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(first.parent)
        patch.setenv("COLUMNS", "40")
        notebooks.execute_all(NAMES, first.relative_to(first.parent), WORKLOADS, first / "notebooks")
        patch.setenv("COLUMNS", "200")
        again = folder / "second/results"
        notebooks.execute_all(NAMES, again, WORKLOADS, again / "notebooks", 1, dict.fromkeys(NAMES, ()))
    return folder


@pytest.fixture
def look(drawn, tmp_path, monkeypatch):
    """What is noted of a copy of the results."""
    root = shutil.copytree(drawn / "first", tmp_path / "copy")

    @contextlib.contextmanager
    def again(tree, measured, names):
        assert set(names) <= set(NAMES)
        yield drawn / "second/results"

    monkeypatch.setattr(pages, "_drawn_again", again)
    monkeypatch.setattr(pages, "drawn_otherwise", lambda tree: [])
    asked = SimpleNamespace(papers=("mine",))
    measured = SimpleNamespace(results=root / "results", asked=asked)
    tree = SimpleNamespace(
        root=root, measured=(measured,), is_archive=True, name=lambda path: path.relative_to(root).as_posix()
    )

    def noted():
        notes = Notes()
        pages.figures(tree, notes)
        return [where for where, _ in notes.wrong], [where for where, _ in notes.open]

    return SimpleNamespace(folder=root / "results", noted=noted)


def edited(look, change):
    """A notebook whose cells were changed, and its page, which shows them."""
    path = look.folder / "notebooks/batch_size.ipynb"
    found = json.loads(path.read_text())
    change(found["cells"])
    write_json(path, found)
    path.with_suffix(".html").write_text(notebooks.to_page(path))
    return look.noted()


NOTEBOOK = "results/notebooks/batch_size.ipynb"


def test_what_another_place_and_another_terminal_give_is_equal(look):
    assert look.noted() == ([], [])


def forged_cell(tags):
    return {
        **{"cell_type": "code", "id": "f", "metadata": {"tags": tags}, "execution_count": 1},
        **{"source": ["'no container costs anything'"], "outputs": []},
    }


@pytest.mark.parametrize("place", [0, 3, -1])
@pytest.mark.parametrize("tags", [["injected-parameters"], ["parameters"], []])
def test_a_cell_that_was_added_is_found_whatever_it_is_called(look, place, tags):
    assert edited(look, lambda cells: cells.insert(place, forged_cell(tags))) == ([NOTEBOOK], [])


def injected(cells):
    (cell,) = [cell for cell in cells if cell["metadata"].get("tags") == ["injected-parameters"]]
    return cell


def test_the_cell_with_parameters_says_these_and_nothing_else(look):
    def add(cells):
        injected(cells)["source"] += ["\n# no container costs anything"]

    def output(cells):
        injected(cells)["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["no cost"]}]

    def rename(cells):
        cell = injected(cells)
        cell["source"] = "".join(cell["source"]).replace('"results"', '"no cost"')

    assert edited(look, add) == edited(look, output) == edited(look, rename) == ([NOTEBOOK], [])


def test_a_cell_that_is_hidden_by_its_tag_is_found(look):
    def hide(cells):
        cells[-1]["metadata"]["tags"] = ["parameters"]

    assert edited(look, hide) == ([NOTEBOOK], [])


def test_plain_texts_and_traces_of_errors_are_compared(look):
    def plain(cells):
        output = next(
            one for cell in cells for one in cell.get("outputs", ()) if "text/plain" in one.get("data", {})
        )
        output["data"]["text/plain"] = ["no container costs anything"]

    def error(cells):
        found = {"output_type": "error", "ename": "E", "evalue": "", "traceback": ["no cost"]}
        cells[-1].setdefault("outputs", []).append(found)

    assert edited(look, plain) == ([NOTEBOOK], [])
    assert edited(look, error) == ([NOTEBOOK], [])


def test_unknown_notebooks_fail_and_the_rest_is_checked(look):
    shutil.copy(look.folder / "notebooks/batch_size.ipynb", look.folder / "notebooks/alien.ipynb")
    for name in ("alien.html", "answer.html", "more/a.html", "a.svg"):
        path = look.folder / "notebooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("no cost")
    (look.folder / "figures/a.html").write_text("no cost")
    (figure,) = sorted((look.folder / "figures").glob("batch_size_mnist_cnn.svg"))
    figure.write_text(figure.read_text().replace("<desc", "<!-- --><desc", 1))
    wrong, open_ones = look.noted()
    assert open_ones == []
    assert {name.removeprefix("results/") for name in wrong} == {
        "notebooks/alien.ipynb", "notebooks/answer.html", "notebooks/more/a.html", "notebooks/a.svg",
        "figures/a.html", "figures/batch_size_mnist_cnn.svg",
    }  # fmt: skip


def test_the_notebook_of_a_paper_that_is_not_here_is_not_checked(look):
    shutil.copy(look.folder / "notebooks/batch_size.ipynb", look.folder / "notebooks/mine.ipynb")
    shutil.copy(look.folder / "notebooks/batch_size.html", look.folder / "notebooks/mine.html")
    assert look.noted() == ([], ["results/notebooks/mine.ipynb"])
