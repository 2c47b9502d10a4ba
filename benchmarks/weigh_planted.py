"""Causes that are planted in real containers: does `tare weigh` name them, and nothing where there is none?

    .venv/bin/python benchmarks/weigh_planted.py [--only NAME …] [--minutes 3] [--publish]

Each case of tests/weigh_jobs.py is a pair of environments and a job. In PLANTED one thing differs, which makes
the job slower; in CLEAN nothing differs that matters to it. Each is weighed by the command that a user types. A
planted cause is found where it is confirmed by its name, and no other is. All of the difference was planted: its
share holds where what the change gained is what the environment cost in the same rounds, within the intervals of
both. A clean pair is passed where no cause is confirmed. A case that this machine can't make is neither, and
`passed` is null.

Results are kept case by case in results/benchmarks/<machine>/weigh_planted.json, so that an interrupted benchmark
goes on; `--again` weighs cases that are there already. `--publish` copies the file to benchmarks/. It holds

    cpu, kernel
    cases   by name: {cause, at, minutes, whole: [ratio, low, high], verdict, control: [ratio, low, high],
            confirmed: names, share, share_holds, findings: {cause: finding}, passed, reason}
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from weigh_jobs import CLEAN, INSIDE, PLANTED, Planted  # noqa: E402

from tare.core.arguments import status_of  # noqa: E402
from tare.core.errors import UnavailableError, UserError  # noqa: E402
from tare.core.files import read_json, write_json  # noqa: E402
from tare.core.process import run  # noqa: E402
from tare.images import build  # noqa: E402
from tare.machine.facts import describe, machine_name  # noqa: E402
from tare.model.registry import environment  # noqa: E402
from tare.model.schema import read  # noqa: E402
from tare.model.studies.layout import benchmark_record  # noqa: E402
from tare.model.words import nearest  # noqa: E402
from tare.weigh.answer import Answer, CauseFound, Ratio  # noqa: E402
from tare.weigh.session import ANSWER  # noqa: E402

STACK = "torch-2.13"
CASES: Mapping[str, Planted] = {**PLANTED, **CLEAN}
KEPT = ROOT / "benchmarks/weigh_planted.json"
LAST_LINES = 3
GENERIC = "tare-generic-blas:latest"


@contextlib.contextmanager
def images(*, generic: bool) -> Iterator[dict[str, str]]:
    """Docker's image of the stack, the .sif and the unpacked one, while Docker's daemon runs.

    `generic`: also an image with the distribution's own Python and NumPy, which computes with the reference BLAS.

    Raises:
        UnavailableError: one can't be had here.
    """
    stack = build.build(STACK, "cpu")
    names = {"image": "docker", "sif": "apptainer", "unpacked": "charliecloud"}
    with environment("docker").session():
        found = {key: str(build.ensure(build.derive(stack, name)).reference) for key, name in names.items()}
        yield {**found, "generic": generic_image() if generic else ""}


def generic_image() -> str:
    """Docker's image with the distribution's Python at the path of the stack's.

    Raises:
        UnavailableError: its packages, or the image, can't be had here.
    """
    docker, release = environment("docker").environment_variables(), platform.freedesktop_os_release()
    link = f"mkdir -p $1{Path(INSIDE).parent} && ln -s /usr/bin/python3 $1{INSIDE}"
    with tempfile.TemporaryDirectory(prefix="tare-planted-") as folder:
        packed = f"{folder}/generic.tar"
        made = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-numpy"]
        steps = (
            [*made, f"--customize-hook={link}", release["VERSION_CODENAME"], packed],
            ["docker", "import", packed, GENERIC],
        )
        for words in steps:
            ended = run(words, timeout_s=600.0, env={**os.environ, **docker})
            if not ended.ok:
                raise UnavailableError(f"the image of the distribution's NumPy: {ended.explain()}")
    return GENERIC


def weighed(case: Planted, folder: Path, found: Mapping[str, str], minutes: float) -> Answer:
    """The answer of one case, whose job is in a folder.

    Raises:
        UnavailableError: the command failed.
    """
    words = [sys.executable, "-m", "tare", "weigh", f"--minutes={minutes}", f"--out={folder / 'results'}"]
    environment_ = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [*words, *case.arguments(folder, found)]
    done = subprocess.run(arguments, cwd=folder, env=environment_, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(" | ".join(done.stderr.strip().splitlines()[-LAST_LINES:]))
    return read(Answer, folder / "results" / ANSWER)


def judged(case: Planted, answer: Answer) -> dict[str, Any]:
    """What an answer says of what was planted."""
    (one,) = answer.environments
    confirmed = [each for each in one.causes if each.finding == "confirmed"]
    row: dict[str, Any] = {
        "cause": case.cause,
        "minutes": answer.minutes,
        "whole": with_interval(one.run),
        "verdict": one.verdict,
        "control": with_interval(answer.control),
        "confirmed": [each.cause for each in confirmed],
        "findings": {each.cause: each.finding for each in one.causes},
        "reason": one.reason,
    }
    own = next((each for each in confirmed if each.cause == case.cause), None)
    if own is not None and (whole := own.without or one.run) is not None:
        row |= {"share": own.share, "share_holds": share_holds(whole, own)}
    passed = row["confirmed"] == ([case.cause] if case.cause else []) and one.status == "weighed"
    return row | {"passed": passed and row.get("share_holds", True)}


def with_interval(ratio: Ratio | None) -> list[float | None] | None:
    """A ratio with its interval."""
    return None if ratio is None else [ratio.ratio, ratio.low, ratio.high]


def share_holds(whole: Ratio, cause: CauseFound) -> bool:
    """Whether the change may have taken away the whole difference."""
    assert cause.gained is not None
    if whole.log.mean_low_high is None or cause.gained.log.mean_low_high is None:
        return False
    half = math.hypot(whole.log.width / 2, cause.gained.log.width / 2)
    return abs(math.log(whole.ratio) + math.log(cause.gained.ratio)) <= half


def measure(name: str, found: Mapping[str, str], minutes: float) -> dict[str, Any]:
    """One case; one that can't be weighed says why."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with tempfile.TemporaryDirectory(prefix="tare-planted-") as folder:
        try:
            row = judged(CASES[name], weighed(CASES[name], Path(folder), found, minutes))
        except UnavailableError as error:
            row = {"cause": CASES[name].cause, "passed": None, "reason": str(error)}
        finally:
            CASES[name].restore(Path(folder))
    return {"at": at, **row}


def line(name: str, row: Mapping[str, Any]) -> str:
    """A case in a line."""
    confirmed = ", ".join(row.get("confirmed", ())) or "nothing"
    whole = f"{row['whole'][0]:.2f} times as long" if row.get("whole") else row["reason"]
    share = f", {100 * row['share']:.0f}% of the difference" if row.get("share") is not None else ""
    mark = {True: "passed", False: "MISSED", None: "not here"}[row["passed"]]
    return f"{mark}  {name}: {whole}; confirmed: {confirmed}{share}"


def main() -> int:
    """Weigh what is missing; 1 where a case is missed."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases (default: all)")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each case (default 3)")
    parser.add_argument("--again", action="store_true", help="weigh cases that are there already")
    parser.add_argument("--publish", action="store_true", help=f"copy the results to {KEPT.relative_to(ROOT)}")
    arguments = parser.parse_args()
    names = list(arguments.only or CASES)
    for name in names:
        if name not in CASES:
            raise UserError(f"--only {name!r}: {nearest(name, CASES)}")
    path = ROOT / benchmark_record(machine_name(), "weigh_planted")
    cases: dict[str, Any] = read_json(path)["cases"] if path.exists() else {}
    missing = [name for name in names if arguments.again or name not in cases]
    if missing:
        with images(generic=any("{generic}" in CASES[name].environment for name in missing)) as found:
            for name in missing:
                cases[name] = measure(name, found, arguments.minutes)
                facts = {"cpu": describe()["cpu_model"], "kernel": platform.release()}
                write_json(path, {**facts, "cases": {key: cases[key] for key in CASES if key in cases}})
                print(line(name, cases[name]), flush=True)
    made = [cases[name]["passed"] for name in names if cases[name]["passed"] is not None]
    print(
        f"{sum(made)} of {len(made)} passed, {len(names) - len(made)} can't be made here; {path.relative_to(ROOT)}"
    )
    if arguments.publish:
        shutil.copy(path, KEPT)
    return 0 if all(made) else 1


if __name__ == "__main__":
    sys.exit(status_of(main, "interrupted; finished cases are kept, the next run carries on"))
