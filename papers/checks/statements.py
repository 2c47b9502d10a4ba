"""A study against itself: sentences and tables against its own logs, what it says twice, and losses that are none.

An entry of its file that `restates` another is held against it. A bound that is said again must follow from the one
that it repeats; a number must be the same. A factor is compared with a share as the change that it is.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from checks import claims
from checks.finding import Finding, yes_no
from checks.sources import Sources
from tare.literature.finding import amount, listed
from tare.literature.published import Fact
from tare.model.quantities import Quantity

# Google Compute Engine's N1 standard machine types: the number in the name is that of vCPUs, 3.75 GB go with each.
MACHINE_TYPE = re.compile(r"^n1-standard-(\d+)$")
MEMORY_PER_VCPU = 3.75e9
DEVICE_MEMORY = re.compile(r"-(\d+)GB$")
BATCH_FOLDER = re.compile(r"/(\d+)/")
UPPER, LOWER = ("<", "<="), (">", ">=")
LOSS = "loss_last"


def findings(published: Sources) -> list[Finding]:
    """Devices, machine type, batch sizes, each claim against figures and logs; what is said twice; last losses."""
    return [
        *_devices(published),
        *_machine_type(published),
        *_best_batches(published),
        *_profiled_batches(published),
        *claims.findings(published),
        *(_again(published, fact) for fact in (*published.text, *published.facts) if fact.restates),
        *(_loss(fact) for fact in published.facts if fact.id == LOSS),
    ]


def _finding(figure: str, metric: str, unit: str, agree: bool | None, note: str, **about: Any) -> Finding:
    return Finding(
        figure=figure, check="contradiction", metric=metric, unit=unit, agrees=yes_no(agree), note=note, **about
    )  # fmt: skip


def _against(
    figure: str, metric: str, unit: str, said: float | None, found: float | None, note: str, **about: Any
) -> Finding:
    """What is said against what is found; they agree where they are equal."""
    agree = None if said is None or found is None else said == found
    return _finding(figure, metric, unit, agree, note, published=said, recomputed=found, **about)


def _device_of(published: Sources) -> dict[str, str]:
    profiled = published.logs.dropna(subset=["device"])
    return dict(profiled[["workload", "device"]].drop_duplicates().itertuples(index=False))


def _devices(published: Sources) -> list[Finding]:
    """Model and memory of the device that each log names, against the table; one device or several."""
    devices = _device_of(published)
    table = published.table_with("gpu", "gpu_memory")
    if not devices or not table:
        return []
    said, model, where = table["gpu_memory"].quantity, table["gpu"].names[0], table["gpu"].where
    fits = model.split()[-1].lower()
    found = []
    for workload, device in devices.items():
        size = DEVICE_MEMORY.search(device)
        memory = float(size.group(1)) * 1e9 if size else None
        named = f"the log names its device {device}."
        note = f"The table says {said}; {named}"
        found.append(
            _against(where, "gpu_memory", "B", said.value if said else None, memory, note, workload=workload)
        )
        note = f"The table says {model}; {named}"
        found.append(_finding(where, "gpu", "text", fits in device.lower(), note, workload=workload))
    named = listed([f"{device} for {workload}" for workload, device in devices.items()])
    note = f"The text says that all ran on the same hardware; the logs name {named}."
    used = float(len(set(devices.values())))
    return found + [
        _against("text", fact.id, "1", fact.quantity.value, used, note)
        for fact in published.facts_of("devices")
        if fact.quantity is not None
    ]


def _machine_type(published: Sources) -> list[Finding]:
    """vCPUs by the name of the machine type, and by its memory."""
    table = published.table_with("machine_type", "vcpu", "memory")
    if not table:
        return []
    name, vcpu, memory = table["machine_type"].names[0], table["vcpu"].quantity, table["memory"].quantity
    match = MACHINE_TYPE.match(name)
    if match is None or vcpu is None or memory is None:
        return []
    count, by_memory = float(match.group(1)), memory.value / MEMORY_PER_VCPU
    note = (
        f"The table says {vcpu}; a machine of type {name} has {amount(count, '1')}. The {memory} of the table, at "
        f"{amount(MEMORY_PER_VCPU, 'B')} for each vCPU, are those of {amount(by_memory, '1')} vCPU."
    )
    return [_against(table["vcpu"].where, "vcpu", "1", vcpu.value, count, note)]


def _best_batches(published: Sources) -> list[Finding]:
    """The batch size that the text calls best, against the smallest time of the figure and of the logs."""
    found = []
    for fact in published.text:
        workload = fact.labels.get("workload")
        if fact.id != "best_batch" or workload is None or fact.quantity is None:
            continue
        for source, times in _times_by_batch(published, workload).items():
            best = min(times, key=lambda batch: times[batch])
            each = listed([f"{batch}: {amount(value, 's')}" for batch, value in sorted(times.items())])
            note = f"The text says {fact.quantity.printed}. Real time by batch size, {each}: the least at {best}."
            claimed = int(fact.quantity.value)
            if claimed not in times:
                note += f" It has no time at {claimed}."
            about = {"workload": workload, "env": "host"}
            found.append(_against(source, "best_batch", "1", float(claimed), float(best), note, **about))
    return found


def _times_by_batch(published: Sources, workload: str) -> dict[str, dict[int, float]]:
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
        own = own.sort_values("series", ascending=False, key=lambda series: series != "batches", kind="stable")
        values = zip(own["batch"], own["value"], strict=True)
        found["log"] = {int(batch): float(value) for batch, value in values}
    return found


def _profiled_batches(published: Sources) -> list[Finding]:
    """The best batch size of the text, with which all experiments are said to be run, against the folders."""
    found = []
    paths = published.logs.dropna(subset=["path"])[["workload", "path"]].drop_duplicates()
    for workload, own in paths.groupby("workload", sort=False):
        batches = {int(match.group(1)) for path in own["path"] if (match := BATCH_FOLDER.search(path))}
        facts = [f for f in published.text if f.id == "best_batch" and f.labels.get("workload") == workload]
        if not facts or facts[0].quantity is None or len(batches) != 1:
            continue
        used, best = float(batches.pop()), facts[0].quantity.value
        note = (
            f"The text takes the best batch size, {best:.0f}, for the experiments; the profiler's logs are in "
            f"folders of batch size {used:.0f}."
        )
        found.append(_against("text", "batch", "1", best, used, note, workload=str(workload)))
    return found


def _again(published: Sources, fact: Fact) -> Finding:
    first = published.fact(str(fact.restates))
    said, again = first.quantity, fact.quantity
    agree = None if said is None or again is None else _follows(said, again, fact.labels.get("relation"))
    unit = "text" if said is None else said.unit
    published_value, recomputed = (None, None) if said is None or again is None else _alike(said, again)
    return Finding(
        figure="log" if fact.where == "logs" else "text", check="restated", workload=fact.labels.get("model"),
        env=fact.labels.get("env"), metric=first.id, unit=unit,
        published=None if published_value is None else float(published_value),
        recomputed=None if recomputed is None else float(recomputed), agrees=yes_no(agree),
        note=f"The {_place(first)}: {_said(first)}. The {_place(fact)}: {_said(fact)}.",
    )  # fmt: skip


def _place(fact: Fact) -> str:
    return "text" if fact.where == "text" else fact.where


def _said(fact: Fact) -> str:
    if fact.quantity is None:
        return ", ".join(fact.names)
    relation = fact.labels.get("relation")
    return f"{relation} {fact.quantity}" if relation else str(fact.quantity)


def _alike(said: Quantity, again: Quantity) -> tuple[Decimal, Decimal]:
    """Both in the first one's unit: 1.5 times is 50% more."""
    if said.unit == again.unit:
        return said.exact, again.exact
    if said.unit == "%":
        return said.exact, (again.exact - 1) * 100
    return said.exact, 1 + again.exact / 100


def _follows(said: Quantity, again: Quantity, relation: str | None) -> bool:
    first, second = _alike(said, again)
    if relation in UPPER:
        return second >= first
    if relation in LOWER:
        return second <= first
    return first == second


def _loss(fact: Fact) -> Finding:
    """A loss that is no number: nothing was trained, and what was timed is another computation."""
    value = fact.quantity.value if fact.quantity else _number(fact.names[0])
    finite = value is not None and math.isfinite(value)
    last = str(fact.quantity) if fact.quantity else fact.names[0]
    note = f"The last loss in the {fact.where} is {last}."
    if not finite:
        note += " A job whose loss is no number trains nothing: its times are those of another computation."
    return Finding(
        figure="log" if fact.where == "logs" else fact.where, check="loss", workload=fact.labels.get("model"),
        env=fact.labels.get("env"), metric="loss", unit="1", published=value if finite else None,
        agrees=yes_no(finite), note=note,
    )  # fmt: skip


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
