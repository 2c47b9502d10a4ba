"""`--fail-if 'docker > 5%'`: a condition on an answer, for a pipeline that is to stop at it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from tare.core.errors import UserError
from tare.weigh.answer import Answer, Ratio, Weighed

FORM = re.compile(r"\s*(?P<name>[a-z][a-z0-9_+-]*)(?:\.(?P<what>step))?\s*>\s*(?P<percent>\d+(?:\.\d+)?)\s*%\s*")
HELP = "write it as 'docker > 5%' (whole runs) or 'docker.step > 1%' (training steps)"
Outcome = Literal["passed", "failed", "open"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A condition: the environment takes longer than the reference by more than a share.

    Attributes:
        name: of the environment, or `any`.
        what: whole runs or training steps.
        share: relative.
    """

    name: str
    what: Literal["run", "step"]
    share: float

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.name}{'.step' if self.what == 'step' else ''} > {100 * self.share:g}%"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What became of a condition.

    It `failed` where the whole interval is beyond the share, and is `open` where part of it is or there is none.
    """

    gate: Gate
    outcome: Outcome
    why: str


def read_gate(text: str) -> Gate:
    """A condition from the value of `--fail-if`.

    Raises:
        UserError: it has another form.
    """
    found = FORM.fullmatch(text)
    if found is None:
        raise UserError(f"--fail-if {text!r}: {HELP}")
    what: Literal["run", "step"] = "step" if found["what"] else "run"
    return Gate(name=found["name"], what=what, share=float(found["percent"]) / 100)


def check_names(gates: list[Gate], names: list[str]) -> None:
    """See that conditions name environments that are weighed.

    Raises:
        UserError: one does not.
    """
    for one in gates:
        if one.name not in (*names, "any"):
            known = f"there are {', '.join(names)}, any" if names else "only the reference was measured"
            raise UserError(f"--fail-if {one.text!r}: no environment {one.name}: {known}")


def judge(gate: Gate, answer: Answer) -> Judged:
    """What an answer says of a condition."""
    chosen = [one for one in answer.environments if gate.name in (one.name, "any")]
    judged = [_of_one(gate, one) for one in chosen]
    for outcome in ("failed", "open"):
        for one in judged:
            if one.outcome == outcome:
                return one
    return judged[0] if judged else Judged(gate=gate, outcome="open", why="nothing was compared")


def _of_one(gate: Gate, one: Weighed) -> Judged:
    ratio: Ratio | None = one.step if gate.what == "step" else one.run
    what = "each step" if gate.what == "step" else "a whole run"
    if ratio is None or ratio.low is None or ratio.high is None:
        why = one.reason or (one.steps_reason if gate.what == "step" else None) or "it has no interval"
        return Judged(gate=gate, outcome="open", why=f"{one.name}: {why}")
    limit = math.log1p(gate.share)
    said = f"{one.name}: {what} differs by {_percent(ratio.low)} to {_percent(ratio.high)}"
    if math.log(ratio.low) > limit:
        return Judged(gate=gate, outcome="failed", why=said)
    return Judged(gate=gate, outcome="passed" if math.log(ratio.high) <= limit else "open", why=said)


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"
