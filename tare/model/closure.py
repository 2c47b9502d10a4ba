"""What a measurement depends on: the import closure of what really runs, computed from the syntax of the modules.

Inside an environment that is `tare/worker/main.py` with the module of the launch's mode, the workload, the
framework and the settings that it uses; around it the adapters, and of the harness what launches and the design.
Imports inside functions count. Where a module imports what its specification names, as in
`import_module("workloads." + name)`, the chosen names are followed; where nobody chose, all of that package are.

Code is compared by its program: comments, docstrings, layout and `__version__` do not count, nor does the time of a
file, so that neither a touched file nor a better sentence makes a measurement old. Every supported Python finds the
same hash (tare/model/syntax.py).

What a source says is remembered in the cache by its content, since parsing takes most of a dry run otherwise.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from tare.core.answers import Answers
from tare.core.errors import UserError
from tare.core.files import project_root, sha256_file, sha256_text
from tare.model import syntax
from tare.model.registry import SHARED, SINGLE, environment_module
from tare.worker.frameworks import DEFAULT

MAIN = "tare.worker.main"
WORKLOADS, FRAMEWORKS, SETTINGS = "workloads", "tare.worker.frameworks", "tare.worker.settings"
INSTRUMENTS = "tare.worker.instruments"  # a module of a framework's name, where it has any
SCENARIOS = "tare.launch.scenarios"
INSIDE = ("tare", "tare.worker", WORKLOADS)  # packages whose modules are followed inside a launch
AROUND = ("tare.core.process", "tare.experiments", "tare.launch", "tare.weigh")
# Of each kind of measurement: the modes of its launches, and the module of its design.
KINDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "rounds": (("train",), "tare.experiments.rounds"),
    "command": ((), "tare.weigh.studied"),
    "causes": (("causes",), "tare.experiments.causes"),
    "sweep": (("train",), "tare.experiments.rounds"),
    "starts": (("start",), "tare.experiments.starts"),
    "profile": (("profile", "counters", "train"), "tare.experiments.counter_launches"),
    "ceilings": (("ceilings",), "tare.launch.run"),
    "pipeline": (("pipeline",), "tare.experiments.pipeline"),
    "network": (("network",), "tare.experiments.network"),
    "grid": (("profile",), "tare.experiments.grid"),
    "target": (("start", "ceilings"), "tare.experiments.targets"),
}
CO_RUNNER = "co_runner"  # the mode of the job that runs while a launch runs
WITH_CO_RUNNER = "tare.experiments.co_runner"  # the design of their whole runs
JUDGES = "tare.analysis.extract"
OF_PAPERS = ("tare.literature.audit", "tare.literature.claims")
READING = ("tare.core", "tare.model", "tare.profilers", "tare.stats", "tare.analysis")
SITES = "tare.launch.sites"  # how launches find images, data, compilers, devices
# Whose specification it takes, and what runs inside a command.
FURTHER: Mapping[str, tuple[str, ...]] = {
    "profile": ("tare.experiments.rounds",),
    "command": ("tare.weigh.hook.sitecustomize",),
}
_checkout: ContextVar[Path | None] = ContextVar("checkout", default=None)


@contextlib.contextmanager
def of_checkout(root: Path) -> Iterator[None]:
    """Have all functions here read the sources of another checkout, or of an archive's; none of them is run."""
    before = _checkout.set(root)
    try:
        yield
    finally:
        _checkout.reset(before)


def _root() -> Path:
    return _checkout.get() or project_root()


def inside(
    mode: str, *workloads: str, framework: str | None = None, settings: Iterable[str] = ()
) -> tuple[str, ...]:
    """Paths of what one launch runs inside, relative to the checkout, sorted.

    `mode`: of the launch, as its specification names it. `workloads`: their modules in workloads/; none for a
    launch without one. `framework`: what the worker trains with; None is PyTorch. `settings`: factors of the
    settings that are used; the headline uses none.
    """
    chosen = (
        (WORKLOADS, workloads),
        (SETTINGS, tuple(sorted(settings))),
        (FRAMEWORKS, (framework or DEFAULT,)),
        (INSTRUMENTS, (framework or DEFAULT,)),
    )
    roots = (MAIN, *(f"{WORKLOADS}.{name}" for name in chosen[0][1]))
    return _follow(roots, INSIDE, chosen, (("mode", mode),))


def around(kind: str, environments: Iterable[str], scenario: str = SINGLE) -> tuple[str, ...]:
    """Paths of what starts the launches of one kind of measurement: adapters, launching, scenario, the design."""
    designs = (KINDS[kind][1], *FURTHER.get(kind, ()), *((WITH_CO_RUNNER,) if scenario == SHARED else ()))
    followed = _follow((*designs, SITES), AROUND, ((SCENARIOS, (scenario,)),))
    return tuple(sorted({*adapters(environments), *followed}))


def adapters(environments: Iterable[str]) -> tuple[str, ...]:
    """Paths of the adapters of some environments, with the helpers that they import from envs/, sorted."""
    modules = {f"envs.{environment_module(name)}" for name in environments}
    return tuple(sorted({path for module in modules for path in _follow((module,), ("envs",))}))


def measurement(
    kind: str,
    workload: str | None,
    environments: Iterable[str],
    settings: Iterable[str] = (),
    frameworks: Iterable[str] = (DEFAULT,),
    scenario: str = SINGLE,
    co_runner: str | None = None,
) -> tuple[str, ...]:
    """Paths of all code that a measurement of this kind depends on, sorted; arguments as for `inside`.

    `co_runner` is the workload that runs while each launch runs, where one does.
    """
    used = {"settings": tuple(settings)}
    pairs = [(mode, framework) for mode in KINDS[kind][0] for framework in frameworks]
    launched = {
        path for mode, name in pairs for path in inside(mode, *filter(None, (workload,)), framework=name, **used)
    }
    if co_runner is not None:
        launched |= {path for name in frameworks for path in inside(CO_RUNNER, co_runner, framework=name)}
    return tuple(sorted({*launched, *around(kind, environments, scenario)}))


def code_sha256(*arguments: Any, **more: Any) -> str:
    """Hash of the programs that a `measurement` depends on; equal hashes measure the same thing."""
    return programs_sha256(measurement(*arguments, **more))


def programs_sha256(paths: Iterable[str]) -> str:
    """Hash of the programs in some files, by their paths in the checkout."""
    return listed_sha256(programs(paths))


def programs(paths: Iterable[str]) -> dict[str, str]:
    """Hash of the program in each of some files, by their paths in the checkout."""
    root = _root()
    found = {path: _program_sha256(root / path) for path in paths}
    _answers().save()
    return found


def listed_sha256(hashes: Mapping[str, str]) -> str:
    """One hash of the hashes of some programs, in their order."""
    return sha256_text("".join(f"{path} {sha}\n" for path, sha in hashes.items()))


def analysis() -> tuple[str, ...]:
    """Paths of what turns records into verdicts, sorted."""
    return _follow((JUDGES,), READING)


def literature() -> tuple[str, ...]:
    """Paths of what judges what others published, by tables, sorted."""
    return _follow(OF_PAPERS, (*READING, "tare.literature"))


def folders_sha256(folders: Iterable[str]) -> str:
    """Hash of every file below some folders or files of tare/: for what is cheap to do again."""
    root = project_root()
    paths = [path for name in folders for path in [root / "tare" / name, *(root / "tare" / name).rglob("*")]]
    files = sorted(path for path in paths if path.is_file() and path.suffix != ".pyc")
    return sha256_text("".join(f"{path.relative_to(root)} {sha256_file(path)}\n" for path in files))


def _follow(
    roots: tuple[str, ...],
    within: tuple[str, ...],
    chosen: tuple[tuple[str, tuple[str, ...]], ...] = (),
    known: tuple[tuple[str, str], ...] = (),
) -> tuple[str, ...]:
    """Paths of the modules that `roots` import, and these import, as far as they are in the packages `within`."""
    return _followed(_root(), roots, within, chosen, known)


@cache
def _followed(
    checkout: Path,
    roots: tuple[str, ...],
    within: tuple[str, ...],
    chosen: tuple[tuple[str, tuple[str, ...]], ...],
    known: tuple[tuple[str, str], ...],
) -> tuple[str, ...]:
    choices = dict(chosen)
    prefixes = tuple(f"{prefix}." for prefix in within)
    found: dict[str, Path] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        path = _path(checkout, name)
        if path is None or name in found:
            continue
        found[name] = path
        for other in _imported(name, path, known if name == MAIN else ()):
            package, star, _ = other.partition(".*")
            if star:
                others = choices[package] if package in choices else _modules(checkout, package)
                waiting += [f"{package}.{each}" for each in others]
            elif other in within or other.startswith(prefixes):
                waiting.append(other)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
    return tuple(sorted(str(path.relative_to(checkout)) for path in found.values()))


@cache
def _path(checkout: Path, name: str) -> Path | None:
    """The file of a module or package of a checkout; None where there is none."""
    base = checkout.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _modules(checkout: Path, package: str) -> list[str]:
    folder = checkout.joinpath(*package.split("."))
    return sorted({path.stem for path in folder.glob("*.py")} - {"__init__"})


@cache
def _answers() -> Answers:
    """What sources say, as these versions of our modules and of Python's syntax find it."""
    own = [sha256_file(Path(module)) for module in (__file__, syntax.__file__)]
    return Answers("closure", " ".join([sys.version, *own]))


@cache
def _source_sha256(path: Path) -> str:
    return sha256_file(path)


@cache
def _tree(path: Path) -> ast.Module:
    """The program of a module: its syntax without docstrings and what else does nothing. Raises UserError: it is no
    Python.
    """
    try:
        return syntax.program(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise UserError(f"{path} line {error.lineno} is not Python: {error.msg}") from error


def _statements(node: ast.AST, variables: Mapping[str, str] | None = None) -> Iterator[ast.stmt]:
    """Every statement below a node; of an `if` on a variable whose value is known, those of its branch."""
    fields = ("body", "orelse", "finalbody", "handlers", "cases")
    below = [part for name in fields for part in getattr(node, name, ())]
    if variables and isinstance(node, ast.If) and (taken := _taken(node, variables)) is not None:
        below = taken
    for part in below:
        if isinstance(part, ast.stmt):
            yield part
        yield from _statements(part, variables)


@cache
def _imported(name: str, path: Path, known: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Modules that a module imports anywhere; `package.*` where it computes the name of one in that package.

    `known` are variables whose value is known: of `if mode == "train": … elif …` just that branch is followed.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    question = f"imports of {package} {known} {_source_sha256(path)}"
    return tuple(_answers()(question, lambda: _imports(package, path, known)))


def _imports(package: str, path: Path, known: tuple[tuple[str, str], ...]) -> list[str]:
    computes = any(word in path.read_bytes() for word in (b"import_module", b"__import__"))
    found: list[str] = []
    for node in _statements(_tree(path), dict(known)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*base, *filter(None, [node.module])])
            found += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        elif computes and not hasattr(node, "body"):
            found += filter(None, map(_computed, ast.walk(node)))
    return list(dict.fromkeys(found))


def _taken(node: ast.If, known: Mapping[str, str]) -> list[ast.stmt] | None:
    """The branch that a comparison of a known variable takes; None where it can't be determined."""
    test = node.test
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name) or len(test.ops) != 1:
        return None
    value = test.comparators[0]
    if test.left.id not in known or not isinstance(test.ops[0], ast.Eq) or not isinstance(value, ast.Constant):
        return None
    return node.body if known[test.left.id] == value.value else node.orelse


def _computed(call: ast.AST) -> str | None:
    """What `import_module` or `__import__` names: a module, or `package.*`; None where that can't be determined."""
    if not isinstance(call, ast.Call):
        return None
    function = call.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    if called not in ("import_module", "__import__") or not call.args:
        return None
    argument = call.args[0]
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    first: ast.AST = argument
    if isinstance(argument, ast.BinOp):
        first = argument.left
    elif isinstance(argument, ast.JoinedStr) and argument.values:
        first = argument.values[0]
    elif isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute):
        first = argument.func.value  # "workloads.{}".format(name)
    text = str(first.value).partition("{")[0] if isinstance(first, ast.Constant) else ""
    return f"{text[:-1]}.*" if text.endswith(".") else None


@cache
def _program_sha256(path: Path) -> str:
    return str(_answers()(f"program {_source_sha256(path)}", lambda: sha256_text(syntax.text_of(_tree(path)))))
