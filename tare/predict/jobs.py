"""Files that build and run a chosen candidate without Tare: image recipes, scripts for Slurm, PBS and a shell.

A script exports the candidate's settings, each with what it is predicted to gain, runs the request's command in the
environment, and appends the seconds that it took to a file, which can be held against the prediction.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import UnavailableError, UserError
from tare.core.files import sha256_text, write_text
from tare.core.process import run
from tare.launch.by_hand import IN_THE_PROGRAM, THREAD_VARIABLES, variables_of
from tare.model.records.measured import Device
from tare.model.studies.stacks import Stack, load_stack, variants_of
from tare.predict.choose import Candidate, Choice, Ranked
from tare.predict.requests import GIB, Request
from tare.predict.search import Searched

IMAGE = "tare-job"  # an image in Docker, Podman or Charliecloud; its tag is a hash of what it is made of
BUILD, REQUIREMENTS, DOCKERFILE, DEFINITION = "build.sh", "requirements.txt", "Dockerfile", "apptainer.def"
BUILT = "built.txt"  # what the build script made last
BUNDLE = "bundle.json"  # of an OCI bundle, without the folder of the job
SCRIPTS: Mapping[str, str] = {"slurm": "job.sbatch", "pbs": "job.pbs", "shell": "job.sh"}
ELAPSED, OUTPUT = "elapsed.txt", "output.txt"
# Of the interval's upper end, or of twice the prediction where there is none: data and the model come on top.
SLACK, AT_LEAST_MIN = 1.5, 5
ANSWER_S, LONGEST_S = 60.0, 86400.0  # for a scheduler to answer; for a job of a shell to end
LOOK_S, PATIENCE_S = 2.0, 300.0  # between two looks at a job in Slurm; for a controller that restarts
FORGOTTEN = "Invalid job id"  # as squeue says it
UNDER_WAY = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING", "STAGE_OUT")
# Reasons of a pending job that no waiting mends; `--test-only` does not see them everywhere.
NEVER = ("PartitionTimeLimit", "PartitionNodeLimit", "BadConstraints", "InvalidAccount", "InvalidQOS")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A candidate to be built and run, of which there is a prediction."""

    request: Request  # with its command
    choice: Choice  # from which it was taken
    row: Ranked
    folder: Path  # of the files, absolute
    processor: str  # of the target, as the device
    device: Device = "cpu"
    searched: Searched | None = None  # the search that found it; None where it was predicted

    @property
    def candidate(self) -> Candidate:
        """The candidate."""
        return self.row.candidate

    @property
    def stack(self) -> Stack:
        """The candidate's stack, with the packages for the device."""
        name = self.candidate.stack
        return load_stack(name, self.device if self.device in variants_of(name) else "cpu")

    @property
    def image(self) -> str:
        """Name and tag of its image: other packages have another tag."""
        made_of = dockerfile(self.stack) + _requirements(self.stack)
        return f"{IMAGE}:{sha256_text(made_of)[:12]}"

    @property
    def build(self) -> str:
        """What the build script notes at its end: another environment or stack has another one."""
        return f"{self.candidate.env} {self.image}"

    @property
    def minutes(self) -> int:
        """Of the job's time limit: the request's own, else the prediction with some slack."""
        if self.request.limit_s is not None:
            return math.ceil(self.request.limit_s / 60)
        elapsed = self.row.elapsed
        longest = 2 * elapsed.seconds if elapsed.high is None else elapsed.high
        return AT_LEAST_MIN + math.ceil(SLACK * longest / 60)

    @property
    def predicted(self) -> str:
        """What is predicted, in words."""
        elapsed = self.row.elapsed
        if self.searched is not None:
            return f"{elapsed.seconds:.3g} s, by the steps that a search measured"
        if elapsed.low is None or elapsed.high is None:
            return f"{elapsed.seconds:.3g} s, without an interval"
        return f"{elapsed.seconds:.3g} s (90% interval: {elapsed.low:.3g} s to {elapsed.high:.3g} s)"


def write_files(plan: Plan) -> list[Path]:
    """Write the recipes and scripts of a candidate; their paths.

    Raises UserError: the request has no command, or a job script can't start the environment.
    """
    if not plan.request.command:
        raise UserError("the request has no command, so that a script has nothing to run: add `command: …` to it")
    if plan.candidate.env not in STARTS:
        known = ", ".join(STARTS)
        raise UserError(f"a job script can't start {plan.candidate.env}: choose a candidate in one of {known}")
    if plan.device == "cuda" and plan.candidate.env not in GPUS:
        known = ", ".join(GPUS)
        raise UserError(
            f"a job script can't give {plan.candidate.env} a GPU: choose a candidate in one of {known} with "
            "--candidate"
        )
    stack = plan.stack
    texts = {
        REQUIREMENTS: _requirements(stack),
        DOCKERFILE: dockerfile(stack),
        DEFINITION: definition(stack),
        BUILD: build_script(plan, stack),
        **{SCRIPTS[kind]: script(plan, kind) for kind in _kinds(plan)},
    }
    for name, text in texts.items():
        write_text(plan.folder / name, text)
    return [plan.folder / name for name in texts]


# --- images


def _requirements(stack: Stack) -> str:
    return "".join(f"{each.line()}\n" for each in stack.requirements)


def _base(stack: Stack) -> str:
    official = stack.official
    if official is None:
        return f"python:{stack.python}-slim"
    named = f"{official.repository}:{official.tag}" + (f"@{official.digest}" if official.digest else "")
    return named.removeprefix("library/")


def _install(stack: Stack) -> list[str]:
    """pip's command for the locked packages."""
    index = ["--extra-index-url", stack.index] if stack.index else []
    return ["python3", "-m", "pip", "install", "--no-cache-dir", *index, "--require-hashes", "--requirement"]


def _notes(stack: Stack) -> Iterator[str]:
    if stack.library is not None:
        yield (
            f"# {stack.name} has {stack.library.name} compiled for the processor, which pip can't install: this "
            f"image has the library that the packages bring. Tare's own image has it (docs/add-a-stack.md)."
        )
    if stack.built_for is not None:
        yield f"# The packages are a build for {stack.built_for}."


def dockerfile(stack: Stack) -> str:
    """A Dockerfile with the stack's locked packages; pure."""
    on_gpu = stack.variant == "cuda"
    install = [] if stack.official else [f"RUN {shlex.join(_install(stack))} /tmp/{REQUIREMENTS}"]
    return _lines(
        f"# {stack.name}, as tare optimise chose it. Build it with {BUILD}.",
        *_notes(stack),
        f"ARG BASE={_base(stack)}",
        "FROM ${BASE}",
        *([f"COPY {REQUIREMENTS} /tmp/{REQUIREMENTS}", *install] if install else []),
        # Enroot gives a container the GPUs that its image asks for.
        *(["ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"] if on_gpu else []),
    )


def definition(stack: Stack) -> str:
    """The same as a definition file of Apptainer; pure."""
    head = [
        f"# {stack.name}, as tare optimise chose it. Build it with {BUILD}.",
        *_notes(stack),
    ]
    origin = ["Bootstrap: docker", f"From: {_base(stack)}"]
    if stack.official:
        return _lines(*origin, "", *head)
    return _lines(
        *origin,
        "",
        *head,
        "%files",
        f"    {REQUIREMENTS} /opt/{REQUIREMENTS}",  # not /tmp, which is the machine's own in %post
        "",
        "%post",
        f"    {shlex.join(_install(stack))} /opt/{REQUIREMENTS}",
    )


def build_script(plan: Plan, stack: Stack) -> str:
    """What makes the environment in which the job runs; pure."""
    image, made = plan.image, MADE.get(plan.candidate.env)
    builds = {
        "host": [
            f"python{stack.python} -m venv venv",
            f"venv/bin/{shlex.join(_install(stack))} {REQUIREMENTS}",
        ],
        "docker": [f"docker build --tag {image} ."],
        "podman": [f"podman build --tag {image} ."],
        "apptainer": [f"apptainer build --force job.sif {DEFINITION}"],
        "charliecloud": [f"ch-image build --tag {image} .", f"ch-convert -o dir {image} image"],
        "pyxis": [f"docker build --tag {image} .", f"enroot import --output job.sqsh dockerd://{image}"],
        "slurm_oci": [
            f"podman build --tag {image} .",
            "rm -rf bundle",
            "mkdir -p bundle/rootfs",
            f'podman export "$(podman create {image})" | tar --extract --directory bundle/rootfs',
            "runc spec --rootless --bundle bundle",
            f"mv bundle/config.json {BUNDLE}",
        ],
    }
    return _lines(
        "#!/bin/sh",
        f"# Makes {plan.candidate.env} with {stack.name}, once. It needs the network.",
        "set -eu",
        'cd "$(dirname "$0")"',
        *([f"rm -rf {made.partition('/')[0]} {BUILT}"] if made is not None else []),
        *builds[plan.candidate.env],
        *([f"echo {shlex.quote(plan.build)} > {BUILT}"] if made is not None else []),
    )


# --- scripts


def _start(plan: Plan, names: Sequence[str]) -> str:
    """The words before the job's command, as a shell reads them."""
    folder = shlex.quote(str(plan.folder))
    passed = " ".join(f"--env {name}" for name in names)
    gpus = GPUS[plan.candidate.env] if plan.device == "cuda" else ""
    engine = f'run --rm {gpus}--volume "$PWD:$PWD" --workdir "$PWD" {passed}'
    return STARTS[plan.candidate.env].format(folder=folder, engine=engine, image=plan.image, gpus=gpus)


def _guard(plan: Plan) -> str:
    """A line that ends a script whose environment is not built."""
    env, made = plan.candidate.env, MADE.get(plan.candidate.env)
    test = f"{env} image inspect {plan.image} > /dev/null"
    if made is not None:
        path, note = (shlex.quote(str(plan.folder / name)) for name in (made, BUILT))
        test = f"test -e {path} && grep -qxF {shlex.quote(plan.build)} {note}"
    says = f"{env} is not built with {plan.stack.name}: run {plan.folder / BUILD} first"
    return f"{test} || {{ echo {shlex.quote(says)} >&2; exit 1; }}"


# Environments whose containers Slurm itself starts: options of its srun.
STEPS: Mapping[str, str] = {
    "pyxis": '--container-image={folder}/job.sqsh --container-mounts="$PWD:$PWD" --container-workdir="$PWD"',
    "slurm_oci": "--container={folder}/bundle",
}
# How each environment starts a command in this folder, with the variables that are exported.
STARTS: Mapping[str, str] = {
    "host": 'env PATH={folder}/venv/bin:"$PATH"',
    "docker": 'docker {engine} --user "$(id -u):$(id -g)" {image}',
    "podman": "podman {engine} {image}",
    "apptainer": 'apptainer exec {gpus}--bind "$PWD" --pwd "$PWD" {folder}/job.sif',
    "charliecloud": 'ch-run --bind "$PWD:/mnt/0" --cd /mnt/0 {folder}/image --',
    **STEPS,
}
# Options that give each environment a GPU. Charliecloud's and the OCI bundle's are not written.
GPUS: Mapping[str, str] = {
    "host": "",
    "docker": "--gpus all ",
    "podman": "--device nvidia.com/gpu=all ",
    "apptainer": "--nv ",
    "pyxis": "",
}
# What the build script makes last in the folder; an image of the others is in their engine.
MADE: Mapping[str, str] = {
    "host": "venv/bin/python3",
    "apptainer": "job.sif",
    "charliecloud": "image",
    "pyxis": "job.sqsh",
    "slurm_oci": BUNDLE,
}
# What a job of `slurm_oci` does before: its bundle has the folder of the job.
MOUNT = """{{"destination":"'"$PWD"'","type":"bind","source":"'"$PWD"'","options":["rbind","rw"]}},"""
WITH_FOLDER = f"sed 's|\"mounts\": \\[|&{MOUNT}|' {{folder}}/{BUNDLE} > {{folder}}/bundle/config.json"


def script(plan: Plan, kind: str) -> str:
    """A job script: `slurm`, `pbs` or `shell`; pure."""
    candidate = plan.candidate
    names: list[str] = []
    exports: list[str] = []
    for words, variables in settings_of(plan):
        exports.append(f"# {words}")
        exports += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        names += variables
    command = f"{_start(plan, names)} {shlex.join(plan.request.command)}"
    before = [WITH_FOLDER.format(folder=shlex.quote(str(plan.folder)))] if candidate.env == "slurm_oci" else []
    if kind == "slurm":
        # Since Slurm 22.05 a step does not inherit the CPUs of its job.
        command = f"srun --ntasks=1 --cpus-per-task={candidate.threads} {command}"
    return _lines(
        "#!/bin/sh",
        *_asked(plan, kind),
        *_about(plan),
        "set -eu",
        'cd "${SLURM_SUBMIT_DIR:-${PBS_O_WORKDIR:-$PWD}}"',
        _guard(plan),
        *exports,
        *before,
        "started=$(date +%s.%N)",
        "status=0",
        f"{command} || status=$?",
        f'echo "$started $(date +%s.%N) $status" >> {shlex.quote(str(plan.folder / ELAPSED))}',
        "exit $status",
    )


def _about(plan: Plan) -> Iterator[str]:
    """What is known of the candidate, as comments."""
    first = f"# {plan.candidate.name}: predicted {plan.predicted} on {plan.processor}"
    if plan.searched is not None:
        yield f"{first}."
        yield f"# {plan.searched.says}."
    else:
        yield f"{first},"
        yield "# without loading the data and building the model."


def _asked(plan: Plan, kind: str) -> Iterator[str]:
    """What a scheduler is asked for."""
    request, threads = plan.request, plan.candidate.threads
    if kind == "slurm":
        yield f"#SBATCH --job-name={request.name or request.workload}"
        yield f"#SBATCH --ntasks=1 --cpus-per-task={threads}"
        if plan.device == "cuda":
            yield "#SBATCH --gres=gpu:1"
        yield f"#SBATCH --time={plan.minutes}"
        if request.memory_bytes is not None:
            yield f"#SBATCH --mem={math.ceil(request.memory_bytes / GIB * 1024)}M"
        if request.queue:
            yield f"#SBATCH --partition={request.queue}"
        if request.account:
            yield f"#SBATCH --account={request.account}"
    if kind == "pbs":
        gpus = ":gpus=1" if plan.device == "cuda" else ""
        yield f"#PBS -N {request.name or request.workload}"
        yield f"#PBS -l nodes=1:ppn={threads}{gpus},walltime={plan.minutes // 60:02}:{plan.minutes % 60:02}:00"
        if request.memory_bytes is not None:
            yield f"#PBS -l mem={math.ceil(request.memory_bytes / GIB * 1024)}mb"
        if request.queue:
            yield f"#PBS -q {request.queue}"
        if request.account:
            yield f"#PBS -A {request.account}"


def settings_of(plan: Plan) -> Iterator[tuple[str, dict[str, str]]]:
    """Each setting of the candidate: what it is predicted to gain, and the variables that make it."""
    candidate = plan.candidate
    threads = dict.fromkeys(THREAD_VARIABLES, str(candidate.threads))
    yield f"{candidate.threads} threads: {_gain(plan, 'threads')}.", threads
    for factor, level in candidate.settings:
        variables = variables_of(factor, level, candidate.stack)
        how = "" if variables else f" The program has to set it: {IN_THE_PROGRAM[factor, level]}."
        yield f"{factor}={level}: {_gain(plan, factor)}.{how}", variables


def _gain(plan: Plan, factor: str) -> str:
    """Its time next to that of the fastest candidate that differs in this setting alone, predicted or measured."""
    choice, own = plan.choice, plan.candidate
    kind, how = "predicted", "{:.3g} s predicted, {:.3g} s with {}"
    known = {row.candidate: row.elapsed.seconds for row in choice.ranked} | {own: plan.row.elapsed.seconds}
    if plan.searched is not None:
        kind, how = "measured", "{:.3f} of the default's time measured, {:.3f} with {}"
        default, best = plan.searched.fresh[0], plan.searched.fresh[-1]
        ratios = {one.name: one.ratio for one in plan.searched.tried if one.ratio is not None}
        ratios |= {default.name: 1.0, best.name: best.ratio}
        known = {one: ratios[one.name] for one in choice.candidates if one.name in ratios}
    others = []
    for other, value in known.items():
        mine, levels = _levels(own), _levels(other)
        if {name for name in {*mine, *levels} if mine.get(name) != levels.get(name)} == {factor}:
            others.append((value, levels.get(factor, "the default")))
    return how.format(known[own], *min(others)) if others else f"no other level was {kind}"


def _levels(candidate: Candidate) -> dict[str, str]:
    return {
        "environment": candidate.env,
        "stack": candidate.stack,
        "batch": str(candidate.batch),
        "threads": str(candidate.threads),
        **dict(candidate.settings),
    }


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


# --- submission


def _kinds(plan: Plan) -> Sequence[str]:
    """The schedulers that can start the environment."""
    return ("slurm",) if plan.candidate.env in STEPS else tuple(SCRIPTS)


def submit(plan: Plan, kind: str) -> str:
    """Give a job to its scheduler, and wait for its end but in PBS; what became of it.

    Slurm is asked first whether it would take the job. Raises UserError: its containers need Slurm.
    UnavailableError: the environment is not built, the scheduler is not installed or refuses, or the job failed.
    """
    if kind not in _kinds(plan):
        raise UserError(f"Slurm starts the containers of {plan.candidate.env}: give --submit slurm")
    if not _is_built(plan, kind):
        raise UnavailableError(
            f"{plan.candidate.env} is not built with {plan.stack.name} for the job",
            f"sh {shlex.quote(str(plan.folder / BUILD))}",
        )
    path, times = str(plan.folder / SCRIPTS[kind]), plan.folder / ELAPSED
    if kind == "slurm":
        _call(["sbatch", "--test-only", path], "Slurm refuses the job", ANSWER_S)
    if kind == "pbs":
        said = _call(["qsub", path], "PBS refuses the job", ANSWER_S)
        return f"submitted as {said}; {times} will have when it began and ended, and its status"
    before = len(_took(times))
    if kind == "shell":
        output = plan.folder / OUTPUT
        if not run(["sh", path], timeout_s=LONGEST_S, output_path=output).ok:
            raise UnavailableError(f"the job failed: {output} has what it said")
    else:
        run_in_slurm([path])
    rows = _took(times)
    if len(rows) == before:
        raise UnavailableError(f"the job ended without a line in {times}")
    low, high = plan.row.elapsed.low, plan.row.elapsed.high
    if low is None or high is None:
        return f"it took {rows[-1]:.3g} s; predicted: {plan.predicted}"
    where = "inside" if low <= rows[-1] <= high else "outside"
    return f"it took {rows[-1]:.3g} s, {where} the predicted interval: {plan.predicted}"


def _is_built(plan: Plan, kind: str) -> bool:
    """Whether the environment is there, as far as that can be seen here: another node has its own images."""
    env, note = plan.candidate.env, plan.folder / BUILT
    if env in MADE:
        is_there = (plan.folder / MADE[env]).exists() and note.exists()
        return is_there and note.read_text(encoding="utf-8").strip() == plan.build
    return kind != "shell" or run([env, "image", "inspect", plan.image], timeout_s=ANSWER_S).ok


def run_in_slurm(words: Sequence[str]) -> None:
    """Submit a job, by the words of `sbatch`, and wait for its end.

    Raises UnavailableError: it failed, or Slurm will never start it.
    """
    job = _call(["sbatch", "--parsable", *words], "Slurm refuses the job", ANSWER_S).partition(";")[0]
    while True:
        state, _, reason = _state(job).partition(" ")
        if state == "PENDING" and reason in NEVER:
            _call(["scancel", job], "the job could not be cancelled", ANSWER_S)
            raise UnavailableError(f"Slurm would never start the job ({reason}), so it was cancelled")
        if state in ("", "COMPLETED"):
            return
        if state not in UNDER_WAY:
            raise UnavailableError(f"the job failed: {state}; slurm-{job}.out has what it said")
        time.sleep(LOOK_S)


def _state(job: str) -> str:
    """State and reason of a job in Slurm; empty where it is not known any more.

    Raises UnavailableError: Slurm does not answer for PATIENCE_S.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T %r"], timeout_s=ANSWER_S)
        if found.ok:
            return (found.stdout.strip().splitlines() or [""])[-1]
        if FORGOTTEN in found.stderr:
            return ""
        if time.monotonic() > deadline:
            raise UnavailableError(f"Slurm does not say what became of its job {job}: {found.explain()}")
        time.sleep(LOOK_S)


def _took(path: Path) -> list[float]:
    """Seconds of each job that a script noted."""
    if not path.exists():
        return []
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [float(row[1]) - float(row[0]) for row in rows if len(row) == len(("began", "ended", "status"))]


def _call(argv: Sequence[str], otherwise: str, timeout_s: float) -> str:
    """What a command says last. Raises UnavailableError: it is not installed, or failed, which is `otherwise`."""
    found = run(argv, timeout_s=timeout_s)
    if not found.ok:
        raise UnavailableError(f"{otherwise}: {found.explain()}")
    return (found.stdout.strip().splitlines() or [""])[-1]
