"""Judges what a published study claims, from the instrument's own tables and never by eye.

Every claim gets two answers: what the study's own figures and logs say (tare.literature.own_claims), and what this
machine says. The second is `supported`, `contradicted` or `not testable here`, by these rules. Intervals are of
ratios to the host, Bonferroni over environments; the paper's environments decide (host, docker, apptainer), others
are told.

equal: supported where every interval lies inside the margin (`equivalent`, or `different within margin`),
contradicted where one verdict is `different`, else not testable: inconclusive.
lowest (highest) of an environment: supported where its interval lies below (above) 1 and those of all others;
contradicted where it lies above (below) 1 or that of another. Of the host: against the intervals of all others.
kernels differ: host and second host must always run the same kernels, or nothing can be told. Contradicted where
every container always runs the host's kernels from the same files of the stack; supported where one runs others
from the same files.
binaries equal: supported where the shared libraries of the stack that each environment mapped are the same bytes.
A metric without an interval (unavailable, or one launch in each environment) is not testable here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.analysis.causes import SetComparison, compare_sets
from tare.analysis.metrics import pivot
from tare.analysis.verdicts import log_ratios
from tare.literature import own_claims
from tare.literature.audit import Here
from tare.literature.finding import amount, listed, words
from tare.literature.published import Published
from tare.literature.published_file import FIGURE_METRICS, Claim
from tare.model import tables
from tare.model.registry import CONTROL, HOST
from tare.model.study import is_headline
from tare.stats.intervals import judge, more_units, t_interval

PAPERS = ("docker", "apptainer")  # beside the host
SUPPORTED, CONTRADICTED, UNTESTABLE = "supported", "contradicted", "not testable here"
WITHIN = ("equivalent", "different within margin")
MARGIN = 0.05  # of whole runs, where no verdict tells the study's
CONFIDENCE = 0.95
STACK = "{tree}/"
MODELS = {"flops": ("flops_per_step", "1"), "hbm_transactions": ("operator_bytes_per_step", "B")}


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """An environment by the host in one metric, with the interval that decides.

    Attributes:
        low, high: None where there are too few units for an interval.
        more: units that would settle it, where it is inconclusive and they are known.
    """

    env: str
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    margin: float
    units: int
    more: int | None

    def __str__(self) -> str:
        """As a sentence has it."""
        if self.ratio is None or self.low is None or self.high is None:
            return f"{self.metric} {self.env}: no interval from {self.units} units"
        more = f", about {_units(self.more)} would settle it" if self.more else ""
        interval = f"{_ratio(self.ratio)} [{_ratio(self.low)}, {_ratio(self.high)}]"
        return (
            f"{self.metric} {self.env} / host {interval}, {self.verdict} "
            f"(margin {self.margin:.0%}, {self.units} units{more})"
        )


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 100 else f"{value:.2g}"


def _units(count: int) -> str:
    return f"{count} more unit{'' if count == 1 else 's'}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What this machine says of a claim: one of SUPPORTED, CONTRADICTED, UNTESTABLE (with the reason)."""

    here: str
    evidence: str
    reason: str | None = None


def judge_claims(published: Published, here: Here) -> pd.DataFrame:
    """The table `claims`: one row per claim and workload."""
    rows = []
    for claim in published.claims:
        for workload in claim.workloads:
            says, note = own_claims.verdict(published, claim, workload)
            answer = _answer(claim, workload, here)
            rows.append(
                {
                    "paper": published.paper,
                    "claim": claim.id,
                    "workload": workload,
                    "figures": ", ".join(_figures(published, claim, workload)) or None,
                    "statement": claim.statement,
                    "published_says": says,
                    "published_note": note,
                    "here": answer.here,
                    "evidence": answer.evidence,
                    "reason": answer.reason,
                }
            )
    return tables.make("claims", rows)


def _figures(published: Published, claim: Claim, workload: str) -> list[str]:
    """The claim's figures of this workload."""
    own = published.figures.loc[published.figures["workload"] == workload, "figure"]
    return [figure for figure in claim.figures if (own == figure).any()]


def _answer(claim: Claim, workload: str, here: Here) -> Answer:
    if not (here.metrics["workload"] == workload).any():
        return _untestable("Nothing was measured.", "this workload is not part of this study")
    if claim.metrics[0] == "kernels":
        return _kernels(workload, here)
    if claim.metrics[0] == "binaries":
        return _binaries(workload, here)
    found = [ratio for metric in claim.metrics for ratio in ratios(here, workload, metric)]
    deciding = [one for one in found if one.env in PAPERS and one.low is not None]
    evidence = _sentence([str(one) for one in found]) or _modelled(claim, workload, here)
    told = {(one.env, one.metric) for one in deciding}
    missing = [env for env in PAPERS if any((env, metric) not in told for metric in claim.metrics)]
    answer = _equal(deciding) if claim.relation == "equal" else _extreme(claim, deciding)
    if answer == CONTRADICTED or (answer == SUPPORTED and not missing):
        return Answer(here=answer, evidence=evidence)
    if missing:
        return _untestable(evidence, _why_missing(claim, workload, here, missing, found))
    settle = [one.more for one in deciding if one.verdict == "inconclusive" and one.more]
    more = f"; about {_units(max(settle))} would settle it" if settle else ""
    return _untestable(evidence, f"the intervals leave it open{more}")


def _untestable(evidence: str, reason: str) -> Answer:
    return Answer(here=UNTESTABLE, evidence=evidence, reason=reason)


def _sentence(parts: Sequence[str]) -> str:
    return f"{'; '.join(parts)}." if parts else ""


def _equal(found: Sequence[Ratio]) -> str:
    if any(one.verdict == "different" for one in found):
        return CONTRADICTED
    return SUPPORTED if found and all(one.verdict in WITHIN for one in found) else UNTESTABLE


def _extreme(claim: Claim, found: Sequence[Ratio]) -> str:
    """Highest or lowest, by intervals that do not meet; `highest` is `lowest` of the inverse ratios."""
    sign = 1 if claim.relation == "lowest" else -1
    spans = {HOST: (1.0, 1.0)}
    for one in found:
        assert one.low is not None and one.high is not None
        spans[one.env] = (one.low, one.high)
    if claim.env not in spans:
        return UNTESTABLE
    low, high = spans.pop(claim.env)
    below = [high < other[0] if sign > 0 else low > other[1] for other in spans.values()]
    above = [low > other[1] if sign > 0 else high < other[0] for other in spans.values()]
    if any(above):
        return CONTRADICTED
    return SUPPORTED if below and all(below) else UNTESTABLE


def ratios(here: Here, workload: str, metric: str) -> list[Ratio]:
    """Every environment by the host: from the verdicts of the headline's rounds, else from measured repetitions."""
    own = here.verdicts[(here.verdicts["workload"] == workload) & (here.verdicts["reference"] == HOST)]
    headline = own[own["campaign"].map(lambda name: is_headline(name, "rounds")).astype(bool)]
    chosen = headline[headline["metric"] == metric]
    if len(chosen):
        return [_of_verdict(row) for row in chosen.itertuples()]
    margin = float(headline["margin"].iloc[0]) if len(headline) else MARGIN
    return _of_metrics(here.metrics, workload, metric, margin)


def _of_verdict(row: Any) -> Ratio:
    numbers = {name: _number(getattr(row, name)) for name in ("ratio", "ci_low", "ci_high")}
    return Ratio(
        env=row.env, metric=row.metric, ratio=numbers["ratio"], low=numbers["ci_low"], high=numbers["ci_high"],
        verdict=row.verdict, margin=float(row.margin), units=int(row.n_units),
        more=None if pd.isna(row.more_units) else int(row.more_units),
    )  # fmt: skip


def _number(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def _of_metrics(metrics: pd.DataFrame, workload: str, metric: str, margin: float) -> list[Ratio]:
    """Intervals of a metric that has no verdicts: measured in units that hold two hosts and every environment."""
    own = metrics[
        (metrics["workload"] == workload)
        & (metrics["metric"] == metric)
        & (metrics["kind"] == "measured")
        & metrics["rep"].notna()
    ]
    own = own[own["campaign"].map(lambda name: name.count(".") == 1).astype(bool)]
    if len(own):  # units of two campaigns are never pooled
        own = own[own["campaign"] == own["campaign"].value_counts().idxmax()]
    values = pivot(own, metric) if len(own) else pd.DataFrame()
    others = [env for env in values.columns if env not in (HOST, CONTROL)]
    if not {HOST, CONTROL} <= set(values.columns) or not others:
        return []
    alpha = (1 - CONFIDENCE) / len(others)
    found = []
    for env in others:
        logs = log_ratios(values, env)
        interval = t_interval(logs.to_numpy(), alpha)
        if interval.mean is None or interval.low is None or interval.high is None:
            continue
        ratio, low, high = (math.exp(value) for value in (interval.mean, interval.low, interval.high))
        verdict = judge(interval, margin)
        more = more_units(logs.to_numpy(), alpha, margin) if verdict == "inconclusive" else None
        found.append(
            Ratio(env=env, metric=metric, ratio=ratio, low=low, high=high, verdict=verdict, margin=margin,
                  units=interval.n, more=more)
        )  # fmt: skip
    return found


def _why_missing(claim: Claim, workload: str, here: Here, missing: Sequence[str], found: Sequence[Ratio]) -> str:
    """Why an environment of the paper has no interval in the claim's metrics."""
    single = {(one.env, one.metric) for one in found}
    reasons = []
    for env in missing:
        metric = next((name for name in claim.metrics if (env, name) not in single), claim.metrics[0])
        value = here.value(workload, env, metric)
        if value.kind == "unavailable":
            reason = value.note
        elif value.kind == "modelled":
            reason = f"{words(metric)} that ran take the device's counters; an operator count is a model"
        else:
            reason = f"one number of {metric} in {env}, and no interval"
        if reason not in reasons:
            reasons.append(reason)
    return "; ".join(reasons)


def _modelled(claim: Claim, workload: str, here: Here) -> str:
    """What a model says where the device has no counters: operator counts of one step in each environment."""
    for metric in claim.metrics:
        if metric not in MODELS:
            continue
        name, unit = MODELS[metric]
        own = here.metrics
        own = own[(own["workload"] == workload) & (own["metric"] == name) & (own["kind"] == "modelled")]
        if own.empty:
            continue
        counts = own.drop_duplicates("env").set_index("env")["value"]
        if counts.nunique() == 1:
            places = listed(list(counts.index))
            return f"A model, no measurement: {name} is {amount(counts.iloc[0], unit)} in {places}."
        told = [f"{env} {amount(value, unit)}" for env, value in counts.items()]
        return f"A model, no measurement: {name} is {listed(told)}."
    return _single(claim, workload, here) or "Nothing was measured."


def _single(claim: Claim, workload: str, here: Here) -> str:
    """Numbers of one launch in each environment: told, but no spread stands behind them."""
    told = []
    for metric in claim.metrics:
        for env in (HOST, *PAPERS):
            value = here.value(workload, env, metric)
            if value.value is not None and value.kind == "measured":
                told.append(f"{words(metric)} {env} {amount(value.value, FIGURE_METRICS[metric])} ({value.note})")
    return _sentence(told)


def stack_files(here: Here, workload: str) -> dict[str, dict[str, str]]:
    """By environment: hash of each library of the stack that a profiled launch mapped, by its path inside."""
    own = here.fingerprints
    own = own[(own["workload"] == workload) & (own["campaign"] == "profile") & own["path"].str.startswith(STACK)]
    return {str(env): dict(zip(rows["path"], rows["sha256"], strict=True)) for env, rows in own.groupby("env")}


def unequal_files(here: Here, workload: str) -> dict[str, list[str]] | None:
    """By environment: files of the stack unlike the host's, or on one side only; None without data."""
    files = stack_files(here, workload)
    host = files.pop(HOST, None)
    if not host or not files:
        return None
    return {
        env: sorted(path for path in {*host, *own} if host.get(path) != own.get(path)) for env, own in files.items()
    }


def _binaries(workload: str, here: Here) -> Answer:
    unequal = unequal_files(here, workload)
    if unequal is None:
        return _untestable("Nothing was measured.", "no profiled launch recorded which files it mapped")
    missing = [env for env in PAPERS if env not in unequal]
    count = len(stack_files(here, workload)[HOST])
    told = [
        f"{env} {'maps the same bytes' if not paths else f'differs in {len(paths)}: {paths[0]}'}"
        for env, paths in unequal.items()
    ]
    evidence = f"Of {count} files of the stack that the host maps: {'; '.join(told)}."
    if any(unequal[env] for env in PAPERS if env in unequal):
        return Answer(here=CONTRADICTED, evidence=evidence)
    if missing:
        return _untestable(evidence, f"{listed(missing)} did not run")
    return Answer(here=SUPPORTED, evidence=f"{evidence} The study makes it so: each environment gets one tree.")


def _kernels(workload: str, here: Here) -> Answer:
    if here.kernels is None:
        return _untestable("Nothing was measured.", "there is no table of kernels: no campaign of causes was run")
    causes = here.kernels["campaign"].map(lambda name: name.startswith("causes.") and name.count(".") == 1)
    own = here.kernels[(here.kernels["workload"] == workload) & causes.astype(bool)]
    compared = {one.env: one for one in compare_sets(own, operators=False)}
    what = "kernels"
    if not compared:
        compared = {one.env: one for one in compare_sets(own, operators=True)}
        what = "operators"
    if HOST not in compared:
        return _untestable("Nothing was measured.", "no campaign of causes counted kernels on two hosts")
    control = compared.pop(HOST)
    evidence = _sentence([_told(control, what), *(_told(one, what) for one in compared.values())])
    if not control.pairs or CONTROL not in set(own["env"]):
        return _untestable(evidence, "host was not compared with host: one of the two left no kernels")
    if control.equal < control.pairs:
        return _untestable(evidence, "two launches on the host do not always run the same")
    deciding = [one for env, one in compared.items() if env in PAPERS]
    files = unequal_files(here, workload)
    if files is None:
        return _untestable(evidence, "no profiled launch recorded which files it mapped")
    unknown = [one.env for one in deciding if one.env not in files]
    if unknown:
        return _untestable(evidence, f"no profiled launch of {listed(unknown)} recorded which files it mapped")
    same = all(not files.get(one.env, ["unknown"]) for one in deciding)
    if any(one.differs for one in deciding):
        return Answer(here=SUPPORTED, evidence=evidence) if same else _other_files(evidence)
    if len(deciding) < len(PAPERS):
        missing = [env for env in PAPERS if env not in compared]
        return _untestable(evidence, f"{listed(missing)} did not run")
    if any(one.equal < one.pairs for one in deciding):
        return _untestable(evidence, "some launches run what the host does and some do not")
    return Answer(here=CONTRADICTED, evidence=evidence) if same else _other_files(evidence)


def _other_files(evidence: str) -> Answer:
    return _untestable(
        evidence, "the environments mapped different files of the stack, where the claim has the same"
    )


def _told(one: SetComparison, what: str) -> str:
    place = "host with host" if one.env == HOST else f"host with {one.env}"
    differ = [*one.only_host, *one.only_here, *(name for name, _, _ in one.counts)]
    first = f", first {differ[0]}" if differ else ""
    return f"{place}: the same {what} in {one.equal} of {one.pairs} pairs of launches{first}"
