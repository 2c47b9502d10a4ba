"""Documents keep to tests/style.yaml: sentences that can be read, the field's words, nothing that it bans."""

import ast
import csv
import re

import pytest
from prose import (
    ROOT,
    banned,
    code_files,
    code_findings,
    excesses,
    is_generated,
    look,
    pages,
    sentences,
    style,
    texts,
    written_words,
)

FOUND = pages()


@pytest.mark.parametrize("name", [name for name in FOUND if not is_generated(name)])
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


# What users read of these: pages, answers, help and messages.
SPOKEN = sorted((ROOT / "tare").rglob("*"))


def texts_of(path):
    """Texts of three words or more: of a module without its docstrings, a table, a template."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        found = [cell for row in csv.reader(source.splitlines()) for cell in row]
    elif path.suffix == ".j2":
        found = re.split(r"\{[{%#].*?[}%#]\}|<[^>]*>", re.sub(r"<style>.*?</style>", "", source, flags=re.DOTALL))
    else:
        tree = ast.parse(source)
        about = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in about]
    return [" ".join(one.split()) for one in found if isinstance(one, str) and len(one.split()) > 2]


@pytest.mark.parametrize(
    "path",
    [path for path in SPOKEN if path.suffix in (".py", ".csv", ".j2")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_what_users_read_has_no_banned_word(path):
    assert [(name, text) for text in texts_of(path) for name, _ in banned(text)] == []


def test_texts_of_modules_and_templates_are_found(tmp_path):
    (tmp_path / "a.py").write_text('"""Words of it are told."""\nX = f"it is told {1} times, of its own" + "one"\n')
    (tmp_path / "a.j2").write_text("<p>{{ told }} lies in a folder</p>")
    (tmp_path / "a.csv").write_text('a,"it stands, it says, there"\n')
    assert texts_of(tmp_path / "a.py") == ["it is told", "times, of its own"]
    assert texts_of(tmp_path / "a.j2") == ["lies in a folder"]
    assert texts_of(tmp_path / "a.csv") == ["it stands, it says, there"]


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
