"""The archive as a Provenance Run Crate: what ran, when and for how long, in which image, from what to what.

https://w3id.org/ro/wfrun/provenance/0.5: the workflow is the Snakefile, its steps are the campaigns, its tools the
environments. A campaign has an action for each launch of its units. It does not say who ran it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from tare import __version__
from tare.archive.members import CRATE, INDEX, WORKFLOW, Member, study_file
from tare.core.files import sha256_file
from tare.model.journals.ledger import read_ledger
from tare.model.journals.sealed import PLAN, UNITS, read_plan, read_rows, read_sealed
from tare.model.records.campaigns import Plan, Sealed, Unit
from tare.model.records.images import ImageRecord, ProbeRecord
from tare.model.registry import HOST, describe_workload
from tare.model.roles import LaunchRole, read_role
from tare.model.schema import read
from tare.model.studies import arms, layout
from tare.model.studies.study import Study

Entity = dict[str, Any]

RO_CRATE = "https://w3id.org/ro/crate/1.1"
WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
RUN = "https://w3id.org/ro/wfrun"
RUN_TERMS = "https://w3id.org/ro/terms/workflow-run"
PROFILES = {
    f"{RUN}/process/0.5": ("Process Run Crate", "0.5"),
    f"{RUN}/workflow/0.5": ("Workflow Run Crate", "0.5"),
    f"{RUN}/provenance/0.5": ("Provenance Run Crate", "0.5"),
    WORKFLOW_CRATE: ("Workflow RO-Crate", "1.0"),
}
CONTEXT = [
    f"{RO_CRATE}/context",
    f"{RUN_TERMS}/context",
    {"buildInstructions": "https://codemeta.github.io/terms/buildInstructions"},
]
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
SECONDS, ONE = "https://qudt.org/vocab/unit/SEC", "https://qudt.org/vocab/unit/NUM"
DONE, FAILED = "http://schema.org/CompletedActionStatus", "http://schema.org/FailedActionStatus"
ENGINE, RUN_ACTION, ENGINE_ACTION = "#snakemake", "#run", "#engine"
FORMATS = {
    ".csv": "text/csv", ".gz": "application/gzip", ".html": "text/html", ".ipynb": "application/x-ipynb+json",
    ".json": "application/json", ".jsonl": "application/x-ndjson", ".parquet": "application/vnd.apache.parquet",
    ".svg": "image/svg+xml", ".yaml": "application/yaml",
}  # fmt: skip
UNKNOWN_FORMAT = "application/octet-stream"
LICENCE = "The programs have the licence in the file LICENSE. For the results no licence was given."


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A campaign of the study: all that the crate says of it."""

    folder: Path
    plan: Plan
    units: Sequence[Unit]
    sealed: Sealed | None  # None where it was not finished
    opened_at: str | None  # as the ledger has it

    @property
    def name(self) -> str:
        """Of its step, and the beginning of the names of its actions."""
        return "/".join(self.folder.parts[-3:])


def campaigns_of(study: str, machines: Iterable[str]) -> list[Campaign]:
    """The campaigns of a study as they are, without those that were set aside.

    Raises IntegrityError: one of them is damaged, or the ledger is.
    """
    return [one for machine in machines for one in _on(layout.study_folder(study, machine))]


def _on(study: Path) -> Iterator[Campaign]:
    opened = {entry.plan_sha256: entry.at for entry in read_ledger(study) if entry.event == "opened"}
    for path in sorted(study.glob(f"*/*/{PLAN}")):
        seal, at = path.with_name(layout.SEALED), opened.get(sha256_file(path))
        found: dict[str, Any] = {"folder": path.parent, "opened_at": at}
        if seal.exists():
            whole = read_sealed(seal)
            yield Campaign(plan=whole.plan, units=whole.units, sealed=whole.sealed, **found)
        else:
            yield Campaign(plan=read_plan(path), units=read_rows(path.parent).units, sealed=None, **found)


def text(study: Study, campaigns: Sequence[Campaign], members: Mapping[str, Member]) -> str:
    """ro-crate-metadata.json of an archive.

    `campaigns`: of the study, at least one of which is sealed. `members`: every other file, archive.json too.
    """
    graph = _Graph(study, campaigns, members).entities()
    return json.dumps({"@context": CONTEXT, "@graph": graph}, indent=1, sort_keys=True) + "\n"


def folders_of(members: Iterable[str]) -> list[str]:
    """Folders of programs, which the crate describes as a whole."""
    above = {
        name.partition("/")[0] for name in members if "/" in name and not name.startswith(f"{layout.RESULTS}/")
    }
    return [f"{name}/" for name in sorted(above)]


class _Graph:
    """Entities of one crate."""

    def __init__(self, study: Study, campaigns: Sequence[Campaign], members: Mapping[str, Member]) -> None:
        self.study, self.members = study, members
        self.campaigns = [one for one in campaigns if one.plan.launches]  # of others nothing could be launched here
        self.images: dict[str, Entity] = {}
        self.stacks = {_stack_of(one) for one in campaigns}
        self.sealed = [one.sealed.sealed_at for one in campaigns if one.sealed]

    def entities(self) -> list[Entity]:
        actions = [entity for one in self.campaigns for entity in self._actions(one)]
        steps = [self._step(number, one) for number, one in enumerate(self.campaigns)]
        controls = [self._control(one) for one in self.campaigns]
        tools = list({tool["@id"]: tool for one in self.campaigns for tool in self._tools(one)}.values())
        done = [one["@id"] for one in (*actions, *controls) if one["@type"] != "PropertyValue"]
        files = [self._file(name) for name in sorted(self.members) if self._is_described(name)]
        folders = [self._folder(name) for name in folders_of(self.members)]
        workflow = self._workflow(tools, steps)
        return [
            {
                "@id": CRATE, "@type": "CreativeWork", "about": _ref("./"),
                "conformsTo": _refs([RO_CRATE, WORKFLOW_CRATE]),
            },
            {
                "@id": "./", "@type": "Dataset", "name": f"The study {self.study.study}, measured by Tare",
                "description": f"Raw samples, plans, seals, tables and pages of {len(self.campaigns)} campaigns, "
                f"and the programs that measured and judged them; {INDEX} has the hash of each file.",
                "license": LICENCE, "datePublished": max(self.sealed),
                "conformsTo": _refs(PROFILES), "mainEntity": _ref(WORKFLOW),
                "hasPart": _refs(one["@id"] for one in (workflow, *files, *folders)),
                "mentions": _refs([RUN_ACTION, ENGINE_ACTION, *done]),
            },
            *({"@id": url, "@type": "CreativeWork", "name": name, "version": version}
              for url, (name, version) in PROFILES.items()),
            workflow, _language(), *tools, *steps, *self._runs(controls), *controls, *actions,
            *self.images.values(), *files, *folders,
        ]  # fmt: skip

    def _is_described(self, name: str) -> bool:
        """Whether a file has its own entity: all but programs, whose folders have one."""
        if "/" not in name:
            return name != WORKFLOW
        own = (study_file(self.study.study), *map(_recipe, self.stacks))
        return name.startswith(f"{layout.RESULTS}/") or name in own

    def _file(self, name: str) -> Entity:
        member = self.members[name]
        return {
            "@id": _path(name),
            "@type": "File",
            "name": name,
            "contentSize": str(member.bytes),
            "sha256": member.sha256,
            "encodingFormat": FORMATS.get(PurePosixPath(name).suffix, UNKNOWN_FORMAT),
        }

    def _folder(self, name: str) -> Entity:
        below = sum(other.startswith(name) for other in self.members)
        return {"@id": name, "@type": "Dataset", "name": name, "description": f"{below} files of the checkout"}

    def _workflow(self, tools: Sequence[Entity], steps: Sequence[Entity]) -> Entity:
        return {
            **self._file(WORKFLOW),
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            "name": "Tare",
            "version": __version__,
            "encodingFormat": "text/plain",
            "description": "Measures what execution environments cost deep-learning training.",
            "programmingLanguage": _ref(SNAKEMAKE),
            "conformsTo": _ref(BIOSCHEMAS),
            "hasPart": _refs(one["@id"] for one in tools),
            "step": _refs(one["@id"] for one in steps),
        }

    def _runs(self, controls: Sequence[Entity]) -> list[Entity]:
        """The run of the workflow, and of its engine."""
        name = self.study.study
        config = study_file(name)
        ours = [f"{folder}/{part}/" for folder in self._results_folders() for part in ("tables", "report")]
        results = [path for path in sorted(self.members) if path.startswith(tuple(ours))]
        opened = [one.opened_at for one in self.campaigns if one.opened_at]
        times = {"endTime": _time(max(self.sealed)), **({"startTime": _time(min(opened))} if opened else {})}
        images = sorted(
            {image for one in self.campaigns for role in _roles(one) if (image := self._image(one, role))}
        )
        whole = all(one.sealed for one in self.campaigns)
        return [
            {
                "@id": RUN_ACTION,
                "@type": "CreateAction",
                "name": f"The study {name}",
                **_status(whole),
                "description": f"make report STUDY={config}",
                "instrument": _ref(WORKFLOW),
                "object": _ref(_path(config)),
                **times,
                **({"containerImage": _refs(images)} if images else {}),
                "result": _refs(map(_path, results or self._seals())),
            },
            {
                "@id": ENGINE,
                "@type": "SoftwareApplication",
                "name": "Snakemake",
                "url": "https://snakemake.github.io",
            },
            {
                "@id": ENGINE_ACTION,
                "@type": "OrganizeAction",
                "name": "The run of Snakemake",
                "instrument": _ref(ENGINE),
                "result": _ref(RUN_ACTION),
                "object": _refs(one["@id"] for one in controls),
            },
        ]

    def _results_folders(self) -> list[str]:
        machines = {one.plan.machine.name for one in self.campaigns}
        folder = layout.results_folder(self.study.study)
        return [folder, *(layout.results_on(self.study.study, one) for one in sorted(machines))]

    def _seals(self) -> list[str]:
        return [(one.folder / layout.SEALED).as_posix() for one in self.campaigns if one.sealed]

    # --- of a campaign

    def _tools(self, campaign: Campaign) -> Iterator[Entity]:
        for role in _roles(campaign):
            env, machine = role.environment, campaign.plan.machine.name
            entity = {"@id": _tool(campaign, role), "@type": "SoftwareApplication", "name": env}
            path = layout.probe_record(machine, env)
            if path.as_posix() in self.members:
                probe = read(ProbeRecord, path)
                entity |= {"name": probe.title, "description": probe.description}
                entity |= {"softwareVersion": probe.version} if probe.version else {}
            yield entity

    def _step(self, number: int, campaign: Campaign) -> Entity:
        recipe = _recipe(_stack_of(campaign))
        return {
            "@id": _id("step", campaign.name),
            "@type": "HowToStep",
            "name": campaign.name,
            "position": str(number),
            "description": f"{campaign.plan.kind} of {campaign.plan.workload} with {campaign.plan.arm}; programs "
            f"{campaign.plan.code_sha256}",
            "workExample": _refs(dict.fromkeys(_tool(campaign, role) for role in _roles(campaign))),
            **({"buildInstructions": _ref(recipe)} if recipe in self.members else {}),
        }

    def _control(self, campaign: Campaign) -> Entity:
        return {
            "@id": _id("campaign", campaign.name),
            "@type": "ControlAction",
            "name": campaign.name,
            "instrument": _ref(_id("step", campaign.name)),
            "object": _refs(_id("launches", campaign.name, role.name) for role in _roles(campaign)),
            **_status(campaign.sealed is not None),
        }

    def _actions(self, campaign: Campaign) -> Iterator[Entity]:
        """What was launched in each environment, with its time and, in seconds, what it took."""
        files = {name: (campaign.folder / name).as_posix() for name in (PLAN, UNITS, layout.SEALED)}
        inputs = [files[PLAN], study_file(self.study.study), self._data(campaign)]
        for role in _roles(campaign):
            own = _id("launches", campaign.name, role.name)
            launches = [
                launch
                for unit in campaign.units
                for name, launch in unit.launches.items()
                if _kept(read_role(name)).name == role.name
            ]
            spans = [
                one.end_ns - one.spawn_ns for one in launches if one.end_ns is not None and one.spawn_ns is not None
            ]
            used = [
                _used(own, "launches", len(launches), ONE, "those of rounds that do not count among them"),
                _used(own, "seconds", sum(spans) / 1e9, SECONDS, "own time of all launches, without pauses"),
            ]
            image = self._image(campaign, role)
            yield {
                "@id": own,
                "@type": "CreateAction",
                "name": f"{role.name} in {campaign.name}",
                "description": f"{len(launches)} launches of {campaign.plan.workload} in {role.environment}",
                "instrument": _ref(_tool(campaign, role)),
                "object": _refs(_path(name) for name in inputs if name in self.members),
                "result": _refs(
                    _path(name) for name in (files[UNITS], files[layout.SEALED]) if name in self.members
                ),
                "resourceUsage": _refs(one["@id"] for one in used),
                **({"startTime": _time(campaign.opened_at)} if campaign.opened_at else {}),
                **({"endTime": _time(campaign.sealed.sealed_at)} if campaign.sealed else {}),
                **({"containerImage": _ref(image)} if image else {}),
                **_status(campaign.sealed is not None),
            }
            yield from used

    def _data(self, campaign: Campaign) -> str:
        """The record of the data set that a campaign's workload reads; nothing for a command of the user's."""
        if campaign.plan.workload not in self.study.workloads:
            return ""
        name = describe_workload(campaign.plan.workload)["dataset"]
        return layout.data_record(self.study.data.record_of(name)).as_posix()

    def _image(self, campaign: Campaign, role: LaunchRole) -> str | None:
        """The entity of the image in which a launch ran, as its plan has it; none of the host's launches.

        Launches at the headline's levels next to an arm have the headline's image, of which the plan of an arm that
        has its own image says nothing.
        """
        used = campaign.plan.provenance.get("images", {}).get(role.environment) or {}
        digest = used.get("digest")
        if role.environment == HOST or role.is_reference or not digest:
            return None
        own = _id("image", digest.removeprefix("sha256:")[:16], role.environment)
        if own not in self.images:
            self.images[own] = self._image_entity(own, role.environment, digest)
        return own

    def _image_entity(self, own: str, env: str, digest: str) -> Entity:
        form = "SIFImage" if env.partition(".")[0] == "apptainer" else "DockerImage"
        entity: Entity = {
            "@id": own,
            "@type": "ContainerImage",
            "additionalType": _ref(f"{RUN_TERMS}#{form}"),
            "name": env,
            "sha256": digest.removeprefix("sha256:"),
            "description": f"the form for {env} of the image with this digest",
        }
        record = next(self._records_of(env, digest), None)
        if record is not None:
            base = f", on {record[1].base.name} ({record[1].base.digest})" if record[1].base else ""
            entity |= {"name": record[1].stack, "description": f"{entity['description']}{base}"}
            entity["subjectOf"] = _ref(_path(record[0]))
        return entity

    def _records_of(self, env: str, digest: str) -> Iterator[tuple[str, ImageRecord]]:
        for name in sorted(self.members):
            path = Path(name)
            if path.is_relative_to(layout.IMAGES) and path.name == f"{env}.json":
                record = read(ImageRecord, path)
                if record.digest == digest:
                    yield name, record


def _roles(campaign: Campaign) -> list[LaunchRole]:
    """What the launches of a campaign's units are, sizes of batches and page caches aside."""
    kept = (_kept(role) for role in campaign.plan.launches)
    return list({role.name: role for role in kept}.values())


def _kept(role: LaunchRole) -> LaunchRole:
    return role.replace(batch=None, page_cache=None)


def _stack_of(campaign: Campaign) -> str:
    return arms.stack_of(campaign.plan.levels, campaign.plan.stack)


def _recipe(stack: str) -> str:
    return f"containers/stacks/{stack}/stack.yaml"


def _tool(campaign: Campaign, role: LaunchRole) -> str:
    return _id("environment", campaign.plan.machine.name, role.environment)


def _status(finished: bool) -> Entity:
    return {"actionStatus": DONE} if finished else {"actionStatus": FAILED, "error": "it was not finished"}


def _used(action: str, name: str, value: float, unit: str, says: str) -> Entity:
    return {
        "@id": f"{action}/{name}",
        "@type": "PropertyValue",
        "name": name,
        "description": says,
        "propertyID": f"urn:tare:{name}",
        "unitCode": unit,
        "value": str(value),
    }


def _language() -> Entity:
    return {
        "@id": SNAKEMAKE,
        "@type": "ComputerLanguage",
        "name": "Snakemake",
        "identifier": "https://doi.org/10.1093/bioinformatics/bts480",
        "url": "https://snakemake.github.io",
    }


def _time(text: str) -> str:
    """An instant in UTC, with the offset that the profile asks for."""
    return text.replace("Z", "+00:00")


def _id(*words: str) -> str:
    return "#" + quote("/".join(words), safe="/+.@=,~")


def _path(name: str) -> str:
    return quote(name, safe="/+.@=,~")


def _ref(name: str) -> Entity:
    return {"@id": name}


def _refs(names: Iterable[str]) -> Entity | list[Entity]:
    """References as RO-Crate has them: of one alone no list."""
    found = [_ref(name) for name in names]
    return found[0] if len(found) == 1 else found
