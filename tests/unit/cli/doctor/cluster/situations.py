"""What is done to the recorded cluster, and what `doctor` finds then."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.change.lock import PROCESS, machine
from cli.change.owner import PUT_BACK, REPLICAS_BEFORE, RESTORING, Note
from tests.unit.cli.doctor.cluster.recorded_cluster import CLOCK, RecordedCluster

Ill = Callable[[RecordedCluster], object]


def ago(seconds: float) -> str:
    """A time by the recorded cluster's clock, as Kubernetes writes it."""
    return (datetime.fromtimestamp(CLOCK, UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def both(*steps: Ill) -> Ill:
    """One after the other."""
    return lambda cluster: [step(cluster) for step in steps]


def silent_node(cluster: RecordedCluster) -> None:
    cluster.node("default-1", "DOWN", "NOT_RESPONDING", reason="Not responding", by="slurm")


def lost_machine(name: str) -> Ill:
    """Kubernetes says that its pods are not ready, and of their containers what kubelet has said last."""

    def make(cluster: RecordedCluster) -> None:
        pods = [item for item in cluster.objects if item["kind"] == "Pod" and item["spec"].get("nodeName") == name]
        for item in (cluster.thing("Node", name), *pods):
            ready = next(one for one in item["status"]["conditions"] if one["type"] == "Ready")
            ready |= {"status": "False" if item in pods else "Unknown"}

    return make


URL = "https://10.99.0.3:10250/exec/slurm/controller-0/slurmctld"


def lost_slurmctld(cluster: RecordedCluster) -> None:
    """Its machine was lost 15 minutes ago, and 5 minutes later Kubernetes deleted its pod, which may take a year."""
    lost_machine("node-1")(cluster)
    year = 31622400
    stamps = {"deletionTimestamp": ago(600 - year), "deletionGracePeriodSeconds": year}
    cluster.thing("Pod", "controller-0")["metadata"].update(stamps)
    query = "&".join(["command=sh", *["command=ask%20nodes%20jobs"] * 40])
    cluster.refused["exec"] = f'error: Post "{URL}?{query}": dial tcp 10.99.0.3:10250: connect: no route to host'


def restarts(name: str, component: int = 0) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        status = cluster.thing("Pod", name)["status"]["containerStatuses"][component]
        ended = {"exitCode": 1, "reason": "Error", "finishedAt": ago(60)}
        status |= {"restartCount": 2, "lastState": {"terminated": ended}}

    return make


def stopped_by_restore(**notes: str) -> Ill:
    """No controller is there that could be asked."""

    def make(cluster: RecordedCluster) -> None:
        there = cluster.thing("StatefulSet", "controller")
        there["metadata"]["annotations"] = {REPLICAS_BEFORE: "1", **notes}
        there["spec"]["replicas"] = 0
        there["status"] = {}
        cluster.remove("Pod", "controller-0")
        cluster.refused["exec"] = 'Error from server (NotFound): pods "controller-0" not found'

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


def lost_while_completing(cluster: RecordedCluster) -> None:
    cluster.thing("Pod", "default-1")["metadata"]["deletionTimestamp"] = ago(600)
    cluster.job("17", "None", state="COMPLETING", nodes="default-1")


def rolling(cluster: RecordedCluster) -> None:
    cluster.node("default-1", "ALLOCATED", "DRAIN", reason="slurmstack: pod leaving for a new one", by="root")
    cluster.job("17", "None", state="RUNNING", nodes="default-1")


def lease(age: float, *, died: bool = False) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        metadata: dict[str, Any] = {"name": "slurmstack", "creationTimestamp": ago(age)}
        if died:
            metadata["annotations"] = {PROCESS: f"{machine()} {2**22 + 1}"}  # a number that no process can have
        spec = {"holderIdentity": "slurmstack up of root@here (pid 1)"}
        cluster.objects.append({"kind": "Lease", "metadata": metadata, "spec": spec})

    return make


def slurm_says(**answers: tuple[int, str]) -> Ill:
    return lambda cluster: cluster.slurm.update(answers)


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


def refused_job(name: str, message: str) -> Ill:
    """Its pod was never made, so it is neither done nor has it failed."""
    return both(
        lambda cluster: cluster.thing("Job", name).update(status={}),
        lambda cluster: cluster.remove("Pod", name),
        lambda cluster: cluster.warn("Job", name, "FailedCreate", message),
    )


def full_machine(cluster: RecordedCluster) -> None:
    conditions = cluster.thing("Node", "node-0")["status"]["conditions"]
    next(one for one in conditions if one["type"] == "DiskPressure")["status"] = "True"


def volume_is_away(cluster: RecordedCluster) -> None:
    cluster.thing("Job", "users-")["status"] = {}
    pod = cluster.thing("Pod", "users-")
    pod["status"] |= {"phase": "Pending", "conditions": []}
    pod["status"]["containerStatuses"][0] |= {"ready": False, "state": {"waiting": {"reason": "ContainerCreating"}}}
    cluster.warn("Pod", "users-", "FailedMount", "mount: server is down")


def unplaced(message: str) -> Ill:
    return both(lambda cluster: cluster.unplaced("default-1", message), silent_node)


def drained(reason: str, *, by: str = "slurm", comment: str = "") -> Ill:
    return lambda cluster: cluster.node("default-1", "IDLE", "DRAIN", reason=reason, by=by, comment=comment)


def checked(comment: str, *nodes: str) -> Ill:
    def make(cluster: RecordedCluster) -> None:
        for name in nodes or ("default-1",):
            cluster.node(name, "IDLE", comment=comment)

    return make


def queued(id_: str, reason: str, **more: Any) -> Ill:
    return lambda cluster: cluster.job(id_, reason, **more)


def evicted(cluster: RecordedCluster) -> None:
    said = "The node was low on resource: ephemeral-storage."
    cluster.thing("Pod", "default-1")["status"] = {"phase": "Failed", "reason": "Evicted", "message": said}
    silent_node(cluster)


def no_config(cluster: RecordedCluster) -> None:
    """A pod that was made a moment ago, and whose volumes are not mounted."""
    pod = cluster.thing("Pod", "default-1")
    pod["metadata"]["creationTimestamp"] = ago(5)
    for one in pod["status"]["conditions"]:
        one["lastTransitionTime"] = ago(5)
    pod["status"]["phase"] = "Pending"
    pod["status"].pop("initContainerStatuses", None)
    cluster.waiting("default-1", "PodInitializing")
    said = 'MountVolume.SetUp failed for volume "config" : configmap "slurm-config" not found'
    cluster.warn("Pod", "default-1", "FailedMount", said)


def namespace_goes(cluster: RecordedCluster) -> None:
    """Nothing is left but what has to end first."""
    nothing(cluster)
    left = {
        "type": "NamespaceContentRemaining",
        "status": "True",
        "message": "Some resources are remaining: pods. has 1",
    }
    metadata = {"name": "slurm", "deletionTimestamp": "2026-11-25T16:00:00Z"}
    cluster.objects.append({"kind": "Namespace", "metadata": metadata, "status": {"conditions": [left]}})


def nothing(cluster: RecordedCluster) -> None:
    cluster.objects.clear()
    cluster.refused["exec"] = 'Error from server (NotFound): pods "controller-0" not found'


def no_pod(cluster: RecordedCluster) -> None:
    cluster.remove("Pod", "default-1")
    silent_node(cluster)


def no_slurmd(cluster: RecordedCluster) -> None:
    del cluster.slurm["nodes"][1]["nodes"][1]


SITUATIONS: dict[str, tuple[Ill, str, str]] = {  # what is done, the cause that comes first, a part of what mends it
    # pods
    "no machine has room": (unplaced("0/2 nodes are available: 2 Insufficient cpu. preemption: none."),
        "pod default-1 cannot be placed: 0/2 nodes are available: 2 Insufficient cpu", "of worker_nodes.default"),
    "its volume is elsewhere": (unplaced("0/2 nodes are available: 2 node(s) had volume node affinity conflict."),
        "had volume node affinity conflict", "kubectl get -n slurm pvc,events"),
    "pods are refused": (refused_pods("create Pod default-1 failed: forbidden: exceeded quota: small"),
        "default-1 of StatefulSet default: Kubernetes refuses to make it", "describe -n slurm statefulset"),
    "the jail's pod is refused": (
        both(refused_job("populate-jail", "forbidden: exceeded quota: small"), lambda c: c.unready("login-0")),
        "its pod of Job populate-jail-58481d0c: Kubernetes refuses to make it", "describe -n slurm job populate-jail-"),
    "a step's pod is refused": (refused_job("users-", 'admission webhook "policy.example" denied the request'),
        "its pod of Job users-eb33788d: Kubernetes refuses to make it", "describe -n slurm job users-"),
    "no pod of a Deployment": (lambda c: c.remove("Pod", "health-watch"),
        "its pod of Deployment health-watch: is not there", "describe -n slurm deployment health-watch"),
    "pod is not there": (no_pod, "default-1 of StatefulSet default: is not there", "describe -n slurm statefulset"),
    "image": (both(lambda c: c.waiting("default-1", "ImagePullBackOff", 'Back-off pulling image "x:1"'), silent_node),
        "slurmd has no image", "images push"),
    "claim without a volume": (claim_waits, "the volume claim jail is pending", "describe -n slurm pvc jail"),
    "secret is missing": (lambda c: c.waiting("login-0", "CreateContainerConfigError", 'secret "x" not found'),
        "cannot be started", "slurmstack preview"),
    "ConfigMap is missing": (no_config,
        "pod default-1 cannot start: there is no ConfigMap slurm-config", "`slurmstack up`"),
    "memory of a pod": (lambda c: c.waiting("login-0", "CrashLoopBackOff", last=(137, "OOMKilled")),
        "was killed for memory", "more memory"),
    "a daemon ends again and again": (lambda c: c.waiting("login-0", "CrashLoopBackOff", last=(1, "Error")),
        "restarts: 7 times, the last with exit status 1 (Error)", "kubectl logs -n slurm login-0"),
    "state volume is full": (lambda c: c.slurm.update(room=(0, f"     Avail  1B-blocks\n4096 {2**26}\n")),
        "slurmctld's state volume is full: 0 MiB of 64 MiB are free", "slurmstack:controller: {storage: ...}"),
    "controller restarts": (restarts("controller-0"), "pod controller-0: config-agent restarts", "--previous"),
    "pod does not get ready": (lambda c: c.unready("login-0"), "pod login-0 is not ready after", "kubectl logs"),
    "machine is lost": (lost_machine("node-0"), "the Kubernetes machine node-0 is not ready", "describe node node-0"),
    "slurmctld's machine is lost": (lost_slurmctld,
        "slurmctld is down with its machine node-1: no other one is started while that may still run",
        "only once node-1 is really off, as two slurmctld on one state lose jobs: kubectl delete node node-1"),
    "machine is short of disk": (full_machine, "node-0 has DiskPressure", "describe node node-0"),
    "a new pod waits for jobs": (rolling,
        "node default-1 takes no more jobs: it gets a new pod when those that it has are done",
        "squeue --nodelist=default-1"),
    "an elastic pool has a smaller maximum": (drained("slurmstack/elastic: leaves the pool"),
        "node default-1 takes no more jobs: leaves the pool", "squeue --nodelist=default-1"),
    "scale-in waits for jobs": (leaving, "default-1 leaves and waits for 1 job", "scancel 17"),
    "pod does not end": (lambda c: c.thing("Pod", "login-0")["metadata"].update(deletionTimestamp=ago(600)),
        "should have ended 10 min ago", "--force"),
    "a worker does not end, and its job is completing": (lost_while_completing,
        "pod default-1 should have ended 10 min ago; its machine may be lost", "pod default-1 --force"),
    "a step of `up` cannot mount its volume": (volume_is_away,
        "pod users-eb33788d-dcx85 is not ready after", "describe -n slurm pod users-"),
    "evicted": (evicted, "pod default-1 has failed: Evicted", "describe -n slurm pod default-1"),
    # slurmctld and nodes
    "a restore was cut short": (
        stopped_by_restore(**{RESTORING: Note(step="putting", parts=("state",), backup="20261126T020000Z").written()}),
        "a restore that has stopped controller runs, or was not finished",
        "slurmstack restore --what state --at 20261126T020000Z"),
    "a restore has left it stopped": (stopped_by_restore(**{PUT_BACK: "20261126T020000Z"}),
        "a restore has left controller stopped", "slurmstack up"),
    "munged is away": (
        slurm_says(munge=(1, 'munge: Error: Failed to access "munge.socket.2": No such file'), slurmctld=(124, "")),
        "munge does not work", "-c munged"),
    "clocks differ": (slurm_says(slurmctld=(1, "sinfo: error: Munge decode failed: Expired credential")),
        "the clocks of machines differ", "NTP"),
    "node is not heard though its pod is ready": (silent_node,
        "though its pod is ready: munge, clock or network", "logs -n slurm default-1"),
    "memory of a node": (drained("Low RealMemory (reported:900 < 100.00% of configured:1920)"),
        "has less than its pool promises: Low RealMemory", "worker_nodes.default.resources"),
    "drained by its checks": (drained("health/clock [node]: 40 s off", comment="fail clock [node]: 40 s off"),
        "drained by its health checks: clock", "slurmstack health"),
    "a check that fails and drains nothing": (checked("fail dns [node]: slurmctld's name is unknown"),
        "takes jobs though its check dns fails", "slurmstack logs "),
    "jail hangs": (
        checked("not checked filesystem: process 17 (health-periodic) of an earlier run does not end", "default-0"),
        "takes jobs though its check filesystem does not end", "slurmstack logs "),
    # what `up` has done
    "namespace is being deleted": (namespace_goes,
        "the namespace slurm is being deleted, with all that is in it, since 2026-11-25T16:00:00Z",
        "wait until `kubectl get namespace slurm` finds none, then `slurmstack up`"),
    "jail is half populated": (populating(None), "the jail is being populated", "populate-jail"),
    "volume is too small for the jail": (populating(3), "the jail could not be populated", "jail.size"),
    "users": (failed_job("users-", "Pod was failed: exit code 2"),
        "a step of the last `up` has failed: users-", "logs -n slurm job/users-"),
    "configuration is on its way": (agent(pending="later"), "is on its way", "config-agent"),
    "apply was cut short": (both(lease(600, died=True), agent()),
        "a command that began 10 min ago was cut short", "same command again"),
    "apply is at work": (lease(600),
        "another command has been changing the cluster for 10 min", "wait for it; if it has ended"),
    "nothing is there of a pool": (
        both(lambda c: c.remove("StatefulSet", "default"), *(lambda c: c.remove("Pod", "default-"),) * 2),
        "the stack file wants 2 nodes of pool default, and the cluster has nothing of it", "slurmstack preview"),
    "partition is closed": (slurm_says(partitions=(0, "PartitionName=main Nodes=x State=DOWN TotalCPUs=4")),
        "partition main is DOWN", "state=up"),
    "slurmdbd is silent": (slurm_says(database=(124, "")), "slurmdbd does not answer", "logs -n slurm slurmdbd-0"),
    "database is away": (both(slurm_says(database=(1, "")), lambda c: c.waiting("database-0", "ImagePullBackOff")),
        "pod database-0: mariadbd has no image", "and then kubectl delete -n slurm pod database-0"),
    "backup": (failed_backup, "a backup, or a look at backups, has failed", "docs/restore.md"),
    # jobs
    "account": (queued("12", "InvalidAccount"), "its account or QOS does not", "sacctmgr show assoc user=alice"),
    "launch failed": (queued("12", "launch failed requeued held"),
        "job 12 of alice held: could not be started", "scontrol release 12"),
    "no node takes jobs": (
        both(
            drained("new disks", by="root"),
            lambda c: c.node("default-0", "IDLE", "DRAIN", reason="new disks", by="root"),
            queued("12", "Resources"),
        ), "is drained by root: new disks", "state=resume"),
}  # fmt: skip
