"""Compiles sources to bytecode, the same bytes each time. Runs by itself in the tree's own interpreter.

    python3.X -s -S -P bytecompile.py ROOT PREFIX < names

compiles the files named on standard input, one a line relative to ROOT, as if they lay in PREFIX. Bytecode
depends on what the compiling process has seen before (which strings are already shared), so the caller fixes
which files one process compiles and in which order. Names of files that do not compile are printed; packages
ship a few such on purpose.
"""

import py_compile
import sys

root, prefix = sys.argv[1:]
for line in sys.stdin:
    name = line.rstrip("\n")
    try:
        py_compile.compile(
            root + "/" + name,
            dfile=prefix + "/" + name,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except (py_compile.PyCompileError, UnicodeDecodeError, ValueError):
        print(name)
