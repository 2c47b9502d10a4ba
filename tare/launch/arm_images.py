"""Image records of arms: the form of an image under one level of one factor, everything else as in the headline.

A level that an adapter varies is tried here by a real launch of the trial image, which has to be seen at that
level; the record then says how its launches ask for it. stack=native is another installation (tare.images.native).
"""

from __future__ import annotations

from collections.abc import Mapping

from tare.core.errors import UnavailableError, UserError
from tare.images import native
from tare.images.base import load_recipe
from tare.images.build import derive, without
from tare.launch.trial import probe_by_trial
from tare.model.environment import Environment, Probe
from tare.model.records.images import ImageRecord, OciRecord, TreeFacts
from tare.model.registry import environment
from tare.model.words import nearest

NATIVE = ("stack", "native")


def known_arms(adapter: Environment) -> list[str]:
    """The arms for which an environment has its own image record, as `factor=level`."""
    own = [f"{factor}={level}" for factor, levels in adapter.factors.items() for level in levels]
    return ["=".join(NATIVE), *own]


def parse(text: str, adapter: Environment) -> tuple[str, str]:
    """(factor, level) of `factor=level`. Raises UserError: the environment can't vary this; those that it can are
    named.
    """
    known = known_arms(adapter)
    if text not in known:
        raise UserError(f"--arm: {adapter.name} has no image for {text!r}: {nearest(text, known)}")
    factor, _, level = text.partition("=")
    return factor, level


def derive_arm(image: OciRecord, name: str, arm: str, probe: Probe) -> ImageRecord:
    """The record of one environment at one level. `image`: record of the stack's ordinary image. `arm`:
    `factor=level`. Returns a record whose status is `unavailable`, with the reason, where the level can't be had
    here. Raises UserError: no such environment, or it can't vary this. UnavailableError, IntegrityError: the wheels
    can't be had.
    """
    adapter = environment(name)
    factor, level = parse(arm, adapter)
    if (factor, level) == NATIVE:
        return _native(image, adapter, probe)
    options = {factor: level}
    if not probe.available:
        return without(image, name, probe.reason or "", options)
    tried = try_level(adapter, options)
    if not tried.available:
        return without(image, name, f"{factor}={level}: {tried.reason}", options)
    record = derive(image, name, options)
    details = {**record.details, "trial": tried.details}
    return record.replace(isolates_network=tried.details["isolates_network"], details=details)


def _native(image: OciRecord, adapter: Environment, probe: Probe) -> ImageRecord:
    if not probe.available:
        nothing = TreeFacts(inside=None, digest=None)
        other = image.replace(install="native", tree=nothing, base=None, key=None)
        return without(other, adapter.name, probe.reason or "")
    record = native.derive(image.stack, image.variant, adapter, load_recipe())
    return record.replace(isolates_network=probe.isolates_network)


def try_level(adapter: Environment, options: Mapping[str, str]) -> Probe:
    """Launch the trial image at these levels, and see that they hold; never raises."""
    try:
        with adapter.session():
            return probe_by_trial(
                adapter,
                None,
                options=options,
                examine=lambda trial: adapter.confirm(options, trial.facts, trial.seen),
            )
    except UnavailableError as error:
        return Probe(available=False, reason=error.reason, remedy=error.remedy)
