# What a process sees of the machine where it runs, as sections of text on standard output. Only builtins of a POSIX
# shell: an image may have neither cat nor Python. tare/weigh/facts.py reads it.
show() { # a file's text, as a section; nothing where it can't be read
    [ -r "$1" ] || return 0
    printf '== %s\n' "$1"
    while IFS= read -r line || [ -n "$line" ]; do printf '%s\n' "$line"; done 2>/dev/null < "$1"
}
for file in status limits mountinfo cgroup; do show "/proc/self/$file"; done
if [ -r /proc/self/numa_maps ]; then # its first mapping has the policy of the process
    read -r address policy rest < /proc/self/numa_maps && printf '== numa policy\n%s\n' "$policy"
fi
for file in /proc/meminfo /proc/sys/kernel/osrelease /proc/sys/kernel/random/boot_id /etc/os-release \
    /sys/kernel/mm/transparent_hugepage/enabled /sys/devices/system/cpu/vulnerabilities/spec_store_bypass; do
    show "$file"
done
for file in cpu.max cpu.weight cpu.stat memory.max memory.high memory.current memory.events io.max; do
    show "/sys/fs/cgroup/$file"
done
for file in cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us cpu/cpu.shares cpu/cpu.stat memory/memory.limit_in_bytes; do
    show "/sys/fs/cgroup/$file"
done
printf '== cpuinfo\n' # of the first processor: its model and what it can do
while IFS= read -r line; do
    case $line in 'model name'* | flags* | Features*) printf '%s\n' "$line" ;; '') break ;; esac
done < /proc/cpuinfo
printf '== variables\n'
for name in OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY KMP_AFFINITY MKL_NUM_THREADS \
    OPENBLAS_NUM_THREADS OPENBLAS_CORETYPE MKL_DEBUG_CPU_TYPE MKL_ENABLE_INSTRUCTIONS ONEDNN_MAX_CPU_ISA \
    DNNL_MAX_CPU_ISA NPY_DISABLE_CPU_FEATURES ATEN_CPU_CAPABILITY LD_PRELOAD LD_LIBRARY_PATH GLIBC_TUNABLES \
    MALLOC_ARENA_MAX MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_ MALLOC_CONF PYTHONPATH \
    PYTHONNOUSERSITE PYTHONUSERBASE PYTHONMALLOC PYTHONDONTWRITEBYTECODE PYTHONHASHSEED HOME TMPDIR \
    CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME NCCL_DEBUG; do
    eval "value=\${$name-}; set=\${$name+1}"
    [ -z "$set" ] || printf '%s=%s\n' "$name" "$value"
done
for word; do # of the job: a program of the same path may be another in each environment
    case $word in *.py | *.sh | *.R | *.jl | *.pl) ;; *) continue ;; esac
    [ -f "$word" ] && [ -r "$word" ] || continue
    printf '== program %s\n' "$word"
    while IFS= read -r line || [ -n "$line" ]; do printf '|%s\n' "$line"; done < "$word"
done
printf '== end\n'
