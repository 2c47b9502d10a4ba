"""Slices: when a launch of a sliced round ran, and the conversion of its instants to its own time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from tare.model.schema import Record

OWN = ("step_ends_ns",)  # of a whole run's results: instants
OWN_OF_REPLICATE = ("warmup_ends_ns", "started_ns", "step_ends_ns")


class Slices(Record):
    """The slices of one launch: from `arrived_ns` on its own time is the sum of them."""

    # by which it was stopped: control groups of version 2 or 1, or signals
    means: Literal["cgroup2", "cgroup1", "signals"]
    servers: int = 0  # processes that worked for it outside of it, and were stopped after it
    # `spawn_ns`, `end_ns`: of the launch, as the clock had them
    spawn_ns: int
    arrived_ns: int  # when it came to its program's first instruction, where it was held
    # when its first process ended; the rest until `end_ns` is its runtime's end, while all others were stopped
    ended_ns: int
    end_ns: int
    began_us: tuple[int, ...]  # of each slice, since `arrived_ns`
    # until it was stopped; `quiet_us`: until its servers were as well, which is what is billed
    length_us: tuple[int, ...]
    quiet_us: tuple[int, ...]
    quantum_ms: tuple[int, ...]  # of the cycle of each slice; 0 where it was let run to its end
    waited_us: tuple[int, ...]  # by which a slice was longer because nothing of the launch could run
    cpu_us: tuple[int, ...]  # its processor time at the end of each slice
    # when it had come to each gate, where it waited for the others, since `arrived_ns`; `gates_cpu_us`: processor
    # time then, its own and that of its servers
    gates_us: tuple[int, ...] = ()
    gates_cpu_us: tuple[int, ...] = ()
    servers_cpu_us: int = 0  # processor time of its servers from its first instruction on
    # `looks`, `idle_looks`: how often it was looked whether anything of it could run, and how often nothing could
    looks: int = 0
    idle_looks: int = 0
    # how often, in a run to its end, something of it waited for the clock or a disk while something else of it
    # could run
    waiting_looks: int = 0
    memory_bytes: int = 0  # the most that it was seen to take in a run to its end, without pages of files
    left: int = 0  # processes that it left running, which were ended

    @model_validator(mode="after")
    def _are_in_order(self) -> Self:
        counts = {
            len(each) for each in (self.began_us, self.length_us, self.quiet_us, self.quantum_ms, self.cpu_us)
        }
        if len(counts) != 1 or not self.began_us:
            raise ValueError("slices need as many beginnings, lengths, quanta and processor times, one at least")
        ends = [began + quiet for began, quiet in zip(self.began_us, self.quiet_us, strict=True)]
        if any(later < end for end, later in zip(ends, self.began_us[1:], strict=False)):
            raise ValueError("slices of one launch overlap")
        return self

    @property
    def start_s(self) -> float:
        """Seconds from the launcher's call to the program's first instruction."""
        return (self.arrived_ns - self.spawn_ns) / 1e9

    @property
    def body_s(self) -> float:
        """Own time of the program: the sum of its slices, its servers' part included."""
        return sum(self.quiet_us) / 1e6

    @property
    def body_without_servers_s(self) -> float:
        """The same without the time in which its servers alone were still running."""
        return sum(self.length_us) / 1e6

    @property
    def cpu_s(self) -> float:
        """Processor time of the program and of its servers, seconds."""
        return (self.cpu_us[-1] + self.servers_cpu_us) / 1e6

    @property
    def first_part_s(self) -> float:
        """Own time to its first gate, or all of it where it has none."""
        if not self.gates_us:
            return self.body_s
        at_ns = self.arrived_ns + 1000 * self.gates_us[0]
        return (int(self.own_ns(at_ns)) - self.arrived_ns) / 1e9

    @property
    def first_part_cpu_s(self) -> float:
        """Processor time of the program and of its servers to its first gate, or all of it where it has none."""
        return self.gates_cpu_us[0] / 1e6 if self.gates_cpu_us else self.cpu_s

    @property
    def exit_s(self) -> float:
        """Seconds from the program's end to that of the runtime's client."""
        return (self.end_ns - self.ended_ns) / 1e9

    @property
    def is_sliced(self) -> bool:
        """Whether others ran in between."""
        return any(self.quantum_ms)

    def bills_differ(self, margin: float) -> bool:
        """Whether it matters for an equivalence margin how the time is billed in which only servers were running.

        Up to its first gate, where it has one: what comes after it is no part of a whole run.

        A server may work ahead of its program in that time, or only for it: where both bills are further apart than
        a quarter of the margin, the launch has to be run unsliced.

        `margin`: of the ratio of two times, such as 0.05.
        """
        first = self.gates_us[0] if self.gates_us else self.began_us[-1] + 1
        number = sum(began < first for began in self.began_us)
        quiet, length = sum(self.quiet_us[:number]), sum(self.length_us[:number])
        return quiet - length > margin / 4 * length

    def is_served(self, margin: float) -> bool:
        """Whether servers outside of the program take more than a quarter of `margin`, as a share of the program's
        own time. `margin`: of the ratio of two times, such as 0.05.
        """
        return self.servers_cpu_us / 1e6 > margin / 4 * self.body_s

    def own_ns(self, at_ns: Any) -> Any:
        """Instants had the launch run alone and without a pause: the start as it was, then own time. `at_ns`: one
        instant or several, CLOCK_MONOTONIC nanoseconds.
        """
        began = np.asarray(self.began_us, dtype=np.float64) * 1e3
        length = np.asarray(self.quiet_us, dtype=np.float64) * 1e3
        used = np.concatenate([[0.0], np.cumsum(length)])
        knots = np.stack([began, began + length], axis=1).ravel()
        values = np.stack([used[:-1], used[1:]], axis=1).ravel()
        since = np.asarray(at_ns, dtype=np.float64) - self.arrived_ns
        inside = np.interp(since, knots, values)
        ended = float(self.ended_ns - self.arrived_ns)
        moved = np.where(since <= 0, since, np.where(since > ended, used[-1] + (since - ended), inside))
        return (self.arrived_ns + np.rint(moved)).astype(np.int64)


def own_results(results: Mapping[str, Any], slices: Slices) -> dict[str, Any]:
    """Results of a whole run, or of a launch without its profiler, in own time (`Slices.own_ns`)."""
    found = dict(results)
    if found.get("plain_instants_ns"):
        instants = slices.own_ns(found["plain_instants_ns"])
        found |= {"plain_instants_ns": instants.tolist(), "plain_step_s": (np.diff(instants) / 1e9).tolist()}
    for name in OWN:
        if name in found:
            found[name] = slices.own_ns(found[name]).tolist()
    if "replicates" in found:
        found["replicates"] = [
            {
                **one,
                **{
                    name: slices.own_ns(one[name]).tolist()
                    for name in OWN_OF_REPLICATE
                    if one.get(name) is not None
                },
            }
            for one in found["replicates"]
        ]
    return found
