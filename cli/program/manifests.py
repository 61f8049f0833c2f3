"""From what the program registered to Kubernetes manifests: for kubectl, and as files for it, Argo CD and Flux."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from cli.errors import Failure
from cli.program.recording import Recording, Registration
from cli.program.values import Secret, Unknown, contains, reveal
from local.files import PRIVATE, write_whole

_CLUSTER_SCOPED = frozenset({"Namespace", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "PriorityClass"})

_WITHOUT_MANIFEST = ("pulumi:providers:", "slurmstack:index:", "random:index/")

_HELM = "kubernetes:helm.sh/"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One Kubernetes object, as it is sent to the API server."""

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
    def key(self) -> tuple[str, str]:
        """Kind and name: unique, since all objects are in one namespace or in none."""
        return self.kind, self.name

    def noted(self, field: Literal["labels", "annotations"], more: Mapping[str, str]) -> Manifest:
        """The object with some more labels or annotations."""
        metadata = self.document["metadata"]
        changed = {**metadata, field: {**metadata.get(field, {}), **more}}
        return Manifest(document={**self.document, "metadata": changed})


def manifests(recording: Recording) -> list[Manifest]:
    """All Kubernetes objects, in the order in which they were registered, which is one that can be applied.

    Raises Failure for resources that only the Pulumi engine can make, and for values that nobody knows before an
    update.
    """
    refuse_cloud_resources(recording)
    return [_manifest(registration) for registration in recording if registration.type.startswith("kubernetes:")]


def is_foreign(type_: str) -> bool:
    """Whether only the Pulumi engine can make resources of this type: those of a cloud, and charts."""
    return type_.startswith(_HELM) or not type_.startswith(("kubernetes:", *_WITHOUT_MANIFEST))


def refuse_cloud_resources(recording: Recording) -> None:
    """Raise Failure if the program registers resources that only the Pulumi engine can make; lists them by kind."""
    foreign = Counter(item.type.rsplit(":", 1)[1] for item in recording if is_foreign(item.type))
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
    return Manifest(document=reveal(inputs))


INDEX = ".slurmstack-rendered"
"""Lists the files that we wrote into a directory, so that the next run removes those that are no longer part of it."""

KUSTOMIZATION = "Kustomization"
"""Lists the manifests for kustomize, which Argo CD and Flux use, under the one of its three names that
`kubectl apply -f DIR` does not take for a manifest."""

_ORDER: tuple[frozenset[str], ...] = (
    frozenset({"Namespace"}),
    frozenset({"PersistentVolume", "PersistentVolumeClaim"}),
    frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}),
    frozenset({"NetworkPolicy", "PodDisruptionBudget"}),
    frozenset({"Secret", "ConfigMap"}),
    frozenset({"Service"}),
    frozenset(),
    frozenset({"Job"}),
    frozenset({"StatefulSet", "Deployment", "DaemonSet"}),
)
"""What comes before what, by kind; the empty place is for all others. A pod whose ConfigMap or Secret is not there yet
is tried again by the kubelet in growing steps, up to two minutes apart."""

_KEPT = {
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
"""On what holds data: Argo CD and Flux do not delete it, neither when it leaves the directory nor with the whole."""


def write(objects: Sequence[Manifest], directory: Path) -> list[Path]:
    """Write one YAML file per object, and a list for kustomize; remove files of an earlier run that left the set.

    Returns the objects' files, in the order in which they can be applied. Files with Secrets can be read by their owner
    only. Other files in the directory are left alone, and never overwritten.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        index = directory / INDEX
        ours = set(index.read_text(encoding="utf-8").split("\n")) if index.exists() else set()
        manifests = {file_name(manifest): manifest for manifest in objects}
        names = {*manifests, KUSTOMIZATION}
        if foreign := sorted(name for name in names - ours if (directory / name).exists()):
            raise Failure(
                f"{directory} already has files that this command did not write: {', '.join(foreign)}",
                hint="name another directory with --output or --secrets",
            )
        # The list grows before files appear and shrinks after they went: an interrupted run can be repeated.
        index.write_text("\n".join(sorted(ours | names)), encoding="utf-8")
        for name, manifest in manifests.items():
            mode = PRIVATE if manifest.kind == "Secret" else 0o644
            holds_data = manifest.kind in {"Namespace", "PersistentVolume", "PersistentVolumeClaim"}
            text = to_yaml(manifest.noted("annotations", _KEPT) if holds_data else manifest)
            write_whole(directory / name, text, mode=mode, durable=False)
        write_whole(directory / KUSTOMIZATION, _kustomization(sorted(manifests)), mode=0o644, durable=False)
        for name in ours - names - {""}:
            (directory / name).unlink(missing_ok=True)
        index.write_text("\n".join(sorted(names)), encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write to {directory}: {error.strerror or error}") from error
    return [directory / name for name in sorted(manifests)]


def file_name(manifest: Manifest) -> str:
    """`80-statefulset-default.yaml` for the StatefulSet `default`.

    kubectl applies the files of a directory in the order of their names. The number depends on the kind alone, so that
    no object's file is renamed because of another's.
    """
    others = _ORDER.index(frozenset())
    place = next((number for number, kinds in enumerate(_ORDER) if manifest.kind in kinds), others)
    return f"{place}0-{manifest.kind.lower()}-{manifest.name}.yaml"


def to_yaml(manifest: Manifest) -> str:
    """The object as YAML, keys in the order in which people write them."""
    first = [key for key in ("apiVersion", "kind", "metadata") if key in manifest.document]
    rest = sorted(set(manifest.document) - set(first))
    ordered = {key: manifest.document[key] for key in [*first, *rest]}
    # libyaml's own emitter, which the published packages of PyYAML have, is five times as fast as the one in Python.
    return str(yaml.dump(ordered, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120))


def _kustomization(names: Sequence[str]) -> str:
    listed = "".join(f"  - {name}\n" for name in names)
    return f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{listed}"
