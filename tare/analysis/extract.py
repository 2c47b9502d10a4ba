"""From sealed campaigns and profiled launches to the tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis import job_length, metrics, step_counts, verdicts
from tare.analysis.capacity import pipeline
from tare.analysis.capacity.pipeline import read_pipeline
from tare.analysis.copies import between_copies
from tare.analysis.decisions import decide
from tare.analysis.launch_rows import Row
from tare.analysis.profile_rows import ProfileRows, read_profile, stack_profile_rows
from tare.analysis.tries import Attempt, Studies, Witnesses, nobody
from tare.core.errors import IntegrityError, UserError
from tare.core.forked import forked
from tare.model import tables
from tare.model.journals.recorded import recorded_machine
from tare.model.journals.sealed import SealedCampaign, read_sealed, views
from tare.model.journals.units import share_of
from tare.model.records.measured import CopiesRecord, ProfileRecord
from tare.model.registry import SHARED, SINGLE
from tare.model.schema import parse
from tare.model.studies.sections import SMALL_CO_RUNNER, Batch, Shared

ALSO = {"metrics": "parquet", "decisions": "json"}  # a second form of a table


def build(
    campaigns: Sequence[Path],
    profiles: Sequence[Path],
    margins: Mapping[str, float] | None = None,
    witnesses: Witnesses = nobody,
    copies: CopiesRecord | None = None,
    jobs: int = 1,
    pipelines: Sequence[Path] = (),
    stack_profiles: Sequence[Path] = (),
) -> dict[str, pd.DataFrame]:
    """All tables by name.

    Of records their paths. `margins`: the study's, where they are known: campaigns that were planned with others
    are refused. `copies`: where this machine has measured how much copies of the files differ. `stack_profiles`: of
    other stacks, a separate table. `jobs`: processes; from two on the profiled launches, whose traces are long,
    are read in parallel to the campaigns. Raises IntegrityError: a record was changed after it was sealed, or is
    cut short; a ledger was edited. UserError: records that must not be mixed, each named; a profile that is not
    under its own workload.
    """
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in tables.SCHEMAS}
    read = [_campaign(sealed) for sealed in campaigns]
    records = [(path, read_profile(path)) for path in profiles]
    refuse_mixtures(read, margins)
    inputs = [(path, read_pipeline(path)) for path in pipelines]
    other = [(path, read_profile(path)) for path in stack_profiles]
    named = [(path, one.study) for path, one in (*records, *other)] + [(path, one.study) for path, one in inputs]
    _refuse_several("studies", [(one.path, one.plan.study) for one in read] + named)
    measured = [(path, one.measured_on) for path, one in (*records, *other)]
    measured += [(path, one.measured_on) for path, one in inputs]
    _refuse_several("machines", [(one.path, one.plan.machine.name) for one in read] + measured)
    studies = Studies(read, witnesses)
    viewed = [view for one in read for view in views(one)]
    with _profiled(records, jobs) as profiled:
        _add_campaigns(rows, viewed, {one.path: studies.attempt(one) for one in read if _is_judged(one)}, copies)
        rows["ledger"] = studies.rows()
        for found in profiled:
            for name, own in found.items():
                rows[name] += own
    rows["stack_profiles"] = list(_rows_of_stacks(records, other))
    rows["metrics"] += [row for _, record in inputs for row in pipeline.metric_rows(record)]
    by_name = {(one.workload, one.name): one for one in viewed}
    alone = {one.workload: one for one in read if one.plan.scenario == SINGLE}
    for row in (row for found in rows.values() for row in found):
        workload = str(row.get("workload"))
        campaign = by_name.get((workload, str(row.get("campaign"))), alone.get(workload))
        if campaign is not None:
            row["scaled"] = _scaled(campaign, row.get("batch"))
    made = {name: tables.make(name, found) for name, found in rows.items()}
    return made | {"decisions": tables.make("decisions", _decisions(made, viewed))}


def _decisions(made: Mapping[str, pd.DataFrame], viewed: Sequence[SealedCampaign]) -> list[Row]:
    """What the tables decide, by the confidence and the fewest units of the campaigns that they are of."""
    plans = {(one.workload, one.kind): one.plan.sampling for one in viewed if one.key.is_headline}
    fewest = {key: sampling.verdict_units for key, sampling in plans.items()}
    confidence = min((one.plan.sampling.confidence for one in viewed), default=0.0)
    return [one.row() for one in decide(made, confidence, fewest)]


def _add_campaigns(
    rows: dict[str, list[Row]],
    viewed: Sequence[SealedCampaign],
    tries: Mapping[Path, Attempt],
    copies: CopiesRecord | None,
) -> None:
    """Rows of campaigns, and of the training steps of theirs, and what they are judged to say."""
    judged, attempts = [], {}
    for campaign in viewed:
        found = metrics.campaign_metrics(campaign)
        rows["metrics"] += found
        rows["kernels"] += metrics.campaign_kernels(campaign)
        if _is_judged(campaign) and found:
            attempt = tries[campaign.path]
            attempts[campaign.workload, campaign.name] = attempt
            table = pd.DataFrame([*found, *metrics.headline_hosts(campaign, viewed)])
            judged.append(
                verdicts.Measured(
                    campaign=campaign,
                    metrics=table,
                    share=attempt.share,
                    next_share=share_of(attempt.number + 1),
                    between_copies=between_copies(copies, campaign),
                )
            )
            rows["counts"] += step_counts.count_rows(campaign, pd.DataFrame(found), attempt.share)
    for row in verdicts.study_rows(judged):
        attempt = attempts[row["workload"], row["campaign"]]
        rows["verdicts"].append({**row, "attempt": attempt.number, "reason": attempt.with_note(row["reason"])})
    rows["job_length"] = job_length.cost_rows(judged)


def _is_judged(campaign: SealedCampaign) -> bool:
    return campaign.kind in verdicts.METRICS_OF


@contextlib.contextmanager
def _profiled(
    records: Sequence[tuple[Path, ProfileRecord]], jobs: int
) -> Iterator[Iterator[Mapping[str, list[Row]]]]:
    """Rows of profiled launches by table, in their order; with several jobs they are made meanwhile, elsewhere."""
    if jobs < 2 or len(records) < 2:
        yield map(_rows_of_profile, records)
        return
    with forked(jobs) as pool:
        yield pool.imap(_rows_of_profile, records)


def _rows_of_profile(one: tuple[Path, ProfileRecord]) -> dict[str, list[Row]]:
    path, record = one
    profile = ProfileRows(record, path.parent)
    return {
        "metrics": profile.metrics(),
        "operators": profile.operator_rows(),
        "families": profile.family_rows(),
        "samples": profile.sample_rows(),
        "steps": profile.step_rows(),
        "device_samples": profile.device_sample_rows(),
        "fingerprints": profile.fingerprint_rows(),
    }


def _rows_of_stacks(
    records: Sequence[tuple[Path, ProfileRecord]], other: Sequence[tuple[Path, ProfileRecord]]
) -> Iterator[Row]:
    """Profiled launches in other stacks, behind the headline's of the same workload in the same environment."""
    places = list(dict.fromkeys((one.workload, one.env) for _, one in other))
    for place in places:
        for path, record in (*records, *other):
            if (record.workload, record.env) == place:
                yield from stack_profile_rows(record, path.parent)


def _scaled(campaign: SealedCampaign, batch: int | None) -> str | None:
    """What of a campaign's jobs is not as it was published, at a batch; None where its plan says nothing of it.

    Groups have their own number of steps; with a co-runner there are two jobs.
    """
    part, where = campaign.plan.part or {}, f"{campaign.path}: part"
    settings = (part.get("workloads") or {}).get(campaign.workload)
    found = []
    if settings is not None and "published" in settings:
        kept = {key: value for key, value in settings.items() if key in Batch.model_fields}
        steps = (part.get("distributed") or {}).get("steps")
        found.append(parse(Batch, kept, where).scaled(campaign.workload, batch, steps))
    if campaign.plan.scenario == SHARED and part.get("shared"):
        is_small = campaign.arm is not None and campaign.arm.name == SMALL_CO_RUNNER
        found.append(parse(Shared, part["shared"], where).scaled_co_runner(is_small=is_small))
    return "; ".join(text for text in found if text) or None


def refuse_mixtures(campaigns: Sequence[SealedCampaign], margins: Mapping[str, float] | None = None) -> None:
    """One comparison, one campaign, one margin.

    Raises UserError: two campaigns of the same comparison, campaigns with different margins, or margins that are
    not the study's any more; the records are named.
    """
    seen: dict[tuple[Any, ...], Path] = {}
    first: tuple[Path, Mapping[str, float]] | None = None
    for sealed, plan in ((one.path, one.plan) for one in campaigns):
        key = (plan.kind, plan.workload, plan.arm, plan.scenario, tuple(sorted(plan.launch_names)))
        if key in seen:
            raise UserError(
                f"{seen[key]} and {sealed} are two campaigns of one comparison ({plan.kind} of "
                f"{plan.workload}): units of different campaigns are never pooled; name one of them"
            )
        seen[key] = sealed
        own = plan.margins
        if own is None:
            continue
        if margins is not None and dict(own) != dict(margins):
            raise UserError(
                f"{sealed} was planned with the margins {_shown(own)}, the study says {_shown(margins)}: margins "
                "are set before the data; restore them, or run the campaign again"
            )
        if first is not None and dict(first[1]) != dict(own):
            raise UserError(
                f"{first[0]} and {sealed} were planned with different margins ({_shown(first[1])} and "
                f"{_shown(own)}): run one of them again"
            )
        first = first or (sealed, own)


def _shown(margins: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in sorted(margins.items()))


def _refuse_several(what: str, records: Sequence[tuple[Path, str]]) -> None:
    """Records of one study and of one machine make a table."""
    first: dict[str, Path] = {}
    for path, name in records:
        first.setdefault(name, path)
    if len(first) > 1:
        listed = ", ".join(f"{name} ({path})" for name, path in first.items())
        raise UserError(f"records of different {what} can't be compared: {listed}")


def _campaign(sealed: Path) -> SealedCampaign:
    """A sealed campaign, whose folder has its name and is in that of its workload and its machine."""
    found = read_sealed(sealed)
    if found.plan.workload != found.workload:
        raise IntegrityError(
            f"{sealed} is of workload {found.plan.workload!r} but is under {found.workload!r}: run it again"
        )
    under, own = sealed.parent.parent.parent.name, found.plan.machine.name
    if under != own and recorded_machine(sealed) is None:
        raise IntegrityError(f"{sealed} is of machine {own!r} but is under {under!r}: move it back")
    if found.key.kind != found.kind:
        raise IntegrityError(f"{sealed} is a campaign of {found.kind} but is under {found.name!r}: run it again")
    return found


def write(built: dict[str, pd.DataFrame], folder: Path, only: Sequence[str] | None = None) -> None:
    """Write tables as CSV, the metrics also as Parquet, the decisions as JSON."""
    for name in only or built:
        if name not in built:
            raise UserError(f"no table {name!r} (known: {', '.join(built)})")
        paths = [folder / f"{name}.csv"]
        paths += [folder / f"{name}.{ALSO[name]}"] if name in ALSO else []
        tables.write(name, built[name], *paths)
