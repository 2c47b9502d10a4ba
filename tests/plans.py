"""Golden plans: what every shipped study plans, as tests/data/plans/ holds it.

    .venv/bin/python tests/plans.py     writes the files anew: read what git says of them before you commit

Plans come from the commands that measure, which are given what the rules give them. What would look at this machine
is replaced: every environment can be had, there is no GPU, and nothing refuses to be sliced. Left out of a plan is
what a machine, a build of the code or a start of a campaign decides.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from tare.core.files import project_root
from tare.experiments import co_runner, designs, measure, sliced, starts
from tare.experiments.designs import Design
from tare.launch.place import Site
from tare.machine import fitting
from tare.model import closure
from tare.model.records.campaigns import Machine
from tare.model.registry import HOST, SINGLE, environment
from tare.model.roles import CONTROL, read_role
from tare.model.studies import arms
from tare.model.studies.campaigns import CampaignId, campaigns, profiled_stacks
from tare.model.studies.layout import slug_of
from tare.model.studies.loading import load_checked
from tare.model.studies.stacks import framework_of
from tare.model.studies.study import Study, part_of

PLANS = project_root() / "tests/data/plans"
# Of this machine, of the code's text, of a start; `part` is the study that a reader has.
LEFT_OUT = ("schema", "machine", "code_sha256", "provenance", "part", "study",
            "gpu_at_start", "order_seed", "word", "attempt", "adopted")  # fmt: skip
A_MACHINE = Machine(name="box", cpus=(0, 1), governor=None, kernel="6.1.0", machine="x86_64", online_cpus="0-1")
NO_GPU = ("cpu", "plans of the tests are made for a machine without a GPU")
OUT = Path("nowhere/sealed.json")


def shipped() -> dict[str, Path]:
    """The studies of config/, by name of their file."""
    found = {path.stem: path for path in sorted((project_root() / "config").glob("*.yaml"))}
    return {name: path for name, path in found.items() if "study" in yaml.safe_load(path.read_text())}


def plans_of(path: Path) -> dict[str, Any]:
    """What a study plans: every campaign, and what its profiled launches are told, by name."""
    study = load_checked(path)
    found = {}
    with on_no_machine():
        for campaign in campaigns(study):
            found[f"{campaign.workload}/{campaign.name}"] = _plan_of(study, campaign)
        first = next(iter(study.workloads))
        with (
            _sites(starts, None, SINGLE),
            mock.patch.object(starts, "control_site", lambda site: (site, {})),
            _captured(starts, "run_campaign") as captured,
        ):
            starts.measure_starts(part_of(study, "starts", first), first, study.environments, None, OUT)
        found["starts"] = _told(captured)
        for workload, arm in [*((name, None) for name in study.workloads), *profiled_stacks(study)]:
            name = f"profile.{slug_of(arms.parse(arm))}" if arm else "profile"
            found[f"{workload}/{name}"] = _profile(study, workload, arm)
    return found


def text_of(path: Path) -> str:
    """A study's plans as their file has them."""
    return json.dumps(plans_of(path), indent=1, sort_keys=True, default=list) + "\n"


@contextlib.contextmanager
def on_no_machine() -> Iterator[None]:
    """What looks at this machine gives the same everywhere."""
    with contextlib.ExitStack() as stack:
        for where, name, found in (
            (fitting, "fitting_device", lambda stack: NO_GPU),
            (designs, "identity", lambda on_gpu: A_MACHINE),
            (closure, "code_sha256", lambda *words: "0"),
            (sliced, "quota_here", lambda: None),
            (sliced, "machine_hierarchies", lambda: [Path("/")]),
            (starts, "cold_obstacle", lambda: None),
            (starts, "measuring_campaigns", lambda *outs: contextlib.nullcontext()),
            (measure, "measuring_campaigns", lambda *outs: contextlib.nullcontext()),
            (measure, "measuring", lambda *outs: contextlib.nullcontext()),
            (measure, "compare_curves", lambda *words: None),
            (measure, "data_of", lambda workload, *words: (Path("/data") / workload, {})),
            (co_runner, "with_its_data", lambda sites, study, record: (dict(sites), {})),
        ):
            stack.enter_context(mock.patch.object(where, name, found))
        yield


def _plan_of(study: Study, campaign: CampaignId) -> dict[str, Any]:
    """The plan of a campaign, by the command that its rule calls."""
    workload, arm = campaign.workload, arms.parse(campaign.arm) if campaign.arm else None
    source = part_of(study, campaign.kind, workload, arm, campaign.scenario)
    with _sites(measure, arm, campaign.scenario):
        if campaign.kind == "causes":
            wanted = [measure.CausesOf(workload=workload, record=Path("data.json"), out=OUT)]
            with _captured(measure, "run_campaigns") as found:
                measure.causes_together(source, wanted, campaign.environments, None)
            return _told(list(found[0].values()))
        with _captured(measure, "run_campaign") as found:
            if campaign.kind == "sweep":
                measure.sweep(source, workload, None, None, OUT)
            else:
                measure.compare(
                    source, workload, campaign.environments, None, None, OUT, campaign.arm, campaign.scenario
                )
    return _told(found)


def _profile(study: Study, workload: str, arm: str | None) -> dict[str, Any]:
    """What a profiled launch on the host is told."""
    source = part_of(study, "profile", workload, arms.parse(arm) if arm else None)
    found: dict[str, Any] = {}

    def launch(site: Site, spec: Any, conditions: Any, trace: Path) -> dict[str, Any]:
        found.update(spec=spec.to_json(), conditions=conditions.to_json(), framework=site.framework)
        return {"status": "ok", "reason": None}

    with (
        tempfile.TemporaryDirectory() as folder,  # which is made for traces
        _sites(measure, None, SINGLE),
        mock.patch.object(measure, "write_json", lambda *words: None),
        mock.patch.object(measure, "say", lambda text: None),
        mock.patch.object(measure, "profiled_launch", launch),
    ):
        measure.profile(source, workload, HOST, None, None, Path(folder) / OUT.name, arm)
    return found


@contextlib.contextmanager
def _captured(where: Any, name: str) -> Iterator[list[Any]]:
    """The designs that a command would run, instead of running them."""
    found: list[Any] = []

    def keep(first: Any, design: Any = None) -> None:
        found.append(first if not isinstance(design, Design) else design)

    with mock.patch.object(where, name, keep):
        yield found


@contextlib.contextmanager
def _sites(where: Any, arm: arms.Arm | None, scenario: str) -> Iterator[None]:
    """Every environment can be had, in the study's stack or in the arm's."""

    def site(study: Any, name: str, level: arms.Arm | None) -> Site:
        stack = level.other_stack if level and level.other_stack else study.stack
        own = environment(read_role(name).environment)
        return Site(environment=own, python="/python", framework=framework_of(stack))

    @contextlib.contextmanager
    def plain(study: Any, workload: Any, names: Any, *words: Any, **named: Any) -> Iterator[Any]:
        level = words[2] if len(words) > 2 else None
        yield {name: site(study, name, level) for name in dict.fromkeys(names)}, {}, {}

    @contextlib.contextmanager
    def of_launches(study: Any, workload: Any, names: Any, *words: Any) -> Iterator[Any]:
        members = arms.members(arm, [HOST, *names])
        chosen = arms.launch_names(arm, dict.fromkeys(members), scenario)
        assert CONTROL in chosen
        levels = {name: None if read_role(name).is_reference else arm for name in chosen}
        yield {name: site(study, name, level) for name, level in levels.items()}, {}, {}

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(where, "sites", plain))
        if where is measure:
            stack.enter_context(mock.patch.object(where, "launch_sites", of_launches))
        yield


def _told(found: list[Design]) -> dict[str, Any]:
    """The plan of the one design of a command, without what differs between machines, builds and starts."""
    (design,) = found
    plan = {key: value for key, value in design.plan.to_json().items() if key not in LEFT_OUT}
    return {key: value for key, value in plan.items() if value not in (None, {})} | {"what": design.what}


def main() -> None:
    """Write every file anew, and remove those of studies that are gone."""
    studies = shipped()
    PLANS.mkdir(exist_ok=True)
    for path in PLANS.glob("*.json"):
        if path.stem not in studies:
            path.unlink()
    for name, path in studies.items():
        (PLANS / f"{name}.json").write_text(text_of(path), encoding="utf-8")


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args()
    main()
