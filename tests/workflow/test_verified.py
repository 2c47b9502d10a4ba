"""Studies that ran to their reports hold when they are verified; frauds in what was really measured are found."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import canaries
import frauds
import pytest
from project import ROOT

from tare.archive import checks
from tare.archive.checks import CHECKS, Status, Tree

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(1800)]
WHOLE = [one for one in frauds.CATALOGUE if one.whole]
OF_REAL = [
    *("drop_unit", "drop_unit_and_renumber", "swap_units", "repeat_unit", "edit_unit", "scale_units", "void_unit"),
    *("hide_failure", "reorder_slices", "overlap_units", "turn_clock_back", "lower_processor_time", "swap_image"),
]
OF_TABLES = ("tables", "costs", "claims", "figures", "pages")


def found(root, *names):
    """What the checks find, by name; of all but those that draw where none is named."""
    chosen = names or [check.name for check in CHECKS if check.name != "figures"]
    return {one.check.name: one for one in checks.run(Tree(root), chosen)}


def told(results):
    return {name: (one.notes.wrong, one.notes.open) for name, one in results.items() if one.status != Status.PASSED}


def copied(study, tmp_path, *left_out):
    ignored = shutil.ignore_patterns(".snakemake", ".lock", "__pycache__", *left_out)
    return shutil.copytree(study, tmp_path / "copy", ignore=ignored)


def test_the_smoke_study_holds(smoke):
    results = found(smoke)
    assert told(results) == {}
    nothing = {name for name, one in results.items() if not one.notes.looked}
    assert nothing == {"members", "crate", "stamps", "held", "machines", "words"}


@pytest.fixture(scope="module")
def packed(smoke, tmp_path_factory):
    """The archive of the smoke study."""
    path = tmp_path_factory.mktemp("packed") / "smoke.zip"
    words = [sys.executable, "-m", "tare", "archive", "config/smoke.yaml", "--out", str(path)]
    subprocess.run(words, cwd=smoke, env={**os.environ, "PYTHONPATH": str(smoke)}, check=True, capture_output=True)
    return path


# What measures, and what a machine that only verifies does not have.
ABSENT = ("torch", "torchvision", "tensorflow", "snakemake", "spython", "docker")
VERIFY = """
import sys
class Absent:
    names = sys.argv.pop(1).split(",")
    def find_spec(self, name, *_):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from tare.cli.main import main
sys.exit(main(["verify", sys.argv[1], "--json"]))
"""


def test_an_archive_holds_on_a_machine_without_network_framework_and_runtime(packed, tmp_path):
    alone = ["unshare", "--net", *(() if os.getuid() == 0 else ("--user", "--map-root-user"))]
    own = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TARE_CACHE": str(tmp_path / "cache")}
    words = [*alone, sys.executable, "-c", VERIFY, ",".join(ABSENT), str(packed)]
    env = {**own, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode in (0, 2), done.stdout[-2000:] + done.stderr[-2000:]
    checked = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    assert set(checked) == {check.name for check in CHECKS}
    assert all(
        one["looked_at"] for name, one in checked.items() if name not in ("stamps", "held", "machines", "words")
    )
    left = [one["what"] for each in checked.values() for one in each["not_checked"]]
    assert left == []


def test_an_archive_is_small(packed):
    assert packed.stat().st_size < 50e6


def test_secrets_of_the_user_are_in_no_record_log_page_or_archive(smoke, packed, tmp_path):
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert (tmp_path / "unpacked/results/smoke/report/index.html").exists()
    places = [smoke / "results", smoke / ".snakemake", tmp_path / "unpacked"]
    assert canaries.found_in([smoke.parent / "home"]), "they would be found"
    assert canaries.found_in(places) == []
    assert canaries.MARK not in (smoke / "progress.txt").read_text()


def test_pictures_are_drawn_again_and_those_that_were_edited_are_found(smoke, tmp_path):
    """In a checkout, a file that no study has is named and is no fault."""
    assert told(found(smoke, "figures")) == {}
    root = copied(smoke, tmp_path, "reference-tables")
    study = frauds.Study(root, lambda root: None, lambda root: None)
    before = {path: path.read_bytes() for path in study.results.rglob("*") if path.is_file()}
    for fraud in WHOLE:
        fraud.plant(study)
    after = {path: path.read_bytes() for path in study.results.rglob("*") if path.is_file()}
    names = {path: path.relative_to(root).as_posix() for path in after}
    edited = {names[path] for path in before if after[path] != before[path]}
    added = {names[path] for path in set(after) - set(before)}
    results = found(root, "figures", "pages")
    assert edited <= {where for where, _ in results["figures"].notes.wrong} and results["pages"].notes.wrong
    assert added == {where for one in results.values() for where, _ in one.notes.open}
    assert len(edited) + len(added) == len(WHOLE)


@pytest.mark.parametrize("name", OF_REAL)
def test_frauds_in_units_that_were_really_measured_are_found(name, smoke, tmp_path):
    root = copied(smoke, tmp_path, "notebooks", "reference", "docs", "tests")
    fraud = next(one for one in frauds.CATALOGUE if one.plant.__name__ == name and one.level == frauds.ALL)
    study = frauds.Study(root, lambda root: None, lambda root: None)
    fraud.plant(study)
    study.rehash()
    results = found(root, *(check.name for check in CHECKS if check.name not in OF_TABLES))
    assert results[fraud.caught].status == Status.FAILED


def by_its_own_version(study):
    """What the Tare of a checkout finds, which alone has the environments and workloads that were added there."""
    done = subprocess.run(
        [sys.executable, "-m", "tare", "verify", "."],
        cwd=study,
        env={**os.environ, "PYTHONPATH": str(study)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_study_as_the_documentation_writes_it_holds(written):
    status, said = by_its_own_version(written)
    assert status == 0, said


def test_a_study_with_arms_and_another_stack_holds(varied):
    status, said = by_its_own_version(varied)
    assert status == 0, said


def test_a_study_of_which_one_environment_was_measured_again_holds(extended):
    """Its campaigns alone came later: the table of the ledger knows nothing of them."""
    status, said = by_its_own_version(extended)
    assert status == 0, said
