"""Designs: plans, orders and pads of units, what each launch is told, and which run beside each other or not."""

import contextlib
import random
from types import SimpleNamespace

import asked
import fakes
import pytest
from test_campaign import plan_of
from test_rounds import unit_of

from tare.experiments import designs
from tare.experiments.designs import Setup
from tare.experiments.orders import balanced_orders
from tare.model.journals.units import IN_MEMORY
from tare.model.records.campaigns import Others, Sampling
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_roles
from tare.model.studies import arms

NAMES = (HOST, CONTROL, "docker")
OK = LaunchRecord(status="ok", reason=None, inside=None, deviations=())
FAILED = LaunchRecord(status="failed", reason="it broke", inside=None, deviations=())


# --- orders and pads


def units_of(kinds):
    """Units before one: `d` was discarded, `x` is void, `.` counts."""
    said = {"d": None, "x": "it hung", ".": None}
    return [unit_of(number, {}, discarded=kind == "d", voided=said[kind]) for number, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("kinds", "every", "place"),
    [("", 1, None), ("x", 1, None), ("d", 1, 0), ("dx", 1, 0), ("d.", 1, 1), ("d.x.", 1, 2), ("d.", 2, 0),
     ("d..", 2, 1), ("d...", 2, 1), ("d.d.", 1, 2)],
)  # fmt: skip
def test_units_that_count_take_the_rows_of_balanced_orders(kinds, every, place):
    plan = plan_of(order_seed="s")
    order, pads = designs.unit_order(plan, units_of(kinds), NAMES, *([every] if every > 1 else []))
    generator = random.Random(f"s/{len(kinds)}")
    drawn = generator.sample(list(NAMES), 3)
    rows = balanced_orders(3, random.Random(f"s/{'/'.join(NAMES)}"))
    wanted = [[NAMES[index] for index in next(rows)] for _ in range(4)]
    assert order == (drawn if place is None else wanted[place])
    assert pads == {name: generator.randrange(4096) for name in NAMES}


def test_an_order_is_of_one_start_and_of_older_plans_the_studys_seed():
    plan = plan_of(seed=7)
    seeds = [designs.order_seed(plan) for _ in range(2)]
    assert seeds[0] != seeds[1] and [len(seed) for seed in seeds] == [16, 16]
    assert designs.seed_of(plan) == "7" and designs.seed_of(plan.replace(order_seed="s")) == "s"


# --- plans


@pytest.mark.parametrize(
    ("arm", "scenario", "optional"),
    [(None, "single", False), ("allocator=default", "single", False), ("stack=torch-1.4", "single", True),
     (None, "distributed", True), (None, "busy_core", False)],
)  # fmt: skip
def test_a_plan_is_optional_where_this_machine_may_be_unable_to_run_it(monkeypatch, arm, scenario, optional):
    told = []
    monkeypatch.setattr(designs.closure, "code_sha256", lambda *those: told.append(those) or "0")
    sites = {name: SimpleNamespace(framework=name) for name in (HOST, "docker")}
    study = fakes.study()
    setup = Setup(
        study=study, workload="mnist_cnn", sites=sites, arm=arms.parse(arm) if arm else None, scenario=scenario
    )
    given = {"spec": asked.spec(), "headline": {"stack": "same", "allocator": "steady", "page_cache": "warm"}}
    given |= {"sampling": Sampling(units=3, confidence=0.95), "discarded": 1}
    plan = designs.declare("rounds", setup, **given)
    assert plan.optional == optional and plan.machine.gpus is None
    assert plan.launch_names == (HOST, "docker") and told[0][-3] == ["docker", HOST]
    alone = designs.declare("rounds", Setup(study=study, workload="mnist_cnn", sites={}), **given, launches=[HOST])
    assert alone.launch_names == (HOST,) and told[1][-3] == [designs.DEFAULT]
    monkeypatch.setattr(designs.facts, "gpu_identity", lambda: [{"uuid": "GPU-1"}])
    given["spec"] = asked.spec(device="cuda")
    assert designs.declare("rounds", setup, **given).machine.gpus == [{"uuid": "GPU-1"}]
    assert designs.uses_gpu(plan.replace(spec=given["spec"])) and not designs.uses_gpu(plan)


def test_an_arms_baseline_is_launched_as_in_the_headline():
    conditions = asked.conditions(threads=2)
    names = read_roles((HOST, CONTROL, "host.headline"))
    plan = plan_of(launches=names, conditions=conditions, headline_conditions=asked.CONDITIONS)
    assert designs.conditions_of(plan, "host.headline") == asked.CONDITIONS
    assert designs.conditions_of(plan, HOST) == conditions
    assert designs.conditions_of(plan.replace(headline_conditions=None), "host.headline") == conditions
    assert designs.longer(conditions, 3).launch_timeout_s == 3 * conditions.launch_timeout_s


def test_a_job_has_all_options_of_its_workload_those_of_the_study_or_those_that_are_given():
    study = fakes.study()
    plain = designs.job_spec("train", "mnist_cnn", 64, study)
    assert (plain.workload, plain.batch, dict(plain.options)) == ("mnist_cnn", 64, {})
    given = designs.job_spec("train", "resnet50", 8, study, {"classes": 5})
    other = designs.job_spec("train", "resnet50", 8, study)
    assert given.options["classes"] == 5 != other.options["classes"]
    assert given.options.keys() == other.options.keys() and len(given.options) > 1
    settings = study.workloads["mnist_cnn"].replace(options={"classes": 7})
    own = study.replace(workloads={"resnet50": settings})
    assert designs.job_spec("train", "resnet50", 8, own).options["classes"] == 7


def test_a_launch_of_several_jobs_has_all_of_them_and_none_of_its_own():
    plans = [
        plan_of(spec=asked.spec(mode="causes", workload=name, batch=batch, seed=seed))
        for name, batch, seed in (("mnist_cnn", 64, 3), ("sentiment_rnn", 32, 4))
    ]
    spec = designs.of_several_jobs(plans)
    assert [(job.workload, job.batch) for job in spec.jobs] == [("mnist_cnn", 64), ("sentiment_rnn", 32)]
    assert (spec.mode, spec.workload, spec.batch, spec.seed) == ("causes", "", 0, 3)


# --- units of launches one after the other


@pytest.fixture
def launched(monkeypatch):
    """Launches that are made up; who ran beside whom, who was watched, and whose files are in memory now."""
    seen = SimpleNamespace(orders=[], watched=0, warm=set(), noted=[], answers={})

    def one(site, program, conditions, pad_bytes):
        seen.orders.append([(site, program, conditions.launch_timeout_s, pad_bytes)])
        return seen.answers.get(site, OK)

    def side_by_side(orders):
        seen.orders.append([(each.site, each.program, each.pad_bytes) for each in orders.values()])
        return {name: seen.answers.get(name, OK) for name in orders}

    @contextlib.contextmanager
    def watched(used):
        seen.watched += 1
        yield
        used.append(Others(cpu_s=1.0, stolen_s=0.0, seconds=2.0, processors=2))

    monkeypatch.setattr(designs, "launched", one)
    monkeypatch.setattr(designs, "launch_side_by_side", side_by_side)
    monkeypatch.setattr(designs.others, "watched", watched)
    monkeypatch.setattr(designs.warmth, "in_memory", lambda site, program: site in seen.warm)
    monkeypatch.setattr(designs.warmth, "note", lambda site, program: seen.noted.append(site))
    return seen


EVERY = (HOST, CONTROL, "docker", "podman", "apptainer")


def unit(done=(), order=EVERY, cpus=2, page_cache="warm", **more):
    plan = plan_of(launches=read_roles(EVERY), conditions=asked.conditions(cpus=cpus, page_cache=page_cache))
    pads = {name: number for number, name in enumerate(EVERY)}
    return designs.one_after_other(plan, {name: name for name in EVERY}, done, order, pads, **more)


def test_launches_that_only_warm_the_page_cache_run_as_many_at_once_as_there_are_processors(launched, monkeypatch):
    monkeypatch.setattr(designs, "choose_cpus", lambda count: range(count))
    launched.answers = {"podman": FAILED}
    row = unit()
    assert [[site for site, *_ in some] for some in launched.orders] == [
        [HOST, CONTROL], ["docker", "podman"], ["apptainer"],
    ]  # fmt: skip
    assert all(program.ends_at_once for some in launched.orders for _, program, _ in some)
    assert [pad for some in launched.orders for *_, pad in some] == [0, 1, 2, 3, 4]
    assert launched.noted == [HOST, CONTROL, "docker", "apptainer"] and launched.watched == 0
    assert row["launches"]["podman"] is FAILED and "others" not in row
    launched.orders.clear()
    launched.warm = {HOST, "docker"}
    row = unit(needed=(HOST,), cpus=1)
    assert [[site for site, *_ in some] for some in launched.orders] == [
        [HOST],
        [CONTROL],
        ["podman"],
        ["apptainer"],
    ]
    assert row["launches"]["docker"].reason == IN_MEMORY and list(row["launches"]) == list(EVERY)


@pytest.mark.parametrize(("kinds", "page_cache"), [("d", "warm"), ("dx", "warm"), ("d.", "warm"), ("", "as_found")])
def test_launches_that_are_measured_run_alone_and_the_hosts_are_watched(launched, kinds, page_cache):
    launched.warm = set(EVERY)
    gone = {"docker": FAILED}
    done = [one.replace(launches=gone) for one in units_of(kinds)] if len(kinds) > 1 else units_of(kinds)
    row = unit(done, page_cache=page_cache, jobs=3)
    tried = [name for name in EVERY if len(done) < 2 or name != "docker"]
    assert [site for ((site, *_),) in launched.orders] == tried and launched.watched == 2
    assert not any(program.ends_at_once for ((_, program, *_),) in launched.orders)
    assert {limit for ((_, _, limit, _),) in launched.orders} == {3 * asked.CONDITIONS.launch_timeout_s}
    assert row["others"]["seconds"] == 4.0 and row["launches"]["docker"].ok == (len(done) < 2)


def test_a_scenario_has_its_own_way_to_launch_and_a_program_may_be_of_each_launch(launched, monkeypatch):
    ran = []

    def way(site, program, conditions, pad_bytes):
        ran.append((site, program.batch, conditions.launch_timeout_s))
        return OK

    monkeypatch.setattr(designs.scenarios, "launcher", lambda name: way)
    unit(units_of("d"), (HOST, "docker"), program_of=lambda name: asked.spec(batch=len(name)))
    limit_s = asked.CONDITIONS.launch_timeout_s
    assert ran == [(HOST, 4, limit_s), ("docker", 6, limit_s)] and launched.orders == []
