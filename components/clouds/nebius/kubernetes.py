"""The way into the cluster: a kubeconfig without any secret, and the provider that uses it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Literal

import pulumi
import pulumi_kubernetes as k8s
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


def create_kubernetes_provider(
    config: pulumi.Input[str], identifier: str, after: Sequence[pulumi.Resource]
) -> k8s.Provider:
    """The provider that every Kubernetes object is made with.

    `identifier`: what distinguishes the cluster from one that takes its place. It is known before the cluster is, so
    that a kubeconfig that is not does not replace every object in a preview. `after`: machines that the objects need,
    to start and, when all is destroyed, to end in order and give back their disks and load balancers.
    """
    return k8s.Provider(
        "kubernetes",
        kubeconfig=config,
        cluster_identifier=identifier,
        # Slurm re-reads its configuration in place; maps whose change must roll pods carry a hash in their names.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
        enable_patch_force=True,  # what was changed by hand comes back, and is no conflict
        opts=pulumi.ResourceOptions(depends_on=list(after)),
    )
