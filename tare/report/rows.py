"""Rows of a table by the values in its columns."""

from __future__ import annotations

from typing import Any

import pandas as pd


def having(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The rows that have these values, by column; of a tuple of values, one of them."""
    for column, value in values.items():
        table = table[table[column].isin(value) if isinstance(value, tuple) else table[column] == value]
    return table
