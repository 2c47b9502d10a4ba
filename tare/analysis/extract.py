"""From sealed campaigns and profiled launches to the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis import metrics, verdicts
from tare.core.errors import IntegrityError, UserError
from tare.core.files import read_json
from tare.experiments import campaign
from tare.model import tables

SHOWN = ("real_s", "turn_step_s")


def build(
    campaigns: Sequence[Path], profiles: Sequence[Path], margins: Mapping[str, float] | None = None
) -> dict[str, pd.DataFrame]:
    """All tables by name.

    Args:
        campaigns: sealed.json of each.
        profiles: profile.json of each profiled launch.
        margins: the study's, where they are known: campaigns that were planned with others are refused.

    Raises:
        IntegrityError: a record was changed after it was sealed, or is cut short.
        UserError: records that must not be mixed, each named; a profile that does not lie under its own workload.
    """
    rows: dict[str, list[dict]] = {name: [] for name in tables.SCHEMAS}
    read = [(sealed, *campaign.read_sealed(sealed)) for sealed in campaigns]
    records = [(path, _profile(path)) for path in profiles]
    refuse_mixtures([(sealed, plan) for sealed, plan, _ in read], margins)
    _refuse_studies([(sealed, plan["study"]) for sealed, plan, _ in read] + [(p, r["study"]) for p, r in records])
    for sealed, plan, units in read:
        _refuse_foreign(sealed, plan)
        found = metrics.campaign_metrics(plan, units, sealed.parent.name)
        rows["metrics"] += found
        rows["kernels"] += metrics.campaign_kernels(plan, units, sealed.parent.name)
        if plan["kind"] in verdicts.METRICS_OF and found:
            rows["verdicts"] += verdicts.verdict_rows(plan, pd.DataFrame(found))
    for path, record in records:
        profile = metrics.ProfileRows(record, path.parent)
        rows["metrics"] += profile.metrics()
        rows["operators"] += profile.operator_rows()
        rows["families"] += profile.family_rows()
        rows["samples"] += profile.sample_rows()
        rows["device_samples"] += profile.device_sample_rows()
        rows["fingerprints"] += profile.fingerprint_rows()
    return {name: tables.make(name, found) for name, found in rows.items()}


def refuse_mixtures(
    plans: Sequence[tuple[Path, Mapping[str, Any]]], margins: Mapping[str, float] | None = None
) -> None:
    """One comparison, one campaign, one margin.

    Raises:
        UserError: two campaigns of the same comparison, campaigns with different margins, or margins that are not
            the study's any more; the records are named.
    """
    seen: dict[tuple, Path] = {}
    first: tuple[Path, Mapping[str, float]] | None = None
    for sealed, plan in plans:
        key = (plan["kind"], plan["workload"], plan["arm"], tuple(sorted(plan["environments"])))
        if key in seen:
            raise UserError(
                f"{seen[key]} and {sealed} are two campaigns of one comparison ({plan['kind']} of "
                f"{plan['workload']}): units of different campaigns are never pooled; name one of them"
            )
        seen[key] = sealed
        own = plan.get("margins")
        if own is None:
            continue
        if margins is not None and dict(own) != dict(margins):
            raise UserError(
                f"{sealed} was planned with the margins {_shown(own)}, the study says {_shown(margins)}: margins "
                "stand before the data; restore them, or run the campaign again"
            )
        if first is not None and dict(first[1]) != dict(own):
            raise UserError(
                f"{first[0]} and {sealed} were planned with different margins ({_shown(first[1])} and "
                f"{_shown(own)}): run one of them again"
            )
        first = first or (sealed, own)


def _shown(margins: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in sorted(margins.items()))


def _refuse_studies(records: Sequence[tuple[Path, str]]) -> None:
    studies: dict[str, Path] = {}
    for path, study in records:
        studies.setdefault(study, path)
    if len(studies) > 1:
        listed = ", ".join(f"{name} ({path})" for name, path in studies.items())
        raise UserError(f"records of different studies can't be compared: {listed}")


PROFILED = ("plain_step_s", "profiled_step_s", "profiled_steps", "counts", "samples", "mapped")


def _refuse_foreign(sealed: Path, plan: Mapping[str, Any]) -> None:
    """A campaign lies in a folder of its own name, in that of its workload."""
    workload, name = sealed.parent.parent.name, sealed.parent.name
    if plan["workload"] != workload:
        raise IntegrityError(
            f"{sealed} is of workload {plan['workload']!r} and lies under {workload!r}: run it again"
        )
    if name.split(".")[0] != plan["kind"]:
        raise IntegrityError(f"{sealed} is a campaign of {plan['kind']} and lies under {name!r}: run it again")


def _profile(path: Path) -> dict:
    record = read_json(path)
    if not isinstance(record, dict):
        raise IntegrityError(f"{path} is no record of a profiled launch: run it again")
    where = {"workload": path.parent.parent.name, "env": path.parent.name}
    for key, folder in where.items():
        if record.get(key) != folder:
            raise IntegrityError(f"{path} is of {key} {record.get(key)!r} and lies under {folder!r}: run it again")
    if record.get("status") == "ok":
        results = (record.get("inside") or {}).get("results") or {}
        missing = [key for key in PROFILED if key not in results]
        if missing:
            raise IntegrityError(f"{path} lacks {', '.join(missing)} of a profiled launch: run it again")
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
            f"[{row.ci_low:.3f}, {row.ci_high:.3f}], {row.verdict} (margin {row.margin:.0%}, {row.n_units} units; "
            f"control {row.control_ratio:.3f} [{row.control_ci_low:.3f}, {row.control_ci_high:.3f}])"
        )
    return lines
