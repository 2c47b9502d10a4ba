"""torch.profiler, counts of operators, and the CUDA runtime's own switch for profilers of counters."""

import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from tare.worker import kernels
from tare.worker.counting import count_step
from tare.worker.instruments import Instruments

US = 1e-6


class TorchInstruments(Instruments):
    """PyTorch's."""

    def trace(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]
    ) -> Tuple[List[float], Optional[str]]:
        """A trace of Chrome's format, with the shapes of what operators take."""
        from_profiler, reason = self.profiler()
        if reason:
            return [], reason
        durations = []
        with from_profiler(spec, record_shapes=True) as profiler:
            for index in range(spec["warmup_steps"] + spec["steps"]):
                started = time.perf_counter()
                training.step(batches[index % len(batches)])
                self.framework.synchronize()
                durations.append(time.perf_counter() - started)
                profiler.step()
        profiler.export_chrome_trace(spec["trace"])
        return durations[spec["warmup_steps"] :], None

    def operators(self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]) -> Dict[str, Any]:
        """The profiler's own sums."""
        from_profiler, reason = self.profiler()
        if reason:
            return {"rows": None, "steps": 0, "reason": reason}
        with from_profiler(spec) as profiler:
            for index in range(spec["warmup_steps"] + spec["steps"]):
                training.step(batches[index % len(batches)])
                self.framework.synchronize()
                profiler.step()
        return {"rows": rows_of(profiler.key_averages()), "steps": spec["steps"], "reason": None}

    def profiler(self) -> Tuple[Any, Optional[str]]:
        """(what makes a profiler of spec["steps"] steps after a warm-up, None), or (None, the reason)."""
        try:
            from torch.profiler import ProfilerActivity, profile, schedule
        except ImportError as error:
            return None, "torch {} has no torch.profiler: {}".format(self.framework.module.__version__, error)
        activities = [ProfilerActivity.CPU]
        if self.framework.device == "cuda":
            activities.append(ProfilerActivity.CUDA)

        def make(spec: Mapping[str, Any], **options: Any) -> Any:
            plan = schedule(wait=0, warmup=spec["warmup_steps"], active=spec["steps"], repeat=1)
            return profile(activities=activities, schedule=plan, **options)

        return make, None

    def count(self, training: Any, batch: Any) -> Dict[str, Any]:
        """By dispatch, as tare/worker/counting.py says."""
        return count_step(self.framework.module, training, batch)

    def watch(self) -> None:
        """By the CUDA runtime."""
        self.framework.module.cuda.profiler.start()

    def unwatch(self) -> None:
        """By the CUDA runtime."""
        self.framework.module.cuda.profiler.stop()


INSTRUMENTS = TorchInstruments


def rows_of(averages: Iterable[Any]) -> List[Dict[str, Any]]:
    """The profiler's sums as rows: operators by their own time on the CPU, kernels by theirs on the device."""
    rows: List[Tuple[str, str, None, int, float]] = []
    for average in averages:
        if average.key.startswith("ProfilerStep"):
            continue
        on_device = str(getattr(average, "device_type", "")).endswith("CUDA")
        if on_device and getattr(average, "is_user_annotation", False):
            continue  # the device's whole time inside an optimizer's step, whose kernels have their own rows
        name = kernels.without_hash(average.key) if on_device else average.key
        # Own microseconds on the device, under the name of this version of the profiler.
        fields = ("self_device_time_total", "self_cuda_time_total") if on_device else ("self_cpu_time_total",)
        own = next((float(getattr(average, field)) for field in fields if hasattr(average, field)), 0.0)
        rows.append(("cuda" if on_device else "operator", name, None, average.count, own * US))
    return kernels.summed(rows)
