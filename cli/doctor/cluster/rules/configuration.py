"""Slurm's configuration, what an `up` has left undone, the jail while it is filled, and slurmdbd with its database."""

from __future__ import annotations

from collections.abc import Iterator

from cli.change.lock import LEASE, has_died
from cli.doctor.cluster.findings import Finding, Severity
from cli.doctor.cluster.rules.pods import state_of, why_unplaced
from cli.kubectl.client import SILENT_SLURMDBD, component_of, is_true
from cli.status.snapshot import Snapshot, at, condition
from config.rules.nodes import HIDDEN
from slurm.elastic import settings
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, BACKUP, DATABASE, ELASTIC_SETTINGS, LOGIN, WORKER


def find(cluster: Snapshot) -> Iterator[Finding]:
    """All about configuration and accounting."""
    yield from _configuration(cluster)
    yield from _jobs(cluster)
    yield from _apply(cluster)
    yield from _pools(cluster)
    yield from _partitions(cluster)
    if cluster.slurmdbd_answers is False:
        cause = f"{SILENT_SLURMDBD}: sacct, sacctmgr and limits by account do not work; jobs go on"
        mend = cluster.kubectl(f"logs {ACCOUNTING_HOST} -c {ACCOUNTING} --tail 20")
        after = (f"pod {ACCOUNTING_HOST}", f"pod {DATABASE}-0", "slurmctld")
        yield Finding("accounting", "error", cause, mend, after=after, weight=5)


def deleted_namespace(cluster: Snapshot) -> Finding | None:
    """The cluster's namespace, if it is being deleted: nothing can be made in it any more, and nobody can stop that."""
    for item in cluster.of("Namespace"):
        if deleted := item["metadata"].get("deletionTimestamp"):
            cause = f"the namespace {cluster.namespace} is being deleted, with all that is in it, since {deleted}"
            mend = (
                f"wait until `kubectl get namespace {cluster.namespace}` finds none, then `slurmstack up`; data of its "
                "volumes comes back from a backup (docs/restore.md)"
            )
            conditions = item.get("status", {}).get("conditions", [])
            seen = [one.get("message", "") for one in conditions if one["status"] == "True"]
            # Kubernetes ends pods before all else, and says nothing of those that it waits for, as of jobs.
            if left := [pod.name for pod in cluster.pods if not pod.is_done]:
                seen.append(f"its pods have to end first: {', '.join(left[:8])}")
            return Finding("namespace", "error", cause, mend, tuple(seen))
    return None


def _pools(cluster: Snapshot) -> Iterator[Finding]:
    """Pools of which there is nothing, or of an elastic one something else: not applied yet, or changed by hand."""
    there = {item["metadata"]["name"] for item in cluster.of("StatefulSet")}
    told = {item["metadata"]["name"]: item["metadata"].get("annotations") or {} for item in cluster.of("PodTemplate")}
    for name, pool in cluster.config.worker_nodes.items() if cluster.knows("workloads") else ():
        cause = f"the stack file wants {pool.most} nodes of pool {name}, and the cluster has nothing of it"
        if name in told and told[name].get(ELASTIC_SETTINGS) != settings(name, pool):
            cause = f"PodTemplate {name} does not have what the stack file says of the elastic pool"
        elif pool.most == 0 or name in (told if pool.is_elastic else there):
            continue
        mend, after = "slurmstack preview, then `slurmstack up`", ("apply", "configuration")
        yield Finding(f"pool {name}", "warning", cause, mend, after=after, weight=pool.most)


def _partitions(cluster: Snapshot) -> Iterator[Finding]:
    for name, state in cluster.partitions.items():
        if name.startswith(HIDDEN) and state == "INACTIVE":
            continue  # it only carries the times of an elastic pool, and never takes a job
        severity: Severity = "warning"
        cause = f"partition {name} is {state}"
        if state == "DRAIN":
            cause = f"partition {name} takes no new jobs: it has left the stack file, or somebody closed it"
            severity = "note"
        seen = f"{sum(name in job.partitions for job in cluster.jobs)} jobs are in it"
        mend = cluster.slurm(f"scontrol update partitionname={name} state=up")
        yield Finding(f"partition {name}", severity, cause, mend, (seen,))


def _configuration(cluster: Snapshot) -> Iterator[Finding]:
    state, wanted = cluster.configuration or {}, cluster.wanted_configuration
    active, rejected = state.get("active"), state.get("rejected")
    if not state or (active == wanted and not rejected):
        return
    if rejected and active != wanted:
        goes_on = "; the old one goes on" if active else ", and has none that it runs with"
        cause = f"Slurm refuses its new configuration{goes_on}"
        mend = "correct slurmstack:slurm.settings, or what the message names, then `slurmstack up`"
        yield Finding("configuration", "error", cause, mend, (rejected.get("message", ""),), weight=15)
    elif state.get("pending"):
        cause = "a new Slurm configuration is on its way: slurmctld has not taken it yet"
        mend = "wait a minute; " + cluster.kubectl("logs service/controller-0 -c config-agent --tail 20")
        yield Finding("configuration", "note", cause, mend)
    elif active != wanted:
        cause = "Slurm runs with another configuration than the stack file makes"
        seen = f"active: {active}; of the stack file: {wanted}"
        yield Finding(
            "configuration", "warning", cause, "slurmstack preview, then `slurmstack up`", (seen,), ("apply",)
        )


def _jobs(cluster: Snapshot) -> Iterator[Finding]:
    """Kubernetes Jobs of an `up` that have failed, and the one that fills the jail until it is done."""
    for job in cluster.of("Job"):
        name, component, failed = job["metadata"]["name"], component_of(job), condition(job, "Failed")
        why = failed.get("message") or failed.get("reason") or "failed" if failed.get("status") == "True" else ""
        logs = cluster.kubectl(f"logs job/{name} --all-containers --tail 5")
        if component == "jail" and not is_true(job, "Complete"):
            yield from _populating(cluster, name, why)
        elif why and component == BACKUP:
            cause = f"a backup, or a look at backups, has failed: {name}"
            yield Finding(f"job {name}", "error", cause, f"{logs}; docs/restore.md", (why,), weight=2)
        elif why:
            cause, after = f"a step of the last `up` has failed: {name}", ("jail", "configuration", "accounting")
            yield Finding(f"job {name}", "error", cause, f"{logs}; then `slurmstack up`", (why,), after, 2)


def _populating(cluster: Snapshot, job: str, failed: str) -> Iterator[Finding]:
    """Login and worker nodes wait until the jail is whole. Pods of earlier tries stay: the last one tells.

    Where none waits, it is whole, and Kubernetes has not counted the Job's pod yet.
    """
    made = {at(pod.item["metadata"].get("creationTimestamp")): pod for pod in cluster.pods if pod.owner == job}
    problems = [failed]
    for pod in [made[max(made)]] if made else []:
        states = [state_of(item) for item in pod.containers]
        problems += [why_unplaced(pod)]
        problems += [f"{waits['reason']} {waits.get('message', '')}" for waits, _ in states if waits.get("reason")]
        problems += [f"it ended with exit status {ended['exitCode']}" for _, ended in states if ended.get("exitCode")]
    problems = [text for text in problems if text and not text.startswith("ContainerCreating")]
    logs, after = cluster.kubectl(f"logs job/{job} --tail 5"), ("claim jail", f"owner {job}")
    if problems:
        mend = f"{logs}; correct what it says (a volume that is too small: jail.size), then `slurmstack up`"
        yield Finding("jail", "error", "the jail could not be populated", mend, tuple(problems[:2]), after, 15)
    elif not all(pod.is_up for pod in cluster.pods if component_of(pod.item) in {LOGIN, WORKER}):
        cause = "the jail is being populated; login and worker nodes wait until it is whole"
        yield Finding("jail", "note", cause, logs, after=after, weight=15)


def _apply(cluster: Snapshot) -> Iterator[Finding]:
    """The lock of an `up` or `destroy` of the kubectl way."""
    for lease in cluster.of("Lease"):
        if lease["metadata"]["name"] != LEASE:
            continue
        age = cluster.now - at(lease["metadata"].get("creationTimestamp"))
        since = f"{age / 60:.0f} min" if age >= 60 else f"{age:.0f} s"
        seen = (lease.get("spec", {}).get("holderIdentity") or "somebody",)
        if has_died(lease):
            cause = f"a command that began {since} ago was cut short: the cluster may be half changed"
            mend = "run the same command again: it finishes what is left"
            yield Finding("apply", "error", cause, mend, seen, weight=12)
        else:
            cause = f"another command has been changing the cluster for {since}"
            mend = f"wait for it; if it has ended without a word: {cluster.kubectl(f'delete lease {LEASE}')}"
            yield Finding("apply", "note", cause, mend, seen, weight=12)
