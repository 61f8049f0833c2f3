"""One resource of a stack, and what people call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_KINDS: Mapping[str, str] = {
    "Mk8sV1Cluster": "Kubernetes cluster",
    "Mk8sV1NodeGroup": "node group",
    "ComputeV1Filesystem": "file system",
    "ComputeV1GpuCluster": "GPU cluster",
    "VpcV1Network": "network",
    "VpcV1Subnet": "subnet",
    "VpcV1Allocation": "address",
    "StorageV1Bucket": "bucket",
    "IamV1ServiceAccount": "service account",
    "IamV2AccessKey": "access key",
    "IamV1AuthPublicKey": "public key",
    "IamV1Group": "group",
    "IamV1GroupMembership": "group membership",
    "IamV1AccessPermit": "access permit",
}
"""Types of cloud resources as people call them."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """What a provider manages: as a run of the program registered it, or as Pulumi's state or the cluster has it."""

    type: str
    name: str
    """The program's name for it."""
    inputs: Mapping[str, Any]
    urn: str = ""
    id: str = ""
    """What the provider calls it; a stand-in in a run that was not told of the resource."""
    protect: bool = False
    retained: bool = False
    """Whether Pulumi only forgets it where it would delete it."""
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """URNs of the resources that each top-level input is computed from."""
    aliases: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Its type in people's words: `file system`, `StatefulSet`."""
        short = self.type.rsplit(":", 1)[1]
        return _KINDS.get(short, short)

    @property
    def title(self) -> str:
        """What people call it: a Kubernetes object's or cloud resource's own name, else the program's."""
        named = self.inputs.get("metadata") if self.type.startswith("kubernetes:") else self.inputs
        return str((named or {}).get("name") or self.name)
