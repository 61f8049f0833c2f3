"""Slurm's configuration, whether the cluster is what the stack file wants, and slurmdbd with its database."""

from __future__ import annotations

from collections.abc import Iterator

from cli.change.lock import LEASE
from cli.doctor.cluster.facts import Facts
from cli.doctor.cluster.findings import Finding
from cli.kubectl.client import SILENT_SLURMDBD
from config.rules.nodes import HIDDEN
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, BACKUP, DATABASE

_BEHIND = 200
"""Records that wait in slurmctld for slurmdbd; some always do for a moment."""


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
            cause="Slurm refuses its new configuration; the old one goes on",
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
    """Kubernetes Jobs of an `up` that have failed."""
    for owner in facts.owners:
        if owner.kind != "Job" or not owner.failed or owner.component in {"jail", "users"}:
            continue
        then = "then `slurmstack up`"
        after: tuple[str, ...] = ("configuration",)
        if owner.component == BACKUP:
            cause, then, after = f"a backup, or a look at backups, has failed: {owner.name}", "docs/restore.md", ()
        elif owner.component == "policy":
            cause = "accounts, QOS and limits of the stack file were not written to the database"
            after = ("configuration", "accounting")
        else:
            cause = f"a step of the last `up` has failed: {owner.name}"
        yield Finding(
            about=f"job {owner.name}",
            severity="error",
            cause=cause,
            evidence=(owner.failed,),
            mend=f"{facts.kubectl(f'logs job/{owner.name} --all-containers --tail 5')}; {then}",
            after=after,
            weight=2,
        )


def _apply(facts: Facts) -> Iterator[Finding]:
    if facts.unfinished:
        more = f" and {len(facts.unfinished) - 1} more" if len(facts.unfinished) > 1 else ""
        yield Finding(
            about="apply",
            severity="error",
            cause=f"an update by Pulumi is at work, or was cut short: {facts.unfinished[0]}{more}",
            evidence=facts.unfinished[:4],
            mend="wait for it; if there is none, `slurmstack up` goes on with it",
            weight=12,
        )
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
    workers = {pod.owner for pod in facts.pods if pod.component == "worker"}
    if facts.knows("workloads"):
        for name, pool in facts.pools.items():
            if not pool.elastic and told.get(name, 0) != pool.size:
                has = f"{told[name]} nodes" if name in told else "nothing of it"
                yield Finding(
                    about=f"pool {name}",
                    severity="warning",
                    cause=f"pool {name} is not as in the stack file: it wants {pool.size} nodes, the cluster has {has}",
                    evidence=tuple(owner.by_hand for owner in facts.owners if owner.name == name and owner.by_hand),
                    mend="slurmstack preview, then `slurmstack up`",
                    after=("apply",),
                    weight=abs(told.get(name, 0) - pool.size),
                )
        for name in sorted(workers & told.keys() - facts.pools.keys()):
            yield Finding(
                about=f"pool {name}",
                severity="warning",
                cause=f"the cluster has a pool {name} that is not in the stack file",
                mend="slurmstack preview, then `slurmstack up`",
                after=("apply",),
            )
    for owner in facts.owners:
        if owner.by_hand:
            yield Finding(
                about=f"hand {owner.name}",
                severity="warning",
                cause=f"{owner.kind} {owner.name} was changed by hand",
                evidence=(owner.by_hand,),
                mend="slurmstack preview shows what; `slurmstack up` undoes it",
                after=(f"pool {owner.name}",),
            )


def _accounting(facts: Facts) -> Iterator[Finding]:
    if facts.slurmdbd_answers is False:
        waiting = f"{facts.records_waiting} records wait in slurmctld, and arrive when it is back"
        yield Finding(
            about="accounting",
            severity="error",
            cause=f"{SILENT_SLURMDBD}: sacct, sacctmgr and limits by account do not work; jobs go on",
            evidence=(waiting,) if facts.records_waiting else (),
            mend=facts.kubectl(f"logs {ACCOUNTING_HOST} -c {ACCOUNTING} --tail 20"),
            after=(f"pod {ACCOUNTING_HOST}", f"owner {ACCOUNTING}", f"pod {DATABASE}-0", "slurmctld"),
            weight=5,
        )
    elif facts.records_waiting >= _BEHIND:
        yield Finding(
            about="accounting",
            severity="warning",
            cause=f"the database is behind: {facts.records_waiting} records of jobs wait in slurmctld",
            evidence=("slurmctld keeps 1,000,000 of them (MaxDBDMsgs, as we set it), then it drops some",),
            mend=facts.kubectl(f"logs {ACCOUNTING_HOST} -c {ACCOUNTING} --tail 20")
            + f"; {facts.kubectl(f'logs {DATABASE}-0 --tail 20')}",
            after=(f"pod {DATABASE}-0",),
            weight=2,
        )
