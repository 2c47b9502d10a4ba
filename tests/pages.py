"""What several tests of the report share: a row of the verdict table, stand-ins for figures, the text of a page."""

from __future__ import annotations

import functools
import re
import tempfile
from functools import partial
from pathlib import Path

import builders

from tare.analysis import decisions
from tare.analysis.capacity.ceilings import read_ceilings
from tare.core.files import project_root, write_text
from tare.literature.published import load
from tare.model import tables
from tare.report import figures

STEM = "stem_of_a_figure"
STAND_IN = "a stand-in"  # all that such a figure says


def row(**fields):
    base = {
        "launch": "docker", "metric": "real_s", "reference": "host", "campaign": "rounds.docker+host",
        "n_units": 6, "ratio": 1.03, "total_ratio": 1.03, "ci_low": 1.0184, "ci_high": 1.0412, "margin": 0.05,
        "verdict": "different within margin", "reason": None, "more_units": None, "alpha": 0.05, "family_size": 1,
        "family_alpha": 0.05, "role": "primary", "total_ci_low": 1.0184, "total_ci_high": 1.0412,
        "total_verdict": "different within margin", "stalls_ci_low": None, "stalls_ci_high": None, "steps": None,
        "control_reaches": False, "all_within": None,
        "control_ratio": 1.0, "control_ci_low": 0.988, "control_ci_high": 1.008,
    }  # fmt: skip
    found = {**base, **fields}
    ends = {"headline": tables.LEVEL, "alone": tables.CO_RUNNER}
    return {"compares": ends.get(found["reference"].rpartition(".")[2], tables.ENVIRONMENT), **found}


def decision(**fields):
    """A row of the verdict table as a decision, which has neither rank nor reason yet."""
    cell = {
        "study": "s",
        "machine": "box",
        "scenario": "single",
        "workload": "mnist_cnn",
        "stack": "torch-2.13",
        "batch": 64,
    }
    return decisions._compared({**cell, **row(**fields)})


@functools.cache
def _stand_in():
    """Text of a small figure of the name STEM."""
    with tempfile.TemporaryDirectory() as folder:
        return figures.write(figures.style.empty(STEM, STAND_IN), Path(folder, f"{STEM}.svg")).read_text()


def stand_in(stem):
    """Text of a small figure under the name of a file."""
    return _stand_in().replace(STEM, stem)


def draw(results):
    """Small stand-ins for the figures, which have tests of their own."""
    names = ["batch_size", "intervals", "units", "utilisation", "operators", "roofline", "job_length"]
    stems = [f"{name}_{workload}" for workload in builders.WORKLOADS for name in (*names, "choices")]
    stems += ["split", "roofline"]
    study = load("nyu2022", project_root() / "config/published")  # a test may have papers elsewhere
    stems += [figures.file_name(study.paper, number) for number in figures.figure_names(study)]
    for stem in stems:
        write_text(results / f"figures/{stem}.svg", stand_in(stem))


def draw_papers(results, papers, workloads):
    """The figures of papers as they are; small stand-ins for all others, of these workloads."""
    names = ["batch_size", "intervals", "units", "utilisation", "operators", "roofline", "job_length"]
    names += ["choices"]
    stems = [f"{name}_{workload}" for workload in workloads for name in names]
    for stem in [*stems, "split", "roofline"]:
        write_text(results / f"figures/{stem}.svg", stand_in("figure"))
    given = figures.read_given(results)
    for paper in papers:
        study = load(paper)
        for number in figures.figure_names(study):
            drawing = figures.paper_drawing(study, given, number)
            figures.write(drawing, results / f"figures/{figures.file_name(paper, number)}.svg")


def draw_kinds(results, drawings):
    """Every kind of figure, by the notebooks' own functions; small stand-ins for the second workload's own."""
    draw(results)
    _, *others = builders.WORKLOADS
    for name, drawing in drawings.items():
        path = results / f"figures/{name}.svg"
        if name.endswith(tuple(f"_{workload}" for workload in others)):
            write_text(path, stand_in(name))
        else:
            figures.write(drawing(), path)


def draw_all(results):
    """The figures of these results as the notebooks would draw them, of every kind one at least."""
    draw_kinds(results, host_drawings(results))


def draw_device(results):
    """What a device changes in figures, of every kind one at least; small stand-ins for all others."""
    draw_kinds(results, device_drawings(results))


def host_drawings(results):
    """By file name, what draws the figure."""
    folder = results / "tables"
    metrics, verdicts = (tables.read(name, folder / f"{name}.csv") for name in ("metrics", "verdicts"))
    samples, operators, steps = (
        tables.read(name, folder / f"{name}.csv") for name in ("samples", "operators", "steps")
    )
    jobs = tables.read("job_length", folder / "job_length.csv")
    own, headline = figures.joint(metrics), figures.joint(verdicts)
    drawings = {
        "split": partial(figures.split, own, builders.WORKLOADS),
        **roofline_drawings(results, metrics),
    }
    for workload in builders.WORKLOADS:
        drawings |= {
            f"batch_size_{workload}": partial(figures.batch_size, metrics, workload),
            f"intervals_{workload}": partial(figures.intervals, headline, workload),
            f"units_{workload}": partial(figures.units, own, workload),
            f"utilisation_{workload}": partial(figures.utilisation, samples, workload, steps),
            f"operators_{workload}": partial(figures.operator_times, operators, workload),
            f"job_length_{workload}": partial(figures.job_length, jobs, workload),
        }
    study, given = load("nyu2022"), figures.read_given(results)
    for number in figures.figure_names(study):
        drawings[figures.file_name(study.paper, number)] = partial(figures.paper_drawing, study, given, number)
    for workload in figures.choice_workloads(metrics):
        drawings[f"choices_{workload}"] = partial(figures.choices, verdicts, workload)
    return drawings


def roofline_drawings(results, metrics):
    families, ceilings = (
        tables.read("families", results / "tables/families.csv"),
        read_ceilings(results / "machines/box/ceilings.json"),
    )
    drawings = {"roofline": partial(figures.roofline, metrics, ceilings)}
    for workload in builders.WORKLOADS:
        drawings[f"roofline_{workload}"] = partial(figures.families_roofline, families, metrics, ceilings, workload)
    return drawings


def device_drawings(results):
    """Of those, what there is on a device alone, and what looks another way there."""
    folder = results / "tables"
    metrics, verdicts = (tables.read(name, folder / f"{name}.csv") for name in ("metrics", "verdicts"))
    sensors, steps = (tables.read(name, folder / f"{name}.csv") for name in ("device_samples", "steps"))
    drawings = roofline_drawings(results, metrics)
    for workload in figures.choice_workloads(metrics):
        drawings[f"choices_{workload}"] = partial(figures.choices, verdicts, workload)
    for workload in builders.WORKLOADS:
        drawings[f"device_time_{workload}"] = partial(figures.device_time, metrics, workload)
        drawings[f"device_samples_{workload}"] = partial(figures.device_samples, sensors, workload, steps)
    return drawings


def whole(index):
    """All pages of the report whose answer this is, as one."""
    return index.with_name("print.html").read_text()


def visible(page):
    """Text of the page as a reader sees it, in one line."""
    text = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).replace("&#39;", "'").split())
