"""Mutation testing of a random sample: which small changes of the code does no unit test see?

    python3 -m pip install --target ../cosmic-ray cosmic-ray    # the tests' packages do not have it
    .venv/bin/python tests/mutants.py --cosmic-ray ../cosmic-ray --seed 1

Cosmic Ray's operators make the mutants. Of each package `--each` places are drawn at random, and one mutant of each
place that compiles. Not drawn: annotations, decorators, what is inside a `raise` or a formatted string (messages),
and numbers that a module assigns as its constants.

A mutant meets the unit tests that import its module, themselves or through a helper in tests/ (where there are none,
those that import a module that imports it): of at most FILES files, without those that fail or take longer than SLOW
without a mutant, and those of tests/unit/quick.py, for LONG seconds in all. A test that fails or does not end kills it.

The clone in `--tree`, of what is committed, is changed, never the working tree. Each result is a line of
mutants-SEED.jsonl beside it, so that a call goes on where one ended. In the end: the share that survived by package,
with the exact binomial interval at 95%, and by module, and the difference that each survivor is.
"""

import argparse
import ast
import collections
import contextlib
import difflib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = ("tare/stats", "tare/launch", "tare/experiments")
FILES = 6  # of a module: those that name it most often
SLOW, LONG, LIMIT = 5.0, 40.0, 120.0  # seconds: of a test, of a mutant's tests, and of these under it
ROOT = Path(__file__).parents[1]


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
    for name in sorted(plugins.operator_names()):
        if name.startswith("core/Variable"):  # they need a variable's name
            continue
        operator, count = plugins.get_operator(name)(), 0
        for node in nodes:
            for start, end in operator.mutation_positions(node):
                bare = lines[start[0] - 1].startswith("*,", start[1])  # what follows is given by name
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
    chance = random.Random(f"{seed} {package}")
    order = chance.sample(sorted(at), len(at))
    print(f"{package}: {len(order)} places, {sum(map(len, at.values()))} mutants")
    for module, start, end in order:
        for operator, count in chance.sample(at[module, start, end], len(at[module, start, end])):
            changed = mutating.mutate_code(Path(module).read_text(), plugins.get_operator(operator)(), count)
            with contextlib.suppress(SyntaxError):
                compile(changed, module, "exec", dont_inherit=True)
                size -= 1
                yield module, operator, count, start[0], changed
                break
        if not size:
            return


def dotted(path):
    """A module's name by its path."""
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


def imported(path):
    """Names of modules that a file imports, or may."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{each.name}" for each in node.names))


def testers():
    """Test files by the name of a module: those that import it, or what imports it."""
    by = collections.defaultdict(set)
    for path in (*Path("tests").glob("*.py"), *Path("tests/unit").glob("*.py"), *Path("tare").rglob("*.py")):
        for name in imported(path):
            by[name].add(path)

    def files(name, through):
        for path in by[name]:
            if path.name.startswith("test_"):
                yield str(path)
            elif path.parts[0] in through:
                yield from files(dotted(path) if path.parts[0] == "tare" else path.stem, ("tests",))

    def closest(name):
        found = set(files(name, ("tests",))) or set(files(name, ("tests", "tare")))
        told = {path: Path(path).read_text().count(name.rpartition(".")[2]) for path in found}
        return sorted(found, key=lambda path: (-told[path], path))[:FILES]

    return closest


class Outcomes:
    """A pytest plugin that writes seconds of each test, and whether it passed."""

    def __init__(self, path):
        self.path, self.of = path, {}

    def pytest_runtest_logreport(self, report):
        seconds, passed = self.of.get(report.nodeid, (0.0, True))
        self.of[report.nodeid] = (seconds + report.duration, passed and not report.failed)
        if report.when == "teardown":
            self.path.write_text(json.dumps(self.of))


def run_tests(arguments, limit, plugins=()):
    """Pytest's exit status, in a process that has the packages imported already; None beyond the limit."""
    child = os.fork()
    if not child:
        os.setsid()
        sink = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(sink, number)
        import pytest

        os._exit(int(pytest.main(["-n0", "-q", "-p", "no:cacheprovider", *arguments], list(plugins))))
    until = time.monotonic() + limit
    while not (ended := os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
        if time.monotonic() > until:
            break
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what its tests started
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if ended else None


def baseline(file, folder):
    """Names of a test file's tests that pass and are quick, without a mutant, with their seconds."""
    at = folder / f"{Path(file).stem}-{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]}.json"
    if not at.exists():
        import quick

        known = [f"--deselect=tests/unit/{name}" for name in quick.LEFT_OUT if name.startswith(Path(file).name)]
        at.write_text("{}")
        run_tests([file, *known], LIMIT, [Outcomes(at)])
    return {name: took for name, (took, passed) in json.loads(at.read_text()).items() if passed and took < SLOW}


def tried(mutant, files, folder):
    """A mutant's row: the difference, and whether a test failed under it."""
    module, operator, occurrence, line, changed = mutant
    path, left, tests = Path(module), LONG, []
    for seconds in sorted((baseline(file, folder) for file in files), key=lambda each: sum(each.values())):
        for name, took in seconds.items():
            left -= took
            tests += [name] * (left > 0)
    source, times = path.read_text(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    began = time.monotonic()
    try:
        path.write_text(changed)
        status = run_tests(["-x", *tests], LIMIT) if tests else 0
    finally:
        path.write_text(source)
        os.utime(path, ns=times)  # what is compiled already is of this time
    return {
        "module": module, "operator": operator, "occurrence": occurrence, "line": line,
        "difference": list(difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm=""))[3:],
        "survived": status == 0, "status": status, "seconds": round(time.monotonic() - began, 1), "tests": len(tests),
    }  # fmt: skip


def report(rows):
    """Shares by package and module, and what survived."""
    from scipy.stats import binomtest

    for package in PACKAGES:
        of = [row for row in rows if row["module"].startswith(f"{package}/")]
        if not of:
            continue
        count = sum(row["survived"] for row in of)
        low, high = binomtest(count, len(of)).proportion_ci(method="exact")
        print(f"\n{package}: {count} of {len(of)} survived: {count / len(of):.0%} ({low:.0%} to {high:.0%})")
        for module in sorted({row["module"] for row in of}):
            some = [row for row in of if row["module"] == module]
            print(f"  {module}: {sum(row['survived'] for row in some)} of {len(some)}")
            for row in (row for row in some if row["survived"]):
                print(
                    f"    line {row['line']}, {row['operator']} {row['occurrence']}:",
                    *row["difference"],
                    sep="\n      ",
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    kept, of, rows = folder / f"mutants-{asked.seed}.jsonl", testers(), {}
    for line in kept.read_text().splitlines() if kept.exists() else ():
        row = json.loads(line)
        rows[row["module"], row["operator"], row["occurrence"]] = row
    chosen = [list(drawn(package, asked.seed, asked.each)) for package in PACKAGES]
    chosen = [each for some in zip(*chosen, strict=True) for each in some]
    for mutant in chosen:
        known = rows.get(mutant[:3])
        if (not known or (asked.survivors and known["survived"])) and time.monotonic() < until:
            row = rows[mutant[:3]] = tried(mutant, of(dotted(mutant[0])), folder)
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
    report([rows[each[:3]] for each in chosen if each[:3] in rows])


if __name__ == "__main__":
    main()
