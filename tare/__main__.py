"""`python -m tare`, and `tare` where it is installed.

Nothing is imported that another system lacks, and nothing written that an older Python cannot read, before it is
known that Tare runs here: so old a Python may be the first on a user's PATH.
"""

import platform
import sys

SYSTEMS = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}
FIRST, LAST = (3, 11), (3, 13)  # versions of Python, as pyproject.toml has them
IMPLEMENTATION = "CPython"


def unfit() -> str:
    """Why Tare cannot run here; empty where it can."""
    if sys.platform != "linux":
        system = SYSTEMS.get(sys.platform, sys.platform)
        return f"Tare runs on Linux, and this is {system}: use a machine with Linux, or a virtual one"
    here = platform.python_implementation()
    if here != IMPLEMENTATION or not FIRST <= sys.version_info[:2] <= LAST:
        wanted = f"{IMPLEMENTATION} {_version(*FIRST)} to {_version(*LAST)}"
        found = f"{here} {_version(*sys.version_info[:2])}"
        return f"Tare needs {wanted}, and {sys.executable} is {found}: call another"
    return ""


def _version(major: int, minor: int) -> str:
    return f"{major}.{minor}"


def main() -> int:
    """Run the command line; where Tare cannot run, say so in one line."""
    reason = unfit()
    if reason:
        sys.stderr.write(f"tare: {reason}\n")
        return 3

    from tare.core.places import own_first

    own_first()

    from tare.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
