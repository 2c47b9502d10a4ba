"""What launches of tests are asked to do, and under which conditions: builders with defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.model.conditions import Conditions, StudyConditions
from tare.model.schema import AnyRecord, parse
from tare.model.specification import Specification
from tare.model.studies.study import LaunchPart

OF_A_STUDY = StudyConditions(threads=1, cpus=1, open_files=1024, page_cache="warm", launch_timeout_s=20.0)
CONDITIONS = OF_A_STUDY.of_launch(allocator="steady")
PART = LaunchPart(stack="torch-2.13", seed=1, device="cpu", conditions=OF_A_STUDY)
# Of a plan as JSON holds it, where a test asks for nothing else.
PLANNED = {"spec": {"mode": "train"}, "conditions": CONDITIONS.to_json()}


def spec(**values: Any) -> Specification:
    """A specification, of a whole run where nothing else is said; values as JSON holds them."""
    return parse(Specification, {"mode": "train"} | values, "a specification of a test")


def conditions(**values: Any) -> Conditions:
    """Conditions of a launch; values as JSON holds them."""
    return parse(Conditions, CONDITIONS.to_json() | values, "conditions of a test")


def part(kind: type[AnyRecord], study: Mapping[str, Any]) -> AnyRecord:
    """The part of a study that a kind of work depends on; what it does not is left out."""
    return parse(kind, {key: study[key] for key in kind.model_fields if key in study}, "a study of a test")
