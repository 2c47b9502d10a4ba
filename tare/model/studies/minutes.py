"""A study that is run for a number of minutes: which budgets its headline campaigns were given, kept in a file.

results/campaigns/<study>/<machine>/minutes-60.json

The budgets are chosen from earlier campaigns of this machine (tare.analysis.plans.minutes), of which there is one
more after each run. So they are written down before the first unit and read again by every later run for as many
minutes, which then finds nothing to do. A file whose headline campaigns are no longer those of the study counts no
more.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tare.core.errors import TareError, UserError
from tare.core.files import canonical_json, read_json, sha256_text
from tare.model.schema import FileRecord, read
from tare.model.studies.campaigns import headlines
from tare.model.studies.layout import SEALED, study_folder
from tare.model.studies.sections import Chosen
from tare.model.studies.study import Study, part_of

FEWEST, MOST = 5, 10_000
Minutes = int | float


class Declared(FileRecord):
    """What was chosen for a number of minutes, before any data."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "remove it: the budgets are then chosen again, which is a new try"

    # `study`, `minutes`: what was asked for
    study: str
    minutes: Minutes
    asked: str  # SHA-256 of what the headline campaigns depend on otherwise
    at: str  # when it was chosen, UTC, by this machine's clock
    # `images_s`, `others_s`: seconds that images, and all jobs but the headline campaigns, are expected to take
    images_s: float
    others_s: float
    measuring_s: float  # seconds that were left for the headline campaigns
    chosen: Mapping[str, Chosen]  # their budgets by workload
    earlier: Mapping[str, str]  # SHA-256 of the plans of the campaigns whose spreads were used, by workload
    notes: tuple[str, ...] = ()  # what else is reported to people

    def lines(self) -> list[str]:
        """What is printed before anything runs: the time of all headline campaigns, then a line for each."""
        campaigns_s = sum(one.budget_s for one in self.chosen.values())
        others = f"{(self.others_s + self.images_s) / 60:.0f} for all else"
        first = f"minutes: {self.minutes:,g}: {campaigns_s / 60:.0f} for the headline campaigns, {others}"
        each = [f"  {name}: {one.budget_s / 60:.1f} minutes: {one.why}" for name, one in self.chosen.items()]
        return [first, *each, *(f"  {note}" for note in self.notes)]


def checked(value: Any) -> Minutes:
    """A number of minutes as a person gave it, whole ones as an integer. Raises UserError: no number from FEWEST to
    MOST.
    """
    number = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if not FEWEST <= number <= MOST:
        raise UserError(
            f"minutes: {value!r} is no number from {FEWEST} to {MOST:,}: say how long the whole study may "
            "take, as in `make report MINUTES=60`"
        )
    return int(number) if number.is_integer() else number


def path_of(study: Study, minutes: Minutes, machine: str) -> Path:
    """The file of a study's budgets for so many minutes of a machine."""
    return study_folder(study.study, machine) / f"minutes-{minutes!r}.json"


def asked_of(study: Study) -> str:
    """SHA-256 of what the headline campaigns of a study depend on, but for what a chosen budget replaces."""
    plain = study.replace(rounds=study.rounds.replace(chosen={}, budget_s=1.0, units=None))
    parts = {one.workload: [one.name, part_of(plain, one.part, one.workload)] for one in headlines(plain)}
    return sha256_text(canonical_json(parts))


def declared(study: Study, minutes: Minutes, machine: str) -> Declared | None:
    """What was chosen before; None where nothing was, or for other headline campaigns. Raises IntegrityError: the
    file is damaged or of another version.
    """
    path = path_of(study, minutes, machine)
    found = read(Declared, path) if path.exists() else None
    return found if found is not None and found.asked == asked_of(study) else None


def with_budgets(study: Study, found: Declared) -> Study:
    """The study with the budgets that were chosen; nothing else of it changes."""
    return study.replace(rounds=study.rounds.replace(chosen=dict(found.chosen)))


def declare(study: Study, found: Declared, machine: str) -> None:
    """Write down what was chosen, before anything is measured; what was written before stays. `study`: with the
    budgets that were chosen, or as its file has it. `found`: what was chosen. `machine`: that measures.
    """
    if declared(study, found.minutes, machine) is None:
        found.write(path_of(study, found.minutes, machine))


def remeasure_warnings(study: Study, folder: Path) -> list[str]:
    """Lines to print where no number of minutes is given, and the sealed campaigns were measured for one."""
    before = measured_for(study, folder)
    if before is None:
        return []
    return [
        f"the headline campaigns were measured for {before:,g} minutes: without `minutes={before}` they are "
        "measured again, with the budget of the study's file"
    ]


def measured_for(study: Study, folder: Path) -> Minutes | None:
    """For how many minutes the sealed headline campaigns were measured; None where the study's file says how long.
    `study`: as its file has it. `folder`: of its campaigns on this machine.
    """
    for one in headlines(study):
        campaign = folder / one.workload / one.name
        if not (campaign / SEALED).exists():
            continue
        with contextlib.suppress(TareError, AttributeError, KeyError, TypeError):
            own = read_json(campaign / "plan.json")["part"]["rounds"]["chosen"][one.workload]
            return checked(own["minutes"])
    return None
