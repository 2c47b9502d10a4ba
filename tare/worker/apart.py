"""Work in a separate process, forked from this one: what it leaves in memory ends with it."""

import json
import os
import signal
import sys
import traceback
from typing import Any, Callable

from tare.worker.frameworks import Framework, Unable

TRIAL_S = 10  # of a call that takes milliseconds, unless it waits for threads that no fork has


class ChildError(Exception):
    """A forked process did not end well; the message says which, and why."""


def refuse_if_alone(framework: Framework) -> None:
    """Say that a framework's children can't follow, before anything is imported. Raises Unable where they can't."""
    if not framework.can_fork:
        raise Unable("{} does not go on in a forked process".format(framework.name))


def can(function: Callable[[], Any]) -> bool:
    """Whether a process forked from this one can call a function, and returns from it within TRIAL_S seconds."""
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(TRIAL_S)  # the kernel ends it, whatever lock it waits for
            function()
            status = 0
        finally:
            os._exit(status)  # also where the call was refused: that is the answer
    return os.waitpid(child, 0)[1] == 0


def apart(work: Callable[[], Any], path: str, what: str) -> Any:
    """What `work` returns in a fork of this process, as JSON by the file `path`; raises ChildError with `what`."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = write_made(work, path)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # no clean-up twice: what the parent opened, the parent closes
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise ChildError("the process of {} was ended by signal {}".format(what, os.WTERMSIG(status)))
    try:
        with open(path) as handle:
            outcome = json.load(handle)
    except (IOError, OSError, ValueError):  # it left before it wrote, or could not write
        said = "the process of {} ended with status {}".format(what, os.WEXITSTATUS(status))
        raise ChildError(said) from None
    os.remove(path)
    if "reason" in outcome:
        raise ChildError("the process of {} failed: {}".format(what, outcome["reason"]))
    return outcome["made"]


def write_made(work: Callable[[], Any], path: str) -> int:
    """Write what `work` returns, or why it does not, into a file; returns the status to exit with."""
    status = 0
    try:
        text = json.dumps({"made": work()}, allow_nan=False)
    except BaseException as error:  # also a framework that calls sys.exit
        from tare.worker.line import reason_of

        traceback.print_exc()
        status, text = 1, json.dumps({"reason": reason_of(error)})
    with open(path, "w") as handle:
        handle.write(text)
    return status
