"""The paper's figures on synthetic results: every mark is the tables' number, and what is missing says why."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace

import builders
import pytest
from matplotlib.figure import Figure

from tare.literature.published import load
from tare.model import tables
from tare.model.roles import read_role
from tare.model.studies.cells import launch_columns
from tare.model.studies.layout import campaign_name
from tare.report import figures
from tare.report.figures import paper, paper_rows
from tare.report.figures.paper_rows import HERE, LOGGED, PRINTED, REDONE
from tare.stats.intervals import t_interval

SVG = "{http://www.w3.org/2000/svg}"
PAPER = load("nyu2022")
BY_ENVIRONMENT = [str(number) for number in range(5, 19)]
ROUNDS = campaign_name("rounds", [*builders.ENVIRONMENTS, *builders.UNAVAILABLE])


@pytest.fixture(scope="module")
def given(results):
    return figures.read_given(results)


def with_device(given, per_env, metric="memset_s", workload="mnist_cnn"):
    """What a machine whose device measures this gives, one value or several by environment."""
    metrics = given.metrics
    row = metrics[(metrics["campaign"] == "profile") & (metrics["workload"] == workload)].iloc[0].to_dict()
    rest = metrics[~((metrics["metric"] == metric) & (metrics["workload"] == workload))]
    rows = [
        {**row, **launch_columns(read_role(env), "single"), "rep": rep, "metric": metric, "value": value,
         "unit": "s", "kind": "measured", "source": "device activities", "reason": None}
        for env, values in per_env.items()
        for rep, value in enumerate(values)
    ]  # fmt: skip
    return replace(given, metrics=tables.make("metrics", [*rest.to_dict("records"), *rows]))


def drawn(given, figure):
    return figures.paper_drawing(PAPER, given, figure)


def marks(drawing):
    """Value of each mark by its name, in base units; ends of each interval by the name of its line."""
    lines = [line for axes in drawing.figure.axes for line in axes.lines if "-" in (line.get_gid() or "")]
    spreads = {line.get_gid(): tuple(line.get_xdata()) for line in lines if line.get_gid().startswith("spread-")}
    return {line.get_gid(): line.get_xdata()[0] for line in lines if line.get_gid() not in spreads}, spreads


def of(found, series):
    return {name: value for name, value in found.items() if name.startswith(f"{series}-")}


def texts(drawing, tmp_path):
    path = figures.write(drawing, tmp_path / "figure.svg")
    return " ".join(" ".join(node.itertext()) for node in ET.parse(path).iter(f"{SVG}text"))


@pytest.mark.parametrize("figure", BY_ENVIRONMENT)
def test_every_published_value_and_every_number_of_the_logs_is_a_mark(figure, given):
    found, spreads = marks(drawn(given, figure))
    rows = PAPER.figures[PAPER.figures["figure"] == figure]
    assert len(of(found, PRINTED)) == len(rows) in (3, 6)
    for row in rows.itertuples():
        name = f"{PRINTED}-{row.workload}-{row.env}-{row.metric}"
        assert found[name] == pytest.approx(row.value)
        if row.kind == "figure_digitised":
            assert spreads[f"spread-{name}"] == pytest.approx((row.value - row.error, row.value + row.error))
        else:
            assert f"spread-{name}" not in spreads
    rows = given.findings[(given.findings["figure"] == figure) & (given.findings["check"] == "figure_value")]
    rows = rows[rows["recomputed"].notna()]
    expected = {f"{LOGGED}-{row.workload}-{row.env}-{row.metric}": row.recomputed for row in rows.itertuples()}
    assert expected and of(found, LOGGED) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("figure", "metric", "value"),
    [
        ("9", "dram_read_bytes_per_s", {"host": 226.48e9, "docker": 134.41e9, "apptainer": 135.18e9}),
        ("11", "dram_write_bytes_per_s", {"host": 271.59e9, "docker": 209.12e9, "apptainer": 198.92e9}),
        ("13", "flops", {"host": 3484655615, "docker": 10985897983, "apptainer": 10985897983}),
        ("15", "hbm_transactions", {"host": 25661472, "docker": 9451341, "apptainer": 9379529}),
    ],
)
def test_the_cnns_sums_done_again_stand_beside(figure, metric, value, given):
    found, _ = marks(drawn(given, figure))
    for env, expected in value.items():
        assert found[f"{REDONE}-mnist_cnn-{env}-{metric}"] == pytest.approx(expected, rel=1e-4)
    assert not of(marks(drawn(given, str(int(figure) + 1)))[0], REDONE), "the kernels of the RNN are lost"


@pytest.mark.parametrize(("figure", "workload"), [("17", "mnist_cnn"), ("18", "sentiment_rnn")])
def test_times_here_are_means_of_rounds_with_their_t_interval(figure, workload, given):
    found, spreads = marks(drawn(given, figure))
    assert {name.split("-")[2] for name in of(found, HERE)} == set(builders.ENVIRONMENTS)
    own = given.metrics[(given.metrics["campaign"] == ROUNDS) & (given.metrics["workload"] == workload)]
    for env in builders.ENVIRONMENTS:
        for metric in ("real_s", "system_s"):
            values = own[(own["launch"] == env) & (own["metric"] == metric)]["value"]
            assert len(values) == 6
            interval = t_interval(list(values), 0.05)
            name = f"{HERE}-{workload}-{env}-{metric}"
            assert found[name] == pytest.approx(values.mean())
            assert spreads[f"spread-{name}"] == pytest.approx((interval.low, interval.high))


def test_batch_sizes_are_rows_of_the_paper_the_logs_and_here(given):
    found, _ = marks(drawn(given, "3"))
    by_batch = {series: {int(name.split("-")[3]): value for name, value in of(found, series).items()}
                for series in (PRINTED, LOGGED, HERE)}  # fmt: skip
    published = dict(zip((16, 32, 64, 128, 256), (4.75, 3.973, 3.898, 3.835, 3.86), strict=True))
    assert by_batch[PRINTED] == pytest.approx(published)
    assert (by_batch[LOGGED][128], by_batch[LOGGED][256]) == pytest.approx((3.86, 3.835)), "figure 3 swaps them"
    sweep = given.metrics[(given.metrics["campaign"] == "sweep") & (given.metrics["workload"] == "sentiment_rnn")]
    here = sweep[sweep["metric"] == "real_s"].groupby("batch")["value"].mean()
    assert by_batch[HERE] == pytest.approx(here.to_dict())
    lines = [label for _, label, *_ in paper.slots(paper_rows.numbers(PAPER, given, PAPER.plot("3")))]
    assert lines == [f"batch {size}" for size in (16, 32, 64, 128, 256)]


@pytest.mark.parametrize("figure", ["5", "8", "10", "12", "16"])
def test_what_a_cpu_cannot_measure_says_so_and_keeps_what_was_published(figure, given, tmp_path):
    (reason,) = paper_rows.numbers(PAPER, given, PAPER.plot(figure)).missing()
    drawing = drawn(given, figure)
    said = " ".join(texts(drawing, tmp_path).split())
    assert "Measured here: unavailable" in said and reason[1:30] in said
    assert f"unavailable, {reason}" in drawing.alt
    found, _ = marks(drawing)
    assert not of(found, HERE) and len(of(found, PRINTED)) == 3
    assert len(drawing.figure.axes) == 1


def test_a_device_that_measures_memset_has_an_axis_of_its_own_beside(given, tmp_path):
    seen = {"host": [14e-6, 16e-6], "docker": [20e-6, 21e-6], "apptainer": [15e-6, 15.5e-6]}
    drawing = drawn(with_device(given, seen), "5")
    found, spreads = marks(drawing)
    name = f"{HERE}-mnist_cnn-docker-memset_s"
    assert found[name] == pytest.approx(20.5e-6)
    assert spreads[f"spread-{name}"] == pytest.approx((20e-6, 21e-6)), "two have a range and no interval"
    said = " ".join(texts(drawing, tmp_path).split())
    assert "unavailable" not in said and "from the smaller to the larger, no interval" in said
    assert "here 20.5 µs (20.0 to 21.0 µs, n = 2)" in drawing.alt
    left, right = drawing.figure.axes
    assert left.get_xlim() != right.get_xlim() and left.get_ylim() == right.get_ylim()


def test_one_launch_each_has_no_interval(given, tmp_path):
    drawing = drawn(with_device(given, {"host": [15e-6], "docker": [20e-6]}), "5")
    assert not [name for name in marks(drawing)[1] if HERE in name]
    assert "so no interval" in " ".join(texts(drawing, tmp_path).split())


def test_an_environment_without_its_number_is_named_with_its_reason(given):
    own = given.metrics.copy()
    gone = (own["metric"] == "real_s") & (own["launch"] == "docker") & (own["campaign"] == ROUNDS)
    own.loc[gone, ["value", "kind", "reason"]] = [None, "unavailable", "no launch succeeded"]
    drawing = drawn(replace(given, metrics=own), "17")
    found, _ = marks(drawing)
    assert f"{HERE}-mnist_cnn-docker-real_s" not in found and f"{HERE}-mnist_cnn-docker-system_s" in found
    assert "Docker: unavailable, no launch succeeded." in drawing.alt


def test_a_workload_that_is_not_part_of_the_study_says_so(given, tmp_path):
    own = given.metrics[given.metrics["workload"] == "mnist_cnn"]
    drawing = drawn(replace(given, metrics=own), "18")
    assert "This workload is not part of this study." in " ".join(texts(drawing, tmp_path).split())
    assert f"{PRINTED}-sentiment_rnn-host-real_s" in marks(drawing)[0]


def test_intervals_that_say_nothing_do_not_press_numbers_into_a_point(given, tmp_path):
    drawing = drawn(with_device(given, {"host": [15e-6, 15.1e-6, 15e-6], "docker": [1e-6, 20e-6, 40e-6]}), "5")
    right = drawing.figure.axes[1]
    assert right.get_xlim()[0] == 0 and right.get_xlim()[1] < 4 * 20.5e-6
    assert marks(drawing)[1][f"spread-{HERE}-mnist_cnn-docker-memset_s"][0] == 0
    assert "Arrows: cut at the axis." in " ".join(texts(drawing, tmp_path).split())
    assert [line.get_marker() for line in right.lines].count(">") == 1


def test_flops_are_said_to_be_modelled(given, tmp_path):
    drawing = drawn(given, "13")
    metrics = given.metrics
    row = metrics[(metrics["metric"] == "flops_per_step") & (metrics["workload"] == "mnist_cnn")].iloc[0]
    here = of(marks(drawing)[0], HERE)
    assert here and set(here.values()) == {row["value"]}
    assert "Modelled here" in texts(drawing, tmp_path)
    assert not [name for name in marks(drawing)[1] if HERE in name]


def numbers_unequal(axes):
    return sum("≠" in text.get_text() for text in axes.texts)


def test_a_number_that_is_not_its_own_logs_has_that_one_beside_it(given):
    for figure in ("7", "9", "15", "16"):
        rows = given.findings[(given.findings["figure"] == figure) & (given.findings["check"] == "figure_value")]
        assert numbers_unequal(drawn(given, figure).figure.axes[0]) == (rows["agrees"] == "no").sum(), figure
    assert "264 ≠ 226" in [text.get_text() for text in drawn(given, "9").figure.axes[0].texts]
    mended = given.findings.copy()
    mended.loc[mended["check"] == "figure_value", "agrees"] = "yes"
    assert numbers_unequal(drawn(replace(given, findings=mended), "16").figure.axes[0]) == 0


def test_panels_share_rows_and_the_papers_names_stand_beside_ours(given):
    drawing = drawn(given, "17")
    left, right = drawing.figure.axes
    named = [tick.get_text() for tick in left.get_yticklabels()]
    ours = ["Host (Bare VM)", "Docker", "Apptainer (Singularity)", "Charliecloud"]
    assert named == ["", *ours, "", *ours]
    assert left.get_ylim() == right.get_ylim() and left.get_xlim() != right.get_xlim()
    assert [text.get_text() for text in left.texts if "time" in text.get_text()] == ["real time", "system time"]


def test_series_are_told_apart_without_colour():
    shapes = [(paper.LOOK[one]["marker"], paper.LOOK[one].get("markerfacecolor")) for one in paper.LOOK]
    assert len(set(shapes)) == len(shapes) - 1, "at most and stated never stand in one figure"


def test_captions_count_and_sentences_have_every_number(given):
    names = [number for number in figures.figure_names(PAPER) if number != "4"]
    said = {number: paper.paper_words(PAPER, given, PAPER.plot(number)) for number in names}
    assert len(said) == 16
    assert said["7"][0][0] == "Published as labels; the authors' own logs have 2 of the 3 values."
    here = {f"Here: {word}." for word in ("measured", "modelled", "unavailable")}
    assert {caption[-1] for caption, _ in said.values()} == here
    assert said["16"][0][0].endswith("have none of the 3 values.")
    assert "(calls × average): 7.3 to 7.8 times the published." in " ".join(said["13"][0])
    for number, (_, sentences) in said.items():
        text = " ".join(sentences)
        for row in PAPER.figures[PAPER.figures["figure"] == number].itertuples():
            assert (row.printed.replace(" us", " µs") if row.unit != "1" else f"{row.value:,.0f}") in text


def test_equal_data_gives_equal_bytes_and_small_files(given, tmp_path):
    for figure in ("2", "13", "17"):
        first, second = (
            figures.write(drawn(given, figure), tmp_path / folder / "fig.svg") for folder in ("one", "two")
        )
        assert first.read_bytes() == second.read_bytes()
        assert first.stat().st_size < 80_000


def test_files_are_named_by_paper_and_number():
    assert [figures.file_name("nyu2022", number) for number in ("2", "18")] == ["nyu2022_fig02", "nyu2022_fig18"]
    assert figures.figure_names(PAPER) == [str(number) for number in range(2, 19)]


def test_amounts_have_their_own_unit():
    assert paper_rows.amount(15e-6, "s") == "15.0 µs"
    assert paper_rows.amount(2.646e11, "B/s") == "265 GB/s"
    assert paper_rows.amount(1_404_387_328, "1") == "1.40 billion"


def test_a_wide_interval_of_a_batch_size_is_cut_with_arrows(given, tmp_path):
    own = given.metrics.copy()
    sweep = own[(own["campaign"] == "sweep") & (own["metric"] == "real_s") & (own["workload"] == "mnist_cnn")]
    own.loc[sweep[sweep["batch"] == 64].index, "value"] = [1.0, 4.0, 7.0]
    drawing = drawn(replace(given, metrics=own), "2")
    assert "Arrows: cut at the axis." in " ".join(texts(drawing, tmp_path).split())
    signs = [line.get_marker() for line in drawing.figure.axes[1].lines]
    assert signs.count("<") == 1 and signs.count(">") == 1
    assert "Arrows" not in " ".join(texts(drawn(given, "2"), tmp_path).split())


def test_names_of_points_of_a_roofline_do_not_overlap(given):
    drawing = drawn(given, "4")
    drawing.figure.draw_without_rendering()
    for axes in drawing.figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts if text.get_fontweight() == "bold"]
        assert boxes and not [one for one, other in itertools.combinations(boxes, 2) if one.overlaps(other)]


def test_a_sweep_of_two_launches_a_size_keeps_its_bars_on_the_axis(given, tmp_path):
    own = given.metrics
    twice = own[~((own["campaign"] == "sweep") & (own["rep"] > own[own["campaign"] == "sweep"]["rep"].min() + 1))]
    assert set(
        twice[(twice["campaign"] == "sweep") & (twice["metric"] == "real_s")].groupby(["workload", "batch"]).size()
    ) == {2}
    drawing = drawn(replace(given, metrics=twice), "2")
    right = drawing.figure.axes[1]
    low, high = right.get_xlim()
    bars = [ends for name, ends in marks(drawing)[1].items() if HERE in name]
    assert len(bars) == 5 and all(low <= end <= high for ends in bars for end in ends)
    said = " ".join(texts(drawing, tmp_path).split())
    assert "no interval" in said and "Arrows" not in said


def test_a_name_that_is_too_long_stands_above_its_marks(given):
    rows = paper_rows.numbers(PAPER, given, PAPER.plot("5")).rows
    long = "a name of more letters than stand beside"
    own = paper_rows.Numbers(rows=rows.assign(label=rows["label"].replace({"Docker": long})))
    assert [slot[1:] for slot in paper.slots(own)] == [
        ("Host (Bare VM)", "Host (Bare VM)", False), (long, long, True), (long, "", False),
        ("Apptainer (Singularity)", "Apptainer (Singularity)", False),
    ]  # fmt: skip


def test_an_interval_that_lacks_an_end_has_an_arrow_there(given):
    found = paper_rows.numbers(PAPER, given, PAPER.plot("17"))
    of_docker = (found.rows["series"] == HERE) & (found.rows["env"] == "docker")
    rows = found.rows.assign(high=found.rows["high"].mask(of_docker))
    axes = Figure().subplots()
    paper._panel(axes, replace(found, rows=rows), (HERE,), "Here")
    assert [line.get_marker() for line in axes.lines].count(">") == 2, "real and system time"
    for one, is_cut in ((replace(found, rows=rows), True), (found, False)):
        note = paper.note_of(PAPER.plot("17"), [one])
        assert ("Arrows" in note) == is_cut
