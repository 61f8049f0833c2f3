"""The Managed Kubernetes cluster."""

from __future__ import annotations

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.scope import CloudScope
from config.nebius.cloud import Kubernetes


def create_cluster(scope: CloudScope, kubernetes: Kubernetes, subnet_id: pulumi.Input[str]) -> nebius.Mk8sV1Cluster:
    """The control plane; it is protected, since everything in Kubernetes is lost with it."""
    plane: nebius.Mk8sV1ClusterControlPlaneArgsDict = {
        "subnet_id": subnet_id,
        "version": kubernetes.version,
        "etcd_cluster_size": kubernetes.control_plane_size,
    }
    if kubernetes.public_endpoint:  # without one, the API can only be reached from the subnet
        allowed = kubernetes.allowed_cidrs
        plane["endpoints"] = {"public_endpoint": {"allowed_cidrs": list(allowed)} if allowed else {}}
    if kubernetes.audit_logs:
        plane["audit_logs"] = {}  # empty, but there: the service takes the mere presence for "on"
    return nebius.Mk8sV1Cluster(
        scope.prefix,
        name=scope.prefix,
        parent_id=scope.project,
        control_plane=plane,
        kube_network={"service_cidrs": [kubernetes.service_cidr]} if kubernetes.service_cidr else None,
        labels=scope.labels,
        opts=scope.data_options(),
    )
