#!/bin/sh
# Prints the Python that Tare is set up with: a CPython 3.11, 3.12 or 3.13 that starts, the oldest first, and one that
# brings ensurepip before one that does not. Where there is none it says in one line what to do, with status 3.

unset PYTHONPATH PYTHONHOME  # packages of another Python's

CODE='
import platform, sys
fits = platform.python_implementation() == "CPython" and "%d.%d" % sys.version_info[:2] == sys.argv[1]
if fits and sys.argv[2] == "ensurepip":
    import ensurepip
sys.exit(not fits)'

find() {
    for version in 3.11 3.12 3.13; do
        for python in "python$version" python3 "/usr/bin/python$version" /usr/bin/python3 \
            "/usr/local/bin/python$version" "$HOME/.pyenv/versions/$version".*/bin/python3; do
            if "$python" -c "$CODE" "$version" "$1" 2>/dev/null; then echo "$python"; exit 0; fi
        done
    done
}

# What a user can do alone: pyenv where it is, a build of one's own elsewhere.
by_oneself() {
    if command -v pyenv > /dev/null || [ -x "$HOME/.pyenv/bin/pyenv" ]; then echo "pyenv install 3.13"
    else echo "put a CPython 3.13 on PATH as python3.13"; fi
}

# As root, by sudo where a group of ours may, else through an administrator.
as_we_can() {
    groups=" $(id -nG 2>/dev/null) "
    if [ "$(id -u)" = 0 ]; then echo "$1"; return; fi
    case $groups in
        *" sudo "* | *" wheel "* | *" admin "*)
            if command -v sudo > /dev/null; then echo "$1" | sed 's/apt-get/sudo apt-get/g'; return; fi ;;
    esac
    echo "ask an administrator for \`$1\`, or as yourself $(by_oneself)"
}

remedy() {
    if ! command -v apt-get > /dev/null; then echo "install CPython 3.13 by your package manager, or $(by_oneself)"; return; fi
    case $(apt-cache policy python3 2>/dev/null | sed -n 's/^ *Candidate: *//p') in
        3.11* | 3.12* | 3.13*) as_we_can "apt-get install --yes python3" ;;
        "" | "(none)") as_we_can "apt-get update && apt-get install --yes python3" ;;
        *)
            for version in 3.13 3.12 3.11; do
                if apt-cache show "python$version" > /dev/null 2>&1; then
                    as_we_can "apt-get install --yes python$version"
                    return
                fi
            done
            echo "$(by_oneself), as this distribution has none of them" ;;
    esac
}

system="$(uname -s) on $(uname -m)"
if [ "$system" != "Linux on x86_64" ]; then
    echo "tare: Tare needs Linux on x86-64, and this is $system: run it on such a machine, a virtual one will do" >&2
    exit 3
fi
find ensurepip
find any
echo "tare: Tare needs CPython 3.11, 3.12 or 3.13, and there is none here (mend it: $(remedy))" >&2
exit 3
