"""Workers beside those of a cluster, each with an ailment of its own: the product's own pod, but for that."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

from tests.e2e.harness import SlurmOnKubernetes, wait_until

Spec = dict[str, Any]
Change = Callable[[Spec], object]
"""Of a pod's specification."""

CLAIM = "of-a-test"
STAYS = "slurmstack.test/stays"
"""A finalizer: Kubernetes keeps such a pod for whoever set it."""


def start(slurm: SlurmOnKubernetes, pools: dict[str, Change]) -> None:
    """Make a pool of one worker for each, like the pool default, before its specification is changed."""
    (model,) = slurm.kubectl.items("statefulset", "default", "-n", slurm.namespace)
    documents = [_like(model, name, change) for name, change in pools.items()]
    apply(slurm, *documents)


def apply(slurm: SlurmOnKubernetes, *documents: dict[str, Any]) -> None:
    """Objects of the cluster's namespace."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    slurm.kubectl.run("apply", "-n", slurm.namespace, "-f", "-", stdin=text)


def remove(slurm: SlurmOnKubernetes, pools: Iterable[str]) -> None:
    """Take them away, and Slurm's records of them."""
    names, here = list(pools), ("-n", slurm.namespace)
    slurm.kubectl.run("delete", "statefulset", *names, *here, "--cascade=orphan", "--ignore-not-found")
    pods = [f"{name}-0" for name in names]
    if "stays-0" in slurm.pods():
        slurm.kubectl.run("patch", "pod", "stays-0", *here, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
    # Without waiting for jobs, for which a worker has days.
    slurm.kubectl.run("delete", "pod", *pods, *here, "--grace-period=1", "--ignore-not-found")
    wait_until(lambda: not set(pods) & set(slurm.pods()), f"{pods} are gone")
    # Of most there is no record, and others may have been removed meanwhile.
    slurm.slurm(f"for pod in {' '.join(pods)}; do scontrol delete nodename=$pod; done", check=False)


def _like(model: dict[str, Any], name: str, change: Change) -> dict[str, Any]:
    ours = {key: model["metadata"]["labels"][key] for key in model["spec"]["selector"]["matchLabels"]}
    labels = {**ours, "app.kubernetes.io/part-of": "slurmstack", "slurmstack/pool": name}
    spec = copy.deepcopy(model["spec"])
    pod = spec["template"]["spec"]
    tiny = {"cpu": "5m", "memory": "64Mi"}
    slurmd(pod)["resources"] = {"requests": tiny, "limits": {"memory": "512Mi"}}
    node_conf(pod, f"CPUs=1 RealMemory=384 Feature={name}")
    change(pod)
    if name == "stays":
        spec["template"]["metadata"]["finalizers"] = [STAYS]
    spec |= {"replicas": 1, "selector": {"matchLabels": {**ours, "slurmstack/pool": name}}}
    spec["template"]["metadata"]["labels"] |= {"slurmstack/pool": name}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "labels": labels}, "spec": spec}


def slurmd(pod: Spec) -> dict[str, Any]:
    """Its container."""
    found: dict[str, Any] = pod["containers"][0]
    return found


def node_conf(pod: Spec, text: str) -> None:
    """What slurmd says of the node."""
    next(item for item in slurmd(pod)["env"] if item["name"] == "NODE_CONF")["value"] = text


def volume(pod: Spec, source: dict[str, Any]) -> None:
    """One more, mounted."""
    pod["volumes"].append({"name": "far", **source})
    slurmd(pod)["volumeMounts"].append({"name": "far", "mountPath": "/far"})


def secret(pod: Spec) -> None:
    """One that nobody has made."""
    key = {"secretKeyRef": {"name": "gone", "key": "x"}}
    slurmd(pod)["env"].append({"name": "GONE", "valueFrom": key})


def claim() -> dict[str, Any]:
    """A claim of the cluster's, of a storage class that is not there."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": CLAIM, "labels": {"app.kubernetes.io/part-of": "slurmstack"}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


ILL: dict[str, tuple[Change, str]] = {
    "gpus": (
        lambda pod: slurmd(pod)["resources"]["limits"].update({"nvidia.com/gpu": "1"}),
        r"pod gpus-0 cannot be placed: no machine has enough nvidia.com/gpu left",
    ),
    "labels": (
        lambda pod: pod.update(nodeSelector={"nobody": "has"}),
        r"pod labels-0 cannot be placed: no machine has the labels that it asks for",
    ),
    "claim": (
        lambda pod: volume(pod, {"persistentVolumeClaim": {"claimName": CLAIM}}),
        rf"the volume claim {CLAIM} is pending: it waits for storage class none",
    ),
    "mount": (
        lambda pod: volume(pod, {"hostPath": {"path": "/not/there", "type": "Directory"}}),
        r"pod mount-0 waits for a volume that cannot be mounted",
    ),
    "image": (
        lambda pod: slurmd(pod).update(image="localhost/slurmstack/none:1"),
        r"pod image-0: slurmd has no image: Kubernetes cannot pull it \(\w+\)",
    ),
    "secret": (
        secret,
        r"pod secret-0: slurmd cannot be started \(CreateContainerConfigError\), a Secret or ConfigMap may be missing",
    ),
    "memory": (
        lambda pod: slurmd(pod).update(command=["python3", "-c", "'x' * (900 << 20)"]),
        r"pod memory-0: slurmd was killed for memory",
    ),
    "ends": (
        lambda pod: slurmd(pod).update(command=["false"]),
        r"pod ends-0: slurmd ends again and again \(exit status 1, \d+ restarts\)",
    ),
    "small": (
        lambda pod: node_conf(pod, "CPUs=1 RealMemory=99999999 Feature=small"),
        r"node small-0 has less memory than its pool promises",
    ),
}
"""A pool's name -> what ails its pod, and what doctor shall say of its node."""


SLOW: dict[str, tuple[Change, str]] = {
    "unready": (
        lambda pod: slurmd(pod).update(readinessProbe={"exec": {"command": ["false"]}}),
        r"pod unready-0 is not ready after \d+ min",
    ),
    "stays": (dict, rf"pod stays-0 has ended \d+ min ago and is kept by the finalizer {STAYS}"),
}
"""The same, told after minutes only."""
