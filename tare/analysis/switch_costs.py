"""What it costs to stop a launch and start it again, and ratios without that (tare.stats.sliced.switches).

The cost is measured by environment, in training steps. Between gates slices are equally long for all, so that a
common cost leaves the ratio of steps alone. Outside of them a longer launch has longer slices, not more:
switches are a smaller share of its time. Ratios of whole runs are corrected for that, by one cost for all
launches. An environment whose own cost differs from that of the hosts is named with its verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.analysis.sliced_rounds import sliced_units, terms_of
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import TRAIN
from tare.model.records.launches import LaunchRecord, TrainResults
from tare.model.records.slices import Slices
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import Estimate
from tare.stats.sliced.switches import SwitchCost, SwitchCosts, at_long_quantum, switch_cost

NOTE_ALPHA = 0.01  # of the interval of an environment's difference, beyond which it is named
NOTE_SHARE = 0.25  # of the margin, which the difference has to move a ratio by


@dataclass(frozen=True, kw_only=True)
class Switching:
    """Costs of a switch in a campaign, and how often launches are stopped in a second of their time."""

    costs: SwitchCosts  # seconds
    # of whole runs, start and exit included, without the window in which they measure steps
    rates: Mapping[str, float]
    step_rates: Mapping[str, float]  # of measured steps

    def at_long_quanta(self, found: Estimate, env: str) -> Estimate:
        """A log-ratio of whole runs as it would be with slices without end; lasting errors are added up."""
        if env not in self.rates:
            return found
        corrected = at_long_quantum(found, self.costs, env, (self.rates[env], self._host_rate), alike=True)
        if found.lasting is None or corrected.lasting is None:
            return replace(corrected, lasting=corrected.lasting or found.lasting)
        return replace(corrected, lasting=found.lasting.plus(corrected.lasting))

    def more_than_hosts(self, env: str) -> SwitchCost | None:
        """Seconds by which a switch costs an environment more than the hosts; None where nobody can say."""
        found = self.costs.to_host.get(env)
        return found if found is not None and found.seconds is not None else None

    def note(self, env: str, margin: float, *, steps: bool) -> str | None:
        """What is said of an environment that a switch costs otherwise than the hosts; None of others.

        `steps`: of its training steps, else of whole runs.
        """
        more, rate = self.more_than_hosts(env), (self.step_rates if steps else self.rates).get(env)
        if more is None or more.seconds is None or rate is None:
            return None
        share = more.seconds * rate
        if not more.interval(NOTE_ALPHA).excludes_zero or abs(share) <= NOTE_SHARE * margin:
            return None
        way = "more" if share > 0 else "less"
        return (
            f"to be stopped and started costs it {1e3 * abs(more.seconds):.2f} ms {way} than the host each time, "
            f"{abs(share):.1%} of its own time, which the ratio holds"
        )

    @property
    def _host_rate(self) -> float:
        return float(np.mean([self.rates[name] for name in (HOST, CONTROL) if name in self.rates]))


def switching(campaign: SealedCampaign) -> Switching | None:
    """Costs and rates of a campaign in slices; None where its launches time no steps, or too few."""
    names = list(campaign.plan.launch_names)
    wanted = set(sliced_units(campaign))
    units = [unit for unit in campaign.counted if unit.unit in wanted]
    rounds = [_round(unit.launches, names) for unit in units]
    if not rounds or not {HOST, CONTROL} <= set(names):
        return None
    steps = max(table.shape[1] for table in rounds)
    if steps == 0:
        return None
    own, switches, assigned = np.moveaxis(np.array([_padded(table, steps) for table in rounds]), 1, 0)
    rates, step_rates = {}, {}
    for number, name in enumerate(names):
        parts = [part for unit in units if (part := _whole_run_switches(unit.launches.get(name))) is not None]
        if parts:
            rates[name] = sum(count for count, _ in parts) / sum(seconds for _, seconds in parts)
        seen = np.isfinite(own[:, :, number])
        if seen.any():
            step_rates[name] = float(switches[:, :, number][seen].sum() / own[:, :, number][seen].sum())
    if not {HOST, CONTROL} <= rates.keys():
        return None
    return Switching(costs=switch_cost(own, switches, assigned, names), rates=rates, step_rates=step_rates)


def _whole_run_switches(launch: LaunchRecord | None) -> tuple[int, float] | None:
    """Slices of a whole run outside of its gates, and its seconds; None of one that was not sliced or failed."""
    terms = terms_of(launch)
    if launch is None or launch.slices is None or not launch.slices.is_sliced or terms is None:
        return None
    gates = launch.slices.gates_us or (0, 0)
    outside = sum(not gates[0] <= began < gates[-1] for began in launch.slices.began_us)
    return outside, terms.start_s + terms.body_s + terms.exit_s


def _round(launches: Mapping[str, LaunchRecord], names: Sequence[str]) -> np.ndarray:
    """Shape [3, steps, launches]: own seconds of each step, switches in it, and what was assigned over it."""
    columns = [_steps(launches.get(name)) for name in names]
    most = max(column.shape[1] for column in columns)
    found: np.ndarray = np.stack([_padded(column[:, :, None], most)[:, :, 0] for column in columns], axis=2)
    return found


def _padded(table: np.ndarray, steps: int) -> np.ndarray:
    found: np.ndarray = np.pad(table, ((0, 0), (0, steps - table.shape[1]), (0, 0)), constant_values=np.nan)
    return found


def _steps(launch: LaunchRecord | None) -> np.ndarray:
    """Shape [3, steps] of one launch, in order; without steps where it was not in slices."""
    empty = np.empty((3, 0))
    if launch is None or not launch.ok or launch.slices is None or not launch.slices.is_sliced:
        return empty
    inside = launch.inside
    if inside is None or inside.mode != TRAIN:
        return empty
    replicates = [one for one in inside.results_as(TrainResults).replicates if one.step_ends_ns]
    found = [
        _between(launch.slices, np.array([one.started_ns, *(one.step_ends_ns or ())], dtype=float))
        for one in replicates
    ]
    joined: np.ndarray = np.concatenate([empty, *found], axis=1)
    return joined


def _between(slices: Slices, instants_ns: np.ndarray) -> np.ndarray:
    """Shape [3, instants less one] between consecutive instants of own time."""
    at = (instants_ns - slices.arrived_ns) / 1e9
    ends = np.cumsum(slices.quiet_us) / 1e6
    starts = np.concatenate([[0.0], ends[:-1]])
    quanta = np.array(slices.quantum_ms, dtype=float)
    per_second = np.divide(1e3, quanta, out=np.zeros_like(quanta), where=quanta > 0)  # what ran whole has none
    begun = np.searchsorted(starts[1:], at, side="left")  # switches before each instant
    owed = np.interp(
        at, np.concatenate([[0.0], ends]), np.concatenate([[0.0], np.cumsum(per_second * (ends - starts))])
    )
    lasted = np.diff(at)
    found: np.ndarray = np.stack([lasted, np.diff(begun).astype(float), np.diff(owed) / lasted])
    return found
