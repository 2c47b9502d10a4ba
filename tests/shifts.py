"""What takes minutes and has a shift of its own: of these a run of the tests takes one, in turn by the seed.

A run has every environment with one workload and every workload on the host, all unit tests, all that kills and
plans; a shift is what goes beyond, and each has its turn within as many days of work. Tests that are chosen
otherwise, by files or names, run whatever their shift.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

# By name: the studies that are run beside the tests, by their fixtures, and what ids of tests begin with. They take
# about equally long. Their number is a prime, see `matrix.in_turn`.
SHIFTS: Mapping[str, Sequence[str]] = {
    "additions": (
        "extended",
        "browser/test_report_page.py::test_a_page_of_a_device_",
        "browser/test_report_page.py::test_letters_in_figures_of_a_device_",
        "browser/test_report_page.py::test_pages_of_two_papers_",
    ),
    "preset": ("smoke",),
    "together": (
        "written",
        "conformance/test_distributed.py",
        "conformance/test_shared.py",
    ),
    "variations": ("varied", "conformance/test_arms.py", "conformance/test_settings.py"),
    "guests": (
        "conformance/test_naive_image.py",
        "conformance/test_vm.py::test_a_guest_",
        "conformance/test_vm.py::test_a_quota_",
        "conformance/test_vm.py::test_what_takes_guests_a_minute_works",
    ),
    "stacks": (
        "conformance/test_bound.py",
        "conformance/test_framework_stacks.py",
        "conformance/test_frameworks.py",
        "conformance/test_official.py",
        "conformance/test_other_stack.py",
    ),
    "instrument": (
        "conformance/test_causes.py",
        "conformance/test_job_sizes.py",
        "conformance/test_losses.py",
        "conformance/test_planted.py",
        "conformance/test_slicing_truths.py",
        "unit/test_memory.py::test_the_largest_batch_",
    ),
}


def shift_of(nodeid: str, fixtures: Collection[str]) -> str | None:
    """The shift that a test belongs to; None where it runs each time.

    Args:
        nodeid: as pytest has it, below the checkout or below tests/.
        fixtures: names of those that it asks for.
    """
    name = nodeid.removeprefix("tests/")
    for shift, begins in SHIFTS.items():
        if any(one in fixtures or ("/" in one and name.startswith(one)) for one in begins):
            return shift
    return None
