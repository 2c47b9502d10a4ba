"""Documents keep to tests/style.yaml: sentences that can be read, the field's words, nothing that it bans."""

import pytest
from prose import (
    ROOT,
    banned,
    code_files,
    code_findings,
    excesses,
    look,
    pages,
    sentences,
    spoken,
    spoken_files,
    style,
    texts,
    written_words,
)

FOUND = pages()


@pytest.mark.parametrize("name", FOUND)
def test_a_page_keeps_to_the_style(name):
    found = excesses(name, look(FOUND[name].read_text(encoding="utf-8")))
    assert not found, "\n" + "\n".join(found)


def test_pages_that_the_style_names_are_there():
    named = [*style()["generated"], *style()["lists"], *style()["exceptions"]]
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert "README.md" in FOUND and len(FOUND) > 20


@pytest.mark.parametrize("name", style()["banned"])
def test_a_rule_finds_what_it_bans_and_leaves_what_it_advises(name):
    rule = style()["banned"][name]
    assert name in [found for one in sentences(rule["bad"]) for found, _ in banned(one)]
    assert [found for one in sentences(rule["good"]) for found, _ in banned(one)] == []


PAGE = """---
title: told
---

# A heading that is told

The first sentence names `tare told FILE`. It has, e.g. in Fig. 2 of J. Smith, no end before 2.5 s and O/T.
The third
ends ([here](told.md)): "so it does."

```console
told
```

    told

- an item without an end
- another one. With a second sentence

  of two paragraphs

| a cell | lies |
| --- | --- |
| `told` | see [told](x.md#told) |

![told](told.png) <!-- told --> **Bold** words, *soft* ones.
"""


def test_running_text_is_split_into_sentences():
    assert [one.text for one in look(PAGE).sentences] == [
        "The first sentence names `code`.",
        "It has, e.g. in Fig. 2 of J. Smith, no end before 2.5 s and O/T.",
        'The third ends (here): "so it does."',
        "an item without an end",
        "another one.",
        "With a second sentence",
        "of two paragraphs",
        "Bold words, soft ones.",
    ]
    assert [one.line for one in look(PAGE).sentences][:3] == [7, 7, 7]


def test_words_of_tables_are_looked_at_and_code_is_not():
    assert [(one.rule, one.line) for one in look(PAGE).banned] == [("lies", 22), ("told", 24)]
    assert [one.text for one in texts(PAGE) if one.is_table] == ["a cell", "lies", "`code`", "see told"]


def test_sentences_that_are_too_many_or_too_long_are_named():
    short, long, longest = "One word. " * 30, f"Long {'word ' * 30}end. ", f"Long {'word ' * 40}end. "
    assert excesses("x.md", look(short + long * 3)) == []
    assert "4 of 34 sentences have more than 25 words" in excesses("x.md", look(short + long * 4))[0]
    assert "x.md:1: 42 words, 40 at most" in excesses("x.md", look(short + longest))[0]
    assert excesses("x.md", look("One word. " + long)) == [] and excesses("x.md", look(long * 2))


def test_documents_are_short(tmp_path):
    assert 20_000 < written_words() <= style()["most_words"]
    (tmp_path / "README.md").write_text("Four words, | and 7.\n\n| --- |\n")
    assert written_words(tmp_path) == 4


def test_a_glossary_is_short():
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    assert 20 < text.count("\n- **") <= 40


@pytest.mark.parametrize("path", spoken_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_users_read_has_no_banned_word(path):
    texts = spoken(path)
    assert [(name, text) for text in texts for name, _ in banned(text)] == []


def test_all_files_with_texts_that_users_meet_are_looked_at():
    found = {str(path.relative_to(ROOT)) for path in spoken_files()}
    assert {"papers/findings.csv", "config/config.yaml", "config/published/nthu2018.yaml", "Makefile"} <= found
    assert {"CHANGELOG.md", "tare/runtimes/find_python.sh", "notebooks/why.ipynb", "envs/docker.py"} <= found
    assert len(found) > 500


TEXTS = {
    "a.py": (
        '"""Words of it are told."""\nX = f"it is told {1} times, " f"of {X} of its own" + "one"\n',
        ["it is told 0 times, of 0 of its own"],
    ),
    "a.j2": ("<p>{{ told }} lies in a folder</p>", ["lies in a folder"]),
    "a.csv": ('a,"it stands, it says, there"\n', ["it stands, it says, there"]),
    "a.yaml": (
        "key: {name: [it stands there]}  # of the second one\n# and a comment\n# that goes on\nb: 1\n",
        ["it stands there", "of the second one", "and a comment that goes on"],
    ),
    "Makefile": ('# What it does\nall: # not much\n\t@echo "it `is` told here" # to a user\n',
                 ["What it does", "to a user", "it `code` told here"]),
    "a.md": ("# A heading it is\n\nIt is told. It lies there.\n", ["It is told.", "It lies there."]),
    "a.ipynb": (
        '{"cells": [{"cell_type": "markdown", "source": ["It is", " told here."]}, {"cell_type": "code"}]}',
        ["It is told here."],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_a_file_are_found(tmp_path, name):
    source, found = TEXTS[name]
    (tmp_path / name).write_text(source)
    assert spoken(tmp_path / name) == found


def test_the_code_uses_the_words_of_the_field():
    found = [
        f"{path.relative_to(ROOT)}:{one.line}: {one.text}; say {one.say}"
        for path in code_files()
        for one in code_findings(path.read_text())
    ]
    assert len(code_files()) > 400 and not found, "\n" + "\n".join(found)


def test_names_comments_and_docstrings_of_code_are_looked_at():
    source = '''"""Lies in a folder."""

def told_apart():
    """It is beside `beside`."""
    text = "this is told"  # of its own
    return text
'''
    assert [(one.line, one.rule) for one in code_findings(source)] == [
        (1, "lies"), (3, "told"), (4, "beside"), (5, "of its own"),
    ]  # fmt: skip
