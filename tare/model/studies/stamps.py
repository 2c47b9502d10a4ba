"""A stamp: a study, and the programs that measure and judge it, written down before there are data.

results/campaigns/<study>/<machine>/stamps/<first characters of its SHA-256>.json

A file proves nothing about time: whoever has it can write another one. Its SHA-256 proves as much as the place
where it was left before the data: in a signed tag that others fetched, in a proof of OpenTimestamps. This module
checks whether a campaign is what a stamp says. The ledger holds a row for each stamp, and so records their order
with campaigns, by this machine's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tare.core.files import canonical_json, sha256_file, sha256_text, write_text
from tare.model import closure
from tare.model.records.campaigns import Plan
from tare.model.records.launches import COMMAND
from tare.model.registry import SHARED
from tare.model.schema import VERSION, FileRecord, read
from tare.model.studies import arms
from tare.model.studies.campaigns import campaigns
from tare.model.studies.checks import check
from tare.model.studies.stacks import framework_of
from tare.model.studies.study import Study, at_published_size, reduced

STAMPS = "stamps"
OF_ITS_TIME = ("at", "ledger")  # in which two stamps of one plan differ
SHOWN = 3  # names of what differs


class Stamp(FileRecord):
    """What a stamp holds."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "it is not the file that was stamped; restore it from a copy"

    at: str  # when it was written, UTC, by this machine's clock
    study: Mapping[str, Any]  # the whole study; the plan of every campaign follows from it
    programs: Mapping[str, str]  # SHA-256 of each program that measures or judges, by its path in the checkout
    ledger: str | None = None  # SHA-256 of the last row of the ledger then; None where nothing was listed
    machine: str | None = None  # its name, from which orders follow; None in stamps of earlier versions


def stamp_of(study: Study, at: str, ledger: str | None, machine: str | None = None) -> Stamp:
    """The stamp of a study on a machine, and of the programs as they are now."""
    programs = closure.programs(_programs(study))
    return Stamp(at=at, study=study.to_json(), programs=programs, ledger=ledger, machine=machine)


def _programs(study: Study) -> Iterable[str]:
    """Paths of what measures any campaign of a study, and of what judges them."""
    found = set(closure.analysis())
    for one in campaigns(study):
        arm = arms.parse(one.arm) if one.arm else None
        names = arms.used(one.environments, arm)
        if one.is_command:
            found.update(closure.measurement(one.part, None, *names))
            continue
        frameworks = sorted({framework_of(study.stack), framework_of(one.stack)})
        co_runner = study.shared.workload if study.shared and one.scenario == SHARED else None
        found.update(closure.measurement(one.kind, one.workload, *names, frameworks, one.scenario, co_runner))
    return sorted(found)


def write_stamp(folder: Path, stamp: Stamp) -> Path:
    """Write a stamp below a study's folder; one that says the same already is taken as it is. Returns its path."""
    said = _said(stamp)
    for path in stamp_files(folder):
        if _said(read(Stamp, path)) == said:
            return path
    text = canonical_json({VERSION: Stamp.VERSION, **stamp.to_json()}) + "\n"
    path = folder / STAMPS / f"{sha256_text(text)[:16]}.json"
    write_text(path, text)
    return path


def _said(stamp: Stamp) -> dict[str, Any]:
    return {key: value for key, value in stamp.to_json().items() if key not in OF_ITS_TIME}


def stamp_files(folder: Path) -> list[Path]:
    """The stamps of a study."""
    return sorted((folder / STAMPS).glob("*.json"))


def stamp_file(folder: Path, sha256: str) -> Path | None:
    """The stamp of this hash; None where it is gone or was changed."""
    return next((path for path in stamp_files(folder) if sha256_file(path) == sha256), None)


def worded_seed(plan: Plan, campaign: str) -> str | None:
    """The seed of a campaign's orders that follows from the word in its plan; None where it has none.

    The first 16 characters of the SHA-256 of the JSON list of the study's seed, study, machine, workload, campaign,
    number of the try, stamp and word, without spaces; of a campaign that was taken over, of the study that measured
    it.
    """
    if plan.word is None:
        return None
    study = plan.adopted.study if plan.adopted else plan.study
    what = [plan.seed, study, plan.machine.name, plan.workload, campaign, plan.attempt]
    return sha256_text(canonical_json([*what, plan.word.stamp, plan.word.text]))[:16]


def departures(stamp: Stamp, plan: Plan) -> list[str]:
    """In what a campaign, and the analysis of today, are not as a stamp says; one line each. `stamp`: made before
    or after it. `plan`: of the campaign.
    """
    lines = []
    if plan.part is None:
        lines.append("its plan is of a version that noted no part of the study")
    elif keys := changed(stamp, plan):
        lines.append(f"the study differs in {_some(keys)}")
    here = closure.programs(closure.analysis())
    paths = measuring(plan)
    stamped = {path: stamp.programs.get(path, "missing") for path in paths}
    if closure.listed_sha256(stamped) != plan.code_sha256:
        other = [path for path, sha in closure.programs(paths).items() if stamped[path] != sha]
        lines.append(f"the code that measured differs{f' in {_some(other)}' if other else ''}")
    if judged := [path for path, sha in here.items() if stamp.programs.get(path) != sha]:
        lines.append(f"the code that judges differs in {_some(judged)}")
    return lines


def changed(stamp: Stamp, plan: Plan) -> list[str]:
    """Dotted keys of the study in which a campaign is not as a stamp says; none where its plan noted no study."""
    return [] if plan.part is None else differing(_wanted(stamp, plan), plan.part)


def dropped(stamp: Stamp, asked: Study) -> list[tuple[str, str]]:
    """Workload and name of each campaign that a stamped study asks for, and a later form of it does not."""
    there = {(one.workload, one.name) for one in campaigns(asked)}
    return [key for one in campaigns(check(stamp.study)) if (key := (one.workload, one.name)) not in there]


def measuring(plan: Plan) -> tuple[str, ...]:
    """Paths of what measured a campaign, sorted."""
    names = arms.used(plan.launch_names, _arm_of(plan))
    if plan.is_command:
        return closure.measurement(COMMAND, None, *names)
    frameworks = sorted({framework_of(plan.stack), framework_of(arms.stack_of(plan.levels, plan.stack))})
    co_runner = ((plan.part or {}).get("shared") or {}).get("workload")
    return closure.measurement(plan.kind, plan.workload, *names, frameworks, plan.scenario, co_runner)


def _arm_of(plan: Plan) -> arms.Arm | None:
    """The factor in which a plan's levels differ from the headline's."""
    own, headline = plan.levels, plan.headline_levels
    return next((arms.Arm(factor=key, level=own[key]) for key in own if own[key] != headline.get(key)), None)


def _wanted(stamp: Stamp, plan: Plan) -> dict[str, Any]:
    """The part of the stamped study that a plan should have; the machine decides on a device that is auto."""
    study = check(stamp.study)
    if plan.workload not in study.measured:
        return {}
    if plan.is_command:
        return reduced(study.to_json(), COMMAND, plan.workload)
    if study.device == "auto" and plan.part is not None:
        study = study.replace(device=plan.part.get("device", study.device))
    return reduced(at_published_size(study).to_json(), plan.kind, plan.workload, _arm_of(plan), plan.scenario)


def differing(one: Any, other: Any, above: str = "") -> list[str]:
    """Dotted names of the keys in which two mappings differ."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return [] if one == other else [above]
    keys = sorted({*one, *other})
    return [name for key in keys for name in differing(one.get(key), other.get(key), f"{above}.{key}".lstrip("."))]


def _some(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
