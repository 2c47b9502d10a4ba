"""Campaigns of a study whose units are made up, through the real runner: for tests of the ledger and of stamps."""

import math

from asked import CONDITIONS, spec

from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design, identity
from tare.model.records.campaigns import Plan, Sampling
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_roles
from tare.stats import fits

NAME = "rounds.docker+host"


def simple_values(monkeypatch):
    """Units of whole runs whose time stands in one field."""

    def run_values(unit):
        return {name: launch.client_user_s for name, launch in unit.launches.items() if launch.ok}

    monkeypatch.setattr(fits, "run_values", run_values)


def plan_of(**changes):
    return Plan(
        **{
            "kind": "rounds", "study": "s", "workload": "w", "launches": read_roles((HOST, CONTROL, "docker")),
            "spec": spec(), "conditions": CONDITIONS, "sampling": Sampling(units=3, confidence=0.95), "seed": 1,
            "discarded": 1, "arm": "stack=same", "headline_arm": "stack=same", "stack": "none", "code_sha256": "0",
            "margins": {"run": 0.05, "step": 0.02}, "provenance": {}, "machine": identity(on_gpu=False), **changes,
        }
    )  # fmt: skip


def run(study, stop_at=None, name=NAME, **changes):
    """One campaign of a study on this machine; docker takes e^0.01, e^0.02, … in its units."""

    def run_unit(plan, number, done):
        if number == stop_at:
            raise KeyboardInterrupt
        took = {HOST: 1.0, CONTROL: 1.0, "docker": math.exp(0.01 * number)}
        launches = {key: {"status": "ok", "reason": None, "client_user_s": value} for key, value in took.items()}
        return {"order": list(took), "launches": launches}

    return run_campaign(
        study / "w" / name, Design(plan=plan_of(study=study.parent.name, **changes), run_unit=run_unit, what="test")
    )
