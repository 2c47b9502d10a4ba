"""Why environments differ: kernels compared, operators told apart, extra time split, files accounted for."""

import math
import random

import numpy as np
import pandas as pd
import pytest
from campaign_builders import rounds_campaign, sealed_campaign
from cause_builders import SLOW, causes_campaign

from tare.analysis import metrics
from tare.analysis.launch_rows import cause_rows, kernel_rows
from tare.analysis.why import causes, suspects
from tare.core.errors import IntegrityError
from tare.model import tables
from tare.model.records.launches import LaunchRecord
from tare.model.roles import read_role
from tare.model.schema import parse
from tare.model.studies.cells import launch_columns

NAMES = ("host", "docker", "apptainer")


def kernels_of(seed, **planted):
    """The table of kernels alone."""
    plan, rows = causes_campaign("s", "mnist_cnn", NAMES, {}, 4, random.Random(seed), **planted)
    return pd.DataFrame(metrics.campaign_kernels(sealed_campaign(plan, rows, "causes.docker+host")))


def built(seed=1, units=4, **planted):
    """Tables of kernels and metrics of a campaign of causes with what was planted."""
    plan, rows = causes_campaign("s", "mnist_cnn", NAMES, {}, units, random.Random(seed), **planted)
    kernels = tables.make("kernels", metrics.campaign_kernels(sealed_campaign(plan, rows, "causes.docker+host")))
    return kernels, tables.make(
        "metrics", metrics.campaign_metrics(sealed_campaign(plan, rows, "causes.docker+host"))
    )


def whole_runs(seed=1, units=8, factors=None):
    """Metric rows of whole runs in which imports take longer where files are slow."""
    factors = {"docker": {}, "apptainer": {"imports": 1.2}} if factors is None else factors
    plan, rows = rounds_campaign("s", "mnist_cnn", NAMES, {}, units, random.Random(seed), factors)
    return tables.make("metrics", metrics.campaign_metrics(sealed_campaign(plan, rows, "rounds.docker+host")))


def test_equal_launches_run_equal_kernels_host_against_host_first():
    kernels, _ = built()
    host, *others = causes.compare_sets(kernels, operators=False)
    assert (host.env, host.pairs, host.equal, host.kernels) == ("host", 28, 28, 3)
    assert [(one.env, one.pairs, one.equal, one.differs) for one in others] == [
        ("apptainer", 32, 32, False),
        ("docker", 32, 32, False),
    ]


def test_a_planted_kernel_is_found_in_its_environment_alone():
    before = "convolution jit:avx512_core backward_weights"
    kernels, _ = built(other={"docker": {before: "convolution gemm:jit backward_weights"}})
    found = {one.env: one for one in causes.compare_sets(kernels, operators=False)}
    assert found["docker"].equal == 0
    assert found["docker"].only_here == ("onednn: convolution gemm:jit backward_weights [mb64_ic1oc32]",)
    assert found["docker"].only_host == (f"onednn: {before} [mb64_ic1oc32]",)
    assert not found["apptainer"].differs
    assert not any(one.differs for one in causes.compare_sets(kernels, operators=True))


def test_other_numbers_of_calls_are_told():
    kernels, _ = built()
    chosen = (kernels["launch"] == "docker") & (kernels["kernel"] == "SGEMM T,N")
    kernels.loc[chosen, "calls_per_step"] = 3.0
    found = {one.env: one for one in causes.compare_sets(kernels, operators=False)}
    assert found["docker"].counts == (("mkl: SGEMM T,N [128,64,9216]", 1.0, 3.0),)


def test_what_comes_and_goes_on_the_host_proves_nothing():
    kernels, _ = built()
    gone = (kernels["launch"] == "host") & (kernels["rep"] == 2) & (kernels["kernel"] == "SGEMM T,N")
    kernels = kernels[~gone & ~((kernels["launch"] == "docker") & (kernels["kernel"] == "SGEMM T,N"))]
    found = {one.env: one for one in causes.compare_sets(kernels, operators=False)}
    assert found["host"].equal == 21  # the launch that lacks it differs from the seven others
    assert not found["docker"].differs
    assert found["docker"].equal == 4


def test_an_operator_made_slower_is_told_apart_and_no_other():
    kernels, _ = built(slower={"docker": {"aten::tanh": 1.3}})
    times = causes.operator_times(kernels, 0.05, 3)
    different = {(time.env, time.operator) for time in times if time.differs}
    assert ("docker", "aten::tanh") in different
    assert different <= {("docker", "aten::tanh"), ("docker", causes.ALL_OPERATORS)}
    slow = next(time for time in times if (time.env, time.operator) == ("docker", "aten::tanh"))
    assert slow.low < 1.3 < slow.high
    assert "aten::t" not in {time.operator for time in times}  # less than a hundredth of the step


def test_without_a_planted_difference_false_alarms_keep_to_their_level():
    alarms = sum(
        any(time.differs for time in causes.operator_times(kernels_of(seed), 0.05, 3)) for seed in range(60)
    )
    assert alarms <= 7  # 60 families at 5% or less: more than seven would happen once in a hundred times


def test_intervals_of_operators_hold_what_was_planted_as_often_as_they_say():
    held = 0
    for seed in range(60):
        times = causes.operator_times(kernels_of(seed, slower={"docker": {"aten::mm": 1.1}}), 0.05, 3)
        one = next(time for time in times if (time.env, time.operator) == ("docker", "aten::mm"))
        held += one.low <= 1.1 <= one.high
    assert held >= 57  # one interval of a family has far less than 5%


def test_few_units_tell_no_operator_and_no_phase_apart():
    kernels, _ = built(units=2, slower={"docker": {"aten::tanh": 3.0}})
    few, enough = (causes.operator_times(kernels, 0.05, fewest) for fewest in (3, 2))
    assert not any(time.differs for time in few) and {time.units for time in few} == {2}
    assert any(time.differs for time in enough)
    runs = whole_runs(units=5)
    few, enough = (
        {cost.phase: cost for cost in causes.phase_costs(runs, 0.05, fewest) if cost.env == "apptainer"}
        for fewest in (6, 5)
    )
    assert few["imports_s"].extra == enough["imports_s"].extra  # the numbers stand
    assert enough["imports_s"].is_significant and enough["imports_s"].share is not None
    assert not few["imports_s"].is_significant and few["imports_s"].share is None


def test_phases_add_up_to_the_whole_and_shares_need_a_whole_that_differs():
    costs = causes.phase_costs(whole_runs(), 0.05, 6)
    for env in ("docker", "apptainer"):
        own = {cost.phase: cost for cost in costs if cost.env == env}
        parts = sum(cost.extra.mean for phase, cost in own.items() if phase != "real_s")
        assert parts == pytest.approx(own["real_s"].extra.mean, abs=1e-6)
    own = {cost.phase: cost for cost in costs if cost.env == "apptainer"}
    assert own["imports_s"].share > 0.8
    assert all(cost.share is None for cost in costs if cost.env == "host.control")


def test_a_slow_file_system_accounts_for_the_imports_it_slows():
    """Files cost 0.03 s on the host and 0.36 s there; imports take 0.38 s longer."""
    _, found = built()
    accounts = {account.env: account for account in causes.file_accounts(whole_runs(), found, 0.05)}
    there = accounts["apptainer"]
    assert SLOW == {"apptainer": 12.0}
    assert there.low < 0.33 / 0.38 < there.high
    assert there.low > 0.5
    assert accounts["docker"].ratio is None
    assert "no share is given" in accounts["docker"].reason


def test_files_that_cost_nothing_more_account_for_nothing():
    _, found = built(slow={})
    accounts = {account.env: account for account in causes.file_accounts(whole_runs(), found, 0.05)}
    assert accounts["apptainer"].low < 0.02 and accounts["apptainer"].high < 0.1


def fingerprints(host, env):
    rows = [("host", path, digest) for path, digest in host.items()]
    rows += [("docker", path, digest) for path, digest in env.items()]
    return pd.DataFrame(rows, columns=["launch", "path", "sha256"])


def test_files_are_compared_by_name_and_bytes():
    host = {"/lib/libc.so.6": "a", "{tree}/lib/libtorch_cpu.so": "t", "/usr/lib/gconv-modules.cache": "g"}
    env = {"/usr/lib/libc.so.6": "b", "{tree}/lib/libtorch_cpu.so": "t", "/lib/libm.so.6": "m"}
    found = suspects.file_differences(fingerprints(host, env), "docker")
    assert [(file.name, file.how) for file in found] == [
        ("gconv-modules.cache", "only on the host"),
        ("libc.so.6", "bytes differ"),
        ("libm.so.6", "only here"),
    ]
    assert suspects.file_differences(fingerprints(host, {}), "docker") is None


def test_a_suspect_differs_and_serves_what_differs():
    files = suspects.file_differences(fingerprints({"/libc.so.6": "a", "/libm.so.6": "m"}, {"/libc.so.6": "b",
                                                    "/libm.so.6": "n"}), "docker")  # fmt: skip
    found, cleared = suspects.suspicions(["aten::tanh", "aten::mm"], ["imports_s"], files)
    assert [(one.what, one.files) for one in found] == [
        ("aten::tanh", ("libm.so.6",)),
        ("aten::mm", ()),
        ("imports_s", ("libc.so.6",)),
    ]
    assert cleared == []
    found, cleared = suspects.suspicions([], [], files)
    assert found == [] and [file.name for file in cleared] == ["libc.so.6", "libm.so.6"]


def test_a_launch_of_another_kind_is_refused_in_one_line():
    plan, rows = causes_campaign("s", "mnist_cnn", NAMES, {}, 1, random.Random(1))
    launch = rows[1]["launches"]["docker"]
    launch["inside"]["mode"] = "train"
    with pytest.raises(IntegrityError, match="of mode 'train' found where one of mode 'causes'"):
        metrics.campaign_metrics(sealed_campaign(plan, rows, "c"))
    launch["inside"] = {**launch["inside"], "mode": "causes", "results": {}}
    with pytest.raises(IntegrityError, match="has no first, files, kernels, operators"):
        kernel_rows(parse(LaunchRecord, launch, "launch"))


def test_kernels_that_nobody_could_name_are_unavailable_with_the_reason():
    _, rows = causes_campaign("s", "mnist_cnn", NAMES, {}, 1, random.Random(1))
    launch = rows[1]["launches"]["docker"]
    launch["inside"]["results"]["kernels"] = {"rows": None, "reason": "the verbose output is cut short"}
    launch = parse(LaunchRecord, launch, "launch")
    found = {row["metric"]: row for row in cause_rows(launch)}
    assert found["kernels_per_step"]["kind"] == "unavailable"
    assert found["kernels_per_step"]["reason"] == "the verbose output is cut short"
    assert found["operators_per_step"]["value"] == 26
    assert {row["library"] for row in kernel_rows(launch)} == {"operator"}


def test_a_failed_launch_has_its_reason_and_no_kernels():
    plan, rows = causes_campaign("s", "mnist_cnn", NAMES, {}, 1, random.Random(1))
    rows[1]["launches"]["docker"] = {"status": "failed", "reason": "no image", "inside": None}
    campaign = sealed_campaign(plan, rows)
    reasons = [row["reason"] for row in metrics.campaign_metrics(campaign) if row["launch"] == "docker"]
    assert reasons == ["failed: no image"]
    assert "docker" not in {row["launch"] for row in metrics.campaign_kernels(campaign)}


def test_an_environment_that_failed_once_takes_no_unit_from_the_others():
    values = pd.DataFrame(
        {"host": [1.0, 1.1, 0.9], "host.control": [1.0, 1.1, 0.9], "docker": [1.0, 1.1, 0.9],
         "apptainer": [2.0, None, 2.0]}
    )  # fmt: skip
    (found,) = causes._ratios("aten::mm", values, 0.5)
    assert found.env == "docker" and found.estimate.mean == pytest.approx(0, abs=1e-12)
    assert causes._ratios("aten::mm", values[["docker", "apptainer"]], 0.5) == []


def test_an_environment_that_only_varies_more_is_no_difference():
    """A pooled spread called three times the spread a difference in a third of campaigns."""
    generator = np.random.default_rng(3)
    false = 0
    for _ in range(60):
        spread = {"host": 0.01, "host.control": 0.01, "docker": 0.03, "apptainer": 0.01}
        kernels = pd.DataFrame(
            {"library": "operator", "kernel": kernel, "kind": "measured", "scenario": "single", "rep": unit,
             **launch_columns(read_role(env), "single"),
             "s_per_step": math.exp(generator.normal(0, spread[env]))}
            for kernel in "abcdef" for env in spread for unit in range(4)
        )  # fmt: skip
        times = causes.operator_times(kernels, 0.05, 3)
        assert len(times) == 14
        false += any(time.low > 1 or time.high < 1 for time in times)
    assert false / 60 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)
