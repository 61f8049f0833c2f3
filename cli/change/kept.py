"""What `destroy` keeps in the cluster's namespace, for the next `up`: claims with their volumes, and the keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.change.effects import DATA
from cli.change.in_place import cluster_name_of, has_homes, is_put_back, jail_root_of, release_of
from cli.change.owner import KEPT, KEPT_OF, ROTATING
from cli.errors import Refused
from cli.kubectl.client import FIELD_MANAGER, Kubectl, cluster_labels
from cli.program.manifests import Manifest
from slurm.names import CONFIG_MAP, CONTROLLER, GENERATED, LOGIN, SIZE_ANNOTATION

_PART_OF = "app.kubernetes.io/part-of=slurmstack"


@dataclass(frozen=True, kw_only=True)
class KeptVolume:
    """A claim of the cluster."""

    claim: str
    size: str
    volume: str
    """Name of its PersistentVolume; empty where it has none yet."""

    @property
    def told(self) -> str:
        """For people: what lies on it."""
        holds = DATA.get(self.claim, "files of users" if self.claim.startswith("mount-") else "")
        return f"{self.claim} ({', '.join(filter(None, (self.size, holds)))})"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The data of one cluster."""

    namespace: str
    volumes: tuple[KeptVolume, ...]
    keys: bool
    """Whether the Secret is there from which all keys are made."""

    @property
    def lines(self) -> list[str]:
        """For people, one thing a line."""
        keys = f"Secret {GENERATED} (keys of munge, tokens, SSH hosts, REST API and database)"
        return [*(item.told for item in self.volumes), *([keys] if self.keys else [])]


AFTERWARDS = (
    "`slurmstack up` with the same namespace in slurmstack:cluster goes on with it; "
    "`slurmstack destroy --delete-data` deletes it for good"
)


def data_of(kubectl: Kubectl, namespace: str) -> Kept:
    """The cluster's data, whether it runs or not."""
    found = kubectl.items("persistentvolumeclaim", "-n", namespace, "-l", cluster_labels(namespace))
    # A pod's own claims (scratch) go with their pod.
    claims = [item for item in found if not item["metadata"].get("ownerReferences")]
    return Kept(
        namespace=namespace,
        volumes=tuple(
            KeptVolume(
                claim=str(item["metadata"]["name"]), size=_size(item), volume=str(item["spec"].get("volumeName") or "")
            )
            for item in claims
        ),
        keys=bool(kubectl.items("secret", GENERATED, "-n", namespace)),
    )


def only_kept(kubectl: Kubectl, namespace: str) -> Kept | None:
    """The data, where nothing else of the cluster is there; None where `destroy` has not left it so."""
    present = kubectl.items("namespace", namespace)
    return (
        data_of(kubectl, namespace) if any(KEPT in (item["metadata"].get("labels") or {}) for item in present) else None
    )


def _size(claim: Mapping[str, Any]) -> str:
    asked = (claim["metadata"].get("annotations") or {}).get(SIZE_ANNOTATION)
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return str(asked or requests.get("storage", ""))


def is_retained(kubectl: Kubectl, kept: KeptVolume) -> bool:
    """Whether the files stay where they are when claim and volume are deleted: a file system, or a local directory."""
    found = kubectl.items("persistentvolume", kept.volume) if kept.volume else []
    return any(item["spec"].get("persistentVolumeReclaimPolicy") == "Retain" for item in found)


def note_identity(kubectl: Kubectl, namespace: str) -> None:
    """Write down whose state it is, while that can still be read: slurmctld takes no other cluster's, or release's."""
    configuration = kubectl.items("configmap", CONFIG_MAP, "-n", namespace)
    sets = {item["metadata"]["name"]: item for item in kubectl.items("statefulset", "-n", namespace)}
    found = [item for item in configuration if item["metadata"]["name"] == CONFIG_MAP]
    if found and CONTROLLER in sets:
        # What a restore has left stopped may be of an older release than its pods would be.
        release = "" if is_put_back(sets[CONTROLLER]) else release_of(sets[CONTROLLER])
        told: dict[str, object] = {"cluster_name": cluster_name_of(found[0]), "slurm": release}
        if LOGIN in sets:
            told |= {"root": jail_root_of(sets[LOGIN]), "homes": has_homes(sets[LOGIN])}
        kubectl.run(
            "annotate", "namespace", namespace, "--overwrite", f"--field-manager={FIELD_MANAGER}",
            f"{KEPT_OF}={json.dumps(told)}",
        )  # fmt: skip


def mark(kubectl: Kubectl, kept: Kept) -> None:
    """Label what is kept, so that `kubectl get` finds it: `-l slurmstack/kept`."""
    if kept.keys:  # all who had an older key have ended
        kubectl.run("annotate", "secret", GENERATED, "-n", kept.namespace, f"{ROTATING}-")
    _label(kubectl, kept, f"{KEPT}=true", "--overwrite")


def unmark(kubectl: Kubectl, namespace: str) -> None:
    """The cluster is there again."""
    _label(kubectl, data_of(kubectl, namespace), f"{KEPT}-")


def _label(kubectl: Kubectl, kept: Kept, *label: str) -> None:
    ours = kubectl.items("persistentvolume", "-l", _PART_OF)
    names = {str(item["metadata"]["name"]) for item in ours}
    what = [
        f"namespace/{kept.namespace}",
        *(f"persistentvolumeclaim/{item.claim}" for item in kept.volumes),
        *(f"persistentvolume/{item.volume}" for item in kept.volumes if item.volume in names),
        *([f"secret/{GENERATED}"] if kept.keys else []),
    ]
    kubectl.run("label", "-n", kept.namespace, *what, *label, f"--field-manager={FIELD_MANAGER}")


def refuse_left_behind(
    kubectl: Kubectl, namespace: str, objects: Sequence[Manifest], live: Mapping[tuple[str, str], Any]
) -> None:
    """Raise Refused where a claim would get a new empty volume, and an older one is reserved for it.

    Its claim may have gone with the namespace, by other hands than ours.
    """
    claims = [item for item in objects if item.kind == "PersistentVolumeClaim"]
    missing = {item.name for item in claims if (item.kind, item.name) not in live}
    wanted = {item.name for item in objects if item.kind == "PersistentVolume"}
    served = {item.name for item in claims if not item.document["spec"].get("volumeName")}
    if not missing & served:
        return
    for volume in kubectl.items("persistentvolume", "-l", _PART_OF):
        reserved, name = volume["spec"].get("claimRef", {}), str(volume["metadata"]["name"])
        if reserved.get("namespace") == namespace and reserved.get("name") in missing and name not in wanted:
            claim = str(reserved["name"])
            raise Refused(
                f"the volume {name} has {DATA.get(claim, 'files')}, from an earlier cluster in namespace {namespace}, "
                f"and the stack file asks for another, empty one: storage class "
                f"{_class_of(objects, claim) or 'of the cluster'}",
                hint="remove the volume's storage_class from the stack file to go on with what is there; "
                f"`{kubectl.shown} delete persistentvolume {name}` if it is not needed",
            )


def _class_of(objects: Sequence[Manifest], claim: str) -> str:
    (found,) = [item for item in objects if (item.kind, item.name) == ("PersistentVolumeClaim", claim)]
    return str(found.document["spec"].get("storageClassName") or "")
