"""Lines between a launch and whoever started it: `<protocol> <word> <JSON object>`, in lockstep.

They pass over standard input and output, or over two FIFOs where both see one folder: runtimes forward streams
through additional processes, which take a core just when the first step begins.
"""

import json
import os

TYPE_CHECKING = False  # `typing` takes milliseconds to import, and a launch waits for this module
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

READ_BYTES = 1 << 16
ORDERS, ANSWERS = "orders", "answers"  # as in tare/launch/channel.py


def reason_of(error: BaseException) -> str:
    """Type of an error and what it says first, in one line; a line that ends with a colon alone says nothing."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = said[: 2 if said and said[0].endswith(":") else 1]
    return "{}: {}".format(type(error).__name__, " ".join(first)[:300])


class Line:
    """The conversation's two ends, taken from all else: prints go to standard error, nobody else reads input."""

    def __init__(self, protocol: str, fifos: "Optional[str]" = None) -> None:
        self.protocol = protocol
        self.input = os.dup(0) if fifos is None else os.open(os.path.join(fifos, ORDERS), os.O_RDONLY)
        self.output = os.dup(1) if fifos is None else os.open(os.path.join(fifos, ANSWERS), os.O_WRONLY)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self.rest = b""

    def hear(self) -> "Tuple[str, Dict[str, Any]]":
        """The next word and its arguments; ("end", {}) when the other side has gone."""
        while b"\n" not in self.rest:
            if not self.read_more():
                return "end", {}
        line, self.rest = self.rest.split(b"\n", 1)
        protocol, word, arguments = line.decode("utf-8").split(" ", 2)
        if protocol != self.protocol:
            raise ValueError("a line of protocol {!r}; this worker speaks {}".format(protocol, self.protocol))
        return word, json.loads(arguments)

    def read_more(self) -> bool:
        """Whether more has come."""
        chunk = os.read(self.input, READ_BYTES)
        self.rest += chunk
        return bool(chunk)

    def say(self, word: str, **values: "Any") -> None:
        """One whole line."""
        line = "{} {} {}\n".format(self.protocol, word, json.dumps(values, allow_nan=False))
        self.send(line.encode("utf-8"))

    def send(self, data: bytes) -> None:
        """All of these bytes."""
        left = memoryview(data)
        while left:
            left = left[os.write(self.output, left) :]
