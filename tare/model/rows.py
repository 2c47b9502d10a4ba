"""Rows of the table `metrics`: every number with its unit, kind and source, or the reason why there is none.

Kinds: `measured` was read off a clock or a counter; `modelled` follows from a model (operator counts);
`unavailable` could not be had, and says why.
"""

from __future__ import annotations

from typing import Any


def measured(metric: str, value: float | None, unit: str, source: str, reason: str | None = None) -> dict[str, Any]:
    """A row that was read off a clock or counter; without a value an unavailable one, for the reason."""
    if value is None:
        return unavailable(metric, unit, source, reason)
    return {
        "metric": metric,
        "value": float(value),
        "unit": unit,
        "kind": "measured",
        "source": source,
        "reason": None,
    }


def modelled(metric: str, value: float | None, unit: str, source: str, reason: str | None = None) -> dict[str, Any]:
    """A row that follows from a model; without a value an unavailable one, for the reason."""
    row = measured(metric, value, unit, source, reason)
    return row if value is None else {**row, "kind": "modelled"}


def unavailable(metric: str, unit: str, source: str, reason: str | None) -> dict[str, Any]:
    """A row that says why there is no number."""
    return {
        "metric": metric,
        "value": None,
        "unit": unit,
        "kind": "unavailable",
        "source": source,
        "reason": reason or "no reason was recorded",
    }
