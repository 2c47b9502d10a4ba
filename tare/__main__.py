"""`python -m tare`."""

import sys

# Before anything is imported that an older Python cannot read; so old a one may be the first on a user's PATH.
if sys.version_info < (3, 11):  # noqa: UP036
    version = ".".join(map(str, sys.version_info[:2]))
    sys.stderr.write(f"tare: Tare needs Python 3.11 or later, and {sys.executable} is {version}: call another\n")
    sys.exit(3)

if __name__ == "__main__":
    from tare.core.places import own_first

    own_first()

    from tare.cli.main import main

    sys.exit(main())
