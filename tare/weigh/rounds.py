"""Rounds of a job in some environments, as a sealed campaign.

The first environment is the reference: plans and journals call its launches `host` and `host.control`, whatever it
is.
"""

from __future__ import annotations

import itertools
import math
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import canonical_json, read_json, sha256_text
from tare.core.progress import say, step
from tare.experiments import sliced
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design, Row, identity
from tare.launch.pages import CodeFiles
from tare.launch.run import Order
from tare.launch.slicing.rounds import Way, run_launches
from tare.machine import nvidia_driver
from tare.model.journals.sealed import SealedCampaign, read_sealed
from tare.model.journals.units import counted, real_s
from tare.model.records.campaigns import VERDICT_UNITS, Plan, Sampling, Unit
from tare.model.registry import HOST, SINGLE
from tare.model.roles import CONTROL, read_roles
from tare.model.schema import parse
from tare.model.specification import Command, Specification
from tare.model.studies.layout import SEALED
from tare.stats.fits import run_values
from tare.weigh import folder as folders
from tare.weigh.facts import PythonFacts
from tare.weigh.job import JobProgram
from tare.weigh.places import Place
from tare.weigh.request import FEWEST_ROUNDS, Request

PILOT = VERDICT_UNITS
UNREACHED = re.compile(
    r"name resolution|resolve host|Name or service not known|[Nn]etwork is unreachable|getaddrinfo"
)
NO_NETWORK = " (the job has no network: --network on gives it this machine's)"
UNSEEN = re.compile(r"/dev/tty|[Nn]ot a (?:tty|terminal)|EOF when reading a line|Inappropriate ioctl")
NO_TERMINAL = " (the job has no terminal and no input: answer its questions by arguments of its command)"
NO_PYTHON = re.compile(r"\bpython: not found")
PYTHON3 = " (this machine calls it python3)"
LEFT_RUNNING = (
    "The job leaves processes running when its first process ends. Tare ends them then, and does not measure what "
    "they would do. Start the job so that its first process waits for the others."
)
HALF_WIDTHS = 4  # of the interval that the budget is spent for, in a margin


def launch_name(name: str) -> str:
    """The name in plans of a launch of an environment that is not the reference: no other launch has it."""
    return f"{name}~" if name == HOST else name


class Rounds:
    """Rounds of some environments, as a sealed campaign."""

    def __init__(self, request: Request, results: Path, name: str, places: Mapping[str, Place]) -> None:
        self.request, self.folder, self.places = request, results / name, dict(places)
        first, *others = places
        self.launches = {HOST: first, CONTROL: first}
        self.launches |= {launch_name(other): other for other in others}
        self.facts = results / "facts"
        self.uses_gpu = False
        self.run_s: float | None = None  # of a run by itself, where the job was tried
        self.remarks: list[str] = []  # what its reader has to know of the job, a sentence each
        self.code = CodeFiles()
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
            hooked=place.hooked and self.request.steps != "none",
            pattern=pattern,
            python_path=place.seen.variables.get("PYTHONPATH"),
            facts=self._facts_file(place) if facts else None,
        )

    def _facts_file(self, place: Place) -> Path:
        return self.facts / f"{place.choice.name}.python.json"

    def python_of(self, name: str) -> PythonFacts | None:
        """What the job's Python was in an environment of this name; None where none reported it."""
        path = self._facts_file(self.places[name])
        return parse(PythonFacts, read_json(path), str(path)) if path.exists() else None

    def plan(self, budget_s: float) -> Plan:
        """The plan of the campaign."""
        request, refused = self.request, self._refused()
        alone = {name: reason for name, own in self.launches.items() if (reason := self.places[own].alone)}
        asked = [place.choice.as_recorded() for place in self.places.values()]
        return Plan(
            kind="weigh",
            study="own-job",
            workload=request.name,
            launches=read_roles(self.launches),
            spec=Specification(mode="command", command=Command(argv=request.command, workdir=str(request.workdir))),
            conditions=request.conditions,
            sampling=Sampling(
                confidence=request.confidence,
                metric="real_s",
                pilot=self.pilot(budget_s),
                half_width=math.log1p(request.margin) / HALF_WIDTHS,
                budget_s=max(1.0, budget_s),
                verdict_units=FEWEST_ROUNDS,
            ),
            margins={"run": request.margin, "step": request.margin},
            seed=request.seed,
            discarded=1,
            arm="",
            headline_arm="",
            stack="",
            slicing_refused=refused,
            unsliced=alone if refused is None else {},
            code_sha256=sha256_text(canonical_json([list(request.command), asked])),
            # Its instant: files of the job may have changed since an interruption, and nothing is carried on.
            provenance={"environments": asked, "launches": self.launches, "planned_ns": time.time_ns()},
            machine=identity(False),
        )

    def round_s(self) -> float:
        """Seconds of a round, as far as is known before the first; 0 where nothing is."""
        alone = sum(self.places[own].alone is not None for own in self.launches.values())
        held = len(self.launches) - alone
        if any(place.reads_through_fuse for place in self.places.values()):
            held *= 2  # once in slices, once without (tare.experiments.sliced)
        return (self.run_s or 0.0) * (held + (alone + 2 if 0 < alone < len(self.launches) else alone))

    def pilot(self, budget_s: float) -> int:
        """Rounds before their number is decided: fewer where the budget has no time for all of them."""
        if not (round_s := self.round_s()):
            return PILOT
        return min(PILOT, max(FEWEST_ROUNDS, int(budget_s / round_s) - 1))

    def _refused(self) -> str | None:
        """Why none of its launches can be sliced; None where some can."""
        if self.request.between is not None:
            return "--between restores the folder before each run, so runs can't share the machine in slices"
        device = "cuda" if self.uses_gpu else "cpu"
        page_cache = self.request.conditions.page_cache
        return self.places[self.launches[HOST]].alone or sliced.refusal(SINGLE, device, page_cache)

    def design(self, plan: Plan, what: str = "round") -> Design:
        """What runs them as a campaign of this plan; `what` names it in progress lines."""
        return Design(
            plan=plan,
            run_unit=self._unit,
            values=run_values,
            what=what,
            hopeless=sliced.hopeless,
            shares=lambda done: len(sliced.groups(plan, done)),
        )

    def run(self, budget_s: float, what: str = "round") -> list[Unit]:
        """Its rounds that count; `what` names one in progress lines."""
        run_campaign(self.folder, self.design(self.plan(budget_s), what))
        return counted(read_sealed(self.folder / SEALED).units)

    def _unit(self, plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        first = sliced.calibration_of(done) is None
        between = self.request.between
        return sliced.run_unit(
            plan,
            self.sites,
            done,
            program_of=lambda name: self.program_of(name, facts=first),
            before=lambda name: None if between is None else self.request.in_shell(between, "--between"),
            code=self.code,
        )

    def sealed(self) -> SealedCampaign:
        """The campaign as it was sealed."""
        return read_sealed(self.folder / SEALED)


def try_the_job(request: Request, rounds: Rounds) -> None:
    """Run the job once in the reference; see what it changes of its folder or leaves, and whether it may use a GPU.

    Raises:
        UnavailableError: it fails there.
    """
    before = folders.stamps(request.workdir)
    if request.between is not None:
        request.in_shell(request.between, "--between")
    order = Order(
        site=rounds.sites[HOST], program=rounds.program_of(HOST, facts=True), conditions=request.conditions
    )
    name = request.reference.name
    with step(f"the job once in {name}"):
        found = run_launches({name: order}, Way(pace=None, orders=itertools.repeat((0,)), seed=""))
    record = found.records[name]
    if found.fault is not None:
        limit = f"limit: {request.timeout_s:g} s, --timeout"
        raise UnavailableError(f"the job takes too long in {name}, the reference ({limit}): {record.reason}")
    if not record.ok:
        hint = "" if request.network or not UNREACHED.search(str(record.reason)) else NO_NETWORK
        hint += NO_TERMINAL if UNSEEN.search(str(record.reason)) else ""
        on_host = request.reference.runtime == "host" and shutil.which("python3") is not None
        hint += PYTHON3 if on_host and NO_PYTHON.search(str(record.reason)) else ""
        named = [one for one in request.left_out if re.search(rf"\b{re.escape(one)}\b", str(record.reason))]
        hint += f" (Tare does not pass {named[0]} on: add --setenv {named[0]})" if named else ""
        raise UnavailableError(f"the job fails in {name}, the reference: {record.reason}{hint}")
    if nvidia_driver.device_files(nvidia_driver.places_here()):
        python = rounds.python_of(name)
        rounds.uses_gpu = python is None or python.uses_cuda
    if record.slices is not None and record.slices.left:
        rounds.remarks.append(LEFT_RUNNING)
    rounds.run_s = real_s(record)
    least_minutes = (FEWEST_ROUNDS + 1) * rounds.round_s() / 60
    if least_minutes > request.minutes:
        say(
            f"a run takes {rounds.run_s:.1f} s, so a calibration and {FEWEST_ROUNDS} rounds take about "
            f"{math.ceil(least_minutes)} minutes, more than --minutes {request.minutes:g}"
        )
    after = folders.stamps(request.workdir) if before is not None and request.between is None else None
    if before is None and request.between is None:
        rounds.remarks.append(
            f"{request.workdir} holds more than {folders.MOST_FILES:,} files: Tare did not look for inputs that "
            "the job changes."
        )
    if before is not None and after is not None and (changed := folders.changes(before, after).of_inputs):
        few = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        rounds.remarks.append(
            f"The job changes files that existed before ({few}), so later runs have another input: "
            "--between COMMAND can restore them."
        )
    for remark in rounds.remarks:
        say(remark)
