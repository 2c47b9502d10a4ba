"""Records of machine, images, data, profiles and programs against what the launches say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tare.analysis.profile_rows import read_profile
from tare.archive.checks.found import Notes
from tare.archive.checks.tree import Campaign, Tree, sha256_or_none
from tare.archive.members import INDEX
from tare.core.errors import TareError
from tare.core.files import data_root, project_root, read_json
from tare.model import closure
from tare.model.records.campaigns import Plan
from tare.model.records.images import DataRecord, ImageRecord
from tare.model.records.launches import WORKER, LaunchRecord
from tare.model.records.machine import MachineRecord, read_machine
from tare.model.roles import read_role
from tare.model.schema import parse_file, read
from tare.model.studies import layout
from tare.model.studies.stamps import measuring

SHOWN = 4  # names of files in one line


def machine(tree: Tree, notes: Notes) -> None:
    """Every launch ran on the machine that the records describe: processor, kernel, numbers of its processors."""
    for measured in tree.measured:
        path = layout.of_machine(measured.results, measured.machine, layout.MACHINE_FILE)
        try:
            record = read_machine(path)
        except TareError as error:
            notes.fail(tree.name(path), tree.plain(error))
            record = None
        else:
            if record is None:
                notes.leave(tree.name(path), "it is missing: launches are compared with their plans alone")
            elif record.name not in (None, measured.machine):
                notes.fail(tree.name(path), f"is of {record.name}")
        for campaign in measured.campaigns:
            if campaign.plan is None:
                continue
            notes.look("campaigns")
            for wrong in _other_machine(campaign.plan, record):
                notes.fail(campaign.name, wrong)
            for unit in campaign.units:
                for name, launch in unit.launches.items():
                    for wrong in _elsewhere(launch, campaign.plan, record):
                        notes.fail(f"{campaign.name} unit {unit.unit} {name}", wrong)
        for path, profile, _ in measured.profiles:
            if profile is not None and (other := _other_processor(profile, record)) is not None:
                notes.fail(tree.name(path), other)


def _other_machine(plan: Plan, record: MachineRecord | None) -> Iterator[str]:
    if record is None or record.nodes:
        return
    if record.architecture not in (None, plan.machine.machine):
        yield f"was planned on {plan.machine.machine}, and the machine is described as {record.architecture}"
    if record.cpu_logical is not None and max(plan.machine.cpus, default=0) >= record.cpu_logical:
        numbers = ", ".join(map(str, plan.machine.cpus))
        yield f"was planned on processors {numbers}, and the machine is described with {record.cpu_logical}"


def _elsewhere(launch: LaunchRecord, plan: Plan, record: MachineRecord | None) -> Iterator[str]:
    inside = launch.inside
    if not launch.ok or inside is None or launch.vm is not None or not launch.clock.shared or launch.instances:
        return  # a guest has its own kernel and processors, a member of a group may be on another node
    if wrong := _other_processor(launch, record):
        yield wrong
    if inside.facts.kernel != plan.machine.kernel:
        yield f"ran on the kernel {inside.facts.kernel}, and its plan names {plan.machine.kernel}"
    if other := sorted(set(inside.facts.affinity) - set(plan.machine.cpus)):
        yield f"ran on processors {other}, which its plan has not"


def _other_processor(launch: LaunchRecord, record: MachineRecord | None) -> str | None:
    if record is None or launch.inside is None or launch.vm is not None:
        return None
    found, wanted = launch.inside.facts.cpu_model, record.cpu_model
    if None in (found, wanted) or found == wanted:
        return None
    return f"ran on {found}, and the machine is described as {wanted}"


def images(tree: Tree, notes: Notes) -> None:
    """The images that plans name are those that the records describe, and launches ran them."""
    known: dict[str, list[ImageRecord]] = {}
    for path in sorted((tree.root / layout.IMAGES).rglob("*.json")):
        try:
            content = read_json(path)
            if not isinstance(content, Mapping) or "env" not in content:
                continue  # a tree, an image that forms derive from, a naive build
            record = parse_file(ImageRecord, content, tree.name(path))
        except TareError as error:
            notes.fail(tree.name(path), tree.plain(error))
            continue
        known.setdefault(record.env, []).append(record)
    for _, campaign, plan in tree.campaigns():
        if plan.is_command:
            continue  # its images are the user's own, of which there is no record
        for env, image in (plan.provenance.get("images") or {}).items():
            notes.look("images")
            own = [one for one in known.get(read_role(env).environment, []) if _is_image(one, image)]
            if not own:
                notes.fail(campaign.name, f"its plan names an image of {env} that no record describes")
                continue
            for where, launch in _launches_in(campaign, env):
                if (wrong := _other_image(launch, own)) is not None:
                    notes.fail(where, wrong)


def _is_image(record: ImageRecord, image: Mapping[str, Any]) -> bool:
    names = ("digest", "bytes", "tree_digest")
    return all(image.get(name) in (None, getattr(record, name)) for name in names)


def _launches_in(campaign: Campaign, env: str) -> Iterator[tuple[str, LaunchRecord]]:
    """Launches at the campaign's own level in an environment, but for the host's second, whose files are a copy."""
    for unit in campaign.units:
        for name, launch in unit.launches.items():
            role = read_role(name)
            if role.environment == env and not role.is_control and not role.is_reference and launch.ok:
                yield f"{campaign.name} unit {unit.unit} {name}", launch


def _other_image(launch: LaunchRecord, records: list[ImageRecord]) -> str | None:
    """Why a launch ran none of some images; None where that can't be determined."""
    if launch.program != WORKER or launch.inside is None or launch.vm is not None:
        return None
    pythons = {one.python for one in records if one.python is not None}
    ran = launch.inside.facts.executable
    if pythons and _end(ran) not in map(_end, pythons):
        return f"ran {ran}, and the image's record has {' or '.join(sorted(pythons))}"
    return None


def _end(path: str) -> tuple[str, ...]:
    """The end of a path, which a copy on a node's own disk shares with the original: `trees/<key>/bin/python3`."""
    return Path(path).parts[-4:]


def data(tree: Tree, notes: Notes) -> None:
    """The data that plans name are those that the records describe, file by file."""
    known: list[DataRecord] = []
    for path in sorted((tree.root / layout.DATA).glob("*.json")):
        try:
            known.append(read(DataRecord, path))
        except TareError as error:
            notes.fail(tree.name(path), tree.plain(error))
    for _, campaign, plan in tree.campaigns():
        for described in _data_of(plan):
            notes.look("data sets")
            if not any(_is_set(one, described) for one in known):
                name = described.get("dataset")
                notes.fail(campaign.name, f"its plan names files of {name} that no record describes")


def _data_of(plan: Plan) -> Iterator[Mapping[str, Any]]:
    for owner in (plan.provenance, plan.provenance.get("co_runner") or {}):
        if isinstance(owner.get("data"), Mapping):
            yield owner["data"]


def _is_set(record: DataRecord, described: Mapping[str, Any]) -> bool:
    own = record.to_json()
    names = {"dataset", "files", "rows", "source"} & set(described)
    return all(own.get(name) == described[name] for name in names)


def profiles(tree: Tree, notes: Notes) -> None:
    """Every profiled launch has a file of its name, next to the trace and the counters that it names."""
    for measured in tree.measured:
        for path, record, problem in measured.profiles:
            notes.look("profiled launches")
            where = tree.name(path)
            if record is None:
                notes.fail(where, problem or "can't be read")
                continue
            try:
                read_profile(path)
            except TareError as error:
                notes.fail(where, tree.plain(error))
            if record.study != measured.study:
                notes.fail(where, f"is of the study {record.study}")
            pairs = [(record.trace, record.trace_sha256)]
            pairs += [(part.file, part.sha256) for part in (record.counters.parts if record.counters else ())]
            for name, digest in pairs:
                if name is not None and sha256_or_none(path.parent / name) != digest:
                    notes.fail(where, f"names {name} with another hash than the file has")


# --- programs


def code(tree: Tree, notes: Notes) -> None:
    """The sources here are the programs that measured each campaign, by the hash in its plan."""
    if not (tree.root / "tare").is_dir():
        notes.leave("tare/", "there are no sources here: of the programs that measured only the hash is known")
        return
    if tree.index is not None:
        _as_listed(tree, tree.index.programs, notes)
    for _, campaign, plan in tree.campaigns():
        try:
            with closure.of_checkout(tree.root):
                paths = measuring(plan)
                found = closure.programs_sha256(paths)
        except (TareError, OSError) as error:
            notes.leave(campaign.name, f"its programs are unknown: {error}".replace(f"{tree.root}/", ""))
            continue
        notes.look("campaigns")
        if found != plan.code_sha256:
            what = f"its plan names other programs than the {len(paths)} sources here"
            remade = tree.index is not None and campaign.name in tree.index.remade
            if campaign.is_set_aside or not tree.is_archive or remade:
                notes.leave(campaign.name, f"{what}: they were changed since")
            else:
                notes.fail(campaign.name, what)
        codes = {one.code_sha256 for _, one in _own_launches(campaign)} - {None}
        if len(codes) > 1:
            notes.fail(campaign.name, f"its launches ran {len(codes)} different programs")


def _as_listed(tree: Tree, listed: Mapping[str, str], notes: Notes) -> None:
    """The hash that an archive gives each program is that of its source."""
    with closure.of_checkout(tree.root):
        found = {path: _program(path) for path in listed if (tree.root / path).is_file()}
    notes.look("programs", len(listed))
    for path, sha256 in listed.items():
        if found.get(path) != sha256:
            notes.fail(path, f"is another program than {INDEX} says")


def _own_launches(campaign: Campaign) -> Iterator[tuple[str, LaunchRecord]]:
    for unit in campaign.units:
        for name, launch in unit.launches.items():
            if not read_role(name).is_reference:
                yield name, launch


def installed(tree: Tree, notes: Notes) -> None:
    """Where the sources here are not those of the Tare that checks, it says which, and what that changes."""
    root = project_root()
    if root == tree.root or not (tree.root / "tare").is_dir():
        notes.look("checkouts")
        return
    with closure.of_checkout(tree.root):
        theirs = _programs(tree.root)
    ours = _programs(root)
    judging = judges()
    differ = sorted(path for path in {*theirs, *ours} if theirs.get(path) != ours.get(path))
    notes.look("programs", len(theirs))
    for group, names in (
        ("what makes tables and judges", [path for path in differ if path in judging]),
        ("what measures, reads or draws", [path for path in differ if path not in judging]),
    ):
        if names:
            notes.remark(group, f"is another program here than in the Tare that checks: {some(names)}")
    for path in differing_inputs(tree):
        notes.remark(path, "is another file here than in the Tare that checks")


def _programs(root: Path) -> dict[str, str]:
    paths = [path.relative_to(root).as_posix() for name in ("tare", "envs", "workloads")
             for path in sorted((root / name).rglob("*.py"))]  # fmt: skip
    try:
        return closure.programs(paths)
    except TareError:  # one of them is no Python
        return {path: _program(path) for path in paths}


def _program(path: str) -> str:
    try:
        return closure.programs([path])[path]
    except TareError:
        return "no Python"


def judges() -> set[str]:
    """Paths of what turns records into tables, verdicts and claims."""
    return {*closure.analysis(), *closure.literature()}


def judged_otherwise(tree: Tree) -> list[str]:
    """Programs and files that judge, which are others here than in the Tare that checks; none without sources."""
    if project_root() == tree.root or not (tree.root / "tare").is_dir():
        return []
    names = sorted(judges())
    ours = closure.programs(names)
    with closure.of_checkout(tree.root):
        theirs = {name: closure.programs([name])[name] for name in names if (tree.root / name).is_file()}
    return [*(name for name in names if theirs.get(name) != ours[name]), *differing_inputs(tree)]


def differing_inputs(tree: Tree) -> list[str]:
    """Published numbers and datasheets that are others here than in the Tare that checks."""
    root = data_root()
    paths = [*(root / "config/published").glob("*"), root / "papers/findings.csv", root / "config/devices.yaml"]
    names = sorted(path.relative_to(root).as_posix() for path in paths if path.is_file())
    there = [name for name in names if (tree.root / name).is_file()]
    return [name for name in there if sha256_or_none(tree.root / name) != sha256_or_none(root / name)]


def some(names: list[str]) -> str:
    """A few names, and how many more."""
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
