"""Mutation testing of a random sample: which small changes of the code does no unit test see?

    python3 -m pip install --target ../cosmic-ray cosmic-ray    # the tests' packages do not have it
    PYTHONPATH=../cosmic-ray:tests/unit .venv/bin/python tests/mutants.py --seed 1

Of each package `--each` places are drawn, and one mutant of each that compiles. Not drawn: annotations, decorators,
messages (`raise`, formatted strings), bare stars of signatures, numbers that a module assigns as its constants.

A mutant meets unit tests that import its module, themselves or by a helper in tests/ (where there are none, those
that import a module that does), without those of tests/unit/quick.py: FILES files, those named after it or that
name it most often. A test that fails or takes longer than SLOW seconds kills it, if it passes without it. What
nothing kills in LIMIT seconds has survived. The clone in `--tree`, of what is committed, is changed; each result is
a line of the file beside it, so that a call goes on where one ended. Shares have their exact interval at 95%.
"""

import argparse
import ast
import collections
import contextlib
import difflib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

from scipy.stats import binomtest

sys.path.insert(0, str(Path(__file__).resolve().parent / "unit"))
import quick

PACKAGES = ("tare/stats", "tare/launch", "tare/experiments")
FILES, SLOW, LIMIT = 4, 60.0, 120.0
PYTEST = ("timeout", "--signal=KILL", f"{LIMIT:g}", sys.executable, "-m", "pytest", "-n0", "-q", "-x")
PYTEST += ("-p", "no:cacheprovider", "-o", f"timeout={SLOW}")  # what tests start is in their group, and killed
LEFT_OUT = tuple(f"--deselect=tests/unit/{each}" for each in quick.LEFT_OUT)


def excluded(source):
    """Spans of a source, as pairs of (line, column), in which no mutant is drawn."""
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Raise | ast.JoinedStr)]
    for node in ast.walk(tree):
        nodes += [getattr(node, "annotation", None), getattr(node, "returns", None)]
    for node in (each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign) and each.value):
        nodes += [each for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
    spans = [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in nodes if isinstance(n, ast.AST)]
    decorators = (one for node in ast.walk(tree) for one in getattr(node, "decorator_list", ()))
    return spans + [((one.lineno, 0), (one.end_lineno, one.end_col_offset)) for one in decorators]  # from their @


def drawn(package, seed, size):
    """Mutants of a package: module, operator, occurrence, line, and the changed source."""
    from cosmic_ray import ast as parsed  # no package of the tests' lock
    from cosmic_ray import mutating, plugins

    at = collections.defaultdict(list)
    for path in Path(package).rglob("*.py"):
        source = path.read_text()
        spans, lines, nodes = excluded(source), source.splitlines(), list(parsed.ast_nodes(parsed.get_ast(source)))
        for name in sorted(set(plugins.operator_names()) - {"core/VariableReplacer", "core/VariableInserter"}):
            operator = plugins.get_operator(name)()
            positions = (each for node in nodes for each in operator.mutation_positions(node))
            for count, (start, end) in enumerate(positions):
                bare = lines[start[0] - 1].startswith("*,", start[1])
                if not bare and not any(first <= start < last for first, last in spans):
                    at[str(path), start, end].append((name, count))
    for module, start, end in random.Random(f"{seed} {package}").sample(sorted(at), len(at)):
        ways = at[module, start, end]
        for operator, count in random.Random(f"{seed} {module} {start} {end}").sample(ways, len(ways)):
            changed = mutating.mutate_code(Path(module).read_text(), plugins.get_operator(operator)(), count)
            with contextlib.suppress(SyntaxError):
                compile(changed, module, "exec", dont_inherit=True)
                yield module, operator, count, start[0], changed
                size -= 1
                break
        if not size:
            return


def importing(path, folder):
    """The files of a folder that import a module; helpers of tests are imported without their folder."""
    *above, stem = path.with_suffix("").parts
    name = rf"^from {re.escape('.'.join(above))}(\.{stem} import| import (\(\n)?[^()]*\b{stem}\b)"
    name = name if above[0] == "tare" else rf"^(from|import) {stem}\b"
    return {each for each in Path(folder).rglob("*.py") if re.search(name, each.read_text(), re.MULTILINE)}


def test_files(module):
    """The test files that a mutant of a module meets."""
    path = module.parent if module.name == "__init__.py" else module
    direct = importing(path, "tests/unit")
    found = direct.union(*(importing(each, "tests/unit") for each in importing(path, "tests") - direct))
    found = found or {each for one in importing(path, "tare") for each in importing(one, "tests/unit")}
    stem, tests = path.stem, [each for each in sorted(found) if each.name.startswith("test_")]
    tests.sort(key=lambda each: (each.stem != f"test_{stem}", each not in direct, -each.read_text().count(stem)))
    return [str(each) for each in tests[:FILES]]


def first_failed(*arguments):
    """The first test that fails, or file that can't be read; None if there is none within LIMIT."""
    said = subprocess.run([*PYTEST, *arguments], stdout=subprocess.PIPE, text=True, check=False).stdout
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said, re.MULTILINE)
    return found[1] if found else None


def killer(module, changed):
    """The first test that fails under a mutant and not without it, or None."""
    source, files, left_out = module.read_text(), test_files(module), [*LEFT_OUT]
    while files:
        try:
            module.write_text(changed)
            name = first_failed(*files, *left_out)
        finally:
            module.write_text(source)
        if name is None or "::" not in name or first_failed(name) is None:
            return name
        left_out.append(f"--deselect={name}")
    return None


def report(rows):
    for package in PACKAGES:
        of = [row for row in rows if row["module"].startswith(f"{package}/")]
        for module in sorted({row["module"] for row in of}):
            killers = [row["killer"] for row in of if row["module"] == module]
            print(f"{module}: {killers.count(None)} of {len(killers)}")
        left = [row for row in of if row["killer"] is None]
        for row in left:
            print(f"{row['module']}, line {row['line']}:", *row["difference"], sep="\n    ")
        if of:
            share, (low, high) = len(left) / len(of), binomtest(len(left), len(of)).proportion_ci(method="exact")
            print(f"{package}: {len(left)} of {len(of)} survived: {share:.0%} ({low:.0%} to {high:.0%})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--tree", type=Path, default="../tare-mutants", help="the clone to change")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=40, help="mutants of each package")
    asked = parser.parse_args()
    root, tree = Path.cwd(), asked.tree.resolve()
    if not tree.exists():
        subprocess.run(["git", "clone", "-q", "--shared", root, tree], check=True)
    subprocess.run(["git", "-C", tree, "fetch", "-q", root, "HEAD"], check=True)
    subprocess.run(["git", "-C", tree, "reset", "-q", "--hard", "FETCH_HEAD"], check=True)
    os.chdir(tree)
    by_text = "--invalidation-mode=checked-hash"  # time and size may be alike
    subprocess.run([sys.executable, "-m", "compileall", "-q", by_text, "tare"], check=True)
    os.environ["PYTHONPATH"] = str(tree)
    kept, rows = tree.with_name(f"{tree.name}-{asked.seed}.jsonl"), {}
    for row in map(json.loads, kept.read_text().splitlines() if kept.exists() else ()):
        rows[row["module"], row["operator"], row["occurrence"]] = row
    by = [list(drawn(package, asked.seed, asked.each)) for package in asked.packages]
    chosen = {mutant[:3]: mutant for some in zip(*by, strict=True) for mutant in some}
    for key, (module, *_, line, changed) in chosen.items():
        if key not in rows:
            source = Path(module).read_text()
            lines = list(difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm=""))[3:]
            row = dict(zip(("module", "operator", "occurrence"), key, strict=True))
            rows[key] = {**row, "line": line, "difference": lines, "killer": killer(Path(module), changed)}
            with kept.open("a") as file:
                file.write(json.dumps(rows[key]) + "\n")
    report([rows[key] for key in chosen])


if __name__ == "__main__":
    main()
