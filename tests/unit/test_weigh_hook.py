"""The hook that notes steps: in the Pythons that are here, without an error of its own in the job."""

import itertools
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tare.core.errors import IntegrityError
from tare.model.schema import parse
from tare.weigh.facts import PythonFacts
from tare.weigh.job import keep_facts
from tare.weigh.job import steps_in as job_steps

HOOK = Path(__file__).resolve().parents[2] / "tare/weigh/hook"
TORCH = """
_after = []
def register_optimizer_step_post_hook(hook): _after.append(hook)
class Optimizer:
    def step(self):
        for hook in _after: hook(self, (), {})
class SGD(Optimizer): pass
"""


CALLBACKS = "class CallbackList:\n    def on_train_batch_end(self, batch, logs=None):\n        return batch\n"


def pythons():
    """Interpreters of this machine, ours among them."""
    found = [sys.executable]
    for minor in range(6, 15):
        if path := shutil.which(f"python3.{minor}"):  # which may be a script that finds it
            said = subprocess.run(
                [path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
            )
            found += said.stdout.split() if said.returncode == 0 else []
    return list(dict.fromkeys(found))


def run(folder, text, *, python=sys.executable, options=(), facts=False, **variables):
    """A job in a folder; what it wrote by the part of the file's name before the process's number."""
    out = folder / "hook"
    out.mkdir(exist_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HOOK), "TARE_HOOK": str(out), **variables}
    environment |= {"TARE_HOOK_FACTS": "1"} if facts else {}
    (folder / "job.py").write_text(text)
    command = [python, *options, str(folder / "job.py")]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ended, {path.name.split(".")[0]: path for path in sorted(out.iterdir())}


def steps_in(path):
    """Pairs of instant and teller."""
    numbers = struct.unpack(f"{path.stat().st_size // 8}q", path.read_bytes())
    return [pair for pair in zip(numbers[::2], numbers[1::2], strict=True) if pair[0]]


def package(folder, name, text):
    """A package of the standard shape, whose parts are modules: torch.optim.optimizer."""
    *above, last = name.split(".")
    for number in range(1, len(above) + 1):
        parent = folder.joinpath(*above[:number])
        parent.mkdir(exist_ok=True)
        (parent / "__init__.py").touch()
    folder.joinpath(*above, f"{last}.py").write_text(text)


@pytest.mark.parametrize("python", pythons())
def test_steps_of_a_marked_job(tmp_path, python):
    job = "import tare, time\nfor _ in range(4):\n    time.sleep(0.01)\n    tare.mark()\nprint('done')\n"
    ended, wrote = run(tmp_path, job, python=python)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 0)
    steps = steps_in(wrote["steps"])
    assert len(steps) == 4 and all(later - sooner > 9e6 for (sooner, _), (later, _) in itertools.pairwise(steps))
    told = json.loads(wrote["hook"].read_text())
    assert told["tellers"] == ["tare.mark step"] and told["errors"] == []


@pytest.mark.parametrize("python", pythons())
def test_facts_of_a_job_are_whole(tmp_path, python):
    ended, wrote = run(tmp_path, "import json, zlib\n", python=python, facts=True)
    assert (ended.stderr, ended.returncode) == ("", 0)
    found = parse(PythonFacts, json.loads(wrote["facts"].read_text()), "facts")
    assert found.executable == python or Path(found.executable).exists()
    assert any("libc" in path for path in found.files) and found.compiled[0] > 0 and found.torch is None
    assert len(found.speculation_threads) == len(found.affinity_threads) and found.affinity_threads
    assert found.groups_first.keys() == found.groups.keys()


def test_optimizers_tell_steps_each_by_its_number(tmp_path):
    package(tmp_path, "torch.optim.optimizer", TORCH)
    job = "from torch.optim.optimizer import SGD\na, b = SGD(), SGD()\nfor _ in range(3):\n    a.step(); b.step()\n"
    ended, wrote = run(tmp_path, job)
    assert ended.stderr == ""
    assert [teller for _, teller in steps_in(wrote["steps"])] == [0, 1] * 3
    assert json.loads(wrote["hook"].read_text())["tellers"] == ["SGD 1", "SGD 2"]


def test_backward_passes_of_a_step_are_counted(tmp_path):
    package(tmp_path, "torch.optim.optimizer", TORCH)
    (tmp_path / "torch/autograd.py").write_text("def backward(*values, **more):\n    return len(values)\n")
    job = (
        "import torch.autograd\nfrom torch.optim.optimizer import SGD\na = SGD()\nfor _ in range(8):\n"
        "    assert [torch.autograd.backward(1, 2) for _ in range(4)] == [2] * 4\n    a.step()\n"
        "print(torch.autograd.backward.__name__)\n"
    )
    ended, _ = run(tmp_path, job)
    assert (ended.stderr, ended.stdout) == ("", "backward\n")
    found = job_steps(tmp_path / "hook")
    assert (len(found.ends_ns), found.passes) == (8, 32)


def test_an_old_torch_is_named(tmp_path):
    package(tmp_path, "torch.optim.optimizer", "class Optimizer: pass\n")
    ended, wrote = run(tmp_path, "import torch.optim.optimizer\n")
    assert ended.stderr == "" and "2.0" in json.loads(wrote["hook"].read_text())["lacking"][0]
    assert "steps" not in wrote


@pytest.mark.parametrize(
    ("module", "name", "method"),
    [
        ("xgboost.core", "Booster", "update"),
        ("keras.src.callbacks.callback_list", "CallbackList", "on_train_batch_end"),
    ],
)
def test_methods_that_end_a_step(tmp_path, module, name, method):
    package(tmp_path, module, f"class {name}:\n    def {method}(self, batch, logs=None):\n        return batch\n")
    job = f"from {module} import {name}\none = {name}()\nassert [one.{method}(k) for k in range(3)] == [0, 1, 2]\n"
    ended, wrote = run(tmp_path, job)
    assert ended.stderr == "" and len(steps_in(wrote["steps"])) == 3


def test_a_class_that_several_modules_have_tells_each_step_once(tmp_path):
    """As Keras 3 has CallbackList: where it is written, in `keras.src.callbacks` and in `keras.callbacks`."""
    package(tmp_path, "keras.src.callbacks.callback_list", CALLBACKS)
    imported = "from keras.src.callbacks.callback_list import CallbackList\n"
    (tmp_path / "keras/src/callbacks/__init__.py").write_text(imported)
    (tmp_path / "keras/callbacks.py").write_text(imported)
    job = "from keras.callbacks import CallbackList\nfor k in range(3):\n    CallbackList().on_train_batch_end(k)\n"
    ended, wrote = run(tmp_path, job)
    assert ended.stderr == "" and len(steps_in(wrote["steps"])) == 3


def test_a_hidden_sitecustomize_runs_and_is_named(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import builtins\nbuiltins.seen = 7\n")
    ended, wrote = run(tmp_path, "print(seen)\n", PYTHONPATH=f"{HOOK}:{other}")
    assert ended.stdout == "7\n"
    assert json.loads(wrote["hook"].read_text())["shadowed"] == str(other / "sitecustomize.py")


@pytest.mark.parametrize("text", ["", "def mark(name='step'): raise SystemExit('not ours')\n"])
def test_an_installed_tare_notes_marks_too(tmp_path, text):
    (tmp_path / "tare.py").write_text(f"here = True\n{text}")
    ended, wrote = run(tmp_path, "import tare\nassert tare.here\ntare.mark(); tare.mark('epoch')\n")
    assert (ended.stderr, ended.returncode) == ("", 0) and len(steps_in(wrote["steps"])) == 2
    assert json.loads(wrote["hook"].read_text())["tellers"] == ["tare.mark step", "tare.mark epoch"]


@pytest.mark.parametrize("python", pythons())
def test_the_start_of_a_job_waits_for_no_types(tmp_path, python):
    job = "import sys\nprint(*sys.modules)\n"
    with_hook, _ = run(tmp_path, job, python=python)
    without, _ = run(tmp_path, job, python=python, PYTHONPATH="")
    more = {*with_hook.stdout.split()} - {*without.stdout.split()}
    assert "sitecustomize" in more and not more & {"typing", "inspect", "subprocess", "hashlib", "ctypes"}


def test_a_launch_has_the_steps_of_the_process_that_noted_most(tmp_path):
    child = "[tare.mark() for _ in range(3)]; os._exit(0)\nos.wait()\n"
    run(tmp_path, f"import os, tare\ntare.mark('outer')\nif os.fork() == 0:\n    {child}")
    found = job_steps(tmp_path / "hook")
    assert (found.teller, len(found.ends_ns), found.others) == ("tare.mark step", 3, ("tare.mark outer",))
    assert found.ran and not found.errors and found.ends_ns == tuple(sorted(found.ends_ns))
    note = next((tmp_path / "hook").glob("hook.*.json"))
    note.write_text(note.read_text().replace("tellers", "sellers"))
    with pytest.raises(IntegrityError, match="sellers"):
        job_steps(tmp_path / "hook")


def test_facts_that_are_kept_are_of_the_process_that_steps(tmp_path):
    """A launcher that starts the trainer, as torchrun does, ends after it and takes no step."""
    trainer = "import tare, sys\nsys.argv = ['trainer']\ntare.mark()\n"
    (tmp_path / "trainer.py").write_text(trainer)
    calls = "for name in ('-c', 'trainer.py'):\n    subprocess.run([sys.executable, name, 'pass'])\n"
    ended, wrote = run(tmp_path, f"import subprocess, sys\n{calls}", facts=True)
    assert ended.stderr == "" and len(list((tmp_path / "hook").glob("facts.*.json"))) == 3
    keep_facts(tmp_path / "hook", tmp_path / "kept.json")
    stepped = wrote["steps"].name.split(".")[1]
    whole = json.loads((tmp_path / f"hook/facts.{stepped}.json").read_text())
    assert json.loads((tmp_path / "kept.json").read_text())["path"] == whole["path"]
    assert json.loads((tmp_path / "kept.json").read_text())["io"] == whole["io"]


def test_transports_are_those_of_the_logs_of_all_processes(tmp_path):
    run(tmp_path, "pass\n", facts=True)
    logged = "h:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via "
    (tmp_path / "hook/nccl.h.7").write_text(f"{logged}P2P/CUMEM\n{logged}SHM/direct/direct\n")
    (tmp_path / "hook/nccl.h.8").write_text(f"{logged}P2P/CUMEM\nh:8:9 [1] NCCL INFO [send] via NET/Socket/0\n")
    (tmp_path / "elsewhere").write_text(f"{logged}NET/IB/0\n")
    (tmp_path / "hook/nccl.h.9").symlink_to(tmp_path / "elsewhere")
    keep_facts(tmp_path / "hook", tmp_path / "kept.json")
    kept = parse(PythonFacts, json.loads((tmp_path / "kept.json").read_text()), "facts")
    assert kept.nccl == ("NET/Socket", "P2P/CUMEM", "SHM/direct")


def test_steps_stay_where_a_job_is_killed(tmp_path):
    job = "import os, signal, tare\ntare.mark(); tare.mark()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    ended, wrote = run(tmp_path, job)
    assert ended.returncode == -9 and len(steps_in(wrote["steps"])) == 2


def test_an_isolated_python_writes_nothing(tmp_path):
    ended, wrote = run(tmp_path, "print(1)\n", options=["-I"])
    assert ended.stdout == "1\n" and wrote == {}


def test_a_folder_that_can_not_be_written_costs_the_job_nothing(tmp_path):
    ended, wrote = run(tmp_path, "import tare\ntare.mark()\nprint(1)\n", TARE_HOOK=str(tmp_path / "gone"))
    assert (ended.stdout, ended.stderr, ended.returncode) == ("1\n", "", 0) and wrote == {}


def test_forked_workers_count_for_themselves(tmp_path):
    job = "import os, tare\ntare.mark()\nif os.fork() == 0:\n    tare.mark(); tare.mark(); os._exit(0)\nos.wait()\n"
    ended, _ = run(tmp_path, job)
    assert ended.stderr == ""
    counts = sorted(len(steps_in(path)) for path in (tmp_path / "hook").glob("steps.*"))
    assert counts == [1, 2]
    found = job_steps(tmp_path / "hook")
    assert (len(found.ends_ns), found.processes) == (2, 2)


def test_a_stream_that_is_watched_can_be_the_target_of_a_block(tmp_path):
    job = "import sys\nwith sys.stdout as out:\n    print('step 1', file=out)\nassert out.closed\n"
    ended, wrote = run(tmp_path, job, TARE_HOOK_PATTERN=r"step (\d+)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "step 1\n", "")
    assert len(steps_in(wrote["steps"])) == 1


def test_a_look_for_a_module_before_it_is_loaded_loses_no_step(tmp_path):
    """As transformers looks for each framework with `importlib.util.find_spec`."""
    package(tmp_path, "xgboost.core", "class Booster:\n    def update(self, batch):\n        return batch\n")
    job = (
        "from importlib.util import find_spec\nassert find_spec('xgboost.core') and find_spec('xgboost.core')\n"
        "from xgboost.core import Booster\nassert [Booster().update(k) for k in range(3)] == [0, 1, 2]\n"
    )
    ended, wrote = run(tmp_path, job)
    assert ended.stderr == "" and len(steps_in(wrote["steps"])) == 3


def test_lines_of_the_output_end_steps(tmp_path):
    job = (
        "import sys\nfor k in range(3):\n    print('step', k)\n    sys.stderr.write('loss 1\\rstep %d\\r' % k)\n"
        "print('end'); sys.stdout.flush(); assert sys.stdout.encoding"
    )
    ended, wrote = run(tmp_path, job, TARE_HOOK_PATTERN=r"step (\d+)")
    assert ended.returncode == 0 and ended.stdout.splitlines()[-1] == "end"
    assert len(steps_in(wrote["steps"])) == 6
