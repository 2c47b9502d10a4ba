"""Tables of the notebooks hold nothing that a reader has to know pandas for."""

import math

import nbformat
import pandas as pd
import pytest
from looking import unfilled_texts

from tare.core.files import project_root
from tare.report import figures, notebooks


def test_what_is_not_there_is_a_dash_and_infinity_has_words():
    table = pd.DataFrame(
        {
            "value": [1.23456, math.nan, math.inf],
            "count": [1, 2, 3],
            "reason": [None, "a <b>", math.nan],
            "share": [None, -math.inf, 0.5],
        }
    )
    page = figures.listed(table, ".2f", endless="no such length").hide(axis="index").to_html()
    assert unfilled_texts(page) == []
    for shown in ("1.23", "no such length", ">–<", "a &lt;b&gt;", ">3<", "0.50"):
        assert shown in page, shown
    assert "-no such length" not in page and page.count(">–<") == 4
    assert "no limit" in figures.listed(table).to_html()


def test_what_nobody_filled_in_would_be_found():
    page = "<style>nan</style><p>None of it</p><td>nan</td><td>inf</td><td>fine</td><td>&lt;NA&gt;</td>"
    assert unfilled_texts(page) == ["None of it", "nan", "inf", "<NA>"]


@pytest.mark.parametrize("name", notebooks.names())
def test_every_table_of_a_notebook_is_listed(name):
    content = nbformat.read(project_root() / f"notebooks/{name}.ipynb", as_version=4)
    assert not [cell.source for cell in content.cells if cell.cell_type == "code" and ".style" in cell.source]
