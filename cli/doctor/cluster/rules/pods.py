"""Pods, what makes them, and the machines below them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cli.doctor.cluster.facts import Container, Facts, Owner, Pod
from cli.doctor.cluster.findings import Finding, Severity
from slurm.names import CONTROLLER, CONTROLLER_HOST, WORKER

RECENT = 900
"""Seconds for which a restart is told."""

OFTEN = 3
"""Restarts of a container, of which the last was recent: no accident any more."""

SLOW = 180
"""Seconds that a pod may take to get ready before that is told; workers and login nodes wait for the jail."""

_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}

_VOLUME = re.compile("FailedMount|FailedAttachVolume")

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


def find(facts: Facts) -> Iterator[Finding]:
    """All about pods."""
    yield from _machines(facts)
    yield from _claims(facts)
    for owner in facts.owners:
        yield from _not_made(facts, owner)
    for pod in facts.pods:
        if pod.component != "jail" and not pod.is_done:  # rules.configuration has that one
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
                mend=f"kubectl describe node {machine.name}; replace it (local: `slurmstack local up`)",
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
    """Pods that Kubernetes does not make."""
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
    why = "Kubernetes refuses to make it" if said else "is not there"
    yield Finding(
        about=f"pod {missing[0]}" if missing[0] != "its pod" else f"owner {owner.name}",
        severity="error",
        cause=f"{', '.join(missing[:4])} of {owner.kind} {owner.name}: {why}",
        evidence=(said,) if said else (),
        mend=facts.kubectl(f"describe {owner.kind.lower()} {owner.name}"),
        after=("apply", *(f"pod {pod.name}" for pod in facts.pods if pod.owner == owner.name)),
        weight=len(missing) * (10 if owner.name == CONTROLLER else 1),
    )


def _pod(facts: Facts, pod: Pod) -> Iterator[Finding]:
    if pod.leaving:
        yield from _leaving(facts, pod)
        return
    severity: Severity = "error"
    after: tuple[str, ...] = (f"machine {pod.machine}",)
    if pod.unschedulable and not pod.machine:
        # It is what machines are added for. Slurm gives a node up where none comes.
        awaited = pod.component == WORKER and pod.owner in facts.pools and facts.pools[pod.owner].elastic
        severity = "note" if awaited else "error"
        said = pod.unschedulable.partition(" preemption:")[0].rstrip(".")
        cause, evidence = f" {'waits for a machine' if awaited else 'cannot be placed'}: {said}", ""
        of = f"worker_nodes.{pod.owner}" if pod.component == WORKER and pod.owner else "the stack file"
        mend = f"add machines, or free some; or correct resources, tolerations or node_selector of {of}"
        if "volume" in said.lower():
            mend = facts.kubectl("get pvc,events")
            after = tuple(f"claim {claim.name}" for claim in facts.claims)
        else:
            after = ()
    elif pod.phase == "Failed" and pod.owner_kind != "Job":  # an earlier try stays; rules.configuration has its Job
        severity = "error" if pod.component == WORKER else "warning"
        cause, evidence = f" has failed: {pod.why}", pod.message
        mend = facts.kubectl(f"describe pod {pod.name}")
    elif found := _not_well(facts, pod):
        severity = "warning" if pod.ready else "error"
        cause, evidence, mend = found
        if not (pod.component == CONTROLLER and (facts.pod(CONTROLLER_HOST) or pod).ready):
            after += _WAITS.get(pod.component, ())
    else:
        return
    yield Finding(
        about=f"pod {pod.name}",
        severity=severity,
        cause=f"pod {pod.name}{cause}",
        evidence=(evidence,) if evidence else (),
        mend=mend,
        after=after,
        weight=20 if pod.name == CONTROLLER_HOST else 5 if pod.component not in {WORKER, "login"} else 1,
    )


def _not_well(facts: Facts, pod: Pod) -> tuple[str, str, str] | None:
    """What ails a pod that has a machine, in whose words, and what mends it; None if nothing does."""
    if ill := next(filter(None, (_container(facts, pod, item) for item in pod.containers)), None):
        return ill
    age = facts.now - (pod.placed_at or pod.created_at)  # a machine that is made for it takes minutes
    # Of a Job it is told only where no time helps: what it does, or pulls, may take long.
    late = pod.owner_kind != "Job" or (pod.phase == "Pending" and pod.warnings and _VOLUME.match(pod.warnings[0]))
    if not pod.ready and age > SLOW and late:
        logs = f"{facts.kubectl(f'describe pod {pod.name}')}; {facts.kubectl(f'logs {pod.name}')} --all-containers"
        return f" is not ready after {age / 60:.0f} min", next(iter(pod.warnings), ""), f"{logs} --tail 20"
    return None


def _container(facts: Facts, pod: Pod, item: Container) -> tuple[str, str, str] | None:
    """The same of one of its containers."""
    logs, who = f"{facts.kubectl(f'logs {pod.name}')} -c {item.name}", f": {item.name}"
    if item.waiting in _IMAGE | _CONFIG:
        if item.waiting in _IMAGE:
            cause, mend = f"{who} has no image: Kubernetes cannot pull it ({item.waiting})", _PUSH
        else:
            cause = f"{who} cannot be started ({item.waiting}), a Secret or ConfigMap may be missing"
            mend = "`slurmstack preview`, then `slurmstack up` puts back what is missing"
        if pod.owner_kind == "StatefulSet" and pod.component != WORKER:
            # They are made in order: before one is ready Kubernetes makes no other in its place, whatever is applied.
            mend += f", and then {facts.kubectl(f'delete pod {pod.name}')}"
        return cause, item.message, mend
    if item.waiting and "OOMKilled" in (item.ended, item.waiting):
        mend = "give it more memory in the stack file, then `slurmstack up`"
        return f"{who} was killed for memory", item.message, mend
    recent = 0 < facts.now - item.ended_at < RECENT
    often = recent and item.restarts >= (1 if pod.component == CONTROLLER else OFTEN)
    if item.waiting == "CrashLoopBackOff" or (item.code and often):
        ended = f"the last with exit status {item.code} ({item.ended})"
        return f"{who} restarts: {item.restarts} times, {ended}", item.message, f"{logs} --previous"
    return None


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
    elif left < -60:
        yield Finding(
            about=f"pod {pod.name}",
            severity="error",
            cause=f"pod {pod.name} should have ended {-left / 60:.0f} min ago; its machine may be lost",
            mend=f"if the machine is gone for good: {facts.kubectl(f'delete pod {pod.name} --force')}",
            after=(f"machine {pod.machine}",),
        )
