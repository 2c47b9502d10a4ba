"""The batch sweep: one start for all sizes of a unit, what each of them took, and what fails is launched alone."""

import pytest
from asked import part
from campaign_builders import CONDITIONS, inside

from tare.analysis.launch_rows import whole_run_rows
from tare.experiments import designs, rounds
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.model.journals.sealed import read_sealed
from tare.model.records.launches import LaunchRecord
from tare.model.schema import parse
from tare.model.studies.study import SweepPart

S = 1_000_000_000
SIZES = (16, 64)
# Of each size: when it was forked and what followed, seconds of the launch's clock; CPU seconds since the fork.
RUNS = {
    16: {"entry": (4.0, 0.0), "data": (4.5, 0.4), "model": (4.6, 0.5)}
    | {"first_step": (5.0, 0.9), "epoch_end": (6.0, 1.8)},
    64: {"entry": (7.0, 0.0), "data": (7.1, 0.1), "model": (7.2, 0.2)}
    | {"first_step": (7.5, 0.5), "epoch_end": (8.0, 1.0)},
}


class Host(str):
    """A site that is known by its name."""

    framework = "torch"
    reference = None


def marks_of(instants):
    """Marks from name, instant in seconds and CPU seconds."""
    return [
        {"name": name, "at_ns": int(at * S), "user_s": cpu, "system_s": cpu / 10}
        for name, (at, cpu) in instants.items()
    ]


def results_of(size, last):
    ends = [int((last - 0.5) * S), int(last * S)]
    return {"samples": 512, "steps": 2, "step_ends_ns": ends, "losses": [1.0, 1 / size]}


def started_once(sizes):
    """A launch that ran these sizes: three seconds until its imports, half a second after its last mark."""
    own = inside("host", "train", marks_of({"entry": (1.0, 0.1), "imports": (3.0, 2.0), "last": (9.0, 6.0)}))
    own["results"]["runs"] = [
        {
            "marks": [
                mark | {"modules": 1, "imports_ns": [[mark["at_ns"] - S // 20, mark["at_ns"]]]}
                for mark in marks_of(RUNS[size])
            ],
            "results": results_of(size, RUNS[size]["epoch_end"][0]),
            "memory": {"peak_rss_bytes": size, "children_peak_rss_bytes": 1},
        }
        for size in sizes
    ]
    return own


def alone(size):
    marks = {"entry": (1.0, 0.1), "imports": (3.0, 2.0), "data": (3.5, 2.4), "model": (3.6, 2.5)}
    marks |= {"first_step": (4.0, 2.9), "epoch_end": (5.0, 3.8), "last": (5.1, 3.9)}
    return inside("host", "train", marks_of(marks), results_of(size, 5.0))


@pytest.fixture
def launched(monkeypatch):
    """The specifications of all launches; `broken` holds sizes that fail."""
    seen, broken = [], set()

    def launch(site, spec, conditions, *, pad_bytes):
        spec = spec.to_json()
        seen.append((spec, conditions.launch_timeout_s))
        sizes = spec.get("batches", [spec["batch"]])
        if failing := broken.intersection(sizes):
            return LaunchRecord(status="failed", reason=f"no memory for {failing}")
        own = started_once(sizes) if "batches" in spec else alone(spec["batch"])
        common = {"status": "ok", "reason": None, "spawn_ns": 0, "end_ns": int(9.5 * S), "deviations": []}
        return parse(LaunchRecord, {**common, "inside": own}, "a launch")

    monkeypatch.setattr(designs, "launch", launch)
    monkeypatch.setattr(
        designs,
        "launch_side_by_side",
        lambda orders: {
            name: launch(one.site, one.program, one.conditions, pad_bytes=one.pad_bytes)
            for name, one in orders.items()
        },
    )
    return seen, broken


def run(folder, page_cache="warm"):
    study = {
        **{"study": "s", "seed": 3, "stack": "torch-2.13", "device": "cpu", "confidence": 0.95},
        **{"conditions": CONDITIONS.replace(page_cache=page_cache).to_json(), "rounds": {"allocator": "default"}},
        **{"sweep": {"repetitions": 2}, "workloads": {"mnist_cnn": {"batch": 64, "sweep_batches": list(SIZES)}}},
    }
    setup = Setup(study=part(SweepPart, study), workload="mnist_cnn", sites={"host": Host("host")})
    run_campaign(folder, rounds.sweep(setup))
    return read_sealed(folder / "sealed.json")


def values(launch):
    return {row["metric"]: row["value"] for row in whole_run_rows(launch)}


def test_sizes_share_a_start_and_each_counts_as_if_it_had_been_alone(tmp_path, launched):
    found = run(tmp_path / "sweep")
    seen, _ = launched
    assert [spec.get("batches") and sorted(spec["batches"]) for spec, _ in seen] == [None, [16, 64], [16, 64]]
    assert seen[1][1] == 2 * seen[0][1], "the time limit is of each size"
    for unit in found.counted:
        assert sorted(unit.launches) == ["16", "64"] and set(unit.order) == set(unit.launches)
        small, large = (values(unit.launches[str(size)]) for size in SIZES)
        # Three seconds of start, half a second of end, and from the fork to the end of the epoch.
        assert (small["real_s"], large["real_s"]) == (pytest.approx(5.5), pytest.approx(4.5))
        assert (small["imports_s"], small["data_s"], small["exit_s"]) == pytest.approx((2.0, 0.5, 0.5))
        assert (large["first_step_s"], large["epoch_rest_s"]) == pytest.approx((0.3, 0.5))
        assert (small["model_imports_s"], large["model_imports_s"]) == pytest.approx((0.05, 0.05))
        for launch in unit.launches.values():
            model = launch.seen_inside().mark("model")
            assert model.imports_ns == ((model.at_ns - S // 20, model.at_ns),), "moved with the mark"
        assert (small["user_s"], large["user_s"]) == pytest.approx((3.7, 2.9))
        assert (small["peak_rss_bytes"], large["peak_rss_bytes"]) == (16, 64)
        assert large["loss_last"] == 1 / 64
        phases = ("runtime_start_s", "imports_s", "data_s", "model_s", "first_step_s", "epoch_rest_s", "exit_s")
        assert sum(large[phase] for phase in phases) == pytest.approx(large["real_s"])
        own = unit.launches["16"].seen_inside().results
        assert (own["runs"], own["moved_ns"]) == (2, S)
        sources = {row["metric"]: row["source"] for row in whole_run_rows(unit.launches["16"])}
        assert sources["real_s"] == "launcher; start and end are those of 2 runs"


def test_where_one_fails_each_size_is_launched_alone(tmp_path, launched):
    seen, broken = launched
    broken.add(16)
    found = run(tmp_path / "sweep", page_cache="as_found")
    statuses = [{name: one.status for name, one in unit.launches.items()} for unit in found.counted]
    assert statuses == [{"16": "failed", "64": "ok"}] * 2
    assert [sorted(spec.get("batches", [spec["batch"]])) for spec, _ in seen[::3]] == [[16, 64]] * 2
    assert values(found.counted[0].launches["64"])["real_s"] == pytest.approx(9.4)


def test_where_every_start_is_cold_each_size_has_its_own(tmp_path, launched):
    run(tmp_path / "sweep", page_cache="cold")
    assert [sorted(spec.get("batches", [spec["batch"]])) for spec, _ in launched[0]].count([16]) == 2
    assert not any("batches" in spec for spec, _ in launched[0])
