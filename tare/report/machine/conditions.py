"""Under which conditions: what was asked for, what launches saw from inside, and where plans and seals are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tare.model.records.launches import Facts, LaunchRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role
from tare.model.studies.arms import stack_of
from tare.model.studies.stacks import is_official
from tare.report.evidence import Campaign, Evidence
from tare.report.words.labels import env_title, seconds, size_bytes, units_text, workload_title
from tare.report.words.layout import Table, by_environment, value_text


def _ok_launches(campaigns: Iterable[Campaign]) -> Iterable[tuple[str, LaunchRecord]]:
    for campaign in campaigns:
        for unit in campaign.units:
            for env, launch in unit.launches.items():
                if launch.ok:
                    yield _place(campaign, env), launch


def _place(campaign: Campaign, name: str) -> str:
    """Where a launch ran; the control keeps its own name."""
    if campaign.kind == "sweep":
        return HOST
    return name if name == CONTROL else read_role(name).environment


def first_facts(evidence: Evidence) -> dict[str, Facts]:
    """Facts from inside the first successful launch of each environment, in the headline where it was there."""
    found: dict[str, Facts] = {}
    for env, launch in _ok_launches(sorted(evidence.campaigns, key=lambda c: c.arm is not None)):
        found.setdefault(env, launch.seen_inside().facts)
    return found


def pythons(evidence: Evidence) -> dict[str, str]:
    """The Python that ran, by stack: in its first successful launch on the host, a headline's if there is one.

    An official image is in containers alone.
    """
    found: dict[str, str] = {}
    for campaign in sorted(evidence.campaigns, key=lambda c: c.arm is not None):
        plan = campaign.plan
        for unit in campaign.units:
            for name, launch in unit.launches.items():
                role = read_role(name)
                env = role.environment
                stack = stack_of(plan.headline_levels if role.is_reference else plan.levels, plan.stack, env)
                if launch.ok and (env == HOST or is_official(stack)):
                    found.setdefault(stack, launch.seen_inside().facts.python)
    return found


def deviation_sentences(evidence: Evidence) -> list[str]:
    """Where effective conditions differed from those asked for, and in how many launches."""
    total, found = 0, Counter()
    for env, launch in _ok_launches(evidence.campaigns):
        total += 1
        for line in launch.deviations:
            found[f"{env_title(env)}: {line}"] += 1
        for what in launch.unseen:
            found[f"{env_title(env)}: {what} could not be set or seen"] += 1
    if not total:
        return ["No launch succeeded, so nothing can be said of effective conditions."]
    if not found:
        return [f"All {total} successful launches ran under the conditions that were asked for."]
    return [f"{line} ({count} of {total} successful launches)" for line, count in found.most_common()]


SECCOMP = {"0": "off", "1": "strict", "2": "filter"}
EFFECTIVE: dict[str, Callable[[Facts], object]] = {
    "Threads of the framework": lambda f: f.framework and f.framework.threads,
    "Processor": lambda f: f.cpu_model,
    "CPU affinity": lambda f: ", ".join(map(str, f.affinity)),
    "CPU quota": lambda f: "none" if f.cpu_quota and f.cpu_quota.startswith(("-1", "max")) else f.cpu_quota,
    "Open files (soft)": lambda f: f.open_files.soft,
    "/dev/shm": lambda f: size_bytes(f.shm_bytes) if f.shm_bytes is not None else None,
    "Network interfaces": lambda f: ", ".join(f.interfaces),
    "User id": lambda f: f.uid,
    "Seccomp": lambda f: SECCOMP.get(f.status.get("Seccomp", ""), f.status.get("Seccomp")),
    "Speculative store bypass": lambda f: f.status.get("Speculation_Store_Bypass"),
    "Huge pages": lambda f: f.transparent_hugepage,
    "C library": lambda f: f.libc,
    "Root file system": lambda f: f.root_mount.type,
    "File system of the tree": lambda f: f.tree_mount.type,
    "Namespaces of its own": lambda f: ", ".join(f.own_namespaces or ()) or "none",
}


def conditions_table(evidence: Evidence) -> Table:
    """Effective conditions as seen from inside the first successful launch of each environment."""
    facts = {env: record for env, record in first_facts(evidence).items() if env != CONTROL}
    names = [env for env in evidence.environments if env in facts]
    asked = evidence.study.conditions
    rounds = evidence.study.rounds
    steps = {"allocator of training steps": ", ".join(rounds.steps.levels)} if rounds.steps else {}
    allocators = {"allocator of whole runs": rounds.allocator, **steps}
    return Table.of(
        EFFECTIVE.items(),
        {
            "": lambda row: row[0],
            **by_environment(names, lambda row, env: _told(row[1](facts[env]))),
        },
        caption="Effective conditions, seen from inside",
        note=f"Asked of all: {value_text('', {**asked.to_json(), **allocators})}.",
        wide=True,
    )


def _told(value: object) -> str:
    return "not visible" if value is None else str(value)


def provenance_table(evidence: Evidence) -> Table:
    """Plans by hash, seeds, code, and when each campaign was sealed."""
    return Table.of(
        evidence.campaigns,
        {
            "workload": lambda c: workload_title(c.workload),
            "campaign": lambda c: c.name,
            "seed": lambda c: str(c.plan.seed),
            "units": lambda c: units_text(c.sealed.units, c.kind),
            "machine time": lambda c: seconds(c.sealed.machine_s),
            "plan, SHA-256": lambda c: c.sealed.plan_sha256[:16],
            "code inside, SHA-256": lambda c: c.plan.code_sha256[:16],
            "sealed, UTC": lambda c: c.sealed.sealed_at.replace("T", " ").removesuffix("Z"),
        },
        caption="Campaigns",
        wide=True,
    )
