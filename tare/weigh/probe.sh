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
export -p 2>/dev/null | while IFS= read -r line; do
    name=${line#export } name=${name#declare -x } name=${name%%=*}
    case $name in
        '' | *[!A-Za-z0-9_]* | [0-9]* | TF_CLI* | *VERSION | *TOKEN* | *SECRET* | *PASSWORD* | *KEY*) continue ;;
        OMP_* | GOMP_* | KMP_* | MKL_* | OPENBLAS_* | BLIS_* | NUMEXPR_* | ONEDNN_* | DNNL_* | NPY_* | ATEN_*) ;;
        LD_PRELOAD | LD_LIBRARY_PATH | LD_BIND_NOW | GLIBC_TUNABLES | MALLOC_* | HOME | TMPDIR) ;;
        PYTHON[A-Z]* | PYTHON_GIL | PYTHON_JIT | CUDA_* | NVIDIA_VISIBLE_DEVICES | NCCL_* | GLOO_*) ;;
        PYTORCH_* | TORCH* | TF_* | XLA_* | JAX_* | NUMBA_* | LOKY_* | RAYON_NUM_THREADS | TOKENIZERS_PARALLELISM) ;;
        *) continue ;;
    esac
    eval "printf '%s=%s\n' \"\$name\" \"\$$name\""
done
for word; do # of the job: a program of the same path may be another in each environment
    case $word in *.py | *.sh | *.R | *.jl | *.pl) ;; *) continue ;; esac
    [ -f "$word" ] && [ -r "$word" ] || continue
    printf '== program %s\n' "$word"
    while IFS= read -r line || [ -n "$line" ]; do printf '|%s\n' "$line"; done < "$word"
done
printf '== end\n'
