"""`layout=channels-last`: filters and images with their channels innermost."""

from typing import Any

from tare.worker.frameworks import Unable
from tare.worker.settings import loss_of


def apply(torch: Any, training: Any, level: str, device: str) -> None:
    """Filters and images with their channels innermost, in memory only: shapes stay as they are."""
    if not any(parameter.dim() == 4 for parameter in training.model.parameters()):
        raise Unable("channels-last changes nothing here: the model has no filter of four dimensions")
    training.model = training.model.to(memory_format=torch.channels_last)
    plain = loss_of(training, "layout")

    def loss(batch: Any) -> Any:
        return plain(
            [part.contiguous(memory_format=torch.channels_last) if part.dim() == 4 else part for part in batch]
        )

    training.loss = loss
