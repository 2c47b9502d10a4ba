"""The least studies that have everything: an environment that fails on purpose, arms, settings, another stack."""

BROKEN = '''"""An environment that passes its probe and fails every launch, on purpose."""

from pathlib import Path

from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register


@register("broken")
class Broken(Environment):
    """Fails."""

    title = "Broken on purpose"
    description = "Every launch ends with status 7."
    contained = False

    def probe(self) -> Probe:
        return Probe(available=True, version="0")

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        return Prepared(reference=str(image.tree), bytes=None)

    def command(self, launch: Launch) -> list[str]:
        return ["sh", "-c", "echo fatal: broken on purpose >&2; exit 7"]
'''

LEAST = {
    "stacks": [],
    "conditions": {"page_cache": "as_found"},
    "rounds": {
        **{"units": 2, "arm_units": 2, "stack_units": 2, "setting_units": 2, "discarded": 0},
        "steps": {"levels": ["steady"], "replicates": 1, "warmup_steps": 1, "seconds": 0.2},
    },
    "causes": {"units": 1, "steps": 1},
    "arms": {"rounds": []},
    "profile": {"warmup_steps": 1, "steps": 2},
    "starts": {"repetitions": 1},
    "ceilings": {"working_sets_kib": [256], "gemm_sizes": [128], "repetitions": 1},
}
# An environment that fails on purpose, and two that are missing.
TINY = {**LEAST, "study": "tiny", "environments": ["host", "namespaces", "broken", "docker", "charliecloud"]}
# Arms, settings, another stack.
VARIED = {
    **LEAST,
    "study": "varied",
    "environments": ["host", "namespaces"],
    "stacks": ["paper-2022"],
    "stack_workloads": None,
    "stack_kinds": ["rounds"],
    "stack_environments": ["host", "namespaces"],
    "arms": {
        "workloads": ["softmax_mnist"],
        "rounds": ["allocator=steady", "amp=bf16", "graph=capture"],
    },
}
