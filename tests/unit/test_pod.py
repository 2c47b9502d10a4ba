"""Pods of Kubernetes: manifests by the schema of its releases, answers of a cluster, and what follows from them.

No cluster has run them: answers are written after its documentation. Where kubectl is installed, it makes the pods
of a dry run.
"""

import http.server
import json
import os
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
from test_adapters import LAUNCH

from envs import pod
from envs.pod import Node, Pod, bytes_of, follows_from, overrides, this_node
from tare.core.errors import UnavailableError
from tare.core.process import Finished
from tare.model.environment import Bind, Quota

NODE = Node(name="n1", memory_bytes=8 << 30, cpu_manager="static")
RELEASES = ("1.25", "1.37")
NODES = {
    "items": [
        {
            "metadata": {"name": "other"},
            "status": {"nodeInfo": {"machineID": "a0"}, "allocatable": {"memory": "1Gi"}},
        },
        {
            "metadata": {"name": "n1"},
            "status": {"nodeInfo": {"machineID": "b1"}, "allocatable": {"memory": "16384000Ki"}},
        },
    ]
}
LAUNCHES = {
    "usual": LAUNCH,
    "without binds": replace(LAUNCH, binds=()),
    "of another user": replace(LAUNCH, uid=1000, gid=100),
    "on the host's network": replace(LAUNCH, network="host"),
    "half a processor": replace(LAUNCH, quota=Quota(period_us=100_000, quota_us=50_000, group=Path("/g"))),
    "long paths": replace(LAUNCH, binds=(Bind(source=Path("/a" * 400), target=Path("/ü b")),)),
}


def laid_over(launch):
    """The pod that kubectl makes: what `--image`, `--command` and the like say, and the overrides over it."""
    argv = Pod(NODE).command(launch)
    options, command = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    found = json.loads(options[options.index("--overrides") + 1])
    (container,) = found["spec"]["containers"]
    assert container["name"] == options[2] == launch.name and container["image"] == options[6]
    container["command"] = command
    return found


@pytest.mark.parametrize("name", LAUNCHES)
@pytest.mark.parametrize("release", RELEASES)
def test_a_pod_is_one_by_the_schema_of_kubernetes(release, name):
    kubernetes_validate.validate(laid_over(LAUNCHES[name]), release, strict=True)


@pytest.fixture
def server():
    """What kubectl asks of a server before it writes a pod: which kinds of things there are."""
    verbs = ["create", "get", "delete", "list", "watch"]
    pods = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": verbs}
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]},
    }

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = answers.get(self.path.partition("?")[0])
            body = json.dumps(found or {"kind": "Status", "code": 404}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", LAUNCHES)
def test_kubectl_itself_makes_that_pod(name, server, tmp_path):
    """A dry run, which forwards no streams and deletes no pod."""
    launch = replace(LAUNCHES[name], reference="tare/torch-2.13:ab12")
    dry = ["--server", server, "--dry-run=client", "--output", "json"]
    argv = [word for word in Pod(NODE).command(launch) if word not in ("--rm", "--stdin", "--quiet")]
    done = subprocess.run(
        [*argv[:2], *dry, *argv[2:]], capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, ours = json.loads(done.stdout), laid_over(launch)
    del found["status"], found["metadata"]["creationTimestamp"]
    kubernetes_validate.validate(found, RELEASES[-1], strict=True)
    for key, value in ours["spec"].items():
        if key not in ("containers", "volumes"):
            assert found["spec"].get(key, False) == value, key
    (made,), (asked,) = found["spec"]["containers"], ours["spec"]["containers"]
    mounts = [{"readOnly": False, **one} for one in made["volumeMounts"]]
    assert mounts == [{"readOnly": False, **one} for one in asked["volumeMounts"]]
    assert {**asked, "volumeMounts": made["volumeMounts"]} == made
    assert found["spec"]["volumes"] == ours["spec"]["volumes"]


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["spec"]["containers"][0].update(ulimits={"nofile": 1}),
        lambda found: found["spec"]["containers"][0]["resources"].update(limits=["1"]),
        lambda found: found["spec"].update(containers={}),
    ],
)
def test_the_schema_refuses_what_is_no_pod(change):
    found = laid_over(LAUNCH)
    change(found)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found, RELEASES[-1], strict=True)


def test_a_launch_is_a_pod_of_the_class_guaranteed_with_whole_processors():
    found = overrides(LAUNCH, NODE)
    (container,) = found["spec"]["containers"]
    resources = container["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "2", "memory": str(2 << 30)}
    assert found["spec"]["nodeName"] == "n1" and container["imagePullPolicy"] == "Never"
    assert container["securityContext"]["readOnlyRootFilesystem"]
    volumes = {one["name"]: one for one in found["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": str(1 << 30)}
    assert volumes["bind-0"]["hostPath"] == {"path": "/data/my set"}
    assert [one["readOnly"] for one in container["volumeMounts"][2:]] == [True, False]
    assert overrides(LAUNCH, NODE) == found, "equal launches are equal pods"
    half = overrides(LAUNCHES["half a processor"], NODE)["spec"]["containers"][0]["resources"]
    assert half["requests"] == half["limits"] and half["limits"]["cpu"] == "500m"


@pytest.mark.parametrize(
    ("interfaces", "isolated", "status"),
    [(("lo",), True, 7), (("lo", "eth0"), True, 125), (("lo", "eth0"), False, 7)],
)
def test_what_starts_in_a_pod_sets_open_files_and_refuses_a_network_that_is_to_be_away(
    tmp_path, interfaces, isolated, status
):
    (tmp_path / "dev").write_text(
        "Inter-|   Receive |  Transmit\n face |bytes |bytes\n" + "".join(f"  {one}: 0 0\n" for one in interfaces)
    )
    argv = Pod(NODE).command(replace(LAUNCH, isolate_network=isolated, argv=("sh", "-c", "ulimit -n; exit 7")))
    command = [word.replace("/proc/net/dev", str(tmp_path / "dev")) for word in argv[argv.index("--") + 1 :]]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (status, "1024\n" if status == 7 else "")
    assert ("a pod has its cluster's network: eth0:" in done.stderr) == (status == 125)


def test_a_pod_that_was_killed_is_deleted():
    assert Pod(NODE).cleanup(LAUNCH) == [
        ["kubectl", "delete", "pod", "tare-7", "--namespace", "default", "--now", "--ignore-not-found"]
    ]


def test_this_machine_is_found_among_the_nodes():
    assert this_node(NODES, "b1", "elsewhere") == Node(name="n1", memory_bytes=16384000 << 10)
    assert this_node(NODES, "", "other").name == "other"
    with pytest.raises(UnavailableError, match=r"no node of the cluster \(its nodes: other, n1\)") as told:
        this_node(NODES, "c2", "n1")
    assert told.value.remedy == "run Tare on a node of the cluster"
    for broken in ({}, {"items": [{}]}, {"items": None}):
        with pytest.raises(UnavailableError, match="is not understood"):
            this_node(broken, "b1", "n1")


def test_quantities_are_bytes():
    assert [bytes_of(one) for one in ("5", "1Ki", "2Mi", "3Gi")] == [5, 1 << 10, 2 << 20, 3 << 30]
    with pytest.raises(ValueError):
        bytes_of("1.5Gi")


@pytest.mark.parametrize(("policy", "refuses"), [("static", False), (None, False), ("none", True)])
def test_without_a_static_cpu_manager_a_pod_is_refused(policy, refuses):
    (finding,) = follows_from(replace(NODE, cpu_manager=policy))
    assert finding.refuses == refuses and "CPU manager" in finding.says
    assert (finding.remedy is not None) == refuses


def cluster(monkeypatch, answers):
    """A kubectl that says these, by its first words; the others fail."""
    monkeypatch.setattr(pod.shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    monkeypatch.setattr(pod, "text_of", lambda path: "b1")

    def run(argv, *, check=False, **_):
        said = next((text for words, text in answers.items() if " ".join(argv[1:]).startswith(words)), None)
        done = Finished(
            argv=tuple(argv), returncode=0 if said is not None else 1, stdout=said or "", stderr="no such server",
            started_ns=0, ended_ns=1, user_s=0, system_s=0, timed_out=False,
        )  # fmt: skip
        if check and not done.ok:
            raise UnavailableError(done.explain())
        return done

    monkeypatch.setattr(pod, "run", run)


VERSION = {"version": json.dumps({"serverVersion": {"gitVersion": "v1.33.1"}})}
CONFIG = "get --raw /api/v1/nodes/n1/proxy/configz"


def test_a_probe_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(pod.shutil, "which", lambda name, **_: None)
    missing = Pod().probe()
    assert (missing.available, missing.reason) == (False, "kubectl is not installed") and missing.remedy
    cluster(monkeypatch, {})
    unanswered = Pod().probe()
    assert "no such server" in unanswered.reason and "KUBECONFIG" in unanswered.remedy
    cluster(monkeypatch, {"version": "Client Version: v1.33"})
    assert "kubectl's answer is not understood" in Pod().probe().reason
    kubelet = json.dumps({"kubeletconfig": {"cpuManagerPolicy": "none"}})
    cluster(monkeypatch, {**VERSION, "get nodes": json.dumps(NODES), CONFIG: kubelet})
    found = Pod().probe()
    assert not found.available and found.version == "v1.33.1"
    assert "quota of time on them all, so that" in found.reason and "cpuManagerPolicy: static" in found.remedy


@pytest.mark.parametrize(
    ("kubelet", "policy"),
    [({"cpuManagerPolicy": "static"}, "static"), ({}, "none"), (None, None)],
)
def test_the_node_is_asked_once_and_its_kubelets_policy_is_told(monkeypatch, kubelet, policy):
    answers = {"get nodes": json.dumps(NODES)}
    if kubelet is not None:
        answers[CONFIG] = json.dumps({"kubeletconfig": kubelet})
    cluster(monkeypatch, answers)
    adapter = Pod()
    with adapter.session():
        assert adapter.known_node == Node(name="n1", memory_bytes=16384000 << 10, cpu_manager=policy)
    monkeypatch.setattr(pod, "run", lambda *_, **__: pytest.fail("it was asked again"))
    with adapter.session():
        assert '"nodeName":"n1"' in " ".join(adapter.command(LAUNCH))


def test_an_image_goes_into_the_store_of_the_nodes_kubelet(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(pod.shutil, "which", lambda name, **_: None if name == "k3s" else name)
    monkeypatch.setattr(pod, "run", lambda argv, **_: calls.append(argv) or type("D", (), {"stdout": "x\n"}))
    image = type("Image", (), {"archive": tmp_path / "a.tar", "tag": "tare/torch:1"})
    prepared = Pod(NODE).prepare(image, tmp_path)
    assert prepared.reference == "tare/torch:1" and Pod(NODE).is_intact(prepared)
    assert [argv[:4] for argv in calls] == [["ctr", "--namespace", "k8s.io", "images"]] * 2
    with pytest.raises(UnavailableError, match="does not say"):
        Pod(NODE).places(prepared)
