"""Results of a study as a workflow leaves them, to be archived: from made-up campaigns."""

from __future__ import annotations

import random
from pathlib import Path

import builders
from campaign_builders import rounds_campaign, write_campaign

from tare.core.files import sha256_file, write_json
from tare.model.journals.ledger import bring_up_to_date, note_stamp
from tare.model.journals.sealed import UNITS
from tare.model.studies.loading import load_checked
from tare.model.studies.stamps import stamp_of, write_stamp
from tare.model.studies.study import Study
from tare.stats.fits import ratios_of

CAMPAIGN = Path("results/campaigns/nyu2022/box/mnist_cnn/rounds.apptainer+docker+host")
DIGEST = f"sha256:{'e' * 64}"  # of the image in builders' records
STAMPED = "2026-01-01T00:00:00Z"
# What lies among results and is no part of an archive.
LEFT_OUT = (
    "results/logs/nyu2022/report.log", "results/images/torch-2.13/docker.tar", "results/other/report/index.html",
    "results/campaigns/other/box/mnist_cnn/rounds.host/plan.json", "results/probe/elsewhere/host.json",
    "results/report/.snakemake_timestamp", f"{CAMPAIGN}/start.json", "results/campaigns/nyu2022/box/.lock",
    "results/benchmarks/box/faults/docker/checkout/a.json", "results/benchmarks/box/faults.jsonl",
)  # fmt: skip


def results_in(folder: Path) -> Study:
    """Write results of the default study below a folder, with a ledger, a stamp and pages; returns the study.

    One campaign has its images in its plan, and was seen by the ledger when it was opened.
    """
    builders.build_results(folder / "results", units=2)
    study = load_checked(builders.STUDY)
    plan, rows = rounds_campaign("nyu2022", "mnist_cnn", ("host", "docker", "apptainer"), {}, 2, random.Random(3))
    used = {"digest": DIGEST, "tree_digest": None, "bytes": 1}
    plan |= {"provenance": {"images": {"host": {**used, "digest": None}, "docker": used, "apptainer": used}}}
    campaign = folder / CAMPAIGN
    write_campaign(campaign, plan, rows)
    own = campaign.parents[1]
    note_stamp(own, sha256_file(write_stamp(own, stamp_of(study, STAMPED, None))), STAMPED)
    away = [(path, path.with_name(f".{path.name}")) for path in (campaign / UNITS, campaign / "sealed.json")]
    for path, other in away:
        path.rename(other)
    bring_up_to_date(own, ratios_of)
    for path, other in away:
        other.rename(path)
    bring_up_to_date(own, ratios_of)
    for name in ("report/index.html", "report/print.html", "notebooks/why.html"):
        path = folder / "results" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("<!DOCTYPE html><title>page</title>")
    for name in LEFT_OUT:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / name, {})
    return study
