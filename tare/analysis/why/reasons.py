"""Why environments differ from the host: what was found of each, and the one reason that most speaks for.

Files, kernels, operators, phases and what stays without a suspect, of one workload, from the tables alone. A reason
has its evidence: what it names, and its share of the extra time where there is an interval of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import pandas as pd

from tare.analysis.choice import METRIC_OF, of_causes, of_rounds, share
from tare.analysis.why import causes, suspects
from tare.model.records.campaigns import VERDICT_UNITS
from tare.model.tables import DIFFERENT

MOST_SHARE = 2.0  # a share of files that may be twice everything says nothing
AROUND = ("runtime_start_s", "exit_s")  # what the runtime does, and not the program


class Cause(StrEnum):
    """What a difference is put down to."""

    NOTHING = "nothing"  # no difference was found
    VARIED = "varied"  # the one factor that was varied
    FILES = "files"  # reading the files of the imports
    PHASE = "phase"  # a part of the whole run, its own cause unknown
    ONCE = "once"  # of a job: what it pays once
    STEPS = "steps"  # of a job: what each step adds
    KERNELS = "kernels"  # other kernels or operators
    OPERATOR = "operator"  # an operator that takes longer or shorter
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """What a difference is put down to, with its evidence."""

    cause: Cause
    what: str | None = None  # the factor, metric, kernel or operator; None where there is none to name
    # `low`, `high`: its share of the extra time, where an interval gives it; None otherwise
    low: float | None = None
    high: float | None = None


NOTHING = Reason(cause=Cause.NOTHING)


def files_share(account: causes.FileAccount | None) -> tuple[float, float] | None:
    """The interval of the share of files, where it excludes none at all, and twice everything; else None."""
    if account is None or account.low is None or account.high is None:
        return None
    return (account.low, account.high) if account.low > 0 and account.high < MOST_SHARE else None


class Case:
    """What is known of one workload: of `made`, the tables metrics, verdicts, kernels and fingerprints.

    `workload`: its name. `made`: the tables by name. `confidence`: that the study asks for. `fewest`: units before
    anything is significant, by kind of campaign.
    """

    def __init__(
        self, workload: str, made: Mapping[str, pd.DataFrame], confidence: float, fewest: Mapping[str, int]
    ) -> None:
        self.workload, self.confidence, self.fewest = workload, confidence, fewest
        self.metrics, self.judged = (of_causes(made[name], workload) for name in ("metrics", "verdicts"))
        self.kernels = of_causes(made["kernels"], workload)
        self.rounds, self.verdicts = (of_rounds(made[name], workload) for name in ("metrics", "verdicts"))
        self.files = made["fingerprints"][made["fingerprints"]["workload"] == workload]

    @cached_property
    def environments(self) -> list[str]:
        """Those of which something was seen, without the host."""
        seen = {*causes.environments_of(self.metrics), *causes.environments_of(self.rounds), *self.files["launch"]}
        return sorted(seen - {*causes.HOSTS})

    @cached_property
    def times(self) -> list[causes.OperatorTime]:
        """Operators against the host's."""
        return causes.operator_times(self.kernels, self._alpha(self.judged), self._fewest("causes"))

    @cached_property
    def costs(self) -> list[causes.PhaseCost]:
        """Extra time by phase; the control's too."""
        return causes.phase_costs(self.rounds, self._alpha(self.verdicts), self._fewest("rounds"))

    @cached_property
    def accounts(self) -> dict[str, causes.FileAccount]:
        """What files account for, by environment."""
        alpha = min(self._alpha(self.verdicts), self._alpha(self.judged))
        return {one.env: one for one in causes.file_accounts(self.rounds, self.metrics, alpha)}

    @cached_property
    def differences(self) -> dict[str, list[suspects.FileDifference]]:
        """Mapped files that are not the host's, by environment; those without a record are left out."""
        found = {env: suspects.file_differences(self.files, env) for env in self.environments}
        return {env: files for env, files in found.items() if files is not None}

    @cached_property
    def sets(self) -> dict[str, list[causes.SetComparison]]:
        """Operators and kernels that launches ran, the host against itself first."""
        return {
            what: causes.compare_sets(self.kernels, operators=what == "operators")
            for what in ("operators", "kernels")
        }

    def significant_phases(self, env: str) -> list[causes.PhaseCost]:
        """Parts of the whole run whose extra time is significant, the largest first."""
        own = [
            one for one in self.costs if one.env == env and one.phase != METRIC_OF["rounds"] and one.is_significant
        ]
        return sorted(own, key=lambda one: -abs(one.extra.mean or 0.0))

    def suspicions(self, env: str) -> tuple[list[suspects.Suspicion], list[suspects.FileDifference]]:
        """Operators and parts of the program that differ, each with the files that differ and serve it."""
        operators = [one.operator for one in causes.differing_operators(self.times, env)]
        phases = [one for one in causes.differing_phases(self.verdicts, env) if one not in AROUND]
        return suspects.suspicions(operators, phases, self.differences.get(env, []))

    def of_run(self, env: str, *, longer: bool) -> Reason:
        """Why whole runs take longer, or shorter: the part that does most, or what reading its files takes."""
        phases = [one for one in self.significant_phases(env) if ((one.extra.mean or 0.0) > 0) == longer]
        if not phases:
            return Reason(cause=Cause.UNKNOWN)
        first, of_files = phases[0], files_share(self.accounts.get(env))
        if first.phase == "imports_s" and of_files is not None:
            return Reason(cause=Cause.FILES, what=first.phase, low=of_files[0], high=of_files[1])
        return Reason(cause=Cause.PHASE, what=first.phase, low=first.share, high=first.share)

    def of_step(self, env: str, *, longer: bool) -> Reason:
        """Why training steps take longer, or shorter: other kernels, or of the operators that do the largest."""
        for compared in self.sets.values():
            own = next((one for one in compared if one.env == env and one.differs), None)
            if own is not None:
                names = [*own.only_here, *own.only_host, *(name for name, _, _ in own.counts)]
                return Reason(cause=Cause.KERNELS, what=names[0])
        operators = [one for one in causes.differing_operators(self.times, env) if (one.ratio > 1) == longer]
        if not operators:
            return Reason(cause=Cause.UNKNOWN)
        return Reason(cause=Cause.OPERATOR, what=operators[0].operator)

    def slow_files(self) -> set[str]:
        """Environments in which the first reading of files is beyond doubt longer."""
        rows = self.judged
        own = (rows["metric"] == "files_first_s") & rows["verdict"].isin(DIFFERENT) & (rows["ratio"] > 1)
        return set(rows.loc[own, "launch"])

    def _alpha(self, verdicts: pd.DataFrame) -> float:
        """Of a family of a campaign, with the share of its try."""
        return share(verdicts) * (1 - self.confidence)

    def _fewest(self, kind: str) -> int:
        return self.fewest.get(kind, VERDICT_UNITS)
