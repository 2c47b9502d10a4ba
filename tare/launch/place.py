"""Where launches of one environment find what they need: a site, from its image record and the data record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.model.environment import Environment, GpuAccess
from tare.model.records.images import ImageRecord
from tare.model.studies.stacks import framework_of
from tare.worker.frameworks import DEFAULT


@dataclass(frozen=True, kw_only=True)
class Site:
    """One environment, its interpreter, image and data. Without `python` it launches commands only.

    `isolates_network` is what its trial launch showed: some machines let nobody make an empty network. `options`
    are levels of factors that the adapter itself varies; `folders` are shown inside read-only, at their own paths.
    `gpu` is the way to the NVIDIA devices that a trial launch has shown to work (tare.launch.gpu). `framework` is
    what its stack trains with. `data_of` holds the data of further workloads, for launches that serve several.
    """

    environment: Environment
    python: str | None = None
    reference: str | None = None
    data: Path | None = None
    isolates_network: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    scratch: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    gpu: GpuAccess | None = None
    framework: str = DEFAULT
    data_of: Mapping[str, Path] = field(default_factory=dict)

    @property
    def interpreter(self) -> str:
        """The Python inside. Raises UnavailableError: the site has none; a user's command needs none."""
        if self.python is None:
            raise UnavailableError(f"{self.environment.title}: its site names no Python, which Tare's worker needs")
        return self.python


def site_of(env: str, adapter: Environment, image: ImageRecord, data: Path | None) -> Site:
    """A launch site from an image record. Raises UnavailableError: the record says that this environment has no
    image here, and why.
    """
    if image.status != "ok" or image.python is None:
        raise UnavailableError(image.reason or f"{env} has no image")
    return Site(
        environment=adapter,
        python=image.python,
        reference=image.reference,
        data=data,
        isolates_network=image.isolates_network,
        options=image.options,
        framework=framework_of(image.stack),
        folders=tuple(map(Path, image.binds)),
    )
