"""Whole files, hashes and journals."""

import errno

import pytest

from tare.core.errors import IntegrityError, UserError
from tare.core.files import Journal, atomic_path, cache_dir, read_json, sha256_text, write_json


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "record.json"
    write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("the disk broke")
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


def test_nan_is_refused_because_json_has_no_word_for_it(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", float("nan"))


def test_a_truncated_record_is_one_clear_line(tmp_path):
    path = tmp_path / "record.json"
    path.write_text('{"a": [1, 2')
    with pytest.raises(IntegrityError, match="cut short"):
        read_json(path)
    with pytest.raises(UserError, match="cannot read"):
        read_json(tmp_path / "absent.json")


def test_a_journal_drops_a_torn_tail_and_keeps_what_is_whole(tmp_path):
    journal = Journal(tmp_path / "units.jsonl")
    journal.append({"unit": 0})
    with journal.path.open("a") as handle:
        handle.write('{"unit": 1, "half')
    assert journal.read() == [{"unit": 0}]
    with pytest.raises(IntegrityError, match="was written by another process meanwhile"):
        journal.append({"unit": 1})
    later = Journal(journal.path)
    later.append({"unit": 1})
    assert later.read() == [{"unit": 0}, {"unit": 1}]


def test_a_journal_broken_in_the_middle_is_refused(tmp_path):
    journal = Journal(tmp_path / "units.jsonl")
    journal.path.write_text('{"unit": 0}\nnonsense\n{"unit": 2}\n')
    with pytest.raises(IntegrityError, match="line 2"):
        journal.read()


def test_the_cache_lies_where_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "here"))
    assert cache_dir("data") == tmp_path / "here" / "data"
    monkeypatch.delenv("TARE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir("data") == tmp_path / "xdg" / "tare" / "data"


def test_hash_of_a_known_text():
    assert sha256_text("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_full_disk_names_the_file_that_could_not_be_written(tmp_path):
    def full(temporary):
        raise OSError(errno.ENOSPC, "No space left on device")  # as a write says it: of no file

    with (
        pytest.raises(OSError, match="No space left on device") as caught,
        atomic_path(tmp_path / "a.json") as path,
    ):
        full(path)
    assert caught.value.filename == str(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []
