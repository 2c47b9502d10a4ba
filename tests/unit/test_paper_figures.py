"""The paper's figures on synthetic results: every bar is the tables' number, and what is missing says why."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import builders
import pytest
from matplotlib.figure import Figure

from tare.literature.published import load
from tare.model import tables
from tare.model.studies.study import campaign_name
from tare.report import figures
from tare.report.figures import paper_groups, paper_rows, paper_words
from tare.report.figures.paper_rows import HERE, LOGGED, PRINTED, REDONE, numbers
from tare.stats.intervals import t_interval

SVG = "{http://www.w3.org/2000/svg}"
PAPER = load("nyu2022")
BY_ENVIRONMENT = [str(number) for number in range(5, 19)]
ROUNDS = campaign_name("rounds", [*builders.ENVIRONMENTS, *builders.UNAVAILABLE])


@pytest.fixture(scope="module")
def metrics(results):
    return tables.read("metrics", results / "tables/metrics.parquet")


@pytest.fixture(scope="module")
def findings(results):
    return tables.read("published", results / "tables/published.csv")


def with_device(metrics, per_env, metric="memset_s", workload="mnist_cnn"):
    """The metrics of a machine whose device measures this, one value or several by environment."""
    row = metrics[(metrics["campaign"] == "profile") & (metrics["workload"] == workload)].iloc[0].to_dict()
    rest = metrics[~((metrics["metric"] == metric) & (metrics["workload"] == workload))]
    rows = [
        {**row, "env": env, "rep": rep, "metric": metric, "value": value, "unit": "s", "kind": "measured",
         "source": "device activities", "reason": None}
        for env, values in per_env.items()
        for rep, value in enumerate(values)
    ]  # fmt: skip
    return tables.make("metrics", [*rest.to_dict("records"), *rows])


def heights(drawing):
    """Height of each bar by its name, in base units."""
    return {
        patch.get_gid(): patch.get_height()
        for axes in drawing.figure.axes
        for patch in axes.patches
        if patch.get_gid()
    }


def spreads(drawing):
    lines = [line for axes in drawing.figure.axes for line in axes.lines]
    return {
        line.get_gid(): tuple(line.get_ydata()) for line in lines if (line.get_gid() or "").startswith("spread-")
    }


def points(drawing, name):
    """Values by place of one series of a figure by batch size."""
    (line,) = [line for axes in drawing.figure.axes for line in axes.lines if line.get_gid() == name]
    return dict(zip(line.get_xdata(), line.get_ydata(), strict=True))


def texts(drawing, tmp_path):
    path = figures.write(drawing, tmp_path / "figure.svg")
    return " ".join(" ".join(node.itertext()) for node in ET.parse(path).iter(f"{SVG}text"))


@pytest.mark.parametrize("figure", BY_ENVIRONMENT)
def test_every_published_value_is_a_bar_with_its_reading_error(figure, findings, metrics):
    drawing = figures.paper_figure(PAPER, findings, metrics, figure)
    found, whiskers = heights(drawing), spreads(drawing)
    rows = PAPER.figures[PAPER.figures["figure"] == figure]
    assert len(rows) in (3, 6)
    for row in rows.itertuples():
        name = f"{PRINTED}-{row.env}-{row.metric}"
        assert found[name] == pytest.approx(row.value)
        if row.kind == "figure_digitised":
            assert whiskers[f"spread-{name}"] == pytest.approx((row.value - row.error, row.value + row.error))
        else:
            assert f"spread-{name}" not in whiskers


@pytest.mark.parametrize("figure", BY_ENVIRONMENT)
def test_every_number_of_the_logs_is_a_bar(figure, findings, metrics):
    found = heights(figures.paper_figure(PAPER, findings, metrics, figure))
    rows = findings[(findings["figure"] == figure) & (findings["check"] == "figure_value")]
    rows = rows[rows["recomputed"].notna()]
    expected = {f"{LOGGED}-{row.env}-{row.metric}": row.recomputed for row in rows.itertuples()}
    assert expected
    assert {name: value for name, value in found.items() if name.startswith(LOGGED)} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("figure", "bar", "value"),
    [
        ("9", "dram_read_bytes_per_s", {"host": 226.48e9, "docker": 134.41e9, "apptainer": 135.18e9}),
        ("11", "dram_write_bytes_per_s", {"host": 271.59e9, "docker": 209.12e9, "apptainer": 198.92e9}),
        ("13", "flops", {"host": 3484655615, "docker": 10985897983, "apptainer": 10985897983}),
        ("15", "hbm_transactions", {"host": 25661472, "docker": 9451341, "apptainer": 9379529}),
    ],
)
def test_the_cnns_sums_done_again_stand_beside(figure, bar, value, findings, metrics):
    found = heights(figures.paper_figure(PAPER, findings, metrics, figure))
    for env, expected in value.items():
        assert found[f"{REDONE}-{env}-{bar}"] == pytest.approx(expected, rel=1e-4)
    rnn = heights(figures.paper_figure(PAPER, findings, metrics, str(int(figure) + 1)))
    assert not [name for name in rnn if name.startswith(REDONE)], "its kernels are lost"


@pytest.mark.parametrize(("figure", "workload"), [("17", "mnist_cnn"), ("18", "sentiment_rnn")])
def test_times_here_are_means_of_rounds_with_their_t_interval(figure, workload, findings, metrics):
    drawing = figures.paper_figure(PAPER, findings, metrics, figure)
    found, whiskers = heights(drawing), spreads(drawing)
    assert {name.split("-")[1] for name in found if name.startswith(HERE)} == set(builders.ENVIRONMENTS)
    own = metrics[(metrics["campaign"] == ROUNDS) & (metrics["workload"] == workload)]
    for env in builders.ENVIRONMENTS:
        for metric in ("real_s", "system_s"):
            values = own[(own["env"] == env) & (own["metric"] == metric)]["value"]
            assert len(values) == 6
            interval = t_interval(list(values), 0.05)
            name = f"{HERE}-{env}-{metric}"
            assert found[name] == pytest.approx(values.mean())
            assert whiskers[f"spread-{name}"] == pytest.approx((interval.low, interval.high))


def test_batch_sizes_are_points_of_the_paper_the_logs_and_here(findings, metrics):
    drawing = figures.paper_figure(PAPER, findings, metrics, "3")
    name = "{}-host-real_s"
    published = [4.75, 3.973, 3.898, 3.835, 3.86]
    assert points(drawing, name.format(PRINTED)) == pytest.approx(dict(enumerate(published)))
    logged = points(drawing, name.format(LOGGED))
    assert (logged[3], logged[4]) == pytest.approx((3.86, 3.835)), "figure 3 swaps 128 and 256"
    sweep = metrics[(metrics["campaign"] == "sweep") & (metrics["workload"] == "sentiment_rnn")]
    here = sweep[sweep["metric"] == "real_s"].groupby("batch")["value"].mean()
    assert points(drawing, name.format(HERE)) == pytest.approx(dict(enumerate(here.sort_index())))


@pytest.mark.parametrize("figure", ["5", "8", "10", "12", "16"])
def test_what_a_cpu_cannot_measure_says_so_and_keeps_the_published_bars(figure, findings, metrics, tmp_path):
    found = numbers(PAPER, findings, metrics, figure)
    drawing = figures.paper_figure(PAPER, findings, metrics, figure)
    (reason,) = found.missing()
    said = " ".join(texts(drawing, tmp_path).split())
    assert "Measured here: unavailable" in said
    assert reason[1:30] in said
    assert f"unavailable, {reason}" in drawing.alt
    assert not [name for name in heights(drawing) if name.startswith(HERE)]
    assert len([name for name in heights(drawing) if name.startswith(PRINTED)]) == 3


def test_a_device_that_measures_memset_fills_the_same_panel(findings, metrics, tmp_path):
    seen = {"host": [14e-6, 16e-6], "docker": [20e-6, 21e-6], "apptainer": [15e-6, 15.5e-6]}
    drawing = figures.paper_figure(PAPER, findings, with_device(metrics, seen), "5")
    assert heights(drawing)[f"{HERE}-docker-memset_s"] == pytest.approx(20.5e-6)
    low, high = spreads(drawing)[f"spread-{HERE}-docker-memset_s"]
    assert (low, high) == pytest.approx((20.5e-6 - 12.706 * 0.5e-6, 20.5e-6 + 12.706 * 0.5e-6), rel=1e-3)
    assert "unavailable" not in texts(drawing, tmp_path)
    assert "Docker 20.5 µs (14.1 to 26.9 µs, n = 2)" in drawing.alt


def test_one_launch_each_has_no_interval(findings, metrics, tmp_path):
    seen = {"host": [15e-6], "docker": [20e-6]}
    drawing = figures.paper_figure(PAPER, findings, with_device(metrics, seen), "5")
    assert not [name for name in spreads(drawing) if HERE in name]
    assert "so no interval" in " ".join(texts(drawing, tmp_path).split())


def test_an_environment_without_its_number_is_named_with_its_reason(findings, metrics):
    own = metrics.copy()
    gone = (own["metric"] == "real_s") & (own["env"] == "docker") & (own["campaign"] == ROUNDS)
    own.loc[gone, ["value", "kind", "reason"]] = [None, "unavailable", "no launch succeeded"]
    drawing = figures.paper_figure(PAPER, findings, own, "17")
    assert f"{HERE}-docker-real_s" not in heights(drawing)
    assert f"{HERE}-docker-system_s" in heights(drawing)
    assert "Docker: unavailable, no launch succeeded." in drawing.alt


def test_a_workload_that_is_not_part_of_the_study_says_so(findings, metrics, tmp_path):
    drawing = figures.paper_figure(PAPER, findings, metrics[metrics["workload"] == "mnist_cnn"], "18")
    assert "This workload is not part of this study." in texts(drawing, tmp_path)
    assert f"{PRINTED}-host-real_s" in heights(drawing)


def test_intervals_that_say_nothing_do_not_press_bars_flat(findings, metrics, tmp_path):
    seen = {"host": [15e-6, 15.1e-6], "docker": [1e-6, 40e-6]}
    drawing = figures.paper_figure(PAPER, findings, with_device(metrics, seen), "5")
    below = drawing.figure.axes[1]
    assert below.get_ylim()[0] == 0 and below.get_ylim()[1] < 4 * 20.5e-6
    assert spreads(drawing)[f"spread-{HERE}-docker-memset_s"][0] == 0
    assert "Arrows: cut at the axis." in " ".join(texts(drawing, tmp_path).split())


def test_flops_are_said_to_be_modelled(findings, metrics, tmp_path):
    drawing = figures.paper_figure(PAPER, findings, metrics, "13")
    row = metrics[(metrics["metric"] == "flops_per_step") & (metrics["workload"] == "mnist_cnn")].iloc[0]
    assert heights(drawing)[f"{HERE}-{row['env']}-flops"] == pytest.approx(row["value"])
    assert "Modelled here, one training step" in texts(drawing, tmp_path)
    assert not [name for name in spreads(drawing) if HERE in name]


def marks(axes):
    return sum(text.get_text() == "≠" for text in axes.texts)


def test_a_mark_stands_where_a_value_is_not_its_own_logs(findings, metrics):
    for figure in ("7", "15", "16"):
        rows = findings[(findings["figure"] == figure) & (findings["check"] == "figure_value")]
        axes = figures.paper_figure(PAPER, findings, metrics, figure).figure.axes[0]
        assert marks(axes) == (rows["agrees"] == "no").sum(), figure
    mended = findings.copy()
    mended.loc[mended["check"] == "figure_value", "agrees"] = "yes"
    assert marks(figures.paper_figure(PAPER, mended, metrics, "16").figure.axes[0]) == 0


def test_panels_share_columns_and_the_papers_names_stay_its_own(findings, metrics):
    above, below = figures.paper_figure(PAPER, findings, metrics, "17").figure.axes
    assert [tick.get_text() for tick in above.get_xticklabels()] == ["Bare VM", "Docker", "Singularity", "–"]
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["Host", "Docker", "Apptainer", "Charliecloud"]
    assert above.get_ylim() != below.get_ylim()


def test_series_are_told_apart_without_colour(findings, metrics):
    bars = {p.get_gid(): p for p in figures.paper_figure(PAPER, findings, metrics, "9").figure.axes[0].patches}
    hatches = [bars[f"{series}-docker-dram_read_bytes_per_s"].get_hatch() for series in (PRINTED, LOGGED, REDONE)]
    assert len(set(hatches)) == 3 and not hatches[0]


def test_captions_count_and_sentences_have_every_number(findings, metrics):
    said = {n: numbers(PAPER, findings, metrics, n) for n in figures.figure_names(PAPER) if n != "4"}
    assert len(said) == 16
    assert paper_words.caption(said["7"])[0] == "Published as labels; the authors' own logs have 2 of the 3 values."
    assert paper_words.caption(said["16"])[0].endswith("have none of the 3 values.")
    assert "(calls × average): 7.3 to 7.8 times the published." in " ".join(paper_words.caption(said["13"]))
    for found in said.values():
        text = " ".join(paper_words.sentences(found))
        for row in found.of(PRINTED).to_dict("records"):
            expected = row["printed"] if row["unit"] != "1" else f"{row['value']:,.0f}"
            assert expected in text


def test_equal_data_gives_equal_bytes_and_small_files(findings, metrics, tmp_path):
    for figure in ("2", "13", "17"):
        first, second = (
            figures.write(figures.paper_figure(PAPER, findings, metrics, figure), tmp_path / folder / "fig.svg")
            for folder in ("one", "two")
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


def test_a_wide_interval_of_a_batch_size_is_cut_with_an_arrow(findings, metrics, tmp_path):
    own = metrics.copy()
    sweep = own[(own["campaign"] == "sweep") & (own["metric"] == "real_s") & (own["workload"] == "mnist_cnn")]
    own.loc[sweep[sweep["batch"] == 64].index, "value"] = [1.0, 4.0, 7.0]
    drawing = figures.paper_figure(PAPER, findings, own, "2")
    assert "Arrows: cut at the axis." in " ".join(texts(drawing, tmp_path).split())
    signs = [line.get_marker() for line in drawing.figure.axes[1].lines]
    assert signs.count("^") == 1 and signs.count("v") == 1
    untouched = figures.paper_figure(PAPER, findings, metrics, "2")
    assert "Arrows" not in " ".join(texts(untouched, tmp_path).split())


def test_what_a_text_states_stands_in_its_order_beside_the_bars_and_never_one_on_the_other():
    axes = Figure().subplots()
    paper_groups._state(axes, [(0.80, "a fifth"), (0.65, "a third"), (0.75, "a quarter")], 2.5, 0.1)
    told = {text.get_text(): text for text in axes.texts}
    places = [told[name].xyann[1] for name in ("a third", "a quarter", "a fifth")]
    assert places == pytest.approx([0.65, 0.75, 0.85])
    assert all(text.xyann[0] > 2.5 for text in told.values())
    assert [name for name, text in told.items() if text.arrow_patch] == ["a fifth"], "a leader to its line"
    assert [line.get_ydata()[0] for line in axes.lines] == [0.65, 0.75, 0.80]
