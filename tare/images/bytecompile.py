"""Compiles sources to bytecode, the same bytes each time. Runs by itself in the tree's own interpreter.

    python3.X -s -S -P bytecompile.py ROOT PREFIX [SECONDS] < names

compiles the files named on standard input, one a line relative to ROOT, as if they lay in PREFIX. Bytecode
depends on what the compiling process has seen before (which strings are already shared), so the caller fixes
which files one process compiles and in which order. Names of files that do not compile are printed; packages
ship a few such on purpose. CPython 3.6 has no unchecked bytecode: its time is held against the source's, and every
source gets the time first that the finished tree's files have, SECONDS.
"""

import os
import py_compile
import sys

root, prefix = sys.argv[1:3]
dated = sys.argv[3:]
options = {} if dated else {"invalidation_mode": py_compile.PycInvalidationMode.UNCHECKED_HASH}
for line in sys.stdin:
    name = line.rstrip("\n")
    path = root + "/" + name
    if dated:
        os.utime(path, (int(dated[0]), int(dated[0])))
    try:
        py_compile.compile(path, dfile=prefix + "/" + name, doraise=True, **options)  # type: ignore[arg-type,type-var]
    except (py_compile.PyCompileError, UnicodeDecodeError, ValueError):
        print(name)
