"""Work shared out to forked processes, which begin with what this one has imported."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Collection, Iterator
from multiprocessing.pool import Pool

AGAIN_S = 0.1


@contextlib.contextmanager
def forked(jobs: int, tasks_each: int | None = None) -> Iterator[Pool]:
    """A pool of forked processes, which is waited for at the end; only where that fails are they ended.

    There SIGTERM ends: an exception, as in our commands, can be lost in a pool. `tasks_each`: tasks of one process.
    """
    context, before = multiprocessing.get_context("fork"), multiprocessing.active_children()
    with context.Pool(jobs, signal.signal, (signal.SIGTERM, signal.SIG_DFL), tasks_each) as pool:
        try:
            yield pool
            pool.close()
            pool.join()
        except BaseException:
            with _killing_all_but(before):
                pool.terminate()
            raise


def terminate(pool: Pool) -> None:
    """End the processes of a pool from `forked`, and any others that this process has from such pools."""
    with _killing_all_but(()):
        pool.terminate()


@contextlib.contextmanager
def _killing_all_but(before: Collection[object]) -> Iterator[None]:
    """Kill this process's children, again and again, for as long as this lasts.

    A pool ends each of its processes by one SIGTERM, and waits for it for ever. One that is just being forked loses
    that signal, and goes on.
    """
    done = threading.Event()

    def kill() -> None:
        while not done.wait(AGAIN_S):
            for child in multiprocessing.active_children():
                if child not in before:
                    child.kill()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
