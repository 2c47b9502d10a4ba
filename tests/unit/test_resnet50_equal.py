"""ResNet50 in PyTorch and TensorFlow: one job, the same weights, images and losses, whoever trains it."""

import types

import pytest
import torch

from tare.analysis.plans import expected
from tare.core.errors import UserError
from tare.model.registry import describe_workload, whole_options
from tare.model.studies import campaigns, loading
from tare.worker import frameworks, train
from workloads import _resnet50, _resnet50_tensorflow, resnet50_equal

NAME = "resnet50_equal"
SMALL = whole_options(NAME, {"samples": 24, "epochs": 1, "classes": 10, "enlarged": 2})


def pytorch():
    framework = frameworks.of({})
    framework.import_()  # torchvision imports after that alone
    return framework


def torchvisions(classes):
    pytorch()
    from torchvision import models

    return models.resnet50(num_classes=classes)


@pytest.mark.parametrize("classes", [1000, 10])
def test_first_weights_are_torchvisions_in_name_shape_and_number(classes):
    with torch.device("meta"):
        wanted = {name: tuple(part.shape) for name, part in torchvisions(classes).named_parameters()}
    first = _resnet50.first_weights(classes)
    assert {name: array.shape for name, array in first.items()} == wanted
    counted = sum(array.size for array in first.values())
    assert counted == describe_workload(NAME, {**SMALL, "classes": classes})["parameters"]
    assert (counted == 25_557_032) == (classes == 1000)


def test_first_weights_are_drawn_as_torchvision_draws_its_own():
    torch.manual_seed(1)
    theirs, ours = torchvisions(10), _resnet50.first_weights(10)
    for name, part in theirs.named_parameters():
        if part.numel() >= 20_000:  # of which a spread is known to a per cent
            assert ours[name].std() == pytest.approx(float(part.std()), rel=0.05), name
        assert abs(float(ours[name].mean()) - float(part.mean())) < 0.02, name


def test_images_are_digits_enlarged_alike_in_three_channels(digits):
    small = _resnet50._mnist.Digits(str(digits), 24).take([5])[0]
    images, labels = _resnet50.Enlarged(str(digits), SMALL, channels_last=False).take([5, 6])
    last, same = _resnet50.Enlarged(str(digits), SMALL, channels_last=True).take([5, 6])
    assert images.shape == (2, 3, 56, 56) and last.shape == (2, 56, 56, 3) and (labels == same).all()
    assert (images.transpose(0, 2, 3, 1) == last).all() and (images[0, 0] == images[0, 2]).all()
    assert (images[0, 1, ::2, 1::2] == small[0, 0]).all()


class Functions(types.SimpleNamespace):
    """The operators that the job takes of TensorFlow, done by PyTorch: images have their channels last."""

    def __init__(self, kind=torch.float32):
        whole = torch.nn.functional
        super().__init__(
            executing_eagerly=lambda: True,
            Variable=lambda value, trainable=True: Variable(torch.as_tensor(value).to(kind)),
            fill=lambda shape, value: torch.full(shape, value),
            pad=lambda found, sides: whole.pad(found, (0, 0, *sides[2], *sides[1])),
            stop_gradient=lambda found: found.detach(),
            matmul=torch.matmul,
            reduce_mean=lambda found, axes=None: found.mean() if axes is None else found.mean(axes),
            function=lambda step, autograph: step,
            keras=types.SimpleNamespace(optimizers=types.SimpleNamespace(SGD=lambda **_: None)),
            nn=types.SimpleNamespace(
                relu=torch.relu,
                conv2d=lambda found, kernel, strides, padding: whole.conv2d(
                    found.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1), stride=strides[1]
                ).permute(0, 2, 3, 1),
                max_pool2d=lambda found, side, stride, padding: whole.max_pool2d(
                    found.permute(0, 3, 1, 2), side, stride
                ).permute(0, 2, 3, 1),
                sparse_softmax_cross_entropy_with_logits=lambda labels, logits: whole.cross_entropy(
                    logits, labels, reduction="none"
                ),
            ),
            compat=types.SimpleNamespace(
                v1=types.SimpleNamespace(nn=types.SimpleNamespace(fused_batch_norm=normalised))
            ),
        )


class Variable(torch.Tensor):
    """A tensor that can be assigned to."""

    def assign(self, value):
        self.copy_(value)


def normalised(found, scale, offset, epsilon):
    mean, variance = found.mean((0, 1, 2)), found.var((0, 1, 2), unbiased=False)
    return (found - mean) * (variance + epsilon).rsqrt() * scale + offset, mean, variance


def test_both_are_the_same_function_of_the_same_images(digits):
    first, second = (
        _resnet50.Enlarged(str(digits), SMALL, channels_last).take(range(8)) for channels_last in (False, True)
    )
    ours = train.build_model(pytorch(), resnet50_equal, {"options": SMALL})
    theirs = _resnet50_tensorflow.Training(Functions(), "cpu", SMALL)
    with torch.no_grad():
        losses = [float(ours.loss([torch.from_numpy(part) for part in first]))]
        losses.append(float(theirs.loss(*(torch.from_numpy(part) for part in second))))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    stem = ours.model.bn1.running_mean
    assert theirs.running["conv1.mean"].tolist() == pytest.approx(stem.tolist(), abs=1e-5)
    assert len(theirs.running) == 2 * 53 and sum(part.numel() for part in theirs.weights) == 23_528_522


def test_both_have_the_same_gradients_in_double_precision(digits):
    """Rounding is too small there for what it makes of a rectifier's input to hide another function."""
    first, second = (
        _resnet50.Enlarged(str(digits), SMALL, channels_last).take(range(4)) for channels_last in (False, True)
    )
    ours = train.build_model(pytorch(), resnet50_equal, {"options": SMALL})
    ours.model.double()
    theirs = _resnet50_tensorflow.Training(Functions(torch.float64), "cpu", SMALL)
    for part in theirs.weights:
        part.requires_grad_()
    losses = [
        job.loss(*batch)
        for job, batch in (
            (ours, [[torch.from_numpy(first[0]).double(), torch.from_numpy(first[1])]]),
            (theirs, [torch.from_numpy(second[0]).double(), torch.from_numpy(second[1])]),
        )
    ]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-9)
    for name, part in ours.model.named_parameters():
        wanted = theirs.laid_out(part.grad.numpy())
        apart = torch.linalg.vector_norm(theirs.named[name].grad - torch.from_numpy(wanted))
        assert float(apart) <= 1e-6 * float(part.grad.norm()), name


def test_steps_of_the_job_lower_its_loss(digits):
    training = train.build_model(pytorch(), resnet50_equal, {"options": SMALL})
    batch = [torch.from_numpy(part) for part in _resnet50.Enlarged(str(digits), SMALL, False).take(range(8))]
    losses = [float(training.step(batch)) for _ in range(4)]
    assert min(losses[1:]) < losses[0]


def test_a_tensorflow_without_functions_is_told():
    old = types.SimpleNamespace(executing_eagerly=lambda: False)
    with pytest.raises(frameworks.Unable, match=r"TensorFlow has from 2\.0 on"):
        _resnet50_tensorflow.Training(old, "cpu", SMALL)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"enlarged": 1}, "options: enlarged: 1 must be at least 2: of images of 28 pixels"),
        ({"classes": 9}, "options: classes: 9 must be at least 10: there are ten digits"),
    ],
)
def test_options_that_make_no_such_job_are_refused(options, says):
    with pytest.raises(UserError, match=says):
        whole_options(NAME, options)


def test_the_study_has_the_published_batch_and_says_what_is_scaled():
    found = loading.load_checked("config/modak2020-resnet50.yaml")
    job = found.workloads[NAME]
    assert job.batch == 96 and job.scaled(NAME, 96) == "epochs 1 (published 3)"
    assert describe_workload(NAME, job.options)["parameters"] == 25_557_032
    assert {"stack=tensorflow-2.1", "stack=tensorflow-2.21"} <= {one.arm for one in campaigns.campaigns(found)}
    assert expected.whole_s(found) < 45 * 60
