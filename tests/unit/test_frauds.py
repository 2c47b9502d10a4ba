"""Every fraud of the catalogue is caught by the check that it names; every check catches one that no other does."""

import hashlib
import time
from types import SimpleNamespace

import frauds
import honest_study
import pytest

from tare.analysis import tries
from tare.archive import checks
from tare.archive.checks import CHECKS, Notes, Status, Tree, pages, tables
from tare.core.files import project_root, read_json, sha256_file
from tare.model import tables as model
from tare.model.journals.ledger import read_ledger, row_of

DRAWN = ("figures",)  # of stand-ins nothing is drawn again: tests/workflow/test_verified.py does
SLOW = ("figures", "pages")


def digest(*folders):
    """Of all files of folders."""
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != ".lock":
                found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return found.hexdigest()


# What a table is made of, below the folder and below that of the study's results.
READ_BY = {
    "extracted": (("results/campaigns", "results/profiles", "config"), ()),
    "counted": (("results/campaigns", "results/images", "config"), ()),
    "judged": (("results/profiles", "results/probe", "config"), ("tables", "machines")),
}


def remembered(name):
    """What a function makes of a study, made once for equal files."""
    function, known = getattr(tables, name), {}
    shared, own = READ_BY[name]

    def found(measured):
        folders = [*(measured.root / one for one in shared), *(measured.results / one for one in own)]
        key = digest(*folders)
        if key not in known:
            try:
                known[key] = function(measured)
            except Exception as error:
                known[key] = error
        if isinstance(known[key], Exception):
            raise known[key]
        return known[key]

    return found


@pytest.fixture(scope="module", autouse=True)
def once():
    """Tables of equal records are made once."""
    with pytest.MonkeyPatch.context() as patch:
        for name in READ_BY:
            patch.setattr(tables, name, remembered(name))
        yield


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """An honest study; nothing of it may be changed by a forger's copy."""
    root = honest_study.built(tmp_path_factory.mktemp("honest"))
    before = digest(root)
    yield root
    assert digest(root) == before


def remade(root):
    """Tables made again of records as they are, by the code of `tare tables`, `image-costs` and `audit`."""
    (measured,) = Tree(root).measured
    folder = measured.results / "tables"
    try:
        made = tables.extracted(measured)
    except Exception:  # records of which no table can be made
        return
    for name, table in made.items():
        model.write(name, table, folder / f"{name}.csv")
    model.write("metrics", made["metrics"], folder / "metrics.parquet")
    model.write("decisions", made["decisions"], folder / "decisions.json")
    model.write("image_costs", tables.counted(measured), folder / "image_costs.csv")
    for name, table in tables.judged(measured).items():
        model.write(name, table, folder / f"{name}.csv")


def verified(root, *left_out, held=()):
    """Results of the checks by name, but for those that are left out."""
    names = [check.name for check in CHECKS if check.name not in left_out]
    return {result.check.name: result for result in checks.run(Tree(root, held), names)}


def failed(results):
    return {name for name, result in results.items() if result.status == Status.FAILED}


@pytest.fixture(scope="module")
def worded(tmp_path_factory):
    """An honest study before which a word from outside was given."""
    return honest_study.built(tmp_path_factory.mktemp("worded"), word="pulse 2917")


def stamp(root):
    """A stamp behind all that was done, which names the last row of the ledger."""
    from tare.model.journals.ledger import last_hash, note_stamp
    from tare.model.studies.stamps import stamp_files, stamp_of, write_stamp

    (measured,) = Tree(root).measured
    entries = read_ledger(measured.folder)
    at = "2026-01-02T03:04:05Z"
    for before in stamp_files(measured.folder):  # equal but for its time and its place in the chain
        before.rename(before.with_suffix(".kept"))
    path = write_stamp(measured.folder, stamp_of(honest_study.study(), at, last_hash(measured.folder, entries)))
    for kept in measured.folder.glob("stamps/*.kept"):
        kept.rename(kept.with_suffix(".json"))
    note_stamp(measured.folder, sha256_file(path), at)
    (measured.folder / ".lock").unlink(missing_ok=True)
    remade(root)
    honest_study.listed(root)
    return sha256_file(path)


def test_an_honest_study_passes_every_check(honest):
    results = verified(honest, *DRAWN)
    told = {
        name: (str(result.status), result.notes.wrong, result.notes.open)
        for name, result in results.items()
        if result.status != Status.PASSED
    }
    assert told == {}
    nothing = {name for name, result in results.items() if not result.notes.looked}
    assert nothing == {"held", "machines", "references", "words"}, "a check that looks at nothing proves nothing"


def test_an_honest_study_that_follows_a_word_passes_every_check(worded):
    results = verified(worded, *SLOW)
    assert {result.status for result in results.values()} == {Status.PASSED}
    assert results["words"].notes.looked["campaigns"] == 5


@pytest.fixture(scope="module")
def caught():
    """By fraud, the checks that failed."""
    return {}


PLANTED = [one for one in frauds.CATALOGUE if not one.whole]


@pytest.mark.parametrize("fraud", PLANTED, ids=[one.name for one in PLANTED])
def test_each_fraud_is_caught_by_name(fraud, honest, worded, tmp_path, caught):
    root = honest_study.copied(worded if fraud.worded else honest, tmp_path)
    before = digest(root)
    fraud.commit(frauds.Study(root, remade, honest_study.listed))
    assert digest(root) != before, "nothing was planted"
    results = verified(root, *(DRAWN if fraud.caught == "pages" else SLOW))
    caught[fraud.name] = failed(results)
    if fraud.open:
        assert results[fraud.caught].status == Status.OPEN and checks.status_of([*results.values()]) == 2
    else:
        assert fraud.caught in caught[fraud.name], caught[fraud.name]
        assert checks.status_of([*results.values()]) == 1


def test_every_check_catches_a_fraud_that_no_other_does(caught):
    if len(caught) < len(PLANTED):
        pytest.skip("it needs the whole catalogue")
    alone = {next(iter(names)) for names in caught.values() if len(names) == 1}
    lacking = {check.name for check in CHECKS} - alone - set(frauds.REDUNDANT)
    assert lacking == set(), {name: sorted(names) for name, names in caught.items()}
    assert set(frauds.REDUNDANT) <= {check.name for check in CHECKS}


def test_a_chain_that_was_made_anew_is_caught_where_a_hash_was_left_elsewhere_and_not_otherwise(honest, tmp_path):
    """A stamp from before the data is not enough: it says nothing of data, and a forger can keep it."""
    (tmp_path / "first").mkdir()
    first = honest_study.copied(honest, tmp_path / "first")
    (before,) = first.glob("results/campaigns/*/*/stamps/*.json")
    after = stamp(first)
    assert failed(verified(first, *SLOW, held=[sha256_file(before), after])) == set()
    other = honest_study.built(tmp_path / "other", seed=2)  # the same study, other data, all of it consistent
    assert failed(verified(other, *SLOW)) == set()
    assert failed(verified(other, *SLOW, held=[after])) == {"held"}
    own = stamp(other)  # and so it is where the forger makes a later stamp as well
    assert failed(verified(other, *SLOW, held=[after])) == {"held"}
    assert failed(verified(other, *SLOW, held=[own])) == set()


def test_an_order_that_was_chosen_with_times_that_fit_it_is_not_found_without_a_word(honest, tmp_path):
    """As the page says it: `words` finds the same fraud where a word was given."""
    study = frauds.Study(honest_study.copied(honest, tmp_path), remade, honest_study.listed)
    before = read_json(study.campaign("starts") / "plan.json")["order_seed"]
    frauds.choose_order_in_time(study)
    study.all_remade()
    assert read_json(study.campaign("starts") / "plan.json")["order_seed"] != before
    assert failed(verified(study.root, *SLOW)) == set()


def test_an_earlier_try_that_was_put_back_is_found_by_a_later_hash_alone(honest, tmp_path):
    study = frauds.Study(honest_study.copied(honest, tmp_path), remade, honest_study.listed)
    last = read_ledger(study.folder)[-1]
    frauds.put_back_first_try(study)
    study.all_remade()
    assert failed(verified(study.root, *SLOW)) == set()
    assert failed(verified(study.root, *SLOW, held=[row_of(last)["sha256"]])) == {"held"}


def test_pages_of_machines_that_the_study_does_not_name_are_not_passed_over(honest, tmp_path):
    """In a checkout as well, which has no list of members."""
    root = honest_study.copied(honest, tmp_path)
    (root / "archive.json").unlink()
    (root / "results/small/on/box/report").mkdir(parents=True)
    (root / "results/small/on/box/report/index.html").write_text("No container costs anything.")
    (result,) = checks.run(Tree(root), ["pages"])
    assert result.status == Status.OPEN
    assert [where for where, _ in result.notes.open] == ["results/small/on"]


TAG = "the tag tare-stamp-0a1b of 2026-01-02T03:04:05+00:00, signed"


def test_who_holds_a_stamp_is_repeated_for_whoever_can_look_there(honest, tmp_path):
    path = honest_study.copied(honest, tmp_path) / "results/small/tables/ledger.csv"
    nobody = f"held by {tables.NOBODY}"
    path.write_text((text := path.read_text()).replace(nobody, f"held by {TAG}"))
    assert nobody in text
    (result,) = checks.run(Tree(tmp_path), ["tables"])
    assert result.status == Status.PASSED
    assert [where for where, what in result.notes.remarks if TAG in what] == ["results/small/tables/ledger.csv"]


def test_who_holds_a_stamp_has_the_words_of_the_witnesses(tmp_path, monkeypatch):
    from tare.machine import witnesses

    dates = "2026-01-02T03:04:05+00:00"
    monkeypatch.setattr(witnesses, "_git", lambda root, *words: {
        "for-each-ref": f"v1\0tag\0{dates}\0{'0' * 64} BEGIN SSH SIGNATURE\0", "log": dates, "grep": "x", "tag": "",
    }[words[0]])  # fmt: skip
    stamp = tmp_path / "a.json"
    (tmp_path / "a.json.ots").touch()
    for found in (witnesses.witnesses(stamp, "0" * 64), []):
        match = tables.NOT_ASKED.search(f"as planned; {tries.listed(found)}")
        assert match is not None and match[0].startswith("; held by ")
    assert len(witnesses.witnesses(stamp, "0" * 64)) == 3
    assert tables.NOT_ASKED.search(f"; held by {TAG}, and by all reviewers") is None


def test_there_are_enough_kinds_of_frauds_and_the_page_has_them():
    kinds = {one.plant for one in frauds.CATALOGUE}
    assert len(kinds) >= 25
    page = (project_root() / "docs/frauds.md").read_text()
    assert frauds.checks_table() in page and frauds.open_table() in page
    undecided = sum(one.open for one in frauds.CATALOGUE)
    assert f"[{len(frauds.CATALOGUE)} frauds](planted-frauds.md)" in page and f" {undecided} are only" in page
    assert (project_root() / "docs/planted-frauds.md").read_text() == frauds.planted_page()
    assert {one.caught for one in frauds.CATALOGUE} <= {check.name for check in CHECKS}


def test_a_machine_that_rounds_otherwise_is_within_tolerance_and_an_edit_is_not(honest):
    made = model.read("verdicts", honest / "results/small/tables/verdicts.csv")
    rounded = made.assign(ratio=made["ratio"] * (1 + 1e-12))
    wrong, largest = tables.differences(rounded, made)
    assert wrong is None and 0 < largest < tables.ELSE
    wrong, _ = tables.differences(made.assign(ratio=made["ratio"] * 1.0001), made)
    assert wrong is not None and "ratio" in wrong
    assert tables.differences(made.iloc[::-1], made) == (None, 0.0), "which row stands first says nothing"


def differing(page, forged):
    """What is noted of a page that another one was made of."""
    notes = Notes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "drawn_otherwise", lambda tree: [])
        pages._compare_page(SimpleNamespace(root=project_root()), notes, "page", forged, page)
    return [where for where, _ in notes.wrong]


def test_pages_are_compared_section_by_section_and_without_the_time_of_writing():
    page = '<p>2026-01-02 03:04 UTC</p><section id="a"><p>1.0</p></section><section id="b"><p>2</p></section>'
    assert differing(page, page) == differing(page, page.replace("03:04", "05:06")) == []
    assert differing(page, page.replace("1.0", "1.1")) == ["page#a"]


def test_a_section_that_occurs_twice_or_at_another_place_is_found():
    """Its id is that of an honest section: what a reader sees first is checked too."""
    one, other = '<section id="a"><p>1</p></section>', '<section id="b"><p>2</p></section>'
    page, forged = f"<main>{one}{other}</main>", '<section id="a"><p>no cost</p></section>'
    assert differing(page, f"<main>{forged}{one}{other}</main>") == ["page#a"]
    assert differing(page, f"<main>{one}{one}{other}</main>") == ["page#a"]
    assert differing(page, f"<main>{other}{one}</main>") == ["page"]
    assert differing(page, f"{one}<main>{other}</main>") == ["page"]
    assert differing(page, f"<main>{one}</main>") == ["page#b"]
    assert differing(page, f"<main>{one}{other}</main><section id='a'>no cost</section>") == ["page"]


def test_sections_that_are_not_closed_take_no_time():
    began = time.monotonic()
    assert differing("<main></main>", "<main></main>" + '<section id="a">' * 300_000) == ["page"]
    assert time.monotonic() - began < 10


def test_what_stands_for_a_persons_path_holds_no_markup():
    said = "".join(text for _, text in pages._parts("<code>make report STUDY=my/own.yaml</code>"))
    assert said == "".join(text for _, text in pages._parts("<code>make report STUDY=other.yaml</code>"))
    forged = "<code>make report STUDY=x<p>no&#32;cost</p></code>"
    assert said != "".join(text for _, text in pages._parts(forged))


def test_archive_json_of_the_honest_study_lists_all(honest):
    listed = read_json(honest / "archive.json")["members"]
    assert "results/small/tables/verdicts.csv" in listed and "tare/model/closure.py" in listed
