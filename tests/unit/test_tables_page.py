"""docs/tables.md names every table, every column of it and every metric, and nothing else."""

import re

import pytest

from tare.core.files import project_root
from tare.model import tables
from tare.report.words.labels import METRICS

PAGE = (project_root() / "docs/tables.md").read_text(encoding="utf-8")
IDENTITY = "What a row is about"
BY_NAME = "Metrics by name"


def sections():
    """Title of each section -> the names in the first cells of its rows."""
    found = {}
    for text in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        title, _, body = text.partition("\n")
        cells = re.findall(r"^\| (`.*?) \|", body, flags=re.MULTILINE)
        found[title] = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    return found


def test_every_table_has_a_section():
    titled = [name for title in sections() if title not in (IDENTITY, BY_NAME) for name in title.split(", ")]
    assert sorted(titled) == sorted(tables.NAMES)


@pytest.mark.parametrize("title", [title for title in sections() if title not in (IDENTITY, BY_NAME)])
def test_a_section_names_the_columns_of_its_tables(title):
    columns = {
        column
        for name in title.split(", ")
        for column in tables.make(name, []).columns
        if name in ("ledger", "published", "claims") or column not in tables.IDENTITY
    }
    assert set(sections()[title]) == columns


def test_the_columns_in_front_are_those_of_every_table():
    names = ["level_<factor>" if name == tables.LEVELS else name for name in tables.IDENTITY]
    assert sections()[IDENTITY] == names


def test_metrics_are_told_as_the_page_tells_them():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", PAGE.partition(f"## {BY_NAME}")[2], flags=re.MULTILINE)
    assert {name: (title, what) for name, title, what in rows} == METRICS
