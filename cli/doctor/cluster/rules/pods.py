"""Pods, what makes them, and the machines below them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cli.change.lock import LEASE, has_died
from cli.doctor.cluster.findings import SHOWN, Finding, Severity
from cli.kubectl.client import is_true
from cli.status.snapshot import Object, Pod, Snapshot, at, condition
from slurm.names import CONTROLLER, CONTROLLER_HOST, WORKER

RECENT = 900
"""Seconds for which a restart is told."""

OFTEN = 3
"""Restarts of a container, of which the last was recent: no accident any more."""

SLOW = 180
"""Seconds that a pod may take to get ready before that is told; workers and login nodes wait for the jail."""

SETTLING = 60
"""Seconds for which a pod may lack what the command that made it makes in the same moment."""

_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}

_MISSING = re.compile(r'FailedMount: .*\b(configmap|secret) "([^"]+)" not found')
_PUT_BACK = "`slurmstack preview`, then `slurmstack up` puts back what is missing"

_VOLUME = ("FailedMount", "FailedAttachVolume")

_PUSH = (
    "on the local cluster `slurmstack up` builds and loads it; elsewhere `slurmstack images push --pin`, then "
    "`slurmstack up` (private registry: images.pull_secret)"
)

_WAITS = {
    **dict.fromkeys((WORKER, "login"), ("jail", f"pod {CONTROLLER_HOST}")),
    "slurmdbd": ("pod database-0",),
    CONTROLLER: ("pod slurmdbd-0",),
}
"""Component -> what findings are about that its pods wait for at their start."""


def find(cluster: Snapshot) -> Iterator[Finding]:
    """All about pods."""
    yield from _machines(cluster)
    yield from _claims(cluster)
    for owner in cluster.of("StatefulSet", "Deployment", "Job") if cluster.knows("pods") else ():
        yield from _not_made(cluster, owner)
    for pod in cluster.pods:
        if pod.component != "jail" and not pod.is_done:  # rules.configuration has that one
            yield from _pod(cluster, pod)


def _machines(cluster: Snapshot) -> Iterator[Finding]:
    for item in cluster.of("Node"):
        name, kubelet = item["metadata"]["name"], condition(item, "Ready")
        on = [pod.name for pod in cluster.pods if pod.node == name and not pod.is_done]
        pressure = [kind for kind in ("DiskPressure", "MemoryPressure", "PIDPressure") if is_true(item, kind)]
        ready = kubelet.get("status") == "True"
        if not ready or pressure:
            problem = f"has {', '.join(pressure)}" if ready else "is not ready: its kubelet does not report"
            cause = f"the Kubernetes machine {name} {problem}"
            mend = f"kubectl describe node {name}; replace it (local: `slurmstack local up`)"
            seen = (kubelet.get("message", ""), f"its pods: {', '.join(on) or 'none of ours'}")
            after = ("slurmctld",) if name == cluster.slurmctld_lost_with else ()
            yield Finding(f"machine {name}", "error" if on else "warning", cause, mend, seen, after, len(on))


def _claims(cluster: Snapshot) -> Iterator[Finding]:
    for item in cluster.of("PersistentVolumeClaim"):
        name, phase = item["metadata"]["name"], item.get("status", {}).get("phase", "Unknown")
        if phase != "Bound":
            storage_class = item["spec"].get("storageClassName")
            kind = f"storage class {storage_class}" if storage_class else "a volume made for it"
            cause = f"the volume claim {name} is {phase.lower()}: it waits for {kind}"
            mend = cluster.kubectl(f"describe pvc {name}") + "; kubectl get storageclass,pv"
            yield Finding(f"claim {name}", "error", cause, mend, cluster.warned(item)[:2], weight=10)


def is_changing(cluster: Snapshot) -> bool:
    """Whether a command changes the cluster now."""
    return any(item["metadata"]["name"] == LEASE and not has_died(item) for item in cluster.of("Lease"))


def _not_made(cluster: Snapshot, owner: Object) -> Iterator[Finding]:
    """Pods that Kubernetes does not make."""
    kind, name, wanted = owner["kind"], owner["metadata"]["name"], owner["spec"].get("replicas", 1)
    if kind == "StatefulSet":
        missing = [pod for number in range(wanted) if not cluster.pod(pod := f"{name}-{number}")]
        about = f"pod {missing[0]}" if missing else ""
    else:  # a Deployment's pods are those of a ReplicaSet that has its name and a hash
        there = any(name == (pod.owner if kind == "Job" else pod.owner.rpartition("-")[0]) for pod in cluster.pods)
        missing = [] if there or not wanted or is_true(owner, "Complete") else ["its pod"]
        about = f"owner {name}"
    warnings = tuple(text for text in cluster.warned(owner) if text.startswith("FailedCreate"))[:1]
    if not missing or (is_true(owner, "Failed") and not warnings):
        return
    why = "Kubernetes refuses to make it" if warnings else "is not there"
    cause = f"{', '.join(missing[:4])} of {kind} {name}: {why}"
    after = ("apply", *(f"pod {pod.name}" for pod in cluster.pods if pod.owner == name))
    weight = len(missing) * (10 if name == CONTROLLER else 1)
    lasts = any(text.startswith("FailedCreate") for text in cluster.warned(owner, for_seconds=SETTLING))
    otherwise: Severity = "warning" if all(_stands_by(cluster, pod) for pod in missing) else "error"
    severity: Severity = "note" if is_changing(cluster) and not lasts else otherwise
    yield Finding(about, severity, cause, cluster.kubectl(f"describe {kind.lower()} {name}"), warnings, after, weight)


def _stands_by(cluster: Snapshot, pod: str) -> bool:
    """Whether it is the one of two controllers that is not needed now."""
    active = cluster.pod(cluster.active_controller)
    return pod.startswith(f"{CONTROLLER}-") and active is not None and active.is_up and pod != active.name


def _pod(cluster: Snapshot, pod: Pod) -> Iterator[Finding]:
    if pod.leaves:
        yield from _leaving(cluster, pod)
        return
    severity: Severity = "error"
    after: tuple[str, ...] = (f"machine {pod.node}",)
    if (unplaced := why_unplaced(pod)) and not pod.node:
        # It is what machines are added for. Slurm gives a node up where none comes.
        pools = cluster.config.worker_nodes
        awaited = pod.component == WORKER and pod.owner in pools and pools[pod.owner].is_elastic
        severity = "note" if awaited else "error"
        reason = unplaced.partition(" preemption:")[0].rstrip(".")
        cause, evidence = f" {'waits for a machine' if awaited else 'cannot be placed'}: {reason}", ""
        of = f"worker_nodes.{pod.owner}" if pod.component == WORKER and pod.owner else "the stack file"
        mend = f"add machines, or free some; or correct resources, tolerations or node_selector of {of}"
        if "volume" in reason.lower():
            mend = cluster.kubectl("get pvc,events")
            after = tuple(f"claim {claim['metadata']['name']}" for claim in cluster.of("PersistentVolumeClaim"))
        else:
            after = ()
    elif pod.phase == "Failed" and pod.owner_kind != "Job":  # an earlier try stays; rules.configuration has its Job
        severity = "error" if pod.component == WORKER else "warning"
        cause, evidence = f" has failed: {pod.status.get('reason', '')}", pod.status.get("message", "")
        mend = cluster.kubectl(f"describe pod {pod.name}")
    elif found := _not_well(cluster, pod):
        severity = "warning" if pod.ready or _stands_by(cluster, pod.name) else "error"
        cause, evidence, mend = found
        # An image is missing for itself.
        is_followed = pod.component == CONTROLLER and (cluster.pod(cluster.active_controller) or pod).ready
        if not (_PUSH in mend or is_followed):
            after += _WAITS.get(pod.component, ())
    else:
        return
    if is_changing(cluster) and cluster.now - at(pod.item["metadata"].get("creationTimestamp")) < SETTLING:
        severity, after = "note", (*after, "apply")
    seen = (evidence,) if evidence else ()
    weight = 20 if pod.name == cluster.active_controller else 5 if pod.component not in {WORKER, "login"} else 1
    yield Finding(f"pod {pod.name}", severity, f"pod {pod.name}{cause}", mend, seen, after, weight)


def why_unplaced(pod: Pod) -> str:
    """What the scheduler says, while there is no machine for a pod; empty where it has one."""
    placed = condition(pod.item, "PodScheduled")
    if placed.get("status", "True") == "True":
        return ""
    return str(placed.get("message") or placed.get("reason") or "no machine")


def _not_well(cluster: Snapshot, pod: Pod) -> tuple[str, str, str] | None:
    """What ails a pod that has a machine, in whose words, and what mends it; None if nothing does."""
    if problem := next(filter(None, (_container(cluster, pod, item) for item in pod.containers)), None):
        return problem
    # A machine that is made for it takes minutes.
    placed = condition(pod.item, "PodScheduled").get("lastTransitionTime")
    age = cluster.now - at(placed or pod.item["metadata"].get("creationTimestamp"))
    warnings = cluster.warned(pod.item)
    # Volumes come before the first container: of one that has started the warning is an old one.
    if pod.phase == "Pending" and not any(item.get("state", {}).keys() - {"waiting"} for item in pod.containers):
        for text, missing in ((text, _MISSING.match(text)) for text in warnings):
            if missing:
                kind = {"configmap": "ConfigMap", "secret": "Secret"}[missing[1]]
                return f" cannot start: there is no {kind} {missing[2]}", text, _PUT_BACK
    warning = next(iter(warnings), "")
    # Of a Job it is told only where no time helps: what it does, or pulls, may take long.
    late = pod.owner_kind != "Job" or (pod.phase == "Pending" and warning.startswith(_VOLUME))
    if not pod.ready and age > SLOW and late:
        logs = f"{cluster.kubectl(f'describe pod {pod.name}')}; {cluster.kubectl(f'logs {pod.name}')} --all-containers"
        return f" is not ready after {age / 60:.0f} min", warning, f"{logs} --tail 20"
    return None


def _container(cluster: Snapshot, pod: Pod, item: Object) -> tuple[str, str, str] | None:
    """The same of one of its containers."""
    waiting, ended = state_of(item)
    why, message = waiting.get("reason", ""), waiting.get("message") or ended.get("message") or ""
    logs, who = f"{cluster.kubectl(f'logs {pod.name}')} -c {item['name']}", f": {item['name']}"
    if why in _IMAGE | _CONFIG:
        if why in _IMAGE:
            cause, mend = f"{who} has no image: Kubernetes cannot pull it ({why})", _PUSH
        else:
            cause = f"{who} cannot be started ({why}), a Secret or ConfigMap may be missing"
            mend = _PUT_BACK
        if pod.owner_kind == "StatefulSet" and pod.component != WORKER:
            # They are made in order: before one is ready Kubernetes makes no other in its place, whatever is applied.
            mend += f", and then {cluster.kubectl(f'delete pod {pod.name}')}"
        return cause, message, mend
    if why and "OOMKilled" in (ended.get("reason"), why):
        mend = "give it more memory in the stack file, then `slurmstack up`"
        return f"{who} was killed for memory", message, mend
    code, restarts = ended.get("exitCode", 0), item.get("restartCount", 0)
    recent = 0 < cluster.now - at(ended.get("finishedAt")) < RECENT
    # Of two controllers the one that has handed over has ended once, as it should.
    is_one = pod.component == CONTROLLER and not _stands_by(cluster, pod.name)
    often = recent and restarts >= (1 if is_one else OFTEN)
    if why == "CrashLoopBackOff" or (code and often):
        last = f"the last with exit status {code} ({ended.get('reason', '')})"
        return f"{who} restarts: {restarts} times, {last}", _last_lines(message), f"{logs} --previous"
    return None


def _last_lines(log: str) -> str:
    """What Kubernetes keeps of a log is longer than what is shown, and its end says why the program ended."""
    return log if len(log) <= SHOWN else log[-SHOWN:].partition("\n")[2] or log[-SHOWN:]


def state_of(container: Object) -> tuple[Object, Object]:
    """Why a container does not run, and how it ended the last time; empty where it runs, or never ended."""
    state, last = container.get("state", {}), container.get("lastState", {})
    return state.get("waiting", {}), state.get("terminated") or last.get("terminated") or {}


def _leaving(cluster: Snapshot, pod: Pod) -> Iterator[Finding]:
    jobs, after = cluster.jobs_on.get(pod.name, ()), (f"machine {pod.node}",)
    metadata = pod.item["metadata"]
    left = at(metadata.get("deletionTimestamp")) - cluster.now
    # Slurm's pods may take days to end. One whose machine is lost does not end at all.
    overdue = -left + (metadata.get("deletionGracePeriodSeconds", 0) if cluster.has_lost(pod) else 0)
    if pod.component == WORKER and jobs:
        seen = tuple(f"job {job.id} of {job.user}, {job.state.lower()}" for job in jobs[:8])
        cause = f"{pod.name} leaves and waits for {len(jobs)} job{'s' if len(jobs) > 1 else ''}"
        mend = f"wait, or end them: {cluster.slurm('scancel ' + ' '.join(job.id for job in jobs[:8]))}"
        limit = f"it is ended in {left / 3600:.1f} h at the latest"
        yield Finding(f"pod {pod.name}", "note", cause, mend, (*seen, limit), after)
    elif overdue > 60:
        cause = f"pod {pod.name} should have ended {overdue / 60:.0f} min ago; its machine may be lost"
        mend = f"if the machine is gone for good: {cluster.kubectl(f'delete pod {pod.name} --force')}"
        yield Finding(f"pod {pod.name}", "error", cause, mend, after=after)
