"""What cannot be recomputed from a study's own data, and why."""

from __future__ import annotations

import re

from checks.finding import Finding, yes_no
from checks.kernel_sums import summary
from checks.sources import Sources
from tare.literature.finding import amount

BACKWARD = re.compile(r"backward|bwd|dgrad|wgrad", re.IGNORECASE)
SUMMED = ("flops", "hbm_transactions", "dram_read_bytes_per_s", "dram_write_bytes_per_s")


def findings(published: Sources) -> list[Finding]:
    """Sums without kernels, profiles without a backward pass, numbers without a spread, bars without labels, and
    what no claim judges.
    """
    return [
        *_lost_kernels(published),
        *_no_backward(published),
        *_no_spread(published),
        *_claimed_once(published),
        *_repetitions(published),
        *_no_labels(published),
        *_not_judged(published),
    ]


def _not_judged(published: Sources) -> list[Finding]:
    """What a text says of its results that no claim holds against numbers."""
    return [
        Finding(
            figure="text", check="not_judged", metric="claims", unit="1", agrees=yes_no(None),
            note=f"{one.says.removesuffix('.')} ({one.where}). Not judged: {one.why_not}.",
        )
        for one in published.sentences
        if one.why_not is not None
    ]  # fmt: skip


def _lost(workload: str, env: str, metric: str, unit: str, said: float | None, note: str) -> Finding:
    """A number of a log that cannot be computed again."""
    return Finding(
        figure="log", check="not_recomputable", workload=workload, env=env, metric=metric, unit=unit,
        published=said, agrees=yes_no(None), note=note,
    )  # fmt: skip


def _profiles(published: Sources) -> list[tuple[str, str]]:
    profiled = published.logs[published.logs["series"] == "profile"]
    return list(profiled[["workload", "env"]].drop_duplicates().itertuples(index=False, name=None))


def _lost_kernels(published: Sources) -> list[Finding]:
    """Logs whose kernels are not known: their sums can be repeated, not recomputed."""
    have = set(published.kernels[["workload", "env"]].drop_duplicates().itertuples(index=False, name=None))
    found = []
    for workload, env in _profiles(published):
        if (workload, env) in have:
            continue
        kept = summary(published, workload, env, "kernels_logged") or 0
        rows = [f for f in published.text if f.id == "profile_rows" and f.labels.get("workload") == workload]
        of = f" of about {rows[0].quantity.printed} rows" if rows and rows[0].quantity else " rows"
        note = (
            f"{amount(kept, '1')}{of} of the profile are still listed by the name of their kernel. The log is a "
            "screen capture that lost the rest, so its sum cannot be done again."
        )
        for metric in SUMMED:
            unit = "B/s" if metric.endswith("per_s") else "1"
            found.append(_lost(workload, env, metric, unit, summary(published, workload, env, metric), note))
    return found


def _no_backward(published: Sources) -> list[Finding]:
    """Profiles of training that hold no kernel of a backward pass."""
    found = []
    for (workload, env), names in published.kernels_listed.items():
        own = published.kernels
        own = own[(own["workload"] == workload) & (own["env"] == env)]
        known = [*names, *own["kernel"].unique()]
        backward = [name for name in known if BACKWARD.search(name)]
        if backward:
            continue
        most = f", none more than {int(own['invocations'].max())} times" if len(own) else ""
        note = (
            f"The profile lists {len(names)} kernels{most}; no name is one of a backward pass, though the program "
            "trains. It does not give FLOPs and transactions of the whole training."
        )
        found.append(_lost(workload, env, "kernels", "1", float(len(names)), note))
    return found


def _no_spread(published: Sources) -> list[Finding]:
    """Environments that were timed once."""
    times = published.logs[(published.logs["series"] == "environments") & (published.logs["metric"] == "real_s")]
    note = "One run: it has no spread, so a difference may be chance."
    return [
        _lost(str(workload), str(env), "real_s", "s", float(own["value"].iloc[0]), note)
        for (workload, env), own in times.groupby(["workload", "env"], sort=False)
        if len(own) == 1
    ]


def _claimed_once(published: Sources) -> list[Finding]:
    """Numbers by environment that claims rest on, one for each."""
    note = "One run: it has no spread, so a difference may be chance."
    metrics = {name: claim.metrics[0] for claim in published.claims for name in claim.facts}
    return [
        Finding(
            figure="log" if fact.where == "logs" else fact.where, check="not_recomputable",
            workload=fact.labels["model"], env=fact.labels["env"], metric=metrics[fact.id], unit=fact.quantity.unit,
            published=fact.quantity.value, agrees=yes_no(None), note=note,
        )
        for fact in published.facts
        if fact.id in metrics and fact.quantity and {"model", "env"} <= set(fact.labels) and fact.kind == "raw"
    ]  # fmt: skip


def _repetitions(published: Sources) -> list[Finding]:
    """Changes that a text states, where it states no number of runs, or one: they have no spread."""
    stated = next((fact for fact in published.text if fact.id == "repetitions"), None)
    if stated is None or (stated.quantity is not None and stated.quantity.value > 1):
        return []
    said = "of one run" if stated.quantity else "without the number of their runs"
    changes = [fact for fact in published.facts if fact.quantity and fact.labels.get("scenario")]
    note = f"Its numbers are given {said} ({stated.where}) and without a spread: any change may be chance."
    return [
        Finding(
            figure="text", check="not_recomputable", metric="spread", unit="1", published=float(len(changes)),
            agrees=yes_no(None), note=f"{len(changes)} changes are stated. {note}",
        )
    ]  # fmt: skip


def _no_labels(published: Sources) -> list[Finding]:
    """Figures whose values are in no text: nothing can be held against them."""
    listed = next((fact.names for fact in published.text if fact.id == "figures_without_labels"), ())
    note = (
        "Its bars' labels are not in the text, only in the picture: no value of it can be recomputed or compared."
    )
    drawn = set(published.figures["figure"])
    return [
        Finding(figure=name, check="not_recomputable", metric="labels", unit="1", agrees=yes_no(None), note=note)
        for name in listed
        if name not in drawn
    ]
