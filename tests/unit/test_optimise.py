"""Targets, grids, requests, elapsed times, choices: what is read, refused, excluded, tied and ranked."""

import contextlib
import importlib
import itertools
import json
import math
import random
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import builders
import numpy as np
import pytest
from campaign_builders import inside as inside_of
from campaign_builders import launch_record
from step_builders import CALL_S, FACTORS, STEP_S, TARGET, alike, drawn_work, truth
from test_benchmarks import load

from tare.cli import optimise
from tare.cli.main import main
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import read_json
from tare.experiments import alone, candidates, grid, targets
from tare.launch.run import Order
from tare.machine import facts as machine_facts
from tare.model import closure, tables
from tare.model.candidates import Times
from tare.model.journals.sealed import read_sealed
from tare.model.journals.units import costs_of
from tare.model.records.launches import LaunchRecord, OperatorTime
from tare.model.records.measured import CeilingsRecord, GridCell, StartCosts, StartsPart
from tare.model.registry import describe_workload, imports_of, whole_options
from tare.model.roles import CONTROL
from tare.model.schema import parse, read
from tare.model.studies.loading import load_checked
from tare.predict import answers, cases, choose, elapsed, models, requests, rows, sealed_steps
from tare.predict import predictor as prediction
from tare.predict import targets as described
from tare.worker import allocator, frameworks, operators, plain, repeated
from tare.worker.families import CONVOLUTION, DROPOUT, ELEMENT_WISE, FAMILIES, OPTIMIZER, PRODUCT

TORCH = imports_of("mnist_cnn")
ADDED = {"host": 0.0, "docker": 0.0, "apptainer": 0.0}
THREADS = (1, 2)


def target_with(threads):
    return TARGET.replace(
        threads=threads,
        products={
            name: tuple(rate.replace(per_s=rate.per_s * threads / 2) for rate in rates)
            for name, rates in TARGET.products.items()
        },
    )


def costs(env, start_s, n=5, imports=TORCH):
    jitter = [0.01 * number for number in range(n)]
    return StartCosts(
        env=env,
        stack="torch-2.13",
        imports=imports,
        start_s=tuple(start_s + one for one in jitter),
        imports_s=(1.0,) * n,
        exit_s=(0.0,) * n,
        source="tare target",
    )


def record(**changed):
    given = {
        **{"machine": "m", "processor": "P", "device": "cpu", "stack": "torch-2.13", "cpus": 2},
        **{"memory_bytes": 8 << 30, "targets": tuple(map(target_with, THREADS)), "at": "now", "seconds": 1.0},
        "costs": (costs("host", 0.05), costs("docker", 0.5), costs("apptainer", 0.06)),
    }
    return described.TargetRecord(**{**given, **changed})


def cell(workload="mnist_cnn", env="host", threads=2, batch=64, seconds=0.01, work=None, **changed):
    results = {
        **{"plain_step_s": [seconds * 0.9, seconds, seconds * 3], "profiled_step_s": [], "profiled_steps": 0},
        **{"profiler_reason": plain.NOT_ASKED, "samples": [], "mapped": []},
        "counts": {"operators": None, "families": None, "reason": plain.NOT_ASKED},
        "memory_allocated_peak_bytes": None,
    }
    if work is not None:
        own = [row.to_json() for row in work.alike]
        results["counts"] = {"operators": {}, "families": {}, "alike": own, "reason": None}
    options = changed.pop("options", {})
    given = {
        **{"status": "ok", "reason": None, "inside": inside_of(env, "profile", results=results)},
        **{"machine": "m", "processor": "P", "stack": "torch-2.13", "env": env, "device": "cpu"},
        **{"workload": workload, "title": describe_workload(workload, options)["title"], "batch": batch},
        **{"options": options, "threads": threads, "programs_sha256": "0"},
    }
    return parse(GridCell, {**given, **changed}, "cell")


NETWORKS = (
    *(("mnist_cnn", {}), ("sentiment_rnn", {}), ("transformer_lm", {}), ("resnet18", {}), ("alexnet", {})),
    *(("further_networks", {"network": number}) for number in range(1, 9)),
)


def grid_cells(added=None, noise=0.0, batches=(32, 64, 128), seed=1):
    """Cells of a machine whose truth is known; steps take longer by `added` seconds in environments."""
    added, generator, found = added or ADDED, np.random.default_rng(seed), []
    for number, (workload, options) in enumerate(NETWORKS):
        for batch in batches:
            work = drawn_work(np.random.default_rng((seed, number)), batch)
            for threads in THREADS:
                for env, more in added.items():
                    case = cases.Case(
                        workload="w", environment=env, stack="s", batch=batch, work=work,
                        target=target_with(threads), environment_step_s=0.0,
                    )  # fmt: skip
                    seconds = (truth(case) + more) * math.exp(generator.normal(0, noise))
                    own = work if env == "host" and threads == 2 else None
                    found.append(cell(workload, env, threads, batch, seconds, own, options=options))
    return found


MODELS = {name: models.MODELS[name] for name in ("linear", "roofline")}


def chosen(given, target=None, cells=None, **more):
    target = target or record()
    trained = rows.trained_on(cells or grid_cells(**more), target)
    wanted = requests.Request(**{"workload": "mnist_cnn", "batches": (64,), **given})

    def work_of(batch):
        return trained.work[rows.job_of(wanted.workload, wanted.options, batch)]

    return choose.choose(wanted, target, trained, work_of, MODELS)


def written(tmp_path, text):
    path = tmp_path / "request"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


# --- requests


def test_a_request_of_our_own_is_read_and_what_is_not_known_is_reported(tmp_path):
    found, notes = requests.read_request(
        written(
            tmp_path,
            "workload: resnet18\noptions: {image_px: 64}\nbatch: [8, 16]\nstep: 3\nepochs: 2\nsteps: 90\n"
            "environments: docker\nsettings: {layout: channels-last, onednn: off, colour: red, amp: [bf17]}\n"
            "compile: inductor\nmemory_gib: 2\nminutes: 3\nroot: false\nloss_within: 0.002\n",
        )
    )
    assert (found.workload, found.batches, found.steps, found.epochs) == ("resnet18", (8, 16), 90, None)
    assert found.environments == ("docker",) and found.memory_bytes == 2 << 30 and found.limit_s == 180
    assert found.settings == {"layout": ("channels-last",), "onednn": ("off",), "compile": ("inductor",)}
    assert not found.root and found.loss_within == 0.002
    assert [found.steps_of(batch) for batch in found.batches] == [90, 45]
    assert [note.partition(" ")[0] for note in notes] == ["step", "epochs", "settings.colour", "settings.amp:"]
    assert notes[0].startswith("step is not known and was passed over: did you mean 'steps'?")


def test_a_command_is_words_or_a_text_that_is_split_as_a_shell_does(tmp_path):
    text = "workload: mnist_cnn\ncommand: python 'my train.py' -b 8\nqueue: long\n"
    found, notes = requests.read_request(written(tmp_path, text))
    assert found.command == ("python", "my train.py", "-b", "8") and (found.queue, notes) == ("long", [])
    found, _ = requests.read_request(written(tmp_path, "workload: mnist_cnn\ncommand: [a b, c]\n"))
    assert found.command == ("a b", "c")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "must hold keys and values, not list"),
        ("batch: 8", "names no workload: name one of workloads/ with --workload"),
        ("workload: resnet19", "workload: no 'resnet19' in workloads/: did you mean 'resnet18'?"),
        ("{workload: mnist_cnn, batch: many}", "batches: 0: 'many' must be of type integer"),
        ("{workload: mnist_cnn, batch: 0}", "batches: 0: 0 must be at least 1"),
        ("{workload: mnist_cnn, options: {image_px: 8}}", "image_px: mnist_cnn has no options"),
        ("{workload: mnist_cnn, memory_gib: much}", "memory_gib: 'much' must be of type number"),
        ("{workload: mnist_cnn, settings: [amp]}", "settings: ['amp'] must be of type object"),
        ("a: [", "is not YAML"),
        ('{workload: mnist_cnn, command: "a \'b"}', 'command: "a \'b": no closing quotation'),
        ("{workload: mnist_cnn, queue: a b}", "queue: 'a b'"),
        ("{workload: mnist_cnn, memory_gib: 1" + "0" * 400 + "}", "is too large"),
        ("{workload: resnet18, options: {image_px: wide}}", "image_px: 'wide' must be of type number"),
        ("{optimisation: {app_type-ai_training: {3: {}}}}", "names no workload"),
        ("{workload: resnet18, options: {1: 2}}", "'1' is no name of an option"),
        ("{workload: mnist_cnn, settings: [" + "amp, " * 2000 + "]}", "… must be of type object"),
    ],
)
def test_a_request_that_cannot_be_read_is_one_line(tmp_path, text, says):
    with pytest.raises(UserError) as told:
        requests.read_request(written(tmp_path, text))
    assert says in str(told.value) and "\n" not in str(told.value)


def modak(**changed):
    """A request in MODAK's form."""
    optimisation = {
        **{"enable_opt_build": True, "app_type": "ai_training"},
        "opt_build": {"cpu_type": "x86", "acc_type": "nvidia"},
        "app_type-ai_training": {
            "config": {"ai_framework": "tensorflow"},
            "data": {},
            "ai_framework-tensorflow": {"version": "2.1", "xla": True},
        },
        **changed,
    }
    job_options = {"job_name": "a", "wall_time_limit": "12:00:00 ", "node_count": 1, "request_gpus": 1}
    application = {"app_tag": "resnet", "executable": "python", "arguments": "-batch_size=96 --train_epochs=3"}
    return {"job": {"job_options": job_options, "application": application, "optimisation": optimisation}}


def test_modaks_form_is_read_as_far_as_it_says_something_of_the_job(tmp_path):
    found, notes = requests.read_request(written(tmp_path, modak()), "mnist_cnn_equal")
    assert (found.workload, found.batches, found.epochs) == ("mnist_cnn_equal", (96,), 3)
    assert found.stacks == ("tensorflow-2.1", "tensorflow-2.1-official", "tensorflow-2.1-onednn")
    assert found.settings == {"compile": ("xla",)} and found.limit_s == 12 * 3600
    assert found.command == ("python", "-batch_size=96", "--train_epochs=3") and found.name == "a"
    assert any("acc_type is 'nvidia'" in note for note in notes)
    with pytest.raises(UserError, match="names no workload"):
        requests.read_request(written(tmp_path, modak()))


def test_what_contradicts_itself_or_is_unknown_in_modaks_form_is_reported(tmp_path):
    odd = modak(
        enable_opt_build=False,
        enable_autotuning=True,
        colour="red",
        **{"app_type-hpc": {"config": {}}},
    )
    training = odd["job"]["optimisation"]["app_type-ai_training"]
    training["ai_framework-pytorch"] = {"version": "1.4", "glow": True}
    training["config"]["layer"] = 3
    odd["job"]["job_options"] |= {"node_count": 4, "memory_limit": "2 GB", "wall_time_limit": "soon"}
    found, notes = requests.read_request(written(tmp_path, odd), "mnist_cnn_equal")
    assert found.memory_bytes == 2 << 30 and found.limit_s is None
    told = "\n".join(notes)
    for words in (
        "optimisation.colour is not known",
        "optimisation.app_type-ai_training.config.layer is not known and was passed over: did you mean 'layers'?",
        "optimisation.opt_build contradicts enable_opt_build: false",
        "optimisation.enable_autotuning has no section autotuning",
        "optimisation.app_type-hpc contradicts app_type ai_training",
        "ai_framework-pytorch contradicts config.ai_framework tensorflow",
        "wall_time_limit: 'soon' is no time",
        "node_count is 4",
    ):
        assert words in told


@pytest.mark.parametrize(
    ("arguments", "read", "command"),
    [
        (None, {}, ()),
        ("", {}, ()),
        (["--name", "a b", "--batch-size", 8], {"batches": (8,)}, ("--name", "a b", "--batch-size", "8")),
        ("--warmup-steps 500 --max_steps 90 --eval-batch-size=4", {"steps": 90}, None),
        ("--log-steps 10 --num-epochs 3", {"epochs": 3}, None),
    ],
)
def test_arguments_of_modaks_form_are_words_and_only_the_jobs_own_options_count(tmp_path, arguments, read, command):
    given = modak()
    given["job"]["application"]["arguments"] = arguments
    found, _ = requests.read_request(written(tmp_path, given), "mnist_cnn_equal")
    default = {"batches": (describe_workload("mnist_cnn_equal")["batch"],), "steps": None, "epochs": None}
    assert {name: getattr(found, name) for name in default} == {**default, **read}
    assert command is None or found.command == ("python", *command)


def test_modaks_runtime_cores_and_memory_are_read_and_the_rest_is_named(tmp_path):
    given = modak(enable_autotuning=True, autotuning={"tuner": "cresta"})
    given["job"]["application"] |= {
        "container_runtime": "Singularity",
        "mpi_ranks": 1,
        "pre-execution": "module load",
    }
    given["job"]["application"] |= {"post-execution": ""}
    given["job"]["job_options"] |= {"core_count": 8, "minimum_memory_per_processor": "2 GB", "node_exclusive": True}
    given["job"]["target"] = {"name": "egi", "job_scheduler_type": "torque"}
    found, notes = requests.read_request(written(tmp_path, given), "mnist_cnn_equal")
    assert found.environments == ("apptainer",) and found.threads == (8,) and found.memory_bytes == 16 << 30
    names = "job_options.request_gpus, job_options.node_exclusive, application.pre-execution, target.name, "
    rest = "target.job_scheduler_type, optimisation.autotuning: passed over, because no prediction or job script"
    assert any(note.startswith(names + rest) for note in notes)
    assert not any("mpi_ranks" in note or "post-execution" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "application", "threads", "says"),
    [
        (
            {"core_count": 8, "core_count_per_process": 4},
            {},
            (4,),
            "core_count 8 contradicts job_options.core_count_per",
        ),
        ({"core_count_per_process": 4}, {"threads": 2}, (2,), "per_process 4 contradicts application.threads 2"),
        ({"core_count": 8, "process_count_per_node": 2}, {}, None, "core_count is of several processes together"),
        (
            {"core_count": 8, "node_count": 2},
            {},
            None,
            "node_count is 2: what is predicted is one process on one node",
        ),
        (
            {"core_count_per_process": 4},
            {"mpi_ranks": 2},
            (4,),
            "application.mpi_ranks is 2: what is predicted is one",
        ),
        ({"core_count": "many"}, {}, None, "job_options.core_count: 'many' is no number of cores"),
        ({"minimum_memory_per_processor": "2 GB"}, {}, None, "passed over: the number of cores is not given"),
        (
            {"core_count": 2, "minimum_memory_per_processor": "2 GB", "memory_limit": "3 GB"},
            *({}, (2,), "minimum_memory_per_processor was passed over: memory_limit counts"),
        ),
        (
            {},
            {"container_runtime": "dokcer"},
            None,
            "container_runtime: 'dokcer' is not known and was passed over: did",
        ),
    ],
)
def test_what_modaks_form_says_of_cores_is_used_where_it_is_clear(tmp_path, options, application, threads, says):
    given = modak()
    given["job"]["job_options"] |= options
    given["job"]["application"] |= application
    found, notes = requests.read_request(written(tmp_path, given), "mnist_cnn_equal")
    assert found.threads == threads and any(says in note for note in notes)
    assert found.memory_bytes == (3 << 30 if "memory_limit" in options else None) and found.environments is None


def test_digits_that_no_number_has_are_passed_over(tmp_path):
    given = modak()
    given["job"]["application"]["arguments"] = f"-batch_size={'9' * 5000}"
    given["job"]["job_options"] |= {"wall_time_limit": f"{'9' * 5000}:00:00", "memory_limit": f"{'9' * 5000} GB"}
    found, notes = requests.read_request(written(tmp_path, given), "mnist_cnn_equal")
    assert (found.limit_s, found.memory_bytes) == (None, None) and found.batches[0] < 10**6
    assert {"is no time and was passed over", "is no size and was passed over"} <= {note[-30:] for note in notes}


def test_a_size_of_memory_that_is_no_number_is_reported(tmp_path):
    given = modak()
    given["job"]["job_options"]["memory_limit"] = "1.2.3 GB"
    found, notes = requests.read_request(written(tmp_path, given), "mnist_cnn_equal")
    assert found.memory_bytes is None and any("'1.2.3 GB' is no size" in note for note in notes)


@pytest.mark.parametrize(
    ("training", "says"),
    [
        ({"config": {"ai_framework": ["tensorflow"]}}, "ai_framework: no framework"),
        ({"config": {"ai_framework": "caffe"}}, "ai_framework: no framework 'caffe'"),
        ({"ai_framework-pytorch": {"version": "1.1\n"}}, r"no stack has torch 1.1\n: did"),
        ({"ai_framework-pytorch": {"version": "1.1"}}, "no stack has torch 1.1: did you mean 'torch-1.4'?"),
        ({"config": 3}, "optimisation.app_type-ai_training.config: 3 must be of type object"),
    ],
)
def test_a_framework_that_no_stack_has_is_refused_in_one_line(tmp_path, training, says):
    with pytest.raises(UserError) as told:
        requests.read_request(written(tmp_path, modak(**{"app_type-ai_training": training})), "mnist_cnn_equal")
    assert says in str(told.value) and "\n" not in str(told.value)
    with pytest.raises(UserError, match="app_type is 'hpc': steps are predicted of ai_training alone"):
        requests.read_request(written(tmp_path, modak(app_type="hpc")), "mnist_cnn_equal")


# --- targets


def ceilings_record(threads=1, **changed):
    results = {**builders.ceilings_results(), "threads": threads, **changed}
    base = {
        **{"study": "s", "env": "host", "status": "ok", "reason": None, "device": "cpu"},
        "machine": {"name": "m", "cpu_model": "P"},
        "inside": inside_of("host", "ceilings", results=results),
    }
    return parse(CeilingsRecord, base, "ceilings")


def operator(family, seconds, calls=1, **counts):
    return OperatorTime(
        name="one", sizes="2x3", way="forwards", alike=(alike(family, calls, **counts),), seconds=seconds,
        all_seconds=(seconds,),
    )  # fmt: skip


def test_a_target_has_its_ceilings_by_threads_and_is_read_where_its_processor_is(tmp_path):
    made = described.composed(
        {2: ceilings_record(2), 1: ceilings_record(1)}, [costs("host", 0.1)], stack="torch-2.13", cpus=2,
        memory_bytes=None, at="now", seconds=60.0, unavailable={"docker": "no daemon"},
    )  # fmt: skip
    assert made.threads == (1, 2) and made.with_threads(2).threads == 2
    path = tmp_path / "p.json"
    with pytest.raises(UserError, match=r"there is no target .+: measure it on this"):
        described.read_target(path, "P")
    made.write(path)
    assert described.read_target(path, "P") == made
    with pytest.raises(UserError) as told:
        described.read_target(path, "Q")
    assert "was measured on P, and this machine has Q: measure it on" in str(told.value)
    with pytest.raises(UserError, match=r"this machine has Q.*; name another file with --out"):
        described.refuse_other(path, "Q", "torch-2.13")
    described.refuse_other(path, "P", "torch-2.13")
    with pytest.raises(
        UserError, match=r"with the stack torch-2.13, and the study has torch-1.4: name another file"
    ):
        described.refuse_other(path, "P", "torch-1.4")
    path.write_text("{}")
    with pytest.raises(IntegrityError, match="measure it again"):
        described.read_target(path, "P")
    with pytest.raises(UnavailableError, match="measured with 1, 2 threads, not with 3"):
        made.with_threads(3)
    with pytest.raises(UnavailableError, match="docker is not available there: no daemon"):
        made.costs_in("docker", TORCH)
    with pytest.raises(UnavailableError, match="starts of host that import jax were not measured"):
        made.costs_in("host", ("jax",))


def test_operators_that_were_timed_alone_say_what_those_of_a_step_take():
    alone = [
        operator(CONVOLUTION, 0.5, flops=10**9),
        operator(ELEMENT_WISE, 0.2, calls=2, moved=40_000),
    ]
    found = cases.target_of(ceilings_record(operators=[row.to_json() for row in alone]))
    case = cases.Case(
        workload="w", environment="host", stack="s", batch=1, environment_step_s=0.0, target=found,
        work=choose.Work(alike=(alike(CONVOLUTION, 4, flops=10**9), alike(ELEMENT_WISE, 10, moved=40_000))),
    )  # fmt: skip
    assert case.roofs == pytest.approx({CONVOLUTION: 2.0, ELEMENT_WISE: 1.0}, rel=0.05)
    assert case.replace(precision="bfloat16").roofs[CONVOLUTION] == pytest.approx(4e9 / 1.4e11)


def test_what_starts_cost_is_read_from_launches():
    generator = random.Random(1)
    launches = [parse(LaunchRecord, launch_record("docker", generator), "launch") for _ in range(3)]
    found = costs_of(launches, "docker", "s", TORCH, "a campaign")
    assert len(found.start_s) == len(found.exit_s) == 3 and min(found.imports_s) > 0
    total = [(one.end_ns - one.spawn_ns) / 1e9 for one in launches]
    assert all(
        a + b + c < whole
        for a, b, c, whole in zip(found.start_s, found.imports_s, found.exit_s, total, strict=True)
    )


@pytest.mark.parametrize("fails_at", [None, 0, 3, targets.STARTS])
def test_starts_are_those_after_the_first_and_one_that_fails_ends_them(monkeypatch, fails_at):
    generator, made = random.Random(1), []

    def launched(site, spec, conditions):
        record = parse(LaunchRecord, launch_record("docker", generator), "launch")
        failed = {"status": "failed", "reason": "it broke", "inside": None}
        made.append(record.replace(**failed) if len(made) == fails_at else record)
        assert (site, spec.mode, spec.workload) == (place, "start", "mnist_cnn")
        assert conditions.page_cache == "as_found"
        return made[-1]

    place = SimpleNamespace(environment=SimpleNamespace(name="docker"))
    monkeypatch.setattr(targets, "launch", launched)
    study = load_checked("config/smoke.yaml").replace(device="cpu")
    found = targets._starts(study, place, "mnist_cnn")
    if fails_at is None:
        assert len(made) == targets.STARTS + 1 and found.reason is None
        assert found.costs == costs_of(made[1:], "docker", study.stack, TORCH, targets.MEASURED)
    else:
        assert (len(made), found) == (fails_at + 1, StartsPart(costs=None, reason="it broke"))


def test_a_target_that_was_interrupted_goes_on_and_parts_of_another_study_are_not_taken(tmp_path, monkeypatch):
    made, breaks = [], [True]

    def ceilings(source, images, out, *, operators):
        made.append(json.loads(source)["conditions"]["threads"])
        ceilings_record(made[-1]).write(out)

    def started(study, site, workload):
        made.append(workload)
        if len(made) == 4 and breaks:
            breaks.clear()
            raise KeyboardInterrupt
        return StartsPart(costs=costs(site, 0.1, imports=imports_of(workload)), reason=None)

    class Sites:
        def __enter__(self):
            return {"host": "host", "docker": "docker"}, {"vm": "no kvm"}, {}

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(targets.measure, "ceilings", ceilings)
    monkeypatch.setattr(targets, "_starts", started)
    monkeypatch.setattr(targets, "sites", lambda *_: Sites())
    monkeypatch.setattr(targets, "measuring", lambda *_: Sites())
    arguments = ("config/smoke.yaml", None, ["docker", "vm"], tmp_path)
    with pytest.raises(KeyboardInterrupt):
        targets.measure_parts(*arguments)
    before = list(made)
    found = targets.measure_parts(*arguments)
    trained = list(targets._imports(load_checked("config/smoke.yaml")).values())
    assert made[: len(before)] == before and set(made[len(before) :]) <= set(trained)
    assert set(found.ceilings) == {1, 2} and found.unavailable == {"vm": "no kvm"}
    assert {imports_of(name) for name, _, _ in grid.JOBS} <= {one.imports for one in found.costs}
    assert {(one.env, one.imports) for one in found.costs} == {
        (env, imports_of(workload)) for env in ("host", "docker") for workload in trained
    }
    known = [one for one in found.costs if one.env == "docker"]
    made.clear()
    again = targets.measure_parts("config/smoke.yaml", None, ["docker"], tmp_path, known=known)
    assert 1 in made and made.count("mnist_cnn") == 1  # of the host; docker's came from a campaign
    assert {one.env for one in again.costs} == {"host", "docker"}


# --- the grid


def test_the_grid_begins_with_every_job_everywhere_and_has_about_three_hundred_cells():
    groups = grid.groups(["host", "docker", "apptainer", "charliecloud"], [1, 2])
    found = [one for group in groups for one in group]
    assert 200 <= len(found) <= 320 and len({one.name for one in found}) == len(found)
    assert len({(group[0].workload, str(group[0].options)) for group in groups[: len(grid.JOBS)]}) == len(grid.JOBS)
    for number, (host, *others, again) in enumerate(groups):
        assert (host.env, host.threads, host.counts, host.again) == ("host", 2, True, 0)
        assert again == replace(host, counts=False, again=1)
        assert {one.job for one in others} == {host.job} and not any(one.counts for one in others)
        everywhere = {("docker", 2, 0), ("apptainer", 2, 0), ("charliecloud", 2, 0), ("host", 2, 2)}
        places = {(one.env, one.threads, one.again) for one in others}
        assert places == {("host", 1, 0)} | (everywhere if number < len(grid.JOBS) else set())
    assert len({group[0].workload for group in groups[len(grid.JOBS) :]}) >= 8
    networks = {describe_workload(one.workload, one.options)["title"] for one in found}
    assert len(networks) >= 11  # intervals at 91% have ends from eleven on, one of them left out
    for one in found:
        least = describe_workload(one.workload, one.options).get("least_batch", 1)
        assert whole_options(one.workload, one.options) is not None and one.batch >= least


def test_settings_are_timed_in_the_group_of_the_hosts_cell_of_the_same_job():
    settings = [("layout", "channels-last"), ("allocator", "huge")]
    more = grid.groups(["host", "docker"], [1, 2], settings)
    assert [(one.env, one.threads, one.setting, one.again) for one in more[0]] == [
        *(("host", 2, None, 0), ("host", 1, None, 0), ("docker", 2, None, 0), ("host", 2, settings[0], 0)),
        *(("host", 2, settings[1], 0), ("host", 2, None, 2), ("host", 2, None, 1)),
    ]
    assert not any(one.setting for group in more[len(grid.JOBS) :] for one in group)
    study = load_checked("config/smoke.yaml").replace(device="cpu")
    found = [grid._conditions(one, study) for one in more[0][3:5]]
    assert [(one.allocator, one.settings.get("layout")) for one in found] == [
        *(("default", "channels-last"), ("huge", None)),
    ]


def test_a_cell_that_is_there_is_not_measured_again_unless_it_failed_or_its_programs_changed(tmp_path):
    study = load_checked("config/smoke.yaml").replace(device="cpu")
    own = grid.Grid(study=study, folder=tmp_path, sites={}, processor="P")
    one = grid.Cell(workload="mnist_cnn", batch=64, threads=1, env="host")
    path = tmp_path / f"{one.name}.json"
    assert not own.is_there(one, "0")
    cell().write(path)
    assert own.is_there(one, "0") and not own.is_there(one, "1")
    cell(status="failed", reason="no memory").write(path)
    assert not own.is_there(one, "0")
    cell(status="failed", reason="Unable: the model has no filter of four dimensions").write(path)
    assert own.is_there(one, "0"), "no later launch changes that"
    path.write_text("{")
    assert not own.is_there(one, "0")


def measured_grid(monkeypatch, tmp_path, names, voided=None, fails=(), held=(), **given):
    """A grid whose launches take 20 s each. `fails`: names of cells that fail. `held`: environments that can't be
    held. Returns names of cells launched alone, and of each round those in slices with their steps.
    """
    clock, alone, rounds = SimpleNamespace(now=0.0), [], []

    def launched(one, in_slices=False):
        clock.now += 20.0
        found = cell(one.workload, one.env, one.threads, one.batch, options=one.options)
        result = LaunchRecord(**{name: getattr(found, name) for name in LaunchRecord.model_fields})
        broken = one.name in fails or (in_slices and f"{one.name} in slices" in fails)
        return result.replace(status="failed", reason="it broke", inside=None) if broken else result

    def order(self, one, steps=0):
        return Order(site=one, program=steps, conditions=None)

    def together(orders, way):
        assert len({one.pad_bytes for one in orders.values()}) == len(orders)
        rounds.append({name: one.program for name, one in orders.items()})
        records = {name: launched(one.site, in_slices=True) for name, one in orders.items()}
        assert sorted(next(way.orders)) == list(range(len(orders))) and set(way.pace.phases) == set(orders)
        return SimpleNamespace(voided=voided, records={} if voided else records)

    class Sites:
        def __enter__(self):
            return {name: name for name in names}, {"vm": "no kvm"}, {}

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(grid, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(grid, "launch", lambda one, *_: alone.append(one.name) or launched(one))
    monkeypatch.setattr(grid, "run_launches", together)
    monkeypatch.setattr(grid.Grid, "_order", order)
    monkeypatch.setattr(grid.sliced, "not_held", lambda site: "it is far" if site in held else None)
    monkeypatch.setattr(grid, "sites", lambda *_: Sites())
    monkeypatch.setattr(grid, "measuring", lambda *_: Sites())
    monkeypatch.setattr(grid, "require", lambda paths: None)
    monkeypatch.setattr(grid, "programs_of", lambda cell, stack: "0")
    grid.measure_grid("config/smoke.yaml", None, names, out=tmp_path, **given)
    return alone, rounds


TRANSFORMER = "transformer_lm.b12.t2"


def records_in(folder):
    return {path.stem: read(GridCell, path) for path in folder.glob("*.json")}


def test_cells_of_a_group_share_the_machine_in_slices_for_about_the_same_time(tmp_path, monkeypatch):
    given = {"only": ["transformer_lm"], "settings": [("layout", "channels-last")]}
    alone, rounds = measured_grid(monkeypatch, tmp_path, ["host", "docker"], **given)
    assert alone == ["transformer_lm.b12.t2.host", "transformer_lm.b4.t2.host", "transformer_lm.b48.t2.host"]
    names = ["transformer_lm.b12.t1.host", f"{TRANSFORMER}.docker"]
    names += [f"{TRANSFORMER}.host.{one}" for one in ("again", "control", "layout-channels-last")]
    assert sorted(rounds[0]) == names and [len(one) for one in rounds] == [5, 2, 2]
    one_thread = rounds[0].pop(names[0])
    assert {2 * one_thread} == set(rounds[0].values()) and one_thread > 1  # with one thread a step takes longer
    found = records_in(tmp_path)
    mean = pytest.approx(0.01 * 4.9 / 3)
    assert all(found[name].host_step_s == (mean, mean) for name in names) and found[alone[0]].host_step_s == ()
    assert found[names[0]].step_s == mean and found[alone[0]].step_s == 0.01
    assert sorted(one.again for one in found.values()) == [0] * 8 + [1, 1, 1, 2]
    # another environment shares the machine with the host, and what is there stays
    alone, rounds = measured_grid(monkeypatch, tmp_path, ["host", "docker", "podman"], **given)
    assert alone == []
    assert [sorted(one) for one in rounds] == [
        [f"{TRANSFORMER}.host.again", f"{TRANSFORMER}.host.control", f"{TRANSFORMER}.podman"]
    ]
    assert measured_grid(monkeypatch, tmp_path, ["host", "docker", "podman"], **given) == ([], [])


def test_cells_that_cannot_share_the_machine_are_launched_one_after_the_other(tmp_path, monkeypatch, capsys):
    alone, rounds = measured_grid(monkeypatch, tmp_path, ["host"], only=["transformer_lm"], voided="it moved")
    assert len(rounds) == 3 * grid.ATTEMPTS and len(alone) == 10
    assert "transformer_lm.b12: cells are measured one after the other: it moved" in capsys.readouterr().out
    assert {one.host_step_s for one in records_in(tmp_path).values()} == {()}


def test_an_environment_that_cannot_be_held_is_launched_alone_and_the_others_in_slices(
    tmp_path, monkeypatch, capsys
):
    names = ["host", "docker", "pod"]
    alone, rounds = measured_grid(monkeypatch, tmp_path, names, only=["transformer_lm"], held=("pod",))
    assert alone[:2] == [f"{TRANSFORMER}.host", f"{TRANSFORMER}.pod"] and len(rounds[0]) == 4
    assert "cells are measured one after the other: pod: it is far" in capsys.readouterr().out
    found = records_in(tmp_path)
    assert found[f"{TRANSFORMER}.pod"].host_step_s == () and found[f"{TRANSFORMER}.docker"].host_step_s
    # as many as fit in the free memory, the host's first
    for path in tmp_path.glob("*.json"):
        path.unlink()
    needs = found[f"{TRANSFORMER}.host"].seen_inside().memory.peak_rss_bytes
    monkeypatch.setattr(grid, "available_memory_bytes", lambda: 3.1 * needs / grid.sliced.MEMORY_SHARE)
    _, rounds = measured_grid(monkeypatch, tmp_path, ["host", "docker"], only=["transformer_lm"])
    assert [len(one) for one in rounds] == [3, 2, 2] and {name.rpartition(".")[2] for name in rounds[0]} >= {
        "again", "control",
    }  # fmt: skip


def test_a_cell_that_fails_in_slices_is_tried_alone_and_a_known_failure_once_in_each_run(tmp_path, monkeypatch):
    given = {"only": ["sentiment_rnn"], "settings": [("layout", "channels-last")]}
    name = "sentiment_rnn.b64.t2.host.layout-channels-last"
    assert measured_grid(monkeypatch, tmp_path, ["host"], **given, fails=(name,))[0][1] == name
    assert not records_in(tmp_path)[name].ok
    assert measured_grid(monkeypatch, tmp_path, ["host"], **given, fails=(name,)) == ([name], [])
    assert measured_grid(monkeypatch, tmp_path, ["host"], **given) == ([name], [])  # it works now
    (tmp_path / f"{name}.json").unlink()
    alone, rounds = measured_grid(monkeypatch, tmp_path, ["host"], **given, fails=(f"{name} in slices",))
    assert alone == [name] and len(rounds) == 1 and records_in(tmp_path)[name].ok
    (tmp_path / f"{name}.json").unlink()
    hosts = tuple(f"sentiment_rnn.b64.t2.host.{one} in slices" for one in ("again", "control"))
    alone, rounds = measured_grid(monkeypatch, tmp_path, ["host"], **given, fails=hosts)
    assert alone == [name] and len(rounds) == grid.ATTEMPTS and records_in(tmp_path)[name].host_step_s == ()


def test_a_job_is_timed_by_one_launch_on_the_host(monkeypatch):
    launched, broken = [], []

    class Sites:
        def __enter__(self):
            return {"host": SimpleNamespace(data=None)}, {}, {}

        def __exit__(self, *_):
            return None

    def launch(site, program, conditions):
        launched.append((program.batch, program.counts, program.steady_s, conditions.threads))
        found = cell("resnet18", seconds=0.02)
        result = LaunchRecord(**{name: getattr(found, name) for name in LaunchRecord.model_fields})
        return result.replace(status="failed", reason="it broke", inside=None) if broken else result

    monkeypatch.setattr(grid, "sites", lambda *_: Sites())
    monkeypatch.setattr(grid, "launch", launch)
    monkeypatch.setattr(grid, "alone_on_this_machine", contextlib.nullcontext)
    asked = ("config/smoke.yaml", None, "resnet18", {"image_px": 64}, 12, 2)
    assert grid.time_job(*asked) == 0.02 and launched == [(12, False, grid.STEADY_S, 2)]
    broken.append(True)
    with pytest.raises(UnavailableError, match="a step of resnet18 with batch 12 could not be timed: it broke"):
        grid.time_job(*asked)


def test_a_grid_ends_when_its_minutes_are_over_and_says_what_is_left(tmp_path, monkeypatch, capsys):
    alone, rounds = measured_grid(monkeypatch, tmp_path, ["host", "docker", "vm"], minutes=0.1)
    assert len(alone) == len(rounds) == 1 and not list(tmp_path.glob("*.vm.json"))  # one group begins in any case
    assert "cells are left for the next run: 0.1 minutes are over" in capsys.readouterr().out
    with pytest.raises(UserError, match="the grid has none of resnet19: it has alexnet,"):
        measured_grid(monkeypatch, tmp_path, ["host"], only=["resnet19"])


def test_cells_depend_on_what_runs_in_them_alone():
    own = closure.measurement("grid", "mnist_cnn", ["host"])
    assert {"tare/worker/plain.py", "tare/experiments/grid.py", "workloads/mnist_cnn.py"} <= set(own)
    assert "tare/worker/plain.py" not in closure.measurement("rounds", "mnist_cnn", ["host"])


@pytest.mark.parametrize("number", range(1, 9))
def test_a_further_network_has_as_many_parameters_as_it_says(number):
    torch = pytest.importorskip("torch")
    frameworks.of({}).import_()
    module = importlib.import_module("workloads.further_networks")
    options = whole_options("further_networks", {"network": number})
    with torch.device("meta"):
        model = module.Training.build(options)
    assert sum(one.numel() for one in model.parameters()) == module.described(options)["parameters"]


# --- rows to train on


def test_cells_become_rows_with_what_their_environment_adds():
    found = rows.trained_on(grid_cells({"host": 0.0, "docker": 2e-4, "apptainer": -1e-5}), record())
    assert len(found.rows) == len(NETWORKS) * 3 * 2 * 3 and not found.left_out
    assert found.effects.added == pytest.approx({"host": 0, "docker": 2e-4, "apptainer": 0}, abs=1e-9)
    fitted = models.fit_roofline(found.rows)
    assert {name: fitted.factors[name] for name in FACTORS} == pytest.approx(FACTORS, rel=0.1)
    assert (fitted.call_s, fitted.step_s) == pytest.approx((CALL_S, STEP_S), rel=0.2)


def test_sealed_campaigns_say_what_environments_add_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = builders.build_results(tmp_path / "results")
    (path, *_) = sorted(results.glob("campaigns/*/*/mnist_cnn/rounds.*docker*/sealed.json"))
    plan = read_sealed(path).plan
    target = record(
        machine=plan.machine.name, stack=plan.stack, targets=(target_with(plan.conditions.threads),), costs=()
    )
    found = sealed_steps.steps_of_campaigns(target)
    verdicts = tables.read("verdicts", results / "tables/verdicts.csv")
    steps = verdicts[(verdicts["metric"] == "step_s") & (verdicts["environment"] == "docker")]
    steps = steps[(steps["reference"] == "host") & ~steps["co_runner"] & (steps["compares"] == "environment")]
    assert len(steps) > 2
    for row in steps.to_dict("records"):
        title, settings = describe_workload(row["workload"])["title"], row["level_allocator"]
        own = {
            one.env: one.seconds
            for one in found
            if (one.network, dict(one.settings).get("allocator", "default")) == (title, settings)
        }
        assert own["docker"] / own["host"] == pytest.approx(row["ratio"], rel=0.01)
    assert {one.env for one in found} == {"host", *builders.ENVIRONMENTS} - {"host.control"}
    trained = rows.trained_on(grid_cells({"host": 0.0, "podman": 1e-4}), record(), sealed=found)
    assert trained.effects.added["docker"] > 0 and trained.effects.added["podman"] == pytest.approx(1e-4)
    title = describe_workload("mnist_cnn")["title"]
    assert title not in {one.network for one in sealed_steps.steps_of_campaigns(target, held_out=title)}
    assert sealed_steps.steps_of_campaigns(target.replace(stack="torch-1.4")) == []
    path.write_text("{}")
    assert {one.network for one in sealed_steps.steps_of_campaigns(target)}, "others are still read"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"machine": "other"}, "its machine is other, the target's m"),
        ({"processor": "Q"}, "its processor is Q, the target's P"),
        ({"stack": "torch-1.4"}, "its stack is torch-1.4, the target's torch-2.13"),
        ({"status": "failed", "reason": "no memory"}, "failed: no memory"),
        ({"threads": 7}, "the target was not measured with 7 threads"),
        ({"batch": 99}, "no cell of its job counts a step"),
        ({"env": "podman"}, "the host has no cell of the same job and threads"),
    ],
)
def test_cells_that_are_not_the_targets_are_left_out_with_the_reason(changed, says):
    threads = 1 if "env" in changed else 2
    odd = cell(**{"threads": threads, "batch": 64, **changed})
    base = [one for one in grid_cells() if one.env == "host" and (one.threads, one.workload) != (1, "mnist_cnn")]
    found = rows.trained_on([*base, odd], record())
    assert len(found.left_out) == 1 and found.left_out[0].endswith(says)


def test_a_cell_that_cannot_be_read_is_passed_over(tmp_path, capsys):
    cell().write(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("{")
    assert len(rows.read_cells(tmp_path)) == 1 and "passed over" in capsys.readouterr().out
    assert rows.read_cells(tmp_path / "nowhere") == []


# --- elapsed time


def told(seconds, low=None, high=None):
    return prediction.Prediction(seconds=seconds, low=low, high=high)


def test_elapsed_time_is_start_and_imports_and_steps_with_an_interval_that_holds_both():
    once = elapsed.once_of(costs("docker", 0.5), 0.1)
    found = elapsed.elapsed(told(0.01, 0.009, 0.012), once, 1000, {PRODUCT: 3.0, "calls": 1.0})
    assert found.seconds == pytest.approx(0.52 + 1.0 + 10) == sum(found.terms.values())
    assert found.terms == pytest.approx({"start": 0.52, "imports": 1.0, PRODUCT: 7.5, "calls": 2.5})
    spread = np.std([0.01 * number for number in range(5)], ddof=1)
    half = 4.604 * spread * math.sqrt(1 + 1 / 5)  # Student's, four degrees, 0.995
    assert found.low == pytest.approx(1.52 - half + 9, rel=1e-3)
    assert found.high == pytest.approx(1.52 + half + 12, rel=1e-3)
    assert elapsed.elapsed(told(0.01), once, 10, {"steps": 1}).low is None
    alone = elapsed.once_of(costs("docker", 0.5, n=1), 0.1)
    assert elapsed.elapsed(told(0.01, 0.009, 0.012), alone, 10, {"steps": 1}).low is None


def test_intervals_of_elapsed_times_hold_as_often_as_they_say():
    generator, held, runs = np.random.default_rng(5), 0, 2000
    for _ in range(runs):
        starts = generator.normal(1.0, 0.1, 6)
        own = costs("host", 0.0).replace(start_s=tuple(starts[:5]))
        missed = generator.normal(0, 0.1)  # of steps, in logarithms; their interval holds at 91%
        half = 1.695 * 0.1
        predicted = told(0.01, 0.01 * math.exp(-half), 0.01 * math.exp(half))
        found = elapsed.elapsed(predicted, elapsed.once_of(own, 0.1), 100, {"steps": 1})
        held += found.low <= starts[5] + 1.0 + 100 * 0.01 * math.exp(missed) <= found.high
    assert held / runs >= 0.9 - 3 * math.sqrt(0.09 / runs)


def test_models_without_parts_have_one_term():
    trained = rows.trained_on(grid_cells(), record())
    assert elapsed.parts_of(models.fit_linear(trained.rows), trained.rows[0]) == {"steps": 1.0}
    assert {PRODUCT, "calls"} <= set(elapsed.parts_of(models.fit_roofline(trained.rows), trained.rows[0]))


# --- choices


def test_the_fastest_comes_first_and_each_says_what_sets_it_apart():
    found = chosen({}, cells=grid_cells({"host": 0.0, "docker": 2e-4}))
    assert found.model == "roofline" and found.errors["roofline"] < 0.01 < found.errors["linear"]
    names = [(row.candidate.env, row.candidate.threads) for row in found.ranked]
    assert names == [("host", 2), ("host", 1), ("docker", 2), ("docker", 1)]
    assert [row.rank for row in found.ranked] == [1, 2, 3, 4] and not any(row.tied for row in found.ranked)
    assert found.ranked[1].why.startswith((PRODUCT, CONVOLUTION)) and "+0." in found.ranked[1].why
    assert found.ranked[2].why == "start: +0.45 s"
    steps = -(-describe_workload("mnist_cnn")["samples"] // 64)
    assert all(row.steps == steps for row in found.ranked)
    for row in found.ranked:
        assert row.elapsed.low < row.elapsed.seconds < row.elapsed.high
    reasons = {one.candidate.env: one.reason for one in found.excluded}
    assert reasons == {
        "apptainer": "no step was timed in apptainer on the target: `tare grid --environments apptainer`"
    }


def test_what_lies_within_what_predictions_are_off_by_is_a_tie():
    target = record(costs=(costs("host", 0.5), costs("docker", 0.505), costs("apptainer", 3.5)))
    found = chosen({"threads": (2,), "steps": 10}, target, noise=0.03)
    assert [(row.candidate.env, row.rank, row.tied) for row in found.ranked] == [
        ("host", 1, True),
        ("docker", 1, True),
        ("apptainer", 3, False),
    ]
    few = chosen({"threads": (2,), "steps": 10}, target, cells=[
        one for one in grid_cells(noise=0.03) if one.workload != "further_networks"])  # fmt: skip
    assert all(row.tied for row in few.ranked) and few.workloads_wanted > 0
    assert all(row.elapsed.low is None for row in few.ranked)


@pytest.mark.parametrize(
    ("given", "who", "says"),
    [
        ({"environments": ("host", "dokcer")}, "dokcer", "there is no environment dokcer: did you mean 'docker'?"),
        ({"root": False}, "docker", "the daemon of docker needs root, which the request rules out"),
        ({"stacks": ("torch-2.13", "torch-2")}, "torch-2,", "there is no stack torch-2: did you mean 'torch-"),
        ({"stacks": ("torch-2.13", "torch-1.4")}, "torch-1.4", "no step of torch-1.4 was timed on the target"),
        (
            {"stacks": ("torch-2.13", "tensorflow-2.1")},
            "tensorflow-2.1",
            "steps of tensorflow are not predicted: compare the stack in a study (`stacks: [tensorflow-2.1]`)",
        ),
        (
            {"threads": (2, 4)},
            "4 threads",
            "the target was measured with 1, 2 threads, not with 4: measure it with --search, or compare it in a "
            "study (`arms: {rounds: [threads=4]}`)",
        ),
        (
            {"settings": {"layout": ("channels-last",)}},
            "layout",
            "no step with layout=channels-last was timed on the target: `tare grid --settings "
            "layout=channels-last`, or measure it with --search, or compare it",
        ),
        ({"settings": {"compile": ("xla",)}}, "xla", "compile=xla is a setting of tensorflow, not of torch"),
        (
            {"settings": {"compile": ("inductor",)}},
            "inductor",
            "the time that compile=inductor takes before and in the first step is not predicted: measure it with",
        ),
        ({"settings": {"graph": ("capture",)}}, "capture", "graph=capture is impossible on a CPU: graphs are"),
        (
            {"batches": (64, 128), "loss_within": 0.002},
            "batch 128",
            "within 0.20% of that of batch 64 is not known",
        ),
    ],
)
def test_what_cannot_be_taken_is_excluded_with_its_reason(given, who, says):
    found = chosen(given)
    own = [one for one in found.excluded if who in one.candidate.name]
    assert own and all(says in one.reason for one in own)
    assert found.ranked and not any(who in row.candidate.name for row in found.ranked)


def test_what_is_only_not_predicted_may_be_measured():
    found = chosen({
        **{"environments": ("host", "podman", "docker"), "threads": (2, 4), "root": False},
        "settings": {"layout": ("channels-last",), "compile": ("xla",), "amp": ("bf16",)},
    })  # fmt: skip
    may = {one.candidate.name for one in found.excluded if one.measurable}
    assert may >= {
        "host, torch-2.13, 2 threads, batch 64, layout=channels-last",
        "host, torch-2.13, 2 threads, batch 64, amp=bf16",
        "host, torch-2.13, 4 threads, batch 64",
        "podman, torch-2.13, 2 threads, batch 64",
    }
    assert not any("docker" in name or "xla" in name for name in may)
    held = chosen({"loss_within": 0.002, "settings": {"layout": ("channels-last",), "amp": ("bf16",)}})
    may = {one.candidate.settings for one in held.excluded if one.measurable}
    layout, amp = ("layout", "channels-last"), ("amp", "bf16")
    assert may == {(layout,), (amp,), (amp, layout)}, "their loss is measured, too"


def test_a_compiler_that_a_grid_has_timed_is_not_predicted_and_may_be_measured():
    compiled = with_layout(grid_cells(), setting={"compile": "inductor"})
    found = chosen({"environments": ("host",), "settings": {"compile": ("inductor",)}}, cells=compiled)
    own = [one for one in found.excluded if one.candidate.settings]
    assert len(own) == 2 and all(
        one.measurable and "in the first step is not predicted" in one.reason for one in own
    )
    assert not any(row.candidate.settings for row in found.ranked)


def with_layout(cells, factor=0.8, noise=0.02, setting=None, factors=None):
    """Cells, and one with channels-last of each network's host cells at two threads; `factors`: one for each."""
    setting = setting or {"layout": "channels-last"}
    generator, found = np.random.default_rng(9), list(cells)
    for one in cells:
        if (one.env, one.threads, one.batch) == ("host", 2, 64):
            factor = factor if factors is None else next(factors)
            seconds = one.profiled().plain_step_s[1] * factor * math.exp(generator.normal(0, noise))
            options = dict(one.options)
            own = cell(one.workload, "host", 2, 64, seconds, options=options, settings=setting)
            found.append(own)
    return found


def test_a_setting_that_was_timed_on_other_networks_is_predicted():
    settings = {"layout": ("channels-last",), "amp": ("bf16",)}
    given = {"environments": ("host",), "threads": (2,), "settings": settings, "steps": 1000}
    found = chosen(given, cells=with_layout(grid_cells(noise=0.02)))
    first, second = found.ranked
    assert first.candidate.settings == (("layout", "channels-last"),) and second.candidate.settings == ()
    assert first.step_s / second.step_s == pytest.approx(0.8, rel=0.02) and not first.tied
    assert first.elapsed.low < first.elapsed.seconds < first.elapsed.high
    saved = sum(second.elapsed.terms.values()) - sum(first.elapsed.terms.values())
    assert first.elapsed.terms["layout=channels-last"] == pytest.approx(-saved) and saved > 0
    assert second.why == f"layout=channels-last: {saved:+.3g} s"
    assert {name: first.elapsed.terms[name] for name in second.elapsed.terms} == pytest.approx(second.elapsed.terms)
    told = {one.candidate.settings: one.reason for one in found.excluded}
    assert "amp=bf16 was timed on the target: `tare grid --settings amp=bf16`, or" in told[("amp", "bf16"),]
    both = told[("amp", "bf16"), ("layout", "channels-last")]
    assert both.startswith("no step with amp=bf16 and layout=channels-last was timed on the target: measure it")
    limited = chosen(given | {"loss_within": 0.002}, cells=with_layout(grid_cells()))
    assert [row.candidate.settings for row in limited.ranked] == [()]
    (reason,) = (one.reason for one in limited.excluded if one.candidate.settings == (("layout", "channels-last"),))
    assert "whether its loss is within 0.20% of the default's is not known" in reason


def test_a_setting_that_helps_some_networks_and_hurts_others_is_not_predicted():
    amp, plain = ("amp", "bf16"), grid_cells()
    alike = rows.trained_on(with_layout(plain, setting=dict([amp])), record())
    assert alike.effects.factor((amp,)) == pytest.approx(0.8, rel=0.05) and not alike.effects.differs((amp,))
    factors = itertools.cycle([0.6, 0.8, 1.0, 1.0, 1.3, 1.4])
    mixed = with_layout(plain, factors=factors, setting=dict([amp]))
    trained = rows.trained_on(mixed, record())
    low, high = trained.effects.differs((amp,))
    assert low < 0.8 and high > 1.2 and trained.effects.factor((amp,)) is None
    assert any("its settings multiply steps of other networks by 0." in why for why in trained.left_out)
    with_amp = chosen({"workload": "mnist_cnn", "settings": {"amp": ("bf16",)}}, cells=mixed)
    own = [one for one in with_amp.excluded if one.candidate.settings]
    (reason,) = {one.reason for one in own}
    assert reason.startswith("amp=bf16 multiplied steps of other networks by 0.") and all(
        one.measurable for one in own
    )


def test_what_a_setting_multiplies_a_row_by_is_told_by_other_networks():
    cells = with_layout(grid_cells(), noise=0.0)
    odd = [one for one in cells if one.settings and one.workload == "mnist_cnn"]
    cells = [one for one in cells if one not in odd] + [
        cell(seconds=odd[0].profiled().plain_step_s[1] * 2, settings=odd[0].settings)
    ]
    trained = rows.trained_on(cells, record())
    own = {row.workload: row for row in trained.rows if row.settings}
    assert own["CNN on MNIST"].factor == pytest.approx(0.8) and len(own) == len(NETWORKS)
    settings = (("layout", "channels-last"),)
    assert trained.effects.factor(settings) == pytest.approx(0.8)
    few = rows.trained_on([one for one in cells if not one.settings or one.workload == "mnist_cnn"], record())
    assert few.effects.factor(settings) is None
    assert few.left_out[0].endswith("last: no other network was timed with and without its settings")


def test_launches_of_a_place_count_once_and_those_in_slices_by_their_ratio_to_the_hosts():
    cells = grid_cells()
    first = next(one for one in cells if one.threads == 2)
    seconds, mean = first.step_s, sum(first.profiled().plain_step_s) / 3

    def launched(times, **changed):
        job = first.workload, changed.pop("env", first.env), first.threads, first.batch
        return cell(*job, seconds * times, options=dict(first.options)).replace(**changed)

    def changed(*more):
        found = rows.trained_on([*more, *cells], record())
        assert len(found.rows) == len(alone.rows)
        ratios = [b.seconds / a.seconds for a, b in zip(alone.rows, found.rows, strict=True)]
        return found, [ratio for ratio in ratios if ratio != pytest.approx(1)]

    alone = rows.trained_on(cells, record())
    assert alone.controls == ()
    found, ratios = changed(launched(1.21, again=1))
    assert found.controls == () and ratios == [pytest.approx(1.1)]
    hosts = (mean * 1.4, mean * 1.4 * 1.21)
    again, control = (launched(1.4, again=number, host_step_s=hosts) for number in (1, 2))
    found, ratios = changed(again, control)
    assert found.controls == pytest.approx([math.log(1.21)]) and ratios == []
    place = first.title, "docker", first.threads, first.batch
    cells.remove(next(one for one in cells if (one.title, one.env, one.threads, one.batch) == place))
    cells.append(launched(1.4 * 1.1 * 1.05, env="docker", host_step_s=hosts))
    found = rows.trained_on([again, control, *cells], record())
    taken = {(row.workload, row.environment, row.target.threads, row.batch): row.seconds for row in found.rows}
    assert taken[place] / seconds == pytest.approx(1.05)
    # the host's own seconds are the mean of both ways, without what sharing makes all jobs longer by
    second = next(one for one in cells if one.threads == 2 and one.title != first.title and one.env == "host")
    other = cell(second.workload, "host", 2, second.batch, second.step_s, options=dict(second.options))
    more = [again, other.replace(again=1, host_step_s=(second.step_s * mean / seconds * 1.4 * 1.1 * 1.44,) * 2)]
    found = rows.trained_on([*more, *cells], record())
    taken = {(row.workload, row.environment, row.target.threads, row.batch): row.seconds for row in found.rows}
    of_first, of_second = ((one.title, "host", 2, one.batch) for one in (first, second))
    assert taken[of_first] / seconds == pytest.approx(1 / 1.2**0.5)
    assert taken[of_second] / second.step_s == pytest.approx(1.2**0.5)
    hosts_alone = [one for one in cells if (one.title, one.env, one.batch) == (first.title, "host", first.batch)]
    lost = rows.trained_on([one for one in cells if one not in hosts_alone], record())
    assert any(one.endswith("the host has no launch alone to compare it with") for one in lost.left_out)


def test_a_network_that_is_held_out_has_no_part_in_what_environments_add_and_settings_gain():
    added = {"host": 0.0, "docker": 2e-4}
    cells = with_layout(grid_cells(added), noise=0.0)
    of_alexnet = [one for one in cells if one.title == "AlexNet"]
    slow = [  # ten times as long in docker and with the layout
        one
        if one.env == "host" and not one.settings
        else cell(
            *(one.workload, one.env, one.threads, one.batch, 10 * one.profiled().plain_step_s[1]),
            settings=one.settings,
        )
        for one in of_alexnet
    ]
    kept = [one for one in cells if one not in of_alexnet]
    alone = rows.trained_on(kept, record())
    found = rows.trained_on([*kept, *slow], record(), held_out="AlexNet")
    assert found.rows == alone.rows
    assert found.effects == alone.effects
    jobs = {rows.job_of(one.workload, one.options, one.batch) for one in of_alexnet}
    assert jobs <= set(found.work) and jobs <= set(found.memory_bytes), "what a step does needs no time"
    only = [one for one in cells if one.env == "host" or one.title == "AlexNet"]
    assert "docker" in rows.trained_on(only, record()).effects.added
    assert "docker" not in rows.trained_on(only, record(), held_out="AlexNet").effects.added


def test_what_is_known_to_fail_is_not_ranked_by_what_others_gain():
    failed = {"status": "failed", "reason": "no memory"}
    cells = with_layout(grid_cells(), noise=0.0)
    tried = next(one for one in cells if one.settings and one.workload == "mnist_cnn")
    cells = [one for one in cells if one is not tried] + [
        tried.replace(**failed),
        next(one for one in cells if (one.workload, one.env, one.threads) == ("mnist_cnn", "docker", 1)).replace(
            **failed, batch=64
        ),
    ]
    given = {"environments": ("host", "docker"), "settings": {"layout": ("channels-last",)}, "steps": 1000}
    found = chosen(given, cells=cells)
    told = {one.candidate.name: (one.reason, one.measurable) for one in found.excluded}
    for name in ("host, torch-2.13, 2 threads", "host, torch-2.13, 1 threads", "docker, torch-2.13, 2 threads"):
        reason, measurable = told[f"{name}, batch 64, layout=channels-last"]
        assert reason == "it failed on the target: failed: no memory; `tare grid` tries it again" and not measurable
    assert "it failed on the target" in told["docker, torch-2.13, 1 threads, batch 64"][0]
    assert {(row.candidate.env, row.candidate.threads) for row in found.ranked} == {
        *(("host", 1), ("host", 2), ("docker", 2)),
    }
    other = chosen({**given, "batches": (128,)}, cells=cells)
    assert any(row.candidate.settings for row in other.ranked), "another batch did not fail"
    elsewhere = [one.replace(machine="other") if not one.ok else one for one in cells]
    assert rows.trained_on(elsewhere, record()).failed == {}
    assert rows.trained_on(cells, record(), held_out="CNN on MNIST").failed == {}


def test_memory_and_time_are_limits():
    heavy = [
        one.replace(inside=one.inside.replace(memory=one.inside.memory.replace(peak_rss_bytes=one.batch << 24)))
        for one in grid_cells()
    ]
    found = chosen({"batches": (32, 64), "memory_bytes": float(40 << 24)}, cells=heavy)
    assert {row.candidate.batch for row in found.ranked} == {32}
    assert "it takes about 1 GiB of memory, and may take 0.62" in found.excluded[0].reason
    full = chosen({})
    limit = (full.ranked[0].elapsed.seconds + full.ranked[-1].elapsed.seconds) / 2
    cut = chosen({"limit_s": limit})
    assert 0 < len(cut.ranked) < len(full.ranked) and "and may take" in cut.excluded[-1].reason


def test_a_batch_between_measured_ones_has_the_memory_of_the_line_through_them():
    own = choose._Chooser(
        request=requests.Request(workload="mnist_cnn", batches=(64,)),
        **{"target": record(), "work_of": None, "predictor": None, "lacking": {}},
        trained=rows.Trained(rows=(), work={}, effects=rows.Effects.of([], frozenset()), left_out=(), memory_bytes={
            rows.job_of("mnist_cnn", {}, batch): taken for batch, taken in ((32, 100), (64, 200), (256, 800))
        }),
    )  # fmt: skip
    assert own._memory_bytes(64) == 200 and own._memory_bytes(48) == 150 and own._memory_bytes(1) == 100


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"stacks": ("torch-1.4",), "settings": {"compile": ("xla",)}}, "no step of torch-1.4 was timed"),
        ({"stacks": ("tensorflow-2.1",), "settings": {"compile": ("xla",)}}, "steps of tensorflow are"),
        ({"environments": ("vm",)}, "starts of vm that import torch"),
        ({"batches": (4096,)}, "its batch, 4096, is more than 2 times beyond 32 to 128: measure"),
    ],
)
def test_where_nothing_is_left_one_line_says_what_to_measure(given, says):
    trained = rows.trained_on(grid_cells(), record())
    wanted = requests.Request(**{"workload": "mnist_cnn", "batches": (64,), **given})
    any_work = next(iter(trained.work.values()))
    with pytest.raises(UnavailableError) as caught:
        choose.choose(wanted, record(), trained, lambda batch: any_work, MODELS)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_without_steps_or_with_those_of_one_network_nothing_is_predicted():
    with pytest.raises(UnavailableError, match="no training step was timed on the target"):
        chosen({}, cells=[cell(machine="other")])
    with pytest.raises(UnavailableError, match="a model needs two workloads"):
        chosen({}, cells=[one for one in grid_cells() if one.workload == "mnist_cnn"])


def test_a_model_that_cannot_be_had_is_named():
    def lacking(given):
        raise UnavailableError("no scikit-learn")

    trained = rows.trained_on(grid_cells(), record())
    work = trained.work[rows.job_of("mnist_cnn", {}, 64)]
    wanted = requests.Request(workload="mnist_cnn", batches=(64,))
    found = choose.choose(wanted, record(), trained, lambda batch: work, {**MODELS, "corrected": lacking})
    assert found.lacking == {"corrected": "no scikit-learn"} and found.model == "roofline"


def test_the_margin_of_a_ratio_is_of_pairs_that_differ_alike():
    trained = prediction.train(
        models.fit_roofline, rows.trained_on(grid_cells(noise=0.05), record()).rows, alpha=0.2
    )
    own = [row for row in trained.ratio_errors[0][0] if row.batch == 64]
    host, docker = (
        next(r for r in own if (r.environment, r.target.threads) == (env, 2)) for env in ("host", "docker")
    )
    single = next(r for r in own if (r.environment, r.target.threads) == ("host", 1))
    # two errors of 5% are apart by 7% a standard deviation
    assert 0.05 < trained.ratio_margin(host, docker) < 0.35 and trained.ratio_margin(host, single) > 0.05
    assert trained.ratio_margin(host, docker.replace(stack="another")) is None
    assert trained.median_error < 0.06


# --- commands


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A target and a grid on disk, of the processor that this machine says it has."""
    monkeypatch.setattr(machine_facts, "processor_name", lambda device: "P")
    record().write(tmp_path / "target.json")
    for number, one in enumerate(grid_cells()):
        one.write(tmp_path / "grid" / f"{number}.json")
    monkeypatch.setattr("tare.predict.choose.MODELS", MODELS)

    def run(text, *words):
        places = ("--target", tmp_path / "target.json", "--grid", tmp_path / "grid", "--results", tmp_path)
        return main(["optimise", str(written(tmp_path, text)), *map(str, places), *words])

    return run


def test_the_command_tells_ranks_reasons_and_what_was_passed_over(measured, capsys):
    assert measured("{workload: mnist_cnn, environments: [host, docker, podman], bach: 64}") == 0
    said = capsys.readouterr().out
    assert "passed over: bach is not known" in said and "mnist_cnn on P (m), " in said
    assert "1  host, torch-2.13, 2 threads, batch 64: " in said and "(90%: " in said
    assert "excluded: podman, torch-2.13, 1 or 2 threads, batch 64: starts of podman" in said
    assert measured("{workload: mnist_cnn}", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ranked"][0]["candidate"]["env"] == "host" and found["notes"] == []


def test_every_candidate_that_is_excluded_is_named():
    def one(env, threads, *settings):
        return choose.Candidate(env=env, stack="s", threads=threads, batch=8, settings=settings)

    layout, amp = ("layout", "channels-last"), ("amp", "bf16")
    assert optimise.names_of([one("host", 2)]) == one("host", 2).name
    assert (
        optimise.names_of([one("host", 2, amp, layout)])
        == "host, s, 2 threads, batch 8, amp=bf16 and layout=channels-last"
    )
    every = [one(env, threads, *own) for env in ("host", "vm") for threads in (1, 2) for own in ((), (layout,))]
    assert optimise.names_of(every) == "host or vm, s, 1 or 2 threads, batch 8, no setting or layout=channels-last"
    assert optimise.names_of(every[:3]) == "; ".join(row.name for row in every[:3])


@pytest.fixture
def rounds(monkeypatch):
    """Rounds that are made up: every step takes half as long with a layout; what was asked for."""
    asked = []

    def measure(source, images, wanted, minutes, draws="candidates"):
        asked.append((list(wanted), minutes, draws))
        default, generator = next(iter(wanted)), random.Random(len(asked))
        steps = {name: 0.005 if "layout" in name else 0.01 for name in (default, CONTROL, *wanted)}
        told = [
            {
                name: Times(start_s=0.1, imports_s=1.0, rest_s=0.5, step_s=step_s * generator.uniform(0.99, 1.01))
                for name, step_s in steps.items()
                if "podman" not in name
            }
            for _ in range(6)
        ]
        return told, {name: "no daemon" for name in wanted if "podman" in name}

    monkeypatch.setattr(candidates, "measure_candidates", measure)
    monkeypatch.setattr(alone, "measuring", lambda *outs: contextlib.nullcontext())
    return asked


SEARCHED = "{workload: mnist_cnn, environments: [host, podman], threads: 2, settings: {layout: channels-last}}"


def test_a_search_is_told_kept_and_goes_on(measured, rounds, capsys, tmp_path):
    assert measured(SEARCHED, "--search", "--minutes", "9") == 0
    said = capsys.readouterr().out
    best = "host, torch-2.13, 2 threads, batch 64, layout=channels-last"
    assert f"faster than the framework's default: {best}, ratio 0." in said
    assert "3 of 3 candidates were tried" in said
    assert "podman, torch-2.13, 2 threads, batch 64: failed: no daemon, not predicted" in said
    assert len(rounds) == 4 and rounds[-1][0][1] == best and rounds[-1][2] == "fresh/1"
    (kept,) = answers.read_answers(tmp_path, "m")
    assert kept.searched.best == best and kept.searched.outcome == "better" and kept.measured is None
    assert list((tmp_path / "searches/m").glob("*.db"))
    # what was measured stays in the answer to the same request
    assert measured(SEARCHED, "--measure", "1", "--json") == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["searched"] == kept.searched.to_json() and found["measured"]["rounds"] == 6
    assert measured(SEARCHED, "--search", "--json") == 0
    again = json.loads(capsys.readouterr().out)["searched"]
    assert again["best"] == best and again["looks"] == 2 and again["space"] == 3
    asked = [names[1] for names, _, draws in rounds if draws.startswith("search/")]
    assert asked.count(best) == 1, "it is not tried again"


def test_a_search_needs_no_grid_and_what_it_found_is_written(measured, rounds, capsys, tmp_path):
    for path in (tmp_path / "grid").iterdir():
        path.unlink()
    request = SEARCHED.replace("{workload", "{command: python train.py, workload")
    assert measured(request) == 3
    assert "no training step was timed on the target (to fix it: tare grid)" in capsys.readouterr().err
    chosen = tmp_path / "chosen"
    assert measured(request, "--search", "--minutes", "9", "--write", str(chosen)) == 0
    said, best = capsys.readouterr().out, "host, torch-2.13, 2 threads, batch 64, layout=channels-last"
    assert f"faster than the framework's default: {best}" in said and "first choice" not in said
    assert "nothing is predicted: no training step was timed" in said
    assert "excluded: host, torch-2.13, 2 threads, batch 64" in said and f"{best}: requirements.txt" in said
    assert "layout=channels-last: 0." in (chosen / "job.sh").read_text()
    assert measured(request, "--search", "--write", str(chosen), "--candidate", "1") == 2
    assert "--candidate 1: the answer has 0, counted from 1" in capsys.readouterr().err


def test_a_network_that_is_held_out_is_not_trained_on_and_has_an_answer_of_its_own(measured, capsys, tmp_path):
    assert measured("{workload: mnist_cnn}") == measured("{workload: mnist_cnn}", "--held-out") == 0
    said = capsys.readouterr().out
    assert "trained on 234 steps of 13 networks" in said and "trained on 216 steps of 12 networks" in said
    assert {one.held_out for one in answers.read_answers(tmp_path, "m")} == {True, False}


def test_candidates_that_break_the_limit_of_the_loss_are_told_apart(measured, capsys, monkeypatch):
    def measure(source, images, wanted, minutes):
        default, other = wanted
        times = Times(start_s=0.1, imports_s=1.0, rest_s=0.5, step_s=0.01, loss=2.0)
        told = {default: times, CONTROL: times, other: replace(times, loss=2.1)}
        return [told] * 3, {}

    monkeypatch.setattr(candidates, "measure_candidates", measure)
    request = "{workload: mnist_cnn, environments: [host, docker], threads: 2, loss_within: 0.002}"
    assert measured(request, "--measure", "1") == 0
    said = capsys.readouterr().out
    assert "not measured: docker, torch-2.13, 2 threads, batch 64: its loss after 8 steps is 5.00% from" in said


def test_a_search_without_minutes_and_one_beside_a_measurement_are_refused(measured, rounds, capsys):
    for minutes in ("0", "-1", "nan", "inf"):
        for words in (["--search"], ["--measure", "2"]):
            assert measured(SEARCHED, *words, "--minutes", minutes) == 2
            assert "measuring takes a positive number of minutes" in capsys.readouterr().err
    for count in ("0", "-1"):
        assert measured(SEARCHED, "--measure", count) == 2
        assert f"--measure {count}: name how many candidates, from 1 on" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        measured(SEARCHED, "--search", "--measure", "2")
    assert caught.value.code == 2 and rounds == []


def test_where_all_that_was_to_be_measured_failed_the_reasons_are_told(measured, capsys, monkeypatch):
    def measure(source, images, wanted, minutes):
        return [], dict.fromkeys(list(wanted)[1:], "no daemon")

    monkeypatch.setattr(candidates, "measure_candidates", measure)
    assert measured("{workload: mnist_cnn, environments: host}", "--measure", "1") == 0
    said = capsys.readouterr().out
    assert "not measured: host, torch-2.13, 1 threads, batch 64: no daemon" in said and "measured in" not in said


def test_a_job_that_no_cell_has_is_counted_by_a_launch(measured, monkeypatch, capsys):
    asked = []

    def counted(source, images, workload, options, batch):
        asked.append((workload, batch))
        work = drawn_work(np.random.default_rng((1, 0)), batch)
        return SimpleNamespace(alike=work.alike, reason=None)

    monkeypatch.setattr(grid, "count_job", counted)
    assert measured("{workload: mnist_cnn, batch: 96}") == 0
    assert asked == [("mnist_cnn", 96)] and "batch 96" in capsys.readouterr().out


def test_one_launch_of_the_default_scales_what_is_predicted(measured, monkeypatch, capsys, tmp_path):
    asked = []

    def timed(source, images, workload, options, batch, threads):
        asked.append((workload, batch, threads))
        return 5.0

    monkeypatch.setattr(grid, "time_job", timed)
    assert measured("{workload: mnist_cnn, batch: 64, steps: 10, environments: [host, docker]}", "--calibrate") == 0
    said = capsys.readouterr().out
    assert asked == [("mnist_cnn", 64, 2)] and "host, torch-2.13, 2 threads, batch 64: one launch times" in said
    assert (
        "calibrated by one launch of the default, 5000 ms a step; the errors are of calibrated predictions" in said
    )
    assert measured("{workload: mnist_cnn, batch: 64, steps: 10}", "--calibrate", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    default = next(
        row for row in found["ranked"] if row["candidate"]["env"] == "host" and row["candidate"]["threads"] == 2
    )
    assert found["timed_step_s"] == 5 and default["step_s"] == pytest.approx(5)
    nothing = rows.trained_on([], record())
    wanted = requests.Request(workload="mnist_cnn", batches=(64,))
    found = choose.choose(wanted, record(), nothing, lambda batch: None, searches=True, timed_step_s=5.0)
    assert found.model is None and found.timed_step_s is None, "nothing is predicted, so nothing is scaled"


def test_a_job_that_cannot_be_counted_is_tried_once_and_told(measured, monkeypatch, capsys):
    asked = []

    def counted(source, images, workload, options, batch):
        asked.append(batch)
        raise UnavailableError(f"a step of {workload} could not be counted: it depends on values")

    monkeypatch.setattr(grid, "count_job", counted)
    assert measured("{workload: mnist_cnn, batch: [64, 96, 96]}") == 0
    said = capsys.readouterr().out
    assert asked == [96] and "host or docker or apptainer, torch-2.13, 1 or 2 threads, batch 96: a step of" in said
    assert measured("{workload: mnist_cnn, batch: 96}") == 3
    assert "it depends on values" in capsys.readouterr().err


def test_a_target_of_another_processor_is_refused_in_one_line(measured, monkeypatch, capsys):
    monkeypatch.setattr(machine_facts, "processor_name", lambda device: "Q")
    assert measured("{workload: mnist_cnn}") == 2
    said = capsys.readouterr().err
    assert "was measured on P, and this machine has Q: measure it on this machine: `tare target`" in said
    assert said.count("\n") == 1


def test_a_target_of_another_stack_than_the_studys_is_refused_in_one_line(measured, rounds, capsys, tmp_path):
    record(stack="torch-1.4").write(tmp_path / "target.json")
    for words in ([], ["--measure", "1"], ["--search"]):
        assert measured("{workload: mnist_cnn}", *words) == 2
        said = capsys.readouterr().err
        assert "measured with the stack torch-1.4, and config/config.yaml has torch-2.13: name a study" in said
        assert said.count("\n") == 1 and rounds == []


def test_a_target_may_be_a_node_of_a_partition_which_a_job_measures(measured, monkeypatch, capsys, tmp_path):
    asked = tmp_path / "asked"
    for name, text in (("sbatch", f'printf "%s\\n" "$@" > {asked}; echo 7'), ("squeue", "echo COMPLETED None")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["grid", "--settings", "compile=inductor"]) == 2
    assert "a cell times steps without a compiler's work: measure it with" in capsys.readouterr().err
    assert main(["grid", "--settings", "layout=channels"]) == 2
    assert "no such setting: did you mean 'layout=channels-last'?" in capsys.readouterr().err
    for words in (["target", "--partition", "thin"], ["grid", "--partition", "thin", "--minutes", "3"]):
        monkeypatch.setattr(sys, "argv", ["tare", *words])
        assert main(words) == 0
        *options, wrapped = asked.read_text().splitlines()
        assert options == ["--parsable", "--partition=thin", "--nodes=1", "--exclusive"]
        assert wrapped == f"--wrap={sys.executable} -m tare {' '.join(words)}"
    record(partition="thin").write(tmp_path / "target.json")
    monkeypatch.setattr(machine_facts, "processor_name", lambda device: "Q")
    chosen = tmp_path / "chosen"
    assert measured("{workload: mnist_cnn, command: python train.py}", "--write", str(chosen)) == 0
    assert "#SBATCH --partition=thin" in (chosen / "job.sbatch").read_text()
    capsys.readouterr()
    assert measured("{workload: mnist_cnn}", "--measure", "1") == 2
    assert "the target is a node of the partition thin, and this machine has Q" in capsys.readouterr().err


def test_the_benchmark_of_predictions_writes_the_page_with_all_that_was_measured(
    measured, rounds, tmp_path, monkeypatch, capsys
):
    module = load("predictions", monkeypatch)
    for name, value in (("MODELS", MODELS), ("KEPT", tmp_path / "kept.json"), ("PAGE", tmp_path / "page.md")):
        monkeypatch.setattr(module, name, value)
    assert measured(SEARCHED, "--search", "--minutes", "9", "--held-out") == 0
    assert measured("{workload: mnist_cnn, environments: [host, docker]}", "--measure", "1") == 0
    places = ["--target", tmp_path / "target.json", "--grid", tmp_path / "grid", "--results", tmp_path]
    module.main([*map(str, places), "--publish"])
    page = module.PAGE.read_text()
    assert "\n".join(module.page(read_json(module.KEPT))) + "\n" == page
    assert "| workload | linear | 234 | 0 | " in page and "| environment | roofline | 234 | 0 | " in page
    assert "## By batch range" in page and "| 64 to 255 | 156 | " in page and "| SqueezeNet 1.1 | 18 | 0 | " in page
    assert "| workload | chosen | 234 | 0 | " in page and "For all rows, `tare optimise` uses roofline." in page
    assert "not recomputed" not in page and "within 3% of the best" in page
    assert re.search(r"\| CNN on MNIST \| host, .* \| yes \| [\d.]+ s \| [\d.]+ s \| [+-]", page)
    best = "host, torch-2.13, 2 threads, batch 64, layout=channels-last"
    assert f"| CNN on MNIST | no | 3 of 3 | better | {best} | 0." in page
    assert page in capsys.readouterr().out


def test_the_page_of_errors_is_that_of_the_numbers_that_are_kept(monkeypatch):
    module = load("predictions", monkeypatch)
    found = read_json(module.KEPT) if module.KEPT.exists() else None
    assert "".join(f"{line}\n" for line in module.page(found)) == module.PAGE.read_text(encoding="utf-8")


def test_no_candidate_is_the_status_of_what_is_lacking(measured, capsys):
    assert measured("{workload: mnist_cnn, stacks: torch-1.4}") == 3
    assert capsys.readouterr().err.count("\n") == 1


# --- inside


def test_every_family_but_those_of_updates_is_timed_by_operators_that_count_as_it(monkeypatch):
    """Operators of updates and of dropouts are element-wise ones, which are looked up by their names."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(repeated, "MIN_TIMED_S", 1e-5)
    monkeypatch.setattr(allocator, "use", lambda level: None)  # of this process
    monkeypatch.setattr(operators, "MOST_COPIES", 2)
    for name in (
        "LINEAR",
        "BATCHED",
        "LSTM",
        "ATTENTION",
        "CONVOLUTIONS",
        "IMAGES",
        "ELEMENTS",
        "CLASSES",
        "LOOKUPS",
    ):
        monkeypatch.setattr(operators, name, getattr(operators, name)[:2])
    found, skipped = operators.rows(torch, {"device": "cpu"})
    assert skipped == []
    checked = [parse(OperatorTime, row, "row") for row in found]
    assert {call.family for row in checked for call in row.alike} >= set(FAMILIES) - {DROPOUT, OPTIMIZER}
    assert all(row.seconds > 0 and len(row.all_seconds) == operators.REPETITIONS for row in checked)
    of = {(row.name, row.sizes, row.way): row for row in checked}
    rows, inputs, outputs = operators.LINEAR[0]
    (product,) = [call for call in of["product", f"{rows}x{inputs}x{outputs}", "forwards"].alike if call.bytes]
    assert (product.operator, product.flops) == ("aten::mm", 2 * rows * inputs * outputs)
    assert product.sizes == (rows * inputs, inputs * outputs) and product.made_bytes == 4 * rows * outputs
    images, channels, made, side, kernel, stride, _ = operators.CONVOLUTIONS[0]
    name = f"{kernel}x{kernel} convolution{', stride 2' if stride == 2 else ''}"
    backwards = of[name, f"{images}x{channels}x{made}x{side}", "backwards"].alike
    forwards = of[name, f"{images}x{channels}x{made}x{side}", "forwards"].alike
    assert sum(call.flops for call in backwards) == 2 * sum(call.flops for call in forwards) > 0


def test_an_operator_that_cannot_be_is_skipped_with_the_reason(monkeypatch):
    torch = pytest.importorskip("torch")

    def broken(torch, device):
        def make():
            raise RuntimeError("no such kernel")

        return {("3x3 convolution", "2x3", "forwards", "contiguous"): make}

    monkeypatch.setattr(operators, "calls", broken)
    monkeypatch.setattr(allocator, "use", lambda level: None)
    found, skipped = operators.rows(torch, {"device": "cpu"})
    assert found == [] and {row["reason"] for row in skipped} == {f"torch {torch.__version__}: no such kernel"}
