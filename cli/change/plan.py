"""The plan of an apply with kubectl: a stack compared with its cluster, and what that costs data, machines and jobs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cli.change.change import Change, differences, of_object
from cli.change.effects import Effect, effects
from cli.change.job_effects import Queue
from cli.change.jobs import JobsTouched, Pods, jobs_touched
from cli.change.owner import (
    KEPT,
    refuse_half_restored,
    refuse_half_rotated,
    refuse_left_behind,
    refuse_other_kept,
    refuse_other_stack,
    refuse_takeover,
)
from cli.errors import Failure, Refused
from cli.kubectl.client import FIELD_MANAGER, OWNERS, Kubectl, as_list, cluster_labels, labels_of, message
from cli.program.manifests import Manifest, manifests
from cli.program.recording import KeptValues, program_loading, record
from config.cluster import ClusterConfig
from slurm.names import CONFIG_MAP, CONTROLLER, GENERATED, JAIL, POOL_LABEL

APPLY_SET = "slurmstack"
"""Name of the Secret that is the parent of the apply set."""

PART_OF = "applyset.kubernetes.io/part-of"
"""Label of what a later apply may prune."""

ON_DELETE = {"type": "OnDelete"}
"""Update strategy of the worker pools: `elastic` replaces a pod when its node is idle."""

RIGHTS_OUTSIDE = "clusterrolebinding,clusterrole,priorityclass"
"""What the stack may have in no namespace, besides the namespace itself and volumes, which are never deleted with an
apply. An apply set has a namespace, so these are found by their labels."""


Live = Mapping[tuple[str, str], dict[str, Any]]
"""Objects of the cluster, by kind and name."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A stack compared with its cluster."""

    namespace: str
    objects: tuple[Manifest, ...]
    kept: KeptValues
    live: Live
    """Those of the objects that are there."""
    inside: Live
    """All that is in the namespace, whoever made it."""
    outside: tuple[dict[str, Any], ...]
    """This cluster's objects in no namespace that are no longer in the stack."""
    effects: tuple[Effect, ...]
    """What the plan costs, and what of it is refused, as far as nobody has to ask the API server for that."""

    @cached_property
    def wanted(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The objects by kind and name."""
        return {item.key: item.document for item in self.objects}

    @property
    def pools(self) -> list[dict[str, Any]]:
        """The worker pools that are there, also those that are no longer in the stack."""
        kinds = {"StatefulSet", "PodTemplate"}
        return [item for item in self.inside.values() if item["kind"] in kinds and POOL_LABEL in labels_of(item)]

    @property
    def pool_leaves(self) -> bool:
        """Whether there is a pool that is no longer in the stack."""
        return any(key(item) not in self.wanted for item in self.pools)

    @property
    def is_only_kept(self) -> bool:
        """Whether `destroy` has left nothing of the cluster but its data and keys."""
        return self.exists and KEPT in labels_of(self.live["Namespace", self.namespace])

    @property
    def exists(self) -> bool:
        """Whether the cluster's namespace is there."""
        return ("Namespace", self.namespace) in self.live


def plan(kubectl: Kubectl, config: ClusterConfig, sections: Mapping[str, Any], *, stack: str) -> Plan:
    """Read what is there and make the stack's objects, with the keys that the cluster already has.

    Raises Failure if the cluster is not one that kubectl may change.
    """
    with program_loading():
        inside = objects_in(kubectl, config.cluster.namespace)
    kept = _kept(inside, config.cluster.namespace)
    objects = manifests(record(sections, stack=stack, generated=kept))
    if kept.damaged:
        raise Failure(
            f"Secret {GENERATED}: {', '.join(kept.damaged)} is no such key",
            hint='put the Secret back from its backup (docs/rotate-keys.md, "Back up the keys")',
        )
    outside = kubectl.items(RIGHTS_OUTSIDE, "-l", cluster_labels(config.cluster.namespace))
    planned = Plan(
        namespace=config.cluster.namespace, objects=tuple(objects), kept=kept,
        live=live_objects(kubectl, objects, inside), inside=inside, outside=(), effects=(),
    )  # fmt: skip
    planned = replace(
        planned,
        outside=tuple(item for item in outside if key(item) not in planned.wanted),
        effects=effects(_expected(planned), config),
    )
    there = planned.live.get(("Namespace", planned.namespace))
    refuse_takeover(there)
    refuse_other_stack(kubectl, there, stack)
    refuse_half_restored(planned.inside.values())
    refuse_half_rotated(planned.inside.values())
    refuse_other_kept(there, config, has_jail=("PersistentVolumeClaim", JAIL) in planned.live)
    refuse_left_behind(kubectl, planned.namespace, planned.objects, planned.live)
    refuse_rolling(kubectl, planned.namespace, planned.wanted, planned.live)
    return planned


def refuse_rolling(
    kubectl: Kubectl, namespace: str, wanted: Mapping[tuple[str, str], Mapping[str, Any]], live: Live
) -> None:
    """Raise Failure for pools made when Kubernetes replaced their pods: `rollingUpdate` stays beside `OnDelete`.

    The API server refuses the two together, and no server-side apply removes a default.
    """
    names = [
        at[1]
        for at, item in wanted.items()
        if item.get("spec", {}).get("updateStrategy") == ON_DELETE
        and "rollingUpdate" in live.get(at, {}).get("spec", {}).get("updateStrategy", {})
    ]
    if names:
        patch = json.dumps({"spec": {"updateStrategy": {**ON_DELETE, "rollingUpdate": None}}})
        raise Failure(
            f"{', '.join(names)}: the StatefulSet was made by an older version",
            hint=f"patch it once, which touches no pod: {kubectl.shown} -n {namespace} patch "
            f"--field-manager={FIELD_MANAGER} statefulset {' '.join(names)} --type=merge -p '{patch}'",
        )


def _expected(planned: Plan) -> list[Change]:
    """What may change, without asking the API server what it would make of the objects: that takes half a second."""
    left = [
        of_object(item)
        for at, item in planned.inside.items()
        if at not in planned.wanted and labels_of(item).get("app.kubernetes.io/part-of") == "slurmstack"
        if item["kind"] in {"StatefulSet", "PodTemplate", "Deployment"}
    ]
    return [
        *(
            Change(action="update", resource=of_object(planned.wanted[at]), before=of_object(present))
            for at, present in planned.live.items()
        ),
        *(Change(action="delete", resource=item, before=item) for item in left),
    ]


def preview(kubectl: Kubectl, planned: Plan) -> list[Change]:
    """Each object that applying the plan would create, change or delete."""
    if not planned.exists:
        return [Change(action="create", resource=of_object(item.document)) for item in planned.objects]
    left = sorted((item for item in members(kubectl, planned.namespace) if key(item) not in planned.wanted), key=key)
    objects = [as_member(item, planned.namespace) if is_member(item) else item for item in planned.objects]
    return changes(kubectl, objects, planned.live, [*left, *planned.outside])


def is_member(manifest: Manifest) -> bool:
    """Whether the object belongs to the set. Claims hold data: outside of it, no prune can ever delete them."""
    return not manifest.cluster_scoped and manifest.kind != "PersistentVolumeClaim"


def as_member(manifest: Manifest, namespace: str) -> Manifest:
    """The object with the label that `kubectl apply` adds to members of the set, so that it is no difference."""
    return manifest.noted("labels", {PART_OF: set_id(namespace)})


def set_id(namespace: str) -> str:
    """The apply set's id, as KEP-3659 defines it for a Secret as parent."""
    digest = hashlib.sha256(f"{APPLY_SET}.{namespace}.Secret.".encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def _kept(inside: Live, namespace: str) -> KeptValues:
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
    data = (found or {}).get("data", {})
    return KeptValues({name: base64.b64decode(value).decode() for name, value in data.items()})


def jobs_of_plan(kubectl: Kubectl, planned: Plan, asked: Future[tuple[Queue, Pods]] | None = None) -> JobsTouched:
    """What applying a plan does to the jobs. `asked`: where the queue has been asked for already."""
    if not planned.exists:
        return JobsTouched()
    there = [planned.live.get(at) for at in (("ConfigMap", CONFIG_MAP), ("StatefulSet", CONTROLLER))]
    return jobs_touched(
        kubectl,
        planned.namespace,
        old=[*planned.pools, *(item for item in there if item is not None)],
        new=[item.document for item in planned.objects],
        asked=asked,
    )


# What is there, and what the API server would make of it

KINDS = (
    "configmap",
    "cronjob",
    "daemonset",
    "deployment",
    "job",
    "networkpolicy",
    "persistentvolumeclaim",
    "poddisruptionbudget",
    "podtemplate",
    "role",
    "rolebinding",
    "secret",
    "service",
    "serviceaccount",
    "statefulset",
)
"""What a stack has in its namespace (a test holds that these are all), as `kubectl get` takes them."""

APPLY = ("apply", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")

_OF_THE_SERVER = {"managedFields", "generation", "resourceVersion", "creationTimestamp", "uid"}
"""What the API server writes itself into an object's metadata."""


def changes(
    kubectl: Kubectl, objects: Sequence[Manifest], live: Live, left: Sequence[Mapping[str, Any]] = ()
) -> list[Change]:
    """What applying the objects would do. `live`: those that exist. `left`: what is there and no longer among them.

    The API server itself tells, by a dry run, what each object would become: so defaults are no differences, and what
    was changed by hand is one. Raises Refused in its words if it will not change one of them.
    """
    found: list[Change] = []
    outcome = _dry_run(kubectl, [manifest for manifest in objects if manifest.key in live])
    for manifest in objects:
        at = manifest.key
        resource, before = of_object(manifest.document), of_object(live[at]) if at in live else None
        if before is None:
            found.append(Change(action="create", resource=resource))
        else:
            old, new = _comparable(live[at]), _comparable(outcome[at])
            properties = tuple(differences(old, new, secret=manifest.kind == "Secret"))
            if properties:
                found.append(Change(action="update", resource=resource, before=before, properties=properties))
    gone = [of_object(document) for document in left]
    return found + [Change(action="delete", resource=resource, before=resource) for resource in gone]


def key(document: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name: unique, since all objects are in one namespace or in none."""
    return str(document["kind"]), str(document["metadata"]["name"])


def objects_in(kubectl: Kubectl, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    """All objects of `KINDS` in a namespace, whoever made them: one request a kind, however many pools there are."""
    return {key(item): item for item in kubectl.items(",".join(KINDS), "-n", namespace, OWNERS)}


def live_objects(kubectl: Kubectl, objects: Sequence[Manifest], inside: Live) -> dict[tuple[str, str], dict[str, Any]]:
    """Those of the objects that exist. `inside`: what `objects_in` has found just now."""
    wanted = {item.key for item in objects}
    live = {at: item for at, item in inside.items() if at in wanted}
    if others := [item.document for item in objects if item.cluster_scoped or item.kind.lower() not in KINDS]:
        get = ("get", "--ignore-not-found", "-f", "-", "-o", "json", OWNERS)
        live |= {key(item): item for item in _items(kubectl.run(*get, stdin=as_list(others)).stdout)}
    return live


def _dry_run(kubectl: Kubectl, objects: Sequence[Manifest]) -> dict[tuple[str, str], dict[str, Any]]:
    """What the objects would become."""
    if not objects:
        return {}
    documents = as_list([item.document for item in objects])
    done = kubectl.run(*APPLY, "--dry-run=server", "-f", "-", "-o", "json", stdin=documents, check=False)
    if done.returncode == 0:
        return {key(item): item for item in _items(done.stdout)}
    if "immutable" in done.stderr or "Forbidden: updates to" in done.stderr:
        raise Refused(message(done.stderr), hint="set it back: it can never change, and kubectl makes nothing anew")
    raise Failure(message(done.stderr))


def _items(printed: str) -> list[dict[str, Any]]:
    if not printed.strip():
        return []
    document = json.loads(printed)
    return list(document["items"]) if document["kind"] == "List" else [document]


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in document["metadata"].items() if name not in _OF_THE_SERVER}
    return {**document, "metadata": metadata, "status": None}


_KINDS = "applyset.kubernetes.io/contains-group-kinds"


_UNKNOWN = ("have a resource type", "could not find the requested resource")
"""In kubectl's complaint about a kind that the cluster does not know, before and after it has asked the cluster."""


def members(kubectl: Kubectl, namespace: str) -> list[dict[str, Any]]:
    """The set's objects of all kinds that the cluster still knows."""
    kinds = served_kinds(kubectl, namespace)
    return kubectl.items(",".join(kinds), "-n", namespace, "-l", f"{PART_OF}={set_id(namespace)}") if kinds else []


def served_kinds(kubectl: Kubectl, namespace: str) -> list[str]:
    """Kinds of the set's objects (`ConfigMap`, `PodMonitor.monitoring.coreos.com`), of those that the cluster knows."""
    return [kind for kind in _set_kinds(kubectl, namespace) if _is_served(kubectl, namespace, kind)]


def forget_unknown_kinds(kubectl: Kubectl, namespace: str) -> bool:
    """Strike kinds off that left the cluster with all their objects; kubectl prunes nothing any more because of them.

    Returns whether there were any.
    """
    kinds, served = _set_kinds(kubectl, namespace), served_kinds(kubectl, namespace)
    if served != kinds:
        kubectl.run("annotate", "secret", APPLY_SET, "-n", namespace, "--overwrite", f"{_KINDS}={','.join(served)}")
    return served != kinds


def _set_kinds(kubectl: Kubectl, namespace: str) -> list[str]:
    found = kubectl.items("secret", APPLY_SET, "-n", namespace)
    annotations = found[0]["metadata"].get("annotations", {}) if found else {}
    return [kind for kind in annotations.get(_KINDS, "").split(",") if kind]


def _is_served(kubectl: Kubectl, namespace: str, kind: str) -> bool:
    """Whether the cluster knows a kind: Kubernetes' own always, those of others may go with their operator."""
    if kind.partition(".")[0].lower() in KINDS:
        return True
    complaint = kubectl.run("get", kind, "-n", namespace, "-o", "name", check=False).stderr
    return not any(unknown in complaint for unknown in _UNKNOWN)
