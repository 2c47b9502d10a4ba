"""Names as readers see them: titles of metrics, environments, levels and workloads."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from tare.core.errors import TareError
from tare.model.records.machine import ALIKE
from tare.model.registry import HOST, describe_workload, environment
from tare.model.roles import CONTROL, read_role


def titles_in(name: str) -> dict[str, tuple[str, ...]]:
    """Rows of a file in this folder: the first column to the others, in their order."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        return {first: tuple(rest) for first, *rest in list(csv.reader(file))[1:]}


METRICS = titles_in("metrics.csv")  # title, and what it is; in the order of tables and figures
FACTS = titles_in("facts.csv")  # title, and the tables that show it
LEVELS = titles_in("levels.csv")  # what a level of a factor is, as a noun; others are shown by their own names
PLACES = {metric: place for place, metric in enumerate(METRICS)}
HIGHER_IS_BETTER = {"samples_per_s", "images_per_s"}
TITLES = {HOST: "Host", CONTROL: "Host again (control)"}
GPUS = "GPUs (name, memory, driver or power limit)"
SHORT = {CONTROL: "Host again"}


def facts_of(table: str) -> dict[str, str]:
    """Titles of the facts that a table shows: of the machine, its software, its device, a GPU, a reference."""
    return {fact: title for fact, (title, tables) in FACTS.items() if table in tables.split()}


def alike_titles() -> list[tuple[str, str]]:
    """Facts that machines of one kind, and nodes of one group, should have alike, with their titles."""
    named = {**facts_of("device"), **facts_of("software"), **facts_of("machine"), "gpus": GPUS}
    return [(fact, named.get(fact, fact.replace("_", " "))) for fact in ALIKE]


def metric_title(metric: str) -> str:
    """Title of a metric; an unknown one is shown by its own name."""
    return METRICS[metric][0] if metric in METRICS else metric


def metric_meaning(metric: str) -> str:
    """What a metric is, in a few words; empty where unknown."""
    return METRICS[metric][1] if metric in METRICS else ""


def metric_order(metric: str) -> tuple[int, str]:
    """Sort key: known metrics in this file's order, the others after them by name."""
    return PLACES.get(metric, len(PLACES)), metric


def env_title(env: str, *, short: bool = False) -> str:
    """Title of an environment, as its adapter calls itself."""
    role = read_role(env)
    if role.is_alone:
        return f"{env_title(role.place.name, short=short)}, alone"
    if role.is_reference:
        return f"{env_title(role.place.name, short=short)}, default setting"
    if short and env in SHORT:
        return SHORT[env]
    return TITLES.get(env) or _adapter_title(env)


def arm_title(arm: str) -> str:
    """Title of an arm, written `factor=level`: `allocator=default` is the default allocator."""
    factor, _, level = arm.partition("=")
    return LEVELS.get(arm, (f"{factor} {level}",))[0]


@cache
def _adapter_title(env: str) -> str:
    try:
        return environment(env).title
    except (TareError, ImportError):
        return env.replace("_", " ").capitalize()


@cache
def workload_title(workload: str) -> str:
    """Title of a workload from its description; its own name where the module is gone."""
    try:
        return str(describe_workload(workload)["title"])
    except (TareError, ImportError):
        return workload


def env_order(env: str) -> tuple[int, str]:
    """Sort key: host, then the environments by name, the control, what is as in the headline or alone."""
    role = read_role(env)
    return (3 if role.is_reference or role.is_alone else {HOST: 0, CONTROL: 2}.get(env, 1), env)
