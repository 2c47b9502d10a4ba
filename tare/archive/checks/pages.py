"""Pages, figures and notebooks drawn again from the tables and records next to them.

They are drawn by the Tare that checks: nothing of the folder is run. Equal tables give equal bytes, but for the
time at which a page was written, and the ids of tables in notebooks, which are random.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tare import __version__
from tare.archive.checks.found import Notes
from tare.archive.checks.records import differing_inputs, some
from tare.archive.checks.tables import COMPARED, asked_of, files_in, images_of, lacks_comparison, of_several
from tare.archive.checks.tree import Measured, Tree
from tare.core.errors import TareError, UserError
from tare.core.files import data_root, project_root, read_json
from tare.model import closure
from tare.model.journals.references import name_of, opened, shown, tables_of
from tare.model.studies import layout

REPORT, NOTEBOOKS, FIGURES, TABLES = "report", "notebooks", "figures", "tables"
OF_ONE = (
    NOTEBOOKS,
    FIGURES,
    "environments",
    layout.MACHINES,
    layout.ANSWERS,
)  # each machine of several has its own
FAILED = "failed.json"
REFERENCE = "reference"  # the section of other machines' recorded campaigns
SECTION, SECTION_END = '<section id="', "</section>"
MOST_PAGE_BYTES = 64 << 20
MOST_NAME = 100  # characters of a section's id that are looked at
WRITTEN = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2} UTC")
# Where a person has the study's file: a word, quoted where its shell needs that, and no markup.
FILE = re.compile(r"(\bSTUDY=|--configfile )(?:[^\s<>&\"']|&#39;)+")
GENERATOR = re.compile(r'<meta name="generator" content="Tare ([^"]*)">')
NOT_SHOWN = ("id", "execution_count")  # keys of cells and outputs
OF_TIMES = ("papermill", "execution")  # keys of a cell's metadata
AT_PLACE = re.compile(r"\bat 0x[0-9a-f]+")  # in what Python says of an object
RANDOM_ID = re.compile(r"\bT_[0-9a-f]{5}")  # pandas' of a styled table
DRAWN_BY = {"tare/report": project_root, "notebooks": data_root}


def figures(tree: Tree, notes: Notes) -> None:
    """Every figure, and all that a notebook shows, is drawn from the tables that are there, byte for byte."""
    for measured in _reported(tree, notes, NOTEBOOKS):
        names = _notebooks(tree, notes, measured)
        try:
            with _drawn_again(tree, measured, names) as again:
                failed = read_json(again / NOTEBOOKS / FAILED)
                for name, reason in failed.items():
                    notes.leave(
                        tree.name(measured.results / NOTEBOOKS / f"{name}.ipynb"), f"it fails here: {reason}"
                    )
                _compare_figures(tree, notes, measured, again, is_whole=not failed)
                _compare_notebooks(tree, notes, measured, again, [name for name in names if name not in failed])
        except (TareError, ImportError) as error:
            notes.leave(
                tree.name(measured.results / FIGURES), f"can't be drawn again: {error}".replace(f"{tree.root}/", "")
            )


def _notebooks(tree: Tree, notes: Notes, measured: Measured) -> list[str]:
    """Names of the notebooks that can be run again; notes what else is in their folder."""
    from tare.report.notebooks import source_of

    folder, known = measured.results / NOTEBOOKS, []
    papers = measured.asked.papers if measured.asked is not None else ()
    paths = files_in(folder)
    names = {path.stem for path in paths if path.parent == folder and path.suffix == ".ipynb"}
    for name in sorted(names):
        path = folder / f"{name}.ipynb"
        try:
            source_of(name)
            known.append(name)
        except UserError as error:
            if name in papers:
                notes.leave(tree.name(path), f"can't be drawn again: {error}")
            else:
                notes.fail(tree.name(path), "is none of the notebooks that a study has")
    for path in paths:
        is_page = path.parent == folder and path.suffix in (".ipynb", ".html") and path.stem in names
        if not is_page and path != folder / FAILED:
            _odd(tree, notes, path, "is neither a notebook nor the page of one")
    return known


def _odd(tree: Tree, notes: Notes, path: Path, what: str) -> None:
    """A file that no study has; in a folder that is no archive a user may have left it."""
    (notes.fail if tree.is_archive else notes.leave)(tree.name(path), what)


def _reported(tree: Tree, notes: Notes, folder: str) -> Iterator[Measured]:
    for measured in tree.measured:
        if (measured.results / folder).is_dir():
            yield measured
        elif tree.is_archive:
            notes.fail(tree.name(measured.results / folder), "is missing")
        else:
            notes.leave(tree.name(measured.results / folder), "does not exist")


@contextlib.contextmanager
def _references(tree: Tree) -> Iterator[Path]:
    """A folder with the reference campaigns that are there, and tables made of them again."""
    from tare.analysis.reference import write_tables
    from tare.literature.claims import write_of_device

    with tempfile.TemporaryDirectory(prefix="tare-references-") as scratch:
        root = Path(scratch, layout.REFERENCES.name)
        root.mkdir()
        for place in shown(tree.root / layout.RESULTS):
            recorded = _linked(place, root, Path(scratch, "unpacked"))
            made = tables_of(Path(scratch), name_of(place))
            with contextlib.redirect_stdout(sys.stderr):
                write_tables(recorded, made, keep_going=True)
                write_of_device(recorded, made)
        yield Path(scratch)


def _linked(place: Path, root: Path, scratch: Path) -> Path:
    """A link in `root` to a reference's folder; of an archive that can't be opened to the archive."""
    try:
        target, link = opened(place, scratch), root / name_of(place)
    except TareError:
        target, link = place, root / place.name
    link.symlink_to(target.resolve())
    return link


@contextlib.contextmanager
def _drawn_again(tree: Tree, measured: Measured, names: Sequence[str]) -> Iterator[Path]:
    """A folder of results with the tables that are there, and figures and notebooks drawn from them."""
    from tare.report.notebooks import execute_all

    study = asked_of(measured)
    with tempfile.TemporaryDirectory(prefix="tare-drawn-") as scratch:
        below = measured.results.relative_to(tree.root)
        results = Path(scratch, below)
        results.mkdir(parents=True)
        for shared in (layout.CAMPAIGNS, layout.PROFILES):
            if (tree.root / shared).is_dir() and not (Path(scratch) / shared).exists():
                (Path(scratch) / shared).symlink_to(tree.root / shared)
        for name in (TABLES, layout.MACHINES):
            if (measured.results / name).is_dir():
                (results / name).symlink_to(measured.results / name)
        drawn: dict[str, list[Path]] = {name: [] for name in names}
        with contextlib.redirect_stdout(sys.stderr):
            execute_all(names, results, list(study.workloads), results / NOTEBOOKS, os.cpu_count() or 1, drawn)
        yield results


def _compare_figures(tree: Tree, notes: Notes, measured: Measured, again: Path, *, is_whole: bool) -> None:
    there, ours = measured.results / FIGURES, again / FIGURES
    known = {path.relative_to(there) for path in there.rglob("*.svg")}
    made = {path.relative_to(ours) for path in ours.rglob("*.svg")}
    for path in sorted(known | made):
        notes.look("figures")
        where = tree.name(there / path)
        if path not in known:
            notes.fail(where, "is missing, and its tables give it")
        elif path not in made:
            (notes.fail if is_whole else notes.leave)(where, "follows from no table")
        elif (there / path).read_bytes() != (ours / path).read_bytes():
            _differs(tree, notes, where, "is not what its tables give")
    for path in files_in(there):
        if path.suffix != ".svg":
            _odd(tree, notes, path, "is no figure of a study")


def _differs(tree: Tree, notes: Notes, where: str, what: str) -> None:
    """A difference is no fault of the folder's where another program drew, or drew with other libraries."""
    other = drawn_otherwise(tree)
    if other:
        notes.leave(
            where, f"{what}; what draws is another program here ({some(other)}): check it with its own version"
        )
    else:
        notes.fail(where, f"{what}: it was edited, or another version of matplotlib, seaborn or pandas drew it")


@lru_cache(maxsize=1)
def drawn_otherwise(tree: Tree) -> list[str]:
    """Files that draw, which are others here than in the Tare that checks; none without sources."""
    root = project_root()
    if root == tree.root or not (tree.root / "tare").is_dir():
        return []
    found = set(differing_inputs(tree))
    for folder, here in DRAWN_BY.items():
        ours = here()
        for path in {one.relative_to(base) for base in (ours, tree.root) for one in (base / folder).rglob("*")
                     if one.is_file() and one.suffix != ".pyc"}:  # fmt: skip
            if not _same(ours / path, tree.root / path, path):
                found.add(path.as_posix())
    return sorted(found)


def _same(one: Path, other: Path, path: Path) -> bool:
    if not (one.is_file() and other.is_file()):
        return False
    if path.suffix != ".py":
        return one.read_bytes() == other.read_bytes()
    found = []
    for base in (one, other):
        with closure.of_checkout(base.parents[len(path.parts) - 1]):
            found.append(closure.programs([path.as_posix()]))
    return found[0] == found[1]


def _compare_notebooks(tree: Tree, notes: Notes, measured: Measured, again: Path, names: Sequence[str]) -> None:
    from tare.report.notebooks import to_page, without_grammars

    without_grammars()
    below = tree.name(measured.results)
    for name in names:
        path = measured.results / NOTEBOOKS / f"{name}.ipynb"
        notes.look("notebooks")
        try:
            cells, ours = (_shown(read_json(one), below) for one in (path, again / NOTEBOOKS / path.name))
        except (TareError, LookupError, TypeError, AttributeError) as error:
            notes.fail(tree.name(path), f"is no notebook: {error}".replace(f"{tree.root}/", ""))
            continue
        for number, (cell, own) in enumerate(zip(cells, ours, strict=False), start=1):
            if cell != own:
                _differs(tree, notes, tree.name(path), f"cell {number} is not what its tables give")
                break
        else:
            if len(cells) != len(ours):
                _differs(tree, notes, tree.name(path), f"has {len(cells)} cells, and {len(ours)} belong there")
        page = path.with_suffix(".html")
        if not page.exists():
            notes.fail(tree.name(page), "is missing")
        elif _plain_ids(_text(page)) != _plain_ids(to_page(path)):
            _differs(tree, notes, tree.name(page), f"does not show what {path.name} holds")


def _shown(notebook: Any, below: str) -> list[str]:
    """What a notebook says, cell by cell, as JSON: all but counts, random ids and what papermill noted of times.

    `below`: the folder of results from which it was run, which may have been in another place.
    """
    found, before = [], ()
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        own = {key: value for key, value in cell.items() if key not in NOT_SHOWN}
        own["metadata"] = {key: value for key, value in cell.get("metadata", {}).items() if key not in OF_TIMES}
        tags = own["metadata"].pop("tags", [])
        if "parameters" in before and tags == ["injected-parameters"]:
            source = _same_parameters(source, below)
        outputs = [_output(one, below) for one in cell.get("outputs", [])]
        said = json.dumps({**own, "source": source, "tags": tags, "outputs": outputs}, sort_keys=True)
        found.append(_plain_ids(said))
        before = tags
    return found


def _same_parameters(source: str, below: str) -> str:
    """The cell that papermill adds, with the folder of results from where they are, and workloads in any order."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        name, _, value = line.partition(" = ")
        if name == "results" and re.fullmatch(rf'"(?:[^\s"<>]*/)?{re.escape(below)}"', value):
            lines[number] = f'{name} = "{below}"'
        elif name == "workloads":
            lines[number] = f"{name} = {sorted(value.strip(chr(34)).split())}"
    return "\n".join(lines)


def _output(one: Mapping[str, Any], below: str) -> dict[str, Any]:
    """An output, with texts in one piece; in its plain text no places in memory, and paths from below the root."""
    found = {key: _joined(value) for key, value in one.items() if key not in NOT_SHOWN}
    if isinstance(one.get("data"), Mapping):
        found["data"] = {kind: _joined(value) for kind, value in one["data"].items()}
        if isinstance(text := found["data"].get("text/plain"), str):
            above = re.compile(rf"(?<![^\s'\"(=])/[^\s'\"()]*/(?={re.escape(below)})")
            found["data"]["text/plain"] = above.sub("", AT_PLACE.sub("at 0x", text))
    return found


def _joined(value: Any) -> Any:
    is_text = isinstance(value, list) and all(isinstance(line, str) for line in value)
    return "".join(value) if is_text else value


def _plain_ids(text: str) -> str:
    """Random ids numbered in their order."""
    known: dict[str, str] = {}
    return RANDOM_ID.sub(lambda match: known.setdefault(match[0], f"T_{len(known)}"), text)


# --- pages


def pages(tree: Tree, notes: Notes) -> None:
    """Every page says what the tables, records and figures say, section by section, and nothing else."""
    for measured in _reported(tree, notes, REPORT):
        folder = measured.results / REPORT
        try:
            made = _pages(tree, measured)
        except (TareError, ImportError) as error:
            notes.leave(tree.name(folder), f"can't be written again: {error}".replace(f"{tree.root}/", ""))
            continue
        _compare_pages(tree, notes, folder, _texts(folder), made)
        _no_others(tree, notes, folder)
    for several in of_several(tree):
        _page_of_machines(tree, notes, several)
    for study, has_several in sorted({(one.study, one.is_one_of_several) for one in tree.measured}):
        for name in OF_ONE if has_several else (layout.ON,):
            if files_in(path := tree.root / layout.results_folder(study) / name):
                whose = "several machines" if has_several else "one machine"
                _odd(tree, notes, path, f"is no folder of a study of {whose}, and nothing in it was looked at")


def _page_of_machines(tree: Tree, notes: Notes, several: Sequence[Measured]) -> None:
    """The page of a study that has its machines side by side."""
    from tare.model import tables
    from tare.model.records.machine import read_machine
    from tare.model.studies.machines import measured
    from tare.report import side_by_side
    from tare.report.pages import INDEX

    results = tree.root / layout.results_folder(several[0].study)
    folder, table = results / REPORT, results / TABLES / f"{COMPARED}.csv"
    _no_others(tree, notes, folder)
    if not table.exists():
        if not (folder / INDEX).exists():
            lacks_comparison(tree, notes, several, folder / INDEX)
        _compare_pages(tree, notes, folder, _texts(folder), {})
        return
    try:
        study = asked_of(several[0])
        kinds = {name: one.kind for name, one in measured(study.machines).items()}
        there = {one.machine: layout.of_machine(one.results, one.machine, layout.MACHINE_FILE) for one in several}
        found = {name: record for name in kinds if name in there and (record := read_machine(there[name]))}
        with tempfile.TemporaryDirectory() as scratch:
            page = side_by_side.write(
                study.study,
                tables.read(COMPARED, table),
                found,
                {name: kinds[name] for name in found},
                Path(scratch),
            )
            made = page.read_text(encoding="utf-8")
    except TareError as error:
        notes.leave(tree.name(folder), f"can't be written again: {tree.plain(error)}")
        return
    _compare_pages(tree, notes, folder, _texts(folder), {page.name: made})


def _no_others(tree: Tree, notes: Notes, folder: Path) -> None:
    """Nothing but pages is in a folder of pages."""
    for path in files_in(folder):
        if path.suffix != ".html":
            _odd(tree, notes, path, "is none of the study's pages")


def _texts(folder: Path) -> dict[str, str]:
    """Pages of a folder and of those below it, by their paths in it."""
    return {path.relative_to(folder).as_posix(): _text(path) for path in files_in(folder) if path.suffix == ".html"}


def _text(path: Path) -> str:
    """A page; nothing of one that is larger than any page can be, which no page says."""
    return path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= MOST_PAGE_BYTES else ""


def _pages(tree: Tree, measured: Measured) -> Mapping[str, str]:
    """The pages of a study by the name of their file."""
    from tare.report.evidence import gather
    from tare.report.pages import OVERVIEW, render

    shared = tree.root / layout.RESULTS
    images = images_of(measured) if asked_of(measured).workloads else None
    folder = measured.results / REPORT
    overview = os.path.relpath(shared / OVERVIEW, folder)
    with _references(tree) as references:
        evidence = gather(measured.results, shared, _inline(measured), images, references)
        made = render(evidence, folder, overview)
    places = {f"{tree.root}/": "", f"{references}/": f"{layout.RESULTS}/"}
    return {name: _without(places, text) for name, text in made.items()}


def _without(places: Mapping[str, str], text: str) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    return text


def _inline(measured: Measured) -> str:
    return json.dumps(asked_of(measured).to_json(), sort_keys=True)


def _compare_pages(
    tree: Tree, notes: Notes, folder: Path, there: Mapping[str, str], made: Mapping[str, str]
) -> None:
    for name in sorted({*there, *made}):
        where = tree.name(folder / name)
        notes.look("pages")
        if name not in there:
            notes.fail(where, "is missing")
        elif name not in made:
            notes.fail(where, "is none of the pages that the study has")
        elif (said := GENERATOR.search(there[name])) is not None and said[1] != __version__:
            notes.leave(where, f"was written by Tare {said[1]}, and {__version__} checks")
        else:
            _compare_page(tree, notes, where, there[name], made[name])


def _compare_page(tree: Tree, notes: Notes, where: str, there: str, made: str) -> None:
    one, other = (list(_parts(page)) for page in (there, made))
    own, ours = (_sections(parts) for parts in (one, other))
    for section in dict.fromkeys([*own, *ours]):
        found, given = own.get(section, []), ours.get(section, [])
        if found == given:
            continue
        place = f"{where}#{section}"
        if section == REFERENCE and len(found) < 2 and not shown(tree.root / layout.RESULTS):
            notes.leave(place, "the reference campaigns that it shows are not here")
        elif len(found) != len(given) and found and given:
            _differs(tree, notes, place, f"is there {len(found)} times, and its tables give it {len(given)} times")
        else:
            x, y = next(pair for pair in itertools.zip_longest(found, given) if pair[0] != pair[1])
            _differs(tree, notes, place, _first_difference(x, y))
    # What is around sections, in which each is an empty one at its place.
    both = {name for name in own if len(own[name]) == len(ours.get(name, []))}
    around = [
        "".join(f"{SECTION}{name}" if name else text for name, text in parts if not name or name in both)
        for parts in (one, other)
    ]
    if around[0] != around[1]:
        _differs(tree, notes, where, _first_difference(*around))


def _sections(parts: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Texts of the sections by their ids, each with all that have it."""
    found: dict[str, list[str]] = {}
    for name, text in parts:
        if name:
            found.setdefault(name, []).append(text)
    return found


def _parts(page: str) -> Iterator[tuple[str, str]]:
    """A page in order: each section with its id, and what is between them with an empty one.

    Without the time of writing, and without the path by which a person calls the study's file.
    """
    text = FILE.sub(r"\1", WRITTEN.sub("", page))
    done = 0
    while (begin := text.find(SECTION, done)) >= 0 and (end := text.find(SECTION_END, begin)) >= 0:
        end += len(SECTION_END)
        yield "", text[done:begin]
        name_at = begin + len(SECTION)
        yield text[name_at : min(end, name_at + MOST_NAME)].partition('"')[0], text[begin:end]
        done = end
    yield "", text[done:]


def _first_difference(there: str | None, made: str | None) -> str:
    if made is None:
        return "is a section that no table gives"
    if there is None:
        return "lacks this section"
    at = next(
        (place for place, (x, y) in enumerate(zip(there, made, strict=False)) if x != y), min(len(there), len(made))
    )
    begin = max(0, at - 20)
    shown = [" ".join(text[begin : at + 40].split()) for text in (there, made)]
    return f"says “{shown[0]}”, and its tables give “{shown[1]}”"
