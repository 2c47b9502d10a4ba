"""Two studies claim by claim: what is said of each, how often that is false, the table, the page, a rerun."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import archive_builders
import numpy as np
import pytest
import yaml
from agreeing import EDGE, MARGIN, false_rates
from asked import spec
from ledger_builders import plan_of
from pages import row

from tare.analysis import agreement
from tare.analysis.agreement import Side, agreed, departures
from tare.archive import rerunning, writing
from tare.archive.agreement import results_in
from tare.cli import rerun as command
from tare.cli.main import main
from tare.core.errors import UserError
from tare.core.files import project_root
from tare.model import tables
from tare.model.records.machine import MachineRecord
from tare.model.roles import read_role
from tare.model.studies import layout
from tare.model.studies.checks import check
from tare.model.studies.loading import load, load_checked, merge
from tare.report import agreement as page
from tare.stats.agreement import Gap, Judged, Stated, fewest_degrees, judged, within
from tare.stats.families import holm_levels
from tare.stats.intervals import student, t_quantile

ROUNDS, STEPS = "rounds.docker+host", "steps.docker+host"
REASON = "too few rounds"

# --- the interval of a difference


def one(mean=0.0, half=0.01, alpha=0.05, degrees=9):
    return Stated(mean=mean, low=mean - half, high=mean + half, alpha=alpha, degrees=degrees)


@pytest.mark.parametrize(
    ("units", "design", "degrees"),
    [(6, "fixed", 5), (7, "fixed", 6), (8, "fixed", 5), (20, "fixed", 11), (20, "stein", 5), (4, "fixed", 3),
     (2, "stein", 1)],
)  # fmt: skip
def test_an_interval_rests_on_few_degrees_of_freedom_where_nobody_says_how_many(units, design, degrees):
    assert fewest_degrees(units, design) == degrees


@pytest.mark.parametrize("degrees", [5, 8, 30, 500])
@pytest.mark.parametrize("level", [0.001, 0.01, 0.05, 0.3])
def test_a_stated_interval_is_never_too_narrow_at_another_level(degrees, level):
    """What it really rests on may be more than what is known of it."""
    half = t_quantile(0.01, degrees)
    below, above = one(half=half, alpha=0.01, degrees=min(degrees, 5)).halves(level)
    assert below == above >= t_quantile(level, degrees) * (1 - 1e-9)
    assert one(half=half, alpha=0.01).halves(0.01) == pytest.approx((half, half))


def test_the_difference_has_both_errors():
    gap = Gap(first=one(0.01, 0.03), second=one(0.06, 0.04))
    told = gap.interval(0.05).mean_low_high
    assert told == pytest.approx((0.05, 0.0, 0.10))
    assert gap.p_different == pytest.approx(0.05, rel=1e-6)
    assert gap.interval(0.04).excludes_zero is False and gap.interval(0.06).excludes_zero is True
    margin = math.expm1(0.10)
    assert gap.p_within(margin) == pytest.approx(0.05, rel=1e-6) and gap.p_within(0.02) == 1.0
    lopsided = Gap(first=replace(one(), high=0.05), second=one()).interval(0.05).mean_low_high
    assert lopsided == pytest.approx((0.0, -math.hypot(0.01, 0.05), math.hypot(0.01, 0.01)))


def test_the_interval_of_a_difference_covers_at_least_as_often_as_it_says():
    """Unequal spreads and unequal numbers of rounds, where Student's pooled interval would not."""
    generator, missed, pairs = np.random.default_rng(5), 0, 4000
    for _ in range(pairs):
        sides = []
        for spread, units in ((0.03, 6), (0.005, 20)):
            told = student(generator.normal(0, spread, units)).interval(0.05).mean_low_high
            sides.append(
                Stated(mean=told[0], low=told[1], high=told[2], alpha=0.05, degrees=fewest_degrees(units, "fixed"))
            )
        missed += Gap(first=sides[0], second=sides[1]).interval(0.05).excludes_zero
    assert 0.03 < missed / pairs < 0.06


@pytest.mark.parametrize(
    ("mean", "half", "says"),
    [(0.0, 0.01, "compatible"), (0.02, 0.01, "compatible"), (0.2, 0.01, "different"), (0.0, 0.2, "undecided"),
     (0.04, 0.03, "different"), (0.03, 0.035, "undecided")],
)  # fmt: skip
def test_what_an_interval_of_a_difference_says(mean, half, says):
    gap = Gap(first=one(0, half / math.sqrt(2)), second=one(mean, half / math.sqrt(2)))
    (found,) = judged([gap], [MARGIN], 0.05)
    assert found.agreement == says and found.alpha == 0.05


def test_what_is_said_and_the_interval_beside_it_agree():
    """Of a family with all kinds in it, at the level that decides."""
    generator = np.random.default_rng(3)
    gaps = [
        Gap(first=one(0, 0.01 * scale), second=one(mean, 0.02 * scale))
        for mean, scale in zip(generator.normal(0, 0.05, 60), generator.uniform(0.2, 2, 60), strict=True)
    ]
    found = judged(gaps, [MARGIN] * 60, 0.05)
    assert {one.agreement for one in found} == {"compatible", "different", "undecided"}
    for own, gap in zip(found, gaps, strict=True):
        assert own.interval == gap.interval(own.alpha)
        assert (own.agreement == "compatible") == within(own.interval, MARGIN) or own.agreement == "different"
        assert own.interval.excludes_zero or own.agreement != "different"
        assert not own.interval.excludes_zero or own.agreement != "undecided"


# --- how often it is false

STUDIES = 300
MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / STUDIES)
TIGHT, WIDE = (0.012, 0.012), (0.03, 0.008)


@pytest.mark.parametrize("spreads", [TIGHT, WIDE])
@pytest.mark.parametrize("truths", [[0.0] * 6, [EDGE] * 6, [0.0, 0.0, 0.0, EDGE, -EDGE, 0.2]])
def test_false_words_are_as_rare_as_the_study_asks_for(truths, spreads):
    apart, inside = false_rates(truths, spreads, (12, 8), STUDIES)
    assert apart <= MOST and inside <= MOST


def on_one_ladder(gaps, margins, alpha):
    """What would be said if the levels of "different" served "compatible" too."""
    levels = holm_levels([gap.p_different for gap in gaps], alpha)
    intervals = [gap.interval(level) for gap, level in zip(gaps, levels, strict=True)]
    return [
        Judged(agreement="compatible" if within(own, margin) else "undecided", interval=own, alpha=alpha)
        for own, margin in zip(intervals, margins, strict=True)
    ]


def test_one_ladder_for_both_words_would_be_wrong():
    """Differences as large as the margin, mostly told: each of them would lend its level to the others."""
    truths, spreads, units = [EDGE] * 12, (0.031, 0.031), (20, 20)
    _, wrong = false_rates(truths, spreads, units, STUDIES, judge=on_one_ladder)
    _, right = false_rates(truths, spreads, units, STUDIES)
    assert right <= 0.05 and wrong > MOST


def test_a_difference_is_told_and_so_is_none():
    """A procedure that says nothing would have no error either."""
    gaps = [Gap(first=one(0.0, 0.01), second=one(shift, 0.01)) for shift in (0.0, 0.001, 0.2)]
    assert [own.agreement for own in judged(gaps, [MARGIN] * 3, 0.05)] == ["compatible", "compatible", "different"]


# --- claims of two studies


def claim(low, high, **fields):
    """A row of the table `verdicts`."""
    launch = read_role(fields.get("launch", "docker"))
    verdict = "equivalent" if low <= 1 <= high else "different"
    told = {"study": "s", "machine": "box", "scenario": "single", "workload": "mnist_cnn", "stack": "torch-2.13"}
    told |= {"environment": launch.environment, "launch_role": launch.role, "co_runner": False, "batch": 64}
    told |= {"level_allocator": "default", "scaled": None, "attempt": 1, "design": "fixed", "n_units": 12}
    told |= {"launches": 12, "failures": 0, "timeouts": 0, "failure_share_low": 0.0, "failure_share_high": 0.3}
    ends = {"ratio": math.sqrt(low * high), "ci_low": low, "ci_high": high, "verdict": verdict}
    return row(**{**told, **ends, **fields})


def side(*rows, name="the first", **fields):
    return Side(name=name, verdicts=tables.make("verdicts", rows), **fields)


def compared(first, second):
    """The table of two studies, each of these rows, or a side."""
    sides = [
        own if isinstance(own, Side) else side(*own, name=name)
        for own, name in ((first, "the first"), (second, "the second"))
    ]
    return tables.make("agreement", agreed(*sides))


EQUAL, MORE, LESS = (0.998, 1.002), (1.010, 1.014), (0.986, 0.990)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (claim(*EQUAL), claim(*EQUAL), "same"),
        (claim(*EQUAL), claim(*MORE), "compatible"),
        (claim(*MORE), claim(*MORE), "same"),
        (claim(*MORE), claim(*LESS), "compatible"),
        (claim(*EQUAL, verdict="inconclusive"), claim(*EQUAL, verdict="inconclusive"), "compatible"),
        (claim(*EQUAL), claim(*EQUAL, verdict="equivalent apart from stalls"), "compatible"),
        (claim(*EQUAL), claim(1.2, 1.21), "different"),
        (claim(*EQUAL), claim(0.9, 1.15), "undecided"),
    ],
)
def test_the_levels_of_agreement(first, second, says):
    (found,) = compared([first], [second]).to_dict("records")
    assert found["agreement"] == says
    assert found["ratio"] == pytest.approx(second["ratio"] / first["ratio"])
    assert found["ci_low"] < found["ratio"] < found["ci_high"] and found["alpha"] == pytest.approx(0.05)
    assert (found["first_verdict"], found["second_n"]) == (first["verdict"], 12)


def test_main_claims_are_one_family_and_the_others_another():
    main = [claim(*EQUAL, workload=name) for name in ("mnist_cnn", "sentiment_rnn")]
    rest = [claim(*EQUAL, workload=one["workload"], metric="imports_s", role="exploratory") for one in main]
    found = compared(main + rest, main + rest)
    alphas = found.groupby("role")["alpha"].agg(["min", "max"])
    assert alphas.loc["primary"].tolist() == pytest.approx([0.025, 0.025])
    assert alphas.loc["exploratory"].tolist() == pytest.approx([0.05, 0.05]), "both are told: all of alpha"


def test_a_campaign_of_other_environments_is_found_by_its_design():
    """A rerun without podman: the set in the campaign's name is another, and docker's claims are compared."""
    three = "rounds.docker+host+podman"
    first = [claim(*EQUAL, campaign=three), claim(*EQUAL, campaign=three, launch="podman")]
    found = compared(first, [claim(*EQUAL)])
    docker, podman = found.to_dict("records")
    assert (docker["agreement"], docker["first_campaign"], docker["second_campaign"]) == ("same", three, ROUNDS)
    assert (podman["agreement"], podman["reason"]) == ("not compared", "the second did not measure podman")
    both = [claim(*EQUAL, campaign=name) for name in ("rounds.docker+host+vm", "rounds.apptainer+docker+host")]
    assert set(compared(first[:1], both)["reason"]) == {
        f"the second has no campaign {three} of mnist_cnn",
        *(f"the first has no campaign {one['campaign']} of mnist_cnn" for one in both),
    }, "of two nobody can say which is meant"


def test_what_one_of_them_lacks_is_named_and_the_rest_is_compared():
    first = [claim(*EQUAL), claim(*EQUAL, metric="imports_s", role="exploratory"), claim(*EQUAL, workload="lstm")]
    second = [claim(*EQUAL), claim(*EQUAL, workload="sentiment_rnn")]
    told = {one["reason"]: one["agreement"] for one in compared(first, second).to_dict("records")}
    assert [why for why in told if isinstance(why, str)] == [
        f"the second did not measure imports_s of docker in mnist_cnn {ROUNDS}",
        "the second did not measure lstm",
        "the first did not measure sentiment_rnn",
    ]
    assert list(told.values()).count("same") == 1


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"batch": 32}, "another batch: 64 and 32"),
        ({"stack": "torch-1.11"}, "another stack: torch-2.13 and torch-1.11"),
        ({"level_allocator": "steady"}, "another allocator: default and steady"),
        ({"scaled": "batch 8 (published 256)"}, "another size: none and batch 8 (published 256)"),
        ({"ci_low": None, "ci_high": None, "reason": REASON}, f"the second has no interval: {REASON}"),
    ],
)
def test_what_is_no_claim_of_the_same_job_or_tells_nothing_is_not_compared(changed, why):
    (found,) = compared([claim(*EQUAL)], [claim(*EQUAL, **changed)]).to_dict("records")
    assert (found["agreement"], found["reason"]) == ("not compared", why)


def test_too_few_rounds_leave_a_claim_undecided_as_they_leave_a_verdict():
    (found,) = compared([claim(*EQUAL)], [claim(*EQUAL, n_units=5)]).to_dict("records")
    assert (found["agreement"], found["reason"]) == (
        "undecided",
        "the second has 5 complete units; a verdict needs 6",
    )
    question = ("mnist_cnn", ROUNDS)
    sampling = plan_of().sampling.replace(verdict_units=4)
    second = side(claim(*EQUAL, n_units=5), name="the second", plans={question: plan(sampling=sampling)})
    assert set(compared([claim(*EQUAL)], second)["agreement"]) == {"same"}


def plan(**fields):
    job = {"workload": "mnist_cnn", "batch": 64, **fields.pop("job", {})}
    return plan_of(workload="mnist_cnn", spec=spec(**job), **fields)


def test_jobs_that_differ_are_told_by_their_plans():
    question = ("mnist_cnn", ROUNDS)
    ends = [side(claim(*EQUAL), claim(*EQUAL, campaign=STEPS, metric="step_s"), plans={question: plan()})]
    ends.append(replace(ends[0], name="the second", plans={question: plan(job={"loader_workers": 3})}))
    found = compared(*ends)
    assert set(found["reason"]) == {"another job: loader_workers"}, "training steps are a view of whole runs"
    assert set(compared(ends[0], replace(ends[1], plans={}))["agreement"]) == {"same"}, "nobody can tell"


def test_an_environment_that_a_machine_lacks_is_told_with_its_reason():
    campaign = "rounds.docker+host+podman"
    plans = {("mnist_cnn", campaign): plan(unavailable={"podman": "podman is not installed"})}
    first = [claim(*EQUAL, campaign=campaign), claim(*EQUAL, campaign=campaign, launch="podman")]
    second = side(claim(*EQUAL, campaign=campaign), name="this machine", plans=plans)
    reasons = compared(first, second)["reason"].dropna()
    assert list(reasons) == ["this machine lacks podman: podman is not installed"]


def test_other_margins_leave_the_smaller_one():
    (found,) = compared([claim(*EQUAL)], [claim(*EQUAL, margin=0.02)]).to_dict("records")
    assert found["margin"] == 0.02 and found["reason"] == "margins differ, 0.02 and 0.05: the smaller one counts"


def test_in_what_the_studies_and_the_programs_differ_is_told():
    question = ("mnist_cnn", ROUNDS)
    part = {"seed": 1, "rounds": {"pilot": 8}}
    ends = [side(claim(*EQUAL), plans={question: plan(part=part)})]
    ends.append(replace(ends[0], name="the second"))
    assert departures(*ends) == []
    other = plan(part={"seed": 2, "rounds": {"pilot": 9}}, code_sha256="1", slicing_refused="no freezer")
    ends[1] = replace(ends[1], plans={question: other})
    assert departures(*ends) == [
        "the studies differ in rounds.pilot, seed",
        "other programs measured 1 of 1 campaigns",
        "the second could not slice the launches of 1 of 1 campaigns",
    ]


def test_two_studies_without_a_claim_have_nothing_to_compare():
    assert page.tally(compared([], [])) == ["There is nothing to compare."]


# --- the commands


def results(place, *rows, study="mine", machine="box", folder=None):
    """A checkout's results of a study."""
    folder = place / layout.results_folder(folder or study)
    own = [{**one, "study": study, "machine": machine} for one in rows]
    (folder / "tables").mkdir(parents=True)
    tables.write("verdicts", tables.make("verdicts", own), folder / "tables/verdicts.csv")
    record = MachineRecord(name=machine, cpu_model="A CPU", cpu_logical=8)
    path = layout.of_machine(folder, machine, layout.MACHINE_FILE)
    path.parent.mkdir(parents=True)
    record.write(path)
    return place


def test_the_command_writes_table_and_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    hostile = "<script>alert(1)</script>"
    results(tmp_path / "a", claim(*EQUAL), claim(*EQUAL, launch="podman", campaign="rounds.host+podman"))
    results(tmp_path / "b", claim(*MORE, reason=hostile), claim(*EQUAL, workload=hostile), machine="other")
    assert main(["diff", "a", "b", "--out", "out"]) == 0
    told = capsys.readouterr().out
    assert "Main claims: 1 compatible and 2 not compared (of 3)." in told
    assert "not judged: the second has no campaign rounds.host+podman of mnist_cnn (1 claim)" in told
    table = tables.read("agreement", tmp_path / "out/agreement.csv")
    rows = json.loads((tmp_path / "out/agreement.json").read_text())
    assert (
        [one["agreement"] for one in rows]
        == list(table["agreement"])
        == ["compatible", "not compared", "not compared"]
    )
    html = (tmp_path / "out/index.html").read_text()
    assert "box, the first" in html and "other, the second" in html and 'class="chip compatible"' in html
    assert "<script" not in html and "&lt;script&gt;" in html and "default-src 'none'" in html


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere", "a"], "there is no archive and no folder nowhere"),
        (["a", "empty"], "empty holds no verdicts of a study"),
        (["a", "two"], "two has results of several studies or machines: choose with --study and --machine"),
        (["a", "three", "--study", "mine"], "three has results of several studies or machines"),
        (
            ["a", "three", "--study", "mine", "--machine", "bax"],
            "three has no results of mine on bax: did you mean",
        ),
        (["a", "two", "--study", "minx"], "a holds no verdicts of the study minx"),
    ],
)
def test_what_can_not_be_compared_is_one_line(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    results(tmp_path / "a", claim(*EQUAL))
    results(results(tmp_path / "two", claim(*EQUAL)), claim(*EQUAL), study="other")
    results(results(tmp_path / "three", claim(*EQUAL)), claim(*EQUAL), machine="bex", folder="mine/on/bex")
    (tmp_path / "empty").mkdir()
    assert main(["diff", *words]) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1


def test_one_study_of_several_is_compared_where_another_can_not_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results(tmp_path / "a", claim(*EQUAL))
    (results(tmp_path / "two", claim(*EQUAL)) / "results/tables").mkdir()
    (tmp_path / "two/results/tables/verdicts.csv").write_text("of another version\n")
    assert main(["diff", "a", "two"]) == 4
    assert main(["diff", "a", "two", "--study", "mine"]) == 0
    assert main(["diff", "a", "two/results/mine"]) == 0, "the folder of its results alone"


def test_plans_are_found_above_the_results_of_a_study(tmp_path):
    results(tmp_path, claim(*EQUAL))
    question = ("mnist_cnn", ROUNDS)
    folder = tmp_path / layout.campaign_folder("mine", "box", *question)
    folder.mkdir(parents=True)
    plan().write(folder / "plan.json")
    for place in (tmp_path, tmp_path / "results", tmp_path / "results/mine"):
        assert set(results_in(place, "it", "it").side.plans) == {question}


# --- a rerun

SMALL = {"study": "mine", "environments": ["host", "docker"], "workloads": {"sentiment_rnn": None}, "stacks": []}


def whole(**changed):
    """A study as an archive holds it: whole, with all that it takes from config/config.yaml."""
    return load_checked(json.dumps({**SMALL, **changed})).to_json()


def test_what_is_laid_over_the_configuration_gives_the_study_of_the_archive():
    found, told = rerunning.here(whole(), commands=False)
    assert told == [] and found["workloads"]["sentiment_rnn"] is None
    assert run_of(found) == whole()


def run_of(found):
    """The study that Snakemake runs when this is laid over config/config.yaml."""
    return check(merge(load(project_root() / rerunning.BASE), found)).to_json()


def test_what_a_machine_lacks_is_left_out_with_a_line_for_each():
    study = whole()
    study["environments"] = [*study["environments"], "firecracker"]
    study["workloads"] = {**study["workloads"], "llama": {"batch": 1}}
    found, told = rerunning.here({**study, "machines": {"thin": {"partition": "thin"}}}, commands=False)
    assert [line.partition(":")[0] for line in told] == [
        "the study names nodes of a cluster (thin)",
        "no environment firecracker here (envs/ has no such module)",
        "no workload llama here (workloads/ has no such module)",
    ]
    assert found["environments"] == ["host", "docker"] and "machines" not in found
    assert set(found["workloads"]) == {"mnist_cnn", "sentiment_rnn"}
    with pytest.raises(UserError, match=r"nothing of the study can be run here: .*; no workload llama"):
        rerunning.here({**study, "workloads": {"llama": {"batch": 1}}}, commands=False)
    with pytest.raises(UserError, match="the study of the archive: stack: no folder containers/stacks/torch-9"):
        rerunning.here({**study, "stack": "torch-9"}, commands=False)


@pytest.mark.parametrize(
    "changed",
    [
        {"environments": 5}, {"environments": [["host"]]}, {"stack_environments": "host"},
        {"machines": 5}, {"machines": [1]}, {"machines": {1: None}}, {"own_jobs": 5}, {"own_jobs": {1: 2}},
        {"workloads": [{}]}, {"workloads": "mnist_cnn"}, {"workloads": {5: None}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("commands", [False, True])
def test_a_study_whose_parts_have_other_types_is_one_line(changed, commands):
    with pytest.raises(UserError, match=rf"the study of the archive: {next(iter(changed))}: .* must be "):
        rerunning.here({**whole(), **changed}, commands=commands)


@pytest.mark.parametrize(
    ("study", "machine"), [("/x", "box"), ("../../x", "box"), ("mine", "../.."), ("mine", "/box"), ("mine", "a\nb")]
)
def test_names_in_a_table_that_lead_elsewhere_are_one_line(tmp_path, monkeypatch, capsys, study, machine):
    monkeypatch.chdir(tmp_path)
    results(tmp_path / "a", claim(*EQUAL))
    results(tmp_path / "b", claim(*EQUAL))
    rows = tables.make("verdicts", [{**claim(*EQUAL), "study": study, "machine": machine}])
    tables.write("verdicts", rows, tmp_path / "b/results/mine/tables/verdicts.csv")
    assert main(["diff", "a", "b"]) == 4
    told = capsys.readouterr().err
    assert "which is no name of a study on a machine" in told and told.count("\n") == 1


def test_what_an_archive_says_controls_no_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    hostile = "x\n    Main claims: 9 same (of 9).\x1b[2J"
    results(tmp_path / "a", claim(*EQUAL, workload=hostile))
    results(tmp_path / "b", claim(*EQUAL))
    assert main(["diff", "a", "b"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and not any(line.startswith("    Main claims: 9") for line in said.splitlines())


def test_commands_of_an_archive_run_only_where_someone_says_so(tmp_path):
    job = {"mine": {"command": ["true"], "folder": str(tmp_path), "images": {"docker": "debian:12"}}}
    study = whole(workloads={"sentiment_rnn": None, **job})
    assert study["own_jobs"]
    found, (told,) = rerunning.here(study, commands=False)
    assert found["own_jobs"] == {} and told.startswith("its own jobs are commands of whoever wrote it (mine)")
    assert rerunning.here(study, commands=True) == ({**study, "workloads": found["workloads"]}, [])


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A folder as an archive of the study `mine` is when it is opened; the workflow is a stand-in."""
    monkeypatch.chdir(tmp_path)
    place = results(tmp_path / "there", claim(*EQUAL), machine="theirs")
    (place / "config").mkdir()
    (place / "config/mine.yaml").write_text(yaml.safe_dump(whole()))
    return place


def workflow(monkeypatch, status, *rows, name="mine"):
    """Have the workflow end with a status and leave these rows; returns what it is told."""
    told = []

    def run(study, folder, cores):
        told.append((study, cores))
        if rows:
            results(folder, *rows, study=name)
        return status

    monkeypatch.setattr(rerunning, "run", run)
    return told


def test_a_rerun_is_measured_in_a_folder_of_its_own_and_compared(archive, monkeypatch, tmp_path, capsys):
    told = workflow(monkeypatch, 0, claim(*EQUAL))
    assert main(["rerun", "there", "--directory", "again", "--cores", "2"]) == 0
    assert [(study["study"], cores) for study, cores in told] == [("mine", "2")]
    assert "Main claims: 1 same (of 1)." in capsys.readouterr().out
    html = (tmp_path / "again/agreement/index.html").read_text()
    assert f"theirs, {command.ARCHIVE}" in html and f"box, {command.HERE}" in html


def test_a_workflow_that_failed_leaves_what_it_made_compared(archive, monkeypatch, capsys):
    workflow(monkeypatch, 1, claim(*EQUAL))
    assert main(["rerun", "there"]) == 3
    assert (
        "1 same" in (said := capsys.readouterr().out) and "not all of it: the workflow ended with status 1" in said
    )


def test_a_workflow_that_made_nothing_is_one_line(archive, monkeypatch, capsys):
    workflow(monkeypatch, 1)
    assert main(["rerun", "there"]) == 3
    assert capsys.readouterr().err.startswith("tare: the workflow ended with status 1")


def test_a_folder_without_its_study_is_one_line(archive, capsys):
    (archive / "config/mine.yaml").unlink()
    assert main(["rerun", "there"]) == 2
    assert "no file config/mine.yaml" in capsys.readouterr().err


def test_the_workflow_is_called_as_a_person_would_call_it(tmp_path, monkeypatch):
    """A program in the place of Snakemake notes how it is called."""
    stand_in = tmp_path / "bin/snakemake"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\necho "$PWD" "$@" > {tmp_path}/called\nexit 7\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(rerunning, "sys", SimpleNamespace(executable=str(stand_in.with_name("python"))))
    assert rerunning.run(whole(), tmp_path / "again", "2") == 7
    study = tmp_path / "again/study.yaml"
    assert (tmp_path / "called").read_text().split() == [
        str(project_root()), "--cores", "2", "--directory", str(tmp_path / "again"), "--configfile", str(study),
        "--", "all",
    ]  # fmt: skip
    assert yaml.safe_load(study.read_text()) == whole()


def test_an_archive_is_compared_and_run_again_as_the_results_that_it_is_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    study = archive_builders.results_in(tmp_path)
    writing.write(study, tmp_path / "study.zip")
    assert main(["diff", "study.zip", ".", "--out", "out"]) == 0
    table = tables.read("agreement", tmp_path / "out/agreement.csv")
    verdicts = tables.read("verdicts", tmp_path / "results/tables/verdicts.csv")
    assert len(table) == len(verdicts) and set(table["first_verdict"]) == set(table["second_verdict"])
    assert set(table["agreement"]) == {"undecided"}, "of two rounds nobody can tell"
    told = workflow(monkeypatch, 0, claim(*EQUAL), name=study.study)
    assert main(["rerun", "study.zip"]) == 0
    assert run_of(told[0][0]) == study.to_json()
    (tmp_path / "cut.zip").write_bytes((tmp_path / "study.zip").read_bytes()[:-99])
    capsys.readouterr()
    assert main(["diff", "cut.zip", "."]) == 4
    assert "cut.zip is cut short" in (said := capsys.readouterr().err) and said.count("\n") == 1


def test_the_words_of_the_page_are_those_of_the_table():
    assert set(page.FIRST) | {tables.NOT_COMPARED} == set(tables.AGREEMENTS)
    assert set(page.ROLES) == {"primary", "exploratory"} and set(agreement.CLAIM) <= set(tables.AGREEMENT.columns)
