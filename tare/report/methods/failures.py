"""How often launches failed, in every environment and on both hosts: shares with intervals."""

from __future__ import annotations

from tare.analysis.bounds import Failures, failures_of
from tare.analysis.choice import KINDS
from tare.report.evidence import Evidence
from tare.report.methods.designs import name_of
from tare.report.words.labels import env_title
from tare.report.words.layout import Table
from tare.report.words.wording import percent

NOTE = (
    "Exact intervals of the share that fails (Clopper and Pearson, 95%, as if the number of launches had been "
    "fixed). Void units count, discarded ones do not; of campaigns that are no headline only what failed is "
    "listed."
)


def failures_table(evidence: Evidence) -> Table | None:
    """Every environment of the headlines, and whatever failed elsewhere; None where nothing was launched."""
    found = [
        (campaign, name, failed)
        for campaign in evidence.campaigns
        if campaign.kind != "sweep"  # its launches are of the host alone
        for name in campaign.plan.launch_names
        if (failed := failures_of(campaign, name)).launches
        if failed.failures or (campaign.kind in KINDS and campaign.is_headline)
    ]
    if not found:
        return None
    return Table.of(
        found,
        {
            "": lambda row: name_of(row[0]),
            "environment": lambda row: env_title(row[1]),
            "launches": lambda row: str(row[2].launches),
            "failed": lambda row: str(row[2].failures),
            "of them stopped, out of time": lambda row: str(row[2].timeouts),
            "share that fails": lambda row: share_text(row[2]),
        },
        caption="How often launches failed",
        note=NOTE,
        wide=True,
    )


def share_text(failed: Failures) -> str:
    """The interval of the share that fails; without failures, what it is at most."""
    high = percent(failed.high, up=True)
    return f"{percent(failed.low, down=True)} to {high}" if failed.failures else f"at most {high}"
