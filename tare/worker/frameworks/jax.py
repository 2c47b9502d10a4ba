"""JAX on a CPU. A call may return before its step has ended, whatever it is asked; then arrays are waited for."""

import os
from typing import Any, Dict

from tare.worker import frameworks

THREADS = "PJRT_NPROC"  # of its pool; XLA reads NPROC too, a name that other programs may use
# What JAX reports to whoever listens: of each program the seconds of tracing, lowering and compiling it.
COMPILING, COMPILED = "/jax/core/compile/", "/jax/core/compile/backend_compile_duration"


class Jax(frameworks.Framework):
    """JAX; `module` is jax itself. A job's `weights` are a tree of arrays."""

    name = "jax"
    cpu_alone = True
    threads_variable = THREADS
    can_fork = False
    programs, compile_s = 0, 0.0  # compiled by this process so far

    def import_(self) -> None:
        """Import jax, whose calls wait for what they compute."""
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        jax.config.update("jax_cpu_enable_async_dispatch", False)
        if self.module is None:
            jax.monitoring.register_event_duration_secs_listener(self.heard)
        self.module = jax

    def heard(self, event: str, seconds: float, **_: Any) -> None:
        """Count programs, and what they took to be compiled."""
        if event.startswith(COMPILING):
            self.compile_s += seconds
            self.programs += event == COMPILED

    def set_threads(self, threads: int) -> None:
        """Threads of its pool, which it makes at its first computation, and whether operators use it."""
        several = "true" if threads > 1 else "false"
        os.environ.update({THREADS: str(threads), "NPROC": str(threads)})
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=" + several

    def facts(self) -> Dict[str, Any]:
        """Name, version, threads as set, the compiler's flags and what it compiled: a step, single operators."""
        return dict(
            super(Jax, self).facts(),
            switches={"xla": os.environ.get("XLA_FLAGS")},
            compiled={"graphs": self.programs} if self.programs else None,
            compile_s=self.compile_s if self.programs else None,
        )

    def synchronize(self) -> None:
        """Wait for all arrays: a program whose inputs were not there yet runs behind the call, in any case."""
        self.module.block_until_ready(self.module.live_arrays())

    def parameters(self, training: Any) -> int:
        """Numbers in its weights."""
        return sum(int(leaf.size) for leaf in self.module.tree_util.tree_leaves(training.weights))

    def to_device(self, batch: Any) -> Any:
        """Arrays where it computes."""
        return [self.module.numpy.asarray(part) for part in batch]


FRAMEWORK = Jax
