"""Training steps of a machine whose truth is known: a roofline with factors, and overheads."""

import math

import numpy as np

from tare.model.records.launches import Alike
from tare.predict import cases, work
from tare.worker.families import CONVOLUTION, ELEMENT_WISE, PRODUCT

TARGET = cases.Target(
    machine="m",
    processor="P",
    device="cpu",
    threads=2,
    bandwidths=(cases.Rate(size=1e9, per_s=1e10), cases.Rate(size=1e5, per_s=1e11)),
    products={"float32": (cases.Rate(size=64, per_s=1e10), cases.Rate(size=1024, per_s=1e11))},
)
# Times its roof that each family takes on the machine, seconds of a call and of a step.
FACTORS, CALL_S, STEP_S = {CONVOLUTION: 1.6, PRODUCT: 1.2, ELEMENT_WISE: 2.5}, 4e-6, 3e-4
ENVIRONMENTS = {"host": 0.0, "docker": 2e-4}
BATCHES = (16, 32, 64, 128)


def drawn_work(generator, batch):
    """A step of a workload that is drawn: calls by workload, FLOPs and bytes by batch."""
    rows = []
    for family in FACTORS:
        calls, flops, moved = generator.integers(5, 150), *10 ** generator.uniform((5.5, 4.5), (6.5, 5.5))
        plain = family == ELEMENT_WISE
        calls, flops, moved = int(calls), int(flops * batch), int(moved * batch)
        rows.append(
            alike(
                family, calls, moved=moved // calls, flops=0 if plain else flops // calls,
                elementwise_flops=moved // 8 // calls if plain else 0,
            )
        )  # fmt: skip
    return work.Work(alike=tuple(rows))


def alike(family, calls=1, *, moved=1, operator=None, **counts):
    """Calls of a family, each of which moves so many bytes."""
    row = {"operator": operator or f"aten::{family}", "family": family, "calls": calls, "bytes": moved}
    return Alike(**{**row, "flops": 0, "elementwise_flops": 0, **counts})


def truth(case):
    families = sum(FACTORS.get(name, 1.0) * roof for name, roof in case.roofs.items())
    return families + CALL_S * case.work.all_calls + STEP_S + case.environment_step_s


def observed(workloads=12, noise=lambda generator, case: 0.0, seed=1, batches=BATCHES, environments=ENVIRONMENTS):
    generator, rows = np.random.default_rng(seed), []
    for number in range(workloads):
        for batch in batches:
            does = drawn_work(np.random.default_rng((seed, number)), batch)
            for environment, added in environments.items():
                case = cases.Case(
                    workload=f"w{number}", environment=environment, stack="s", batch=batch, work=does,
                    target=TARGET, environment_step_s=added,
                )  # fmt: skip
                seconds = truth(case) * math.exp(noise(generator, case))
                rows.append(cases.Observation(**case.given(), seconds=seconds))
    return rows
