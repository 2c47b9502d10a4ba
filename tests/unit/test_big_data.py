"""A data set of any size: what a launch takes of it is a few batches."""

import inside_code

GIB = 1 << 30
DATA_BYTES = 4 * GIB
MOST_BYTES = 400 << 20  # 64 MiB of batches, the pages that they were read from, an interpreter
WORKLOAD = f'''"""{DATA_BYTES} bytes of samples, of which none is read before it is asked for."""

DESCRIPTION = {{
    "title": "Big data", "dataset": "mnist", "parameters": 1, "samples": {DATA_BYTES >> 16}, "batch": 16,
    "optimizer": "none", "loss": "none", "seed": 1, "imports": (),
}}


class Samples:
    """One row each of a file, mapped."""

    def __init__(self, folder):
        import numpy

        self.rows = numpy.memmap(folder + "/rows", dtype="uint8", mode="r").reshape(-1, 1 << 16)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return (self.rows[index],)


class NumpyTraining:
    """Looks at its batches."""

    def __init__(self, numpy, device):
        self.weights = [numpy.zeros(1)]

    load = staticmethod(Samples)

    def step(self, batch):
        """One pass over the batch; returns a loss."""
        return float(batch[0].max())

    def end_epoch(self):
        """Nothing happens between epochs."""


FRAMEWORKS = {{"numpy": NumpyTraining}}
'''


def test_a_description_with_another_number_of_samples_is_refused(tmp_path):
    text = WORKLOAD.replace(f'"samples": {DATA_BYTES >> 16}', '"samples": 512')
    code = inside_code.code_folder(tmp_path / "code", {"workloads/big_data.py": text})
    with (tmp_path / "rows").open("wb") as handle:
        handle.truncate(1 << 20)
    python, variables = inside_code.without_torch(tmp_path / "packages")
    launches = inside_code.Inside(code, tmp_path / "launches", python, variables)
    record = launches.run(mode="train", workload="big_data", framework="numpy", batch=16, data=str(tmp_path))
    assert record["status"] == "failed"
    assert record["reason"] == "ValueError: the data has 16 samples, the description says 512"


def test_a_big_data_set_does_not_make_a_launch_that_measures_steps_bigger(tmp_path):
    code = inside_code.code_folder(tmp_path / "code", {"workloads/big_data.py": WORKLOAD})
    with (tmp_path / "rows").open("wb") as handle:
        handle.truncate(DATA_BYTES)  # no block of it is on the disk
    python, variables = inside_code.without_torch(tmp_path / "packages")
    launches = inside_code.Inside(code, tmp_path / "launches", python, variables)
    wanted = {"levels": ["steady"], "replicates": 1, "warmup_steps": 1, "steps": 130}
    record = launches.run(
        mode="train", workload="big_data", framework="numpy", batch=16, data=str(tmp_path), steps=2, measured=wanted
    )
    assert record["status"] == "ok", record["reason"]
    (made,) = record["results"]["replicates"]
    assert len(made["step_ends_ns"]) == 130, "they go round on 64 batches of 1 MiB each"
    assert max(made["peak_rss_bytes"], record["memory"]["peak_rss_bytes"]) < MOST_BYTES
