"""What several tests of the report share: a row of the verdict table, stand-ins for figures, the text of a page."""

from __future__ import annotations

import re

import builders

from tare import figures
from tare.published import load


def row(**fields):
    base = {
        "env": "docker", "metric": "real_s", "reference": "host", "campaign": "rounds.docker+host",
        "n_units": 6, "ratio": 1.03, "total_ratio": 1.03, "ci_low": 1.0184, "ci_high": 1.0412, "margin": 0.05,
        "verdict": "different within margin", "reason": None, "more_units": None, "alpha": 0.05, "family_size": 1,
        "control_ratio": 1.0, "control_ci_low": 0.988, "control_ci_high": 1.008,
    }  # fmt: skip
    return {**base, **fields}


def draw(results):
    """Small stand-ins for the figures, which have tests of their own."""
    for workload in builders.WORKLOADS:
        for name in ("batch_size", "split", "intervals", "units", "utilisation", "operators", "why", "roofline"):
            drawing = figures.style.empty(name, "a stand-in")
            figures.write(drawing, results / f"figures/{name}_{workload}.svg")
        figures.write(figures.style.empty("stacks", "a stand-in"), results / f"figures/stacks_{workload}.svg")
    figures.write(figures.style.empty("arms", "a stand-in"), results / "figures/arms_mnist_cnn.svg")
    for name in ("roofline", "prices"):
        figures.write(figures.style.empty(name, "a stand-in"), results / f"figures/{name}.svg")
    for number in figures.figure_names(load("nyu2022")):
        name = figures.file_name("nyu2022", number)
        figures.write(figures.style.empty(name, "a stand-in"), results / f"figures/{name}.svg")


def visible(page):
    """Text of the page as a reader sees it, in one line."""
    text = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).replace("&#39;", "'").split())
