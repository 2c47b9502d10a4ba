# What several rule files share: the checked study, and the few helpers that Snakemake has no word for.
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from tare.model import arms
from tare.model import study as study_module
from tare.core.errors import TareError
from tare.machine.fitting import settled
from tare.model.registry import module_names

# Rules call `python -m tare`: this Python, also where its environment is not activated.
os.environ["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
)

try:
    for path in (path for path in workflow.configfiles if Path(path).suffix != ".json"):
        study_module.load(path)  # Snakemake would take the last of two equal keys
    STUDIED = study_module.check(config)
    config = settled(STUDIED).to_json()
except TareError as error:
    raise WorkflowError(str(error))

STUDY = config["study"]
STACK = config["stack"]
ENVIRONMENTS = config["environments"]
WORKLOADS = list(config["workloads"])
PROBED = module_names("envs")  # also those that are no part of this study
RESULTS = study_module.results_folder(STUDY)

# What runs inside a launch, and what starts it: an edit here, and nowhere else, makes a measurement old.
INSIDE = [
    "tare/worker/main.py",
    "tare/worker/marks.py",
    "tare/worker/facts.py",
    "tare/worker/frameworks.py",
    "tare/worker/memory.py",
    "tare/worker/settings.py",
    "tare/launch/run.py",
    "tare/core/process.py",
    "envs/_conditions.py",
]
CAMPAIGN = [
    *INSIDE,
    "tare/model/arms.py",
    "tare/experiments/campaign.py",
    "tare/worker/train.py",
    "tare/stats/intervals.py",
    "tare/stats/planning.py",
    "tare/experiments/rounds.py",
]
INSIDE_ROUNDS = [*CAMPAIGN, "tare/analysis/launch_rows.py"]
INSIDE_TURNS = [
    *CAMPAIGN,
    "tare/experiments/blocks.py",
    "tare/launch/channel.py",
    "tare/worker/turns.py",
    "tare/experiments/turns.py",
]
INSIDE_PROFILE = [
    *INSIDE,
    "tare/experiments/rounds.py",
    "tare/worker/train.py",
    "tare/worker/profiled.py",
    "tare/worker/counters.py",
    "tare/worker/counting.py",
    "tare/experiments/counter_launches.py",
    "tare/worker/elf.py",
    "tare/worker/families.py",
]
INSIDE_CAUSES = [
    *CAMPAIGN,
    "tare/experiments/causes.py",
    "tare/worker/causes.py",
    "tare/worker/kernels.py",
    "tare/worker/needed.py",
]


def study_json(kind):
    """Input function of `params.study`: the part of the study that one kind of work depends on."""
    return lambda wildcards: study_module.part_of(
        STUDIED, kind, wildcards.get("workload")
    )


def dataset_record(wildcards):
    """Data record of a workload."""
    from tare.model.registry import describe_workload

    return f"results/data/{describe_workload(wildcards.workload)['dataset']}.json"


def campaign_environments(wildcards):
    """Environments of a campaign from its name, host first."""
    names = wildcards.environments.split("+")
    return ["host", *(name for name in names if name != "host")]


def campaign_arm(wildcards):
    """The option that names a campaign's arm; empty for the headline's."""
    from tare.model.arms import parse

    return f"--arm {parse(wildcards.arm[1:]).name}" if wildcards.arm else ""


def campaign_images(wildcards):
    """Image records of a campaign's environments, and of the headline beside those of an arm."""
    from tare.model import arms

    folder = Path("results/images") / STACK
    text = wildcards.get("arm")
    arm = arms.parse(text[1:]) if text else None
    names = campaign_environments(wildcards)
    return sorted(
        {
            str(arms.image_record(folder, env, kind))
            for env in names
            for kind in (None, arm)
        }
    )


def campaign_adapters(wildcards):
    """Adapter modules of a campaign's environments."""
    return [f"envs/{env}.py" for env in campaign_environments(wildcards)]


def headline(kind, environments):
    """Sealed campaigns of one kind, one per workload."""
    return collect(
        "results/campaigns/{study}/{workload}/{campaign}/sealed.json",
        study=STUDY,
        workload=WORKLOADS,
        campaign=study_module.campaign_name(kind, environments),
    )


def all_campaigns():
    """Sealed campaigns of the whole study: rounds, turns, arms, causes."""
    return [
        f"results/campaigns/{STUDY}/{campaign.workload}/{campaign.name}/sealed.json"
        for campaign in study_module.campaigns(STUDIED)
        if campaign.kind != "sweep"
    ]


def stack_locks(wildcards):
    """Lock files of a stack."""
    from tare.model.stacks import lock_files

    return [str(path) for path in lock_files(wildcards.stack)]


def optional_stack(wildcards):
    """The option of a stack without which the study goes on."""
    return "" if wildcards.stack == STACK else "--optional"


def stack_seen(wildcards):
    """The interpreter of a stack: where one appears, a stack that could not be had is tried again.

    One that has its interpreter and could not be had for another reason, such as the network, is tried each time.
    The record keeps what was seen when it was built, so that nothing is built again for having been built.
    """
    from tare.core.files import read_json
    from tare.images.interpreter import seen
    from tare.model.stacks import load_stack

    path = Path("results/images") / wildcards.stack / "tree.json"
    record = read_json(path) if path.exists() else {}
    if record.get("status") == "ok":
        return record.get("seen") or record["interpreter"]
    found = seen(load_stack(wildcards.stack, config["device"]).python)
    return f"{found}, after {path.stat().st_mtime_ns}" if found and record else found


def programs_seen(wildcards):
    """Where the runtimes' programs are; a change tries an environment again that was found unavailable."""
    from tare.core.files import canonical_json, read_json
    from tare.model.registry import environment
    from tare.runtimes.programs import where

    path = Path("results/probe") / f"{wildcards.env}.json"
    record = read_json(path) if path.exists() else {"available": False}
    return canonical_json(
        record["programs"]
        if record["available"]
        else where(environment(wildcards.env).programs)
    )
