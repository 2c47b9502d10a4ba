"""`input=synthetic`: one batch, made once where steps take it from, instead of the data set; `real` reads that.

What it leaves out is reading, decoding, augmenting, and in whole runs the copy to the device.
"""

from typing import Any, Iterator, List, Mapping, Optional

from tare.worker.frameworks import Framework, Unable


def samples(
    framework: Framework, job: Any, count: int, level: str, spec: Mapping[str, Any]
) -> "Optional[SameBatch]":
    """An epoch of one batch; None at `real`. Raises Unable where the workload makes no such batch."""
    if level == "real":
        return None
    if not hasattr(job, "synthetic"):
        raise Unable("input=synthetic needs a workload that makes such a batch: one with synthetic(torch, …)")
    framework.module.manual_seed(spec["seed"])
    batch = job.synthetic(framework.module, framework.device, spec["batch"], spec.get("options"))
    return SameBatch(batch, count)


class SameBatch(object):
    """One batch, of `distinct`, as every batch of an epoch of `count` samples; the last as short as it is."""

    distinct = 1

    def __init__(self, batch: List[Any], count: int) -> None:
        self.batch = batch
        self.count = count
        self.size = len(batch[-1])

    def __len__(self) -> int:
        """Samples of an epoch."""
        return self.count

    def __getitem__(self, index: int) -> List[Any]:
        """One sample of the batch, which goes round."""
        return [part[index % self.size] for part in self.batch]

    def batches(self, batch: int) -> Iterator[List[Any]]:
        """The batches of an epoch, which are as large as the one that there is."""
        for _ in range(self.count // self.size):
            yield self.batch
        left = self.count % self.size
        if left:
            yield [part[:left] for part in self.batch]
