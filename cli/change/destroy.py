"""What `destroy` takes down, in the order that hurts no job, and what it keeps for the next `up`: data and keys."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cli.change.effects import DATA
from cli.change.owner import KEPT, KEPT_OF, ROTATING, cluster_name_of, has_homes, is_put_back, jail_root_of, release_of
from cli.change.plan import KINDS, OPERATED, RIGHTS_OUTSIDE
from cli.errors import Failure
from cli.kubectl.client import (
    FIELD_MANAGER,
    Kubectl,
    annotations_of,
    cluster_labels,
    complaint,
    in_controller,
    labels_of,
    slurm,
)
from config.cluster import ClusterConfig
from local.report import Report
from slurm.names import CONFIG_MAP, CONTROLLER, GENERATED, LOGIN, SIZE_ANNOTATION

POLL = 0.5
"""Seconds between two looks at the cluster."""

WORKLOADS = ("cronjob", "statefulset", "deployment", "daemonset", "job", "podtemplate")
"""Kinds whose objects have pods, or make some that have."""

What = Literal["pods", "all but data", "all"]

GONE_SECONDS = 300.0
"""Seconds that objects may take to go: a load balancer in a cloud goes before its Service."""

PATIENCE = 10
"""Seconds that slurmctld may take to show its queue: scancel alone would try for many minutes."""

AFTERWARDS = (
    "`slurmstack up` with the same namespace in slurmstack:cluster goes on with it; "
    "`slurmstack destroy --delete-data` deletes it for good"
)


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
    return data_of(kubectl, namespace) if any(KEPT in labels_of(item) for item in present) else None


def _size(claim: Mapping[str, Any]) -> str:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return str(annotations_of(claim).get(SIZE_ANNOTATION) or requests.get("storage", ""))


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
    """Label the namespace in which data is kept, so that `kubectl get` finds it: `-l slurmstack/kept`."""
    if kept.keys:  # all who had an older key have ended
        kubectl.run("annotate", "secret", GENERATED, "-n", kept.namespace, f"{ROTATING}-")
    _label(kubectl, kept.namespace, f"{KEPT}=true", "--overwrite")


def unmark(kubectl: Kubectl, namespace: str) -> None:
    """The cluster is there again."""
    _label(kubectl, namespace, f"{KEPT}-")


def _label(kubectl: Kubectl, namespace: str, *label: str) -> None:
    kubectl.run("label", "namespace", namespace, *label, f"--field-manager={FIELD_MANAGER}")


def running_jobs(kubectl: Kubectl, namespace: str) -> list[str]:
    """Ids of running jobs; empty if slurmctld does not answer."""
    done = slurm(kubectl, namespace, "squeue", "--noheader", "--states=running,suspended,completing", "--format=%A")
    return done.split()


def destroy_cluster(
    kubectl: Kubectl,
    config: ClusterConfig,
    report: Report,
    *,
    kill_jobs: bool,
    what: What,
    files_go: Callable[[], None] | None = None,
) -> Kept | None:
    """Delete the worker pools and wait until their jobs have ended, then the rest. Returns the data that is kept.

    `what`: with `pods` nothing runs on return, and whoever deletes the rest has nothing to wait for. With `all but
    data` the namespace stays, with claims and keys. `files_go` is called when all pods are ending, before anybody can
    make the cluster anew. Interrupted, it can be run again.
    """
    namespace = config.cluster.namespace
    data = data_of(kubectl, namespace)
    keeps = what == "all but data" and bool(data.volumes)
    if keeps:
        note_identity(kubectl, namespace)
    if kill_jobs:
        _cancel_all(kubectl, namespace, report)
    with report.step("Waiting for worker nodes to leave") as step:
        _delete_workloads(kubectl, namespace, "slurmstack/pool")
        while leaving := kubectl.items("pod", "-n", namespace, "-l", "app.kubernetes.io/component=worker"):
            step.progress(0, 0, f"{_names(leaving)}, {len(running_jobs(kubectl, namespace))} running jobs")
            time.sleep(POLL)
    if not keeps and what != "pods":
        with report.step(f"Deleting namespace {namespace}"):
            _delete_namespace(kubectl, namespace, files_go)
        return None
    with report.step("Ending all other pods") as step:
        _delete_workloads(kubectl, namespace, cluster_labels(namespace))
        while ending := kubectl.items("pod", "-n", namespace, "-l", cluster_labels(namespace)):
            step.progress(0, 0, _names(ending))
            time.sleep(POLL)
    if what == "pods":
        if files_go is not None:
            files_go()
        return None
    with report.step(f"Deleting all but data and keys in namespace {namespace}"):
        _delete_all_but_data(kubectl, namespace)
    mark(kubectl, data)
    return data


def _delete_all_but_data(kubectl: Kubectl, namespace: str) -> None:
    """Delete what the stack has made: all with its labels but claims, and the keys, which have none."""
    kinds = ",".join(kind for kind in KINDS if kind != "persistentvolumeclaim")
    ours = ("-n", namespace, "-l", cluster_labels(namespace))
    kubectl.run("delete", kinds, *ours, "--ignore-not-found", "--wait=false")
    kubectl.run("delete", OPERATED, *ours, "--wait=false", check=False)  # where the cluster knows such objects
    kubectl.run("delete", RIGHTS_OUTSIDE, "-l", cluster_labels(namespace), "--ignore-not-found")
    deadline = time.monotonic() + GONE_SECONDS
    while left := kubectl.items(kinds, *ours):
        if time.monotonic() > deadline:
            names = ", ".join(f"{item['kind']} {item['metadata']['name']}" for item in left[:8])
            raise Failure(f"still there after {GONE_SECONDS:g} s: {names}", hint="run this again; data is not touched")
        time.sleep(POLL)


def _cancel_all(kubectl: Kubectl, namespace: str, report: Report) -> None:
    """Cancel all jobs; where slurmctld does not answer, say so."""
    with report.step("Cancelling all jobs"):
        asked = in_controller(kubectl, namespace, "squeue", "--noheader", "--format=%A", seconds=PATIENCE)
        if asked.returncode == 0:
            for state in ("pending", "running", "suspended"):  # those that wait first, or they start where others end
                in_controller(kubectl, namespace, "scancel", f"--state={state}", seconds=600)
    if asked.returncode != 0:
        report.info(
            f"no job was cancelled, for slurmctld does not answer ({complaint(asked)}): "
            "nodes without a job leave all the same, others wait for theirs as long as drain_timeout allows"
        )


def _names(pods: Sequence[Mapping[str, Any]]) -> str:
    return f"{len(pods)} left ({', '.join(sorted(str(pod['metadata']['name']) for pod in pods)[:8])})"


def _delete_workloads(kubectl: Kubectl, namespace: str, labels: str) -> None:
    """Let everything go that has pods. Returns before they have ended."""
    kubectl.run("delete", ",".join(WORKLOADS), "-n", namespace, "-l", labels, "--ignore-not-found", "--wait=false")


def _delete_namespace(kubectl: Kubectl, namespace: str, files_go: Callable[[], None] | None) -> None:
    """Delete the cluster's objects, those in no namespace first: once the namespace has gone, others may make anew."""
    present = kubectl.items("namespace", namespace)
    volumes = [
        item
        for item in kubectl.items("persistentvolume")
        if item["spec"].get("claimRef", {}).get("namespace") == namespace
        and labels_of(item).get("app.kubernetes.io/part-of") == "slurmstack"
    ]
    # Kubernetes comes to the namespace after five seconds, and to one in which it then finds pods or claims again only
    # after five more, or after half of the pods' longest grace period.
    _delete_workloads(kubectl, namespace, cluster_labels(namespace))
    if files_go is not None:
        files_go()
    claims = ("-n", namespace, "-l", cluster_labels(namespace))
    kubectl.run("delete", "persistentvolumeclaim", *claims, "--ignore-not-found", "--wait=false")
    if volumes:  # they stay until their claims have gone
        names = [str(item["metadata"]["name"]) for item in volumes]
        kubectl.run("delete", "persistentvolume", *names, "--ignore-not-found", "--wait=false")
    kubectl.run("delete", RIGHTS_OUTSIDE, "-l", cluster_labels(namespace), "--ignore-not-found")
    kubectl.run("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
    for item in (*present, *volumes):
        _await_gone(kubectl, item)


def _await_gone(kubectl: Kubectl, item: Mapping[str, Any]) -> None:
    kind, name, uid = item["kind"].lower(), item["metadata"]["name"], item["metadata"]["uid"]
    deadline = time.monotonic() + GONE_SECONDS
    while any(found["metadata"]["uid"] == uid for found in kubectl.items(kind, name)):
        if time.monotonic() > deadline:
            raise Failure(
                f"{kind} {name} is still there after {GONE_SECONDS:g} s",
                hint=f"`{kubectl.shown} describe {kind} {name}` says why",
            )
        time.sleep(POLL)
