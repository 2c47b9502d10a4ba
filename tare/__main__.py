"""`python -m tare`, and `tare` where it is installed.

Nothing is imported that another system lacks, and nothing written that an older Python cannot read, before it is
known that Tare runs here: so old a Python may be the first on a user's PATH.
"""

import sys

SYSTEMS = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}


def unfit() -> str:
    """Why Tare cannot run here; empty where it can."""
    if sys.platform != "linux":
        system = SYSTEMS.get(sys.platform, sys.platform)
        return f"Tare runs on Linux, and this is {system}: use a machine with Linux, or a virtual one"
    if sys.version_info < (3, 11):  # noqa: UP036
        version = ".".join(map(str, sys.version_info[:2]))
        return f"Tare needs Python 3.11 or later, and {sys.executable} is {version}: call another"
    return ""


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
