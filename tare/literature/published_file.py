"""The files of config/published: what a published study says, checked as a whole; every number with its unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, InstanceOf, model_validator

from tare.core.errors import UserError
from tare.literature.vocabulary import (
    BAR,
    FIGURE_METRICS,
    KINDS,
    LINE,
    ROOFLINE,
    SAMPLED,
    SLOWDOWN,
    TABLE,
    TIMELINE,
)
from tare.model.quantities import Printed, Quantity, printed_in
from tare.model.registry import HOST, environment_names, module_names, removed
from tare.model.schema import Count, Distinct, Record, matching, parse, parse_yaml, read_words
from tare.model.words import nearest

# How a claim is judged; docs/published.md says what each rule asks.
RULES = (
    "equal", "highest", "lowest", "at_most", "at_least", "more_than", "as_much_as", "faster", "ordered", "repays",
    "kernels_differ", "same_files",
)  # fmt: skip
EQUAL, HIGHEST, LOWEST, AT_MOST, AT_LEAST, MORE_THAN, AS_MUCH_AS, FASTER, ORDERED, REPAYS = RULES[:10]
KERNELS_DIFFER, SAME_FILES = RULES[10:]
OF_ONE = (HIGHEST, LOWEST, REPAYS, KERNELS_DIFFER)  # about one environment beside the others
BOUNDED = (AT_MOST, AT_LEAST)
OF_TWO = (MORE_THAN, AS_MUCH_AS)  # about two costs, each an environment by the host
OF_METRICS = (EQUAL, HIGHEST, LOWEST, *BOUNDED, *OF_TWO, FASTER, ORDERED, REPAYS)
# What may have to be as published for a claim to be the same question here.
DEVICE, STACK, RUNTIMES, NETWORK = CONDITIONS = ("device", "stack", "runtimes", "network")
# Base units of what a figure can show.
DRAWN_UNITS = {*FIGURE_METRICS.values(), *(unit for _, unit in SAMPLED.values())}


def _known(name: str) -> str:
    if name not in module_names("workloads"):
        raise ValueError(f"unknown workload {name!r}: {nearest(name, module_names('workloads'))}")
    return name


def _known_place(name: str) -> str:
    known = environment_names()
    if name not in known:
        raise ValueError(removed(name) or f"unknown environment {name!r}: {nearest(name, known)}")
    return name


def _one_of(what: str, known: Iterable[str]) -> AfterValidator:
    """A word that must be one of a few; the message has the nearest."""

    def check(word: str) -> str:
        if word not in known:
            raise ValueError(f"unknown {what} {word!r}: {nearest(word, known)}")
        return word

    return AfterValidator(check)


Text = Annotated[str, Field(min_length=1)]
Word = Annotated[str, matching(r"[a-z0-9_]+", "must be lower-case letters, digits and underscores")]
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]
Workload = Annotated[str, AfterValidator(_known)]
Environment = Annotated[str, AfterValidator(_known_place)]
Scenario = Literal["single", "distributed", "shared"]
Level = Annotated[str, matching(r"[a-z0-9_]+=[a-z0-9.+_-]+", "is no factor=level")]
Number = Annotated[str, matching(r"[0-9]+", "is no number of a figure")]
Metric = Annotated[str, _one_of("metric", FIGURE_METRICS)]
Kind = Literal["text", "table", "figure_label", "figure_digitised", "raw", "derived"]
BatchKey = Annotated[str, matching(r"[1-9][0-9]*", "is none: keys must be batch sizes")]
Seconds = Annotated[InstanceOf[Quantity], printed_in("s")]
Plain = Annotated[InstanceOf[Quantity], printed_in("1")]
Percent = Annotated[InstanceOf[Quantity], printed_in("%")]
Versions = Annotated[Mapping[Word, Text], Field(min_length=1)]
Unlabelled = Annotated[InstanceOf[Quantity], printed_in("unlabelled")]


class Labels(Record):
    """What a number belongs to."""

    workload: Workload | None = None
    env: Environment | None = None
    envs: Annotated[tuple[Environment, ...], Field(min_length=1)] | None = None
    model: Word | None = None
    models: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None
    scenario: Scenario | None = None
    frameworks: Texts | None = None
    relation: Literal["<", "<=", "~", ">=", ">"] | None = None


class Stated(Labels):
    """A number, a range (`value` and `to`), or one name or more; `error`: how far a digitised number may be off."""

    value: Printed | None = None
    to: Printed | None = None
    name: Text | None = None
    names: Texts | None = None
    error: Printed | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len({"value", "name", "names"} & self.model_fields_set) != 1:
            raise ValueError("needs one of value or name or names")
        return self


class Entry(Stated):
    """A number or name that the text states, a file shows, or that it was run with.

    Attributes:
        restates: the entry of the text or the files that this one says again.
    """

    id: Word
    where: Text
    kind: Kind
    restates: Word | None = None


class Row(Stated):
    """A row of a table.

    Attributes:
        packages: whose versions, in the stacks that were measured here, stand beside it.
        setting: of these stacks those with this one alone, such as `xla`.
        why_not: why no stack here has it.
    """

    specification: Word
    packages: Texts | None = None
    setting: Word | None = None
    why_not: Text | None = None

    @model_validator(mode="after")
    def _is_here_or_not(self) -> Self:
        if self.packages is not None and self.why_not is not None:
            raise ValueError("takes packages or why_not, and not both")
        if self.setting is not None and self.packages is None:
            raise ValueError("setting: needs packages: whose versions")
        return self


class Table(Record):
    """A table of the paper.

    Attributes:
        about: which of this machine's tables stands beside it; None where none does.
    """

    name: Text
    title: Text
    kind: Kind
    about: Literal["machine", "software", "device"] | None = None
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]


class Device(Record):
    """The device that computed."""

    class_: Annotated[Literal["cpu", "gpu"], Field(alias="class")]
    name: Text


class MeasuredWith(Record):
    """What a study's own measurements were made with.

    Attributes:
        environments: those that its claims are about, the reference first.
        device: that computed.
        stack: versions of programs and libraries, by name: `python`, `cuda`, `torch`, …
        runtimes: versions by environment, where they are known; `apptainer` is Singularity's.
        network: of instances that train together, by environment: those that had an overlay.
    """

    environments: Annotated[tuple[Environment, ...], Field(min_length=2)]
    device: Device
    stack: Versions
    runtimes: Mapping[Environment, Text] = Field(default_factory=dict)
    network: Mapping[Environment, Literal["overlay"]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _reference_first(self) -> Self:
        if self.environments[0] != HOST:
            raise ValueError(f"environments: {HOST} must come first, every ratio is to it")
        return self


class Than(Record):
    """The other cost of a claim about two: in what it differs from the claim's own.

    Attributes:
        models: others than the claim's, each of which is compared.
        metric, arm, scenario: another than the claim's.
    """

    models: Annotated[tuple[Word, ...], Distinct] = ()
    metric: Metric | None = None
    arm: Level | None = None
    scenario: Scenario | None = None

    @model_validator(mode="after")
    def _differs(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("needs one of models or metric or arm or scenario")
        return self


class Part(Record):
    """One thing that a claim's change may be made of, measured by itself.

    Attributes:
        label: what is compared, in few words.
        workload: that it is measured with.
        level, against: levels of a factor; against the headline where the other is not given.
    """

    label: Text
    workload: Workload
    level: Level
    against: Level | None = None


class Claim(Record):
    """One thing that a study says about its environments.

    Attributes:
        id: our name of it.
        where: section that says it.
        figures: those that should show it.
        workloads: what it is about; `metrics` too, where the rule compares numbers. Of the rule ordered the one
            with the largest numbers first.
        models: the same where the study's models are no workloads of ours, or were not trained here for it, by its
            own names.
        facts: numbers by environment and model, of the text, the files or a table, that the claim is held against;
            each is of the claim's one metric.
        rule: how it is judged, one of RULES.
        env: the environment that is highest, lowest, repays or runs other kernels; None for the other rules.
        environments: those that it is about, the reference first; all of `measured_with` where it is not given. A
            bound of slow-downs, and two of them, have no reference: they are about those that stand there.
        bound: of the rules at_most and at_least: how much worse than the host an environment may be, or has to be;
            of a slow-down by a neighbour, than the same environment without one.
        than: of the rules more_than and as_much_as: the other cost.
        level, against, change: of the rule faster: a level of a factor, another, and how much more of a job the
            first does in the same time; negative where it is slower, 0 where they are alike. Of what nothing here
            can be a study may state no number.
        once, times: of the rule repays: the entry of what is paid once, and that of how often a run does what
            `facts` time.
        why_not: of the rule faster: why nothing here is what was compared. Level and against, where they are given
            all the same, are the nearest that is here, and decide nothing.
        label: of the rule faster: what is compared, in the few words that fit into a figure.
        parts: of the rule faster: what the change may be made of, each by itself; they decide nothing.
        device: that it was measured on, where that is another than that of `measured_with`.
        stack, against_stack: versions that `level` and `against` were measured with, where these are stacks and not
            those of `measured_with`.
        arm, scenario: what else it was measured with: a level of a factor, what ran beside it.
        needs: what must be as published for this to be the same question, of CONDITIONS.
        statement: the claim in our words.
    """

    id: Word
    where: Text
    figures: tuple[Text, ...]
    workloads: tuple[Workload, ...] = ()
    models: tuple[Word, ...] = ()
    facts: tuple[Word, ...] = ()
    rule: Annotated[str, _one_of("rule", RULES)]
    metrics: tuple[Metric, ...] = ()
    env: Environment | None = None
    environments: Annotated[tuple[Environment, ...], Field(min_length=2)] | None = None
    bound: Percent | None = None
    than: Than | None = None
    level: Level | None = None
    against: Level | None = None
    change: Percent | None = None
    once: Word | None = None
    times: Word | None = None
    why_not: Text | None = None
    label: Text | None = None
    parts: tuple[Part, ...] = ()
    device: Device | None = None
    stack: Versions | None = None
    against_stack: Versions | None = None
    arm: Level | None = None
    scenario: Scenario = "single"
    needs: tuple[Annotated[str, _one_of("condition", CONDITIONS)], ...] = ()
    statement: Text

    @model_validator(mode="after")
    def _fits_its_rule(self) -> Self:
        if (self.rule in OF_ONE) != (self.env is not None):
            raise ValueError(f"rule {self.rule} {'needs' if self.rule in OF_ONE else 'takes no'} env")
        if (self.rule in OF_METRICS) != bool(self.metrics):
            raise ValueError(f"rule {self.rule} {'needs' if self.rule in OF_METRICS else 'takes no'} metrics")
        if not (self.workloads or self.models):
            raise ValueError("needs workloads or models: what it is about")
        for name, level in (("stack", self.level), ("against_stack", self.against)):
            if getattr(self, name) is not None and not str(level).startswith("stack="):
                raise ValueError(f"{name}: needs {'level' if name == 'stack' else 'against'}: stack=…, whose it is")
        if self.facts and len(self.metrics) != 1:
            raise ValueError("facts are of one metric: needs one in metrics")
        if (self.rule in BOUNDED) != (self.bound is not None):
            raise ValueError(f"rule {self.rule} {'needs' if self.rule in BOUNDED else 'takes no'} bound")
        if (self.rule == ORDERED) and len(self.subjects) < 2:
            raise ValueError("rule ordered needs two workloads or models, the one with the largest numbers first")
        for name in ("once", "times"):
            if (self.rule == REPAYS) != (getattr(self, name) is not None):
                raise ValueError(f"rule {self.rule} {'needs' if self.rule == REPAYS else 'takes no'} {name}")
        if (self.rule in OF_TWO) != (self.than is not None):
            raise ValueError(f"rule {self.rule} {'needs' if self.rule in OF_TWO else 'takes no'} than")
        if self.than is not None and self.than.metric is not None and len(self.metrics) != 1:
            raise ValueError("than: metric: needs one in metrics")
        given = self.why_not is None or self.level is not None or self.against is not None
        has_levels = self.rule == FASTER and given
        sized = self.rule == FASTER and (self.why_not is None or self.change is not None)
        wanted = {"level": has_levels, "against": has_levels, "change": sized}
        for name, is_wanted in wanted.items():
            if is_wanted != (getattr(self, name) is not None):
                beside = " with why_not" if self.why_not is not None else ""
                raise ValueError(f"rule {self.rule}{beside} {'needs' if is_wanted else 'takes no'} {name}")
        for name in ("why_not", "label", "parts"):
            if getattr(self, name) and self.rule != FASTER:
                raise ValueError(f"rule {self.rule} takes no {name}")
        if has_levels is False and self.rule == FASTER and self.label is None:
            raise ValueError("rule faster without level needs label: what is compared, in a few words")
        if NETWORK in self.needs and self.scenario != "distributed":
            raise ValueError(f"needs: {NETWORK}: is of the scenario distributed alone")
        to_themselves = self.rule in (*BOUNDED, *OF_TWO) and set(self.metrics) == {SLOWDOWN}
        if self.environments and self.environments[0] != HOST and not to_themselves:
            raise ValueError(f"environments: {HOST} must come first, every ratio is to it")
        return self

    @property
    def subjects(self) -> tuple[str, ...]:
        """What it is about, workloads of ours first."""
        return self.workloads + self.models


class Sentence(Record):
    """What a paper's text says of its results, and what became of it.

    Attributes:
        where: section that says it.
        says: it, in our words.
        claims: those that judge it.
        why_not: why none does.
    """

    where: Text
    says: Text
    claims: Annotated[tuple[Word, ...], Distinct] = ()
    why_not: Text | None = None

    @model_validator(mode="after")
    def _is_judged_or_not(self) -> Self:
        if bool(self.claims) == (self.why_not is not None):
            raise ValueError(f"{self.says!r}: needs one of claims or why_not")
        return self


class Plot(Record):
    """How one figure is drawn: docs/published.md has the kinds.

    Attributes:
        figure: its number in the paper.
        title: what it shows.
        kind: one of KINDS.
        workloads, models: whose numbers it shows, as of a claim.
        metrics: what it shows of them: sampled quantities of a timeline, metrics of one unit of bars and lines.
        environments: those that it shows, where it is not all.
        relative: whether bars are ratios to the host.
        arm, scenario: what it was measured with: a level of a factor, what ran beside it.
        facts: what the text says of it, where the figure prints no numbers.
        largest: rows of a table or entries, with what the figure calls them: largest values of what it shows
            without numbers.
        table: of the kind `table`: which of the paper's.
    """

    figure: Number
    title: Text
    kind: Annotated[str, _one_of("kind", KINDS)]
    workloads: Annotated[tuple[Workload, ...], Distinct] = ()
    models: Annotated[tuple[Word, ...], Distinct] = ()
    metrics: tuple[Annotated[str, _one_of("metric", (*FIGURE_METRICS, *SAMPLED))], ...] = ()
    environments: Annotated[tuple[Environment, ...], Field(min_length=1)] | None = None
    relative: bool = False
    arm: Level | None = None
    scenario: Scenario = "single"
    facts: tuple[Word, ...] = ()
    largest: Mapping[Word, Text] = Field(default_factory=dict)
    table: Text | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.largest and self.kind not in (BAR, TIMELINE):
            raise ValueError(f"kind {self.kind} takes no largest")
        if (self.kind == TABLE) != (self.table is not None):
            raise ValueError(f"kind {self.kind} {'needs' if self.kind == TABLE else 'takes no'} table")
        if (self.kind in (ROOFLINE, TABLE)) == bool(self.metrics):
            raise ValueError(f"kind {self.kind} {'takes no' if self.metrics else 'needs'} metrics")
        known = SAMPLED if self.kind == TIMELINE else FIGURE_METRICS
        for name in self.metrics:
            if name not in known:
                raise ValueError(f"metrics: {name!r} is nothing that a {self.kind} shows: {nearest(name, known)}")
        if not self.subjects:
            raise ValueError("needs workloads or models: whose numbers it shows")
        if self.kind == LINE and len(self.subjects) > 1:
            raise ValueError("kind line takes one workload: its columns are batch sizes")
        if self.by_itself and self.relative:
            raise ValueError(f"metrics: {SLOWDOWN} is a ratio already: drop relative")
        if self.kind not in (TIMELINE, TABLE) and len({known[name] for name in self.metrics}) > 1:
            raise ValueError(f"metrics of one {self.kind} must have one unit")
        return self

    @property
    def subjects(self) -> tuple[str, ...]:
        """Whose numbers it shows, workloads of ours first."""
        return self.workloads + self.models

    @property
    def by_itself(self) -> bool:
        """Whether its values are slow-downs by a neighbour: ratios of an environment to itself, the host's too."""
        return SLOWDOWN in self.metrics


class Group(Record):
    """Figures that a reader meets together: a title, and what they show in a sentence or two."""

    title: Text
    about: Text
    figures: Annotated[tuple[Plot, ...], Field(min_length=1)]


class Figure(Record):
    """Values of a figure, one for each environment, or one for each batch size in one environment.

    Attributes:
        error: how far a height that was read off may be off.
        spread: standard deviation between the runs that each value is the mean of; with `runs`, their number.
    """

    figure: Number
    workload: Workload
    metric: Metric
    kind: Kind
    error: Printed | None = None
    spread: Printed | None = None
    runs: Annotated[int, Field(ge=2)] | None = None
    env: Environment | None = None
    values: Annotated[Mapping[Environment, Printed], Field(min_length=1)] | None = None
    batches: Annotated[Mapping[BatchKey, Printed], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.values is None) == (self.batches is None or self.env is None):
            raise ValueError("needs one of values or batches and env")
        if (self.kind == "figure_digitised") != (self.error is not None):
            raise ValueError("a digitised value, and no other, needs `error`: how far it may be off")
        if (self.spread is None) != (self.runs is None):
            raise ValueError("needs `spread` and `runs`, or neither")
        unit = FIGURE_METRICS[self.metric]
        for quantity in (self.error, self.spread, *(self.values or {}).values(), *(self.batches or {}).values()):
            if quantity is not None and quantity.unit != unit:
                raise ValueError(f"'{quantity}' is in {quantity.unit}, and must be in {unit}")
        return self


class Formula(Record):
    """How a study computed what its table calls a measured quantity.

    Attributes:
        result: row of a table.
        factors: rows of that table and entries of the file whose product it is; one in % counts as a share.
        where: what shows it.
    """

    result: Word
    factors: Annotated[tuple[Word, ...], Field(min_length=1)]
    where: Text


class Operation(Record):
    """What a profiler's log says of one operation in its summary."""

    total: Seconds
    calls: Plain
    average: Seconds
    smallest: Seconds
    largest: Seconds
    share: Percent | None = None


class Operations(Record):
    """Copies to and from the device, and fills."""

    htod: Operation
    dtoh: Operation | None = None
    memset: Operation


class Counters(Record):
    """What a profiler's log says of its counters."""

    warp_execution_efficiency: Percent
    dram_read_transactions: Plain
    dram_write_transactions: Plain
    dram_read_bytes_per_s: Unlabelled
    dram_write_bytes_per_s: Unlabelled
    flops: Plain
    tex_cache_hit_rate: Percent


class Log(Record):
    """A profiler's log."""

    workload: Workload
    env: Environment
    path: Text
    kind: Kind
    device: Text
    kernels_logged: Plain
    kernel_time: Seconds
    operations: Operations
    counters: Counters


class Times(Record):
    """What `time` printed."""

    workload: Workload
    env: Environment
    batch: Count
    series: Literal["batches", "environments"]
    kind: Kind
    real: Seconds
    user: Seconds
    system: Seconds


class Listed(Record):
    """Names of kernels as a log lists them."""

    workload: Workload
    env: Environment
    path: Text
    kind: Kind
    names: Texts


class Repository(Record):
    """Where the study's own code lies."""

    name: Text
    commit: Annotated[str, matching(r"[0-9a-f]{7,40}", "is no commit")] | None = None
    licence: Text | None = None


class Paper(Record):
    """One file of config/published.

    Attributes:
        workloads: those of ours that it trained, of which figures and logs tell.
        names: what it calls environments, by ours.
        plots: its figures in their order, in groups; `figures` has the values of those that print any.
        sentences: what its text says of its results, each with the claims that judge it, or why none does.
    """

    schema_: Annotated[Literal[1], Field(alias="schema")]
    paper: Annotated[str, matching(r"[a-z0-9]+", "must be lower-case letters and digits")]
    workloads: Annotated[tuple[Workload, ...], Distinct] = ()
    title: Text
    provenance: Text
    repository: Repository | None = None
    names: Mapping[Environment, Text] = {}
    plots: tuple[Group, ...] = ()
    text: tuple[Entry, ...]
    facts: tuple[Entry, ...] = ()
    settings: tuple[Entry, ...] = ()
    tables: tuple[Table, ...]
    measured_with: MeasuredWith | None = None
    claims: tuple[Claim, ...] = ()
    sentences: tuple[Sentence, ...] = ()
    formulas: tuple[Formula, ...] = ()
    figures: tuple[Figure, ...] = ()
    logs: tuple[Log, ...] = ()
    times: tuple[Times, ...] = ()
    kernels_listed: tuple[Listed, ...] = ()

    @model_validator(mode="after")
    def _claims_have_conditions(self) -> Self:
        if self.claims and self.measured_with is None:
            raise ValueError("measured_with: missing; claims are judged beside what they were measured with")
        return self

    @model_validator(mode="after")
    def _names_what_is_there(self) -> Self:
        entries = {entry.id for entry in (*self.text, *self.facts, *self.settings)}
        rows = {row.specification for table in self.tables for row in table.rows}
        named = [(f"formulas: {one.result}: factors", name) for one in self.formulas for name in one.factors]
        named += [(f"claims: {claim.id}: facts", name) for claim in self.claims for name in claim.facts]
        named += [
            (f"claims: {claim.id}", name) for claim in self.claims for name in (claim.once, claim.times) if name
        ]
        claims = [claim.id for claim in self.claims]
        for name in (name for sentence in self.sentences for name in sentence.claims):
            if name not in claims:
                raise ValueError(f"sentences: claims: no claim {name!r}: {nearest(name, claims)}")
        for place, name in named:
            if name not in entries | rows:
                raise ValueError(f"{place}: no entry or row {name!r}: {nearest(name, entries | rows)}")
        for one in self.formulas:
            if one.result not in rows:
                raise ValueError(f"formulas: result: no row {one.result!r} in a table: {nearest(one.result, rows)}")
        for entry in (*self.text, *self.facts):
            if entry.restates is not None and entry.restates not in entries:
                near = nearest(entry.restates, entries)
                raise ValueError(f"{entry.id}: restates: no entry {entry.restates!r}: {near}")
        return self

    @model_validator(mode="after")
    def _facts_are_of_the_metric(self) -> Self:
        numbers = [(entry.id, entry.value) for entry in (*self.text, *self.facts, *self.settings)]
        numbers += [(row.specification, row.value) for table in self.tables for row in table.rows]
        for claim in self.claims:
            for name, value in numbers:
                if name == claim.once and (value is None or value.unit != "s"):
                    raise ValueError(f"claims: {claim.id}: once: {name} is no number of seconds")
                if name in claim.facts and value is not None and value.unit != FIGURE_METRICS[claim.metrics[0]]:
                    raise ValueError(f"claims: {claim.id}: facts: {name} '{value}' is no {claim.metrics[0]}")
        return self

    @model_validator(mode="after")
    def _names_its_workloads(self) -> Self:
        told = {name for claim in self.claims for name in claim.workloads}
        told |= {one.workload for one in self.figures} | {one.workload for one in self.logs}
        told |= {name for plot in self.plotted for name in plot.workloads}
        for name in sorted(told):
            if name not in self.workloads:
                raise ValueError(f"workloads: {name} is missing: figures, logs or claims are about it")
        return self

    @property
    def plotted(self) -> tuple[Plot, ...]:
        """Every figure, in the paper's order."""
        return tuple(plot for group in self.plots for plot in group.figures)

    @model_validator(mode="after")
    def _draws_what_it_has(self) -> Self:
        plots = {plot.figure: plot for plot in self.plotted}
        if len(plots) < len(self.plotted):
            numbers = [plot.figure for plot in self.plotted]
            twice = next(number for number in numbers if numbers.count(number) > 1)
            raise ValueError(f"plots: figure {twice} stands there twice")
        for one in self.figures:
            plot = plots.get(one.figure)
            if plot is None:
                raise ValueError(f"plots: figure {one.figure} has values and no plot: {nearest(one.figure, plots)}")
            if one.workload not in plot.subjects:
                raise ValueError(f"plots: figure {one.figure}: workloads: {one.workload} is missing: it has values")
            if plot.metrics and one.metric not in plot.metrics:
                raise ValueError(f"plots: figure {one.figure}: metrics: {one.metric} is missing: it has values")
        for claim in self.claims:
            for figure in claim.figures:
                if figure not in plots:
                    raise ValueError(f"claims: {claim.id}: no figure {figure!r}: {nearest(figure, plots)}")
                if claim.than is not None and any(one.figure == figure for one in self.figures):
                    raise ValueError(f"claims: {claim.id}: rule {claim.rule} reads no values of figure {figure}")
        facts = {entry.id for entry in (*self.text, *self.facts, *self.settings)}
        titles = {table.name for table in self.tables}
        for plot in self.plotted:
            for name in plot.facts:
                if name not in facts:
                    raise ValueError(f"plots: figure {plot.figure}: no fact {name!r}: {nearest(name, facts)}")
            if plot.table is not None and plot.table not in titles:
                raise ValueError(
                    f"plots: figure {plot.figure}: no table {plot.table!r}: {nearest(plot.table, titles)}"
                )
        return self

    @model_validator(mode="after")
    def _has_the_largest_that_it_draws(self) -> Self:
        numbers = {row.specification: row.value for table in self.tables for row in table.rows}
        numbers |= {entry.id: entry.value for entry in (*self.text, *self.facts, *self.settings)}
        valued = {one.figure for one in self.figures}
        for plot in self.plotted:
            where = f"plots: figure {plot.figure}: largest"
            if plot.largest and plot.figure in valued:
                raise ValueError(f"{where}: it has values of its own: drop one of the two")
            for name in plot.largest:
                if name not in numbers:
                    raise ValueError(f"{where}: no row or entry {name!r}: {nearest(name, numbers)}")
                value = numbers[name]
                if value is None or value.unit not in DRAWN_UNITS:
                    raise ValueError(f"{where}: {name} is no number in one of {', '.join(sorted(DRAWN_UNITS))}")
        return self


def read_paper(path: Path) -> Paper:
    """Content of one study's file, checked.

    Raises:
        UserError: unreadable, not YAML, or not what the types ask for; the message names file and key.
    """
    content = _checked(read_words(path, "the published study"), str(path))
    if content.paper != path.stem:
        raise UserError(f"{path}: paper: {content.paper!r} must be the file's name, {path.stem!r}")
    return content


@lru_cache(maxsize=16)
def _checked(text: str, where: str) -> Paper:
    """Content of a text, which a report asks for section by section: checking it takes a tenth of a second."""
    return parse(Paper, parse_yaml(text, where), where, UserError)
