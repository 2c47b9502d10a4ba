"""Two jobs on one machine: a launch trains while another one trains in a second instance of the same environment.

The co-runner belongs to a launch and not to the unit, since it runs where that runs: `launch_member` starts it,
waits until it trains, makes the launch, and ends it again. What the two may use of the CPUs is a level of the
factor `limits` (tare.launch.limits); the launch without a co-runner has the same limits, so that the ratio of the
two is what the co-runner costs, and not what the limits do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tare.core.errors import TareError, UnavailableError
from tare.launch.channel import Conversation, ConversationError
from tare.launch.conditions import choose_cpus
from tare.launch.limits import Share, shared_out
from tare.launch.prepare import clean_up, ready
from tare.launch.record import record_of
from tare.launch.run import Order, launch
from tare.launch.scenarios import Around, Problem
from tare.launch.transport import Ready
from tare.machine.contention import Counted, counted
from tare.model.conditions import Conditions
from tare.model.records.launches import Contention, CoRunner, LaunchRecord
from tare.model.registry import SHARED
from tare.model.roles import read_role
from tare.model.specification import Specification
from tare.worker.co_runner import PROTOCOL
from tare.worker.sampling import throttling

END_S = 60.0  # for a co-runner to finish its step, and for its program to end
NOT_LIMITED = "no quota of CPU time is set"
QUOTA = "the quota of CPU time"


@contextlib.contextmanager
def surround(around: Around) -> Iterator[Problem]:
    """Nothing: each launch of a unit has its own co-runner, or none."""
    yield lambda: None


def launch_member(
    name: str, order: Order, co_runner: Specification, level: str, *, threads: int | None = None
) -> LaunchRecord:
    """One launch of a unit while its co-runner trains, or without one where its role is to be alone.

    What kept the co-runner from training, or ended it before the launch, is the reason why the launch failed: it
    was not measured with a co-runner. `order`: of the launch; its site has the data of the co-runner's workload in
    `data_of`. `threads`: of the co-runner's framework, where its share has as many CPUs; None for those of the
    launch.
    """
    cpus = choose_cpus(order.conditions.cpus)
    with contextlib.ExitStack() as stack:
        live: Live | None = None
        try:
            own, others = stack.enter_context(shared_out(level, cpus))
            if not read_role(name).is_alone:
                live = stack.enter_context(training(order, co_runner, others, threads))
        except (UnavailableError, ConversationError) as error:
            return LaunchRecord(status="failed", reason=f"its co-runner does not train: {error}")
        with counted(cpus) as counts:
            record = launch(
                replace(order.site, data_of={}),
                order.program,
                at_share(order.conditions, own),
                pad_bytes=order.pad_bytes,
                share=own,
            )
        sets_quota = order.site.environment.sets_quotas
        wrong = _add_throttling(counts, record, own, sets_quota=sets_quota)
        contention = Contention(values=counts.values, reasons=counts.reasons)
        record = record.replace(contention=contention)
        quota_seen = record.inside.facts.cpu_quota if record.inside else None
        if own.quota is not None and sets_quota and record.ok and quota_seen is None:
            record = record.replace(unseen=(*record.unseen, QUOTA))
        if live is not None:
            try:
                record = record.replace(scenario=SHARED, co_runner=live.end(record))
            except (TareError, ConversationError) as error:
                wrong = wrong or f"its co-runner did not finish its training: {error}"
        return record.replace(status="failed", reason=wrong) if wrong and record.ok else record


def at_share(conditions: Conditions, share: Share, threads: int | None = None) -> Conditions:
    """Conditions of a launch that has a share of the CPUs: no more threads than it has CPUs.

    `threads` are those that are asked for; None for those of the conditions.
    """
    return conditions.replace(threads=share.threads(threads or conditions.threads))


@dataclass(kw_only=True)
class Live:
    """A co-runner that trains."""

    prepared: Ready
    talk: Conversation
    spec: Specification
    conditions: Conditions
    has_ended: bool = False

    def end(self, launch: LaunchRecord) -> CoRunner:
        """Let it finish its step and end; what it did during a launch that has ended. Raises ConversationError: it
        has gone, does not answer, or says something else than what it did. UnavailableError: it failed.
        """
        said = self.talk.ask("end", "ended", timeout_s=END_S)
        record = record_of(self.talk.end(timeout_s=END_S), self.prepared, self.conditions)
        if not record.ok:
            raise UnavailableError(record.reason or record.status)
        self.has_ended = True
        offset_ns = record.clock.offset_ns
        first, last = launch.spawn_ns or 0, launch.end_ns or 0
        try:
            ends = [int(at_ns) + offset_ns for at_ns in said["step_ends_ns"]]
            seconds, cpu_s = float(said["seconds"]), float(said["cpu_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConversationError(f"what it says of its end lacks {error}") from None
        return CoRunner(
            launch=self.prepared.planned.name,
            workload=self.spec.workload,
            batch=self.spec.batch,
            steps=sum(first <= at_ns <= last for at_ns in ends),
            seconds=seconds,
            cpu_s=cpu_s,
            deviations=record.deviations,
        )


@contextlib.contextmanager
def training(order: Order, spec: Specification, share: Share, threads: int | None = None) -> Iterator[Live]:
    """A co-runner that has made its first steps and trains on; gone afterwards, whatever happens in between. Raises
    ConversationError: it does not come to train; its reason.
    """
    site = replace(order.site, data=order.site.data_of[spec.workload], data_of={})
    conditions = at_share(order.conditions, share, threads)
    with ready(site, spec, conditions, pad_bytes=0, share=share) as prepared:
        talk = prepared.converse(PROTOCOL)
        live = Live(prepared=prepared, talk=talk, spec=spec, conditions=conditions)
        try:
            talk.hear("training", timeout_s=conditions.launch_timeout_s)
            yield live
        finally:
            talk.kill()
            if not live.has_ended:
                clean_up(site.environment, prepared.planned)


def _add_throttling(counts: Counted, record: LaunchRecord, share: Share, *, sets_quota: bool) -> str | None:
    """Add how long a launch's quota held it back; what is wrong where the quota never applied to it.

    The group that a launch was started in counts for it. A runtime that sets quotas has its own group, which
    the launch reads from inside; where it can't, as under another kernel, its record says so.
    """
    if share.quota is None:
        counts.reasons["throttled_s"] = NOT_LIMITED
        return None
    if sets_quota:
        facts = record.inside.facts if record.inside else None
        text, found = (facts.cpu_stat, facts.cpu_quota) if facts else (None, None)
        held = found is None or str(share.quota.quota_us) in found.split()
        wrong = f"its quota is {found!r}, asked for {share.quota.quota_us} of {share.quota.period_us} us"
    else:
        text = (share.quota.group / "cpu.stat").read_text()
        held = any(line.startswith("nr_periods ") and line.split()[1] != "0" for line in text.splitlines())
        wrong = "its quota of CPU time did not hold it: nothing ran in its control group"
    _, throttled_s, reason = throttling(text)
    if throttled_s is None:
        counts.reasons["throttled_s"] = str(reason)
    else:
        counts.values["throttled_s"] = throttled_s
    return None if held else wrong
