"""A runtime's own command line for an environment, as its user would type it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tare.core.arguments import without_secrets
from tare.model.choices import Choice

JOB = "COMMAND"


def command_line(choice: Choice) -> str:
    """What starts a job in an environment, without what Tare adds: `docker run --env A=1 IMAGE COMMAND`."""
    variables = [without_secrets(f"{name}={value}") for name, value in choice.variables.items()]
    given, options = _variables_apart(list(map(without_secrets, choice.options)), choice.unset)
    gone = [word for name in choice.unset if name not in given for word in ("-u", name)]
    image = [choice.image] if choice.image else []
    unset = ["env", *gone] if gone else []
    if choice.runtime in ("docker", "podman"):
        words = [choice.runtime, "run", *options, *(word for one in variables for word in ("--env", one)), *image]
    elif choice.runtime == "apptainer":
        words = ["apptainer", "exec", *options, *(word for one in variables for word in ("--env", one)), *image]
    elif choice.runtime == "charliecloud":
        words = ["ch-run", *options, *(f"--unset-env={one}" for one in gone[1::2])]
        words += [*(f"--set-env={one}" for one in variables), *image, "--"]
        unset = []
    else:
        words = [*options, *(["env", *gone, *variables] if gone or variables else [])]
        unset = []
    return f"{shlex.join([*words, *unset])} {JOB}".strip()


def _variables_apart(options: Sequence[str], unset: Sequence[str]) -> tuple[set[str], list[str]]:
    """Names of these variables that a runtime's own options set, and the options without them."""
    names: set[str] = set()
    others: list[str] = []
    left = iter(options)
    for option in left:
        flag, is_joined, value = option.partition("=")
        words = [option]
        if flag in ("--env", "-e", "--set-env") and not is_joined:
            value = next(left, "")
            words.append(value)
        name = value.partition("=")[0]
        if flag in ("--env", "-e", "--set-env") and name in unset:
            names.add(name)
        else:
            others += words
    return names, others
