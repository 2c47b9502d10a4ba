"""What several tests of the report share: a row of the verdict table, stand-ins for figures, the text of a page."""

from __future__ import annotations

import functools
import re
import tempfile
from pathlib import Path

import builders

from tare.analysis.ceilings import read_ceilings
from tare.core.files import write_text
from tare.literature.published import load
from tare.model import tables
from tare.report import figures, references


def row(**fields):
    base = {
        "env": "docker", "metric": "real_s", "reference": "host", "campaign": "rounds.docker+host",
        "n_units": 6, "ratio": 1.03, "total_ratio": 1.03, "ci_low": 1.0184, "ci_high": 1.0412, "margin": 0.05,
        "verdict": "different within margin", "reason": None, "more_units": None, "alpha": 0.05, "family_size": 1,
        "family_alpha": 0.05, "role": "primary", "total_ci_low": 1.0184, "total_ci_high": 1.0412,
        "total_verdict": "different within margin", "stalls_ci_low": None, "stalls_ci_high": None,
        "control_reaches": False, "all_within": None,
        "control_ratio": 1.0, "control_ci_low": 0.988, "control_ci_high": 1.008,
    }  # fmt: skip
    return {**base, **fields}


@functools.cache
def stand_in(stem):
    """Text of a small figure under the name of a file."""
    with tempfile.TemporaryDirectory() as folder:
        return figures.write(figures.style.empty(stem, "a stand-in"), Path(folder, f"{stem}.svg")).read_text()


def draw(results):
    """Small stand-ins for the figures, which have tests of their own."""
    names = ["batch_size", "split", "intervals", "units", "utilisation", "operators", "why", "roofline"]
    names += ["stacks", "job_length"]
    stems = [f"{name}_{workload}" for workload in builders.WORKLOADS for name in (*names, "choices")]
    stems += ["arms_mnist_cnn", "roofline", "image_costs"]
    stems += [figures.file_name("nyu2022", number) for number in figures.figure_names(load("nyu2022"))]
    for stem in stems:
        write_text(results / f"figures/{stem}.svg", stand_in(stem))


def draw_all(results, *, device="cpu"):
    """Every figure that the notebooks would draw of these results, by the same functions."""
    folder = results / "tables"
    metrics, verdicts = (tables.read(name, folder / f"{name}.csv") for name in ("metrics", "verdicts"))
    samples, operators = (tables.read(name, folder / f"{name}.csv") for name in ("samples", "operators"))
    jobs = tables.read("job_length", folder / "job_length.csv")
    own, headline = figures.joint(metrics), figures.joint(verdicts)
    families, ceilings = tables.read("families", folder / "families.csv"), read_ceilings(results / "ceilings.json")
    drawings = {"roofline": figures.roofline(metrics, ceilings)}
    drawings["image_costs"] = figures.image_costs(tables.read("image_costs", folder / "image_costs.csv"))
    drawings |= {
        f"arms_{workload}": figures.arms(verdicts, workload) for workload in figures.arm_workloads(metrics)
    }
    for workload in builders.WORKLOADS:
        drawings |= {
            f"batch_size_{workload}": figures.batch_size(metrics, workload),
            f"intervals_{workload}": figures.intervals(headline, workload),
            f"units_{workload}": figures.units(own, workload),
            f"split_{workload}": figures.split(own, workload),
            f"utilisation_{workload}": figures.utilisation(samples, workload),
            f"operators_{workload}": figures.operator_times(operators, workload),
            f"roofline_{workload}": figures.families_roofline(families, metrics, ceilings, workload),
            f"job_length_{workload}": figures.job_length(jobs, workload),
            f"why_{workload}": figures.why(metrics, verdicts, workload),
            f"stacks_{workload}": figures.stacks(verdicts, workload),
        }
    study, published = load("nyu2022"), tables.read("published", folder / "published.csv")
    drawings |= {
        figures.file_name(study.paper, number): figures.paper_figure(study, published, metrics, number)
        for number in figures.figure_names(study)
        if number != "4"
    }
    drawings[figures.file_name(study.paper, "4")] = figures.paper_roofline(study, metrics, ceilings)
    drawings |= {f"choices_{name}": figures.choices(verdicts, name) for name in figures.choice_workloads(metrics)}
    if device == "cuda":
        sensors = tables.read("device_samples", folder / "device_samples.csv")
        for workload in builders.WORKLOADS:
            drawings[f"device_time_{workload}"] = figures.device_time(metrics, workload)
            drawings[f"device_samples_{workload}"] = figures.device_samples(sensors, workload)
    for name, drawing in drawings.items():
        figures.write(drawing, results / f"figures/{name}.svg")
    for one in references.gather(results, results)[0]:
        references.draw(one, results / "figures/reference" / one.name)


def visible(page):
    """Text of the page as a reader sees it, in one line."""
    text = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).replace("&#39;", "'").split())
