"""Arms: one factor varied from the headline, everything else equal.

An arm is written `factor=level`. Its campaign launches every environment at the arm's level, and with them the
headline's own launch of each environment that the factor can move, under the name `<env>.headline`: so that both
what an environment costs at this level, and what the level itself costs, come from the same units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tare.core.errors import UserError
from tare.model import former
from tare.model.conditions import Conditions, Group, StudyConditions
from tare.model.levels import SAME, STACK, Levels
from tare.model.registry import HOST, SHARED, SINGLE, environment, environments
from tare.model.roles import LaunchRole, read_role
from tare.model.studies.stacks import known_stacks, on_the_host, with_setting
from tare.model.words import nearest

# Factors of every environment; adapters add those that only they can vary (`Environment.factors`). The other stacks
# of containers/stacks/ are levels of `stack` too (`stack=paper-2022`), and what is installed here (`stack=bound`).
COMMON = {"stack": (SAME, "native"), "allocator": ("default", "steady", "huge")}
# Settings of the framework itself (tare/worker/settings/ applies them); the first level is the headline's.
SETTINGS = {
    "tf32": ("default", "off", "on"),
    "amp": ("off", "bf16", "fp16"),
    "layout": ("contiguous", "channels-last"),
    "compile": ("off", "inductor", "torchscript", "xla", "ngraph"),
    "graph": ("off", "capture"),
    "cudnn": ("default", "benchmark"),
    "onednn": ("default", "off"),
    "isa": ("default", "avx2", "sse4"),
}
# Threads of the framework: a condition of every launch, weighed as settings are.
THREADS = "threads"
MOST_THREADS = 64
# Settings that need nothing but their stack: another stack is compared with and without (`tensorflow-2.1+xla`).
STACK_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "torchscript": {"compile": "torchscript"},
    "xla": {"compile": "xla"},
    "ngraph": {"compile": "ngraph"},
    "no-onednn": {"onednn": "off"},
    "sse4": {"isa": "sse4"},
}
# What a job reads; the first level is the headline's. Applied inside as settings are, and compared in every
# environment, as an environment may be what makes reading slow.
INPUTS = {"input": ("real", "synthetic")}
INSIDE = {**SETTINGS, **INPUTS}
# What a co-runner is, and what keeps two jobs apart; the first level is the headline's of the scenario `shared`.
SHARED_FACTORS = {"co_runner_load": ("large", "small"), "limits": ("none", "cpuset", "quota")}
# How instances that train together exchange gradients, and over what; factors of the scenario `distributed` alone.
GROUPED = {
    "exchange": ("all-reduce", "parameter-server"),
    "network": ("switch", "overlay", "overlay-of-containers", "host", "slurm"),
}
NEEDS_CUDA = {
    "tf32": "TF32 is a mode of tensor cores",
    "graph": "graphs are captured from the streams of a CUDA device",
    "cudnn": "cuDNN runs on a CUDA device",
    "gpu": "it is a way in which a container reaches one",
}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One level of one factor."""

    factor: str
    level: str

    @property
    def name(self) -> str:
        """As tables and studies write it: `allocator=default`."""
        return f"{self.factor}={self.level}"

    @property
    def is_setting(self) -> bool:
        """Whether it is a setting of the framework, which no environment has a part in."""
        return self.factor in SETTINGS or self.factor == THREADS

    @property
    def is_inside(self) -> bool:
        """Whether the program inside applies it: a module of tare/worker/settings/."""
        return self.factor in INSIDE

    @property
    def is_of_shared(self) -> bool:
        """Whether it is of two jobs on one machine, so a factor of the scenario `shared` alone."""
        return self.factor in SHARED_FACTORS

    @property
    def is_grouped(self) -> bool:
        """Whether it is of instances that train together, so a factor of the scenario `distributed` alone."""
        return self.factor in GROUPED

    @property
    def needs_image(self) -> bool:
        """Whether launches of this arm take another image record than the headline's."""
        inside = self.is_inside or self.is_of_shared or self.is_grouped
        return self.factor not in ("allocator", THREADS) and not inside

    @property
    def is_optional(self) -> bool:
        """Whether a study goes on without it: another stack or a setting that this machine can't have."""
        return self.other_stack is not None or self.is_setting

    @property
    def other_stack(self) -> str | None:
        """The stack that this arm launches instead of the headline's; None where it launches the same packages."""
        other = self.factor == "stack" and self.level not in COMMON["stack"]
        return with_setting(self.level)[0] if other else None

    @property
    def on_host(self) -> str:
        """The level as the host runs it, which has what an official image is like."""
        stack, setting = with_setting(self.level)
        return "+".join([on_the_host(stack), *([setting] if setting else [])]) if self.other_stack else self.level

    @property
    def settings(self) -> dict[str, str]:
        """What the program inside applies: the arm's own setting, or the one that its stack has."""
        if self.is_inside:
            return {self.factor: self.level}
        return _settings_of_stack(self.level) if self.other_stack else {}


def parse(text: str) -> Arm:
    """An arm from `factor=level`. Raises UserError: no such factor or level."""
    factor, sign, level = text.partition("=")
    known = {name: set(levels) for name, levels in {**COMMON, **INSIDE, **SHARED_FACTORS, **GROUPED}.items()}
    known[THREADS] = {str(number) for number in range(1, MOST_THREADS + 1)}
    known["stack"].update(level for name in known_stacks() for level in stack_levels(name))
    if not sign or factor not in known:  # adapters are imported for their own factors alone
        for adapter in environments().values():
            for name, levels in adapter.factors.items():
                known.setdefault(name, set()).update(levels)
    if not (sign and level in known.get(factor, ())) and (gone := former.level(text)):
        raise UserError(f"arm {text}: {gone}")
    if not sign or factor not in known:
        raise UserError(f"arm {text!r} is no factor=level: {nearest(factor, known)}")
    if level not in known[factor]:
        raise UserError(f"arm {text}: {factor} has no level {level!r}: {nearest(level, known[factor])}")
    return Arm(factor=factor, level=level)


def stack_levels(name: str) -> list[str]:
    """Levels of the factor `stack` that launch one: as it is, and with each setting that it may bring."""
    return [name, *(f"{name}+{setting}" for setting in STACK_SETTINGS)]


def _settings_of_stack(level: str) -> dict[str, str]:
    setting = with_setting(level)[1]
    return dict(STACK_SETTINGS[setting]) if setting else {}


def moves(arm: Arm, env: str) -> bool:
    """Whether an arm changes anything for an environment."""
    if arm.factor in (*COMMON, THREADS) or arm.is_inside or arm.is_of_shared or arm.is_grouped:
        return True
    return arm.level in environment(env).factors.get(arm.factor, ())


def impossible(arm: Arm | None, device: str) -> str | None:
    """Why a setting can't be had on a device (`cpu` or `cuda`); None where it can be tried."""
    if arm is None or device == "cuda" or arm.factor not in NEEDS_CUDA:
        return None
    return f"{arm.name} needs a CUDA device: {NEEDS_CUDA[arm.factor]}"


def members(arm: Arm | None, names: Iterable[str]) -> list[str]:
    """Environments that an arm's campaign holds: host, and those that it moves."""
    others = [env for env in names if env != HOST]
    return [HOST, *(env for env in others if arm is None or moves(arm, env))]


def launch_names(arm: Arm | None, present: Iterable[str], scenario: str = SINGLE) -> list[str]:
    """Names of a unit's launches, as `launch_roles`."""
    return [role.name for role in launch_roles(arm, present, scenario)]


def launch_roles(arm: Arm | None, present: Iterable[str], scenario: str = SINGLE) -> list[LaunchRole]:
    """A unit's launches: host and its control, the others, then those at the headline's levels, for an arm.

    A factor that moves the host is judged there; one that does not, in each environment that it moves. Of the
    scenario `shared` each launch is there twice: with a co-runner and alone.
    """
    others = [env for env in present if env != HOST]
    host = LaunchRole(environment=HOST)
    roles = [host, host.replace(is_control=True), *(LaunchRole(environment=env) for env in others)]
    if scenario == SHARED:
        return [*roles, *(role.replace(is_alone=True) for role in roles)]
    if arm is None:
        return roles
    judged = [HOST] if moves(arm, HOST) else [env for env in others if moves(arm, env)]
    return [*roles, *(LaunchRole(environment=env, is_reference=True) for env in judged)]


def used(names: Iterable[str], arm: Arm | None) -> tuple[list[str], tuple[str, ...]]:
    """What launches of these names take of the code: their environments, and factors of settings."""
    return sorted({read_role(name).environment for name in names}), tuple(arm.settings if arm else ())


def stack_of(levels: Levels, headline: str, env: str | None = None) -> str:
    """The stack of launches at these levels: the headline's, or the arm's own.

    `env` is the launch's, where it has one: on the host an official image is what that is like.
    """
    level = levels.get(STACK, SAME)
    if level in COMMON["stack"]:
        return headline
    stack = with_setting(level)[0]
    return on_the_host(stack) if env is not None and read_role(env).environment == HOST else stack


def levels_of(headline: Mapping[str, str], arm: Arm | None) -> dict[str, str]:
    """Levels of a campaign: the headline's, with the arm's laid over."""
    return {**headline, **({arm.factor: arm.level} if arm else {})}


def conditions_at(conditions: StudyConditions, levels: Mapping[str, str], group: Group | None = None) -> Conditions:
    """The study's conditions at a campaign's levels; `group` at those of its headline."""
    settings = {factor: level for factor, level in levels.items() if factor in INSIDE}
    settings |= _settings_of_stack(levels.get(STACK, SAME))
    found: dict[str, Any] = {"allocator": levels["allocator"]}
    if THREADS in levels:
        found[THREADS] = int(levels[THREADS])
    if settings:
        found["settings"] = settings
    if group is not None:
        found["group"] = group.replace(**{factor: level for factor, level in levels.items() if factor in GROUPED})
    return conditions.of_launch(**found)
