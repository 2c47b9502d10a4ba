"""`tare weigh` in real containers: what is planted is named, and what is not is not (benchmarks/weigh_planted.py).

Some cases for three minutes each; the benchmark has all of them. A machine that is too noisy to tell is asked again
with twice the time.
"""

import importlib.util

import pytest

from tare.core.files import project_root

pytestmark = [pytest.mark.runtime, pytest.mark.quiet]
MINUTES = (3.0, 6.0)
CASES = (
    *("a package of the user's own", "kernels of an old processor", "an image through FUSE"),
    *("the host twice", "Docker with little shared memory, unused"),
)


@pytest.fixture(scope="module")
def benchmark():
    path = project_root() / "benchmarks/weigh_planted.py"
    spec = importlib.util.spec_from_file_location("weigh_planted", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def images(benchmark):
    with benchmark.images() as found:
        yield found


@pytest.mark.parametrize("case", CASES)
def test_what_is_planted_is_named_and_nothing_else(benchmark, images, case):
    rows = []
    for minutes in MINUTES:
        rows.append(benchmark.measure(case, images, minutes))
        print(benchmark.line(case, rows[-1]))
        assert rows[-1]["passed"] is not None, rows[-1]["reason"]
        if rows[-1]["passed"]:
            return
    pytest.fail(str(rows))
