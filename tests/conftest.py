"""For all tests: their order, the seed that chooses among them, and the studies that run beside them."""

import os

import beside
import matrix
import pytest

# What is cheap and telling comes first, what needs a quiet machine last.
ORDER = (
    "conformance/test_matrix.py", "unit", "browser", "conformance/test_probe.py", "conformance/test_images.py",
    "conformance/test_launches.py", "conformance/test_contract.py", "conformance", "gpu", "workflow",
    "conformance/test_ceilings.py", "conformance/test_planted.py",
)  # fmt: skip


def place(path: str) -> int:
    """Of a test file, given below tests/, in the order."""
    fits = [(len(name), number) for number, name in enumerate(ORDER) if path.startswith(name)]
    return max(fits)[1] if fits else len(ORDER)


def pytest_report_header():
    return f"seed of what is taken in turn: {matrix.VARIABLE}={matrix.SEED}"


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"To take the same tests again: {matrix.VARIABLE}={matrix.SEED}")


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: place(os.path.relpath(item.path, config.rootpath / "tests")))


@pytest.fixture(scope="session", autouse=True)
def studies(request, tmp_path_factory):
    """Starts the studies that chosen tests look at, beside the first of all tests."""
    wanted = {name for item in request.session.items for name in item.fixturenames}
    running = beside.Beside(tmp_path_factory.mktemp("beside"), wanted)
    yield running
    running.end()


@pytest.fixture(scope="session")
def extended(studies):
    """A copy of the checkout with the documentation's additions, run to its report on a poor machine."""
    return studies.wait("extended")


@pytest.fixture(scope="session")
def smoke(studies):
    """A copy in which the smoke preset ran to its report, on the real runtimes."""
    return studies.wait("smoke")


@pytest.fixture(scope="session")
def slow_steps(studies):
    """A copy beside which a campaign of steps of two seconds is sealed."""
    return studies.wait("slow_steps")
