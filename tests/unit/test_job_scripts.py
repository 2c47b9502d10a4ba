"""`tare optimise --write` and `--submit`: recipes and job scripts of a chosen candidate."""

import dataclasses
import json
import shlex
import subprocess

import pytest
from job_plans import COMMAND, plan, ranked, with_venv

from tare.core.errors import UnavailableError, UserError
from tare.launch import by_hand
from tare.model.studies.stacks import load_stack, read_lock
from tare.predict import jobs
from tare.predict.checked import Checked
from tare.predict.choose import Excluded
from tare.predict.requests import FACTORS
from tare.predict.search import Searched, Tried


@pytest.mark.parametrize("env", jobs.STARTS)
def test_every_script_is_read_by_a_shell_and_starts_the_command_in_its_environment(tmp_path, env):
    made = plan(tmp_path, ranked(10.0, env))
    paths = jobs.write_files(made)
    of_others = () if env in jobs.STEPS else ("job.sh", "job.pbs")
    assert {path.name for path in paths} == {
        *("Dockerfile", "apptainer.def", "build.sh", "requirements.txt", "job.sbatch", *of_others),
    }
    programs = {"host": "env", "charliecloud": "ch-run", "pyxis": "srun", "slurm_oci": "srun"}
    program = programs.get(env, env)
    for path in paths:
        if path.name.startswith(("job", "build")):
            subprocess.run(["sh", "-n", path], check=True)
        if path.name.startswith("job"):
            line = next(line for line in path.read_text().splitlines() if line.endswith("|| status=$?"))
            words = shlex.split(line)
            assert program in words and list(COMMAND) == words[-len(COMMAND) - 2 : -2]
            assert (words[0] == "srun") == (path.name == "job.sbatch")
            if env in ("docker", "podman"):
                passed = {words[place + 1] for place, word in enumerate(words) if word == "--env"}
                assert passed == {*by_hand.THREAD_VARIABLES}
    assert program in (made.folder / "build.sh").read_text() or env in programs


def test_slurm_starts_its_own_containers_with_the_folder_of_the_job(tmp_path):
    made = plan(tmp_path, ranked(10.0, "pyxis"))
    text = jobs.script(made, "slurm")
    assert f"--container-image='{made.folder}'/job.sqsh --container-mounts=\"$PWD:$PWD\"" in text
    with pytest.raises(UserError, match="Slurm starts the containers of pyxis: give --submit slurm"):
        jobs.submit(made, "shell")
    made = plan(tmp_path, ranked(10.0, "slurm_oci"))
    jobs.write_files(made)
    (made.folder / "bundle").mkdir()
    (made.folder / jobs.BUILT).write_text(f"{made.build}\n")
    (made.folder / jobs.BUNDLE).write_text('{"mounts": [{"destination":"/proc"}]}')
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    paths = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": str(tmp_path)}
    said = subprocess.run(["sh", made.folder / "job.sbatch"], env=paths, check=True, capture_output=True, text=True)
    assert f"--container={made.folder}/bundle" in said.stdout
    mounts = json.loads((made.folder / "bundle/config.json").read_text())["mounts"]
    own = {"destination": str(tmp_path), "type": "bind", "source": str(tmp_path), "options": ["rbind", "rw"]}
    assert mounts == [own, {"destination": "/proc"}]


def test_what_a_search_found_says_what_it_measured_and_what_each_setting_gains(tmp_path):
    layout = (("layout", "channels-last"),)
    best, plain = ranked(9.0, half=None, settings=layout), ranked(10.0)
    single = ranked(16.0, threads=1, settings=layout)
    tried = [
        Tried(name=row.candidate.name, predicted_s=None, ratio=ratio, reason=None)
        for row, ratio in ((best, 0.88), (single, 1.6))
    ]
    fresh = [
        Checked(
            name=row.candidate.name,
            predicted=None,
            measured_s=row.elapsed.seconds,
            rest_s=0.0,
            ratio=ratio,
            low=ratio,
            high=ratio,
            rounds=6,
        )
        for row, ratio in ((plain, 1.0), (best, 0.9))
    ]
    searched = Searched(
        outcome="better", says="faster: ratio 0.900", best=best.candidate.name, space=3, left=1, tried=tuple(tried),
        fresh=tuple(fresh), looks=1, level=0.95, minutes=9.0, at="now",
    )  # fmt: skip
    made = dataclasses.replace(plan(tmp_path, plain, [single]), row=best, searched=searched)
    excluded = (Excluded(candidate=best.candidate, reason="never timed", measurable=True),)
    made = dataclasses.replace(made, choice=dataclasses.replace(made.choice, excluded=excluded))
    text = jobs.script(made, "shell")
    assert "predicted 9 s, by the steps that a search measured on P.\n# faster: ratio 0.900.\n" in text
    assert "# 2 threads: 0.900 of the default's time measured, 1.600 with 1.\n" in text
    gains = "0.900 of the default's time measured, 1.000 with the default"
    assert f"# layout=channels-last: {gains}. The program has to set it" in text


def test_the_locked_packages_of_the_stack_are_installed(tmp_path):
    made = plan(tmp_path)
    jobs.write_files(made)
    assert read_lock(made.folder / "requirements.txt") == load_stack("torch-2.13").requirements
    for name, folder in (
        ("Dockerfile", "/tmp"),
        ("apptainer.def", "/opt"),
    ):  # Apptainer's build has the host's /tmp
        text = (made.folder / name).read_text()
        assert "python:3.11-slim" in text and f"--require-hashes --requirement {folder}/requirements.txt" in text
    official = load_stack("tensorflow-2.1-official")
    for text in (jobs.dockerfile(official), jobs.definition(official)):
        assert f"tensorflow/tensorflow:{official.official.tag}" in text and "pip" not in text
    assert "compiled for the processor" in jobs.dockerfile(load_stack("torch-2.13-openblas"))


def test_each_setting_says_what_it_gains_and_a_setting_of_the_program_how_it_is_made(tmp_path):
    settings = (("allocator", "steady"), ("isa", "avx2"), ("layout", "channels-last"))
    row = ranked(10.0, settings=settings)
    others = [
        ranked(14.0, threads=1, settings=settings),
        ranked(12.5, settings=settings[1:]),
        ranked(9.0, threads=1),
        ranked(11.0, settings=(("allocator", "huge"), *settings[1:])),
    ]
    text = jobs.script(plan(tmp_path, row, others), "shell")
    assert "# 2 threads: 10 s predicted, 14 s with 1.\nexport OMP_NUM_THREADS=2\n" in text
    assert "# allocator=steady: 10 s predicted, 11 s with huge.\nexport MALLOC_MMAP_THRESHOLD_=" in text
    assert "# isa=avx2: no other level was predicted.\nexport ONEDNN_MAX_CPU_ISA=AVX2\n" in text
    assert "# layout=channels-last: no other level was predicted. The program has to set it: model.to(" in text


def test_a_scheduler_is_asked_for_what_the_job_takes(tmp_path):
    made = plan(tmp_path, ranked(600.0, half=60.0), memory_bytes=2 << 30, name="j", queue="q", account="a")
    slurm, torque = (jobs.script(made, kind) for kind in ("slurm", "pbs"))
    assert made.minutes == 5 + 17  # half as much again as 11 minutes, and five
    for line in ("--job-name=j", "--ntasks=1 --cpus-per-task=2", "--time=22", "--mem=2048M", "--partition=q"):
        assert f"#SBATCH {line}\n" in slurm
    for line in ("-N j", "-l nodes=1:ppn=2,walltime=00:22:00", "-l mem=2048mb", "-q q", "-A a"):
        assert f"#PBS {line}\n" in torque
    assert "--account=a" in slurm and "--mem" not in jobs.script(plan(tmp_path), "slurm")
    assert plan(tmp_path, limit_s=90.0).minutes == 2 and plan(tmp_path, ranked(60.0, half=None)).minutes == 5 + 3


@pytest.mark.parametrize(
    ("row", "request_of", "says"),
    [
        (None, {"command": ()}, "the request has no command"),
        (ranked(1.0, "vm"), {}, "a job script can't start vm: choose a candidate in one of host, docker,"),
    ],
)
def test_what_no_script_can_run_is_refused_in_one_line(tmp_path, row, request_of, says):
    with pytest.raises(UserError, match=says):
        jobs.write_files(plan(tmp_path, row, **request_of))
    assert not (tmp_path / "a folder").exists()


def test_what_is_not_built_is_refused_and_ends_the_script(tmp_path):
    for env in jobs.STARTS:
        made = plan(tmp_path, ranked(10.0, env))
        jobs.write_files(made)
        (guard,) = (line for line in jobs.script(made, "slurm").splitlines() if "is not built" in line)
        if env in jobs.MADE:
            with pytest.raises(
                UnavailableError,
                match=rf"^{env} is not built with torch-2.13 for the job \(to fix it: sh .*build\.sh",
            ):
                jobs.submit(made, "slurm")
            (made.folder / jobs.MADE[env]).parent.mkdir(parents=True, exist_ok=True)
            (made.folder / jobs.MADE[env]).touch()
            build = jobs.build_script(made, made.stack).splitlines()
            for noted, is_built in ((f"{env} of another stack", False), (build[-1].split("'")[1], True)):
                (made.folder / jobs.BUILT).write_text(f"{noted}\n")
                assert jobs._is_built(made, "slurm") == is_built
                assert (subprocess.run(["sh", "-c", guard], capture_output=True).returncode == 0) == is_built
            assert any(line.startswith("rm -rf") and line.endswith(jobs.BUILT) for line in build)
            (made.folder / jobs.MADE[env]).unlink()
        ended = subprocess.run(
            ["sh", "-c", guard], env={"PATH": "/nowhere"}, executable="/bin/sh", capture_output=True
        )
        assert ended.returncode == 1 and f"run {made.folder}/build.sh first" in ended.stderr.decode()
    with pytest.raises(UnavailableError, match="host is not built with torch"):
        jobs.submit(plan(tmp_path), "shell")


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_an_image_is_looked_for_where_the_job_runs(tmp_path, monkeypatch, engine):
    made = plan(tmp_path, ranked(10.0, engine))
    (tmp_path / engine).write_text(f'#!/bin/sh\n[ "$*" = "image inspect {made.image}" ]\n')
    (tmp_path / engine).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert jobs._is_built(made, "shell")
    other = dataclasses.replace(made, row=ranked(10.0, engine, stack="torch-1.4"))
    assert not jobs._is_built(other, "shell") and jobs._is_built(other, "slurm"), "a node has its own images"
    with pytest.raises(UnavailableError, match=f"{engine} is not built with torch-1.4 for the job"):
        jobs.submit(other, "shell")


def test_an_image_has_a_tag_by_what_it_is_made_of(tmp_path):
    one, other = (plan(tmp_path, ranked(10.0, "docker", stack=stack)) for stack in ("torch-2.13", "torch-1.4"))
    assert one.image != other.image and one.image.startswith("tare-job:")
    assert plan(tmp_path, ranked(3.0, "podman", threads=1)).image == one.image
    for made in (one, other):
        assert f"docker build --tag {made.image} ." in jobs.build_script(made, made.stack)
        assert f" {made.image} python3 train.py" in jobs.script(made, "shell")


@pytest.mark.parametrize("env", jobs.GPUS)
def test_a_job_on_a_gpu_asks_for_it_and_gives_it_to_the_environment(tmp_path, env):
    made = dataclasses.replace(plan(tmp_path, ranked(10.0, env)), device="cuda")
    options = {"docker": "--gpus all", "podman": "--device nvidia.com/gpu=all", "apptainer": "exec --nv"}
    assert "#SBATCH --gres=gpu:1\n" in jobs.script(made, "slurm")
    assert options.get(env, "") in jobs.script(made, "slurm")
    assert "#PBS -l nodes=1:ppn=2:gpus=1,walltime" in jobs.script(made, "pbs")
    jobs.write_files(made)
    assert read_lock(made.folder / "requirements.txt") == load_stack("torch-2.13", "cuda").requirements
    assert "ENV NVIDIA_VISIBLE_DEVICES=all" in (made.folder / "Dockerfile").read_text()
    plain = plan(tmp_path, ranked(10.0, env))
    for text in (jobs.script(plain, "slurm"), jobs.script(plain, "pbs"), jobs.dockerfile(plain.stack)):
        assert not any(word in text for word in ("gpus", "gres", "--nv", "nvidia", "NVIDIA"))


def test_an_environment_without_a_way_to_a_gpu_is_refused_on_one(tmp_path):
    made = dataclasses.replace(plan(tmp_path, ranked(10.0, "charliecloud")), device="cuda")
    with pytest.raises(UserError, match="a job script can't give charliecloud a GPU: choose a candidate in one of"):
        jobs.write_files(made)


def test_a_job_is_run_and_its_time_is_held_against_the_prediction(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import os, time\ntime.sleep(0.3)\nprint(os.environ['OMP_NUM_THREADS'])\n")
    made = with_venv(plan(tmp_path, ranked(1.0, half=0.99), command=("python3", "train.py")))
    jobs.write_files(made)
    assert "inside the predicted interval: 1 s (90% interval: 0.01 s to 1.99 s)" in jobs.submit(made, "shell")
    assert (made.folder / jobs.OUTPUT).read_text() == "2\n"
    late = dataclasses.replace(made, row=ranked(0.1, half=0.05))
    jobs.write_files(late)
    assert "outside the predicted interval" in jobs.submit(late, "shell")
    unknown = dataclasses.replace(made, row=ranked(1.0, half=None))
    assert jobs.submit(unknown, "shell").endswith("predicted: 1 s, without an interval")
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(UnavailableError, match=r"the job failed: .*output\.txt has what it said"):
        jobs.submit(made, "shell")
    assert (made.folder / jobs.ELAPSED).read_text().splitlines()[-1].endswith(" 3")


def test_every_setting_is_a_variable_or_says_what_the_program_has_to_do():
    for stack in ("torch-2.13", "tensorflow-2.21"):
        for factor, levels in FACTORS.items():
            for level in levels[1:]:
                assert by_hand.variables_of(factor, level, stack) or (factor, level) in by_hand.IN_THE_PROGRAM


SLURM = {
    "sbatch": 'case $1 in --parsable) echo "7;cluster" ;; esac',
    "squeue": "echo >> {folder}/asked\n"
    "[ $(wc -l < {folder}/asked) -gt 2 ] || {{ echo 'error: Unable to contact' >&2; exit 1; }}\n{says}",
}


@pytest.mark.parametrize(
    "says", ["echo COMPLETED None", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"]
)
def test_a_job_in_slurm_is_waited_for_while_the_controller_restarts(tmp_path, monkeypatch, says):
    made = with_venv(plan(tmp_path))
    jobs.write_files(made)
    for name, text in SLURM.items():
        (tmp_path / name).write_text("#!/bin/sh\n" + text.format(folder=tmp_path, says=says))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(jobs, "LOOK_S", 0.01)
    with pytest.raises(UnavailableError, match="the job ended without a line in"):
        jobs.submit(made, "slurm")
    assert (tmp_path / "asked").read_text().count("\n") == 3
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.0)
    (tmp_path / "asked").unlink()
    with pytest.raises(UnavailableError, match=r"Slurm does not say what became of its job 7: .*Unable to contact"):
        jobs.submit(made, "slurm")


def test_a_scheduler_that_is_missing_or_refuses_is_one_line(tmp_path, monkeypatch):
    made = with_venv(plan(tmp_path))
    jobs.write_files(made)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="sbatch"):
        jobs.submit(made, "slurm")
    (tmp_path / "qsub").write_text("#!/bin/sh\necho no such queue >&2\nexit 1\n")
    (tmp_path / "qsub").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UnavailableError, match=r"PBS refuses the job: .*no such queue"):
        jobs.submit(made, "pbs")
    (tmp_path / "qsub").write_text("#!/bin/sh\necho 7.server\n")
    assert jobs.submit(made, "pbs").startswith("submitted as 7.server; ")
