"""Slurm's configuration, what an `up` has left undone, the jail while it is filled, and slurmdbd with its database."""

from __future__ import annotations

from collections.abc import Iterator

from cli.change.lock import LEASE
from cli.doctor.cluster.facts import Facts, Owner
from cli.doctor.cluster.findings import Finding
from cli.kubectl.client import SILENT_SLURMDBD
from config.rules.nodes import HIDDEN
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, BACKUP, DATABASE


def find(facts: Facts) -> Iterator[Finding]:
    """All about configuration, drift and accounting."""
    yield from _configuration(facts)
    yield from _jobs(facts)
    yield from _apply(facts)
    yield from _drift(facts)
    for name, state in facts.partitions.items():
        if name.startswith(HIDDEN) and state == "INACTIVE":
            continue  # it only carries the times of an elastic pool, and never takes a job
        leaving = state == "DRAIN"
        yield Finding(
            about=f"partition {name}",
            severity="note" if leaving else "warning",
            cause=f"partition {name} "
            + ("takes no new jobs: it has left the stack file, or somebody closed it" if leaving else f"is {state}"),
            evidence=(f"{sum(name in job.partitions for job in facts.jobs)} jobs are in it",),
            mend=facts.slurm(f"scontrol update partitionname={name} state=up"),
        )
    yield from _accounting(facts)


def _configuration(facts: Facts) -> Iterator[Finding]:
    state = facts.configuration
    active, rejected = state.get("active"), state.get("rejected")
    if not state or (active == facts.wanted_configuration and not rejected):
        return
    if rejected and active != facts.wanted_configuration:
        yield Finding(
            about="configuration",
            severity="error",
            cause="Slurm refuses its new configuration"
            + ("; the old one goes on" if active else ", and has none that it runs with"),
            evidence=(rejected.get("message", ""),),
            mend="correct slurmstack:slurm.settings, or what the message names, then `slurmstack up`",
            weight=15,
        )
    elif state.get("pending"):
        yield Finding(
            about="configuration",
            severity="note",
            cause="a new Slurm configuration is on its way: slurmctld has not taken it yet",
            mend="wait a minute; " + facts.kubectl("logs service/controller-0 -c config-agent --tail 20"),
        )
    elif active != facts.wanted_configuration:
        yield Finding(
            about="configuration",
            severity="warning",
            cause="Slurm runs with another configuration than the stack file makes",
            evidence=(f"active: {active}; of the stack file: {facts.wanted_configuration}",),
            mend="slurmstack preview, then `slurmstack up`",
            after=("apply",),
        )


def _jobs(facts: Facts) -> Iterator[Finding]:
    """Kubernetes Jobs of an `up` that have failed, and the one that fills the jail until it is done."""
    for owner in facts.owners:
        if owner.kind == "Job" and owner.component == "jail" and not owner.is_done:
            yield _populating(facts, owner)
        elif owner.kind == "Job" and owner.failed:
            cause, then = f"a step of the last `up` has failed: {owner.name}", "then `slurmstack up`"
            if owner.component == BACKUP:
                cause, then = f"a backup, or a look at backups, has failed: {owner.name}", "docs/restore.md"
            yield Finding(
                about=f"job {owner.name}",
                severity="error",
                cause=cause,
                evidence=(owner.failed,),
                mend=f"{facts.kubectl(f'logs job/{owner.name} --all-containers --tail 5')}; {then}",
                after=() if owner.component == BACKUP else ("jail", "configuration", "accounting"),
                weight=2,
            )


def _populating(facts: Facts, owner: Owner) -> Finding:
    """Login and worker nodes wait until the jail is whole. Pods of earlier tries stay: the last one tells."""
    pods = sorted((pod for pod in facts.pods if pod.owner == owner.name), key=lambda pod: pod.created_at)[-1:]
    items = [item for pod in pods for item in pod.containers]
    ill = [owner.failed, *(pod.unschedulable for pod in pods)]
    ill += [f"{item.waiting} {item.message}" for item in items if item.waiting not in {"", "ContainerCreating"}]
    ill = [*filter(None, ill), *(f"it ended with exit status {item.code}" for item in items if item.code)]
    logs = facts.kubectl(f"logs job/{owner.name} --tail 5")
    correct = "; correct what it says (a volume that is too small: jail.size), then `slurmstack up`"
    return Finding(
        about="jail",
        severity="error" if ill else "note",
        cause="the jail could not be populated"
        if ill
        else "the jail is being populated; login and worker nodes wait until it is whole",
        evidence=tuple(ill[:2]),
        mend=logs + (correct if ill else ""),
        after=("claim jail",),
        weight=15,
    )


def _apply(facts: Facts) -> Iterator[Finding]:
    if facts.lease is None:
        return
    died, age = facts.lease.died, facts.lease.age
    since = f"{age / 60:.0f} min" if age >= 60 else f"{age:.0f} s"
    free = facts.kubectl(f"delete lease {LEASE}")
    yield Finding(
        about="apply",
        severity="error" if died else "note",
        cause=f"a command that began {since} ago was cut short: the cluster may be half changed"
        if died
        else f"another command has been changing the cluster for {since}",
        evidence=(facts.lease.holder,),
        mend="run the same command again: it finishes what is left"
        if died
        else f"wait for it; if it has ended without a word: {free}",
        weight=12,
    )


def _drift(facts: Facts) -> Iterator[Finding]:
    told = {owner.name: owner.wanted for owner in facts.owners if owner.kind == "StatefulSet"}
    for name, pool in facts.pools.items() if facts.knows("workloads") else ():
        if not pool.elastic and told.get(name, 0) != pool.size:
            has = f"{told[name]} nodes" if name in told else "nothing of it"
            yield Finding(
                about=f"pool {name}",
                severity="warning",
                cause=f"pool {name} is not as in the stack file: it wants {pool.size} nodes, the cluster has {has}",
                mend="slurmstack preview, then `slurmstack up`",
                after=("apply",),
                weight=abs(told.get(name, 0) - pool.size),
            )


def _accounting(facts: Facts) -> Iterator[Finding]:
    if facts.slurmdbd_answers is False:
        yield Finding(
            about="accounting",
            severity="error",
            cause=f"{SILENT_SLURMDBD}: sacct, sacctmgr and limits by account do not work; jobs go on",
            mend=facts.kubectl(f"logs {ACCOUNTING_HOST} -c {ACCOUNTING} --tail 20"),
            after=(f"pod {ACCOUNTING_HOST}", f"owner {ACCOUNTING}", f"pod {DATABASE}-0", "slurmctld"),
            weight=5,
        )
