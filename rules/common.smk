# What several rule files share: the checked study, and the few helpers that Snakemake has no word for.
import atexit
import functools
import inspect
import os
import re
import shlex
import sys
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

import snakemake_logger_plugin_tare
import tare

rules_of = Path(inspect.currentframe().f_code.co_filename).resolve().parents[1]
package_of = Path(tare.__file__).resolve().parents[1]
if rules_of != package_of:
    mistake = (
        f"the rules are of {rules_of}, the package `tare` is of {package_of}: run the Snakemake of "
        f"{rules_of}/.venv (`make setup` there installs it), or set PYTHONPATH={shlex.quote(str(rules_of))}"
    )
    snakemake_logger_plugin_tare.refuse(mistake)
    raise WorkflowError(mistake)

from tare.analysis.plans import expected
from tare.model import closure
from tare.model.studies import (
    arms,
    campaigns,
    checks,
    layout,
    loading,
    machines,
    own_jobs,
    papers,
)
from tare.model.studies import minutes as minutes_module
from tare.model.studies import study as study_module
from tare.core.errors import TareError, UserError
from tare.core.files import cache_dir, project_root, sha256_file, sha256_text
from tare.core.progress import say
from tare.machine import workflows
from tare.machine import cluster, shared_files, together
from tare.machine.facts import name_for_jobs, slurm_node
from tare.machine.fitting import AUTO, images_folder
from tare.model.machines import MACHINE as MACHINE_VARIABLE
from tare.model.conditions import SLURM
from tare.model.registry import (
    DISTRIBUTED,
    SHARED,
    SINGLE,
    describe_workload,
    environment,
    environment_names,
)
from tare.model.schema import read
from tare.model.words import nearest
from tare.model.studies.libraries import load_library
from tare.model.studies.stacks import BOUND, framework_of, load_stack, stack_inputs
from tare.model.studies.stamps import stamp_files
from tare.datasets import catalog
from tare.experiments import alone, attempts
from tare.images import interpreter, staging
from tare.images.from_source.library import programs_seen
from tare.runtimes import programs
from tare.worker.frameworks import DEFAULT as DEFAULT_FRAMEWORK

# Another workflow has this one as a module: its configuration is that workflow's, and none of our handlers runs.
AS_MODULE = Path(workflow.basedir).resolve() != project_root()
# Rules call `python -m tare`: this Python, also where its environment is not activated.
os.environ["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
)
if Path.cwd() != project_root():  # it runs elsewhere (--directory, a module)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(project_root()), os.environ.get("PYTHONPATH")])
    )


def refuse(message):
    """End the workflow with one line."""
    snakemake_logger_plugin_tare.refuse(message)
    raise WorkflowError(message)


def refusing(function):
    """A function of the rules whose mistakes of a user's are one line."""

    @functools.wraps(function)
    def call(*arguments, **named):
        try:
            return function(*arguments, **named)
        except TareError as error:
            refuse(str(error))

    return call


# Whether this is a job of a workflow elsewhere, which reads the rules again on the node that it was sent to.
SENT = alone.WORKFLOW in os.environ
# What measures ends with the workflow that started it, however that ends.
os.environ[alone.WORKFLOW] = alone.process_stamp(os.getpid())
if not SENT:  # of all workflows that a job is in, the first
    os.environ[together.SENDER] = os.environ[alone.WORKFLOW]


def checkout_file(name):
    """A file of the checkout, by its path there: whole where the workflow runs in another folder."""
    return name if Path.cwd() == project_root() else str(project_root() / name)


def study_sources():
    """Name and content of what the configuration was laid together from, in order, for what is said of it.

    `workflow.configfiles` has the files of the command line and our own; of a module they are the caller's.
    """
    if AS_MODULE:
        return [("the module's config", config)]
    own = project_root() / "config/config.yaml"
    given = [path for path in workflow.configfiles if Path(path).resolve() != own]
    files = [(os.path.relpath(path), loading.load(path)) for path in (own, *given)]
    laid = {}
    for _, content in files:
        laid = loading.merge(laid, content)
    return [*files, ("--config", over(laid))]


def over(laid):
    """What the configuration has beyond its files."""
    return {
        key: value
        for key, value in config.items()
        if key not in laid or laid[key] != value
    }


# What only a person says of one run, on its command line: in a profile it would change what is measured, or how often.
# What else a profile might change of that is in profiles/default, which counts more than a user's own.
NOT_OF_A_PROFILE = (
    *(
        "config",
        "configfile",
        "configfiles",
        "forcerun",
        "until",
        "omit-from",
        "allowed-rules",
    ),
    *("batch", "cache", "consider-ancient", "set-threads", "set-resources"),
    *("target-jobs", "delete-all-output"),
)


def refuse_choices_of_profiles():
    """A user's own profile (SNAKEMAKE_PROFILE, --profile) that chooses what is measured."""
    from snakemake.cli import get_argument_parser, get_profile_dir

    words = [
        part
        for word in sys.argv[1:]
        for part in (word.split("=", 1) if word.startswith("--profile=") else [word])
    ]
    given = [value for name, value in zip(words, words[1:]) if name == "--profile"]
    for profile in given or filter(None, [os.environ.get("SNAKEMAKE_PROFILE")]):
        found = None if profile == "none" else get_profile_dir(profile)
        if found is None or Path(found[1]).is_relative_to(project_root() / "profiles"):
            continue
        options = re.findall(r"--([a-z][a-z-]*)", get_argument_parser().format_help())
        # Snakemake takes a name with two hyphens too, and the begin of one.
        says = [
            key.removeprefix("--")
            for key, value in loading.load(found[1]).items()
            if value
        ]
        if chosen := [
            name
            for name in NOT_OF_A_PROFILE
            if any(
                name == key or (name.startswith(key) and key not in options)
                for key in says
            )
        ]:
            raise UserError(
                f"{found[1]} says {', '.join(chosen)}, which is said of one run, on its command line: leave the profile "
                "out (--profile none), or drop it there"
            )


def within_minutes(study, minutes):
    """The study with budgets of its headline campaigns for as many minutes as --config says, and how they were chosen.

    They are printed before anything runs, and written down before the first job (`onstart`); of a module, for which
    Snakemake runs none, as the rules are read.
    """
    if minutes is None:
        folders = [layout.study_folder(study.study, one) for one in MACHINES]
        warnings = [
            minutes_module.remeasure_warnings(study, folder) for folder in folders
        ]
        lines = list(dict.fromkeys(line for lines in warnings for line in lines))
        chosen = None
    else:
        if SEVERAL:
            raise UserError(
                "minutes: a budget is chosen for one machine, and the study names several: give `budget_s` in `rounds`"
            )
        from tare.analysis.plans.minutes import laid_over  # takes a while

        wanted = minutes_module.checked(minutes)
        study, chosen, _ = laid_over(study, wanted, layout.CAMPAIGNS)
        lines = chosen.lines()
        if AS_MODULE:
            minutes_module.declare(study, chosen, AT)
    for line in lines:
        say(line)
    return study, chosen


try:
    if not AS_MODULE:
        refuse_choices_of_profiles()
    if AS_MODULE:  # its `config:` is laid over ours, as --configfile is
        config = loading.merge(
            loading.load(project_root() / "config/config.yaml"), config
        )
    SOURCES = study_sources()
    for name, content in SOURCES[:-1]:
        checks.refuse_minutes(content, name)
    # A file that was given would else be taken for the default study.
    if "study" not in SOURCES[-1][1]:
        loading.refuse_nameless(SOURCES[1:-1])
    STUDIED = loading.checked_from(
        SOURCES, {key: value for key, value in config.items() if key != "minutes"}
    )
    # What is measured is of this machine, or of the nodes that the study names: so the commands of rules say. Where
    # it names several, they are a wildcard in paths.
    NODES = machines.measured(STUDIED.machines)
    MACHINES = machines.chosen(STUDIED.machines, os.environ.get(MACHINE_VARIABLE))
    SEVERAL = len(NODES) > 1
    if not SEVERAL:
        MACHINES = [name_for_jobs(MACHINES[0] if MACHINES else None)]
    AT = "{machine}" if SEVERAL else MACHINES[0]
    layout.refuse_without_machine(STUDIED.study)
    STUDIED, CHOSEN = within_minutes(STUDIED, config.get("minutes"))
    config = STUDIED.to_json()
    catalog.refuse_unknown(
        {name: describe_workload(name)["dataset"] for name in STUDIED.workloads},
        config["data"],
    )
    own_jobs.refuse_missing(STUDIED.own_jobs, STUDIED.environments)
    PAPERS = papers.repeated(STUDIED.papers, STUDIED.workloads)
    papers.refuse_stale(PAPERS)
except TareError as error:
    refuse(str(error))

attempts.attend()  # whether a sealed campaign is measured again

snakemake_logger_plugin_tare.expect(expected.by_rule(STUDIED))
LONGEST_S = expected.by_rule(STUDIED, max)

# Processors of a job that takes a machine: all that the workflow has. Where jobs are sent to a cluster Snakemake counts
# none, and the node's are asked for (`on_machine`).
try:
    CORES = workflow.cores
except WorkflowError:
    CORES = 1
# Of a job that needs no machine for itself: on a node all the same, since a step has no other processors than its own.
ANY_CORES = CORES if NODES else 1


@cache
def places():
    """By machine that is measured its node: as it was, or as it is chosen now."""
    files = {name: layout.place_record(STUDIED.study, name) for name in NODES}
    return cluster.placed(NODES, files, MACHINES, WIDEST, layout.place_records)


def on_node(rule):
    """A parameter of what is made on a node, where the study names nodes: on another node it is made again."""

    def nodes(wildcards):
        name = wildcards.get("machine", AT)
        size = nodes_of(rule, wildcards) if WIDEST > 1 and rule in OF_GROUPS else 1
        if not SENT:
            return ",".join((places()[name].name, *places()[name].others)[:size])
        noted = layout.place_record(STUDIED.study, name)  # before the job was sent
        if noted.exists():
            return ",".join(read(cluster.Place, noted).nodes[:size])
        return slurm_node() or ""  # of a module nothing is noted

    return {"node": refusing(nodes)} if NODES else {}


@refusing
def note_places():
    """Write down which nodes were chosen, before the first job, where nodes can't write one campaign at a time."""
    if SENT or workflow.local_exec:
        return
    shared_files.refuse_without_locks([Path.cwd(), cache_dir()])
    if not NODES:
        return
    for machine in NODES.values():
        cluster.refuse_unknown_account(machine)
        if WIDEST > 1 and machine.nodes.scratch == "always":
            refuse(
                f"config: machines: {machine.kind}: scratch: always: the members of a group over nodes read one image: "
                "leave the key out"
            )
    for name, node in places().items():
        path = layout.place_record(STUDIED.study, name)
        place = cluster.Place(node=node.name, others=node.others)
        cluster.note(name, place, path, layout.place_records)


def refuse_to_measure_here():
    """Jobs of a study that names nodes of a cluster, when none would be sent to them."""
    if NODES and not SENT and workflow.local_exec:
        refuse(
            "config: machines: the study names nodes of a cluster, and this run would measure here: add "
            "--workflow-profile profiles/slurm"
        )


# Nodes of a cluster that the largest group takes whose members have one each. Of all rules these may have such a group.
WIDEST = STUDIED.distributed.nodes if STUDIED.distributed else 1
OF_GROUPS = ("describe_machine", "measure_network", "run_rounds_of_arm")


def nodes_of(rule, wildcards):
    """How many nodes a job takes."""
    met = STUDIED.distributed.levels
    if rule == "run_rounds_of_arm":
        arm = arm_of(wildcards)
        over = {met["network"], arms.levels_of(met, arm)["network"]}
        spans = scenario_of(wildcards) == DISTRIBUTED and SLURM in over
    else:
        spans = rule == "describe_machine" or met["network"] == SLURM
    return WIDEST if spans else 1


# What a job elsewhere has to share with this process, as Snakemake calls it.
SHARED_FILES = {"INPUT_OUTPUT", "PERSISTENCE", "SOFTWARE_DEPLOYMENT", "SOURCES"}


def refuse_without_shared_files():
    """Jobs that would not see the results, the checkout and the cache (docs/design.md)."""
    if not SENT and SHARED_FILES - {
        one.name for one in workflow.storage_settings.shared_fs_usage
    }:
        refuse(
            "--shared-fs-usage: a campaign goes on with files that are no outputs of a job, and images are in the cache: "
            "leave the option out, and have results, checkout and cache on a file system that the nodes share"
        )


@refusing
def on_machine(rule, whole=True):
    """Resources of a job on the machine that is measured, for itself or not, and what a cluster's scheduler is given."""
    found = {"machine": 1} if whole or NODES else {}  # a node is one job's at a time
    expected_s = LONGEST_S.get(rule, 0.0)
    if SENT:
        return found
    if not NODES:  # minutes, for a scheduler that is given them by its submit command
        return {**found, "runtime": cluster.minutes(expected_s)}
    sizes = (1, WIDEST) if WIDEST > 1 else (None,)
    asked = {
        (name, size): cluster.resources(NODES[name], node, expected_s, size)
        for name, node in places().items()
        for size in sizes
    }
    by_job = WIDEST > 1 and rule in OF_GROUPS
    if not SEVERAL and not by_job:
        return {**found, **asked[AT, sizes[0]]}

    def of(word):
        """What is asked of the machine of a job; nothing where it is asked of others alone."""

        def value(wildcards):
            size = nodes_of(rule, wildcards) if by_job else sizes[0]
            return asked[wildcards.get("machine", AT), size].get(word)

        return value

    return {**found, **{word: of(word) for each in asked.values() for word in each}}


@cache
def sent_together():
    """Names of the groups whose jobs are sent as one, on every machine of the study: where it pays, and may be."""
    if not NODES or AS_MODULE:  # of a module nothing is put back at the end
        return ()
    jobs = len(NODES) * sum(map(sum, map(dict.values, TOGETHER.values())))
    if not cluster.pays_together(jobs, os.environ):
        return ()

    def go_together(jobs, name, node):
        each = [LONGEST_S.get(rule, 0.0) for rule, n in jobs.items() for _ in range(n)]
        return cluster.go_together(NODES[name], node, each)

    return [
        group
        for group, jobs in TOGETHER.items()
        if all(go_together(jobs, name, node) for name, node in places().items())
    ]


def alone_on_a_node(wildcards):
    """No group: on its node each job is separate, and one that fails does not stop those behind it."""
    workflow.execution_settings.keep_going = True


@refusing
def group_of(rule):
    """The group in which a small job of a machine is sent with others; None where it is sent alone."""
    if SENT:
        return alone_on_a_node if NODES else None
    if WIDEST > 1 and rule in OF_GROUPS:
        return None  # it may take more nodes than others
    for group in sent_together():
        if rule in TOGETHER[group]:
            return f"{group}.{{machine}}" if SEVERAL else group
    return None


def kept(wildcards, output):
    """A parameter that is not noted: on a node, what a small job makes is kept until the workflow that sent it ends."""
    if SENT and NODES and not AS_MODULE:
        atexit.register(together.watch(output).keep, together.made_for())
    return ""


def attend_to_groups():
    """Put back at the end what was kept of this workflow."""
    if NODES and not SENT:
        atexit.register(together.put_back, together.made_for())


if SENT and NODES:
    # The members of a group over nodes have one path to the image, and none has another's disk.
    os.environ[staging.SCRATCH] = " ".join(
        f"{name}={'never' if WIDEST > 1 else NODES[name].nodes.scratch}"
        for name in MACHINES
    )
    # The plugin takes Slurm's own variables from the command that it starts.
    os.environ[staging.NODE_TMPDIR] = os.environ.get(
        staging.NODE_TMPDIR
    ) or os.environ.get("SLURM_TMPDIR", "")

# The beginning of a command that measures, or reads what was measured, and the end of its message.
ON = "TARE_MACHINE={wildcards.machine:q} " if SEVERAL else ""
ON_MACHINE = " on {wildcards.machine}" if SEVERAL else ""


def there(path, wildcards):
    """A path of the machine of a job."""
    return str(path).replace("{machine}", wildcards.get("machine", ""))


def study_on(wildcards):
    """The study as the machine of a job has it measured: on the device that its nodes have."""
    name = wildcards.get("machine", AT)
    if STUDIED.device != AUTO or name not in NODES:
        return STUDIED
    return STUDIED.replace(device=NODES[name].nodes.device)


# What a cluster's scheduler is asked for sets limits, which are in a machine's description.
LIMITED = (
    {
        "memory_mib": lambda wildcards: NODES[
            wildcards.get("machine", AT)
        ].nodes.memory_mib
    }
    if NODES
    else {}
)
STUDY = config["study"]
STACK = config["stack"]
ENVIRONMENTS = config["environments"]
WORKLOADS = list(config["workloads"])
OWN_JOBS = list(STUDIED.own_jobs)  # commands, which have whole runs alone
# Where instances train together, for a study that has them do so.
GROUPED_IN = (
    list(STUDIED.distributed.environments or ENVIRONMENTS)
    if STUDIED.distributed
    else []
)
# Environments whose images are in the runtime's own store, which each node has.
KEPT_ON_NODES = (
    [name for name in ENVIRONMENTS if environment(name).keeps_images] if NODES else []
)
NOT_MADE_HERE = "".join(
    rf"|{re.escape(name)}(?=[.]json$)" for name in KEPT_ON_NODES  # not `docker.vm`
)
# Small jobs of a machine and how many it has of each rule, by the group in which they are sent to a cluster: what images
# wait for, and what waits for images. A campaign that compares environments is a job by itself.
TOGETHER = {
    "looks": {"probe_environment": len(ENVIRONMENTS), "describe_machine": 1},
    "loads": {"load_image": len(KEPT_ON_NODES) * len(STUDIED.stacks_needed)},
    "small": {
        "measure_ceilings": bool(WORKLOADS),
        "run_profile": len(ENVIRONMENTS) if WORKLOADS else 0,
        "measure_starts": bool(WORKLOADS),
        "measure_network": bool(GROUPED_IN),
        "measure_pipeline": len(STUDIED.pipeline.workloads) if STUDIED.pipeline else 0,
    },
}
RESULTS = layout.results_on(STUDY, AT) if SEVERAL else layout.results_folder(STUDY)
# Images for nodes that a study names have a folder for each, since trial launches there say which can be had.
OTHER_DEVICE = "" if STUDIED.device == AUTO else f"-{STUDIED.device}"
IMAGE_FOLDERS = {f"{name}{OTHER_DEVICE}": name for name in NODES}
IMAGES = (
    str(layout.IMAGES / f"@{AT}{OTHER_DEVICE}")
    if NODES
    else images_folder(STUDIED, STUDIED.device)
)
STACK_IMAGES = f"{IMAGES}/{STACK}"


def form(name):
    """Record of one form of the headline's stack: an environment's, or what they share."""
    return layout.stack_record(Path(STACK_IMAGES), name)


stack_framework = cache(framework_of)
SWEPT = [name for name, one in STUDIED.workloads.items() if one.sweep_batches]
# Of all workloads together, by the same launches.
CAUSES = [one for one in campaigns.campaigns(STUDIED) if one.kind == "causes"]
CAMPAIGNS = [
    layout.sealed_record(STUDY, AT, campaign.workload, campaign.name)
    for campaign in campaigns.campaigns(STUDIED)
]
PROFILES = collect(
    layout.profile_record(STUDY, AT, "{workload}", "{env}"),
    workload=WORKLOADS,
    env=ENVIRONMENTS,
    allow_missing=True,
)
# In other stacks, on the host; what is launched there and then is the arm's.
STACK_PROFILES = [
    layout.profile_record(
        STUDY, AT, workload, layout.profile_name("host", arms.parse(level))
    )
    for workload, level in campaigns.profiled_stacks(STUDIED)
]
PIPELINES = collect(
    layout.pipeline_record(STUDY, AT, "{workload}"),
    workload=STUDIED.pipeline.workloads if STUDIED.pipeline else [],
    allow_missing=True,
)

# The code that a job depends on is a parameter, the hash of its programs, and no input file: Snakemake would compare
# files by their time first, and a touched file or a better comment must not make an hour of measurements old.
# Measurements depend on the import closure of what really runs; what only reads records, on whole packages.


def code_of(kind):
    """Input function of `params.code`: hash of what a measurement of one kind runs, at its arm's settings."""

    @refusing
    def code(wildcards):
        names, arm = ["host"], arm_of(wildcards)
        if "environments" in wildcards.keys():
            names = campaign_environments(wildcards)
        elif "env" in wildcards.keys():
            names = [wildcards.env]
        settings = list(arm.settings) if arm else []
        other = arm.other_stack if arm else None
        frameworks = sorted({stack_framework(STACK), stack_framework(other or STACK)})
        programs = closure.code_sha256(
            kind,
            wildcards.get("workload"),
            names,
            settings,
            frameworks,
            scenario_of(wildcards),
            STUDIED.shared.workload if scenario_of(wildcards) == SHARED else None,
        )
        return " ".join(filter(None, [programs, not_compiled(arm)]))

    return code


def not_compiled(arm):
    """Why an arm's launches can't compile on this machine, or None: once they can, the arm is measured."""
    if arm is None or arm.factor != "compile":
        return None
    from tare.launch.sites import NEEDS_COMPILER, no_compiler  # takes a while
    from tare.machine.fitting import fitting_device

    if arm.name != NEEDS_COMPILER:
        return None
    device = fitting_device(STACK)[0] if STUDIED.device == AUTO else STUDIED.device
    return no_compiler(STACK, device)


def code_of_jobs(kind):
    """As `code_of`, of all workloads together."""

    @refusing
    def code(wildcards):
        names = (
            [wildcards.env]
            if "env" in wildcards.keys()
            else campaign_environments(wildcards)
        )
        hashes = [
            closure.code_sha256(kind, workload, names, (), [stack_framework(STACK)])
            for workload in WORKLOADS
        ]
        return " ".join(hashes)

    return code


def data_record(workload):
    """Data record of a workload: of the source that this study chose."""
    name = STUDIED.data.record_of(describe_workload(workload)["dataset"])
    return str(layout.data_record(name))


def jobs_options(outs):
    """The options that name the workloads of a command for all of them, the data of each, and where it goes."""
    return " ".join(
        f"--job {one.workload} {data_record(one.workload)} {out}"
        for one, out in zip(CAUSES, outs)
    )


# Studies whose part for them is the same share one measurement of the machine's ceilings.
CEILINGS = sha256_text(
    study_module.part_of(STUDIED, "ceilings")
    + closure.code_sha256("ceilings", None, ["host"], [], [stack_framework(STACK)])
)[:16]

# What reads records and tables: whole folders, since it takes seconds to do again.
EXTRACTION = closure.folders_sha256(["model", "stats", "profilers", "analysis"])
AUDIT = closure.folders_sha256(["model", "stats", "analysis", "literature"])
DRAWING = closure.folders_sha256(["analysis", "literature", "predict", "report"])


def study_json(kind):
    """Input function of `params.study`: the part of the study that one kind of work depends on."""
    return lambda wildcards: study_module.part_of(
        study_on(wildcards),
        kind,
        wildcards.get("workload"),
        arm_of(wildcards),
        scenario_of(wildcards),
    )


def stamped(wildcards):
    """Names of the stamps of the study, which the table of its ledger mentions."""
    folder = layout.study_folder(STUDY, wildcards.get("machine", AT))
    return [path.name for path in stamp_files(folder)]


@refusing
def command_code(wildcards):
    """Hash of what a measurement of a command runs of ours, and those of the files that it names."""
    names = campaign_environments(wildcards)
    files = STUDIED.own_jobs[wildcards.workload].named_files()
    return " ".join([closure.code_sha256("command", None, names), *files.values()])


@refusing
def dataset_record(wildcards):
    """Data record of a workload."""
    return data_record(wildcards.workload)


@refusing
def co_runner_data(wildcards):
    """Data record of the job that runs while a campaign's launches do, where one does."""
    if scenario_of(wildcards) != SHARED:
        return []
    return data_record(STUDIED.shared.workload)


@refusing
def chosen_data(wildcards):
    """The source of a data record, and what its broken images do, as its name says them."""
    name = f"{wildcards.dataset}{wildcards.choice}"
    return STUDIED.data.choice_named(wildcards.dataset, name)


registry_of_data = cache(catalog.load_registry)


@refusing
def dataset_recipe(wildcards):
    """Hash of what the content of a data set depends on: its entry in the registry, the code of the recipes."""
    choice, _ = chosen_data(wildcards)
    return catalog.recipe_sha256(wildcards.dataset, choice, registry_of_data())


def campaign_of(wildcards):
    """What the name of a job's campaign says; of a job without one, the headline's alone on the machine."""
    words = [wildcards.get("environments"), wildcards.get("varied")]
    return layout.read_name(".".join(["rounds", *filter(None, words)]))


@refusing
def campaign_environments(wildcards):
    """Environments of a campaign from its name, host first."""
    names = campaign_of(wildcards).environments
    return ["host", *(name for name in names if name != "host")]


def arm_of(wildcards):
    """A job's arm, from the name of its campaign or its own; None for the headline's."""
    own = wildcards.get("arm")
    return layout.read_slug(own) if own else campaign_of(wildcards).arm


def scenario_of(wildcards):
    """A campaign's scenario from its name."""
    return campaign_of(wildcards).scenario


@refusing
def campaign_options(wildcards):
    """The options that name a campaign's environments, its arm and its scenario."""
    arm, scenario = arm_of(wildcards), scenario_of(wildcards)
    names = " ".join(campaign_environments(wildcards))
    options = [f"--arm {arm.name}"] if arm else []
    options += [f"--scenario {scenario}"] if scenario != SINGLE else []
    if scenario == SHARED:
        options.append(f"--co-runner-data {co_runner_data(wildcards)}")
    return " ".join([f"--environments {names}", *options])


@refusing
def campaign_images(wildcards):
    """Image records of a campaign's environments, and of the headline too with those of an arm."""
    folder = Path(there(STACK_IMAGES, wildcards))
    names = campaign_environments(wildcards)
    return sorted(
        {
            str(layout.image_record(folder, env, kind))
            for env in names
            for kind in (None, arm_of(wildcards))
        }
    )


def benchmarks_here(*names):
    """Input function: what benchmarks that are run by hand found on a job's machine, where they were run."""

    def found(wildcards):
        machine = wildcards.get("machine", AT)
        paths = [layout.benchmark_record(machine, name) for name in names]
        return [str(path) for path in paths if path.exists()]

    return found


def answers_here(wildcards):
    """Input function: what `tare optimise` answered on a job's machine, where it was asked."""
    machine = wildcards.get("machine", AT)
    folder = layout.answers_folder(Path(there(RESULTS, wildcards)), machine)
    return sorted(map(str, folder.glob("*.json")))


def headline(kind, environments, machine):
    """Sealed campaigns of whole runs on a machine, one per workload and command."""
    return collect(
        layout.sealed_record(
            STUDY, machine, "{workload}", layout.campaign_name(kind, environments)
        ),
        workload=WORKLOADS + OWN_JOBS,
    )


@refusing
def stack_files(wildcards):
    """What a stack is made from in addition to its stack.yaml."""
    return [checkout_file(str(path)) for path in stack_inputs(wildcards.stack)]


# What studies share is made by the same command whoever asks: what Snakemake notes of it, its parameters and inputs, may
# not depend on the study, or two studies would have it made anew in turn, and measure again each time. Where they ask for
# different things the path says so. A parameter by a function of `output` is not noted.


def variant(wildcards):
    """Which builds of a stack are in a folder: those that fit the machine that makes them, or those that it names."""
    name = wildcards.at.strip("@/")
    if name not in IMAGE_FOLDERS:
        return name or "auto"
    return (
        NODES[IMAGE_FOLDERS[name]].nodes.device
        if STUDIED.device == AUTO
        else STUDIED.device
    )


def probe_of(wildcards):
    """The trial launch on the machine whose forms are in a folder."""
    machine = IMAGE_FOLDERS.get(wildcards.at.strip("@/"), AT)
    return layout.probe_record(machine, wildcards.env)


def optional_stack(wildcards, output):
    """The option of a stack without which the study goes on; not noted."""
    return "" if wildcards.stack == STACK else "--optional"


@refusing
def form_source(wildcards):
    """What an environment's form is made of: the host and its like need no image, only the tree."""
    bound = wildcards.stack == BOUND
    kind = "oci" if bound or environment(wildcards.env).contained else "tree"
    return layout.stack_record(layout.IMAGES / f"{wildcards.at}{wildcards.stack}", kind)


def stack_records(stack):
    """The records of a stack that its environments share: its tree, and its image where one of them has it."""
    contained = any(environment(n).contained for n in STUDIED.environments_of(stack))
    kinds = ["tree", "oci"] if contained else ["tree"]
    return [layout.stack_record(Path(IMAGES, stack), kind) for kind in kinds]


@refusing
def stack_interpreter(wildcards):
    """Interpreters and compilers that a stack could take: where one appears, that stack is tried again.

    One that takes the Python of this workflow has it wherever another appears.
    """
    stack = load_stack(wildcards.stack)
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    seen = (
        set()
        if own in (stack.python, *stack.or_python)
        else set(interpreter.seen(stack.python))
    )
    compilers = programs_seen(load_library(stack.library.name)) if stack.library else []
    return sorted({*seen, *compilers})


@refusing
def adapter_code(wildcards):
    """Hash of the adapter of an environment with its helpers."""
    return closure.programs_sha256(closure.adapters([wildcards.env]))


@refusing
def adapter_programs(wildcards):
    """Where the programs of an environment are: where one appears or goes, the environment is tried again."""
    return programs.where(environment(wildcards.env).programs)


def is_rule(name):
    """Whether there is a rule of this name: `rules` raises a special error for one that there is not."""
    try:
        return bool(getattr(rules, name))
    except WorkflowError:
        return False


def refuse_rule_names():
    """Every environment is a target of its name: one that is called like a rule, such as `all`, can't be."""
    for name in ENVIRONMENTS:
        if is_rule(name):
            refuse(
                f"{loading.holder('environments', SOURCES)}: environments: {name} is the name of a rule; "
                f"give envs/{name}.py another name"
            )


def refuse_mistyped_environments():
    """A word of the command line that is almost an environment's name, or an environment that the study lacks."""
    if AS_MODULE:
        return  # the command line names what the calling workflow has
    refuse_mistyped_rules()
    names = [*ENVIRONMENTS, "all"]
    for word in sys.argv[1:]:
        if is_rule(word) or Path(word).exists():
            continue
        if word in environment_names():
            refuse(
                f"{word} is no environment of the study {STUDY}: name it in `environments`"
            )
        if get_close_matches(word, names, cutoff=0.75):
            refuse(f"no environment {word!r}: {nearest(word, names)}")


# What is chosen by the names of rules; Snakemake would report a mistyped one as a raw error, or pass it over.
CHOOSING = (
    *("-R", "--forcerun", "-U", "--until", "-O", "--omit-from", "--allowed-rules"),
    *("-P", "--prioritize"),
)


def refuse_mistyped_rules():
    """A word behind an option that chooses rules, which is neither a rule nor a file."""
    option = None
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if word.startswith("-"):
            option, word = (name if name in CHOOSING else None), value
        if option is None or not word or "/" in word:
            continue
        if not is_rule(word) and not Path(word).exists():
            taken = [rule.name for rule in workflow.rules]
            refuse(f"{option}: no rule {word!r}: {nearest(word, taken)}")


def refuse_moved_paths():
    """A module whose paths Snakemake changes, which our commands don't know of."""
    if str(rules.fetch_data.output.record) != "results/data/{dataset}{choice}.json":
        refuse(
            "module: results/ is where Tare's records are: leave out prefix and replace_prefix, and give it its own "
            "folder by --directory"
        )
