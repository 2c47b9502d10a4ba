"""From sealed campaigns and profiled launches to the tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tare import campaign, metrics, tables, verdicts
from tare.errors import IntegrityError, UserError
from tare.files import read_json

SHOWN = ("real_s", "steady_step_s")


def build(campaigns: Sequence[Path], profiles: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """All tables by name.

    Raises:
        IntegrityError: a record was changed after it was sealed, or is cut short.
        UserError: records of different studies, or a profile that does not lie under its own workload's name.
    """
    rows: dict[str, list[dict]] = {name: [] for name in tables.SCHEMAS}
    studies: dict[str, Path] = {}
    for sealed in campaigns:
        plan, units = campaign.read_sealed(sealed)
        studies.setdefault(plan["study"], sealed)
        found = metrics.campaign_metrics(plan, units, sealed.parent.name)
        rows["metrics"] += found
        if plan["kind"] == "rounds":
            rows["verdicts"] += verdicts.verdict_rows(plan, pd.DataFrame(found))
    for path in profiles:
        record = _profile(path)
        studies.setdefault(record["study"], path)
        profile = metrics.ProfileRows(record, path.parent)
        rows["metrics"] += profile.metrics()
        rows["operators"] += profile.operator_rows()
        rows["samples"] += profile.sample_rows()
        rows["fingerprints"] += profile.fingerprint_rows()
    if len(studies) > 1:
        listed = ", ".join(f"{name} ({path})" for name, path in studies.items())
        raise UserError(f"records of different studies can't be compared: {listed}")
    return {name: tables.make(name, found) for name, found in rows.items()}


def _profile(path: Path) -> dict:
    record = read_json(path)
    where = {"workload": path.parent.parent.name, "env": path.parent.name}
    for key, folder in where.items():
        if record.get(key) != folder:
            raise IntegrityError(f"{path} is of {key} {record.get(key)!r} and lies under {folder!r}: run it again")
    return record


def write(built: dict[str, pd.DataFrame], folder: Path, only: Sequence[str] | None = None) -> None:
    """Write tables as CSV, the metrics also as Parquet."""
    for name in only or built:
        if name not in built:
            raise UserError(f"no table {name!r} (known: {', '.join(built)})")
        paths = [folder / f"{name}.csv"]
        if name == "metrics":
            paths.append(folder / "metrics.parquet")
        tables.write(name, built[name], *paths)


def describe_verdicts(table: pd.DataFrame) -> list[str]:
    """One line per environment and shown metric, for the terminal."""
    lines = []
    for row in table[table["metric"].isin(SHOWN)].itertuples():
        if pd.isna(row.ci_low):
            lines.append(f"{row.workload} {row.metric} {row.env}: inconclusive, {row.reason}")
            continue
        lines.append(
            f"{row.workload} {row.metric} {row.env} / {row.reference}: {row.ratio:.3f} "
            f"[{row.ci_low:.3f}, {row.ci_high:.3f}], {row.verdict} (margin {row.margin:.0%}, {row.n_units} rounds; "
            f"control {row.control_ratio:.3f} [{row.control_ci_low:.3f}, {row.control_ci_high:.3f}])"
        )
    return lines
