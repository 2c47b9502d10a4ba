"""Makes ahead what a study's images begin with, beside the set-up: wheels of its stacks, its own tree and image.

`python -m tare.images.ahead STUDY`. All of it goes into the store, where the workflow finds it, or waits for it. It
says nothing and decides nothing: what can't be had is left to the workflow, which tells the reason.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

from tare.core.arguments import Parser
from tare.core.errors import TareError
from tare.images.build import build
from tare.images.interpreter import with_interpreter
from tare.images.wheels import fetch_fitting
from tare.machine.fitting import AUTO, fitting_device
from tare.model.registry import HOST
from tare.model.studies.stacks import BOUND, load_stack
from tare.model.studies.study import load_checked


def make_ahead(source: str) -> None:
    """Build tree and image of a study's stack, and fetch the wheels of the others meanwhile."""
    study = load_checked(source)
    with ThreadPoolExecutor(max_workers=1) as beside:
        for name in study.stacks:
            beside.submit(_fetch, name, _variant(name, study.device))
        if study.stack != BOUND:
            with contextlib.suppress(TareError):
                build(study.stack, _variant(study.stack, study.device), assembled=set(study.environments) != {HOST})


def _fetch(name: str, variant: str) -> None:
    with contextlib.suppress(TareError):
        stack = load_stack(name, variant)
        if stack.official is None:
            fetch_fitting(with_interpreter(stack)[0])


def _variant(name: str, device: str) -> str:
    return fitting_device(name)[0] if device == AUTO else device


if __name__ == "__main__":
    parser = Parser(prog="python -m tare.images.ahead", description="Make ahead what a study's images begin with.")
    parser.add_argument("study", help="a study file")
    asked = parser.parse_args()
    with contextlib.suppress(TareError):
        make_ahead(asked.study)
