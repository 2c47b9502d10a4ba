"""The table of causes: each is suspected where its facts differ, and none of two environments that are alike."""

import os
import subprocess
import sys

import pytest

from tare.core.errors import IntegrityError
from tare.core.files import project_root
from tare.model.choices import read_choice
from tare.weigh.causes import CAUSES, Change, Side, markdown, suspects, table
from tare.weigh.facts import (
    PROBE,
    Library,
    Mount,
    PythonFacts,
    Surroundings,
    TorchFacts,
    cpu_numbers,
    surroundings,
)

HOST = Surroundings(
    seccomp=0,
    speculation={"Speculation_Store_Bypass": "thread vulnerable"},
    cpus="0-3",
    memory_nodes="0-1",
    limits={"Max open files": 1024, "Max locked memory": None},
    mounts=(
        Mount(point="/", kind="ext4", source="/dev/vda", options=("rw",)),
        Mount(point="/dev/shm", kind="tmpfs", source="tmpfs", options=("rw", "size=8388608k")),
    ),
    huge_pages="madvise",
    huge_pages_allowed=True,
    cpu_flags=("avx2", "avx512f", "fma"),
    variables={"HOME": "/home/a"},
)
PYTHON = PythonFacts(
    python="3.12.1",
    executable="/opt/py/bin/python",
    prefixes=("/opt/py", "/opt/py"),
    compiler="GCC 12",
    config_args="'--enable-optimizations' '--with-lto'",
    cflags="-Wall -O3",
    path=("/opt/py/lib",),
    user_site=(True, "/home/a/.local/lib"),
    modules={"numpy": ("2.0", "/opt/py/lib/numpy/__init__.py")},
    files={"/opt/py/lib/libopenblas64.so": "10:aa", "/lib/libc.so.6": "1:bb"},
    libraries={"/opt/py/lib/libopenblas64.so": Library(core="SkylakeX", threads=4)},
    torch=None,
    affinity_first="0-3",
    affinity_last="0-3",
    affinity_threads=("0-3", "0-3"),
    affinity_workers=(),
    status=(),
    smaps=None,
    compiled=(300, 0),
    major_faults=3,
    minor_faults=50000,
    switches_forced=10,
    io=None,
    groups={},
)
REFERENCE = Side(choice=read_choice("host"), seen=HOST, python=PYTHON, workdir="/job")
SMALL_SHM = (HOST.mounts[0], Mount(point="/dev/shm", kind="tmpfs", source="shm", options=("rw", "size=65536k")))
FUSE = (Mount(point="/", kind="fuse.squashfuse_ll", source="x", options=("ro",)), *HOST.mounts[1:])


def seen(**values):
    return HOST.replace(**values)


def python(**values):
    return PYTHON.replace(**values)


def side(text="docker=img", surroundings=HOST, job=PYTHON, **values):
    return Side(choice=read_choice(text), seen=surroundings, python=job, workdir="/job", **values)


# Each cause with an environment that has it, and the name of its first change (None: this machine can make none).
PLANTED = {
    "library build": (
        side(job=python(libraries={"/usr/lib/libopenblas.so": Library(core="Haswell", threads=4)})),
        "OPENBLAS_CORETYPE=SkylakeX",
    ),
    "interpreter build": (side(job=python(config_args="", cflags="-O2")), "the reference's Python inside"),
    "CPU quota": (side("docker=img --cpus 1.5", quota_cpus=1.5), "OMP_NUM_THREADS=1"),
    "threads": (
        side(
            surroundings=seen(variables={"HOME": "/home/a", "OMP_NUM_THREADS": "1"}),
            job=python(libraries={"/opt/py/lib/libopenblas64.so": Library(core="SkylakeX", threads=1)}),
        ),
        "without OMP_NUM_THREADS",
    ),
    "affinity": (side("docker=img --cpuset-cpus 0", surroundings=seen(cpus="0")), "no cpuset"),
    "seccomp": (side(surroundings=seen(seccomp=2)), "seccomp=unconfined"),
    "file system": (side("apptainer=job.sif", surroundings=seen(mounts=FUSE)), "image unpacked"),
    "shared memory": (side(surroundings=seen(mounts=SMALL_SHM)), "--ipc=host"),
    "memory limit": (side("docker=img --memory 1g", memory_limit_bytes=1 << 30), "no limit"),
    "CPU weight": (side("docker=img --cpu-shares 2", weight="cpu.shares 2"), "no weight"),
    "memory nodes": (side("docker=img --cpuset-mems 1", surroundings=seen(memory_nodes="1")), "all memory nodes"),
    "allocator": (
        side(surroundings=seen(variables={"HOME": "/home/a", "MALLOC_TRIM_THRESHOLD_": "0"})),
        "without MALLOC_TRIM_THRESHOLD_",
    ),
    "instructions": (
        side(surroundings=seen(variables={"HOME": "/home/a", "ONEDNN_MAX_CPU_ISA": "SSE41"})),
        "without ONEDNN_MAX_CPU_ISA",
    ),
    "variables": (
        side(surroundings=seen(variables={"HOME": "/home/a", "CUDA_LAUNCH_BLOCKING": "1"})),
        "without CUDA_LAUNCH_BLOCKING",
    ),
    "user site": (
        side("apptainer=job.sif", job=python(modules={"numpy": ("1.0", "/home/a/.local/lib/numpy/__init__.py")})),
        "PYTHONNOUSERSITE=1",
    ),
    "compiled modules": (side(job=python(compiled=(300, 280))), "compiled code kept"),
    "open files": (
        side(surroundings=seen(limits={"Max open files": 1 << 30, "Max locked memory": None})),
        "nofile=1024",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_cause_is_suspected_with_the_change_that_confirms_it(name):
    planted, change = PLANTED[name]
    found = {one.cause: one for one in suspects(REFERENCE, planted)}
    assert name in found and found[name].evidence
    assert found[name].changes[0].name == change
    assert any(each.reference != each.value for each in found[name].evidence)


@pytest.mark.parametrize("name", sorted(set(CAUSES) - {"exchange"}))
def test_every_cause_has_a_planted_one(name):
    assert name in PLANTED


def mounted(kind, point):
    return Mount(point=point, kind=kind, source="x", options=("rw",))


def named(cause, planted, reference=REFERENCE):
    return {one.cause: one for one in suspects(reference, planted)}[cause]


def facts_of(found):
    return {each.what: (each.reference, each.value) for each in found.evidence}


def test_programs_that_serve_files_in_both_are_no_difference():
    reference = side("apptainer=a.sif", servers_share=0.3)
    assert suspects(reference, side("b=apptainer=b.sif", servers_share=0.31)) == []
    found = named("file system", side("b=apptainer=b.sif", servers_share=0.5), reference)
    assert facts_of(found) == {"processor time of its FUSE servers, relative to the job's": ("0.3", "0.5")}


def test_a_mount_below_the_working_directory_is_found():
    mounts = (*HOST.mounts, mounted("nfs4", "/job/data"))
    assert facts_of(named("file system", side(surroundings=seen(mounts=mounts)))) == {
        "file system of /job/data": ("ext4", "nfs4")
    }


@pytest.mark.parametrize(
    ("cause", "options", "limits"),
    [
        ("CPU quota", "--cpus 1", {"quota_cpus": 1.0}),
        ("memory limit", "--memory 1g", {"memory_limit_bytes": 1 << 30}),
        ("CPU weight", "--cpu-shares 2", {"weight": "cpu.shares 2"}),
    ],
)
def test_limits_that_apptainer_sets_can_be_left_away(cause, options, limits):
    found = named(cause, side(f"apptainer=job.sif -c {options}", **limits))
    assert found.changes[-1].of(read_choice(f"apptainer=job.sif -c {options}")).options == ("-c",)


def test_what_is_counted_in_the_reference_is_evidence_too():
    first = {"cpu.stat": "nr_periods 0\nnr_throttled 0\n", "memory.stat": "workingset_refault_file 0\n"}
    last = {"cpu.stat": "nr_periods 9\nnr_throttled 2\n", "memory.stat": "workingset_refault_file 5000\n"}
    job = python(groups=last, groups_first=first)
    reference = Side(choice=read_choice("host"), seen=HOST, python=job)
    limited = side("docker=img --cpus 2 --memory 1g", job=job, quota_cpus=2.0, memory_limit_bytes=1 << 30)
    memory = named("memory limit", limited, reference)
    assert facts_of(memory)["pages that were read again"] == ("5000", "5000") and memory.confidence == "low"
    assert facts_of(named("CPU quota", limited, reference))["throttled periods"] == ("2 of 9", "2 of 9")


def test_libraries_that_are_built_in_are_compared():
    torch = TorchFacts(build="BLAS_INFO=mkl, USE_MKLDNN=ON", parallel="", capability="AVX512", threads=4)
    reference = Side(choice=read_choice("host"), seen=HOST, python=python(torch=torch, libc="glibc 2.36"))
    other = torch.replace(build="BLAS_INFO=open, USE_MKLDNN=ON")
    found = named("library build", side(job=python(torch=other, libc="glibc 2.36")), reference)
    assert facts_of(found) == {
        "libraries that PyTorch was built with": ("BLAS_INFO=mkl USE_MKLDNN=ON", "BLAS_INFO=open USE_MKLDNN=ON")
    }
    one, two = (
        python(libraries={"/x": Library(core="SkylakeX", config=f"OpenBLAS {number} NO_AFFINITY")})
        for number in ("0.3.20", "0.3.27")
    )
    older = named("library build", side(job=one), Side(choice=read_choice("host"), seen=HOST, python=two))
    assert facts_of(older) == {"version of OpenBLAS": ("OpenBLAS 0.3.27", "OpenBLAS 0.3.20")}


def test_another_c_library_has_another_allocator():
    found = suspects(
        Side(choice=read_choice("host"), seen=HOST, python=python(libc="glibc 2.36")),
        side(job=python(libc="musl")),
    )
    assert facts_of({one.cause: one for one in found}["allocator"]) == {"allocator": ("of glibc", "of musl")}


def test_memory_in_huge_pages_is_read():
    many, few = (f"Rss: 9 kB\nAnonHugePages:    {size} kB\n" for size in (409600, 2048))
    reference = Side(choice=read_choice("host"), seen=HOST, python=python(smaps=many))
    found = named("allocator", side(job=python(smaps=few)), reference)
    assert facts_of(found) == {"bytes in huge pages": (str(400 << 20), str(2 << 20))}
    assert suspects(reference, side(job=python(smaps=many))) == []


@pytest.mark.parametrize(
    ("text", "prefix", "reason"),
    [
        ("docker=python:3.12", "/usr/local", None),
        ("docker=debian", "/usr", "part of its system (/usr)"),
        ("host", "/usr/local", "part of its system (/usr/local)"),
        ("host", "/opt/py", None),
    ],
)
def test_a_python_is_shown_inside_where_it_is_no_part_of_a_system(text, prefix, reason):
    first = Side(choice=read_choice(text), seen=HOST, python=python(prefixes=(prefix, prefix)))
    found = named("interpreter build", side("b=docker=img", job=python(config_args="")), first)
    assert [one.tree for one in found.changes] == ([] if reason else [prefix])
    assert reason is None or reason in found.untried


def test_environments_of_this_machine_do_not_get_each_other_s_python():
    found = named("interpreter build", side("venv=/v", job=python(config_args="")))
    assert found.changes == () and found.untried.startswith("both use the files of this machine")


def test_variables_that_others_cover_are_not_named_twice():
    values = {"HOME": "/root", "OMP_NUM_THREADS": "1", "XLA_FLAGS": "--a", "TF_NUM_INTRAOP_THREADS": "1"}
    found = named("variables", side(surroundings=seen(variables=values)))
    assert {one.what for one in found.evidence} == {"XLA_FLAGS", "TF_NUM_INTRAOP_THREADS"}
    assert found.changes[0].unset == ("TF_NUM_INTRAOP_THREADS", "XLA_FLAGS")


def test_the_probe_shows_variables_of_libraries_and_no_secret():
    variables = {
        **{"KMP_BLOCKTIME": "0", "TF_X": "a=b 'c'", "PYTHONPATH": "/x", "PYTHON_VERSION": "3", "HOME": "/h"},
        **{"HF_TOKEN": "s", "TORCH_KEY": "s", "SSH_AGENT": "s", "OMP_SECRET": "s"},
    }
    text = subprocess.run(["/bin/sh", str(PROBE)], env=variables, capture_output=True, text=True, check=True).stdout
    assert surroundings(text).variables == {
        name: variables[name] for name in ("HOME", "KMP_BLOCKTIME", "PYTHONPATH", "TF_X")
    }


def test_data_on_a_slow_mount_is_copied_where_it_is_known_from_where_it_comes():
    mounts = (*HOST.mounts, mounted("fuse.sshfs", "/data"), mounted("9p", "/more"))
    slow = side(surroundings=seen(mounts=mounts), data={"/data/train": "/mnt/train", "/more/x": None, "/": None})
    found = named("file system", slow)
    assert facts_of(found) == {
        "file system of /data/train": ("ext4", "fuse.sshfs"),
        "file system of /more/x": ("ext4", "9p"),
    }
    assert [one.stage for one in found.changes] == [("/mnt/train", "/data/train")] and found.confidence == "high"
    unknown = named("file system", side(surroundings=seen(mounts=mounts), data={"/more/x": None}))
    assert unknown.changes == () and unknown.untried


def test_a_storage_driver_that_copies_is_named():
    found = named("file system", side(storage="vfs"), side("a=docker=img", storage="overlay2"))
    assert facts_of(found) == {"storage driver": ("overlay2", "vfs")} and found.untried
    assert suspects(REFERENCE, side(storage="overlay2")) == []


def test_one_thread_without_speculation_is_enough():
    states = ("thread vulnerable", "thread force mitigated")
    found = named("seccomp", side(job=python(speculation_threads=states)))
    assert facts_of(found) == {
        "Speculation_Store_Bypass": ("thread vulnerable", "thread force mitigated, thread vulnerable")
    }
    assert found.confidence == "high" and found.changes[0].name == "seccomp=unconfined"
    assert suspects(REFERENCE, side(job=python(speculation_threads=states[:1]))) == []


def test_a_policy_of_memory_nodes_is_put_right_by_the_last_numactl():
    plain = side("host", seen(numa_policy="default"))
    spread = side("a=host: numactl --interleave=all", seen(numa_policy="interleave:0-1"))
    found = named("memory nodes", spread, plain)
    assert facts_of(found) == {"policy of memory nodes": ("default", "interleave:0-1")}
    assert found.changes[0].of(spread.choice).options[-2:] == ("numactl", "--localalloc")
    assert suspects(REFERENCE, spread) == [], "where it can't be read in both, nothing is known"


def test_libraries_of_wheels_are_compared():
    libraries = {"/x/numpy.libs/libscipy_openblas64_-ff651d7f.so": "20:cc", "/lib/libc.so.6": "1:bb"}
    other = {"/x/numpy.libs/libscipy_openblas64_-0a1b2c3d.so": "21:dd", "/lib/libc.so.6": "2:ee"}
    reference = Side(choice=read_choice("host"), seen=HOST, python=python(files=libraries))
    found = named("library build", side(job=python(files=other)), reference)
    assert facts_of(found) == {"library libscipy_openblas64_": ("20:cc", "21:dd")}


def test_what_is_as_likely_and_cheaper_is_tried_first():
    mounts = (*FUSE, mounted("fuse.x", "/job"))
    planted = side("apptainer=job.sif", seen(mounts=mounts), python(compiled=(300, 280)))
    first, second = suspects(REFERENCE, planted)
    assert (first.cause, second.cause) == ("compiled modules", "file system"), "the table has them the other way"
    assert first.confidence == second.confidence == "high"
    assert (first.changes[0].is_dear, second.changes[0].is_dear) == (False, True)


def test_counters_of_a_group_are_those_of_the_run():
    first = {"cpu.stat": "usage_usec 5\nnr_periods 100\nnr_throttled 40\n"}
    last = {
        "cpu.stat": "usage_usec 9\nnr_periods 130\nnr_throttled 45\n",
        "memory/memory.stat": "cache 1\nworkingset_refault 12\n",
    }
    one = python(groups=last, groups_first=first)
    assert (one.throttled, one.refaults) == ((5, 30), 12)
    assert (PYTHON.throttled, PYTHON.refaults) == (None, None)


@pytest.mark.parametrize("text", ["docker=img", "apptainer=job.sif", "charliecloud=/img", "venv=/v", "podman=img"])
def test_environments_that_are_alike_have_no_cause(text):
    assert suspects(REFERENCE, side(text)) == []
    assert suspects(REFERENCE, side(text, job=None)) == []


def test_mitigations_make_a_filter_the_likeliest():
    mitigated = {"Speculation_Store_Bypass": "thread force mitigated"}
    first, *_ = suspects(REFERENCE, side(surroundings=seen(seccomp=2, speculation=mitigated, mounts=SMALL_SHM)))
    assert (first.cause, first.confidence) == ("seccomp", "high")


def test_gpus_that_may_not_share_memory():
    torch = {"build": "", "parallel": "", "capability": None, "threads": 4, "cuda": "12.4", "cudnn": 9}
    values = {**PYTHON.to_json(), "torch": torch, "files": {"/x/libnccl.so.2": "1:a"}}
    job = PythonFacts.model_validate_json(__import__("json").dumps(values))
    found = {one.cause: one for one in suspects(REFERENCE, side(surroundings=seen(mounts=SMALL_SHM), job=job))}
    assert found["exchange"].changes[0].options == ("--ipc=host", "--network=host")
    direct, socket = (
        Side(choice=read_choice(text), seen=HOST, python=job.replace(nccl=nccl))
        for text, nccl in (("host", ("P2P/CUMEM",)), ("docker=img", ("NET/Socket",)))
    )
    moved = named("exchange", socket, direct)
    assert facts_of(moved) == {"transports of NCCL": ("P2P/CUMEM", "NET/Socket")} and moved.confidence == "high"


def test_a_change_of_an_environment_takes_one_thing_away():
    choice = read_choice("a=docker=img --cpus 2 --memory=1g").replace(variables={"OMP_NUM_THREADS": "8"})
    less = Change(name="no quota", without=("--cpus",), unset=("OMP_NUM_THREADS",), advice="").of(choice)
    assert (less.name, less.options, dict(less.variables)) == ("a+no-quota", ("--memory=1g",), {})
    more = Change(name="OMP_NUM_THREADS=2", variables={"OMP_NUM_THREADS": "2"}, advice="").of(choice)
    assert more.name == "a+omp_num_threads-2" and more.variables == {"OMP_NUM_THREADS": "2"}
    again = Change(name="x", variables={"A": "1"}, unset=("B",), advice="").of(choice.replace(unset=("A", "C")))
    assert again.unset == ("C", "B"), "a variable that it sets stays"


def test_without_taskset_a_job_has_the_processors_of_the_reference():
    planted = side("one=host: taskset -c 0 nice -n 5", surroundings=seen(cpus="0"))
    (found,) = [one for one in suspects(REFERENCE, planted) if one.cause == "affinity"]
    assert found.changes[0].name == "no taskset"
    command = found.changes[0].of(planted.choice).options
    assert command == ("taskset", "-c", "0", "nice", "-n", "5", "taskset", "-c", "0-3")
    usable = sorted(os.sched_getaffinity(0))
    every = ",".join(map(str, usable))
    run = [word if word not in ("0", "0-3") else {"0": str(usable[0]), "0-3": every}[word] for word in command]
    shown = "import os; print(*sorted(os.sched_getaffinity(0)))"
    done = subprocess.run([*run, sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(map(str, usable))


def test_shared_memory_of_the_usual_size_says_none():
    """A tmpfs of half the machine's memory is mounted without `size=`, as the host's /dev/shm mostly is."""
    usual = HOST.mounts[1].replace(options=("rw", "nosuid"))
    host = seen(mounts=(HOST.mounts[0], usual), memory_bytes=16 << 30)
    assert host.shm_bytes == 8 << 30 and HOST.shm_bytes == 8 << 30
    assert seen(mounts=(HOST.mounts[0], usual)).shm_bytes is None
    reference = Side(choice=read_choice("host"), seen=host, python=PYTHON, workdir="/job")
    found = suspects(reference, side(surroundings=seen(mounts=SMALL_SHM)))
    assert [one.cause for one in found] == ["shared memory"]


def test_what_the_probe_says_here_is_read():
    text = subprocess.run(["/bin/sh", str(PROBE)], capture_output=True, text=True, check=True).stdout
    found = surroundings(text)
    assert found.cpu_count is not None and found.kernel and found.boot_id and found.memory_bytes
    assert found.mount_of("/") is not None and found.limits["Max open files"]
    assert (found.numa_policy is not None) == os.access("/proc/self/numa_maps", os.R_OK)
    assert (
        suspects(Side(choice=read_choice("host"), seen=found), Side(choice=read_choice("a=host"), seen=found)) == []
    )


def test_a_probe_that_is_cut_short_is_refused():
    text = subprocess.run(["/bin/sh", str(PROBE)], capture_output=True, text=True, check=True).stdout
    with pytest.raises(IntegrityError, match="cut short"):
        surroundings(text.removesuffix("== end\n"))
    with pytest.raises(IntegrityError, match="unknown form"):
        surroundings("== /sys/fs/cgroup/cpu.max\nmany 100000\n== end\n")


@pytest.mark.parametrize(
    ("section", "text", "quota", "memory"),
    [
        ("cpu.max", "max 100000", None, None),
        ("cpu.max", "150000 100000", 1.5, None),
        ("memory.max", "1073741824", None, 1 << 30),
        ("memory/memory.limit_in_bytes", "9223372036854771712", None, None),
    ],
)
def test_limits_of_both_versions_of_control_groups(section, text, quota, memory):
    found = surroundings(f"== /sys/fs/cgroup/{section}\n{text}\n== end\n")
    assert (found.quota_cpus, found.memory_limit_bytes) == (quota, memory)


def test_lists_of_processors():
    assert cpu_numbers("0-2,7") == (0, 1, 2, 7)
    with pytest.raises(IntegrityError, match="0-3,8"):
        cpu_numbers("a-b")


def test_the_table_says_all_that_a_reader_needs():
    for row in table():
        assert len(row) == 5 and all(row) and not any("|" in cell for cell in row)


def test_the_page_is_of_the_table():
    assert (project_root() / "docs/causes.md").read_text() == markdown()


def test_little_memory_that_may_be_locked_is_named_with_its_option():
    found = named("shared memory", side(surroundings=seen(limits={**HOST.limits, "Max locked memory": 65536})))
    assert facts_of(found) == {"bytes that may be locked": ("unlimited", "65536")}
    assert found.changes[0].options == ("--ulimit", "memlock=-1")


def test_loader_processes_on_fewer_processors_are_named_with_what_binds_them():
    bound = seen(variables={"HOME": "/home/a", "OMP_PROC_BIND": "true"})
    found = named("affinity", side(surroundings=bound, job=python(affinity_workers=("0", "0-3"))))
    assert facts_of(found)["processors of its threads at its end"] == ("none", "0")
    (change,) = found.changes
    assert change.variables["OMP_PROC_BIND"] == "false" and "OMP_PROC_BIND binds the threads" in change.advice


def test_instructions_that_a_guest_does_not_show_have_a_remedy():
    found = named("instructions", side(surroundings=seen(cpu_flags=("avx2", "fma"))))
    assert facts_of(found) == {"instructions": ("avx512f", "none")} and "qemu -cpu host" in found.untried


def test_another_allocator_s_library_is_named():
    preloaded = {**PYTHON.files, "/usr/lib/libjemalloc.so.2": "3:cc"}
    found = named("allocator", side(job=python(files=preloaded)))
    assert facts_of(found)["allocator"] == ("of the C library", "libjemalloc")
