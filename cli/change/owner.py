"""Whose a namespace is, and what is under way in it: nobody else's cluster is taken over, filled or deleted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cli.change.effects import DATA
from cli.change.in_place import has_put_back, other_homes, other_jail, other_name, other_state
from cli.errors import Failure, Refused
from cli.kubectl.client import FIELD_MANAGER, Kubectl, annotations_of, labels_of
from cli.program.manifests import Manifest
from cli.stack import Stack
from config.cluster import ClusterConfig
from slurm.names import STACK

RESTORING = "slurmstack/restoring"
"""Annotation: a `Note` as JSON."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """Which restore, and how far it has come."""

    step: Literal["stopping", "putting"]
    """It has put nothing back yet; it may have, by half."""
    parts: tuple[str, ...]
    backup: str
    leave_stopped: bool = False

    def written(self) -> str:
        """For the annotation."""
        return json.dumps(asdict(self))

    @property
    def command(self) -> str:
        """What goes on with it."""
        parts = "".join(f" --what {part}" for part in self.parts)
        return f"slurmstack restore{parts} --at {self.backup}{' --leave-stopped' if self.leave_stopped else ''}"


def note_of(objects: Iterable[Mapping[str, Any]]) -> Note | None:
    """What is noted; None where there is nothing, or what nobody understands."""
    for item in objects:
        try:
            said = json.loads(annotations_of(item)[RESTORING])
            step, parts, backup = said["step"], tuple(said["parts"]), str(said["backup"])
        except (KeyError, TypeError, ValueError):
            continue
        if step in {"stopping", "putting"}:
            return Note(step=step, parts=parts, backup=backup, leave_stopped=bool(said.get("leave_stopped")))
    return None


REPLICAS_BEFORE = "slurmstack/replicas-before-restore"
"""Annotation of a workload that a restore has stopped: how many pods it had."""

ROTATING = "slurmstack/rotating"
"""Annotation of the Secret of generated values while a key is rotated: which one."""

KEPT = "slurmstack/kept"
"""Label of a namespace in which `destroy` has left nothing but data and keys."""

KEPT_OF = "slurmstack/kept-of"
"""Annotation of such a namespace: name and Slurm release of the cluster, as JSON."""


def refuse_foreign(namespace: Mapping[str, Any] | None) -> None:
    """Raise Failure if the namespace is there but holds no cluster of ours."""
    if namespace is None:
        return
    if labels_of(namespace).get("app.kubernetes.io/part-of") != "slurmstack":
        raise Failure(
            f"cluster.namespace: the namespace {namespace['metadata']['name']!r} is there and belongs to something "
            "else",
            hint="name another one in slurmstack:cluster; it is made, filled and deleted with the cluster",
        )


def refuse_takeover(
    namespace: Mapping[str, Any] | None,
    *,
    hint: str = "use `pulumi up` (or `slurmstack up --engine pulumi`) where the pulumi command is on PATH",
) -> None:
    """Raise Failure if the namespace is not one that this command made: foreign, or made by the Pulumi engine."""
    refuse_foreign(namespace)
    metadata = namespace["metadata"] if namespace is not None else {}
    managers = [str(entry.get("manager", "")) for entry in metadata.get("managedFields", [])]
    if any(manager.startswith("pulumi") for manager in managers):
        raise Failure(
            f"the cluster in namespace {metadata['name']!r} was made by `pulumi up`, "
            "which keeps its keys in Pulumi's state",
            hint=hint,
        )


def refuse_other_stack(kubectl: Kubectl, namespace: Mapping[str, Any] | None, stack: str) -> None:
    """Raise Refused if a stack of another name has made the cluster: a wrong file, or a wrong context."""
    was = annotations_of(namespace).get(STACK, stack) if namespace is not None else stack
    if namespace is not None and was != stack:
        name = namespace["metadata"]["name"]
        raise Refused(
            f"the cluster in namespace {name!r} is that of the stack {was!r}, and this is the stack {stack!r}",
            hint="name another file (--config, SLURMSTACK_STACK), or another cloud.context or cluster.namespace in it. "
            f"Where only the stack's name has changed: {kubectl.shown} annotate --overwrite namespace {name} "
            f"{STACK}={stack}",
        )


def require_own(stack: Stack, kubectl: Kubectl) -> None:
    """The same, where the cluster is to be changed or broken and nobody has looked at its namespace yet."""
    there = next(iter(kubectl.items("namespace", stack.config.cluster.namespace)), None)
    refuse_other_stack(kubectl, there, stack.name)


def refuse_other_kept(namespace: Mapping[str, Any] | None, config: ClusterConfig, *, has_jail: bool = True) -> None:
    """Raise Refused where `destroy` has kept data that the stack file's cluster cannot use.

    `has_jail`: whether that of the jail is among it still; a new one has homes wherever the stack file says.
    """
    if namespace is None or KEPT not in labels_of(namespace):
        return
    try:
        was = json.loads(annotations_of(namespace).get(KEPT_OF, "{}"))
        name, release, root = (str(was.get(key, "")) for key in ("cluster_name", "slurm", "root"))
        homes = config.jail.homes is not None
        apart = bool(was.get("homes", homes)) if has_jail else homes
    except (ValueError, AttributeError):  # somebody's own
        return
    own = "" if config.images.tag is not None else config.slurm.version
    jail = other_jail(release, own, root, config.jail.root or "")
    verdicts = (
        other_name(name, config.slurm.cluster_name), jail, other_state(release, own), other_homes(apart, homes),
    )  # fmt: skip
    for verdict in verdicts:
        if verdict is not None and verdict.refused:
            kept = f"the namespace {namespace['metadata']['name']!r} has the data that `destroy` has kept"
            raise Refused(f"{kept}. {verdict.refused}", hint="`slurmstack destroy --delete-data` deletes it for good")


def refuse_half_rotated(objects: Iterable[Mapping[str, Any]]) -> None:
    """Raise Failure where a rotation of a key was not finished: pods that start anew would have another key."""
    for item in objects:
        if item["kind"] == "Secret" and (key := annotations_of(item).get(ROTATING)):
            raise Failure(f"the rotation of {key} was not finished", hint=f"`slurmstack rotate {key}` goes on with it")


def applied_by(workload: Mapping[str, Any]) -> str:
    """Which controller of GitOps sets the workload back to what a repository says; empty where none is known to."""
    for entry in workload["metadata"].get("managedFields") or ():
        manager = str(entry.get("manager", ""))
        by_command = manager == FIELD_MANAGER or manager.startswith(("kubectl", "pulumi"))
        if manager.startswith("argocd") or (entry.get("operation") == "Apply" and not by_command):
            return manager
    return ""


def refuse_half_restored(objects: Iterable[Mapping[str, Any]]) -> None:
    """Raise Failure where a restore has stopped something and was not finished: Slurm would start in its midst."""
    objects = list(objects)
    stopped = [item["metadata"] for item in objects if is_stopped(item)]
    if stopped and not any(map(has_put_back, objects)):
        namespace, note = stopped[0].get("namespace", ""), note_of(objects)
        raise Failure(
            f"a restore of the cluster in namespace {namespace!r} was not finished",
            hint=f"`{note.command if note else 'slurmstack restore'}` goes on with it; to start with what is there, "
            f"end its job first: kubectl delete job restore -n {namespace} --ignore-not-found; kubectl annotate "
            f"statefulset,deployment --all -n {namespace} {REPLICAS_BEFORE}- {RESTORING}-",
        )


def is_stopped(workload: Mapping[str, Any]) -> bool:
    """Whether a restore has stopped it. One that somebody has started by hand since is not."""
    return REPLICAS_BEFORE in annotations_of(workload) and not workload.get("spec", {}).get("replicas")


def refuse_left_behind(
    kubectl: Kubectl, namespace: str, objects: Sequence[Manifest], live: Mapping[tuple[str, str], Any]
) -> None:
    """Raise Refused where a claim would get a new empty volume, and an older one is reserved for it.

    Its claim may have gone with the namespace, by other hands than ours.
    """
    claims = {item.name: item.document["spec"] for item in objects if item.kind == "PersistentVolumeClaim"}
    missing = {name: spec for name, spec in claims.items() if ("PersistentVolumeClaim", name) not in live}
    wanted = {item.name for item in objects if item.kind == "PersistentVolume"}
    if all(spec.get("volumeName") for spec in missing.values()):
        return
    for volume in kubectl.items("persistentvolume", "-l", "app.kubernetes.io/part-of=slurmstack"):
        reserved, name = volume["spec"].get("claimRef", {}), str(volume["metadata"]["name"])
        if reserved.get("namespace") == namespace and reserved.get("name") in missing and name not in wanted:
            claim = str(reserved["name"])
            raise Refused(
                f"the volume {name} has {DATA.get(claim, 'files')}, from an earlier cluster in namespace {namespace}, "
                f"and the stack file asks for another, empty one: storage class "
                f"{missing[claim].get('storageClassName') or 'of the cluster'}",
                hint="remove the volume's storage_class from the stack file to go on with what is there; "
                f"`{kubectl.shown} delete persistentvolume {name}` if it is not needed",
            )
