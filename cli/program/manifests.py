"""From what the program registered to Kubernetes manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cli.errors import Failure
from cli.program.recording import Recording, Registration
from cli.program.values import Secret, Unknown, contains, reveal

_CLUSTER_SCOPED = frozenset({"Namespace", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "PriorityClass"})

_WITHOUT_MANIFEST = ("pulumi:providers:", "slurmstack:index:", "random:index/")

_HELM = "kubernetes:helm.sh/"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One Kubernetes object, as it is sent to the API server."""

    urn: str
    document: dict[str, Any]

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.document["metadata"]["name"])

    @property
    def cluster_scoped(self) -> bool:
        """Whether the object is in no namespace."""
        return self.kind in _CLUSTER_SCOPED

    @property
    def title(self) -> str:
        """How the object is named to people: `StatefulSet default`."""
        return f"{self.kind} {self.name}"


def manifests(recording: Recording) -> list[Manifest]:
    """All Kubernetes objects, in the order in which they were registered, which is one that can be applied.

    Raises Failure for resources that only the Pulumi engine can make, and for values that nobody knows before an
    update.
    """
    refuse_cloud_resources(recording)
    return [_manifest(registration) for registration in recording if registration.type.startswith("kubernetes:")]


def cloud_resources(registrations: Iterable[Registration]) -> Counter[str]:
    """Number of resources by kind that only the Pulumi engine can make."""
    return Counter(item.type.rsplit(":", 1)[1] for item in registrations if is_foreign(item.type))


def is_foreign(type_: str) -> bool:
    """Whether only the Pulumi engine can make resources of this type: those of a cloud, and charts."""
    return type_.startswith(_HELM) or not type_.startswith(("kubernetes:", *_WITHOUT_MANIFEST))


def refuse_cloud_resources(recording: Recording) -> None:
    """Raise Failure if the program registers resources that only the Pulumi engine can make; lists them by kind."""
    foreign = cloud_resources(recording)
    if foreign:
        listed = "\n".join(f"  {count:3} {kind}" for kind, count in sorted(foreign.items()))
        raise Failure(
            f"this stack has {foreign.total()} cloud resources, which kubectl cannot make:\n{listed}",
            hint="install the pulumi command as https://www.pulumi.com/docs/install/ says; then `slurmstack up` makes "
            "them. For a cluster that is already there: slurmstack:cloud: {kind: existing, context: ...}",
        )


def _manifest(registration: Registration) -> Manifest:
    inputs = registration.inputs
    if contains(inputs, Unknown):
        raise Failure(f"{registration.type} {registration.name} has values that are only known after an update")
    if inputs["kind"] != "Secret" and contains(inputs, Secret):
        raise Failure(f"{registration.type} {registration.name} would show a secret in the clear; this is a bug")
    return Manifest(urn=registration.urn, document=reveal(inputs))


def namespace_of(objects: Iterable[Manifest]) -> str:
    """The one namespace of a cluster."""
    return next(manifest.name for manifest in objects if manifest.kind == "Namespace")
