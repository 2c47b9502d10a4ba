"""A folder laid out as a checkout with results, as checks see it: read once, whatever is damaged left apart.

What can't be read has its reason, and keeps no check from the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from tare.archive.members import INDEX, Index
from tare.archive.reading import index_of
from tare.core.errors import TareError, UserError
from tare.core.files import sha256_file, unpacked
from tare.model.journals.ledger import SUPERSEDED, Entry, read_ledger, set_aside_folders
from tare.model.journals.recorded import machine_of
from tare.model.journals.references import load
from tare.model.journals.sealed import PACKED_UNITS, PLAN, UNITS, Rows, read_plan, read_rows
from tare.model.records.campaigns import Plan, Sealed, Unit
from tare.model.records.measured import ProfileRecord
from tare.model.schema import read
from tare.model.studies import layout, loading
from tare.model.studies.arms import Arm
from tare.model.studies.layout import SEALED, question_of
from tare.model.studies.machines import are_several
from tare.model.studies.study import Study

Read = TypeVar("Read")


def plain(error: TareError, root: Path) -> str:
    """What is wrong, with paths as they are in the folder."""
    return str(error).replace(f"{root}/", "")


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """One campaign's folder; what of it can't be read is None, and `problem` says why."""

    folder: Path
    name: str  # of its folder, below the root
    question: tuple[str, str]  # workload, name of the campaign
    is_set_aside: bool
    plan: Plan | None
    rows: Rows | None
    sealed: Sealed | None
    problem: str | None

    @property
    def units(self) -> tuple[Unit, ...]:
        """All its units; none where its journal can't be read."""
        return self.rows.units if self.rows is not None else ()

    @property
    def arm(self) -> Arm | None:
        """What is varied."""
        return layout.read_name(self.question[1]).arm

    def journal(self) -> bytes:
        """The bytes of its journal, unpacked."""
        plain_file, packed = self.folder / UNITS, self.folder / PACKED_UNITS
        if packed.exists():
            return b"".join(unpacked(packed))
        return plain_file.read_bytes()

    def journal_sha256(self) -> str | None:
        """Of its journal; None where there is none."""
        with contextlib.suppress(OSError, TareError):
            return hashlib.sha256(self.journal()).hexdigest()
        return None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A study on a machine: its campaigns, its ledger, where its results are."""

    root: Path
    study: str
    machine: str

    @property
    def folder(self) -> Path:
        """Of its campaigns."""
        return self.root / layout.study_folder(self.study, self.machine)

    @property
    def name(self) -> str:
        """That folder, below the root."""
        return self.folder.relative_to(self.root).as_posix()

    @cached_property
    def is_one_of_several(self) -> bool:
        """Whether the study names several machines; where no file says what it names, whether this one has a folder
        for its results."""
        found = None
        if self.asked is not None:
            found, _ = _or_reason(partial(are_several, self.asked.machines), None, self.root)
        return (self.root / layout.results_on(self.study, self.machine)).is_dir() if found is None else found

    @property
    def results(self) -> Path:
        """The folder of its tables, figures and pages."""
        if self.is_one_of_several:
            return self.root / layout.results_on(self.study, self.machine)
        return self.root / layout.results_folder(self.study)

    @cached_property
    def _ledger(self) -> tuple[list[Entry], str | None]:
        return _or_reason(lambda: read_ledger(self.folder), [], self.root)

    @property
    def entries(self) -> list[Entry]:
        """Rows of its ledger; none where it can't be read."""
        return self._ledger[0]

    @property
    def ledger_problem(self) -> str | None:
        """Why its ledger can't be read."""
        return self._ledger[1]

    @cached_property
    def campaigns(self) -> tuple[Campaign, ...]:
        """All campaigns, those that were set aside among them."""
        found = {path.parent for path in self.folder.glob(f"*/*/{PLAN}")}
        found |= {path.parent for path in self.folder.glob(f"*/*/{SEALED}")}
        found |= {path.parent.parent for path in self.folder.glob(f"*/*/{SUPERSEDED}*/{PLAN}")}
        listed = []
        for folder in sorted(found):
            if any((folder / name).exists() for name in (PLAN, SEALED)):
                listed.append(_campaign(self.root, folder, folder))
            listed += [_campaign(self.root, folder, aside) for aside in set_aside_folders(folder)]
        return tuple(listed)

    @property
    def current(self) -> tuple[Campaign, ...]:
        """Campaigns that were not set aside."""
        return tuple(one for one in self.campaigns if not one.is_set_aside)

    def campaign(self, question: tuple[str, str], folder: str) -> Campaign | None:
        """The campaign of a question in its own folder, or in one that is set aside, by the name of that."""
        for one in self.campaigns:
            if one.question == question and (one.folder.name if one.is_set_aside else "") == folder:
                return one
        return None

    @cached_property
    def _asked(self) -> tuple[Study | None, str | None]:
        return _or_reason(lambda: _study_in(self.root, self.study), None, self.root)

    @property
    def asked(self) -> Study | None:
        """The study as a file of config/ asks for it; None where that can't be determined."""
        return self._asked[0]

    @property
    def asked_problem(self) -> str | None:
        """Why that can't be determined."""
        return self._asked[1]

    @cached_property
    def profiles(self) -> tuple[tuple[Path, ProfileRecord | None, str | None], ...]:
        """Files of profiled launches, with what they hold or why they can't be read."""
        paths = sorted(self.root.glob(str(layout.profile_record(self.study, self.machine, "*", "*"))))
        return tuple((path, *_or_reason(partial(_profile, path), None, self.root)) for path in paths)


@dataclass(frozen=True, kw_only=True)
class Recorded(Measured):
    """The study of a reference campaign, whose campaigns are in a folder within that of the reference."""

    place: Path

    @property
    def folder(self) -> Path:
        """Of its campaigns."""
        return self.place


class Tree:
    """A folder laid out as a checkout with results.

    Attributes:
        root: the folder.
        held: hashes that were left elsewhere, which something in it has to have.
        left_out: names of members of its archive that were not unpacked, since no list names them.
    """

    def __init__(self, root: Path, held: Sequence[str] = (), left_out: Sequence[str] = ()) -> None:
        self.root, self.held, self.left_out = root.resolve(), tuple(held), tuple(left_out)

    @property
    def is_archive(self) -> bool:
        """Whether it was made by `tare archive`; else a study in it may be under way."""
        return (self.root / INDEX).is_file()

    @cached_property
    def _index(self) -> tuple[Index | None, str | None]:
        return _or_reason(lambda: index_of(self.root), None, self.root)

    @property
    def index(self) -> Index | None:
        """The list of an archive; None where there is none that can be read."""
        return self._index[0]

    @property
    def index_problem(self) -> str | None:
        """Why there is none."""
        return self._index[1]

    def name(self, path: Path) -> str:
        """A path below the root."""
        return path.relative_to(self.root).as_posix()

    def plain(self, error: TareError) -> str:
        """What is wrong, with paths as they are in the folder."""
        return plain(error, self.root)

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """Every study on every machine that has campaigns here."""
        folders = sorted(path for path in (self.root / layout.CAMPAIGNS).glob("*/*") if path.is_dir())
        found = []
        for folder in folders:
            study, machine = folder.parent.name, folder.name
            found.append(Measured(root=self.root, study=study, machine=machine))
        return tuple(found)

    def of_reference(self, folder: Path) -> Tree:
        """The same folder with a reference campaign in it as all that was measured. Raises TareError: it has no
        record.
        """
        record = load(folder)
        seen = Tree(self.root if folder.resolve().is_relative_to(self.root) else folder.parent)
        place = folder.resolve() / layout.below_results(layout.CAMPAIGNS) / record.study / (record.machine or "")
        name = machine_of(record.to_json())
        own = Recorded(root=seen.root, study=record.study, machine=name, place=place)
        seen.measured = (own,) if own.campaigns else ()  # else there was no time for one
        return seen

    def original(self, campaign: Campaign) -> Campaign | None:
        """The campaign of another study here from which a campaign took its units; None where it is not here, or
        has other units.
        """
        adopted = campaign.plan.adopted if campaign.plan is not None else None
        if adopted is None:
            return None
        own = campaign.folder.relative_to(self.root / layout.CAMPAIGNS).parts[1]
        for measured in self.measured:
            if (measured.study, measured.machine) != (adopted.study, own):
                continue
            for other in measured.campaigns:
                is_it = other.question == campaign.question and other.plan is not None and not other.plan.adopted
                if is_it and other.journal_sha256() == campaign.journal_sha256():
                    return other
        return None

    def campaigns(self) -> Iterator[tuple[Measured, Campaign, Plan]]:
        """Campaigns whose plan and journal can be read."""
        for measured in self.measured:
            for campaign in measured.campaigns:
                if campaign.plan is not None and campaign.rows is not None:
                    yield measured, campaign, campaign.plan


def _or_reason(found: Callable[[], Read], otherwise: Read, root: Path) -> tuple[Read, str | None]:
    try:
        return found(), None
    except TareError as error:
        return otherwise, plain(error, root)
    except OSError as error:
        return otherwise, f"{error.filename or root}: {error.strerror}".replace(f"{root}/", "")
    except (RecursionError, ValueError) as error:
        return otherwise, f"it holds what no record has ({type(error).__name__})"


def _campaign(root: Path, campaign: Path, folder: Path) -> Campaign:
    plan, no_plan = _or_reason(lambda: read_plan(folder / PLAN), None, root)
    rows, no_rows = _or_reason(lambda: read_rows(folder), None, root)
    sealed, no_seal = None, None
    if (folder / SEALED).exists():
        sealed, no_seal = _or_reason(lambda: read(Sealed, folder / SEALED), None, root)
    return Campaign(
        folder=folder,
        name=folder.relative_to(root).as_posix(),
        question=question_of(campaign),
        is_set_aside=folder != campaign,
        plan=plan,
        rows=rows,
        sealed=sealed,
        problem=no_plan or no_rows or no_seal,
    )


def _profile(path: Path) -> ProfileRecord | None:
    return read(ProfileRecord, path)


def _study_in(root: Path, name: str) -> Study:
    """A study as a file of the folder's own config/ has it, completed from its config.yaml where it is a part."""
    base = root / "config/config.yaml"
    whole = {key for key, field in Study.model_fields.items() if field.is_required()}
    for path in sorted((root / "config").glob("*.yaml"), key=lambda path: (path.stem != name, path.name)):
        try:
            content = loading.load(path)
        except UserError:
            continue  # another study's, or none: nothing of this one hangs on it
        if content.get("study") != name:
            continue
        sources: list[tuple[str, Mapping[str, object]]] = [(path.relative_to(root).as_posix(), content)]
        if not whole <= set(content):
            sources.insert(0, (base.relative_to(root).as_posix(), loading.load(base)))
        return loading.checked_from(sources)
    raise UserError(f"no file of config/ says `study: {name}`")


def sha256_or_none(path: Path) -> str | None:
    """Of a file; None where there is none."""
    return sha256_file(path) if path.is_file() else None
