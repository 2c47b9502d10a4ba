"""Sentences and tables of a study against its own logs."""

from __future__ import annotations

import re
from typing import Any

from tare.literature import own_claims
from tare.literature.finding import Finding, amount, listed, yes_no
from tare.literature.published import Published

# Google Compute Engine's N1 standard machine types: the number in the name is that of vCPUs, 3.75 GB go with each.
MACHINE_TYPE = re.compile(r"^n1-standard-(\d+)$")
MEMORY_PER_VCPU = 3.75e9
DEVICE_MEMORY = re.compile(r"-(\d+)GB$")
BATCH_FOLDER = re.compile(r"/(\d+)/")


def findings(published: Published) -> list[Finding]:
    """Devices, machine type, best batch sizes, then each claim against figures and logs."""
    return [
        *_devices(published),
        *_machine_type(published),
        *_best_batches(published),
        *_profiled_batches(published),
        *own_claims.findings(published),
    ]


def _device_of(published: Published) -> dict[str, str]:
    profiled = published.logs.dropna(subset=["device"])
    return dict(profiled[["workload", "device"]].drop_duplicates().itertuples(index=False))


def _devices(published: Published) -> list[Finding]:
    """Model and memory of the device that each log names, against the table; one device or several."""
    devices = _device_of(published)
    if not devices:
        return []
    said = published.specification("V", "gpu_memory").quantity
    model = published.specification("V", "gpu").names[0]
    form = model.split()[-1]
    found = []
    for workload, device in devices.items():
        size = DEVICE_MEMORY.search(device)
        memory = float(size.group(1)) * 1e9 if size else None
        labels: dict[str, Any] = {"figure": "table V", "check": "contradiction", "workload": workload}
        found.append(
            Finding(
                **labels,
                metric="gpu_memory",
                unit="B",
                published=said.value if said else None,
                recomputed=memory,
                agrees=yes_no(None if memory is None or said is None else memory == said.value),
                note=f"The table says {said}; the log names its device {device}.",
            )
        )
        found.append(
            Finding(
                **labels,
                metric="gpu",
                unit="text",
                agrees=yes_no(form.lower() in device.lower()),
                note=f"The table says {model}; the log names its device {device}.",
            )
        )
    names = list(dict.fromkeys(devices.values()))
    told = listed([f"{device} for {workload}" for workload, device in devices.items()])
    found.append(
        Finding(
            figure="text",
            check="contradiction",
            metric="devices",
            unit="1",
            published=1.0,
            recomputed=float(len(names)),
            agrees=yes_no(len(names) == 1),
            note=f"The text says that all ran on the same hardware; the logs name {told}.",
        )
    )
    return found


def _machine_type(published: Published) -> list[Finding]:
    """vCPUs by the name of the machine type, and by its memory."""
    if "machine_type" not in {row.id for row in published.table_facts.get("I", ())}:
        return []
    name = published.specification("I", "machine_type").names[0]
    vcpu, memory = (published.specification("I", key).quantity for key in ("vcpu", "memory"))
    match = MACHINE_TYPE.match(name)
    if match is None or vcpu is None or memory is None:
        return []
    count, by_memory = float(match.group(1)), memory.value / MEMORY_PER_VCPU
    note = (
        f"The table says {vcpu}; a machine of type {name} has {amount(count, '1')}. The {memory} of the table, at "
        f"{amount(MEMORY_PER_VCPU, 'B')} for each vCPU, are those of {amount(by_memory, '1')} vCPU."
    )
    return [
        Finding(
            figure="table I",
            check="contradiction",
            metric="vcpu",
            unit="1",
            published=vcpu.value,
            recomputed=count,
            agrees=yes_no(count == vcpu.value),
            note=note,
        )
    ]


def _best_batches(published: Published) -> list[Finding]:
    """The batch size that the text calls best, against the smallest time of the figure and of the logs."""
    found = []
    for fact in published.text:
        workload = fact.labels.get("workload")
        if fact.id != "best_batch" or workload is None or fact.quantity is None:
            continue
        for source, times in _times_by_batch(published, workload).items():
            best = min(times, key=lambda batch: times[batch])
            told = listed([f"{batch}: {amount(value, 's')}" for batch, value in sorted(times.items())])
            note = f"The text says {fact.quantity.printed}; real time by batch size, {told}: the least at {best}."
            claimed = int(fact.quantity.value)
            if claimed not in times:
                note += f" There is none at {claimed}."
            found.append(
                Finding(
                    figure=source,
                    check="contradiction",
                    workload=workload,
                    env="host",
                    metric="best_batch",
                    unit="1",
                    published=float(claimed),
                    recomputed=float(best),
                    agrees=yes_no(best == claimed),
                    note=note,
                )
            )
    return found


def _times_by_batch(published: Published, workload: str) -> dict[str, dict[int, float]]:
    """Real time on the host by batch size: from the figure that shows it, and from the logs."""
    figures, logs = published.figures, published.logs
    drawn = figures[(figures["workload"] == workload) & (figures["metric"] == "real_s") & figures["batch"].notna()]
    found = {}
    if len(drawn):
        values = zip(drawn["batch"], drawn["value"], strict=True)
        found[str(drawn["figure"].iloc[0])] = {int(batch): float(value) for batch, value in values}
    own = logs[(logs["workload"] == workload) & (logs["env"] == "host") & (logs["metric"] == "real_s")]
    if len(own):
        # Where a batch size was timed in both series, the one by batch size counts.
        own = own.sort_values("series", ascending=False)
        values = zip(own["batch"], own["value"], strict=True)
        found["log"] = {int(batch): float(value) for batch, value in values}
        series = own[own["series"] == "batches"]
        found["log"] |= {int(b): float(v) for b, v in zip(series["batch"], series["value"], strict=True)}
    return found


def _profiled_batches(published: Published) -> list[Finding]:
    """The best batch size of the text, with which all experiments are said to be run, against the folders."""
    found = []
    paths = published.logs.dropna(subset=["path"])[["workload", "path"]].drop_duplicates()
    for workload, own in paths.groupby("workload", sort=False):
        batches = {int(match.group(1)) for path in own["path"] if (match := BATCH_FOLDER.search(path))}
        facts = [f for f in published.text if f.id == "best_batch" and f.labels.get("workload") == workload]
        if not facts or facts[0].quantity is None or len(batches) != 1:
            continue
        used, best = float(batches.pop()), facts[0].quantity.value
        found.append(
            Finding(
                figure="text",
                check="contradiction",
                workload=str(workload),
                metric="batch",
                unit="1",
                published=best,
                recomputed=used,
                agrees=yes_no(used == best),
                note=f"The text takes the best batch size, {best:.0f}, for the experiments; the profiler's logs "
                f"lie in folders of batch size {used:.0f}.",
            )
        )
    return found
