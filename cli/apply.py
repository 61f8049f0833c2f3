"""Applies a stack with kubectl: server-side apply, with an apply set that prunes what left the stack."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cli.changes import APPLY, Change, changes, key, live_objects
from cli.errors import Failure
from cli.generated import KeptValues
from cli.kubectl import Kubectl, as_list
from cli.manifests import Manifest, manifests
from cli.recording import Recording, program_loading, record
from cli.refusals import leaving_pools, refuse_foreign, refuse_other_slurm, refuse_shrinking, refuse_takeover
from config.cluster import ClusterConfig

APPLY_SET = "slurmstack"
"""Name of the Secret that is the parent of the apply set."""

KEPT_VALUES = "slurmstack-generated"
"""Name of the Secret that keeps generated keys where no Pulumi state does."""

_PART_OF = "applyset.kubernetes.io/part-of"

_PRUNED_KINDS = (
    "statefulset,deployment,job,service,configmap,secret,serviceaccount,"
    "role.rbac.authorization.k8s.io,rolebinding.rbac.authorization.k8s.io,networkpolicy.networking.k8s.io"
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A stack compared with its cluster."""

    namespace: str
    objects: tuple[Manifest, ...]
    kept: KeptValues
    live: Mapping[tuple[str, str], Mapping[str, Any]]
    leaving: tuple[str, ...]
    """What pools that are no longer in the stack mean, one line each."""

    @property
    def exists(self) -> bool:
        """Whether the cluster's namespace is there."""
        return ("Namespace", self.namespace) in self.live


def plan(kubectl: Kubectl, config: ClusterConfig, sections: Mapping[str, Any], *, stack: str) -> Plan:
    """Read what is there and make the stack's objects, with the keys that the cluster already has.

    Raises Failure, before anything is touched, if a change would lose data.
    """
    with program_loading():
        kept = _read_kept(kubectl, config.cluster.namespace)
    planned = _compare(kubectl, config, record(sections, stack=stack, generated=kept), kept)
    refuse_takeover(planned.live.get(("Namespace", planned.namespace)))
    return planned


def explain(kubectl: Kubectl, config: ClusterConfig, sections: Mapping[str, Any], *, stack: str) -> tuple[str, ...]:
    """What an update by the Pulumi engine means for people, one line each; Failure if it would lose data.

    The engine itself would only find out in the middle of the update.
    """
    planned = _compare(kubectl, config, record(sections, stack=stack), KeptValues({}))
    refuse_foreign(planned.live.get(("Namespace", planned.namespace)))
    return planned.leaving


def _compare(kubectl: Kubectl, config: ClusterConfig, recording: Recording, kept: KeptValues) -> Plan:
    namespace = config.cluster.namespace
    objects = manifests(recording)
    with ThreadPoolExecutor() as pool:
        sets = pool.submit(kubectl.items, "statefulset", "-n", namespace, "-l", "slurmstack/pool")
        live = live_objects(kubectl, objects)
        pools = sets.result()
    refuse_other_slurm(objects, live)
    refuse_shrinking(objects, live)
    return Plan(
        namespace=namespace,
        objects=tuple(objects),
        kept=kept,
        live=live,
        leaving=tuple(leaving_pools(objects, pools)),
    )


def preview(kubectl: Kubectl, planned: Plan) -> list[Change]:
    """Each object that applying the plan would create, change or delete."""
    if not planned.exists:
        return [Change(action="create", kind=item.kind, name=item.name) for item in planned.objects]
    wanted = {key(item.document) for item in planned.objects}
    set_id = _set_id(planned.namespace)
    members = kubectl.items(_PRUNED_KINDS, "-n", planned.namespace, "-l", f"{_PART_OF}={set_id}")
    left = sorted({key(item) for item in members} - wanted)
    return changes(kubectl, [_as_member(item, set_id) for item in planned.objects], left)


def _as_member(manifest: Manifest, set_id: str) -> Manifest:
    """The object with the label that `kubectl apply` adds to members of the set, so that it is no difference."""
    if not _is_pruned(manifest):
        return manifest
    metadata = manifest.document["metadata"]
    labelled = {**metadata, "labels": {**metadata.get("labels", {}), _PART_OF: set_id}}
    return Manifest(urn=manifest.urn, document={**manifest.document, "metadata": labelled})


def _is_pruned(manifest: Manifest) -> bool:
    """Whether the object belongs to the set. Claims hold data: outside of it, no prune can ever delete them."""
    return not manifest.cluster_scoped and manifest.kind != "PersistentVolumeClaim"


def apply(kubectl: Kubectl, planned: Plan) -> None:
    """Send the plan's objects to the cluster and prune what left the stack; the API server has them on return."""
    kept = [item.document for item in planned.objects if not _is_pruned(item)]
    pruned = [item.document for item in planned.objects if _is_pruned(item)]
    if all(key(item) in planned.live for item in kept):
        with ThreadPoolExecutor() as pool:
            others = pool.submit(kubectl.run, *APPLY, "-f", "-", stdin=as_list(kept))
            _apply_set(kubectl, planned, pruned)
            others.result()
    else:  # the namespace comes first
        kubectl.run(*APPLY, "-f", "-", stdin=as_list(kept))
        _apply_set(kubectl, planned, pruned)


def _apply_set(kubectl: Kubectl, planned: Plan, pruned: Sequence[dict[str, Any]]) -> None:
    _write_kept(kubectl, planned)
    _delete_finished_jobs(kubectl, planned)
    pruning = Kubectl(
        program=kubectl.program,
        context=kubectl.context,
        kubeconfig=kubectl.kubeconfig,
        environment={"KUBECTL_APPLYSET": "true"},
    )
    arguments = ["--prune", f"--applyset=secrets/{APPLY_SET}", "-n", planned.namespace, "-f", "-"]
    pruning.run(*APPLY, *arguments, stdin=as_list(pruned))


def _set_id(namespace: str) -> str:
    """The apply set's id, as KEP-3659 defines it for a Secret as parent."""
    digest = hashlib.sha256(f"{APPLY_SET}.{namespace}.Secret.".encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def _read_kept(kubectl: Kubectl, namespace: str) -> KeptValues:
    found = kubectl.items("secret", KEPT_VALUES, "-n", namespace)
    if not found and kubectl.items("secret", "munge-key", "-n", namespace):
        raise Failure(
            f"the cluster in namespace {namespace!r} has keys that were not made by this command, and would get others",
            hint=f"if they came from `slurmstack render`, keep them: kubectl create secret generic {KEPT_VALUES} "
            f"-n {namespace} with one --from-literal=NAME=VALUE for each entry of its keys.json",
        )
    if not found:
        return KeptValues({})
    data = found[0].get("data", {})
    return KeptValues({name: base64.b64decode(value).decode() for name, value in data.items()})


def _write_kept(kubectl: Kubectl, planned: Plan) -> None:
    """Keep new keys before anything uses them: an apply that is interrupted later finds them again."""
    if not planned.kept.changed:
        return
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": KEPT_VALUES, "namespace": planned.namespace},
        "type": "Opaque",
        "stringData": planned.kept.values,
    }
    kubectl.run(*APPLY, "-f", "-", stdin=json.dumps(secret))


def _delete_finished_jobs(kubectl: Kubectl, planned: Plan) -> None:
    """Delete jobs that must be made anew: a job cannot be changed, and one that failed would stay failed."""
    stale = [
        item.name
        for item in planned.objects
        if item.kind == "Job" and (present := planned.live.get(key(item.document))) and _must_go(item.document, present)
    ]
    if stale:
        kubectl.run("delete", "job", *stale, "-n", planned.namespace, "--ignore-not-found", "--cascade=foreground")


def _must_go(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    conditions = present.get("status", {}).get("conditions", [])
    failed = any(item["type"] == "Failed" and item["status"] == "True" for item in conditions)
    container = present["spec"]["template"]["spec"]["containers"][0]
    changed = any(
        container.get(name) != value
        for name, value in wanted["spec"]["template"]["spec"]["containers"][0].items()
        if name in {"image", "command", "env"}
    )
    return failed or changed
