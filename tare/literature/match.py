"""What a claim and this machine were measured with, compared: device class, stack, runtimes, network.

Each is the same or other, and named. Versions agree where ours begins with all parts of the published one: 3.7.16
is 3.7, and 3.11 is not. A claim about two stacks is compared with these, by their locks, not with the headline's.
The network is that of instances that train together, by environment: an overlay, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tare.analysis.choice import compared
from tare.literature.finding import listed
from tare.literature.measured_here import Here
from tare.literature.published_file import DEVICE, NETWORK, RUNTIMES, STACK, Claim, MeasuredWith
from tare.model.levels import level_column
from tare.model.registry import DISTRIBUTED, HOST, environment
from tare.model.studies.stacks import load_stack, with_setting

# Packages that are a framework, by what studies call it.
BUILDS = {"tensorflow": ("tensorflow", "tensorflow-cpu", "intel-tensorflow"), "mxnet": ("mxnet", "mxnet-mkl")}
OF_STACKS = "stack="  # how levels begin that are stacks
NAMES = {DEVICE: "device class", STACK: "stack", RUNTIMES: "runtimes", NETWORK: "network"}
UNKNOWN = "not recorded"


class Compared(NamedTuple):
    """One of CONDITIONS, as published and here; `same` is None where nothing of it is known."""

    name: str
    same: bool | None
    published: str
    here: str

    @property
    def title(self) -> str:
        """What it is, in words."""
        return NAMES[self.name]

    def __str__(self) -> str:
        """As the column `match` has it."""
        word = {True: "same", False: "other", None: "unknown"}[self.same]
        return f"{self.title}: {word} (published {self.published}; here {self.here})"


def measured_with(published: MeasuredWith, claim: Claim) -> MeasuredWith:
    """What a claim was measured with: as all of the study, except for its own device."""
    return published if claim.device is None else published.replace(device=claim.device)


def compare(published: MeasuredWith, claim: Claim, here: Here, workload: str) -> dict[str, Compared]:
    """Each of CONDITIONS, by its name; the network of claims about several instances alone."""
    levels = [level for level in (claim.level, claim.against) if level is not None]
    of_stacks = bool(levels) and all(level.startswith(OF_STACKS) for level in levels)
    stacks = [level.removeprefix(OF_STACKS) for level in levels]
    own, device = here.measured_with.get(workload), published.device
    found = [
        Compared(
            DEVICE,
            None if own is None else own.device_class == device.class_,
            f"{device.class_.upper()}, {device.name}",
            UNKNOWN if own is None else f"{own.device_class.upper()}, {own.device}",
        ),
        _stacks(published, claim, stacks, here, workload)
        if of_stacks
        else _versions(STACK, published.stack, {} if own is None else own.stack, own is not None),
        _runtimes(published, here),
    ]
    found += [_network(published, claim, here, workload)] if claim.scenario == DISTRIBUTED else []
    return {one.name: one for one in found}


def _stacks(published: MeasuredWith, claim: Claim, levels: Sequence[str], here: Here, workload: str) -> Compared:
    """The stacks of a claim's two levels: the same where both are; unknown where one was not measured here."""
    asked = [claim.stack or published.stack, claim.against_stack or published.stack]
    was = " and ".join(dict.fromkeys(map(_versions_text, asked)))
    own = here.metrics[(here.metrics["workload"] == workload) & (here.metrics["kind"] == "measured")]
    names = [with_setting(level)[0] for level in levels]
    if set(names) - set(own["stack"].dropna()):
        return Compared(STACK, None, was, UNKNOWN)
    found = [_locked(name, wanted) for name, wanted in zip(names, asked, strict=True)]
    same = all(
        any(agree(version, ours) for ours in builds[name].values())
        for wanted, builds in zip(asked, found, strict=True)
        for name, version in wanted.items()
    )
    ours = [_versions_text({p: v for builds in each.values() for p, v in builds.items()}) for each in found]
    return Compared(STACK, same, was, " and ".join(dict.fromkeys(ours)))


def _locked(stack: str, wanted: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By what is wanted of a stack: versions of its packages that are this."""
    versions = {one.name: one.version for one in load_stack(stack).requirements}
    return {name: {p: versions[p] for p in BUILDS.get(name, (name,)) if p in versions} for name in wanted}


def _runtimes(published: MeasuredWith, here: Here) -> Compared:
    own = {env: probe.version for env, probe in here.probes.items() if env != HOST and probe.version}
    wanted = {str(env): version for env, version in published.runtimes.items()}
    return _versions(RUNTIMES, wanted, own, bool(own))


def _network(published: MeasuredWith, claim: Claim, here: Here, workload: str) -> Compared:
    """The same where of a claim's measured environments those have an overlay that had one, and no other."""
    rows = compared(here.metrics[here.metrics["workload"] == workload], "rounds", claim.arm, claim.scenario)
    column = level_column(NETWORK)
    ours = set(rows[column].dropna()) if column in rows else set()
    environments = claim.environments or published.environments
    had = [env for env in environments if env in published.network]
    (kind,) = ours if len(ours) == 1 else ("several",)
    measured = [env for env in environments if (rows["launch"] == env).any()]
    have = [env for env in measured if environment(env).network_of(kind) == "overlay"]
    same = [env for env in had if env in measured] == have
    none_of = listed([env for env in environments if env not in had])
    was = f"an overlay of {listed(had)}, none of {none_of}" if had else f"no overlay of {none_of}"
    is_now = _here(kind, sorted(ours), have, measured) if measured else UNKNOWN
    return Compared(NETWORK, same if measured else None, was, is_now)


def _here(kind: str, kinds: Sequence[str], have: Sequence[str], environments: Sequence[str]) -> str:
    met = kinds if len(kinds) > 1 else sorted({environment(env).network_of(kind) for env in environments})
    if not have or len(have) == len(environments):
        return f"{listed(met)} of all"
    return f"an overlay of {listed(have)}, none of {listed([env for env in environments if env not in have])}"


def _versions(name: str, published: Mapping[str, str], own: Mapping[str, str], known: bool) -> Compared:
    """Other where one version is another or is not there."""
    same = all(key in own and agree(version, own[key]) for key, version in published.items())
    ours = {key: own.get(key, "none") for key in published} | {k: v for k, v in own.items() if name == STACK}
    return Compared(
        name,
        same if known and published else None,
        _versions_text(published),
        _versions_text(ours) if known else UNKNOWN,
    )


def agree(published: str, own: str) -> bool:
    """Whether a version is one that the published one names."""
    wanted = published.split(".")
    return own.split("+")[0].split("-")[0].split(".")[: len(wanted)] == wanted


def _versions_text(versions: Mapping[str, str]) -> str:
    return listed([f"{name} {version}" for name, version in versions.items()]) if versions else UNKNOWN
