"""`python -m tare`."""

import sys

from tare.cli import main

if __name__ == "__main__":
    sys.exit(main())
