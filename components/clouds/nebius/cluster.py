"""The Managed Kubernetes cluster."""

from __future__ import annotations

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.scope import CloudScope
from config.nebius import Kubernetes


def create_cluster(scope: CloudScope, kubernetes: Kubernetes, subnet_id: pulumi.Input[str]) -> nebius.Mk8sV1Cluster:
    """The control plane; it is protected, since everything in Kubernetes is lost with it."""
    return nebius.Mk8sV1Cluster(
        scope.prefix,
        name=scope.prefix,
        parent_id=scope.project,
        control_plane=nebius.Mk8sV1ClusterControlPlaneArgs(
            subnet_id=subnet_id,
            version=kubernetes.version,
            etcd_cluster_size=kubernetes.control_plane_size,
            endpoints=_endpoints(kubernetes),
            audit_logs=_audit_logs() if kubernetes.audit_logs else None,
        ),
        kube_network=(
            nebius.Mk8sV1ClusterKubeNetworkArgs(service_cidrs=[kubernetes.service_cidr])
            if kubernetes.service_cidr
            else None
        ),
        labels=scope.labels,
        opts=scope.data_options(),
    )


def _audit_logs() -> nebius.Mk8sV1ClusterControlPlaneAuditLogsArgs:
    """Empty, but there: the service takes the mere presence for "on"."""
    return nebius.Mk8sV1ClusterControlPlaneAuditLogsArgs()  # type: ignore[no-untyped-call]  # generated without types


def _endpoints(kubernetes: Kubernetes) -> nebius.Mk8sV1ClusterControlPlaneEndpointsArgs | None:
    """The public endpoint; without one, the API can only be reached from the subnet."""
    if not kubernetes.public_endpoint:
        return None
    return nebius.Mk8sV1ClusterControlPlaneEndpointsArgs(
        public_endpoint=nebius.Mk8sV1ClusterControlPlaneEndpointsPublicEndpointArgs(
            allowed_cidrs=list(kubernetes.allowed_cidrs) or None
        )
    )
