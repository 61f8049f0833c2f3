"""Where a cluster is reached from outside, and by what its login nodes are known."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from cli.kubectl.client import Kubectl


def login_address(kubectl: Kubectl, namespace: str) -> str | None:
    """Address of the login Service."""
    found = kubectl.items("service", "login", "-n", namespace)
    return address_of(found[0]) if found else None


def address_of(service: Mapping[str, Any]) -> str:
    """Address of a Service: its load balancer's where it has one, else the cluster IP."""
    for ingress in service.get("status", {}).get("loadBalancer", {}).get("ingress", []):
        return str(ingress.get("ip") or ingress.get("hostname"))
    return str(service["spec"]["clusterIP"])


def host_public_key(kubectl: Kubectl, namespace: str) -> str | None:
    """The SSH host key of the login nodes as in `known_hosts`, from the cluster itself."""
    found = kubectl.items("secret", "ssh-host-keys", "-n", namespace)
    if not found:
        return None
    # Loaded where it is needed: `status` asks for an address only.
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        PublicFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(base64.b64decode(found[0]["data"]["ssh_host_ed25519_key"]), None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
