"""How a user's job is started in each environment: as its user would start it there, with their own options.

Nothing of a study's conditions is set (processors, shared memory, limits, a read-only root): what a runtime does by
itself is what is weighed. The few options that Tare adds name the launch, show the job's folder and the launch's
own, and let the command run as this user.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import UnavailableError, UserError
from tare.core.files import cache_path, home_dir, project_root, sha256_text
from tare.core.places import user_name
from tare.core.process import Finished, run
from tare.core.progress import step
from tare.machine.caller import EVERY
from tare.model.choices import Choice, image_kind, option_values
from tare.model.environment import Bind, Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import environment
from tare.runtimes import daemon

CALL_S, PULL_S = 30.0, 3600.0
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USERS, NETWORKS = ("--user", "-u"), ("--network", "--net")


@dataclass(frozen=True, kw_only=True)
class Image:
    """What an environment is started from: as its command line names it; its digest where it has one; what stores
    its layers, where a daemon or the like does.
    """

    reference: str | None
    digest: str | None = None
    storage: str | None = None


class Plain(Environment):
    """An environment of the user's own.

    Attributes:
        choice: what the user named.
        shell: the variables of the user's shell that its client is given.
        network: the path of the network without a way out that launches enter; None where they have the machine's.
    """

    own_limits = EVERY  # they are what is weighed

    def __init__(self, choice: Choice, shell: Mapping[str, str]) -> None:
        self.choice, self.shell = choice, dict(shell)
        self.network: Path | None = None
        self.title = choice.name  # type: ignore[misc]
        self.contained = choice.is_contained  # type: ignore[misc]

    @abstractmethod
    def find(self, folder: Path) -> Image:
        """Its image, fetched where it is not here.

        Args:
            folder: for an image that is a file of ours.

        Raises:
            UserError: there is no such image or folder.
            UnavailableError: the runtime is missing, or can't get it.
        """

    def hides(self, path: Path) -> bool:
        """Whether a launch is shown something else than what this machine has at a path."""
        return False

    def probe(self) -> Probe:
        """Not asked for: the first launch of the job shows it."""
        return Probe(available=True)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Not asked for: the image is the user's own.

        Raises:
            UnavailableError: always.
        """
        raise UnavailableError(f"{self.title} takes no image of a stack")

    def environment_variables(self) -> dict[str, str]:
        """The shell's variables, with what the runtime's client needs."""
        return {"PATH": SYSTEM_PATH, "HOME": str(home_dir()), "USER": user_name(), **self.shell}

    def isolated(self, launch: Launch) -> list[str]:
        """What enters the network without a way out, and becomes the command that follows."""
        if self.network is None:
            return []
        own_ids = [] if launch.uid == 0 else [f"--user={self.network.with_name('user')}", "--preserve-credentials"]
        return ["nsenter", *own_ids, f"--net={self.network}", "--"]

    def places(self, prepared: Prepared) -> tuple[Path, ...]:
        """Files of the user's own: which of them a job runs code from is seen when it runs.

        Raises:
            UnavailableError: always.
        """
        raise UnavailableError("its files are the user's own")


class OnTheMachine(Plain):
    """The machine's own files: the host, a virtual environment, a conda environment."""

    def find(self, folder: Path) -> Image:
        """See that the environment has a Python.

        Raises:
            UserError: it has none.
        """
        if self.choice.image is None:
            return Image(reference=None)
        prefix = Path(self.choice.image).expanduser().absolute()
        if not (prefix / "bin/python").exists():
            raise UserError(f"{self.choice.text}: {prefix} has no bin/python: name the folder of the environment")
        return Image(reference=str(prefix))

    def command(self, launch: Launch) -> list[str]:
        """The user's words, then the job in its folder."""
        words = [*self.isolated(launch), *self.choice.options, "env", "-C", str(launch.workdir)]
        if launch.reference is not None:
            words += [f"PATH={launch.reference}/bin:{self.shell.get('PATH', SYSTEM_PATH)}"]
            words += [f"{'VIRTUAL_ENV' if self.choice.runtime == 'venv' else 'CONDA_PREFIX'}={launch.reference}"]
        return [*words, *launch.argv]


class Containers(Plain):
    """Docker and Podman, whose command lines are alike."""

    joins_networks = False

    def __init__(self, choice: Choice, shell: Mapping[str, str]) -> None:
        super().__init__(choice, shell)
        self.inner = environment("docker") if choice.runtime == "docker" else None
        self.has_daemon = self.inner is not None  # type: ignore[misc]

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Docker's daemon, a private one where none answers and we may start it."""
        if self.inner is None:
            yield
            return
        with self.inner.session():
            yield

    def hides(self, path: Path) -> bool:
        """As Docker's daemon does with what was mounted after it began in its own mount namespace."""
        return self.inner is not None and daemon.hides(path)

    def environment_variables(self) -> dict[str, str]:
        """With where Docker's daemon listens."""
        own = self.inner.environment_variables() if self.inner is not None else {}
        return {**super().environment_variables(), **own}

    def find(self, folder: Path) -> Image:
        """The image's ID and digest; it is pulled where it is not here.

        Raises:
            UnavailableError: the runtime does not answer, or can't pull it.
        """
        image = str(self.choice.image)
        if (found := self._inspect(image)) is None:
            with step(f"{self.choice.name}: {self.choice.runtime} pull {image}"):
                pulled = self._call("pull", "--quiet", image, timeout_s=PULL_S)
            if not pulled.ok or (found := self._inspect(image)) is None:
                raise UnavailableError(f"{self.choice.text}: {pulled.explain()}")
        return found

    def _inspect(self, image: str) -> Image | None:
        found = self._call("image", "inspect", image)
        if not found.ok:
            if "no such image" in found.stderr.lower() or "image not known" in found.stderr.lower():
                return None
            raise UnavailableError(f"{self.choice.text}: {found.explain()}")
        (inspected,) = json.loads(found.stdout)
        identity = inspected["Id"] if inspected["Id"].startswith("sha256:") else f"sha256:{inspected['Id']}"
        digest = next((one.partition("@")[2] for one in inspected.get("RepoDigests") or []), identity)
        driver = getattr(getattr(self.inner, "known_info", None), "driver", None)
        storage = (inspected.get("GraphDriver") or {}).get("Name") or driver
        return Image(reference=identity, digest=digest, storage=storage)

    def _call(self, *arguments: str, timeout_s: float = CALL_S) -> Finished:
        return run([self.choice.runtime, *arguments], timeout_s=timeout_s, env=self.environment_variables())

    def command(self, launch: Launch) -> list[str]:
        """`run` with what names the launch, then the user's options. The root of a rootless daemon is this user."""
        options = self.choice.options
        info = getattr(self.inner, "known_info", None)  # what Docker's daemon has said
        own = "0:0" if info is not None and info.rootless else f"{launch.uid}:{launch.gid}"
        user = [] if option_values(options, *USERS) else ["--user", own]
        if not option_values(options, "--userns"):
            user += ["--userns=host"] if info is not None and info.remaps else []
            user += ["--userns=keep-id"] if self.choice.runtime == "podman" and launch.uid != 0 else []
        cut_off = launch.isolate_network and not option_values(options, *NETWORKS)
        return [
            *(self.choice.runtime, "run", "--rm", "--interactive", "--pull=never", "--name", launch.name),
            *(["--network", "none"] if cut_off else []),
            *user,
            *("--workdir", str(launch.workdir)),
            *(part for bind in launch.binds for part in ("--mount", _mount(bind))),
            *options,
            *("--entrypoint", launch.argv[0], str(launch.reference), *launch.argv[1:]),
        ]

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """A container whose client was killed is kept by its daemon or its monitor."""
        remove = [self.choice.runtime, "rm", "--force", launch.name]
        if self.choice.runtime == "docker":
            return [remove]
        remove[3:3] = ["--ignore", "--time", "0"]
        return [remove, [sys.executable, str(project_root() / "envs/_monitors.py"), launch.name], remove]


def _mount(bind: Bind) -> str:
    fields = ["type=bind", _field("source", bind.source), _field("target", bind.target)]
    return ",".join([*fields, *([] if bind.writable else ["readonly"])])


def _field(key: str, path: Path) -> str:
    text = f"{key}={path}"
    return '"' + text.replace('"', '""') + '"' if any(one in text for one in ',"\n') else text


class Apptainer(Plain):
    """Apptainer or Singularity; a source is pulled once into a file of ours."""

    def __init__(self, choice: Choice, shell: Mapping[str, str]) -> None:
        super().__init__(choice, shell)
        self.inner = environment("apptainer")

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """As the workflow's own launches have it."""
        with self.inner.session():
            yield

    def environment_variables(self) -> dict[str, str]:
        """With a PATH that has the helpers of FUSE."""
        own = self.inner.environment_variables()
        path = f"{self.shell.get('PATH', SYSTEM_PATH)}:{own['PATH']}"
        return {**own, **super().environment_variables(), "PATH": path}

    def find(self, folder: Path) -> Image:
        """The file or folder; a source is pulled.

        Raises:
            UserError: there is no such file.
            UnavailableError: it can't be pulled.
        """
        text = str(self.choice.image)
        if image_kind(self.choice) != "source":
            path = Path(text).expanduser().absolute()
            if not path.exists():
                raise UserError(f"{self.choice.text}: {path} does not exist")
            return Image(reference=str(path))
        target = folder / f"{sha256_text(text)[:16]}.sif"
        if not target.exists():
            partial = target.with_suffix(".part.sif")
            with step(f"{self.choice.name}: apptainer pull {text}"):
                words = [*self.program, "pull", *self.userns, "--force", str(partial), text]
                pulled = run(words, timeout_s=PULL_S, env=self.environment_variables())
            if not pulled.ok:
                raise UnavailableError(f"{self.choice.text}: {pulled.explain()}")
            partial.replace(target)
        return Image(reference=str(target))

    @property
    def program(self) -> list[str]:
        """What begins its command line."""
        return [str(getattr(self.inner, "program", "apptainer")), "--quiet"]

    @property
    def userns(self) -> list[str]:
        """Root without every capability has to ask for a user namespace."""
        asked = {"--userns", "-u"} & set(self.choice.options)
        return ["--userns"] if self.lacks_capabilities and not asked else []

    @property
    def lacks_capabilities(self) -> bool:
        """Whether this is root without every capability."""
        return bool(getattr(self.inner, "userns", False))

    def command(self, launch: Launch) -> list[str]:
        """`exec` with the job's folder, then the user's options."""
        return [
            *self.isolated(launch),
            *(*self.program, "exec", *self.userns),
            *(part for bind in launch.binds for part in ("--bind", _colons(bind, writable=":rw", read=":ro"))),
            *("--pwd", str(launch.workdir)),
            *self.choice.options,
            *(str(launch.reference), *launch.argv),
        ]

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """The FUSE server of a killed launch outlives it."""
        return self.inner.cleanup(launch)


class Charliecloud(Plain):
    """ch-run on a folder of the user's own."""

    def find(self, folder: Path) -> Image:
        """The folder.

        Raises:
            UserError: it is not one that ch-run can enter.
        """
        path = Path(str(self.choice.image)).expanduser().absolute()
        if not (path / "bin").exists() or not (path / "usr").is_dir():
            made = f"ch-convert -o dir IMAGE {path}"
            raise UserError(f"{self.choice.text}: {path} is not an unpacked image: make one by `{made}`")
        return Image(reference=str(path))

    def command(self, launch: Launch) -> list[str]:
        """`ch-run` with the job's folder, then the user's options."""
        return [
            *self.isolated(launch),
            "ch-run",
            *(f"--bind={_colons(bind)}" for bind in launch.binds),
            f"--cd={launch.workdir}",
            *self.choice.options,
            *(str(launch.reference), "--", *launch.argv),
        ]

    def mount_points(self, launch: Launch) -> tuple[Path, ...]:
        """ch-run makes none in a folder that it mounts read-only."""
        return tuple(Path(f"{launch.reference}{bind.target}") for bind in launch.binds)


def _colons(bind: Bind, *, writable: str = "", read: str = "") -> str:
    return f"{bind.source}:{bind.target}{writable if bind.writable else read}"


KINDS: Mapping[str, type[Plain]] = {
    **dict.fromkeys(("host", "venv", "conda"), OnTheMachine),
    **dict.fromkeys(("docker", "podman"), Containers),
    "apptainer": Apptainer,
    "charliecloud": Charliecloud,
}


def runtime_of(choice: Choice, shell: Mapping[str, str]) -> Plain:
    """What starts launches of an environment."""
    return KINDS[choice.runtime](choice, shell)


def image_folder() -> Path:
    """The folder of pulled images."""
    return cache_path("weigh", "images", str(os.getuid()))
