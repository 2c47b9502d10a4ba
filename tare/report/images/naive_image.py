"""One table: the image that a user would write by hand, Tare's own, and what papers printed of theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from tare.analysis import image_costs
from tare.literature import published
from tare.model.studies.papers import paper_names
from tare.report.evidence import Evidence
from tare.report.words.labels import decimal_prefix, env_title, seconds
from tare.report.words.layout import UNAVAILABLE, Cell, Row, Table
from tare.report.words.wording import listed

RECIPES = {"docker": "Dockerfile", "apptainer": "definition file"}  # by the environment that runs what it gives
OUR_STAGES = ("tree_s", "assemble_s", "convert_s")  # what follows base and packages, which both have already
OUR_BYTES = {"docker": "said_bytes", "apptainer": "disk_bytes"}
# What a paper may print of its image, by our name of it; and names of what its image or its build has besides.
PRINTED = ("image_build", "image_size")
DIFFERS = "image_differs"


def table(evidence: Evidence) -> Table | None:
    """Seconds and bytes of each image; None where the study builds none by hand."""
    costs, stack = evidence.image_costs, evidence.study.stack
    if costs[(costs["campaign"] == image_costs.NAIVE) & (costs["stack"] == stack)].empty:
        return None
    rows: list[Row] = []
    reasons = []
    for env, recipe in RECIPES.items():
        naive = [
            image_costs.cost(costs, stack, env, item) for item in (image_costs.NAIVE_BUILD, image_costs.NAIVE_BYTES)
        ]
        rows.append([f"{env_title(env)}: naive {recipe}", *_cells(*naive)])
        if ours := _ours(costs, stack, env):
            rows.append([f"{env_title(env)}: Tare's image", *_cells(*ours)])
        if why := image_costs.why_not(costs, stack, env, image_costs.NAIVE_BUILD):
            reasons.append(f"{env_title(env)}: {why}.")
    printed = list(_printed())
    return Table(
        caption=f"{stack}: an image as a user would write it by hand, and Tare's own",
        columns=["", "build", "size"],
        rows=[*rows, *(row for row, _ in printed)],
        note=" ".join(
            [
                "Naive images were built once with nothing cached: measured, without an interval. Tare's: tree, "
                "image and form, each as long as it took when made. Base and packages were on this machine before. "
                "Size: as Docker states it; of a .sif its allocated blocks.",
                *reasons,
                *(note for _, note in printed),
            ]
        ),
        numeric=True,
    )


def _ours(costs: pd.DataFrame, stack: str, env: str) -> tuple[float | None, float | None] | None:
    """Seconds and bytes of Tare's own image; None where the study has it not."""
    took = [image_costs.cost(costs, stack, env, item) for item in OUR_STAGES]
    size = image_costs.cost(costs, stack, env, OUR_BYTES[env])
    whole = None if None in took else sum(value for value in took if value is not None)
    return None if whole is None and size is None else (whole, size)


def _cells(took: float | None, size: float | None) -> list[str | Cell | None]:
    texts = (None if took is None else seconds(took), None if size is None else _size(size))
    return [UNAVAILABLE if text is None else Cell(text=text, below="measured") for text in texts]


def _printed() -> Iterator[tuple[Row, str]]:
    """What published studies print of their images, and what is in those that is not in ours."""
    for name in paper_names():
        paper = published.load(name)
        found = {
            fact.id: str(fact.quantity) for fact in paper.text if fact.id in PRINTED and fact.quantity is not None
        }
        if not found:
            continue
        differs = [name for fact in paper.settings if fact.id == DIFFERS for name in fact.names]
        more = f"; what its image or its build may have besides: {listed(differs)}" if differs else ""
        cells = [Cell(text=found[item], below="as printed") if item in found else None for item in PRINTED]
        yield [f"{name}: its image", *cells], f"{name}: one build without a spread{more}."


def _size(value: float) -> str:
    """Bytes as registries print them, in powers of ten: 1.20 GB."""
    text = decimal_prefix(value)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"
