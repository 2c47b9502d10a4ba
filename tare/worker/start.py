"""A start and nothing else: entry, the imports that a workload needs, and what they took from the disk.

Bytes are those that this process itself had read from a block device (/proc/self/io): what a server in user space
read for it is that server's. A major fault waited for a page that was in no memory, whoever brought it.
"""

import resource
from typing import Any, Dict, Mapping, Optional, Tuple

from tare.worker.frameworks import Framework
from tare.worker.marks import Marks
from tare.worker.train import import_workload

IO = "/proc/self/io"


def start(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """Import what the workload imports; returns (framework, what it took from the disk until then)."""
    framework, _ = import_workload(spec, marks, spec["threads"])
    usage = resource.getrusage(resource.RUSAGE_SELF)
    read, reason = read_bytes(IO)
    marks.add("done")
    return framework, {
        "read_bytes": read,
        "read_bytes_reason": reason,
        "major_faults": usage.ru_majflt,
        "minor_faults": usage.ru_minflt,
    }


def read_bytes(path: str) -> Tuple[Optional[int], Optional[str]]:
    """Bytes that this process made the kernel fetch from a block device, and no reason; or None and the reason."""
    try:
        with open(path) as handle:
            fields = dict(line.split(":", 1) for line in handle if ":" in line)
    except (IOError, OSError) as error:
        return None, "{} can't be read: {}".format(path, error.strerror)
    if "read_bytes" not in fields:
        return None, "{} has no read_bytes: the kernel does not count them".format(path)
    return int(fields["read_bytes"]), None
