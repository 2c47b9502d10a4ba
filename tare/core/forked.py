"""Work shared out to forked processes, which begin with what this one has imported."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator
from multiprocessing.pool import Pool


@contextlib.contextmanager
def forked(jobs: int, tasks_each: int | None = None) -> Iterator[Pool]:
    """A pool of forked processes, which is waited for at the end; only where that fails are they ended.

    There SIGTERM ends: an exception, as in our commands, can be lost in a pool. `tasks_each`: tasks of one process.
    """
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, signal.signal, (signal.SIGTERM, signal.SIG_DFL), tasks_each) as pool:
        yield pool
        pool.close()
        pool.join()
