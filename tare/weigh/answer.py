"""What `tare weigh` found, as typed rows: the terminal, the page, Markdown and JSON word the same ones.

`python -m tare.weigh.answer > docs/answer.schema.json` writes the JSON Schema of answer.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tare.core.arguments import Parser
from tare.model.schema import VERSION, FileRecord, OpenRecord
from tare.stats.intervals import Interval, Verdict
from tare.weigh.causes import Evidence, Part

Status = Literal["weighed", "unavailable", "failed"]
Finding = Literal["confirmed", "excluded", "open", "not tried"]


class Ratio(OpenRecord):
    """How much longer something takes than in the reference, as a ratio of times, with its interval.

    Attributes:
        ratio: of times, environment to reference.
        low, high: of the interval at the answer's confidence; None where there are too few rounds.
        rounds: that it rests on.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    rounds: int

    @classmethod
    def of(cls, interval: Interval) -> Ratio | None:
        """From an interval of log-ratios; None where there is not one round."""
        if interval.mean is None:
            return None
        low, high = (None if end is None else math.exp(end) for end in (interval.low, interval.high))
        return cls(ratio=math.exp(interval.mean), low=low, high=high, rounds=interval.n)

    @property
    def log(self) -> Interval:
        """The interval of the log-ratio."""
        low, high = (None if end is None else math.log(end) for end in (self.low, self.high))
        return Interval(n=self.rounds, mean=math.log(self.ratio), low=low, high=high)

    @property
    def holds_one(self) -> bool:
        """Whether no difference is shown; also where there is no interval."""
        return self.low is None or self.high is None or self.low <= 1 <= self.high


class Seconds(OpenRecord):
    """Seconds by which something takes longer than in the reference, with its interval."""

    seconds: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, interval: Interval) -> Seconds | None:
        """From an interval of seconds; None where there is not one round."""
        if interval.mean is None:
            return None
        return cls(seconds=interval.mean, low=interval.low, high=interval.high)


class CauseFound(OpenRecord):
    """What is known of one suspected cause.

    Attributes:
        cause, title: of the table.
        finding: `confirmed`: without it the difference is smaller; `excluded`: it explains no part of that
            that is worth naming; `open`: inconclusive; `not tried`.
        reason: why it was not tried.
        evidence: facts in which the environments differ.
        change: what the confirming launches had otherwise.
        gained: the environment's time with the change, as a ratio to that without.
        without: its time without the change as a ratio to the reference's, in the same rounds if it differs there.
        share: of the logarithm of `without` that the change takes away; None where it may be zero.
        advice: the option or line that fixes it; None where the environment is faster than the reference.
        command: the environment's own command line with that change; None where files have to be copied first.
        part: of a run where its cost appears first.
    """

    cause: str
    title: str
    finding: Finding
    reason: str | None = None
    evidence: tuple[Evidence, ...] = ()
    change: str | None = None
    gained: Ratio | None = None
    without: Ratio | None = None
    share: float | None = None
    advice: str | None = None
    command: str | None = None
    part: Part | None = None


class Weighed(OpenRecord):
    """One environment against the reference.

    Attributes:
        name, text: as the user named it, and what `--env` was.
        digest: of its image, where it has one.
        status, reason: a reason where it has no times.
        verdict: of whole runs.
        run: whole runs. parts: seconds at the start, in the program, at the end.
        step: of training steps; steps_reason: why there are none.
        sliced: whether its launches ran in slices; unsliced_reason: why not.
        causes: the likeliest first.
        remarks: what else has to be said, a sentence each.
    """

    name: str
    text: str
    digest: str | None = None
    status: Status
    reason: str | None = None
    verdict: Verdict | None = None
    run: Ratio | None = None
    parts: Mapping[str, Seconds] = {}
    step: Ratio | None = None
    steps_reason: str | None = None
    sliced: bool = False
    unsliced_reason: str | None = None
    causes: tuple[CauseFound, ...] = ()
    remarks: tuple[str, ...] = ()


class Answer(FileRecord, OpenRecord):
    """All that one `tare weigh` found.

    Attributes:
        tare: its version. at: when it ended, UTC.
        command, workdir: of the job.
        machine: a line on the processor and the kernel.
        confidence: of each interval; margin: what counts as equal, relative.
        rounds: that count; minutes: taken, and the budget.
        reference: its name; reference_s: seconds of a whole run of it, by part and in all.
        step_s: seconds of a step of the reference; steps: what reported them.
        control: whole runs of the reference's second launch against its first, and steps.
        hook: whole runs of the reference with the hook that detects steps, against those without it.
        environments: the others, in the order given.
        left_out: names of the shell's variables that the job did not get.
        sought: causes were looked for. interrupted: the user ended that before it was done.
        remarks: what else has to be said, a sentence each.
    """

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "weigh the job again"

    tare: str
    at: str
    command: tuple[str, ...]
    workdir: str
    machine: str
    confidence: float
    margin: float
    rounds: int
    minutes: float
    budget_minutes: float
    reference: str
    reference_text: str
    reference_s: Mapping[str, float]
    step_s: float | None = None
    steps: str | None = None
    control: Ratio | None
    control_step: Ratio | None = None
    hook: Ratio | None = None
    environments: tuple[Weighed, ...]
    left_out: tuple[str, ...] = ()
    sought: bool = True
    interrupted: bool = False
    remarks: tuple[str, ...] = ()

    def named(self, name: str) -> Weighed | None:
        """An environment by its name; None where there is none."""
        return next((one for one in self.environments if one.name == name), None)


def schema() -> dict[str, Any]:
    """The JSON Schema of answer.json."""
    found = Answer.model_json_schema()
    found["properties"] = {VERSION: {"const": Answer.VERSION}, **found["properties"]}
    found["required"] = [VERSION, *found["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


if __name__ == "__main__":
    Parser(description="Write the JSON Schema of answer.json to standard output.").parse_args()
    print(json.dumps(schema(), indent=2))
