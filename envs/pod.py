"""Pod: a container of Kubernetes on this machine, which has to be a node of the cluster; no cluster has run it yet.

A pod's processors and memory are limits that the kubelet sets: requests equal limits, in whole processors, so that
the pod is of the class Guaranteed, and a static CPU manager gives it its own processors.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from envs._conditions import image_of
from tare.core.errors import TareError, UnavailableError
from tare.core.files import home_dir, text_of
from tare.core.process import Finished, run
from tare.launch.trial import probe_by_trial
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.runtimes.findings import UNEQUAL, Finding, details_of, refuse

CALL_S, LOAD_S = 30.0, 900.0
NAMESPACE = "default"
GUIDE = "https://kubernetes.io/docs/tasks/tools/"
CONFIGURE = "name a cluster that answers in KUBECONFIG or ~/.kube/config"
STATIC = "have the kubelet's administrator set cpuManagerPolicy: static, and reservedSystemCPUs"
PART_OF_MEMORY = 4  # of a node's memory a launch gets a quarter: two may run at once, and the host's own
# A pod has no field for open files, and none that takes its network away: one that is to have none does not start.
LIMITED = 'ulimit -n "$0" && exec "$@"'
ISOLATED = (
    "while read -r name rest; do case $name in lo:*|*\\|*) ;; "
    '*:*) echo "a pod has its cluster\'s network: $name" >&2; exit 125 ;; esac; done < /proc/net/dev; '
    f"{LIMITED}"
)


@dataclass(frozen=True, kw_only=True)
class Node:
    """This machine as a node of a cluster."""

    name: str
    memory_bytes: int  # that pods may have
    cpu_manager: str | None = None  # policy of its kubelet's CPU manager; None where it is not known


def this_node(nodes: Mapping[str, Any], machine_id: str, hostname: str) -> Node:
    """This machine among `kubectl get nodes --output json`, by its identity, or by its name where that is unknown.
    Raises UnavailableError: none of them is this machine, or the answer is of another form.
    """
    try:
        for node in nodes["items"]:
            name, identity = node["metadata"]["name"], node["status"]["nodeInfo"]["machineID"]
            if identity == machine_id if machine_id and identity else name == hostname:
                memory = node["status"]["allocatable"]["memory"]
                return Node(name=name, memory_bytes=bytes_of(memory))
        names = ", ".join(node["metadata"]["name"] for node in nodes["items"]) or "none"
    except (KeyError, TypeError, ValueError) as error:
        raise UnavailableError(f"what kubectl says of the nodes is not understood: {error!r}") from error
    raise UnavailableError(
        f"this machine is no node of the cluster (its nodes: {names}); a pod elsewhere can't be compared with it",
        "run Tare on a node of the cluster",
    )


def bytes_of(quantity: str) -> int:
    """Bytes of a quantity as Kubernetes writes it: 16Gi, 32000000Ki, 128974848; ValueError for what is none."""
    for number, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), start=1):
        if quantity.endswith(unit):
            return int(quantity.removesuffix(unit)) << 10 * number
    return int(quantity)


def follows_from(node: Node) -> list[Finding]:
    """What follows for launches from how the kubelet gives out processors."""
    if node.cpu_manager == "static":
        return [Finding(says="the kubelet's CPU manager is static: it chooses a pod's whole processors")]
    if node.cpu_manager is None:
        return [Finding(says="this user may not see the kubelet's CPU manager: look whether it is static")]
    says = (
        f"the kubelet's CPU manager is {node.cpu_manager!r}: a pod's processors are a quota of time on them all, "
        f"so that {UNEQUAL}"
    )
    return [Finding(says=says, refuses=True, remedy=STATIC)]


def overrides(launch: Launch, node: Node) -> dict[str, Any]:
    """The pod of a launch, but for its command, which kubectl writes; pure.

    Its container has the pod's name, by which kubectl lays it over its own.
    """
    quota = launch.quota
    cpu = str(len(launch.cpus)) if quota is None else f"{1000 * quota.quota_us // quota.period_us}m"
    amounts = {"cpu": cpu, "memory": str(node.memory_bytes // PART_OF_MEMORY)}
    binds = {f"bind-{number}": bind for number, bind in enumerate(launch.binds)}
    container = {
        "name": launch.name,
        "image": image_of(launch),
        "imagePullPolicy": "Never",
        "stdin": True,
        "stdinOnce": True,
        "workingDir": str(launch.workdir),
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {
            "runAsUser": launch.uid,
            "runAsGroup": launch.gid,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "tmp", "mountPath": "/tmp"},
            *(
                {"name": name, "mountPath": str(bind.target), "readOnly": not bind.writable}
                for name, bind in binds.items()
            ),
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": launch.name, "labels": {"app.kubernetes.io/managed-by": "tare"}},
        "spec": {
            "nodeName": node.name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": launch.network == "host",
            "containers": [container],
            "volumes": [
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(launch.shm_bytes)}},
                {"name": "tmp", "emptyDir": {}},
                *({"name": name, "hostPath": {"path": str(bind.source)}} for name, bind in binds.items()),
            ],
        },
    }


@register("pod")
class Pod(Environment):
    """A pod on this node, started by kubectl; its image is in the store of the node's containerd."""

    title = "Kubernetes pod"
    description = "A pod of the class Guaranteed on this node: requests equal limits, in whole processors."
    programs: ClassVar[tuple[str, ...]] = ("kubectl", "ctr", "k3s")
    unseen: ClassVar[tuple[str, ...]] = ("affinity",)  # which processors it gets is the kubelet's choice
    joins_networks = False
    sets_quotas = True
    has_daemon = True
    keeps_images = True
    own_limits = frozenset({"CPU quota", "CPU weight", "memory", "memory and swap", "swap", "processes"})
    trial_s = 60.0

    def __init__(self, node: Node | None = None) -> None:
        self._node = node

    @property
    def known_node(self) -> Node:
        """The node as the cluster described it, in `session` or before; else one of this machine's name; pure."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return self._node or Node(name=os.uname().nodename.lower(), memory_bytes=memory)

    def ask(self) -> Node:
        """The node as the cluster describes it, asked once; UnavailableError where none answers."""
        if self._node is None:
            nodes = json.loads(self.call("get", "nodes", "--output", "json").stdout)
            node = this_node(nodes, text_of(Path("/etc/machine-id")) or "", os.uname().nodename.lower())
            policy = None
            answer = self.call("get", "--raw", f"/api/v1/nodes/{node.name}/proxy/configz", check=False)
            if answer.ok:
                policy = json.loads(answer.stdout).get("kubeletconfig", {}).get("cpuManagerPolicy", "none")
            self._node = Node(name=node.name, memory_bytes=node.memory_bytes, cpu_manager=policy)
        return self._node

    def probe(self) -> Probe:
        """Ask the cluster, bring the trial image into this node's store, and launch it."""
        version = None
        try:
            if shutil.which("kubectl") is None:
                raise UnavailableError("kubectl is not installed", GUIDE)
            answer = self.call("version", "--output", "json")
            version = json.loads(answer.stdout)["serverVersion"]["gitVersion"]
            follows = follows_from(self.ask())
            refuse(follows)
        except (TareError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "reason", None) or f"kubectl's answer is not understood: {error}"
            remedy = getattr(error, "remedy", None) or CONFIGURE
            return Probe(available=False, version=version, reason=reason, remedy=remedy)
        return probe_by_trial(self, version, examine=lambda trial: details_of(follows))

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Know the node before arguments of launches are asked for; UnavailableError where no cluster answers."""
        self.ask()
        yield

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Import the archive into the store that this node's kubelet takes images from, as root may."""
        started = time.monotonic()
        store("import", str(image.archive), timeout_s=LOAD_S)
        return Prepared(reference=image.tag, bytes=None, seconds={"load": time.monotonic() - started})

    def places(self, prepared: Prepared) -> tuple[Path, ...]:
        """Nobody says where the layers of an image are."""
        raise UnavailableError("containerd does not say where the layers of an image are")

    def is_intact(self, prepared: Prepared) -> bool:
        """Whether the node still has the image: a kubelet removes old ones where its disk is full."""
        listed = store("list", "--quiet", f"name==docker.io/{prepared.reference}")
        return bool(listed.stdout.strip())

    def command(self, launch: Launch) -> list[str]:
        """`kubectl run`, which forwards the standard streams and the exit status."""
        pod = json.dumps(overrides(launch, self.known_node), separators=(",", ":"))
        isolated = launch.network is None and launch.isolate_network
        return [
            *("kubectl", "run", launch.name, "--namespace", NAMESPACE, "--image", image_of(launch)),
            *("--restart=Never", "--rm", "--stdin", "--quiet"),
            *("--override-type=strategic", "--overrides", pod, "--command", "--"),
            *("/bin/sh", "-c", ISOLATED if isolated else LIMITED, str(launch.nofile), *launch.argv),
        ]

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """The pod of a killed client goes on."""
        return [["kubectl", "delete", "pod", launch.name, "--namespace", NAMESPACE, "--now", "--ignore-not-found"]]

    def environment_variables(self) -> dict[str, str]:
        """Where kubectl finds its cluster."""
        kept = {name: os.environ[name] for name in ("PATH", "KUBECONFIG") if name in os.environ}
        return {**kept, "HOME": str(home_dir())}

    def call(self, *arguments: str, check: bool = True) -> Finished:
        """The answer of kubectl; UnavailableError where it fails, unless `check` is off."""
        return run(["kubectl", *arguments], timeout_s=CALL_S, env=self.environment_variables(), check=check)


def store(*arguments: str, timeout_s: float = CALL_S) -> Finished:
    """An answer of containerd's own client on the images of Kubernetes; UnavailableError where it fails."""
    client = ["k3s", "ctr"] if shutil.which("k3s") else ["ctr"]
    return run([*client, "--namespace", "k8s.io", "images", *arguments], timeout_s=timeout_s, check=True)
