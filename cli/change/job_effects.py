"""What a change does to each job of the queue, by the pools and partitions before and after it: pure rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from cli.kubectl.client import annotations_of, labels_of
from images.common.slurm_conf import SLURM_CONF as CONF
from images.common.slurm_conf import without_block
from images.common.slurm_jobs import Job
from slurm.names import CONFIG_MAP, ELASTIC_SETTINGS, POOL_LABEL

Document = Mapping[str, Any]
"""A Kubernetes object."""

_OPTION = re.compile(r'([^\s=]+)\s*=\s*("[^"]*"|\S+)')


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A worker pool's StatefulSet, as jobs see it."""

    size: int
    grace: int
    """Seconds that a leaving pod may wait for its jobs."""
    is_elastic: bool = False
    gives_back: bool = False
    """Whether a pod that is told to go gives its jobs back at once (`preemptible`)."""


Partitions = Mapping[str, tuple[str, ...]]
"""Partitions by name, each with its pools."""


@dataclass(frozen=True, kw_only=True)
class ClusterChange:
    """A cluster before and after an update."""

    pools: Mapping[str, Pool]
    new_pools: Mapping[str, Pool]
    rolled: frozenset[str]
    """Pools that stay and whose pods are made anew, each when its node is idle."""
    partitions: Partitions
    new_partitions: Partitions

    @cached_property
    def leaving_partitions(self) -> tuple[str, ...]:
        """Partitions that this change takes out of the stack."""
        return tuple(name for name in self.partitions if name not in self.new_partitions)

    def gives_back(self, name: str) -> bool:
        """Whether all pods of a pool are told to go with its template, as when the cloud takes their machines."""
        before, after = self.pools.get(name), self.new_pools.get(name)
        return before is not None and before.gives_back and (after is None or not after.is_elastic)

    def stays_elastic(self, name: str) -> bool:
        """Whether nodes leave a pool by their records: their pods go after their jobs, however long that takes."""
        both = (self.pools.get(name), self.new_pools.get(name))
        return all(pool is not None and pool.is_elastic for pool in both)

    def changes_kind(self, name: str) -> bool:
        """Whether a pool that stays becomes elastic, or fixed."""
        before, after = self.pools.get(name), self.new_pools.get(name)
        return before is not None and after is not None and before.is_elastic != after.is_elastic

    @cached_property
    def smaller_pools(self) -> tuple[str, ...]:
        """Pools that this change takes nodes from."""
        return tuple(name for name, pool in self.pools.items() if size_of(self.new_pools, name) < pool.size)


def size_of(pools: Mapping[str, Pool], name: str) -> int:
    """Nodes of a pool, none if it is not there."""
    return pools[name].size if name in pools else 0


def pools_of(documents: Iterable[Document]) -> dict[str, Pool]:
    """The worker pools among some Kubernetes objects; of one that changes its kind, the elastic half counts."""
    found = [item for item in documents if POOL_LABEL in labels_of(item)]
    return {
        labels_of(item)[POOL_LABEL]: _pool(item)
        for kind in ("StatefulSet", "PodTemplate")
        for item in found
        if item.get("kind", "StatefulSet") == kind
    }


def _pool(item: Document) -> Pool:
    is_elastic = item.get("kind") == "PodTemplate"
    pod = (item if is_elastic else item["spec"])["template"]["spec"]
    slurmd: Mapping[str, Any] = next((item for item in pod["containers"] if item["name"] == "slurmd"), {})
    variables = {item["name"]: item.get("value", "") for item in slurmd.get("env") or []}
    # An elastic pool has as many nodes as there can be: jobs wait for any of them.
    elastic = json.loads(annotations_of(item).get(ELASTIC_SETTINGS, "{}"))
    return Pool(
        size=int(elastic.get("max", 0) if is_elastic else item["spec"].get("replicas", 1)),
        grace=int(pod.get("terminationGracePeriodSeconds", 30)),
        is_elastic=is_elastic,
        gives_back=variables.get("PREEMPTIBLE") == "yes",
    )


def slurm_conf_in(documents: Iterable[Document]) -> str:
    """The slurm.conf in the stack's ConfigMap; empty if it is not there."""
    for item in documents:
        if item.get("kind") == "ConfigMap" and item["metadata"]["name"] == CONFIG_MAP:
            return str((item.get("data") or {}).get("slurm.conf", ""))
    return ""


def partitions_in(slurm_conf: str) -> dict[str, tuple[str, ...]]:
    """The partitions of a slurm.conf and their pools, as we write them: one partition a line."""
    lines = (line for line in slurm_conf.splitlines() if line.lower().startswith("partitionname="))
    found = ({name.lower(): text for name, text in _OPTION.findall(line)} for line in lines)
    return {options["partitionname"]: tuple(options.get("nodes", "").split(",")) for options in found}


Fate = Literal["waits", "stays_pending", "never_starts", "ends"]

FATES: Mapping[Fate, tuple[str, str]] = {
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
class Queue:
    """What slurmctld says at one moment."""

    jobs: tuple[Job, ...]
    slurm_conf: str
    """The slurm.conf in force, with what the configuration agent added to it."""

    @property
    def stack_conf(self) -> str:
        """The same as the stack file has made it: without the partitions that left it and are kept for their jobs."""
        return without_block({CONF: self.slurm_conf})[CONF]


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


def touched_jobs(change: ClusterChange, queue: Queue, grace: Mapping[str, int]) -> tuple[Touched, ...]:
    """The jobs that a change touches, the worst fates first, each once.

    `grace`: by node, the seconds for which its pod as it is now may wait. A pool's other pods wait as its StatefulSet
    says.
    """
    judge = _Judge(change, grace)
    return worst_first(touched for job in queue.jobs if (touched := judge.touched(job)) is not None)


def worst_first(found: Iterable[Touched]) -> tuple[Touched, ...]:
    """Sorted by fate; otherwise as they were."""
    return tuple(sorted(found, key=lambda item: -_SEVERITY.index(item.fate)))


def touch(job: Job, fate: Fate, why: str) -> Touched:
    """A job with its fate."""
    return Touched(
        id=job.id,
        user=job.user,
        partition=",".join(job.partitions),
        state=job.state,
        nodes=job.nodes,
        fate=fate,
        why=why,
    )


def dangers(change: ClusterChange) -> tuple[str, ...]:
    """What of a change could end jobs, whichever there are."""
    lose = [
        name
        for name in change.pools
        if change.gives_back(name)
        or ((name in change.smaller_pools or change.changes_kind(name)) and not change.stays_elastic(name))
    ]
    return (
        *(
            f"partition {name!r} leaves with all its pools"
            for name in change.leaving_partitions
            if not any(pool in change.new_pools for pool in change.partitions[name])
        ),
        *(f"nodes of pool {name!r} leave" for name in lose),
    )


class _Judge:
    """One change, and how long the pods may wait."""

    def __init__(self, change: ClusterChange, grace: Mapping[str, int]) -> None:
        self._change, self._grace = change, grace

    def touched(self, job: Job) -> Touched | None:
        """The worst that the change does to the job; None if it does nothing to it."""
        if job.waits:
            gone = all(map(self._goes_with_its_nodes, job.partitions))
            return touch(job, "never_starts", "the partition leaves with its nodes") if gone else None
        found = list(self._of_running(job))
        return touch(job, *max(found, key=lambda item: _SEVERITY.index(item[0]))) if found else None

    def _of_running(self, job: Job) -> Iterator[tuple[Fate, str]]:
        for node in job.nodes:
            name, why = node.rpartition("-")[0], self._node_goes(node)
            if self._change.gives_back(name):
                yield "ends", f"{why}, and {node} gives its jobs back at once"
            elif why and self._only_rolls(node):
                yield "waits", f"{why}; {node} waits for it"
            elif why:
                known = self._change.pools.get(name)
                yield _outlasts(job, node, self._grace.get(node, known.grace if known else 0), why)

    def _only_rolls(self, node: str) -> bool:
        """Whether a node only gets a new pod, for which it is waited however long its jobs take."""
        name = node.rpartition("-")[0]
        return name in self._change.new_pools and not self._shrinks_by(node) and not self._change.changes_kind(name)

    def _shrinks_by(self, node: str) -> bool:
        """Whether a node is one of the highest numbers, which a fixed pool loses that becomes smaller.

        From an elastic pool nodes go when they are idle.
        """
        name, _, ordinal = node.rpartition("-")
        smaller = name in self._change.smaller_pools and not self._change.stays_elastic(name)
        return smaller and int(ordinal) >= size_of(self._change.new_pools, name)

    def _node_goes(self, node: str) -> str:
        """Why a node leaves or is made anew; empty if it stays."""
        name, _, ordinal = node.rpartition("-")
        pools, new = self._change.pools, self._change.new_pools
        if not ordinal.isdigit() or (name not in pools and new):
            return ""
        if name not in new:  # also one of which a `destroy` that was cut off has left the pods
            return f"pool {name!r} leaves"
        if self._shrinks_by(node):
            return f"pool {name!r} shrinks to {new[name].size}"
        if self._change.changes_kind(name):
            return f"pool {name!r} becomes {'elastic' if new[name].is_elastic else 'fixed'}"
        return f"pool {name!r} gets new pods as its nodes fall idle" if name in self._change.rolled else ""

    def _goes_with_its_nodes(self, name: str) -> bool:
        """Whether a partition leaves and can run no job any more.

        The configuration agent keeps one that leaves for the jobs that are in it, so with a node they still start.
        """
        change = self._change
        pools = change.partitions.get(name, ())
        return name in change.leaving_partitions and not any(size_of(change.new_pools, pool) for pool in pools)


def _outlasts(job: Job, node: str, grace: int, why: str) -> tuple[Fate, str]:
    """Whether a running job may take longer than its node waits."""
    waits = f"{why}; {node} waits {span(grace)} at most"
    if (USUAL_SECONDS if job.left is None else job.left) <= grace:
        return "waits", waits if job.left is None else f"{why}; {node} waits for it"
    longer = "has no time limit" if job.left is None else f"may run for another {span(job.left)}"
    return "ends", f"{waits}, but the job {longer}"


def span(seconds: int) -> str:
    """A time span as people say it: `7 days`, `90 minutes`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        # Two of a unit at least, or exactly one: so nothing is rounded by more than a third.
        if seconds >= 2 * length or seconds == length:
            count = seconds // length
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds} seconds"
