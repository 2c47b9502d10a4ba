"""Every table made again from the records by the code that makes it, and compared column by column.

Numbers are equal to the last bit where the same libraries add up on the same kind of processor. Elsewhere NumPy and
SciPy may round the last bits otherwise: `TOLERANCES` says by how much a column may differ then.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tare.analysis import extract, image_costs
from tare.archive.checks.found import Notes
from tare.archive.checks.records import judged_otherwise, some
from tare.archive.checks.tree import Measured, Tree
from tare.core.errors import TareError, UserError
from tare.core.files import sha256_file
from tare.model import tables as model
from tare.model.records.measured import CopiesRecord
from tare.model.schema import read
from tare.model.studies import campaigns, layout
from tare.model.studies.arms import parse as parse_arm
from tare.model.studies.machines import measured as named_machines
from tare.model.studies.papers import refuse_stale, repeated
from tare.model.studies.study import Study

ELSE = 1e-9  # relative: what sums and logarithms round differently
# Relative, by column: ends of intervals go through quantiles that are found by iteration.
TOLERANCES: Mapping[str, float] = {
    **dict.fromkeys(("ci_low", "ci_high", "low", "high", "total_ci_low", "total_ci_high"), 1e-6),
    **dict.fromkeys(("stalls_ci_low", "stalls_ci_high", "control_ci_low", "control_ci_high"), 1e-6),
    **dict.fromkeys(("between_low", "between_high", "further_low"), 1e-6),
    **dict.fromkeys(("further_high", "cause_share_low", "cause_share_high", "seconds_low", "seconds_high"), 1e-6),
    **dict.fromkeys(("change_ratio_low", "change_ratio_high"), 1e-6),
}
# Who holds a stamp's hash, in the words of tare.machine.witnesses: a folder can't be asked for it.
AT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)"
WITNESSES = (
    rf"the tag \S{{1,250}} of {AT}, (?:unsigned|signed(?: with a key that this machine does not know)?)",
    rf"a note of git of {AT}, unsigned",
    r"a proof of OpenTimestamps \(check its time with `ots verify [\w./@+-]{1,500}`\)",
)
HOLDS = f"(?:{'|'.join(WITNESSES)})"
NOBODY = "nothing but this folder, which proves no time"
NOT_ASKED = re.compile(rf"; held by (?P<who>{NOBODY}|{HOLDS}(?:, {HOLDS})*)$")
MOST_WITNESSES = 20  # that are named
MOST_TIMES_LARGER, SMALL_TABLE = 4, 1 << 20  # than what is made again, and in addition: bytes that are read
COPIES = "copies"
DECISIONS_JSON = "decisions.json"
COMPARED = "machines"  # the table of several machines
JUDGED = ("published", "claims")
OWN = ("metrics", "verdicts", "job_length")  # tables of one environment alone

Made = Mapping[str, pd.DataFrame]


def tables(tree: Tree, notes: Notes) -> None:
    """Every number, interval, verdict and decision follows from the raw records."""
    for measured in _with_tables(tree, notes):
        made = _tried(tree, notes, measured, partial(extracted, measured))
        if made is None:
            continue
        folder = measured.results / "tables"
        for name, table in made.items():
            kept = _asked_for(measured) if name == "ledger" else None
            _compare(tree, notes, name, folder / f"{name}.csv", table, kept)
        _note_witnesses(tree, notes, folder / "ledger.csv")
        _compare(tree, notes, "metrics", folder / "metrics.parquet", made["metrics"])
        _compare_json(tree, notes, folder / DECISIONS_JSON, made["decisions"])
        known = {f"{name}.csv" for name in (*made, *model.COUNTED, *JUDGED)} | {"metrics.parquet", DECISIONS_JSON}
        for path in files_in(folder):
            if path.relative_to(folder).as_posix() not in known:
                note = partial(_note_difference, tree, notes) if tree.is_archive else notes.leave
                note(tree.name(path), "is no table that records give")
        for path in sorted(measured.results.glob("environments/*")):
            for other in files_in(path):
                if other.relative_to(path).as_posix() not in {"metrics.parquet", *(f"{name}.csv" for name in OWN)}:
                    note = partial(_note_difference, tree, notes) if tree.is_archive else notes.leave
                    note(tree.name(other), "is no table that records give")
            own = _tried(tree, notes, measured, partial(of_environment, measured, path.name))
            for name in OWN if own is not None else ():
                _compare(tree, notes, name, path / f"{name}.csv", own[name])
            if own is not None and (path / "metrics.parquet").exists():
                _compare(tree, notes, "metrics", path / "metrics.parquet", own["metrics"])


def costs(tree: Tree, notes: Notes) -> None:
    """The table of what images cost follows from their records and from starts."""
    for measured in _with_tables(tree, notes):
        path = measured.results / "tables/image_costs.csv"
        if not path.exists() and (measured.asked is None or not measured.asked.workloads):
            continue
        made = _tried(tree, notes, measured, partial(counted, measured))
        if made is not None:
            _compare(tree, notes, "image_costs", path, made)


def claims(tree: Tree, notes: Notes) -> None:
    """What others published is judged as the tables and the papers' own numbers have it, word by word."""
    for measured in _with_tables(tree, notes):
        folder = measured.results / "tables"
        asked = measured.asked
        if asked is not None and not repeated(asked.papers, asked.workloads):
            for path in (folder / f"{name}.csv" for name in JUDGED):
                if path.exists():
                    what = "judges papers that the study does not repeat"
                    (notes.fail if tree.is_archive else notes.leave)(tree.name(path), what)
            continue
        made = _tried(tree, notes, measured, partial(judged, measured))
        for name, table in (made or {}).items():
            _compare(tree, notes, name, folder / f"{name}.csv", table)


def side_by_side(tree: Tree, notes: Notes) -> None:
    """The table of several machines follows from the decisions of each, and there is no other."""
    for several in of_several(tree):
        folder = tree.root / layout.results_folder(several[0].study) / "tables"
        path = folder / f"{COMPARED}.csv"
        for other in files_in(folder):
            if other != path:
                what = "is no table of several machines: each has its tables in its own folder"
                (notes.fail if tree.is_archive else notes.leave)(tree.name(other), what)
        if not path.exists():
            lacks_comparison(tree, notes, several, path)
            continue
        made = _tried(tree, notes, several[0], partial(compared, several))
        if made is not None:
            _compare(tree, notes, COMPARED, path, made)


def of_several(tree: Tree) -> Iterator[list[Measured]]:
    """The machines of each study that names several."""
    for study in sorted({one.study for one in tree.measured if one.is_one_of_several}):
        yield [one for one in tree.measured if one.study == study]


def lacks_comparison(tree: Tree, notes: Notes, several: Sequence[Measured], path: Path) -> None:
    """Note that what compares machines is missing; with one machine there is nothing to compare."""
    if len(several) < 2:
        return
    named = len(named_machines(asked_of(several[0]).machines)) if several[0].asked is not None else None
    if tree.is_archive and named == len(several):
        notes.fail(tree.name(path), "is missing")
    else:
        notes.leave(tree.name(path), "does not exist: it needs measurements of several machines")


def files_in(folder: Path) -> list[Path]:
    """Files of a folder and of those below it that are not hidden."""
    found = (one for one in folder.rglob("*") if one.is_file())
    return sorted(one for one in found if not any(part.startswith(".") for part in one.relative_to(folder).parts))


def _with_tables(tree: Tree, notes: Notes) -> Iterable[Measured]:
    for measured in tree.measured:
        if (measured.results / "tables").is_dir():
            yield measured
        elif tree.is_archive:
            notes.fail(tree.name(measured.results / "tables"), "is missing")
        else:
            notes.leave(tree.name(measured.results / "tables"), "no tables were made")


def _tried(tree: Tree, notes: Notes, measured: Measured, make: Callable[[], Any]) -> Any:
    """What is made again; None with a note where it can't be."""
    try:
        return make()
    except TareError as error:
        notes.leave(measured.name, f"the tables can't be made again: {tree.plain(error)}")
    return None


# --- made again


def asked_of(measured: Measured) -> Study:
    """The study as its file has it. Raises UserError: that can't be determined."""
    if measured.asked is None:
        raise UserError(measured.asked_problem or "no file says what was asked for")
    return measured.asked


def extracted(measured: Measured) -> Made:
    """The tables of `tare tables`, by the records that a study's workflow gives it."""
    study, root = asked_of(measured), measured.root
    workloads, machine = list(study.workloads), measured.machine

    def there(paths: Iterable[Path]) -> list[Path]:
        return [root / path for path in paths if (root / path).exists()]

    def profile(workload: str, name: str) -> Path:
        return layout.profile_record(study.study, machine, workload, name)

    sealed = [
        layout.sealed_record(study.study, machine, one.workload, one.name) for one in campaigns.campaigns(study)
    ]
    profiles = [profile(workload, env) for workload in workloads for env in study.environments]
    in_stacks = [
        profile(workload, layout.profile_name("host", parse_arm(level)))
        for workload, level in campaigns.profiled_stacks(study)
    ]
    alone = study.pipeline.workloads if study.pipeline else ()
    pipelines = [layout.pipeline_record(study.study, machine, workload) for workload in alone]
    made = extract.build(
        there(sealed),
        there(profiles),
        study.margins.to_json(),
        copies=_copies(measured),
        pipelines=there(pipelines),
        stack_profiles=there(in_stacks),
    )
    return _without_root(root, made)


def of_environment(measured: Measured, env: str) -> Made:
    """The tables of one environment's own campaigns."""
    study, root = asked_of(measured), measured.root
    sealed, profiles = [], []
    for workload in study.measured:
        name = layout.campaign_name("rounds", ["host", env])
        sealed.append(root / layout.sealed_record(study.study, measured.machine, workload, name))
        profiles.append(root / layout.profile_record(study.study, measured.machine, workload, env))
    there, traced = ([path for path in paths if path.exists()] for paths in (sealed, profiles))
    made = extract.build(there, traced, study.margins.to_json(), copies=_copies(measured))
    return _without_root(root, made)


def _copies(measured: Measured) -> CopiesRecord | None:
    path = measured.root / layout.benchmark_record(measured.machine, COPIES)
    return read(CopiesRecord, path) if path.exists() else None


def _without_root(root: Path, made: Made) -> Made:
    """Tables whose words name files as the workflow does, from the folder in which it runs."""

    def plain(value: Any) -> Any:
        return value.replace(f"{root}/", "") if isinstance(value, str) else value

    found = {}
    for name, table in made.items():
        texts = [column for column in table.columns if not pd.api.types.is_numeric_dtype(table[column])]
        found[name] = table.assign(**{column: table[column].map(plain) for column in texts}) if texts else table
    return found


def counted(measured: Measured) -> pd.DataFrame:
    """The table of image costs, by the records that a study's workflow gives it."""
    study, root = asked_of(measured), measured.root
    images = next(iter(_image_folders(measured, study)), root / layout.IMAGES)
    naive = root / layout.naive_record(images / study.stack, measured.machine)
    forms = [
        image_costs.read_forms(
            images, stack, study.environments_of(stack),
            naive if stack == study.stack and study.naive_image and naive.exists() else None,
        )
        for stack in study.stacks_needed
    ]  # fmt: skip
    first = next(iter(study.workloads))
    names = [layout.campaign_name(kind, study.environments) for kind in ("starts", "rounds")]
    starts, runs = (root / layout.sealed_record(study.study, measured.machine, first, name) for name in names)
    return image_costs.build(
        study.study,
        measured.machine,
        forms,
        image_costs.read_starts(starts) if starts.exists() else None,
        image_costs.read_runs(runs) if study.warm_in_runs and runs.exists() else None,
    )


def _image_folders(measured: Measured, study: Study) -> Iterable[Path]:
    """Folders of images that have the study's stack, those for its machine or its device before the shared."""
    base = measured.root / layout.IMAGES
    named = [f"@{measured.machine}-{study.device}", f"@{measured.machine}", f"@{study.device}", ""]
    return (base / name for name in named if (base / name / study.stack).is_dir())


def images_of(measured: Measured) -> Path:
    """The folder of the images of a study's stacks."""
    return next(iter(_image_folders(measured, asked_of(measured))), measured.root / layout.IMAGES)


def judged(measured: Measured) -> Made:
    """The tables of `tare audit`, by the study's own tables that are there."""
    from tare.literature import audit, published
    from tare.literature import claims as rules
    from tare.literature.measured_here import gather

    study = asked_of(measured)
    papers = repeated(study.papers, study.workloads)
    refuse_stale(papers)
    found, read_papers = (
        gather(measured.results, measured.root / layout.RESULTS),
        [published.load(one) for one in papers],
    )
    return {
        "published": pd.concat([audit.judge(one, found) for one in read_papers], ignore_index=True),
        "claims": pd.concat([rules.judge_claims(one, found) for one in read_papers], ignore_index=True),
    }


def compared(several: Sequence[Measured]) -> pd.DataFrame:
    """The table of machines, by the decisions of each that are there."""
    from tare.analysis.decisions import read_decisions
    from tare.analysis.machines import compared as side
    from tare.model.records.machine import read_machine

    study = asked_of(several[0])
    kinds = {name: one.kind for name, one in named_machines(study.machines).items()}
    found, hosts = {}, {}
    for one in several:
        found[one.machine] = read_decisions(model.read("decisions", one.results / "tables/decisions.csv"))
        record = read_machine(layout.of_machine(one.results, one.machine, layout.MACHINE_FILE))
        hosts[one.machine] = record.host_name if record is not None else None
    own = {name: kinds[name] for name in kinds if name in found}
    rows = [{"study": study.study, **row} for row in side(found, own, hosts, study.confidence)]
    return model.make("machines", rows)


# --- compared


def _asked_for(measured: Measured) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Rows of the campaigns that the study asks for: others may have been measured since its tables were made."""
    asked = asked_of(measured)
    names = {(one.workload, one.name) for one in campaigns.campaigns(asked)}
    starts = layout.campaign_name("starts", asked.environments)
    names |= {(workload, starts) for workload in asked.workloads}

    def kept(table: pd.DataFrame) -> pd.DataFrame:
        pairs = zip(table["workload"], table["campaign"], strict=True)
        return table[[pair in names for pair in pairs]].reset_index(drop=True)

    return kept


@contextlib.contextmanager
def _other_bytes(tree: Tree, notes: Notes, name: str, path: Path, made: pd.DataFrame) -> Iterator[Path | None]:
    """A table written again, where the file there has other bytes; None where it has the same, or is noted."""
    if not path.exists():
        notes.fail(tree.name(path), "is missing")
        yield None
        return
    notes.look("tables")
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder, path.name)
        model.write(name, made, again)
        if (size := path.stat().st_size) > MOST_TIMES_LARGER * again.stat().st_size + SMALL_TABLE:
            ours = again.stat().st_size
            _note_difference(tree, notes, tree.name(path), f"has {size:,} bytes, and its records give {ours:,}")
            yield None
        else:
            yield None if sha256_file(again) == sha256_file(path) else again


def _compare(
    tree: Tree,
    notes: Notes,
    name: str,
    path: Path,
    made: pd.DataFrame,
    kept: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
) -> None:
    """Compare a table with what is made again, or of both the rows that are kept."""
    where = tree.name(path)
    with _other_bytes(tree, notes, name, path, made) as again:
        if again is None:
            return
        try:
            if path.suffix == ".parquet" and kept is None and (rows := model.rows_of_parquet(path)) != len(made):
                _note_difference(tree, notes, where, f"has {rows} rows, and its records give {len(made)}")
                return
            # Both as they are read back: what a file does not keep is no difference.
            there, ours = model.read(name, path), model.read(name, again)
        except TareError as error:
            _note_difference(tree, notes, where, tree.plain(error))
            return
    wrong, largest = differences(there, ours) if kept is None else differences(kept(there), kept(ours))
    if wrong is None:
        if largest:
            notes.remark(
                where, f"is equal within its tolerance: numbers differ by {largest:.1e} of themselves at most"
            )
        return
    _note_difference(tree, notes, where, wrong)


def _note_difference(tree: Tree, notes: Notes, where: str, wrong: str) -> None:
    """A difference is no fault of the folder's where other programs judged than judge now."""
    other = judged_otherwise(tree)
    if other:
        notes.leave(
            where, f"{wrong}; what judges is another program here ({some(other)}): check it with its own version"
        )
    else:
        notes.fail(where, wrong)


def differences(there: pd.DataFrame, made: pd.DataFrame) -> tuple[str | None, float]:
    """The first difference between two tables, and by how much numbers differ that are within their tolerance.

    Rows are compared in the order of their words and whole numbers: which row is first says nothing.
    """
    if list(there.columns) != list(made.columns):
        other = sorted({*there.columns} ^ {*made.columns})
        return f"has other columns than its records give: {', '.join(other) or 'in another order'}", 0.0
    if len(there) != len(made):
        return f"has {len(there)} rows, and its records give {len(made)}", 0.0
    one, other = _in_order(there), _in_order(made)
    largest = 0.0
    for column in one.columns:
        unlike, by = _unlike(column, one[column], other[column])
        if unlike is not None:
            row, wanted = one.iloc[unlike], _shown(other[column].iloc[unlike])
            difference = f"says {column} {_shown(row[column])}, and its records give {wanted} ({_which(row)})"
            return difference, 0.0
        largest = max(largest, by)
    return None, largest


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    keys = [column for column in table.columns if not pd.api.types.is_float_dtype(table[column])]
    keys = [column for column in keys if column not in ("verdict", "reason", "note", "stamp", "evidence")]
    return table.sort_values(keys, kind="stable", na_position="first").reset_index(drop=True) if keys else table


def _unlike(column: str, one: pd.Series, other: pd.Series) -> tuple[int | None, float]:
    """The first row in which a column differs, and by how much its numbers do that are near enough."""
    if pd.api.types.is_float_dtype(one) and pd.api.types.is_float_dtype(other):
        a, b = one.to_numpy(dtype=float), other.to_numpy(dtype=float)
        both = np.isnan(a) & np.isnan(b)
        with np.errstate(invalid="ignore"):
            apart = np.where(both | (a == b), 0.0, np.abs(a - b) / np.maximum(np.abs(a), np.abs(b)))
        apart = np.where(np.isnan(a) != np.isnan(b), np.inf, apart)
        beyond = np.flatnonzero(~(apart <= TOLERANCES.get(column, ELSE)))
        return (int(beyond[0]), 0.0) if len(beyond) else (None, float(apart.max(initial=0.0)))
    a, b = (_words(column, values) for values in (one, other))
    wrong = [number for number, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    return (wrong[0], 0.0) if wrong else (None, 0.0)


def _words(column: str, values: pd.Series) -> list[str | None]:
    texts = [None if pd.isna(value) else str(value) for value in values]
    return [text and NOT_ASKED.sub("", text) for text in texts] if column == "stamp" else texts


def _note_witnesses(tree: Tree, notes: Notes, path: Path) -> None:
    """Note who holds stamps by what the table of the ledger says, where nothing else is wrong with it."""
    where = tree.name(path)
    if not path.exists() or any(place == where for place, _ in (*notes.wrong, *notes.open)):
        return
    found = (NOT_ASKED.search(text) for text in model.read("ledger", path)["stamp"].dropna())
    holders = {match["who"] for match in found if match is not None} - {NOBODY}
    for who in sorted(holders)[:MOST_WITNESSES]:
        notes.remark(where, f"says that a stamp is held by {who}: nothing here shows whether that is so, see there")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.12g}"
    text = "nothing" if pd.isna(value) else repr(str(value))
    return text if len(text) < 80 else f"{text[:77]}…"


def _which(row: pd.Series) -> str:
    names = (
        "workload",
        "campaign",
        "launch",
        "metric",
        "item",
        "rep",
        "paper",
        "claim",
        "figure",
        "check",
        "machine",
    )
    values = [f"{row[name]}" for name in names if name in row.index and not pd.isna(row[name])]
    return ", ".join(values[:5])


def _compare_json(tree: Tree, notes: Notes, path: Path, made: pd.DataFrame) -> None:
    where = tree.name(path)
    with _other_bytes(tree, notes, "decisions", path, made) as again:
        if again is None:
            return
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            notes.fail(where, f"is no JSON: {error}")
            return
        ours = json.loads(again.read_text(encoding="utf-8"))
    if not isinstance(there, list) or len(there) != len(ours):
        notes.fail(where, f"has other rows than the table decisions, which has {len(ours)}")
        return
    for number, (one, other) in enumerate(zip(there, ours, strict=True)):
        for key in sorted({*one, *other}):
            if not _near(key, one.get(key), other.get(key)):
                wrong = f"says {key} {one.get(key)!r} in row {number + 1}, and its records give {other.get(key)!r}"
                _note_difference(tree, notes, where, wrong)
                return


def _near(key: str, one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return abs(one - other) <= TOLERANCES.get(key, ELSE) * max(abs(one), abs(other))
    return bool(one == other)
