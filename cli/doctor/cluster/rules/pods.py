"""Pods, what makes them, and the machines below them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cli.doctor.cluster.facts import Container, Facts, Owner, Pod
from cli.doctor.cluster.findings import Finding
from slurm.names import CONTROLLER, CONTROLLER_HOST, LOG_SHIPPER, WORKER

RECENT = 900
"""Seconds for which a restart is told."""

OFTEN = 3
"""Restarts of a container, of which the last was recent: no accident any more."""

SLOW = 180
"""Seconds that a pod may take to get ready before that is told; workers and login nodes wait for the jail."""

_UNPLACED = (
    (
        r"[Uu]nbound immediate PersistentVolumeClaims|volume node affinity conflict|persistentvolumeclaim .* not found",
        "its volume is not there, or elsewhere",
        "kubectl: get pvc,events",
    ),
    (
        r"Insufficient ([\w./-]*\w)",
        "no machine has enough {0} left",
        "add machines, free some, or lower worker_nodes.{pool}.resources in the stack file; then `slurmstack up`",
    ),
    (r"Too many pods", "every machine that fits has as many pods as it may", "add machines to the Kubernetes cluster"),
    (
        # Kubernetes' own, which say that a machine is ill: to tolerate one, or to take it away, would mend nothing.
        r"untolerated taint(?:\(s\))? ?\{node\.kubernetes\.io/([\w-]+)",
        "machines that may fit are {0}, as Kubernetes says",
        "kubectl get nodes, then kubectl describe node MACHINE; mend or replace it",
    ),
    (
        r"untolerated taint(?:\(s\))? ?(\{[^}]*\})",
        "the machines have the taint {0}, which the pod does not tolerate",
        "add it to worker_nodes.{pool}.tolerations and `slurmstack up`, or: kubectl taint nodes MACHINE KEY-",
    ),
    (
        r"untolerated taint",  # as Kubernetes says it from 1.34 on
        "the machines have a taint that the pod does not tolerate",
        (
            "kubectl describe nodes shows it; add it to worker_nodes.{pool}.tolerations and `slurmstack up`, or: "
            "kubectl taint nodes MACHINE KEY-"
        ),
    ),
    # Before what the others lack: a cordoned machine is not even asked whether it has the labels.
    (r"were unschedulable", "the machines that may fit are cordoned", "kubectl uncordon MACHINE"),
    (
        r"didn't match Pod's node affinity/selector",
        "no machine has the labels that it asks for",
        "kubectl get nodes --show-labels, then correct worker_nodes.{pool}.node_selector and `slurmstack up`",
    ),
)
"""What the scheduler writes, the most telling first: where most machines are tainted, those that are not lack room."""

_OF_NO_POOL = {
    "no machine has enough {0} left": "add machines, or free some",
    "the machines have the taint {0}, which the pod does not tolerate": "kubectl taint nodes MACHINE KEY-",
    "the machines have a taint that the pod does not tolerate": "kubectl describe nodes shows it; kubectl taint nodes "
    "MACHINE KEY-",
    "no machine has the labels that it asks for": "kubectl get nodes --show-labels",
}
"""What mends it where the pod is no worker, and so has no section in the stack file that says where it runs."""

_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}
_OF_THE_SITE = {
    **dict.fromkeys(_IMAGE, "it is pulled as it is named: correct logs.otlp.image, then `slurmstack up`"),
    **dict.fromkeys(_CONFIG, "make the Secrets that logs.otlp.headers names, each with the key `value`"),
}
"""Of the log shipper, whose image and Secrets are none of ours."""

_PUSH = (
    "on the local cluster `slurmstack up` builds and loads it; elsewhere `slurmstack images push --pin`, then "
    "`slurmstack up` (private registry: images.pull_secret)"
)


def find(facts: Facts) -> Iterator[Finding]:
    """All about pods."""
    yield from _machines(facts)
    yield from _claims(facts)
    for owner in facts.owners:
        yield from _not_made(facts, owner)
    for pod in facts.pods:
        # rules.jail has that one.
        ended = pod.is_done and not pod.leaving  # one that leaves is in the way of the next one while it is there
        if pod.component != "jail" and not ended:
            yield from _pod(facts, pod)


def _machines(facts: Facts) -> Iterator[Finding]:
    for machine in facts.machines:
        on = [pod.name for pod in facts.pods if pod.machine == machine.name and not pod.is_done]
        if not machine.ready or machine.pressure:
            ill = f"has {', '.join(machine.pressure)}" if machine.ready else "is not ready: its kubelet does not report"
            yield Finding(
                about=f"machine {machine.name}",
                severity="error" if on else "warning",
                cause=f"the Kubernetes machine {machine.name} {ill}",
                evidence=(machine.message, f"its pods: {', '.join(on) or 'none of ours'}"),
                mend=f"kubectl describe node {machine.name}; restart or replace the machine"
                + ("; on the local cluster `slurmstack local up`" if machine.name.startswith("node-") else ""),
                weight=len(on),
            )


def _claims(facts: Facts) -> Iterator[Finding]:
    for claim in facts.claims:
        if claim.phase != "Bound":
            kind = f"storage class {claim.storage_class}" if claim.storage_class else "a volume made for it"
            yield Finding(
                about=f"claim {claim.name}",
                severity="error",
                cause=f"the volume claim {claim.name} is {claim.phase.lower()}: it waits for {kind}",
                evidence=claim.warnings[:2],
                mend=facts.kubectl(f"describe pvc {claim.name}") + "; kubectl get storageclass,pv",
                weight=10,
            )


def _not_made(facts: Facts, owner: Owner) -> Iterator[Finding]:
    """Pods that Kubernetes refuses to make."""
    if not facts.knows("pods"):
        return
    if owner.kind == "Job":
        missing = [] if owner.is_done or any(pod.owner == owner.name for pod in facts.pods) else ["its pod"]
    elif owner.kind == "StatefulSet":
        missing = [name for number in range(owner.wanted) if not facts.pod(name := f"{owner.name}-{number}")]
    else:
        there = [pod for pod in facts.pods if pod.owner.rpartition("-")[0] == owner.name]
        missing = ["its pod"] if owner.wanted and not there else []
    said = next((text for text in owner.warnings if text.startswith("FailedCreate")), "")
    if not missing or (owner.failed and not said):
        return
    quota = "exceeded quota" in said
    if quota:
        cause = f"a quota of the namespace does not let Kubernetes make {', '.join(missing[:4])}"
    elif said:
        cause = f"Kubernetes refuses to make {', '.join(missing[:4])} of {owner.kind} {owner.name}"
    else:
        cause = f"{', '.join(missing[:4])} of {owner.kind} {owner.name} is not there"
    look = facts.kubectl(f"describe {owner.kind.lower()} {owner.name}")
    yield Finding(
        about=f"pod {missing[0]}" if missing[0] != "its pod" else f"owner {owner.name}",
        severity="error",
        cause=cause,
        evidence=(said,) if said else (),
        mend=f"{facts.kubectl('describe resourcequota')}; raise it, or lower the pool's size" if quota else look,
        after=("apply", *(f"pod {pod.name}" for pod in facts.pods if pod.owner == owner.name)),
        weight=len(missing) * (10 if owner.name == CONTROLLER else 1),
    )


def _pod(facts: Facts, pod: Pod) -> Iterator[Finding]:
    about, after = f"pod {pod.name}", (f"machine {pod.machine}",)
    weight = 20 if pod.name == CONTROLLER_HOST else 5 if pod.component not in {WORKER, "login"} else 1
    if pod.leaving:
        yield from _leaving(facts, pod)
    elif pod.unschedulable and not pod.machine:
        cause, mend = _unplaced(facts, pod)
        claims = tuple(f"claim {claim.name}" for claim in facts.claims) if "volume" in cause else ()
        awaited = _is_awaited(facts, pod)
        yield Finding(
            about=about,
            severity="note" if awaited else "error",
            cause=f"pod {pod.name} {'waits for a machine' if awaited else 'cannot be placed'}: {cause}",
            evidence=(pod.unschedulable,),
            mend=mend,
            after=claims,
            weight=weight,
        )
    elif pod.phase == "Failed" and pod.why == "Evicted":
        yield Finding(
            about=about,
            severity="error" if pod.component == WORKER else "warning",
            cause=f"pod {pod.name} was evicted: its machine ran out of memory or disk",
            evidence=(pod.message,),
            mend=f"kubectl describe node {pod.machine}",
            after=after,
            weight=weight,
        )
    else:
        yield from _containers(facts, pod, about, after, weight)


def _is_awaited(facts: Facts, pod: Pod) -> bool:
    """Whether a pod without a machine is what machines are added for. Slurm gives a node up where none comes."""
    return pod.component == WORKER and pod.owner in facts.pools and facts.pools[pod.owner].elastic


def _unplaced(facts: Facts, pod: Pod) -> tuple[str, str]:
    for pattern, cause, mend in _UNPLACED:
        found = re.search(pattern, pod.unschedulable)
        if found:
            what = next((group for group in found.groups() if group), "of those machines")
            fitting = mend if pod.component == WORKER else _OF_NO_POOL.get(cause, mend)
            words = fitting.replace("{pool}", pod.owner or "POOL")
            return cause.format(what), facts.kubectl("get pvc,events") if words.startswith("kubectl:") else words
    return "no machine suits it", facts.kubectl(f"describe pod {pod.name}")


def _containers(facts: Facts, pod: Pod, about: str, after: tuple[str, ...], weight: int) -> Iterator[Finding]:
    """A pod that has a machine, and does not run well there."""
    logs = facts.kubectl(f"logs {pod.name}")
    age = facts.now - (pod.placed_at or pod.created_at)  # a machine that is made for it takes minutes
    for item in pod.containers:
        cause, evidence, mend = _container(item, logs)
        if pod.component == LOG_SHIPPER and item.waiting in _OF_THE_SITE:
            mend = _OF_THE_SITE[item.waiting]
        elif item.waiting in _IMAGE | _CONFIG and pod.owner_kind == "StatefulSet" and pod.component != WORKER:
            # They are made in order: before one is ready Kubernetes makes no other in its place, whatever is applied.
            mend += f", and then {facts.kubectl(f'delete pod {pod.name}')}"
        recent = 0 < facts.now - item.ended_at < RECENT
        restarting = item.restarts and recent and (item.restarts >= OFTEN or pod.component == CONTROLLER)
        if not cause and restarting and item.code:
            cause = f"restarts: {item.restarts} times, the last with exit status {item.code} ({item.ended})"
            evidence, mend = item.message, f"{logs} -c {item.name} --previous"
        if cause:
            yield Finding(
                about=about,
                severity="warning" if pod.ready else "error",
                cause=f"pod {pod.name}: {item.name} {cause}",
                evidence=(evidence,) if evidence else (),
                mend=mend,
                after=_needs(facts, pod, after),
                weight=weight,
            )
            return
    volume = next((text for text in pod.warnings if re.match("FailedMount|FailedAttachVolume", text)), "")
    started = any(item.ended or not item.waiting for item in pod.containers)
    if volume and not pod.ready and not started:
        cause, mend = "waits for a volume that cannot be mounted", facts.kubectl(f"describe pod {pod.name}")
        evidence = volume
    elif not pod.ready and age > SLOW and pod.owner_kind != "Job":
        cause, mend = f"is not ready after {age / 60:.0f} min", f"{logs} --all-containers --tail 20"
        evidence = next(iter(pod.warnings), "")
    else:
        return
    yield Finding(
        about=about,
        severity="error",
        cause=f"pod {pod.name} {cause}",
        evidence=(evidence,) if evidence else (),
        mend=mend,
        after=_needs(facts, pod, after),
        weight=weight,
    )


def _container(item: Container, logs: str) -> tuple[str, str, str]:
    """What ails it, in whose words, and what mends it; empty if nothing does."""
    if item.waiting in _IMAGE:
        return f"has no image: Kubernetes cannot pull it ({item.waiting})", item.message, _PUSH
    if item.waiting in _CONFIG:
        mend = "`slurmstack preview`, then `slurmstack up` puts back what is missing"
        return f"cannot be started ({item.waiting}), a Secret or ConfigMap may be missing", item.message, mend
    memory = "OOMKilled" in (item.ended, item.waiting)
    if memory and item.waiting:
        return "was killed for memory", item.message, "give it more memory in the stack file, then `slurmstack up`"
    if item.waiting == "CrashLoopBackOff":
        ended = f"exit status {item.code}" if item.ended else "no exit status"
        return f"ends again and again ({ended}, {item.restarts} restarts)", item.message, f"{logs} -c {item.name} -p"
    return "", "", ""


def _needs(facts: Facts, pod: Pod, after: tuple[str, ...]) -> tuple[str, ...]:
    """What a pod waits for at its start."""
    waits: dict[str, tuple[str, ...]] = {
        WORKER: ("jail", f"pod {CONTROLLER_HOST}"),
        "login": ("jail", f"pod {CONTROLLER_HOST}"),
    }
    waits |= {"slurmdbd": ("pod database-0",), CONTROLLER: ("pod slurmdbd-0",)}
    if pod.component == CONTROLLER and (facts.pod(CONTROLLER_HOST) or pod).ready:
        return after
    return after + waits.get(pod.component, ())


def _leaving(facts: Facts, pod: Pod) -> Iterator[Finding]:
    jobs = facts.jobs_on.get(pod.name, ())
    left = pod.killed_at - facts.now
    if pod.component == WORKER and jobs:
        listed = tuple(f"job {job.id} of {job.user}, {job.state.lower()}" for job in jobs[:8])
        limit = f"it is ended in {left / 3600:.1f} h at the latest"
        yield Finding(
            about=f"pod {pod.name}",
            severity="note",
            cause=f"{pod.name} leaves and waits for {len(jobs)} job{'s' if len(jobs) > 1 else ''}",
            evidence=(*listed, limit),
            mend=f"wait, or end them: {facts.slurm('scancel ' + ' '.join(job.id for job in jobs[:8]))}",
            after=(f"machine {pod.machine}",),
        )
    elif left < -60 and pod.kept_by and pod.phase in {"Succeeded", "Failed"}:
        yield Finding(
            about=f"pod {pod.name}",
            severity="error",
            cause=f"pod {pod.name} has ended {-left / 60:.0f} min ago and is kept by the finalizer {pod.kept_by[0]}",
            evidence=(f"finalizers: {', '.join(pod.kept_by)}; no other pod of this name can be made meanwhile",),
            mend=f"whoever set it takes it away; if that is gone for good: {facts.kubectl(f'edit pod {pod.name}')}",
        )
    elif left < -60 and not pod.is_done:
        yield Finding(
            about=f"pod {pod.name}",
            severity="error",
            cause=f"pod {pod.name} should have ended {-left / 60:.0f} min ago; its machine may be lost",
            mend=f"if the machine is gone for good: {facts.kubectl(f'delete pod {pod.name} --force')}",
            after=(f"machine {pod.machine}",),
        )
