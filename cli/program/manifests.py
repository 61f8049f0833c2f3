"""From what the program registered to Kubernetes manifests: for kubectl, and as files for it, Argo CD and Flux."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from cli.errors import Failure
from cli.program.recording import Recording, Registration
from cli.program.values import Secret, Unknown, contains, leaves, reveal
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
    return Manifest(document=reveal(inputs))


_ANNOTATIONS = ("metadata", "annotations")


def without_cloud(recording: Recording) -> tuple[Recording, list[str]]:
    """The recording without the resources that only Pulumi can make, and a line for each thing that is left out.

    An annotation whose value only an update can tell is left out of its object. Raises Failure if anything else is not
    known without one.
    """
    counts = cloud_resources(recording)
    left = [f"not among them are {counts.total()} cloud resources, which `pulumi up` makes: "] if counts else []
    left = [line + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) for line in left]
    made = {item.urn: item.id for item in recording if item.type.startswith("nebius:") and item.id}
    kept = []
    for item in recording:
        if cloud_resources([item]):
            continue
        unknown = [path for path in _computed(item, made) if path]
        for path in unknown:
            if path[:-1] != _ANNOTATIONS:
                raise Failure(f"{item.type} {item.name}: {'.'.join(path)} is only known after an update")
            left.append(f"{item.inputs['kind']} {item.name} lacks the annotation {path[-1]}: an update finds its value")
        kept.append(_without(item, {path[-1] for path in unknown}) if unknown else item)
    return Recording(registrations=kept, finished=recording.finished, outputs=recording.outputs), left


def _computed(item: Registration, made: dict[str, str]) -> Iterator[tuple[str, ...]]:
    """Where the inputs have ids of cloud resources, which are stand-ins here."""
    if not item.type.startswith("kubernetes:"):
        return
    for name, urns in item.sources.items():
        ids = {made[urn] for urn in urns if urn in made}
        for path, leaf in leaves(reveal(item.inputs.get(name)), (name,)):
            if isinstance(leaf, str) and any(id_ in leaf for id_ in ids):
                yield path


def _without(item: Registration, annotations: set[str]) -> Registration:
    metadata = item.inputs["metadata"]
    left = {key: value for key, value in metadata["annotations"].items() if key not in annotations}
    return replace(item, inputs={**item.inputs, "metadata": {**metadata, "annotations": left}})


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
        _refuse_foreign(directory, names - ours)
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


def _refuse_foreign(directory: Path, names: set[str]) -> None:
    foreign = sorted(name for name in names if (directory / name).exists())
    if foreign:
        raise Failure(
            f"{directory} already has files that this command did not write: {', '.join(foreign)}",
            hint="name another directory with --output",
        )
