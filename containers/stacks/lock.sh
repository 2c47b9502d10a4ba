#!/bin/sh
# Resolves a stack's requirements.in again and writes its locks: containers/stacks/lock.sh torch-2.13
# Needs uv. Indexes and find-links are those of the installer's own configuration, and are not written down:
# a lock names packages, versions and hashes, whoever serves them. The `+cpu` build of torch must be among
# them (PIP_FIND_LINKS=FOLDER, or PyTorch's own CPU index in PIP_EXTRA_INDEX_URL).
set -eu
cd "$(dirname "$0")/$1"
compile() {
    uv pip compile --quiet --upgrade --generate-hashes --no-header \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 "$@"
}
header="# Locked by containers/stacks/lock.sh $1; not to be edited by hand."
compile requirements.in -o cuda.new
sed 's/^torch==\([0-9.]*\)$/torch==\1+cpu/' requirements.in > .requirements-cpu.in
compile ${PIP_FIND_LINKS:+--find-links "$PIP_FIND_LINKS"} .requirements-cpu.in -o cpu.new
sed -i 's/-r \.requirements-cpu\.in/-r requirements.in/' cpu.new
for lock in cpu cuda; do
    { echo "$header"; cat $lock.new; } > $lock.txt
    rm $lock.new
done
rm .requirements-cpu.in
