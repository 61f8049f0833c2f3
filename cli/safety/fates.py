"""What a change does to each job of the queue: pure rules, with one reason for each job that it touches."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cli.safety.changed import ClusterChange, Partition, Pool, parse_conf, size_of
from cli.safety.queue import Job, Queue
from cli.safety.settings import ended_by_settings, hurting
from images.elastic.members import members
from images.elastic.view import Node
from images.elastic.view import Pool as ElasticPool

Fate = Literal["nothing", "waits", "stays_pending", "never_starts", "ends"]

Cause = Literal["change", "setting", "earlier"]
"""What does it: the change; a Slurm setting in it, as soon as slurmctld reads it; or an earlier command, whatever comes
now."""

FATES: Mapping[Fate, tuple[str, str]] = {
    "nothing": ("goes on", "go on"),
    "waits": ("is waited for", "are waited for"),
    "stays_pending": ("stays pending", "stay pending"),
    "never_starts": ("never starts", "never start"),
    "ends": ("is ended", "are ended"),
}
"""What becomes of one job, and of several, in people's words; the worst comes last."""

REFUSED: frozenset[Fate] = frozenset({"never_starts", "ends"})
"""Fates that `up` brings upon nobody unasked."""

USUAL_SECONDS = 7 * 24 * 3600
"""What a job without a time limit is taken to need at most: how long a leaving node waits by default. A shorter
`drain_timeout` is somebody's decision, and the job may be one that it hurts."""

_SEVERITY = list(FATES)


@dataclass(frozen=True, kw_only=True)
class Touched:
    """A job that a change touches."""

    id: str
    """As squeue shows it."""
    user: str
    partition: str
    """All that it names, joined by commas, if it waits."""
    state: str
    nodes: tuple[str, ...]
    fate: Fate
    why: str
    """Which change does it, and how."""
    cause: Cause = "change"


def touched_jobs(
    change: ClusterChange, queue: Queue, grace: Mapping[str, int], leaving: Mapping[str, int] | None = None
) -> tuple[Touched, ...]:
    """The jobs that a change touches, the worst fates first, each once.

    `grace`: by node, the seconds for which its pod as it is now may wait. A pool's other pods wait as its StatefulSet
    says. `leaving`: by node whose pod is ending already, the seconds that are left to it.
    """
    judge = _Judge(change, queue, grace, leaving or {})
    return worst_first(touched for job in queue.jobs if (touched := judge.touched(job)) is not None)


def worst_first(found: Iterable[Touched]) -> tuple[Touched, ...]:
    """Sorted by fate; otherwise as they were."""
    return tuple(sorted(found, key=lambda item: -_SEVERITY.index(item.fate)))


def touch(job: Job, fate: Fate, why: str, cause: Cause = "change") -> Touched:
    """A job with its fate."""
    return Touched(
        id=job.id,
        user=job.user,
        partition=",".join(job.partitions),
        state=job.state,
        nodes=job.nodes,
        fate=fate,
        why=why,
        cause=cause,
    )


def dangers(change: ClusterChange) -> tuple[str, ...]:
    """What of a change could end jobs, whichever there are."""
    gone = {name for name in change.pools if name not in change.new_pools}
    waiting = {
        name: pool.grace
        for name, pool in change.pools.items()
        if (name in change.smaller_pools or change.changes_kind(name))  # any may have a job that takes longer
        and not (change.gives_back(name) or change.stays_elastic(name))
    }
    return (
        *hurting(change.conf.settings, change.new_conf.settings),
        *(
            f"partition {name!r} leaves with all its pools"
            for name in change.leaving_partitions
            if gone.issuperset(change.conf.partitions[name].pools)
        ),
        *(f"nodes of pool {name!r} leave and wait {span(grace)} at most" for name, grace in waiting.items()),
        *(f"nodes of pool {name!r} give their jobs back at once" for name in change.pools if change.gives_back(name)),
    )


class _Judge:
    """One change, the queue that it meets, and how long the pods may wait."""

    def __init__(self, change: ClusterChange, queue: Queue, grace: Mapping[str, int], going: Mapping[str, int]) -> None:
        self._change = change
        self._grace = grace
        self._going = going
        self._staying = {name: _members(change, name, queue.jobs) for name in change.smaller_pools}
        self._ended = ended_by_settings(change.conf.settings, change.new_conf.settings, queue.jobs)
        self._leaving = frozenset(change.leaving_partitions)
        # Those that left the stack earlier are in force as long as they have jobs.
        self._before = {**parse_conf(queue.slurm_conf).partitions, **change.conf.partitions}
        self._default_memory, self._new_default_memory = (
            _number(conf.settings.get("defmempercpu", "")) for conf in (change.conf, change.new_conf)
        )
        # One that leaves stays closed until its last job has gone, so its jobs still start in it.
        self._after = {**self._before, **change.new_conf.partitions}

    def touched(self, job: Job) -> Touched | None:
        """The worst that the change does to the job; None if it does nothing to it."""
        if job.id in self._ended:
            return touch(job, "ends", self._ended[job.id], "setting")
        going = [(node, self._going[node]) for node in job.nodes if node in self._going]
        if going:
            node, left = min(going, key=lambda item: item[1])
            fate, why = _outlasts(job, node, left, f"{node} is ending already, by an earlier command")
            return touch(job, fate, why, "earlier")
        found = list(self._of_waiting(job) if job.waits else self._of_running(job))
        if not found:
            return None
        return touch(job, *max(found, key=lambda item: _SEVERITY.index(item[0])))

    def _of_running(self, job: Job) -> Iterator[tuple[Fate, str]]:
        if self._leaving.issuperset(job.partitions):
            yield self._kept("nothing", job, "leaves when its jobs have ended")
        for node in job.nodes:
            name, why = node.rpartition("-")[0], self._node_goes(node)
            if self._change.gives_back(name):
                yield "ends", f"{why}, and {node} gives its jobs back at once"
            elif why and (self._change.stays_elastic(name) or self._only_rolls(node)):
                yield "waits", f"{why}; {node} waits for it"
            elif why:
                known = self._change.pools.get(name)
                yield _outlasts(job, node, self._grace.get(node, known.grace if known else 0), why)

    def _only_rolls(self, node: str) -> bool:
        """Whether a node only gets a new pod, for which it is waited however long its jobs take."""
        name = node.rpartition("-")[0]
        leaves = name in self._staying and node not in self._staying[name]
        return name in self._change.new_pools and not leaves and not self._change.changes_kind(name)

    def _kept(self, fate: Fate, job: Job, how: str) -> tuple[Fate, str]:
        name = job.partitions[0]
        if self._change.keeps_partitions:
            return fate, f"partition {name!r} {how}"
        return "ends", (
            f"partition {name!r} leaves, and the configuration agent that runs is of an older slurmstack, which does "
            "not keep it: `up` without this change first"
        )

    def _node_goes(self, node: str) -> str:
        """Why a node leaves or is made anew; empty if it stays."""
        name, _, ordinal = node.rpartition("-")
        pools, new = self._change.pools, self._change.new_pools
        if not ordinal.isdigit() or (name not in pools and new):
            return ""
        if name not in new:  # also one of which a `destroy` that was cut off has left the pods
            return f"pool {name!r} leaves"
        if name in self._staying and node not in self._staying[name]:
            return f"pool {name!r} shrinks to {new[name].size}"
        if self._change.changes_kind(name):
            return f"pool {name!r} becomes {'elastic' if new[name].is_elastic else 'fixed'}"
        return f"pool {name!r} gets new pods as its nodes fall idle" if name in self._change.rolled else ""

    def _of_waiting(self, job: Job) -> Iterator[tuple[Fate, str]]:
        name, change = job.partitions[0], self._change
        leaves = bool(self._leaving.intersection(job.partitions))
        starts = _can_start(job, self._after, change.new_pools)
        loses = not starts and _can_start(job, self._before, change.pools)
        outgrown = self._outgrown(job) if starts else 0
        if outgrown:
            yield (
                "never_starts",
                (
                    f"DefMemPerCPU becomes {outgrown} MiB, which no node has for it: Slurm would hold "
                    "it (BadConstraints), unless it has asked for memory itself"
                ),
            )
        if any(item in change.new_conf.partitions for item in job.partitions):
            if loses:
                yield "stays_pending", f"no node that stays can run it ({self._pools_that_shrink(job)})"
            elif self._is_too_long(job):
                yield self._too_long(job)
        elif loses or (leaves and not starts):
            yield "never_starts", f"partition {name!r} leaves, with the nodes that could run it"
        elif leaves:
            yield self._kept("nothing", job, "leaves when its jobs have ended; this one still starts there")

    def _outgrown(self, job: Job) -> int:
        """The default of memory, which a waiting job takes as it is at the moment, if it becomes too much for it; or 0.

        squeue shows it as the job's own. Measured with 24.11 and 26.05: such a job stays held when it is set back.
        """
        names = [name for name in job.partitions if name in self._before and name in self._after]
        before = {self._before[name].default_memory or self._default_memory for name in names}
        after = {name: self._after[name].default_memory or self._new_default_memory for name in names}
        if job.min_memory not in before or max(after.values()) <= max(before):
            return 0
        cpus, pools = max(1, job.min_cpus), self._change.new_pools
        larger = {name: replace(job, min_memory=memory * cpus) for name, memory in after.items()}
        if any(_can_start_in(larger[name], self._after[name], pools) for name in names):
            return 0
        return max(after.values())

    def _pools_that_shrink(self, job: Job) -> str:
        new = self._change.new_pools
        changed = [
            f"pool {name!r} {f'shrinks to {new[name].size}' if name in new else 'leaves'}"
            for name in self._change.smaller_pools
            if any(item in self._before and name in self._before[item].pools for item in job.partitions)
        ]
        changed += [
            f"pool {name!r} has {f'{new[name].tmp} MiB of scratch' if new[name].tmp else 'no scratch'} any more"
            for name, pool in self._change.pools.items()
            if name in new and new[name].tmp < job.min_tmp <= pool.tmp
        ]
        return ", ".join(changed) or "its partition has other pools"

    def _too_long(self, job: Job) -> tuple[Fate, str]:
        """A job without a time limit of its own takes the new max_time; squeue shows the old one as its limit."""
        name, limit = job.partitions[0], job.limit or 0
        if limit != self._before[name].max_time:
            return "stays_pending", f"its time limit of {span(limit)} is more than max_time of {name!r} will be"
        most = span(self._after[name].max_time or 0) if name in self._after else "the new one"
        return "nothing", (
            f"it may run for max_time of {name!r}, which becomes {most}; if it has asked for {span(limit)} itself, it "
            "stays pending"
        )

    def _is_too_long(self, job: Job) -> bool:
        """Whether it is longer than every partition that it names will allow, and was not before."""
        if job.limit is None or not all(name in self._before for name in job.partitions):
            return False
        before, after = (
            [most is None or most >= job.limit for most in (partitions[name].max_time for name in job.partitions)]
            for partitions in (self._before, self._after)
        )
        return any(before) and not any(after)


def _members(change: ClusterChange, name: str, jobs: Iterable[Job]) -> Collection[str]:
    """Nodes that stay in a pool which becomes smaller. Those without jobs are off, as far as that matters."""
    most, ends = size_of(change.new_pools, name), dict[str, float]()
    if not change.stays_elastic(name):
        return {f"{name}-{number}" for number in range(most)}
    for job in jobs:
        left = math.inf if job.left is None else job.left
        ends.update((node, max(left, ends.get(node, 0))) for node in job.nodes)
    busy = {node: Node(name=node, states=frozenset({"CLOUD", "ALLOCATED"})) for node in ends}
    return members(ElasticPool(name=name, least=0, most=most, conf="", resume_timeout=0), busy, ends)


def _outlasts(job: Job, node: str, grace: int, why: str) -> tuple[Fate, str]:
    """Whether a running job may take longer than its node waits."""
    waits = f"{why}; {node} waits {span(grace)} at most"
    if (USUAL_SECONDS if job.left is None else job.left) <= grace:
        return "waits", waits if job.left is None else f"{why}; {node} waits for it"
    longer = "has no time limit" if job.left is None else f"may run for another {span(job.left)}"
    return "ends", f"{waits}, but the job {longer}"


def _number(text: str) -> int:
    """What a setting says that is a number; 0 for none."""
    return int(text) if text.isdigit() else 0


def _can_start(job: Job, partitions: Mapping[str, Partition], pools: Mapping[str, Pool]) -> bool:
    """Whether there could be nodes for a job if all were free; true as well where nobody can tell for certain."""
    if not all(name in partitions for name in job.partitions):
        return True
    return any(_can_start_in(job, partitions[name], pools) for name in job.partitions)


def _can_start_in(job: Job, partition: Partition, pools: Mapping[str, Pool]) -> bool:
    fitting = {name: pools[name] for name in partition.pools if name in pools and _fits(job, pools[name])}
    if sum(pool.size for pool in fitting.values()) < max(1, job.min_nodes):
        return False
    nodes = [node.rpartition("-") for node in job.wanted_nodes]
    return all(int(ordinal) < size_of(fitting, name) for name, _, ordinal in nodes if ordinal.isdigit())


def _fits(job: Job, pool: Pool) -> bool:
    single = job.constraint.replace("_", "").replace("-", "").replace(".", "").isalnum()
    return (
        (not single or job.constraint in pool.features)
        and job.min_cpus <= pool.cpus
        and job.min_memory <= pool.memory
        and job.min_tmp <= pool.tmp
    )


def span(seconds: int) -> str:
    """A time span as people say it: `7 days`, `90 minutes`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        # Two of a unit at least, or exactly one: so nothing is rounded by more than a third.
        if seconds >= 2 * length or seconds == length:
            count = seconds // length
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds} seconds"
