"""Which published studies there are, and which of them a study repeats; what they say is tare.literature's."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from tare.core.files import project_root
from tare.model.schema import read_yaml


def folder() -> Path:
    """Where the files of published studies are."""
    return project_root() / "config/published"


def paper_names(place: Path | None = None) -> list[str]:
    """Names of the published studies that have a file in a folder, config/published where none is given."""
    return sorted(path.stem for path in (place or folder()).glob("*.yaml"))


def repeated(papers: Iterable[str], workloads: Collection[str]) -> tuple[str, ...]:
    """Those papers of which a study trains something: a page has nothing to say of another.

    Args:
        papers: names that the study has; each must be known.
        workloads: the study's.

    Raises:
        UserError: a file can't be read.
    """
    return tuple(name for name in papers if not set(trained(name)).isdisjoint(workloads))


def trained(paper: str) -> tuple[str, ...]:
    """What a published study trained: workloads of ours, and models by its own names, some of which are here."""
    content = read_yaml(folder() / f"{paper}.yaml", "the published study")
    plots = [plot for group in content.get("plots", ()) for plot in group.get("figures", ())]
    told = [content, *content.get("claims", ()), *plots]
    names = [name for one in told for key in ("workloads", "models") for name in one.get(key, ())]
    return tuple(dict.fromkeys(names))
