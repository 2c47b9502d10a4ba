"""A small study with its results, as an archive unpacks: records are made up, all that follows from them is real.

Plans come from the designs, orders and paddings from their seeds, journals, seals and the ledger from the runner;
tables and pages from the commands that the rules call. The clock of the launches goes on over all campaigns.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import unquote

import builders
import image_cost_builders
from campaign_builders import MACHINE, factors_of, launch_record, replicate_records
from cause_builders import causes_record
from fakes import Fake, site
from pages import draw

from tare.archive import crate
from tare.archive.members import CRATE, INDEX, Member
from tare.archive.reading import index_of, opened
from tare.cli.main import main
from tare.core.errors import TareError
from tare.core.files import read_json, sha256_file, sha256_text, write_json, write_text
from tare.experiments import campaign, causes, rounds, sliced, starts
from tare.experiments.designs import Design, Setup, seed_of, unit_order
from tare.experiments.orders import balanced_orders
from tare.launch.slicing.pacing import SHORTEST_SLICE_S, draw_quantum
from tare.model import closure
from tare.model.records.campaigns import Plan, Unit
from tare.model.records.slices import Slices
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role, started
from tare.model.schema import parse
from tare.model.studies import campaigns, layout, loading
from tare.model.studies import study as studies
from tare.model.studies.study import Study

NAME, WORKLOAD, ENVIRONMENTS = "small", "mnist_cnn", (HOST, "docker")
ASKED = {
    "study": NAME,
    "device": "cpu",
    "environments": list(ENVIRONMENTS),
    "workloads": {"sentiment_rnn": None, WORKLOAD: {"batch": 64, "sweep_batches": [16, 64]}},
    "rounds": {
        **{"pilot": 6, "half_width": 0.3, "budget_s": 5000},
        "steps": {"levels": ["steady"], "replicates": 2, "warmup_steps": 2, "seconds": 0.4},
    },
}
SITES = {name: f"/cache/trees/{name}/bin/python3" for name in (HOST, "docker")}
ARRIVES_S, SWITCH_US, REST_S = 0.004, 100, 0.05  # until the first instruction; between two slices, and two launches
BOOT = "1d7f"
CPU_MODEL = "Example CPU @ 2.50GHz"

Record = dict[str, Any]


def study() -> Study:
    """What is asked for."""
    return loading.load_checked(json.dumps(ASKED))


class Clock:
    """The machine's clock, which only launches move."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self.started = 0

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def placed(self, record: Mapping[str, Any], plan: Plan | None = None, pad: int = 0, env: str = HOST) -> Record:
        """A launch that begins now; what it says of its machine is the plan's."""
        moved = self.moved(record, self.now_ns - record["spawn_ns"])
        self.started += 1
        facts = {**moved["inside"]["facts"], "boot_id": BOOT, "cpu_model": CPU_MODEL}
        role = read_role(env)
        facts["executable"] = SITES[role.environment].replace("trees", "copies" if role.is_control else "trees")
        if plan is not None:
            facts |= {"kernel": plan.machine.kernel, "affinity": list(plan.machine.cpus)}
        marks = [
            {**mark, "user_s": 0.9 * (mark["at_ns"] - moved["spawn_ns"]) / 1e9, "system_s": 0.0}
            for mark in moved["inside"]["marks"]
        ]
        inside = {**moved["inside"], "facts": facts, "marks": marks}
        own = {"launch": f"tare-{self.started:012x}", "pad_bytes": pad, "code_sha256": "c" * 64}
        return {**moved, **own, "inside": inside}

    def moved(self, record: Mapping[str, Any], by_ns: int) -> Record:
        """A launch at another time."""
        inside, results = record["inside"], dict(record["inside"]["results"])
        for name in ("step_ends_ns",):
            if name in results:
                results[name] = [at + by_ns for at in results[name]]
        if "replicates" in results:
            results["replicates"] = [
                {
                    **one,
                    "started_ns": one["started_ns"] + by_ns,
                    **{name: [at + by_ns for at in one[name]] for name in ("warmup_ends_ns", "step_ends_ns")},
                }
                for one in results["replicates"]
            ]
        if "loaded_steps" in results:
            results["loaded_steps"] = [[a + by_ns, b + by_ns, n] for a, b, n in results["loaded_steps"]]
            results["samples"] = [{**one, "at_ns": one["at_ns"] + by_ns} for one in results["samples"]]
        marks = [{**mark, "at_ns": mark["at_ns"] + by_ns} for mark in inside["marks"]]
        ends = {"spawn_ns": record["spawn_ns"] + by_ns, "end_ns": record["end_ns"] + by_ns}
        return {**record, **ends, "inside": {**inside, "marks": marks, "results": results}}

    def after(self, record: Mapping[str, Any]) -> None:
        """Nothing begins before a launch has ended."""
        self.now_ns = record["end_ns"]
        self.pass_s(REST_S)


class Sliced:
    """Launches of a round in own time, and the slices in which they ran, by the cycles that a seed gives.

    Without a seed each runs to its end, one after the other.
    """

    def __init__(self, clock: Clock, records: Mapping[str, Record], plan: Plan, pads: Mapping[str, int]) -> None:
        self.clock = clock
        self.records: dict[str, Record] = {}
        for name, record in records.items():
            placed = clock.placed(record, plan, pads[name], name)
            whole = -(-(placed["end_ns"] - placed["spawn_ns"]) // 1000) * 1000  # whole microseconds
            self.records[name] = {**placed, "end_ns": placed["spawn_ns"] + whole}
            clock.pass_s(ARRIVES_S + 0.001)
        self.rows: dict[str, list[tuple[int, int, int]]] = {name: [] for name in records}
        self.ends: dict[str, int] = {}

    def arrived_ns(self, name: str) -> int:
        return int(self.records[name]["spawn_ns"] + round(ARRIVES_S * 1e9))

    def length_us(self, name: str) -> int:
        """Own time from the first instruction to the end; the runtime ends with its program."""
        return int(self.records[name]["end_ns"] - self.arrived_ns(name)) // 1000

    def slice(self, name: str, length_us: int, quantum_ms: int) -> None:
        self.clock.now_ns += SWITCH_US * 1000
        self.rows[name].append(((self.clock.now_ns - self.arrived_ns(name)) // 1000, length_us, quantum_ms))
        self.clock.now_ns = self.arrived_ns(name) + 1000 * (self.rows[name][-1][0] + length_us)
        if sum(one[1] for one in self.rows[name]) >= self.length_us(name):
            self.ends[name] = self.clock.now_ns

    def whole(self, order: Sequence[str]) -> None:
        for name in order:
            self.slice(name, self.length_us(name), 0)

    def in_cycles(self, order: Sequence[str], seed: str) -> None:
        generator, cycles = random.Random(seed), balanced_orders(len(order), random.Random(seed))
        mean_us = sum(map(self.length_us, order)) / len(order)
        progress_us = 0.0
        while len(self.ends) < len(order):
            quantum_s = draw_quantum(generator)
            progress_us += 1e6 * quantum_s
            for number in next(cycles):
                name = order[number]
                used = sum(one[1] for one in self.rows[name])
                due = min(round(progress_us * self.length_us(name) / mean_us), self.length_us(name)) - used
                if name not in self.ends and due >= 1e6 * SHORTEST_SLICE_S:
                    left = self.length_us(name) - used - due
                    self.slice(name, due + (left if left < 1e6 * SHORTEST_SLICE_S else 0), round(1e3 * quantum_s))

    def launches(self) -> dict[str, Record]:
        found = {}
        for name, record in self.records.items():
            began, lengths, quanta = (list(column) for column in zip(*self.rows[name], strict=True))
            used = [sum(lengths[: number + 1]) for number in range(len(lengths))]
            slices = {
                **{"means": "cgroup2", "spawn_ns": record["spawn_ns"], "arrived_ns": self.arrived_ns(name)},
                **{"ended_ns": self.ends[name], "end_ns": self.ends[name], "began_us": began, "length_us": lengths},
                **{"quiet_us": lengths, "quantum_ms": quanta, "waited_us": [0] * len(lengths)},
                **{"cpu_us": [round(0.97 * each) for each in used], "looks": 9, "memory_bytes": 1 << 20},
            }
            own = parse(Slices, slices, "slices")
            found[name] = {**record, "end_ns": int(own.own_ns(own.end_ns)), "slices": slices}
        return found


# --- units of each design, as its own code orders them


def unit_of_rounds(clock: Clock, generator: random.Random) -> Callable[[Plan, int, Sequence[Unit]], Record]:
    """Sliced whole runs; the first unit calibrates."""

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Record:
        order, pads = unit_order(plan, done, plan.launch_names, every=len(sliced.groups(plan, done)))
        speed = generator.gauss(0, 0.03)
        records = {}
        for name in order:
            own = factors_of(name)
            shared = {"steady": [speed + generator.gauss(0, 0.01) for _ in range(8)]}
            steps = replicate_records(generator, shared, step_s=0.05 * own.get("step", 1.0))
            records[name] = launch_record(name, generator, factors=own, scale=0.3, replicates=steps)
        seed = f"{seed_of(plan)}/{number}/slices"
        made = Sliced(clock, records, plan, pads)
        made.in_cycles(order, seed) if number else made.whole(order)
        clock.pass_s(REST_S)
        pace = {name: [1.0] for name in order} if number else None
        told = {"seed": seed, "refused": None, "pace": pace, "rehearsal": False, "unsliced": []}
        return {
            "order": order,
            "launches": made.launches(),
            "pages": dict.fromkeys(order, "drawn anew"),
            "slicing": {**told, **({} if number else {"together": 9})},
        }

    return run_unit


def one_by_one(
    clock: Clock, plan: Plan, records: Mapping[str, Record], pads: Mapping[str, int]
) -> dict[str, Record]:
    """Launches one after the other."""
    found = {}
    for name, record in records.items():
        found[name] = clock.placed(record, plan, pads[name], read_role(name).place.name)
        clock.after(found[name])
    return found


def unit_of_causes(clock: Clock, generator: random.Random) -> Callable[[Plan, int, Sequence[Unit]], Record]:
    """The first unit lists the files of the imports."""

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Record:
        order, pads = unit_order(plan, done, plan.launch_names)
        records = {name: causes_record(name, generator) for name in order}
        if not number:
            for one in records.values():
                one["inside"]["results"] = {"listed": {"modules": ["a.pyc"], "libraries": [["b.so", [[0, 2]]]]}}
        return {"order": order, "launches": one_by_one(clock, plan, records, pads)}

    return run_unit


def unit_of_sweep(clock: Clock, generator: random.Random) -> Callable[[Plan, int, Sequence[Unit]], Record]:
    """Every size once, each by a launch of its own."""

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Record:
        order, pads = unit_order(plan, done, [str(batch) for batch in plan.batches or ()])
        order = order[:1] if number < plan.discarded else order
        records = {name: launch_record(HOST, generator, scale=0.3) for name in order}
        return {"order": order, "launches": one_by_one(clock, plan, records, pads)}

    return run_unit


def unit_of_starts(clock: Clock, generator: random.Random) -> Callable[[Plan, int, Sequence[Unit]], Record]:
    """Every environment once from each page cache."""

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Record:
        order, pads = unit_order(plan, done, plan.launch_names)
        launches: dict[str, Record] = {}
        for name in order:
            for phase in plan.spec.phases:
                record = image_cost_builders.start_record(read_role(name).environment, phase, generator)
                record["end_ns"] = record["inside"]["marks"][-1]["at_ns"] + 1000
                launches |= one_by_one(
                    clock, plan, {started(name, phase): record}, {started(name, phase): pads[name]}
                )
        return {"order": list(launches), "launches": launches}

    return run_unit


# --- the folder


def measured(root: Path, clock: Clock, seed: int) -> None:
    """Every campaign of the study, the headline's twice, so that one try is set aside."""
    asked, generator = study(), random.Random(seed)
    provenance = {"images": _images(root), "data": _data(root)}
    setup = Setup(study=asked, workload=WORKLOAD, sites=_sites(), provenance=provenance)
    host = Setup(study=asked, workload=WORKLOAD, sites={HOST: _sites()[HOST]}, provenance=provenance)
    both = list(ENVIRONMENTS)
    designs = [
        (layout.campaign_name("rounds", both), rounds.rounds(setup), unit_of_rounds),
        (layout.campaign_name("rounds", both), rounds.rounds(setup), unit_of_rounds),
        (layout.campaign_name("causes", both), causes.causes(setup), unit_of_causes),
        ("sweep", rounds.sweep(host), unit_of_sweep),
        (layout.campaign_name("starts", both), starts.starts(setup), unit_of_starts),
    ]
    with mock.patch.object(campaign, "time", SimpleNamespace(monotonic=clock.monotonic)):
        for name, design, run in designs:
            own = Design(
                plan=_held(design.plan),
                run_unit=run(clock, generator),
                what=name,
                values=design.values,
                shares=lambda done, plan=design.plan: (
                    len(sliced.groups(plan, done)) if plan.kind == "rounds" else 1
                ),
            )
            campaign.run_campaign(root / layout.campaign_folder(NAME, MACHINE, WORKLOAD, name), own)


def _held(plan: Plan) -> Plan:
    """Whatever this machine allows."""
    return plan.replace(slicing_refused=None, unsliced={}) if plan.kind == "rounds" else plan


def _sites() -> dict[str, Any]:
    fake = site(Fake(Path(os.devnull)))
    return dict.fromkeys((HOST, CONTROL, "docker"), fake)


def _images(root: Path) -> Record:
    found = {}
    for env in ENVIRONMENTS:
        path = root / layout.IMAGES / "torch-2.13" / f"{env}.json"
        record = read_json(path) | {"python": SITES[env], "tree_digest": "sha256:" + "a" * 64}
        write_json(path, record | {"digest": "sha256:" + sha256_text(env)})
        found[env] = {key: read_json(path)[key] for key in ("digest", "bytes", "tree_digest")}
    return found


def _data(root: Path) -> Record:
    record = read_json(root / "results/data/mnist.json")
    return {key: record[key] for key in ("dataset", "files", "rows", "source", "canonical", "choice")}


def profiled(root: Path, clock: Clock, seed: int) -> None:
    """Every profiled launch."""
    generator = random.Random(seed)
    for env in ENVIRONMENTS:
        path = root / layout.profile_record(NAME, MACHINE, WORKLOAD, env)
        record = builders.profile_record(NAME, WORKLOAD, env, path.parent, generator)
        record["inside"]["marks"].sort(key=lambda mark: mark["at_ns"])
        placed = clock.placed(record, env=env)
        clock.after(placed)
        trace = {"trace": "trace.json.gz", "trace_sha256": sha256_file(path.parent / "trace.json.gz")}
        write_json(path, placed | trace)


def described(root: Path) -> None:
    """Records of the machine, of images, data and trial launches."""
    results, shared = root / "results" / NAME, root / "results"
    builders.machine_records(results, shared, ENVIRONMENTS, {})
    builders.data_records(shared, canonical=False)
    path = results / "machines" / MACHINE / "machine.json"
    write_json(path, read_json(path) | {"cpu_logical": os.cpu_count(), "cpu_model": CPU_MODEL})


@contextlib.contextmanager
def inside(root: Path) -> Iterator[None]:
    """As the workflow runs its commands there."""
    with contextlib.chdir(root):
        yield


def tabulated(root: Path) -> None:
    """Tables as the rules have them made."""
    asked = study()
    results = f"results/{NAME}"

    def part(kind: str) -> str:
        return studies.part_of(asked, kind)

    def sealed(name: str) -> str:
        return str(layout.sealed_record(NAME, MACHINE, WORKLOAD, name))

    names = [one.name for one in campaigns.campaigns(asked)]
    profiles = [str(layout.profile_record(NAME, MACHINE, WORKLOAD, env)) for env in ENVIRONMENTS]
    with inside(root):
        _run("tables", "--study", part("tables"), "--campaigns", *map(sealed, names), "--profiles", *profiles,
             "--out", f"{results}/tables")  # fmt: skip
        _run("image-costs", "--study", part("image_costs"), "--images", "results/images",
             "--starts", sealed(layout.campaign_name("starts", ENVIRONMENTS)),
             "--runs", sealed(layout.campaign_name("rounds", ENVIRONMENTS)),
             "--out", f"{results}/tables/image_costs.csv")  # fmt: skip
        _run("audit", "--paper", "nyu2022", "--results", results, "--out", f"{results}/tables")


def reported(root: Path) -> None:
    """Pages as the rules have them written; small stand-ins for the figures."""
    results = f"results/{NAME}"
    if not (root / results / "figures").exists():
        draw(root / results)
    with inside(root):
        _run("report", "--results", results, "--study", json.dumps(study().to_json(), sort_keys=True),
             "--images", "results/images", "--out", f"{results}/report/index.html")  # fmt: skip


def _run(*words: str) -> None:
    status = main(list(words))
    assert status == 0, words


def copied(root: Path, target: Path) -> Path:
    """A copy whose results and configuration may be edited; sources are links, which nothing may write into."""
    for path in root.iterdir():
        if path.is_file():
            shutil.copy(path, target / path.name)
        else:
            own = shutil.copy2 if path.name in ("results", "config") else os.link
            shutil.copytree(path, target / path.name, copy_function=own)
    return target


def listed(root: Path) -> None:
    """The list of members and the crate as the files are now: whoever edits one can list it again."""
    index = index_of(root)
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    members = {name: _member(root / name) for name in names if name not in (INDEX, CRATE)}
    with closure.of_checkout(root):
        programs = closure.programs(sorted(index.programs))
    write_text(root / INDEX, index.replace(members=members, programs=programs).text())
    try:
        with inside(root):
            asked = loading.load_checked(f"config/{NAME}.yaml")
            every = {**members, INDEX: _member(Path(INDEX))}
            text = crate.text(asked, crate.campaigns_of(NAME, [MACHINE]), every)
    except TareError:  # records that can't be read: a forger lists the files again, and no more
        hashed(root)
    else:
        write_text(root / CRATE, text)


def hashed(root: Path) -> None:
    """The crate with the hashes of the files as they are now."""
    found = read_json(root / CRATE)
    graph = []
    for entity in found["@graph"]:
        if "File" in entity["@type"] and (path := root / unquote(entity["@id"])).is_file():
            own = _member(path)
            graph.append(entity | {"contentSize": str(own.bytes), "sha256": own.sha256})
        elif "File" not in entity["@type"]:
            graph.append(entity)
    write_json(root / CRATE, found | {"@graph": graph})


def _member(path: Path) -> Member:
    return Member(sha256=sha256_file(path), bytes=path.stat().st_size)


def stamped(root: Path, word: str | None = None) -> None:
    """The study is stamped before there are data; a word from outside may follow."""
    asked = json.dumps(study().to_json())
    with inside(root):
        _run("plan", "--study", asked, "--stamp")
        if word is not None:
            _run("plan", "--study", asked, "--word", word)


def built(folder: Path, seed: int = 1, word: str | None = None, reference: Path | None = None) -> Path:
    """The study as its archive unpacks, in a folder that has the archive beside it.

    `reference`: folder of a reference campaign that its report shows.
    """
    work, clock = folder / "work", Clock()
    work.mkdir(parents=True)
    described(work)
    stamped(work, word)
    measured(work, clock, seed)
    profiled(work, clock, seed)
    tabulated(work)
    if reference is not None:
        own = layout.REFERENCES / reference.name
        shutil.copytree(reference, work / own)
        with inside(work):
            _run("reference-tables", str(own), "--out", str(layout.REFERENCE_TABLES / reference.name))
    reported(work)
    with inside(work):
        _run("archive", json.dumps(study().to_json()), "--out", f"../{NAME}.zip")
    with opened(folder / f"{NAME}.zip") as root:
        shutil.copytree(root, folder / "study")
    shutil.rmtree(work)
    return folder / "study"
