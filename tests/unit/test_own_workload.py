"""A workload of someone's own, from the page that says how: what is wrong with it is told in one line."""

import sys

import pytest
from asked import PART
from project import code_blocks

import workloads
from tare.core.errors import UserError
from tare.launch import sites
from tare.model import registry

PAGE = code_blocks("add-a-workload.md", "python")[0]


@pytest.fixture
def write_page(monkeypatch, tmp_path):
    """Write workloads/softmax_mnist.py as the page has it, but for some text; nothing of it stays imported."""
    known = registry.module_names
    monkeypatch.setattr(registry, "module_names", lambda folder: sorted([*known(folder), "softmax_mnist"]))
    monkeypatch.setattr(workloads, "__path__", [*workloads.__path__, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(old="", new="", text=PAGE):
        assert old in text
        (tmp_path / "softmax_mnist.py").write_text(text.replace(old, new, 1) if old else text)

    yield write
    sys.modules.pop("workloads.softmax_mnist", None)
    vars(workloads).pop("softmax_mnist", None)


def test_the_page_is_right(write_page):
    write_page()
    assert registry.describe_workload("softmax_mnist")["parameters"] == 7850


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("class Training:", "class Training", r"\S+/softmax_mnist\.py line \d+ is not Python: expected ':'"),
        (
            "from workloads",
            "import torchh\nfrom workloads",
            r"workloads/softmax_mnist\.py can't be imported: ModuleN",
        ),
        (
            '"title"',
            '"titel"',
            r"workloads/softmax_mnist\.py: DESCRIPTION lacks title: docs/add-a-workload\.md says",
        ),
        ('"seed": 1,\n    "imports"', '"seed": 1,\n    "import"', "DESCRIPTION lacks imports"),
        ('"loss": "cross-entropy"', '"loss": None', "DESCRIPTION: loss: None is no text"),
        ('"samples": 512', '"samples": "512"', "DESCRIPTION: samples: '512' is no whole number from 1 on"),
        ('"parameters": 7850', '"parameters": 0', "DESCRIPTION: parameters: 0 is no whole number from 1 on"),
        ('"batch": 64', '"batch": 640', "DESCRIPTION: batch 640 is larger than its 512 samples"),
        ('("torch", "torchvision")', '("torch")', r"DESCRIPTION: imports: 'torch' is one name: write \('torch',\)"),
        ("class Training:", "class Trainer:", "no class Training"),
        ("def end_epoch", "def end_epochs", "class Training lacks end_epoch"),
        ("load = static", "loads = static", "class Training lacks load"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(write_page, old, new, says):
    write_page(old, new)
    with pytest.raises(UserError, match=says) as told:
        registry.describe_workload("softmax_mnist")
    assert "\n" not in str(told.value)


def test_a_data_set_that_is_none_is_named_before_a_command_that_could_not_make_it(write_page):
    write_page('"dataset": "mnist"', '"dataset": "minst"')
    with pytest.raises(UserError, match=r"softmax_mnist\.py: dataset: no data set 'minst' .* did you mean 'mnist'"):
        sites.image_records(PART, "softmax_mnist", ["host"], None, None)
