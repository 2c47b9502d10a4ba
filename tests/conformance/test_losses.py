"""A launch that computes something else than the host, really run: its loss tells."""

import pandas as pd
import pytest
from planted import planted

from tare.analysis import metrics
from tare.experiments import campaign, rounds
from tare.experiments.designs import Setup
from tare.launch.place import site_of
from tare.model.journals.sealed import read_sealed
from tare.model.registry import HOST, describe_workload, environment
from tare.model.roles import CONTROL
from tare.model.studies.layout import SEALED
from tare.report.method import loss_check

pytestmark = pytest.mark.runtime
WORKLOAD = "mnist_cnn"


def test_what_is_faster_because_it_computes_less_is_caught(study, forms, folders, tmp_path):
    """Half of each batch: the epoch is shorter, and the loss is another."""
    host = site_of(HOST, environment(HOST), forms(HOST), folders(describe_workload(WORKLOAD)["dataset"]))
    study = study.replace(study="planted", rounds=study.rounds.replace(units=2, discarded=0))
    sites = {HOST: host, CONTROL: host, "halved": planted(host, batch_share=0.5)}
    campaign.run_campaign(tmp_path, rounds.rounds(Setup(study=study, workload=WORKLOAD, sites=sites)))
    rows = pd.DataFrame(metrics.campaign_metrics(read_sealed(tmp_path / SEALED)))
    epoch = rows[rows["metric"] == "epoch_rest_s"].groupby("launch")["value"].median()
    assert epoch["halved"] < min(epoch[HOST], epoch[CONTROL])  # it looks faster
    losses = rows[rows["metric"] == "loss_last"]
    check = loss_check(WORKLOAD, losses, "rounds.halved+host")
    assert check.equal is False
    assert "may compute something else" in check.says
    honest = loss_check(WORKLOAD, losses[losses["launch"] != "halved"], "rounds.host")
    assert honest.equal is True, honest.says
