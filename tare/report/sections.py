"""The sections of the report in their order, declared: the page and heading of each, and what it is made of.

A section whose blocks find nothing is left out of page and contents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from tare.literature import published
from tare.report import (
    answer,
    choose,
    images,
    inside,
    machine,
    method,
    number_tables,
    own_jobs,
    paper,
    reference_section,
    scenarios,
    settings,
    why,
)
from tare.report.evidence import Evidence
from tare.report.parts import (
    Block,
    Part,
    at,
    box,
    card,
    each,
    figure,
    figures,
    folded,
    lines,
    networks,
    only,
    own,
    resolve_all,
    tables,
    template,
    title,
    unless,
    where,
    words,
    workloads,
)
from tare.report.words import decisions
from tare.report.words.layout import Table, remedy


class Section(NamedTuple):
    """One section: its anchor, its title in the contents, its page, its heading, and its blocks.

    `when`: whether there is anything to show; None where the blocks say it.
    `lacks`: what of it no job of the user's own has (own_jobs.NOT_OF_COMMANDS); of those alone it says no more.
    """

    name: str
    title: str
    page: str
    heading: str
    blocks: tuple[Block, ...]
    when: Callable[[Evidence], Any] | None = None
    lacks: str | None = None

    def parts(self, evidence: Evidence) -> list[Part]:
        """What it shows of these results; empty where it is left out."""
        own = resolve_all((own_jobs.lacking(self.lacks),), evidence) if self.lacks else []
        if (own and not evidence.networks) or (self.when is not None and not self.when(evidence)):
            return own
        found = resolve_all(self.blocks, evidence)
        return [*found, *own] if any(part.is_said for part in found) else own


def section(
    name: str, title: str, page: str, heading: str, *blocks: Block, when: Any = None, lacks: str | None = None
) -> Section:
    """A section of these blocks."""
    return Section(name, title, page, heading, blocks, when, lacks)


def present(evidence: Evidence) -> list[tuple[Section, list[Part]]]:
    """The sections of this report, each with what it shows; every paper has its own."""
    papers = [_paper_section(published.load(name)) for name in evidence.papers]
    found = [(section, section.parts(evidence)) for section in (*COMPARED_WITH_HOST, *papers, *BEHIND)]
    return [(section, parts) for section, parts in found if parts]


def _paper_section(study: published.Published) -> Section:
    def shown(evidence: Evidence) -> Mapping[str, Any]:
        return {
            "summary": paper.summary(evidence, study.paper),
            "claims": paper.claim_cards(evidence, study.paper),
            "figures": paper.figure_rows(evidence, study),
            "audit": paper.groups(evidence, study),
            "tables": paper.tables_apart(evidence, study),
            "more": paper.more_time_lines(evidence, study.paper),
            "names": paper.names(study),
            "requests": paper.requests(evidence, study),
        }

    about = ("paper", f"The paper {study.paper}", f"paper-{study.paper}", f"“{study.title}”")
    return section(*about, each(shown, *PAPER))


def _unavailable(evidence: Evidence) -> list[Markup]:
    """Environments that this machine lacks, each with its reason and what fixes it."""
    return [
        Markup("<strong>{}</strong>: {}").format(one.title, one.reason)
        + (Markup(". To fix it: {}").format(remedy(one.remedy)) if one.remedy else "")
        for one in method.unavailable(evidence)
    ]


def _timed(evidence: Evidence) -> str:
    """How whole runs are timed, and split."""
    sentences = ["A whole run is timed from just before the runtime starts to its end."]
    if evidence.networks:
        sentences = [
            "A whole run is timed from just before the runtime starts to its end, including its loader processes. "
            "Time stamps from inside the run split it into phases. After its epoch each run times training steps "
            "on batches that are already in memory."
        ]
    if evidence.own_jobs:
        sentences.append("For your own command, start, program and exit are timed separately, from outside.")
    return " ".join(sentences)


def _swept(evidence: Evidence) -> list[str]:
    return [name for name in evidence.networks if evidence.study.workloads[name].sweep_batches]


def _as_published(evidence: Evidence) -> str:
    """How sizes of batches ran; empty where none did."""
    found = [text for name in evidence.papers if (text := paper.lines_of(published.load(name)))]
    how = f"As {'; '.join(found)}: on" if found else "On"
    return f"{how} the host; each size ran several times, in balanced order." if _swept(evidence) else ""


def _filled(made: Callable[[Evidence, str], Table]) -> Callable[[Evidence, str], Table | None]:
    """A table, or none where it has no row."""
    return lambda evidence, name: table if (table := made(evidence, name)).rows else None


def _done_again(found: Mapping[str, Any]) -> str:
    """What findings are, and what the paper calls the environments that their notes name."""
    names = f" Where a note says {found['names']}." if found["names"] else ""
    return f"Each finding shows its arithmetic, so that you can redo it from the authors' published logs.{names}"


def _view(look: str) -> Block:
    """A figure of a paper, or the table in its place, with its numbers folded below."""
    numbers = folded("{it.title} in numbers", lines(lambda view: view.sentences + view.found))
    return figure(lambda view: view.table or view.name, "{it.said}", look, numbers)


ON_A_DEVICE = only(lambda evidence: evidence.study.device == "cuda")
ALONE = "The runtime's start comes first, its exit last. A container adds time there, or in how files are read."
WEIGHED = (  # environments and settings of a workload
    tables(at("table")),
    box("callout", title("Unavailable settings", "h4"), lines(at("unavailable"))),
    folded("Graph compilers of {it.title}: how long compiling takes, and from which step on it pays off",
        tables(at("compilers"))),
)  # fmt: skip
PAPER = (
    words("What the paper published, what its own logs show, and what this machine measured."),
    lines(at("summary")),
    title("Its claims"),
    words("Each claim has two answers. The first comes from the paper's own figures and logs, with one run each; "
          "only they can contradict the claim. The second comes from this machine, by the intervals that decide. "
          "Where the paper used another device class, stack or runtime, this is noted. Nothing is judged by eye.",
          "note"),
    box("cards claims",
        each(at("claims"),
            card("{it.statement}",
                words("{it.figures}", "cites"),
                each(at("alike"), template("claim.html.j2", lambda one: one))))),
    each(where("requests"), title("What its optimiser is asked"), each(at("requests"), lines(list))),
    title("What more time would settle"),
    lines(at("more")),
    title("Its figures"),
    words(Markup(
        "Diamonds: published values. Squares: the authors' own logs. ≠ marks a published value that differs from "
        "its log. Next to them: this machine, on its own axis. Each interval is that of one environment's mean. "
        "Whether two environments differ is judged by their ratios within a round, in "
        '<a href="environments.html#time">Environments</a>.'), "note"),
    each(at("figures"),
        each(only(lambda row: len(row) > 1), box("pair", each(list, _view("")))),
        each(only(lambda row: len(row) == 1), box("alone", each(list, _view("single"))))),
    each(where("audit"),
        title("Its numbers, done again"),
        words(_done_again),
        box("audit",
            each(at("audit"),
                folded(Markup('{it.title} <span class="outcome">{it.outcome}</span>'), tables(at("table")))))),
    each(where("tables"),
        title("Its tables"),
        box("specifications", each(at("tables"), box("", tables(lambda table: table))))),
)  # fmt: skip
REFERENCE = (
    words(at("absent")),
    each(unless("absent"),
        words("These campaigns were recorded once on other hardware and are kept with the project. Nothing here "
              "was measured on this machine, and nothing here enters its answers.")),
    each(at("broken"), words("{it}.", "callout warn")),
    each(at("references"),
        title("{it[name]}"),
        words(at("lead"), "lede"),
        box("pair",
            box("", tables(at("facts"))),
            box("",
                title("Measured ceilings of the device", "h4"), lines(at("ceilings")),
                title("Environments there", "h4"), lines(at("notes")))),
        each(where("glances"), title("Compared with its host", "h4"), template("glances.html.j2", at("glances"))),
        each(where("steps"), title("Training steps there", "h4"), tables(at("steps"))),
        folded("Every comparison on {it[name]}", tables(at("verdict_tables"))),
        each(at("choices"), title("Environment or settings there: {it.title}", "h4"), *WEIGHED),
        each(where("profiles"),
            title("A profiled launch there", "h4"),
            folded("Metrics of profiled launches on {it[name]}", tables(at("profiles")))),
        each(where("comparison_tables"),
            title("Compared with what papers published", "h4"), tables(at("comparison_tables"))),
        folded("Claims of papers about a device, checked on {it[name]}", tables(at("claims"))),
        each(where("batches"), title("Batch size there", "h4"), tables(at("batches"))),
        folded("Ceilings of {it[name]}", tables(at("ceiling_tables")))),
)  # fmt: skip
COMPARED_WITH_HOST = (
    section("job", "By job length", "index", "The cost for a job, by its length",
        words("A job pays once at its start and exit, and again with every step. Its length here means the time "
              "that its steps take on the host of this machine. The longer the job, the less its start matters."),
        box("workloads",
            each(answer.job_sections,
                box("workload", title("{it.title}"),
                    box("answered", lines(at("said"), "answers"),
                        each(where("has_length"),
                            figure("job_length_{it.name}",
                                "Modelled from two measured parts: whole runs and training steps.", "single"))),
                    folded("Numbers: {it.title}", tables(at("table")))))),
        lacks="job_length"),
    section("scenarios", "By scenario", "index", "By scenario",
        words("What each environment costs a whole run that runs alone, as one of several instances that train "
              "together, or with a co-runner (a second job on the same machine)."),
        tables(scenarios.matrix)),
    section("advice", "What to do", "index", "What to do",
        lines(lambda it: decisions.advice(it.decided)), lines(lambda it: decisions.ways(it.decided)),
        lines(answer.own_job)),
    section("more", "More time", "index", "What more time would settle", words(answer.sentence)),
    section("answer", "Answer", "environments", "The answer",
        words("The verdict in each row follows from its interval. The table decisions.csv has the same rows."),
        box("workloads",
            each(answer.answers,
                box("workload",
                    title("{it.title}"),
                    lines(lambda it: [Markup("<strong>{}</strong>: {}.").format(*one) for one in it.designs],
                        "meta"),
                    tables(at("table")),
                    each(unless("table"),
                        words("Only the host ran this workload, so there is nothing to compare."))))),
        box("callout", title("Not available on this machine"), lines(_unavailable)),
        box("callout warn", title("What went wrong"), lines(method.troubles))),
    section("time", "Time", "environments", "Where the time goes",
        words(_timed),
        figure("split", ALONE, "single"),
        each(workloads,
            folded("Numbers: {it.title}",
                tables(own(number_tables.times_table), own(_filled(number_tables.steps_table))))),
        title("Compared with the host"),
        figures("intervals",
            "Hollow points: the A/A control, the host compared with itself. No container causes these "
            "differences."),
        each(workloads, folded("Every comparison: {it.title}", tables(own(number_tables.verdicts_table)))),
        title("Every launch"),
        figures("units", "Rings mark outliers. No launch is left out.", table="metrics"),
        lines(own_jobs.no_steps, "meta")),
    section("co_runner", "With a co-runner", "environments", "With a co-runner",
        words("In each round, each environment made a whole run with a co-runner and one without it. The co-runner "
              "is a second job in another instance of the same environment. Both jobs have the same limits. The "
              "slowdown by the co-runner is the ratio of the two runs. The ratio of this slowdown to the host's "
              "shows whether a co-runner costs more in an environment than on the host."),
        each(scenarios.with_co_runner, title("{it.title}"), tables(at("table"), at("meanwhile")),
            each(at("lacking"), words("{it}.", "note")))),
    section("batch", "Batch size", "environments", "Batch size",
        words(_as_published),
        figures("batch_size", "Compare the spread within one size with the distance between sizes.", _swept),
        tables(lambda evidence: [number_tables.batch_numbers(evidence, name) for name in _swept(evidence)])),
    section("instances", "Several instances", "environments", "Several instances",
        each(scenarios.instances, words(at("about")), tables(at("split")), lines(at("network")),
            folded("Every comparison of instances that train together", tables(at("verdicts"))))),
)  # fmt: skip
BEHIND = (  # the sections of the papers come before these
    section("why", "Why", "why", "Why",
        words("A difference does not show its cause. Separate, untimed launches record which files are mapped, "
              "which kernels a training step runs, how long its operators take, and what reading the files of the "
              "imports costs. Differences between the two hosts come first: containers do not cause those."),
        each(why.arguments, title("{it.title}"), tables(at("findings")),
            folded("Every number: why {it.title} differs", tables(at("tables")))),
        when=why.has_causes, lacks="causes"),
    section("profiles", "Profiles", "step", "What a profiled launch shows",
        words(Markup("The metrics that papers use, each with its kind. <em>measured</em>: read from a clock or a "
              "counter. <em>modelled</em>: computed from counted operators. <em>unavailable</em>: could not be "
              "measured; the last column gives the reason.")),
        each(networks,
            folded("Every number: {it.title}, one profiled launch in each environment",
                tables(own(inside.profile_table)))),
        tables(lambda evidence: inside.counters_table(evidence.profiles)),
        each(ON_A_DEVICE,
            title("On the device"),
            figures("device_time",
                "Each bar is one training step on the device: its activities and its idle time.", at("networks")),
            title("What the driver reports"),
            figures("device_samples",
                "Utilisation here is the share of time in which any kernel ran. A device that one small kernel "
                "keeps busy shows 100%.", at("networks"), "device_samples")),
        title("Over time"),
        figures("utilisation",
            "CPU use between two samples; resident memory at each sample. The rate, if shown, is in samples per "
            "second over the steps that took their batch from the loader.", at("networks"), "samples"),
        title("By operator"),
        figures("operators", "Own time of an operator: without the operators that it calls.", at("networks"),
            "operators"),
        lacks="profile"),
    section("roofline", "Roofline", "step", "Roofline",
        words("The ceilings of this machine, measured with the study's number of threads, and the workloads below "
              "them. A workload's roof is that of the precision in which it computes. Each point has one "
              "intensity: without traffic counters for each cache level, the roofline is not hierarchical."),
        each(inside.roofline, words(at("absent")),
            each(where("record"),
                figure("roofline",
                    "Measured: solid roofs and times. Modelled: dashed roofs, and FLOPs and bytes where no "
                    "device counted them.",
                    "single"),
                tables(at("points")),
                title("By operator"),
                figures("roofline", "Families of operators on the host, from one profiled launch.",
                    at("networks")),
                title("The ceilings"),
                lines(at("ceilings")),
                folded("Numbers: families, ceilings", tables(at("families"), at("tables"))))),
        lacks="roofline"),
    section("choices", "Environment or settings?", "settings", "Environment or settings?",
        words("Which matters more: the environment, or the settings of the framework? Each setting ran on the host "
              "in the same rounds as the default setting. Each environment ran in the same rounds as the host. The "
              "larger effect matters more, if the intervals separate the two. An arm ran every environment at one "
              "setting and, in the same rounds, the default launch. So the cost of the setting and the cost of an "
              "environment at this setting come from the same rounds."),
        each(settings.sections, title("{it.title}"),
            figure("choices_{it.name}",
                "Both on one axis: ratio of environments to the host, of settings to the default setting.",
                "single"),
            *WEIGHED,
            folded("Every comparison: arms of {it.title}", tables(at("arms"))))),
    section("stacks", "Stacks", "settings", "Stacks",
        words("The effect of other packages, compared with the effect of an environment. Each campaign ran every "
              "environment with the other stack and, in the same rounds, the host with the study's own stack."),
        folded("Versions", tables(settings.package_table)),
        each(settings.stack_sections, title("{it.title}"), lines(at("missing")),
            each(where("steps"),
                words("Why stacks differ: the operators of a step. One profiled launch each, so no interval. Don't "
                      "read these numbers as timings."),
                tables(at("steps"))),
            folded("Every comparison: stacks of {it.title}", tables(at("tables")))),
        when=Evidence.other_stacks),
    section("choose", "Choose", "choose", "Answers to requests",
        words("Answers of the command tare optimise. Predicted times come from a model that was trained on this "
              "machine. Measured times come from sliced rounds next to the framework's default: the host, all "
              "threads, the first batch, no settings."),
        box("workloads",
            each(choose.answers,
                box("workload", title("{it.title}"), lines(at("facts"), "meta"), tables(at("ranking")),
                    each(where("measured"),
                        title("Prediction and measurement", "h4"),
                        tables(at("measured")),
                        lines(at("not_measured"))),
                    each(where("search"),
                        title("Search", "h4"),
                        lines(at("search")),
                        tables(at("fresh"), at("tried"))),
                    each(where("excluded"),
                        folded("Every excluded candidate ({it.n_excluded})", tables(at("excluded")))))))),
    section("images", "Images", "images", "What an image costs",
        words("Costs before the first step: the time from locked packages to an image that can be started, its "
              "size on disk, and the time of its first start. These are observations on this machine, without "
              "verdicts. Each image was built once."),
        tables(images.cost_tables),
        folded("All {shown} packages of the stack",
            words(lambda evidence: Markup("").join(map(Markup("{}<br>").format, machine.package_list(evidence))),
                "packages"),
            of=lambda evidence: len(machine.package_list(evidence))),
        lacks="images"),
    section("naive", "A naive image", "images", "Compared with a naive image",
        words("The same stack in an image that a user would write by hand: a Dockerfile with one instruction per "
              "step, which keeps the files that were copied for the installation, and an Apptainer definition file "
              "with the same steps. Both use the base, interpreter and packages of Tare's own image, and are built "
              "without a network."),
        tables(images.naive_table)),
    section("break_even", "When building pays", "images", "When does building pay?",
        words("Runs until building pays off = (build seconds + 8 × bytes to pull / bits per second) / seconds that "
              "a run saves. The saving has an interval, and each of its ends gives one answer. If a run saves "
              "nothing, building never pays off."),
        each(images.break_even,
            words(lambda one: f"With this study's numbers (modelled), {one['first']}", "lede"),
            template("break_even.html.j2", lambda one: {"defaults": json.dumps(one["defaults"])}),
            folded("The answer for every environment, with this study's numbers", tables(at("table"))))),
    section("machine", "Machine", "machine", "Machine, software, device",
        box("pair", box("", tables(machine.machine_table)), box("", tables(machine.software_table))),
        tables(machine.device_table),
        each(ON_A_DEVICE,
            title("The device while campaigns ran"),
            lines(lambda evidence: machine.flag_sentences(evidence.campaigns),
                otherwise="According to the driver, no round had a device error, a lowered clock, or another "
                "program on the device."))),
    section("pipeline", "Input", "machine", "The input alone",
        words(lambda evidence: f"Read, decode, augment and batch, with no training: {inside.ALONE}"),
        each(inside.inputs, lines(at("sentences")), tables(at("table"))),
        when=lambda evidence: evidence.pipelines),
    section("conditions", "Conditions", "machine", "Conditions",
        lines(machine.deviation_sentences),
        own_jobs.lacking("conditions"),
        tables(machine.conditions_table, machine.others_table)),
    section("reference", "Reference machine", "machine", "Reference machine",
        each(reference_section.section, *REFERENCE)),
    section("method", "Method", "method", "How it was measured",
        box("columns",
            box("", title("Design"), lines(method.method_sentences, "method")),
            box("", title("Limits"), lines(method.limit_sentences))),
        tables(method.plan_table, own_jobs.plan_table),
        folded("How often launches failed", tables(method.failures_table))),
    section("data", "Data", "provenance", "Data and loss",
        lines(machine.data_sentences),
        title("Did all launches compute the same?"),
        tables(method.loss_table),
        lacks="losses"),
    section("provenance", "Provenance", "provenance", "Provenance",
        tables(machine.provenance_table),
        title("Ledger"),
        each(method.ledger_sentences, words("{it}")),
        folded("Every campaign that was opened, sealed or set aside", tables(method.ledger_table)),
        Block("links", "notebooks", words="Notebooks, as they were run"),
        Block("links", "tables", words="Tables")),
)  # fmt: skip
SECTIONS = (*COMPARED_WITH_HOST, *BEHIND)
