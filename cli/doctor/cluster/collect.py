"""Reads a running cluster into facts: three calls to Kubernetes and one to Slurm, at the same time. Changes nothing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from cli.change.lock import LEASE, has_died
from cli.change.owner import has_put_back, is_stopped, note_of
from cli.doctor.cluster.facts import Claim, Container, Facts, Lease, Machine, Owner, Pod, Pool
from cli.doctor.cluster.slurm import SECONDS, ask_slurm
from cli.kubectl.client import Kubectl, is_true
from cli.kubectl.pods import LEAVING, pod_of
from cli.status.read import read_objects
from config.cluster import ClusterConfig
from slurm.conf import config_hash, render
from slurm.names import CONTROLLER

_ASKED: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({"pods": "Pod", "nodes": "Node"}, ()),
    (
        {
            "statefulsets": "StatefulSet",
            "deployments": "Deployment",
            "jobs": "Job",
            "persistentvolumeclaims": "PersistentVolumeClaim",
            "leases": "Lease",
        },
        (),
    ),
    ({"events": "Event"}, ("--field-selector=type=Warning",)),
)
"""What each call of kubectl asks for: it asks for one kind after the other, and a large cluster's pods take long."""

_PARTS = {
    **dict.fromkeys(("statefulsets", "deployments", "jobs"), "workloads"),
    "nodes": "machines",
    "persistentvolumeclaims": "claims",
    "leases": "lease",
}
"""Kinds whose part of the facts is called otherwise."""

Object = Mapping[str, Any]
Warnings = Mapping[str, tuple[str, ...]]


def collect(kubectl: Kubectl, config: ClusterConfig, *, job: str = "") -> Facts:
    """All that can be read within some seconds. What could not be read is in `unread`.

    `job`: the number of one that is asked about.
    Raises Failure only if kubectl cannot be run.
    """
    namespace, here = config.cluster.namespace, time.time()
    with ThreadPoolExecutor() as pool:  # each is a process that mostly waits
        asked = [
            pool.submit(read_objects, kubectl, namespace, kinds, *options, seconds=SECONDS) for kinds, options in _ASKED
        ]
        slurm = pool.submit(ask_slurm, kubectl, namespace, accounting=config.accounting.enabled, job=job)
        wanted = config_hash(render(config))
    items: list[Any] = []
    unread: dict[str, str] = {}
    for answer in asked:
        found, missing = answer.result()
        items += found
        unread |= {_PARTS.get(kind, kind): why for kind, why in missing.items()}
    of_slurm, silent = slurm.result()
    unread |= silent
    # One that is ahead, here or there, would have a pod deleted by force that has just begun to end.
    now = min(of_slurm.pop("clock", 0.0) or here, here)
    return Facts(
        namespace=namespace,
        reached_by=kubectl.shown,
        now=now,
        pools={name: Pool(size=pool.most, elastic=pool.is_elastic) for name, pool in config.worker_nodes.items()},
        wanted_configuration=wanted,
        unread=unread,
        restore=_restore([item for item in items if item["kind"] in {"StatefulSet", "Deployment"}]),
        **parse(items, now),
        **of_slurm,
    )


def _restore(workloads: Sequence[Object]) -> tuple[str, str] | None:
    """Why Slurm is stopped, and what starts it, where a restore has stopped it."""
    stopped = [str(item["metadata"]["name"]) for item in workloads if is_stopped(item)]
    if CONTROLLER not in stopped:
        return None
    if any(map(has_put_back, workloads)):
        return f"a restore has left {', '.join(stopped)} stopped", "slurmstack up"
    note = note_of(workloads)
    cause = f"a restore that has stopped {', '.join(stopped)} runs, or was not finished"
    return cause, note.command if note is not None else "slurmstack restore"


def parse(items: Iterable[Object], now: float) -> dict[str, Any]:
    """The parts of the facts in these objects, as `kubectl get` prints them."""
    by_kind: dict[str, list[Object]] = defaultdict(list)
    for item in items:
        if item["kind"] in {"Node", "Lease", "Event"} or _label(item, "part-of") == "slurmstack":
            by_kind[item["kind"]].append(item)
    warnings = _warnings(by_kind["Event"])
    owners = [*by_kind["StatefulSet"], *by_kind["Deployment"], *by_kind["Job"]]
    return {
        "pods": tuple(_pod(item, warnings) for item in by_kind["Pod"]),
        "machines": tuple(map(_machine, by_kind["Node"])),
        "owners": tuple(_owner(item, warnings) for item in owners),
        "claims": tuple(_claim(item, warnings) for item in by_kind["PersistentVolumeClaim"]),
        "lease": next((_lease(item, now) for item in by_kind["Lease"] if item["metadata"]["name"] == LEASE), None),
    }


def _label(item: Object, name: str) -> str:
    return str(item["metadata"].get("labels", {}).get(f"app.kubernetes.io/{name}", ""))


def _at(stamp: str | None) -> float:
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def _warnings(events: Iterable[Object]) -> Warnings:
    """An object's uid -> `reason: message`, the last one first, each once. Not its name: that was an earlier pod's."""
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for event in events:
        at = _at(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))
        said = f"{event.get('reason', '')}: {event.get('message', '')}"
        found[event["involvedObject"].get("uid", "")].append((at, said))
    return {key: tuple(dict.fromkeys(text for _, text in sorted(said, reverse=True))) for key, said in found.items()}


def _pod(item: Object, warnings: Warnings) -> Pod:
    shown = pod_of(item)
    metadata, status = item["metadata"], item.get("status", {})
    owner: Object = next(iter(metadata.get("ownerReferences", [])), {})
    scheduled = [one for one in status.get("conditions", []) if one["type"] == "PodScheduled"]
    ready = [one for one in status.get("conditions", []) if (one["type"], one["status"]) == ("Ready", "True")]
    placed = not scheduled or scheduled[0]["status"] == "True"
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return Pod(
        name=shown.name,
        component=shown.component,
        owner=owner.get("name", ""),
        owner_kind=owner.get("kind", ""),
        phase=status.get("phase", "Unknown"),
        why=status.get("reason", ""),
        message=status.get("message", ""),
        ready=shown.ready,
        machine=shown.node,
        unschedulable="" if placed else scheduled[0].get("message") or scheduled[0].get("reason") or "no machine",
        leaving=shown.phase == LEAVING,
        killed_at=_at(metadata.get("deletionTimestamp")),
        created_at=_at(metadata.get("creationTimestamp")),
        placed_at=_at(scheduled[0].get("lastTransitionTime")) if scheduled and placed else 0.0,
        ready_at=_at(ready[0].get("lastTransitionTime")) if ready else 0.0,
        containers=tuple(map(_container, containers)),
        warnings=warnings.get(metadata.get("uid", ""), ()),
    )


def _container(status: Object) -> Container:
    state, last = status.get("state", {}), status.get("lastState", {})
    waiting, ended = state.get("waiting", {}), state.get("terminated") or last.get("terminated") or {}
    return Container(
        name=status["name"],
        waiting=waiting.get("reason", ""),
        message=waiting.get("message") or ended.get("message") or "",
        restarts=status.get("restartCount", 0),
        ended=ended.get("reason", ""),
        code=ended.get("exitCode", 0),
        ended_at=_at(ended.get("finishedAt")),
    )


def _machine(item: Object) -> Machine:
    ready: Object = next((one for one in item["status"].get("conditions", []) if one["type"] == "Ready"), {})
    pressure = [kind for kind in ("DiskPressure", "MemoryPressure", "PIDPressure") if is_true(item, kind)]
    return Machine(
        name=item["metadata"]["name"],
        ready=ready.get("status") == "True",
        pressure=tuple(pressure),
        message=ready.get("message", ""),
    )


def _owner(item: Object, warnings: Warnings) -> Owner:
    kind, status = item["kind"], item.get("status", {})
    failed = [
        one.get("message") or one.get("reason") or "failed"
        for one in status.get("conditions", [])
        if (kind, one["type"], one["status"]) == ("Job", "Failed", "True")
    ]
    return Owner(
        kind=kind,
        name=item["metadata"]["name"],
        component=_label(item, "component"),
        wanted=0 if kind == "Job" else item.get("spec", {}).get("replicas", 1),
        failed=failed[0] if failed else "",
        is_done=kind == "Job" and is_true(item, "Complete"),
        warnings=warnings.get(item["metadata"].get("uid", ""), ()),
    )


def _claim(item: Object, warnings: Warnings) -> Claim:
    return Claim(
        name=item["metadata"]["name"],
        phase=item.get("status", {}).get("phase", "Unknown"),
        storage_class=item["spec"].get("storageClassName", ""),
        warnings=warnings.get(item["metadata"].get("uid", ""), ()),
    )


def _lease(item: Object, now: float) -> Lease:
    holder = item.get("spec", {}).get("holderIdentity") or "somebody"
    return Lease(holder=holder, age=now - _at(item["metadata"].get("creationTimestamp")), died=has_died(item))
