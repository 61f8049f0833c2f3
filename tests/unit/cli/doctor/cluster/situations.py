"""Situations: what is done to a recorded cluster, the cause that comes first then, and a part of what mends it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.change.in_place import PUT_BACK
from cli.change.lock import PROCESS, machine
from cli.change.owner import REPLICAS_BEFORE, RESTORING, Note
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


GPUS = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {gpu: yes}."
NO_LABELS = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector"
REFUSED = "slurm_load_partitions: Protocol authentication error: Munge decode failed: Invalid credential"
FULL_HOMES = "disks: /jail/home: 99 % of the space used, 98 % allowed"
FULL = "disks: /jail: 99 % of the space used, 98 % allowed"

SITUATIONS: dict[str, tuple[Ill, str, str]] = {
    # pods
    "no machine has room": (unplaced("0/2 nodes are available: 2 Insufficient cpu."),
        "no machine has enough cpu left", "resources"),
    "those that fit have no GPU left": (unplaced(GPUS), "no machine has enough nvidia.com/gpu left", "add machines"),
    "taint": (unplaced("0/2 nodes are available: 2 node(s) had untolerated taint {gpu: yes}."),
        "the taint {gpu: yes}", "tolerations"),
    "a taint without its name": (unplaced(f"{NO_LABELS}, 1 node(s) had untolerated taint(s)."),
        "have a taint that the pod does not tolerate", "tolerations"),
    "a cordoned machine, and one without the labels": (unplaced(f"{NO_LABELS}, 1 node(s) were unschedulable."),
        "are cordoned", "uncordon"),
    "labels": (unplaced(NO_LABELS), "no machine has the labels", "node_selector"),
    "too many pods": (unplaced("0/2 nodes are available: 2 Too many pods."), "as many pods as it may", "add machines"),
    "quota": (refused_pods("create Pod default-1 failed: forbidden: exceeded quota: small, requested: cpu=4"),
        "a quota of the namespace", "resourcequota"),
    "pods are refused": (refused_pods("create Pod default-1 failed: violates PodSecurity"),
        "refuses to make default-1", "describe -n slurm statefulset"),
    "image": (both(lambda c: c.waiting("default-1", "ImagePullBackOff", 'Back-off pulling image "x:1"'), silent_node),
        "slurmd has no image", "images push"),
    "claim without a volume": (claim_waits, "the volume claim jail is pending", "describe -n slurm pvc jail"),
    "volume is not mounted": (
        both(
            lambda c: c.waiting("login-0", "ContainerCreating"),
            lambda c: c.waiting("login-0", "ContainerCreating", container=1),
            lambda c: c.thing("Pod", "login-0")["status"].pop("initContainerStatuses"),
            lambda c: c.warn("Pod", "login-0", "FailedMount", "MountVolume.SetUp failed: no such server"),
        ), "pod login-0 waits for a volume", "describe -n slurm pod login-0"),
    "secret is missing": (lambda c: c.waiting("login-0", "CreateContainerConfigError", 'secret "x" not found'),
        "cannot be started", "slurmstack preview"),
    "memory of a pod": (lambda c: c.waiting("login-0", "CrashLoopBackOff", last=(137, "OOMKilled")),
        "was killed for memory", "more memory"),
    "a daemon ends again and again": (lambda c: c.waiting("login-0", "CrashLoopBackOff", last=(1, "Error")),
        "ends again and again (exit status 1", "kubectl logs -n slurm login-0"),
    "controller restarts": (restarts("controller-0"), "pod controller-0: config-agent restarts", "--previous"),
    "pod does not get ready": (lambda c: c.unready("login-0"), "pod login-0 is not ready after", "kubectl logs"),
    "machine is lost": (lost_machine, "the Kubernetes machine node-0 is not ready", "describe node node-0"),
    "a new pod waits for jobs": (rolling,
        "node default-1 takes no more jobs: it gets a new pod when those that it has are done",
        "squeue --nodelist=default-1"),
    "scale-in waits for jobs": (leaving, "default-1 leaves and waits for 1 job", "scancel 17"),
    "pod does not end": (lambda c: c.thing("Pod", "login-0")["metadata"].update(deletionTimestamp=ago(600)),
        "should have ended 10 min ago", "--force"),
    "pod is kept": (kept("Failed"),
        "login-0 has ended 10 min ago and is kept by the finalizer", "edit -n slurm pod login-0"),
    "pod that ended well is kept": (kept("Succeeded"),
        "is kept by the finalizer example.com/keep", "edit -n slurm pod login-0"),
    "evicted": (evicted, "pod default-1 was evicted", "describe node"),
    "machine is short of disk": (full_machine, "node-0 has DiskPressure", "describe node node-0"),
    "pod is not there": (no_pod, "default-1 of StatefulSet default is not there", "describe -n slurm statefulset"),
    "pool is not in the stack file": (foreign_pool, "a pool old that is not in the stack file", "slurmstack preview"),
    # slurmctld and nodes
    "slurmctld is silent": (slurm_says(slurmctld=(124, "")),
        "slurmctld does not answer", "logs -n slurm service/controller-0"),
    "a restore was cut short": (
        stopped_by_restore(**{RESTORING: Note(step="putting", parts=("state",), backup="20261126T020000Z").written()}),
        "a restore that has stopped controller runs, or was not finished",
        "slurmstack restore --what state --at 20261126T020000Z"),
    "a restore has left it stopped": (stopped_by_restore(**{PUT_BACK: "20261126T020000Z"}),
        "a restore has left controller stopped", "slurmstack up"),
    "munge": (slurm_says(slurmctld=(1, REFUSED)), "munge does not work", "-c munged"),
    "munged is away": (
        slurm_says(munge=(1, 'munge: Error: Failed to access "munge.socket.2": No such file'), slurmctld=(124, "")),
        "munge does not work", "-c munged"),
    "clocks differ": (slurm_says(slurmctld=(1, "sinfo: error: Munge decode failed: Expired credential")),
        "the clocks of machines differ", "NTP"),
    "node is not heard though its pod is ready": (silent_node,
        "though its pod is ready: munge, clock or network", "health run munge"),
    "memory of a node": (drained("Low RealMemory (reported:900 < 100.00% of configured:1920)"),
        "has less memory than its pool promises", "worker_nodes.default.resources.memory"),
    "GPUs of a node": (drained("gres/gpu count reported lower than configured (7 < 8)"),
        "has fewer GPUs", "gpu-presence"),
    "prolog": (drained("Prolog error"), "a prolog or epilog of yours failed", "state=resume"),
    "processes stay": (drained("Kill task failed"), "could not be ended", "processes"),
    "drained by somebody": (drained("bad disk", by="root"),
        "node default-1 is drained by root: bad disk", "state=resume"),
    "drained by its checks": (drained("health/clock [node]: 40 s off", comment="fail clock [node]: 40 s off"),
        "drained by its health checks: clock", "slurmstack health default-1"),
    "name service": (checked("fail dns [node]: slurmctld's name is unknown"),
        "it cannot look up names", "health run dns"),
    "slurmd does not register": (no_slurmd, "pod default-1 runs, and Slurm has no such node", "-c slurmd"),
    "slurmctld is overrun": (statistics("Server thread count", 250), "more questions than it can answer", "sdiag"),
    # jail
    "jail is full": (
        both(checked(f"fail {FULL}", "default-0"), drained(f"health/disks [node]: {FULL}", comment=f"fail {FULL}")),
        "the jail is full", "jail.size"),
    "homes are full": (both(checked(f"fail {FULL_HOMES}", "default-0"), drained(f"health/disks [node]: {FULL_HOMES}")),
        "the volume of homes is full", "jail.homes.size"),
    "jail is slow": (checked("fail filesystem [node]: /jail: 30 s to write", "default-0", "default-1"),
        "slow or hangs", "health run filesystem"),
    "jail hangs": (
        checked("not checked filesystem: process 17 (health-periodic) of an earlier run does not end", "default-0"),
        "slow or hangs", "health run filesystem"),
    "jail is half populated": (populating(None), "the jail is being populated", "populate-jail"),
    "volume is too small for the jail": (populating(3), "half populated: its volume is full", "jail.size"),
    "volume has files of others": (populating(2), "could not be populated", "empty volume"),
    "users": (failed_job("users-", "Pod was failed: exit code 2"),
        "users of the stack file could not be made", "logs -n slurm job/users-"),
    # configuration
    "configuration is refused": (agent(rejected={"hash": "x", "message": "Parsing error at unrecognized key: Colour"}),
        "Slurm refuses its new configuration", "slurm.settings"),
    "configuration is on its way": (agent(pending="later"), "is on its way", "config-agent"),
    "configuration of another stack file": (agent(), "another configuration than the stack file", "slurmstack preview"),
    "apply was cut short": (both(lease(600, died=True), told("default", 1)),
        "a command that began 10 min ago was cut short", "same command again"),
    "an update by Pulumi was cut short": (
        both(unfinished("creating slurm-jail", "updating slurm-default"), told("default", 1)),
        "an update by Pulumi is at work, or was cut short: creating slurm-jail and 1 more", "`slurmstack up` goes on"),
    "apply is at work": (lease(600),
        "another command has been changing the cluster for 10 min", "wait for it; if it has ended"),
    "pool is smaller than the stack file": (told("default", 1),
        "pool default is not as in the stack file", "slurmstack preview"),
    "changed by hand": (by_hand, "StatefulSet login was changed by hand", "slurmstack up"),
    "partition is closed": (slurm_says(partitions=(0, "PartitionName=main Nodes=x State=DOWN TotalCPUs=4")),
        "partition main is DOWN", "state=up"),
    # accounting
    "slurmdbd is silent": (slurm_says(database=(124, "")), "slurmdbd does not answer", "logs -n slurm slurmdbd-0"),
    "database is away": (both(slurm_says(database=(1, "")), lambda c: c.waiting("database-0", "ImagePullBackOff")),
        "pod database-0: mariadbd has no image", "and then kubectl delete -n slurm pod database-0"),
    "database is behind": (statistics("DBD Agent queue size", 5000), "the database is behind: 5000", "slurmdbd-0"),
    "backup": (failed_backup, "a backup, or a look at backups, has failed", "docs/restore.md"),
    "policy": (failed_job("policy-", "exit code 2"), "accounts, QOS and limits", "job/policy-"),
    # jobs
    "dependency": (queued("12", "DependencyNeverSatisfied"), "job 12 of alice never starts", "dependency="),
    "impossible constraints": (queued("12", "BadConstraints"), "asks for what no node has", "scontrol release 12"),
    "more memory than nodes have": (queued("12", "Resources", memory="100G"),
        "102400 MiB each; none of 2 nodes has that", "jobid=12"),
    "more memory than the partition has": (queued("12", "MaxMemPerLimit", memory="100G"),
        "asks for more memory than its partition or any node has", "jobid=12 minmemorynode="),
    "more nodes than there are": (queued("12", "Priority", wanted="3"),
        "asks for 3 nodes, and its partition has 2", "jobid=12"),
    "more GPUs than a node has": (queued("12", "Resources", node_tres="gres/gpu:a100:2"),
        "MiB each, 2 GPUs; none of 2 nodes has that", "jobid=12"),
    "more GPUs than all nodes have": (queued("12", "Priority", job_tres="gres/gpu:9"),
        "asks for 9 GPUs, and its nodes have none", "jobid=12"),
    "a feature that no node has": (queued("12", "Resources", feature="a100"),
        "MiB each, feature a100; none of 2 nodes has that", "jobid=12"),
    "more licenses than there are": (queued("12", "Licenses", licenses="matlab:3"),
        "asks for 3 of license matlab, and there are 2", "jobid=12"),
    "completing for minutes": (ending(600), "job 12 of alice has been completing for 10 min", "logs --job 12"),
    "limit of a job": (queued("12", "QOSMaxCpuPerJobLimit"), "more than one job may have", "slurmstack:qos"),
    "time limit of the partition": (queued("12", "PartitionTimeLimit"), "longer than its partition allows", "max_time"),
    "account": (queued("12", "InvalidAccount"), "its account does not exist", "sacctmgr show assoc user=alice"),
    "launch failed": (queued("12", "launch failed requeued held"),
        "job 12 of alice held: could not be started", "scontrol release 12"),
    "requeued and held": (queued("12", "job requeued in held state"),
        "job 12 of alice held: somebody has ended it", "scontrol release 12"),
    "requeue loop": (lambda c: c.job("12", "None", state="RUNNING", nodes="default-0", restarts=5),
        "was requeued 5 times", "requeuehold 12"),
    "no node takes jobs": (
        both(
            drained("new disks", by="root"),
            lambda c: c.node("default-0", "IDLE", "DRAIN", reason="new disks", by="root"),
            queued("12", "Resources"),
        ), "is drained by root: new disks", "state=resume"),
}  # fmt: skip
