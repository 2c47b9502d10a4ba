"""Apache MXNet on a CPU. Its engine runs operators behind the program, which waits for it after each timed step."""

from typing import Any

from tare.worker import frameworks


class MXNet(frameworks.Framework):
    """MXNet; `module` is mxnet itself. A job's `model` is a block of Gluon."""

    name = "mxnet"
    cpu_alone = True
    can_fork = False

    def import_(self) -> None:
        """Import mxnet."""
        import mxnet

        self.module = mxnet

    def synchronize(self) -> None:
        """Wait for the engine."""
        self.module.nd.waitall()

    def parameters(self, training: Any) -> int:
        """Numbers in its parameters."""
        return sum(int(one.data().size) for one in training.model.collect_params().values())


FRAMEWORK = MXNet
