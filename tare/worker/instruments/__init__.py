"""What watches the steps of a framework: a module of the framework's name here, or reasons why there is nothing."""

import importlib
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from tare.worker.frameworks import Framework, Unable


def of(framework: Framework) -> "Instruments":
    """The instruments of a framework."""
    if not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), framework.name + ".py")):
        return Instruments(framework)
    made: Instruments = importlib.import_module("tare.worker.instruments." + framework.name).INSTRUMENTS(framework)
    return made


class Instruments(object):
    """None: each answer is the reason. A framework's own class answers what it can."""

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self.reason = "tare/worker/instruments has none for {}".format(framework.name)

    def trace(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]
    ) -> Tuple[List[float], Optional[str]]:
        """Record spec["steps"] steps after a warm-up, to spec["trace"]: (seconds of each recorded step, reason)."""
        return [], self.reason

    def operators(self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]) -> Dict[str, Any]:
        """Calls and own seconds of every operator over the recorded steps: {"rows", "steps", "reason"}."""
        return {"rows": None, "steps": 0, "reason": self.reason}

    def count(self, training: Any, batch: Any) -> Dict[str, Any]:
        """Calls, FLOPs and bytes of one step: {"operators", "families", "reason"}."""
        return {"operators": None, "families": None, "reason": self.reason}

    def watch(self) -> None:
        """Switch the profiler of counters on that this launch runs under. Raises Unable where nothing here can."""
        raise Unable(self.reason)

    def unwatch(self) -> None:
        """Switch it off."""
