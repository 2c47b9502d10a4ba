"""The fault campaign: runs of a small study are disturbed, and the next run has to make good what they left.

    make faults MINUTES=120                                          the same as the next line, with what tests need
    .venv/bin/python benchmarks/faults.py --minutes 120              goes on where the last call ended
    .venv/bin/python benchmarks/faults.py --kinds kill full_disk --minutes 30
    .venv/bin/python benchmarks/faults.py --kept --minutes 60        goes on with what benchmarks/faults.json has
    .venv/bin/python benchmarks/faults.py --list                     what would be tried; nothing is started
    .venv/bin/python benchmarks/faults.py --publish                  benchmarks/faults.json, page faults.md of docs/

A trial copies a folder of results in which one stage of the study is missing, and starts `make` on the rest. It
disturbs the run at a random moment of that stage, and waits until nothing of it runs. Then the same command is
given again, as a user would (after `snakemake --unlock` where the documentation says so). It looks at five things:

    finished   the next run ended with status 0
    units      every unit is in its campaign once, units from before the fault are still there, nothing was
               set aside, and the ledger has each campaign once
    tables     equal those of an undisturbed run, but for timings (tests/equal_tables.py says what that is)
    left       processes, stopped tasks, mounts, control groups, containers, folders and half files of the trial
    recorded   launches that failed since their own process was disturbed: Tare records them as failed, which is
               right; rows of their campaigns are then compared by their presence alone

Kinds of faults (KINDS): `kill`, 100 times in all: SIGKILL of a random process of the chain, or of all of it.
`full_disk`, `read_only`: disks of the trial alone, in a mount namespace (needs root). `memory`: the limit of a
control group (needs root). `hang`: a process is stopped for good, and the run interrupted. `network`: a download
from a bad server. `journal`: cut in its last row, read, and gone on with. `two_runs`: at once, in one folder and in
two. `clock`: steps of an hour, by faulting/wall_clock.c for programs (which needs gcc), and by times of files; the
machine's own clock is left alone. `leftovers`: of an earlier crash.

What a machine can't try, or what ended before it could be disturbed, is a row with its reason; the next call tries
it again. Images are those of the cache, which trials share: none is built. Each trial is a row of
results/benchmarks/<machine>/faults.jsonl, so that an interrupted campaign goes on.
results/benchmarks/<machine>/faults.json, made from all rows whenever a call ends, holds

    schema, seed, study
    undisturbed_s, loose   by environment: of the whole study; what differs between undisturbed runs
    trials   list of {kind, where, environment, number, at, cpu, kernel, commit, disturbed (what was done to whom),
             status (of the disturbed run), seconds, tries (of the next run), finished, units, tables (None: not
             looked at), recorded (by campaign), left, problems, reason (why it was not tried)}
    repeated rows of trials that were made again, since something was wrong (--again)
    counts   of all trials that are planned, list of {kind, where, planned, tried, finished, units, tables ([good,
             looked at]), recorded, left, reason}
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks/faulting"), str(ROOT / "benchmarks"), str(ROOT / "tests"), str(ROOT)]

import equal_tables  # noqa: E402
import faults_page  # noqa: E402
import injecting  # noqa: E402
from fault_runs import LAUNCHING, STAGES, Pool, Record, commit, end_all, study_of  # noqa: E402
from fault_trials import RECORDED, SEED, Case, Trial  # noqa: E402

from tare.core.errors import TareError, UserError  # noqa: E402
from tare.core.files import Journal, read_json, write_json, write_text  # noqa: E402
from tare.core.machine_lock import alone_on_this_machine  # noqa: E402
from tare.machine.facts import machine_name  # noqa: E402
from tare.model.studies.layout import benchmark_record  # noqa: E402

SCHEMA = 1
KEPT = ROOT / "benchmarks/faults.json"
PAGE = ROOT / "docs" / "faults.md"
ENVIRONMENTS = ("apptainer", "docker")
TURNS = ("apptainer", "apptainer", "apptainer", "docker")  # a trial with Docker waits for the end of its daemon
KILLS = 100
# Kinds with the places where each is tried; of kills `kill_cases` says them.
PLACES = {
    "kill": (),
    "full_disk": tuple(STAGES),
    "read_only": ("all results", "campaigns", "tables"),
    "memory": LAUNCHING,
    "hang": tuple(f"{part} of {stage}" for stage in LAUNCHING for part in ("client", "worker", "command")),
    "network": ("missing", "mute", "short", "stall", "drop", "other", "moved"),
    "journal": ("units, read after every cut", "ledger, read after every cut", "the seal", "the last unit"),
    "two_runs": ("one folder", "two folders"),
    "clock": tuple(f"{way}, {what}" for what in ("programs", "files") for way in ("forwards", "backwards")),
    "leftovers": ("a stopped process and its folder", "launches without a guard"),
}
KINDS = tuple(PLACES)


def cases(kinds: Sequence[str], environments: Sequence[str], kills: int = KILLS) -> list[Case]:
    """All trials in the order in which they are made: kinds in turn, kills between all others."""
    first = next(name for name in TURNS if name in environments)
    rows = [[Case(kind=kind, where=where, environment=first) for where in PLACES[kind]] for kind in kinds]
    others = [case for row in itertools.zip_longest(*rows) for case in row if case is not None]
    killed = [case for case in kill_cases(kills) if "kill" in kinds and case.environment in environments]
    at = {id(case): (number + 0.5) / len(row) for row in (others, killed) for number, case in enumerate(row)}
    return sorted([*others, *killed], key=lambda case: at[id(case)])


def kill_cases(count: int) -> list[Case]:
    """Each part of the chain in each stage, and all of it, over and over, in random orders."""
    places = [
        (stage, part)
        for stage in STAGES
        for part in (*injecting.ROLES, injecting.ALL)
        if part not in RECORDED or stage in LAUNCHING
    ]
    chance = random.Random(SEED)
    found: list[Case] = []
    for number in itertools.count():
        for stage, part in chance.sample(places, len(places)):
            if len(found) == count:
                return found
            environment = "docker" if part == "daemon" else TURNS[len(found) % len(TURNS)]
            found.append(Case(kind="kill", where=f"{part} of {stage}", environment=environment, number=number))
    raise AssertionError("unreachable")


def key_of(row: Record) -> tuple[str, str, str, int]:
    """Of which case a row is."""
    return row["kind"], row["where"], row["environment"], row["number"]


def remaining(rows: Sequence[Record], wanted: Sequence[Case]) -> list[Case]:
    """Trials that have no row yet."""
    done = set(map(key_of, rows))
    return [case for case in wanted if case.key not in done]


def latest(rows: Sequence[Record]) -> list[Record]:
    """Of each case its last row."""
    return list({key_of(row): row for row in rows}.values())


def counts(rows: Sequence[Record], planned: Sequence[Case]) -> list[Record]:
    """What came of the trials that are planned, and what has not run, by kind and place; of kills by part of the
    chain, whatever the stage.
    """
    found: dict[tuple[str, str], list[Record]] = {}
    for row in rows:
        found.setdefault(_place(row["kind"], row["where"]), []).append(row)
    wanted = Counter(_place(case.kind, case.where) for case in planned)
    order = [*(("kill", part) for part in (*injecting.ROLES, injecting.ALL))]
    order += [(kind, where) for kind in KINDS for where in PLACES[kind]]
    return [
        {
            **{"kind": kind, "where": where, "planned": wanted[kind, where]},
            "tried": sum(row["reason"] is None for row in own),
            **{name: _good(own, name) for name in ("finished", "units", "tables")},
            "recorded": sum(bool(row["recorded"]) for row in own),
            "left": sum(bool(row["left"]) for row in own),
            "reason": next((row["reason"] for row in own if row["reason"] is not None), None),
        }
        for kind, where in order
        if (own := found.get((kind, where), [])) or wanted[kind, where]
    ]


def _place(kind: str, where: str) -> tuple[str, str]:
    return kind, where.partition(" of ")[0] if kind == "kill" else where


def _good(rows: Sequence[Record], name: str) -> list[int] | None:
    """How many of those that were looked at were good; None where nobody looked."""
    seen = [row[name] for row in rows if row["reason"] is None and row[name] is not None]
    return [sum(seen), len(seen)] if seen else None


def is_bad(row: Record) -> bool:
    """Whether anything was not as it has to be."""
    return bool(row["problems"] or row["left"])


def result(every: Sequence[Record], pools: Mapping[str, Record]) -> Record:
    """What the JSON holds. `every`: rows of the journal, whose last of each case counts."""
    rows = latest(every)
    return {
        **{"schema": SCHEMA, "seed": SEED, "study": study_of("<environment>")},
        "undisturbed_s": {name: one["undisturbed_s"] for name, one in pools.items()},
        "loose": {name: one["loose"] for name, one in pools.items()},
        "trials": rows,
        "repeated": [row for row in every if is_bad(row) and row not in rows],
        "counts": counts(rows, cases(KINDS, ENVIRONMENTS)),
    }


def about(folder: Path) -> dict[str, Record]:
    """What is known of the undisturbed runs, by environment."""
    found = {}
    for pool in (Pool(folder / name, name) for name in ENVIRONMENTS):
        if pool.record.exists():
            loose = equal_tables.loose_of(pool.references()).lines()
            found[pool.environment] = {**read_json(pool.record), "loose": loose}
    return found


def take(arguments: argparse.Namespace, wanted: Sequence[Case], rows: list[Record], journal: Journal) -> None:
    """Make trials as long as the minutes last, which do not include the undisturbed runs."""
    until = time.monotonic() + 60 * arguments.minutes
    pools: dict[str, Pool] = {}
    try:
        for number, case in enumerate(wanted, start=1):
            if case.environment not in pools:
                began = time.monotonic()
                pool = pools[case.environment] = Pool(
                    arguments.out.with_suffix("") / case.environment, case.environment
                )
                if arguments.fresh:
                    shutil.rmtree(pool.home, ignore_errors=True)
                if not pool.record.exists():
                    say(f"undisturbed runs in {case.environment}, once: some 15 minutes")
                pool.prepare()
                until += time.monotonic() - began
                if pool.about["commit"] != commit():
                    say(f"{pool.home} is of commit {pool.about['commit']}: --fresh makes it of this one")
            if time.monotonic() > until:
                say(f"{len(wanted) - number + 1} trials are left")
                return
            row = Trial(pools[case.environment], case).row()
            rows.append(row)
            journal.append({"schema": SCHEMA, **row})
            problems = "; ".join([*row["problems"], *row["left"]]).replace("\n", " ")[:400]
            came = f"not tried: {row['reason']}" if row["reason"] else problems or "good"
            where = f"{case.kind}, {case.where}, {case.environment}"
            say(f"[{number}/{len(wanted)}] {where}, {row['seconds']:.0f} s: {came}")
    finally:
        for pool in pools.values():  # also where a person interrupts it
            end_all(pool.runs)


def say(line: str) -> None:
    """A line for whoever waits."""
    print(line, file=sys.stderr, flush=True)


def kept_rows() -> list[Record]:
    """Trials of the JSON that is kept, those first that were made again."""
    found = read_json(KEPT) if KEPT.exists() else {}
    return [*found["repeated"], *found["trials"]] if found.get("schema") == SCHEMA else []


def publish(made: Path) -> None:
    """Write the JSON that is kept, and the page from it.

    Raises:
        UserError: nothing was measured.
    """
    if not made.exists():
        raise UserError(f"{made} is not there: run the campaign first")
    found = json.loads(made.read_text(encoding="utf-8").replace(f"{ROOT}/", ""))  # paths of this checkout
    if KEPT.exists():  # what a person has to know of rows that it may hold still
        found["remarks"] = read_json(KEPT).get("remarks", [])
    write_json(KEPT, found)
    write_text(PAGE, faults_page.page(found))
    say(f"{PAGE} is written; a page that is new belongs into mkdocs.yml, and into `generated` of tests/style.yaml")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="no trial begins after them; the undisturbed runs come on top"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of faults; all by default")
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--kills", type=int, default=KILLS, help="trials of the kind kill in all")
    made = ROOT / benchmark_record(machine_name(), "faults")
    parser.add_argument("--out", type=Path, default=made, help="the JSON; next to it are its journal and folder")
    parser.add_argument("--list", action="store_true", help="print the trials that are left, and start nothing")
    parser.add_argument("--again", action="store_true", help="repeat those, too, in which something was wrong")
    parser.add_argument("--fresh", action="store_true", help="repeat the undisturbed runs, at this commit")
    parser.add_argument("--kept", action="store_true", help=f"take over the trials of {KEPT.name}")
    parser.add_argument("--publish", action="store_true", help=f"write {KEPT.name} of this folder and the page")
    arguments = parser.parse_args()
    if arguments.minutes <= 0 or arguments.kills < 0:
        parser.error("--minutes has to be more than 0, and --kills at least 0")
    return arguments


def main() -> int:
    """Make what is missing as long as the minutes last, then write what all of it gave."""
    arguments = parsed()
    if arguments.publish:
        publish(arguments.out)
        return 0
    journal = Journal(arguments.out.with_suffix(".jsonl"))
    rows = [row for row in journal.read() if row.pop("schema", None) == SCHEMA]
    if arguments.kept and not rows:
        rows = kept_rows()
        for row in rows:
            journal.append({"schema": SCHEMA, **row})
    seen = [row for row in latest(rows) if row["reason"] is None and not (arguments.again and is_bad(row))]
    wanted = remaining(seen, cases(arguments.kinds, arguments.environments, arguments.kills))
    if arguments.list:
        print(*(f"{case.kind}: {case.where} ({case.environment})" for case in wanted), sep="\n")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends what it started then, too
    with alone_on_this_machine():
        try:
            take(arguments, wanted, rows, journal)
        finally:
            if rows:
                write_json(arguments.out, result(rows, about(arguments.out.with_suffix(""))))
    return int(any(map(is_bad, latest(rows))))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TareError as error:
        print(f"faults: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
