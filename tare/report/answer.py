"""The answer: what environments cost each workload, a job by its length, and what more time would settle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pandas as pd
from markupsafe import Markup

from tare.analysis.choice import ENVIRONMENT, METRIC_OF, PRIMARY, Asked, headlines, joint
from tare.analysis.decisions import Decision
from tare.analysis.job_answers import JobAnswer, job_answers
from tare.analysis.job_length import DAY, HOUR, LIMIT, TEN_SECONDS
from tare.analysis.plans.minutes import ROUND_MINUTES, Answer, answered_by
from tare.model.journals.units import share_of
from tare.model.roles import CONTROL
from tare.model.studies.campaigns import campaigns
from tare.model.studies.layout import DEFAULT_STUDY, STEPS, arm_of
from tare.model.studies.loading import load, study_files
from tare.model.studies.machines import measured
from tare.model.studies.study import Study
from tare.report.evidence import Evidence
from tare.report.figures.lines import cost_environments, job_rows, lengths_text
from tare.report.method import designs
from tare.report.references import Reference
from tare.report.words.decisions import COLUMNS, advice, job_sentences, title_of, way_of
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, workload_title
from tare.report.words.layout import Cell, Row, Table, as_command, ends
from tare.report.words.quantities import seconds
from tare.report.words.wording import margin_text, missing, percent, signed, tally
from tare.stats.intervals import FEWEST_UNITS, LARGEST_RATIO, MOST_UNITS

KINDS = {"real_s": "Whole runs", "step_s": "Training steps"}
HEADLINES = tuple(KINDS)
MOST_SAID = 4  # environments
WEIGHED = {"docker": "IMAGE", "podman": "IMAGE", "apptainer": "FILE", "charliecloud": "FOLDER"}  # as weigh.md says
LENGTHS = {TEN_SECONDS: "10 seconds", HOUR: "an hour", DAY: "a day"}
Ends = tuple[float, float]  # of an interval
Shown = tuple[str, str | None]  # an interval, or why there is none, and its verdict


def summary(evidence: Evidence) -> list[str]:
    """The shortest true answer: what each environment costs a job, and how many comparisons came out how."""
    rows = joint(evidence.verdicts)
    if rows.empty:
        return ["Only the host ran, so there is nothing to compare."]
    asked = {METRIC_OF[one.kind] for one in campaigns(evidence.study) if one.kind in METRIC_OF}
    asked |= {METRIC_OF[STEPS]} if evidence.networks and evidence.study.rounds.steps else set()
    shown = [(metric, what) for metric, what in KINDS.items() if metric in asked]
    tallies = [tally(rows[rows["metric"] == metric].to_dict("records"), what) for metric, what in shown]
    return [*cost_lines(job_answers(evidence.job_length, evidence.decided)), *tallies]


def cost_lines(found: Sequence[JobAnswer]) -> list[str]:
    """What each environment costs a job of any of the workloads; none where there are too many to read at once."""
    known = [one for one in found if one.once_s is not None and one.step is not None]
    envs = sorted({one.env for one in known}, key=env_order)
    if len(envs) > MOST_SAID:
        return []
    owns = [[one for one in known if one.env == env] for env in envs]
    counts = {len(own) for own in owns}
    several = [f"Each range covers {max(counts)} workloads."] if len(counts) == 1 and max(counts) > 1 else []
    return [*(_cost_line(own, counted=not several) for own in owns), *several]


class _Said(Enum):
    """What the intervals of all workloads say of a cost."""

    COST = "costs"
    SAVING = "saves time"
    NONE = "may cost nothing"
    VARIES = "has costs that depend on the workload"


def _cost_line(own: Sequence[JobAnswer], *, counted: bool) -> str:
    once = [one.once_s for one in own if one.once_s and one.step]
    step = [one.step for one in own if one.once_s and one.step]
    parts = [
        (_said(once), "once", ends(*_range(once))),
        (_said(step), "per step", signed(*(1 + end for end in _range(step)))),
    ]
    several = f" in {len(own)} workloads" if counted and len(own) > 1 else ""
    return f"{env_title(own[0].env, short=True)} {_costs(parts)}{several}."


def _said(known: Sequence[Ends]) -> _Said:
    low, high = _range(known)
    if low > 0:
        return _Said.COST
    if high < 0:
        return _Said.SAVING
    return _Said.NONE if all(one[0] <= 0 <= one[1] for one in known) else _Said.VARIES


def _range(known: Sequence[Ends]) -> Ends:
    """From the lowest end of all intervals to the highest."""
    return min(one[0] for one in known), max(one[1] for one in known)


def _costs(parts: Sequence[tuple[_Said, str, str]]) -> str:
    """A cost is a length; what is none has its interval in brackets, so that no cost is said to be negative."""
    first, *others = parts
    words = f"{first[0].value} {_at(*first)}"
    for one in others:
        if one[0] is first[0]:
            words += f" {'or' if one[0] is _Said.NONE else 'and'} {_at(*one)}"
        else:
            words += f" and {one[0].value} {_at(*one)}"
    return words


def _at(said: _Said, when: str, text: str) -> str:
    return f"{text} {when}" if said is _Said.COST else f"{when} ({text})"


def together(evidence: Evidence) -> list[str]:
    """How close all environments are to the host together, by workload, whole runs first."""
    rows = joint(evidence.verdicts)
    lines = []
    for metric in HEADLINES:
        for workload, own in rows[rows["all_within"].notna() & (rows["metric"] == metric)].groupby("workload"):
            if len(own) < 2 or (own["verdict"] == "different").any():  # of one the interval says it
                continue
            first = own.iloc[0]
            lines.append(
                f"{KINDS[metric]} of {workload_title(str(workload))}: all {len(own)} environments are within "
                f"{percent(first['all_within'], up=True)} of the host, stalls included "
                f"({100 * (1 - first['family_alpha']):.0f}% confidence; margin {margin_text(first['margin'])})."
            )
    return lines


def glances(evidence: Evidence | Reference) -> list[SimpleNamespace]:
    """Every interval that answers the question, by workload, in a table for the first screen.

    A row of it: environment, title, and by what was timed interval and verdict.
    """
    found = []
    for workload in evidence.workloads:
        rows = _shown(evidence, [workload])
        order = sorted(rows["asked"].unique(), key=_place)
        firsts = {asked: rows[rows["asked"] == asked].iloc[0] for asked in order}
        if not firsts:
            continue
        cells = {
            (row["launch"], row["asked"]): (signed(row["ci_low"], row["ci_high"]), row["verdict"])
            for row in rows.to_dict("records")
        }
        own = {env: [cells.get((env, asked), ("not run", None)) for asked in firsts] for env in rows["launch"]}
        own[CONTROL] = [(signed(*_control(rows[rows["asked"] == asked])), None) for asked in firsts]
        found.append(glance(workload_title(workload), map(asked_title, firsts), own.items()))
    return found


def glance(title: str, columns: Iterable[str], cells: Iterable[tuple[str, Sequence[Shown]]]) -> SimpleNamespace:
    """One such table, from the cells of each environment and of the control."""
    own = sorted(cells, key=lambda one: env_order(one[0]))
    rows = [(env, env_title(env, short=True), shown) for env, shown in own]
    return SimpleNamespace(title=title, columns=[*columns], rows=rows)


def _control(rows: pd.DataFrame) -> tuple[float, float]:
    """Ends of the A/A control of a workload and metric: of sliced rounds, where there are any."""
    sliced = rows[_were_sliced(rows)]
    first = (rows if sliced.empty else sliced).iloc[0]
    return first["control_ci_low"], first["control_ci_high"]


def _were_sliced(rows: pd.DataFrame) -> list[bool]:
    return [not missing(one) and bool(one) for one in rows["sliced"]]


def _other_controls(rows: pd.DataFrame) -> Iterator[str]:
    """Comparisons in rounds without slices next to sliced ones, whose A/A control the table does not have."""
    for (workload, metric), own in rows.groupby(["workload", "metric"], sort=False):
        sliced = _were_sliced(own)
        for row in own[[any(sliced) and not one for one in sliced]].to_dict("records"):
            yield (
                f"{env_title(row['launch'], short=True)}, {workload_title(workload)}: the "
                f"{metric_title(metric).lower()} was measured in rounds without slices, whose A/A control is "
                f"{signed(row['control_ci_low'], row['control_ci_high'])}."
            )


def notes(evidence: Evidence) -> list[str]:
    """Answers of the first screen that are later tries, have a separate control, or have no interval."""
    shown = _shown(evidence, evidence.workloads)
    tries = shown.groupby("workload")["attempt"].max().reindex(evidence.workloads).dropna().astype(int)
    lines = [
        f"{workload_title(name)}: this is try {attempt} of the same question, so its intervals are wider: it has "
        f"{percent(share_of(attempt))} of the error rate alpha, the first try had {percent(share_of(1))}. "
        "Repeating a study until something differs therefore gains nothing."
        for name, attempt in tries.items()
        if attempt > 1
    ]
    lines += _other_controls(shown)
    if (shown["ci_low"].isna() & shown["ci_high"].isna()).any():
        lines.append(
            f"“No interval” means too few rounds: fewer than {FEWEST_UNITS}, or so few that the interval would "
            f"reach beyond a factor of {LARGEST_RATIO:,}. More rounds in one campaign make intervals narrower. "
            "Another try makes them wider."
        )
    return lines


def _shown(evidence: Evidence | Reference, workloads: list[str]) -> pd.DataFrame:
    """Rows of the verdict table that the first screen shows."""
    verdicts = headlines(evidence.verdicts)
    return verdicts[verdicts["workload"].isin(workloads) & verdicts["metric"].isin(HEADLINES)]


def _place(asked: Asked) -> tuple[int, str]:
    return HEADLINES.index(asked.metric), asked.arm.name if asked.arm else ""


def asked_title(asked: Asked) -> str:
    """Title of what a row of `headlines` answers."""
    return metric_title(asked.metric) + (f", {arm_title(asked.arm.name)}" if asked.arm else "")


def answers(evidence: Evidence) -> list[SimpleNamespace]:
    """What the environments cost each workload; what its campaigns answer, with how many units and why."""
    primary = [one for one in evidence.decided if (one.factor, one.role) == (ENVIRONMENT, PRIMARY)]
    found = {name: [one for one in primary if one.workload == name] for name in evidence.workloads}
    return [
        SimpleNamespace(
            workload=name, title=workload_title(name), designs=designs(evidence, name),
            table=answer_table(own) if own else None,
        )
        for name, own in found.items()
    ]  # fmt: skip


def answer_table(found: Sequence[Decision]) -> Table:
    """What each environment costs next to the control, what it is attributed to, and what is advised."""
    return Table.of(
        sorted(found, key=lambda one: (env_order(one.env), _place(_answered(one)))),
        {"environment": lambda one: Cell(text=title_of(one), below=asked_title(_answered(one))), **COLUMNS},
        caption=f"{workload_title(found[0].workload)}: what each environment costs, compared with the host",
    )


def _answered(one: Decision) -> Asked:
    """What a decision of a headline answers."""
    return Asked(metric=one.metric, arm=arm_of(one.cell.campaign))


def job_sections(evidence: Evidence) -> list[SimpleNamespace]:
    """One part for each workload with compared whole runs; `has_length`: known for at least one environment."""
    found = ((name, job_rows(evidence.job_length, name)) for name in evidence.workloads)
    known = job_answers(evidence.job_length, evidence.decided)
    return [
        SimpleNamespace(
            name=name, title=workload_title(name), table=cost_table(rows), said=job_lines(known, name),
            has_length=bool(rows.loc[rows["item"] == "length_below", "reason"].isna().any()),
        )
        for name, rows in found if cost_environments(rows)
    ]  # fmt: skip


def job_lines(found: Sequence[JobAnswer], workload: str) -> list[Markup]:
    """What a job of a workload pays in each environment, in sentences."""
    own = sorted((one for one in found if one.workload == workload), key=lambda one: env_order(one.env))
    line = Markup("<strong>{}.</strong> {}").format
    return [
        line(env_title(one.env, short=True), Markup(" ").join([*said, *_way(one)]))
        for one in own
        if (said := job_sentences(one))
    ]


def _way(one: JobAnswer) -> list[Markup]:
    way = None if one.change is None else way_of(one.change, one.env)
    return [] if way is None else [way]


def cost_table(rows: pd.DataFrame) -> Table:
    """Both parts, the cost at three lengths, and the length beyond which it is small, by environment."""
    host_s = rows.loc[rows["item"] == "host_fixed_s", "value"].iloc[0]
    once = "its cost once per job" if missing(host_s) else f"its cost once per job ({seconds(host_s)})"
    return Table(
        caption=f"{workload_title(str(rows['workload'].iloc[0]))}: what an environment costs a job, by the time of "
        "its steps on the host",
        columns=[
            "environment",
            "once",
            "a step",
            *LENGTHS.values(),
            f"job length above which it costs less than {margin_text(LIMIT)}",
        ],
        rows=[_cells(rows[rows["launch"] == env], env) for env in cost_environments(rows)],
        note=f"Relative to the host's time: {once} and its steps. Once: start, imports, data, model, first step "
        "and exit, in seconds more or fewer, from whole runs. A step: in percent, from training steps. Both are "
        "measured. The cost of a job of a given length is modelled from both intervals (each at alpha/2, for all "
        "environments of a workload together).",
    )


def _cells(own: pd.DataFrame, env: str) -> Row:
    parts = {item: _job_row(own[own["item"] == item]) for item in ("fixed_s", "step_share", "length_below")}
    fixed, step, below = parts.values()
    cells: Row = [env_title(env, short=True), ends(fixed["low"], fixed["high"]), _share(step)]
    if not missing(below["reason"]):
        return [*cells, Cell(text=f"inconclusive: {below['reason']}", span=len(LENGTHS) + 1)]
    costs = own[own["item"] == "cost"]
    cells += [_share(_job_row(costs[costs["length_s"] == length_s])) for length_s in LENGTHS]
    return [*cells, lengths_text(below["low"], below["high"])]


def _share(row: dict[str, Any]) -> str:
    return "no interval" if missing(row["low"]) else signed(1 + row["low"], 1 + row["high"])


def _job_row(found: pd.DataFrame) -> dict[str, Any]:
    """The one row of an item; empty where there is none."""
    return found.iloc[0].to_dict() if len(found) else dict.fromkeys(found.columns)


def own_job(evidence: Evidence) -> list[Markup]:
    """How to measure one's own job in the environments that the advice names; nothing without advice."""
    named = {one.env for one in evidence.decided} if advice(evidence.decided) else set()
    words = [f"--env {env}={what}" for env, what in WEIGHED.items() if env in named]
    if not words:
        return []
    typed = as_command(f"tare weigh --env host {' '.join(words)} -- COMMAND")
    return [Markup("To measure your own job and look for causes, type: {}").format(typed)]


def sentence(evidence: Evidence) -> str | None:
    """Which command is expected to settle what whole runs and training steps left open; None where none is open."""
    found = answered_by(evidence.study, evidence.campaigns)
    if found is None:
        return None
    env, what = found.comparison.name.split(", ", 1)
    rounds = f"more than {MOST_UNITS:,}" if found.rounds >= MOST_UNITS else f"{found.rounds:,}"
    wanted = (
        f"{workload_title(found.workload)}, {env_title(env, short=True)}, {what} needs the most: {rounds} rounds, "
        f"at a spread of {found.comparison.spread:.2%} per round"
    )
    if found.ends_at is not None:
        return (
            f"More minutes are not expected to settle the inconclusive comparisons. {wanted}. But the campaign "
            f"ends after about {found.ends_at:,} rounds, when whole runs reach the half-width of "
            f"{evidence.study.rounds.half_width:.1%} that the study asks for. To let it go on, set a smaller "
            "“rounds: half_width”."
        )
    if found.minutes is None:
        return (
            f"No study of up to {ROUND_MINUTES[-1] // 60} hours is expected to settle the inconclusive "
            f"comparisons. {wanted}. All rounds that are needed would take about {found.needed_s / 3600:,.0f} "
            "hours."
        )
    if len(measured(evidence.study.machines)) > 1:
        return f"{wanted}. To measure for longer, on every machine of the study, set a larger “rounds: budget_s”."
    return Markup(
        "{} should settle the inconclusive comparisons if the spread stays the same. {}. It is a new try: its "
        "verdicts replace these, and it has a smaller share of the error rate alpha."
    ).format(as_command(command(evidence.study, found)), wanted)


def command(study: Study, found: Answer) -> str:
    """What a person types: `make report MINUTES=60`, with the study's file where it is not the default one.

    Of a study that names nodes of a cluster it is Snakemake's own, with the profile that sends jobs there.
    """
    name = study.study
    files = (path for path in study_files() if load(path).get("study") == name)
    file = next(files, f"{name}.yaml")
    if study.machines:
        send = "snakemake --workflow-profile profiles/slurm all"
        return f"{send} --configfile {file} --config minutes={found.minutes}"
    words = [] if name == DEFAULT_STUDY else [f"STUDY={file}"]
    return " ".join(["make report", *words, f"MINUTES={found.minutes}"])
