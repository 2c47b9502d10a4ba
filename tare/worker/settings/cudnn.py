"""`cudnn=benchmark`: cuDNN tries its algorithms and keeps the fastest."""

from typing import Any


def prepare(torch: Any, level: str) -> None:
    """Set the switch of the whole process."""
    torch.backends.cudnn.benchmark = level == "benchmark"
