"""A sandbox with a Kubernetes API: the config agent finds worker pods, nodes and the one ConfigMap there."""

from __future__ import annotations

import ctypes
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from images.common.kubernetes import WORKER_PODS
from slurm.certificates import server_certificate
from tests.fakes.kubernetes import FakeKubernetes
from tests.slurm.minimal import SEED
from tests.slurm.pod import Pod
from tests.slurm.sandbox import SlurmSandbox

PORT = 6443
NAMESPACE = "slurm"
SERVICE_ACCOUNT = "run/secrets/kubernetes.io/serviceaccount"
"""Not by way of /var/run: seen from here, that link of the pod leads to this machine's own /run."""
ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(PORT), "NAMESPACE": NAMESPACE}

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
NODES = "/api/v1/nodes"
CLONE_NEWNET = 0x40000000


class KubernetesSandbox(SlurmSandbox):
    """A sandbox whose agent finds a Kubernetes API."""

    api: FakeKubernetes | None = None

    def __init__(self, version: str, *, config: Mapping[str, str], nodes: Mapping[str, Any], **more: Any) -> None:
        self._wanted: dict[tuple[str, str], dict[str, Any]] = {}
        super().__init__(version, config=config, **more)
        for name, labels in nodes.items():
            self.label(name, **labels)

    def start_controller(self, *, daemons: bool = True) -> Pod:
        pod = super().start_controller(daemons=False)
        self.api, authority = start_api(self.work, pod)
        give_account(pod, authority)
        for (collection, name), content in self._wanted.items():
            self.api.put(collection, name, **content)
        if daemons:
            self.start_controller_daemons(pod)
        return pod

    def start_agent(self, pod: Pod) -> None:
        pod.start_program("config-agent", ENVIRONMENT)

    def start_worker(self, name: str, *, on: str = "") -> Pod:
        """A worker pod on a Kubernetes node; by default the node of the same number."""
        self.place(name, on or f"node-{name.rpartition('-')[2]}")
        return super().start_worker(name)

    def set_config(self, files: Mapping[str, str]) -> None:
        super().set_config(files)
        self._put(CONFIG_MAPS, "slurm-config", data=dict(files))

    def place(self, pod: str, node: str) -> None:
        """Say on which Kubernetes node a pod runs."""
        metadata = {"labels": {WORKER_PODS: pod.rpartition("-")[0]}}
        self._put(PODS, pod, metadata=metadata, spec={"nodeName": node})

    def label(self, node: str, **labels: str) -> None:
        """Replace the labels of a Kubernetes node."""
        self._put(NODES, node, metadata={"labels": labels})

    def _put(self, collection: str, name: str, **content: Any) -> None:
        self._wanted[(collection, name)] = content
        if self.api is not None:
            self.api.put(collection, name, **content)

    def __exit__(self, *arguments: object) -> None:
        if self.api is not None:
            self.api.close()
        super().__exit__(*arguments)


def listen_in(pod: Pod, address: str) -> socket.socket:
    """A socket that listens in a pod's network; it stays there, whoever has it."""

    def listen() -> socket.socket:
        with Path(f"/proc/{pod.pid}/ns/net").open("rb") as network:
            assert ctypes.CDLL(None).setns(network.fileno(), CLONE_NEWNET) == 0
        return socket.create_server((address, PORT))

    with ThreadPoolExecutor(max_workers=1) as one_thread:  # which alone enters that network
        return one_thread.submit(listen).result()


def start_api(work: Path, pod: Pod, address: str = "127.0.0.1") -> tuple[FakeKubernetes, str]:
    """A Kubernetes API in a pod's network, and the certificate of who has signed its own."""
    made = server_certificate(SEED, "kubernetes", [address])
    (work / "api.pem").write_text(made.private_key + made.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(work / "api.pem")
    api = FakeKubernetes(tls=context, listener=listen_in(pod, address))
    api.token = "token"
    return api, made.authority


def give_account(pod: Pod, authority: str) -> None:
    """What kubelet mounts for a ServiceAccount."""
    account = pod.root / SERVICE_ACCOUNT
    account.mkdir(parents=True)
    (account / "ca.crt").write_text(authority)
    (account / "token").write_text("token\n")
