"""The way into the cluster: a kubeconfig without any secret."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Literal

import pulumi
import pulumi_nebius as nebius

from config.nebius.cloud import NebiusCloud

_PLUGINS: dict[Literal["cli", "sdk"], list[str]] = {
    "cli": ["nebius", "mk8s", "v1", "cluster", "get-token", "--format", "json"],
    "sdk": ["slurmstack", "kube-token"],
}
"""Commands that print a token. The token is the account's, so no cluster need be named."""

EXEC_API = "client.authentication.k8s.io/v1beta1"
"""Version of the answer that the vendor's command gives."""


def kubeconfig(cluster: nebius.Mk8sV1Cluster, cloud: NebiusCloud, name: str) -> pulumi.Output[str]:
    """A kubeconfig for the cluster. kubectl asks a command for a token each time; there is none in the file."""

    def render(status: Any) -> str:
        plane = status.control_plane
        public = cloud.kubernetes.public_endpoint
        server = plane.endpoints.public_endpoint if public else plane.endpoints.private_endpoint
        certificate = plane.auth.cluster_ca_certificate
        return json.dumps(_document(name, server, certificate, _PLUGINS[cloud.credentials]), indent=2)

    return cluster.status.apply(render)


def _document(name: str, server: str, certificate: str, command: Sequence[str]) -> dict[str, Any]:
    url = server if "://" in server else f"https://{server}"
    authority = base64.b64encode(certificate.encode()).decode()
    plugin = {
        "apiVersion": EXEC_API,
        "command": command[0],
        "args": list(command[1:]),
        "interactiveMode": "IfAvailable",
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"exec": plugin}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
