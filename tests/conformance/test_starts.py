"""First starts, really cold and really warm, in every environment: the disk has to notice the difference.

What else reads from the disk while a warm start runs is taken for its own: the test says how much that was, and
tries again.
"""

import pytest

from tare.analysis import image_costs
from tare.experiments import starts
from tare.experiments.designs import Setup
from tare.launch.place import site_of
from tare.model.registry import environment
from tare.model.studies.sections import Starts

pytestmark = [pytest.mark.runtime, pytest.mark.quiet]
ATTEMPTS = 4
LEAST_COLD_BYTES = 100 << 20  # the framework's libraries are larger than that, compressed or not


@pytest.fixture(scope="module")
def pairs(study, forms):
    """A cold start and the warm one after it, once in each environment, beside which little was read."""
    found = {}

    def pair(name):
        if name not in found:
            adapter = environment(name)
            site = site_of(name, adapter, forms(name), None)
            conditions = study.conditions.replace(page_cache="as_found")  # of whole runs: starts have both phases
            small = study.replace(starts=Starts(repetitions=1), conditions=conditions)
            with adapter.session():
                design = starts.starts(Setup(study=small, workload="mnist_cnn", sites={name: site}))
                for _ in range(ATTEMPTS):
                    unit = design.run_unit(design.plan, 0, [])
                    found[name] = {phase: unit["launches"][f"{name}/{phase}"] for phase in ("cold", "warm")}
                    read = {phase: launch.machine_read_bytes for phase, launch in found[name].items()}
                    print(f"{name}: the machine read {read} bytes")
                    if None in read.values() or read["warm"] < read["cold"] / 2:
                        break
        return found[name]

    return pair


def test_a_cold_start_reads_from_the_disk_and_a_warm_one_does_not(env_in_turn, pairs):
    if obstacle := starts.cold_obstacle():
        pytest.fail(f"a test machine must be able to empty its page cache: {obstacle}")
    cold, warm = pairs(env_in_turn)["cold"], pairs(env_in_turn)["warm"]
    assert cold.ok and warm.ok, (cold.reason, warm.reason)
    assert cold.machine_read_bytes > LEAST_COLD_BYTES
    assert warm.machine_read_bytes < cold.machine_read_bytes / 2
    inside = [launch.seen_inside().results for launch in (cold, warm)]
    assert all(results["major_faults"] > 0 for results in inside[:1])
    if environment(env_in_turn).contained and inside[0]["read_bytes"] < LEAST_COLD_BYTES:
        # Only where a server in user space reads the image for the process: then its pages are faults all the same.
        assert inside[0]["major_faults"] > 100
        return
    assert inside[1]["read_bytes"] < inside[0]["read_bytes"] / 2
    assert inside[1]["major_faults"] < inside[0]["major_faults"]


def test_a_start_ends_when_the_framework_is_imported(env_in_turn, pairs):
    warm = pairs(env_in_turn)["warm"]
    rows = {row["item"]: row["value"] for row in image_costs.start_rows("warm", warm)}
    parts = rows["warm_runtime_start_s"] + rows["warm_imports_s"]
    assert rows["warm_start_s"] == pytest.approx(parts, rel=1e-9)
    assert 0.2 < rows["warm_imports_s"] < 60
    assert warm.seen_inside().facts.framework.version and warm.deviations == ()


def test_a_form_lies_where_its_adapter_says(env_name, forms):
    storage = forms(env_name).storage
    assert storage.reason is None
    assert storage.disk_bytes > LEAST_COLD_BYTES
    expected = 0 if environment(env_name).contained else storage.disk_bytes  # what is no image is the host's tree
    assert storage.shared_bytes == expected
