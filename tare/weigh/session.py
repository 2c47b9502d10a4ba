"""One `tare weigh`: look at each environment, weigh the job in all of them, confirm what makes one slower.

results/weigh/<name>/campaign/ and, where causes were tried, causes/ hold sealed campaigns as studies have them,
facts/ what each environment was seen to be, answer.json and index.html the answer. The first environment is the
reference; in plans and journals its launches are called `host` and `host.control`, whatever it is.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tare import __version__
from tare.core.errors import TareError, UnavailableError, UserError, reason_of
from tare.core.files import canonical_json, read_json, sha256_text
from tare.core.process import run
from tare.core.progress import say, step
from tare.experiments import sliced
from tare.experiments.alone import measuring
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design, Row, identity
from tare.launch import networks
from tare.launch.place import Site
from tare.launch.run import Order
from tare.launch.slicing.rounds import Way, run_launches
from tare.machine import caller, facts
from tare.model.conditions import Conditions
from tare.model.environment import Bind
from tare.model.journals.sealed import SealedCampaign, read_sealed
from tare.model.journals.units import counted
from tare.model.records.campaigns import Plan, Sampling, Unit
from tare.model.registry import HOST, SINGLE
from tare.model.roles import CONTROL, read_roles
from tare.model.schema import parse
from tare.model.specification import Command, Specification
from tare.model.studies.layout import SEALED
from tare.stats.fits import run_values
from tare.weigh import folder as folders
from tare.weigh.answer import Answer, CauseFound, Weighed
from tare.weigh.causes import CAUSES, Change, Side, Suspicion, suspects
from tare.weigh.changes import apply
from tare.weigh.choices import Choice
from tare.weigh.conclude import Cost, cost_of, reference_seconds, reference_step_s
from tare.weigh.facts import PythonFacts, Surroundings, surroundings
from tare.weigh.job import JobProgram, ProbeProgram, why_no_steps
from tare.weigh.runtimes import OnTheMachine, Plain, image_folder, runtime_of

PILOT = 6  # rounds before a verdict
HALF_WIDTHS = 4  # of the interval that the budget is spent for, in a margin
MAIN_SHARE = 0.6  # of the budget, where causes are looked for
FEWEST_CAUSE_ROUNDS, MOST_CAUSE_ROUNDS = 4, 12
MOST_CHANGES = 4  # in the rounds of one campaign
LOOK_S = 60.0
SETUP_S = 3600.0
SMALLEST_SHARE = 0.15  # of a difference: a change that takes away less is no cause of it
INSTANTLY = 0.05  # of the step's own time: the hook's cost that is said


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asks.

    Attributes:
        name: of the folder in results/weigh.
        choices: environments, the reference first.
        command, workdir: of the job.
        minutes, margin, confidence: the budget; what counts as equal, relative; of the intervals together.
        steps: `auto`, `none`, or a regular expression that a line of the job's output holds at the end of a step.
        network: whether the job has one.
        binds: what else of this machine it sees.
        variables: of every environment.
        setup, between: commands of a shell, before everything and before each run.
        confirm: causes are tried.
        timeout_s: of one run.
        shell: variables of the shell, passed on where an environment does so. left_out: names of the others.
        seed: of the random orders.
    """

    name: str
    choices: tuple[Choice, ...]
    command: tuple[str, ...]
    workdir: Path
    minutes: float = 5.0
    margin: float = 0.02
    confidence: float = 0.95
    steps: str = "auto"
    network: bool = False
    binds: tuple[Bind, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    setup: str | None = None
    between: str | None = None
    confirm: bool = True
    timeout_s: float = 600.0
    shell: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    seed: int = 2022

    @property
    def reference(self) -> Choice:
        """The first environment."""
        return self.choices[0]

    @property
    def conditions(self) -> Conditions:
        """Of launches, as plans have them: nothing is asked for but a limit of time."""
        cpus = len(os.sched_getaffinity(0))
        return Conditions(
            threads=cpus,
            cpus=cpus,
            open_files=1024,
            page_cache="warm",
            launch_timeout_s=self.timeout_s,
            allocator="default",
        )


@dataclass(kw_only=True)
class Place:
    """An environment that can be used: what starts it, and what is known of it."""

    choice: Choice
    adapter: Plain
    site: Site
    digest: str | None
    seen: Surroundings
    limits: caller.Limits
    alone: str | None = None  # why its launches can't be sliced beside the others

    def side(self, python: PythonFacts | None, workdir: Path, servers_share: float = 0.0) -> Side:
        """As causes look at it."""
        quota, memory, weight = (self.limits.get(name) for name in (caller.CPU_QUOTA, caller.MEMORY, "CPU weight"))
        return Side(
            choice=self.choice,
            seen=self.seen,
            python=python,
            quota_cpus=float(quota.value.split()[0]) if quota else self.seen.quota_cpus,
            memory_limit_bytes=int(memory.value.split()[0]) if memory else self.seen.memory_limit_bytes,
            weight=weight.value if weight else None,
            servers_share=servers_share,
            workdir=str(workdir),
        )


def weigh(request: Request, results: Path, tell: Callable[[Answer], None] = lambda answer: None) -> Answer:
    """Weigh a job in several environments.

    Args:
        request: what is asked.
        results: folder of what is kept.
        tell: called with the answer before causes are tried, where they are.

    Raises:
        UserError: the request can't be met as it is.
        UnavailableError: the reference can't be had, or the job fails in it.
    """
    began = time.monotonic()
    with measuring(results / "campaign" / SEALED), contextlib.ExitStack() as stack:
        if request.setup is not None:
            _shell(request, request.setup, "--setup")
        places, unavailable = open_places(request, results, stack)
        first = _Campaign(request, results, "campaign", places)
        refuse_a_job_that_fails(request, first)
        share = MAIN_SHARE if request.confirm and len(places) > 1 else 1.0
        units = first.run(share * 60 * request.minutes)
        found = Found(request=request, places=places, unavailable=unavailable, units=units, campaign=first)
        answer = found.answer((time.monotonic() - began) / 60, {})
        if request.confirm:
            asked = found.suspected()
            left_s = 60 * request.minutes - (time.monotonic() - began)
            tried = try_changes(request, results, found, asked, left_s, stack) if asked else {}
            answer = found.answer((time.monotonic() - began) / 60, _causes(request, found, asked, tried))
    answer.write(results / "answer.json")
    return answer


def open_places(
    request: Request, results: Path, stack: contextlib.ExitStack
) -> tuple[dict[str, Place], dict[str, str]]:
    """Environments that can be used by their names, and why others can't.

    Raises:
        UserError: the reference is named wrongly.
        UnavailableError: the reference can't be had.
    """
    places: dict[str, Place] = {}
    unavailable: dict[str, str] = {}
    network = _network(request, stack)
    for choice in request.choices:
        try:
            places[choice.name] = open_place(request, results, choice, network, stack)
        except TareError as error:
            if choice is request.reference:
                raise
            unavailable[choice.name] = reason_of(error)
            say(f"{choice.name} can't be used: {error}")
    return places, unavailable


def open_place(
    request: Request, results: Path, choice: Choice, network: Path | None, stack: contextlib.ExitStack
) -> Place:
    """One environment, opened for as long as the stack is, and looked at.

    Raises:
        UserError: its image is named wrongly.
        UnavailableError: it can't be had, or nothing can be launched in it.
    """
    adapter = runtime_of(choice, request.shell)
    adapter.network = network
    stack.enter_context(adapter.session())
    image_folder().mkdir(parents=True, exist_ok=True)
    image = adapter.find(image_folder())
    site = Site(environment=adapter, reference=image.reference, isolates_network=not request.network)
    with step(f"look at {choice.name}", announced=False):
        seen, limits = look(request, site, choice, results / "facts")
    place = Place(choice=choice, adapter=adapter, site=site, digest=image.digest, seen=seen, limits=limits)
    if place.side(None, request.workdir).quota_cpus is not None:
        place.alone = "it has a quota of processor time, which is refilled while a job is stopped"
    return place


def _network(request: Request, stack: contextlib.ExitStack) -> Path | None:
    """The network without a way out; None where the job has the machine's, or nobody can make another."""
    if request.network:
        return None
    site = Site(environment=OnTheMachine(Choice(name="host", runtime="host"), request.shell))
    try:
        met = stack.enter_context(networks.meeting(site, 1, None))
    except UnavailableError as error:
        say(f"the job keeps this machine's network: {error}")
        return None
    (path,) = met.networks
    return None if path == networks.HOST_NETWORK else Path(path)


def look(request: Request, site: Site, choice: Choice, kept: Path) -> tuple[Surroundings, caller.Limits]:
    """What an environment is, from a launch of probe.sh, and the limits that it has, seen from this machine.

    Raises:
        UnavailableError: nothing can be launched in it.
        IntegrityError: what it said is not whole.
    """
    kept.mkdir(parents=True, exist_ok=True)
    said = kept / f"{choice.name}.txt"
    said.unlink(missing_ok=True)
    limits: dict[str, caller.Limit] = {}

    def arrived(name: str, pid: int) -> None:
        with contextlib.suppress(OSError):
            limits.update(caller.limits_of(pid))

    program = ProbeProgram(
        ("/bin/sh",),
        workdir=request.workdir,
        variables={**request.variables, **choice.variables},
        without=choice.unset,
        said=said,
    )
    conditions = request.conditions.replace(launch_timeout_s=LOOK_S)
    order = Order(site=site, program=program, conditions=conditions)
    way = Way(pace=None, orders=itertools.repeat((0,)), seed="", arrived=arrived)
    record = run_launches({choice.name: order}, way).records[choice.name]
    if not record.ok:
        raise UnavailableError(f"{choice.text}: nothing can be started in it: {record.reason}")
    return surroundings(said.read_text(errors="surrogateescape")), limits


def _shell(request: Request, command: str, option: str) -> None:
    """Run a command of the user's own in the job's folder.

    Raises:
        UserError: it fails.
    """
    ended = run(["/bin/sh", "-c", command], timeout_s=SETUP_S, env=dict(request.shell), cwd=request.workdir)
    if not ended.ok:
        raise UserError(f"{option} {command!r} failed: {ended.explain()}")


class _Campaign:
    """Rounds of some environments, as a sealed campaign."""

    def __init__(self, request: Request, results: Path, name: str, places: Mapping[str, Place]) -> None:
        self.request, self.folder, self.places = request, results / name, dict(places)
        first, *others = places
        self.launches = {HOST: first, CONTROL: first}
        self.launches |= {launch_name(other): other for other in others}
        self.facts = results / "facts"
        self.sites = {name: self.places[own].site for name, own in self.launches.items()}

    def program_of(self, name: str, *, facts: bool = False) -> JobProgram:
        """What a launch of this name runs."""
        place = self.places[self.launches[name]]
        pattern = None if self.request.steps in ("auto", "none") else self.request.steps
        return JobProgram(
            self.request.command,
            workdir=self.request.workdir,
            binds=(*self.request.binds, *place.choice.shown),
            variables={**self.request.variables, **place.choice.variables},
            without=place.choice.unset,
            hooked=self.request.steps != "none",
            pattern=pattern,
            python_path=place.seen.variables.get("PYTHONPATH"),
            facts=self.facts / f"{place.choice.name}.python.json" if facts else None,
        )

    def plan(self, budget_s: float) -> Plan:
        """The plan of the campaign."""
        request, names = self.request, list(self.launches)
        refused = sliced.refusal(SINGLE, "cpu", request.conditions.page_cache)
        if request.between is not None:
            refused = (
                "--between makes the folder as it was before each run, and runs that share the machine share it"
            )
        alone = {name: reason for name, own in self.launches.items() if (reason := self.places[own].alone)}
        if HOST in alone:
            refused, alone = alone[HOST], {}
        asked = [place.choice.to_json() for place in self.places.values()]
        return Plan(
            kind="weigh",
            study="own-job",
            workload=request.name,
            launches=read_roles(names),
            spec=Specification(mode="command", command=Command(argv=request.command, workdir=str(request.workdir))),
            conditions=request.conditions,
            sampling=Sampling(
                confidence=request.confidence,
                metric="real_s",
                pilot=PILOT,
                half_width=math.log1p(request.margin) / HALF_WIDTHS,
                budget_s=max(1.0, budget_s),
                verdict_units=PILOT,
            ),
            margins={"run": request.margin, "step": request.margin},
            seed=request.seed,
            discarded=1,
            arm="",
            headline_arm="",
            stack="",
            slicing_refused=refused,
            unsliced=alone,
            code_sha256=sha256_text(canonical_json([list(request.command), asked])),
            # Its instant: files of the job may have changed since an interruption, and nothing is carried on.
            provenance={"environments": asked, "launches": self.launches, "planned_ns": time.time_ns()},
            machine=identity(False),
        )

    def run(self, budget_s: float) -> list[Unit]:
        """Its rounds that count."""
        design = Design(
            plan=self.plan(budget_s),
            run_unit=self._unit,
            values=run_values,
            what="weigh",
            hopeless=sliced.hopeless,
            shares=self._shares,
        )
        run_campaign(self.folder, design)
        return counted(read_sealed(self.folder / SEALED).units)

    def _shares(self, done: Sequence[Unit]) -> int:
        return len(sliced.groups(self._planned, done)) if hasattr(self, "_planned") else 1

    def _unit(self, plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        self._planned = plan
        first = sliced.calibration_of(done) is None
        between = self.request.between
        return sliced.run_unit(
            plan,
            self.sites,
            done,
            program_of=lambda name: self.program_of(name, facts=first),
            before=lambda name: None if between is None else _shell(self.request, between, "--between"),
        )

    def sealed(self) -> SealedCampaign:
        """The campaign as it was sealed."""
        return read_sealed(self.folder / SEALED)


def launch_name(name: str) -> str:
    """What plans call the launch of an environment that is not the reference: no other has the name of its own."""
    return f"{name}~" if name == HOST else name


def refuse_a_job_that_fails(request: Request, campaign: _Campaign) -> None:
    """Run the job once in the reference, and see what it changes of its folder.

    Raises:
        UnavailableError: it fails there.
    """
    before = folders.stamps(request.workdir)
    if request.between is not None:
        _shell(request, request.between, "--between")
    order = Order(site=campaign.sites[HOST], program=campaign.program_of(HOST), conditions=request.conditions)
    name = request.reference.name
    with step(f"the job once in {name}"):
        found = run_launches({name: order}, Way(pace=None, orders=itertools.repeat((0,)), seed=""))
    if found.fault is not None:
        limit = f"a run may take {request.timeout_s:g} s (--timeout)"
        raise UnavailableError(
            f"the job does not come to its end in {name}, the reference: {found.voided}; {limit}"
        )
    if not (record := found.records[name]).ok:
        raise UnavailableError(f"the job fails in {name}, the reference: {record.reason}")
    after = folders.stamps(request.workdir)
    if before is None or after is None:
        return
    changed = folders.changes(before, after).of_inputs
    if changed and request.between is None:
        few = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        say(f"the job changes files that were there before it ({few}): --between COMMAND can restore them")


@dataclass(kw_only=True)
class Found:
    """What the first campaign found."""

    request: Request
    places: Mapping[str, Place]
    unavailable: Mapping[str, str]
    units: list[Unit]
    campaign: _Campaign
    python: dict[str, PythonFacts | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the facts that the calibration has left."""
        for name in self.places:
            path = self.campaign.facts / f"{name}.python.json"
            self.python[name] = parse(PythonFacts, read_json(path), str(path)) if path.exists() else None

    @property
    def alpha(self) -> float:
        """Of each interval: those of all environments hold together (Bonferroni)."""
        return (1 - self.request.confidence) / max(1, len(self.places) - 1)

    def cost(self, name: str) -> Cost:
        """Of an environment by its name."""
        return cost_of(self.units, launch_name(name), self.alpha)

    def side(self, name: str) -> Side:
        """An environment as causes look at it."""
        return self.places[name].side(self.python[name], self.request.workdir, self._servers_share(name))

    def _servers_share(self, name: str) -> float:
        used = [
            one.slices.servers_cpu_us / max(1, one.slices.cpu_us[-1])
            for unit in self.units
            if (one := unit.launches.get(launch_name(name))) is not None and one.ok and one.slices is not None
        ]
        return max(used, default=0.0)

    def suspected(self) -> dict[str, list[Suspicion]]:
        """By name of each environment that is not shown to be equal, what may be the cause."""
        reference = self.side(self.request.reference.name)
        found = {}
        for name in list(self.places)[1:]:
            if self.cost(name).verdict(self.request.margin) in ("different", "different within margin"):
                found[name] = suspects(reference, self.side(name))
        return found

    def answer(self, minutes: float, causes: Mapping[str, Sequence[CauseFound]]) -> Answer:
        """As it is told."""
        request, first = self.request, self.request.reference
        control = cost_of(self.units, CONTROL, 1 - request.confidence)
        told = [unit.launches[HOST].steps for unit in self.units if unit.launches[HOST].ok]
        steps = next((one.teller for one in told if one is not None and one.teller), None)
        return Answer(
            tare=__version__,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            command=request.command,
            workdir=str(request.workdir),
            machine=machine_line(),
            confidence=request.confidence,
            margin=request.margin,
            rounds=len(self.units),
            minutes=minutes,
            budget_minutes=request.minutes,
            reference=first.name,
            reference_text=first.text,
            reference_s=reference_seconds(self.units),
            step_s=reference_step_s(self.units),
            steps=steps,
            control=control.run_ratio,
            control_step=control.step_ratio,
            environments=tuple(
                self._weighed(choice, causes.get(choice.name, ())) for choice in request.choices[1:]
            ),
            left_out=request.left_out,
            remarks=tuple(self._remarks(control)),
        )

    def _remarks(self, control: Cost) -> Iterator[str]:
        """What the reader has to know beside the rows."""
        told = control.run.told if control.run is not None else None
        if told is not None:
            _, low, high = told
            if not low <= 0 <= high:
                yield (
                    "The A/A control does not hold zero: two launches of one environment differ here by more than "
                    "chance, so that differences as small as that say nothing."
                )
            elif (high - low) / 2 > math.log1p(self.request.margin):
                more = math.ceil(self.request.minutes * (((high - low) / 2) / math.log1p(self.request.margin)) ** 2)
                yield (
                    f"The A/A control spans ±{50 * (high - low):.1f}%, more than the margin: other programs use "
                    f"this machine. --minutes {more} would bring it down to the margin."
                )

    def _weighed(self, choice: Choice, causes: Sequence[CauseFound]) -> Weighed:
        if choice.name in self.unavailable:
            reason = self.unavailable[choice.name]
            return Weighed(name=choice.name, text=choice.text, status="unavailable", reason=reason)
        place, cost, name = self.places[choice.name], self.cost(choice.name), launch_name(choice.name)
        launches = [unit.launches[name] for unit in self.units if name in unit.launches]
        if cost.run is None:
            reason = next((one.reason for one in launches if one.reason), "it has no round that counts")
            return Weighed(name=choice.name, text=choice.text, digest=place.digest, status="failed", reason=reason)
        was_sliced = any(one.slices is not None and one.slices.is_sliced for one in launches)
        last = next((one for one in reversed(launches) if one.ok), None)
        return Weighed(
            name=choice.name,
            text=choice.text,
            digest=place.digest,
            status="weighed",
            verdict=cost.verdict(self.request.margin),
            run=cost.run_ratio,
            parts=cost.part_seconds,
            step=cost.step_ratio,
            steps_reason=None
            if cost.step is not None or self.request.steps == "none"
            else why_no_steps(last.steps if last else None, self.request.command),
            sliced=was_sliced,
            unsliced_reason=None if was_sliced else place.alone or self._refused(),
            causes=tuple(causes),
        )

    def _refused(self) -> str | None:
        plan = self.campaign.sealed().plan
        told = (str(unit.slicing["refused"]) for unit in self.units if unit.slicing and unit.slicing["refused"])
        return plan.slicing_refused or next(told, None)


def machine_line() -> str:
    """The processor and the kernel in a line."""
    found = facts.describe()
    cpu = found.get("cpu_model") or "a processor without a name"
    return f"{cpu}, {os.cpu_count()} CPUs, Linux {os.uname().release}"


Tried = Mapping[tuple[str, str], tuple[Change, Cost]]  # by environment and cause


def try_changes(
    request: Request,
    results: Path,
    found: Found,
    asked: Mapping[str, Sequence[Suspicion]],
    left_s: float,
    stack: contextlib.ExitStack,
) -> Tried:
    """Rounds of the reference, the environments that differ, and each with one change, as the time allows.

    The likeliest causes come first; changes that can't be made are left out.
    """
    round_s = max((unit.cost_s for unit in found.units), default=0.0) / (len(found.places) + 1)
    wanted = _first_of_each([(name, one) for name, own in asked.items() for one in own if one.changes])
    rooms = 0
    while rooms < min(len(wanted), MOST_CHANGES):
        size = 2 + len({name for name, _ in wanted[: rooms + 1]}) + rooms + 1
        if (FEWEST_CAUSE_ROUNDS + 1) * size * round_s > left_s:
            break
        rooms += 1
    places = {request.reference.name: found.places[request.reference.name]}
    tried: dict[tuple[str, str], tuple[Change, str]] = {}
    network = found.places[request.reference.name].adapter.network
    for name, suspicion in wanted[:rooms]:
        change = suspicion.changes[0]
        places.setdefault(name, found.places[name])
        try:
            choice = apply(change, found.places[name].choice, found.python[request.reference.name], results)
            places[choice.name] = open_place(request, results, choice, network, stack)
        except TareError as error:
            say(f"{change.name} can't be tried in {name}: {error}")
            continue
        tried[name, suspicion.cause] = (change, choice.name)
    if not tried:
        return {}
    campaign = _Campaign(request, results, "causes", places)
    units = campaign.run(left_s)
    return {
        key: (change, cost_of(units, launch_name(other), found.alpha, reference=launch_name(key[0])))
        for key, (change, other) in tried.items()
    }


def _first_of_each(found: list[tuple[str, Suspicion]]) -> list[tuple[str, Suspicion]]:
    """The first cause of each environment, then the second of each, and so on."""
    seen: dict[str, int] = {}
    ranked: list[tuple[int, int, str, Suspicion]] = []
    for name, suspicion in found:
        seen[name] = seen.get(name, 0) + 1
        ranked.append((seen[name], len(ranked), name, suspicion))
    return [(name, suspicion) for _, _, name, suspicion in sorted(ranked, key=lambda one: one[:2])]


def _causes(
    request: Request, found: Found, asked: Mapping[str, Sequence[Suspicion]], tried: Tried
) -> dict[str, list[CauseFound]]:
    """What is known of each suspected cause, by environment: confirmed ones first."""
    order = ("confirmed", "open", "not tried", "excluded")
    causes = {
        name: [_cause(request, found, name, one, tried.get((name, one.cause))) for one in own]
        for name, own in asked.items()
    }
    return {name: sorted(own, key=lambda one: order.index(one.finding)) for name, own in causes.items()}


def _cause(
    request: Request, found: Found, name: str, suspicion: Suspicion, tried: tuple[Change, Cost] | None
) -> CauseFound:
    title = CAUSES[suspicion.cause].title
    common: dict[str, Any] = {"cause": suspicion.cause, "title": title, "evidence": suspicion.evidence}
    if tried is None or tried[1].run is None:
        reason = suspicion.untried or (
            "the budget leaves no time for it" if tried is None else "its launches failed"
        )
        return CauseFound(**common, finding="not tried", reason=reason)
    change, cost = tried
    gained = cost.run
    whole = found.cost(name).run
    assert gained is not None and whole is not None and whole.mean is not None and gained.mean is not None
    common |= {"change": change.name, "gained": cost.run_ratio, "advice": change.advice}
    share = -gained.mean / whole.mean if whole.mean else 0.0
    if gained.low is None or gained.high is None:
        return CauseFound(**common, finding="open")
    sooner = gained.high < 0 if whole.mean > 0 else gained.low > 0
    if sooner and share >= SMALLEST_SHARE:
        return CauseFound(**common, finding="confirmed", share=share)
    limit = max(SMALLEST_SHARE * abs(whole.mean), 0.0)
    if -limit <= gained.low and gained.high <= limit:
        return CauseFound(**common, finding="excluded")
    return CauseFound(**common, finding="excluded" if not sooner and abs(share) < SMALLEST_SHARE else "open")


def iter_campaigns(results: Path) -> Iterator[SealedCampaign]:
    """The sealed campaigns of a `tare weigh`."""
    for name in ("campaign", "causes"):
        if (results / name / SEALED).exists():
            yield read_sealed(results / name / SEALED)
