"""Where a cluster is reached from outside, and by what its login nodes are known."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from cli.kubectl.client import Kubectl
from slurm.names import REST, REST_PORT


def login_address(kubectl: Kubectl, namespace: str) -> str | None:
    """Address of the login Service."""
    return _address(kubectl, namespace, "login")


def rest_address(kubectl: Kubectl, namespace: str) -> str | None:
    """Where the REST API is."""
    address = _address(kubectl, namespace, REST)
    return f"https://{address}:{REST_PORT}" if address else None


def _address(kubectl: Kubectl, namespace: str, service: str) -> str | None:
    """Address of a Service: its load balancer's where it has one, else the cluster IP."""
    found = kubectl.items("service", service, "-n", namespace)
    if not found:
        return None
    for ingress in found[0].get("status", {}).get("loadBalancer", {}).get("ingress", []):
        return str(ingress.get("ip") or ingress.get("hostname"))
    return str(found[0]["spec"]["clusterIP"])


def host_public_key(kubectl: Kubectl, namespace: str) -> str | None:
    """The SSH host key of the login nodes as in `known_hosts`, from the cluster itself."""
    found = kubectl.items("secret", "ssh-host-keys", "-n", namespace)
    if not found:
        return None
    key = load_pem_private_key(base64.b64decode(found[0]["data"]["ssh_host_ed25519_key"]), None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
