"""Tables of the notebooks: a dash where there is no value, and words where there is no end."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

ABSENT = "–"


def listed(table: pd.DataFrame, form: str = ".4f", endless: str = "no limit") -> Styler:
    """A table as a notebook shows it: numbers with decimals in this form, infinity in words, markup as text."""

    def shown(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        if math.isinf(value):
            return endless
        return format(value, form)

    return table.style.format(shown, na_rep=ABSENT, escape="html")
