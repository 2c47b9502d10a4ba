"""Whether building an image is paid back, and not by the first run, by our numbers.

A claim of the rule `repays` says two things of an environment: that its image costs more than one run gains, and
that runs repeated pay it back. tare.stats.costs has the arithmetic; what a pull or a push takes is left out:
it only moves the first run further from paying. Here a run is a whole run, with the interval of its verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tare.analysis.break_even import built
from tare.literature.answers import NOTHING, Answer, decide, opened, sentence
from tare.literature.contrasts import FEWEST_TO_SETTLE, to_host, units
from tare.literature.finding import amount
from tare.literature.measured_here import Here, why_absent
from tare.literature.published_file import Claim
from tare.stats.costs import NEVER, Runs, runs_until_paid


def repays(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> Answer:
    """Rule `repays`: HOLDS where the image is paid back at both ends of the interval, and not by the first run.

    FAILS where it is paid back at neither, or by the first run at both.
    """
    env = str(claim.env)
    if here.lacks(env):
        return opened(NOTHING, "; ".join(why_absent([env], claim.scenario)))
    if here.image_costs is None:
        return opened(NOTHING, "this study counted no costs of images")
    ratio = next((one for one in to_host(here, workload, claim.metrics[0]) if one.env == env), None)
    images = [one for one in built(here.image_costs, here.verdicts, here.metrics, workload) if one.env == env]
    if ratio is None or not images:
        return opened(NOTHING, f"no interval of whole runs of {env} to the host, or no image that was built")
    found = {one: runs_until_paid(one.build_s, one.low_s, one.high_s) for one in images}
    evidence = sentence(
        [
            f"{one.whose} image of {env}: built in {amount(one.build_s, 's')}, a run saves {one.low_s:.3f} to "
            f"{one.high_s:.3f} s, so that the build alone {_repaid_text(runs)}"
            for one, runs in found.items()
        ]
    )
    if ratio.units < FEWEST_TO_SETTLE:
        return opened(
            evidence, f"an interval from {units(ratio.units)} settles nothing, one from {FEWEST_TO_SETTLE} may"
        )
    failed = any(runs.fewest == NEVER or runs.most <= 1 for runs in found.values())
    held = {one.whose: runs.fewest > 1 and runs.most < NEVER for one, runs in found.items()}
    return decide(evidence, held, failed, None, "the interval of a run leaves open whether it saves anything")


def _repaid_text(runs: Runs) -> str:
    if runs.fewest == NEVER:
        return "is never paid back"
    most = "perhaps never" if runs.most == math.inf else f"{runs.most:,.0f} at worst"
    return f"is paid back after {runs.fewest:,.0f} runs at best, {most}"
