"""How far each job of a round is to come in a cycle, so that all of them are equally far at any time.

Jobs of different length that get equal slices meet different conditions: the longer one's end runs alone, and
unlike phases face each other. So what a job gets follows from how long its phases took in earlier rounds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

QUANTA_S = (0.02, 0.04, 0.08)
QUANTUM_WEIGHTS = (1, 2, 1)
SHORTEST_SLICE_S = 0.002  # what is owed below that is carried to the next cycle


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Expected own time of each job's phases, fixed before a round.

    Progress is counted in seconds of the mean job: at progress p each job should have used `target(name, p)`
    seconds.
    """

    # expected seconds of each phase, by name of the launch; equally many phases for each
    phases: Mapping[str, tuple[float, ...]]

    @classmethod
    def equal(cls, names: Sequence[str]) -> Pace:
        """Where nothing is known: the same for each."""
        return cls(phases=dict.fromkeys(names, (1.0,)))

    @property
    def means(self) -> list[float]:
        """Mean seconds of each phase."""
        return [sum(column) / len(column) for column in zip(*self.phases.values(), strict=True)]

    def target(self, name: str, progress_s: float) -> float:
        """Seconds that a job should have used at a progress; behind its last phase at that of its whole run."""
        own, means = self.phases[name], self.means
        total, used = sum(means), 0.0
        if progress_s >= total:
            return sum(own) * progress_s / total if total else progress_s
        for length, mean, end in zip(own, means, accumulate(means), strict=True):
            if progress_s < end:
                return used + length * (1 - (end - progress_s) / mean)
            used += length
        return used


def draw_quantum(generator: random.Random) -> float:
    """Seconds that progress advances in the next cycle."""
    (quantum,) = generator.choices(QUANTA_S, QUANTUM_WEIGHTS)
    return quantum
