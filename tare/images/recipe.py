"""What every image is made of: containers/recipe.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.model.schema import read_yaml


def load_recipe(path: Path | None = None) -> dict[str, Any]:
    """Read containers/recipe.yaml. Raises UserError where it can't be read, or lacks one of its parts."""
    path = path or project_root() / "containers" / "recipe.yaml"
    recipe: dict[str, Any] = read_yaml(path, "the recipe")
    parts = {"base": {"registry", "debian"}, "native": {"packages"}, "config": {"env", "workdir", "labels"}}
    for part, keys in parts.items():
        if not isinstance(recipe, dict) or not keys <= set(recipe.get(part) or {}):
            raise UserError(f"{path}: {part!r} needs {', '.join(sorted(keys))}")
    return recipe
