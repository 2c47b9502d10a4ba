"""Mutation testing of a random sample: which small changes of the code does no unit test see?

    python3 -m pip install --target ../cosmic-ray cosmic-ray    # the tests' packages do not have it
    .venv/bin/python tests/mutants.py --cosmic-ray ../cosmic-ray --seed 1

Cosmic Ray's operators make the mutants. Of each package `--each` places are drawn at random, and one mutant of each
place that compiles. Not drawn: annotations, decorators, what is inside a `raise` or a formatted string (messages),
bare stars of signatures, and numbers that a module assigns as its constants.

A mutant meets the unit tests that import its module, themselves or through a helper in tests/ (where there are none,
those that import a module that imports it), without those of tests/unit/quick.py: of at most FILES files, those that
name it most often. A test that fails, or takes longer than SLOW, kills it, if the same test passes without a mutant.

The clone in `--tree`, of what is committed, is changed, never the working tree. Each result is a line of
mutants-SEED.jsonl beside it, so that a call goes on where one ended. In the end: the share that survived by package,
with the exact binomial interval at 95%, and by module, and the difference that each survivor is.
"""

import argparse
import ast
import collections
import contextlib
import difflib
import functools
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = ("tare/stats", "tare/launch", "tare/experiments")
FILES, SLOW, LIMIT = 4, 20.0, 60.0  # test files of a module; seconds of a test, and of all tests of a mutant
ROOT = Path(__file__).parents[1]
QUIET = ("-n0", "-q", "-p", "no:cacheprovider", "-o", f"timeout={SLOW}", "-o", "timeout_method=signal")


def excluded(source):
    """Spans of a source, as pairs of (line, column), in which no mutant is drawn."""
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Raise | ast.JoinedStr)]
    for node in ast.walk(tree):
        nodes += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        nodes += getattr(node, "decorator_list", ())
    for node in (each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign) and each.value):
        nodes += [each for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in nodes if isinstance(n, ast.AST)]


def places(module):
    """Operators and their occurrences at each place of a module."""
    from cosmic_ray import ast as parsed
    from cosmic_ray import plugins

    source, found = Path(module).read_text(), collections.defaultdict(list)
    spans, lines, nodes = excluded(source), source.splitlines(), list(parsed.ast_nodes(parsed.get_ast(source)))
    for name in sorted(set(plugins.operator_names()) - {"core/VariableReplacer", "core/VariableInserter"}):
        operator, count = plugins.get_operator(name)(), 0
        for node in nodes:
            for start, end in operator.mutation_positions(node):
                bare = lines[start[0] - 1].startswith("*,", start[1])
                if not bare and not any(first <= start < last for first, last in spans):
                    found[module, start, end].append((name, count))
                count += 1
    return found


def drawn(package, seed, size):
    """Mutants of a package: module, operator, occurrence, line, and the changed source."""
    from cosmic_ray import mutating, plugins

    at = {}
    for path in sorted(Path(package).rglob("*.py")):
        at |= places(str(path))
    order = random.Random(f"{seed} {package}").sample(sorted(at), len(at))
    print(f"{package}: {len(order)} places, {sum(map(len, at.values()))} mutants")
    for module, start, end in order:
        ways = at[module, start, end]
        for operator, count in random.Random(f"{seed} {module} {start} {end}").sample(ways, len(ways)):
            changed = mutating.mutate_code(Path(module).read_text(), plugins.get_operator(operator)(), count)
            with contextlib.suppress(SyntaxError):
                compile(changed, module, "exec", dont_inherit=True)
                size -= 1
                yield module, operator, count, start[0], changed
                break
        if not size:
            return


def dotted(path):
    """A module's name by its path; helpers of tests are imported without their folder."""
    return ".".join(path.with_suffix("").parts if path.parts[0] == "tare" else (path.stem,)).removesuffix(
        ".__init__"
    )


@functools.cache
def importers():
    """Files by what they import, or may."""
    by = collections.defaultdict(set)
    for path in (*Path("tests").glob("*.py"), *Path("tests/unit").glob("*.py"), *Path("tare").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [f"{getattr(node, 'module', '')}.{each.name}".lstrip(".") for each in getattr(node, "names", ())
                     if isinstance(node, ast.Import | ast.ImportFrom)]  # fmt: skip
            for name in (*names, getattr(node, "module", None)):
                by[name].add(path)
    return by


def test_files(module):
    """The test files that a mutant of a module meets."""

    def reach(name, through):
        for path in importers()[name]:
            if path.name.startswith("test_"):
                yield path
            elif path.parts[0] in through:
                yield from reach(dotted(path), ("tests",))

    name = dotted(Path(module))
    stem, direct = name.rpartition(".")[2], importers()[name]
    found = set(reach(name, ("tests",))) or set(reach(name, ("tests", "tare")))
    by = {path: (path.stem == f"test_{stem}", path in direct, path.read_text().count(stem)) for path in found}
    return sorted(found, key=lambda path: (by[path], path), reverse=True)[:FILES]


class Killer:
    """A pytest plugin that writes the name of the first test that fails; of a file that can't be read, its name."""

    def __init__(self, path):
        self.path = path

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.path.exists():
            self.path.write_text(report.nodeid)

    pytest_collectreport = pytest_runtest_logreport


def first_failed(arguments, folder):
    """The first test that fails, in a process that has the packages imported already; None if none does in time."""
    written = folder / "killer"
    written.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        os.setsid()
        sink = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(sink, number)
        import pytest

        os._exit(int(pytest.main([*QUIET, "-x", *arguments], [Killer(written)])))
    until = time.monotonic() + LIMIT
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) and time.monotonic() < until:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what its tests started
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return written.read_text() if written.exists() else None if code in (0, -signal.SIGKILL) else f"exit {code}"


def killer(mutant, folder, sound):
    """The first test that fails under a mutant and not without it, or None; `sound`: whether a test does, by name."""
    import quick

    module, changed = Path(mutant[0]), mutant[-1]
    source, times = module.read_text(), (module.stat().st_atime_ns, module.stat().st_mtime_ns)
    files = test_files(module)
    left_out = [f"--deselect=tests/unit/{each}" for each in quick.LEFT_OUT]
    while files:
        try:
            module.write_text(changed)
            name = first_failed([*map(str, files), *left_out], folder)
        finally:
            module.write_text(source)
            os.utime(module, ns=times)  # what is compiled already is of this time
        if name is not None and name not in sound:
            sound[name] = "::" not in name or first_failed([name], folder) is None
        if name is None or sound[name]:
            return name
        left_out.append(f"--deselect={name}")
    return None


def report(rows):
    """Shares by package and module, and what survived."""
    from scipy.stats import binomtest

    for package in PACKAGES:
        of = [row for row in rows if row["module"].startswith(f"{package}/")]
        if not of:
            continue
        count = sum(row["killer"] is None for row in of)
        low, high = binomtest(count, len(of)).proportion_ci(method="exact")
        print(f"\n{package}: {count} of {len(of)} survived: {count / len(of):.0%} ({low:.0%} to {high:.0%})")
        for module in sorted({row["module"] for row in of}):
            some = [row for row in of if row["module"] == module]
            left = [row for row in some if row["killer"] is None]
            print(f"  {module}: {len(left)} of {len(some)}")
            for row in left:
                print(f"    line {row['line']}, {row['operator']}:", *row["difference"], sep="\n      ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--cosmic-ray", type=Path, required=True, help="where pip put it")
    parser.add_argument("--tree", type=Path, default=ROOT.parent / "tare-mutants", help="the clone to change")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=40, help="mutants of each package")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no mutant after them")
    parser.add_argument("--survivors", action="store_true", help="try those again that survived")
    asked = parser.parse_args()
    sys.path.append(str(asked.cosmic_ray.resolve()))  # after the locked packages
    until, tree = time.monotonic() + asked.seconds, asked.tree.resolve()
    if not tree.exists():
        subprocess.run(["git", "clone", "-q", "--shared", ROOT, tree], check=True)
        (tree / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run(["git", "-C", tree, "fetch", "-q", ROOT, "HEAD"], check=True)
    subprocess.run(["git", "-C", tree, "reset", "-q", "--hard", "FETCH_HEAD"], check=True)
    os.chdir(tree)
    os.environ.update(PYTHONPATH=str(tree), OPENBLAS_NUM_THREADS="1")
    sys.path[:1] = [str(tree), str(tree / "tests/unit")]
    folder = tree.with_name(f"{tree.name}-results")
    folder.mkdir(exist_ok=True)
    for name in ("pytest", "hypothesis", "numpy", "scipy.stats", "scipy.optimize", "pydantic", "yaml", "pandas"):
        __import__(name)
    with contextlib.redirect_stdout(io.StringIO()):
        sys.modules["pytest"].main(["-VV"])  # imports its plugins
    kept, rows, sound = folder / f"mutants-{asked.seed}.jsonl", {}, {}
    for row in map(json.loads, kept.read_text().splitlines() if kept.exists() else ()):
        rows[row["module"], row["operator"], row["occurrence"]] = row
    code = subprocess.check_output(["git", "rev-parse", "HEAD:tare"], text=True)[:12]
    sample = folder / f"sample-{asked.seed}-{asked.each}-{code}.json"  # drawing takes seconds
    if not sample.exists():
        by = [list(drawn(package, asked.seed, asked.each)) for package in PACKAGES]
        sample.write_text(json.dumps([mutant for some in zip(*by, strict=True) for mutant in some]))
    chosen = [mutant for mutant in json.loads(sample.read_text()) if mutant[0].startswith(tuple(asked.packages))]
    for mutant in chosen:
        known = rows.get(tuple(mutant[:3]))
        if (not known or (asked.survivors and known["killer"] is None)) and time.monotonic() < until:
            began, source = time.monotonic(), Path(mutant[0]).read_text()
            row = dict(zip(("module", "operator", "occurrence", "line"), mutant, strict=False))
            row["killer"] = killer(mutant, folder, sound)
            row["seconds"] = round(time.monotonic() - began, 1)
            lines = difflib.unified_diff(source.splitlines(), mutant[-1].splitlines(), n=0, lineterm="")
            rows[tuple(mutant[:3])] = row | {"difference": list(lines)[3:]}
            with kept.open("a") as file:
                file.write(json.dumps(rows[tuple(mutant[:3])]) + "\n")
    report([rows[tuple(each[:3])] for each in chosen if tuple(each[:3]) in rows])


if __name__ == "__main__":
    main()
