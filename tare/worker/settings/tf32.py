"""`tf32=off, on`: products and convolutions of fp32 tensors on tensor cores, in TensorFloat-32."""

from typing import Any


def prepare(torch: Any, level: str) -> None:
    """Set the switches of the whole process."""
    torch.backends.cuda.matmul.allow_tf32 = level == "on"
    torch.backends.cudnn.allow_tf32 = level == "on"
