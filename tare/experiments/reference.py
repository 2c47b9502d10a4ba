"""A reference campaign: one folder with what a machine without a network measured in a few minutes, to be kept.

Its parts run in order of worth, each as the command that the workflow would call, each in a separate process and
under a deadline. What no longer fits is recorded with that reason, and never left out in silence.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import process
from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root, read_json, write_json
from tare.core.progress import duration, say, step
from tare.experiments.reference_input import bring_data, read, version
from tare.experiments.reference_pack import drop_unfinished, finish
from tare.experiments.reference_parts import SHARES, Clock, not_run, parts_of, run_parts, wants_again
from tare.images import installed
from tare.launch.trial import probe_record
from tare.machine import facts as machine
from tare.machine.fitting import settled
from tare.model.journals.references import ARCHIVE, STUDY, ReferenceRecord, check, opened
from tare.model.machines import MACHINE, slug_of
from tare.model.registry import HOST, describe_workload, environment
from tare.model.studies import checks, layout, loading, study
from tare.model.studies.layout import REFERENCE
from tare.model.studies.stacks import BOUND
from tare.model.words import nearest

BUDGET_S = 540.0
IMPORT_S = 240.0
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
NEW_UTS = 0x04000000  # CLONE_NEWUTS
_FACTS = """
import json, platform, torch
cuda = torch.cuda.is_available()
print(json.dumps({
    "python": platform.python_version(), "version": torch.__version__, "cuda": torch.version.cuda,
    "cuda_available": cuda,
    "cudnn": torch.backends.cudnn.version() if cuda else None,
    "device": torch.cuda.get_device_name(0) if cuda else None,
    "capability": ".".join(map(str, torch.cuda.get_device_capability(0))) if cuda else None,
}))
"""

TORCH = ("version", "cuda", "cuda_available", "cudnn", "device", "capability")

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a reference campaign is asked to be."""

    python: Path  # the interpreter that has the framework
    source: str  # the study, config/reference.yaml or like it
    carried: Path  # what `tare pack-reference-input` made, or not there
    budget_s: float  # seconds for everything
    out: Path | None = None  # the folder to write; None for results/reference/<device>-<date>
    device: str | None = None  # `cpu` or `cuda` instead of what the study says
    only: Sequence[str] = ()  # kinds of parts; none for all
    more: bool = False  # carry on the campaign in `out`: its study, and the parts for which there was no time


def run(wanted: Wanted) -> Path:
    """Measure a reference campaign and write its folder; returns the folder. Raises UserError: the folder is in
    use, or the study or the interpreter can't be used.
    """
    clock = Clock(started=time.monotonic(), budget_s=wanted.budget_s)
    wrong = sorted(set(wanted.only) - set(SHARES))
    if wrong:
        raise UserError(f"--only: no part {wrong[0]!r}: {nearest(wrong[0], SHARES)}")
    config, out, before = _begin(wanted)
    name_machine(config.device, before)
    say(f"a reference campaign of at most {duration(wanted.budget_s)} in {out}")
    content = _described(config, wanted, out, before)

    def keep(found: Row) -> None:
        content.update(found)
        content["runs"][-1]["wall_s"] = round(clock.gone_s, 1)
        finish(out, content)

    try:
        measure(config, wanted, out, clock, before, keep)
    except KeyboardInterrupt:
        if "parts" in content:
            keep({})  # without what the part that was running left
            say(f"finished parts are kept: continue {out} with --more (`make reference`: MORE=1)")
        raise
    report(content, out)
    return out


def _described(config: study.Study, wanted: Wanted, out: Path, before: Row | None) -> Row:
    """What the record says before anything is measured: device, framework, this run and those before it. Raises
    UserError: the framework can't be used, or is another than that of the campaign that is carried on.
    """
    hidden = hide_host_name()
    carried = read(wanted.carried)
    facts = torch_facts(wanted.python, config.device)
    content: Row = {
        "schema": ReferenceRecord.VERSION,
        "name": out.name,
        "study": config.study,
        "machine": machine.machine_name(),
        "stack": config.stack,
        "device": describe_device(config.device, facts),
        "torch": {key: facts[key] for key in TORCH},
        "python": facts["python"],
        "notes": [hidden],
    }
    refuse_another(before, content, out)
    this = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "budget_s": wanted.budget_s}
    this["tare"] = version_or_packed(carried)
    runs = [*(before["runs"] if before else []), this]
    return content | {"at": runs[0]["at"], "tare": this["tare"], "runs": runs}


def _begin(wanted: Wanted) -> tuple[study.Study, Path, Row | None]:
    """The study, the folder, and the record of the campaign that is carried on, where one is. Raises UserError: the
    folder's name is none, it holds something else, or there is nothing to carry on.
    """
    if wanted.more:
        if wanted.out is None:
            raise UserError("--more: name the folder to continue with --out")
        packed = wanted.out.parent / f"{wanted.out.name}{ARCHIVE}"
        if not wanted.out.exists() and packed.is_file():
            shutil.copytree(opened(packed), wanted.out)
        if not (wanted.out / REFERENCE).is_file():
            raise UserError(
                f"--more: {wanted.out} has no {REFERENCE}, so there is nothing to continue: begin without --more"
            )
        drop_unfinished(wanted.out)
        before = check(wanted.out).to_json()
        if before.get("machine") is None:
            raise UserError(f"--more: {wanted.out} is of a version whose paths name no machine: begin another")
        return checks.check(read_json(wanted.out / STUDY)), wanted.out, before
    config = fitted(loading.load_checked(wanted.source), wanted.budget_s, wanted.device)
    out = wanted.out or project_root() / layout.REFERENCES / default_name(config.device)
    if not NAME.fullmatch(out.name):
        raise UserError(f"--out: {out.name!r} is no name of a reference: lower-case letters, digits, dots, hyphens")
    if out.exists() and any(out.iterdir()):
        way = "continue it with --more" if (out / REFERENCE).is_file() else f"remove it: it has no {REFERENCE}"
        raise UserError(f"{out} is not empty: name another folder with --out, or {way}")
    return config, out, None


def refuse_another(before: Mapping[str, Any] | None, now: Mapping[str, Any], out: Path) -> None:
    """See that a reference is continued by the same framework on a device of the same name, or raise UserError."""
    for key in ("python", "torch"):
        if before is not None and before[key] != now[key]:
            raise UserError(
                f"{out} was measured with {key} {before[key]!r}, and here is {now[key]!r}: begin another"
            )
    if before is not None and before["device"]["name"] != now["device"]["name"]:
        there, here = before["device"]["name"], now["device"]["name"]
        raise UserError(f"{out} was measured on {there!r}, and this is {here!r}: begin another")


def measure(
    config: study.Study,
    wanted: Wanted,
    out: Path,
    clock: Clock,
    before: Mapping[str, Any] | None,
    keep: Callable[[Row], None],
) -> None:
    """Launch everything; `keep` gets what the record says of environments, workloads and parts, after each part."""
    if before is None:
        write_json(out / STUDY, config.to_json())
        machine.record().write(out / layout.MACHINE_FILE)
    environments = prepare_environments(out, wanted.python, config.environments)
    datasets = {name: describe_workload(name)["dataset"] for name in config.workloads}
    lost = bring_data(wanted.carried, sorted(set(datasets.values())), out / layout.below_results(layout.DATA))
    workloads = {
        name: {"available": dataset not in lost, "reason": lost.get(dataset)} for name, dataset in datasets.items()
    }
    usable = [name for name, row in environments.items() if row["available"]]
    earlier = {row["name"]: row for row in (before["parts"] if before else ())}
    done = {name: row for name, row in earlier.items() if not wants_again(row)}
    places = {name: place for place, name in enumerate(earlier)}  # a study.json has its workloads by name
    parts = sorted(parts_of(config, usable), key=lambda part: places.get(part.name, len(places)))
    chosen = [part for part in parts if part.name not in done and (not wanted.only or part.kind in wanted.only)]

    def keep_rows(rows: Sequence[Row]) -> None:
        known = {part.name: not_run(part, chosen) for part in parts} | earlier | {row["name"]: row for row in rows}
        order = dict.fromkeys([*done, *(part.name for part in parts)])
        found = [known[name] for name in order]
        keep({"environments": environments, "workloads": workloads, "parts": found})

    keep_rows([])
    run_parts(chosen, workloads, out, clock, earlier, keep_rows)


def report(content: Mapping[str, Any], out: Path) -> None:
    """Say how it went."""
    done = sum(row["status"] in ("ok", "ended") for row in content["parts"])
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    took = sum(row["wall_s"] for row in content["runs"])
    say(f"{done} of {len(content['parts'])} parts in {duration(took)}; {size / 1e6:.2f} MB in {out}")
    for row in content["parts"]:
        if row["status"] not in ("ok", "ended"):
            say(f"{row['name']}: {row['status']}: {row['reason']}")


def fitted(whole: study.Study, budget_s: float, device: str | None) -> study.Study:
    """The study for this machine and this budget: as many CPUs as there are, budgets in proportion.

    On a CUDA device jobs have the size that was published, where the study says it; on a CPU their own.
    """
    share = min(1.0, budget_s / BUDGET_S)
    found = whole.to_json()
    found["conditions"]["cpus"] = min(whole.conditions.cpus, len(os.sched_getaffinity(0)))
    found["rounds"] |= {key: round(found["rounds"][key] * share, 1) for key in ("budget_s", "arm_budget_s")}
    return settled(checks.check(found | ({"device": device} if device else {})))


# --- what the folder says of the machine


def prepare_environments(out: Path, python: Path, names: Sequence[str]) -> dict[str, Row]:
    """Try the study's environments, bind the framework, and write the records; whether each one works, by name.

    What the study does not name is not tried: a guest's boot alone would take a tenth of the time.
    """
    probes = {}
    for name in names:
        probes[name] = probe_record(environment(name))
        probes[name].write(out / layout.below_results(layout.probe_record(machine.machine_name(), name)))
        say(f"{name}: {'available' if probes[name].available else probes[name].reason}")
    records = installed.bind(
        python, out / layout.below_results(layout.IMAGES) / BOUND, {name: probes[name].outcome for name in names}
    )
    found = {}
    for name in names:
        works = records[name].status == "ok"
        found[name] = {"available": works, "version": probes[name].version, "reason": records[name].reason}
    if not found.get(HOST, {}).get("available"):
        raise UnavailableError(f"the host can't be measured: {found.get(HOST, {}).get('reason')}")
    return found


def torch_facts(python: Path, device: str) -> Row:
    """What the framework says of itself and of the device; also brings its files into the page cache. Raises
    UserError: it does not import, or finds no device where the study wants one.
    """
    with step("importing the framework for the first time"):
        ended = process.run([str(python), "-s", "-c", _FACTS], timeout_s=IMPORT_S, cwd=Path("/"))
    if not ended.ok:
        raise UserError(f"--python: {python} does not import torch: {ended.explain()}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    if device == "cuda" and not found["cuda_available"]:
        raise UserError(
            f"the torch {found['version']} of {python} finds no CUDA device: name another, or --device cpu"
        )
    return found


def describe_device(kind: str, facts: Mapping[str, Any]) -> Row:
    """What the study ran on, and the name that the driver gives it."""
    if kind == "cpu":
        return {"kind": kind, "name": machine.describe()["cpu_model"], "facts": None}
    found = machine.gpus()[0]
    return {"kind": kind, "name": found["name"] or facts["device"], "facts": dict(found)}


def default_name(kind: str) -> str:
    """The device's name as a folder has it, and the date: `nvidia-h100-80gb-hbm3-2026-11-21`."""
    name = describe_device(kind, {"device": "cuda"})["name"] or kind
    slug = "-".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())[:60]
    return f"{slug}-{time.strftime('%Y-%m-%d', time.gmtime())}"


def name_machine(kind: str, before: Mapping[str, Any] | None) -> None:
    """Name this machine by its device, for this process and its children, unless it has been given a name.

    A reference names the device, and nothing else of the hardware that could identify the machine.
    """
    if before is not None:
        os.environ[MACHINE] = before["machine"]
    elif MACHINE not in os.environ:
        os.environ[MACHINE] = slug_of(describe_device(kind, {"device": "cuda"})["name"] or kind)


def version_or_packed(carried: Mapping[str, Any] | None) -> Row:
    """This version of the project; where git does not say, what it was when the input was packed."""
    own = version()
    if own["commit"] is None and carried is not None:
        return {**carried["tare"], "reason": "as it was when the input was packed; git does not say here"}
    return own


def hide_host_name() -> str:
    """Give this process and its children another host name, which records keep; says what records hold."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.unshare(NEW_UTS):
            raise OSError(ctypes.get_errno(), "unshare")
        socket.sethostname("reference")
    except OSError:
        return "records hold this machine's own host name"
    return "the host name in records is not the machine's own"
