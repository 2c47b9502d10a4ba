"""What published studies say: every number with its unit, and one clear line for every broken file."""

from collections import Counter
from types import SimpleNamespace

import pandas
import pytest
from audit_builders import edited

from tare.core.errors import UserError
from tare.literature import published, specifications
from tare.literature.published_file import read_paper
from tare.model.quantities import parse
from tare.model.studies import papers


@pytest.fixture(scope="module")
def nyu():
    return published.load("nyu2022")


def bar(study, figure, env="host", batch=None, metric=None):
    rows = study.figures[(study.figures["figure"] == figure) & (study.figures["env"] == env)]
    rows = rows if batch is None else rows[rows["batch"] == batch]
    rows = rows if metric is None else rows[rows["metric"] == metric]
    return rows.iloc[0]


def logged(study, workload, env, metric, statistic="summary"):
    logs = study.logs
    rows = logs[(logs["workload"] == workload) & (logs["env"] == env)]
    rows = rows[(rows["metric"] == metric) & (rows["statistic"] == statistic)]
    return rows.iloc[0]


def test_four_studies_are_there_and_load():
    assert papers.paper_names() == ["columbia2025", "modak2020", "nthu2018", "nyu2022"]
    for paper in papers.paper_names():
        study = published.load(paper)
        assert study.title and study.provenance and study.tables and study.text


def test_the_figures_hold_every_bar_in_base_units(nyu):
    assert set(nyu.figures["figure"]) == {str(number) for number in range(2, 19)}
    by_figure = nyu.figures.groupby("figure").size()
    assert by_figure["2"] == by_figure["3"] == 5 and by_figure["4"] == 4
    assert all(by_figure[str(number)] == 3 for number in range(5, 17))
    assert by_figure["17"] == by_figure["18"] == 6
    assert set(nyu.figures["env"]) == {"host", "docker", "apptainer"}
    assert set(nyu.figures["workload"]) == {"mnist_cnn", "sentiment_rnn"}


@pytest.mark.parametrize(
    ("figure", "env", "batch", "metric", "value", "unit", "kind", "error"),
    [
        ("2", "host", 256, "real_s", 5.44, "s", "figure_digitised", 0.01),
        ("3", "host", 128, "real_s", 3.835, "s", "figure_label", None),
        ("4", "host", None, "log2_gflops", 5.0, "1", "figure_digitised", 0.1),
        ("5", "docker", None, "memset_s", 15.8e-6, "s", "figure_digitised", 0.15e-6),
        ("6", "apptainer", None, "memset_s", 27.1e-6, "s", "figure_digitised", 0.2e-6),
        ("7", "docker", None, "htod_s", 910.93e-6, "s", "figure_label", None),
        ("8", "docker", None, "htod_s", 907.93e-6, "s", "figure_label", None),
        ("9", "host", None, "dram_read_bytes_per_s", 264.5e9, "B/s", "figure_digitised", 1.8e9),
        ("12", "docker", None, "dram_write_bytes_per_s", 109e9, "B/s", "figure_digitised", 0.8e9),
        ("13", "host", None, "flops", 475211776, "1", "figure_label", None),
        ("14", "host", None, "flops", 651979186, "1", "figure_label", None),
        ("16", "apptainer", None, "hbm_transactions", 2071931, "1", "figure_label", None),
        ("17", "docker", None, "real_s", 5.18, "s", "figure_digitised", 0.05),
        ("18", "host", None, "system_s", 1.36, "s", "figure_digitised", 0.02),
    ],
)
def test_a_bar_has_value_unit_kind_and_error(nyu, figure, env, batch, metric, value, unit, kind, error):
    row = bar(nyu, figure, env, batch, metric)
    assert row["value"] == pytest.approx(value, rel=1e-12)
    assert (row["unit"], row["kind"]) == (unit, kind)
    assert row["error"] == pytest.approx(error) if error else row.isna()["error"]


def test_the_logs_hold_their_numbers_and_how_far_digits_tell(nyu):
    assert logged(nyu, "mnist_cnn", "host", "memset_s", "total")["value"] == pytest.approx(15.072e-6)
    assert logged(nyu, "mnist_cnn", "host", "memset_s", "total")["rounding"] == pytest.approx(0.5e-9)
    assert logged(nyu, "mnist_cnn", "docker", "htod_s", "total")["rounding"] == pytest.approx(5e-9)
    assert logged(nyu, "sentiment_rnn", "apptainer", "dtoh_s", "calls")["value"] == 16
    assert logged(nyu, "sentiment_rnn", "docker", "flops")["value"] == 651971353
    throughput = logged(nyu, "mnist_cnn", "docker", "dram_read_bytes_per_s")
    assert (throughput["value"], throughput["unit"]) == (272, "unlabelled")
    runs = nyu.logs[nyu.logs["statistic"] == "run"]
    assert len(runs) == 3 * 15
    host = runs[(runs["workload"] == "sentiment_rnn") & (runs["env"] == "host") & (runs["metric"] == "real_s")]
    assert sorted(host["value"]) == [3.835, 3.860, 3.898, 3.973, 4.460, 4.746]


def test_tables_are_specifications_with_value_and_unit(nyu):
    rows = {(table, row.id): row for table, own in nyu.tables.items() for row in own}
    said = {place: (row.quantity.value, row.quantity.unit) for place, row in rows.items() if row.quantity}
    assert said["I", "vcpu"] == (8.0, "1") and said["I", "boot_disk"] == (100e9, "B")
    assert said["V", "tensor_peak"] == (125e12, "FLOP/s")
    assert rows["IV", "python"].names == ("3.7",)


def test_claims_name_what_they_are_about(nyu):
    claims = {claim.id: claim for claim in nyu.claims}
    assert claims["time_singularity_lowest"].env == "apptainer"
    assert claims["dram_throughput_equal"].figures == ("9", "10", "11", "12")


@pytest.mark.parametrize(
    ("paper", "name", "labels", "value", "unit"),
    [
        ("nyu2022", "roofline_peak", {}, 125e12, "FLOP/s"),
        ("nyu2022", "imdb_validation", {}, 15000, "1"),
        ("nyu2022", "learning_rate", {"workload": "sentiment_rnn"}, 0.001, "1"),
        ("columbia2025", "image_build", {}, 199.7, "s"),
        ("columbia2025", "step_last", {"env": "docker", "model": "alexnet"}, 0.101, "s"),
        ("columbia2025", "own_flops_max", {"model": "resnet50"}, 3.93984e12, "FLOP/s"),
        ("columbia2025", "clock_max", {}, 2025e6, "Hz"),
        ("nthu2018", "network", {}, 125e6, "B/s"),
        ("nthu2018", "dist_elapsed_max_factor", {}, 1.5, "1"),
        ("nthu2018", "single_real_elapsed_cvm", {"env": "docker.vm"}, 30, "%"),
        ("modak2020", "xla_mnist_cpu", {}, -30, "%"),
        ("modak2020", "imagenet_images", {}, 14_000_000, "1"),
    ],
)
def test_numbers_of_all_studies_arrive(paper, name, labels, value, unit):
    fact = published.load(paper).fact(name, **labels)
    assert fact.quantity.value == pytest.approx(value, rel=1e-12)
    assert fact.quantity.unit == unit


def test_a_range_keeps_both_ends():
    fact = published.load("nthu2018").fact("shared_small_batch_degradation")
    assert (fact.quantity.value, fact.upper.value) == (15, 20)


def test_every_percentage_of_nthu2018_is_judged_by_a_claim():
    """Of the same scenario, with its size as the bound; a factor is so much more than the whole."""
    paper = published.load("nthu2018")
    judged = {(claim.scenario, claim.bound.value) for claim in paper.claims if claim.bound}
    stated = {
        (fact.labels["scenario"], value.value if value.unit == "%" else 100 * (value.value - 1))
        for fact in paper.facts
        if fact.quantity is not None and (value := fact.upper or fact.quantity)
    }
    assert len(stated) >= 10 and stated <= judged, sorted(stated - judged)


def test_every_sentence_of_nthu2018_on_its_results_is_judged_by_a_claim_or_says_why_not():
    """As many of each section as its text has, none of its claims left over, of the section that says it."""
    paper = read_paper(published.load("nthu2018").path)
    counts = Counter(sentence.where for sentence in paper.sentences)
    assert counts == {
        "section 4.1": 16, "section 4.2": 13, "section 4.3": 8, "section 6(1)": 2, "section 6(2)": 5,
        "section 6(3)": 3, "section 6(4)": 4, "section 6": 1,
    }  # fmt: skip
    assert all(bool(sentence.claims) != bool(sentence.why_not) for sentence in paper.sentences)
    told = {name for sentence in paper.sentences for name in sentence.claims}
    assert told == {claim.id for claim in paper.claims}
    for claim in paper.claims:
        assert claim.where in {sentence.where for sentence in paper.sentences if claim.id in sentence.claims}


def test_every_quantity_that_nthu2018_states_of_results_stands_beside_a_figure():
    """Of the same scenario, and of models that it shows."""
    paper = published.load("nthu2018")
    stated = [fact for fact in paper.facts if fact.quantity]
    assert len(stated) >= 12
    for fact in stated:
        plots = [plot for plot in paper.plotted if fact.id in plot.facts]
        assert plots, f"{fact.id} stands beside no figure"
        for plot in plots:
            assert plot.scenario == fact.labels["scenario"] and set(fact.labels.get("models", ())) <= {
                *plot.subjects
            }


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("claims: [synthetic_elapsed_suffers_more]", "claims: [synthetic_elapsed]", "no claim 'synthetic_elapsed'"),
        ("claims: [synthetic_elapsed_suffers_more]", "claims: []", "needs one of claims or why_not"),
        ("    than: {metric: images_per_s}\n", "", "rule more_than needs than"),
        ("than: {metric: images_per_s}", "than: {}", "needs one of models or metric or arm or scenario"),
        ("than: {metric: images_per_s}", "than: {metric: images_per_h}", "did you mean 'images_per_s'?"),
        ("    arm: input=real\n    statement", "    arm: input=real\n    needs: [network]\n    statement",
         "needs: network: is of the scenario distributed alone"),
    ],
)  # fmt: skip
def test_a_wrong_sentence_or_comparison_is_one_line(tmp_path, old, new, says):
    with pytest.raises(UserError) as caught:
        published.load("nthu2018", edited(tmp_path, (old, new), file="nthu2018.yaml"))
    assert says in str(caught.value) and "nthu2018.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_numbers_of_the_tables_of_the_other_studies_arrive():
    rows = published.load("columbia2025").tables["1"]
    assert len(rows) == 18
    found = {(row.id, row.labels["model"], row.labels["env"]): row.quantity.value for row in rows}
    assert found["flops", "resnet18", "docker"] == pytest.approx(5.13216e12)
    assert found["memory_bandwidth", "alexnet", "host"] == 15760e6
    batches = {row.labels["model"]: row.quantity.value for row in published.load("nthu2018").tables["1"]
               if row.id == "batch_per_gpu"}  # fmt: skip
    assert batches == {"inception3": 32, "resnet50": 32, "alexnet": 512}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    metric: memset_s\n", "", "figures: 7 (5): metric missing"),
        ("    metric: memset_s\n", "    metrik: memset_s\n", "did you mean 'metric'?"),
        ("host: 14.9 us", "host: 14.9", "14.9 is no quantity; write a number and its unit"),
        ("host: 14.9 us", "host: 14.9 parsecs", "has no unit that is known"),
        ("host: 14.9 us", "host: 14.9 GB/s", "is in B/s, and must be in s"),
        ("host: 14.9 us", "hots: 14.9 us", "did you mean 'host'?"),
        ("error: 0.15 us\n", "error: 0.15\n", "figures: 7 (5): error: 0.15 is no quantity"),
        ("    error: 0.15 us\n", "", "a digitised value, and no other, needs `error`"),
        ("metric: memset_s", "metric: memset_time", "did you mean 'memset_s'?"),
        ("    workload: mnist_cnn\n    metric: memset_s", "    workload: mnist\n    metric: memset_s",
         "unknown workload 'mnist': did you mean 'mnist_cnn'?"),
        ("kind: figure_label", "kind: figure_lable", "did you mean 'figure_label'?"),
        ("batches: {16: 5.32 s", "batches: {sixteen: 5.32 s", "keys must be batch sizes"),
        ('cuda, name: "11.3"', "cuda, name: 11.3", "11.3 must be text: put it in quotes"),
        ("vcpu, value: 8 vCPU", "vcpu", "tables: 0 (I): rows: 6 (vcpu): needs one of value or name or names"),
        ("vcpu, value: 8 vCPU", "vcpu, value: 8 vcpus",
         "tables: 0 (I): rows: 6 (vcpu): value: '8 vcpus' has no unit that is known"),
        ("paper: nyu2022", "paper: nyu2023", "must be the file's name"),
        ("schema: 1", "schema: 1\nschema: 1", "the key 'schema' appears twice"),
        ("schema: 1", "schema: [", "not YAML"),
        ("total: 871.48 us", "total: 871.48 calls", "must be in s"),
    ],
)  # fmt: skip
def test_a_broken_study_is_one_clear_line(tmp_path, old, new, says):
    folder = edited(tmp_path, (old, new))
    with pytest.raises(UserError) as caught:
        published.load("nyu2022", folder)
    line = str(caught.value)
    assert says in line and "nyu2022.yaml" in line
    assert "\n" not in line


def test_an_unknown_study_entry_or_row_has_its_nearest_name(nyu):
    with pytest.raises(UserError, match="did you mean 'nyu2022'"):
        published.load("nyu2021")
    with pytest.raises(UserError, match="did you mean 'ridge'"):
        nyu.fact("rigde")
    with pytest.raises(UserError, match="no figure '19': "):
        nyu.plot("19")


def test_a_quantity_keeps_its_digits():
    quantity = parse("15.840 us", "here")
    assert str(quantity) == "15.840 us"
    assert quantity.exact_rounding * 10**9 == quantity.exact_rounding.__class__("0.5")
    assert parse("1 Gbit/s", "here").value == 125e6
    with pytest.raises(UserError, match=r"here: 7 is no quantity"):
        parse(7, "here")
    with pytest.raises(UserError, match=r"must be in s"):
        parse("7 GB", "here", "s")


def test_a_row_of_a_table_has_the_versions_of_the_stacks_that_were_measured_or_says_why_not():
    """TensorFlow 2.1 alone ran with XLA; a launch that failed measured nothing."""
    rows = [
        ("tensorflow-1.14", "tensorflow-1.14", "measured"),
        ("tensorflow-2.1", "tensorflow-2.1+xla", "measured"),
        ("torch-1.4", "torch-1.4", "unavailable"),
    ]
    metrics = pandas.DataFrame(rows, columns=["stack", "level_stack", "kind"])
    measured = SimpleNamespace(metrics=metrics, machine=None, probes={})
    study = published.load("modak2020")
    here = {}
    for name in ("tensorflow", "xla", "pytorch", "glow"):
        row = {"figure": f"table {next(iter(study.tables))}", "workload": None, "env": None, "metric": name}
        here[name] = specifications.value_here(study, measured, row).note
    assert here["tensorflow"] == "tensorflow 1.14.0; tensorflow-cpu 2.1.0"
    assert here["xla"] == "tensorflow-cpu 2.1.0"
    assert here["pytorch"] == "unavailable, no stack with torch was measured"
    assert here["glow"] == "unavailable, the package index has none"


@pytest.mark.parametrize(
    ("said", "reason"),
    [({}, "did not report it"), ({"power": None}, "did not report it"), ({"power": "[N/A]"}, "says '[N/A]'")],
)
def test_a_number_of_a_gpu_that_is_not_there_has_its_reason(said, reason):
    found = specifications._of_first([said], "power", 1.0, "W")
    assert found.kind == "unavailable" and found.value is None and reason in found.note
