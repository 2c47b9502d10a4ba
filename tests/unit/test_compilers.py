"""Graph compilers compared with none: compile time, later steps, and the step from which on compiling pays."""

import pandas as pd
import pytest

from tare.analysis.compilers import Compiled, Steps, compiled
from tare.model.records.measured import HEADLINE, CurvesRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role, reference_of
from tare.model.studies.cells import launch_columns
from tare.profilers.clusters import ngraph_clusters, xla_clusters
from tare.report.settings import compiler_table


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
    identity = {"workload": "mnist_cnn", "scenario": "single", "campaign": campaign}
    identity |= launch_columns(read_role(env), "single")
    return [
        {**identity, "stack": stack, "kind": "measured", "metric": key, "value": v} for key, v in values.items()
    ]


CURVES = {"stack-paper-2022+xla": 2.1, "compile-inductor": 1.9}


def curve(loss):
    losses = {HEADLINE: (2.3, 2.1), HOST: (2.3, loss)}
    given = {"plan_sha256": "a", "workload": "mnist_cnn", "level": "a level", "stack": "torch-2.13", "env": HOST}
    return CurvesRecord(**given, batch=64, options={}, losses=losses, reasons={})


def test_a_stack_with_a_compiler_is_held_against_its_own_campaign_and_a_setting_against_the_launch_beside_it():
    table = []
    for env in (HOST, CONTROL):
        fast = {"first_step_s": 4.0, "later_step_s": 0.1, "peak_rss_bytes": 2e9}
        slow = {"first_step_s": 1.0, "later_step_s": 0.2, "peak_rss_bytes": 1e9}
        table += rows("rounds.host.stack-paper-2022+xla", env, "paper-2022", **fast)
        table += rows("rounds.host.stack-paper-2022", env, "paper-2022", **slow)
        counted = {"first_step_s": 9.0, "compiled_graphs": 2, "compiled_breaks": 1, "compiled_operators": 40}
        counted["children_peak_rss_bytes"] = 3 * 2**28
        table += rows("rounds.host.compile-inductor", env, "torch-2.13", **{**fast, **counted})
    beside = {"first_step_s": 1.5, "later_step_s": 0.3, "peak_rss_bytes": 1e9}
    for name in ("compile-inductor", "stack-paper-2022", "stack-paper-2022+xla"):
        table += rows(f"rounds.host.{name}", reference_of(HOST), "torch-2.13", **beside)
    found = {(each.stack, each.compiler): each for each in compiled(pd.DataFrame(table), "mnist_cnn")}
    assert set(found) == {("paper-2022", "xla"), ("torch-2.13", "inductor")}
    xla, inductor = found["paper-2022", "xla"], found["torch-2.13", "inductor"]
    assert (xla.plain.first_s, xla.compile_s, xla.pays_from, xla.compiled.launches) == (1.0, 3.0, 31, 2)
    assert (inductor.plain.first_s, inductor.compile_s) == (1.5, 7.5)
    assert (inductor.graphs, inductor.breaks, inductor.operators, xla.graphs) == (2, 1, 40, None)
    curves = {("mnist_cnn", f"rounds.host.{name}"): curve(loss) for name, loss in CURVES.items()}
    drawn = compiler_table(pd.DataFrame(table), "mnist_cnn", curves)
    shown = {row[0]: dict(zip(drawn.columns, row, strict=True)) for row in drawn.rows}
    assert (shown["paper-2022"]["computes the same"], shown["torch-2.13"]["computes the same"]) == ("yes", "no")
    assert shown["paper-2022"]["pays off at step"] == "31" and shown["paper-2022"]["graphs"] == "not reported"
    assert shown["torch-2.13"]["compile time, s"] == "7.50" and shown["torch-2.13"]["operators inside"] == "40"
    assert (
        shown["torch-2.13"]["programs called, MiB"] == "768"
        and shown["paper-2022"]["programs called, MiB"] == "none"
    )


def test_a_framework_that_always_compiles_has_its_own_word_for_it_and_nothing_beside():
    table = []
    for env, seconds in ((HOST, 2.0), (CONTROL, 3.0)):
        launch = {"first_step_s": 2.5, "later_step_s": 0.1, "peak_rss_bytes": 2**30, "compiled_graphs": 12}
        table += rows("rounds.host.stack-jax-0.10", env, "jax-0.10", **launch, compile_s=seconds)
    headline = {"first_step_s": 1.0, "later_step_s": 0.2, "peak_rss_bytes": 2**30}
    table += rows("rounds.host.stack-jax-0.10", reference_of(HOST), "torch-2.13", **headline)
    table += rows("rounds.host.stack-paper-2022", HOST, "paper-2022", **headline)
    (found,) = compiled(pd.DataFrame(table), "mnist_cnn")
    assert (found.stack, found.compiler, found.plain, found.pays_from) == ("jax-0.10", "xla", None, None)
    assert (found.compile_s, found.graphs, found.compiled.launches) == (2.5, 12, 2)
    drawn = compiler_table(pd.DataFrame(table), "mnist_cnn")
    shown = dict(zip(drawn.columns, drawn.rows[0], strict=True))
    assert shown["compile time, s"] == "2.50" and shown["first step, s"] == "2.50"
    assert shown["pays off at step"] == "always compiles" and shown["breaks"] == "not reported"
    assert shown["computes the same"] == "not compared"


def test_without_a_plain_campaign_nothing_is_said():
    table = rows("rounds.host.stack-paper-2022+xla", HOST, "paper-2022", first_step_s=4.0, later_step_s=0.1)
    assert compiled(pd.DataFrame(table), "mnist_cnn") == []
    assert compiler_table(pd.DataFrame(table), "mnist_cnn") is None


def test_a_compiler_that_failed_on_the_host_is_left_out():
    headline = {"first_step_s": 1.5, "later_step_s": 0.3, "peak_rss_bytes": 1e9}
    table = rows("rounds.host.compile-torchscript", reference_of(HOST), "torch-2.13", **headline)
    assert compiled(pd.DataFrame(table), "mnist_cnn") == []


# TensorFlow 1.14, of the CNN of modak2020, shortened: a graph that makes variables, then that of the step.
PASS, CHECK = (
    f"I tensorflow/compiler/jit/{name}.cc" for name in ("mark_for_compilation_pass", "compilability_check_util")
)
LOG = f"""
2026-11-24 15:00:10.123381: {PASS}:946] sorted_nodes.size() = 66
2026-11-24 15:00:10.123467: {CHECK}:163] Not clustering Variable_7 (op VarHandleOp): unsupported op
2026-11-24 15:00:10.123474: {CHECK}:163] Not clustering Variable_7/Adadelta_1 (op VarHandleOp): unsupported op
2026-11-24 15:00:10.124377: {CHECK}:163] Not clustering Variable_7/Adadelta (op VarHandleOp): unsupported op
2026-11-24 15:00:10.301955: {PASS}:1247] *** Clustering info for graph of size 68
2026-11-24 15:00:10.302493: {PASS}:1248]  Built 1 clusters, size 42 / 68 (61.76%)
2026-11-24 15:00:10.302511: {PASS}:1264]  Unclustered nodes: 26 / 68 (38.24%)
2026-11-24 15:00:10.512381: {PASS}:946] sorted_nodes.size() = 128
2026-11-24 15:00:10.512467: {CHECK}:163] Not clustering Variable_7 (op VarHandleOp): unsupported op
2026-11-24 15:00:10.512477: {CHECK}:163] Not clustering Relu_1 (op _FusedConv2D): unsupported op
2026-11-24 15:00:10.512487: {CHECK}:163] Not clustering _retval_Mean_0_0 (op _Retval): depth is 0
2026-11-24 15:00:10.718275: {PASS}:1247] *** Clustering info for graph of size 130
2026-11-24 15:00:10.718287: {PASS}:1248]  Built 1 clusters, size 93 / 130 (71.54%)
2026-11-24 15:00:10.718298: {PASS}:1264]  Unclustered nodes: 37 / 130 (28.46%)
"""
# TensorFlow 2.1: that of the step, and one that has nothing to be compiled.
LATER = f"""
2026-11-24 15:01:36.003312: {PASS}:1109] sorted_nodes.size() = 98
2026-11-24 15:01:36.003412: {CHECK}:73] Found uncompilable node images (op _Arg): top level _Arg or _Retval
2026-11-24 15:01:36.003490: {CHECK}:73] Found uncompilable node Relu (op _FusedConv2D): No registered \
'_FusedConv2D' OpKernel for XLA_CPU_JIT devices compatible with node {{{{node Relu}}}}
2026-11-24 15:01:36.104412: {PASS}:1406]  Built 1 clusters, size 55 / 100 (55.00%)
2026-11-24 15:01:36.104433: {PASS}:1425]  Unclustered nodes: 45 / 100 (45.00%)
2026-11-24 15:01:37.003312: {PASS}:1109] sorted_nodes.size() = 3
2026-11-24 15:01:37.003412: {CHECK}:73] Found uncompilable node Name (op Other): No registered 'Other' OpKernel
"""
# nGraph's bridge 0.18 in TensorFlow 1.14, shortened likewise.
PLACED = """
=============New sub-graph logs=============
NGTF_SUMMARY: Op_not_supported:  AssignVariableOp -> 24, VarHandleOp -> 24
NGTF_SUMMARY: Op_failed_confirmation: None

NGTF_SUMMARY: Number of nodes in the graph: 67
NGTF_SUMMARY: Number of nodes marked for clustering: 17 (25% of total nodes)
NGTF_SUMMARY: Number of nodes assigned a cluster: 0 (0% of total nodes) 	 (0% of nodes marked for clustering)
NGTF_SUMMARY: Number of ngraph clusters :0

OP_placement:	Host	_SOURCE (NoOp)
=============New sub-graph logs=============
NGTF_SUMMARY: Op_not_supported:  VarHandleOp -> 24, ReadVariableOp -> 8, ResourceApplyAdadelta -> 8, _Arg -> 2
NGTF_SUMMARY: Op_failed_confirmation: None

NGTF_SUMMARY: Number of nodes in the graph: 107
NGTF_SUMMARY: Number of nodes marked for clustering: 59 (55% of total nodes)
NGTF_SUMMARY: Number of nodes assigned a cluster: 53 (49% of total nodes) 	 (89% of nodes marked for clustering)
NGTF_SUMMARY: Number of ngraph clusters :2
"""


def test_what_compilers_left_outside_their_clusters_is_counted():
    assert xla_clusters(LOG) == {"graphs": 1, "operators": 93, "left": 37, "unsupported": 2}
    assert xla_clusters(LATER) == {"graphs": 1, "operators": 55, "left": 45, "unsupported": 1}
    assert ngraph_clusters(PLACED) == {"graphs": 2, "operators": 53, "left": 54, "unsupported": 42}
    assert xla_clusters("E some error of TensorFlow") is None and ngraph_clusters(LOG) is None
