"""Entry of a launch: `python main.py SPEC`; writes the record that SPEC names, whole or not at all.

The first things that it reads are the clock and the CPU time used so far.
"""

import resource
import time

ENTRY_NS = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)
ENTRY_USAGE = resource.getrusage(resource.RUSAGE_SELF)  # a runtime that became this process left its time in it

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

TYPE_CHECKING = False  # nothing is imported here for its types alone: what follows is timed
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Mapping, Tuple

    from tare.worker.marks import Marks

RECORD_SCHEMA = 1
EXIT_FAILED = 1
# Of these the end is no part.
ENDS_AT_ONCE = ("start", "causes", "profile", "ceilings", "co_runner")


def run_mode(mode: str, spec: "Mapping[str, Any]", marks: "Marks") -> "Tuple[Any, Dict[str, Any]]":
    """Do what the launch is for; returns (framework, results). Imports no more than that needs."""
    function: "Callable[[Mapping[str, Any], Marks], Tuple[Any, Dict[str, Any]]]"
    if mode == "train":
        from tare.worker.train import whole_run as function
    elif mode == "profile":
        from tare.worker.profiled import profiled_run as function
    elif mode == "ceilings":
        from tare.worker.ceilings import measure as function
    elif mode == "causes":
        from tare.worker.causes import causes_run as function
    elif mode == "counters":
        from tare.worker.profiled import counters_run as function
    elif mode == "start":
        from tare.worker.start import start as function
    elif mode == "pipeline":
        from tare.worker.pipeline import measure as function
    elif mode == "co_runner":
        from tare.worker.co_runner import serve as function
    elif mode == "network":
        from tare.worker.network import measure as function
    elif mode == "device":
        from tare.worker.device import look as function
    else:
        raise ValueError("unknown mode {!r}".format(mode))
    return function(spec, marks)


def write_record(path: str, record: "Dict[str, Any]", marks: "Marks") -> None:
    """Write record and marks as JSON, then rename; the last mark is set when all else has been written."""
    temporary = path + ".tmp"
    with open(temporary, "w") as handle:
        text = json.dumps(dict(record, marks=marks.rows), allow_nan=False)
        handle.write(text[: -len("]}")])
        handle.flush()
        marks.add("last")
        handle.write(", " + json.dumps(marks.rows[-1]) + "]}")
    os.rename(temporary, path)


def main(spec_path: str) -> int:
    """Run the launch that the file describes; returns the exit status."""
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from tare.worker import facts
    from tare.worker.marks import Marks, usage

    marks = Marks(ENTRY_NS, ENTRY_USAGE)
    with open(spec_path) as handle:
        spec = json.load(handle)
    if spec.get("world_size", 1) > 1:
        open(spec["record"] + ".started", "w").close()  # whoever waits for all of a group sees who is here
    record = {"schema": RECORD_SCHEMA, "mode": spec["mode"], "status": "ok", "reason": None}
    framework = None
    try:
        framework, record["results"] = run_mode(spec["mode"], spec, marks)
    except (Exception, SystemExit) as error:  # whatever a framework raises becomes a record with its reason
        import traceback

        from tare.worker import line, memory

        traceback.print_exc()
        if memory.is_out_of_memory(error, spec):
            error.__traceback__ = None  # its frames hold the tensors that there was no room for
            reason, record["largest_batch"] = memory.explain(error, spec)
        else:
            reason = line.reason_of(error)
        record.update(status="failed", reason=reason)
    record["facts"] = facts.collect(framework)
    record.update(marks.usage or usage())
    write_record(spec["record"], record, marks)
    if spec["mode"] in ENDS_AT_ONCE or spec.get("ends_at_once"):  # nothing is measured now: in order takes a second
        sys.stderr.flush()
        os._exit(0 if record["status"] == "ok" else EXIT_FAILED)
    return 0 if record["status"] == "ok" else EXIT_FAILED


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        asked = bool({"-h", "--help"} & set(sys.argv))
        print(__doc__, file=sys.stdout if asked else sys.stderr)
        sys.exit(0 if asked else 2)
    sys.exit(main(sys.argv[1]))
