"""The cluster of a rehearsal: the same stack file in a namespace of its own, without all that costs machines.

It has slurmctld, slurmdbd, a database of its own, and the volumes that a backup is put back into. What could start a
job, reach users, or write to the repository is not made at all.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

from cli.errors import USAGE, Failure
from cli.program.recording import KeptValues, Manifest, manifests, record
from cli.stack import Stack
from config import ClusterConfig, load_config
from config.sections.cloud import NebiusCloud
from config.sections.slurm import SettingValue, folded
from slurm.names import ACCOUNTING, BACKUP, CONTROLLER, DATABASE

SUFFIX: Final = "-rehearsal"

OF: Final = "slurmstack/rehearsal-of"
"""Label of the namespace of a rehearsal: the namespace of the cluster whose backup it is."""

_GRACE: Final = 5
"""Seconds for each pod to end. Nothing in it is worth more."""

_LEFT_OUT: Final = frozenset({"Job", "PodDisruptionBudget", "ClusterRole", "ClusterRoleBinding", "PriorityClass"})
"""Kinds that it has none of: what fills the jail, makes the configuration wait, or is in no namespace."""

_COMPONENTS: Final = frozenset({
    "namespace", "nodes", "secrets", "configuration", "network-policy", CONTROLLER, ACCOUNTING, DATABASE, BACKUP,
})  # fmt: skip
"""Whose objects it has: no workers, no login nodes, nothing that watches, serves people, or makes pods."""

_SETTINGS: Final[dict[str, SettingValue]] = {
    # Nobody registers, and no job of the backup's time is to be given up for that while it is looked at.
    "SlurmdTimeout": 0,
    "HealthCheckInterval": 0,
    "MailProg": "/bin/true",
    "JobCompType": "jobcomp/none",
}
"""Of slurm.conf, in place of the stack's: nothing is told to anybody outside."""

_OUTSIDE: Final = frozenset({
    "prologslurmctld", "epilogslurmctld", "jobcomphost", "jobcomploc", "jobcompparams", "jobcomppass", "jobcompport",
    "jobcompuser", "resumeprogram", "suspendprogram", "resumefailprogram", "maildomain", "slurmctldprimaryonprog",
    "slurmctldprimaryoffprog", "rebootprogram", "accountingstorageexternalhost", "resvprolog", "resvepilog",
    "burstbuffertype",
})  # fmt: skip
"""Keys, in small letters, by which slurmctld would run something or reach somebody."""


def sections_for(stack: Stack, *, version: str | None = None, tag: str = "") -> dict[str, Any]:
    """The stack file of the rehearsal. Raises Failure where there can be none.

    `version`: another Slurm release, whose images have this tag, or the one that they are built with.
    """
    config = stack.config
    if isinstance(config.cloud, NebiusCloud):
        raise Failure(
            "a rehearsal takes its volumes from Kubernetes, and those of this stack are file systems that Nebius makes",
            hint="restore into a second stack with another namespace instead (docs/restore.md); not there yet",
            code=USAGE,
        )
    if config.backup is None:
        raise Failure(
            "this cluster has no backups",
            hint="write slurmstack:backup into the stack file (docs/backups.md)",
            code=USAGE,
        )
    made: dict[str, Any] = copy.deepcopy(dict(stack.sections))
    made["cluster"] = {**made.get("cluster", {}), "namespace": f"{config.cluster.namespace}{SUFFIX}"}
    made["backup"]["prefix"] = config.backup.prefix or config.cluster.namespace
    made["protect"] = False
    database = made.get("accounting", {}).get("database", {})
    database.pop("external", None)  # never the real one
    made.get("controller", {}).pop("replicas", None)  # one is enough
    made["slurm"] = _slurm(made.get("slurm", {}), version or config.slurm.version)
    if version is not None:  # tag and digests are of images of the release that runs
        images = {key: value for key, value in made.get("images", {}).items() if key not in {"tag", "digests"}}
        made["images"] = {**images, **({"tag": tag} if tag else {})}
    made["partitions"] = _closed(made.get("partitions"), config)
    for name in ("logs", "rest", "dashboard", "monitoring"):
        made.pop(name, None)
    load_config(made)
    return made


def _slurm(section: Mapping[str, Any], version: str) -> dict[str, Any]:
    settings = section.get("settings") or {}
    ours = folded(_SETTINGS)
    kept = {key: value for key, value in settings.items() if key.lower() not in {*_OUTSIDE, *ours}}
    return {**section, "version": version, "settings": {**kept, **_SETTINGS}}


def _closed(partitions: Mapping[str, Any] | None, config: ClusterConfig) -> dict[str, Any]:
    """All partitions, down: no job starts in them, whatever comes."""
    there = partitions or {"main": {"pools": list(config.worker_nodes), "default": True}}

    def down(partition: Mapping[str, Any]) -> dict[str, Any]:
        settings = partition.get("settings") or {}
        kept = {key: value for key, value in settings.items() if key.lower() != "state"}
        return {**partition, "settings": {**kept, "State": "DOWN"}}

    return {name: down(partition) for name, partition in there.items()}


def objects_for(sections: Mapping[str, Any], *, of: str, stack: str, jail: bool) -> list[Manifest]:
    """What is sent to Kubernetes, with keys of its own. `of`: the cluster's namespace. slurmctld and slurmdbd wait."""
    found = manifests(record(sections, stack=stack, generated=KeptValues({})))
    components = {*_COMPONENTS, *(["jail"] if jail else [])}
    kept = [item for item in found if item.kind not in _LEFT_OUT and _component(item) in components]
    claims = {item.name for item in kept if item.kind == "PersistentVolumeClaim"}
    volumes = [item for item in found if item.kind == "PersistentVolume"]
    bound = [item for item in volumes if item.document["spec"]["claimRef"]["name"] in claims]
    # Nothing here saves anything, neither by a schedule nor by a person.
    rest = [item for item in kept if (item.kind, item.name) != ("CronJob", BACKUP) and item.kind != "PersistentVolume"]
    classes = {item.name for item in found if item.kind == "PriorityClass"}
    return [_altered(item, of, classes) for item in sorted([*bound, *rest], key=lambda item: item.kind != "Namespace")]


def _component(item: Manifest) -> str | None:
    labels: Mapping[str, str] = item.document["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/component")


def _altered(item: Manifest, of: str, classes: Container[str]) -> Manifest:
    document = copy.deepcopy(item.document)
    if item.kind == "Namespace":
        document["metadata"].setdefault("labels", {})[OF] = of
    if item.kind == "StatefulSet":
        document["spec"]["replicas"] = 1 if item.name == DATABASE else 0
    if (pod := _pod(document)) is not None:
        pod["terminationGracePeriodSeconds"] = _GRACE
        if pod.get("priorityClassName") in classes:  # it would be the stack's own, which is left out
            del pod["priorityClassName"]
        for container in pod["containers"]:
            container.pop("lifecycle", None)  # slurmctld would wait for the last job of workers that never were
    return Manifest(document=document)


def borrowed(objects: Sequence[Manifest]) -> list[str]:
    """Secrets that pods name and the stack does not make: people have made them."""
    own = {item.name for item in objects if item.kind == "Secret"}
    pods = [pod for item in objects if (pod := _pod(item.document)) is not None]
    return sorted({name for pod in pods for name in _secrets(pod)} - own)


def _pod(document: Mapping[str, Any]) -> dict[str, Any] | None:
    spec = document.get("spec") or {}
    spec = spec.get("jobTemplate", {}).get("spec") or spec
    found: dict[str, Any] | None = (spec.get("template") or {}).get("spec")
    return found


def _secrets(value: Any) -> Iterator[str]:
    """Wherever a pod names one: volumes, environment, pull secrets."""
    if isinstance(value, list):
        for item in value:
            yield from _secrets(item)
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if key == "imagePullSecrets":
            yield from (str(item["name"]) for item in inner)
        elif key in {"secretKeyRef", "secretRef"} or (key == "secret" and isinstance(inner, Mapping)):
            yield str(inner.get("secretName") or inner.get("name"))
        else:
            yield from _secrets(inner)
