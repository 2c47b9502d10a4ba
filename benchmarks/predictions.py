"""How well training steps are predicted on this machine, with whole groups left out of the training.

    .venv/bin/python benchmarks/predictions.py [--target FILE] [--grid FOLDER] [--results FOLDER …]
    .venv/bin/python benchmarks/predictions.py --publish     # benchmarks/predictions.json, docs/predictions.md

It reads what `tare target`, `tare grid` and `tare optimise` have measured, and starts nothing. Each model predicts
the steps of each network, range of batches and environment by the others. The regret of a choice is by how much
longer its steps take than those of the fastest place of the same job.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tare.core.errors import TareError, UnavailableError
from tare.core.files import read_json, write_json, write_text
from tare.machine import facts
from tare.model.records.measured import GridCell
from tare.model.registry import describe_workload
from tare.model.roles import CONTROL
from tare.model.studies.layout import grid_folder, target_record
from tare.predict.answers import Answer, read_answers
from tare.predict.judge import CALIBRATED, CHOSEN, GROUPINGS, NEAR, WORKLOAD, Score, by_group, table, tries
from tare.predict.models import MODELS
from tare.predict.predictor import best_of, train
from tare.predict.rows import Trained, read_cells, trained_on
from tare.predict.targets import TargetRecord, name_of, read_target

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks/predictions.json", ROOT / "docs/predictions.md"
# Of what is kept. 1 had no choice within what is left out, and looked at places that were predicted alone. 2 chose
# among places that had each been left out by itself, where environments were.
FORM = 3
ERRORS = ("steps", "refused", "median error", "90th percentile", "inside 90% intervals")
REGRETS = ("mean regret", "worst", f"within {NEAR:.0%} of the best", "default", "best so far", "random")


def judged(target: TargetRecord, cells: Sequence[GridCell], trained: Trained) -> dict[str, Any]:
    """Scores of all models and of the choice among them, and those of the choice by group."""
    tried = tries(trained.rows, MODELS)
    scores = table(tried)
    return {
        "form": FORM,
        **{name: getattr(target, name) for name in ("machine", "processor", "stack", "at")},
        "target_s": target.seconds,
        "grid_s": sum((one.end_ns - one.spawn_ns) / 1e9 for one in cells if one.end_ns and one.spawn_ns),
        "steps": len(trained.rows),
        "networks": len({row.workload for row in trained.rows}),
        "not_used": list(trained.left_out),
        "controls": list(trained.controls),
        "scores": [asdict(one) for one in scores],
        "chosen": best_of({name: train(fit, trained.rows) for name, fit in MODELS.items()}),
        "groups": {
            left_out: [asdict(one) for one in by_group(left_out, model, own)]
            for (left_out, model), own in tried.items()
            if model == CHOSEN
        },
        "calibrated": [asdict(one) for one in by_group(WORKLOAD, CALIBRATED, tried[WORKLOAD, CALIBRATED])],
    }


def compared(answers: Iterable[Answer]) -> dict[str, Any]:
    """What was measured of candidates, and what searches found."""
    measured: list[dict[str, Any]] = []
    searches: list[dict[str, Any]] = []
    for one in answers:
        title = describe_workload(one.request.workload, one.request.options)["title"]
        about = {"workload": title, "held_out": one.held_out}
        is_calibrated = one.choice.timed_step_s is not None
        rows = one.measured.rows if one.measured else ()
        default = rows[0].predicted if rows else None  # the first one is what ratios refer to
        for row in rows:
            if row.predicted is not None and row.name != CONTROL:
                ratio = row.predicted.seconds / default.seconds if default else None
                own = {"error": row.error, "predicted_ratio": ratio, "calibrated": is_calibrated}
                measured.append({**about, **asdict(row), **own})
        if one.searched:
            searches.append({**about, **one.searched.to_json()})
    return {"measured": measured, "searches": searches}


# --- the page


def page(found: Mapping[str, Any] | None) -> Iterator[str]:
    """docs/predictions.md, line by line."""
    yield "# Errors of predictions"
    yield ""
    yield from _prose(
        "`benchmarks/predictions.py --publish` writes this page. [Predict the fastest setting](optimise.md) says "
        "how predictions are made."
    )
    yield ""
    if found is None:
        yield "**No grid has been published so far, so the errors on real machines are not known.**"
        return
    scores, is_former = [Score(**one) for one in found["scores"]], found.get("form", 1) < 2
    yield from _prose(
        f"{found['processor']} ({found['machine']}), {found['stack']}, {found['at'][:10]}. {found['steps']} "
        f"training steps of {found['networks']} networks took {_minutes(found['grid_s'])} of launches. "
        f"`tare target` took {_minutes(found['target_s'])}. The goal is a median error of 6% on networks that were "
        f"left out, and choices within {NEAR:.0%} of the best. Published errors for training on GPUs, each on "
        "other data: NeuSight 2.3%, DNNPerf 7.4%, Habitat 11.8%."
    )
    yield ""
    yield from _control(found.get("controls", ()))
    header = ("left out", "model")
    yield from markdown((*header, *ERRORS), [[one.left_out, one.model, *_errors(one)] for one in scores])
    yield ""
    yield from _prose(
        "These numbers are older than this form of the page, and were not recomputed. What an environment adds to "
        "steps was measured on all networks and environments, also on those left out, so errors may be too small. "
        "There is no row for the choice among the models when it is made without what is left out. Shares have no "
        "interval."
        if is_former
        else f"{CHOSEN.capitalize()} is the model with the smallest error on the networks that are not left out. "
        "What environments add to steps, and what settings gain, is measured without what is left out. An "
        "environment that is left out adds what the median of the others adds. The interval of a share takes "
        "into account that steps of one network resemble each other."
    )
    if found.get("calibrated"):
        yield ""
        yield from _prose(
            f"{CALIBRATED.capitalize()} is the chosen model, scaled to one launch of the job on the host "
            "(`--calibrate`). That launch ran alone and is not among the steps. Its own noise is part of these "
            "errors: other launches measured the steps."
        )
    yield ""
    yield "## Regret"
    yield ""
    places = (
        "the fastest predicted place of the same job, so it may be too small: measured places without a prediction "
        "were not counted"
        if is_former
        else "the fastest measured place of the same job, predicted or not"
    )
    yield from _prose(
        f"How much longer the steps of a choice take than in {places}. A place is an environment with a number of "
        "threads and settings. Next to it is the mean regret of three other choices. They are always the host with "
        "all threads (default), the best place of the other networks (best so far), and a random place. Where an "
        "environment is left out, the job's other places are in the training, and there is a choice for each "
        "environment and job."
    )
    yield ""
    regrets = [[one.left_out, one.model, *_regrets(one)] for one in scores]
    yield from markdown((*header, *REGRETS), regrets)
    for left_out in filter(found["groups"].__contains__, GROUPINGS):
        rows = found["groups"][left_out]
        yield ""
        yield f"## By {left_out}"
        yield ""
        yield (
            f"The model {found['chosen']}. Each row was left out of the training."
            if is_former
            else "The model that is chosen without each row's group. For all rows, `tare optimise` uses "
            f"{found['chosen']}."
        )
        yield ""
        yield from markdown((left_out, *ERRORS), [[one["left_out"], *_errors(Score(**one))] for one in rows])
        if left_out == WORKLOAD and found.get("calibrated"):
            yield ""
            yield f"The same, {CALIBRATED}."
            yield ""
            rows = found["calibrated"]
            yield from markdown((left_out, *ERRORS), [[one["left_out"], *_errors(Score(**one))] for one in rows])
    yield ""
    yield "## Predicted and measured"
    yield ""
    yield from _measured(found["measured"])
    yield ""
    yield "## Searches"
    yield ""
    yield from _searches(found["searches"])


def _control(logs: Sequence[float]) -> Iterator[str]:
    if not logs:
        return
    sizes = np.abs(np.expm1(logs))
    yield from _prose(
        f"{len(logs)} jobs were launched twice on the host in the same slices (A/A control). Steps of two launches "
        f"differ by {np.median(sizes):.1%} (median; 90th percentile {np.quantile(sizes, 0.9):.1%}). Each place was "
        "launched once, so regret can't be measured more exactly than that."
    )
    yield ""


def _prose(text: str) -> list[str]:
    return textwrap.wrap(text, 112)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table."""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"


def _errors(one: Score) -> list[str]:
    covered = f"{one.covered / one.intervals:.0%} of {one.intervals}" if one.intervals else "no interval"
    if one.coverage is not None:
        share, low, high = one.coverage
        covered = f"{share:.0%} ({low:.0%} to {high:.0%}) of {one.intervals}"
    return [str(one.rows), str(one.refused), _percent(one.median_error), _percent(one.p90_error), covered]


def _regrets(one: Score) -> list[str]:
    others = (one.default_regret, one.past_regret, one.random_regret)
    near = f"{one.near} of {one.choices}"
    return [_percent(one.mean_regret), _percent(one.worst_regret), near, *map(_percent, others)]


def _measured(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        yield "No candidate has been measured so far."
        return
    inside = [one["predicted"]["low"] <= one["measured_s"] <= one["predicted"]["high"] for one in _bounded(rows)]
    yield from _prose(
        "Candidates of `tare optimise --measure` in sliced rounds: start, imports and steps of the whole job. In "
        "slices, seconds are longer than those of a job alone. Ratios are to the default, with 95% intervals that "
        "hold together."
    )
    errors = [abs(one["error"]) for one in rows if one.get("calibrated")]
    if errors:
        how = f"{len(errors)} predictions are calibrated (`--calibrate`)"
        yield f"{how}. Their median error is {np.median(errors):.1%}."
    counted = f"{sum(inside)} of {len(inside)} measured times are inside the predicted 90% interval."
    yield counted if inside else "None has a predicted interval: there were fewer than eleven networks to train on."
    yield ""
    header = ("workload", "candidate", "in the training", "predicted", "measured", "error")
    yield from markdown(
        (*header, "predicted ratio", "measured ratio", "rounds"),
        [
            [
                *(one["workload"], one["name"], _in_training(one), f"{one['predicted']['seconds']:.3g} s"),
                *(f"{one['measured_s']:.3g} s", f"{one['error']:+.1%}", _number(one.get("predicted_ratio"))),
                *(_ratio([one]) if one["low"] < one["high"] else _number(one["ratio"]), str(one["rounds"])),
            ]
            for one in rows
        ],
    )


def _number(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:.3f}"


def _bounded(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in rows if one["predicted"]["low"] is not None]


def _searches(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        yield "No search has run on a real machine so far."
        return
    yield "Ratios of whole jobs in fresh rounds, with intervals that hold together. Below 1 is faster."
    yield ""
    header = ("workload", "in the training", "tried", "result", "best", "to the default", "to the first choice")
    yield from markdown(
        header,
        [
            [
                *(one["workload"], _in_training(one), f"{len(one['tried'])} of {one['space']}", one["outcome"]),
                *(one["best"] or "none", _ratio(one["fresh"][-1:]), _to_first(one)),
            ]
            for one in rows
        ],
    )


def _in_training(one: Mapping[str, Any]) -> str:
    return "no" if one["held_out"] else "yes"


def _to_first(one: Mapping[str, Any]) -> str:
    if one.get("first") is None:
        return "nothing was predicted"
    if one["first"] == one["best"]:
        return "it is the first choice"
    if one["fresh"] and one["first"] == one["fresh"][0]["name"]:
        return "the default is the first choice"
    return _ratio([one.get("over_first")])


def _ratio(rows: Sequence[Mapping[str, Any] | None]) -> str:
    (row,) = rows or (None,)
    return "not measured" if row is None else f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def main(argv: Sequence[str] | None = None) -> None:
    """Read, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--target", type=Path, help="file of `tare target` (default: the one of this processor)")
    parser.add_argument("--grid", type=Path, help="folder of `tare grid` (default: the one of the target)")
    parser.add_argument(
        "--results", nargs="+", type=Path, default=[Path("results")], help="folders with answers of `tare optimise`"
    )
    parser.add_argument("--publish", action="store_true", help=f"write {KEPT.name} of this folder and the page")
    asked = parser.parse_args(argv)
    processor = facts.processor_name(asked.device)
    target = read_target(asked.target or target_record(name_of(processor)), processor)
    cells = read_cells(asked.grid or grid_folder(target.machine, target.stack))
    trained = trained_on(cells, target)
    if not trained.rows:
        raise UnavailableError("no training step was timed on the target", "tare grid")
    answers = [one for folder in asked.results for one in read_answers(folder, target.machine)]
    found = {**judged(target, cells, trained), **compared(answers)}
    print("\n".join(page(found)))
    for reason in trained.left_out:
        print(f"not used: {reason}")
    if asked.publish:
        write_json(KEPT, found)
        write_text(PAGE, "".join(f"{line}\n" for line in page(read_json(KEPT))))


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        print(f"predictions: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
