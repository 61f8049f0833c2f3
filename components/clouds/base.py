"""The small protocol behind which every cloud stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s


@dataclass(frozen=True, kw_only=True)
class StaticVolumeArgs:
    """A volume that a cloud may offer ready-made for one claim."""

    namespace: str
    claim: str
    size: str
    """Capacity as a Kubernetes quantity."""
    access_mode: str
    """`ReadWriteMany` or `ReadWriteOnce`."""
    protect: bool


class CloudResources(Protocol):
    """What a cluster needs of the cloud that it runs on."""

    @property
    def provider(self) -> k8s.Provider:
        """The provider that every Kubernetes object is made with."""
        ...

    @property
    def login_keys(self) -> tuple[str, ...]:
        """SSH public keys of the machine's owner, which every declared user accepts besides their own."""
        ...

    def static_volume(
        self, args: StaticVolumeArgs, opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.PersistentVolume | None:
        """A volume for one claim, or None where claims are served by a storage class."""
        ...

    def worker_cpu_request(self, cpus: int) -> str:
        """CPU that a worker with so many CPUs asks Kubernetes for."""
        ...
