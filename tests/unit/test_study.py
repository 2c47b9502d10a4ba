"""The study file: what is right passes, what is wrong is named in one line."""

import copy
import json
import os
import re

import pytest
import yaml
from asked import OF_A_STUDY

from tare.cli.main import main
from tare.core.errors import UserError
from tare.core.files import project_root
from tare.experiments import designs, rounds
from tare.literature import claims, published
from tare.model import closure
from tare.model.registry import environment, environment_names
from tare.model.schema import Record
from tare.model.studies import arms, campaigns, checks, layout, loading, sections, study


@pytest.fixture
def config():
    return loading.load(project_root() / "config/config.yaml")


PRESETS = ("config", "smoke", "full", "thorough", "sequences", "columbia2025", "nthu2018", "nthu2018-kvm")


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_right(preset):
    checked = loading.load_checked(project_root() / f"config/{preset}.yaml")
    assert checked.environments[0] == "host"


def test_a_study_file_that_there_is_not_is_told_with_those_that_there_are(monkeypatch):
    monkeypatch.chdir(project_root())
    with pytest.raises(UserError, match=r"^there is no study file config/nowhere\.yaml: there are ") as caught:
        loading.load_checked("config/nowhere.yaml")
    named = str(caught.value).rpartition(" are ")[2].split()
    assert {"config/config.yaml", "config/smoke.yaml"} <= set(named) and "config/devices.yaml" not in named


def test_nthu2018_where_kvm_works_has_each_of_its_environments_in_each_scenario():
    whole = loading.load_checked(project_root() / "config/nthu2018-kvm.yaml")
    found = {(one.workload, one.scenario): one.environments for one in campaigns.campaigns(whole) if one.arm is None
             and one.kind == "rounds"}  # fmt: skip
    models, scenarios = ("inception3", "resnet50", "alexnet"), ("single", "distributed", "shared")
    assert found.keys() == {(model, scenario) for model in models for scenario in scenarios}
    assert set(found.values()) == {("host", "docker", "vm", "docker.vm")}
    assert not claims.beyond(published.load("nthu2018"), whole), "every claim of the paper can be settled"


def test_presets_never_share_a_path():
    names = [
        loading.load_checked(p).study
        for p in sorted((project_root() / "config").glob("*.yaml"))
        if p.stem in PRESETS
    ]
    assert len({layout.results_folder(name) for name in names}) == len(names) == len(PRESETS)


def test_other_stacks_run_where_the_study_says():
    everywhere = ("host", "docker", "apptainer", "charliecloud")
    default, full = (loading.load_checked(project_root() / f"config/{name}.yaml") for name in ("config", "full"))
    assert default.stacks == () and {one.stack for one in campaigns.campaigns(default)} == {default.stack}
    beside = checks.check(loading.merge(default.to_json(), {"stacks": ["paper-2022"]}))
    for whole, where in ((beside, ("host",)), (full, everywhere)):
        found = {c.environments for c in campaigns.campaigns(whole) if c.stack == "paper-2022"}
        assert found == {where} == {whole.environments_of("paper-2022")}
        assert whole.environments_of("torch-2.13") == everywhere


# By kind of campaign, where the full study asks for more than the default one.
MORE_IN_FULL = {
    "rounds": {("rounds", "steps", "levels")},
    "causes": {("causes", "units")},
    "sweep": {("workloads", "mnist_cnn", "sweep_batches"), ("workloads", "sentiment_rnn", "sweep_batches")},
}


def leaves(found, path=()):
    """Every value of nested mappings, by its path."""
    if not isinstance(found, dict):
        return {path: found}
    return {key: value for name, inner in found.items() for key, value in leaves(inner, (*path, name)).items()}


def test_the_full_study_asks_for_every_campaign_of_the_default_and_for_more_of_each():
    default, full = (loading.load_checked(project_root() / f"config/{name}.yaml") for name in ("config", "full"))
    differs = {kind: set() for kind in MORE_IN_FULL}
    for one in campaigns.campaigns(default):
        assert one in campaigns.campaigns(full)
        parts = [leaves(json.loads(study.part_of(whole, one.kind, one.workload))) for whole in (default, full)]
        assert parts[0].keys() == parts[1].keys()
        differs[one.kind] |= {path for path, value in parts[0].items() if parts[1][path] != value} - {("study",)}
    assert differs == MORE_IN_FULL
    assert (
        set(default.rounds.steps.levels) < set(full.rounds.steps.levels)
        and default.causes.units < full.causes.units
    )
    for name, settings in default.workloads.items():
        assert set(settings.sweep_batches) < set(full.workloads[name].sweep_batches)
    assert study.part_of(default, "ceilings") == study.part_of(full, "ceilings")


def change(config, path, value):
    changed = copy.deepcopy(config)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("rounds", "unit"), 3, "did you mean 'units'"),
        (("rounds", "budget"), 3, "did you mean 'budget_s'"),
        (("enviroments",), ["host"], "did you mean 'environments'"),
        (("rounds", "units"), -3, "rounds: units: -3 must be at least 2"),
        (("rounds", "units"), "six", "rounds: units: 'six' must be of type integer"),
        (("rounds", "allocator"), "stedy", "did you mean 'steady'"),
        (("rounds", "pilot"), 5, "rounds: pilot: 5 must be at least 6"),
        (("rounds", "half_width"), 0, "rounds: half_width: 0 must be larger than 0"),
        (("rounds", "steps", "levels"), ["stedy"], "did you mean 'steady'"),
        (("rounds", "steps", "levels"), [], "rounds: steps: levels: [] must not be empty"),
        (("rounds", "steps", "replicates"), 9, "rounds: steps: replicates: 9 must be at most 8"),
        (("rounds", "steps", "warmup_steps"), 0, "rounds: steps: warmup_steps: 0 must be at least 1"),
        (("rounds", "steps", "seconds"), 0, "rounds: steps: seconds: 0 must be larger than 0"),
        (("rounds", "steps", "second"), 1, "did you mean 'seconds'"),
        (("arms", "rounds"), ["allocater=steady"], "did you mean 'allocator'"),
        (("arms", "rounds"), ["allocator=default"], "is what rounds already run at"),
        (("arms", "rounds"), ["stack=nativ"], "did you mean 'native'"),
        (("arms", "rounds"), ["stack=same"], "is the headline"),
        (("arms", "rounds"), ["native"], "is no factor=level"),
        (("arms", "workloads"), ["mnist_cn"], "did you mean 'mnist_cnn'"),
        (("stack_workloads",), ["mnist_cn"], "stack_workloads: no module workloads/mnist_cn.py: did you mean"),
        (("workload_stacks",), {"mnist_cn": []}, "workload_stacks: no module workloads/mnist_cn.py: did you mean"),
        (("workload_stacks",), {"mnist_cnn": ["jax-0.1"]}, "mnist_cnn: jax-0.1 is none of `stacks`"),
        (("stack_environments",), ["host", "podman"], "stack_environments: podman is none of the study's"),
        (("stack_environments",), ["docker"], "host is missing"),
        (("margins",), {"run": 0.05}, "margins: step missing"),
        (("environments",), ["host", "dokcer"], "did you mean 'docker'"),
        (("environments",), ["docker"], "host is missing"),
        (("papers",), ["nyu2021"], "papers: no file config/published/nyu2021.yaml: did you mean 'nyu2022'"),
        (("stack",), "torch-2.14", "did you mean 'torch-2.13'"),
        (("data", "sentiment"), "imbd", "did you mean 'imdb'"),
        (("margins", "run"), 0, "margins: run"),
        (("sweep", "repetitions"), 1, "sweep: repetitions: 1 must be at least 2"),
        (("study",), "tables", "name of a folder of results"),
        (("scenarios",), ["singel"], "scenarios: 0: 'singel' is not allowed: did you mean 'single'"),
        (("scenarios",), [], "scenarios: single is missing"),
        (("environments",), ["host", "host"], "environments: ['host', 'host'] holds something twice"),
        (("workloads",), {}, "workloads: {} must not be empty"),
        (("rounds", "half_width"), float("nan"), "rounds: half_width"),
        (("study",), "Über/../etc", "must be lower-case letters"),
        (("conditions", "threads"), 64, "threads is larger than cpus"),
        (("workloads", "mnist_cnn", "batch"), 100000, "100000"),
        (("workloads", "mnist_cnn", "sweep_batches"), [513], "larger than its 512 samples"),
    ],
)
def test_what_is_wrong_is_named_with_the_nearest_right_word(config, path, value, says):
    with pytest.raises(UserError) as caught:
        checks.check(change(config, path, value))
    message = str(caught.value)
    assert says in message
    assert "\n" not in message


def test_sweeps_are_measured_of_the_workloads_that_have_batches_and_whole_runs_of_all(config):
    asked = checks.check(loading.merge(config, {"workloads": {"mnist_cnn": {"sweep_batches": []}}}))

    def names(kind):
        return [one.workload for one in campaigns.campaigns(asked) if one.kind == kind and one.arm is None]

    assert names("rounds") == names("causes") == ["mnist_cnn", "sentiment_rnn"]
    assert names("sweep") == ["sentiment_rnn"]


def test_a_mistake_is_told_with_the_file_that_holds_it(tmp_path):
    """A study file, what it is laid over, or what the command line lays over both."""
    path = tmp_path / "mine.yaml"
    base = os.path.relpath(project_root() / "config/config.yaml")
    for text, over, says in (
        ("study: mine\nsede: 1\n", None, f"{path}: unknown key 'sede': did you mean 'seed'"),
        ("study: mine\nseed: -1\n", None, f"{path}: seed: -1 must be at least 0"),
        ("study: mine\nenvironments: [docker]\n", None, f"{path}: environments: host is missing"),
        (
            "study: mine\narms: {rounds: [stack=nativ]}\n",
            None,
            f"{path}: arms: rounds: arm stack=nativ: stack has no",
        ),
        ("study: mine\nconditions: {threads: 9}\n", None, f"{path}: conditions: threads is larger than cpus"),
        ("study: mine\n", {"scenarios": ["sinlge"]}, "the command line: scenarios: 0: 'sinlge' is not allowed"),
        ("study: mine\nminutes: 5\n", None, f"{path}: minutes: no study file holds it"),
    ):
        path.write_text(text)
        with pytest.raises(UserError) as told:
            loading.load_checked(path, over)
        assert str(told.value).startswith(says) and "\n" not in str(told.value)
    laid = [(base, {"seed": 1, "margins": {}}), ("mine", {"seed": 2}), ("other", {})]
    assert [loading.holder(key, laid) for key in ("margins", "seed", "none")] == [base, "mine", "other"]


@pytest.mark.parametrize("text", ["seed: 5\n", "{seed: 5}", "# study: mine\nseed: 5\n"])
def test_a_study_file_without_a_name_would_be_taken_for_the_default_study(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as told:
        loading.load_checked(path)
    assert str(told.value).startswith(
        f"{path}: study missing: its results would be taken for those of nyu2022; give "
    )
    loading.load_checked('{"seed": 5}')  # given inline it is of one command, which says where its results go


def test_steps_are_measured_unless_a_study_gives_them_nothing(config):
    whole = checks.check(config)
    assert whole.rounds.steps.levels == ("steady",)
    without = checks.check(loading.merge(config, {"rounds": {"steps": None}}))
    assert without.rounds.steps is None
    parts = {study.part_of(one, "rounds", "mnist_cnn") for one in (whole, without)}
    assert len(parts) == 2, "a campaign depends on the steps that it measures"
    for kind in ("causes", "sweep", "profile", "starts"):
        assert study.part_of(whole, kind, "mnist_cnn") == study.part_of(without, kind, "mnist_cnn")


def test_an_unknown_workload_is_named(config):
    config["workloads"]["mnist_cn"] = config["workloads"].pop("mnist_cnn")
    with pytest.raises(UserError, match="did you mean 'mnist_cnn'"):
        checks.check(config)


@pytest.mark.parametrize("text", ["a: [1", "- 1\n- 2\n", ""])
def test_a_file_that_is_no_study(tmp_path, text):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"study\.yaml"):
        loading.load(path)


def test_a_part_holds_what_the_work_depends_on_and_nothing_else(config):
    whole = checks.check(config)
    before = study.part_of(whole, "rounds", "mnist_cnn")
    part = loading.load_part(study.RoundsPart, before)
    assert part.rounds.budget_s == whole.rounds.budget_s and type(part) is study.RoundsPart
    assert list(part.workloads) == ["mnist_cnn"]
    assert not hasattr(part, "sweep") and not hasattr(part, "profile")
    changed = change(
        change(config, ("sweep", "repetitions"), 99), ("workloads", "mnist_cnn", "sweep_batches"), [16]
    )
    assert study.part_of(checks.check(changed), "rounds", "mnist_cnn") == before
    for key in (
        "arm_budget_s",
        "arm_units",
        "stack_units",
        "setting_units",
    ):  # of arms: the headline has no part in it
        changed = checks.check(change(config, ("rounds", key), 77))
        assert study.part_of(changed, "rounds", "mnist_cnn") == before
    for kind in ("causes", "sweep", "profile", "starts"):
        changed = checks.check(change(config, ("rounds", "half_width"), 0.07))
        assert study.part_of(changed, kind, "mnist_cnn") == study.part_of(whole, kind, "mnist_cnn")
        changed = checks.check(change(config, ("rounds", "allocator"), "steady"))
        assert study.part_of(changed, kind, "mnist_cnn") != study.part_of(whole, kind, "mnist_cnn")
    arm = arms.parse("stack=native")
    changed = checks.check(change(config, ("rounds", "arm_units"), 77))
    assert study.part_of(changed, "rounds", "mnist_cnn", arm) != study.part_of(whole, "rounds", "mnist_cnn", arm)
    changed = change(config, ("margins", "run"), 0.5)
    assert study.part_of(checks.check(changed), "rounds", "mnist_cnn") != before


def test_a_part_is_for_one_kind_of_work(config):
    with pytest.raises(UserError, match="the part for 'causes'"):
        loading.load_part(study.RoundsPart, study.part_of(checks.check(config), "causes"))


def test_a_command_takes_a_whole_study_or_a_preset_as_well():
    part = loading.load_part(study.SweepPart, "config/smoke.yaml")
    assert part.sweep.repetitions == 2 and list(part.workloads) == ["mnist_cnn"]


def test_a_workload_that_only_a_preset_names_works_in_every_rule(config, monkeypatch):
    """It is no part of config/config.yaml, from which nothing may be completed."""
    monkeypatch.setattr(checks, "module_names", lambda folder: ["mine", "host", "mnist_cnn", "sentiment_rnn"])
    monkeypatch.setattr(checks, "describe_workload", lambda name, options: {"samples": 512})
    monkeypatch.setattr(checks, "whole_options", lambda name, given, where: {})
    only = {"mnist_cnn": None, "sentiment_rnn": None, "mine": {"batch": 8, "sweep_batches": [8, 16]}}
    whole = loading.load_checked(json.dumps({"workloads": only, "environments": ["host"]}))
    monkeypatch.setattr(loading, "load", lambda source: json.loads(source))
    for kind in ("rounds", "causes", "sweep", "profile", "starts"):
        part = loading.load_part(study.PARTS[kind], study.part_of(whole, kind, "mine"))
        assert {name: settings.batch for name, settings in part.workloads.items()} == {"mine": 8}, kind
    assert part_batches(whole) == (8, 16)


def part_batches(whole):
    part = loading.load_part(study.SweepPart, study.part_of(whole, "sweep", "mine"))
    return part.workloads["mine"].sweep_batches


def test_presets_merge_as_snakemake_merges_them():
    base = yaml.safe_load("a: {b: 1, c: [1, 2]}\nd: 1")
    assert loading.merge(base, {"a": {"c": [3]}}) == {"a": {"b": 1, "c": [3]}, "d": 1}


def test_campaign_names_are_keyed_by_the_set():
    assert layout.campaign_name("rounds", ["docker", "host", "docker"]) == "rounds.docker+host"
    arm = layout.campaign_name("rounds", ["host", "docker"], "allocator=steady")
    assert arm == "rounds.docker+host.allocator-steady"
    assert (
        layout.is_headline("rounds.docker+host") and not layout.is_headline(arm) and not layout.is_headline("sweep")
    )
    assert layout.is_headline("steps.docker+host", "steps") and not layout.is_headline(
        "steps.docker+host", "rounds"
    )


def test_an_arm_that_moves_none_of_the_studys_environments_is_named(config):
    with pytest.raises(UserError, match="changes none of the study's environments"):
        arms = {**config["arms"], "rounds": ["seccomp=unconfined"]}
        checks.check({**config, "environments": ["host"], "arms": arms})


def test_a_preset_drops_a_workload_by_giving_it_nothing():
    assert list(loading.load_checked('{"workloads": {"mnist_cnn": null}}').workloads) == ["sentiment_rnn"]
    with pytest.raises(UserError, match="workloads"):
        loading.load_checked('{"workloads": {"mnist_cnn": null, "sentiment_rnn": null}}')


def test_a_dropped_workload_stays_dropped_when_the_whole_study_is_handed_on():
    smoke = loading.load_checked(project_root() / "config/smoke.yaml")
    assert loading.load_checked(json.dumps(smoke.to_json())) == smoke
    assert list(smoke.workloads) == ["mnist_cnn"]


def test_a_warm_cache_needs_a_discarded_round(config):
    with pytest.raises(UserError, match="as_found"):
        checks.check(change(config, ("rounds", "discarded"), 0))


def test_a_workload_that_the_study_does_not_name(config):
    with pytest.raises(UserError, match="did you mean 'mnist_cnn'"):
        study.settings_of(checks.check(config).workloads, "mnist_cn")


def test_a_job_sees_no_more_of_the_study_than_it_depends_on():
    """What it does not depend on must not come back from the default study, and not fit."""
    base = loading.load_checked(json.dumps({"stack": "paper-2022", "stacks": ["torch-2.13"]}))
    turned = loading.load_checked(
        json.dumps({"rounds": {"allocator": "steady"}, "arms": {"rounds": ["allocator=default"]}})
    )
    for whole in (base, turned):
        for kind in ("rounds", "causes", "sweep", "profile", "starts"):
            found = loading.load_part(study.PARTS[kind], study.part_of(whole, kind, "mnist_cnn"))
            assert found.stack == whole.stack and not hasattr(found, "stacks"), kind


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("study: mine\narms:\n  rounds: [amp=bf16]\n  workloads: []\n  rounds: [tf32=on]\n")
    with pytest.raises(UserError, match=r"study\.yaml line 5 is not YAML: the key 'rounds' appears twice"):
        loading.load(path)
    path.write_text("{[a]: 1, [a]: 2}")
    with pytest.raises(UserError, match="is not YAML"):
        loading.load(path)


def keys_of(kind, prefix=""):
    """Every key of a record type with dots, as docs/configuration.md writes it."""
    for name, field in kind.model_fields.items():
        if name == "workloads" and not prefix:
            yield from keys_of(sections.WorkloadSettings, "workloads.<name>.")
        elif name == "own_jobs":
            yield from keys_of(study.OwnJob, "workloads.<name>.")
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Record):
            yield from keys_of(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_the_page_on_configuration_has_every_key():
    text = (project_root() / "docs/configuration.md").read_text()
    found = set(keys_of(study.Study))
    assert "workloads.<name>.batch" in found and "ceilings.cuda.gemm_sizes" in found
    for key in found:
        shared = "…." + key.partition(".")[2] if key.startswith("rounds.") else key
        assert f"`{key}`" in text or f"`{shared}`" in text, key


def test_the_page_on_configuration_has_every_level_of_an_arm():
    """But for levels that are the headline's own, as `amp=off`."""
    text = (project_root() / "docs/configuration.md").read_text()
    rows = dict(
        re.findall(r"^\| (`[a-z`, 0-9]+`) \| (.+) \|$", text.partition("\n## Arms\n")[2], flags=re.MULTILINE)
    )
    told = {factor: levels for factors, levels in rows.items() for factor in re.findall(r"`([a-z0-9]+)`", factors)}
    known = {name: levels[1:] for name, levels in {**arms.COMMON, **arms.SETTINGS, **arms.INPUTS}.items()}
    for env in environment_names():
        known |= dict(environment(env).factors)
    assert set(told) == {*known, "threads"}
    for factor, levels in known.items():
        assert all(f"`{level}`" in told[factor] for level in levels), factor


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"margins": {"run": 0.05, "real_s": 0.03}},
            "config: margins: real_s: there is a margin for whole runs and",
        ),
        ({"primary": ["real_s"]}, "config: primary: no study chooses it: primary are the real time of whole runs"),
    ],
)
def test_what_a_study_cannot_choose_is_explained_in_one_line(config, change, says):
    with pytest.raises(UserError) as told:
        checks.check(loading.merge(config, change))
    assert str(told.value).startswith(says) and "\n" not in str(told.value)


RESNET = {
    "batch": 8,
    "sweep_batches": [8],
    "options": {"image_px": 64, "samples": 80, "warmup_steps": 2},
    "published": {"batch": 256, "options": {"image_px": 224, "samples": 3840, "warmup_steps": 2}},
}


def with_resnet(config, **changes):
    workloads = {"mnist_cnn": None, "sentiment_rnn": None, "resnet18": {**RESNET, **changes}}
    return {**config, "workloads": workloads, "arms": {**config["arms"], "workloads": ["resnet18"]}}


def test_options_of_a_job_reach_its_part_and_what_every_launch_is_told(config):
    whole = checks.check(with_resnet(config)).replace(device="cpu")
    for kind in ("rounds", "causes", "sweep", "profile", "starts"):
        part = loading.load_part(study.PARTS[kind], study.part_of(whole, kind, "resnet18"))
        told = designs.job_spec("train", "resnet18", 8, part).options
        assert (told["image_px"], told["samples"], told["classes"], told["momentum"]) == (64, 80, 200, 0.9), kind
    assert rounds.whole_run_spec("resnet18", 8, whole).loader_workers == 4
    plain = rounds.whole_run_spec("mnist_cnn", 64, checks.check(config).replace(device="cpu")).to_json()
    assert "options" not in plain and plain["loader_workers"] == 1


def test_what_is_not_as_it_was_published_is_told_with_what_was(config):
    settings = checks.check(with_resnet(config)).workloads["resnet18"]
    assert settings.scaled("resnet18") == (
        "batch 8 (published 256), image_px 64 (published 224), samples 80 (published 3840)"
    )
    assert settings.scaled("resnet18", 256) == "image_px 64 (published 224), samples 80 (published 3840)"
    assert settings.replace(published=None).scaled("resnet18") is None
    as_published = sections.Batch(batch=256, published=sections.Published(batch=256))
    assert as_published.scaled("resnet18") is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"options": {"image_pxs": 64}},
            "workloads: resnet18: options: resnet18 has no option 'image_pxs': did",
        ),
        ({"options": {"image_px": "64"}}, "workloads: resnet18: options: image_px"),
        (
            {"options": {"image_px": 32}},
            "workloads: resnet18: options: image_px: 32 must be at least 33: of",
        ),
        (
            {"published": {"batch": 256, "options": {"px": 224}}},
            "workloads: resnet18: published: options: resnet18",
        ),
        ({"batch": 100}, "workloads: resnet18: no step is left to time"),
        ({"sweep_batches": [81]}, "workloads: resnet18: batch 81 is larger than its 80 samples"),
        (
            {"options": {"samples": 8}, "sweep_batches": [8]},
            "left to time: 8 samples are 1 steps, 1 warm up",
        ),
    ],
)
def test_options_that_cannot_be_are_told_where_the_study_is_read(config, changes, says):
    with pytest.raises(UserError) as told:
        checks.check(with_resnet(config, **changes))
    assert says in str(told.value) and str(told.value).startswith("config: ") and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("workload", "settings", "says"),
    [
        ("inception3", {"batch": 2, "options": {"image_px": 224}}, "image_px: 224 must be at least 299"),
        ("resnet18", {"batch": 61, "options": {"samples": 60}}, "no step is left to time"),
        ("resnet18", {"batch": 4, "sweep_batches": [61], "options": {"samples": 60}}, "larger than its 60 samples"),
    ],
)
def test_a_job_that_cannot_be_is_one_line_before_anything_runs(workload, settings, says, capsys):
    jobs = {"mnist_cnn": None, "sentiment_rnn": None, workload: {"sweep_batches": [], **settings}}
    one = {"workloads": jobs, "papers": [], "stacks": [], "arms": {"workloads": []}}
    assert main(["plan", "--study", json.dumps(one)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and told[0].startswith("tare: ") and workload in told[0] and says in told[0]


def test_a_batch_that_a_model_cannot_be_trained_on_is_refused(config):
    inception = {"batch": 2, "sweep_batches": [2], "options": {"samples": 8, "warmup_steps": 1}}
    for change, says in (
        ({"batch": 1}, "inception3: batch 1 can't be trained, a batch needs 2 samples"),
        ({"sweep_batches": [7]}, "inception3: batch 7 can't be trained, a batch needs 2 samples: of its 8 samples"),
    ):
        workloads = {"mnist_cnn": None, "sentiment_rnn": None, "inception3": {**inception, **change}}
        with pytest.raises(UserError, match=says):
            checks.check({**config, "workloads": workloads})


def test_input_is_a_factor_of_every_environment_and_no_setting_of_the_framework(config):
    asked = with_resnet(config)
    asked["arms"]["rounds"] = ["input=synthetic"]
    whole = checks.check(asked)
    (one,) = [each for each in campaigns.campaigns(whole) if each.arm == "input=synthetic"]
    assert one.kind == "rounds" and one.environments == whole.environments
    arm = arms.parse(one.arm)
    assert arm.is_inside and not arm.is_setting and not arm.needs_image and not arm.is_optional
    assert arms.launch_names(arm, whole.environments)[-1] == "host.headline"
    levels = arms.levels_of({"stack": "same", "allocator": "default"}, arm)
    assert arms.conditions_at(OF_A_STUDY, levels).settings == {"input": "synthetic"}
    assert arms.used(["host", "docker"], arm) == (["docker", "host"], ("input",))
    assert "tare/worker/settings/input.py" in closure.inside("train", "resnet18", settings=["input"])
    assert "tare/worker/settings/input.py" not in closure.inside("train", "resnet18")
    assert "workloads/_images.py" in closure.inside("train", "resnet18")


def test_input_that_a_workload_does_not_make_is_refused(config):
    for level, says in (
        ("synthetic", "is impossible with mnist_cnn, which makes no batch"),
        ("real", "is the headline"),
    ):
        with pytest.raises(UserError, match=says):
            checks.check({**config, "arms": {**config["arms"], "rounds": [f"input={level}"]}})
    with pytest.raises(UserError, match="did you mean 'synthetic'"):
        checks.check({**config, "arms": {**config["arms"], "rounds": ["input=synthetc"]}})
