"""Stamps: what was written down before the data, whether campaigns are as it says, and who else holds the hash."""

import hashlib
import json
import shlex
import shutil
import subprocess
from dataclasses import replace

import pytest
from ledger_builders import NAME, plan_of, run, simple_values

from tare.analysis import tries
from tare.cli import main
from tare.core.files import sha256_file
from tare.machine.witnesses import commands, message_of, witnesses
from tare.model import closure, tables
from tare.model.journals.ledger import read_ledger
from tare.model.journals.sealed import read_sealed
from tare.model.records.campaigns import Plan, Word
from tare.model.schema import read
from tare.model.studies import arms
from tare.model.studies.checks import check
from tare.model.studies.layout import SEALED
from tare.model.studies.loading import load_checked, merge
from tare.model.studies.stamps import (
    Stamp,
    departures,
    stamp_file,
    stamp_files,
    stamp_of,
    worded_seed,
    write_stamp,
)
from tare.model.studies.study import reduced


@pytest.fixture(autouse=True)
def values(monkeypatch):
    simple_values(monkeypatch)


STUDY = {
    "study": "s", "workloads": {"sentiment_rnn": None}, 
    "arms": {"rounds": ["allocator=steady"]},
    "stacks": [], "environments": ["host", "docker"],
}  # fmt: skip


@pytest.fixture
def whole():
    return load_checked(json.dumps(STUDY))


def planned(whole, kind="rounds", **changes):
    """A plan as the commands make it from the study."""
    part = reduced(whole.to_json(), kind, "mnist_cnn")
    code = closure.code_sha256(kind, "mnist_cnn", ["docker", "host"])
    said = {"kind": kind, "workload": "mnist_cnn", "stack": whole.stack, "part": {**part, "device": "cpu"}}
    return plan_of(**{**said, "code_sha256": code, **changes})


def of(stamp, plan):
    return departures(stamp, plan)


def test_a_campaign_of_the_stamped_study_and_code_is_as_the_stamp_says(whole):
    stamp = stamp_of(whole, "2026-01-02T03:04:05Z", None)
    assert of(stamp, planned(whole)) == []
    assert of(stamp, planned(whole, "causes")) == []
    arm = {"arm": "stack=same,allocator=steady", "headline_arm": "stack=same,allocator=default"}
    part = reduced(whole.to_json(), "rounds", "mnist_cnn", arms.parse("allocator=steady"))
    assert of(stamp, planned(whole, part={**part, "device": "cpu"}, **arm)) == []


def test_what_differs_is_named(whole):
    other = check(merge(whole.to_json(), {"margins": {"run": 0.2}, "rounds": {"pilot": 9}}))
    stamp = stamp_of(other, "2026-01-02T03:04:05Z", None)
    assert of(stamp, planned(whole)) == ["the study differs in margins.run, rounds.pilot"]
    assert of(stamp_of(whole, "", None), planned(whole, part=None)) == [
        "its plan is of a version that noted no part of the study"
    ]
    stamp = stamp_of(whole, "", None)
    changed = stamp.replace(programs={**stamp.programs, "tare/launch/run.py": "0" * 64})
    assert of(changed, planned(whole)) == ["the code that measured differs in tare/launch/run.py"]
    changed = stamp.replace(programs={**stamp.programs, "tare/analysis/verdicts.py": "0" * 64})
    assert of(changed, planned(whole)) == ["the code that judges differs in tare/analysis/verdicts.py"]
    assert of(stamp, planned(whole, code_sha256="0" * 64)) == ["the code that measured differs"]


def test_the_analysis_is_followed_to_what_it_imports():
    paths = closure.analysis()
    assert {"tare/analysis/extract.py", "tare/stats/intervals.py", "tare/model/journals/ledger.py"} <= set(paths)
    assert not [path for path in paths if path.startswith(("tare/report", "tare/experiments"))]


def test_a_stamp_that_says_the_same_is_written_once_and_is_named_by_its_content(whole, tmp_path):
    first = write_stamp(tmp_path, stamp_of(whole, "2026-01-02T03:04:05Z", None))
    assert write_stamp(tmp_path, stamp_of(whole, "2026-02-02T03:04:05Z", "a" * 64)) == first
    sha256 = sha256_file(first)
    assert first.stem == sha256[:16]
    assert stamp_file(tmp_path, sha256) == first
    first.write_text(first.read_text().replace("2022", "2023"))
    assert stamp_file(tmp_path, sha256) is None


def said(study):
    found = tries.Studies([read_sealed(study / "w" / NAME / SEALED)], witnesses)
    return next(row["stamp"] for row in found.rows() if row["state"] == "sealed")


def test_the_command_stamps_and_the_order_with_campaigns_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "results/campaigns/s/box"
    run(study)
    assert said(study) == "no stamp was made: nothing shows that plan and code existed before its data"
    assert main.main(["plan", "--stamp", "--study", json.dumps(STUDY)]) == 0
    told = capsys.readouterr().out
    (path,) = stamp_files(study)
    assert f"sha256 {sha256_file(path)}" in told
    assert "The file alone proves nothing" in told
    assert all(command in told for command in commands(path.relative_to(tmp_path), sha256_file(path)))
    assert said(study).startswith("a stamp was made after it was opened")
    assert main.main(["plan", "--stamp", "--study", json.dumps(STUDY)]) == 0
    assert [entry.event for entry in read_ledger(study)] == ["opened", "sealed", "stamped"]
    run(study)
    assert said(study).startswith(f"stamped before its first unit ({sha256_file(path)[:12]}), but its plan is of")
    assert said(study).endswith("held by nothing but this folder, which proves no time")
    path.unlink()
    assert "the stamp is gone or was changed" in said(study)


def test_a_campaign_that_was_taken_over_is_listed_and_no_stamp_of_its_study_is_said_to_come_before_it(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    campaigns = tmp_path / "results/campaigns"
    run(campaigns / "s" / "box")
    assert main.main(["plan", "--stamp", "--study", json.dumps({**STUDY, "study": "t"})]) == 0
    run(campaigns / "t" / "box", stop_at=0)
    found = tries.Studies([read_sealed(campaigns / "t" / "box" / "w" / NAME / SEALED)], witnesses)
    table = tables.make("ledger", found.rows())
    assert set(table["state"]) == {"adopted"} and set(table["attempt"]) == {1}
    (said,) = set(table["stamp"])
    assert said.startswith("its units were measured under the study s (sealed ") and "stamped before" not in said


def test_the_head_of_the_ledger_stands_in_the_stamp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "results/campaigns/s/box"
    run(study)
    main.main(["plan", "--stamp", "--study", json.dumps(STUDY)])
    assert read(Stamp, stamp_files(study)[0]).ledger == read_ledger(study)[-1].before


@pytest.fixture
def checkout(tmp_path):
    """A repository with one commit."""
    for arguments in (
        ["init", "-q"],
        ["config", "user.name", "someone"],
        ["config", "user.email", "someone@example.org"],
        ["commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    return tmp_path


def git(checkout, *arguments):
    subprocess.run(["git", "-C", str(checkout), *arguments], check=True)


def test_tags_notes_and_proofs_that_carry_the_hash_are_found_with_their_dates(checkout, monkeypatch):
    stamp, sha256 = checkout / "stamp.json", "ab" * 32
    assert witnesses(stamp, sha256, checkout) == []
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-03-04T05:06:07+00:00")
    git(checkout, "tag", "-a", "of-another", "-m", "tare stamp " + "cd" * 32)
    git(checkout, "tag", "light")
    assert witnesses(stamp, sha256, checkout) == []
    git(checkout, "tag", "-a", "mine", "-m", f"tare stamp {sha256}")
    git(checkout, "notes", "--ref=refs/notes/tare", "add", "-m", f"tare stamp {sha256}", "HEAD")
    (checkout / "stamp.json.ots").write_bytes(b"")
    tag, note, proof = witnesses(stamp, sha256, checkout)
    assert tag in (f"the tag mine of 2026-03-04T05:06:07{zone}, unsigned" for zone in ("+00:00", "Z"))
    assert note.startswith("a note of git of 2026-03-04T05:06:07")
    assert "ots verify" in proof


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="it needs ssh-keygen")
def test_a_tag_that_the_printed_command_signs_is_signed_by_a_known_key_and_a_forged_one_is_not(checkout):
    key, stamp = checkout / "key", checkout / "stamp.json"
    stamp.write_text("{}")
    sha256 = sha256_file(stamp)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    git(checkout, "config", "gpg.format", "ssh")
    git(checkout, "config", "user.signingkey", f"{key}.pub")
    message_of(stamp, sha256)
    command = commands(stamp, sha256)[0].partition(" && ")[0]
    subprocess.run(shlex.split(command), cwd=checkout, check=True)
    (tag,) = witnesses(stamp, sha256, checkout)
    assert tag.endswith("signed with a key that this machine does not know")
    known = checkout / "known"
    known.write_text(f"someone@example.org {(checkout / 'key.pub').read_text()}")
    git(checkout, "config", "gpg.ssh.allowedSignersFile", str(known))
    (tag,) = witnesses(stamp, sha256, checkout)
    assert tag.endswith(", signed")
    name = command.split()[3]
    raw = subprocess.run(["git", "-C", checkout, "cat-file", "tag", name], check=True, capture_output=True).stdout
    forged = subprocess.run(
        ["git", "-C", checkout, "mktag"],
        input=raw.replace(b"SHA-256 of", b"sha-256 of"),
        check=True,
        capture_output=True,
    )
    git(checkout, "update-ref", f"refs/tags/{name}", forged.stdout.decode().strip())
    (tag,) = witnesses(stamp, sha256, checkout)
    assert tag.endswith("signed with a key that this machine does not know")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="it needs ssh-keygen")
def test_the_printed_command_for_rekor_makes_a_signature_that_holds(checkout):
    key, stamp = checkout / "key", checkout / "stamp.json"
    stamp.write_text("{}")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    sign = commands(stamp, "ab" * 32)[3].partition(" && ")[0].replace("~/.ssh/id_ed25519", str(key))
    subprocess.run(shlex.split(sign), check=True, capture_output=True)
    known = checkout / "known"
    known.write_text(f"me {(checkout / 'key.pub').read_text()}")
    check = ["ssh-keygen", "-Y", "verify", "-n", "file", "-f", known, "-I", "me", "-s", f"{stamp}.sig"]
    assert subprocess.run(check, input=b"{}", capture_output=True).returncode == 0
    assert subprocess.run(check, input=b"{ }", capture_output=True).returncode != 0


def test_a_folder_that_is_no_checkout_has_no_witness(tmp_path):
    assert witnesses(tmp_path / "stamp.json", "ab" * 32, tmp_path) == []


def test_plans_hold_the_part_of_the_study_that_they_were_given(whole):
    part = reduced(whole.to_json(), "rounds", "mnist_cnn")
    assert reduced(part, "rounds", "mnist_cnn") == part
    assert "causes" not in part and "setting_units" not in part["rounds"]
    plan = planned(whole)
    assert Plan.model_validate_json(json.dumps(plan.to_json())) == plan


# --- a word from outside


def word_of(study):
    """What the plan of the study's campaign says of its orders."""
    plan = read(Plan, study / "w" / NAME / "plan.json")
    return plan.word, plan.order_seed


def give(word, study="s"):
    return main.main(["plan", "--word", word, "--study", json.dumps({**STUDY, "study": study})])


def stamped(study="s", **changed):
    assert main.main(["plan", "--stamp", "--study", json.dumps({**STUDY, "study": study, **changed})]) == 0


@pytest.fixture
def box(tmp_path, monkeypatch):
    """Folder of the study `s` on the machine `box`, from where its commands are given."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results/campaigns/s/box"


def test_orders_follow_from_the_word_that_is_given_after_the_stamp(box, capsys):
    stamped()
    assert give("pulse 1234") == 0
    assert "the word 'pulse 1234' follows the stamp" in capsys.readouterr().out
    run(box)
    word, seed = word_of(box)
    (stamp,) = stamp_files(box)
    assert word == Word(stamp=sha256_file(stamp), text="pulse 1234")
    asked = [1, "s", "box", "w", NAME, 1, word.stamp, "pulse 1234"]
    text = json.dumps(asked, separators=(",", ":"))
    assert seed == hashlib.sha256(text.encode()).hexdigest()[:16], "as anybody can tell"
    assert "its orders follow from the word 'pulse 1234', which was given after the stamp" in said(box)
    run(box)
    again, other = word_of(box)
    assert again == word and other != seed, "the second try has an order of its own"
    assert other == worded_seed(read(Plan, box / "w" / NAME / "plan.json"), NAME)


def test_without_a_word_everything_is_as_it_was(box):
    stamped()
    run(box)
    assert word_of(box)[0] is None and "word" not in said(box)
    assert "word" not in json.loads((box / "w" / NAME / "plan.json").read_text())


def test_a_campaign_that_was_begun_before_the_word_keeps_its_order(box):
    stamped()
    with pytest.raises(KeyboardInterrupt):
        run(box, stop_at=2)
    before = word_of(box)
    assert give("late") == 0
    run(box)
    assert word_of(box) == before == (None, before[1])
    assert "its plan has another word" not in said(box)


def test_a_stamp_takes_one_word_and_a_word_needs_a_stamp(box, capsys):
    assert give("early") == 2
    assert "a word can only follow a stamp" in capsys.readouterr().err
    stamped()
    assert give("first") == 0 and give("second") == 2
    assert "has its word, 'first': a second one would be a choice" in capsys.readouterr().err
    stamped()
    assert give("second") == 2, "the same stamp is no new one"
    stamped(stacks=["paper-2022"])
    run(box)
    assert word_of(box)[0] is None, "the new stamp has none yet"
    assert give("second") == 0
    run(box)
    assert word_of(box)[0].text == "second"
    assert [entry.event for entry in read_ledger(box)].count("word") == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--word", " "], "is no word of 1 to 1000 printable characters"),
        (["--word", "two\nlines"], "is no word of 1 to 1000 printable characters"),
        (["--word", "x" * 1001], "is no word of 1 to 1000 printable characters"),
    ],
)
def test_what_is_no_word_is_one_line(words, says, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["plan", *words])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and says in told and told.count("\n") == 1


def test_stamp_and_word_at_once_is_one_line(box, capsys):
    assert main.main(["plan", "--stamp", "--word", "x", "--study", json.dumps(STUDY)]) == 2
    assert "first --stamp, then --word" in capsys.readouterr().err


def test_orders_that_do_not_follow_from_the_word_are_told(box):
    stamped()
    assert give("pulse") == 0
    run(box)
    campaign = read_sealed(box / "w" / NAME / SEALED)
    study = tries.Study(box)
    for plan, says in (
        (campaign.plan.replace(order_seed="chosen"), "the seed of its orders does not follow from its word"),
        (campaign.plan.replace(word=None), "its plan has another word than the ledger, or none"),
        (campaign.plan.replace(word=Word(stamp="ab", text="pulse")), "its plan has another word than the ledger"),
    ):
        study.campaigns = {("w", NAME): replace(campaign, plan=plan)}
        (found,) = {row["stamp"] for row in study.rows()}
        assert f", but {says}" in found or f", {says}" in found


def test_a_study_with_a_word_takes_no_campaign_over(box):
    """Its units would have an order that the word did not give."""
    run(box)
    other = box.parents[1] / "t" / "box"
    stamped("t")
    assert give("pulse", "t") == 0
    run(other)
    assert word_of(other)[0].text == "pulse"
    assert read(Plan, other / "w" / NAME / "plan.json").adopted is None


def test_a_campaign_that_is_taken_over_brings_its_word(box):
    stamped()
    assert give("pulse") == 0
    run(box)
    other = box.parents[1] / "t" / "box"
    run(other, stop_at=0)
    plan = read(Plan, other / "w" / NAME / "plan.json")
    assert plan.adopted and plan.order_seed == word_of(box)[1] == worded_seed(plan, NAME)


def test_what_can_be_left_elsewhere_lies_beside_the_stamp(box, checkout, capsys):
    stamped()
    (stamp,) = stamp_files(box)
    sha256, message = sha256_file(stamp), stamp.with_suffix(".tag")
    told = capsys.readouterr().out
    assert f"git tag -s tare-stamp-{sha256[:12]} -F {message.relative_to(checkout)}" in told
    assert "rekor-cli upload --artifact" in told
    git(checkout, "tag", "-a", "mine", "-F", str(message))
    (tag,) = witnesses(stamp, sha256, checkout)
    assert tag.startswith("the tag mine of ")
    assert stamp_files(box) == [stamp]
