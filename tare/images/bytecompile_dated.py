"""Compiles sources to bytecode in CPython 3.6, which has none unchecked: its time is held against the source's.

    python3.6 -s -S bytecompile_dated.py ROOT PREFIX TIME < names

As bytecompile.py; every source gets the time first that the finished tree's files have, in seconds.
"""

import os
import py_compile
import sys

root, prefix, seconds = sys.argv[1:]
for line in sys.stdin:
    name = line.rstrip("\n")
    path = root + "/" + name
    os.utime(path, (int(seconds), int(seconds)))
    try:
        py_compile.compile(path, dfile=prefix + "/" + name, doraise=True)
    except (py_compile.PyCompileError, UnicodeDecodeError, ValueError):
        print(name)
