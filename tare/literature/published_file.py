"""Reads and checks the files of config/published: their keys, their workloads, their columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
import pandas as pd
import yaml

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.model.quantities import parse_as
from tare.model.registry import module_names
from tare.model.words import nearest

KERNEL_COLUMNS = (
    "workload", "env", "kernel_index", "kernel", "invocations", "metric",
    "min", "min_unit", "max", "max_unit", "avg", "avg_unit",
)  # fmt: skip
# Base unit of each metric of a kernel, by the profiler's name of it.
KERNEL_METRICS = {
    "warp_execution_efficiency": "%",
    "dram_read_transactions": "1",
    "dram_write_transactions": "1",
    "dram_read_throughput": "B/s",
    "dram_write_throughput": "B/s",
    "flop_count_dp": "1",
    "flop_count_sp": "1",
    "flop_count_hp": "1",
    "dram_utilization": "1",
    "sysmem_utilization": "1",
    "tex_cache_hit_rate": "%",
}
STATISTICS = ("min", "max", "avg")


def read_paper(path: Path) -> dict[str, Any]:
    """Content of one study's file, checked against config/schemas/published.schema.json.

    Raises:
        UserError: unreadable, not YAML, or not what the schema asks for; the message names file and key.
    """
    try:
        content = _texts(yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the published study {path}: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: not YAML: {getattr(error, 'problem', error)}") from error
    try:
        _validator()(content)
    except fastjsonschema.JsonSchemaValueException as problem:
        raise UserError(f"{path}: {_explain(problem, content)}") from problem
    if content["paper"] != path.stem:
        raise UserError(f"{path}: paper: {content['paper']!r} must be the file's name, {path.stem!r}")
    # Only the study that is repeated here has workloads of ours; the others name models.
    known = module_names("workloads")
    for part, entry in _workloads(content):
        if entry not in known:
            raise UserError(f"{path}: {part}: unknown workload {entry!r}: {nearest(entry, known)}")
    return content


def read_kernels(path: Path) -> pd.DataFrame:
    """One row per kernel and metric, in base units beside the printed numbers; empty where there is no file.

    Raises:
        UserError: a column too many or too few, a number or unit that is broken, an unknown metric or workload; the
            message names file and line.
    """
    columns = [*KERNEL_COLUMNS, "unit", *(f"{name}_printed" for name in STATISTICS)]
    if not path.exists():
        return pd.DataFrame(columns=columns)
    with path.open(encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle)
        header = list(reader.fieldnames or [])
        for name in header:
            if name not in KERNEL_COLUMNS:
                raise UserError(f"{path}: unknown column {name!r}: {nearest(name, KERNEL_COLUMNS)}")
        if missing := [name for name in KERNEL_COLUMNS if name not in header]:
            raise UserError(f"{path}: column {', '.join(missing)} missing")
        known = module_names("workloads")
        rows = [_kernel_row(row, known, f"{path} line {reader.line_num}") for row in reader]
    return pd.DataFrame(rows, columns=columns)


def _kernel_row(row: Mapping[str, Any], workloads: Sequence[str], at: str) -> dict[str, Any]:
    if None in row or None in row.values():
        raise UserError(f"{at}: {len(KERNEL_COLUMNS)} columns are wanted; the line has more or fewer")
    if row["workload"] not in module_names("workloads"):
        raise UserError(
            f"{at}: workload: {row['workload']!r}: {nearest(row['workload'], module_names('workloads'))}"
        )
    if row["metric"] not in KERNEL_METRICS:
        raise UserError(f"{at}: metric: {row['metric']!r}: {nearest(row['metric'], KERNEL_METRICS)}")
    for name in ("kernel_index", "invocations"):
        if not row[name].isdecimal() or int(row[name]) < 1:
            raise UserError(f"{at}: {name}: {row[name]!r} must be a whole number, 1 or more")
    unit = KERNEL_METRICS[row["metric"]]
    found: dict[str, Any] = {**row, "unit": unit}
    for name in ("kernel_index", "invocations"):
        found[name] = int(row[name])
    for name in STATISTICS:
        found[name] = parse_as(f"{row[name]} {row[f'{name}_unit']}", unit, f"{at}: {name}").value
        found[f"{name}_printed"] = float(row[name])
    return found


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is a mistake, not a silent loss of the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key {key_node.value!r} stands twice", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _texts(content: Any) -> Any:
    """The same with all keys as text: batch sizes are keys."""
    if isinstance(content, dict):
        return {str(key): _texts(value) for key, value in content.items()}
    return [_texts(value) for value in content] if isinstance(content, list) else content


def _workloads(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for part in ("text", "facts", "settings", "figures", "logs", "times", "kernels_listed"):
        found += [(part, entry["workload"]) for entry in content.get(part, []) if "workload" in entry]
    return found + [("claims", name) for entry in content.get("claims", []) for name in entry["workloads"]]


@cache
def _validator() -> Callable[[Any], Any]:
    path = project_root() / "config/schemas/published.schema.json"
    return fastjsonschema.compile(json.loads(path.read_text()), use_default=False)


def _place(path: list[Any], content: Any) -> str:
    """Where in the file, with the name of an entry beside its number."""
    parts = []
    for part in path:
        content = content[int(part)] if isinstance(content, list) else content.get(part)
        label = ""
        if isinstance(content, dict):
            names = (content.get(key) for key in ("id", "specification", "figure", "name"))
            label = next((f" ({name})" for name in names if name), "")
        parts.append(f"{part}{label}")
    return ": ".join(parts) or "top level"


def _explain(problem: fastjsonschema.JsonSchemaValueException, content: Any) -> str:
    where = _place(list(problem.path[1:]), content)
    value = problem.value
    match problem.rule:
        case "additionalProperties":
            known = problem.definition.get("properties", {})
            if "patternProperties" in problem.definition:
                return f"{where}: keys must be batch sizes"
            unknown = next(key for key in value if key not in known)
            return f"{where}: unknown key {unknown!r}: {nearest(str(unknown), known)}"
        case "required":
            missing = [key for key in problem.definition["required"] if key not in value]
            known = problem.definition["properties"]
            unknown = next((key for key in value if key not in known), None)
            if unknown is not None:  # more likely misspelt than missing
                return f"{where}: unknown key {unknown!r}: {nearest(str(unknown), known)}"
            return f"{where}: {', '.join(missing)} missing"
        case "oneOf":
            choices = " or ".join(" and ".join(choice["required"]) for choice in problem.rule_definition)
            return f"{where}: needs one of {choices}"
        case "enum":
            known = [str(choice) for choice in problem.rule_definition]
            return f"{where}: {value!r} is not allowed: {nearest(str(value), known)}"
    if "as it was printed" in problem.definition.get("description", ""):
        return f"{where}: {value!r} is no quantity; write a number and its unit, such as '15.1 us'"
    if problem.rule == "type" and problem.rule_definition == "string":
        return f"{where}: {value!r} must be text: put it in quotes"
    return f"{where}: {value!r}: {problem.message.removeprefix('data').strip()}"
