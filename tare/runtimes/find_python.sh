#!/bin/sh
# Prints the Python that Tare is set up with: a CPython 3.11, 3.12 or 3.13 that starts, the oldest first, and one that
# brings ensurepip before one that does not. If none is found, it says in one line what to do, with status 3.

unset PYTHONPATH PYTHONHOME  # packages of another Python's

for module in ensurepip sys; do
    for version in 3.11 3.12 3.13; do
        for python in "python$version" python3 "/usr/bin/python$version" "/usr/local/bin/python$version"; do
            if "$python" -c "import platform, sys, $module
sys.exit(platform.python_implementation() != 'CPython' or '%d.%d' % sys.version_info[:2] != '$version')" 2> /dev/null
            then echo "$python"; exit 0; fi
        done
    done
done
echo "tare: Tare needs a CPython 3.11, 3.12 or 3.13 on Linux, and found none (on Debian 12 or 13 and Ubuntu" \
    "24.04: apt-get install python3 python3-venv)" >&2
exit 3
