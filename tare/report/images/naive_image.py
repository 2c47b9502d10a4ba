"""One table: the image that a user would write by hand, Tare's own, and what papers printed of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

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
NOTE = (
    "Naive images were built once with nothing cached: measured, without an interval. Tare's: tree, image and "
    "form, each as long as it took when made. Base and packages were on this machine before. Size: as Docker "
    "states it; of a .sif its allocated blocks."
)


def table(evidence: Evidence) -> Table | None:
    """Seconds and bytes of each image; None where the study builds none by hand."""
    costs, stack = evidence.image_costs, evidence.study.stack
    if costs[(costs["campaign"] == image_costs.NAIVE) & (costs["stack"] == stack)].empty:
        return None
    rows: list[Row] = []
    notes = [NOTE]
    for env, recipe in RECIPES.items():
        cost = partial(image_costs.cost, costs, stack, env)
        naive = cost(image_costs.NAIVE_BUILD), cost(image_costs.NAIVE_BYTES)
        took, size = [cost(item) for item in OUR_STAGES], cost(OUR_BYTES[env])
        rows.append([f"{env_title(env)}: naive {recipe}", *_cells(*naive)])
        if None not in took or size is not None:
            rows.append([f"{env_title(env)}: Tare's image", *_cells(None if None in took else sum(took), size)])
        if why := image_costs.why_not(costs, stack, env, image_costs.NAIVE_BUILD):
            notes.append(f"{env_title(env)}: {why}.")
    for row, note in _printed():
        rows.append(row)
        notes.append(note)
    caption = f"{stack}: an image as a user would write it by hand, and Tare's own"
    return Table(caption=caption, columns=["", "build", "size"], rows=rows, note=" ".join(notes), numeric=True)


def _cells(took: float | None, size: float | None) -> list[str | Cell | None]:
    texts = (None if took is None else seconds(took), None if size is None else _size(size))
    return [UNAVAILABLE if text is None else Cell(text=text, below="measured") for text in texts]


def _printed() -> Iterator[tuple[Row, str]]:
    """What published studies print of their images, and what is in those that is not in ours."""
    for paper in map(published.load, paper_names()):
        facts = [fact for fact in paper.text if fact.id in PRINTED and fact.quantity is not None]
        found = {fact.id: Cell(text=str(fact.quantity), below="as printed") for fact in facts}
        differs = [name for fact in paper.settings if fact.id == DIFFERS for name in fact.names]
        more = f"; what its image or its build may have besides: {listed(differs)}" if differs else ""
        if found:
            row: Row = [f"{paper.paper}: its image", *(found.get(item) for item in PRINTED)]
            yield row, f"{paper.paper}: one build without a spread{more}."


def _size(value: float) -> str:
    """Bytes as registries print them, in powers of ten: 1.20 GB."""
    text = decimal_prefix(value)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"
