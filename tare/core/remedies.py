"""What fixes what is missing, as it works where it is read: records that the workflow makes, a proxy in the way."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from tare.core.errors import UserError

# What of a broken connection's message gives the reason, the most specific first.
BROKEN = (
    r"\[Errno -?\d+\] [^'\")]+",
    r"[Cc]annot connect to proxy|timed out|certificate verify failed",
    r"[A-Z]\w+Error",
)


def own_program(name: str) -> str:
    """How to call a program of this Python's environment: by its name where that is on PATH, else by its path."""
    path = Path(sys.executable).with_name(name)
    if shutil.which(name) or not path.exists():
        return name
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))


def require(paths: Iterable[Path]) -> None:
    """Raise UserError where files that the workflow makes are missing: all of them, and the one command."""
    missing = [str(path) for path in dict.fromkeys(paths) if not path.exists()]
    if missing:
        command = shlex.join(["--cores", "1", *missing])
        raise UserError(
            f"no {' and no '.join(missing)} so far: make {'it' if len(missing) == 1 else 'them'} with "
            f"`{own_program('snakemake')} {command}`"
        )


def through_proxy(address: str = "https://") -> str:
    """What to add where an address does not answer and a proxy is set for it; else nothing. It has no password."""
    scheme, host, *_ = urlsplit(address)
    if host and proxy_bypass(host):
        return ""
    name = next((name for name, value in os.environ.items() if name.lower() == f"{scheme}_proxy" and value), None)
    if name is None:
        return ""
    return f", through the proxy {re.sub('//[^@/]*@', '//', os.environ[name])}: unset {name}, or fix it"


def no_index(said: str) -> str | None:
    """Why pip reached no index, by what it printed; None where it failed for something else."""
    broken = "\n".join(re.findall(r"connection broken by (.*)", said))
    if not broken or "No matching distribution" not in said:
        return None
    why = next((found[0] for pattern in BROKEN if (found := re.findall(pattern, broken))), broken[:100])
    return f"no package index answers ({why}){through_proxy()}"
