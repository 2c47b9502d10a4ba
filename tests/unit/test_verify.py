"""`tare verify` on the command line: what it prints, how it ends, what it makes of bad input."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import frauds
import honest_study
import pytest
from hostile import SECONDS, attack, bent
from hypothesis import strategies
from project import ROOT

from tare.archive import checks
from tare.archive.checks import CHECKS
from tare.archive.checks.tables import OWN, of_environment
from tare.cli.main import main
from tare.core.files import write_text
from tare.model.tables import write as write_table

LIGHT = [
    check.name for check in CHECKS if check.name not in ("tables", "costs", "claims", "figures", "pages", "code")
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return honest_study.built(tmp_path_factory.mktemp("honest"))


@pytest.fixture
def copy(study, tmp_path):
    return honest_study.copied(study, tmp_path)


def test_a_folder_that_holds_has_a_line_for_each_check_and_status_0(study, capsys):
    assert main(["verify", str(study), "--only", *LIGHT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.strip().startswith("passed")] == LIGHT
    assert lines[-1].endswith(f"{len(LIGHT)} checks: {len(LIGHT)} passed")


def test_an_archive_is_checked_as_its_folder_is(study, tmp_path, capsys):
    archive = study.parent / f"{honest_study.NAME}.zip"
    assert main(["verify", str(archive), "--only", *LIGHT]) == 0
    assert "members (members: 7" in capsys.readouterr().out
    cut = tmp_path / "cut.zip"
    cut.write_bytes(archive.read_bytes()[:-1000])
    assert main(["verify", str(cut)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tare: {cut}") and said.count("\n") == 1


def test_a_member_that_is_not_listed_fails_by_name_and_the_rest_is_checked(study, tmp_path, capsys):
    path = shutil.copy(study.parent / f"{honest_study.NAME}.zip", tmp_path / "a.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("results/small/report/more.html", "no cost")
    assert main(["verify", str(path), "--only", *LIGHT]) == 1
    said = capsys.readouterr().out
    assert "results/small/report/more.html: is not among the members" in said
    assert f"{len(LIGHT)} checks: {len(LIGHT) - 1} passed, 1 failed" in said


FORGED = "\n    passed      tables (tables: 9)\x1b[2J\x9b"


def test_what_a_record_says_forges_no_line_and_controls_no_terminal(copy, capsys):
    forger = frauds.Study(copy, lambda root: None, lambda root: None)

    def change(rows):
        unit = frauds.study_unit(rows, 2)
        for launch in frauds.made_in(unit).values():
            launch["inside"]["facts"]["kernel"] = FORGED

    forger.edit(change)
    forger.rehash()
    assert main(["verify", str(copy), "--only", "machine"]) == 1
    said = capsys.readouterr().out
    assert "passed      tables" in said, "the finding has it"
    assert not any(line.strip().startswith("passed") for line in said.splitlines())
    assert "\x1b" not in said and "\x9b" not in said


def test_the_word_of_the_orders_is_printed_for_whoever_gave_it(tmp_path, capsys):
    root = honest_study.built(tmp_path, word="pulse 2917")
    assert main(["verify", str(root), "--only", "words"]) == 0
    assert "the word 'pulse 2917' decides the orders" in capsys.readouterr().out


def test_as_json_it_is_one_object_with_places(copy, capsys):
    (journal,) = copy.glob("results/campaigns/*/*/*/sweep/units.jsonl")
    write_text(journal, journal.read_text().replace('"unit":1', '"unit":7', 1))
    assert main(["verify", str(copy), "--json", "--only", "seals", "orders"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["status"]) == (1, 1)
    seals, orders = found["checks"]
    assert seals["status"] == "failed" and seals["wrong"][0]["where"].endswith("mnist_cnn/sweep")
    assert orders["status"] == "not checked" and orders["not_checked"][0]["what"]


def test_one_part_that_can_not_be_read_keeps_none_from_the_rest(copy, capsys):
    (plan,) = copy.glob("results/campaigns/*/*/*/causes.*/plan.json")
    write_text(plan, "{")
    assert main(["verify", str(copy), "--json", "--only", *LIGHT]) == 1
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert found["seals"]["status"] == "failed"
    assert found["orders"]["looked_at"]["units"] > 6 and not found["orders"]["wrong"]
    assert found["quanta"]["status"] == "passed" and found["quanta"]["looked_at"]


def test_what_is_not_there_is_not_checked_and_the_status_says_so(copy, capsys):
    (copy / "archive.json").unlink()
    shutil.rmtree(copy / "tare")
    assert main(["verify", str(copy), "--json", "--only", "members", "code"]) == 2
    members, code = json.loads(capsys.readouterr().out)["checks"]
    assert members["status"] == "passed" and members["looked_at"] == {}
    assert code["status"] == "not checked"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.zip"], "there is no such file or folder"),
        ([".", "--only", "seal"], "did you mean 'seals'"),
        ([".", "--held", "abc"], "is no SHA-256"),
        (["."], "there is nothing to verify"),
    ],
)
def test_bad_input_is_one_line_and_status_2(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["verify", *words]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1 and said.startswith("tare: ")


def test_nothing_of_the_folder_is_run(copy, capsys):
    """Its sources are read, never imported: whoever checks an archive does not trust it."""
    for path in (copy / "tare/__init__.py", copy / "envs/host.py", copy / "workloads/mnist_cnn.py"):
        path.unlink()
        path.write_text("raise SystemExit('run')\n")
    main(["verify", str(copy), "--json", "--only", "code", "installed", "study", "tables"])
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert found["code"]["status"] == "failed" and found["tables"]["looked_at"]


def test_a_hash_that_was_left_elsewhere_may_be_that_of_a_row_of_the_ledger(study, capsys):
    (ledger,) = study.glob("results/campaigns/*/*/ledger.jsonl")
    last = json.loads(ledger.read_text().splitlines()[-1])["sha256"]
    assert main(["verify", str(study), "--held", last.upper(), "--only", "held"]) == 0
    assert main(["verify", str(study), "--held", "0" * 64, "--only", "held"]) == 1
    assert "is the hash of no row" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["[]", '{"@graph": [1, {"@id": [], "@type": "File"}]}', "[" * 5000, "\\x00"])
def test_hostile_content_breaks_no_check_and_is_told(content, copy, capsys):
    for name in ("ro-crate-metadata.json", "results/small/tables/decisions.json", "config/small.yaml"):
        write_text(copy / name, content)
    (page,) = copy.glob("results/campaigns/*/*/*/sweep/sealed.json")
    write_text(page, content)
    assert main(["verify", str(copy), "--json", "--only", *LIGHT]) == 1
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert found["seals"]["status"] == "failed" and found["study"]["not_checked"]
    assert found["crate"]["status"] != "passed" and found["quanta"]["status"] == "passed"


WITHOUT = "import sys; sys.modules['{}'] = None; from tare.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_without_a_package_of_one_check_the_others_are_made(study):
    code = WITHOUT.format("jinja2")
    words = [sys.executable, "-c", code, "verify", str(study), "--json", "--only", "seals", "pages"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    assert done.returncode == 2, done.stderr[-500:]
    found = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    assert found["seals"]["status"] == "passed"
    assert "jinja2" in str(found["pages"]["not_checked"])


def test_both_forms_of_one_environments_metrics_are_compared(copy):
    (measured,) = checks.Tree(copy).measured
    own = of_environment(measured, "docker")
    folder = measured.results / "environments/docker"
    folder.mkdir(parents=True)
    for name in OWN:
        write_table(name, own[name], folder / f"{name}.csv")
    parquet = folder / "metrics.parquet"
    write_table("metrics", own["metrics"], parquet)

    def found():
        (result,) = checks.run(checks.Tree(copy), ["tables"])
        return [where for where, _ in (*result.notes.wrong, *result.notes.open) if "environments" in where]

    assert found() == []
    changed = own["metrics"].assign(value=own["metrics"]["value"] * 2)
    write_table("metrics", changed, parquet)
    assert found() and all(where.startswith(str(parquet.relative_to(copy))) for where in found())


# Files of an archive, and the checks that read them.
READ_BY = {
    "ro-crate-metadata.json": ("crate",),
    "config/small.yaml": ("study", "stamps"),
    "results/campaigns/*/*/ledger.jsonl": ("ledger-chain", "ledger-folders", "ledger-rows", "stamps", "words"),
    "results/campaigns/*/*/stamps/*.json": ("stamps",),
    "results/campaigns/*/*/*/sweep/plan.json": ("seals", "orders", "units", "seeds", "words"),
    "results/campaigns/*/*/*/sweep/units.jsonl": ("seals", "summaries", "instants", "marks", "slices", "copies"),
    "results/campaigns/*/*/*/sweep/sealed.json": ("seals", "summaries"),
    "results/images/*/*.json": ("images",),
}


@pytest.mark.timeout(900 + SECONDS)
def test_files_of_an_archive_under_attack_break_no_check(copy):
    paths = {next(iter(sorted(copy.glob(pattern)))): names for pattern, names in READ_BY.items()}

    def look(sample):
        path, content = sample
        before = path.read_bytes()
        path.write_bytes(content)
        try:
            for result in checks.run(checks.Tree(copy), paths[path]):
                broken = [what for _, what in result.notes.open if "broke the check" in what]
                assert not broken, f"{path.name}, {result.check.name}: {broken}"
        finally:
            path.write_bytes(before)

    def changed(sample):
        return strategies.tuples(strategies.just(sample[0]), bent(sample[1]))

    attack("files of an archive", [(path, path.read_bytes()) for path in paths], changed, look)


def test_every_check_says_what_it_proves():
    for check in CHECKS:
        assert check.proves[0].isupper() and check.proves.endswith(".") and len(check.proves.split()) > 5
    assert len({check.name for check in CHECKS}) == len(CHECKS)
