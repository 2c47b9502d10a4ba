"""Imports the framework as every launch needs it."""


def import_torch(threads):
    """Import torch, and set its threads to the study's number whatever the machine suggests."""
    import torch

    torch.set_num_threads(threads)
    declare_vision_operators(torch)
    return torch


def declare_vision_operators(torch):
    """Let torchvision import where its compiled operators can't load.

    The registry's torchvision is built against CUDA; beside a CPU build of torch its library does not load, and
    the import fails when it registers shapes for two operators that nobody declared. Their two schemas are
    enough; no workload here calls them.
    """
    if torch.version.cuda is not None or not hasattr(torch, "library"):
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch._tare_vision_library = library  # the declarations live as long as this object


def synchronize(torch, device):
    """Wait for the device, so that a clock read next means something."""
    if device == "cuda":
        torch.cuda.synchronize()
