"""Names of campaigns and of profiled launches, and paths of records: written and read back here alone.

results/campaigns/<study>/<machine>/<workload>/<name>/, results/profiles/<study>/<machine>/<workload>/<name>/,
results/images/<stack>/

Every function of a path takes names and gives a path below the working directory; the rules of the workflow give it
wildcards for names (`{workload}`). What was measured has its machine in its path. Images and data sets have none:
equal inputs make equal ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tare.core.errors import UserError
from tare.model.levels import SAME
from tare.model.registry import HOST, SINGLE, scenario_names
from tare.model.studies.arms import Arm, moves, parse
from tare.model.studies.stacks import on_the_host
from tare.model.words import nearest

RESULTS = "results"
DEFAULT_STUDY = "nyu2022"  # whose results are in `results` itself
CAMPAIGNS = Path(RESULTS, "campaigns")
PROFILES = Path(RESULTS, "profiles")
IMAGES = Path(RESULTS, "images")
DATA = Path(RESULTS, "data")
REFERENCES = Path(RESULTS, "reference")  # campaigns that were recorded on other machines, an archive each
REFERENCE_TABLES = Path(RESULTS, "reference-tables")  # which this machine made of what was recorded
SEALED, PROFILE, PIPELINE, REFERENCE = "sealed.json", "profile.json", "pipeline.json", "reference.json"
ON = "on"  # the folder with a folder for each machine of a study that names several
ANSWERS, SEARCHES = "choose", "searches"
MACHINES = "machines"  # the folder of what is said of machines as a whole, one below it for each
MACHINE_FILE, CEILINGS_FILE, NETWORK_FILE = "machine.json", "ceilings.json", "network.json"
PLACE = "node.json"
TRACES = "traces"  # the folder next to a profile's record with all else that it wrote
ROUNDS, STEPS = "rounds", "steps"  # kinds of campaigns that have arms; steps are a view of rounds


def slug_of(arm: Arm) -> str:
    """An arm as paths have it: `allocator-default`."""
    return f"{arm.factor}-{arm.level}"


def read_slug(text: str) -> Arm:
    """An arm from a path's `factor-level`. Raises UserError: no such factor or level."""
    return parse(text.replace("-", "=", 1))


@dataclass(frozen=True, kw_only=True)
class CampaignName:
    """What the name of a campaign says: `rounds.docker+host.stack-native`."""

    kind: str  # what it measures
    # those that it compares, in the order of the alphabet; none of a kind that has one campaign
    environments: tuple[str, ...] = ()
    arm: Arm | None = None  # its one factor at another level; None for the headline
    scenario: str = SINGLE  # how many run, and what runs at the same time

    def __post_init__(self) -> None:
        """Put the environments in order, each once."""
        object.__setattr__(self, "environments", tuple(sorted(set(self.environments))))

    @property
    def text(self) -> str:
        """The name; dots part it, so that an environment inside another is `docker@vm` in it."""
        together = "+".join(self.environments).replace(".", "@")
        return ".".join([self.kind, *([together] if together else []), *self._varied])

    @property
    def _varied(self) -> list[str]:
        slug = [slug_of(self.arm)] if self.arm else []
        return [*slug, *([self.scenario] if self.scenario != SINGLE else [])]

    @property
    def design(self) -> str:
        """As campaigns of the same kind, arm and scenario share it, of whatever environments."""
        return ".".join([self.kind, *self._varied])

    @property
    def is_headline(self) -> bool:
        """Whether it compares environments at the study's own levels, one job alone on the machine."""
        return bool(self.environments) and not self._varied


@cache
def read_name(text: str) -> CampaignName:
    """What the name of a campaign, or of the training steps of one, says. Raises UserError: it has a part that is
    neither a factor's level nor a scenario.
    """
    kind, _, rest = text.partition(".")
    together, _, varied = rest.partition(".")
    environments = tuple(together.replace("@", ".").split("+")) if together else ()
    slug, _, scenario = varied.rpartition(".")  # names of stacks may hold dots
    if scenario not in scenario_names():
        slug, scenario = varied, SINGLE
    if slug and "-" not in slug:  # a scenario's name has no hyphen
        raise UserError(f"campaign {text}: no scenario {slug!r}: {nearest(slug, scenario_names())}")
    arm = read_slug(slug) if slug else None
    return CampaignName(kind=kind, environments=environments, arm=arm, scenario=scenario)


def campaign_name(kind: str, environments: Iterable[str], arm: str | None = None, scenario: str = SINGLE) -> str:
    """Name of a campaign, whose arm is written `factor=level`."""
    varied = parse(arm) if arm else None
    return CampaignName(kind=kind, environments=tuple(environments), arm=varied, scenario=scenario).text


def kind_of(campaign: str) -> str:
    """Kind of a campaign, from its name."""
    return campaign.partition(".")[0]


def arm_of(campaign: str) -> Arm | None:
    """The arm of a campaign, from its name; None for the headline's and for others."""
    return read_name(campaign).arm


def is_headline(campaign: str, kind: str | None = None) -> bool:
    """Whether a campaign of this name compares environments as the headline does, and is of this kind."""
    found = read_name(campaign)
    return found.is_headline and found.kind in ((kind,) if kind else (ROUNDS, STEPS))


def profile_name(env: str, arm: Arm | None = None) -> str:
    """Name of the folder of a profiled launch, below its workload's: its environment, and its arm if it has one."""
    return f"{env}.{slug_of(arm)}" if arm else env


def read_profile_name(text: str) -> tuple[str, str]:
    """Environment and level of the factor `stack` of a profiled launch, from the name of its folder."""
    env, _, level = text.partition(".stack-")
    return env, level or SAME


def results_folder(study: str) -> str:
    """The folder of a study's results: `results` for the default study, `results/<study>` for any other."""
    return RESULTS if study == DEFAULT_STUDY else f"{RESULTS}/{study}"


def results_on(study: str, machine: str) -> str:
    """The folder of the results of one of the machines that a study names, if it names several."""
    return f"{results_folder(study)}/{ON}/{machine}"


def study_folder(study: str, machine: str) -> Path:
    """Folder of the campaigns of a study on a machine, with their ledger and stamps."""
    return CAMPAIGNS / study / machine


def refuse_without_machine(study: str) -> None:
    """Raises UserError: a study has campaigns whose paths name no machine, which no rule would find."""
    folder = CAMPAIGNS / study
    if found := sorted(path.parent for path in folder.glob("*/*/plan.json")):
        raise UserError(
            f"{found[0]} is of an older version, whose paths name no machine, as are {len(found)} campaigns of "
            f"this study: move {folder} away, and run the study again"
        )


def place_record(study: str, machine: str) -> Path:
    """Which node of a cluster a machine is."""
    return study_folder(study, machine) / PLACE


def place_records(machine: str) -> list[Path]:
    """As all studies have it that measured a machine of this name."""
    return sorted(CAMPAIGNS.glob(f"*/{machine}/{PLACE}"))


def campaign_folder(study: str, machine: str, workload: str, name: str) -> Path:
    """Folder of a campaign."""
    return study_folder(study, machine) / workload / name


def sealed_record(study: str, machine: str, workload: str, name: str) -> Path:
    """Summary with which a campaign ends."""
    return campaign_folder(study, machine, workload, name) / SEALED


def question_of(folder: Path) -> tuple[str, str]:
    """Workload and name of a campaign, from its folder."""
    return folder.parent.name, folder.name


def profile_record(study: str, machine: str, workload: str, name: str) -> Path:
    """Record of a profiled launch, by the name of its folder (`profile_name`)."""
    return PROFILES / study / machine / workload / name / PROFILE


def traces_folder(study: str, machine: str, workload: str, name: str) -> Path:
    """Folder of what a profiled launch wrote in addition to its record."""
    return profile_record(study, machine, workload, name).with_name(TRACES)


def pipeline_record(study: str, machine: str, workload: str) -> Path:
    """Record of a workload's input alone."""
    return PROFILES / study / machine / workload / PIPELINE


def of_machine(results: Path, machine: str, name: str) -> Path:
    """A record of a machine as a whole, in the folder of a study's results."""
    return results / MACHINES / machine / name


def own_ceilings_record(study: str, machine: str) -> Path:
    """The machine's ceilings as a study took them from those that studies share."""
    return of_machine(Path(results_folder(study)), machine, CEILINGS_FILE)


def stack_record(folder: Path, name: str) -> Path:
    """Record of one form of a stack: its `tree`, its image `oci`, an environment's; `folder`: of the stack."""
    return folder / f"{name}.json"


def arm_record(folder: Path, slug: str, env: str) -> Path:
    """Record of an environment in an arm that needs another image or other options; `folder`: of the stack."""
    return stack_record(folder / "arms" / slug, env)


def naive_record(folder: Path, machine: str) -> Path:
    """Record of a stack's image as a user would write it by hand, timed on a machine; `folder`: of the stack."""
    return folder / "naive" / machine / "record.json"


def image_record(folder: Path, env: str, arm: Arm | None) -> Path:
    """Path of the image record of an environment, in an arm that needs a separate one or in the headline.

    An official image is compared with what it is like on the host, which has none.

    `folder`: of the headline's stack. `env`: the environment. `arm`: None for the headline.
    """
    if arm is not None and arm.other_stack:
        stack = on_the_host(arm.other_stack) if env == HOST else arm.other_stack
        return stack_record(folder.parent / stack, env)
    if arm is not None and arm.needs_image and moves(arm, env):
        return arm_record(folder, slug_of(arm), env)
    return stack_record(folder, env)


def below_results(path: Path) -> Path:
    """The path of a record or a folder below that of results: a reference campaign's folder has the same within."""
    return path.relative_to(RESULTS)


def reference_table(name: str, table: str) -> Path:
    """A table that was made here of a reference campaign, by the names of both; `table` with its suffix."""
    return REFERENCE_TABLES / name / table


def ceilings_record(machine: str, key: str) -> Path:
    """Record of a machine's ceilings, by the hash of what they depend on."""
    return Path(RESULTS, "ceilings", machine, f"{key}.json")


def benchmark_record(machine: str, name: str) -> Path:
    """What a benchmark that is run by hand found on a machine, of those that tables and pages read."""
    return Path(RESULTS, "benchmarks", machine, f"{name}.json")


def target_record(processor: str) -> Path:
    """What was measured of a processor for predictions, by the name that `slug_of` gives it."""
    return Path(RESULTS, "targets", f"{processor}.json")


def grid_folder(machine: str, stack: str) -> Path:
    """Folder of the steps that were timed on a machine for predictions, a record for each job."""
    return Path(RESULTS, "grid", machine, stack)


def answers_folder(results: Path, machine: str) -> Path:
    """Folder of what `tare optimise` answered on a machine, a file for each request, in a study's results."""
    return results / ANSWERS / machine


def search_record(results: Path, machine: str, key: str) -> Path:
    """Trials of a search of `tare optimise` on a machine, by the hash of what they depend on."""
    return results / SEARCHES / machine / f"{key}.db"


def data_record(name: str) -> Path:
    """Record of a data set, by its name and what a study chose of it."""
    return DATA / f"{name}.json"


def probes_folder(machine: str) -> Path:
    """Folder of the trial launches on a machine."""
    return Path(RESULTS, "probe", machine)


def probe_record(machine: str, env: str) -> Path:
    """Record of the trial launch in an environment."""
    return probes_folder(machine) / f"{env}.json"
