"""A study's claims against its own figures and logs: does what it shows say what it says?

Each claim is held against every figure that it names and against the logs. `highest` and `lowest` compare values;
`equal` asks whether largest and smallest differ by no more than EQUAL_WITHIN. A comparison is clear where neither
errors of reading a height off a figure nor the spread between its runs could turn it. Where there is one run in
each environment no spread stands behind it: numbers as claimed may still be chance, and establish nothing. Where a
claim is held against several numbers of one run, such as its last step and the mean of its steps, each may be off
by as much as they lie apart. Orders of models, and what is paid back, are in modules of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from tare.literature import order_claims, repaid_claims
from tare.literature.figure_values import logged
from tare.literature.finding import Finding, amount, listed, words, yes_no
from tare.literature.published import Published
from tare.literature.published_file import AT_LEAST, BOUNDED, OF_TWO, ORDERED, REPAYS, Claim
from tare.literature.shown import Shown, apart
from tare.literature.vocabulary import FIGURE_METRICS, RATES, SLOWDOWN
from tare.model.registry import HOST
from tare.stats.intervals import t_quantile

# A study that says "the same" names no margin; this is what we allow a whole run before we call it different.
EQUAL_WITHIN = 0.05
ARCHITECTURE = re.compile(r"compute_\d+")
SET_METRICS = {"kernels_differ": "kernels", "same_files": "binaries"}
ALPHA = 0.05  # of the difference of two means of several runs
CONTRADICTED, ESTABLISHED = "contradicted", "established by its data"
NOT_ESTABLISHED, NO_DATA = "not established by its data", "not recomputable"


def shown(published: Published, claim: Claim, workload: str) -> list[Shown]:
    """The claim held against each figure that it names and against the logs; empty where they hold nothing."""
    if claim.rule in SET_METRICS:
        return _sets(published, claim, workload)
    if claim.rule in OF_TWO:  # of figures without values alone
        return []
    if claim.rule == ORDERED:
        return order_claims.shown(published, claim, workload)
    if claim.rule == REPAYS:
        return repaid_claims.shown(published, claim, workload)
    found = []
    figures = published.figures
    for metric in claim.metrics:
        for figure in claim.figures:
            own = figures[
                (figures["figure"] == figure) & (figures["workload"] == workload) & (figures["metric"] == metric)
            ]
            if len(own):
                values = dict(zip(own["env"], own["value"], strict=True))
                if (claim.env or HOST) not in values:
                    continue  # the figure does not show what the claim is about
                found.append(_compare(claim, metric, figure, values, str(own["unit"].iloc[0]), _doubt(own)))
        logs = [one for one in logged(published, metric) if one.workload == workload and one.series != "batches"]
        if logs:
            values = {one.env: one.value for one in logs}
            unit = FIGURE_METRICS[metric]
            found.append(_compare(claim, metric, "log", values, unit, Doubt(error=0.0, chance=0.0, repeated=False)))
    return found + _stated(published, claim, workload)


def _stated(published: Published, claim: Claim, model: str) -> list[Shown]:
    """The claim held against what text, files and tables state of a model in two environments or more."""
    stated = {name: facts for name in claim.facts if (facts := published.of_model(name, model))}
    values = {
        name: {env: fact.quantity.value for env, fact in facts.items() if fact.quantity}
        for name, facts in stated.items()
    }
    doubt = Doubt(
        error=apart(values.values()), chance=0.0, repeated=False, of="numbers that its data give for one run"
    )
    found = []
    for name, numbers in values.items():
        if len(numbers) > 1:
            where = next(iter(stated[name].values())).where
            unit = FIGURE_METRICS[claim.metrics[0]]
            source = "log" if where == "logs" else where
            found.append(_compare(claim, claim.metrics[0], source, numbers, unit, doubt, name))
    return found


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """How far a figure's values are to be trusted, in their base unit.

    Attributes:
        error: of reading a height.
        chance: half-width of Student's interval of the difference of two means of several runs; 0 with one run.
        repeated: whether there are several runs and their spread.
        of: what the error is of.
    """

    error: float
    chance: float
    repeated: bool
    of: str = "reading two heights"


def _doubt(rows: pd.DataFrame) -> Doubt:
    """Of a figure's rows."""
    error, runs = float(rows["error"].fillna(0).max()), rows["runs"].min()
    if pd.isna(runs):
        return Doubt(error=error, chance=0.0, repeated=False)
    chance = t_quantile(ALPHA, 2 * (int(runs) - 1)) * float(rows["spread"].max()) * math.sqrt(2 / int(runs))
    return Doubt(error=error, chance=chance, repeated=True)


def _place(source: str) -> str:
    if source == "log":
        return "the logs"
    return f"figure {source}" if source.isdecimal() else source


def _compare(
    claim: Claim,
    metric: str,
    source: str,
    values: Mapping[str, float],
    unit: str,
    doubt: Doubt,
    name: str | None = None,
) -> Shown:
    """Values by environment as the claim has them; `name` is theirs, where it is not the metric's."""
    # Each of two values may be off by the error, and their difference by chance.
    error = doubt.error + doubt.chance / 2
    numbers = listed([f"{env} {amount(value, unit)}" for env, value in values.items()])
    called = words(metric) if name is None else f"{words(metric)} ({name})"
    note = f"{called} in {_place(source)}: {numbers}"
    if claim.rule == "equal":
        low, high = min(values.values()), max(values.values())
        apart = high / low - 1
        holds = apart <= EQUAL_WITHIN
        surely = ((high + error) / (low - error) - 1) if holds else ((high - error) / (low + error) - 1)
        clear = (surely <= EQUAL_WITHIN) == holds
        across = f"could move that across {EQUAL_WITHIN:.0%}"
        open_end = f"; an error of {amount(error, unit)} in each {across}"
        if doubt.of != Doubt.of:
            open_end = f"; {doubt.of} lie up to {amount(error, unit)} apart, which {across}"
        shares = f"{apart:.3%}" if apart < 0.001 else f"{apart:.1%}"
        note += f", {shares} between smallest and largest"
        claimed, against = high, low
    elif claim.rule in BOUNDED:
        assert claim.bound is not None
        bound, least = claim.bound.value / 100, claim.rule == AT_LEAST
        # A slow-down by a neighbour is a ratio by itself: to the same environment without one.
        than, host = ("without a neighbour", 1.0) if metric == SLOWDOWN else (HOST, values[HOST])
        judged = [value for env, value in values.items() if env != HOST or not least or metric == SLOWDOWN]
        claimed, against = (min if (metric in RATES) != least else max)(judged), host
        worse = (host - claimed if metric in RATES else claimed - host) / host
        holds, clear = (worse >= bound if least else worse <= bound), abs(worse - bound) > 2 * error / host
        open_end = f", by less than what errors of {amount(error, unit)} each could turn"
        which = "least" if least else "worst"
        note += f"; the {which} is {worse:.1%} worse than {than}, where {bound:.0%} is claimed"
    else:
        assert claim.env is not None
        claimed = values[claim.env]
        others = [value for env, value in values.items() if env != claim.env]
        against = max(others) if claim.rule == "highest" else min(others)
        gap = claimed - against if claim.rule == "highest" else against - claimed
        holds, clear = gap > 0, abs(gap) > 2 * error
        chance = " and chance" if doubt.chance else ""
        open_end = f", by less than the errors of reading two heights{chance}, {amount(error, unit)} each"
        if doubt.of != Doubt.of:
            open_end = f"; {doubt.of} lie up to {amount(error, unit)} apart, so that this may be chance"
        note += f"; {claim.env} is {'' if holds else 'not '}the {claim.rule}"
    if not clear:
        note += open_end
    return Shown(
        source=source,
        metric=metric,
        holds=holds,
        clear=clear,
        repeated=doubt.repeated,
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
    if claim.rule == "kernels_differ":
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
    return [Shown(source="log", metric=SET_METRICS[claim.rule], holds=holds, clear=True, note=note)]


def _architectures(names: Sequence[str] | set[str]) -> list[str]:
    return sorted({match for name in names for match in ARCHITECTURE.findall(name)})


def verdict(published: Published, claim: Claim, workload: str, *, is_told: bool) -> tuple[str, str]:
    """What the study's own data say of a claim, and the sentence for it.

    `is_told`: whether the audit says what of the study can't be recomputed, so that a reader can be sent there.

    CONTRADICTED where a figure or the logs clearly show otherwise. ESTABLISHED where all clearly show it, each from
    several runs with a spread. NOT_ESTABLISHED where they are as claimed without one, or where reading errors or
    chance leave it open. NO_DATA where there are no data.
    """
    found = shown(published, claim, workload)
    if not found:
        there = "; what can't be recomputed stands among its numbers, done again" if is_told else ""
        return NO_DATA, f"The study's data do not hold what this would take{there}."
    note = f"{'; '.join(one.note for one in found)}."
    if not all(one.repeated for one in found):
        note += " One run in each environment, so no spread."
    if any(one.clear and not one.holds for one in found):
        return CONTRADICTED, _capital(note)
    if all(one.clear and one.holds and one.repeated for one in found):
        return ESTABLISHED, _capital(note)
    return NOT_ESTABLISHED, _capital(note)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def findings(published: Published) -> list[Finding]:
    """A row for each claim, workload, and figure or log that it is held against."""
    found = []
    for claim in published.claims:
        for workload in claim.subjects:
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
