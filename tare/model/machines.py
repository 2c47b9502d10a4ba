"""The name of a machine: part of the key of all that was measured on it, of its paths and of its rows."""

from __future__ import annotations

import re
from typing import Annotated

from tare.core.errors import UserError
from tare.model.schema import matching

MACHINE = "TARE_MACHINE"  # the variable that names the machine on which a command runs
FOUND = "TARE_MACHINE_FOUND"  # the same name, where a workflow made it of the hardware that it was started on
PATTERN = "[a-z0-9][a-z0-9-]{0,39}"
SAYS = "is no name of a machine: up to 40 lower-case letters, digits and hyphens, no hyphen first"
MOST = 40
NOISE = r"\((r|tm|c)\)|\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*"  # in what a processor calls itself

MachineName = Annotated[str, matching(PATTERN, SAYS)]


def checked_name(text: str, where: str) -> str:
    """A name that a person gave; `where` begins the message. Raises UserError: it is none."""
    if re.fullmatch(PATTERN, text) is None:
        raise UserError(f"{where}: {text!r} {SAYS}")
    return text


def slug_of(text: str, most: int = MOST) -> str:
    """What a device calls itself as a name: `NVIDIA H200` is `nvidia-h200`."""
    plain = re.sub(NOISE, " ", text.lower())
    return "-".join(re.findall("[a-z0-9]+", plain))[:most].strip("-") or "machine"
