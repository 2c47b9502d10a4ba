"""A study's claims against its own figures and logs: does what it shows say what it says?

Each claim is held against every figure that it names and against the logs. `highest` and `lowest` compare values;
`equal` asks whether largest and smallest differ by no more than EQUAL_WITHIN. A comparison is clear where errors of
reading a height off a figure could not turn it. There is one run in each environment, so that no spread stands
behind any of this: a claim that its own numbers bear out may still be chance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.literature.figure_values import logged
from tare.literature.finding import Finding, amount, listed, words, yes_no
from tare.literature.published import Published
from tare.literature.published_file import Claim

# A study that says "the same" names no margin; this is what we allow a whole run before we call it different.
EQUAL_WITHIN = 0.05
ARCHITECTURE = re.compile(r"compute_\d+")
SET_METRICS = ("kernels", "binaries")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One claim held against one figure or the logs.

    Attributes:
        source: number of a figure, or `log`.
        metric: of the values.
        holds: whether the values are as claimed.
        clear: whether reading errors could not turn that.
        note: the values.
        claimed, against: the two values that decide, in base units of `unit`; None for sets.
        unit: of these.
    """

    source: str
    metric: str
    holds: bool
    clear: bool
    note: str
    claimed: float | None = None
    against: float | None = None
    unit: str = "1"


def shown(published: Published, claim: Claim, workload: str) -> list[Shown]:
    """The claim held against each figure that it names and against the logs; empty where they hold nothing."""
    if claim.metrics[0] in SET_METRICS:
        return _sets(published, claim, workload)
    found = []
    figures = published.figures
    for metric in claim.metrics:
        for figure in claim.figures:
            own = figures[
                (figures["figure"] == figure) & (figures["workload"] == workload) & (figures["metric"] == metric)
            ]
            if len(own):
                values = dict(zip(own["env"], own["value"], strict=True))
                error = float(own["error"].fillna(0).max())
                found.append(_compare(claim, metric, figure, values, error, str(own["unit"].iloc[0])))
        logs = [one for one in logged(published, metric) if one.workload == workload and one.series != "batches"]
        if logs:
            values = {one.env: one.value for one in logs}
            unit = str(figures.loc[figures["metric"] == metric, "unit"].iloc[0])
            found.append(_compare(claim, metric, "log", values, 0.0, unit))
    return found


def _compare(claim: Claim, metric: str, source: str, values: Mapping[str, float], error: float, unit: str) -> Shown:
    place = "the logs" if source == "log" else f"figure {source}"
    numbers = listed([f"{env} {amount(value, unit)}" for env, value in values.items()])
    note = f"{words(metric)} in {place}: {numbers}"
    if claim.relation == "equal":
        low, high = min(values.values()), max(values.values())
        apart = high / low - 1
        holds = apart <= EQUAL_WITHIN
        surely = ((high + error) / (low - error) - 1) if holds else ((high - error) / (low + error) - 1)
        clear = (surely <= EQUAL_WITHIN) == holds
        open_end = f"; an error of {amount(error, unit)} in reading each could move that across {EQUAL_WITHIN:.0%}"
        shares = f"{apart:.3%}" if apart < 0.001 else f"{apart:.1%}"
        note += f", {shares} between smallest and largest"
        claimed, against = high, low
    else:
        assert claim.env is not None
        claimed = values[claim.env]
        others = [value for env, value in values.items() if env != claim.env]
        against = max(others) if claim.relation == "highest" else min(others)
        gap = claimed - against if claim.relation == "highest" else against - claimed
        # Both heights were read off: each may be wrong by the error.
        holds, clear = gap > 0, abs(gap) > 2 * error
        open_end = f", by less than the errors of reading two heights, {amount(error, unit)} each"
        note += f"; {claim.env} is {'' if holds else 'not '}the {claim.relation}"
    if not clear:
        note += open_end
    return Shown(
        source=source,
        metric=metric,
        holds=holds,
        clear=clear,
        note=note,
        claimed=claimed,
        against=against,
        unit=unit,
    )


def _sets(published: Published, claim: Claim, workload: str) -> list[Shown]:
    """Names of kernels, and the architectures that the binaries were built for, as the logs list them."""
    kernels = {env: set(names) for (name, env), names in published.kernels_listed.items() if name == workload}
    if len(kernels) < 2:
        return []
    if claim.metrics[0] == "kernels":
        assert claim.env is not None
        others = [names for env, names in kernels.items() if env != claim.env]
        holds = all(kernels[claim.env] != names for names in others)
        common = kernels[claim.env].intersection(*others)
        counts = listed([f"{env} {len(names)}" for env, names in kernels.items()])
        own = sorted(kernels[claim.env].difference(*others))
        theirs = sorted(set().union(*others) - kernels[claim.env])
        note = f"kernels in the logs: {counts}; {len(common)} in common"
        if own and theirs:
            note += f"; on {claim.env} alone {', '.join(own)}; on others alone {', '.join(theirs)}"
    else:
        built = {env: _architectures(names) for env, names in kernels.items()}
        holds = len({tuple(names) for names in built.values()}) == 1
        note = "kernels in the logs were built for " + listed(
            [f"{', '.join(names) or 'no architecture named'} on {env}" for env, names in built.items()]
        )
        if not holds:
            note += ": they are of different builds of the framework"
    return [Shown(source="log", metric=claim.metrics[0], holds=holds, clear=True, note=note)]


def _architectures(names: Sequence[str] | set[str]) -> list[str]:
    return sorted({match for name in names for match in ARCHITECTURE.findall(name)})


def verdict(published: Published, claim: Claim, workload: str) -> tuple[str, str]:
    """What the study's own data say of a claim, and the sentence for it.

    `contradicted` where a figure or the logs clearly show otherwise; `supported` where all clearly show it;
    `not recomputable` where there are no data, or where reading errors leave it open.
    """
    found = shown(published, claim, workload)
    if not found:
        return (
            "not recomputable",
            "The logs do not hold what this would take; see what cannot be done again, below.",
        )
    note = f"{'; '.join(one.note for one in found)}. One run in each environment, so no spread."
    if any(one.clear and not one.holds for one in found):
        return "contradicted", _capital(note)
    if all(one.clear and one.holds for one in found):
        return "supported", _capital(note)
    return "not recomputable", _capital(note)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def findings(published: Published) -> list[Finding]:
    """A row for each claim, workload, and figure or log that it is held against."""
    found = []
    for claim in published.claims:
        for workload in claim.workloads:
            for one in shown(published, claim, workload):
                found.append(
                    Finding(
                        figure=one.source,
                        check="contradiction",
                        workload=workload,
                        env=claim.env,
                        metric=one.metric,
                        unit=one.unit,
                        published=one.claimed,
                        recomputed=one.against,
                        agrees=yes_no(one.holds),
                        note=f"The paper: {claim.statement} {_capital(one.note)}.",
                    )
                )
    return found
