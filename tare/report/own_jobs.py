"""What pages say of jobs of the user's own: how they were run, and where nothing is said of them, why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tare.analysis.reported_steps import why_no_steps
from tare.literature.finding import listed
from tare.model.registry import HOST
from tare.model.studies.own_jobs import NOT_OF_COMMANDS
from tare.report.evidence import Campaign, Evidence
from tare.report.method import design_rows
from tare.report.parts import Block, lines
from tare.report.words.labels import env_title, workload_title
from tare.report.words.layout import Row, Table

DIGEST_LETTERS = 19  # `sha256:` and twelve more


def lacking(what: str) -> Block:
    """One line on why no job of the user's own is where a reader looks for it; nothing where there is none."""
    return lines(lambda evidence: _lacking(evidence, what), "meta")


def _lacking(evidence: Evidence, what: str) -> list[str]:
    names = [workload_title(name) for name in evidence.own_jobs]
    return [f"{listed(names)}: no {NOT_OF_COMMANDS[what]}."] if names else []


def _campaigns(evidence: Evidence) -> list[Campaign]:
    return [one for one in evidence.headlines("rounds") if one.plan.is_command]


def no_steps(evidence: Evidence) -> list[str]:
    """Why jobs of the user's own have no training steps, one line each."""
    found = _without_steps(evidence)
    return [f"{workload_title(one.workload)}: its steps were not measured: {why}." for one, why in found]


def _without_steps(evidence: Evidence) -> Iterator[tuple[Campaign, str]]:
    for one in _campaigns(evidence):
        if evidence.study.own_jobs[one.workload].steps == "none":
            yield one, "the study asks for none (set “steps: auto”, or a pattern of the job's output)"
            continue
        ran = [unit.launches[HOST] for unit in one.counted if HOST in unit.launches and unit.launches[HOST].ok]
        if ran and (why := why_no_steps(ran[-1].steps)) is not None:
            yield one, why


def plan_table(evidence: Evidence) -> Table | None:
    """How the user's own jobs were run, and the design of their campaigns; None where none is sealed."""
    found = _campaigns(evidence)
    if not found:
        return None
    values = {
        **{name: text for one in found for name, text in _rows(evidence, one)},
        **design_rows(found, evidence),
        "Conditions": "the defaults of each runtime: Tare sets no processors, limits, allocator or environment "
        "variables",
    }
    rows: list[Row] = [[name, text] for name, text in values.items() if text]
    return Table(caption="Your own jobs and their plan", columns=["", "value"], rows=rows, wide=True)


def _rows(evidence: Evidence, campaign: Campaign) -> Iterator[tuple[str, str]]:
    """What ran in one campaign, and in which images."""
    title, job = workload_title(campaign.workload), evidence.study.own_jobs[campaign.workload]
    network = "this machine's network" if job.network else "no network"
    yield title, f"{shlex.join(job.command)}, in {job.workdir}, with {network}"
    for env, image in campaign.plan.provenance["images"].items():
        digest = f" ({image['digest'][:DIGEST_LETTERS]}…)" if image["digest"] else ""
        yield f"{title}: {env_title(env, short=True)}", f"{image['text']}{digest}"
    for name, sha256 in campaign.plan.provenance["files"].items():
        yield f"{title}: {name}", f"SHA-256 {sha256[:16]}…"
