"""Candidates of a choice, really measured in sliced rounds: another batch takes longer for the same samples."""

import contextlib
import statistics

import pytest

from tare.experiments import candidates
from tare.experiments.candidates import measure_candidates
from tare.launch.place import site_of
from tare.model.candidates import Wanted
from tare.model.registry import environment
from tare.model.roles import CONTROL

pytestmark = [pytest.mark.runtime, pytest.mark.meets(environment="host")]


def test_smaller_batches_need_more_time_a_sample_and_the_control_is_near_the_reference(forms, monkeypatch):
    site = site_of("host", environment("host"), forms("host"), None)
    here = contextlib.nullcontext(({"host": site}, {}, {}))
    monkeypatch.setattr(candidates, "sites", lambda *_: here)
    options = {"network": 1, "image_px": 64}
    wanted = {
        str(batch): Wanted(
            workload="further_networks", options=options, batch=batch, threads=1, env="host", steps=8
        )
        for batch in (8, 1)
    }
    rounds, reasons = measure_candidates("config/smoke.yaml", None, wanted, 0.0)
    assert not reasons and len(rounds) == candidates.FEWEST
    a_sample = {
        name: [one[name].step_s / batch for one in rounds] for name, batch in (("8", 8), (CONTROL, 8), ("1", 1))
    }
    rounds_of = list(zip(*a_sample.values(), strict=True))
    assert statistics.median(small / reference for reference, _, small in rounds_of) > 1.1
    assert 0.75 < statistics.median(control / reference for reference, control, _ in rounds_of) < 1 / 0.75
    assert all(0.05 < one["8"].imports_s < 60 and one["8"].start_s > 0 and one["8"].rest_s > 0 for one in rounds)
