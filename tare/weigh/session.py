"""One `tare weigh`: look at each environment, weigh the job in all of them, confirm what makes one slower.

results/weigh/<name>/campaign/ and, where causes were tried or the hook's cost was measured, causes/ hold sealed
campaigns as studies have them, facts/ what each environment was seen to be, answer.json and index.html the answer.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.progress import say
from tare.experiments.alone import measuring
from tare.model.studies.layout import SEALED
from tare.weigh.answer import Answer
from tare.weigh.found import Found
from tare.weigh.places import open_places
from tare.weigh.request import MAIN_SHARE, Request
from tare.weigh.rounds import Rounds, try_the_job
from tare.weigh.tried import causes_found, try_changes
from tare.weigh.words import sentences

ANSWER = "answer.json"


def weigh(request: Request, results: Path) -> Answer:
    """Weigh a job in several environments.

    Args:
        request: what is asked.
        results: folder of what is kept.

    Raises:
        UserError: the request can't be met as it is.
        UnavailableError: the reference or every other environment can't be had, or the job fails in the reference.
    """
    began = time.monotonic()
    with measuring(results / "campaign" / SEALED), contextlib.ExitStack() as stack:
        shutil.rmtree(results / "facts", ignore_errors=True)  # of another job
        if request.setup is not None:
            request.in_shell(request.setup, "--setup")
        places, unavailable = open_places(request, results, stack)
        if unavailable and len(places) == 1:
            reasons = "; ".join(unavailable.values())
            raise UnavailableError(f"nothing can be compared with {request.reference.name}: {reasons}")
        rounds = Rounds(request, results, "campaign", places)
        try_the_job(request, rounds)
        until = time.monotonic() + 60 * request.minutes  # of measuring: what came before is not
        share = MAIN_SHARE if request.confirm and len(places) > 1 else 1.0
        units = rounds.run(share * 60 * request.minutes)
        found = Found(request=request, places=places, unavailable=unavailable, units=units, rounds=rounds)
        answer = found.answer(_minutes(began), interrupted=request.confirm)
        answer.write(results / ANSWER)  # which stays, whatever becomes of what follows
        for one in answer.environments:
            say(sentences(answer, one)[0])
        if request.confirm:
            asked = found.suspected()
            trials = try_changes(found, asked, results, until - time.monotonic(), stack)
            causes = causes_found(found, asked, trials.changes)
            answer = found.answer(_minutes(began), causes, hook=trials.hook, interrupted=trials.interrupted)
            answer.write(results / ANSWER)
    return answer


def _minutes(began: float) -> float:
    return (time.monotonic() - began) / 60
