"""What `make test` runs: a core that meets everything at least once. `make test ALL=1` runs the rest as well.

    python tests/core.py     prints as JSON what the core meets, without running it

The core has the unit tests, all that kills and plans, every environment with one workload, the host with all, every
stack on the host, and the smoke study. Of a row of equal cases (an environment for each file, a failure of guests)
it takes one, the same each time; ALL=1 takes all. Tests that are chosen otherwise, by files or names, run
whether they are of the core or not.
"""

from __future__ import annotations

import argparse
import json
import sys
import typing
from collections.abc import Collection, Iterable, Mapping, Set
from pathlib import Path

import pytest

# The studies that are run beside the tests, by their fixtures, and what ids of tests begin with.
BEYOND = (
    *("extended", "varied", "written", "slow_steps"),
    "browser/test_report_page.py::test_a_page_of_a_device_",
    "browser/test_report_page.py::test_letters_in_figures_of_a_device_",
    "browser/test_report_page.py::test_pages_of_two_papers_",
    "conformance/test_arms.py",
    "conformance/test_bound.py",
    "conformance/test_causes.py",
    "conformance/test_distributed.py",
    "conformance/test_framework_stacks.py::test_a_profiled_launch_",
    "conformance/test_framework_stacks.py::test_each_replicate_",
    "conformance/test_framework_stacks.py::test_its_losses_in_its_own_image_",
    "conformance/test_frameworks.py",
    "conformance/test_job_sizes.py",
    "conformance/test_losses.py",
    "conformance/test_naive_image.py",
    "conformance/test_other_stack.py::test_both_stacks_",
    "conformance/test_other_stack.py::test_it_trains_",
    "conformance/test_other_stack.py::test_its_first_loss_",
    "conformance/test_planted.py",
    "conformance/test_restrictions.py",
    "conformance/test_settings.py",
    "conformance/test_shared.py",
    "conformance/test_slicing_truths.py",
    "conformance/test_slurm.py",
    "conformance/test_vm.py::test_a_guest_",
    "conformance/test_vm.py::test_a_quota_",
    "unit/test_memory.py::test_the_largest_batch_",
    "workflow/test_verified.py::test_frauds_",
    "workflow/test_verified.py::test_pictures_",
)
KINDS = ("environment", "framework", "scenario", "stack", "design")
# Parameters of conformance tests that name what is really launched.
NAMED = {**dict.fromkeys(("env", "env_in_turn", "env_name", "name"), "environment"), "stack": "stack"}
# Studies of config/ that are run beside the tests, by their fixtures.
STUDIES = {"smoke": "config/smoke.yaml"}


def is_beyond(nodeid: str, fixtures: Collection[str]) -> bool:
    """Whether a test is not of the core.

    Args:
        nodeid: as pytest has it, below the checkout or below tests/.
        fixtures: names of those that it asks for.
    """
    name = nodeid.removeprefix("tests/")
    return any(name.startswith(one) if "/" in one else one in fixtures for one in BEYOND)


def there_are() -> dict[str, set[str]]:
    """All that there is of each kind."""
    from tare.model.records.campaigns import Kind
    from tare.model.registry import environment_names, module_names, scenario_names
    from tare.model.studies.stacks import stack_names

    return {
        "environment": set(environment_names()),
        "framework": set(module_names("tare/worker/frameworks")),
        "scenario": set(scenario_names()),
        "stack": set(stack_names()),
        "design": set(typing.get_args(Kind)),
    }


def met(items: Iterable[pytest.Item]) -> dict[str, set[str]]:
    """What tests meet: by the study that they look at, parameters of conformance tests, and the mark `meets`.

    A stack brings its framework.
    """
    from tare.model.studies.stacks import framework_of

    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    studies = set()
    for item in items:
        if item.get_closest_marker("skip"):
            continue
        for mark in item.iter_markers("meets"):
            for kind, name in mark.kwargs.items():
                found[kind].add(name)
        studies.update(STUDIES.keys() & set(getattr(item, "fixturenames", ())))
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if "conformance/" in item.nodeid:
            for name, kind in NAMED.items():
                found[kind].update(value for value in [parameters.get(name)] if isinstance(value, str))
    for study in studies:
        for kind, names in of_study(STUDIES[study]).items():
            found[kind] |= names
    found["framework"].update(framework_of(stack) for stack in found["stack"])
    return found


def of_study(path: str) -> dict[str, set[str]]:
    """What a study meets by its campaigns; its starts are one more design."""
    from tare.core.files import project_root
    from tare.model.studies.campaigns import campaigns
    from tare.model.studies.loading import load_checked

    planned = campaigns(load_checked(project_root() / path))
    return {
        "environment": {name for one in planned for name in one.environments},
        "scenario": {one.scenario for one in planned},
        "stack": {one.stack for one in planned},
        "design": {one.kind for one in planned} | {"starts"},
    }


def lacking(there: Mapping[str, Set[str]], found: Mapping[str, Set[str]]) -> list[str]:
    """What is never met, a line for each."""
    missing = [(kind, name) for kind in KINDS for name in sorted(there[kind] - found[kind])]
    mend = "take a test of it out of BEYOND in tests/core.py"
    return [f"the core meets no {kind} {name}: {mend}" for kind, name in missing]


class Looks:
    """Keeps the items of a run that were chosen."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Pytest has chosen its tests."""
        self.items = list(session.items)


def main() -> int:
    """Collect the core; what it meets is the last line."""
    looks = Looks()
    status = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "-n0"], plugins=[looks])
    found = {kind: sorted(names) for kind, names in met(looks.items).items()}
    print(json.dumps({"met": found, "tests": len(looks.items)}))
    return int(status)


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
