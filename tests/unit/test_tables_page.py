"""docs/tables.md names every table, every column of it and every metric, and nothing else."""

import re

import pytest

from tare.core.files import project_root
from tare.model import tables
from tare.report.words.labels import METRICS

PAGE = (project_root() / "docs/tables.md").read_text(encoding="utf-8")
IDENTITY = "What a row is about"
BY_NAME = "Metrics by name"
METRICS_FILE = "tare/report/words/metrics.csv"


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
        if name in ("ledger", "published", "claims", "machines", "agreement") or column not in tables.IDENTITY
    }
    assert set(sections()[title]) == columns


def test_the_columns_in_front_are_those_of_every_table():
    names = ["level_<factor>" if name == tables.LEVELS else name for name in tables.IDENTITY]
    assert sections()[IDENTITY] == names


def test_every_metric_of_a_study_has_its_title_and_what_it_is(evidence):
    assert set(evidence.metrics["metric"]) <= set(METRICS)
    assert all(title and what for title, what in METRICS.values())
    titles = [title for title, _ in METRICS.values()]
    assert len(set(titles)) == len(titles)
    text = (project_root() / METRICS_FILE).read_text(encoding="utf-8")
    assert len(METRICS) == len(text.splitlines()) - 1, "a metric stands there once"
    assert METRICS_FILE in PAGE
