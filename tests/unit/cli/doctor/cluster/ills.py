"""What ails a recorded cluster, to be put together."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.kubectl.lock import PROCESS, machine
from cli.safety.owner import REPLICAS_BEFORE
from tests.unit.cli.doctor.cluster.recorded import CLOCK, RecordedCluster

Ill = Callable[[RecordedCluster], object]


def ago(seconds: float) -> str:
    """A time by the recorded cluster's clock, as Kubernetes writes it."""
    return (datetime.fromtimestamp(CLOCK, UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def both(*steps: Ill) -> Ill:
    """One after the other."""
    return lambda cluster: [step(cluster) for step in steps]


def silent_node(cluster: RecordedCluster) -> None:
    cluster.node("default-1", "DOWN", "NOT_RESPONDING", reason="Not responding", by="slurm")


def lost_machine(cluster: RecordedCluster) -> None:
    conditions = cluster.thing("Node", "node-0")["status"]["conditions"]
    ready = next(one for one in conditions if one["type"] == "Ready")
    ready |= {"status": "Unknown", "message": "Kubelet stopped posting node status."}
    cluster.unready("default-1")
    cluster.unready("login-1")


def restarts(name: str, component: int = 0) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        status = cluster.thing("Pod", name)["status"]["containerStatuses"][component]
        ended = {"exitCode": 1, "reason": "Error", "finishedAt": ago(60)}
        status |= {"restartCount": 2, "lastState": {"terminated": ended}}

    return make


def stopped_by_restore(**notes: str) -> Ill:
    """No controller is there, and Slurm says nothing."""

    def make(cluster: RecordedCluster) -> None:
        there = cluster.thing("StatefulSet", "controller")
        there["metadata"]["annotations"] = {REPLICAS_BEFORE: "1", **notes}
        there["spec"]["replicas"] = 0
        there["status"] = {}
        cluster.remove("Pod", "controller-0")
        cluster.slurm["slurmctld"] = (124, "")

    return make


def failed_job(name: str, message: str) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        conditions = [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": message}]
        cluster.thing("Job", name)["status"] = {"conditions": conditions}

    return make


def failed_backup(cluster: RecordedCluster) -> None:
    failed_job("policy-", "reached the specified backoff limit")(cluster)
    cluster.thing("Job", "policy-")["metadata"]["labels"]["app.kubernetes.io/component"] = "backup"


def populating(code: int | None) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        cluster.thing("Job", "populate-jail")["status"] = {}
        status = cluster.thing("Pod", "populate-jail")["status"]
        status["phase"] = "Running" if code is None else "Failed"
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "reason": "Error"}}
        status["containerStatuses"][0] |= {"state": state}
        cluster.unready("login-0")

    return make


def agent(**state: object) -> Ill:
    return lambda cluster: cluster.slurm.update(configuration=(0, json.dumps({"active": "before", **state})))


def leaving(cluster: RecordedCluster) -> None:
    cluster.thing("Pod", "default-1")["metadata"]["deletionTimestamp"] = "2099-01-01T00:00:00Z"
    cluster.node("default-1", "ALLOCATED", "DRAIN", reason="slurmstack: pod leaving", by="root")
    cluster.job("17", "None", state="RUNNING", nodes="default-1")


def rolling(cluster: RecordedCluster) -> None:
    cluster.node("default-1", "ALLOCATED", "DRAIN", reason="slurmstack: pod leaving for a new one", by="root")
    cluster.job("17", "None", state="RUNNING", nodes="default-1")


def kept(phase: str) -> Ill:
    """A pod that has ended, one way or the other, and stays."""

    def make(cluster: RecordedCluster) -> None:
        pod = cluster.thing("Pod", "login-0")
        pod["metadata"].update(deletionTimestamp=ago(600), finalizers=["example.com/keep"])
        pod["status"]["phase"] = phase

    return make


def lease(age: float, *, died: bool = False) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        metadata: dict[str, Any] = {"name": "slurmstack", "creationTimestamp": ago(age)}
        if died:
            metadata["annotations"] = {PROCESS: f"{machine()} {2**22 + 1}"}  # a number that no process can have
        spec = {"holderIdentity": "slurmstack up of root@here (pid 1)"}
        cluster.objects.append({"kind": "Lease", "metadata": metadata, "spec": spec})

    return make


def unfinished(*operations: str) -> Ill:
    return lambda cluster: cluster.unfinished.extend(operations)


def told(name: str, replicas: int) -> Ill:
    return lambda cluster: cluster.thing("StatefulSet", name)["spec"].update(replicas=replicas)


def by_hand(cluster: RecordedCluster) -> None:
    entry = {"manager": "kubectl-edit", "operation": "Update", "time": ago(60), "fieldsV1": {"f:spec": {}}}
    cluster.thing("StatefulSet", "login")["metadata"]["managedFields"].append(entry)


def slurm_says(**answers: tuple[int, str]) -> Ill:
    return lambda cluster: cluster.slurm.update(answers)


def statistics(label: str, number: int) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        printed = cluster.slurm["statistics"][1]
        lines = [f"{label}: {number}" if line.startswith(label) else line for line in printed.splitlines()]
        cluster.slurm["statistics"] = (0, "\n".join(lines))

    return make


def claim_waits(cluster: RecordedCluster) -> None:
    cluster.thing("PersistentVolumeClaim", "jail")["status"] = {"phase": "Pending"}
    cluster.warn("PersistentVolumeClaim", "jail", "ProvisioningFailed", 'storageclass "fast" not found')
    cluster.unplaced("default-0", "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")


def refused_pods(message: str) -> Ill:
    return both(
        lambda cluster: cluster.remove("Pod", "default-1"),
        lambda cluster: cluster.warn("StatefulSet", "default", "FailedCreate", message),
        silent_node,
    )


def unplaced(message: str) -> Ill:
    return both(lambda cluster: cluster.unplaced("default-1", message), silent_node)


def drained(reason: str, *, by: str = "slurm", comment: str = "") -> Ill:
    return lambda cluster: cluster.node("default-1", "IDLE", "DRAIN", reason=reason, by=by, comment=comment)


def checked(comment: str, *nodes: str) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        for name in nodes or ("default-1",):
            cluster.node(name, "IDLE", comment=comment)

    return make


def ending(seconds: float) -> Ill:
    """A job that has ended so long ago by the controller's clock, and still holds a node."""

    def make(cluster: RecordedCluster) -> None:
        end = int(cluster.slurm["clock"][1]) - seconds
        cluster.job("12", "None", state="COMPLETING", nodes="default-[0-1]", end=f"{end:.0f}")

    return make


def queued(id_: str, reason: str, **more: Any) -> Ill:
    return lambda cluster: cluster.job(id_, reason, **more)


def evicted(cluster: RecordedCluster) -> None:
    said = "The node was low on resource: ephemeral-storage."
    cluster.thing("Pod", "default-1")["status"] = {"phase": "Failed", "reason": "Evicted", "message": said}
    silent_node(cluster)


def full_machine(cluster: RecordedCluster) -> None:
    conditions = cluster.thing("Node", "node-0")["status"]["conditions"]
    next(one for one in conditions if one["type"] == "DiskPressure")["status"] = "True"


def no_pod(cluster: RecordedCluster) -> None:
    cluster.remove("Pod", "default-1")
    silent_node(cluster)


def foreign_pool(cluster: RecordedCluster) -> None:
    """The stack file calls the pool otherwise: it has been renamed, and is not applied."""
    for kind, name in (("StatefulSet", "default"), ("Pod", "default-0"), ("Pod", "default-1")):
        item = copy.deepcopy(cluster.thing(kind, name))
        item["metadata"]["name"] = name.replace("default", "old")
        item["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "name": "old"}]
        cluster.objects.append(item)
    names = {"default-0": "old-0", "default-1": "old-1"}
    nodes = copy.deepcopy(cluster.slurm["nodes"][1]["nodes"])
    cluster.slurm["nodes"][1]["nodes"] += [{**node, "name": names[node["name"]]} for node in nodes]


def no_slurmd(cluster: RecordedCluster) -> None:
    del cluster.slurm["nodes"][1]["nodes"][1]
