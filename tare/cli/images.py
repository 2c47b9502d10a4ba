"""Trees, images and their forms: build-tree, build-image, derive-image, derive-arm."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.model.environment import Probe
    from tare.model.records.images import ImageRecord

TREE = "tree.json"  # the record of build-tree


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    tree = subparsers.add_parser("build-tree", help="build a stack's tree of interpreter and packages")
    _common(tree)
    _optional(tree)
    tree.set_defaults(run=_with_variant(run_build_tree))
    image = subparsers.add_parser("build-image", help="assemble a stack's OCI image, without a daemon")
    _common(image)
    _optional(image)
    image.set_defaults(run=_with_variant(run_build_image))
    form = subparsers.add_parser(
        "derive-image", help="convert a stack's image to the form that one environment starts"
    )
    _common(form)
    form.add_argument("--env", required=True, help="environment, a module of envs/")
    form.add_argument(
        "--image",
        type=Path,
        help="record of build-image, or of build-tree for environments that run the tree (default: oci.json next "
        "to --out)",
    )
    form.add_argument(
        "--probe", type=Path, help="record of `tare probe`; if the probe failed, its reason is recorded"
    )
    form.set_defaults(run=_with_variant(run_derive_image))
    bound = subparsers.add_parser(
        "bind-stack", help="use a framework that is installed on this machine, as the stack `bound`"
    )
    bound.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="interpreter that can import the framework"
    )
    bound.add_argument(
        "--environments", nargs="*", help="environments whose records are written too (default: all)"
    )
    bound.add_argument("--out", type=Path, help="folder for the records (default results/images/bound)")
    bound.set_defaults(run=run_bind_stack)
    arm = subparsers.add_parser("derive-arm", help="as derive-image, for an arm: one factor at another level")
    _common(arm)
    arm.add_argument("--env", required=True, help="environment, a module of envs/")
    arm.add_argument("--arm", required=True, help="factor=level: stack=native, or one that the environment varies")
    arm.add_argument("--image", type=Path, help="record of build-image (default: built, or taken from the cache)")
    arm.add_argument(
        "--probe", type=Path, help="record of `tare probe`; if the probe failed, its reason is recorded"
    )
    arm.set_defaults(run=_with_variant(run_derive_arm))


def _optional(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--optional",
        action="store_true",
        help="if the stack is unavailable here, write a record with the reason and succeed",
    )


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stack", required=True, help="folder of containers/stacks/")
    parser.add_argument("--variant", default="auto", help="cpu, cuda, or auto: what fits this machine")
    parser.add_argument("--out", type=Path, required=True, help="record to write (JSON)")


def _with_variant(run: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    """The same command with `--variant auto` settled by this machine, as a launch settles `device: auto`."""

    def settled(arguments: argparse.Namespace) -> None:
        from tare.images.build import clear_unfinished
        from tare.machine.fitting import AUTO, fitting_device

        if arguments.variant == AUTO:
            arguments.variant = fitting_device(arguments.stack)[0]
        clear_unfinished()
        run(arguments)

    return settled


def run_build_tree(arguments: argparse.Namespace) -> None:
    """Build the tree and write its record."""
    from tare.core.errors import UnavailableError
    from tare.images.build import build_stack_tree, missing_tree
    from tare.machine.security import noexec_cache

    if found := noexec_cache():
        raise UnavailableError(found.says, found.remedy)
    record = _or_missing(arguments, lambda name, variant: build_stack_tree(name, variant).record, missing_tree)
    record.write(arguments.out)


def _or_missing(arguments: argparse.Namespace, make: Callable[..., Any], missing: Callable[..., Any]) -> Any:
    """What `make` gives; where the stack is optional and can't be had, a record that says what would provide it."""
    from tare.core.errors import UnavailableError

    try:
        return make(arguments.stack, arguments.variant)
    except UnavailableError as error:
        if not arguments.optional:
            raise
        return missing(arguments.stack, arguments.variant, str(error))


def run_build_image(arguments: argparse.Namespace) -> None:
    """Build the image, link its archive next to the record and write the record."""
    from tare.core.progress import say
    from tare.images.build import build, link_into, missing_image

    record = _or_missing(arguments, build, missing_image)
    if record.status != "ok":
        say(f"no image of {arguments.stack}: {record.reason}")
    link_into(arguments.out.parent, record)
    record.write(arguments.out)


def run_derive_image(arguments: argparse.Namespace) -> None:
    """Derive one environment's form and write its record; an unavailable environment is a record, not a failure."""
    from tare.images.build import build, derive, of_tree, without
    from tare.model.records.images import OciRecord, TreeRecord
    from tare.model.registry import environment
    from tare.model.schema import read

    environment(arguments.env)  # a name that does not exist is said before anything is built
    image = arguments.image or arguments.out.with_name("oci.json")
    if image.name == TREE:
        source = of_tree(read(TreeRecord, image))
    elif arguments.image or image.exists():
        source = read(OciRecord, image)
    else:
        source = build(arguments.stack, arguments.variant)
    probe = _probe(arguments)
    if probe.available:
        record = derive(source, arguments.env).replace(isolates_network=probe.isolates_network)
    else:
        record = without(source, arguments.env, probe.reason or "")
    _copy_of_host(record)
    _write_record(arguments, record, arguments.stack)


def _copy_of_host(record: ImageRecord) -> None:
    """The host's second copy, for its control, made now and not before a measurement; a campaign says why not."""
    from tare.core.errors import UnavailableError
    from tare.images.storage import second_copy
    from tare.model.registry import HOST

    if record.env == HOST and record.status == "ok" and record.reference is not None:
        with contextlib.suppress(UnavailableError):
            second_copy(Path(record.reference))


def run_derive_arm(arguments: argparse.Namespace) -> None:
    """Derive an arm's form for one environment and write its record; one that can't be had is no failure."""
    from tare.images.build import build
    from tare.launch.arm_images import derive_arm, parse
    from tare.model.records.images import OciRecord
    from tare.model.registry import environment
    from tare.model.schema import read

    parse(arguments.arm, environment(arguments.env))  # a mistake is said before anything is built
    given = arguments.image
    source = read(OciRecord, given) if given else build(arguments.stack, arguments.variant)
    record = derive_arm(source, arguments.env, arguments.arm, _probe(arguments))
    _write_record(arguments, record, f"{arguments.stack} for {arguments.arm}")


def _probe(arguments: argparse.Namespace) -> Probe:
    from tare.model.environment import Probe
    from tare.model.records.images import ProbeRecord
    from tare.model.schema import read

    return read(ProbeRecord, arguments.probe).outcome if arguments.probe else Probe(available=True)


def _write_record(arguments: argparse.Namespace, record: ImageRecord, what: str) -> None:
    from tare.core.progress import say
    from tare.images.build import link_into

    if record.status != "ok":
        say(f"{arguments.env} has no image of {what}: {record.reason}")
    link_into(arguments.out.parent, record)
    record.write(arguments.out)


def run_bind_stack(arguments: argparse.Namespace) -> None:
    """Write the record of the bound stack's image and those of environments; one that can't is no failure."""
    from tare.core.progress import say
    from tare.images import installed
    from tare.launch import trial
    from tare.model.registry import environment, environment_names
    from tare.model.studies.layout import IMAGES
    from tare.model.studies.stacks import BOUND

    installed.examine(arguments.python)  # a mistake is reported before the launches, which take a minute
    chosen = arguments.environments
    names = environment_names() if chosen is None else chosen
    probes = {name: trial.probe(environment(name)) for name in names}
    for name, record in installed.bind(arguments.python, arguments.out or IMAGES / BOUND, probes).items():
        say(f"{name}: {'ready' if record.status == 'ok' else record.reason}")
