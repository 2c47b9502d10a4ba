"""The image workloads: sizes of their models, what they read, the synthetic batch, the rate after the warm-up."""

import os

import pytest
import torch
from PIL import Image

from tare.analysis.launch_rows import _timed_rate
from tare.core.errors import UserError
from tare.datasets.tiny_imagenet import channels_of
from tare.model.data_sets import IMAGENET_MEAN, IMAGENET_SPREAD
from tare.model.records.launches import TrainResults
from tare.model.registry import describe_workload, module_names, options_of, whole_options
from tare.worker import frameworks, pipeline, train
from tare.worker.marks import Marks, now_ns
from tare.worker.settings.input import SameBatch
from workloads import _images, alexnet, inception3, mnist_cnn, resnet18, resnet50

MODULES = {"resnet18": resnet18, "resnet50": resnet50, "alexnet": alexnet, "inception3": inception3}
PUBLISHED = {"resnet18": 11_689_512, "resnet50": 25_557_032, "alexnet": 61_100_840, "inception3": 27_161_264}
SMALL = {"image_px": 64, "classes": 3, "samples": 12, "warmup_steps": 2, "loader_workers": 0}


@pytest.fixture
def photographs(tmp_path):
    """A folder as tiny-imagenet-200's: two classes of four images, whose pixels vary as ImageNet's do."""
    generator = torch.Generator().manual_seed(7)
    mean, spread = (torch.tensor(values).view(3, 1, 1) for values in (_images.MEAN, _images.STD))
    for number in range(8):
        path = tmp_path / f"train/n0{number % 2}/images/{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (torch.randn(3, 8, 8, generator=generator) * spread + mean).clamp(0, 1)
        large = torch.nn.functional.interpolate(pixels[None], size=64)[0]
        Image.fromarray((large.permute(1, 2, 0) * 255).byte().numpy()).save(path, quality=95)
    return tmp_path


def spec(folder, name="resnet18", batch=4, settings=None, **options):
    return {
        "mode": "train", "workload": name, "batch": batch, "seed": 1, "device": "cpu", "threads": 1,
        "loader_workers": 0, "data": str(folder), "settings": settings or {},
        "options": whole_options(name, {**SMALL, **options}),
    }  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("classes", [1000, 200])
def test_a_model_has_as_many_parameters_as_its_description_says(name, classes):
    options = whole_options(name, {"classes": classes})
    with torch.device("meta"):
        frameworks.of({}).import_()
        model = MODULES[name].Training.build(options)
    counted = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert counted == describe_workload(name, {"classes": classes})["parameters"]
    assert (counted == PUBLISHED[name]) == (classes == 1000)


@pytest.mark.parametrize("name", MODULES)
def test_the_smallest_image_is_the_smallest_that_the_model_takes(name):
    least = options_of(name)["image_px"].least
    with torch.device("meta"):
        model = MODULES[name].Training.build(whole_options(name, {"classes": 2}))
    if name.startswith("resnet"):
        model.eval()
        features = torch.nn.Sequential(*list(model.children())[:-2])
        sizes = [
            tuple(features(torch.empty(1, 3, size, size, device="meta")).shape[2:]) for size in (least, least - 1)
        ]
        assert sizes == [(2, 2), (1, 1)]
        return
    model(torch.empty(2, 3, least, least, device="meta"))
    with pytest.raises(RuntimeError):
        model(torch.empty(2, 3, least - 1, least - 1, device="meta"))


def test_the_auxiliary_classifier_is_trained_with_its_weight():
    job = inception3.Training.__new__(inception3.Training)
    job.torch = torch
    right, wrong = torch.tensor([[9.0, -9.0]]), torch.tensor([[-9.0, 9.0]])
    label = torch.tensor([0])
    both = job.loss_of((right, wrong), label).item()
    assert both == pytest.approx(0.4 * 18.0, rel=1e-3) and job.loss_of((wrong, right), label).item() > 17


def test_photographs_come_in_one_order_and_go_round(photographs):
    options = whole_options("resnet18", SMALL)
    data = resnet18.Training.load(str(photographs), options)
    assert (len(data), data.different) == (12, 8)
    assert sorted(data.order) == list(range(8)) and data.order != list(range(8))
    image, label = data[9]
    assert image.shape == (3, 64, 64) and label == data.dataset.targets[data.order[1]]
    again = resnet18.Training.load(str(photographs), options)
    assert torch.equal(again[0][0], resnet18.Training.load(str(photographs), options)[0][0])


def test_data_that_does_not_fit_the_job_is_said_in_one_line(photographs):
    framework = frameworks.of({})
    framework.import_()
    with pytest.raises(ValueError, match="the data has 8 samples, less than one batch of 9"):
        train.load(framework, resnet18, spec(photographs, batch=9))
    for number in range(2, 4):
        folder = photographs / f"train/n0{number}/images"
        folder.mkdir(parents=True)
        (folder / "x.JPEG").hardlink_to(photographs / "train/n00/images/0.JPEG")
    with pytest.raises(ValueError, match="the data has 4 classes, the job 3"):
        train.load(framework, resnet18, spec(photographs))
    with pytest.raises(FileNotFoundError, match="train"):
        train.load(framework, resnet18, spec(photographs / "nowhere"))


def test_the_synthetic_batch_has_imagenets_statistics():
    options = whole_options("resnet18", SMALL)
    torch.manual_seed(1)
    images, labels = resnet18.Training.synthetic(torch, "cpu", 16, options)
    assert images.shape == (16, 3, 64, 64) and images.dtype == torch.float32
    assert set(labels.tolist()) <= {0, 1, 2} and labels.dtype == torch.int64
    assert images.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=0.02)
    assert images.std((0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=0.02)
    assert (_images.MEAN, _images.STD) == (IMAGENET_MEAN, IMAGENET_SPREAD), "pages normalise by the same"


def test_statistics_of_a_set_are_those_of_its_own_pixels(tmp_path):
    """Of images that are unlike each other and unlike ImageNet: flat ones and stripes, each class its own."""
    (tmp_path / "wnids.txt").write_text("n00\nn01\n")
    levels = {"n00": (250, 10, 0), "n01": (30, 90, 0)}
    for name, (red, green, blue) in levels.items():
        folder = tmp_path / f"train/{name}/images"
        folder.mkdir(parents=True)
        for number in range(2):
            image = Image.new("RGB", (64, 64), (red, green, blue))
            image.paste((red, green, 128), (0, 0, 64, 32) if number else (0, 0, 0, 0))
            image.save(folder / f"{number}.JPEG", quality=100, subsampling=0)
    found = channels_of(tmp_path)
    assert found.images == 4
    # half of the pixels at each of two levels of red and green; a quarter of the blue at 128, the rest at 0
    assert found.mean == pytest.approx((140 / 255, 50 / 255, 32 / 255), abs=0.01)
    assert found.spread == pytest.approx((110 / 255, 40 / 255, 128 * 0.1875**0.5 / 255), abs=0.01)
    assert channels_of(tmp_path, most=2).images == 2 and channels_of(tmp_path / "train") is None


def test_synthetic_input_is_one_batch_made_once_and_reads_nothing(monkeypatch):
    made, seen = [], []

    class Counted(resnet18.Training):
        @staticmethod
        def synthetic(torch, device, batch, options):
            made.append(device)
            return _images.Training.synthetic(torch, device, batch, options)

        def step(self, batch):
            seen.append([part.data_ptr() for part in batch])
            return super().step(batch)

    monkeypatch.setattr(resnet18, "Training", Counted)
    wanted = spec("/nowhere", settings={"input": "synthetic"}, samples=14)
    _, results = train.whole_run(wanted, Marks(now_ns()))
    assert made == ["cpu"] and len(seen) == results["steps"] == 4 and results["samples"] == 14
    assert len({tuple(one) for one in seen}) == 1  # the last batch is the beginning of the same one
    framework = frameworks.of({})
    framework.import_()
    (kept,) = train.first_batches(framework, train.load(framework, resnet18, wanted), wanted["batch"])
    assert len(kept[-1]) == 4


def test_the_input_alone_comes_through_loader_processes_of_its_own(photographs):
    """Real ones: each batch is decoded in a child of this process where there is one, and every image comes."""

    class Told(resnet18.Training):
        @staticmethod
        def load(folder, options):
            found = _images.Training.load(folder, options)
            return Watched(found, photographs / "loaders")

    class Watched:
        def __init__(self, dataset, log):
            self.dataset, self.log = dataset, log

        def __len__(self):
            return len(self.dataset)

        def __getitem__(self, index):
            with self.log.open("a") as log:
                log.write(f"{os.getpid()}\n")
            return self.dataset[index]

    asked = {"workers": [0, 2], "images": 8, "repetitions": 1, "no_cold": "a test", "warmup_steps": 1, "steps": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet18, "Training", Told)
        _, found = pipeline.measure({**spec(photographs), **asked, "mode": "pipeline"}, Marks(now_ns()))
    rows = {row["workers"]: row for row in found["passes"]}
    assert sorted(rows) == [0, 2] and all(row["samples"] == 8 and row["cache"] == "warm" for row in rows.values())
    assert all(0 < row["first_batch_s"] <= row["seconds"] for row in rows.values()) and len(found["step_s"]) == 2
    seen = [int(line) for line in (photographs / "loaders").read_text().split()]
    own, others = seen.count(os.getpid()), {pid for pid in seen if pid != os.getpid()}
    # the pass before the clock, that without a loader process, and the batch that is trained on
    assert own >= 16 and len(others) == 2


def test_real_input_is_the_data_set(photographs):
    framework = frameworks.of({})
    framework.import_()
    assert isinstance(
        train.load(framework, resnet18, spec(photographs, settings={"input": "real"})), _images.Photographs
    )
    found = train.load(framework, resnet18, spec(photographs, settings={"input": "synthetic"}))
    assert isinstance(found, SameBatch) and len(found) == 12 and len(found[11]) == 2


def test_a_workload_without_synthetic_batches_says_so(tmp_path):
    framework = frameworks.of({})
    framework.import_()
    job = {"mode": "train", "batch": 64, "seed": 1, "data": str(tmp_path), "settings": {"input": "synthetic"}}
    with pytest.raises(frameworks.Unable, match="input=synthetic needs a workload that makes such a batch"):
        train.load(framework, mnist_cnn, job)


def test_a_whole_run_tells_its_warm_up_and_equal_seeds_give_equal_losses(photographs):
    runs = [train.whole_run(spec(photographs, batch=5), Marks(now_ns()))[1] for _ in range(2)]
    assert runs[0]["losses"] == runs[1]["losses"] and len(runs[0]["losses"]) == 3
    assert (runs[0]["warmup_steps"], runs[0]["warmup_samples"]) == (2, 10)


def test_images_per_second_are_those_of_the_steps_after_the_warm_up():
    ends = tuple(int(second * 1e9) for second in (5, 6, 6.5, 7, 8))
    results = TrainResults(
        samples=18, steps=5, step_ends_ns=ends, losses=(1.0,) * 5, warmup_steps=2, warmup_samples=8
    )
    (row,) = _timed_rate([results])
    assert (row["metric"], row["value"], row["unit"], row["kind"]) == ("images_per_s", 5.0, "1/s", "measured")
    (both,) = _timed_rate([results, results])
    assert both["value"] == 10.0, "instances that train together, each on images of its own"
    assert _timed_rate([results.replace(warmup_steps=0)]) == _timed_rate([results.replace(warmup_steps=5)]) == []


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("resnet18", {"image_pix": 64}, "options: resnet18 has no option 'image_pix': did you mean 'image_px'"),
        ("resnet18", {"image_px": 64.5}, "options: image_px: 64.5 must be of type integer"),
        ("alexnet", {"image_px": 62}, "options: image_px: 62 must be at least 63: of a smaller one"),
        ("inception3", {"image_px": 224}, "options: image_px: 224 must be at least 299: its auxiliary classifier"),
        ("resnet18", {"momentum": 1.0}, "options: momentum: 1.0 must be at most 0.999"),
        ("mnist_cnn", {"image_px": 28}, "options: image_px: mnist_cnn has no options; drop it"),
    ],
)
def test_an_option_that_cannot_be_is_said_in_one_line(name, given, says):
    with pytest.raises(UserError) as told:
        whole_options(name, given)
    assert str(told.value).startswith(says) and "\n" not in str(told.value)


def test_options_are_whole_and_of_their_types():
    found = whole_options("resnet18", {"learning_rate": 1, "image_px": 64})
    assert list(found) == list(options_of("resnet18"))
    assert found["learning_rate"] == 1.0 and isinstance(found["learning_rate"], float)
    assert (found["image_px"], found["classes"], found["samples"]) == (64, 200, 15 * 256)
    for name in module_names("workloads"):
        assert whole_options(name, {}) == {key: option.default for key, option in options_of(name).items()}
