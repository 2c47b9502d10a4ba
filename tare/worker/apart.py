"""Work in a process of its own, forked from this one: what it leaves in memory ends with it."""

import json
import os
import sys
import traceback
from typing import Any, Callable

from tare.worker.frameworks import Framework, Unable


def refuse_if_alone(framework: Framework) -> None:
    """Say that a framework's children can't follow, before anything is imported.

    Raises:
        Unable: so it is.
    """
    if not framework.can_fork:
        raise Unable("{} does not go on in a forked process".format(framework.name))


def apart(work: Callable[[], Any], path: str, what: str) -> Any:
    """What `work` returns, called in a process forked from this one; it travels as JSON in the file `path`.

    Raises:
        RuntimeError: that process did not end well; what it said is in the launch's errors. `what` names it.
    """
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            made = work()
            with open(path, "w") as handle:
                json.dump(made, handle, allow_nan=False)
            status = 0
        except BaseException:  # also a framework that calls sys.exit
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)  # no clean-up twice: what the parent opened, the parent closes
    _, ended = os.waitpid(child, 0)
    if ended != 0:
        raise RuntimeError("the process of {} ended with status {}".format(what, ended))
    with open(path) as handle:
        return json.load(handle)
