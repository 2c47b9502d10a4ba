"""What an image costs: records to the table, the table to the page's, each with what is missing."""

import os
import random
import statistics

import builders
import image_cost_builders
import pytest
from campaign_builders import MACHINE, rounds_campaign, write_campaign

from tare.analysis import image_costs
from tare.cli.main import main
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import read_json, write_json
from tare.core.manifest import allocated_bytes
from tare.images import storage
from tare.model import tables
from tare.model.environment import Prepared
from tare.model.registry import environment
from tare.report import evidence
from tare.report import images as page
from tare.report.words.layout import Cell, ends
from tare.report.words.wording import without_time
from tare.stats.intervals import t_interval

STACK = image_cost_builders.STACK
NAMES = ("host", "docker", "apptainer", "charliecloud")
GONE = {"podman": "podman is not installed"}


def read_back(folder, record):
    """Starts as they are read from their sealed campaign."""
    return image_costs.read_starts(image_cost_builders.write_starts(folder / "starts", record))


def table_of(folder, names=NAMES, gone=GONE, starts="some", **starting):
    image_cost_builders.image_records(folder, names, gone)
    found = read_back(folder, image_cost_builders.starts_record(names, gone, **starting)) if starts else None
    return image_costs.build("nyu2022", MACHINE, [image_costs.read_forms(folder, STACK, [*names, *gone])], found)


def starts_of(table):
    """Rows of the page's table of starts by environment and page cache, and its note."""
    found = page.Case(table, STACK, 0.05).starts()
    return {(row[0], row[1]): dict(zip(found.columns[2:], row[2:], strict=False)) for row in found.rows}, found.note


def test_stages_add_up_and_nothing_is_counted_twice(tmp_path):
    table = table_of(tmp_path)
    assert image_costs.cost(table, STACK, "host", "ready_s") == 20.0  # fetch and tree; its parts are in the tree
    assert image_costs.cost(table, STACK, "docker", "ready_s") == 40.0
    assert image_costs.cost(table, STACK, "apptainer", "convert_s") == 18.0
    assert image_costs.cost(table, STACK, "host", "convert_s") is None
    assert image_costs.cost(table, STACK, "docker", "convert_bytes_per_s") == image_cost_builders.IMAGE_BYTES / 10.0


def test_bytes_are_those_of_the_disk_beyond_the_tree_and_those_to_carry(tmp_path):
    table = table_of(tmp_path)
    assert image_costs.cost(table, STACK, "host", "added_bytes") == 0
    assert image_costs.cost(table, STACK, "host", "archive_bytes") == 244_000_000
    assert image_costs.cost(table, STACK, "apptainer", "archive_bytes") == 250_000_000
    assert image_costs.cost(table, STACK, "docker", "archive_bytes") == image_cost_builders.IMAGE_BYTES
    assert image_costs.cost(table, STACK, "docker", "said_bytes") == 850_000_000
    assert image_costs.cost(table, STACK, "charliecloud", "said_bytes") is None
    sources = table[table["item"] == "archive_bytes"].set_index("launch")["source"]
    assert "not compressed" in sources["docker"] and "zstd" in sources["apptainer"]


def test_what_is_missing_says_why(tmp_path):
    table = table_of(tmp_path, starts=None)
    assert image_costs.why_not(table, STACK, "podman", "disk_bytes") == GONE["podman"]
    assert "study's own stack" in image_costs.why_not(table, STACK, "docker", "warm_start_s")
    path = tmp_path / STACK / "docker.json"
    write_json(path, {**read_json(path), "storage": None})
    again = image_costs.build("nyu2022", MACHINE, [image_costs.read_forms(tmp_path, STACK, NAMES)], None)
    assert "does not count them" in image_costs.why_not(again, STACK, "docker", "disk_bytes")
    with pytest.raises(UserError, match=r"no .*another/host.json and no .*another/docker.json"):
        image_costs.read_forms(tmp_path, "another", NAMES)


def test_a_daemon_that_had_the_image_has_no_seconds_of_conversion(tmp_path):
    image_cost_builders.image_records(tmp_path, NAMES, {})
    path = tmp_path / STACK / "docker.json"
    record = read_json(path)
    record["seconds"].pop("load")
    write_json(path, {**record, "seconds": {**record["seconds"], "prepare": 0.1}})
    table = image_costs.build("nyu2022", MACHINE, [image_costs.read_forms(tmp_path, STACK, NAMES)], None)
    assert image_costs.cost(table, STACK, "docker", "convert_s") is None
    assert "had the image already" in image_costs.why_not(table, STACK, "docker", "convert_s")
    assert image_costs.cost(table, STACK, "docker", "ready_s") is None


def test_warm_starts_are_those_of_whole_runs_where_these_begin_warm(tmp_path):
    """Six whole runs of each, beside three cold starts: nothing is paired by the number of a repetition."""
    record = image_cost_builders.starts_record(NAMES, {})
    for unit in record["units"]:
        unit["launches"] = {env: {"cold": pair["cold"]} for env, pair in unit["launches"].items()}
    image_cost_builders.image_records(tmp_path, NAMES, {})
    forms = [image_costs.read_forms(tmp_path, STACK, NAMES)]
    name = f"rounds.{'+'.join(sorted(NAMES))}"
    plan, units = rounds_campaign("nyu2022", "mnist_cnn", NAMES, {}, 6, random.Random(3))
    write_campaign(tmp_path / name, plan, units)
    runs = image_costs.read_runs(tmp_path / name / "sealed.json")
    cold = read_back(tmp_path, record)
    table = image_costs.build("nyu2022", MACHINE, forms, cold, runs)
    for env in NAMES:
        starts = {phase: image_costs.repeated(table, STACK, env, f"{phase}_start_s") for phase in ("cold", "warm")}
        assert [len(values) for values in starts.values()] == [3, 6]
        launches = [unit["launches"][env] for unit in units if not unit["discarded"]]
        took = [
            next(mark["at_ns"] for mark in one["inside"]["marks"] if mark["name"] == "imports") - one["spawn_ns"]
            for one in launches
        ]
        assert sorted(starts["warm"].values()) == pytest.approx(sorted(ns / 1e9 for ns in took))
    warm = table[table["item"].str.startswith("warm_")]
    assert set(warm["campaign"]) == {name} and not warm["item"].str.endswith("_bytes").any()
    rows, note = starts_of(table)
    assert "as whole runs begin" in note
    cold, warm = (image_costs.repeated(table, STACK, "docker", f"{phase}_start_s") for phase in ("cold", "warm"))
    more = [value - statistics.median(warm.values()) for value in cold.values()]
    found = t_interval(more, 0.05)
    assert rows["Docker", "cold"]["minus the warm start"] == ends(found.low, found.high)
    own = read_back(tmp_path, image_cost_builders.starts_record(NAMES, {}))
    assert image_costs.build("nyu2022", MACHINE, forms, own, runs).equals(
        image_costs.build("nyu2022", MACHINE, forms, own)
    )
    write_campaign(tmp_path / "cold", {**plan, "conditions": {**plan["conditions"], "page_cache": "cold"}}, units)
    with pytest.raises(IntegrityError, match="no campaign of whole runs from a warm page cache"):
        image_costs.read_runs(tmp_path / "cold/sealed.json")


def test_two_stacks_stand_in_one_table(tmp_path):
    image_cost_builders.image_records(tmp_path, NAMES, {})
    image_cost_builders.image_records(tmp_path, [], dict.fromkeys(NAMES, "no CPython 3.7 here"), stack="older")
    forms = [image_costs.read_forms(tmp_path, stack, NAMES) for stack in (STACK, "older")]
    table = image_costs.build(
        "nyu2022", MACHINE, forms, read_back(tmp_path, image_cost_builders.starts_record(NAMES, {}))
    )
    assert image_costs.stacks_of(table) == [STACK, "older"]
    assert image_costs.why_not(table, "older", "host", "disk_bytes") == "no CPython 3.7 here"
    assert image_costs.cost(table, STACK, "docker", "warm_start_s") > 0
    assert image_costs.cost(table, "older", "docker", "warm_start_s") is None


def test_a_cost_without_kind_or_reason_is_refused(tmp_path):
    table = table_of(tmp_path)
    table.loc[0, "value"] = None
    with pytest.raises(IntegrityError):
        tables.write("image_costs", table, tmp_path / "image_costs.csv")


def test_a_failed_start_is_a_row_with_its_reason(tmp_path):
    image_cost_builders.image_records(tmp_path, NAMES, {})
    record = image_cost_builders.starts_record(NAMES, {})
    for unit in record["units"]:
        failed = {"status": "failed", "reason": "no such image", "inside": None}
        unit["launches"]["docker"] = {"cold": failed, "warm": failed}
    table = image_costs.build(
        "nyu2022", MACHINE, [image_costs.read_forms(tmp_path, STACK, NAMES)], read_back(tmp_path, record)
    )
    assert image_costs.why_not(table, STACK, "docker", "cold_start_s") == "failed: no such image"
    rows, _ = starts_of(table)
    assert "no such image" in rows["Docker", "cold"]["start, median"].text
    assert rows["Charliecloud", "cold"]["start, median"].below.endswith("n = 3")


def test_a_start_that_was_stopped_beside_others_is_told(tmp_path):
    image_cost_builders.image_records(tmp_path, NAMES, {})
    record = image_cost_builders.starts_record(NAMES, {})
    last = record["units"][-1]["launches"]["docker"]
    last["cold"] = {"status": "timeout", "reason": "it was killed after 180 s", "inside": None}
    last["warm"] = {"status": "skipped", "reason": "not tried again", "inside": None}
    forms = [image_costs.read_forms(tmp_path, STACK, NAMES)]
    table = image_costs.build("nyu2022", MACHINE, forms, read_back(tmp_path, record))
    assert image_costs.failed(table, STACK, "docker", "warm_start_s") == []
    _, note = starts_of(table)
    assert note.endswith(without_time("Cold starts", ["Docker 1 of 3 (timeout: it was killed after 180 s)"]))


def test_cold_starts_that_can_not_be_are_said_and_not_shown(tmp_path):
    table = table_of(tmp_path, obstacle="only root may (`sync`)")
    assert image_costs.why_not(table, STACK, "docker", "cold_start_s") == "only root may (`sync`)"
    rows, _ = starts_of(table)
    assert rows["Docker", "cold"] == {"start, median": Cell(text="unavailable: only root may (`sync`)", span=8)}
    assert rows["Docker", "warm"]["minus the warm start"] is None
    assert not (table["item"] == "as_found_start_s").any()


@pytest.mark.parametrize("repetitions", [1, 3])
def test_intervals_need_three_repetitions(tmp_path, repetitions):
    table = table_of(tmp_path, repetitions=repetitions)
    rows, _ = starts_of(table)
    cold, warm = (image_costs.repeated(table, STACK, "docker", f"{phase}_start_s") for phase in ("cold", "warm"))
    more = [cold[rep] - warm[rep] for rep in cold]
    found = t_interval(more, 0.05)
    wanted = (found.low, found.high) if repetitions == 3 else (more[0], more[0])
    assert rows["Docker", "cold"]["minus the warm start"] == ends(*wanted)
    assert rows["Host", "cold"]["relative to the host"] is None
    assert rows["Host again", "cold"]["relative to the host"] is not None


def test_the_page_shows_what_the_table_holds(tmp_path):
    root = builders.build_results(tmp_path / "results")
    found = evidence.gather(root, root, builders.STUDY)
    prices, starts = page.cost_tables(found)
    rows = {row[0]: dict(zip(prices.columns, row, strict=True)) for row in prices.rows}
    assert (rows["Packages to startable, in all"]["Host"], rows["Convert"]["Apptainer"]) == ("20.0 s", "18.0 s")
    assert [rows["Convert"][env] for env in ("Docker", "Charliecloud")] == ["10.0 s", "9.00 s"]
    assert len(starts.rows) == 2 * (len(found.environments) + 1)


def test_blocks_are_counted_once_and_shared_ones_apart(tmp_path):
    tree, form = tmp_path / "tree", tmp_path / "form"
    tree.mkdir()
    form.mkdir()
    (tree / "a").write_bytes(os.urandom(8192))
    os.link(tree / "a", form / "a")
    os.link(tree / "a", form / "again")
    (form / "b").write_bytes(os.urandom(4096))
    found = storage.measure_storage([form, form], tree)
    assert found.disk_bytes == allocated_bytes(form)
    assert found.shared_bytes == 8192
    assert found.disk_bytes - found.shared_bytes == 4096 + form.lstat().st_blocks * 512
    assert storage.measure_storage([tmp_path / "gone"], tree).reason.endswith("No such file or directory")


def test_a_form_that_nobody_can_look_into_has_a_reason():
    class Closed(type(environment("host"))):
        def places(self, prepared):
            raise UnavailableError("the daemon is elsewhere")

    found = storage.storage_of(Closed(), Prepared(reference="sha256:0", bytes=1), None)
    assert found == storage.without_storage("the daemon is elsewhere")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("null", "does not say where its layers are"),
        ('{"Name": "zfs", "Data": {}}', "the storage driver zfs"),
        ("no such image", "does not say where it keeps layers"),
        (
            '{"Name": "overlay2", "Data": {"UpperDir": "/nonexistent/diff"}}',
            "/nonexistent/diff can't be looked into",
        ),
    ],
)
def test_layers_that_can_not_be_found_say_why(answer, reason):
    from envs._engine import layer_folders

    with pytest.raises(UnavailableError, match=reason):
        layer_folders(answer)


def test_layers_are_listed_lowest_first(tmp_path):
    from envs._engine import layer_folders

    for name in ("low", "middle", "top"):
        (tmp_path / name).mkdir()
    data = f'{{"LowerDir": "{tmp_path}/middle:{tmp_path}/low", "UpperDir": "{tmp_path}/top"}}'
    found = layer_folders(f'{{"Name": "overlay2", "Data": {data}}}')
    assert [path.name for path in found] == ["low", "middle", "top"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("starts/sealed.json", "{", "sealed.json is cut short"),
        ("starts/sealed.json", '{"schema": 99}', "has schema 99, this version reads 2"),
        ("starts/sealed.json", '{"schema": 2, "units": 1}', "missing; run it again"),
        (
            f"{STACK}/docker.json",
            '{"status": "ok"}',
            "docker.json has schema None, this version reads 1",
        ),
        (
            f"{STACK}/docker.json",
            '{"schema": 1, "statsu": "ok"}',
            "unknown key 'statsu': did you mean",
        ),
        (f"{STACK}/docker.json", "[]", "docker.json is no record: delete it and run"),
    ],
)
def test_a_damaged_record_is_one_line(tmp_path, capsys, name, text, says):
    image_cost_builders.image_records(tmp_path, NAMES[:2], {})
    record = image_cost_builders.write_starts(tmp_path / "starts", image_cost_builders.starts_record(NAMES[:2], {}))
    (tmp_path / name).write_text(text)
    study = '{"stacks": [], "environments": ["host", "docker"]}'
    arguments = ["image-costs", "--study", study, "--images", str(tmp_path), "--starts", str(record)]
    assert main([*arguments, "--out", str(tmp_path / "image_costs.csv")]) == 4
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and says in told and "again" in told
    assert not (tmp_path / "image_costs.csv").exists()
