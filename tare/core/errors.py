"""The ways in which Tare ends early, each with its exit code.

0 success; 1 a defect of Tare (with a traceback); 2 a user's mistake; 3 something that this machine
lacks; 4 data that fails its check; 130 interrupted. The last four print one line and no traceback.
"""


class TareError(Exception):
    """An expected failure: one line says what is wrong, where, and what to do."""

    exit_code = 2


class UserError(TareError):
    """The configuration, an argument or a file given by the user is wrong."""

    exit_code = 2


class UnavailableError(TareError):
    """This machine lacks something: a runtime, a counter, a source that answers.

    Args:
        reason: what was tried and what came back.
        remedy: the one command that mends it, or None where nothing known does.
    """

    exit_code = 3

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason if remedy is None else f"{reason} (mend it: {remedy})")
        self.reason = reason
        self.remedy = remedy


class IntegrityError(TareError):
    """Content that does not match its recorded hash, or a record cut short."""

    exit_code = 4
