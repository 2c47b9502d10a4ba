"""Which published studies there are, which of them a study repeats, and whether their findings are theirs.

What they say is tare.literature's. What follows from their own numbers is in papers/findings.csv; the hashes of
that table and of the files that it was computed from are next to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from tare.core.errors import IntegrityError, UserError
from tare.core.files import data_root, sha256_file
from tare.core.remedies import own_program
from tare.model.schema import read_yaml


def folder() -> Path:
    """Where the files of published studies are."""
    return data_root() / "config/published"


def paper_names(place: Path | None = None) -> list[str]:
    """Names of the published studies that have a file in a folder, config/published where none is given."""
    return sorted(path.stem for path in (place or folder()).glob("*.yaml"))


def files(paper: str) -> list[Path]:
    """What a published study is read from: its file, and the tables next to it."""
    return sorted(folder().glob(f"{paper}[._]*"))


def findings_file() -> Path:
    """The table of what follows from the papers' own numbers."""
    return data_root() / "papers/findings.csv"


def sums_of(table: Path) -> Path:
    """Where the hashes of a table of findings and of its sources are."""
    return table.with_suffix(".sha256")


def refuse_stale(papers: Iterable[str] = ()) -> Path:
    """The table of findings, where it is the one that was computed, and from the files of these papers as they are.
    Raises UserError: it is missing, or it is without one of the papers. IntegrityError: it was edited, or a paper's
    file was, since it was computed.
    """
    table = findings_file()
    again = f"run `{own_program('python')} papers/compute_findings.py`"
    try:
        lines = sums_of(table).read_text(encoding="utf-8").splitlines()
        digest = sha256_file(table)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}: {again}") from None
    known = {Path(line.partition("  ")[2]).name: line.partition("  ")[0] for line in lines}
    if known.get(table.name) != digest:
        raise IntegrityError(f"{table} is not as it was computed ({sums_of(table).name} has another hash): {again}")
    for path in (path for paper in papers for path in files(paper)):
        if path.name not in known:
            raise UserError(f"{table} has no findings of {path.name}: {again}")
        if known[path.name] != sha256_file(path):
            raise IntegrityError(f"{path} is not the file that {table} was computed from: {again}")
    return table


def repeated(papers: Iterable[str], workloads: Collection[str]) -> tuple[str, ...]:
    """Those papers of which a study trains something: a page has nothing to say of another. `papers`: names that
    the study has; each must be known. `workloads`: the study's. Raises UserError: a file can't be read.
    """
    return tuple(name for name in papers if not set(trained(name)).isdisjoint(workloads))


def trained(paper: str) -> tuple[str, ...]:
    """What a published study trained: workloads of ours, and models by its own names, some of which are here."""
    content = read_yaml(folder() / f"{paper}.yaml", "the published study")
    plots = [plot for group in content.get("plots", ()) for plot in group.get("figures", ())]
    parts = [content, *content.get("claims", ()), *plots]
    names = [name for one in parts for key in ("workloads", "models") for name in one.get(key, ())]
    return tuple(dict.fromkeys(names))
