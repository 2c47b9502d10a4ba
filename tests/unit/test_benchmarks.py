"""The programs in benchmarks/: each can be loaded, and the proof writes its page. Nothing is measured here."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tare.core.files import project_root

BENCHMARKS = project_root() / "benchmarks"


def load(name, patch):
    """A program as a module, which finds the other programs as it does when it is run."""
    patch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_program_can_be_loaded_and_says_what_it_does(name, monkeypatch):
    assert load(name, monkeypatch).__doc__


def test_the_proof_writes_the_sections_and_tables_of_its_page(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["proof.py", "--campaigns", "2", "--out", str(tmp_path / "proof.md")])
    load("proof", monkeypatch).main()
    page, written = (path.read_text() for path in (project_root() / "docs/proof.md", tmp_path / "proof.md"))
    assert outline(written) == outline(page)
    section = "## Sliced rounds, simulated"  # of recorded simulations: it is the same each time
    assert written[written.index(section) :] == page[page.index(section) :]


def outline(page):
    """Headings, heads of tables, and how a row begins."""
    lines = page.splitlines()
    heads = {number - 1 for number, line in enumerate(lines) if line.startswith("| --- ")}
    rows = (line if number in heads else line.split("|")[1] for number, line in enumerate(lines) if "|" in line[:1])
    return [line for line in lines if line.startswith("#")], list(rows)
