"""`tare starts`, `tare naive-image`, `tare image-costs`: what an image costs before anything is trained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tare.cli.runs import opening


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--study", default="config/config.yaml", help="study file or inline JSON (default config/config.yaml)"
    )

    starts = subparsers.add_parser(
        "starts", parents=[common], help="time cold and warm starts of several environments"
    )
    starts.add_argument("--workload", required=True, help="the workload whose imports end a start")
    starts.add_argument("--environments", nargs="+", required=True, help="environments; host is added if missing")
    starts.add_argument("--images", type=Path, help="folder of image records (default results/images/<stack>)")
    starts.add_argument("--out", type=Path, required=True, help="sealed.json of the campaign")
    starts.set_defaults(run=opening(run_starts))

    costs = subparsers.add_parser(
        "image-costs", parents=[common], help="make the table of the costs of images: seconds, bytes, starts"
    )
    costs.add_argument("--images", type=Path, help="folder of image records (default results/images)")
    costs.add_argument("--starts", type=Path, help="sealed.json of `tare starts` (default: no starts)")
    costs.add_argument("--runs", type=Path, help="sealed.json of whole runs, whose starts are warm")
    costs.add_argument("--naive", type=Path, help="record of `tare naive-image` for the study's stack")
    costs.add_argument("--out", type=Path, required=True, help="table to write (CSV)")
    costs.set_defaults(run=run_image_costs)

    naive = subparsers.add_parser(
        "naive-image", help="build a stack's image as a user would by hand (docker, apptainer), and time it"
    )
    naive.add_argument("--stack", required=True, help="folder of containers/stacks/")
    naive.add_argument("--variant", default="auto", help="cpu, cuda, or auto: what fits this machine")
    naive.add_argument("--out", type=Path, required=True, help="record to write (JSON)")
    naive.set_defaults(run=run_naive_image)


def run_starts(arguments: argparse.Namespace) -> None:
    """`tare starts`."""
    from tare.experiments.starts import measure_starts

    measure_starts(arguments.study, arguments.workload, arguments.environments, arguments.images, arguments.out)


def run_image_costs(arguments: argparse.Namespace) -> None:
    """`tare image-costs`."""
    from tare.analysis import image_costs
    from tare.machine.facts import machine_name
    from tare.model import tables
    from tare.model.studies.layout import IMAGES
    from tare.model.studies.loading import load_part
    from tare.model.studies.study import ImageCostsPart

    study = load_part(ImageCostsPart, arguments.study)
    naive = {study.stack: arguments.naive}
    forms = [
        image_costs.read_forms(arguments.images or IMAGES, stack, study.environments_of(stack), naive.get(stack))
        for stack in study.stacks_needed
    ]
    starts = image_costs.read_starts(arguments.starts) if arguments.starts else None
    runs = image_costs.read_runs(arguments.runs) if arguments.runs else None
    tables.write("image_costs", image_costs.build(study.study, machine_name(), forms, starts, runs), arguments.out)


def run_naive_image(arguments: argparse.Namespace) -> None:
    """`tare naive-image`."""
    from tare.experiments.naive_image import measure_naive_image
    from tare.machine.fitting import AUTO, fitting_device

    variant = fitting_device(arguments.stack)[0] if arguments.variant == AUTO else arguments.variant
    measure_naive_image(arguments.stack, variant, arguments.out)
