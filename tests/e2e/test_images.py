"""Images on the real local Kubernetes: pulled by its kubelet under a pinned digest."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cli.commands.images import app
from cli.images.names import ImageNames
from cli.images.tools import Tool, build_images
from cli.kubectl.client import Kubectl, as_list, connect
from config.sections.cloud import ExistingCloud
from local import build as local_build
from local import cluster, namespaces, nodes
from local.report import PlainReport
from slurm.images import DEFAULT_REGISTRY, ROLES
from tests import stacks
from tests.e2e.harness import wait_until
from tests.images.registry import PASSWORD, Registry, basic_auth, install_podman

NAMESPACE = "e2e-images"
NODE = "node-0"


@pytest.fixture
def sources(local_kubernetes: None, tmp_path: Path) -> Path:
    """Images of all roles with one program that does nothing for ever: that of the pause containers."""
    directory = tmp_path / "sources"
    directory.mkdir()
    shutil.copy2(local_build.binaries().path("pause"), directory / "program")
    text = "ARG BASE=scratch\nFROM ${BASE} AS common\nCOPY program /\n"
    for role in ROLES:
        (directory / role).write_text(role)
        text += f'FROM common AS {role}\nCOPY {role} /role\nCMD ["/program"]\n'
    (directory / "Containerfile").write_text(text)
    return directory


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real podman on the PATH; its directory. Not buildah, which the local cluster would take for its own."""
    install_podman(tmp_path / "bin", tmp_path / "store")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin"


def build(names: ImageNames, sources: Path, tmp_path: Path) -> Path:
    """Build the images; returns a stack file on the local cluster that uses them."""
    tool = Tool(name="podman", log=tmp_path / "log")
    build_images(tool, names, PlainReport(), base="scratch", sources=sources)
    registry = {} if names.registry == DEFAULT_REGISTRY else {"registry": names.registry}
    sections = {**stacks.dev(), "images": {**registry, "tag": names.tag}}
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(yaml.safe_dump({"config": {f"slurmstack:{key}": value for key, value in sections.items()}}))
    return path


@pytest.fixture
def node_registry(tmp_path: Path, local_kubernetes: None) -> Iterator[Registry]:
    """A registry with a password on a node's own loopback address: there containerd takes one without TLS."""
    launcher = namespaces.enter(NODE, with_mounts=False)
    registry = Registry(tmp_path / "registry", with_password=True, launcher=launcher, port=5000)
    registry.start()
    yield registry
    registry.stop()


def test_a_kubelet_pulls_what_was_pinned_with_the_pull_secret(
    node_registry: Registry, podman: Path, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ImageNames(registry=f"{node_registry.address}/slurm", tag="24.11-e2e-pull", slurm_version="24.11")
    stack = build(names, sources, tmp_path)
    # The registry is on the node's network: so must be the tool that pushes.
    script = (podman / "podman").read_text()
    enter = shlex.join(namespaces.enter(NODE, with_mounts=False)).replace("--wd=/", f"--wd={tmp_path}")
    (podman / "podman").write_text(script.replace("exec ", f"exec {enter} ", 1))
    credentials = {"auths": {node_registry.address: {"auth": basic_auth(PASSWORD)}}}
    (tmp_path / "auth.json").write_text(json.dumps(credentials))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    options = ["--config", str(stack), "--tool", "podman", "--no-tls-verify", "--pin", "--json"]
    result = CliRunner().invoke(app, ["push", *options])
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    digest = json.loads(result.stdout)["digests"]["worker"]

    kubectl = connect(ExistingCloud(kind="existing"))
    reference = f"{names.registry}/worker@{digest}"
    try:
        kubectl.run("apply", "-f", "-", stdin=as_list(_objects(reference, credentials)))
        status = wait_until(lambda: _running(kubectl, "with-secret"), "the pod runs")
        assert digest in status["imageID"]
        refused = wait_until(lambda: _waiting(kubectl, "without-secret"), "the other pod is refused")
        assert refused in {"ErrImagePull", "ImagePullBackOff"}
    finally:
        kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false", check=False)
        nodes.ctr(cluster._existing(), NODE, ["images", "remove", reference])


def _objects(reference: str, credentials: dict[str, Any]) -> list[dict[str, Any]]:
    """Two pods with the image. Always: what a node has already must not help the one without the secret."""
    metadata = {"namespace": NAMESPACE}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    secret = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": "registry"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": json.dumps(credentials)},
    }  # fmt: skip
    pods = []
    for name, secrets in (("with-secret", [{"name": "registry"}]), ("without-secret", [])):
        spec = {
            "nodeName": NODE,
            "containers": [{"name": "main", "image": reference, "imagePullPolicy": "Always"}],
            "imagePullSecrets": secrets,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        }
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": name}, "spec": spec})
    return [namespace, secret, *pods]


def _status(kubectl: Kubectl, pod: str) -> dict[str, Any]:
    found = kubectl.items("pod", pod, "--namespace", NAMESPACE)
    statuses = found[0].get("status", {}).get("containerStatuses", []) if found else []
    return dict(statuses[0]) if statuses else {}


def _running(kubectl: Kubectl, pod: str) -> dict[str, Any]:
    status = _status(kubectl, pod)
    return status if "running" in status.get("state", {}) else {}


def _waiting(kubectl: Kubectl, pod: str) -> str:
    reason = str(_status(kubectl, pod).get("state", {}).get("waiting", {}).get("reason", ""))
    return reason if "Pull" in reason else ""
