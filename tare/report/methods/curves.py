"""Does a stack compute what the headline's computes? Its losses beside those, step by step, without dropout."""

from __future__ import annotations

from dataclasses import dataclass

from tare.model.records.measured import HEADLINE, CurvesRecord
from tare.model.registry import HOST
from tare.report.words.labels import env_title, workload_title
from tare.report.words.wording import percent

# Frameworks sum in single precision, each in its own order, and what that leaves grows by the step.
TOLERANCE = 2e-3


@dataclass(frozen=True, kw_only=True)
class CurveCheck:
    """What two curves of losses say.

    Attributes:
        equal: whether they are the same to the last step; None where one is missing.
        sentence: what they say, whole.
        clause: the same, in a sentence on a stack's losses.
    """

    equal: bool | None
    sentence: str
    clause: str


def curve_check(record: CurvesRecord) -> CurveCheck:
    """The losses of a level held against those of the headline's stack, by TOLERANCE."""
    where = "" if record.env == HOST else f" in {env_title(record.env)}"
    about = f"{workload_title(record.workload)}, {record.level}{where}"
    if not {HEADLINE, record.env} <= set(record.losses):
        why = "; ".join(f"{name}: {reason}" for name, reason in record.reasons.items())
        clause = f"whether it computes the same is not known ({why})"
        return CurveCheck(equal=None, sentence=f"{about}: {clause}.", clause=clause)
    ours, base = record.losses[record.env], record.losses[HEADLINE]
    same, steps = same_steps(ours, base), max(len(ours), len(base))
    beside = f"without dropout the losses of {steps} steps of {record.batch}, held against {record.stack}'s"
    if same == steps:
        apart = max(_apart(one, other) for one, other in zip(ours, base, strict=True))
        clause = f"{beside}, are the same to step {steps}, at most {apart:.1e} apart (tolerance {TOLERANCE:.0e})"
        return CurveCheck(equal=True, sentence=f"{about}: {clause}.", clause=clause)
    if len(ours) != len(base):
        told = f"it made {len(ours)} steps, {record.stack} {len(base)}"
    else:
        one, other = ours[same], base[same]
        told = f"{one:.5g} beside {other:.5g} at step {same + 1}, {percent(_apart(one, other), up=True)} apart"
    until = f"the same to step {same}, then " if same else ""
    clause = f"it computes something else: {beside}, are {until}{told} (tolerance {TOLERANCE:.0e})"
    return CurveCheck(equal=False, sentence=f"{about}: {clause}.", clause=clause)


def same_steps(ours: tuple[float, ...], base: tuple[float, ...]) -> int:
    """Up to which step two curves are the same, by TOLERANCE."""
    count = 0
    for one, other in zip(ours, base, strict=False):
        if _apart(one, other) > TOLERANCE:
            break
        count += 1
    return count


def _apart(one: float, other: float) -> float:
    return abs(one - other) / abs(other)
