"""This machine: its facts and devices, conditions as launches saw them, what was run, who else used it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tare.core.files import canonical_json
from tare.literature.finding import listed
from tare.machine.gpu_health import gpu_flags
from tare.machine.shared_files import clock_is_off
from tare.model.data_sets import IMAGENET_MEAN, IMAGENET_SPREAD
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import counted, others_in
from tare.model.records.campaigns import Others
from tare.model.records.images import Channels, TreeRecord
from tare.model.records.launches import WORKER, Facts, LaunchRecord
from tare.model.records.machine import MachineRecord, unlike
from tare.model.registry import HOST, SINGLE
from tare.model.roles import CONTROL, read_role
from tare.model.studies.arms import stack_of
from tare.model.studies.layout import is_headline
from tare.model.studies.stacks import BOUND, is_official, load_stack
from tare.report.evidence import Campaign, Evidence
from tare.report.words.labels import alike_titles, env_title, facts_of, workload_title
from tare.report.words.layout import UNAVAILABLE, Row, Table, by_environment, field, value_text
from tare.report.words.quantities import seconds, size_bytes, units_text

# Of each launch its own, by chance or by name, whatever the environment.
OF_A_LAUNCH = ("hostname", "cwd", "boot_id", "environment_bytes", "cgroups", "namespaces", "cpu_stat")
LONGEST = 120
Values = dict[str, dict[str, str]]  # text by value, as JSON spells it
IN_UNITS = (("_mib", "_bytes", float(1 << 20)), ("_mhz", "_hz", 1e6), ("_w", "_w", 1.0))
HIDDEN = ("name", "uuid", "index", "pci", "vbios", "reasons")
SHOWN_PACKAGES = ("torchvision", "tokenizers", "numpy")
OTHERS_OF = {"rounds": "whole runs and their training steps"}
NOTABLE_CPUS = 0.1  # processors used by others from which the first page mentions it
UNWATCHED = "use of the processors by others was not recorded"


def _ok_launches(campaigns: Iterable[Campaign]) -> Iterator[tuple[Campaign, str, LaunchRecord]]:
    """Launches that succeeded and have a record from inside, each with its campaign and its name there."""
    for campaign in campaigns:
        for unit in campaign.units:
            for name, launch in unit.launches.items():
                if launch.ok and launch.program == WORKER:
                    yield campaign, name, launch


def _headlines_first(evidence: Evidence) -> list[Campaign]:
    return sorted(evidence.campaigns, key=lambda campaign: campaign.arm is not None)


def _place(campaign: Campaign, name: str) -> str:
    """Where a launch ran; the control keeps its own name."""
    if campaign.kind == "sweep":
        return HOST
    return name if name == CONTROL else read_role(name).environment


def first_facts(evidence: Evidence) -> dict[str, Facts]:
    """Facts from inside the first successful launch of each environment, in the headline where it was there."""
    found: dict[str, Facts] = {}
    for campaign, name, launch in _ok_launches(_headlines_first(evidence)):
        found.setdefault(_place(campaign, name), launch.seen_inside().facts)
    return found


def pythons(evidence: Evidence) -> dict[str, str]:
    """The Python that ran, by stack: in its first successful launch on the host, a headline's if there is one.

    An official image is in containers alone.
    """
    found: dict[str, str] = {}
    for campaign, name, launch in _ok_launches(_headlines_first(evidence)):
        plan, role = campaign.plan, read_role(name)
        stack = stack_of(plan.headline_levels if role.is_reference else plan.levels, plan.stack, role.environment)
        if role.environment == HOST or is_official(stack):
            found.setdefault(stack, launch.seen_inside().facts.python)
    return found


def deviation_sentences(evidence: Evidence) -> list[str]:
    """Where effective conditions differed from those asked for, and in how many launches."""
    if not evidence.networks:
        return []
    total, found = 0, Counter[str]()
    for campaign, name, launch in _ok_launches(evidence.campaigns):
        total += 1
        unseen = (f"{what} could not be set or seen" for what in launch.unseen)
        found.update(f"{env_title(_place(campaign, name))}: {line}" for line in (*launch.deviations, *unseen))
    if not total:
        return ["No launch succeeded, so the effective conditions are not known."]
    if not found:
        return [f"All {total} successful launches ran under the conditions that the study asks for."]
    return [f"{line} ({count} of {total} successful launches)" for line, count in found.most_common()]


def provenance_table(evidence: Evidence) -> Table:
    """Plans by hash, seeds, code, and when each campaign was sealed."""
    columns = {
        "workload": field("workload", workload_title),
        "campaign": field("name"),
        "seed": lambda c: str(c.plan.seed),
        "units": lambda c: units_text(c.sealed.units, c.kind),
        "machine time": lambda c: seconds(c.sealed.machine_s),
        "plan, SHA-256": lambda c: c.sealed.plan_sha256[:16],
        "code inside, SHA-256": lambda c: c.plan.code_sha256[:16],
        "sealed, UTC": lambda c: c.sealed.sealed_at.replace("T", " ").removesuffix("Z"),
    }
    return Table.of(evidence.campaigns, columns, caption="Campaigns")


def conditions_table(evidence: Evidence) -> Table | None:
    """The facts in which an environment's launches differ from the host's, and no other; None where nothing ran."""
    seen = _seen(evidence.campaigns)
    names = [env for env in evidence.environments if any(env in each for each in seen.values())]
    if HOST not in names or len(names) < 2:
        return None
    differ = [fact for fact, each in seen.items() if any(_differs(each, env) for env in names)]
    equal = [fact for fact in seen if fact not in differ]
    rounds = evidence.study.rounds
    steps = {"allocator of training steps": ", ".join(rounds.steps.levels)} if rounds.steps else {}
    asked = {**evidence.study.conditions.to_json(), "allocator of whole runs": rounds.allocator, **steps}
    return Table.of(
        differ,
        {"": str, **by_environment(names, lambda fact, env: _values_text(seen[fact].get(env, {})))},
        caption="Conditions that differ between environments",
        note=f"As seen by the launches of the headline campaigns. Equal in all: {', '.join(equal) or 'nothing'}. "
        f"Requested for all: {value_text('', asked)}.",
    )


def _seen(campaigns: Iterable[Campaign]) -> dict[str, Values]:
    """By fact and environment every value that successful launches of the headlines reported."""
    found: dict[str, Values] = {}
    for _, env, launch in _ok_launches(one for one in campaigns if is_headline(one.name, "rounds")):
        if env == CONTROL:
            continue
        for fact, value in _flat(launch.seen_inside().facts.to_json()):
            found.setdefault(fact, defaultdict(dict))[env][canonical_json(value)] = value_text(fact, value)
    return found


def _flat(facts: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in facts.items():
        if before or name not in OF_A_LAUNCH:
            path = f"{before}{name.replace('_', ' ')}"
            if isinstance(value, Mapping):
                yield from _flat(value, f"{path}: ")
            else:
                yield path, value


def _differs(each: Values, env: str) -> bool:
    """Whether an environment's values are not the host's; where those vary by launch, whether it shares none."""
    own, host = set(each.get(env, ())), set(each.get(HOST, ()))
    return own != host and (len(host) < 2 or not own & host)


def _values_text(values: Mapping[str, str]) -> str:
    text = " or ".join(sorted(values.values())) or "not reported"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def gpu_rows(machine: Mapping[str, Any]) -> list[Row]:
    """One row for each fact of each device, by its record's `gpus`; none where the machine has none."""
    rows: list[Row] = []
    for number, gpu in enumerate(machine.get("gpus") or ()):
        where = f"GPU {gpu.get('index', number)}"
        rows.append([where, str(gpu.get("name", "without a name"))])
        reasons = gpu.get("reasons") or {}
        titles = facts_of("gpu")
        others = [key for key in gpu if key not in titles and key not in HIDDEN]
        for key in (*(key for key in titles if key in gpu), *others):
            if key == "mps" and gpu[key] is None:
                continue
            title = titles.get(key, key.replace("_", " "))
            rows.append([f"{where}: {title}", fact_text(key, gpu[key], reasons.get(key))])
    return rows


def fact_text(key: str, value: Any, reason: str | None = None) -> str:
    """A fact of a device with its unit, which its name has; or why there is none."""
    if value is None:
        return f"{UNAVAILABLE}: {reason or 'no reason was recorded'}"
    for suffix, base, size in IN_UNITS:  # as nvidia-smi prints them
        if key.endswith(suffix) and isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            return fact_text(key.removesuffix(suffix) + base, float(value) * size)
    return value_text(key, value)


def flag_sentences(campaigns: Sequence[SealedCampaign]) -> list[str]:
    """What happened to the device while each campaign of a CUDA study ran: errors, throttling, others on it."""
    lines = []
    for campaign in campaigns:
        watched = [{"unit": unit.unit, "gpu": unit.gpu} for unit in campaign.counted]
        for text in gpu_flags(watched, {"gpu_at_start": campaign.plan.gpu_at_start}):
            lines.append(f"{workload_title(campaign.workload)}, {campaign.name}: {text.rstrip('.')}.")
    return lines


def packages(evidence: Evidence) -> dict[str, str]:
    """Version of every package of the stack, by name."""
    for record in evidence.images.values():
        if record.packages:
            return {package.name: package.version for package in record.packages}
    return {}


def stand_in(evidence: Evidence) -> str:
    """What is said where another variant of the stack stands in for the one of the device."""
    name, device = evidence.study.stack, evidence.study.device
    other = None if name == BOUND else load_stack(name, device).otherwise
    if other is None or other not in {record.variant for record in evidence.images.values()}:
        return ""
    return f", here in its variant {other}, because its builds for {device} were not available"


def data_sentences(evidence: Evidence) -> list[str]:
    """Which data was used for each data set, where it came from, and whether it is the paper's."""
    lines = []
    for record in evidence.data.values():
        size = size_bytes(record.bytes)
        lines.append(f"{record.title}: {record.rows:,} rows, {size}, from {record.source.name}.")
        if absent := record.stands_for:
            asked = f"the study asks for {record.choice}"
            why = "none of its sources answered when the data was fetched" if record.choice == "auto" else asked
            lines.append(
                f"These are not {absent}: {why}. {record.note or ''} "
                "Shapes and steps are those of the paper, but the losses can't be compared with the paper's."
            )
        elif not record.canonical:
            lines.append("The files did not come from their authors' site, and were verified by their hashes.")
        if record.channels is not None:
            lines.append(_channels(record.channels))
        if record.skipped:
            named = ", ".join(record.skipped[:3]) + (", …" if len(record.skipped) > 3 else "")
            lines.append(f"Broken images, left out: {len(record.skipped):,} ({named}).")
    return lines


def _channels(found: Channels) -> str:
    """What the pixels are like, compared with those of a synthetic batch, which has ImageNet's."""
    own = zip(found.mean, found.spread, IMAGENET_MEAN, IMAGENET_SPREAD, strict=True)
    rows = [((mean - middle) / unit, spread / unit) for mean, spread, middle, unit in own]
    means, spreads = (", ".join(f"{value:.2f}" for value in values) for values in zip(*rows, strict=True))
    return (
        f"Its pixels, normalised as in the jobs, have means {means} and spreads {spreads} by channel (files of "
        f"{found.images:,} training images, before cropping). A synthetic batch has 0 and 1, like ImageNet."
    )


def _fact_rows(machine: MachineRecord | None, names: Mapping[str, str]) -> list[Row]:
    """A row for each of these facts that the record has."""
    if machine is None:
        return []
    values = machine.facts()
    if isinstance(found := values.get("cpu_mitigations"), Mapping):
        values = {**values, "cpu_mitigations": {name: how for name, how in found.items() if how != "Not affected"}}
    return [
        [title, fact_text(key, values[key], machine.reasons.get(key))]
        for key, title in names.items()
        if key in values
    ]


def machine_table(evidence: Evidence) -> Table:
    """The machine, as papers have a table of theirs."""
    record = evidence.machine
    facts = _fact_rows(record, facts_of("machine"))
    if record is not None:
        for name, one in (record.nodes or {"": record}).items():
            if off := clock_is_off(one.clock_ahead_s):
                wrong = "set it (chronyc makestep): times of day in records are wrong, durations are not"
                facts.append([f"Clock of {name}" if name else "Clock", f"{off}: {wrong}"])
    if record is not None and (nodes := record.nodes):
        facts.append(["Nodes of its groups", ", ".join(nodes)])
        differing = unlike([*nodes.values()])
        titles = [title for fact, title in alike_titles() if fact in differing]
        facts.append(["They differ in", listed(titles) if titles else "no fact of this table"])
    return Table(caption="This machine", columns=["", "value"], rows=facts, wide=False)


def software_table(evidence: Evidence) -> Table:
    """Software: operating system, runtimes, and what runs inside."""
    rows = _fact_rows(evidence.machine, facts_of("software"))
    for env in evidence.environments:
        probe = evidence.probes.get(env)
        if probe is not None and env != HOST:
            text = probe.version or "available" if probe.available else f"{UNAVAILABLE}: {probe.reason}"
            rows.append([env_title(env), text])
    if inside := first_facts(evidence).get(HOST):
        rows += [["Python inside", inside.python]]
        rows += [["PyTorch inside", inside.framework.version if inside.framework else None]]
    shown = {name: version for name, version in packages(evidence).items() if name in SHOWN_PACKAGES}
    rows += [[f"{name} inside", version] for name, version in shown.items() if name != "torch"]
    if evidence.networks:
        rows.append(["Stack", f"{evidence.study.stack}{stand_in(evidence)}"])
    made = [image for image in evidence.images.values() if not isinstance(image, TreeRecord)]
    rows += [["Base of the image", name] for name in [one.base.name for one in made if one.base is not None][:1]]
    rows += [["Digest of the image", digest] for digest in [one.digest for one in made if one.digest][:1]]
    return Table(caption="Software", columns=["", "version"], rows=rows, wide=False)


def package_list(evidence: Evidence) -> list[str]:
    """Every package of the stack with its version."""
    return [f"{name} {version}" for name, version in sorted(packages(evidence).items())]


def device_table(evidence: Evidence) -> Table:
    """The device that trains; its measured rates are the ceilings of the roofline."""
    record = evidence.machine
    device = evidence.study.device
    rows: list[Row] = [["Device of the study", "the CPU" if device == "cpu" else device]]
    if device == "cpu":
        rows += _fact_rows(record, {"cpu_model": "Processor"})
    rows += _fact_rows(record, facts_of("device"))
    rows += gpu_rows(record.facts() if record else {}) or _fact_rows(record, {"gpus": "NVIDIA devices"})
    return Table(caption="Device", columns=["", "value"], rows=rows, wide=False)


def _watched(evidence: Evidence) -> Iterator[tuple[Campaign, list[Others], Others | None]]:
    """Campaigns of the headline, and who else used the processors in their units that count, and in all of them."""
    for campaign in evidence.campaigns:
        plan = campaign.plan
        if plan.kind in OTHERS_OF and plan.arm == plan.headline_arm and plan.scenario == SINGLE:
            units = [unit.others for unit in counted(campaign.units)]
            yield campaign, [one for one in units if one is not None], others_in(units)


def others_table(evidence: Evidence) -> Table | None:
    """What others used, by campaign of the headline; None without one."""
    rows: list[Row] = []
    for campaign, units, seen in _watched(evidence):
        cells = [f"{UNAVAILABLE}: {UNWATCHED}"] * 3
        if seen is not None:
            most = max(one.cpu_s / one.seconds for one in units)
            cells = [f"{cpus:.2f}" for cpus in (seen.cpu_s / seen.seconds, most, seen.stolen_s / seen.seconds)]
        rows.append([workload_title(campaign.workload), OTHERS_OF[campaign.kind], *cells])
    if not rows:
        return None
    return Table(
        caption="Who else used the processors",
        columns=["workload", "measured", "others, mean", "others, in the busiest unit", "taken by a hypervisor"],
        rows=rows,
        note="Processors that other programs used while launches ran: busy time as the kernel counts it, minus "
        "that of the launches and of Tare.",
        wide=False,
    )


def others_note(evidence: Evidence) -> str | None:
    """One sentence where others, or a hypervisor, used enough to widen intervals; None where they did not."""
    seen = [found for *_, found in _watched(evidence) if found is not None]
    parts = []
    for what, used in (
        ("other programs used", [one.cpu_s / one.seconds for one in seen]),
        ("its hypervisor withheld", [one.stolen_s / one.seconds for one in seen]),
    ):
        if used and max(used) >= NOTABLE_CPUS:
            low, high = (f"{value:.2g}" for value in (min(used), max(used)))
            parts.append(f"{what} {high if low == high else f'{low} to {high}'}")
    if not parts:
        return None
    processors = max(one.processors for one in seen)
    return (
        f"During the measurement, {' and '.join(parts)} of this machine's {processors} processors. Intervals are "
        "narrower when the machine is quieter."
    )
