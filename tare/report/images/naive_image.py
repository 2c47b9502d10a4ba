"""The image as people write it beside ours, in sentences and as a table; and what papers printed of theirs."""

from __future__ import annotations

import pandas as pd

from tare.analysis import image_costs, naive_images
from tare.literature import published
from tare.model.studies.papers import paper_names
from tare.report.evidence import Evidence
from tare.report.words.labels import decimal_prefix, env_order, env_title, seconds, sentence_case, significant
from tare.report.words.layout import UNAVAILABLE, Argument, Cell, Row, Step, Table
from tare.report.words.wording import listed

# What a paper may print of its image, by our name of it.
PRINTED = {"image_build": "{} to build", "image_build_steps": "{}", "image_size": "{}"}
DIFFERS = "image_differs"  # names of what its image or its build has besides


def section(evidence: Evidence) -> Argument | None:
    """What the comparison says; None where the study has none."""
    case = Beside(evidence.image_costs, evidence.study.stack)
    if not case.asked:
        return None
    answers = {
        "How long does building take?": case.building(),
        "What do a push and a pull move?": case.moving(),
        "What do other runtimes make of it?": case.converting(),
        "And by Apptainer's own definition file?": case.defining(),
        "What did papers print?": printed(),
    }
    steps = [Step(question=question, sentences=lines) for question, lines in answers.items() if lines]
    title = f"{evidence.study.stack} as people write it"
    tables = [case.table(), *([case.sif_table()] if case.ways() else [])]
    return Argument(name=naive_images.CAMPAIGN, title=title, steps=steps, tables=tables)


class Beside:
    """Rows of the comparison, of one stack."""

    def __init__(self, table: pd.DataFrame, stack: str) -> None:
        self.rows = table[(table["campaign"] == naive_images.CAMPAIGN) & (table["stack"] == stack)]
        self.stack = stack

    @property
    def asked(self) -> bool:
        """Whether the study has the comparison, or a reason for having none."""
        return not self.rows.empty

    def value(self, whose: str, item: str, env: str = naive_images.IMAGE) -> float | None:
        """One number; None where there is none."""
        return image_costs.cost(self.rows, self.stack, env, f"{whose}_{item}")

    def why_not(self, whose: str, item: str, env: str = naive_images.IMAGE) -> str | None:
        """Why a number is not to be had; None where it is, or is not wanted."""
        return image_costs.why_not(self.rows, self.stack, env, f"{whose}_{item}")

    def both(self, item: str, env: str = naive_images.IMAGE) -> tuple[float, float] | None:
        """A number of both; None where one lacks it."""
        naive, ours = (self.value(whose, item, env) for whose in naive_images.WHOSE)
        return None if naive is None or ours is None else (naive, ours)

    def building(self) -> list[str]:
        """Seconds of both builds, and of building again."""
        if reason := self.why_not("naive", "build_s"):
            return [f"Unavailable: {reason}."]
        naive, ours = self.value("naive", "build_s"), self.value("ours", "build_s")
        again, code = self.value("naive", "build_cached_s"), self.value("naive", "build_code_s")
        if naive is None or ours is None or again is None or code is None:
            return []
        load, steps = self.value("ours", "load_s"), self.value("naive", "steps") or 0
        more = f", and {seconds(load)} more to load it into Docker" if load is not None else ""
        return [
            f"The Dockerfile of {steps:g} steps takes {seconds(naive)} with nothing cached; ours takes "
            f"{seconds(ours)} without a daemon{more}. Both begin with the same base and wheels on this machine, "
            "and were made once: measured, without an interval.",
            f"Built again, with all layers cached, the Dockerfile takes {seconds(again)}; with one line of code "
            f"changed {seconds(code)}. Ours is not built again for code: a launch binds it.",
        ]

    def moving(self) -> list[str]:
        """Bytes over a link, for all of an image and for what changed."""
        lines = []
        what = {
            "push_bytes": "All of it",
            "push_stack_bytes": "When only the stack changed",
            "push_code_bytes": "When only the code changed",
        }
        for item, words in what.items():
            if found := self.both(item):
                naive, ours = found
                times = f", {significant(naive / ours, 2)} times as much" if ours else ""
                lines.append(f"{words}: {_size(naive)} naive, {_size(ours)} ours{times}.")
        if lines:
            layers = self.both("layers") or (0.0, 0.0)
            source = self.rows.loc[self.rows["item"] == "naive_push_bytes", "source"].iloc[0]
            lines.append(
                f"In {layers[0]:g} layers and in {layers[1]:g}: {source}; counted, not sent. What a change of the "
                "stack replaces is modelled, from the order of the layers."
            )
        return lines

    def converting(self) -> list[str]:
        """Seconds and bytes of runtimes' own forms."""
        lines = []
        for env in self.environments():
            took, disk = self.both("convert_s", env), self.both("disk_bytes", env)
            told = []
            if took:
                told.append(f"{seconds(took[0])} to convert the naive one, {seconds(took[1])} ours")
            if disk:
                told.append(f"{_size(disk[0])} and {_size(disk[1])} on the disk")
            if told:
                lines.append(f"{env_title(env)}: {'; '.join(told)}.")
        return lines

    def environments(self) -> list[str]:
        """Those whose forms were compared."""
        return sorted(set(self.rows["env"]) - {naive_images.IMAGE}, key=env_order)

    def ways(self) -> list[str]:
        """Those by which the definition file was, or should have been, built."""
        items = set(self.rows["item"])
        return [way for way in naive_images.WAYS if naive_images.defined(way, "build_s") in items]

    def of_way(self, way: str, item: str) -> float | None:
        """One number of the definition file, built one way."""
        return image_costs.cost(self.rows, self.stack, naive_images.DEFINED_IN, naive_images.defined(way, item))

    def why_no_way(self, way: str) -> str | None:
        """Why it can't be built so."""
        item = naive_images.defined(way, "build_s")
        return image_costs.why_not(self.rows, self.stack, naive_images.DEFINED_IN, item)

    def converted(self, whose: str) -> tuple[float, float] | None:
        """Seconds to Apptainer's form by way of an image, and its bytes on the disk; None where one is lacking."""
        built = self.value(whose, "build_s")
        convert, disk = (self.value(whose, item, naive_images.DEFINED_IN) for item in naive_images.OF_FORMS)
        return None if built is None or convert is None or disk is None else (built + convert, disk)

    def defining(self) -> list[str]:
        """Seconds and bytes of the definition file by each way, beside the Dockerfile's image converted."""
        lines, refused = [], {}
        for way in self.ways():
            took, disk = self.of_way(way, "build_s"), self.of_way(way, "disk_bytes")
            if took is not None and disk is not None:
                lines.append(
                    f"Built {naive_images.WAYS[way]}: {seconds(took)} to a .sif of {_size(disk)}, the packages "
                    "installed by its %post."
                )
            elif reason := self.why_no_way(way):
                refused.setdefault(reason, []).append(naive_images.WAYS[way])
        if lines and (other := self.converted("naive")):
            lines.append(
                f"The Dockerfile's image, converted, is one of {_size(other[1])} after {seconds(other[0])} in all."
            )
        return lines + [f"Unavailable {listed(names)}: {reason}." for reason, names in refused.items()]

    def sif_table(self) -> Table:
        """Apptainer's form by every way to it."""
        rows: list[Row] = []
        for whose, title in (("naive", "by docker build, converted"), ("ours", "ours, converted")):
            if found := self.converted(whose):
                rows.append([sentence_case(title), *_measured(*found)])
        for way in self.ways():
            took, disk = self.of_way(way, "build_s"), self.of_way(way, "disk_bytes")
            cells = [UNAVAILABLE] * 2 if took is None or disk is None else _measured(took, disk)
            rows.append([f"By definition file, {naive_images.WAYS[way]}", *cells])
        reasons = dict.fromkeys(reason for way in self.ways() if (reason := self.why_no_way(way)))
        return Table(
            caption=f"{self.stack}: ways to a .sif",
            columns=["", "until it is there", "on this disk"],
            rows=rows,
            note=" ".join(
                [
                    "Each made once. What is converted: the sum of both stages.",
                    *(f"Unavailable: {reason}." for reason in reasons),
                ]
            ),
            numeric=True,
        )

    def table(self) -> Table:
        """Every number of both, with its kind."""
        rows: list[Row] = []
        for item, title in naive_images.ITEMS.items():
            for env in self.environments() if item in naive_images.OF_FORMS else [naive_images.IMAGE]:
                cells = [self._cell(whose, item, env) for whose in naive_images.WHOSE]
                if any(cell is not None for cell in cells):
                    where = "" if env == naive_images.IMAGE else f", {env_title(env)}"
                    rows.append([sentence_case(title) + where, *cells])
        own = ~self.rows["item"].str.startswith(naive_images.DEFINED)
        reasons = list(dict.fromkeys(self.rows.loc[own, "reason"].dropna()))
        return Table(
            caption=f"{self.stack}: an image as people write it, and ours",
            columns=["", "naive", "ours"],
            rows=rows,
            note=" ".join(
                [
                    "Both made once, in one run. A dash: there is no such stage. Pushed and pulled bytes are "
                    "compressed layers.",
                    *(f"Unavailable: {reason}." for reason in reasons),
                ]
            ),
            numeric=True,
        )

    def _cell(self, whose: str, item: str, env: str) -> Cell | str | None:
        value = self.value(whose, item, env)
        if value is None:
            return UNAVAILABLE if self.why_not(whose, item, env) else None
        own = self.rows[(self.rows["item"] == f"{whose}_{item}") & (self.rows["env"] == env)]
        unit = naive_images.unit_of(item)
        text = _size(value) if unit == "B" else seconds(value) if unit == "s" else f"{value:g}"
        return Cell(text=text, below=str(own["kind"].iloc[0]))


def _measured(took: float, disk: float) -> list[Cell]:
    return [Cell(text=text, below="measured") for text in (seconds(took), _size(disk))]


def printed() -> list[str]:
    """What published studies print of their images, and what is in those that is not in ours."""
    lines = []
    for name in paper_names():
        paper = published.load(name)
        found = [fact for fact in paper.text if fact.id in PRINTED and fact.quantity is not None]
        if not found:
            continue
        told = listed([PRINTED[fact.id].format(fact.quantity) for fact in found])
        differs = [name for fact in paper.settings if fact.id == DIFFERS for name in fact.names]
        more = f" What these images or their builds may lack is in there: {listed(differs)}." if differs else ""
        lines.append(f"{name}: {told}, of one build without a spread.{more}")
    return lines


def _size(value: float) -> str:
    """Bytes as registries print them, in powers of ten: 1.20 GB."""
    text = decimal_prefix(value)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"
