"""A catalogue of frauds, each planted in a copy of an honest study, and the check of `tare verify` that catches it.

    python tests/frauds.py           prints the tables of docs/frauds.md
    python tests/frauds.py --page    prints docs/planted-frauds.md

A forger works at one of three levels. `as it is`: one thing is changed, and nothing else. `hashes remade`: journal,
seal, ledger and list of members have the hashes of what was changed. `all remade`: besides, tables and pages are
made again of the forged records by the honest commands, so that they agree.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tare import __version__
from tare.core.files import canonical_json, read_json, sha256_file, sha256_text, write_json, write_text
from tare.model.journals.ledger import HASH, LEDGER
from tare.model.journals.sealed import PACKED_UNITS, PLAN, SEAL_KEY, UNITS, read_plan, read_rows
from tare.model.journals.units import counted
from tare.model.registry import HOST
from tare.model.studies.layout import SEALED
from tare.stats.fits import ratios_of

AS_IT_IS, HASHES, ALL = "as it is", "hashes remade", "all remade"
Row = dict[str, Any]


class Study:
    """A copy of an honest study that a forger works on.

    Attributes:
        root: its folder.
        remake: makes tables and pages again, by the honest commands.
        relist: writes the list of members and the crate again.
    """

    def __init__(self, root: Path, remake: Callable[[Path], None], relist: Callable[[Path], None]) -> None:
        self.root, self.remake, self.relist = root, remake, relist
        (self.ledger,) = (root / "results/campaigns").glob(f"*/*/{LEDGER}")
        self.folder = self.ledger.parent
        self.study, self.machine = self.folder.parent.name, self.folder.name
        own = root / "results" / self.study
        self.results = own if own.is_dir() else root / "results"

    def campaign(self, kind: str = "rounds") -> Path:
        """The folder of the headline's campaign of a kind."""
        found = sorted(self.folder.glob(f"*/{kind}.*+*")) or sorted(self.folder.glob(f"*/{kind}*"))
        return min(found, key=lambda path: len(path.name.split(".")))

    def rows(self, folder: Path | None = None) -> list[Row]:
        """Rows of a journal."""
        return [json.loads(line) for line in ((folder or self.campaign()) / UNITS).read_text().splitlines()]

    def units(self) -> list[Row]:
        """Units of the headline's journal that count."""
        return [row for row in self.rows() if "unit" in row and not row["discarded"] and row["voided"] is None]

    def write_rows(self, rows: list[Row], folder: Path | None = None) -> None:
        """Write a journal, whose seal stays as it was."""
        write_text((folder or self.campaign()) / UNITS, "".join(canonical_json(row) + "\n" for row in rows))

    def edit(self, change: Callable[[list[Row]], None], folder: Path | None = None) -> None:
        """Change rows of a journal."""
        rows = self.rows(folder)
        change(rows)
        self.write_rows(rows, folder)

    def edit_plan(self, folder: Path | None = None, **changes: Any) -> None:
        """Change keys of a plan."""
        path = (folder or self.campaign()) / PLAN
        write_json(path, read_json(path) | changes)

    def edit_ledger(self, change: Callable[[list[Row]], list[Row] | None]) -> None:
        """Change rows of the ledger, and chain them again."""
        rows = [json.loads(line) for line in self.ledger.read_text().splitlines()]
        first = rows[0]["before"]
        rows = change(rows) or rows
        self.write_ledger(rows, first)

    def write_ledger(self, rows: list[Row], first: str) -> None:
        """Write a ledger with a chain of hashes that holds."""
        before, lines = first, []
        for row in rows:
            told = {key: value for key, value in row.items() if key != HASH} | {"before": before}
            before = sha256_text(canonical_json(told))
            lines.append(canonical_json({**told, HASH: before}) + "\n")
        write_text(self.ledger, "".join(lines))

    def rehash(self) -> None:
        """Seals and ledger with the hashes, and what follows from them, of plans and journals as they are now."""
        known = {}
        for path in self.folder.rglob(PLAN):
            known |= self._resealed(path.parent)

        def follow(rows: list[Row]) -> None:
            for row in rows:
                told = known.get((row.get("workload"), row.get("campaign"), row.get("plan_sha256")))
                if told is not None:
                    own = {key: told[key] for key in ("plan_sha256", "attempt") if key in row}
                    if row["event"] != "opened":
                        own |= {key: told[key] for key in ("units_sha256", "units", "ratios") if key in row}
                    row.update(own)

        self.edit_ledger(follow)
        self.relist(self.root)

    def _resealed(self, folder: Path) -> dict[tuple[Any, ...], Row]:
        """What a ledger says of a campaign, by what it said of it before."""
        rows = [row for row in self.rows(folder) if SEAL_KEY not in row]
        if not (folder / SEALED).exists():
            return {}
        seal = read_json(folder / SEALED)
        lines = [canonical_json(row) for row in rows if "unit" in row]
        rows.append({SEAL_KEY: sha256_text("[" + ",".join(lines) + "]")})
        self.write_rows(rows, folder)
        plan, units = read_plan(folder / PLAN), read_rows(folder).units
        own = counted(units)
        before = seal["plan_sha256"]
        told = {
            "plan_sha256": sha256_file(folder / PLAN),
            "units_sha256": sha256_file(folder / UNITS),
            "units": len(own),
        }
        summary = {
            "voided": sum(unit.voided is not None for unit in units),
            "machine_s": round(sum(unit.cost_s for unit in units), 3),
            "failures": {name: why for unit in units for name, why in unit.failures.items()},
            "decision": next((row["decision"] for row in rows if "decision" in row), None),
        }
        write_json(folder / SEALED, seal | told | summary)
        campaign = folder.parent if folder.name.startswith("superseded-") else folder
        ratios = {name: one.to_json() for name, one in ratios_of(plan, own).items()}
        key = (campaign.parent.name, campaign.name, before)
        return {key: {**told, "attempt": plan.attempt, "ratios": ratios}}

    def all_remade(self) -> None:
        """Hashes, tables and pages that agree with the records as they are now."""
        self.rehash()
        self.remake(self.root)
        self.relist(self.root)


def made_in(unit: Row) -> dict[str, Row]:
    """Launches that were made in a unit: others have a round of their own."""
    return {name: launch for name, launch in unit["launches"].items() if "spawn_ns" in launch}


def other_than_host(unit: Row) -> str:
    """A launch of a unit that is compared with the host."""
    return next(name for name in unit["order"] if name in made_in(unit) and not name.startswith(HOST))


def moved(launch: Row, by_ns: int) -> Row:
    """A launch with all its instants later."""
    text = json.loads(json.dumps(launch))

    def move(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: move(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [move(one, key) for one in value]
        is_instant = key.endswith("_ns") and isinstance(value, int) and value > 10**9
        return value + by_ns if is_instant else value

    found: Row = move(text)
    return found


def scaled(launch: Row, by: float, *, with_slices: bool) -> Row:
    """A launch all of whose times are longer or shorter, from its start on."""
    first = launch["spawn_ns"]

    def scale(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: scale(one, name) for name, one in value.items() if with_slices or name != "slices"} | (
                {} if with_slices or "slices" not in value else {"slices": value["slices"]}
            )
        if isinstance(value, list):
            return [scale(one, key) for one in value]
        if key.endswith("_ns") and isinstance(value, int) and value > 10**9:
            return first + round((value - first) * by)
        return value

    found: Row = scale(launch)
    return found


# --- what forgers do


def drop_unit(study: Study) -> None:
    last = study.units()[-1]["unit"]
    study.edit(lambda rows: rows.remove(next(row for row in rows if row.get("unit") == last)))


def drop_unit_and_renumber(study: Study) -> None:
    def change(rows: list[Row]) -> None:
        rows.remove(next(row for row in rows if row.get("unit") == 2))
        for number, row in enumerate(row for row in rows if "unit" in row):
            row["unit"] = number

    study.edit(change)


def swap_units(study: Study) -> None:
    def change(rows: list[Row]) -> None:
        one, other = (next(row for row in rows if row.get("unit") == number) for number in (1, 2))
        first, second = copy.deepcopy(one), copy.deepcopy(other)
        one.clear(), other.clear()
        one.update(second | {"unit": 1, "slicing": first["slicing"]})
        other.update(first | {"unit": 2, "slicing": second["slicing"]})

    study.edit(change)


def repeat_unit(study: Study) -> None:
    """The best unit stands in the place of the worst; names, order and paddings are those of its place."""

    def change(rows: list[Row]) -> None:
        units = [row for row in rows if row.get("unit", 0) > 0]
        one, other = next(
            pair for pair in itertools.combinations(units, 2) if made_in(pair[0]).keys() == made_in(pair[1]).keys()
        )
        for name, launch in made_in(other).items():
            by_ns = launch["spawn_ns"] - one["launches"][name]["spawn_ns"]
            kept = {key: launch[key] for key in ("launch", "pad_bytes") if key in launch}
            other["launches"][name] = moved(one["launches"][name], by_ns) | kept

    study.edit(change)


def swap_environments(study: Study) -> None:
    """The launches of an environment are called the host's, and the host's are called its own."""

    def change(rows: list[Row]) -> None:
        for unit in (row for row in rows if "unit" in row):
            launches, name = unit["launches"], other_than_host(unit)
            first, second = launches[HOST], launches[name]
            own, other = ({key: one[key] for key in ("launch", "pad_bytes")} for one in (first, second))
            launches[HOST], launches[name] = second | own, first | other

    study.edit(change)


def repeat_launch(study: Study) -> None:
    """The shorter of two launches of an environment stands in both units, under the name of either."""
    folder = study.campaign("causes")

    def change(rows: list[Row]) -> None:
        one, other = (study_unit(rows, number)["launches"] for number in (1, 2))
        name = other_than_host(study_unit(rows, 1))
        if one[name]["end_ns"] - one[name]["spawn_ns"] > other[name]["end_ns"] - other[name]["spawn_ns"]:
            one, other = other, one
        kept = {key: other[name][key] for key in ("launch", "pad_bytes") if key in other[name]}
        other[name] = moved(one[name], other[name]["spawn_ns"] - one[name]["spawn_ns"]) | kept

    study.edit(change, folder)


def edit_unit(study: Study) -> None:
    """One launch ends earlier than it did."""

    def change(rows: list[Row]) -> None:
        unit = next(row for row in rows if row.get("unit") == 2)
        launch = unit["launches"][other_than_host(unit)]
        launch["end_ns"] -= 5_000_000

    study.edit(change)


def scale_units(study: Study) -> None:
    """All times of the environment that lost are a twentieth shorter."""

    def change(rows: list[Row]) -> None:
        for unit in (row for row in rows if "unit" in row):
            name = other_than_host(unit)
            unit["launches"][name] = scaled(unit["launches"][name], 0.95, with_slices=False)

    study.edit(change)


def void_unit(study: Study) -> None:
    """A unit that told against a wish is void, with a reason; another number of units is planned."""

    def change(rows: list[Row]) -> None:
        next(row for row in rows if row.get("unit") == 2)["voided"] = "the machine slept in the middle of a round"

    study.edit(change)


def hide_failure(study: Study) -> None:
    """A launch is left out of a unit, as where launches do not fit in memory together."""

    def change(rows: list[Row]) -> None:
        unit = study_unit(rows, 3)
        name = other_than_host(unit)
        unit["launches"][name] = {
            **{"status": "skipped", "reason": "left out: this round is of other launches"},
            **{"inside": None, "deviations": []},
        }

    study.edit(change)


def study_unit(rows: list[Row], number: int) -> Row:
    return next(row for row in rows if row.get("unit") == number)


def stop_early(study: Study) -> None:
    """The last units are dropped, and the decision on their number is left out: it stopped when it looked good."""

    def change(rows: list[Row]) -> None:
        numbers = [row["unit"] for row in rows if "unit" in row]
        rows[:] = [row for row in rows if row.get("unit") != numbers[-1] and "decision" not in row]

    study.edit(change)


def edit_decision(study: Study) -> None:
    def change(rows: list[Row]) -> None:
        decision = next(row["decision"] for row in rows if "decision" in row)
        decision["wanted"] += 1
        decision["spread"] = {name: value and value * 1.1 for name, value in decision["spread"].items()}

    study.edit(change)


def edit_seal(study: Study) -> None:
    path = study.campaign() / SEALED
    write_json(path, read_json(path) | {"machine_s": 1.0})


def edit_ledger_row(study: Study) -> None:
    text = study.ledger.read_text()
    write_text(
        study.ledger,
        text.replace('"units":6', '"units":7', 1) if '"units":6' in text else text.replace('"n":', '"n":1', 1),
    )


def rewrite_ledger_row(study: Study) -> None:
    def change(rows: list[Row]) -> None:
        row = next(row for row in rows if row.get("ratios"))
        for ratios in row["ratios"].values():
            ratios["mean"] += 0.01

    study.edit_ledger(change)


def cut_ledger(study: Study) -> None:
    """The last rows are cut off."""
    lines = study.ledger.read_text().splitlines(keepends=True)
    write_text(study.ledger, "".join(lines[:-1]))


def leave_out_of_ledger(study: Study) -> None:
    """A campaign that lies there has no row."""
    name = study.campaign("causes").name
    study.edit_ledger(lambda rows: [row for row in rows if row.get("campaign") != name])


def remove_campaign(study: Study) -> None:
    """A campaign is taken away; its rows stay."""
    shutil.rmtree(study.campaign("sweep"))


def remove_campaign_and_rows(study: Study) -> None:
    """A campaign and its rows are taken away."""
    name = study.campaign("sweep").name
    shutil.rmtree(study.campaign("sweep"))
    study.edit_ledger(lambda rows: [row for row in rows if row.get("campaign") != name])


def hide_attempt(study: Study) -> None:
    """The first try is taken away with its rows."""
    (aside,) = study.folder.glob("*/*/superseded-1")
    sha256 = sha256_file(aside / PLAN)
    shutil.rmtree(aside)
    study.edit_ledger(lambda rows: [row for row in rows if row.get("plan_sha256") != sha256])


def put_back_first_try(study: Study) -> None:
    """The second try is taken away with its rows, and the first is put back in its place."""
    (aside,) = study.folder.glob("*/*/superseded-1")
    campaign = aside.parent
    first, second = sha256_file(aside / PLAN), sha256_file(campaign / PLAN)
    for path in [one for one in campaign.iterdir() if one != aside]:
        path.unlink()
    for path in list(aside.iterdir()):
        path.rename(campaign / path.name)
    aside.rmdir()

    def is_of_the_second(row: Row) -> bool:
        return row.get("plan_sha256") == second or (row.get("plan_sha256"), row["event"]) == (first, "superseded")

    study.edit_ledger(lambda rows: [row for row in rows if not is_of_the_second(row)])


def lower_attempt(study: Study) -> None:
    """The second try says that it is the first, and spends all of alpha."""
    study.edit_plan(attempt=1)


def reuse_seed(study: Study) -> None:
    """One campaign has the seed of another, and its orders."""
    study.edit_plan(study.campaign("causes"), order_seed=read_json(study.campaign() / PLAN)["order_seed"])


def choose_order(study: Study) -> None:
    """Another seed stands in the plan than the one that gave the orders."""
    study.edit_plan(study.campaign("causes"), order_seed="0123456789abcdef")


def follow_seed(study: Study, seed: str | None, *, in_time: bool) -> None:
    """Starts have the orders and paddings that a seed gives; `in_time`: each launch is put where its order has it.

    Without a seed it is one that gives another order.
    """
    from tare.experiments.designs import unit_order
    from tare.model.roles import read_role, started

    folder = study.campaign("starts")
    plan, (unit,) = read_plan(folder / PLAN), [row for row in study.rows(folder) if "unit" in row]
    for number in range(100):
        plan = plan.replace(order_seed=seed or f"{number:016x}")
        order, pads = unit_order(plan, (), plan.launch_names)
        names = [started(name, phase) for name in order for phase in plan.spec.phases]
        if seed is not None or names != unit["order"]:
            break
    study.edit_plan(folder, order_seed=plan.order_seed)

    def change(rows: list[Row]) -> None:
        launches = rows[0]["launches"]
        at = min(launch["spawn_ns"] for launch in launches.values())
        for name in names:
            launches[name]["pad_bytes"] = pads[read_role(name).place.name]
            if in_time:
                launches[name] = moved(launches[name], at - launches[name]["spawn_ns"])
                at = launches[name]["end_ns"] + 1_000_000
        rows[0]["order"] = names

    study.edit(change, folder)


def choose_order_and_follow(study: Study) -> None:
    """Another seed stands in the plan of starts, and units have the orders and the paddings that it gives."""
    follow_seed(study, None, in_time=False)


def reuse_seed_and_follow(study: Study) -> None:
    """Starts have the seed of another campaign, its orders, and times that fit these."""
    follow_seed(study, read_json(study.campaign() / PLAN)["order_seed"], in_time=True)


def reorder_slices(study: Study) -> None:
    """Quanta of a round are others than those that were drawn."""

    def change(rows: list[Row]) -> None:
        for launch in made_in(study_unit(rows, 2)).values():
            launch["slices"]["quantum_ms"] = [40] * len(launch["slices"]["quantum_ms"])

    study.edit(change)


def overlap_units(study: Study) -> None:
    """A unit is said to have been made while the one before it still ran."""

    def change(rows: list[Row]) -> None:
        unit, before = study_unit(rows, 3), study_unit(rows, 2)
        first = min(launch["spawn_ns"] for launch in made_in(unit).values())
        wanted = min(launch["spawn_ns"] for launch in made_in(before).values()) + 1_000_000
        for name, launch in made_in(unit).items():
            unit["launches"][name] = moved(launch, wanted - first)

    study.edit(change)


def turn_clock_back(study: Study) -> None:
    """A phase is shortened by putting a mark before the one that precedes it."""

    def change(rows: list[Row]) -> None:
        unit = study_unit(rows, 2)
        marks = unit["launches"][other_than_host(unit)]["inside"]["marks"]
        marks[2]["at_ns"] = marks[1]["at_ns"] - 1_000_000

    study.edit(change)


def lengthen_steps(study: Study) -> None:
    """The last steps of a launch are later than they were, beyond its last mark."""

    def change(rows: list[Row]) -> None:
        unit = study_unit(rows, 2)
        results = unit["launches"][other_than_host(unit)]["inside"]["results"]
        steps = [results, *results.get("replicates", ())][-1]
        steps["step_ends_ns"] = [at + 60_000_000_000 for at in steps["step_ends_ns"]]

    study.edit(change)


def lower_processor_time(study: Study) -> None:
    """A program is said to have used less of the processor than it did, and its marks still say it."""

    def change(rows: list[Row]) -> None:
        unit = study_unit(rows, 2)
        slices = unit["launches"][other_than_host(unit)]["slices"]
        slices["cpu_us"] = [each // 10 for each in slices["cpu_us"]]

    study.edit(change)


def widen_margin(study: Study) -> None:
    """The margin is widened in the plan, after the data."""
    plan = read_json(study.campaign() / PLAN)
    study.edit_plan(margins={**plan["margins"], "run": 0.5})


def widen_margin_everywhere(study: Study) -> None:
    """The margin is widened in every plan and in each plan's part of the study, and not in the study."""
    for path in study.folder.rglob(PLAN):
        plan = read_json(path)
        margins = {"run": 0.5, "step": 0.02}
        plan |= {"margins": margins} if plan.get("margins") else {}
        plan["part"] |= {"margins": margins} if plan["part"].get("margins") else {}
        write_json(path, plan)


def edit_config(study: Study, change: Callable[[Row], None]) -> None:
    """Change the study's own file."""
    path = study.root / f"config/{study.study}.yaml"
    content = yaml.safe_load(path.read_text())
    change(content)
    write_text(path, yaml.safe_dump(content, allow_unicode=True))


def widen_announced_margin(study: Study) -> None:
    """The margin is widened in the study too; a stamp from before the data has the first one."""
    widen_margin_everywhere(study)
    edit_config(study, lambda content: content["margins"].update(run=0.5))


def drop_announced_campaign(study: Study) -> None:
    """The study no longer asks for a campaign that was measured; a stamp from before the data does."""
    remove_campaign_and_rows(study)
    edit_config(study, lambda content: [one.update(sweep_batches=[]) for one in content["workloads"].values()])


def drop_seed(study: Study) -> None:
    """A plan has no seed of orders, as those of older versions: any order will do."""
    path = study.campaign("sweep") / PLAN
    plan = read_json(path)
    del plan["order_seed"]
    write_json(path, plan)


def add_row(study: Study) -> None:
    """A campaign of another workload lies under this one's name."""
    study.edit_plan(study.campaign("sweep"), workload="sentiment_rnn")


def swap_machine(study: Study) -> None:
    """The machine is described as another one."""
    (path,) = study.results.glob("machines/*/machine.json")
    write_json(path, read_json(path) | {"cpu_model": "Another CPU @ 3.00GHz"})


def swap_kernel(study: Study) -> None:
    """A launch comes from a machine with another kernel."""

    def change(rows: list[Row]) -> None:
        unit = study_unit(rows, 2)
        unit["launches"][other_than_host(unit)]["inside"]["facts"]["kernel"] = "5.4.0-other"

    study.edit(change)


def swap_image(study: Study) -> None:
    """The record of an image is that of another one."""
    path = sorted((study.root / "results/images").rglob("docker.json"))[0]
    write_json(path, read_json(path) | {"digest": "sha256:" + "7" * 64})


def swap_data(study: Study) -> None:
    """The record of a data set lists other files."""
    path = study.root / "results/data/mnist.json"
    record = read_json(path)
    write_json(path, record | {"rows": record["rows"] - 1})


def swap_trace(study: Study) -> None:
    """The trace of a profiled launch is that of another one."""
    one, other = sorted(study.root.glob("results/profiles/*/*/*/*/**/trace.json.gz"))[:2]
    shutil.copy(one, other)


def move_profile(study: Study) -> None:
    """The profiled launch of one environment lies under the name of another."""
    path = sorted(study.root.glob("results/profiles/*/*/*/docker/profile.json"))[0]
    write_json(path, read_json(path) | {"env": "apptainer"})


def edit_source(study: Study) -> None:
    """The worker's source is another program than the one that measured."""
    path = study.root / "tare/worker/train.py"
    write_text(path, path.read_text() + "\nPATCHED = 1\n")


def disown_source(study: Study) -> None:
    """The worker's source is another program, and archive.json says that other programs measured."""
    edit_source(study)
    path = study.root / "archive.json"
    names = [plan.parent.relative_to(study.root).as_posix() for plan in study.folder.rglob(PLAN)]
    write_json(path, read_json(path) | {"remade": sorted(names)})


def edit_judge(study: Study) -> None:
    """The source of what judges is another program than the one that judged, and a verdict is another word."""
    path = study.root / "tare/analysis/verdicts.py"
    write_text(path, path.read_text() + "\nPATCHED = 1\n")
    edit_verdict(study)


def edit_verdict(study: Study) -> None:
    path = study.results / "tables/verdicts.csv"
    word = "equivalent" if ",equivalent," in path.read_text() else "inconclusive"
    write_text(path, path.read_text().replace(f",{word},", ",different,", 1))


def edit_metric(study: Study) -> None:
    path = study.results / "tables/metrics.csv"
    text = path.read_text()
    number = next(match[0] for match in re.finditer(r"\d\.\d{12,}", text))
    write_text(path, text.replace(number, f"{float(number) * 1.001!r}", 1))


def repeat_table_rows(study: Study) -> None:
    """A table has its rows over and over, more than its records can give."""
    path = study.results / "tables/verdicts.csv"
    head, *rows = path.read_text().splitlines(keepends=True)
    write_text(path, head + "".join(rows) * 2000)


def drop_table_row(study: Study) -> None:
    path = study.results / "tables/decisions.csv"
    lines = path.read_text().splitlines(keepends=True)
    write_text(path, "".join(lines[:-1]))


def edit_witness(study: Study) -> None:
    """Behind what the table of the ledger says of a stamp there is more than who holds it."""
    path = study.results / "tables/ledger.csv"
    text = path.read_text()
    assert "held by nothing but this folder, which proves no time" in text
    write_text(path, text.replace("held by nothing but this folder, which proves no time", "held by all reviewers"))


def edit_decisions_json(study: Study) -> None:
    path = study.results / "tables/decisions.json"
    rows = json.loads(path.read_text())
    rows[0]["verdict"] = "equivalent" if rows[0]["verdict"] != "equivalent" else "different"
    write_text(path, json.dumps(rows, indent=1))


def edit_image_costs(study: Study) -> None:
    path = study.results / "tables/image_costs.csv"
    write_text(path, re.sub(r"(\d{6,})\.0", r"\g<1>1.0", path.read_text(), count=1))


def reword_claim(study: Study) -> None:
    """What a paper claims stands there in other words, which hold."""
    path = study.results / "tables/claims.csv"
    text = path.read_text()
    word = next(
        word for word in ("open here", "does not hold here", "not the same question", "holds here") if word in text
    )
    other = "holds here" if word != "holds here" else "does not hold here"
    write_text(path, text.replace(word, other, 1))


def edit_published(study: Study) -> None:
    """A number that a paper published is another one."""
    path = study.results / "tables/published.csv"
    text = path.read_text()
    number = next(match[0] for match in re.finditer(r"(?<=,)\d+\.\d+(?=,)", text))
    write_text(path, text.replace(number, f"{float(number) + 1}", 1))


def edit_paper(study: Study) -> None:
    """A number that a paper published is another one, in the paper's file as well."""
    path = study.root / "config/published/nyu2022.yaml"
    text = path.read_text()
    number = next(match[0] for match in re.finditer(r"\d+\.\d+", text))
    write_text(path, text.replace(number, f"{float(number) + 1}", 1))
    edit_published(study)


def add_table(study: Study) -> None:
    """A table that no record gives lies beside the others."""
    write_text(study.results / "tables/summary.csv", "environment,ratio\ndocker,1.0\n")


def edit_figure(study: Study) -> None:
    """A bar of a figure is longer."""
    path = next(path for path in sorted((study.results / "figures").glob("intervals_*.svg")))
    write_text(path, path.read_text().replace("<desc", "<!-- moved --><desc", 1))


def edit_notebook(study: Study) -> None:
    """A notebook shows another drawing than it drew."""
    path = sorted((study.results / "notebooks").glob("environments.ipynb"))[0]
    write_text(path, path.read_text().replace("<desc", "<!-- moved --><desc", 1))


def edit_page(study: Study) -> None:
    """A number on the answer's page is another one."""
    path = study.results / "report/index.html"
    text = path.read_text()
    at = text.index('<main id="main">')
    number = re.compile(r"\d+\.\d+").search(text, at)
    assert number is not None
    write_text(path, text[: number.start()] + "0.01" + text[number.end() :])


def edit_page_figure(study: Study) -> None:
    """A figure on a page is another one than the file has."""
    path = study.results / "report/index.html"
    write_text(path, path.read_text().replace("</desc>", " (moved)</desc>", 1))


def add_section(study: Study) -> None:
    """A section with another answer is put before the page's own one, which has the same id."""
    path = study.results / "report/index.html"
    text = path.read_text()
    at = re.search(r'<section id="[^"]*"', text)
    assert at is not None
    forged = f"{at[0]}><p>No container costs anything.</p></section>"
    write_text(path, text[: at.start()] + forged + text[at.start() :])


def add_picture(study: Study) -> None:
    """A picture that nothing draws lies beside the pages."""
    write_text(study.results / "report/docker.svg", '<svg xmlns="http://www.w3.org/2000/svg"/>')


def edit_page_of_another_version(study: Study) -> None:
    """A number on the answer's page is another one, and every page says that another version of Tare wrote it."""
    edit_page(study)
    for path in (study.results / "report").glob("*.html"):
        write_text(path, path.read_text().replace(f'content="Tare {__version__}"', 'content="Tare 0.0"'))


def remove_page(study: Study) -> None:
    """A page that tells too much is taken away."""
    (study.results / "report/method.html").unlink()


def add_member(study: Study) -> None:
    write_text(study.root / "results/notes.txt", "measured with care\n")


def add_listed_members(study: Study) -> None:
    """Pages, pictures and tables that show no cost are put where nothing of the study belongs."""
    page = "<p>No container costs anything.</p>"
    for name in (
        "report/more/index.html",
        "tables/more/verdicts.csv",
        "figures/docker.html",
        "on/elsewhere/a.html",
    ):
        write_text(study.results / name, page)
    write_text(study.root / "results/report/index.html", page)  # of the default study


def add_notebook(study: Study) -> None:
    """A page is put next to the notebooks, without one that made it."""
    write_text(study.results / "notebooks/answer.html", "<p>No container costs anything.</p>")


def hide_behind_machine(study: Study) -> None:
    """Honest results are copied to where those of one of several machines would be, and a verdict is edited."""
    for name in ("tables", "report", "figures", "machines", "environments"):
        if (study.results / name).exists():
            shutil.copytree(study.results / name, study.results / "on" / study.machine / name)
    edit_verdict(study)


def add_journal(study: Study) -> None:
    """A journal is packed, and another one lies unpacked next to it, without a unit."""
    path = study.campaign() / UNITS
    text = path.read_bytes()
    path.with_name(PACKED_UNITS).write_bytes(gzip.compress(text))
    path.write_bytes(b"".join(line for line in text.splitlines(keepends=True)[1:]))


def replace_member(study: Study) -> None:
    write_text(study.root / "LICENSE", "nothing of note\n")


def edit_crate(study: Study) -> None:
    """The crate gives a file another hash than it has."""
    path = study.root / "ro-crate-metadata.json"
    found = read_json(path)
    entity = next(one for one in found["@graph"] if one.get("sha256"))
    entity["sha256"] = "0" * 64
    write_json(path, found)


def edit_crate_action(study: Study) -> None:
    """The crate says that launches took other seconds than they did."""
    path = study.root / "ro-crate-metadata.json"
    found = read_json(path)
    entity = next(one for one in found["@graph"] if one.get("propertyID") == "urn:tare:seconds")
    entity["value"] = "1.0"
    write_json(path, found)


def rename_machine(study: Study) -> None:
    """archive.json names another machine than the campaigns' own."""
    path = study.root / "archive.json"
    write_json(path, read_json(path) | {"machines": ["elsewhere"]})


def choose_order_in_time(study: Study) -> None:
    """Starts have an order that was chosen, and times that fit it."""
    follow_seed(study, None, in_time=True)


def choose_word(study: Study) -> None:
    """The word is another one, in the ledger and in every plan; seeds stay."""
    path = study.ledger
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row |= {"word": "chosen"} if row["event"] == "word" else {}
    study.write_ledger(rows, rows[0]["before"])
    for plan in study.folder.rglob(PLAN):
        content = read_json(plan)
        write_json(plan, content | {"word": content["word"] | {"text": "chosen"}})


def forget_word(study: Study) -> None:
    """A campaign is said to have begun without the word, by orders of its own."""
    folder = study.campaign("sweep")
    plan = read_json(folder / PLAN)
    del plan["word"]
    write_json(folder / PLAN, plan)


def _without_word(study: Study) -> Path:
    """A campaign whose plan has no word; its folder."""
    folder = study.campaign("sweep")
    plan = read_json(folder / PLAN)
    del plan["word"]
    write_json(folder / PLAN, plan)
    return folder


def call_adopted(study: Study) -> None:
    """A campaign is said to be taken over from another study, which had another word or none."""
    folder = _without_word(study)
    where = {"study": "elsewhere", "plan_sha256": "0" * 64, "sealed_at": "2026-01-02T03:04:05Z"}
    study.edit_plan(folder, adopted=where)

    def change(rows: list[Row]) -> None:
        row = next(row for row in rows if (row.get("campaign"), row["event"]) == (folder.name, "opened"))
        row["event"] = "adopted"

    study.edit_ledger(change)


def call_found(study: Study) -> None:
    """A campaign is said to have been found on the disk, complete, without a row that it was opened."""
    folder = _without_word(study)

    def change(rows: list[Row]) -> None:
        opened, sealed = (row for row in rows if row.get("campaign") == folder.name)
        sealed["event"] = "found"
        rows.remove(opened)

    study.edit_ledger(change)


def open_before_word(study: Study) -> None:
    """A campaign is said to have been opened before the word was given."""
    folder = _without_word(study)

    def change(rows: list[Row]) -> None:
        row = next(row for row in rows if (row.get("campaign"), row["event"]) == (folder.name, "opened"))
        rows.remove(row)
        rows.insert(next(number for number, one in enumerate(rows) if one["event"] == "word"), row)

    study.edit_ledger(change)


def stamp_elsewhere(study: Study) -> None:
    """The stamp is said to be of another machine, whose name gives other orders."""
    (path,) = (study.folder / "stamps").glob("*.json")
    write_text(path, canonical_json(read_json(path) | {"machine": "elsewhere"}) + "\n")
    sha256 = sha256_file(path)
    other = path.rename(path.with_name(f"{sha256[:16]}.json"))
    assert other.exists()

    def change(rows: list[Row]) -> None:
        for row in rows:
            row |= {"stamp": sha256} if "stamp" in row else {}

    study.edit_ledger(change)


def edit_drawing(study: Study) -> None:
    """A program that writes pages is edited, and a number on a page with it."""
    edit_page(study)
    path = study.root / "tare/report/pages.py"
    write_text(path, path.read_text() + "\nCHANGED = True\n")


def edit_stamp(study: Study) -> None:
    """What was stamped says other margins than it did."""
    path = next(iter(sorted((study.folder / "stamps").glob("*.json"))))
    write_text(path, path.read_text().replace('"run":0.05', '"run":0.5', 1))


def remove_stamp(study: Study) -> None:
    """A stamp is taken away."""
    next(iter(sorted((study.folder / "stamps").glob("*.json")))).unlink()


@dataclass(frozen=True, kw_only=True)
class Fraud:
    """One kind of fraud.

    Attributes:
        what: what the forger does, for people.
        level: how far the forger goes to hide it.
        plant: does it.
        caught: the check that catches it, by name; None where none can.
        why: why none can.
        open: whether the check can only say that it can't be told.
        whole: the study has figures and notebooks as they are drawn: stand-ins do not do.
        worded: a word from outside was given before the study was measured.
    """

    what: str
    level: str
    plant: Callable[[Study], None]
    caught: str | None
    why: str = ""
    open: bool = False
    whole: bool = False
    worded: bool = False

    @property
    def name(self) -> str:
        """For tests: what is done, and how far it is hidden."""
        return f"{self.plant.__name__}-{self.level.replace(' ', '_')}"

    def commit(self, study: Study) -> None:
        """Plant it, and hide it as far as its level goes."""
        self.plant(study)
        if self.level == HASHES:
            study.rehash()
        elif self.level == ALL:
            study.all_remade()
        elif self.plant not in OF_THE_LIST:
            study.relist(study.root)  # whoever edits one file can list it again


OF_THE_LIST = (add_member, replace_member, edit_crate, edit_crate_action)


def _of(what: str, plant: Callable[[Study], None], level: str, caught: str | None, **more: Any) -> Fraud:
    return Fraud(what=what, level=level, plant=plant, caught=caught, **more)


CATALOGUE: tuple[Fraud, ...] = (
    _of("a file is added to an archive", add_member, AS_IT_IS, "members"),
    _of("pages and tables are added where none belong, and listed", add_listed_members, AS_IT_IS, "members"),
    _of("a file of an archive is replaced", replace_member, AS_IT_IS, "members"),
    _of("the list names another machine", rename_machine, AS_IT_IS, "members"),
    _of("the crate says another hash", edit_crate, AS_IT_IS, "crate"),
    _of("the crate says another time of launches", edit_crate_action, AS_IT_IS, "crate"),
    _of("a unit is dropped", drop_unit, AS_IT_IS, "seals"),
    _of("a unit is dropped", drop_unit, ALL, "units"),
    _of("a unit is dropped, those after it are renumbered", drop_unit_and_renumber, ALL, "orders"),
    _of("two units are swapped", swap_units, ALL, "orders"),
    _of("an environment and the host change places", swap_environments, ALL, "images"),
    _of("a unit occurs twice, in the place of another", repeat_unit, ALL, "copies"),
    _of("a launch occurs in two units, under two names", repeat_launch, ALL, "copies"),
    _of("one launch of a unit is edited", edit_unit, AS_IT_IS, "seals"),
    _of("one launch of a unit is edited", edit_unit, ALL, "slices"),
    _of("all times of an environment are scaled", scale_units, ALL, "slices"),
    _of("a unit is declared void afterwards", void_unit, ALL, "units"),
    _of("a launch is left out of a unit", hide_failure, ALL, "units"),
    _of("the campaign stops when it looks good", stop_early, ALL, "units"),
    _of("the decision on the number of units is edited", edit_decision, ALL, "units"),
    _of("a journal is there twice, packed and not", add_journal, AS_IT_IS, "seals"),
    _of("the summary of a seal is edited", edit_seal, AS_IT_IS, "summaries"),
    _of("a row of the ledger is edited", edit_ledger_row, AS_IT_IS, "ledger-chain"),
    _of("a row of the ledger is rewritten, the chain too", rewrite_ledger_row, AS_IT_IS, "ledger-rows"),
    _of("the ledger is cut off at its end", cut_ledger, AS_IT_IS, "ledger-folders"),
    _of("a campaign is left out of the ledger", leave_out_of_ledger, ALL, "ledger-folders"),
    _of("a campaign is taken away", remove_campaign, AS_IT_IS, "ledger-folders"),
    _of("a campaign is taken away with its rows of the ledger", remove_campaign_and_rows, ALL, "study"),
    _of("an earlier try is taken away with its rows of the ledger", hide_attempt, ALL, "ledger-rows"),
    _of("a second try is called the first", lower_attempt, ALL, "ledger-rows"),
    _of("a campaign has the seed of another", reuse_seed, ALL, "seeds"),
    _of(
        "a campaign has the seed of another, and orders and times that fit it", reuse_seed_and_follow, ALL, "seeds"
    ),
    _of("an order is chosen afterwards: the plan has another seed", choose_order, ALL, "orders"),
    _of("a plan has no seed, as those of older versions", drop_seed, ALL, "orders", open=True),
    _of("an order is chosen afterwards: units follow the other seed", choose_order_and_follow, ALL, "instants"),
    _of("quanta of a sliced round are edited", reorder_slices, ALL, "quanta"),
    _of("two units are said to have been made at once", overlap_units, ALL, "instants"),
    _of("a mark is put before the one before it", turn_clock_back, ALL, "marks"),
    _of("steps are put behind the last mark", lengthen_steps, ALL, "marks"),
    _of("processor time in slices is lowered", lower_processor_time, ALL, "slices"),
    _of("a margin is widened in one plan", widen_margin, HASHES, "study"),
    _of("a margin is widened in every plan", widen_margin_everywhere, HASHES, "study"),
    _of("a campaign has another workload's name", add_row, HASHES, "study"),
    _of("a margin is widened in study and plans, not in a stamp", widen_announced_margin, ALL, "stamps", open=True),
    _of("the study drops a campaign that a stamp announced", drop_announced_campaign, ALL, "stamps", open=True),
    _of("the machine is described as another", swap_machine, ALL, "machine"),
    _of("a launch comes from another kernel", swap_kernel, ALL, "machine"),
    _of("the record of an image is another's", swap_image, ALL, "images"),
    _of("the record of a data set is another's", swap_data, ALL, "data"),
    _of("the trace of a profiled launch is another's", swap_trace, AS_IT_IS, "profiles"),
    _of("a profiled launch has another environment's name", move_profile, AS_IT_IS, "profiles"),
    _of("a program that measured is edited", edit_source, AS_IT_IS, "code"),
    _of("a program that measured is edited, and disowned", disown_source, AS_IT_IS, "code", open=True),
    _of("a program that judges is edited, and a verdict with it", edit_judge, AS_IT_IS, "tables", open=True),
    _of("a verdict is edited", edit_verdict, AS_IT_IS, "tables"),
    _of("a number of a table is edited", edit_metric, AS_IT_IS, "tables"),
    _of("a verdict is edited, honest results are put elsewhere", hide_behind_machine, AS_IT_IS, "tables"),
    _of("rows of a table are repeated thousands of times", repeat_table_rows, AS_IT_IS, "tables"),
    _of("a row of a table is taken out", drop_table_row, AS_IT_IS, "tables"),
    _of("a table is added", add_table, AS_IT_IS, "tables"),
    _of("who holds a stamp is said in other words", edit_witness, AS_IT_IS, "tables"),
    _of("the decisions are edited in their second form", edit_decisions_json, AS_IT_IS, "tables"),
    _of("what an image costs is edited", edit_image_costs, AS_IT_IS, "costs"),
    _of("the answer to a claim is reworded", reword_claim, AS_IT_IS, "claims"),
    _of("a published number is edited", edit_published, AS_IT_IS, "claims"),
    _of("a published number is edited, in the paper's file too", edit_paper, AS_IT_IS, "claims", open=True),
    _of("a picture is edited", edit_figure, AS_IT_IS, "figures", whole=True),
    _of("a page is put next to the notebooks", add_notebook, AS_IT_IS, "figures", whole=True),
    _of("a notebook is edited", edit_notebook, AS_IT_IS, "figures", whole=True),
    _of("a number on a page is edited", edit_page, AS_IT_IS, "pages"),
    _of("a picture on a page is edited", edit_page_figure, AS_IT_IS, "pages"),
    _of("a section of a page is there twice, and the first is forged", add_section, AS_IT_IS, "pages"),
    _of("a picture is put next to the pages", add_picture, AS_IT_IS, "pages"),
    _of(
        "a page says that another version wrote it, and a number is edited",
        edit_page_of_another_version,
        AS_IT_IS,
        "pages",
        open=True,
    ),
    _of(
        "a number on a page is edited, and a program that writes pages", edit_drawing, AS_IT_IS, "pages", open=True
    ),
    _of("a page is taken away", remove_page, AS_IT_IS, "pages"),
    _of("an order is chosen though a word was given", choose_order_in_time, ALL, "words", worded=True),
    _of("the word from outside is another one", choose_word, ALL, "words", worded=True),
    _of("a campaign forgets the word", forget_word, ALL, "words", worded=True),
    _of("a campaign is said to come from another study, without the word", call_adopted, ALL, "words", worded=True),
    _of("no row says when a campaign began", call_found, ALL, "words", open=True, worded=True),
    _of("a campaign is said to have begun before the word", open_before_word, ALL, "words", open=True, worded=True),
    _of("the stamp is that of another machine", stamp_elsewhere, ALL, "stamps"),
    _of("a stamp is edited", edit_stamp, ALL, "stamps"),
    _of("a stamp is taken away", remove_stamp, ALL, "stamps"),
)

# What no check can find, with the reason; the first is found where a hash was kept elsewhere (`held`).
UNDETECTABLE: Mapping[str, str] = {
    "the whole chain is made again with other data": (
        "all of it is consistent; `--held` finds it with a hash that was kept after the data, in a signed tag or "
        "by a reviewer"
    ),
    "a later try is removed with its rows, and the try before it is restored": (
        "the folder is as it was before; `--held` finds it with the hash of a later row"
    ),
    "records that neither the ledger nor a launch repeats are edited: profiled launches, ceilings, the machine, "
    "builds, copies of the tree, answers of `tare optimise`": (
        "the archive's SHA-256 shows it if that was kept elsewhere"
    ),
    "a launch that succeeded is recorded as failed, all its times are scaled without leaving a gap, or its steps, "
    "losses, memory and page faults are edited within its marks": (
        "it might be so; only a hash that was kept elsewhere shows it"
    ),
    "someone makes rounds void while they run, or loads the machine while one environment runs": (
        "whoever owns the machine can do this; the report counts void rounds and others' use of processors"
    ),
    "the dates in ledger, seals and stamps are false": (
        "they come from the machine's clock; a stamp that was kept elsewhere and a word from outside have other "
        "dates"
    ),
    "a program invents the records by the honest designs": (
        "no number proves its origin; `tare rerun` measures again elsewhere"
    ),
    "the study is run many times in other folders, and the most pleasing run is archived": (
        "each folder has its own ledger; a stamp that was published before the first run names one"
    ),
    "an order is chosen afterwards, or its seed was drawn until the order pleased, and no word was given": (
        "seed, orders and times agree; a word from outside leaves no choice"
    ),
    "the table of the ledger says that a tag, a note or a proof holds a stamp, and none does": (
        "a folder can't be asked for it; `tables` repeats each such statement, for whoever can look there"
    ),
    "a number of a table is changed by less than its column's tolerance": (
        "rounding by other libraries could cause it; archive.json has the hash of the original table"
    ),
}

# Checks that find no planted fraud which no other check finds, each with the reason.
REDUNDANT: Mapping[str, str] = {
    "ledger-chain": "nothing is read from a broken chain, so `stamps` finds no row for its stamp",
    "seals": "the ledger lists the same hashes; `seals` finds edits if a study has no ledger",
    "held": "it needs a hash from elsewhere; a test shows that it finds a chain that was made again",
    "installed": "it lists programs that differ, and finds no fraud",
    "references": "studies of the catalogue show none; tests of one that does show that it finds edits",
    "machines": "it needs several machines; tests of their table show that it finds an edit",
    "figures": "tests that run whole studies show that it finds edited figures and notebooks",
}


def checks_table() -> str:
    """The table of checks of docs/frauds.md, with the number of planted frauds that each has to find."""
    from tare.archive.checks import CHECKS

    planted = Counter(one.caught for one in CATALOGUE)
    lines = ["| check | true if it passes | planted |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| `{one.name}` | {one.proves} | {planted[one.name]} |" for one in CHECKS)])


def open_table() -> str:
    """The table of what can't be found."""
    lines = ["| fraud | why no check finds it |", "| --- | --- |"]
    lines += [f"| {what} | {why} |" for what, why in UNDETECTABLE.items()]
    return "\n".join(lines)


# Why a check can say no more than *not checked*: an honest study can look the same.
UNDECIDED: Mapping[Callable[[Study], None], str] = {
    drop_seed: "plans of earlier versions have no seed",
    widen_announced_margin: "a study may be changed after its stamp, for a reason that no record has",
    drop_announced_campaign: "a study may be changed after its stamp, for a reason that no record has",
    disown_source: "a program may be changed after a campaign; its plan has only the hash of the earlier one",
    edit_judge: "another version may judge otherwise; the release that the report names decides it",
    edit_paper: "the file of a paper may have been corrected",
    edit_page_of_another_version: "another version writes other pages; the release that the page names decides it",
    edit_drawing: "another version writes other pages; the release that the report names decides it",
    call_found: "a ledger that was lost has no such row either",
    open_before_word: "a campaign may begin between stamp and word; `--held` decides it by the hash of its row",
}


def planted_page() -> str:
    """docs/planted-frauds.md."""
    lines = [
        *("# Planted frauds", ""),
        "`python tests/frauds.py --page` writes this page. The tests plant each fraud in a copy of an honest",
        "study. The [check](frauds.md) in its row has to report it. A forger edits a file *as it is*, remakes the",
        "*hashes* that depend on it, or remakes *all* tables and pages too.",
        *("", "| fraud | hidden | check | result |", "| --- | --- | --- | --- |"),
    ]
    for one in CATALOGUE:
        result = f"not checked: {UNDECIDED[one.plant]}" if one.open else "failed"
        lines.append(f"| {one.what} | {one.level} | `{one.caught}` | {result} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="print docs/planted-frauds.md instead")
    print(planted_page() if parser.parse_args().page else "\n\n".join([checks_table(), open_table()]), end="\n")
