"""docs/own-cluster.md, line by line: images from a registry, volumes of a storage class, a kubeconfig's context.

The local Kubernetes stands in for a cluster that somebody else made.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.kubectl.client import Kubectl, as_list, connect
from config.sections.cloud import ExistingCloud
from local import cluster, namespaces, nodes, paths
from local.images import image_store
from local.report import PlainReport
from local.teardown import remove_tree
from slurm.local_cluster import LOCAL_CONTEXT, kubeconfig
from tests.e2e.harness import make_key, slurmstack
from tests.first_steps import blocks, typed_by_administrators
from tests.images.registry import Registry
from tests.stacks import ROOT

pytestmark = pytest.mark.watch  # it waits for a registry's disk, and the lanes are long enough

PAGE = "docs/own-cluster.md"
STACK = "e2e-own"
PORT = 5001
"""Of the registry, on each node's loopback address and on this machine's: there tools take one without TLS."""

HERE = {
    "my-context": LOCAL_CONTEXT,
    "registry.example.com/slurm": f"127.0.0.1:{PORT}/slurm",
    "size: 4, resources: {cpus: 16, memory: 64Gi}": "size: 2, resources: {cpus: 1, memory: 1Gi}",
}
"""What the page's stack file says, and what it says on this machine, which adds Alice's key and a namespace."""

MORE = {
    "slurmstack images build": "--tool local",  # no registry with Debian's image can be reached here
    "slurmstack images push --pin": "--tool local --no-tls-verify",
    "slurmstack up --verify": "--yes",  # without a terminal
    "slurmstack login alice": "--key {key} -- srun hostname",
}
"""Options that a line needs besides."""


def command(line: str, key: Path) -> str:
    """A line of the page as it is run here."""
    extra = MORE.get(line, "").format(key=key)
    return line.replace("SLURMSTACK_STACK=prod", f"SLURMSTACK_STACK={STACK}") + (f" {extra}" if extra else "")


@pytest.fixture
def registry(local_kubernetes: None, tmp_path: Path) -> Iterator[Registry]:
    """One registry that listens on this machine and on each node: several programs with the same files."""
    data = tmp_path / "data"
    data.mkdir()
    started = []
    for place in ("", *cluster._existing().nodes):
        directory = tmp_path / f"registry-{place}"
        directory.mkdir()
        (directory / "data").symlink_to(data)
        launcher = namespaces.enter(place, with_mounts=False) if place else ()
        started.append(Registry(directory, launcher=launcher, port=PORT))
        started[-1].start()
    yield started[0]
    for each in started:
        each.stop()


@pytest.fixture
def kubectl(local_kubernetes: None) -> Iterator[Kubectl]:
    """A cluster with a storage class, which is the default one, and volumes of it that somebody has made."""
    found = connect(ExistingCloud(kind="existing"))
    objects = [_storage_class(), *(_volume(claim) for claim in ("jail", "controller-state", "database-data"))]
    found.run("apply", "-f", "-", stdin=as_list(objects))
    yield found
    found.run("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=as_list(objects))
    remove_tree(paths.volumes() / STACK)


def _storage_class() -> dict[str, Any]:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "kubernetes.io/no-provisioner",
        "metadata": {"name": "shared-rwx", "annotations": default},
    }  # fmt: skip


def _volume(claim: str) -> dict[str, Any]:
    path = {"path": str(paths.volumes() / STACK / claim), "type": "DirectoryOrCreate"}
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"own-{claim}"},
        "spec": {
            "capacity": {"storage": "500Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "storageClassName": "shared-rwx", "persistentVolumeReclaimPolicy": "Retain", "hostPath": path,
            "claimRef": {"namespace": STACK, "name": claim},
        },
    }  # fmt: skip


@pytest.fixture
def stack(kubectl: Kubectl, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's stack file where the page has it written: in the checkout. What came of it is gone afterwards."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig()))
    # Without the `pulumi` command, which may be there: its first `up` asks for a login to a backend.
    programs = [place for place in os.environ["PATH"].split(":") if not (Path(place) / "pulumi").exists()]
    monkeypatch.setenv("PATH", ":".join(programs))
    (text,) = (text for language, text in blocks(PAGE) if language == "yaml")
    here = {**HERE, "ssh-ed25519 AAAA... alice@laptop": make_key(tmp_path / "key").strip()}
    for page, machine in here.items():
        assert page in text
        text = text.replace(page, machine)
    file = ROOT / f"Pulumi.{STACK}.yaml"
    own = f"  slurmstack:cluster: {{namespace: {STACK}}}\n  slurmstack:protect: false\n"
    file.write_text(f"{text}{own}", encoding="utf-8")
    yield file
    removal = ("destroy", "--yes", "--kill-jobs", "--delete-data", "--engine", "kubectl", "--config", str(file))
    try:
        slurmstack(*removal, timeout=300)
    finally:
        file.unlink()
        with image_store(PlainReport()) as store:
            store.remove([name for name in store.images() if name.startswith(registry.address)])
        for node in cluster._existing().nodes:
            known = nodes.ctr(cluster._existing(), node, ["images", "list", "-q"]).stdout.split()
            ours = [name for name in known if name.startswith(registry.address)]
            nodes.ctr(cluster._existing(), node, ["images", "remove", *ours])


@pytest.mark.timeout(1800)
def test_what_the_page_has_an_administrator_type_works(stack: Path, kubectl: Kubectl, tmp_path: Path) -> None:
    lines = typed_by_administrators(PAGE)
    assert set(MORE) <= set(lines)
    script = "\n".join(["set -e", *(command(line, tmp_path / "key") for line in lines)])
    done = subprocess.run(
        ["bash", "-xc", script],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines()[-1] in {"cpu-0", "cpu-1"}
    pods = kubectl.items("pod", "-n", STACK, "-l", "app.kubernetes.io/part-of=slurmstack")
    used = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert used
    assert all(image.startswith(f"127.0.0.1:{PORT}/slurm/") and "@sha256:" in image for image in used), used
    (claim,) = kubectl.items("persistentvolumeclaim", "jail", "-n", STACK)
    assert (claim["spec"]["storageClassName"], claim["status"]["phase"]) == ("shared-rwx", "Bound")
