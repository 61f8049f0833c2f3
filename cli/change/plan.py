"""What an apply with kubectl changes, and what that costs: a stack compared with its cluster."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote

from cli.change.change import Change, differences, of_object
from cli.change.effects import Effect, effects
from cli.change.jobs import JobsTouched, Queue, jobs_touched
from cli.change.owner import (
    KEPT,
    refuse_half_restored,
    refuse_half_rotated,
    refuse_other_kept,
    refuse_other_stack,
    refuse_takeover,
)
from cli.errors import Failure, Refused
from cli.kubectl.client import (
    FIELD_MANAGER,
    OWNERS,
    Kubectl,
    as_list,
    cluster_labels,
    is_forbidden,
    is_unknown,
    labels_of,
    message,
)
from cli.program.recording import KeptValues, Manifest, manifests, program_loading, record
from config.cluster import ClusterConfig
from slurm.names import CONFIG_MAP, CONTROLLER, GENERATED, JAIL, POOL_LABEL

RIGHTS_OUTSIDE = (
    "validatingadmissionpolicybinding,validatingadmissionpolicy,clusterrolebinding,clusterrole,priorityclass"
)
"""What the stack may have in no namespace, besides the namespace itself and volumes, which are never deleted with an
apply."""


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
    left: tuple[dict[str, Any], ...]
    """What an earlier apply has made, here or in no namespace, and is no longer in the stack. Never a claim or volume:
    they hold data."""
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
    namespace = config.cluster.namespace
    with program_loading(), ThreadPoolExecutor() as pool:
        of_all = ("-l", "app.kubernetes.io/part-of=slurmstack", OWNERS)
        outside = pool.submit(kubectl.items, f"persistentvolume,{RIGHTS_OUTSIDE}", *of_all)
        it = pool.submit(kubectl.items, "namespace", namespace, OWNERS)
        operated = pool.submit(_operated, kubectl, namespace)
        inside = objects_in(kubectl, namespace)
        kept = _kept(inside, namespace)
        objects = manifests(record(sections, stack=stack, generated=kept))  # the program needs no more than the keys
        inside |= operated.result()
        found = {key(item): item for item in (*it.result(), *outside.result())} | inside
    wanted = {item.key for item in objects}
    planned = Plan(
        namespace=namespace,
        objects=tuple(objects),
        kept=kept,
        live={at: item for at, item in found.items() if at in wanted},
        inside=inside,
        left=tuple(item for at, item in found.items() if at not in wanted and _was_applied(item, namespace)),
        effects=(),
    )
    planned = replace(planned, effects=effects(_expected(planned), config))
    there = planned.live.get(("Namespace", planned.namespace))
    refuse_takeover(there)
    refuse_other_stack(kubectl, there, stack)
    refuse_half_restored(planned.inside.values())
    refuse_half_rotated(planned.inside.values())
    refuse_other_kept(there, config, has_jail=("PersistentVolumeClaim", JAIL) in planned.live)
    return planned


def _expected(planned: Plan) -> list[Change]:
    """What may change, without asking the API server what it would make of the objects: that takes half a second."""
    return [
        *(
            Change(action="update", resource=of_object(planned.wanted[at]), before=of_object(present))
            for at, present in planned.live.items()
        ),
        *_deletions(planned.left),
    ]


def _deletions(left: Iterable[Mapping[str, Any]]) -> list[Change]:
    return [Change(action="delete", resource=item, before=item) for item in map(of_object, left)]


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


def jobs_of_plan(kubectl: Kubectl, planned: Plan, asked: Future[Queue] | None = None) -> JobsTouched:
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
"""What a stack has in its namespace (a test holds that these are all), as `kubectl get` takes them. A DaemonSet is an
earlier version's: the next `up` deletes it."""

OPERATOR = "monitoring.coreos.com"
OPERATED = ("servicemonitors", "podmonitors", "prometheusrules")
"""What a stack may have of kinds that the cluster need not know: the API of Prometheus' operator."""

APPLY = ("apply", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")

_OF_THE_SERVER = {"managedFields", "generation", "resourceVersion", "creationTimestamp", "uid"}
"""What the API server writes itself into an object's metadata."""


def changes(kubectl: Kubectl, planned: Plan) -> list[Change]:
    """Each object that applying the plan would create, change or delete.

    The API server itself tells, by a dry run, what each object would become: so defaults are no differences, and what
    was changed by hand is one. Raises Refused in its words if it will not change one of them.
    """
    found, live = list[Change](), planned.live
    outcome = _dry_run(kubectl, [manifest for manifest in planned.objects if manifest.key in live])
    for manifest in planned.objects:
        at = manifest.key
        resource, before = of_object(manifest.document), of_object(live[at]) if at in live else None
        if before is None:
            found.append(Change(action="create", resource=resource))
        else:
            old, new = _comparable(live[at]), _comparable(outcome[at])
            properties = tuple(differences(old, new, secret=manifest.kind == "Secret"))
            if properties:
                found.append(Change(action="update", resource=resource, before=before, properties=properties))
    return found + _deletions(planned.left)


def key(document: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name: unique, since all objects are in one namespace or in none."""
    return str(document["kind"]), str(document["metadata"]["name"])


def kind_of(document: Mapping[str, Any]) -> str:
    """Kind of an object, as `kubectl delete` takes it."""
    operated = str(document.get("apiVersion", "")).startswith(OPERATOR)
    return str(document["kind"]).lower() + (f".{OPERATOR}" if operated else "")


def objects_in(kubectl: Kubectl, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    """All objects of `KINDS` in a namespace, whoever made them: one request a kind, however many pools there are."""
    return {key(item): item for item in kubectl.items(",".join(KINDS), "-n", namespace, OWNERS)}


def _operated(kubectl: Kubectl, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What an operator of Prometheus reads; nothing where the cluster does not know such objects (any more).

    `kubectl get KIND` would look through the whole API for a kind that is not there. Who may not read them has made
    none: where the stack file asks for some, sending them fails with the API server's word.
    """
    ours, found = quote(cluster_labels(namespace), safe=""), dict[tuple[str, str], dict[str, Any]]()
    for kind in OPERATED:
        path = f"/apis/{OPERATOR}/v1/namespaces/{namespace}/{kind}?labelSelector={ours}"
        done = kubectl.run("get", "--raw", path, check=False)
        if done.returncode == 0:
            found |= {key(item): item for item in _items(done.stdout)}
        elif is_unknown(done):
            break  # no operator, as a rule: each question takes a twentieth of a second
        elif not is_forbidden(done):
            raise Failure(message(done.stderr))
    return found


def _was_applied(item: Mapping[str, Any], namespace: str) -> bool:
    """Whether an apply has made an object for this cluster, and may delete it: no claim or volume, which hold data."""
    labels = labels_of(item)
    ours = labels.get("app.kubernetes.io/part-of"), labels.get("app.kubernetes.io/instance")
    entries = item["metadata"].get("managedFields") or ()
    by_apply = any(entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" for entry in entries)
    return by_apply and ours == ("slurmstack", namespace) and not str(item["kind"]).startswith("PersistentVolume")


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
    return list(document["items"]) if "items" in document else [document]


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in document["metadata"].items() if name not in _OF_THE_SERVER}
    return {**document, "metadata": metadata, "status": None}
