"""A sandbox with a Kubernetes API: the config agent finds worker pods, nodes and the one ConfigMap there."""

from __future__ import annotations

import ctypes
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from images.common.kubernetes import WORKER_PODS
from tests.fakes.kubernetes import FakeKubernetes
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
        account = pod.root / SERVICE_ACCOUNT
        account.mkdir(parents=True)
        certificate = self.work / "api.pem"
        (account / "ca.crt").write_bytes(write_certificate(certificate))
        (account / "token").write_text("token\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.api = FakeKubernetes(tls=context, listener=listen_in(pod))
        self.api.token = "token"
        for (collection, name), content in self._wanted.items():
            self.api.put(collection, name, **content)
        if daemons:
            self.start_controller_daemons(pod)
        return pod

    def start_agent(self, pod: Pod) -> None:
        pod.start_program("config-agent", ENVIRONMENT)

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


def listen_in(pod: Pod, address: str = "127.0.0.1") -> socket.socket:
    """A socket that listens in a pod's network; it stays there, whoever has it."""

    def listen() -> socket.socket:
        with Path(f"/proc/{pod.pid}/ns/net").open("rb") as network:
            assert ctypes.CDLL(None).setns(network.fileno(), CLONE_NEWNET) == 0
        return socket.create_server((address, PORT))

    with ThreadPoolExecutor(max_workers=1) as one_thread:  # which alone enters that network
        return one_thread.submit(listen).result()


def write_certificate(path: Path, address: str = "127.0.0.1") -> bytes:
    """Write a key and a certificate of an address that signs itself; the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    public = made.public_bytes(Encoding.PEM)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + public)
    return public
