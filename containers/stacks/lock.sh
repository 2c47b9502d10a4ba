#!/bin/sh
# Resolves a stack's requirements.in again and writes its locks: containers/stacks/lock.sh torch-2.13
# Python's version and the locks' names are those of its stack.yaml. A lock named cpu.txt takes the `+cpu` build of
# torch, any other the plain one; variants may share a lock.
# A package of overrides.in has that version whatever others ask for. What has no wheel is never taken.
# Needs uv, which reads none of pip's settings: what PIP_INDEX_URL and PIP_EXTRA_INDEX_URL name is passed on here, a
# UV_… of the same name stands. Neither is written down: a lock names packages, versions and hashes, whoever serves
# them. A `+cpu` build of torch must be among them (PIP_FIND_LINKS=FOLDER, or PyTorch's own CPU index in
# PIP_EXTRA_INDEX_URL).
set -eu
if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_INDEX_URL="${UV_INDEX_URL:-$PIP_INDEX_URL}"; fi
if [ -n "${PIP_EXTRA_INDEX_URL:-}" ]; then
    export UV_EXTRA_INDEX_URL="${UV_EXTRA_INDEX_URL:-$PIP_EXTRA_INDEX_URL}"
    export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
fi
cd "$(dirname "$0")/$1"
python=$(sed -n 's/^python: *"\([0-9.]*\)".*/\1/p' stack.yaml)
locks=$(sed -n 's/^ *lock: *\([a-z0-9.-]*\.txt\).*/\1/p' stack.yaml | sort -u)
[ -n "$python" ] && [ -n "$locks" ] || { echo "$1/stack.yaml names no python or no lock" >&2; exit 2; }
trap 'rm -f .lock.new .requirements-cpu.in' EXIT
compile() {
    [ ! -f overrides.in ] || set -- --override overrides.in "$@"
    uv pip compile --quiet --upgrade --generate-hashes --no-header --only-binary :all: \
        --python-version "$python" --python-platform x86_64-manylinux_2_28 "$@" -o .lock.new
}
for lock in $locks; do
    if [ "$lock" = cpu.txt ]; then
        sed 's/^torch==\([0-9.]*\)$/torch==\1+cpu/' requirements.in > .requirements-cpu.in
        compile ${PIP_FIND_LINKS:+--find-links "$PIP_FIND_LINKS"} .requirements-cpu.in
        sed -i 's/-r \.requirements-cpu\.in/-r requirements.in/' .lock.new
    else
        compile requirements.in
    fi
    { echo "# Locked by containers/stacks/lock.sh $1; not to be edited by hand."; cat .lock.new; } > "$lock"
    rm .lock.new
done
