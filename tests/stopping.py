"""Small programs to be stopped, and the means by which this machine can stop them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from tare.launch.slicing import freezing

BUSY = "while True: pass"
THREADS = "import threading\nfor _ in range(3): threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
CHILDREN = """
import os
for _ in range(2):
    if os.fork() == 0: break
while True: pass
"""
VFORKS = "import subprocess\nwhile True: subprocess.run(['/bin/true'])"
FORKS = """
import os
while True:
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
"""
HANDLES = """
import signal
signal.signal(signal.SIGCONT, lambda *_: None)
while True: pass
"""
IGNORES = "import signal\nsignal.signal(signal.SIGCONT, signal.SIG_IGN)\nwhile True: pass"
ORPHANS = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        while True: pass
    time.sleep(0.5)
    os._exit(0)
os.wait()
while True: pass
"""


def means():
    """Hierarchies to be tried for each means that works here."""
    found = {
        f"cgroup{one.version}": [one] for one in freezing.machine_hierarchies() if os.access(one.home, os.W_OK)
    }
    return found | {"signals": []}


@contextlib.contextmanager
def running(script):
    """A program in a session of its own, killed afterwards with all that it has started."""
    argv = [sys.executable, "-I", "-S", "-c", script]
    child = subprocess.Popen(argv, start_new_session=True, stdin=subprocess.PIPE)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdin.close()


@contextlib.contextmanager
def held(script, hierarchies, settle_s=0.3):
    """A program, and what holds it from its first line on, once it has come to its work."""
    with running(f"import os\nos.read(0, 1)\n{script}") as child:
        holder = freezing.hold([child.pid], f"tare-test-{uuid.uuid4().hex[:8]}", hierarchies)
        os.write(child.stdin.fileno(), b"g")
        try:
            time.sleep(settle_s)
            yield child, holder
        finally:
            holder.kill()
            child.wait()
            holder.close()


def ticks(pids):
    """Processor time of processes and of their children that were waited for."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += sum(map(int, after[11:15]))
    return found
