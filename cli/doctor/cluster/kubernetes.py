"""What `kubectl get` prints, as facts. What is not understood is left out and said; nothing is raised."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from cli.change.lock import LEASE, has_died
from cli.doctor.cluster.facts import Claim, Container, Lease, Machine, Owner, Pod
from cli.kubectl.client import is_true, message
from cli.kubectl.pods import LEAVING, pod_of

PARTS = {
    "pods": "pods",
    "nodes": "machines",
    "statefulsets": "workloads",
    "deployments": "workloads",
    "jobs": "workloads",
    "persistentvolumeclaims": "claims",
    "leases": "lease",
    "events": "events",
}
"""Kinds, as the API server calls them where it refuses one, and the part of the facts that each is."""

ASKED = (
    (("pods", "nodes"), ("get", "pod,node")),
    (
        ("statefulsets", "jobs", "persistentvolumeclaims", "leases"),
        ("get", "statefulset,deployment,job,persistentvolumeclaim,lease", "--show-managed-fields"),
    ),
    (("events",), ("get", "event", "--field-selector=type=Warning")),
)
"""Which kinds each call of kubectl asks for. Owners of fields are long, so they are asked for where they matter."""

_ODD = (KeyError, TypeError, ValueError, AttributeError)
_HOLDS = re.compile(r"kubectl(?!-client-side-apply|-rollout|-annotate|-label)")
"""Managers of fields that were set by hand, but by what an ordinary apply or restart leaves."""

T = TypeVar("T")


def items_of(done: subprocess.CompletedProcess[str], kinds: Sequence[str]) -> tuple[list[Any], dict[str, str]]:
    """The objects that kubectl has printed, and why some kinds are missing. It prints those that it may read."""
    unread: dict[str, str] = {}
    if done.returncode != 0:
        why = " ".join(message(done.stderr).split()) or "kubectl failed without a word"
        refused = re.findall(r"\): ([a-z]+)(?:\.[a-z0-9.]+)? is forbidden", done.stderr)
        parts = {PARTS[kind] for kind in refused if kind in PARTS} or {PARTS[kind] for kind in kinds}
        unread = dict.fromkeys(parts, "not allowed" if refused else why[:200])
    try:
        document = json.loads(done.stdout) if done.stdout.strip() else {"items": []}
        found = document["items"]
        return [item for item in found if isinstance(item, dict)], unread
    except _ODD:
        return [], {PARTS[kind]: "what kubectl printed is not understood" for kind in kinds}


def parse(items: Iterable[Mapping[str, Any]], now: float) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of the facts in these objects, and which of them is incomplete."""
    by_kind: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for item in items:
        by_kind[str(item.get("kind"))].append(item)
    unread: dict[str, str] = {}
    warnings = _warnings(by_kind["Event"])

    def each(part: str, kinds: Sequence[str], parser: Callable[[Any], T]) -> tuple[T, ...]:
        found, odd = [], 0
        for item in (item for kind in kinds for item in by_kind[kind]):
            try:
                if kinds in (["Node"], ["Lease"]) or _is_ours(item):
                    found.append(parser(item))
            except _ODD:
                odd += 1
        if odd:
            unread[part] = f"{odd} are not understood"
        return tuple(found)

    leases = each("lease", ["Lease"], lambda item: _lease(item, now))
    parts = {
        "pods": each("pods", ["Pod"], lambda item: _pod(item, warnings)),
        "machines": each("machines", ["Node"], _machine),
        "owners": each("workloads", ["StatefulSet", "Deployment", "Job"], lambda item: _owner(item, warnings)),
        "claims": each("claims", ["PersistentVolumeClaim"], lambda item: _claim(item, warnings)),
        "lease": next((lease for lease in leases if lease), None),
    }
    return parts, unread


def _is_ours(item: Mapping[str, Any]) -> bool:
    return (item["metadata"].get("labels") or {}).get("app.kubernetes.io/part-of") == "slurmstack"


def _component(item: Mapping[str, Any]) -> str:
    return str((item["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""))


def _at(stamp: object) -> float:
    return datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) else 0.0


Warnings = Mapping[str, tuple[str, ...]]


def _warnings(events: Iterable[Mapping[str, Any]]) -> Warnings:
    """An object's uid -> `reason: message`, the last one first, each once. Not its name: that was an earlier pod's."""
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for event in events:
        try:
            about = event["involvedObject"]
            at = _at(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
            found[about["uid"]].append((at, f"{event['reason']}: {event.get('message', '')}"))
        except _ODD:
            continue
    return {key: tuple(dict.fromkeys(text for _, text in sorted(said, reverse=True))) for key, said in found.items()}


def _pod(item: Mapping[str, Any], warnings: Warnings) -> Pod:
    shown = pod_of(dict(item))
    metadata, status = item["metadata"], item.get("status", {})
    owner: Mapping[str, Any] = next(iter(metadata.get("ownerReferences", [])), {})
    scheduled = [one for one in status.get("conditions", []) if one["type"] == "PodScheduled"]
    ready = [one for one in status.get("conditions", []) if (one["type"], one["status"]) == ("Ready", "True")]
    placed = not scheduled or scheduled[0]["status"] == "True"
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return Pod(
        name=shown.name,
        component=_component(item),
        owner=str(owner.get("name", "")),
        owner_kind=str(owner.get("kind", "")),
        phase=str(status.get("phase", "Unknown")),
        why=str(status.get("reason", "")),
        message=str(status.get("message", "")),
        ready=shown.ready,
        machine=shown.node,
        unschedulable="" if placed else str(scheduled[0].get("message") or scheduled[0].get("reason") or "no machine"),
        leaving=shown.phase == LEAVING,
        killed_at=_at(metadata.get("deletionTimestamp")),
        kept_by=tuple(map(str, metadata.get("finalizers", []))),
        created_at=_at(metadata.get("creationTimestamp")),
        placed_at=_at(scheduled[0].get("lastTransitionTime")) if scheduled and placed else 0.0,
        ready_at=_at(ready[0].get("lastTransitionTime")) if ready else 0.0,
        containers=tuple(map(_container, containers)),
        warnings=warnings.get(metadata.get("uid", ""), ()),
    )


def _container(status: Mapping[str, Any]) -> Container:
    state, last = status.get("state") or {}, status.get("lastState") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or last.get("terminated") or {}
    return Container(
        name=str(status["name"]),
        waiting=str(waiting.get("reason", "")),
        message=str(waiting.get("message") or ended.get("message") or ""),
        restarts=int(status.get("restartCount", 0)),
        ended=str(ended.get("reason", "")),
        code=int(ended.get("exitCode", 0)),
        ended_at=_at(ended.get("finishedAt")),
    )


def _machine(item: Mapping[str, Any]) -> Machine:
    ready: Mapping[str, Any] = next((one for one in item["status"]["conditions"] if one["type"] == "Ready"), {})
    pressure = [kind for kind in ("DiskPressure", "MemoryPressure", "PIDPressure") if is_true(item, kind)]
    return Machine(
        name=str(item["metadata"]["name"]),
        ready=ready.get("status") == "True",
        cordoned=bool(item.get("spec", {}).get("unschedulable")),
        pressure=tuple(pressure),
        message=str(ready.get("message", "")),
    )


def _owner(item: Mapping[str, Any], warnings: Warnings) -> Owner:
    kind, name, status = str(item["kind"]), str(item["metadata"]["name"]), item.get("status", {})
    failed = [
        one.get("message") or one.get("reason") or "failed"
        for one in status.get("conditions", [])
        if (kind, one["type"], one["status"]) == ("Job", "Failed", "True")
    ]
    return Owner(
        kind=kind,
        name=name,
        component=_component(item),
        wanted=0 if kind == "Job" else int(item.get("spec", {}).get("replicas", 1)),
        failed=str(failed[0]) if failed else "",
        is_done=kind == "Job" and is_true(item, "Complete"),
        warnings=warnings.get(item["metadata"].get("uid", ""), ()),
        by_hand=next(filter(None, map(_by_hand, item["metadata"].get("managedFields", []))), ""),
    )


def _by_hand(entry: Mapping[str, Any]) -> str:
    """Who has set fields of a specification with kubectl, not by an apply; empty for any other owner of fields."""
    manager = str(entry.get("manager", ""))
    spec = entry.get("operation") == "Update" and "f:spec" in entry.get("fieldsV1", {})
    return f"{manager} at {entry.get('time', 'an unknown time')}" if spec and _HOLDS.match(manager) else ""


def _claim(item: Mapping[str, Any], warnings: Warnings) -> Claim:
    name, spec = str(item["metadata"]["name"]), item.get("spec", {})
    return Claim(
        name=name,
        phase=str(item.get("status", {}).get("phase", "Unknown")),
        storage_class=str(spec.get("storageClassName", "")),
        volume=str(spec.get("volumeName", "")),
        warnings=warnings.get(item["metadata"].get("uid", ""), ()),
    )


def _lease(item: Mapping[str, Any], now: float) -> Lease | None:
    if item["metadata"]["name"] != LEASE:
        return None
    holder = str(item.get("spec", {}).get("holderIdentity") or "somebody")
    return Lease(holder=holder, age=now - _at(item["metadata"].get("creationTimestamp")), died=has_died(item))
