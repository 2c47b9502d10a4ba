"""Journals and seals as every reader takes them: what no single writer leaves behind is refused by name."""

import gzip
import hashlib
import json

import pytest
from asked import PLANNED

from tare.core.errors import IntegrityError
from tare.core.files import canonical_json, sha256_file, sha256_text, write_json
from tare.model.journals import sealed
from tare.model.records.campaigns import Plan, Sealed
from tare.model.schema import parse
from tare.model.studies import layout
from tare.report.words.labels import env_title

PLAN = {
    "kind": "rounds",
    "study": "tiny",
    "workload": "mnist_cnn",
    "launches": [{"environment": "host"}, {"environment": "host", "is_control": True}, {"environment": "docker"}],
    **PLANNED,
    "sampling": {"units": 2, "confidence": 0.95},
    "seed": 1,
    "discarded": 1,
    "arm": "stack=same",
    "headline_arm": "stack=same",
    "stack": "torch-2.13",
    "code_sha256": "0" * 64,
    "provenance": {},
    "machine": {
        **{"name": "box", "cpus": [0], "governor": None, "kernel": "6", "machine": "x86_64", "online_cpus": "0"}
    },
}
DECISION = {
    **{"units": 2, "design": "stein", "wanted": 2, "cap": 9, "spread": {"docker": 0.1}, "widest": "docker"},
    **{"alpha": 0.05, "half_width": 0.1, "unit_s": 1.0, "spent_s": 2.0},
}


def unit(number):
    return {
        **{"unit": number, "discarded": number == 0, "voided": None, "cost_s": 1.0, "order": ["host"]},
        "launches": {"host": {"status": "failed", "reason": "no wish to"}},
    }


def seal_of(*units):
    return {"seal": sha256_text(canonical_json(list(units)))}


def write_folder(folder, rows, *, packed=False):
    """A campaign's folder with these rows, sealed by their hash."""
    parse(Plan, PLAN, "plan").write(folder / sealed.PLAN)
    journal = folder / sealed.UNITS
    journal.write_text("".join(canonical_json(row) + "\n" for row in rows))
    hashes = {"plan_sha256": sha256_file(folder / sealed.PLAN), "units_sha256": sha256_file(journal)}
    if packed:
        (folder / sealed.PACKED_UNITS).write_bytes(gzip.compress(journal.read_bytes()))
        journal.unlink()
    summary = {
        **{"status": "sealed", "reason": None, **hashes, "units": 2, "voided": 0, "machine_s": 3.0},
        **{"decision": DECISION, "failures": {}, "sealed_at": "2026-01-02T03:04:05Z"},
    }
    parse(Sealed, summary, "seal").write(folder / layout.SEALED)
    return folder / layout.SEALED


def in_a_guest(row):
    """The same, launched in a virtual machine whose processor was emulated."""
    vm = {"accelerator": "tcg", "emulated": True, "cpu_model": "max", "vcpus": 2, "cpus": [0, 1], "kernel": "6.1"}
    slow = {**row["launches"]["host"], "vm": {**vm, "memory_bytes": 1}}
    return {**row, "launches": {**row["launches"], "vm": slow}}


GOOD = [unit(0), unit(1), {"decision": DECISION}, unit(2)]


@pytest.mark.parametrize("packed", [False, True])
def test_a_whole_campaign_is_read_plain_and_packed(tmp_path, packed):
    found = sealed.read_sealed(write_folder(tmp_path, [*GOOD, seal_of(unit(0), unit(1), unit(2))], packed=packed))
    assert [one.unit for one in found.units] == [0, 1, 2]
    assert [one.unit for one in found.counted] == [1, 2]
    assert found.decision.units == 2 and found.ended is None and found.plan.kind == "rounds"
    assert found.name == tmp_path.name


REFUSED = {
    "stands twice": ([unit(0), seal_of(unit(0)), unit(0)], "line 3: a row after the seal"),
    "two writers": ([unit(0), unit(0), unit(1), seal_of(unit(0))], "line 2: unit 0 appears twice"),
    "gap": ([unit(0), unit(2)], "line 2: unit 2 found where unit 1 belongs"),
    "number": ([unit("0")], "line 1: unit '0' found where unit 0 belongs"),
    "second seal": ([unit(0), seal_of(unit(0)), seal_of(unit(0))], "line 3: a row after the seal"),
    "second decision": ([unit(0), {"decision": DECISION}, {"decision": DECISION}], "line 3: a second decision"),
    "after the end": ([unit(0), {"ended": "no time"}, unit(1)], "line 3: a unit after the end"),
    "other units": ([unit(0), unit(1), seal_of(unit(0))], "the seal is of other units"),
    "unknown row": ([unit(0), {"note": "hello"}], "line 2 is neither a unit nor decision, ended or seal"),
    "no object": ([unit(0), 7], "line 2 is not a record"),
    "misspelt": ([{**unit(0), "costs": 1.0}], "line 1: unknown key 'costs'"),
    "emulated": ([in_a_guest(unit(0))], "the processor of vm was emulated: nothing of its speed may be compared"),
    "no seal": (GOOD, "has no seal"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rows, message", REFUSED.values(), ids=REFUSED)
def test_rows_that_no_single_writer_leaves_are_refused_in_one_line(tmp_path, rows, message, packed):
    path = write_folder(tmp_path, rows, packed=packed)
    with pytest.raises(IntegrityError) as caught:
        sealed.read_sealed(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_an_open_journal_is_read_without_its_torn_last_line(tmp_path):
    assert sealed.read_rows(tmp_path) == sealed.Rows(units_sha256=hashlib.sha256(b"[]").hexdigest())
    (tmp_path / sealed.UNITS).write_text("".join(json.dumps(row) + "\n" for row in GOOD) + '{"unit": 3, "disc')
    rows = sealed.read_rows(tmp_path)
    assert [one.unit for one in rows.units] == [0, 1, 2]
    assert rows.decision.design == "stein" and rows.seal is None


def test_changed_files_and_other_versions_are_refused(tmp_path):
    path = write_folder(tmp_path, [*GOOD, seal_of(unit(0), unit(1), unit(2))])
    journal = tmp_path / sealed.UNITS
    text = journal.read_text()
    journal.write_text(text.replace("no wish to", "no wish at all"))
    with pytest.raises(IntegrityError, match=r"units\.jsonl is not what was sealed"):
        sealed.read_sealed(path)
    journal.unlink()
    with pytest.raises(IntegrityError, match="sha256 missing"):
        sealed.read_sealed(path)
    journal.write_text(text)
    summary = json.loads(path.read_text())
    write_json(path, {**summary, "schema": 1})
    with pytest.raises(IntegrityError, match="has schema 1, this version reads 2: run it again"):
        sealed.read_sealed(path)


def test_a_packed_journal_that_is_cut_short_is_refused(tmp_path):
    path = write_folder(tmp_path, GOOD, packed=True)
    packed = tmp_path / sealed.PACKED_UNITS
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(IntegrityError, match="cut short or damaged"):
        sealed.read_sealed(path)


def test_a_campaign_of_environments_that_are_gone_is_read(tmp_path):
    units = [{**unit(number), "launches": {"gvisor": unit(0)["launches"]["host"]}} for number in range(3)]
    write_folder(tmp_path, [*units, seal_of(*units)])
    path, summary = tmp_path / sealed.PLAN, json.loads((tmp_path / layout.SEALED).read_text())
    launches = [*PLAN["launches"][:2], {"environment": "gvisor"}]
    write_json(path, json.loads(path.read_text()) | {"launches": launches})
    write_json(tmp_path / layout.SEALED, summary | {"plan_sha256": sha256_file(path)})
    found = sealed.read_sealed(tmp_path / layout.SEALED)
    assert len(found.units) == 3 and env_title(found.plan.launch_names[-1]) == "Gvisor"
