"""Applies a stack with kubectl: server-side apply, with an apply set that prunes what left the stack."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from cli.change.apply_set import forget_unknown_kinds, members
from cli.change.change import Change, of_object
from cli.change.diff import APPLY, changes, key, live_objects, objects_in
from cli.change.effects import Effect, effects
from cli.change.kept import refuse_left_behind, unmark
from cli.change.lock import Lock
from cli.change.owner import (
    KEPT,
    refuse_foreign,
    refuse_half_restored,
    refuse_half_rotated,
    refuse_other_kept,
    refuse_other_stack,
    refuse_takeover,
)
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, as_list, cluster_labels, is_true, message
from cli.program.generated import KeptValues
from cli.program.manifests import Manifest, manifests
from cli.program.recording import Recording, program_loading, record
from config.cluster import ClusterConfig
from slurm.names import GENERATED, JAIL, POOL_LABEL

APPLY_SET = "slurmstack"
"""Name of the Secret that is the parent of the apply set."""

_PART_OF = "applyset.kubernetes.io/part-of"

_PART = ("app.kubernetes.io/part-of", "slurmstack")
"""The label that all objects of a cluster have."""

ON_DELETE = {"type": "OnDelete"}
"""Update strategy of the worker pools: `elastic` replaces a pod when its node is idle."""

RIGHTS_OUTSIDE = "clusterrolebinding,clusterrole,priorityclass"
"""What the stack may have in no namespace, besides the namespace itself and volumes, which are never deleted with an
apply. An apply set has a namespace, so these are found by their labels."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A stack compared with its cluster."""

    namespace: str
    objects: tuple[Manifest, ...]
    kept: KeptValues
    live: Mapping[tuple[str, str], dict[str, Any]]
    """Those of the objects that are there."""
    inside: Mapping[tuple[str, str], dict[str, Any]]
    """All that is in the namespace, whoever made it."""
    outside: tuple[dict[str, Any], ...]
    """This cluster's objects in no namespace that are no longer in the stack."""
    effects: tuple[Effect, ...]
    """What the plan costs, and what of it is refused, as far as nobody has to ask the API server for that."""

    @property
    def pools(self) -> list[dict[str, Any]]:
        """The worker pools that are there, also those that are no longer in the stack."""
        kinds = {"StatefulSet", "PodTemplate"}
        return [item for item in self.inside.values() if item["kind"] in kinds and POOL_LABEL in _labels(item)]

    @property
    def pool_leaves(self) -> bool:
        """Whether there is a pool that is no longer in the stack."""
        return not {key(item) for item in self.pools} <= {key(item.document) for item in self.objects}

    @property
    def is_only_kept(self) -> bool:
        """Whether `destroy` has left nothing of the cluster but its data and keys."""
        return KEPT in _labels(self.live.get(("Namespace", self.namespace), {"metadata": {}}))

    @property
    def exists(self) -> bool:
        """Whether the cluster's namespace is there."""
        return ("Namespace", self.namespace) in self.live


def plan(
    kubectl: Kubectl, config: ClusterConfig, sections: Mapping[str, Any], *, stack: str, adopt: bool = False
) -> Plan:
    """Read what is there and make the stack's objects, with the keys that the cluster already has.

    Raises Failure if the cluster is not one that kubectl may change. `adopt`: that of a stack of another name, too.
    """
    with program_loading():
        inside = objects_in(kubectl, config.cluster.namespace)
    kept = _kept(inside, config.cluster.namespace)
    planned = _compare(kubectl, config, record(sections, stack=stack, generated=kept), kept, inside)
    if kept.damaged:
        raise Failure(
            f"Secret {GENERATED}: {', '.join(kept.damaged)} has not the length of such a key",
            hint='put the Secret back from its backup (docs/rotate-keys.md, "Back up the keys")',
        )
    there = planned.live.get(("Namespace", planned.namespace))
    refuse_takeover(there)
    if not adopt:
        refuse_other_stack(there, stack)
    refuse_half_restored(planned.inside.values())
    refuse_half_rotated(planned.inside.values())
    refuse_other_kept(there, config, has_jail=("PersistentVolumeClaim", JAIL) in planned.live)
    refuse_left_behind(kubectl, planned.namespace, planned.objects, planned.live)
    return planned


def effects_there(kubectl: Kubectl, config: ClusterConfig, recording: Recording) -> tuple[Effect, ...]:
    """What an update by the Pulumi engine costs in the cluster as it is, which may not be what its state says.

    `recording`: a run of the program with this configuration. The engine itself would only find out in the middle of
    the update. Raises Failure if the namespace is somebody else's.
    """
    planned = _compare(kubectl, config, recording, KeptValues({}), objects_in(kubectl, config.cluster.namespace))
    refuse_foreign(planned.live.get(("Namespace", planned.namespace)))
    refuse_half_restored(planned.inside.values())
    return planned.effects


def _compare(
    kubectl: Kubectl,
    config: ClusterConfig,
    recording: Recording,
    kept: KeptValues,
    inside: Mapping[tuple[str, str], dict[str, Any]],
) -> Plan:
    objects = manifests(recording)
    live = live_objects(kubectl, objects, inside)
    _refuse_rolling(objects, live, config.cluster.namespace)
    wanted = {key(item.document): item.document for item in objects}
    outside = kubectl.items(RIGHTS_OUTSIDE, "-l", cluster_labels(config.cluster.namespace))
    return Plan(
        namespace=config.cluster.namespace,
        objects=tuple(objects),
        kept=kept,
        live=live,
        inside=inside,
        outside=tuple(item for item in outside if key(item) not in wanted),
        effects=effects(_expected(wanted, live, inside), config, old=map(of_object, inside.values()), way="kubectl"),
    )


def _refuse_rolling(
    objects: Sequence[Manifest], live: Mapping[tuple[str, str], dict[str, Any]], namespace: str
) -> None:
    """Raise Failure for pools made before their nodes were replaced as they fall idle (`OnDelete`).

    Server-side apply, which Pulumi's provider uses too, leaves the default `rollingUpdate` of such a StatefulSet beside
    `OnDelete`, and the API server refuses the two together; `null` in the applied object removes it no more.
    """
    names = [
        item.name
        for item in objects
        if item.document.get("spec", {}).get("updateStrategy") == ON_DELETE
        and "rollingUpdate" in live.get(key(item.document), {}).get("spec", {}).get("updateStrategy", {})
    ]
    if names:
        patch = json.dumps({"spec": {"updateStrategy": {**ON_DELETE, "rollingUpdate": None}}})
        raise Failure(
            f"{', '.join(names)}: the StatefulSet was made by a version that let Kubernetes replace its pods, and no "
            "apply can take that from it",
            hint=f"patch it once, which touches no pod: kubectl -n {namespace} patch --field-manager={FIELD_MANAGER} "
            f"statefulset {' '.join(names)} --type=merge -p '{patch}'",
        )


def _expected(
    wanted: Mapping[tuple[str, str], Any], live: Mapping[tuple[str, str], Any], inside: Mapping[tuple[str, str], Any]
) -> list[Change]:
    """What may change, without asking the API server what it would make of the objects: that takes half a second."""
    updates = [
        Change(action="update", resource=of_object(wanted[at]), before=of_object(present))
        for at, present in live.items()
    ]
    kinds = {"StatefulSet", "PodTemplate", "Deployment"}
    ours = [item for at, item in inside.items() if at not in wanted and _PART in _labels(item).items()]
    left = [of_object(item) for item in ours if item["kind"] in kinds]
    return updates + [Change(action="delete", resource=item, before=item) for item in left]


def preview(kubectl: Kubectl, planned: Plan) -> list[Change]:
    """Each object that applying the plan would create, change or delete."""
    if not planned.exists:
        return [Change(action="create", resource=of_object(item.document)) for item in planned.objects]
    wanted = {key(item.document) for item in planned.objects}
    set_id = _set_id(planned.namespace)
    present = members(kubectl, planned.namespace, APPLY_SET, f"{_PART_OF}={set_id}")
    left = sorted((item for item in present if key(item) not in wanted), key=key)
    return changes(kubectl, [_as_member(item, set_id) for item in planned.objects], [*left, *planned.outside])


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


def apply(kubectl: Kubectl, planned: Plan, lock: Lock, before_prune: Callable[[], None] = lambda: None) -> None:
    """Send the plan's objects to the cluster and prune what left the stack; the API server has them on return.

    `before_prune` is called where a pool leaves, when all else has been sent: if it raises, the pool stays. Raises
    Failure, with no key and nothing that uses one sent, if another command has made keys since the plan was made.
    """
    scoped = [item for item in planned.objects if item.cluster_scoped]
    claims = [item for item in planned.objects if not item.cluster_scoped and not _is_pruned(item)]
    members = [item for item in planned.objects if _is_pruned(item)]
    pruned = [item.document for item in members]
    _free_volumes(kubectl, planned)
    beside = [*scoped, *claims]
    if not all(key(item.document) in planned.live for item in scoped):
        # The namespace comes first. Volumes too: Kubernetes binds a claim at once to a volume that is reserved for it
        # and that it has seen, else at its next look, up to 15 s later.
        _apply_all(kubectl, scoped)
        beside = claims
    _hold(lock)
    _write_kept(kubectl, planned)
    with ThreadPoolExecutor() as pool:
        others = pool.submit(_apply_all, kubectl, beside)
        _apply_set(kubectl, planned, pruned, before_prune)
        others.result()

    for kind, name in sorted(map(key, planned.outside)):
        kubectl.run("delete", kind.lower(), name, "--ignore-not-found")
    if planned.is_only_kept:
        unmark(kubectl, planned.namespace)


def _apply_all(kubectl: Kubectl, objects: Sequence[Manifest]) -> None:
    if objects:
        kubectl.run(*APPLY, "-f", "-", stdin=as_list([item.document for item in objects]))


def _free_volumes(kubectl: Kubectl, planned: Plan) -> None:
    """Let static volumes be claimed again whose claims went with the namespace: a `destroy` was cut short."""
    for item in planned.objects:
        present = planned.live.get(key(item.document), {}) if item.kind == "PersistentVolume" else {}
        if present.get("status", {}).get("phase") == "Released":
            change = json.dumps([{"op": "remove", "path": "/spec/claimRef/uid"}])
            kubectl.run("patch", "persistentvolume", item.name, "--type=json", "-p", change)


def _hold(lock: Lock) -> None:
    """Go on alone: the lock could not be taken before there was a namespace, whoever has made that since."""
    if not lock.is_held:
        lock.take()


def _apply_set(
    kubectl: Kubectl, planned: Plan, pruned: Sequence[dict[str, Any]], before_prune: Callable[[], None]
) -> None:
    _delete_failed_jobs(kubectl, planned)
    if planned.pool_leaves:
        set_id = _set_id(planned.namespace)
        labelled = [_as_member(item, set_id).document for item in planned.objects if _is_pruned(item)]
        kubectl.run(*APPLY, "-n", planned.namespace, "-f", "-", stdin=as_list(labelled))
        before_prune()
    pruning = replace(kubectl, environment={"KUBECTL_APPLYSET": "true"})
    arguments = ["--prune", f"--applyset=secrets/{APPLY_SET}", "-n", planned.namespace, "-f", "-"]
    try:
        pruning.run(*APPLY, *arguments, stdin=as_list(pruned))
    except Failure:
        if not forget_unknown_kinds(kubectl, planned.namespace, APPLY_SET):
            raise
        pruning.run(*APPLY, *arguments, stdin=as_list(pruned))


def _set_id(namespace: str) -> str:
    """The apply set's id, as KEP-3659 defines it for a Secret as parent."""
    digest = hashlib.sha256(f"{APPLY_SET}.{namespace}.Secret.".encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _kept(inside: Mapping[tuple[str, str], dict[str, Any]], namespace: str) -> KeptValues:
    found = inside.get(("Secret", GENERATED))
    if not found and ("Secret", "munge-key") in inside:
        raise Failure(
            f"the cluster in namespace {namespace!r} has keys that were not made by this command, or somebody has "
            f"deleted the Secret {GENERATED}, in which it keeps them; it would get others",
            hint=f"where it was deleted, put its backup back: kubectl create -f FILE "
            '(docs/rotate-keys.md, "Back up the keys"). If they came from `slurmstack render`, keep them: write each '
            "value of its keys.json into a file of its name, in a directory of your own, and kubectl create secret "
            f"generic {GENERATED} -n {namespace} --from-file=DIRECTORY",
        )
    if not found:
        return KeptValues({})
    data = found.get("data", {})
    return KeptValues({name: base64.b64decode(value).decode() for name, value in data.items()})


def _write_kept(kubectl: Kubectl, planned: Plan) -> None:
    """Keep new keys before anything uses them: an apply that is interrupted later finds them again.

    Those that others have made since the plan was made are never overwritten: raises Failure then.
    """
    if not planned.kept.changed:
        return
    metadata = {"name": GENERATED, "namespace": planned.namespace}
    read = planned.inside.get(("Secret", GENERATED))
    if read is not None:
        metadata["resourceVersion"] = read["metadata"]["resourceVersion"]
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "stringData": planned.kept.values,
    }
    how = APPLY if read is not None else ("create", f"--field-manager={FIELD_MANAGER}")
    done = kubectl.run(*how, "-f", "-", stdin=json.dumps(secret), check=False)
    if "(AlreadyExists)" in done.stderr or "the object has been modified" in done.stderr:
        raise Failure(
            f"another `slurmstack up` has made keys for the cluster in namespace {planned.namespace!r} meanwhile",
            hint="run this again: `slurmstack preview` shows whether there is anything left to do",
        )
    if done.returncode != 0:
        raise Failure(message(done.stderr))


def _delete_failed_jobs(kubectl: Kubectl, planned: Plan) -> None:
    """Delete jobs that failed: they would stay failed. One with another specification has another name."""
    failed = [
        item.name
        for item in planned.objects
        if item.kind == "Job" and is_true(planned.live.get(key(item.document), {}), "Failed")
    ]
    if failed:
        kubectl.run("delete", "job", *failed, "-n", planned.namespace, "--ignore-not-found", "--cascade=foreground")
