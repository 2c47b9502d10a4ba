"""Two jobs on one machine: the study's key, limits, the co-runner's own loop, slow-downs and their verdicts."""

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import asked
import campaign_builders as builders
import inside_code
import pandas as pd
import pytest

from tare.analysis import choice, extract, metrics
from tare.analysis.plans import expected
from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root
from tare.experiments import co_runner
from tare.experiments.designs import Setup
from tare.launch import limits
from tare.launch.channel import Conversation
from tare.launch.limits import Share
from tare.launch.place import Site
from tare.launch.run import Order
from tare.launch.scenarios import shared
from tare.literature import claims, measured_here
from tare.literature.contrasts import At, paired, to_alone, to_host
from tare.literature.published import load
from tare.machine import contention
from tare.model import closure, tables
from tare.model.environment import Quota
from tare.model.journals.units import GIVE_UP_AFTER
from tare.model.levels import levels_text
from tare.model.records.campaigns import Unit
from tare.model.records.launches import CONTENTION, Clock
from tare.model.registry import HOST, scenario_names
from tare.model.roles import CONTROL, alone_of, read_role
from tare.model.schema import parse
from tare.model.studies import arms, campaigns, checks, layout, loading, study
from tare.report import figures
from tare.report.number_tables import interval_text
from tare.report.words.labels import env_title, workload_title
from tare.worker.co_runner import PROTOCOL

ANSWER_S = 60.0


# --- the study's key


@pytest.fixture
def config():
    whole = loading.load(project_root() / "config/config.yaml")
    own = {"workload": "mnist_cnn", "batch": 64, "small_batch": 8, "limits": ["cpuset", "quota"]}
    return {**whole, "scenarios": ["single", "shared"], "shared": own, "stacks": []}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shared": None}, "config: shared is missing: the scenario shared needs a co-runner"),
        ({"shared": {"workload": "alexnett"}}, "config: shared: workload: no module workloads/alexnett.py"),
        ({"shared": {"batch": 600}}, "config: shared: batch 600 is larger than its 512 samples"),
        ({"shared": {"batch": 0}}, "shared: batch: 0 must be at least 1"),
        ({"shared": {"small_batch": 64}}, "config: shared: small_batch: 64 is not smaller than batch, 64"),
        ({"shared": {"limits": ["cpusets"]}}, "did you mean 'cpuset'"),
        ({"shared": {"environments": ["host", "podman"]}}, "shared: environments: podman is none of the study's"),
        ({"shared": {"environments": ["docker"]}}, "host is missing"),
        ({"shared": {"workloads": ["mnist_cn"]}}, "shared: workloads: mnist_cn is none of the study's workloads"),
        ({"shared": {"arm_workloads": ["alexnet"]}}, "shared: arm_workloads: alexnet is none of the study's"),
        ({"shared": {"options": {"image_px": 64}}}, "config: shared: options: image_px: mnist_cnn has no options"),
        ({"shared": {"units": 0}}, "shared: units: 0 must be at least 1"),
        ({"shared": {"threads": 3}}, "config: shared: threads: 3 is more than conditions: cpus, 2"),
        ({"conditions": {"cpus": 1}}, "config: shared: limits: cpuset needs two CPUs or more"),
        ({"arms": {"rounds": ["limits=quota"]}}, "limits=quota is of two jobs on one machine"),
    ],
)
def test_what_is_wrong_with_a_co_runner_is_one_line(config, change, says):
    with pytest.raises(UserError) as told:
        checks.check(loading.merge(config, change))
    assert says in str(told.value) and "\n" not in str(told.value)


def test_a_co_runner_is_not_used_where_the_scenario_is_not_named(config):
    alone = checks.check(loading.merge(config, {"scenarios": ["single"]}))
    assert alone.shared is None and {one.scenario for one in campaigns.campaigns(alone)} == {"single"}
    assert checks.check(alone.to_json()) == alone


def test_a_study_has_a_campaign_of_each_workload_and_of_what_is_varied(config):
    checked = checks.check(
        loading.merge(config, {"shared": {"arm_workloads": ["mnist_cnn"], "environments": ["host"]}})
    )
    found = [one for one in campaigns.campaigns(checked) if one.scenario == "shared"]
    assert [(one.workload, one.name) for one in found] == [
        ("mnist_cnn", "rounds.host.shared"),
        ("mnist_cnn", "rounds.host.co_runner_load-small.shared"),
        ("mnist_cnn", "rounds.host.limits-cpuset.shared"),
        ("mnist_cnn", "rounds.host.limits-quota.shared"),
        ("sentiment_rnn", "rounds.host.shared"),
    ]
    assert [layout.arm_of(one.name) for one in found[:2]] == [None, arms.parse("co_runner_load=small")]
    few, many = (checks.check(loading.merge(config, {"shared": {"units": units}})) for units in (3, 6))
    for one in (one for one in campaigns.campaigns(few) if one.scenario == "shared"):
        assert 0 < expected.campaign_s(few, one) < expected.campaign_s(many, one)


def test_the_co_runner_reaches_its_own_campaigns_and_no_other(config):
    checked = checks.check(config)
    alone = json.loads(study.part_of(checked, "rounds", "mnist_cnn"))
    assert "shared" not in alone
    first = json.loads(study.part_of(checked, "rounds", "mnist_cnn", None, "shared"))
    assert first["shared"] == {"workload": "mnist_cnn", "batch": 64}
    small = json.loads(study.part_of(checked, "rounds", "mnist_cnn", arms.parse("co_runner_load=small"), "shared"))
    assert small["shared"]["small_batch"] == 8
    part = {key: value for key, value in first.items() if key != study.PART}
    assert study.reduced(part, "rounds", "mnist_cnn", None, "shared") == part, "of a part, the same again"


def test_the_threads_of_a_co_runner_reach_it_and_not_the_launch(config, launched):
    site = Site(environment=Adapter(), python="", reference=None, data=None)
    for own, wanted in (({}, None), ({"threads": 2}, 2)):
        checked = checks.check(loading.merge(config, {"shared": own}))
        part = json.loads(study.part_of(checked, "rounds", "mnist_cnn", None, "shared"))
        own = loading.load_part(study.RoundsPart, json.dumps({**part, "device": "cpu"}))
        setup = Setup(study=own, workload="mnist_cnn", sites={HOST: site}, scenario="shared")
        design = co_runner.rounds_with_co_runner(setup)
        assert design.plan.conditions.threads == 1 and design.plan.part["shared"].get("threads") == wanted
        assert "shared" not in json.loads(study.part_of(checked, "rounds", "mnist_cnn")), (
            "no plan of one job knows it"
        )
        order = replace(order_of(Adapter()), conditions=asked.conditions(cpus=2))
        launched.co_runner(lambda record: None)
        shared.launch_member("host", order, asked.spec(), "none", threads=wanted)
        assert launched.seen[-1][1].threads == 1 and launched.threads[-1] == wanted


@pytest.fixture
def rounds_with_co_runner(config, monkeypatch):
    """A design's plan and rounds, by its arm; `asked` has what is launched beside a co-runner, by name."""
    site, asked = Site(environment=Adapter(), python="", reference=None, data=None), {}

    def member(name, order, spec, limit, threads):
        asked[name] = (order.pad_bytes, spec.batch, limit, threads)
        return shared.LaunchRecord(status="ok", reason=None)

    def alone(plan, sites, done, order, pads):
        return {"alone": order}

    monkeypatch.setattr(co_runner, "launch_member", member)
    monkeypatch.setattr(co_runner, "one_after_other", alone)
    checked = checks.check(loading.merge(config, {"shared": {"threads": 2}}))

    def design(arm=None):
        arm = arm and arms.parse(arm)
        part = json.loads(study.part_of(checked, "rounds", "mnist_cnn", arm, "shared"))
        sites = dict.fromkeys(arms.launch_names(arm, [HOST, "docker"], "shared"), site)
        own = loading.load_part(study.RoundsPart, json.dumps({**part, "device": "cpu"}))
        made = co_runner.rounds_with_co_runner(
            Setup(study=own, workload="mnist_cnn", sites=sites, arm=arm, scenario="shared")
        )
        plan = made.plan.replace(discarded=1)
        return plan.replace(conditions=plan.conditions.replace(page_cache="warm")), made.run_unit

    return design, asked


def a_round(names, voided=None, **reasons):
    """A round that was measured; launches in `reasons` have failed."""
    launches = {
        name: shared.LaunchRecord(status="failed" if name in reasons else "ok", reason=reasons.get(name))
        for name in names
    }
    return Unit(unit=0, discarded=False, voided=voided, cost_s=1.0, order=tuple(names), launches=launches)


@pytest.mark.parametrize(
    ("arm", "batch", "limit"),
    [(None, 64, "none"), ("co_runner_load=small", 8, "none"), ("limits=quota", 64, "quota")],
)
def test_a_round_launches_all_of_them_with_the_arms_co_runner_and_limit(rounds_with_co_runner, arm, batch, limit):
    design, asked = rounds_with_co_runner
    plan, run_unit = design(arm)
    row = run_unit(plan, 1, [a_round(plan.launch_names)])
    assert sorted(row["order"]) == sorted(plan.launch_names) == sorted(asked) and len(asked) == 6
    assert list(row["launches"]) == row["order"] and set(row["pages"]) == set(asked)
    assert {told[1:] for told in asked.values()} == {(batch, limit, 2)}
    assert len({told[0] for told in asked.values()}) > 1, "each has a pad of its own"


def test_a_co_runner_is_small_in_rounds_of_a_small_one_where_the_study_has_its_batch(config):
    part = study.part_of(checks.check(config), "rounds", "mnist_cnn", arms.parse("co_runner_load=small"), "shared")
    own = loading.load_part(study.RoundsPart, json.dumps({**json.loads(part), "device": "cpu"}))
    assert [co_runner.co_runner_spec(own, small=small).batch for small in (False, True)] == [64, 8]
    own = own.replace(shared=own.shared.replace(small_batch=None))
    assert co_runner.co_runner_spec(own, small=True).batch == 64


def test_rounds_that_only_warm_the_page_cache_have_no_co_runner(rounds_with_co_runner):
    design, asked = rounds_with_co_runner
    plan, run_unit = design()
    for done in ([], [a_round(plan.launch_names, voided="it did not stop")]):
        names = run_unit(plan, len(done), done)["alone"]
        assert sorted(names) == sorted(name for name in plan.launch_names if read_role(name).is_alone)
    assert not asked
    as_found = plan.replace(conditions=plan.conditions.replace(page_cache="as_found"))
    assert len(run_unit(as_found, 0, [])["launches"]) == len(asked) == 6


def test_a_launch_that_was_given_up_is_not_tried_beside_a_co_runner(rounds_with_co_runner):
    design, asked = rounds_with_co_runner
    plan, run_unit = design()
    row = run_unit(plan, 3, [a_round(plan.launch_names, docker="no such image")] * GIVE_UP_AFTER)
    assert row["launches"]["docker"].status == "skipped" and set(asked) == {*plan.launch_names} - {"docker"}


def test_the_programs_of_a_campaign_beside_a_co_runner_are_its_co_runners_too():
    plain = set(closure.measurement("rounds", "mnist_cnn", ["host"]))
    found = set(closure.measurement("rounds", "mnist_cnn", ["host"], scenario="shared", co_runner="alexnet"))
    own = {"tare/worker/co_runner.py", "workloads/alexnet.py", "tare/launch/scenarios/shared.py"}
    assert own <= found and not own & plain and "tare/experiments/co_runner.py" in found - plain


def test_the_smoke_preset_has_a_slice_of_every_scenario():
    smoke = loading.load_checked(project_root() / "config/smoke.yaml")
    assert {one.scenario for one in campaigns.campaigns(smoke)} == set(scenario_names())


def test_the_smoke_preset_has_a_slice_and_nthu2018_the_papers_co_runner():
    smoke, paper = (loading.load_checked(project_root() / f"config/{name}.yaml") for name in ("smoke", "nthu2018"))
    (one,) = [one for one in campaigns.campaigns(smoke) if one.scenario == "shared"]
    assert one.name == "rounds.host.shared" and smoke.shared.units == 1
    assert paper.shared.scaled("alexnet").startswith("batch 4 (published 512), image_px 64 (published 227)")
    names = {one.name for one in campaigns.campaigns(paper) if one.scenario == "shared"}
    assert names == {f"rounds.docker+host{arm}.shared" for arm in (
        "", ".co_runner_load-small", ".limits-cpuset", ".limits-quota",
    )}  # fmt: skip


# --- limits


def test_a_cpu_set_is_half_of_the_cpus_and_threads_are_no_more():
    with limits.shared_out("none", (0, 1)) as both:
        assert both == (limits.Share(cpus=(0, 1)), limits.Share(cpus=(0, 1)))
    with limits.shared_out("cpuset", (0, 1, 3)) as (own, other):
        assert (own.cpus, other.cpus) == ((0,), (1, 3))
    assert shared.at_share(asked.conditions(threads=2, cpus=3), own) == asked.conditions(cpus=3)
    assert limits.halves((0, 1, 2, 3)) == ((0, 1), (2, 3))
    assert limits.lacking("cpuset", (2,)) == "one CPU can't be divided between two jobs"


V1 = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0"


def test_groups_are_made_where_a_quota_of_either_version_can_be():
    own = "3:cpu,cpuacct:/user.slice\n0::/here"
    assert limits.cpu_hierarchy(V1, own) == (Path("/sys/fs/cgroup/cpu,cpuacct"), False)
    assert limits.cpu_hierarchy("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0", "0::/here") == (
        Path("/sys/fs/cgroup"),
        True,
    )
    with pytest.raises(UnavailableError, match="no control groups with the controller `cpu` are mounted"):
        limits.cpu_hierarchy("proc /proc proc rw 0 0", "")


def test_a_quota_of_version_one_is_below_our_own_group_where_that_is_seen(tmp_path):
    (tmp_path / "a:b").mkdir()
    others = "x /sys/fs/cgroup/memory cgroup rw,memory 0 0\nx /odd tmpfs rw,cpu 0 0\n"
    mounts = f"{others}x {tmp_path} cgroup rw,cpu 0 0"
    for own, folder in (("1:memory:/other\n3:cpu:/a:b", "a:b"), ("3:cpu:/gone", "."), ("1:memory:/a:b", ".")):
        assert limits.cpu_hierarchy(mounts, own) == (tmp_path / folder, False)


@pytest.mark.parametrize("is_v2", [True, False])
def test_a_quota_that_cant_be_set_is_lacking(tmp_path, is_v2):
    with pytest.raises(UnavailableError):
        limits._set_quota(tmp_path / "none", 1000, is_v2=is_v2)


@pytest.mark.parametrize(("empty_s", "sleeps"), [(0.0, 0), (0.03, 2), (9.0, 4)])
def test_a_group_is_removed_when_its_last_process_is_gone_or_left_in_the_end(
    tmp_path, monkeypatch, empty_s, sleeps
):
    now, slept = [10.0], []
    process = tmp_path / "group/process"
    process.parent.mkdir()

    def sleep(seconds):
        slept.append(seconds)
        now[0] = round(now[0] + seconds, 6)
        if now[0] - 10 >= empty_s:
            process.unlink()

    if empty_s:
        process.touch()
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(limits, "GONE_S", 0.06)
    limits._remove(process.parent)
    assert slept == [0.02] * sleeps and process.parent.exists() == (empty_s > 1)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A folder that stands for a hierarchy; `use` says of which version."""
    monkeypatch.setattr(limits, "OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(limits, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(limits, "GONE_S", 0.0)
    folder = tmp_path / "cgroups"
    folder.mkdir()
    (tmp_path / "own").write_text("1:cpu:/\n0::/")

    def use(kind):
        options = "rw,cpu" if kind == "cgroup" else "rw"
        (tmp_path / "mounts").write_text(f"x {folder} {kind} {options} 0 0\n")
        return folder

    return use


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("cgroup", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}),
        ("cgroup2", {"cpu.max": "150000 100000"}),
    ],
)
def test_each_job_has_half_of_the_time_by_a_group_of_its_own(groups, kind, files):
    folder = groups(kind)
    with limits.shared_out("quota", (0, 1, 2)) as (own, other):
        assert own.cpus == other.cpus == (0, 1, 2) and own.quota.group != other.quota.group
        for share in (own, other):
            assert share.quota.group.parent == folder and share.quota.quota_us == 150_000
            assert {path.name: path.read_text() for path in share.quota.group.iterdir()} == files
            for path in share.quota.group.iterdir():
                path.unlink()  # as the kernel's own files, which don't keep a group
    assert list(folder.iterdir()) == []


def test_without_the_right_to_make_groups_a_quota_is_lacking_in_one_line(groups, monkeypatch):
    folder = groups("cgroup")
    monkeypatch.setattr(Path, "mkdir", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    found = limits.lacking("quota", (0, 1))
    assert found == f"a quota of CPU time needs a control group in {folder}: Permission denied"


def test_a_group_is_gone_when_its_maker_is_killed(groups, tmp_path):
    folder = groups("cgroup2")
    script = (
        "import sys, time; from pathlib import Path; from tare.launch import limits\n"
        f"limits.MOUNTS, limits.OWN_CGROUP = Path({str(tmp_path / 'mounts')!r}), Path({str(tmp_path / 'own')!r})\n"
        "with limits.quota_group(1000) as group:\n"
        "    (group / 'cpu.max').unlink(); print('made', flush=True); time.sleep(60)\n"
    )
    maker = subprocess.Popen([sys.executable, "-c", script], cwd=project_root(), stdout=subprocess.PIPE)
    assert maker.stdout.readline() == b"made\n" and len(list(folder.iterdir())) == 1
    maker.kill()
    maker.wait()
    subprocess.run(["sh", "-c", f'for i in $(seq 100); do [ -z "$(ls {folder})" ] && exit; sleep 0.05; done'])
    assert list(folder.iterdir()) == []


# --- what the machine did


STAT = "cpu 9 9 9 9\ncpu0 {0} 0 50 1000 0 0 0 5 0 0\ncpu1 {0} 0 0 1000 0 0 0 0 0 0\ncpu2 7777 0 0 0 0 0 0 0\n"


def test_counts_are_differences_and_what_is_not_there_has_a_reason(tmp_path):
    (tmp_path / "pressure").mkdir()

    def now(busy, waited_us, pages):
        (tmp_path / "stat").write_text(STAT.format(busy))
        (tmp_path / "pressure/cpu").write_text(f"some avg10=0.00 total={waited_us}\nfull avg10=0.00 total=1\n")
        (tmp_path / "pressure/io").write_text("nothing of the kind\n")
        (tmp_path / "vmstat").write_text(f"pgpgin {pages}\npgpgout 4\npgmajfault {pages}\n")

    now(100, 1_000_000, 10)
    with contention.counted((0, 1), proc=tmp_path) as found:
        now(300, 3_500_000, 30)
    ticks = 100  # of every kernel in use
    assert found.values["machine_cpu_s"] == pytest.approx(400 / ticks) and found.values["machine_steal_s"] == 0
    assert found.values["cpu_wait_s"] == 2.5
    assert found.values["disk_read_bytes"] == 20 * 1024 and found.values["disk_written_bytes"] == 0
    assert found.values["major_faults"] == 20
    assert "No such file" in found.reasons["memory_wait_s"] and "no line `some`" in found.reasons["io_wait_s"]
    for name in ("cache_misses", "dram_bytes"):
        assert (name in found.values) != (name in found.reasons)
    assert {*found.values, *found.reasons} == set(CONTENTION) - {"throttled_s"}


def test_memory_controllers_are_asked_as_the_kernel_describes_them(tmp_path):
    for name, text in {
        "type": "23\n", "cpumask": "0,28\n", "format/event": "config:0-7\n", "format/umask": "config:8-15\n",
        "events/cas_count_read": "event=0x04,umask=0x03\n", "events/cas_count_write": "event=0x04,umask=0x0c\n",
        "events/cas_count_read.scale": "6.103515625e-5\n", "events/cas_count_write.scale": "6.103515625e-5\n",
        "events/cas_count_read.unit": "MiB\n", "events/cas_count_write.unit": "MiB\n",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert contention.dram_events(tmp_path) == [(23, 0x304, 0, 64.0), (23, 0xC04, 0, 64.0)]
    assert contention.dram_events(tmp_path / "events") == [], "another maker's"


# --- the co-runner


@pytest.fixture(scope="module")
def trains(tmp_path_factory):
    """A co-runner in NumPy whose steps take 10 ms."""
    folder = tmp_path_factory.mktemp("co_runner")
    files = {"workloads/slow_step.py": inside_code.SLOW_STEP.read_text()}
    code = inside_code.code_folder(folder / "code", files)
    variables = {"TARE_STEP_S": "0.01", "PATH": "/usr/bin:/bin"}
    return inside_code.Inside(code, folder / "launches", variables=variables)


@contextlib.contextmanager
def talking(inside, before=(), **spec):
    order = {"mode": "co_runner", "framework": "numpy", "workload": "slow_step", "batch": 4, **spec}
    talk = Conversation(
        [*before, *inside.prepare(order)],
        protocol=PROTOCOL,
        env=inside.variables,
        cwd=inside.own,
        errors_path=inside.own / "err",
    )
    try:
        yield talk
    finally:
        talk.kill()


def test_a_co_runner_trains_on_until_it_is_told_to_end(trains):
    with talking(trains) as talk:
        assert talk.hear("training", timeout_s=ANSWER_S) == {"steps": 2}
        assert not talk.has_ended()
        time.sleep(0.8)  # more than an epoch of 16 steps
        told = talk.ask("end", "ended", timeout_s=ANSWER_S)
        assert talk.end(timeout_s=ANSWER_S).ok
    ends = told["step_ends_ns"]
    assert len(ends) > 16 and ends == sorted(ends), "one epoch follows another"
    assert 0.3 < told["seconds"] < 30 and 0 < told["cpu_s"] < told["seconds"] * 1.2
    record = trains.record()
    assert record["status"] == "ok" and record["results"] == told


def test_a_co_runner_leaves_nothing_of_what_it_was_told_to_the_next_reader_of_its_streams(trains):
    """Over a channel that is the program which started it, and which speaks another protocol."""
    with talking(trains, before=("sh", "-c", '"$@"; cat >&2; echo read >&2', "sh")) as talk:
        talk.hear("training", timeout_s=ANSWER_S)
        talk.ask("end", "ended", timeout_s=ANSWER_S)
        assert talk.end(timeout_s=ANSWER_S).ok
    said = (trains.own / "err").read_text()
    assert said.endswith("read\n") and PROTOCOL not in said


def test_a_co_runner_that_nobody_talks_to_any_more_ends(trains):
    with talking(trains) as talk:
        talk.hear("training", timeout_s=ANSWER_S)
        assert talk.end(timeout_s=ANSWER_S).ok, "its input ended"


def test_a_co_runner_that_can_not_train_says_why(trains):
    with talking(trains, workload="nothing") as talk, pytest.raises(Exception, match="ModuleNotFoundError: No"):
        talk.hear("training", timeout_s=ANSWER_S)


# --- launches


class Adapter:
    sets_quotas = False


def order_of(environment):
    return Order(
        site=Site(environment=environment, python="python", reference=None, data=None),
        program=asked.spec(),
        conditions=asked.CONDITIONS,
    )


@pytest.fixture
def launched(monkeypatch):
    """What stands for a launch: it takes two seconds; the co-runner `does`, by what it gives or raises."""
    record = shared.LaunchRecord(status="ok", reason=None, spawn_ns=10**9, end_ns=3 * 10**9)
    seen, threads = [], []

    def launch(site, spec, conditions, **more):
        seen.append((site, conditions, more))
        return record

    def co_runner(end):
        @contextlib.contextmanager
        def training(order, spec, share, own=None):
            threads.append(own)
            yield SimpleNamespace(end=end)

        monkeypatch.setattr(shared, "training", training)

    monkeypatch.setattr(shared, "launch", launch)
    return SimpleNamespace(seen=seen, threads=threads, co_runner=co_runner, record=record)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(("threads", "cpus", "wanted"), [(2, (0, 1), 2), (2, (1,), 1), (None, (0, 1), 1)])
def test_a_co_runner_has_its_own_threads_and_no_more_than_cpus(monkeypatch, threads, cpus, wanted, ended):
    had, done = [], []

    @contextlib.contextmanager
    def ready(site, spec, conditions, *, pad_bytes, share):
        had.append((site.data, site.data_of, conditions.threads, pad_bytes, share))
        talk = SimpleNamespace(hear=lambda *words, **more: None, kill=lambda: done.append("killed"))
        yield SimpleNamespace(converse=lambda protocol: talk, planned="it")

    monkeypatch.setattr(shared, "ready", ready)
    monkeypatch.setattr(shared, "clean_up", lambda environment, planned: done.append(planned))
    order = order_of(Adapter())
    share = Share(cpus=cpus)
    order = replace(order, site=replace(order.site, data_of={"a": Path("/a"), "b": Path("/b")}))
    with shared.training(order, asked.spec(mode="co_runner", workload="a"), share, threads) as live:
        assert had == [(Path("/a"), {}, wanted, 0, share)] and not live.has_ended
        live.has_ended = ended
    assert done == ["killed", *([] if ended else ["it"])]


@pytest.mark.parametrize(
    ("wrong", "error", "ended"),
    [
        ({}, None, True),
        ({"seconds": None}, "lacks", True),
        ({"cpu_s": "much"}, "lacks", True),
        ({"step_ends_ns": ["x"]}, "lacks", True),
        (None, "it died", False),
    ],
)
def test_what_a_co_runner_says_of_its_end_is_read_whole(monkeypatch, wrong, error, ended):
    told = {"step_ends_ns": [10, 20, 40, 50], "seconds": 1.5, "cpu_s": 0.5} | (wrong or {})
    record = shared.LaunchRecord(status="ok", reason=None, clock=Clock(offset_ns=100, error_ns=1))
    if wrong is None:
        record = record.replace(status="failed", reason="it died")
    monkeypatch.setattr(shared, "record_of", lambda finished, prepared, conditions: record)
    talk = SimpleNamespace(ask=lambda *given, timeout_s: told, end=lambda *, timeout_s: None)
    prepared = SimpleNamespace(planned=SimpleNamespace(name="tare-1"))
    job = asked.spec(workload="mnist_cnn", batch=8)
    live = shared.Live(prepared=prepared, talk=talk, spec=job, conditions=asked.CONDITIONS)
    beside = record.replace(spawn_ns=120, end_ns=140)
    with pytest.raises(Exception, match=error) if error else contextlib.nullcontext():
        assert live.end(beside).steps == 2
        assert live.end(record).steps == 0, "beside one that never was"
    assert live.has_ended == ended


def test_a_launch_beside_a_co_runner_has_both_and_one_alone_the_counts(launched):
    own = shared.CoRunner(launch="n", workload="alexnet", batch=4, steps=7, seconds=5.0, cpu_s=4.0)
    launched.co_runner(lambda record: own)
    found = shared.launch_member("host", order_of(Adapter()), {}, "none")
    assert found.ok and found.co_runner == own and found.scenario == "shared"
    assert found.contention.reasons["throttled_s"] == shared.NOT_LIMITED
    alone = shared.launch_member(alone_of("host"), order_of(Adapter()), {}, "none")
    assert alone.ok and alone.co_runner is None and alone.scenario == "single" and alone.contention


def test_what_was_not_measured_beside_a_co_runner_has_failed(launched, monkeypatch):
    def goes(kind):
        def gone(record):
            raise kind("it was ended by SIGKILL")

        return gone

    @contextlib.contextmanager
    def never(*given):
        raise shared.ConversationError("it died at once")
        yield

    for kind in (shared.ConversationError, UnavailableError):
        launched.co_runner(goes(kind))
        found = shared.launch_member("host", order_of(Adapter()), {}, "none")
        assert (found.status, found.reason) == (
            "failed",
            "its co-runner did not finish its training: it was ended by SIGKILL",
        )
    found = shared.launch_member("host", order_of(Adapter()), {}, "cpuset")
    assert found.reason == "its co-runner does not train: one CPU can't be divided between two jobs"
    monkeypatch.setattr(shared, "training", never)
    found = shared.launch_member("host", order_of(Adapter()), {}, "none")
    assert found.reason == "its co-runner does not train: it died at once"
    assert len(launched.seen) == 2, "nothing was launched where the two can't be kept apart"


@pytest.mark.parametrize(
    ("periods", "wrong"),
    [("12", None), ("0", "its quota of CPU time did not hold it: nothing ran in its control group")],
)
def test_a_quota_that_held_nothing_is_told(tmp_path, periods, wrong):
    (tmp_path / "cpu.stat").write_text(f"nr_periods {periods}\nnr_throttled 3\nthrottled_time 2500000000\n")
    quota = Quota(period_us=100_000, quota_us=50_000, group=tmp_path)
    counts = contention.Counted()
    share = limits.Share(cpus=(0,), quota=quota)
    record = shared.LaunchRecord(status="ok", reason=None)
    assert shared._add_throttling(counts, record, share, sets_quota=False) == wrong
    assert counts.values == {"throttled_s": 2.5}
    inside = SimpleNamespace(facts=SimpleNamespace(cpu_stat=None, cpu_quota="-1"))
    told = shared._add_throttling(counts, SimpleNamespace(inside=inside), share, sets_quota=True)
    assert told == "its quota is '-1', asked for 50000 of 100000 us"
    counts = contention.Counted()
    assert shared._add_throttling(counts, record, share, sets_quota=True) is None
    assert counts.values == {} and set(counts.reasons) == {"throttled_s"}


@pytest.mark.parametrize("found", [None, "50000 100000"])
@pytest.mark.parametrize(
    ("limited", "sets", "ok", "told"),
    [(True, True, True, True), (False, True, True, False), (True, False, True, False), (True, True, False, False)],
)
def test_a_quota_of_which_nothing_is_seen_inside_is_told(monkeypatch, tmp_path, found, limited, sets, ok, told):
    @contextlib.contextmanager
    def half_each(level, cpus):
        quota = Quota(period_us=100_000, quota_us=50_000, group=tmp_path)
        yield (limits.Share(cpus=tuple(cpus), quota=quota if limited else None),) * 2

    (tmp_path / "cpu.stat").write_text("nr_periods 3\n")
    monkeypatch.setattr(shared, "shared_out", half_each)
    plain = parse(shared.LaunchRecord, builders.launch_record("docker", random.Random(1)), "a launch")
    inside = plain.seen_inside()
    seen = plain.replace(inside=inside.replace(facts=inside.facts.replace(cpu_quota=found, cpu_stat=None)))
    seen = seen if ok else seen.replace(status="failed", reason="it died")
    monkeypatch.setattr(shared, "launch", lambda *given, **named: seen)
    monkeypatch.setattr(Adapter, "sets_quotas", sets)
    record = shared.launch_member(alone_of("docker"), order_of(Adapter()), {}, "quota")
    assert record.reason == seen.reason and record.unseen == ((shared.QUOTA,) if told and not found else ())


# --- slow-downs and verdicts


NAMES = arms.launch_names(None, ["host", "docker"], "shared")
BESIDE = {HOST: 1.6, CONTROL: 1.6, "docker": 1.3}  # by alone


def campaign(units=8, names=NAMES, arm=None, **changes):
    generator = random.Random(1)
    plan = builders.base_plan("s", "mnist_cnn", "rounds", names, units)
    headline = {**builders.HEADLINE["rounds"], **co_runner.FIRST}
    plan |= {"scenario": "shared", "arm": levels_text(arms.levels_of(headline, arm))}
    plan |= {"headline_arm": levels_text(headline), "discarded": 0}
    plan["sampling"] = {"confidence": 0.95, "units": units, "verdict_units": 6}
    rows = []
    for number in range(units):
        launches = {}
        for name in names:
            scale = BESIDE.get(name, 1.0)
            record = builders.launch_record(read_role(name).place.name, generator, factors={}, scale=scale)
            record["inside"]["scheduling"] = {"preemptions": 5, "waited_s": 2 * (scale - 1)}
            record["contention"] = {"values": {"cpu_wait_s": scale - 1}, "reasons": {"cache_misses": "no PMU"}}
            if not read_role(name).is_alone:
                own = {"launch": "n", "workload": "alexnet", "batch": 4, "steps": 6, "seconds": 8.0, "cpu_s": 6.0}
                record["co_runner"] = own
            launches[name] = record
        rows.append({"unit": number, "discarded": False, "voided": None, "launches": launches})
    slug = f".{layout.slug_of(arm)}" if arm else ""
    return builders.sealed_campaign({**plan, **changes}, rows, name=f"rounds.docker+host{slug}.shared")


def judged(sealed):
    table = pd.DataFrame(metrics.campaign_metrics(sealed))
    rows = builders.verdict_rows(sealed, table)
    return tables.make("metrics", table.to_dict("records")), tables.make("verdicts", rows)


@pytest.fixture(scope="module")
def found():
    measured, rows = judged(campaign())
    return SimpleNamespace(metrics=measured, verdicts=rows)


def test_launch_names_hold_every_environment_twice():
    assert NAMES == ["host", "host.control", "docker", "host.alone", "host.control.alone", "docker.alone"]
    assert [read_role(name).environment for name in NAMES] == ["host", "host", "docker"] * 2
    assert arms.used(NAMES, None) == (["docker", "host"], ())


def test_a_co_runner_costs_by_the_run_alone_and_more_or_less_than_on_the_host(found):
    rows = found.verdicts.set_index(["metric", "launch", "reference"])
    for env, ratio in (("host", 1.6), ("docker", 1.3)):
        row = rows.loc[("real_s", env, alone_of(env))]
        assert row["ratio"] == pytest.approx(ratio, rel=0.01) and 1 < row["ci_high"] / row["ci_low"] < 1.05
        assert row["verdict"].startswith("different") and row["n_units"] == 8
        assert row["total_ratio"] == pytest.approx(ratio, rel=0.02)
    row = rows.loc[("slowdown", "docker", "host")]
    assert row["ratio"] == pytest.approx(1.3 / 1.6, rel=0.01) and row["control_ci_low"] < 1 < row["control_ci_high"]
    assert not [key for key in rows.index if key[0] == "slowdown" and key[2] != "host"], "a ratio to alone already"
    assert not [key for key in rows.index if read_role(key[1]).is_alone or key[2].startswith(CONTROL)]
    assert set(found.verdicts["role"]) == {"exploratory"} and set(found.verdicts["scenario"]) == {"shared"}


def test_rows_say_what_the_machine_did_and_what_it_does_not_count(found):
    own = found.metrics.set_index(["launch", "metric"])
    assert list(own.loc[("docker", "cpu_wait_s"), "value"]) == pytest.approx([0.3] * 8)
    assert set(own.loc[("docker.alone", "cpu_wait_s"), "value"]) == {0.0}
    assert set(own.loc[("docker", "cache_misses"), "reason"]) == {"no PMU"}
    assert set(own.loc[("docker", "co_runner_cpus"), "value"]) == {0.75}
    assert ("docker.alone", "co_runner_cpus") not in own.index
    assert list(own.loc[("host", "waited_s"), "value"]) == pytest.approx([1.2] * 8)
    assert own.loc[("docker", "co_runner_steps_per_s"), "value"].between(0.5, 2).all()


def test_a_run_that_failed_beside_its_co_runner_leaves_its_reason():
    sealed = campaign(units=2)
    rows = builders.json_units(sealed)
    rows[0]["launches"]["docker"] = {"status": "failed", "reason": "its co-runner does not train: no room"}
    table = pd.DataFrame(metrics.campaign_metrics(builders.with_units(sealed, rows)))
    own = table[(table["launch"] == "docker") & (table["metric"] == "slowdown")].sort_values("rep")
    assert list(own["kind"]) == ["unavailable", "measured"]
    assert own["reason"].iloc[0] == "with the co-runner: failed: its co-runner does not train: no room"


def test_contrasts_for_claims_are_of_the_scenario_and_by_each_environment_itself(found):
    at = At(scenario="shared")
    ratios = {one.env: one for one in to_alone(found, "mnist_cnn", at)}
    assert set(ratios) == {"host", "docker"}
    assert ratios["host"].low < 1.6 < ratios["host"].high and "slowdown host / host alone" in str(ratios["host"])
    (against,) = paired(found, "mnist_cnn", "slowdown", "docker", ["host"], at)
    assert against.against == "host" and against.high < 1
    assert {one.env for one in to_host(found, "mnist_cnn", "real_s", at)} == {"docker"}
    assert to_alone(found, "mnist_cnn", At(level="limits=quota", scenario="shared")) == []
    assert len(to_alone(found, "mnist_cnn", At(level="limits=none", scenario="shared"))) == 2


def at_alexnet(found):
    """The tables as if AlexNet had been trained."""
    return [table.assign(workload="alexnet") for table in (found.metrics, found.verdicts)]


@pytest.mark.parametrize(
    ("rule", "bound", "environments", "env", "answer"),
    [
        ("at_least", 20, ["host", "docker"], None, "holds here"),
        ("at_least", 30, ["host", "docker"], None, "open here"),
        ("at_least", 50, ["host", "docker"], None, "does not hold here"),
        ("at_most", 50, ["docker"], None, "holds here"),
        ("at_most", 50, ["host", "docker"], None, "does not hold here"),
        ("at_most", 50, ["docker", "vm"], None, "open here"),
        ("highest", None, ["host", "docker"], "host", "holds here"),
        ("lowest", None, ["host", "docker"], "host", "does not hold here"),
        ("lowest", None, ["host", "docker", "vm"], "vm", "open here"),
    ],
)
def test_what_a_paper_says_of_co_runners_is_judged_by_rule(found, results, rule, bound, environments, env, answer):
    paper = load("nthu2018")
    bounds = {claim.bound.value: claim.bound for claim in paper.claims if claim.bound}
    own = next(claim for claim in paper.claims if claim.id == "shared_large_batches_above_30")
    claim = own.model_copy(update={"rule": rule, "bound": bounds.get(bound), "env": env})
    measured, rows = at_alexnet(found)
    here = replace(measured_here.gather(results, results), metrics=measured, verdicts=rows)
    told = claims.RULES[rule](claim, "alexnet", environments, here)
    assert told.here == answer, told
    assert "slowdown" in told.evidence or "vm" in str(told.reason)


@pytest.mark.parametrize(
    ("docker", "answer"), [(1.0, "holds here"), (1.7, "does not hold here"), (1.295, "open here")]
)
def test_one_job_suffers_more_from_a_co_runner_than_another(found, results, docker, answer):
    """AlexNet 1.6 and 1.3 times by itself; the others as much less, or more, as is said."""
    own = next(claim for claim in load("nthu2018").claims if claim.id == "shared_alexnet_suffers_most")
    measured, rows = at_alexnet(found)
    scale = {"host": docker, CONTROL: docker, "docker": docker}
    others = []
    for name in ("inception3", "resnet50"):
        table = measured.assign(workload=name)
        slow = table["metric"] == "slowdown"
        means = table[slow].groupby("launch")["value"].transform("mean")
        table.loc[slow, "value"] *= table.loc[slow, "launch"].map(scale) / means
        others.append(table)
    here = replace(measured_here.gather(results, results), metrics=pd.concat([measured, *others]), verdicts=rows)
    told = claims.RULES["more_than"](own, "alexnet", ["host", "docker"], here)
    assert told.here == answer, told
    assert "alexnet, shared: slowdown host / host alone" in told.evidence
    lone = claims.RULES["more_than"](own, "alexnet", ["host", "docker"], replace(here, metrics=measured))
    assert lone.here == "open here" and "this workload is not part of this study" in lone.reason


def test_the_papers_figure_shows_each_environment_by_itself_with_what_the_text_says(found, results):
    measured, rows = at_alexnet(found)
    given = replace(figures.read_given(results), metrics=measured, verdicts=rows)
    alt = figures.paper_drawing(load("nthu2018"), given, "10").alt
    own = rows[rows["metric"] == "real_s"].set_index("reference")["ratio"]
    for name, env in (("Host (Bare metal)", "host"), ("Docker (Container)", "docker")):
        assert f"{name}: here {own[f'{env}.alone']:.2f} (" in alt
    assert "Elapsed time with another job" in alt and "this workload is not part of this study" in alt


def test_what_is_varied_beside_a_co_runner_is_no_arm_of_single_runs(found):
    measured, rows = judged(campaign(units=6, arm=arms.parse("limits=quota")))
    both = pd.concat([found.verdicts, rows])
    assert choice.arm_campaigns(both, "mnist_cnn") == []
    assert set(choice.compared(both, "rounds", "limits=quota", "shared")["campaign"]) == {
        "rounds.docker+host.limits-quota.shared"
    }
    assert set(choice.compared(both, "rounds", None, "shared")["campaign"]) == {"rounds.docker+host.shared"}
    assert set(measured["level_limits"]) == {"quota"}
    extract.refuse_mixtures([campaign(units=2), campaign(units=2, arm=arms.parse("limits=quota"))])


def test_the_host_alone_has_its_own_cost_and_nothing_to_be_compared_with():
    names = arms.launch_names(None, ["host"], "shared")
    _, rows = judged(campaign(units=6, names=names, launches=names))
    own = rows[rows["metric"] == "real_s"]
    assert list(zip(own["launch"], own["reference"], strict=True)) == [("host", "host.alone")]


def test_one_round_is_a_slice_without_a_verdict():
    _, rows = judged(campaign(units=1))
    assert set(rows["verdict"]) == {"inconclusive"} and rows["ci_low"].isna().all()


def test_the_page_shows_each_cost_the_reason_and_what_was_not_counted(evidence):
    from tare.report import pages, scenarios

    sealed = campaign(unavailable={"vm": "its processor is emulated here"})
    measured, rows = judged(sealed)
    own = replace(
        evidence,
        campaigns=(*evidence.campaigns, sealed),
        metrics=pd.concat([evidence.metrics, measured]),
        verdicts=pd.concat([evidence.verdicts, rows]),
    )
    (answer,) = scenarios.with_co_runner(own)
    found = {
        (row[0], row[1], row[2]): dict(zip(answer.table.columns, row, strict=True)) for row in answer.table.rows
    }
    for env in ("host", "docker"):
        cells = found[env_title(env), env_title(alone_of(env)), "Whole run"]
        one = rows.query(f"launch == {env!r} and metric == 'real_s' and reference == {alone_of(env)!r}").iloc[0]
        assert cells["interval"] == interval_text(one["ci_low"], one["ci_high"])
        assert cells["verdict"].startswith(one["verdict"])
    assert (env_title("docker"), "Host", "Slow-down by a co-runner") in found
    assert any("emulated here" in text for text in answer.lacking)
    assert "Misses of the last cache: unavailable, no PMU" in answer.lacking
    with tempfile.TemporaryDirectory() as folder:
        html = pages.render(own, Path(folder))["environments.html"]
    assert 'id="co_runner"' in html and "Docker, alone" in html
    taken = {row[0]: dict(zip(answer.meanwhile.columns, row, strict=True)) for row in answer.meanwhile.rows}
    assert taken["Host"]["Waited for a CPU"] != taken["Host, alone"]["Waited for a CPU"]
    assert scenarios.with_co_runner(evidence) == []


def test_one_matrix_shows_each_environment_in_every_scenario(evidence):
    from tare.report import scenarios

    assert scenarios.matrix(evidence) is None, "a study of one scenario has nothing to set beside it"
    sealed = campaign(unavailable={"vm": "its processor is emulated here"})
    measured, rows = judged(sealed)
    asked = evidence.study.replace(scenarios=("single", "shared"), environments=(*evidence.environments, "vm"))
    table = scenarios.matrix(
        replace(
            evidence,
            study=asked,
            campaigns=(*evidence.campaigns, sealed),
            metrics=pd.concat([evidence.metrics, measured]),
            verdicts=pd.concat([evidence.verdicts, rows]),
        )
    )
    assert table.columns[1:] == [
        "alone ÷ host",
        "with a co-runner ÷ alone",
        "that slowdown ÷ the host's",
    ]
    shown = {}
    for row in table.rows:
        if len(row) == 1:
            workload = shown.setdefault(row[0], {})
        else:
            workload[row[0]] = row[1:]
    own = shown[workload_title("mnist_cnn")]
    docker, host = own["Docker"], own["Host"]
    alone = evidence.verdicts.query(
        "workload == 'mnist_cnn' and launch == 'docker' and metric == 'real_s' and role == 'primary'"
    ).iloc[0]
    alone_too = rows.query("launch == 'docker' and reference == 'docker.alone' and metric == 'real_s'").iloc[0]
    slower = rows.query("launch == 'docker' and metric == 'slowdown'").iloc[0]
    for cell, row in zip(docker, (alone, alone_too, slower), strict=True):
        assert cell.text == f"{row['ratio']:.4f}"
        assert cell.below == f"{row['ci_low']:.4f} to {row['ci_high']:.4f}: {row['verdict']}"
    assert host[0] is None and host[1].text and host[2] is None, "the host is beside its own run without a job"
    assert own["Host again"][0].text == f"{alone['control_ratio']:.4f}"
    assert [cell.text for cell in own[env_title("vm", short=True)][1:]] == ["unavailable", "unavailable"]
    assert own[env_title("vm", short=True)][1].below == "its processor is emulated here"


def test_the_matrix_names_what_a_paper_had_and_the_study_has_not(evidence, monkeypatch):
    from tare.report import scenarios

    paper = load("nthu2018")
    monkeypatch.setattr(scenarios.published, "load", lambda name: {"nthu2018": paper}[name])
    monkeypatch.setattr(scenarios, "repeated", lambda names, own: names if own == ["mnist_cnn"] else ())
    sealed = campaign()
    _, rows = judged(sealed)
    whole = replace(
        evidence, papers=("nthu2018",), study=evidence.study.replace(scenarios=("single", "shared")),
        campaigns=(*evidence.campaigns, sealed), verdicts=pd.concat([evidence.verdicts, rows]),
    )  # fmt: skip
    found = scenarios.matrix(whole)
    lines = [row for row in found.rows if row[0] == env_title("docker.vm", short=True)]
    assert lines == [[lines[0][0], *["unavailable"] * 3]], "the other workload repeats nothing"
    assert found.note.count(" are none of this study's environments: on a machine where KVM boots a guest") == 1
    assert "To measure them, name them in the “environments” of a scenario." in found.note
