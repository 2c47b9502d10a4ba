"""A runtime's own command line for an environment, as its user would type it."""

from __future__ import annotations

import shlex

from tare.core.arguments import without_secrets
from tare.model.choices import Choice

JOB = "COMMAND"


def command_line(choice: Choice) -> str:
    """What starts a job in an environment, without what Tare adds: `docker run --env A=1 IMAGE COMMAND`."""
    variables = [without_secrets(f"{name}={value}") for name, value in choice.variables.items()]
    gone = [word for name in choice.unset for word in ("-u", name)]
    options = list(map(without_secrets, choice.options))
    image = [choice.image] if choice.image else []
    unset = ["env", *gone] if gone else []
    if choice.runtime in ("docker", "podman"):
        words = [choice.runtime, "run", *options, *(word for one in variables for word in ("--env", one)), *image]
    elif choice.runtime == "apptainer":
        words = ["apptainer", "exec", *options, *(word for one in variables for word in ("--env", one)), *image]
    elif choice.runtime == "charliecloud":
        words = ["ch-run", *options, *(f"--unset-env={one}" for one in choice.unset)]
        words += [*(f"--set-env={one}" for one in variables), *image, "--"]
        unset = []
    else:
        words = [*options, *(["env", *gone, *variables] if gone or variables else [])]
        unset = []
    return f"{shlex.join([*words, *unset])} {JOB}".strip()
