"""What a change does to each job of the queue, by the pools and partitions before and after it: pure rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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


Fate = Literal["waits", "never_starts", "ends"]

FATES: Mapping[Fate, tuple[str, str]] = {
    "waits": ("is waited for", "are waited for"),
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


@dataclass(frozen=True, kw_only=True)
class ClusterChange:
    """A cluster before and after an update."""

    pools: Mapping[str, Pool]
    new_pools: Mapping[str, Pool]
    partitions: Partitions
    new_partitions: Partitions

    def touched(self, queue: Queue, grace: Mapping[str, int]) -> tuple[Touched, ...]:
        """The jobs that it touches, the worst fates first, each once.

        `grace`: by node, the seconds for which its pod as it is now may wait. A pool's other pods wait as its
        StatefulSet says.
        """
        found = [touch(job, *worst) for job in queue.jobs if (worst := self._worst(job, grace)) is not None]
        return tuple(sorted(found, key=lambda item: -_SEVERITY.index(item.fate)))

    @property
    def dangers(self) -> tuple[str, ...]:
        """What of it could end jobs, whichever there are."""
        partitions = [
            f"partition {name!r} leaves with all its pools"
            for name in self._leaving_partitions
            if not any(pool in self.new_pools for pool in self.partitions[name])
        ]
        lose = [name for name, pool in self.pools.items() if pool.size and self._goes(name)]
        return (*partitions, *(f"nodes of pool {name!r} leave" for name in lose))

    @property
    def _leaving_partitions(self) -> list[str]:
        return [name for name in self.partitions if name not in self.new_partitions]

    def _worst(self, job: Job, grace: Mapping[str, int]) -> tuple[Fate, str] | None:
        """The worst that it does to a job, and why; None if it does nothing to it."""
        if job.waits:
            gone = all(map(self._partition_goes, job.partitions))
            return ("never_starts", "the partition leaves with its nodes") if gone else None
        found = [self._of_node(job, node, grace) for node in job.nodes]
        return max(filter(None, found), key=lambda item: _SEVERITY.index(item[0]), default=None)

    def _of_node(self, job: Job, node: str, grace: Mapping[str, int]) -> tuple[Fate, str] | None:
        name, _, ordinal = node.rpartition("-")
        first, why = self._goes(name) or (0, "")
        if not why or not ordinal.isdigit() or int(ordinal) < first:
            return None
        pool = self.pools.get(name)
        if pool is not None and pool.gives_back:
            return "ends", f"{why}, and {node} gives its jobs back at once"
        return _outlasts(job, node, grace.get(node, pool.grace if pool else 0), why)

    def _goes(self, name: str) -> tuple[int, str] | None:
        """From which number on the nodes of a pool leave, and why; None if none does, or it is no pool.

        From a pool that stays elastic nodes go when they are idle.
        """
        before, after = self.pools.get(name), self.new_pools.get(name)
        if after is None:  # of one that is not there a `destroy` that was cut off has left the pods
            return (0, f"pool {name!r} leaves") if before or not self.new_pools else None
        if before is not None and before.is_elastic != after.is_elastic:
            return 0, f"pool {name!r} becomes {'elastic' if after.is_elastic else 'fixed'}"
        if before is not None and not after.is_elastic and after.size < before.size:
            return after.size, f"pool {name!r} shrinks to {after.size}"
        return None

    def _partition_goes(self, name: str) -> bool:
        """Whether a partition leaves and can run no job any more.

        The configuration agent keeps one that leaves for the jobs that are in it, so with a node they still start.
        """
        left = (self.new_pools.get(pool) for pool in self.partitions.get(name, ()))
        return name in self._leaving_partitions and not any(pool is not None and pool.size for pool in left)


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
