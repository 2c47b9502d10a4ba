"""What follows for launches from how a container runtime is set up: lines that probe and doctor print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import UnavailableError

# What systemd gives to an ordinary user's manager is `memory pids` where nobody says more.
DELEGATE = (
    "sh -c 'cd /etc/systemd/system && mkdir -p user@.service.d && "
    'printf "[Service]\\nDelegate=cpu cpuset io memory pids\\n" > user@.service.d/delegate.conf && '
    "systemctl daemon-reload'"
)
NOT_DELEGATED = "which systemd does not delegate to this user; a change needs a new login"
UNIFIED = "boot with systemd.unified_cgroup_hierarchy=1, or use a runtime that root started"
# What is never labelled anew: other programs of the machine need it as it is, and containers may read it.
SYSTEM = tuple(Path(name) for name in ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/dev", "/proc", "/sys"))
UNEQUAL = "a launch would run under other limits than the host's"
LABELLED = "SELinux is enforcing: folders that a launch binds are labelled for containers, except system folders"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that follows."""

    says: str  # in one line
    refuses: bool = False  # no launch can be compared with one of another environment
    remedy: str | None = None  # what mends that, where it is known


def refuse(findings: Sequence[Finding]) -> None:
    """Raise UnavailableError with all that rules the runtime out, and what mends the first of it."""
    against = [one for one in findings if one.refuses]
    if against:
        raise UnavailableError("; ".join(one.says for one in against), against[0].remedy)


def details_of(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """The lines for the details of a probe; nothing where nothing follows."""
    return {"follows": [one.says for one in findings]} if findings else {}


def is_of_the_system(path: Path) -> bool:
    """Whether a file or folder is one of the machine's own, which no launch may label anew."""
    return any(path.is_relative_to(folder) for folder in SYSTEM)


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
