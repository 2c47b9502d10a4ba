"""Orders of workloads, and images that are paid back: judged from tables whose answer is known."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from audit_builders import here, metric, verdict

from tare.core.errors import UserError
from tare.literature import claims, published
from tare.literature.answers import FAILS, HOLDS, OPEN
from tare.literature.published_file import Claim
from tare.model import tables
from tare.model.roles import CONTROL, read_role
from tare.model.schema import parse
from tare.model.studies.cells import launch_columns
from tare.stats.intervals import t_quantile

STUDY = published.load("columbia2025")
MODELS = ("resnet50", "resnet18", "alexnet")
STACK = "torch-2.13"


def judged(claim, found):
    only = tuple(one for one in STUDY.claims if one.id == claim)
    return claims.judge_claims(replace(STUDY, claims=only), found).set_index("workload")


def memory(sizes, units=6, environments=("host", CONTROL, "docker"), noise=0.01):
    """Resident memory of whole runs: by workload a size, alike everywhere but for each launch's own spread."""
    return [
        metric(env, "peak_rss_bytes", size * math.exp(noise * math.sin(3 * rep + 1.7 * place)), rep=rep, unit="B",
               workload=name)
        for name, size in sizes.items() for rep in range(units) for place, env in enumerate(environments)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((3e9, 2e9, 1e9), (HOLDS, HOLDS, HOLDS)),
        ((3e9, 1e9, 2e9), (HOLDS, FAILS, FAILS)),
        ((2e9, 3e9, 1e9), (FAILS, FAILS, HOLDS)),
        ((2.002e9, 2e9, 1e9), (OPEN, OPEN, HOLDS)),
    ],
)
def test_each_model_stands_where_the_claim_has_it_or_not(sizes, wanted):
    rows = judged("models_by_memory", here(metrics=memory(dict(zip(MODELS, sizes, strict=True)))))
    assert tuple(rows.loc[list(MODELS), "here"]) == wanted
    assert "resident memory in docker, resnet50 / alexnet" in rows.loc["alexnet", "evidence"]


def test_two_models_are_compared_by_welchs_interval_of_their_units():
    rows = memory({"resnet50": 3e9, "resnet18": 2e9, "alexnet": 1e9}, noise=0.2)
    logs = {
        name: [math.log(row["value"]) for row in rows if (row["launch"], row["workload"]) == ("docker", name)]
        for name in MODELS
    }
    parts = [statistics.variance(logs[name]) / 6 for name in ("resnet50", "alexnet")]
    degrees = sum(parts) ** 2 / sum(part**2 / 5 for part in parts)
    # together: one metric, two environments, two other models
    half = t_quantile(0.05 / 4, degrees) * math.sqrt(sum(parts))
    middle = statistics.fmean(logs["resnet50"]) - statistics.fmean(logs["alexnet"])
    ratio, low, high = (math.exp(middle + end) for end in (0, -half, half))
    told = judged("models_by_memory", here(metrics=rows)).loc["alexnet", "evidence"]
    assert f"in docker, resnet50 / alexnet {ratio:.3f} [{low:.3f}, {high:.3f}]" in told


def test_too_few_units_a_missing_model_and_one_launch_settle_nothing():
    three = dict(zip(MODELS, (3e9, 2e9, 1e9), strict=True))
    few = judged("models_by_memory", here(metrics=memory(three, units=5))).loc["alexnet"]
    assert few["here"] == OPEN and "an interval from 5 units settles nothing, one from 6 may" in few["reason"]
    two = judged("models_by_memory", here(metrics=memory({"resnet50": 3e9, "alexnet": 1e9}))).loc["alexnet"]
    assert two["here"] == OPEN and "resnet18: this workload is not part of this study" in two["reason"]
    assert two["reason"].startswith("as far as measured it is as claimed")
    alone = judged("models_by_memory", here(metrics=memory(three, environments=("host", CONTROL)))).loc["alexnet"]
    assert "docker is none of this study's environments" in alone["reason"]
    launch = [
        metric(env, "gpu_memory_used_peak_bytes", 1e9, rep=None, unit="B", campaign="profile", workload=name)
        for name in MODELS for env in ("host", "docker")
    ]  # fmt: skip
    only = tuple(replace_needs(one) for one in STUDY.claims if one.id == "models_by_gpu_memory")
    row = claims.judge_claims(replace(STUDY, claims=only), here(metrics=launch)).iloc[0]
    assert row["here"] == OPEN and "one number of memory in use on the GPU, and no interval" in row["reason"]


def replace_needs(claim):
    return claim.model_copy(update={"needs": ()})


# --- what a build costs, and what a run saves


def costs(ours=60.0, naive=200.0):
    """Seconds of both builds."""
    about = {
        "study": "s", "machine": "box", "campaign": "images", "scenario": "images", "workload": "all",
        "stack": STACK, "level_stack": "same", "batch": None, "rep": None, "unit": "s", "kind": "measured",
        "source": "test",
        "reason": None,
    }  # fmt: skip
    found = {("docker", "ready_s"): ours, ("docker", "naive_build_s"): naive}
    return tables.make(
        "image_costs",
        [
            {**about, **launch_columns(read_role(env), "images"), "item": item, "value": value}
            for (env, item), value in found.items()
        ],
    )


def runs(low, high, word="different", units=8):
    """Whole runs of 10 s on the host, and the verdict on Docker's."""
    where = {"workload": "resnet18"}
    places = ("host", CONTROL, "docker")
    own = [metric(env, "real_s", 10.0, rep=rep, **where) for rep in range(6) for env in places]
    told = verdict("docker", "real_s", low, high, word, **where)
    return {"metrics": own, "verdicts": [{**told, "n_units": units}]}


@pytest.mark.parametrize(
    ("low", "high", "built", "wanted"),
    [
        (0.81, 0.91, {}, HOLDS),  # 0.9 to 1.9 s a run: 60 s after 32 to 67 runs, 200 s after 106 to 223
        (1.05, 1.10, {}, FAILS),  # a run takes longer: never
        (0.95, 1.05, {}, OPEN),  # perhaps never
        (0.80, 0.90, {"ours": 0.5}, FAILS),  # paid by the first run
    ],
)
def test_a_build_is_paid_back_by_repeated_runs_and_not_by_the_first(low, high, built, wanted):
    found = replace(here(**runs(low, high)), image_costs=costs(**built))
    row = judged("building_pays_when_repeated", found).loc["resnet18"]
    assert row["here"] == wanted
    assert "the naive image of docker: built in 200 s" in row["evidence"]
    if wanted == HOLDS:
        assert "after 32 runs at best, 67 at worst" in row["evidence"] and "106 runs at best" in row["evidence"]


def test_few_units_no_costs_and_no_container_leave_it_open():
    few = replace(here(**runs(0.80, 0.90, units=3)), image_costs=costs())
    assert judged("building_pays_when_repeated", few).loc["resnet18", "here"] == OPEN
    none = judged("building_pays_when_repeated", here(**runs(0.80, 0.90))).loc["resnet18"]
    assert none["reason"] == "this study counted no costs of images"
    alone = here(metrics=[metric("host", "real_s", 10.0, workload="resnet18")])
    assert "docker is none of" in judged("building_pays_when_repeated", alone).loc["resnet18", "reason"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"rule": "ordered", "env": None, "once": None, "times": None, "models": ["alexnet"]},
            "needs two workloads",
        ),
        ({"once": None}, "rule repays needs once"),
        ({"rule": "lowest", "times": None}, "rule lowest takes no once"),
        ({"env": None}, "rule repays needs env"),
    ],
)
def test_a_claim_that_lacks_what_its_rule_takes_is_refused(change, says):
    claim = next(one for one in STUDY.claims if one.id == "building_pays_when_repeated")
    given = {**claim.model_dump(exclude_none=True), **change}
    with pytest.raises(UserError, match=says):
        parse(Claim, {key: value for key, value in given.items() if value is not None}, "claims", UserError)
