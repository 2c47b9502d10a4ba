"""PyTorch, on a CPU or a CUDA device, from 1.4 on; in a group by DistributedDataParallel, over gloo or NCCL."""

import os
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from tare.worker import frameworks
from tare.worker.marks import now_ns


class Torch(frameworks.Framework):
    """PyTorch; `module` is torch itself."""

    name = "torch"
    facts_key = "torch"
    exchange: Any = None

    def import_(self) -> None:
        """Import torch, and let torchvision import with it."""
        import torch

        declare_vision_operators(torch)
        self.module = torch

    def import_late(self) -> None:
        """What a first optimizer imports: torch 2's compiler, which takes a second or more, and its profiler."""
        self.module.optim.SGD([self.module.zeros(1, requires_grad=True)], lr=1.0).zero_grad()

    def set_threads(self, threads: int) -> None:
        """Threads of one operator."""
        self.module.set_num_threads(threads)

    def facts(self) -> Dict[str, Any]:
        """Version, threads, switches as they are, the device."""
        torch = self.module
        return {
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "cuda": torch.version.cuda,
            "cuda_available": torch.cuda.is_available(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "switches": switches(torch),
            "device": cuda_device(torch),
            "compiled": compiled(),
        }

    def synchronize(self) -> None:
        """Wait for a CUDA device."""
        if self.device == "cuda":
            self.module.cuda.synchronize()

    def join(self, rank: int, size: int, servers: int = 0) -> None:
        """Meet at MASTER_ADDR and MASTER_PORT. A network that has loopback alone needs no name for this machine.
        Raises Unable for fewer CUDA devices than members: NCCL takes each device once.
        """
        if os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        if self.device == "cuda":
            devices, here = self.module.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", size))
            if devices < here:
                said = "{} instances need a CUDA device each, and NCCL takes none twice: this machine has {}"
                raise frameworks.Unable(said.format(here, devices))
            self.module.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "nccl" if self.device == "cuda" else "gloo"
        self.module.distributed.init_process_group(backend, rank=rank, world_size=size)
        self.rank, self.size, self.workers = rank, size, size - servers

    def share(self, training: Any, way: Optional[str] = None) -> None:
        """By DistributedDataParallel, which sends gradients while others are still computed, or as `way` says."""
        from tare.worker.groups import exchange

        self.exchange = exchange.WAYS[way or exchange.ALL_REDUCE](self, training)

    def serve(self, training: Any, steps: int) -> List[int]:
        """Average gradients, step, give parameters."""
        ends: List[int] = self.exchange.serve(steps)
        return ends

    def exchanged(self) -> Optional[Dict[str, Any]]:
        """By DDP's hook, or around the calls to the parameter server."""
        found: Optional[Dict[str, Any]] = None if self.exchange is None else self.exchange.as_dict()
        return found

    def leave(self, training: Any) -> Optional[str]:
        """End the group, when all have come as far; returns the SHA-256 of the model's parameters."""
        import hashlib

        self.module.distributed.barrier()
        digest = hashlib.sha256()
        for parameter in training.model.parameters():
            digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
        self.module.distributed.destroy_process_group()
        return digest.hexdigest()

    def parameters(self, training: Any) -> int:
        """Numbers that need a gradient."""
        return sum(p.numel() for p in training.model.parameters() if p.requires_grad)

    def collate(self, samples: Sequence[Any]) -> Any:
        """As the framework's loader makes a batch."""
        data = self.module.utils.data
        if hasattr(data, "default_collate"):  # public from 1.11 on
            return data.default_collate(samples)
        return data._utils.collate.default_collate(samples)

    def batches(self, dataset: Any, batch: int) -> Iterator[Any]:
        """Every full batch of a dataset in order, one at a time."""
        return iter(self.module.utils.data.DataLoader(dataset, batch_size=batch, shuffle=False, drop_last=True))

    def loader(self, dataset: Any, spec: Mapping[str, Any]) -> Iterable[Any]:
        """The paper's loader: shuffled, one worker process; pinned memory only where there is a device.

        In a group each process has its part of the samples, or where the specification says `samples_each` all of
        them in its own order, and batches of the same size. Before 1.7 a loader draws its order from the
        generator of the whole process, which the job has seeded.
        """
        data, sampler, each = self.module.utils.data, None, spec.get("samples_each", False)
        seeded: Dict[str, Any] = {}
        if release(self.module) >= (1, 7):
            seeded["generator"] = self.module.Generator().manual_seed(spec["seed"] + (self.rank if each else 0))
        if self.workers > 1 and not each:
            sampler = data.distributed.DistributedSampler(dataset, self.workers, self.rank, seed=spec["seed"])
        loader: Iterable[Any] = data.DataLoader(
            dataset,
            batch_size=spec["batch"],
            shuffle=sampler is None,
            sampler=sampler,
            num_workers=spec["loader_workers"],
            pin_memory=self.device == "cuda",
            **seeded,
        )
        return loader

    def batch_bytes(self, batch: Any) -> int:
        """Memory of its tensors."""
        return sum(part.numel() * part.element_size() for part in batch)

    def to_device(self, batch: Any) -> Any:
        """A batch on the device that trains on it."""
        return [part.to(self.device) for part in batch]

    def as_loaded(self, batch: Any) -> Any:
        """Pinned where there is a device."""
        return [part.pin_memory() for part in batch] if self.device == "cuda" else batch

    def burst(self, training: Any, batches: Sequence[Any]) -> Tuple[int, int, List[float], List[Any]]:
        """By events of a CUDA device before the first step and after each, read at the end.

        So steps are submitted without waiting, as people run them. A step that includes a capture or a compilation
        is as long as that takes: such steps belong into the warm-up.
        """
        cuda = self.module.cuda
        events = [cuda.Event(enable_timing=True) for _ in range(len(batches) + 1)]
        losses = []
        cuda.synchronize()
        started = now_ns()
        events[0].record()
        for event, batch in zip(events[1:], batches):
            losses.append(training.step(batch))
            event.record()
        cuda.synchronize()
        ended = now_ns()
        durations = [events[index].elapsed_time(events[index + 1]) / 1e3 for index in range(len(batches))]
        return started, ended, durations, losses

    def smallest_step(self) -> Optional[Callable[[], Any]]:
        """A backward pass. None on a CUDA device, which can't be shared with forked processes."""
        if self.device == "cuda":
            return None
        return lambda: self.module.ones(1, requires_grad=True).sum().backward()

    def allocated_peak_bytes(self) -> Optional[int]:
        """Of a CUDA device."""
        return self.module.cuda.max_memory_allocated() if self.device == "cuda" else None

    def free_memory(self) -> None:
        """What the framework keeps of a CUDA device for later."""
        if self.device == "cuda":
            self.module.cuda.empty_cache()


FRAMEWORK = Torch


def declare_vision_operators(torch: Any) -> None:
    """Let torchvision import where its compiled operators can't load.

    The registry's torchvision is built against CUDA; with a CPU build of torch its library does not load, and
    the import fails when it registers shapes for two operators that nobody declared. Their two schemas are
    enough; no workload here calls them.
    """
    if torch.version.cuda is not None or not hasattr(torch, "library") or hasattr(torch, "_tare_vision_library"):
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch._tare_vision_library = library  # the declarations live as long as this object


def release(torch: Any) -> Tuple[int, int]:
    """Major and minor version."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def switches(torch: Any) -> Dict[str, Optional[bool]]:
    """The framework's switches as they are now; None where this version has no such switch."""
    backends = torch.backends
    matmul = getattr(getattr(backends, "cuda", None), "matmul", None)
    return {
        "tf32_products": getattr(matmul, "allow_tf32", None),
        "tf32_convolutions": getattr(getattr(backends, "cudnn", None), "allow_tf32", None),
        "cudnn_benchmark": backends.cudnn.benchmark,
        "cudnn_deterministic": backends.cudnn.deterministic,
        "onednn": torch._C._get_mkldnn_enabled() if hasattr(torch._C, "_get_mkldnn_enabled") else None,
        "deterministic": torch.are_deterministic_algorithms_enabled()
        if hasattr(torch, "are_deterministic_algorithms_enabled")
        else None,
    }


def compiled() -> Optional[Dict[str, int]]:
    """What torch.compile or TorchScript made of the models of this process; None where nothing was compiled."""
    scripted: Dict[str, int] = getattr(sys.modules.get("tare.worker.settings.compile"), "SCRIPTED", {})
    if scripted:
        return dict(scripted)
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    if not counters.get("stats"):
        return None
    return {
        "graphs": int(counters["stats"]["unique_graphs"]),
        "operators": int(counters["stats"]["calls_captured"]),
        "breaks": int(sum(counters["graph_break"].values())),
    }


def cuda_device(torch: Any) -> Optional[Dict[str, Any]]:
    """The CUDA device as the framework sees it; None where there is none."""
    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(0)
    return {
        "name": found.name,
        "capability": [found.major, found.minor],
        "memory_bytes": found.total_memory,
        "multiprocessors": found.multi_processor_count,
        "l2_bytes": getattr(found, "L2_cache_size", None),
        "cudnn": torch.backends.cudnn.version(),
    }
