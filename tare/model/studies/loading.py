"""Reads a study, or a job's part of one: from a file or inline JSON, laid over config/config.yaml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tare.core.errors import UserError
from tare.core.files import data_root, project_root
from tare.model.schema import in_short, parse, parse_yaml, read_yaml
from tare.model.studies.checks import check
from tare.model.studies.layout import DEFAULT_STUDY
from tare.model.studies.study import PART, PARTS, AnyPart, Study

Sources = Sequence[tuple[str, Mapping[str, Any]]]  # what a study was laid together from: name and content, in order
INLINE = "the inline study"
CONFIG = "config: "  # how a message of `check` begins


def load(source: str | Path) -> dict[str, Any]:
    """What a YAML or JSON file holds, or inline JSON, before it is checked.

    Where only packages are installed, `config/NAME.yaml` that is not here names their copy. Raises UserError: not
    there, unreadable, not YAML, a key twice, or not a mapping.
    """
    inline = str(source).lstrip().startswith("{")
    if not inline and data_root() != project_root() and not Path(source).exists():
        source = next((path for path in [data_root() / source] if path.is_file()), source)
    if not inline and not Path(source).exists():
        raise UserError(f"there is no study file {source}: there are {' '.join(study_files())}")
    config = parse_yaml(str(source), INLINE) if inline else read_yaml(Path(source), "the study")
    if not isinstance(config, dict):
        where = INLINE if inline else source
        raise UserError(f"{where} must hold keys and values, not {type(config).__name__}")
    return config


def study_files() -> list[str]:
    """The studies in config/, as paths from where we are; other files there are none."""
    found = sorted((data_root() / "config").glob("*.yaml"))
    begin = "\nstudy:"
    return [os.path.relpath(path) for path in found if begin in f"\n{path.read_text(errors='replace')}"]


def load_checked(source: str | Path, over: Mapping[str, Any] | None = None) -> Study:
    """A whole study from a file or inline JSON: a partial preset is completed from config/config.yaml. `source`:
    file or inline JSON. `over`: laid over it, from the command line.
    """
    return _checked(load(source), source, over)


def checked_from(sources: Sources, config: Mapping[str, Any] | None = None) -> Study:
    """The study that is merged from these; a mistake is reported with the name of the source that holds it.
    `sources`: name and content of each, in order. `config`: what they come to, where it is known. Raises UserError:
    as `check`.
    """
    if config is None:
        config = {}
        for _, found in sources:
            config = merge(config, found)
    try:
        return check(config)
    except UserError as error:
        raise UserError(in_short(_placed(str(error), sources))) from None


def _placed(message: str, sources: Sources) -> str:
    """A message of `check`, with the name of the last source that has the key that it begins with."""
    found = re.match(rf"{CONFIG}(?:unknown key ')?(\w+)", message)
    if found is None or not sources:
        return message
    return f"{holder(found[1], sources)}: {message.removeprefix(CONFIG)}"


def holder(key: str, sources: Sources) -> str:
    """Name of the last of these that has a key; of the last of all where none has it."""
    return ([name for name, content in sources if key in content] or [sources[-1][0]])[-1]


def refuse_nameless(sources: Sources) -> None:
    """See that one of those that are laid over config/config.yaml names the study. Raises UserError: none does; its
    results would be taken for the default study's.
    """
    if sources and not any("study" in content for _, content in sources):
        raise UserError(
            f"{sources[-1][0]}: study missing: its results would be taken for those of {DEFAULT_STUDY}; give it "
            "its own name, as in `study: mine`"
        )


def _name_of(source: str | Path) -> str:
    return INLINE if str(source).lstrip().startswith("{") else str(source)


def load_part(kind: type[AnyPart], source: str | Path) -> AnyPart:
    """What one kind of work depends on, from its part of a study (`part_of`) or from a whole study or preset.
    Raises UserError: the study is wrong, or it is the part for another kind of work.
    """
    found = load(source)
    name = found.pop(PART, None)
    if name is None:
        return cast(AnyPart, _checked(found, source))  # a study is each of its parts
    if PARTS.get(str(name)) is not kind:
        raise UserError(f"the inline study is the part for {name!r}, which is not what this command runs")
    return parse(kind, found, f"the study's part for {name}", UserError)


def _checked(found: Mapping[str, Any], source: str | Path, over: Mapping[str, Any] | None = None) -> Study:
    needed = {name for name, field in Study.model_fields.items() if field.is_required()}
    sources: list[tuple[str, Mapping[str, Any]]] = [(_name_of(source), found)]
    if not needed <= set(found):  # a whole study stays as it is: what it dropped does not come back
        if sources[0][0] != INLINE:
            refuse_nameless(sources)
        base = data_root() / "config/config.yaml"
        sources.insert(0, (os.path.relpath(base), load(base)))
    return checked_from([*sources, *([("the command line", over)] if over else [])])


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a preset over a study as Snakemake does: mappings are merged, anything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged
