"""The structure: layers import from those above them only, plotting stays in its place, no circles."""

import ast
import sys
from pathlib import Path

from tare.core.files import project_root

ROOT = project_root()
PLOTTING = {"matplotlib", "seaborn"}
# From the ground up; a module may import from its own row and from the rows before it.
LAYERS = [
    {"errors", "files", "process", "progress"},
    {"adapters", "tables", "traces"},
    {"registry"},
    {"study", "trial", "machine", "quantities", "datasheet"},
    {"published", "published_file"},
    {"launch", "arm_images", "bound", "forms", "images", "native", "rootfs", "sysroot", "data", "storage"},
    {"campaign", "rounds", "cause_units", "measure", "starts"},
    {"cause_rows", "metrics", "prices"},
    {"verdicts"},
    {"causes", "suspects"},
    {"audit"},
    {"claims"},
    {"protocols"},
    {"extract"},
    {"reference", "reference_input", "reference_pack", "reference_parts"},
    {"figures"},
    {"report", "notebooks"},
]


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path, top_level_only=False):
    """Names of the modules that a file imports."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def sources():
    return [p for folder in ("tare", "envs", "workloads") for p in sorted((ROOT / folder).rglob("*.py"))]


def test_only_figures_and_report_import_a_plotting_library():
    users = {module_name(p) for p in sources() if PLOTTING & {name.split(".")[0] for name in imports(p)}}
    assert all(name.startswith(("tare.report.figures", "tare.report")) for name in users), users
    assert users, "nothing draws any figure"


def test_spython_stays_in_the_apptainer_adapter():
    users = {module_name(p) for p in sources() if any(name.split(".")[0] == "spython" for name in imports(p))}
    assert users == {"envs.apptainer"}


def test_layers_import_only_from_those_above_them():
    rank = {name: number for number, row in enumerate(LAYERS) for name in row}
    wrong = []
    for path in [*(ROOT / "tare").glob("*.py"), *(ROOT / "tare/literature").glob("*.py")]:
        own = module_name(path).split(".")[1:]
        if not own or own[0] not in rank:
            continue
        for name in imports(path):
            part = name.split(".")
            if part[0] == "tare" and len(part) > 1 and rank.get(part[1], -1) > rank[own[0]]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_there_are_no_circles():
    graph = {module_name(p): {n for n in imports(p, top_level_only=True)} for p in sources()}
    # `from tare.report.figures import x` names the package as well as its module x; the module is the dependency.
    graph = {
        name: {
            n
            for n in found
            if n in graph and n != name and not any(m.startswith(f"{n}.") for m in found & set(graph))
        }
        for name, found in graph.items()
    }
    state = {}

    def visit(name, trail):
        assert state.get(name) != "open", " -> ".join([*trail, name])
        if name not in state:
            state[name] = "open"
            for child in graph[name]:
                visit(child, [*trail, name])
            state[name] = "done"

    for name in graph:
        visit(name, [])


def test_no_module_is_named_like_one_of_the_standard_library():
    names = {p.stem for p in sources() if not p.stem.startswith("_")}
    assert not names & set(sys.stdlib_module_names), names & set(sys.stdlib_module_names)


def test_the_part_that_runs_inside_imports_the_standard_library_and_frameworks_only():
    frameworks = {"torch", "torchvision", "torchtext", "tokenizers"}
    allowed = set(sys.stdlib_module_names) | frameworks | {"tare", "workloads"}
    for folder in ("tare/worker", "workloads"):
        for path in (ROOT / folder).glob("*.py"):
            for name in imports(path):
                assert name.split(".")[0] in allowed, f"{path} imports {name}"
                assert not name.startswith("tare.") or name.startswith("tare.worker"), f"{path} imports {name}"


def test_no_room_is_larger_than_a_room_should_be():
    long = {
        str(p.relative_to(ROOT)): n
        for p in [*sources(), *Path(ROOT / "rules").glob("*.smk")]
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert not long
