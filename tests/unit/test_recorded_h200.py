"""The reference campaign of a real H200 that comes with the project: whole, read by today's code, and plausible."""

from __future__ import annotations

import gzip
import shutil

import frauds
import pandas as pd
import pytest

from tare.analysis.capacity import ceilings
from tare.analysis.reference import write_tables
from tare.cli.main import main
from tare.core.files import project_root, read_json, sha256_file, unpacked, write_json
from tare.literature import claims
from tare.model import tables
from tare.model.journals.ledger import LEDGER
from tare.model.journals.references import check, opened
from tare.model.journals.sealed import PACKED_UNITS, UNITS
from tare.model.studies.layout import REFERENCE
from tare.profilers.ncu import read_metrics
from tare.report import reference_section, references

NAME = "nvidia-h200-2026-11-27"
ARCHIVE = project_root() / f"results/reference/{NAME}.zip"
FOLDER = opened(ARCHIVE)
MOST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("results") / "reference-tables" / NAME
    write_tables(FOLDER, out)
    claims.write_of_device(FOLDER, out)
    return out


@pytest.fixture(scope="module")
def metrics(made):
    return tables.read("metrics", made / "metrics.csv")


@pytest.fixture(scope="module")
def reference(made):
    return references.read(FOLDER, made)


def profiled(metrics, workload):
    rows = metrics[(metrics["campaign"] == "profile") & (metrics["workload"] == workload)]
    return rows[rows["kind"] == "measured"].drop_duplicates("metric").set_index("metric")["value"]


def test_it_is_whole_and_small():
    record = check(FOLDER)
    assert record.device.name == "NVIDIA H200" and set(record.environments) == {"host"}
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MOST_BYTES
    done = {part.name for part in record.parts if part.status in ("ok", "ended")}
    assert {"ceilings", "profile mnist_cnn host", "profile sentiment_rnn host", "rounds resnet50"} <= done


def test_it_is_read_though_it_was_recorded_before_paths_and_plans_named_machines(metrics, made):
    assert set(metrics["machine"]) == set(tables.read("ledger", made / "ledger.csv")["machine"]) == {"nvidia-h200"}
    assert not any((FOLDER / f"campaigns/recorded/{name}").exists() for name in ("nvidia-h200", "box"))


def test_ceilings_are_below_the_datasheet_and_not_far():
    record = ceilings.read_ceilings(FOLDER / "ceilings.json")
    assert 0.85 < ceilings.memory(record)["bytes_per_s"] / record.datasheet.memory_bytes_per_s < 1
    peaks, claimed = ceilings.peaks(record), ceilings.claimed(record)
    assert {"float32", "tf32", "float16", "bfloat16", "float8_e4m3fn"} <= set(peaks)
    assert all(0.6 < row["flop_per_s"] / claimed[name] < 1 for name, row in peaks.items() if name in claimed)


@pytest.mark.parametrize("workload", ["mnist_cnn", "sentiment_rnn"])
def test_counters_of_two_kinds_agree(metrics, workload):
    """Sectors of 32 bytes and bytes are counted apart; a time of kernels is inside the step that they belong to."""
    found = profiled(metrics, workload)
    moved = found["dram_read_bytes"] + found["dram_write_bytes"]
    assert 32 * found["hbm_transactions"] == pytest.approx(moved, rel=0.01)
    assert found["flops_measured"] >= 0.5 * float(
        metrics[(metrics["workload"] == workload) & (metrics["metric"] == "flops_per_step")]["value"].iloc[0]
    )
    assert 0 < found["kernel_s"] <= found["device_busy_s"] < found["plain_step_s"]
    assert found["memset_s"] > 0 and found["htod_s"] > 0


@pytest.mark.parametrize("part", ["dram", "operations"])
def test_the_pages_of_ncu_are_read_as_they_were_printed(part):
    path = FOLDER / f"profiles/recorded/mnist_cnn/host/counters.{part}.csv.gz"
    found = read_metrics(gzip.decompress(path.read_bytes()).decode(), path.name)
    capability = found[found["metric"] == "device__attribute_compute_capability_major"]["avg"]
    assert set(capability) == {9.0} and len(capability) == found["kernel_index"].nunique()


def test_the_control_of_image_models_is_within_half_a_percent(reference):
    rows = {row[0].text if hasattr(row[0], "text") else row[0]: row for row in _steps(reference)}
    for title in ("ResNet50", "ResNet18"):
        low, high = (float(word) for word in rows[title][-1].split(" to "))
        assert 0.995 < low < 1 < high < 1.005
    assert rows["AlexNet"][-1] == "none"  # one pair of launches


def _steps(reference):
    return [row for row in reference_section.steps_table(reference).rows if not getattr(row[0], "below", None)]


def test_claims_on_a_device_are_judged_and_those_between_environments_stay_open(reference):
    rows = reference_section.claims_table(reference, ["columbia2025", "nyu2022"]).rows
    assert rows and {row[2] for row in rows} <= {"open here", "holds here", "fails here"}
    memory = next(row for row in rows if "GPU's memory" in row[1])
    assert "28.494 GB / 12.44 GB" in memory[3]


def test_what_had_no_time_is_named(reference):
    (late,) = [line for line in reference_section.part_sentences(reference) if line.startswith("No time left for")]
    assert "rounds transformer_lm" in late and "setting resnet50 amp=bf16" in late


def test_no_environment_is_compared_with_the_host(metrics):
    assert set(metrics["launch"]) <= {"host", "host.control", "host.headline"}
    assert set(metrics["environment"]) == {"host"}
    assert set(metrics["launch_role"]) == {"reference", "control", "headline"}
    assert pd.Series(metrics["stack"]).dropna().unique().tolist() == ["bound"]


class Forged(frauds.Study):
    """A copy of the reference, with plain journals."""

    def __init__(self, root):
        self.root, self.folder = root, root / "campaigns/recorded"
        self.ledger = self.folder / LEDGER
        for packed in self.folder.rglob(PACKED_UNITS):
            (packed.parent / UNITS).write_bytes(b"".join(unpacked(packed)))
            packed.unlink()

    def campaign(self, kind="rounds"):
        return self.folder / "resnet50" / f"{kind}.host"

    def relist(self, root):
        paths = sorted(path for path in root.rglob("*") if path.is_file() and path.name != REFERENCE)
        files = [
            {"path": str(path.relative_to(root)), "bytes": path.stat().st_size, "sha256": sha256_file(path)}
            for path in paths
        ]
        write_json(root / REFERENCE, read_json(root / REFERENCE) | {"files": files})


def drop_last(rows):
    del rows[-2]


def turn_order(rows):
    rows[1]["order"].reverse()


def copy_launch(rows):
    rows[2]["launches"]["host"] = rows[1]["launches"]["host"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: None, None), (drop_last, "has 3 units"), (turn_order, "order"),
        (copy_launch, "resnet50/rounds.host"),
    ],
)  # fmt: skip
def test_a_forger_who_remakes_all_its_hashes_is_found(tmp_path, change, says, capsys):
    study = Forged(shutil.copytree(FOLDER, tmp_path / NAME))
    study.edit(change)
    study.rehash()
    assert main(["archive", str(study.root)]) == 0
    capsys.readouterr()
    assert main(["verify", str(tmp_path / f"{NAME}.zip"), "--only", "references"]) == (0 if says is None else 1)
    assert (says or "1 passed") in capsys.readouterr().out


def test_its_archive_holds_it_as_it_was_recorded():
    assert main(["verify", str(ARCHIVE), "--only", "members", "references"]) == 0
    assert ARCHIVE.stat().st_size < MOST_BYTES


def test_facts_of_the_device_have_units(reference):
    rows = {row[0]: row[1] for row in reference_section.facts_table(reference).rows}
    assert rows["GPU 0: Highest SM clock"] == "1.98 GHz" and rows["GPU 0: Memory"] == "140 GiB"
    assert rows["GPU 0: Power limit"] == "700 W"
