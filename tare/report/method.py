"""How it was measured: designs, failures, limits, the ledger of tries, and whether launches computed the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from tare.analysis.bounds import Failures, failures_of
from tare.analysis.choice import KINDS, METRIC_OF, joint
from tare.analysis.copies import matters
from tare.analysis.launch_rows import failure
from tare.analysis.sliced_rounds import is_sliced, unsliced_reason
from tare.literature.finding import listed
from tare.model.journals.units import IN_MEMORY, given_up, served, unsliced
from tare.model.records.campaigns import SHARED
from tare.model.records.measured import HEADLINE, CopiesRecord, CurvesRecord
from tare.model.registry import HOST, SINGLE
from tare.model.studies.layout import STEPS, is_headline, kind_of, read_name
from tare.report.evidence import Campaign, Evidence
from tare.report.rows import having
from tare.report.words.labels import arm_title, env_title, metric_title, workload_title
from tare.report.words.layout import Reader, Row, Table, field
from tare.report.words.quantities import seconds, units_text
from tare.report.words.wording import margin_text, missing, percent, signed, width_text

WHAT = {"rounds": "whole runs", "steps": "training steps", "causes": "causes", "sweep": "batch sweep"}
REACHED = (("ci_low", "ci_high"), ("control_ci_low", "control_ci_high"))
STATES = {
    "opened": "open",
    "sealed": "sealed",
    "superseded": "set aside",
    "adopted": "taken over from another study",
    "found": "found without a row in the ledger",
    "gone": "in the ledger, but its folder is gone",
}
# Frameworks sum in single precision, each in its own order, and what that leaves grows by the step.
TOLERANCE = 2e-3
LARGEST_RELATIVE_LOSS = 1e-4  # single precision, sums in another order: some thousand roundings of 6e-8
LOSS_OF = {"rounds": "loss_last", "steps": "step_loss_last"}
# What holds for every study; the plan of one study is in a table.
FIRST_ROWS = 3  # of `design_rows`
METHOD = (
    "Intervals are over rounds, never over launches, slices or steps. In each round, the log-ratio of each "
    "environment to the mean of both hosts is taken. The A/A control is the ratio of the second host to the first: "
    "the error of the measurement.",
    "Whole runs and steps of every environment are the primary comparisons (Holm). Parts of runs, arms and causes "
    "are exploratory (Benjamini and Hochberg).",
    "Margins were declared before the data. The interval is inside the margin and contains zero: equivalent. "
    "Inside, without zero: different within the margin. Contains zero and exceeds the margin: inconclusive. "
    "Otherwise: different.",
    "All time, stalls included, is reported next to the typical time. “Equivalent” means that both are inside the "
    "margin and that no effect of stalls is shown. Otherwise the verdict adds “apart from stalls”.",
)
OF_NETWORKS = (
    "Equal for all environments: interpreter and packages (byte for byte), threads, CPUs, open files, /dev/shm, an "
    "allow-list of variables, working directory, data path, network, page cache and allocator.",
    "A timed launch is never profiled.",
)
OF_COMMANDS = (
    "Your own command runs as each runtime starts it by default. Its folder, user, network and variables are equal "
    "for all. Images, processors and limits are those that a user gets there, so they are part of the answer.",
)


LIMITS_OF_NETWORKS = (
    "Training steps are timed on batches in memory, one launch at a time. Effects of loader processes, other jobs "
    "or memory pressure on a step are in the whole runs only.",
    "FLOPs and bytes are modelled from operators. The bytes count every operand as if no cache kept it. They are "
    "an upper bound, not DRAM traffic.",
    "Each environment was profiled once: its operator times and utilisation show what runs, not small differences.",
)


def method_sentences(evidence: Evidence) -> list[str]:
    """What holds for every study, and for what this one measures."""
    return [
        *METHOD,
        *(OF_NETWORKS if evidence.networks else ()),
        *(OF_COMMANDS if evidence.own_jobs else ()),
    ]


def design_sentence(campaign: Campaign, verdicts: pd.DataFrame) -> str:
    """Number of units, where it comes from, and the half-widths reached and wanted."""
    sampling, decision, adopted = campaign.plan.sampling, campaign.decision, campaign.plan.adopted
    count, reached = units_text(len(campaign.counted), campaign.kind), half_width(campaign, verdicts)
    if whole := sum(bool(unit.whole) for unit in campaign.counted):
        count += f" ({whole} of them for whole runs without slices)"
    got = "no interval so far" if reached is None else f"{width_text(reached)} reached"
    if sampling.half_width is None or sampling.budget_s is None:
        said = f"{count}, a number fixed by the study; {got}"
    else:
        wanted = f"±{margin_text(sampling.half_width)}"
        widths = f"{wanted} wanted, {got}"
        if decision is not None and not campaign.ended:
            if decision.design == "stein":
                count += f", chosen from the spread of a pilot of {sampling.pilot} (Stein)"
            else:
                count += f", as many as fit in the budget of {seconds(sampling.budget_s)}"
                if decision.wanted > decision.units:
                    needed = units_text(decision.wanted, campaign.kind)
                    widths = f"the wanted {wanted} needed {needed}; {got}"
        said = f"{count}; {widths}"
    if adopted is None:
        return said
    when = adopted.sealed_at.replace("T", " ").removesuffix("Z")
    return f"{said}; taken over from the study {adopted.study}, which had the same plan ({when} UTC)"


def half_width(campaign: Campaign, verdicts: pd.DataFrame) -> float | None:
    """Half-width of the widest interval of what the campaign answers, control included, as a relative number."""
    rows = having(verdicts, metric=METRIC_OF[campaign.kind])
    widths = [
        math.sqrt(high / low) - 1
        for low_name, high_name in REACHED
        for low, high in zip(rows[low_name], rows[high_name], strict=True)
        if low == low and high == high and low > 0
    ]
    return max(widths, default=None)


def verdicts_of(evidence: Evidence, campaign: Campaign) -> pd.DataFrame:
    """Rows of the verdict table of one campaign."""
    return having(evidence.verdicts, workload=campaign.workload, campaign=campaign.name)


def designs(evidence: Evidence, workload: str) -> list[tuple[str, str]]:
    """What the headline campaigns of a workload answer, and their designs."""
    own = [campaign for campaign in evidence.headlines() if campaign.workload == workload]
    return [(metric_title(METRIC_OF[c.kind]), design_sentence(c, verdicts_of(evidence, c))) for c in own]


def name_of(campaign: Campaign) -> str:
    """A campaign as a reader knows it: workload, what it answers, its arm."""
    return ", ".join([workload_title(campaign.workload), WHAT[campaign.kind], *_levels(campaign)])


def _levels(campaign: Campaign) -> list[str]:
    """What sets a campaign apart from the headline: its arm, its scenario."""
    found = [arm_title(campaign.arm.name)] if campaign.arm else []
    return found + ([campaign.plan.scenario] if campaign.plan.scenario != SINGLE else [])


def troubles(evidence: Evidence) -> list[str]:
    """Campaigns that ended early, units that are void, environments that were given up, launches that failed."""
    return [f"{name_of(campaign)}{line}" for campaign in evidence.campaigns for line in _troubles(campaign)]


def _troubles(campaign: Campaign) -> Iterator[str]:
    kind = campaign.kind
    if campaign.ended:
        count = units_text(len(campaign.counted), kind)
        yield f": ended early, after {count}: {campaign.ended}"
    void = [unit for unit in campaign.units if unit.voided is not None]
    if void:
        reasons = listed(list(dict.fromkeys(str(unit.voided) for unit in void)))
        were = "is void, so it was repeated and is" if len(void) == 1 else "are void, so they were repeated and are"
        yield f": {units_text(len(void), kind)} {were} in no result ({reasons})"
    gone = given_up(campaign.units)
    for env in dict.fromkeys(env for unit in campaign.units for env in unit.launches):
        where = env_title(env) if kind != "sweep" else f"batch {env}"
        own = [unit.launches[env] for unit in campaign.units if env in unit.launches]
        tried = [row for row in own if row.status in ("ok", "failed", "timeout")]
        bad = [row for row in tried if not row.ok]
        end = ""
        if env in gone:  # the units in which it was not tried any more
            skipped = units_text(sum(row.status == "skipped" for row in own), kind)
            end = f"; {gone[env].split(':')[0]}, so {skipped} went on without it"
        if bad:
            count = f"{len(bad)} of {len(tried)} launches did not succeed"
            yield f", {where}: {count} ({failure(bad[-1])}){end}"


class Absent(NamedTuple):
    """An environment that did not run, with what fixes it where its probe says so."""

    title: str
    reason: str
    remedy: str | None = None


def absent(evidence: Evidence) -> dict[str, Absent]:
    """Environments of the study that did not run, by name."""
    found: dict[str, Absent] = {}
    for env in evidence.environments:
        probe = evidence.probes.get(env)
        if probe is not None and not probe.available:
            found[env] = Absent(env_title(env), probe.reason or "no reason was recorded", probe.remedy)
    for campaign in evidence.campaigns:
        if not _levels(campaign) and not (campaign.arm is not None and campaign.arm.is_setting):
            for env, reason in campaign.plan.unavailable.items():
                if env in evidence.environments:
                    remedy = evidence.probes[env].remedy if env in evidence.probes else None
                    found.setdefault(env, Absent(env_title(env), reason, remedy))
    return dict(sorted(found.items()))


def unavailable(evidence: Evidence) -> list[Absent]:
    """Environments of the study that did not run; then an arm's own gaps."""
    found = absent(evidence)
    whole = set(found)
    for campaign in evidence.campaigns:
        if campaign.arm is not None and campaign.arm.is_setting:
            continue  # no environment's fault: it is reported where settings are compared
        for env, reason in campaign.plan.unavailable.items():
            if _levels(campaign) and env not in whole:
                title = ", ".join([env_title(env), *_levels(campaign)])
                found.setdefault(title, Absent(title, reason))
    return list(found.values())


def failures_table(evidence: Evidence) -> Table | None:
    """Every environment of the headlines, and whatever failed elsewhere; None where nothing was launched."""
    found = [
        (name_of(campaign), env_title(name), failed)
        for campaign in evidence.campaigns
        if campaign.kind != "sweep"  # its launches are of the host alone
        for name in campaign.plan.launch_names
        if (failed := failures_of(campaign, name)).launches
        if failed.failures or (campaign.kind in KINDS and campaign.is_headline)
    ]
    if not found:
        return None
    return Table.of(
        found,
        {
            "": lambda row: row[0],
            "environment": lambda row: row[1],
            "launches": lambda row: str(row[2].launches),
            "failed": lambda row: str(row[2].failures),
            "of these timed out": lambda row: str(row[2].timeouts),
            "share that fails": lambda row: share_text(row[2]),
        },
        caption="How often launches failed",
        note="Exact intervals of the share that fails (Clopper and Pearson, 95%, as if the number of launches had "
        "been fixed). Void units count, discarded units do not. Campaigns that are not headlines are listed only "
        "if a launch failed.",
    )


def share_text(failed: Failures) -> str:
    """The interval of the share that fails; without failures, what it is at most."""
    high = percent(failed.high, up=True)
    return f"{percent(failed.low, down=True)} to {high}" if failed.failures else f"at most {high}"


def plan_table(evidence: Evidence) -> Table | None:
    """What the study's plan declared before any data; None where no campaign of all environments is sealed."""
    rounds = [one for one in evidence.headlines("rounds") if not one.plan.is_command]
    steps = evidence.headlines("steps")
    if not rounds:
        return None
    conditions, design = rounds[0].plan.conditions, design_rows(rounds, evidence)
    allocators = [f"{conditions.allocator} in whole runs"]
    if steps and steps[0].plan.measured is not None:
        allocators.append(f"{listed(list(steps[0].plan.measured.levels))} in training steps")
    values = {
        **{name: design.pop(name) for name in list(design)[:FIRST_ROWS]},
        "Training steps": _steps(steps[0]) if steps else None,
        **design,
        "Arms": "in each round every environment at the arm's setting, the host twice, and the default launch"
        if evidence.arms()
        else None,
        "Threads, logical CPUs": f"{conditions.threads}, {conditions.cpus}",
        "Page cache": conditions.page_cache,
        "Allocator": listed(allocators),
        "Network": _network(evidence),
    }
    rows: list[Row] = [[name, text] for name, text in values.items() if text]
    return Table(caption="The plan, the same for all environments", columns=["", "value"], rows=rows)


def design_rows(rounds: list[Campaign], evidence: Evidence) -> dict[str, str | None]:
    """How headline campaigns of whole runs were designed, by what; the FIRST_ROWS are of a round."""
    plan = rounds[0].plan
    sampling = plan.sampling
    wrong = 100 * (1 - sampling.confidence)
    return {
        "A round": f"{len(plan.launch_names)} whole runs to their end, two of them on the host",
        "Its launches advance": _advance(rounds[0]),
        "Rounds discarded first": _discarded(rounds[0]),
        "How many rounds": f"{sampling.units}, fixed by the study"
        if sampling.half_width is None
        else f"a pilot of {sampling.pilot}, then as many as ±{margin_text(sampling.half_width)} needs, at most as "
        "many as fit in the time budget (the budget looks at costs only)",
        "A verdict needs at least": units_text(sampling.verdict_units, "rounds"),
        "Confidence": f"{100 * sampling.confidence:g}% that no primary comparison shows a false difference; of the "
        f"exploratory differences, at most {wrong:.3g}% are expected to be false",
        "Intervals": f"{_intervals(rounds)}; if the pilot's spread chose the number of units, the wider of this "
        "interval and Stein's",
        "Margins": f"{margin_text(plan.margins['run'])} for whole runs and their parts, "
        f"{margin_text(plan.margins['step'])} for training steps"
        if plan.margins
        else None,
        "Files of the second host": _copies(rounds, evidence.copies),
        "Images were read from": _read_from(rounds),
    }


def _advance(campaign: Campaign) -> str:
    """How the launches of a round shared the processors; plans of older versions have no seed of an order."""
    order = "random order" if campaign.plan.order_seed is None else "balanced order (Williams squares)"
    if not is_sliced(campaign):
        reason = unsliced_reason(campaign)
        return f"one after the other in {order}{f', not in slices: {reason}' if reason else ''}"
    apart = [f"{env_title(name)} ({why})" for name, why in unsliced(campaign.plan, campaign.units).items()]
    others = f"; not in slices, in separate rounds with both hosts: {listed(apart)}" if apart else ""
    whole = [f"{env_title(name)} ({why})" for name, why in served(campaign.plan, campaign.units).items()]
    others += f"; training steps in slices, whole runs in separate rounds: {listed(whole)}" if whole else ""
    return (
        f"in slices: one launch ran at a time while all others were stopped, in {order}; a launch's own time is "
        f"the sum of its slices; start and exit of its runtime are timed separately{others}"
    )


def _discarded(campaign: Campaign) -> str | None:
    if not campaign.plan.discarded:
        return None
    first = [launch for unit in campaign.units if unit.discarded for launch in unit.launches.values()]
    left_out = sum(launch.reason == IN_MEMORY for launch in first)
    skipped = f"{left_out} launch{'' if left_out == 1 else 'es'} skipped"
    warm = f" ({skipped}, as the files were in memory already)" if left_out else ""
    return f"{campaign.plan.discarded}{warm}"


def _steps(campaign: Campaign) -> str:
    measured = campaign.plan.measured
    assert measured is not None  # or there would be no view of steps
    levels = listed([arm_title(f"allocator={level}") for level in measured.levels])
    count = "1 replicate" if measured.replicates == 1 else f"{measured.replicates} replicates"
    return (
        f"after its epoch each whole run made {count} of its training job ({levels}) on batches in memory, each in "
        f"a separate process if the framework can continue in one: {measured.warmup_steps} warm-up steps, then "
        "steps that are timed one by one"
    )


def _copies(campaigns: list[Campaign], between: CopiesRecord | None) -> str | None:
    """What the second host shares with the first; nothing of older campaigns."""
    controls = [campaign.plan.provenance.get("control") for campaign in campaigns]
    shared = sorted({one["reason"] for one in controls if one and one["files"] == SHARED})
    if shared:
        reasons = "; ".join(shared)
        return f"those of the first host, so the A/A control lacks differences between two copies: {reasons}"
    if not any(controls):
        return None
    text = "a second copy, so the A/A control includes differences between copies; the effect of a copy on a step"
    if between is None:
        return f"{text} was not measured on this machine (benchmarks/copies.py measures it)"
    ends = (between.sd_between.low, between.sd_between.high)
    low, high = (percent(end) if end >= 0.0001 else "0%" for end in ends)
    chance = "not more than chance, so other intervals don't include it"
    counts = "intervals of steps include it" if matters(between) else chance
    return (
        f"{text}, measured with copies of {between.stack}: standard deviation {low} to {high} "
        f"({len(between.copies)} copies, {between.rounds} rounds, {between.at[:10]}); {counts}"
    )


def _read_from(campaigns: Sequence[Campaign]) -> str | None:
    """File systems of the images, of campaigns that a cluster's nodes measured; nothing of others."""
    found: dict[str, set[str]] = {}
    for campaign in campaigns:
        for env, image in campaign.plan.provenance.get("images", {}).items():
            if kind := image.get("read_from"):
                found.setdefault(kind, set()).add(env)
    if len(found) < 2:
        return next(iter(found), None)
    each = "; ".join(f"{listed(sorted(names))} from {kind}" for kind, names in sorted(found.items()))
    return f"not the same: {each}. A comparison of the two includes the difference between the file systems"


def _intervals(rounds: Sequence[Campaign]) -> str:
    """What intervals rest on, by whether the rounds were sliced."""
    sliced = {is_sliced(campaign) for campaign in rounds}
    own = "Student's t with each comparison's own spread"
    lent = (
        "trimmed means with Yuen's spread from eight units on, Student's t with fewer, never narrower than the "
        "spreads of the other comparisons suggest"
    )
    if sliced == {True, False}:
        return f"in sliced rounds {own}, in others {lent}"
    return own if sliced == {True} else lent


def _network(evidence: Evidence) -> str:
    """Whether every launch had an empty network, from what each saw."""
    launches = [row for c in evidence.headlines() for unit in c.units for row in unit.launches.values()]
    rows = [row.inside for row in launches if row.inside is not None]
    connected = [inside for inside in rows if set(inside.facts.interfaces) - {"lo"}]
    return (
        f"{len(connected)} of {len(rows)} launches had one, which could not be removed on this machine"
        if connected
        else "none"
    )


def limit_sentences(evidence: Evidence) -> list[str]:
    """What a reader must not conclude, and why."""
    lines = []
    virtual = evidence.machine.virtualisation if evidence.machine else None
    if virtual and virtual != "none":
        lines.append(
            f"The host of this report is itself virtual ({virtual}), so the results may differ on bare metal. "
            "Other virtual machines may share its processor, and their work affects these times."
        )
    elif virtual is None:
        lines.append("It could not be determined whether the host is a virtual machine.")
    rows = joint(evidence.verdicts)
    unsure = int(((rows["verdict"] == "inconclusive") & rows["ci_low"].notna()).sum())
    if unsure:
        lines.append(
            f"{unsure} of {len(rows)} comparisons {'is' if unsure == 1 else 'are'} inconclusive: the spread on "
            "this machine is wider than the margin. More units, in a new campaign, make the intervals narrower."
        )
    if lacking := int(rows["ci_low"].isna().sum()):
        have = "has" if lacking == 1 else "have"
        lines.append(f"{lacking} of {len(rows)} comparisons {have} no interval: too few launches succeeded.")
    day = "These results are for one machine on one day. Another machine or day may differ."
    return [*lines, *(LIMITS_OF_NETWORKS if evidence.networks else ()), day]


def ledger_table(evidence: Evidence) -> Table:
    """Every campaign that was opened under the study, set aside or not: which try it was, and what it found."""
    columns: dict[str, Reader] = {
        "try": lambda row: "none: no unit counts" if missing(row["attempt"]) else str(row["attempt"]),
        "state": lambda row: STATES[row["state"]] + ("" if missing(row["folder"]) else f" ({row['folder']})"),
        "opened, UTC": lambda row: str(row["opened_at"]).replace("T", " ").removesuffix("Z"),
        "units": lambda row: "not known" if missing(row["units"]) else str(row["units"]),
        "": lambda row: None if missing(row["launch"]) else env_title(row["launch"], short=True),
        "interval": lambda row: None if missing(row["launch"]) else signed(row["ci_low"], row["ci_high"]),
        "its alpha": field("alpha", lambda alpha: f"{100 * alpha:.2g}%"),
    }
    rows: list[Row] = []
    for (workload, campaign), own in evidence.ledger.groupby(["workload", "campaign"], sort=False):
        rows.append([f"{workload_title(str(workload))}: {campaign}"])
        rows += [[read(row) for read in columns.values()] for row in own.to_dict("records")]
    note = "Student's t intervals over units: the log-ratio to the host of the metric that the campaign decides on."
    return Table(caption="The ledger: every try of every question", columns=list(columns), rows=rows, note=note)


def ledger_sentences(evidence: Evidence) -> list[str]:
    """What reruns cost, how many there were, where ledger and folders disagree, what stamps say of the seals."""
    table = evidence.ledger
    tries = table.drop_duplicates(["workload", "campaign", "opened_at", "folder", "state"])
    tries = tries[tries["attempt"].notna()]
    again = int((tries["attempt"] > 1).sum())
    stamped = table[table["stamp"].notna()].drop_duplicates(["workload", "campaign"])
    counts = stamped.groupby("stamp", sort=False).size()
    return [
        f"The k-th try of one question has {6 / math.pi**2:.2f}/k² of the error rate alpha. These shares add up to "
        "alpha, so repeating a study until something differs finds no more false differences than running it once. "
        f"Tries in this study: {len(tries)}; {again or 'none'} of them repeat{'s' if again == 1 else ''} an "
        "earlier try.",
        *dict.fromkeys(note for note in table["note"] if not missing(note)),
        *(f"For {count} of {len(stamped)} campaigns: {text}." for text, count in counts.items()),
    ]


class LossCheck(NamedTuple):
    """Last losses of one campaign's launches, compared with the host's.

    A loss that agrees to rounding is no proof that two launches did the same work, but one that does not is proof
    that they did not: then a difference in time says nothing about environments. `loss` is the host's, where it is
    one; `distance` the largest relative difference, None where there is nothing to compare, and `where` who has it.
    """

    workload: str
    title: str
    launches: str
    loss: float | None = None
    distance: float | None = None
    where: str = ""

    @property
    def equal(self) -> bool | None:
        """Whether the launches computed the same thing; None where there is nothing to compare."""
        return None if self.distance is None else self.distance <= LARGEST_RELATIVE_LOSS

    @property
    def says(self) -> str:
        """What the check says."""
        if self.distance is None:
            return "not comparable: no launch on the host recorded a loss"
        if not self.distance:
            return "identical"
        if self.equal:
            return "the same within rounding"
        return f"further apart than rounding explains ({LARGEST_RELATIVE_LOSS:.0e}): it may compute something else"


def loss_table(evidence: Evidence) -> Table:
    """One check for each campaign of whole runs, and of steps."""
    return Table.of(
        loss_checks(evidence),
        {
            "campaign": field("title"),
            "launches": field("launches"),
            "last loss on the host": lambda one: "differs by round" if one.loss is None else f"{one.loss:.6f}",
            "largest relative difference": lambda one: (
                None if one.distance is None else f"{one.distance:.1e} ({one.where})" if one.distance else "0"
            ),
            "losses are": field("says"),
        },
        caption="Last losses of the compared launches",
        note="Whole runs are compared with the first one on the host. Steps are compared with the host of the same "
        "round, because the number of steps may differ between rounds.",
    )


def loss_checks(evidence: Evidence) -> list[LossCheck]:
    """One check per campaign of whole runs, and of steps: the headline's of each workload, then the arms'."""
    found = []
    for workload in evidence.networks:
        own = having(evidence.metrics, workload=workload, kind="measured")
        names = [c.name for c in evidence.views if c.workload == workload and c.kind in LOSS_OF]
        for name in sorted(names, key=lambda n: (not is_headline(n), names.index(n))):
            rows = having(own, campaign=name, metric=LOSS_OF[kind_of(name)])
            arm = read_name(name).arm
            # Across stacks, settings, inputs and ways of exchange a loss may differ: it is held within its own.
            if arm is not None and (arm.other_stack or arm.is_inside or arm.is_grouped):
                rows = rows[rows["launch_role"] != "headline"]
                if rows.empty and not arm.other_stack:
                    continue  # it could not be had; where settings are weighed the page says why
            found.append(loss_check(workload, rows, name))
    return found


def loss_check(workload: str, rows: pd.DataFrame, name: str) -> LossCheck:
    """The check of one campaign, by its name, from its rows of `loss_last` or `step_loss_last`.

    Whole runs all make the same steps: every launch is compared with the first one on the host. Rounds may
    measure different numbers of steps: every launch is compared with the host of its round.
    """
    named = read_name(name)
    about = [*([arm_title(named.arm.name)] if named.arm else []), *([named.scenario] * (named.scenario != SINGLE))]
    title = ", ".join([workload_title(workload), WHAT[named.kind], *about])
    hosts = rows[rows["launch"] == HOST].sort_values("rep")
    if named.kind == STEPS:
        own = rows.assign(reference=rows["rep"].map(hosts.set_index("rep")["value"]))
    else:
        own = rows.assign(reference=float(hosts["value"].iloc[0]) if len(hosts) else math.nan)
    own = own[own["reference"].notna()]
    if own.empty:
        return LossCheck(workload, title, "0")
    distance = (own["value"] - own["reference"]).abs() / own["reference"].abs()
    worst = own.loc[distance.idxmax()]
    loss = float(worst["reference"]) if own["reference"].nunique() == 1 else None
    places = own["environment"].nunique()
    count = f"{len(own)} in {places} environment{'s' if places > 1 else ''}"
    return LossCheck(workload, title, count, loss, float(distance.max()), env_title(str(worst["launch"])))


class CurveCheck(NamedTuple):
    """Whether two curves of losses are the same to the last step, None where one is missing; in words."""

    equal: bool | None
    clause: str


def curve_check(record: CurvesRecord) -> CurveCheck:
    """The losses of a level without dropout, compared with those of the headline's stack by TOLERANCE."""
    if not {HEADLINE, record.env} <= set(record.losses):
        why = "; ".join(f"{name}: {reason}" for name, reason in record.reasons.items())
        return CurveCheck(None, f"it is not known whether it computes the same ({why})")
    ours, base = record.losses[record.env], record.losses[HEADLINE]
    apart = [abs(one - other) / abs(other) for one, other in zip(ours, base, strict=False)]
    steps = max(len(ours), len(base))
    same = next((at for at, far in enumerate(apart) if far > TOLERANCE), len(apart))
    where = "" if record.env == HOST else f" in {env_title(record.env)}"
    losses = f"without dropout the losses of {steps} steps of {record.batch}{where}, compared with {record.stack}'s"
    if same == steps:
        text = f"are the same to step {steps}, at most {max(apart):.1e} apart (tolerance {TOLERANCE:.0e})"
        return CurveCheck(True, f"{losses}, {text}")
    difference = f"it made {len(ours)} steps, {record.stack} {len(base)}"
    if len(ours) == len(base):
        far = percent(apart[same], up=True)
        difference = f"{ours[same]:.5g} and {base[same]:.5g} at step {same + 1}, {far} apart"
    until = f"the same to step {same}, then " if same else ""
    clause = f"it computes something else: {losses}, are {until}{difference} (tolerance {TOLERANCE:.0e})"
    return CurveCheck(False, clause)
