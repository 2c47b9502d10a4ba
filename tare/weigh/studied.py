"""A study's job of the user's own: a campaign of whole runs, by the rounds of `tare weigh`.

The job is started as `tare weigh` starts it. Its campaign is one of the study's: its number of rounds, margins and
confidence are the study's, and so are its place and its name. Unlike one of `tare weigh`, a campaign that was cut
short is gone on with, as long as the images, the named files and the sources of the job are the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tare.core.process import scratch_folder
from tare.experiments.attempts import measuring_campaigns
from tare.experiments.campaign import run_campaign
from tare.model import closure
from tare.model.levels import SAME, levels_text
from tare.model.records.campaigns import SHARED, Plan
from tare.model.registry import HOST
from tare.model.studies.campaigns import sampling_of
from tare.model.studies.loading import load_part
from tare.model.studies.own_jobs import OWN_IMAGES, refuse_missing
from tare.model.studies.study import CommandPart, reduced, settings_of
from tare.weigh.places import Place, open_places
from tare.weigh.request import Request
from tare.weigh.rounds import Rounds, try_the_job
from tare.weigh.variables import chosen, without_folder

ONE_COPY = "both hosts start the same files, which are the user's own"


def measure(source: str, workload: str, names: Sequence[str], out: Path) -> None:
    """A campaign of whole runs of a study's own job.

    Args:
        source: the study, or its part.
        workload: the job's name.
        names: environments; the host is added if missing.
        out: sealed.json of the campaign.

    Raises:
        UserError: the study names no such job, or what it names is not there.
        UnavailableError: the job fails on the host.
    """
    part = load_part(CommandPart, source)
    job = settings_of(part.own_jobs, workload)
    environments = tuple(dict.fromkeys((HOST, *names)))
    refuse_missing({workload: job}, environments)
    request = request_of(part, workload, environments)
    with (
        measuring_campaigns(out),
        scratch_folder("facts") as facts,
        contextlib.ExitStack() as stack,
    ):
        places, unavailable = open_places(request, facts, stack)
        rounds = Rounds(request, facts, workload, places)
        try_the_job(request, rounds)
        plan = plan_of(part, workload, rounds.plan(part.rounds.budget_s), places).replace(unavailable=unavailable)
        run_campaign(out.parent, rounds.design(plan, f"{workload} rounds"))


def request_of(part: CommandPart, workload: str, environments: Sequence[str]) -> Request:
    """What `tare weigh` would be asked for one of a study's own jobs.

    The job gets the user's shell without the folder of this Python, which the workflow puts into PATH.
    """
    job = settings_of(part.own_jobs, workload)
    shell, left_out = chosen(without_folder(os.environ, Path(sys.executable).parent))
    return Request(
        name=workload,
        choices=tuple(job.choice(name) for name in environments),
        command=job.command,
        workdir=job.workdir,
        margin=part.margins.run,
        confidence=part.confidence,
        steps=job.steps,
        network=job.network,
        binds=job.shown,
        variables=job.variables,
        confirm=False,
        timeout_s=part.conditions.launch_timeout_s,
        shell=shell,
        left_out=left_out,
        seed=part.seed,
    )


def plan_of(part: CommandPart, workload: str, plan: Plan, places: dict[str, Place]) -> Plan:
    """The plan of `tare weigh` as the study's own: one of its campaigns of whole runs."""
    job, conditions = settings_of(part.own_jobs, workload), plan.conditions
    levels = {"stack": SAME, "allocator": conditions.allocator, "page_cache": conditions.page_cache}
    return plan.replace(
        kind="rounds",
        study=part.study,
        headline_conditions=conditions,
        sampling=sampling_of(part.rounds.of_headline(workload), part.confidence, None),
        margins=dict(part.margins),
        discarded=max(1, part.rounds.discarded),
        arm=levels_text(levels),
        headline_arm=levels_text(levels),
        stack=OWN_IMAGES,
        code_sha256=closure.code_sha256("command", None, sorted(places)),
        provenance={
            "control": {"files": SHARED, "reason": ONE_COPY},
            "images": {name: {"digest": place.digest, "text": place.choice.text} for name, place in places.items()},
            "files": job.named_files(),
            "sources": job.sources_sha256(),
        },
        part=reduced(part.to_json(), "command", workload),
    )
