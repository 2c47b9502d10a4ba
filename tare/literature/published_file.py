"""The files of config/published: what a published study says, checked as a whole; every number with its unit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

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
from tare.model.registry import HOST, environment_names, module_names
from tare.model.schema import Count, Distinct, Record, matching, parse, parse_yaml, read_words
from tare.model.words import nearest

# How a claim is judged; docs/published.md says what each rule asks.
RULES = (
    "equal", "highest", "lowest", "at_most", "at_least", "more_than", "as_much_as", "faster", "ordered", "repays",
    "kernels_differ", "same_files",
)  # fmt: skip
EQUAL, HIGHEST, LOWEST, AT_MOST, AT_LEAST, MORE_THAN, AS_MUCH_AS, FASTER, ORDERED, REPAYS = RULES[:10]
KERNELS_DIFFER, SAME_FILES = RULES[10:]
OF_ONE = (HIGHEST, LOWEST, REPAYS, KERNELS_DIFFER)  # about one environment against the others
BOUNDED = (AT_MOST, AT_LEAST)
OF_TWO = (MORE_THAN, AS_MUCH_AS)  # about two costs, each the ratio of an environment to the host
OF_METRICS = (EQUAL, HIGHEST, LOWEST, *BOUNDED, *OF_TWO, FASTER, ORDERED, REPAYS)
# Which rules need a key that no other takes.
KEYS = {
    "env": OF_ONE,
    "metrics": OF_METRICS,
    "bound": BOUNDED,
    "than": OF_TWO,
    "once": (REPAYS,),
    "times": (REPAYS,),
}
# What may have to be as published for a claim to be the same question here.
DEVICE, STACK, RUNTIMES, NETWORK = CONDITIONS = ("device", "stack", "runtimes", "network")
# Base units of what a figure can show.
DRAWN_UNITS = {*FIGURE_METRICS.values(), *(unit for _, unit in SAMPLED.values())}


def _one_of(what: str, known: Collection[str] | Callable[[], Collection[str]]) -> AfterValidator:
    """A word that must be one of a few; the message has the nearest. `known`: a function where files say it."""

    def check(word: str) -> str:
        words = known() if callable(known) else known
        if word not in words:
            raise ValueError(f"unknown {what} {word!r}: {nearest(word, words)}")
        return word

    return AfterValidator(check)


Text = Annotated[str, Field(min_length=1)]
Word = Annotated[str, matching(r"[a-z0-9_]+", "must be lower-case letters, digits and underscores")]
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]
Workload = Annotated[str, _one_of("workload", lambda: module_names("workloads"))]
Environment = Annotated[str, _one_of("environment", environment_names)]
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
    """A number or name that the text states, a file shows, or that it was run with."""

    id: Word
    where: Text
    kind: Kind
    restates: Word | None = None


class Row(Stated):
    """A row of a table."""

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
    """A table of the paper."""

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
    """What a study's own measurements were made with: versions by name, and by environment those of runtimes."""

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
    """The other cost of a claim about two: in what it differs from the claim's own."""

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
    """One possible part of a claim's change, measured by itself; without `against`, against the headline."""

    label: Text
    workload: Workload
    level: Level
    against: Level | None = None


class About(Record):
    """What numbers are of: workloads of ours, and models by the study's own names."""

    workloads: Annotated[tuple[Workload, ...], Distinct] = ()
    models: Annotated[tuple[Word, ...], Distinct] = ()

    @property
    def subjects(self) -> tuple[str, ...]:
        """Both, workloads of ours first."""
        return self.workloads + self.models


class Claim(About):
    """One thing that a study says about its environments; docs/published.md has the keys of each rule."""

    id: Word
    where: Text
    figures: tuple[Text, ...]
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
        for name, rules in KEYS.items():
            if (self.rule in rules) != (getattr(self, name) not in (None, ())):
                raise ValueError(f"rule {self.rule} {'needs' if self.rule in rules else 'takes no'} {name}")
        if not self.subjects:
            raise ValueError("needs workloads or models: what it is about")
        for name, place, level in (("stack", "level", self.level), ("against_stack", "against", self.against)):
            if getattr(self, name) is not None and not str(level).startswith("stack="):
                raise ValueError(f"{name}: needs {place}: stack=…, whose it is")
        if self.facts and len(self.metrics) != 1:
            raise ValueError("facts are of one metric: needs one in metrics")
        if self.rule == ORDERED and len(self.subjects) < 2:
            raise ValueError("rule ordered needs two workloads or models, the one with the largest numbers first")
        if self.than is not None and self.than.metric is not None and len(self.metrics) != 1:
            raise ValueError("than: metric: needs one in metrics")
        given = self.why_not is None or self.level is not None or self.against is not None
        has_levels = self.rule == FASTER and given
        sized = self.rule == FASTER and (self.why_not is None or self.change is not None)
        wanted = {"level": has_levels, "against": has_levels, "change": sized}
        for name, is_wanted in wanted.items():
            if is_wanted != (getattr(self, name) is not None):
                condition = " with why_not" if self.why_not is not None else ""
                raise ValueError(f"rule {self.rule}{condition} {'needs' if is_wanted else 'takes no'} {name}")
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


class Asked(Record):
    """What the paper's optimiser is asked; by workload the claim whose levels are what it asks for, and without."""

    where: Text
    statement: Text
    request: Annotated[Mapping[str, Any], Field(min_length=1)]  # in the paper's own form
    claims: Annotated[Mapping[Workload, Word], Field(min_length=1)]


class Sentence(Record):
    """What a paper's text says of its results, and the claims that judge it, or why none does."""

    where: Text
    says: Text
    claims: Annotated[tuple[Word, ...], Distinct] = ()
    why_not: Text | None = None

    @model_validator(mode="after")
    def _is_judged_or_not(self) -> Self:
        if bool(self.claims) == (self.why_not is not None):
            raise ValueError(f"{self.says!r}: needs one of claims or why_not")
        return self


class Plot(About):
    """How one figure is drawn: docs/published.md has the kinds."""

    figure: Number
    title: Text
    kind: Annotated[str, _one_of("kind", KINDS)]
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
    def by_itself(self) -> bool:
        """Whether its values are slow-downs by a co-runner: ratios of an environment to itself, the host's too."""
        return SLOWDOWN in self.metrics


class Group(Record):
    """Figures that a reader meets together: a title, and what they show in a sentence or two."""

    title: Text
    about: Text
    figures: Annotated[tuple[Plot, ...], Field(min_length=1)]


class Figure(Record):
    """Values of a figure, one for each environment, or one for each batch size in one environment."""

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
    """How a study computed what its table calls a measured quantity."""

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
    """Where the study's own code is."""

    name: Text
    commit: Annotated[str, matching(r"[0-9a-f]{7,40}", "is no commit")] | None = None
    licence: Text | None = None


class Paper(Record):
    """One file of config/published."""

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
    requests: tuple[Asked, ...] = ()
    formulas: tuple[Formula, ...] = ()
    figures: tuple[Figure, ...] = ()
    logs: tuple[Log, ...] = ()
    times: tuple[Times, ...] = ()
    kernels_listed: tuple[Listed, ...] = ()

    @property
    def plotted(self) -> tuple[Plot, ...]:
        """Every figure, in the paper's order."""
        return tuple(plot for group in self.plots for plot in group.figures)

    @property
    def entries(self) -> list[tuple[str, Quantity | None]]:
        """Every number, or None for a name, of text, files and settings, with its id."""
        return [(entry.id, entry.value) for entry in (*self.text, *self.facts, *self.settings)]

    @property
    def table_rows(self) -> list[tuple[str, Quantity | None]]:
        """Every number, or None for a name, of the tables."""
        return [(row.specification, row.value) for table in self.tables for row in table.rows]

    @model_validator(mode="after")
    def _names_what_is_there(self) -> Self:
        if self.claims and self.measured_with is None:
            raise ValueError("measured_with: missing; claims say what they were measured with")
        entries, rows = {name for name, _ in self.entries}, {name for name, _ in self.table_rows}
        claims = [claim.id for claim in self.claims]
        for name in (name for sentence in self.sentences for name in sentence.claims):
            _refuse("sentences: claims: no claim", name, claims)
        for name in (name for asked in self.requests for name in asked.claims.values()):
            _refuse("requests: claims: no claim", name, claims)
        for formula in self.formulas:
            for name in formula.factors:
                _refuse(f"formulas: {formula.result}: factors: no entry or row", name, entries | rows)
            _refuse("formulas: result: no row", formula.result, rows, " in a table")
        for entry in (*self.text, *self.facts):
            if entry.restates is not None:
                _refuse(f"{entry.id}: restates: no entry", entry.restates, entries)
        for claim in self.claims:
            for name in filter(None, (*claim.facts, claim.once, claim.times)):
                place = f"claims: {claim.id}" + (": facts" if name in claim.facts else "")
                _refuse(f"{place}: no entry or row", name, entries | rows)
            for name, value in (*self.entries, *self.table_rows):
                if name == claim.once and (value is None or value.unit != "s"):
                    raise ValueError(f"claims: {claim.id}: once: {name} is no number of seconds")
                if name in claim.facts and value is not None and value.unit != FIGURE_METRICS[claim.metrics[0]]:
                    raise ValueError(f"claims: {claim.id}: facts: {name} '{value}' is no {claim.metrics[0]}")
        return self

    @model_validator(mode="after")
    def _draws_what_it_has(self) -> Self:
        named = {name for claim in self.claims for name in claim.workloads}
        named |= {name for plot in self.plotted for name in plot.workloads}
        named |= {figure.workload for figure in self.figures} | {log.workload for log in self.logs}
        for name in sorted(named - set(self.workloads)):
            raise ValueError(f"workloads: {name} is missing: figures, logs or claims are about it")
        numbers = [plot.figure for plot in self.plotted]
        for number in numbers:
            if numbers.count(number) > 1:
                raise ValueError(f"plots: figure {number} is there twice")
        plots, valued = dict(zip(numbers, self.plotted, strict=True)), {one.figure for one in self.figures}
        for one in self.figures:
            if one.figure not in plots:
                raise ValueError(f"plots: figure {one.figure} has values and no plot: {nearest(one.figure, plots)}")
            plot = plots[one.figure]
            if one.workload not in plot.subjects:
                raise ValueError(f"plots: figure {one.figure}: workloads: {one.workload} is missing: it has values")
            if plot.metrics and one.metric not in plot.metrics:
                raise ValueError(f"plots: figure {one.figure}: metrics: {one.metric} is missing: it has values")
        for claim in self.claims:
            for figure in claim.figures:
                _refuse(f"claims: {claim.id}: no figure", figure, plots)
                if claim.than is not None and figure in valued:
                    raise ValueError(f"claims: {claim.id}: rule {claim.rule} reads no values of figure {figure}")
        facts = dict(self.entries)
        values = dict(self.table_rows) | facts
        for plot in self.plotted:
            where = f"plots: figure {plot.figure}"
            for name in plot.facts:
                _refuse(f"{where}: no fact", name, facts)
            if plot.table is not None:
                _refuse(f"{where}: no table", plot.table, [table.name for table in self.tables])
            if plot.largest and plot.figure in valued:
                raise ValueError(f"{where}: largest: it has its own values: drop one of the two")
            for name in plot.largest:
                _refuse(f"{where}: largest: no row or entry", name, values)
                value = values[name]
                if value is None or value.unit not in DRAWN_UNITS:
                    units = ", ".join(sorted(DRAWN_UNITS))
                    raise ValueError(f"{where}: largest: {name} is no number in one of {units}")
        return self


def _refuse(what: str, name: str, known: Collection[str], where: str = "") -> None:
    """Refuse a name that is not there, with the nearest that is."""
    if name not in known:
        raise ValueError(f"{what} {name!r}{where}: {nearest(name, known)}")


def read_paper(path: Path) -> Paper:
    """Content of one study's file, checked. Raises UserError with file and key: it is not what types ask for."""
    content = _checked(read_words(path, "the published study"), str(path))
    if content.paper != path.stem:
        raise UserError(f"{path}: paper: {content.paper!r} must be the file's name, {path.stem!r}")
    return content


@lru_cache(maxsize=16)
def _checked(text: str, where: str) -> Paper:
    """Content of a text, which a report asks for section by section: checking it takes a tenth of a second."""
    return parse(Paper, parse_yaml(text, where), where, UserError)
