"""The one way in for what people write and what machines wrote: one line for what is wrong, with its place."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field

from tare.core.errors import IntegrityError, UserError
from tare.core.files import write_json
from tare.machine import facts
from tare.model import schema
from tare.model.records.machine import read_machine


class Leaf(schema.Record):
    id: str
    size: schema.Count
    word: Annotated[str, schema.matching(r"[a-z]+", "must be letters")] = "x"


class Tree(schema.FileRecord):
    VERSION: ClassVar[int] = 3

    kind: Literal["oak", "pine"]
    leaves: Annotated[tuple[Leaf, ...], Field(min_length=1)]
    heights: Mapping[Literal["host", "docker"], float] = Field(default_factory=dict)
    names: Annotated[tuple[str, ...], schema.Distinct] = ()


GOOD = {"kind": "oak", "leaves": [{"id": "first", "size": 1}], "heights": {"host": 2}}


def test_what_is_right_comes_back_as_it_was_written():
    found = schema.parse(Tree, GOOD, "here")
    assert found.leaves[0].size == 1 and found.heights == {"host": 2.0}
    assert found.to_json() == GOOD
    assert found.replace(kind="pine").to_json() == {**GOOD, "kind": "pine"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "oka"}, "here: kind: 'oka' is not allowed: did you mean 'oak'"),
        ({"leafs": []}, "here: unknown key 'leafs': did you mean 'leaves'"),
        ({"leaves": [{"id": "a", "sise": 1}]}, "here: leaves: 0 (a): unknown key 'sise': did you mean 'size'"),
        ({"leaves": [{}]}, "here: leaves: 0: id, size missing"),
        ({"leaves": [{"id": "a", "size": 0}]}, "here: leaves: 0 (a): size: 0 must be at least 1"),
        ({"leaves": [{"id": 7, "size": 1}]}, "here: leaves: 0 (7): id: 7 must be text: put it in quotes"),
        ({"leaves": [{"id": "a", "size": "1"}]}, "size: '1' must be of type integer"),
        ({"leaves": [{"id": "a", "size": 1, "word": "A1"}]}, "word: 'A1' must be letters"),
        ({"leaves": []}, "here: leaves: [] must not be empty"),
        ({"heights": {"hots": 1}}, "here: heights: unknown key 'hots': did you mean 'host'"),
        ({"heights": {"host": float("nan")}}, "here: heights: host"),
        ({"names": ["a", "a"]}, "here: names: ['a', 'a'] holds something twice"),
        ({"names": {1, 2}}, "here: "),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place_and_the_nearest_word(change, says):
    with pytest.raises(UserError) as caught:
        schema.parse(Tree, {**GOOD, **change}, "here", UserError)
    assert str(caught.value).startswith("here: ") and says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_carries_the_version_of_its_type(tmp_path):
    path = tmp_path / "tree.json"
    schema.parse(Tree, GOOD, "here").write(path)
    assert schema.read(Tree, path).to_json() == GOOD
    write_json(path, {"schema": 2, **GOOD})
    with pytest.raises(IntegrityError, match="has schema 2, this version reads 3: delete it and run again"):
        schema.read(Tree, path)


def test_yaml_refuses_a_key_twice_wherever_it_stands(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a:\n  - {b: 1,\n     b: 2}\n")
    with pytest.raises(UserError, match=r"a\.yaml line 3 is not YAML: the key 'b' appears twice"):
        schema.read_yaml(path, "the thing")
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match="cannot read the thing"):
        schema.read_yaml(path, "the thing")


def test_the_machine_of_an_older_version_is_read_and_a_wrong_one_told_by_its_place(tmp_path):
    path = tmp_path / "machine.json"
    write_json(path, {"cpu_model": "Example", "memory_bytes": 1, "gpus": None, "reasons": {"gpus": "no driver"}})
    record = read_machine(path)
    assert record.cpu_model == "Example" and record.facts()["gpus"] is None and "disk" not in record.facts()
    write_json(path, {"memory_byte": 1})
    with pytest.raises(IntegrityError, match=r"unknown key 'memory_byte': .*'memory_bytes'.*tare machine"):
        read_machine(path)
    write_json(path, {"cpu_clock": {"hz": "fast", "source": "x"}})
    with pytest.raises(IntegrityError, match="cpu_clock: hz: 'fast' must be of type number"):
        read_machine(path)
    written = facts.record()
    written.write(path)
    assert read_machine(path) == written and written.kernel
    assert read_machine(tmp_path / "none.json") is None
