"""For all tests: their order and parts, which of them are of the core, the studies beside them, and quiet.

`make test` runs them in three processes (pytest-xdist), by parts: a part is what one process runs in one go.
With MINUTES, the core comes first, and of it the unit tests. What is not begun in so long is skipped.
"""

import fcntl
import functools
import json
import os
import sys

import beside
import core
import limit
import matrix
import pytest

os.environ["TARE_MACHINE"] = "box"  # the same on every machine, as paths in the tests have it
sys.modules.setdefault("rfc3987_syntax", None)  # two seconds of grammars, see notebooks.without_grammars

# Long parts come first, so that little is left for one process when the other is done; what looks at the studies
# comes when they are finished, before the many short parts, and what needs quiet last: it waits for them, and the
# other process waits for it.
LATER = "later.json"
QUIET = tuple(
    f"conformance/test_{name}.py"
    for name in ("lost_image", "starts", "ceilings", "planted", "caller_limits", "slicing_truths")
)
ORDER = (
    "conformance/test_images.py", "conformance/test_framework_stacks.py", "browser", "conformance/test_launches.py",
    "conformance/test_arms.py", "conformance/test_contract.py", "conformance/test_shared.py",
    "conformance/test_vm.py", "conformance",
    "workflow/test_killing.py", "workflow/test_plans.py", "unit/test_notebooks.py", "unit/test_device_report.py",
    "unit/test_report", "workflow", "conformance/test_naive_image.py", "unit", "gpu", *QUIET,
)  # fmt: skip


def place(path: str) -> int:
    """Of a test file, given below tests/, in the order."""
    fits = [(len(name), number) for number, name in enumerate(ORDER) if path.startswith(name)]
    return max(fits)[1] if fits else len(ORDER)


def order(item):
    """Where time is limited: unit tests, the rest of the core, what is beyond it. What needs quiet comes last."""
    path = os.path.relpath(item.path, item.config.rootpath / "tests")
    quiet, number = path in QUIET, place(path)
    if not limit.given():
        return quiet, number
    return beyond(item), quiet, not path.startswith("unit/"), number


def beyond(item):
    """Whether a test is not of the core."""
    return core.is_beyond(item.nodeid, item.fixturenames)


def part(nodeid: str, later=()) -> str:
    """The part that a test belongs to: its file, or the first of those that run one after the other.

    Args:
        later: ids of tests that are parts apart from others of their files.
    """
    path = nodeid.partition("::")[0].removeprefix("tests/")
    return (QUIET[0] if path in QUIET else path) + (", beyond the core" if nodeid in later else "")


def pytest_configure(config):
    limit.begin()
    config.addinivalue_line("markers", "quiet: nothing of ours may run beside it")
    config.addinivalue_line("markers", "meets(kind=name): what a test really launches, where no parameter says it")


def takes_core(config):
    """Whether this is a run of the core: of all tests, none of them named or chosen, without ALL=1."""
    if hasattr(config, "workerinput"):
        return config.workerinput["takes_core"]
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return whole and not (matrix.ALL or config.option.keyword or config.option.markexpr)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """A process of a run is given its tests by their files, and can't tell itself."""
    node.workerinput["takes_core"] = takes_core(node.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Parts(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return part(nodeid, later())

    @functools.cache
    def later():
        """The workers have collected the tests when the first of them is asked for."""
        kept = run_folder(config) / LATER
        return frozenset(json.loads(kept.read_text())) if kept.exists() else frozenset()

    config.option.loadscopereorder = False
    return Parts(config, log)


def pytest_report_header(config):
    core_alone = "the core (tests/core.py); make test ALL=1 runs everything"
    which = core_alone if takes_core(config) else "every case" if matrix.ALL else "one case of each row"
    return f"tests: {which}{limit.told()}; seed of random moments: TARE_TEST_SEED={matrix.SEED}"


def pytest_collection_modifyitems(config, items):
    """In their order; of a run of the core, those that are of it."""
    items.sort(key=order)
    left_out = [item for item in items if beyond(item)]
    if left_out and takes_core(config):
        config.hook.pytest_deselected(items=left_out)
        chosen = set(items) - set(left_out)
        items[:] = [item for item in items if item in chosen]
    elif limit.given() and hasattr(config, "workerinput"):
        partly = run_folder(config) / f"{LATER}.{os.getpid()}"
        partly.write_text(json.dumps([item.nodeid for item in left_out]))
        partly.rename(run_folder(config) / LATER)


def pytest_terminal_summary(terminalreporter):
    """How much of the core was not begun in time."""
    skipped = terminalreporter.getreports("skipped")
    late = [one.nodeid for one in skipped if f"{limit.NOT_BEGUN}, of the core" in str(one.longrepr)]
    if late:
        terminalreporter.write_line(f"NOT RUN, as the time was over: {len(late)} tests of the core")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """No test begins when the time is over."""
    limit.skip_when_over(of_core=not beyond(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """One test that needs quiet, when no study runs, or any of the others, whatever the number of processes."""
    folder, quiet = run_folder(item.config), item.get_closest_marker("quiet")
    if quiet:
        beside.wait_for_all(folder / "beside")
    with (folder / "room").open("a") as room:
        fcntl.flock(room, fcntl.LOCK_EX if quiet else fcntl.LOCK_SH)
        return (yield)


def run_folder(config):
    """Temporary files of this run of the tests, the same in all of its processes."""
    own = config._tmp_path_factory.getbasetemp()
    return own.parent if hasattr(config, "workerinput") else own


def parameters(item):
    """Names of what a test is given by its parameters, which may be called as a fixture is."""
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture(scope="session", autouse=True)
def studies(request):
    """Starts the studies that chosen tests look at, beside the first of all tests."""
    wanted = {name for item in request.session.items for name in item.fixturenames if name not in parameters(item)}
    assert not (wanted & beside.STUDIES.keys() and request.config.getoption("quick", False)), "no study is quick"
    folder = run_folder(request.config) / "beside"
    folder.mkdir(exist_ok=True)
    os.environ["TARE_TEST_RUN"] = str(folder.parent)
    running = beside.Beside(folder, wanted)
    limit.end_with_last()
    yield running
    running.end()


@pytest.fixture(scope="session")
def extended(studies):
    """A copy of the checkout with the documentation's additions, run to its report on a poor machine."""
    return studies.wait("extended")


@pytest.fixture(scope="session")
def varied(studies):
    """A copy in which the documentation's workload ran with arms, settings and another stack, to its report."""
    return studies.wait("varied")


@pytest.fixture(scope="session")
def smoke(studies):
    """A copy in which the smoke preset ran to its report, on the real runtimes."""
    return studies.wait("smoke")


@pytest.fixture(scope="session")
def written(studies):
    """A copy in which the study of docs/write-a-study.md ran to its report, on the real runtimes."""
    return studies.wait("written")


@pytest.fixture(scope="session")
def slow_steps(studies):
    """A copy beside which a campaign of steps of two seconds is sealed."""
    return studies.wait("slow_steps")
