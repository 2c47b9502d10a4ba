"""Ends what is left of a Podman container whose client was killed while it started it.

By then the client may not have noted that there is a container: Podman's own `rm` leaves the monitor (conmon) and
what the runtime has made for good. Where it knows of the container, its monitor ends by itself.

Standard library only, so that it runs as a file: `python envs/_monitors.py NAME`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import subprocess
import time
from pathlib import Path

PATIENCE_S = 0.5  # for a monitor whose container has ended
END_S = 10.0  # for a runtime that is still making a container


def monitors(name: str) -> dict[int, list[str]]:
    """Monitors of the container of this name that live, with their arguments."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_text(errors="replace").split("\0")
            if Path(words[0]).name == "conmon" and ("-n", name) in itertools.pairwise(words):
                found[int(process.name)] = words
    return found


def end_monitors(name: str) -> None:
    """Wait for the monitors to end, remove the containers of those that do not, and kill what is left."""
    began = time.monotonic()
    while (found := monitors(name)) and time.monotonic() < began + END_S:
        for words in found.values() if time.monotonic() > began + PATIENCE_S else ():
            with contextlib.suppress(OSError, KeyError, subprocess.SubprocessError):
                values = dict(itertools.pairwise(words))
                argv = [values["-r"], "delete", "--force", values["-c"]]
                subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=END_S)
        time.sleep(0.02)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="End what is left of a Podman container whose start was cut short."
    )
    parser.add_argument("name", help="of the container")
    end_monitors(parser.parse_args().name)
