"""What runs inside an environment: counts by hand, models, vocabulary, ELF identity, facts, Python 3.6 syntax."""

import ast
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from tare.core.files import project_root
from tare.worker import counting, elf, facts, train
from tare.worker.frameworks.torch import Torch
from tare.worker.marks import Marks, now_ns, peak_memory, scheduling
from workloads import _reviews, mnist_cnn, sentiment_rnn

ROOT = project_root()


class Job:
    """The least of a training job: `step(batch)`."""

    def __init__(self, function):
        self.step = function


def total(counts, key):
    return sum(row[key] for row in counts["operators"].values())


def test_a_matrix_product_by_hand():
    a, b = torch.ones(4, 8), torch.ones(8, 16)
    counts = counting.count_step(torch, Job(lambda _: a @ b), None)
    assert total(counts, "flops") == 2 * 4 * 8 * 16
    # reads 4x8 and 8x16, writes 4x16, four bytes each
    assert counts["operators"]["aten::mm"]["bytes"] == 4 * (32 + 128 + 64)


def test_a_convolution_by_hand():
    conv = torch.nn.Conv2d(1, 32, 3, bias=False)
    image = torch.ones(64, 1, 28, 28)
    with torch.no_grad():
        counts = counting.count_step(torch, Job(lambda _: conv(image)), None)
    # every one of 64 x 32 x 26 x 26 outputs takes 9 multiply-adds
    assert total(counts, "flops") == 64 * 32 * 26 * 26 * 9 * 2
    assert counts["operators"]["aten::convolution"]["bytes"] == 4 * (64 * 28 * 28 + 32 * 9 + 64 * 32 * 26 * 26)


def test_an_rnn_step_by_hand():
    rnn = torch.nn.RNN(20, 40)
    text = torch.ones(100, 64, 20)
    with torch.no_grad():
        counts = counting.count_step(torch, Job(lambda _: rnn(text)), None)
    # input products of all steps, and one recurrent product per step
    assert total(counts, "flops") == 2 * 100 * 64 * 20 * 40 + 2 * 100 * 64 * 40 * 40


def test_an_rnn_step_as_one_operator_of_cudnn_counts_as_much():
    """On a CUDA device it is one operator, which the framework's own counter takes for nothing."""
    weights = [torch.zeros(shape, device="meta") for shape in ((40, 20), (40, 40), (40,), (40,))]
    text, hidden = torch.zeros(100, 64, 20, device="meta"), torch.zeros(1, 64, 40, device="meta")

    def forward(_):
        torch.ops.aten._cudnn_rnn(
            text, weights, 4, None, hidden, None, 0, 40, 0, 1, False, 0.0, True, False, [], None
        )

    counts = counting.count_step(torch, Job(forward), None)
    assert total(counts, "flops") == 2 * 100 * 64 * 20 * 40 + 2 * 100 * 64 * 40 * 40
    assert counts["families"]["matrix product"]["flops"] == total(counts, "flops")
    backward = counting.further_formulas(torch)[torch.ops.aten._cudnn_rnn_backward]
    shapes = ([100, 64, 20], [[40, 20], [40, 40], [40], [40]], 4, [2480], [1, 64, 40])
    assert backward(*shapes, out_shape=None) == 2 * total(counts, "flops")


def pytorch(device="cpu"):
    """The framework, imported."""
    framework = Torch(device)
    framework.import_()
    return framework


def test_batches_of_a_profile_lie_where_a_loader_leaves_them(monkeypatch):
    """Steps move them: a profile without copies to the device would not be one of training."""
    dataset = torch.utils.data.TensorDataset(torch.arange(5.0), torch.arange(5))
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda part: pinned.append(part) or part)
    batches = train.first_batches(pytorch(), dataset, 2)
    assert [pytorch().as_loaded(batch) for batch in batches] == batches and not pinned
    batches = [pytorch("cuda").as_loaded(batch) for batch in batches]
    assert len(pinned) == 4 and {part.device.type for batch in batches for part in batch} == {"cpu"}


class Endless:
    """Samples of a mebibyte each, made when they are asked for: more than any machine holds."""

    def __init__(self):
        self.made = []

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        self.made.append(index)
        return torch.full((1 << 18,), float(index)), index


@pytest.mark.parametrize(("batch", "kept"), [(8, 8), (32, train.LEAST_BATCHES)])
def test_a_launch_holds_batches_and_not_the_data(batch, kept):
    """64 MiB of them, four at least, from the data's beginning; one more is made, to see that it does not fit."""
    data = Endless()
    batches = train.first_batches(pytorch(), data, batch)
    held = kept - 1 if batch == 8 else kept  # the labels take a few bytes of the eighth
    assert len(batches) == held and data.made == list(range((held + 1) * batch))
    assert [int(one[1][0]) for one in batches] == [number * batch for number in range(held)]


def test_data_that_makes_no_batch_is_refused_in_one_line():
    dataset = torch.utils.data.TensorDataset(torch.arange(5.0))
    with pytest.raises(ValueError, match="the data has 5 samples, less than one batch of 8"):
        train.first_batches(pytorch(), dataset, 8)


def test_views_move_nothing():
    x = torch.ones(10, 10)
    counts = counting.count_step(torch, Job(lambda _: x.t().reshape(100)[3:]), None)
    assert counts["operators"]["aten::t"]["bytes"] == 0


def test_the_paper_cnn_has_its_size_and_its_flops():
    training = mnist_cnn.Training(torch, "cpu")
    assert sum(p.numel() for p in training.model.parameters()) == 1_199_882
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
    counts = counting.count_step(torch, training, (images, labels))
    layers = [64 * 32 * 26 * 26 * 9, 64 * 64 * 24 * 24 * 9 * 32, 64 * 9216 * 128, 64 * 128 * 10]
    # backward: twice the forward for each layer, but the first convolution needs no gradient of its input
    assert total(counts, "flops") == 2 * (3 * sum(layers) - layers[0])


def test_the_paper_rnn_has_its_size_and_learns_with_plain_sgd():
    training = sentiment_rnn.Training(torch, "cpu")
    assert sum(p.numel() for p in training.model.parameters()) == 6_561
    before = [p.detach().clone() for p in training.model.parameters()]
    ids, labels = torch.randint(202, (8, 100)), torch.ones(8)
    loss = training.step((ids, labels))
    assert loss.item() == pytest.approx(0.69, abs=0.2)
    moved = [not torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True)]
    assert all(moved)


def test_token_ids_follow_the_papers_rules():
    texts = ["A good, GOOD film!", "bad film; bad", "unseen"] + ["film good the"] * 3
    cleaned = [re.sub(r"[^\w\s]", "", text.lower()).split() for text in texts]
    words = Counter(word for text in cleaned for word in text)
    order = sorted(words, key=lambda word: (-words[word], word))
    index = {word: position + 2 for position, word in enumerate(order)}
    expected = [([index[word] for word in text] + [1] * 100)[:100] for text in cleaned]
    assert _reviews.encode(texts) == expected


def test_the_vocabulary_ends_at_200_words_and_the_rest_is_unknown():
    texts = [" ".join([f"w{number:03d}"] * (300 - number)) for number in range(250)]
    ids = _reviews.encode(texts)
    assert {row[0] for row in ids[:200]} == set(range(2, 202))
    assert {row[0] for row in ids[200:]} == {0}
    assert all(len(row) == 100 for row in ids)


def test_torchvision_imports_beside_a_cpu_build():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tare.worker import frameworks\nframework = frameworks.of({})\n"
        "for _ in range(2):\n    framework.import_()\nframework.set_threads(1)\n"
        "import torchvision\nprint(framework.module.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ROOT)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "1\n", done.stderr


def test_build_ids_and_sonames_agree_with_readelf():
    if shutil.which("readelf") is None:
        pytest.fail("readelf (binutils) is missing: it is the independent reader of this test")
    checked = 0
    for path in elf.mapped_paths():
        if ".so" not in Path(path).name:
            continue
        found = elf.read_elf(path)
        notes = subprocess.run(["readelf", "-nd", path], capture_output=True, text=True).stdout
        build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)
        soname = re.search(r"Library soname: \[(.*?)\]", notes)
        assert found.build_id == (build_id.group(1) if build_id else None), path
        assert found.soname == (soname.group(1) if soname else None), path
        assert found.needed == tuple(re.findall(r"\(NEEDED\).*\[(.*?)\]", notes)), path
        searched = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*?)\]", notes)
        assert ":".join(found.rpath + found.runpath) == ":".join(searched), path
        checked += 1
    assert checked > 10


def test_a_file_that_is_cut_short_is_no_elf(tmp_path):
    whole = Path(sys.executable).resolve().read_bytes()
    for length in (10, 64, 100, 600):
        (tmp_path / "cut").write_bytes(whole[:length])
        found = elf.read_elf(tmp_path / "cut")
        assert found is None or not found.dynamic


def test_a_file_that_is_no_elf_keeps_its_hash(tmp_path):
    path = tmp_path / "plain"
    path.write_text("text")
    row = elf.fingerprint(str(path))
    assert (row["soname"], row["build_id"]) == (None, None)
    assert row["sha256"] == "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"


def test_facts_come_from_the_running_process():
    found = facts.collect(pytorch())
    assert found["torch"]["threads"] == torch.get_num_threads()
    assert found["namespaces"]["net"].startswith("net:[")
    assert "Seccomp" in found["status"]
    assert found["shm_bytes"] > 0
    assert found["cpu_model"] is None or f"model name\t: {found['cpu_model']}" in Path("/proc/cpuinfo").read_text()


def test_marks_are_in_order_and_count_cpu_time():
    marks = Marks(now_ns())
    while marks.rows[-1]["user_s"] < marks.rows[0]["user_s"] + 0.05:
        marks.add("busy")
    instants = [row["at_ns"] for row in marks.rows]
    assert instants == sorted(instants)
    assert peak_memory()["peak_rss_bytes"] > 10_000_000


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "tare/worker").rglob("*.py")), *sorted((ROOT / "workloads").glob("*.py"))],
    ids=lambda path: path.name,
)
def test_it_stays_in_python_3_6(path):
    ast.parse(path.read_text(), feature_version=(3, 6))


def test_a_workload_is_described_without_its_framework():
    code = (
        "import sys; from tare.model.registry import describe_workload, module_names\n"
        "[describe_workload(name) for name in module_names('workloads')]\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


def test_a_loss_that_is_no_number_ends_the_launch_with_its_reason():
    losses = iter([torch.tensor(0.5), torch.tensor(float("nan"))])
    job = Job(lambda batch: next(losses))
    job.end_epoch = lambda: None
    with pytest.raises(ValueError, match="the loss of step 2 is nan"):
        train.run_epoch(pytorch(), job, [(torch.ones(1),), (torch.ones(1),)])


def test_a_launch_tells_how_often_it_was_preempted_and_how_long_it_waited():
    before = scheduling()
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    after = scheduling()
    assert after["preemptions"] >= before["preemptions"] >= 0
    assert after["waited_s"] is None or after["waited_s"] >= before["waited_s"] >= 0
