"""The standard streams as they may be: closed, full, without a reader, or with an encoding that lacks characters.

A program calls `prepare` before it prints, and ends with `finish`. Standard library only.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import sys
from typing import Any, TextIO

ENDED_BY_PIPE = 141  # the exit status that a shell reports for a program that SIGPIPE ended
UNWRITTEN = 2
HANDLER = "tare-plain"
# What we print that is not ASCII, in ASCII; any other character is printed as its number.
PLAIN = {
    "±": "+-", "…": "...", "–": "-", "—": "-", "×": "x", "·": "-", "µ": "u", "°": " degrees", "≤": "<=", "≥": ">=",
    "’": "'", "‘": "'", "“": '"', "”": '"', "→": "->", "²": "^2", "³": "^3", "\u00a0": " ",
}  # fmt: skip
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
NAMES = ("standard input", "standard output", "standard error")


class _Named(io.FileIO):
    """A standard stream's descriptor, whose errors name it."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, NAMES[self.fileno()]) from None


def prepare() -> None:
    """See that the streams are there (/dev/null for a closed one), take any character, and are named in errors."""
    codecs.register_error(HANDLER, _plain)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if not _is_open(number):
            _lead(number, os.O_RDWR)
        stream = getattr(sys, name)
        if stream is None:
            opened = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, opened)
        elif number and stream is getattr(sys, f"__{name}__"):  # another one is somebody else's, as in tests
            setattr(sys, name, _named(stream, number))


def _named(stream: TextIO, number: int) -> TextIO:
    buffered = isinstance(stream.buffer, io.BufferedWriter)
    stream.flush()
    raw = _Named(number)
    return io.TextIOWrapper(
        io.BufferedWriter(raw) if buffered else raw,
        encoding=stream.encoding,
        errors=HANDLER,
        line_buffering=bool(stream.line_buffering),
        write_through=not buffered,
    )


def to_stderr(line: str) -> None:
    """Print a line on standard error, if anybody can read it."""
    with contextlib.suppress(OSError, ValueError):
        print(plain(line), file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """A text in one line: characters that control a terminal, as a file may hold them, become their escapes."""
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def finish(status: int) -> int:
    """Flush what was printed; the exit status: `status`, or what becomes of it where it could not be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            status = status or give_up(error) or status
        except ValueError:  # it was closed meanwhile
            continue
    return status


def give_up(error: OSError) -> int | None:
    """Say an error of a standard stream once, but not that a reader left; its exit status, None for others."""
    if error.filename not in NAMES:
        return None
    number = NAMES.index(error.filename)
    _lead(number, os.O_WRONLY)
    if isinstance(error, BrokenPipeError):
        return ENDED_BY_PIPE
    to_stderr(
        f"tare: {error.filename} can't be written: {error.strerror}; lead it to a file or a terminal that can"
    )
    return UNWRITTEN


def _lead(number: int, flags: int) -> None:
    """Have a descriptor lead to /dev/null, as programs that we start get it too."""
    null = os.open(os.devnull, flags)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    os.set_inheritable(number, True)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """Handler of a character that an encoding lacks: in ASCII, or the bytes of a file's name as they are."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]), error.start + 1
    plain = PLAIN.get(character) or character.encode("ascii", "backslashreplace").decode("ascii")
    return plain, error.start + 1
