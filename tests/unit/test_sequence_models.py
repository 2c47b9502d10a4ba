"""The LSTM and the Transformer: sizes by hand, what they are given, what they learn, what they are refused."""

import json

import pytest
import torch

from tare.model.registry import describe_workload
from tare.worker import counting, settings, train
from tare.worker.frameworks.torch import Torch
from tare.worker.settings import amp
from workloads import _reviews, sentiment_lstm, sentiment_rnn, transformer_lm

BOTH = {"sentiment_lstm": sentiment_lstm, "transformer_lm": transformer_lm}
TEXT = "a film with a good and a bad plot, some wit; an end that nobody saw coming, naïve"


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """On a machine that others keep busy, two threads of so small products wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """A prepared folder with 999 reviews, some with characters of several bytes."""
    folder = tmp_path_factory.mktemp("reviews")
    texts = [f"{TEXT[number % 7 :]}, {number % 50} times" for number in range(999)]
    lines = (json.dumps({"label": number % 2, "text": text}) + "\n" for number, text in enumerate(texts))
    (folder / "reviews.jsonl").write_text("".join(lines))
    return folder


def pytorch():
    framework = Torch("cpu")
    framework.import_()
    return framework


def built(workload, **wanted):
    return train.build_model(pytorch(), workload, {"settings": wanted})


def size(model):
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def small(batch, rows=2):
    return [part[:rows] for part in batch]


# --- sizes


def test_the_lstm_has_the_size_of_its_published_counterpart():
    """Per layer and direction four gates, each with weights of input and hidden state, and two biases."""
    first, second = (4 * 256 * (inputs + 256) + 2 * 4 * 256 for inputs in (100, 2 * 256))
    rest = 2 * (first + second) + 2 * 256 + 1
    assert size(sentiment_lstm.build_model(torch, 25_002)) == rest + 25_002 * 100 == 4_810_857
    assert size(sentiment_lstm.build_model(torch)) == rest + 202 * 100
    assert size(built(sentiment_lstm).model) == describe_workload("sentiment_lstm")["parameters"] == 2_330_857


def test_the_transformer_has_the_size_of_its_published_counterpart():
    """Per block twelve squares of the width and two norms; one more norm; tokens and places."""
    rest = 4 * (12 * 128**2 + 2 * 128) + 128 + 64 * 128
    assert size(transformer_lm.build_model(torch, 65)) == rest + 65 * 128 == 804_096
    assert size(built(transformer_lm).model) == describe_workload("transformer_lm")["parameters"] == 828_544
    assert rest + 256 * 128 == 828_544


def test_matrices_decay_and_norms_do_not():
    groups = built(transformer_lm).optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert {weight.dim() for weight in groups[0]["params"]} == {2}
    assert sum(weight.numel() for weight in groups[1]["params"]) == 9 * 128


# --- samples


def test_the_lstm_reads_what_the_rnn_reads(reviews):
    some, every = sentiment_lstm.Training.load(str(reviews)), sentiment_rnn.Training.load(str(reviews))
    assert (len(some), len(every)) == (128, 999)
    assert len(sentiment_lstm.Training.load(str(reviews), {"samples": 999})) == 999
    assert describe_workload("sentiment_lstm", {"samples": 999})["samples"] == 999
    for ours, theirs in zip(some.tensors, every.tensors, strict=True):
        assert torch.equal(ours, theirs[:128])


def test_the_transformer_reads_the_text_byte_by_byte(reviews):
    data = transformer_lm.Training.load(str(reviews))
    assert len(data) == describe_workload("transformer_lm")["samples"]
    texts, _ = _reviews.read_rows(str(reviews))
    text = "\n".join(texts).encode()
    assert len(set("\n".join(texts))) < len(text)
    for number, (ids, following) in enumerate(data):
        start = 64 * number
        assert bytes(ids.tolist()) == text[start : start + 64]
        assert bytes(following.tolist()) == text[start + 1 : start + 65]


@pytest.mark.parametrize(
    "line",
    ["", "{", '"text"', '{"text": "x"}', '{"text": 1, "label": 1}', '{"text": "x", "label": 2}', "\x80", "[1]"],
)
def test_a_line_that_is_no_review_is_named(tmp_path, line):
    good = b'{"text": "good", "label": 1}\n'
    (tmp_path / "reviews.jsonl").write_bytes(good + line.encode("latin-1") + b"\n" + good)
    for workload in (*BOTH.values(), sentiment_rnn):
        with pytest.raises(
            ValueError, match=r"^\S+/reviews\.jsonl line 2 is no review: it needs a text, and a label"
        ):
            workload.Training.load(str(tmp_path))


def test_too_little_text_is_said_in_one_line(tmp_path, reviews):
    lines = (reviews / "reviews.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "reviews.jsonl").write_text("".join(lines[:40]))
    text_bytes = len("\n".join(_reviews.read_rows(str(tmp_path))[0]).encode())
    for workload, found in ((sentiment_lstm, 40), (transformer_lm, (text_bytes - 1) // 64)):
        wanted = f"^the data has {found} samples, the description says {workload.DESCRIPTION['samples']}$"
        with pytest.raises(ValueError, match=wanted):
            train.load(pytorch(), workload, {"data": str(tmp_path)})
    (tmp_path / "reviews.jsonl").write_text('{"text": "good", "label": 1}\n')
    with pytest.raises(ValueError, match=r"^the reviews hold 4 bytes of text, less than one sample$"):
        transformer_lm.Training.load(str(tmp_path))


# --- steps


@pytest.mark.parametrize("name", BOTH)
def test_losses_fall_and_equal_seeds_give_equal_ones(name, reviews):
    workload = BOTH[name]
    framework = pytorch()
    batches = train.first_batches(framework, workload.Training.load(str(reviews)), 4)
    runs = []
    for steps in (6, 2):
        training = built(workload)
        runs.append([float(training.step(batches[0])) for _ in range(steps)])
    assert runs[0][:2] == runs[1]
    first = {"sentiment_lstm": 0.693, "transformer_lm": 5.545}[name]  # log 2, log 256: nothing is known yet
    assert runs[0][0] == pytest.approx(first, abs=0.1)
    assert runs[0][-1] < runs[0][0] - {"sentiment_lstm": 0.005, "transformer_lm": 0.5}[name]


def test_shapes_of_what_models_give():
    assert built(sentiment_lstm).model(torch.zeros(100, 3, dtype=torch.long)).shape == (3, 1)
    model = built(transformer_lm).model
    assert model(torch.zeros(3, 64, dtype=torch.long)).shape == (3, 64, 256)
    assert model(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 256)


def test_a_long_gradient_is_clipped_and_a_short_one_is_not():
    training = built(transformer_lm)
    for length, clipped in ((100.0, 1.0), (0.25, 0.25)):
        for weight in training.model.parameters():
            weight.grad = torch.zeros_like(weight)
        next(training.model.parameters()).grad[0, 0] = length
        training.clip()
        norm = torch.stack([weight.grad.norm() for weight in training.model.parameters()]).norm()
        assert float(norm) == pytest.approx(clipped, rel=1e-4)


# --- causality


def without_operator(monkeypatch):
    monkeypatch.delattr(torch.nn.functional, "scaled_dot_product_attention")


@pytest.mark.parametrize("spelled_out", [False, True])
def test_future_tokens_change_no_past_output(monkeypatch, spelled_out):
    if spelled_out:
        without_operator(monkeypatch)
    model = built(transformer_lm).model.eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(256, (2, 64), generator=generator)
    with torch.no_grad():
        before = model(ids)
        for place in (1, 20, 63):
            other = ids.clone()
            other[:, place:] = (other[:, place:] + 1) % 256
            after = model(other)
            assert torch.allclose(before[:, :place], after[:, :place], atol=1e-6)
            assert not torch.allclose(before[:, place], after[:, place], atol=1e-3)  # the change is seen there


def test_past_tokens_change_later_outputs():
    """Attention looks back: a model of single bytes would pass the test before this one."""
    model = built(transformer_lm).model.eval()
    ids = torch.full((1, 64), 65)
    other = ids.clone()
    other[0, 0] = 66
    with torch.no_grad():
        assert (model(ids)[0, 1:] - model(other)[0, 1:]).abs().amax(dim=1).min() > 1e-6


def test_a_framework_without_the_operator_computes_the_same(monkeypatch, reviews):
    batch = small(train.first_batches(pytorch(), transformer_lm.Training.load(str(reviews)), 4)[0])
    losses = [float(built(transformer_lm).step(batch))]
    without_operator(monkeypatch)
    training = built(transformer_lm)
    losses.append(float(training.step(batch)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


# --- settings


@pytest.mark.parametrize("name", BOTH)
def test_mixed_precision_reaches_the_model(name, reviews):
    if name == "sentiment_lstm" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(settings.Unable, match=r"^this processor has no LSTM in bfloat16: could not create"):
            built(BOTH[name], amp="bf16")
        return
    batch = small(train.first_batches(pytorch(), BOTH[name].Training.load(str(reviews)), 4)[0])
    plain, mixed = (float(built(BOTH[name], **wanted).step(batch)) for wanted in ({}, {"amp": "bf16"}))
    assert plain != mixed and plain == pytest.approx(mixed, rel=0.05)


@pytest.mark.parametrize("name", BOTH)
def test_a_layout_of_images_is_refused(name):
    with pytest.raises(settings.Unable, match="no filter of four dimensions"):
        built(BOTH[name], layout="channels-last")


@pytest.mark.parametrize(("workload", "graphs"), [(sentiment_lstm, 0), (sentiment_rnn, 0), (transformer_lm, 1)])
def test_what_the_compiler_sees_is_what_the_setting_says(workload, graphs):
    """Nothing of a recurrent network, without a word: so it is refused. All of the Transformer, as one graph."""
    training, seen = built(workload), []
    model = torch.compile(training.model, backend=lambda graph, inputs: seen.append(graph) or graph.forward)
    with torch.no_grad():
        model(torch.zeros(2, 64, dtype=torch.long))
    torch._dynamo.reset()
    assert len(seen) == graphs
    if graphs:
        assert built(workload, compile="inductor").model is not None
    else:
        with pytest.raises(settings.Unable, match=r"torch\.compile compiles nothing of a model with"):
            built(workload, compile="inductor")


def test_a_scaled_step_clips_gradients_of_their_own_size(monkeypatch, reviews):
    """With the scaler of fp16, here on the CPU: scaled gradients would all be clipped."""
    kind = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device: kind("cpu", init_scale=1024.0))
    batch = small(train.first_batches(pytorch(), transformer_lm.Training.load(str(reviews)), 4)[0])
    seen = []
    for scaled in (False, True):
        training = built(transformer_lm)
        watch_clip(training, seen)
        step = amp.scaled_step(torch, training) if scaled else training.step
        step(batch)
    assert seen[0] == pytest.approx(seen[1], rel=1e-4)


def watch_clip(training, seen):
    """Note the norm of all gradients at each clip."""
    clip = training.clip

    def noted():
        seen.append(float(torch.stack([weight.grad.norm() for weight in training.model.parameters()]).norm()))
        clip()

    training.clip = noted


# --- counts


def total(counts, key="flops"):
    return sum(row[key] for row in counts["operators"].values())


def test_flops_of_a_step_of_the_lstm_by_hand():
    """Two a weight, row and token; backwards twice that: also of the first layer, as embeddings learn."""
    rows = 3
    training = built(sentiment_lstm)
    counts = counting.count_step(torch, training, [torch.zeros(rows, 100, dtype=torch.long), torch.ones(rows)])
    weights = sum(2 * 4 * 256 * (inputs + 256) for inputs in (100, 512))
    assert total(counts) == 3 * 2 * rows * (100 * weights + 512)
    assert counts["families"]["matrix product"]["flops"] == total(counts)
    assert counts["families"]["optimizer"]["elementwise_flops"] > 0


def test_flops_of_a_step_of_the_transformer_by_hand():
    """Linear layers as ever; in each block attention's two products of 64 by 64 places, and backwards five."""
    rows, tokens = 2, 2 * 64
    training = built(transformer_lm)
    batch = [torch.zeros(rows, 64, dtype=torch.long), torch.ones(rows, 64, dtype=torch.long)]
    counts = counting.count_step(torch, training, batch)
    linear = 3 * 2 * tokens * (4 * 12 * 128**2 + 256 * 128)
    attention = 4 * (2 + 5) * 2 * rows * 64 * 64 * 128
    assert total(counts) == linear + attention
    assert counts["families"]["matrix product"]["flops"] == total(counts)


def test_attention_spelled_out_counts_its_products_too(monkeypatch):
    """Four products backwards, as it keeps what the operator computes again."""
    without_operator(monkeypatch)
    batch = [torch.zeros(2, 64, dtype=torch.long), torch.ones(2, 64, dtype=torch.long)]
    counts = counting.count_step(torch, built(transformer_lm), batch)
    assert total(counts) == 3 * 2 * 128 * (4 * 12 * 128**2 + 256 * 128) + 4 * (2 + 4) * 2 * 2 * 64 * 64 * 128
