"""Graph compilers beside none: compile time, later steps, and the step from which on compiling pays."""

import pandas as pd
import pytest

from tare.analysis.compilers import Compiled, Steps, compiled
from tare.model.registry import BASELINE, CONTROL, HOST
from tare.profilers.clusters import xla_clusters
from tare.report.arms.compilers import compiler_table


def steps(first_s, later_s):
    return Steps(first_s=first_s, later_s=later_s, peak_bytes=1.0, launches=2)


def one(first_s, later_s, plain_first_s=1.0, plain_later_s=0.5):
    with_it, without = steps(first_s, later_s), steps(plain_first_s, plain_later_s)
    return Compiled(stack="torch-2.13", compiler="inductor", compiled=with_it, plain=without)


@pytest.mark.parametrize(
    ("first_s", "later_s", "pays_from"), [(3.0, 0.25, 9), (3.0, 0.5, None), (3.0, 0.75, None), (0.5, 0.25, 1)]
)
def test_the_step_from_which_it_pays(first_s, later_s, pays_from):
    found = one(first_s, later_s)
    assert found.compile_s == first_s - 1.0 and found.pays_from == pays_from
    if pays_from:  # by running both

        def ends(first, later):
            return [first + number * later for number in range(pays_from + 1)]

        ahead = [a <= b for a, b in zip(ends(first_s, later_s), ends(1.0, 0.5), strict=True)]
        assert ahead[pays_from - 1] and not any(ahead[: pays_from - 1])


def rows(campaign, env, stack, **values):
    identity = {"workload": "mnist_cnn", "scenario": "single", "campaign": campaign, "arm": "", "env": env}
    return [
        {**identity, "stack": stack, "kind": "measured", "metric": key, "value": v} for key, v in values.items()
    ]


def test_a_stack_with_a_compiler_is_held_against_its_own_campaign_and_a_setting_against_the_launch_beside_it():
    table = []
    for env in (HOST, CONTROL):
        fast = {"first_step_s": 4.0, "later_step_s": 0.1, "peak_rss_bytes": 2e9}
        slow = {"first_step_s": 1.0, "later_step_s": 0.2, "peak_rss_bytes": 1e9}
        table += rows("rounds.host.stack-paper-2022+xla", env, "paper-2022", **fast)
        table += rows("rounds.host.stack-paper-2022", env, "paper-2022", **slow)
        counted = {"first_step_s": 9.0, "compiled_graphs": 2, "compiled_breaks": 1, "compiled_operators": 40}
        table += rows("rounds.host.compile-inductor", env, "torch-2.13", **{**fast, **counted})
    beside = {"first_step_s": 1.5, "later_step_s": 0.3, "peak_rss_bytes": 1e9}
    for name in ("compile-inductor", "stack-paper-2022", "stack-paper-2022+xla"):
        table += rows(f"rounds.host.{name}", f"{HOST}{BASELINE}", "torch-2.13", **beside)
    found = {(each.stack, each.compiler): each for each in compiled(pd.DataFrame(table), "mnist_cnn")}
    assert set(found) == {("paper-2022", "xla"), ("torch-2.13", "inductor")}
    xla, inductor = found["paper-2022", "xla"], found["torch-2.13", "inductor"]
    assert (xla.plain.first_s, xla.compile_s, xla.pays_from, xla.compiled.launches) == (1.0, 3.0, 31, 2)
    assert (inductor.plain.first_s, inductor.compile_s) == (1.5, 7.5)
    assert (inductor.graphs, inductor.breaks, inductor.operators, xla.graphs) == (2, 1, 40, None)
    drawn = compiler_table(pd.DataFrame(table), "mnist_cnn")
    shown = {row[0]: dict(zip(drawn.columns, row, strict=True)) for row in drawn.rows}
    assert shown["paper-2022"]["pays from step"] == "31" and shown["paper-2022"]["graphs"] == "not told"
    assert shown["torch-2.13"]["compile time, s"] == "7.50" and shown["torch-2.13"]["operators inside"] == "40"


def test_without_a_plain_campaign_nothing_is_said():
    table = rows("rounds.host.stack-paper-2022+xla", HOST, "paper-2022", first_step_s=4.0, later_step_s=0.1)
    assert compiled(pd.DataFrame(table), "mnist_cnn") == []
    assert compiler_table(pd.DataFrame(table), "mnist_cnn") is None


def test_a_compiler_that_failed_on_the_host_is_left_out():
    headline = {"first_step_s": 1.5, "later_step_s": 0.3, "peak_rss_bytes": 1e9}
    table = rows("rounds.host.compile-torchscript", f"{HOST}{BASELINE}", "torch-2.13", **headline)
    assert compiled(pd.DataFrame(table), "mnist_cnn") == []


# TensorFlow 1.14, of the CNN of modak2020: a graph that makes variables, then that of the step.
PASS = "I tensorflow/compiler/jit/mark_for_compilation_pass.cc"
LOG = f"""
2026-11-22 18:55:28.801955: {PASS}:1247] *** Clustering info for graph of size 68
2026-11-22 18:55:28.802493: {PASS}:1248]  Built 1 clusters, size 42 / 68 (61.76%)
2026-11-22 18:55:28.802511: {PASS}:1264]  Unclustered nodes: 26 / 68 (38.24%)
2026-11-22 18:55:29.718275: {PASS}:1247] *** Clustering info for graph of size 160
2026-11-22 18:55:29.718287: {PASS}:1248]  Built 2 clusters, size 119 / 160 (74.38%)
2026-11-22 18:55:29.718298: {PASS}:1264]  Unclustered nodes: 41 / 160 (25.62%)
"""


def test_what_xla_left_outside_its_clusters_is_counted():
    assert xla_clusters(LOG) == {"graphs": 2, "operators": 119, "left": 41}
    assert xla_clusters("E some error of TensorFlow") is None
