"""A study that several machines measured: rows of each, equal ones together, and their page."""

import json
import math
from types import SimpleNamespace

import pytest
import yaml
from pages import decision
from project import ROOT

from tare.analysis import machines
from tare.archive import checks
from tare.cli.main import main
from tare.machine import facts
from tare.model import tables
from tare.model.records.machine import MachineRecord
from tare.model.studies import layout
from tare.report import machine, side_by_side

KINDS = {"thin-1": "thin", "thin-2": "thin", "thin-3": "thin", "fat": "fat"}
HOSTS = {name: f"node-{name}" for name in KINDS}
ROUNDS, STEPS = "rounds.docker+host", "steps.docker+host"


def run(low, high, **fields):
    """What Docker costs whole runs."""
    verdict = "different" if not low <= 1 <= high else "equivalent"
    ends = {"ratio": math.sqrt(low * high), "ci_low": low, "ci_high": high}
    return decision(**{**ends, "campaign": ROUNDS, "n_units": 10, "verdict": verdict, **fields})


def of_all(**changed):
    own = {"thin-1": run(1.02, 1.04), "thin-2": run(1.03, 1.05), "thin-3": run(1.02, 1.05), "fat": run(0.99, 1.01)}
    return {name: [one] if one is not None else [] for name, one in (own | changed).items()}


def rows(found, kinds=KINDS, hosts=HOSTS):
    return machines.compared(found, kinds, hosts, 0.95)


def together(found, **words):
    return [row for row in rows(found, **words) if row["scope"] == machines.TOGETHER]


def test_each_machine_has_the_row_of_its_own_results_and_equal_ones_have_one_together():
    found = rows(of_all())
    alone = {row["machine"]: row for row in found if row["scope"] == machines.ALONE}
    assert list(alone) == list(KINDS) and {row["machine_kind"] for row in alone.values()} == {"thin", "fat"}
    assert (alone["thin-2"]["ci_low"], alone["thin-2"]["ci_high"]) == (1.03, 1.05)
    assert alone["fat"]["verdict"] == "equivalent" and alone["fat"]["control_ci_low"] == 0.988
    (whole,) = together(of_all())
    assert (whole["machine_kind"], whole["n"], whole["verdict"]) == ("thin", 3, "different within margin")
    assert 1.02 < whole["ci_low"] < whole["ratio"] < whole["ci_high"] < 1.06
    assert whole["further_low"] < whole["ci_low"] and whole["further_high"] > whole["ci_high"]
    assert whole["between_low"] == 0 and whole["between_high"] > 0.01


def test_the_error_of_a_machine_is_that_of_its_interval():
    """Half an interval at level 1 - alpha of ten units is t with nine degrees of freedom times the error."""
    one = run(1.0, 1.02, alpha=0.05)
    mean, error = machines._effect(one)
    assert mean == pytest.approx(math.log(1.02) / 2)
    assert error == pytest.approx(math.log(1.02) / 2 / 2.262157, rel=1e-5)
    stricter = machines._effect(run(1.0, 1.02, alpha=0.005))
    assert stricter[1] < error, "the same interval at a higher level is of a smaller error"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"thin-2": None}, "1 of 3 machines have no interval"),
        ({"thin-2": run(1.0, 1.1, ci_low=None), "thin-3": None}, "2 of 3 machines have no interval"),
    ],
)
def test_where_a_machine_tells_nothing_equal_ones_tell_nothing_together(changed, why):
    (whole,) = together(of_all(**changed))
    assert whole["kind"] == "unavailable" and whole["reason"] == why and "ratio" not in whole


def test_a_machine_that_did_not_compare_it_says_so():
    (lacking,) = [row for row in rows(of_all(fat=None)) if row.get("machine") == "fat"]
    assert lacking["kind"] == "unavailable" and lacking["reason"] == "it was not compared on this machine"


def test_two_names_of_one_machine_are_no_sample():
    (whole,) = together(of_all(), hosts={**HOSTS, "thin-3": "node-thin-1"})
    assert whole["kind"] == "unavailable" and "several of its machines are one, node-thin-1" in whole["reason"]
    (known,) = together(of_all(), hosts=dict.fromkeys(KINDS))
    assert known["kind"] == "measured", "host names of older records are not known"


def test_stalls_that_leave_one_machine_open_leave_all_open():
    equal = {name: run(0.99, 1.01) for name in KINDS}
    assert [row["verdict"] for row in together(of_all(**equal))] == ["equivalent"]
    equal["thin-2"] = run(0.99, 1.01, verdict=machines.APART_FROM_STALLS)
    assert [row["verdict"] for row in together(of_all(**equal))] == [machines.APART_FROM_STALLS]


def test_what_is_not_of_the_headline_is_left_out():
    other = [run(1.1, 1.2, role="exploratory"), run(1.1, 1.2, metric="cpu_s")]
    assert rows({name: other for name in KINDS}) == []


def table_of(found):
    return tables.make("machines", [{"study": "two", **row} for row in rows(found)])


def test_the_table_takes_the_rows_and_refuses_a_machine_without_a_name():
    table = table_of(of_all(fat=None))
    assert len(table) == 5 and table["alpha"].notna().sum() == 4
    broken = [{"study": "two", **row} for row in rows(of_all())]
    broken[0]["machine"] = None
    with pytest.raises(Exception, match="without its name"):
        tables.make("machines", broken)


def records(**changed):
    plain = {"cpu_model": "A CPU", "cpu_logical": 8, "kernel": "6.1", "memory_bytes": 64 << 30}
    return {
        name: MachineRecord(**{"name": name, "host_name": HOSTS[name], **plain, **changed.get(name, {})})
        for name in KINDS
    }


def test_equal_machines_that_are_not_equal_are_told_by_what_differs():
    assert side_by_side.warnings(records(), KINDS) == []
    nearly = {"thin-1": {"memory_bytes": (64 << 30) - (100 << 20)}, "fat": {"kernel": "5.10", "cpu_model": "Other"}}
    assert side_by_side.warnings(records(**nearly), KINDS) == [], "a hair of memory, and another kind"
    (told,) = side_by_side.warnings(records(**{"thin-2": {"kernel": "6.5", "memory_bytes": 32 << 30}}), KINDS)
    assert told.startswith("Machines of thin should be equal, but differ in: Memory and Kernel.")
    (same,) = side_by_side.warnings(records(fat={"host_name": "node-thin-1"}), KINDS)
    assert "thin-1 and fat are the same machine, node-thin-1" in same


def test_limits_of_machines_are_shown_and_unequal_ones_told():
    limited = {"thin-1": {"limits": {"memory": "1000 bytes"}}, "thin-2": {"limits": {}}}
    (told,) = side_by_side.warnings(records(**limited), KINDS)
    assert "differ in: Limits that were set for its processes." in told
    (row,) = [row for row in side_by_side.facts(records(**limited)).rows if str(row[0]).startswith("Limits")]
    assert {"memory: 1000 bytes", "none"} < set(row)


A100 = {"name": "A100", "uuid": "1", "memory_mib": "40960", "driver": "550", "power_limit_w": "400.00"}


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (({**A100, "uuid": "2", "pci": "0"},) * 4, False),
        (({**A100, "name": "H100"},) * 4, True),
        (({**A100, "memory_mib": "81920"},) * 4, True),
        (({**A100, "driver": "535"},) * 4, True),
        ((A100, A100, A100, {**A100, "power_limit_w": "300.00"}), True),
        ((A100,) * 3, True),
        (None, True),
    ],
)
def test_machines_of_one_kind_have_the_same_gpus(other, differs):
    """A partition may have several kinds whose nodes say `gpu:4` all the same."""
    found = {name: {"gpus": (A100,) * 4} for name in ("thin-1", "thin-2", "thin-3")}
    told = side_by_side.warnings(records(**found | {"thin-2": {"gpus": other}}), KINDS)
    assert bool(told) == differs
    if differs:
        assert "should be equal, but differ in: GPUs (name, memory, driver or power limit)." in told[0]


def test_gpus_of_machines_are_shown_by_kind_with_what_should_be_alike():
    table = side_by_side.facts(
        records(**{"thin-1": {"gpus": (A100,) * 4}, "thin-2": {"gpus": ({"name": "Other"},)}})
    )
    (row,) = [row for row in table.rows if str(row[0]).startswith("GPUs")]
    assert row[:4] == ["GPUs", "4 of A100 (40960 MiB, driver 550, 400.00 W)", "Other", "none"]


def test_a_clock_that_is_off_is_told():
    (told,) = side_by_side.warnings(
        records(fat={"clock_ahead_s": -90.2}, **{"thin-1": {"clock_ahead_s": 0.4}}), KINDS
    )
    assert told.startswith("The clock of fat is 90 s behind that of the file system")


def test_the_page_has_a_column_for_each_machine_and_for_equal_ones_together():
    steps = run(0.99, 1.01, metric="step_s", campaign=STEPS)
    both = {name: [*own, steps] for name, own in of_all().items()}
    runs, of_steps = side_by_side.glances(table_of(both))
    assert runs.columns == ["thin-1", "thin-2", "thin-3", "fat", "thin, all 3"]
    docker, control = runs.rows
    assert docker[0] == "docker" and docker[2][1] == ("+3.0% to +5.0%", "different")
    assert [text for text, _ in control[2]] == ["−1.2% to +0.80%"] * 4 + ["–"]
    assert of_steps.title.endswith("training step")
    told = side_by_side.summary(table_of(both))
    assert told[0].startswith("Whole runs on 4 machines: ") and len(told) == 4
    assert told[2] == "In 1 of 2 comparisons, the verdict is the same on every machine."
    assert told[3] == "Machines of thin differ from each other in none of 2 comparisons."


def results(folder, names):
    """Decisions and records of machines, as their own rules leave them."""
    for name in names:
        own = folder / layout.ON / name
        path = own / "tables/decisions.csv"
        path.parent.mkdir(parents=True)
        tables.write("decisions", tables.make("decisions", [run(1.02, 1.04).row()]), path)
        place = layout.of_machine(own, name, layout.MACHINE_FILE)
        place.parent.mkdir(parents=True)
        records()[name].write(place)
    return folder


def study_file(folder):
    study = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    nodes = {"thin": {"partition": "thin", "nodes": 3}, "fat": {"partition": "fat"}}
    (folder / "study.yaml").write_text(yaml.safe_dump({**study, "study": "two", "machines": nodes}))
    return folder / "study.yaml"


def compare(folder, *names):
    words = ["--study", study_file(folder), "--results", folder, "--machines", *names]
    words += ["--out", folder / "tables/machines.csv", "--pages", folder / "report"]
    return main(["compare-machines", *map(str, words)])


def test_the_command_writes_table_and_page(tmp_path, capsys):
    assert compare(results(tmp_path, KINDS), *KINDS) == 0
    assert len(tables.read("machines", tmp_path / "tables/machines.csv")) == 5
    page = (tmp_path / "report/index.html").read_text()
    assert all(f'href="../on/{name}/report/index.html"' in page for name in KINDS)
    assert "thin, all 3" in page and '<meta name="study" content="two">' in page
    assert "side by side" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("there", "asked", "says"),
    [
        (["fat"], ["fat", "slim"], "the study names no slim"),
        (["fat"], ["fat", "thin-1"], "no table"),
    ],
)
def test_what_is_not_there_is_one_line(tmp_path, capsys, there, asked, says):
    assert compare(results(tmp_path, there), *asked) == 2
    told = capsys.readouterr().err
    assert says in told and "Traceback" not in told


def test_a_machine_without_its_record_is_one_line(tmp_path, capsys):
    path = layout.of_machine(results(tmp_path, ["fat"]) / "on/fat", "fat", layout.MACHINE_FILE)
    path.unlink()
    assert compare(tmp_path, "fat") == 2 and "no record" in capsys.readouterr().err
    path.write_text(json.dumps({"cpu_logical": "many"}))
    assert compare(tmp_path, "fat") not in (0, None) and "machine.json" in capsys.readouterr().err


def test_a_machine_of_several_nodes_says_which_and_in_what_they_differ():
    first = facts.record()
    alike, nothing = {"n1": first, "n2": first}, "no fact of this table"
    for nodes, told in ((alike, nothing), ({**alike, "n2": first.replace(kernel="0")}, "Kernel")):
        table = machine.machine_table(SimpleNamespace(machine=first.replace(nodes=nodes)))
        assert ["Nodes of its groups", "n1, n2"] in table.rows and table.rows[-1] == ["They differ in", told]


def test_a_page_tells_of_each_node_whose_clock_is_off():
    def clocks(record):
        rows = machine.machine_table(SimpleNamespace(machine=record)).rows
        return {name: told for name, told in rows if "of the file system" in str(told)}

    right, off = (facts.record().replace(clock_ahead_s=ahead_s) for ahead_s in (0.1, 90.0))
    assert clocks(right) == {} and clocks(off)["Clock"].startswith("90 s ahead of that of the file system")
    assert list(clocks(right.replace(nodes={"n1": right, "n2": off}))) == ["Clock of n2"]


def test_the_comparison_can_be_verified_and_an_edit_is_found(tmp_path):
    (tmp_path / "config").mkdir()
    folder = results(tmp_path / "results/two", KINDS)
    study_file(tmp_path / "config")
    for name in KINDS:
        (tmp_path / layout.study_folder("two", name)).mkdir(parents=True)
    names = sorted(KINDS)  # in the order of the study, as the workflow names them
    words = ["--study", tmp_path / "config/study.yaml", "--results", folder, "--machines", *names]
    words += ["--out", folder / "tables/machines.csv", "--pages", folder / "report"]
    assert main(["compare-machines", *map(str, words)]) == 0

    def wrong(name):
        (found,) = checks.run(checks.Tree(tmp_path), [name])
        assert found.notes.looked
        return [where for where, _ in found.notes.wrong]

    assert wrong("machines") == wrong("pages") == []
    table, page = folder / "tables/machines.csv", folder / "report/index.html"
    page.write_text(page.read_text().replace("thin, all 3", "thin, all 4", 1))
    assert wrong("pages") and not wrong("machines")
    table.write_text(table.read_text().replace("different within margin", "equivalent", 1))
    assert wrong("machines") == ["results/two/tables/machines.csv"]
    table.unlink()
    assert wrong("pages") == ["results/two/report/index.html"], "no table gives it"
    (folder / "tables/verdicts.csv").write_text("docker,equivalent")
    (folder / "report/more").mkdir()
    (folder / "report/more/a.html").write_text("no cost")
    assert "results/two/report/more/a.html" in wrong("pages")
    (found,) = checks.run(checks.Tree(tmp_path), ["machines"])
    places = [where for where, _ in found.notes.open]
    assert places == ["results/two/tables/verdicts.csv", "results/two/tables/machines.csv"]
    (folder / "figures").mkdir()
    (folder / "figures/a.svg").write_text("no cost")
    (found,) = checks.run(checks.Tree(tmp_path), ["pages"])
    assert "results/two/figures" in [where for where, _ in found.notes.open]
