"""Blocks of sections: what finds no content is left out, words name their scope, one template shows every kind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from markupsafe import Markup
from pages import visible

from tare.report import parts, sections
from tare.report.pages import templates
from tare.report.words.layout import Table, unbroken

ITEM = SimpleNamespace(name="a", title="A <b>", said=["one"], nothing=[], none=None, rest=[1, 2], shown=[])
TABLE = Table(caption="a caption", columns=["", "n"], rows=[["x", "1"]])


def shown(*blocks):
    """The HTML of these blocks of an item."""
    section = SimpleNamespace(name="s", heading="Heading")
    found = parts.resolve_all(blocks, ITEM)
    names = {"links": {"tables": []}, "figure": lambda name: f"the figure {name}"}
    return templates().get_template("parts.html.j2").render(section=section, found=found, **names)


@pytest.mark.parametrize(
    "block",
    [
        parts.lines(parts.at("nothing")),
        parts.tables(parts.at("none")),
        parts.words(parts.at("none")),
        parts.figure(parts.at("none"), "a caption"),
        parts.each(parts.at("nothing"), parts.words("{it}")),
        parts.each(parts.where("nothing"), parts.words("words")),
        parts.folded("a summary", parts.words("words of every study"), parts.tables(parts.at("none"))),
        parts.box("cards", parts.title("a title"), parts.lines(parts.at("nothing"))),
        parts.card("{it.title}", parts.tables(parts.at("none"))),
    ],
)
def test_what_finds_no_content_is_left_out(block):
    assert parts.resolve(block, ITEM) == []


def test_what_has_a_word_for_its_absence_says_it():
    page = visible(shown(parts.lines(parts.at("nothing"), otherwise="Nothing ran.")))
    assert page == "Heading Nothing ran."


def test_every_kind_is_shown():
    page = shown(
        parts.words("of {it.name}", "lede"),
        parts.title("a title", "h4"),
        parts.lines(lambda it: ["a line", "<another>"]),
        parts.tables(lambda it: [TABLE, None]),
        parts.figure("f_{it.name}", "a caption", "single"),
        parts.figures("f", "a caption", lambda it: ["x", "y"]),
        parts.folded("All {shown} of {it.title}", parts.words("{it.name}"), of=lambda it: len(it.rest)),
        parts.card("a card", parts.words(lambda it: Markup("<em>words</em>"))),
        parts.Block("links", "tables", words="Tables"),
    )
    for html in (
        '<p class="lede">of a</p>',
        "<h4>a title</h4>",
        "<li>a line</li><li>&lt;another&gt;</li>",
        "<caption>a caption</caption>",
        '<figure class="single">the figure f_a<figcaption>a caption',
        "the figure f_x",
        "<summary>All 2 of A &lt;b&gt;</summary>",
        "<p><em>words</em></p>",
    ):
        assert html in page, html
    assert "Tables" not in page, "there are no files to link"


def test_no_name_in_braces_is_left_in_the_words_of_a_page():
    with pytest.raises(AttributeError, match="unknown"):
        parts.resolve(parts.words("{it.unknown}"), ITEM)


def test_every_section_says_where_it_stands_once():
    names = [section.name for section in sections.SECTIONS]
    assert len(set(names)) == len(names)
    assert all(section.heading and section.title and section.blocks for section in sections.SECTIONS)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("+587 ms to +697 ms", ["+587 ms", "to", "+697 ms"]),
        ("2 min 43 s", ["2 min 43 s"]),
        ("255 MB, 3 rounds, 4 steps", ["255 MB,", "3", "rounds,", "4", "steps"]),
        ("no interval", ["no", "interval"]),
    ],
)
def test_no_line_ends_between_a_number_and_its_unit(text, parts):
    assert [one.replace("\N{NO-BREAK SPACE}", " ") for one in unbroken(text).split(" ")] == parts
