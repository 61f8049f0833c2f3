"""Which properties of a resource can never change: another value means another resource, and what was in it is gone.

Source: the plan modifiers of the vendor's Terraform provider (`RequiresReplace`, generated from the same API as the
Pulumi package that we pin) and the IMMUTABLE markers in the API descriptors of the official SDK 0.6.29. A test compares
this table with the descriptors. Other properties change in place, a node group's template by rolling its machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CLUSTER: Final = "nebius:index/mk8sV1Cluster:Mk8sV1Cluster"
NODE_GROUP: Final = "nebius:index/mk8sV1NodeGroup:Mk8sV1NodeGroup"
FILESYSTEM: Final = "nebius:index/computeV1Filesystem:ComputeV1Filesystem"
GPU_CLUSTER: Final = "nebius:index/computeV1GpuCluster:ComputeV1GpuCluster"
NETWORK: Final = "nebius:index/vpcV1Network:VpcV1Network"
SUBNET: Final = "nebius:index/vpcV1Subnet:VpcV1Subnet"
ALLOCATION: Final = "nebius:index/vpcV1Allocation:VpcV1Allocation"
SERVICE_ACCOUNT: Final = "nebius:index/iamV1ServiceAccount:IamV1ServiceAccount"
GROUP: Final = "nebius:index/iamV1Group:IamV1Group"
GROUP_MEMBERSHIP: Final = "nebius:index/iamV1GroupMembership:IamV1GroupMembership"
ACCESS_PERMIT: Final = "nebius:index/iamV1AccessPermit:IamV1AccessPermit"

IMMUTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    CLUSTER: ("parentId", "controlPlane.subnetId", "kubeNetwork.serviceCidrs"),
    NODE_GROUP: ("parentId", "template.nvlink.nvlInstanceGroupId"),
    FILESYSTEM: ("parentId", "type", "blockSizeBytes"),
    GPU_CLUSTER: ("parentId", "infinibandFabric"),
    NETWORK: ("parentId",),
    SUBNET: ("parentId",),
    ALLOCATION: (
        "parentId",
        "ipv4Private.cidr",
        "ipv4Private.subnetId",
        "ipv4Private.poolId",
        "ipv4Public.cidr",
        "ipv4Public.subnetId",
        "ipv4Public.poolId",
    ),
    SERVICE_ACCOUNT: ("parentId",),
    GROUP: ("parentId",),
    GROUP_MEMBERSHIP: ("parentId", "name", "labels", "memberId"),
    ACCESS_PERMIT: ("parentId", "name", "labels", "resourceId", "role"),
}
"""Paths of input properties, in the provider's spelling, by resource type."""
