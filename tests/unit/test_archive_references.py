"""An archive has the reference campaigns that its report shows; they are checked, and their section made again."""

import gzip
import shutil

import honest_study
import pytest

from tare.archive import checks
from tare.archive.checks import Status, Tree
from tare.core.files import project_root, read_json, sha256_file, write_json
from tare.model.journals.references import opened

(PACKED,) = sorted(project_root().glob("results/reference/*.zip"))[:1]
KEPT = opened(PACKED)
OWN = f"results/reference/{KEPT.name}"
LOOKED_AT = ("members", "references", "pages")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return honest_study.built(tmp_path_factory.mktemp("study"), reference=KEPT)


@pytest.fixture
def copy(study, tmp_path):
    return honest_study.copied(study, tmp_path)


def verified(root):
    honest_study.listed(root)
    return {result.check.name: result for result in checks.run(Tree(root), LOOKED_AT)}


def change_a_step(root):
    """One time of the reference's, in its journal."""
    (path,) = (root / OWN).glob("campaigns/*/resnet18/rounds.host/units.jsonl.gz")
    text = gzip.decompress(path.read_bytes()).decode()
    at = text.index('"end_ns":') + len('"end_ns":')
    path.write_bytes(gzip.compress((text[:at] + "1" + text[at:].lstrip()).encode(), mtime=0))
    return path


def list_again(root, path):
    """The reference's own list of files, with the hash of one as it is now."""
    record = read_json(root / OWN / "reference.json")
    for file in record["files"]:
        if file["path"] == path.relative_to(root / OWN).as_posix():
            file |= {"sha256": sha256_file(path), "bytes": path.stat().st_size}
    write_json(root / OWN / "reference.json", record)


def test_an_archive_has_what_its_report_shows_of_other_machines(copy):
    names = {path.relative_to(copy / OWN) for path in (copy / OWN).rglob("*") if path.is_file()}
    assert names == {path.relative_to(KEPT) for path in KEPT.rglob("*") if path.is_file()}
    assert not (copy / "results/reference-tables").exists()
    results = verified(copy)
    told = {name: (str(one.status), one.notes.wrong, one.notes.open) for name, one in results.items()}
    assert {one.status for one in results.values()} == {Status.PASSED}, told
    looked = results["references"].notes.looked
    assert (looked["reference campaigns"], looked["launches in slices"] > 0) == (1, True)


def test_a_file_of_a_reference_that_is_edited_is_found_by_its_list(copy):
    path = change_a_step(copy)
    (finding,) = verified(copy)["references"].notes.wrong
    assert finding.where == OWN and path.relative_to(copy).as_posix() in finding.what


def test_a_seal_finds_an_edit_though_the_list_follows_it(copy):
    list_again(copy, change_a_step(copy))
    assert verified(copy)["references"].status == Status.FAILED


def test_a_number_that_a_page_shows_of_a_reference_is_found_by_the_page(copy):
    path = copy / OWN / "ceilings.json"
    write_json(path, edited(read_json(path)))
    list_again(copy, path)
    results = verified(copy)
    assert results["references"].status == Status.PASSED and results["pages"].status == Status.FAILED
    assert "#reference" in results["pages"].notes.wrong[0].where


def edited(value):
    """Numbers of a record twice as large, but for those of its form."""
    if isinstance(value, dict):
        return {key: one if key == "schema" else edited(one) for key, one in value.items()}
    if isinstance(value, list):
        return [edited(one) for one in value]
    return 2 * value if isinstance(value, float) else value


def test_an_archive_without_them_leaves_their_section_open(copy):
    shutil.rmtree(copy / "results/reference")
    results = verified(copy)
    assert results["pages"].status == Status.OPEN
    assert all("#reference" in finding.where for finding in results["pages"].notes.open)


def test_references_may_be_archives_in_an_archive_which_stay_out_of_the_cache(copy, tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    shutil.rmtree(copy / OWN)
    packed = copy / f"{OWN}.zip"
    shutil.copy(PACKED, packed)
    results = verified(copy)
    told = {name: (str(one.status), one.notes.wrong, one.notes.open) for name, one in results.items()}
    assert {one.status for one in results.values()} == {Status.PASSED}, told
    packed.write_bytes(packed.read_bytes()[:-30])
    results = verified(copy)
    (found,) = results["references"].notes.wrong
    assert found.where == f"{OWN}.zip" and "damaged" in found.what
    assert results["pages"].status != Status.PASSED
    assert not list((tmp_path / "cache/references").glob("[!.]*"))
