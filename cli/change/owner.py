"""Whose a namespace is, of what its data is, and what is under way in it.

Nobody else's cluster is taken over, filled or deleted, and no data is given to a Slurm that cannot use it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cli.errors import Failure, Refused
from cli.kubectl.client import FIELD_MANAGER, Kubectl, annotations_of, cluster_labels, labels_of
from cli.stack import Stack
from config.cluster import ClusterConfig
from slurm.names import GENERATED, HOMES, JAIL_DIR, JAIL_ROOTS, RELEASE_ANNOTATION, SIZE_ANNOTATION, STACK

STATE_CLAIM = "controller-state"
STATE = "the job queue and Slurm's other state"
DATA: Mapping[str, str] = {
    "jail": "all users' files and the software in the jail",
    HOMES: "all users' homes",
    STATE_CLAIM: STATE,
    "database-data": "the records of all jobs, and the accounts, QOS and users in them",
    "prometheus-data": "the metrics of the past, and silenced alerts",
}
"""Claim -> what lies on its volume."""

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
            recorded = json.loads(annotations_of(item)[RESTORING])
            step, parts, backup = recorded["step"], tuple(recorded["parts"]), str(recorded["backup"])
        except (KeyError, TypeError, ValueError):
            continue
        if step in {"stopping", "putting"}:
            return Note(step=step, parts=parts, backup=backup, leave_stopped=bool(recorded.get("leave_stopped")))
    return None


PUT_BACK = "slurmstack/put-back"
"""Annotation of a StatefulSet of slurmctld that a restore has left stopped: the backup that its state is of."""

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
        had_homes = bool(was.get("homes", homes)) if has_jail else homes
    except (ValueError, AttributeError):  # somebody's own
        return
    own = "" if config.images.tag is not None else config.slurm.version
    why = (
        other_name(name, config.slurm.cluster_name)
        or other_jail(release, own, root, config.jail.root or "")
        or other_state(release, own)
        or other_homes(had_homes, homes)
    )
    if why:
        kept = f"the namespace {namespace['metadata']['name']!r} has the data that `destroy` has kept"
        raise Refused(f"{kept}. {why}", hint="`slurmstack destroy --delete-data` deletes it for good")


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


def is_put_back(item: Mapping[str, Any]) -> bool:
    """Whether it is the StatefulSet of a slurmctld that is stopped since a restore, maybe of an older release."""
    return has_put_back(item) and item.get("spec", {}).get("replicas") == 0


def has_put_back(item: Mapping[str, Any]) -> bool:
    """The same, or an apply has begun to start what that restore has left, and was cut short."""
    return PUT_BACK in ((item.get("metadata") or {}).get("annotations") or {})


# What `destroy` keeps

AFTERWARDS = (
    "`slurmstack up` with the same namespace in slurmstack:cluster goes on with it; "
    "`slurmstack destroy --delete-data` deletes it for good"
)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The data of one cluster."""

    volumes: Mapping[str, str]
    """What lies on which claim, for people -> name of its PersistentVolume; empty where it has none yet."""
    keys: bool
    """Whether the Secret is there from which all keys are made."""

    @property
    def lines(self) -> list[str]:
        """For people, one thing a line."""
        keys = f"Secret {GENERATED} (keys of munge, tokens, SSH hosts, REST API and database)"
        return [*self.volumes, *([keys] if self.keys else [])]


def data_of(kubectl: Kubectl, namespace: str) -> Kept:
    """The cluster's data, whether it runs or not."""
    found = kubectl.items("persistentvolumeclaim", "-n", namespace, "-l", cluster_labels(namespace))
    # A pod's own claims (scratch) go with their pod.
    claims = [item for item in found if not item["metadata"].get("ownerReferences")]
    return Kept(
        volumes={_claim_text(item): str(item["spec"].get("volumeName") or "") for item in claims},
        keys=bool(kubectl.items("secret", GENERATED, "-n", namespace)),
    )


def _claim_text(claim: Mapping[str, Any]) -> str:
    name = str(claim["metadata"]["name"])
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    size = str(annotations_of(claim).get(SIZE_ANNOTATION) or requests.get("storage", ""))
    holds = DATA.get(name, "files of users" if name.startswith("mount-") else "")
    return f"{name} ({', '.join(filter(None, (size, holds)))})"


def only_kept(kubectl: Kubectl, namespace: str) -> Kept | None:
    """The data, where nothing else of the cluster is there; None where `destroy` has not left it so."""
    present = kubectl.items("namespace", namespace)
    return data_of(kubectl, namespace) if any(KEPT in labels_of(item) for item in present) else None


# What a cluster's data can never become, in place or after a `destroy` that has kept them


def differ(old: str, new: str) -> bool:
    """Whether both are known, and are not the same."""
    return bool(old and new) and old != new


def other_jail(old: str, new: str, before: str, after: str) -> str:
    """Steps load Slurm's plugins from the jail's root, which is filled once: another release would not fit to it.

    `before`, `after`: the roots, empty for the first one. What is in one that is there already, `up` asks the volume.
    """
    if not differ(old, new) or before != after:
        return ""
    return (
        f"slurm.version: the {f'root {before!r}' if before else 'jail'} was filled with Slurm {old}, and daemons "
        f"of {new} would not fit to it. Set it back to {old}, or name another root, which is filled anew: "
        f"jail: {{root: slurm-{new}}}"
    )


def other_state(old: str, new: str) -> str:
    """What slurmctld has written, an older one does not read."""
    if not differ(old, new) or new > old:
        return ""
    return (
        f"slurm.version: the cluster's state is that of Slurm {old}, which {new} cannot read. Set it back, or put a "
        f"backup of {new} back first (docs/upgrades.md)"
    )


def other_homes(old: bool, new: bool) -> str:
    """Whether homes have a volume of their own. Nobody has moved them, so users would see an empty /home."""
    if old == new:
        return ""
    where = {False: "in the jail's volume", True: "on a volume of their own"}
    return (
        f"jail.homes: homes of this cluster are {where[old]}, and pods would show users an empty /home "
        f"{where[new]}. {'Remove this key' if new else 'Put it back'}; docs/jail.md says how homes are moved"
    )


def other_name(old: str, new: str) -> str:
    """Slurmctld keeps the name with its state, and does not start with another one ("CLUSTER NAME MISMATCH")."""
    if not differ(old, new):
        return ""
    return (
        f"slurm.cluster_name: the cluster's state is that of {old!r}, and slurmctld does not start with it as "
        f"{new!r}; set it back to {old}. Another name is another cluster: make it in a namespace of its own "
        "(slurmstack:cluster), with an empty volume for the controller's state"
    )


def root_of(pod: Mapping[str, Any]) -> str | None:
    """Name of the root that a pod's specification leads into; empty: the first one; None: it leads into none."""
    for container in pod.get("containers") or ():
        for item in container.get("volumeMounts") or ():
            if item.get("mountPath") == JAIL_DIR:
                found = re.fullmatch(rf"{re.escape(JAIL_ROOTS)}/([^/]+)/root", str(item.get("subPath") or ""))
                return found.group(1) if found else ""
    return None


def jail_root_of(stateful_set: Mapping[str, Any]) -> str:
    """The jail's root that the pods lead into; empty for the first one."""
    return root_of(stateful_set["spec"]["template"]["spec"]) or ""


def has_homes(stateful_set: Mapping[str, Any]) -> bool:
    """Whether the pods have a volume of homes."""
    volumes = stateful_set["spec"]["template"]["spec"].get("volumes") or ()
    return any((item.get("persistentVolumeClaim") or {}).get("claimName") == HOMES for item in volumes)


def release_of(stateful_set: Mapping[str, Any]) -> str:
    """The Slurm release that is noted, or that a tag has which we computed (`24.11-0f3a9c2b7d41`), else nothing."""
    if noted := annotations_of(stateful_set).get(RELEASE_ANNOTATION):
        return str(noted)
    match = re.search(r":(\d\d\.\d\d)-[0-9a-f]{12}$", image_of(stateful_set))
    return match.group(1) if match else ""


def image_of(stateful_set: Mapping[str, Any]) -> str:
    """The image of its pods' first container."""
    return str(stateful_set["spec"]["template"]["spec"]["containers"][0]["image"])


def cluster_name_of(configuration: Mapping[str, Any]) -> str:
    """`ClusterName` in the ConfigMap of Slurm's files; empty if it is not there."""
    slurm_conf = str((configuration.get("data") or {}).get("slurm.conf", ""))
    found = re.search(r"^ClusterName=(\S+)$", slurm_conf, re.MULTILINE)
    return found.group(1) if found else ""
