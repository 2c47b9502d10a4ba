"""Command lines: what is wrong with one in one line, and how a program of ours ends. Standard library only."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from tare.core import streams
from tare.core.errors import TareError, UnavailableError, explain_defect, explain_os_error

INTERRUPTED = 130
# Names of variables whose values are nobody's business: no job gets them unasked, and no record has them.
SECRETS = ("*TOKEN", "*SECRET*", "*PASSWORD*", "*API_KEY*", "*CREDENTIAL*")
_SECRET = re.compile(r"\b(\w*(?:TOKEN|(?:SECRET|PASSWORD|API_KEY|CREDENTIAL)\w*))=[^\s'\"]+")
_CHOICE = re.compile(r"(?P<start>.*invalid choice: '(?P<word>.*?)') \(choose from (?P<known>.*)\)")


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line, as everything else is said."""

    def error(self, message: str) -> NoReturn:
        """End with the status of a user's mistake."""
        if found := _CHOICE.fullmatch(message):  # of many words only the nearest is shown
            import difflib  # only for mistakes

            near = difflib.get_close_matches(found["word"], re.split(r"[', ]+", found["known"]), n=1)
            message = f"{found['start']}: did you mean {near[0]!r}?" if near else message
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` says more\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse has it, but an error of the stream is none that nobody hears of."""
        if message:
            (file or sys.stderr).write(message)


def without_secrets(text: str) -> str:
    """A word of a command, without the values of variables in it whose names say that they are secret."""
    return _SECRET.sub(r"\1=…", text)


def status_of(work: Callable[[], int], interrupted: str | None = None) -> int:
    """Exit status of a program's `work`, as in tare.core.errors, each error printed in one line; or SystemExit."""
    streams.prepare()
    with contextlib.suppress(ValueError):  # a thread can't, and need not
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where whoever started us ignores it nobody could wait
    try:
        return streams.finish(_status_of(work, interrupted))
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
        raise SystemExit(streams.finish(status)) from None


def _status_of(work: Callable[[], int], interrupted: str | None) -> int:
    try:
        return work()
    except TareError as error:
        streams.to_stderr(f"tare: {error}")
        return error.exit_code
    except OSError as error:
        if (status := streams.give_up(error)) is not None:
            return status
        line = explain_os_error(error)
        if line is None:
            raise
        streams.to_stderr(f"tare: {line}")
        return 2
    except KeyboardInterrupt:
        if interrupted:
            streams.to_stderr(f"tare: {interrupted}")
        return INTERRUPTED
    except (RuntimeError, MemoryError, ImportError) as error:
        line = explain_defect(error)
        if line is None:
            raise
        streams.to_stderr(f"tare: {line}")
        return UnavailableError.exit_code
