"""`cudnn=benchmark`: cuDNN tries its algorithms and keeps the fastest."""


def prepare(torch, level):
    """Set the switch of the whole process."""
    torch.backends.cudnn.benchmark = level == "benchmark"
