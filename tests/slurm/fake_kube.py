"""A Kubernetes API server that knows worker pods, nodes and the one ConfigMap, for the agent of a sandbox.

It runs as a process of its own in the network of the controller's "pod", and serves what lies in a directory:
`pods.json` (name -> Kubernetes node), `nodes.json` (name -> labels) and `config/` (the ConfigMap). A watch tells
changes as the real one does. While there is a file `down`, it answers 503 and ends watches.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

PORT = 6443
NAMESPACE = "slurm"
SERVICE_ACCOUNT = "run/secrets/kubernetes.io/serviceaccount"
"""Not by way of /var/run: seen from here, that link of the pod leads to this machine's own /run."""
ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(PORT), "NAMESPACE": NAMESPACE}


class KubernetesSandbox(SlurmSandbox):
    """A sandbox whose agent finds a Kubernetes API."""

    def __init__(self, version: str, *, config: Mapping[str, str], workers: int, nodes: Mapping[str, Any]) -> None:
        super().__init__(version, config=config, workers=workers)
        self.api: subprocess.Popen[bytes] | None = None
        self.pods_of: dict[str, str] = {}
        self.labels_of: dict[str, Any] = dict(nodes)
        self._write_cluster()

    def start_controller(self, *, daemons: bool = True) -> Pod:
        pod = super().start_controller(daemons=False)
        account = pod.root / SERVICE_ACCOUNT
        account.mkdir(parents=True)
        certificate = _certificate(self.work / "api.pem")
        (account / "ca.crt").write_bytes(certificate)
        (account / "token").write_text("token\n")
        serve = [sys.executable, "-m", "tests.slurm.fake_kube", str(self.work)]
        with (self.work / "api.log").open("wb") as log:
            self.api = subprocess.Popen(
                ["nsenter", f"--target={pod.pid}", "--net", *serve], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        if daemons:
            pod.start_program("config-agent", ENVIRONMENT)
            pod.start_program("slurmctld")
            wait_until(lambda: "is UP" in self.run("scontrol ping").stdout, f"slurmctld up; logs in {pod.work}")
        return pod

    def start_worker(self, name: str, *, role: str = "worker", on: str = "") -> Pod:
        """A worker pod on a Kubernetes node; by default the node of the same number."""
        self.place(name, on or f"node-{name.rpartition('-')[2]}")
        return super().start_worker(name, role=role)

    def place(self, pod: str, node: str) -> None:
        """Say on which Kubernetes node a pod runs."""
        self.pods_of[pod] = node
        self._write_cluster()

    def label(self, node: str, **labels: str) -> None:
        """Replace the labels of a Kubernetes node."""
        self.labels_of[node] = labels
        self._write_cluster()

    def api_down(self, *, down: bool) -> None:
        """Let the API answer nothing."""
        if down:
            (self.work / "down").touch()
        else:
            (self.work / "down").unlink(missing_ok=True)

    def _write_cluster(self) -> None:
        for name, content in (("pods", self.pods_of), ("nodes", self.labels_of)):
            temporary = self.work / f".{name}"
            temporary.write_text(json.dumps(content))
            temporary.rename(self.work / f"{name}.json")

    def __exit__(self, *arguments: object) -> None:
        if self.api is not None:
            self.api.terminate()
            self.api.wait(timeout=10)
        super().__exit__(*arguments)


def _certificate(path: Path) -> bytes:
    """Write a key and a certificate that signs itself; the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
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


def _collection(directory: Path, path: str) -> dict[str, dict[str, Any]] | None:
    """Objects of a collection by name."""
    if path.endswith("/configmaps"):
        data = {item.name: item.read_text() for item in (directory / "config").iterdir() if item.name[0] != "."}
        return {"slurm-config": {"metadata": {"name": "slurm-config", "resourceVersion": "1"}, "data": data}}
    if path.endswith("/pods"):
        pods = json.loads((directory / "pods.json").read_text())
        return {name: {"metadata": {"name": name}, "spec": {"nodeName": node}} for name, node in pods.items()}
    if path.endswith("/nodes"):
        nodes = json.loads((directory / "nodes.json").read_text())
        return {name: {"metadata": {"name": name, "labels": labels}} for name, labels in nodes.items()}
    return {} if path.endswith("/statefulsets") else None


def serve(directory: Path) -> None:
    """Answer until killed."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlparse(self.path)
            found = None if (directory / "down").exists() else _collection(directory, url.path)
            if "watch" in parse_qs(url.query) and found is not None:
                self.send_response(200)
                self.end_headers()
                self._watch(url.path)
            elif found is None:
                self._answer(503, {"message": "down"})
            else:
                self._answer(200, {"metadata": {"resourceVersion": "1"}, "items": list(found.values())})

        def _answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _watch(self, path: str) -> None:
            # A change between the list and the watch is told as an event, as the real one would.
            known: dict[str, Any] = {}
            while not (directory / "down").exists():
                now = _collection(directory, path) or {}
                events = [("MODIFIED", item) for name, item in now.items() if known.get(name) != item]
                events += [("DELETED", item) for name, item in known.items() if name not in now]
                known = now
                for kind, item in events:
                    self.wfile.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
                self.wfile.flush()
                time.sleep(0.05)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            sys.stderr.write(format % arguments + "\n")

    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "api.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
