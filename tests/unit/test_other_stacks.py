"""Other stacks beside the headline's: named, launched, left out where this machine lacks them, and their inside."""

import copy
import importlib
import itertools
import os
import random
import string
import sys
from collections import Counter
from pathlib import Path

import pytest
from image_builders import data_record
from test_campaign import plan_of

from tare.analysis import metrics
from tare.cli.main import main
from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root, read_json
from tare.experiments import campaign, rounds
from tare.experiments.designs import Design, Setup
from tare.images import interpreter
from tare.launch import sites as site_module
from tare.machine.fitting import settled
from tare.model.journals.sealed import read_sealed, views
from tare.model.registry import HOST
from tare.model.schema import parse
from tare.model.studies import arms, campaigns, checks, layout, loading, sections
from tare.model.studies.stacks import load_stack
from tare.worker.apart import can
from tare.worker.train import import_first
from workloads import _reviews

HEADLINE, OTHER = "torch-2.13", "paper-2022"
ARM = f"stack={OTHER}"
REASON = f"the stack {OTHER}: no CPython 3.7 on this machine"


@pytest.fixture
def config():
    return settled(loading.load_checked(project_root() / "config/config.yaml")).to_json()


@pytest.fixture
def no_interpreter(monkeypatch):
    """A machine without any CPython that a tree could be made of."""
    monkeypatch.setattr(interpreter, "_candidates", lambda version: iter(()))


@pytest.fixture
def records(tmp_path, no_interpreter):
    """Image records of the other stack on a machine that lacks its interpreter, as the commands write them."""
    folder = tmp_path / "images" / OTHER
    common = ["--stack", OTHER, "--variant", "cpu"]
    assert main(["build-image", *common, "--optional", "--out", str(folder / "oci.json")]) == 0
    for env in (HOST, "charliecloud"):
        assert main(["derive-image", *common, "--env", env, "--out", str(folder / f"{env}.json")]) == 0
    return folder.parent


# Names.


@pytest.mark.parametrize("arm", [arms.parse(ARM), layout.read_slug(f"stack-{OTHER}")])
def test_an_arm_of_another_stack_is_known_by_name_and_by_path(arm):
    assert (arm.name, layout.slug_of(arm), arm.other_stack) == (ARM, f"stack-{OTHER}", OTHER)
    assert arms.members(arm, ["host", "docker"]) == ["host", "docker"]
    assert arms.launch_names(arm, ["host", "docker"]) == ["host", "host.control", "docker", "host.headline"]


@pytest.mark.parametrize("text", ["stack=native", "allocator=default"])
def test_other_arms_launch_the_same_packages(text):
    assert arms.parse(text).other_stack is None


def test_a_stack_that_does_not_exist_is_no_arm():
    with pytest.raises(UserError, match=f"did you mean '{OTHER}'"):
        arms.parse("stack=paper-2023")


def test_image_records_of_another_stack_are_that_stacks_own():
    folder = Path("results/images") / HEADLINE
    other = layout.image_record(folder, "docker", arms.parse(ARM))
    assert other == Path("results/images") / OTHER / "docker.json"
    assert layout.image_record(folder, "docker", None) == folder / "docker.json"
    native = layout.image_record(folder, "docker", arms.parse("stack=native"))
    assert native == folder / "arms/stack-native/docker.json"


def test_the_stack_of_a_launch_follows_from_its_levels():
    levels = {"stack": "same", "allocator": "default", "page_cache": "warm"}
    for arm, expected in (
        (None, HEADLINE),
        ("stack=native", HEADLINE),
        ("allocator=steady", HEADLINE),
        (ARM, OTHER),
    ):
        described = arms.levels_of(levels, arms.parse(arm) if arm else None)
        assert arms.stack_of(described, HEADLINE) == expected


# The study.


def with_other_stacks(study):
    """Workloads that are measured in other stacks as well."""
    return tuple(name for name in study.workloads if campaigns.stacks_of(study, name))


def test_every_other_stack_is_a_campaign_of_rounds(config):
    chosen = ("stack_environments", "stack_workloads")
    everywhere = {key: value for key, value in config.items() if key not in chosen}
    everywhere |= {"stacks": [OTHER], "stack_kinds": ["rounds"]}
    whole = checks.check(everywhere | {"environments": ["host", "docker"]})
    ours = [f"rounds.docker+host.stack-{OTHER}"]
    named = campaigns.campaigns(whole)
    for workload in config["workloads"]:
        found = [campaign for campaign in named if campaign.workload == workload and campaign.stack == OTHER]
        assert [campaign.name for campaign in found] == ours
    assert campaigns.campaigns(whole.replace(stacks=())) == tuple(c for c in named if c.name not in ours)
    assert not any(layout.is_headline(name) for name in ours)


def test_only_the_chosen_workloads_are_measured_in_another_stack(config):
    whole = checks.check(config | {"stacks": [OTHER], "stack_workloads": ["sentiment_rnn"]})
    assert with_other_stacks(whole) == ("sentiment_rnn",)
    found = [
        (campaign.workload, campaign.name) for campaign in campaigns.campaigns(whole) if campaign.stack == OTHER
    ]
    assert found == [("sentiment_rnn", f"rounds.host.stack-{OTHER}")]
    assert with_other_stacks(whole.replace(stack_workloads=None)) == tuple(whole.workloads)
    assert with_other_stacks(whole.replace(stacks=())) == ()


def test_a_workload_may_be_measured_in_some_of_the_other_stacks(config):
    some = {"stacks": [OTHER, f"{OTHER}+xla"], "stack_workloads": None, "workload_stacks": {"mnist_cnn": [OTHER]}}
    whole = checks.check(config | some)
    found = [(one.workload, one.arm) for one in campaigns.campaigns(whole) if (one.arm or "").startswith("stack=")]
    both = [("sentiment_rnn", f"stack={OTHER}"), ("sentiment_rnn", f"stack={OTHER}+xla")]
    assert found == [("mnist_cnn", f"stack={OTHER}"), *both]
    assert with_other_stacks(whole.replace(workload_stacks={"mnist_cnn": ()})) == ("sentiment_rnn",)


def test_units_of_another_stack_are_its_own(config):
    settings = parse(sections.Rounds, config["rounds"] | {"stack_units": 7, "arm_units": 5}, "rounds")
    wanted = {None: settings.units, "stack=native": 5, ARM: 7}
    for text, units in wanted.items():
        arm = arms.parse(text) if text else None
        sampling = campaigns.sampling_of(settings, 0.95, arm)
        assert sampling.units == units
        assert sampling.budget_s == (settings.arm_budget_s if arm else settings.budget_s)
    planned = campaigns.sampling_of(settings.replace(stack_units=None), 0.95, arms.parse(ARM))
    assert (planned.units, planned.pilot) == (None, settings.pilot)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"stacks": ["paper-2021"]},
            f"config: stacks: no folder containers/stacks/paper-2021: did you mean '{OTHER}'",
        ),
        ({"stacks": [HEADLINE]}, f"config: stacks: {HEADLINE} is the headline's stack already"),
        ({"stacks": [OTHER, OTHER]}, "holds something twice"),
        ({"arms": {"rounds": [ARM]}}, f"config: arms: rounds: {ARM} is another stack; name it in `stacks` instead"),
    ],
)
def test_what_is_wrong_with_a_stack_is_said_in_one_line(config, change, says):
    with pytest.raises(UserError) as caught:
        checks.check(loading.merge(copy.deepcopy(config), change))
    assert says in str(caught.value) and "\n" not in str(caught.value)


# A machine without its interpreter.


@pytest.mark.parametrize("command", ["build-tree", "build-image"])
def test_an_optional_stack_without_an_interpreter_is_a_record_and_any_other_an_error(
    command, tmp_path, no_interpreter, capsys
):
    out = tmp_path / "record.json"
    argv = [command, "--stack", OTHER, "--variant", "cpu", "--out", str(out)]
    assert main(argv) == 3
    line = capsys.readouterr().err
    assert "no CPython 3.7" in line and "to fix it" in line and line.count("\n") == 1
    assert not out.exists()
    assert main([*argv, "--optional"]) == 0
    record = read_json(out)
    assert (record["status"], record["stack"], record["variant"]) == ("unavailable", OTHER, "cpu")
    assert record["reason"].startswith(REASON) and "\n" not in record["reason"]


def test_optional_is_no_pardon_for_a_mistake(tmp_path, no_interpreter):
    assert main(["build-tree", "--stack", "paper-2021", "--optional", "--out", str(tmp_path / "record.json")]) == 2


def test_an_interpreter_that_appears_is_seen(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    before = interpreter.seen("3.7")
    (tmp_path / "python3.7").symlink_to(sys.executable)
    assert interpreter.seen("3.7") == [str(tmp_path / "python3.7"), *before]


def test_without_it_no_environment_has_a_form_and_each_says_why(records):
    for env in (HOST, "charliecloud"):
        record = read_json(records / OTHER / f"{env}.json")
        assert record["status"] == "unavailable"
        assert REASON in record["reason"]


def test_its_campaigns_are_sealed_without_units_and_their_rows_give_the_reason(records, config, tmp_path):
    arm, names, folder = arms.parse(ARM), [HOST, "charliecloud"], tmp_path / "campaign"
    whole = checks.check(config)
    prepared = tmp_path / "data.json"
    data_record(name="mnist", dataset="mnist", folder=str(tmp_path)).write(prepared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_module.catalog, "ensure", lambda record: tmp_path)
        sites = site_module.launch_sites(whole, "mnist_cnn", names, records / HEADLINE, prepared, arm)
        with sites as (found, missing, provenance):
            assert found == {}
            setup = Setup(
                study=whole, workload="mnist_cnn", sites=found, unavailable=missing, provenance=provenance, arm=arm
            )
            summary = campaign.run_campaign(folder, rounds.rounds(setup))
    assert (summary.status, summary.units, summary.failures) == ("sealed", 0, {})
    found = read_sealed(folder / layout.SEALED)
    assert found.units == ()
    for view, metric in zip(views(found), ("real_s", "step_s"), strict=True):
        rows = metrics.campaign_metrics(view)
        assert sorted((row["launch"], row["stack"]) for row in rows) == sorted((name, OTHER) for name in names)
        for row in rows:
            assert (row["metric"], row["kind"], row["value"]) == (metric, "unavailable", None)
            assert REASON in row["reason"]


def test_the_headline_needs_its_host(records, config):
    without_host = site_module.sites(checks.check(config), None, [HOST], records / OTHER, None)
    with pytest.raises(UnavailableError, match=REASON), without_host:
        pytest.fail("there is no host")


@pytest.mark.parametrize("optional", [True, False])
def test_a_host_that_fails_on_the_way_ends_an_optional_campaign_and_stops_any_other(tmp_path, optional):
    def run_unit(plan, number, done):
        raise UnavailableError("no launch on the host lives")

    design = Design(plan=plan_of(optional=optional), run_unit=run_unit, what="test")
    if not optional:
        with pytest.raises(UnavailableError, match="lives"):
            campaign.run_campaign(tmp_path, design)
        assert not (tmp_path / layout.SEALED).exists()
        return
    summary = campaign.run_campaign(tmp_path, design)
    assert (summary.status, summary.reason, summary.units) == ("ended", "no launch on the host lives", 0)
    assert read_sealed(tmp_path / layout.SEALED).ended == summary.reason


# Inside.


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Made-up modules: one that is there, one that needs what is not, and what both leave behind."""
    (tmp_path / "stack_has_it.py").write_text("")
    (tmp_path / "stack_has_it_too.py").write_text("")
    (tmp_path / "stack_half_has_it.py").write_text("import nobody_has_this\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.startswith("stack_ha")]:
        del sys.modules[name]


def test_the_first_module_that_the_stack_has_is_imported_and_no_other(modules):
    found = import_first(("stack_has_not", "stack_has_it", "stack_has_it_too"))
    assert found.__name__ == "stack_has_it"
    assert "stack_has_it_too" not in sys.modules


def test_a_module_that_is_there_but_broken_is_not_passed_over(modules):
    with pytest.raises(ImportError, match="nobody_has_this"):
        import_first(("stack_half_has_it", "stack_has_it"))
    assert "stack_has_it" not in sys.modules


@pytest.mark.parametrize("names", [("stack_has_not",), ("stack_has_not", "stack_has_not_either")])
def test_a_stack_that_has_none_fails(modules, names):
    with pytest.raises(ImportError, match=names[-1]):
        import_first(names)


def test_children_can_follow_where_a_step_leaves_nothing_behind():
    made = [1]
    assert can(lambda: made.append(2)) is True
    assert made == [1]  # it was tried in a process of its own


def test_children_can_not_follow_where_the_parents_step_stops_theirs():
    trained = os.getpid()

    def step():
        if trained != os.getpid():
            raise RuntimeError("a parent of this process has used autograd threads")

    step()
    assert can(step) is False
    assert can(lambda: os.kill(os.getpid(), 9)) is False
    assert can(lambda: 1 / 0) is False


def encoded(texts):
    """The rule in plain Python: 200 most frequent words, ties alphabetical, after unknown (0) and padding (1)."""
    table = str.maketrans("", "", string.punctuation)
    rows = [text.lower().translate(table).split() for text in texts]
    words = Counter(itertools.chain.from_iterable(rows))
    ranked = sorted(words, key=lambda word: (-words[word], word))[:200]
    ids = {word: place for place, word in enumerate(ranked, start=2)}
    return [([ids.get(word, 0) for word in row] + [1] * 100)[:100] for row in rows]


def made_up_rows(count):
    """Texts of made-up words, some much more frequent, in mixed case and with all punctuation; many ties."""
    generator = random.Random(7)
    letters = "abcdeé"
    words = sorted({"".join(generator.choices(letters, k=generator.randint(1, 4))) for _ in range(600)})
    weights = [1 + 20 * (place % 17 == 0) for place in range(len(words))]
    rows = []
    for _ in range(count):
        chosen = generator.choices(words, weights, k=generator.randint(0, 140))
        cased = [word.upper() if generator.random() < 0.2 else word for word in chosen]
        rows.append(" ".join(word + generator.choice(["", "", *string.punctuation]) for word in cased))
    return rows


def test_tokenizers_gives_the_ids_of_the_rule():
    texts = made_up_rows(150)
    expected = encoded(texts)
    assert {0, 1, 201} <= set(itertools.chain.from_iterable(expected))  # unknown, padding and a full vocabulary
    assert _reviews.encode_with_tokenizers(texts) == expected


def test_a_stack_without_tokenizers_takes_torchtext(monkeypatch):
    monkeypatch.setattr(_reviews, "encode_with_torchtext", lambda texts: ["torchtext", *texts])
    monkeypatch.setattr(_reviews, "encode_with_tokenizers", lambda texts: ["tokenizers", *texts])
    assert _reviews.encode(["a"]) == ["tokenizers", "a"]
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert _reviews.encode(["a"]) == ["torchtext", "a"]


def test_the_paper_stack_has_what_every_workload_imports():
    provides = set(load_stack(OTHER, "cpu").imports)
    for path in (project_root() / "workloads").glob("[a-z]*.py"):
        wanted = importlib.import_module(f"workloads.{path.stem}").DESCRIPTION["imports"]
        for module in wanted:
            assert provides.intersection([module] if isinstance(module, str) else module), (path.stem, module)
