"""Values of a unit: what each of its launches took, by the fit of the unit's kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tare.model.journals.ledger import Ratios
from tare.model.journals.units import counted, in_slices, measured_steps, real_s
from tare.model.records.campaigns import Plan, Unit
from tare.model.studies.layout import ROUNDS
from tare.stats.intervals import log_ratios_of
from tare.stats.sliced.steps import step_seconds


def run_values(unit: Unit) -> dict[str, float]:
    """Real time of each whole run that succeeded, seconds."""
    return {name: real_s(launch) for name, launch in unit.launches.items() if launch.ok}


def step_values(unit: Unit, level: str) -> dict[str, float]:
    """Seconds of a training step of each launch of a round, at a level of the allocator.

    Launch + row by medians of pairs (tare.stats.sliced.steps): a row is a replicate's step, which all launches
    of a sliced round make at nearly the same moment. Launches that measured no steps are left out.
    """
    own = {name: measured_steps(launch, level) for name, launch in unit.launches.items() if launch.ok}
    own = {name: steps for name, steps in own.items() if steps}
    if unit.voided is not None or not own:
        return {}
    longest = max(map(len, own.values()))
    matrix = np.full((longest, len(own)), np.nan)
    for column, steps in enumerate(own.values()):
        matrix[: len(steps), column] = np.log(steps)
    if len(own) == 1:
        return {name: float(np.median(steps)) for name, steps in own.items()}
    return step_seconds(matrix, list(own))


def decisive_ratios(
    plan: Plan, units: Sequence[Unit], values: Callable[[Unit], Mapping[str, float]]
) -> dict[str, list[float]]:
    """Log-ratios by which a number of units is decided: of launches in slices, where there are any.

    Others vary far more, and have no say then.
    """
    names, together = in_slices(plan, units)
    found = [values(unit) for unit in together or counted(units)]
    return log_ratios_of(found, names if together else plan.launch_names)


def ratios_of(plan: Plan, units: Sequence[Unit]) -> dict[str, Ratios]:
    """Log-ratios of a campaign's launches to the host in what it decides on, for the ledger; none of some kinds."""
    if plan.kind != ROUNDS:
        return {}
    logs = log_ratios_of([run_values(unit) for unit in units], plan.launch_names)
    return {
        name: Ratios(n=len(own), mean=float(np.mean(own)), sd=float(np.std(own, ddof=1)) if len(own) > 1 else None)
        for name, own in logs.items()
        if own
    }
