"""Figures on synthetic tables: what they show, what they say, and that equal data gives equal bytes."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tare.analysis.capacity import ceilings
from tare.analysis.capacity.ceilings import read_ceilings
from tare.literature.published import load
from tare.model import tables
from tare.model.studies import layout
from tare.report import figures, number_tables
from tare.report.figures import forest, runs, style
from tare.report.figures.lines import difference_text, sure_difference
from tare.report.words import labels, quantities
from tare.stats.intervals import t_quantile

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def metrics(results):
    return tables.read("metrics", results / "tables/metrics.parquet")


@pytest.fixture(scope="module")
def verdicts(results):
    return tables.read("verdicts", results / "tables/verdicts.csv")


def texts(path):
    """Every text of an SVG file."""
    return ["".join(node.itertext()) for node in ET.parse(path).iter(f"{SVG}text")]


def every_drawing(results, metrics, verdicts):
    samples = tables.read("samples", results / "tables/samples.csv")
    operators = tables.read("operators", results / "tables/operators.csv")
    own = figures.joint(metrics)
    return {
        "batch_size": figures.batch_size(metrics, "mnist_cnn"),
        "intervals": figures.intervals(figures.joint(verdicts), "mnist_cnn"),
        "units": figures.units(own, "mnist_cnn"),
        "split": figures.split(own, ["mnist_cnn", "sentiment_rnn"]),
        "utilisation": figures.utilisation(
            samples, "mnist_cnn", tables.read("steps", results / "tables/steps.csv")
        ),
        "operators": figures.operator_times(operators, "mnist_cnn"),
        "roofline": figures.roofline(metrics, read_ceilings(results / "machines/box/ceilings.json")),
    }


def test_every_figure_says_its_n_and_carries_its_words(results, metrics, verdicts, tmp_path):
    for name, drawing in every_drawing(results, metrics, verdicts).items():
        path = figures.write(drawing, tmp_path / f"{name}.svg")
        root = ET.parse(path).getroot()
        assert root.get("role") == "img"
        assert root.find(f"{SVG}title").text == drawing.title
        assert root.find(f"{SVG}desc").text == drawing.alt
        said = " ".join(texts(path))
        assert "n = " in said, name


def test_no_figure_has_a_placeholder_that_nobody_filled_in(results, metrics, verdicts, tmp_path):
    drawings = every_drawing(results, metrics, verdicts)
    study, given = load("nyu2022"), figures.read_given(results)
    for number in figures.figure_names(study):
        drawings[figures.file_name(study.paper, number)] = figures.paper_drawing(study, given, number)
    for name, drawing in drawings.items():
        said = [*texts(figures.write(drawing, tmp_path / f"{name}.svg")), drawing.alt]
        assert not [one for one in said if re.search(r"[{}]", one)], name


def overlapping(names):
    boxes = [text.get_window_extent() for text in names]
    return [
        pair for pair in itertools.combinations(range(len(boxes)), 2) if boxes[pair[0]].overlaps(boxes[pair[1]])
    ]


def test_names_of_roofs_that_lie_close_together_do_not_overlap(results, metrics, monkeypatch):
    record = read_ceilings(results / "machines/box/ceilings.json")
    found = ceilings.peaks(record)
    for name, factor in (("float16", 1.02), ("bfloat16", 0.99)):
        one = found["float32"].copy()
        one["flop_per_s"] *= factor
        found[name] = one
    monkeypatch.setattr(ceilings, "peaks", lambda record: found)
    drawing = figures.roofline(metrics, record)
    names = [text for text in drawing.figure.axes[0].texts if re.match(r"(fp|bf)\d", text.get_text())]
    assert {"fp16", "bf16", "fp32"} <= {text.get_text().split(":")[0] for text in names}
    drawing.figure.draw_without_rendering()
    assert not overlapping(names)


def test_what_was_zero_in_every_sample_has_no_panel_and_is_named(results):
    samples, steps = (tables.read(name, results / f"tables/{name}.csv") for name in ("samples", "steps"))
    drawings = [
        figures.utilisation(samples.assign(throttled_percent=value), "mnist_cnn", steps) for value in (0.0, 2.0)
    ]
    without, with_panel = ([axes.get_ylabel() for axes in one.figure.axes] for one in drawings)
    assert [label for label in with_panel if label not in without] == ["throttled\n(% of time)"]
    said = [" ".join(one.figure.get_supxlabel().split()) for one in drawings]
    zero = [re.search(r"Zero in every sample: ([^.]*)\.", one) for one in said]
    assert ["throttling" in one.group(1) if one else False for one in zero] == [True, False], said


def test_equal_data_gives_equal_bytes(metrics, tmp_path):
    first = figures.write(figures.batch_size(metrics, "mnist_cnn"), tmp_path / "one/batch.svg")
    second = figures.write(figures.batch_size(metrics, "mnist_cnn"), tmp_path / "two/batch.svg")
    assert first.read_bytes() == second.read_bytes()
    assert b"metadata" not in first.read_bytes()


def test_figures_on_one_page_share_no_id_and_no_style(results, metrics, verdicts, tmp_path):
    pages = [
        figures.inline(figures.write(drawing, tmp_path / f"{name}.svg"))
        for name, drawing in every_drawing(results, metrics, verdicts).items()
    ]
    found = [identity for page in pages for identity in re.findall(r'\bid="([^"]+)"', page)]
    assert len(found) == len(set(found))
    for page in pages:
        assert not re.search(r"<style[^>]*>\*\{", page), "a rule for every element would leak into the page"
        used = {match for match in re.findall(r'(?:href="#|url\(#)([^")]+)', page)}
        assert used <= set(re.findall(r'\bid="([^"]+)"', page))
        opening = page[: page.index(">")]
        assert 'width="' not in opening and "viewBox" in opening


def test_a_page_may_recolour_a_figure(metrics, tmp_path):
    path = figures.write(figures.batch_size(metrics, "mnist_cnn"), tmp_path / "batch.svg")
    assert style.INK in path.read_text() and "var(" not in path.read_text()
    assert f"var(--fig-ink, {style.INK})" in figures.inline(path)


def test_batch_sizes_are_the_ones_that_ran_and_every_repetition_is_a_dot(metrics, tmp_path):
    drawing = figures.batch_size(metrics, "mnist_cnn")
    path = figures.write(drawing, tmp_path / "batch.svg")
    assert {"16", "32", "64", "128", "256"} <= set(texts(path))
    dots = drawing.figure.axes[0].lines[1]
    assert len(dots.get_xdata()) == 15


def test_batch_table_has_the_spread(metrics):
    rows = metrics[(metrics["campaign"] == "sweep") & (metrics["metric"] == "real_s") & (metrics["batch"] == 16)]
    values = rows[rows["workload"] == "sentiment_rnn"]["value"]
    row = figures.batch_table(metrics, "sentiment_rnn").loc[16]
    assert row["launches"] == 3
    assert row["spread_percent"] == pytest.approx(100 * (values.max() - values.min()) / values.median())


def swept(times):
    """Rows of a sweep: by batch, seconds of its repetitions."""
    rows = [
        {"campaign": "sweep", "workload": "w", "metric": "real_s", "kind": "measured", "batch": batch, "rep": rep}
        | {"value": value}
        for batch, values in times.items()
        for rep, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_launches_of_a_size_that_have_no_time_are_told_beside_the_others():
    failed = {"kind": "unavailable", "value": None, "reason": "timeout: it was killed after 180 s"}
    common = {"campaign": "sweep", "workload": "mnist_cnn", "metric": "real_s"}
    rows = [{**common, **failed, "batch": 512, "rep": rep} for rep in (0, 1)]
    rows += [{**common, **failed, "batch": 256, "rep": 1, "reason": "skipped: given up"}]
    table = pd.concat([swept({16: [2.0, 2.1], 32: [3.0, 3.1]}).assign(workload="mnist_cnn"), pd.DataFrame(rows)])
    assert figures.failed_launches(table, "mnist_cnn") == {512: ["timeout: it was killed after 180 s"] * 2}
    found = number_tables.batch_numbers(SimpleNamespace(metrics=table), "mnist_cnn")
    assert ": 2 at batch 512 (timeout: it was killed after 180 s). " in found.note
    assert found.note.endswith("took at least its time limit.")
    assert [getattr(row[3], "below", "") for row in found.rows] == ["shortest", ""]
    near = number_tables.batch_numbers(SimpleNamespace(metrics=swept({16: [2.0, 2.2], 32: [2.1, 3.1]})), "w")
    assert [row[3].below for row in near.rows] == ["shortest", "overlaps batch 16"] and not near.note


def test_sizes_share_the_spread_that_tells_them_apart():
    up, down = math.exp(0.01), math.exp(-0.01)
    table = swept({16: [2 * up, 4 * down], 32: [3 * down, 6 * up]})
    # A repetition twice as slow is no spread; the rest is 0.01 of every log, of one degree of freedom: s = 0.02.
    expected = math.exp(t_quantile(0.05, 1) * 0.02)
    assert sure_difference(table, "w") == pytest.approx(expected)
    assert "can't be judged" in difference_text(swept({16: [2.0], 32: [3.0]}), "w")
    assert sure_difference(swept({16: [2.0, 2.1], 32: [3.0]}), "w") is None, "one whole repetition"


def test_sizes_that_are_alike_are_told_apart_as_rarely_as_said():
    generator = np.random.default_rng(3)
    wrong = 0
    for _ in range(400):
        logs = generator.normal(0, 0.02, (6, 2)) + generator.normal(0, 0.1, 2)
        table = swept(dict(enumerate(np.exp(logs).tolist())))
        means = logs.mean(axis=1)
        wrong += means.max() - means.min() > math.log(sure_difference(table, "w"))
    assert wrong / 400 < 0.07, "5% at most, and what chance allows"


def bars(axes, width=2.2):
    """Ends of the bars of a width, as ratios."""
    return [tuple(math.exp(x) for x in line.get_xdata()) for line in axes.lines if line.get_linewidth() == width]


def drawn_in(found, low, high):
    return any(ends == pytest.approx((low, high)) for ends in found)


@pytest.mark.parametrize(("metric", "panel"), [("step_s", 0), ("real_s", 1)])
def test_intervals_draw_the_numbers_that_decide(verdicts, metric, panel):
    headline = figures.joint(verdicts)
    own = headline[(headline["workload"] == "mnist_cnn") & (headline["metric"] == metric)]
    assert len(own) == 3
    axes = figures.intervals(headline, "mnist_cnn").figure.axes[panel]
    for row in own.to_dict("records"):
        assert drawn_in(bars(axes), row["ci_low"], row["ci_high"]), row["launch"]
        assert drawn_in(bars(axes), row["control_ci_low"], row["control_ci_high"])
    assert [tick.get_text() for tick in axes.get_yticklabels()][3] == "Host again"


def test_steps_have_an_axis_on_which_small_differences_are_seen(verdicts):
    figure = figures.intervals(figures.joint(verdicts), "mnist_cnn").figure
    steps, runs = figure.axes
    assert "linear between" in " ".join(figure.get_supxlabel().split())
    assert steps.get_xscale() == "linear" and max(map(abs, steps.get_xlim())) < 0.1
    assert runs.get_xscale() == "symlog" and max(runs.get_xlim()) > math.log(10)


def test_intervals_compare_with_the_host_only(verdicts):
    levels = verdicts[verdicts["reference"] == "host.headline"]
    assert len(levels) > 1
    assert "there is nothing to compare" in figures.intervals(levels, "mnist_cnn").alt


def test_interval_labels_never_touch(verdicts):
    for axes in figures.intervals(figures.joint(verdicts), "mnist_cnn").figure.axes:
        to_axis = axes.transData + axes.transAxes.inverted()
        places = sorted(to_axis.transform((tick, 0))[0] for tick in axes.get_xticks())
        assert len(places) >= 3
        assert min(b - a for a, b in itertools.pairwise(places)) >= forest.NEAREST_TICKS - 1e-9


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("host.headline", "Host, default setting"),
        ("docker.headline", "Docker, default setting"),
        ("host.control", "Host again (control)"),
    ],
)
def test_launches_have_names_for_people(name, title):
    assert labels.env_title(name) == title


@pytest.mark.parametrize(
    ("arm", "title"),
    [
        ("allocator=default", "default allocator"),
        ("stack=native", "native installs"),
        ("sif=unpacked", ".sif unpacked"),
        ("governor=performance", "governor performance"),
        ("tf32=on", "TF32 products"),
        ("amp=bf16", "mixed precision, bf16"),
        ("layout=channels-last", "channels-last layout"),
        ("compile=inductor", "compilation (torch.compile)"),
        ("graph=capture", "CUDA graph of the step"),
        ("cudnn=benchmark", "kernels picked by trial (cuDNN)"),
    ],
)
def test_arms_have_titles(arm, title):
    assert labels.arm_title(arm) == title


def test_a_baseline_has_its_environments_colour_and_comes_last():
    assert style.colour("docker.headline") == style.colour("docker")
    assert style.paint("host.headline") == style.paint("host")
    assert sorted(["host.headline", "host.control", "docker", "host"], key=labels.env_order) == [
        "host", "docker", "host.control", "host.headline",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "text"), [(1, "0"), (0.95, "−5%"), (1.2, "+20%"), (2, "2×"), (0.5, "−50%"), (10, "10×")]
)
def test_ratio_labels(ratio, text):
    assert forest.ratio_label(ratio) == text


def test_parts_of_a_run_add_up_to_the_whole(metrics):
    own = figures.joint(metrics)
    table = figures.split_table(own, "mnist_cnn")
    whole = own[(own["workload"] == "mnist_cnn") & (own["metric"] == "real_s")].groupby("launch")["value"].mean()
    for env, total in table.sum(axis=1).items():
        assert total == pytest.approx(whole[env], rel=1e-6)
    assert list(table.index) == ["host", "apptainer", "charliecloud", "docker", "host.control"]


def test_each_workload_has_a_panel_of_its_own_seconds_and_a_part_its_colour_in_both(metrics):
    own = figures.joint(metrics)
    without = own[~((own["workload"] == "mnist_cnn") & (own["metric"] == "runtime_start_s"))]
    drawing = figures.split(without, ["mnist_cnn", "sentiment_rnn", "nowhere"])
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes]
    assert titles == ["CNN on MNIST", "RNN on film reviews"]
    fills = [[bars.patches[0].get_facecolor() for bars in axes.containers] for axes in drawing.figure.axes]
    assert len(fills[0]) == len(fills[1]) - 1 and fills[0] == fills[1][1:]


def late(metrics, share):
    """The metrics with imports that take a share of the model's phase, of each launch of the CNN."""
    model = metrics[(metrics["workload"] == "mnist_cnn") & (metrics["metric"] == "model_s")]
    return pd.concat([metrics, model.assign(metric="model_imports_s", value=share * model["value"])])


def test_imports_that_are_much_of_a_part_are_named_beside_it(metrics, tmp_path):
    own = late(figures.joint(metrics), 0.5)
    table = figures.late_table(own, "mnist_cnn")
    assert list(table.columns) == list(figures.split_table(own, "mnist_cnn").columns)
    assert table.loc["docker"].dropna().to_dict() == {
        "model_s": pytest.approx(figures.split_table(own, "mnist_cnn").loc["docker", "model_s"] / 2)
    }
    drawing = figures.split(own, ["mnist_cnn", "sentiment_rnn"])
    assert runs.OF_WHICH_IMPORTS in texts(figures.write(drawing, tmp_path / "split.svg"))
    found = number_tables.times_table(SimpleNamespace(metrics=late(metrics, 0.5)), "mnist_cnn")
    named = {
        column
        for row in found.rows
        for column, cell in zip(found.columns, row, strict=True)
        if getattr(cell, "below", "").startswith("imports in it: ")
    }
    assert named == {"Model"}
    few = figures.split(late(figures.joint(metrics), 0.09), ["mnist_cnn", "sentiment_rnn"])
    assert runs.OF_WHICH_IMPORTS not in texts(figures.write(few, tmp_path / "few.svg"))


def test_joint_takes_the_campaigns_with_the_most_environments_of_either_kind(metrics):
    few = metrics["launch"].isin(["host", "docker"])
    small = [
        metrics[few & metrics["campaign"].map(layout.kind_of).eq(kind)].assign(campaign=f"{kind}.docker+host")
        for kind in ("rounds", "steps")
    ]
    found = figures.joint(pd.concat([*small, metrics]))
    names = set(found["campaign"])
    assert {layout.kind_of(name) for name in names} == {"rounds", "steps"}
    assert len(names) == 2 and all("podman" in name and name.count(".") == 1 for name in names)
    assert not any(name.endswith(".headline") for name in found["launch"])


def test_joint_of_nothing_is_nothing(metrics):
    assert figures.joint(metrics[metrics["campaign"] == "sweep"]).empty


def test_every_launch_is_counted(results, metrics):
    drawing = figures.units(figures.joint(metrics), "mnist_cnn")
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes]
    assert titles[:2] == ["Whole run", "Training step"]
    assert "n = 6 rounds" in drawing.alt
    dots = [line for line in drawing.figure.axes[1].lines if line.get_markersize() == 4]
    assert [len(line.get_xdata()) for line in dots] == [6] * 5
    own = metrics[(metrics["metric"] == "step_s") & (metrics["workload"] == "mnist_cnn")]
    host = own[(own["launch"] == "host") & own["campaign"].map(lambda c: c.count(".") == 1)]
    assert sorted(dots[0].get_xdata()) == pytest.approx(sorted(host["value"] * 1e3))


def test_a_figure_without_its_rows_says_so(metrics, verdicts, tmp_path):
    drawing = figures.intervals(verdicts.iloc[0:0], "mnist_cnn")
    assert "there is nothing to compare" in " ".join(texts(figures.write(drawing, tmp_path / "a.svg")))
    drawing = figures.batch_size(metrics[metrics["campaign"] != "sweep"], "mnist_cnn")
    assert "no successful launch" in drawing.alt


def with_environments(table, count):
    """Rows of both hosts, and those of one environment under as many names."""
    names = ["docker", *(f"runtime_{number:02}" for number in range(1, count))]
    one = table[table["launch"] == "docker"]
    return pd.concat(
        [table[table["launch"].isin(["host", "host.control"])], *(one.assign(launch=name) for name in names)]
    )


@pytest.mark.parametrize("count", [1, 12])
def test_a_figure_keeps_its_width_with_one_environment_or_twelve(results, metrics, verdicts, count):
    own, headline = (with_environments(figures.joint(table), count) for table in (metrics, verdicts))
    samples, jobs = (
        with_environments(tables.read(name, results / f"tables/{name}.csv"), count)
        for name in ("samples", "job_length")
    )
    steps = tables.read("steps", results / "tables/steps.csv")
    drawings = {
        "utilisation": figures.utilisation(samples, "mnist_cnn", steps),
        "job_length": figures.job_length(jobs, "mnist_cnn"),
        "intervals": figures.intervals(headline, "mnist_cnn"),
        "units": figures.units(own, "mnist_cnn"),
        "split": figures.split(own, ["mnist_cnn"]),
    }
    for name, drawing in drawings.items():
        figure = drawing.figure
        assert figure.get_figwidth() == style.WIDTH_IN, name
        figure.draw_without_rendering()
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, name


def test_an_environment_keeps_its_colour_and_newcomers_get_their_own():
    names = ["host", "host.control", "docker", "apptainer", "charliecloud", "podman"]
    assert len({style.colour(name) for name in names}) == len(names)
    assert style.colour("namespaces") == style.colour("namespaces")
    assert style.colour("namespaces") not in {style.colour(name) for name in names}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.01234, "s", "12.3 ms"),
        (3.2e-6, "s", "3.20 µs"),
        (0.9996, "s", "1.00 s"),
        (245, "s", "4 min 05 s"),
        (0, "s", "0 s"),
        (1536, "B", "1.50 KiB"),
        (1.2e9, "1", "1.20 G"),
        (30, "1", "30"),
        (1.1731, "1", "1.173"),
        (1.1e10, "B/s", "11.0 GB/s"),
        (97.04, "%", "97.0 %"),
    ],
)
def test_numbers_in_units_scaled_to_size(value, unit, text):
    assert quantities.with_unit(value, unit) == text


def test_an_interval_that_says_nothing_does_not_stretch_the_axis(verdicts):
    own = verdicts[verdicts["metric"] == "real_s"].assign(ci_low=1e-7, ci_high=1e7)
    low, high = figures.intervals(own, "mnist_cnn").figure.axes[0].get_xlim()
    assert -math.log(300) < low < -1 and 1 < high < math.log(300)


# Values under the pointer.


def titles(path, within="use"):
    """What an SVG says under the pointer, of its points or of its groups."""
    return [node.text for one in ET.parse(path).iter(f"{SVG}{within}") for node in one.findall(f"{SVG}title")]


def test_every_repetition_says_its_size_and_seconds(metrics, tmp_path):
    path = figures.write(figures.batch_size(metrics, "mnist_cnn"), tmp_path / "batch.svg")
    rows = metrics.query("campaign == 'sweep' and workload == 'mnist_cnn' and metric == 'real_s' and value.notna()")
    wanted = [f"{row.batch}, real time (s): {quantities.significant(row.value, 4)}" for row in rows.itertuples()]
    assert sorted(titles(path)) == sorted(wanted)


def test_an_interval_says_its_environment_and_both_ends(verdicts, tmp_path):
    path = figures.write(figures.intervals(figures.joint(verdicts), "mnist_cnn"), tmp_path / "intervals.svg")
    row = figures.joint(verdicts).query(
        "workload == 'mnist_cnn' and launch == 'docker' and metric == 'real_s' and reference == 'host'"
    ).iloc[0]  # fmt: skip
    low, high, middle = (forest.ratio_label(row[name]) for name in ("ci_low", "ci_high", "ratio"))
    assert f"Docker, {low} to {high}" in titles(path, "g")
    assert f"Docker, {middle}" in titles(path)


def test_a_part_of_a_run_says_its_seconds(metrics, tmp_path):
    own = figures.joint(metrics)
    path = figures.write(figures.split(own, ["mnist_cnn"]), tmp_path / "split.svg")
    table = runs.split_table(own, "mnist_cnn")
    said = titles(path, "g")
    for part, seconds_of in table.loc["docker"].items():
        assert any("Docker" in one and one.endswith(quantities.seconds(seconds_of)) for one in said), part


def test_values_are_escaped_and_points_outside_leave_a_figure_as_it_was():
    svg = '<svg><g id="values-0-0"><use x="1"/><use x="2"/></g><g id="after"><use x="3"/></g></svg>'
    both = style.with_values(svg, {"values-0-0": ["<b>", "2"]})
    assert '<use x="1"><title>&lt;b&gt;</title></use><use x="2"><title>2</title></use>' in both
    assert '<g id="after"><use x="3"/>' in both
    assert style.with_values(svg, {"values-0-0": ["1", "2", "3"], "values-9-9": "none"}) == svg
    assert '<g id="after">\n<title>one</title><use x="3"/>' in style.with_values(svg, {"after": "one"})
