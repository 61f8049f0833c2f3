"""What a change does to the parts of a cluster that jobs depend on: pools, partitions and Slurm's settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from config.times import seconds
from slurm.names import CONFIG_MAP, CONTROLLER, ELASTIC_SETTINGS

Document = Mapping[str, Any]
"""A Kubernetes object."""

POOL_LABEL = "slurmstack/pool"

_OPTION = re.compile(r'([^\s=]+)\s*=\s*("[^"]*"|\S+)')


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A worker pool's StatefulSet, as jobs see it."""

    size: int
    cpus: int
    memory: int
    """MiB that Slurm may give to jobs on each node."""
    tmp: int
    """MiB that the pool's scratch has for `--tmp`; 0 without one."""
    features: frozenset[str]
    grace: int
    """Seconds that a leaving pod may wait for its jobs."""
    is_elastic: bool = False
    gives_back: bool = False
    """Whether a pod that is told to go gives its jobs back at once (`preemptible`)."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A `PartitionName` line of slurm.conf."""

    pools: tuple[str, ...]
    max_time: int | None
    """Seconds; None without a limit."""
    default_memory: int | None = None
    """MiB for each CPU of a job that asks for no memory; None: what the whole cluster has."""


@dataclass(frozen=True, kw_only=True)
class SlurmConf:
    """What is in a slurm.conf."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """By their names in lower case."""
    partitions: Mapping[str, Partition] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClusterChange:
    """A cluster before and after an update."""

    pools: Mapping[str, Pool]
    new_pools: Mapping[str, Pool]
    rolled: frozenset[str]
    """Pools that stay and whose pods are made anew, each when its node is idle."""
    conf: SlurmConf
    new_conf: SlurmConf
    keeps_partitions: bool = True
    """Whether the configuration agent that runs keeps a partition that leaves until its last job has gone."""

    @property
    def leaving_partitions(self) -> tuple[str, ...]:
        """Partitions that this change takes out of the stack."""
        return tuple(name for name in self.conf.partitions if name not in self.new_conf.partitions)

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

    @property
    def smaller_pools(self) -> tuple[str, ...]:
        """Pools that this change takes nodes from."""
        return tuple(name for name, pool in self.pools.items() if size_of(self.new_pools, name) < pool.size)


def size_of(pools: Mapping[str, Pool], name: str) -> int:
    """Nodes of a pool, none if it is not there."""
    return pools[name].size if name in pools else 0


def pools_of(documents: Iterable[Document]) -> dict[str, Pool]:
    """The worker pools among some Kubernetes objects."""
    documents = list(documents)
    return {
        str(item["metadata"]["labels"][POOL_LABEL]): _pool(item["spec"])
        for item in documents
        if item.get("kind", "StatefulSet") == "StatefulSet" and POOL_LABEL in (item["metadata"].get("labels") or {})
    } | {
        str(item["metadata"]["labels"][POOL_LABEL]): _elastic_pool(item)
        for item in documents
        if item.get("kind") == "PodTemplate" and POOL_LABEL in (item["metadata"].get("labels") or {})
    }


def _elastic_pool(item: Document) -> Pool:
    """Of as many nodes as there can be: jobs wait for any of them."""
    most = json.loads((item["metadata"].get("annotations") or {}).get(ELASTIC_SETTINGS, "{}")).get("max", 0)
    return replace(_pool({"template": item["template"], "replicas": most}), is_elastic=True)


def _pool(spec: Mapping[str, Any]) -> Pool:
    pod = spec["template"]["spec"]
    slurmd: Mapping[str, Any] = next((item for item in pod["containers"] if item["name"] == "slurmd"), {})
    variables = {item["name"]: item.get("value", "") for item in slurmd.get("env") or []}
    node = dict(_OPTION.findall(variables.get("NODE_CONF", "")))
    return Pool(
        size=int(spec.get("replicas", 1)),
        cpus=int(node.get("CPUs", 0)),
        memory=int(node.get("RealMemory", 0)),
        tmp=int(node.get("TmpDisk", 0)),
        features=frozenset(node.get("Feature", "").split(",")),
        grace=int(pod.get("terminationGracePeriodSeconds", 30)),
        gives_back=variables.get("PREEMPTIBLE") == "yes",
    )


def keeps_partitions(documents: Iterable[Document]) -> bool:
    """Whether the configuration agent among some objects does. Before it did, slurmctld had no hook at its end."""
    controllers = [item for item in documents if item["metadata"]["name"] == CONTROLLER and "template" in item["spec"]]
    containers = [part for item in controllers for part in item["spec"]["template"]["spec"]["containers"]]
    return not containers or any("preStop" in (part.get("lifecycle") or {}) for part in containers)


def slurm_conf_in(documents: Iterable[Document]) -> str:
    """The slurm.conf in the stack's ConfigMap; empty if it is not there."""
    for item in documents:
        if item.get("kind") == "ConfigMap" and item["metadata"]["name"] == CONFIG_MAP:
            return str((item.get("data") or {}).get("slurm.conf", ""))
    return ""


def _limit(text: str) -> int | None:
    """Seconds; none as well where Slurm will say that it cannot read it, in its own words."""
    try:
        return seconds(text)
    except ValueError:
        return None


def parse_conf(text: str) -> SlurmConf:
    """What a slurm.conf says, as we write them: one setting or one partition a line."""
    settings: dict[str, str] = {}
    partitions: dict[str, Partition] = {}
    for line in (line for line in text.splitlines() if not line.startswith("#")):
        key, _, value = line.partition("=")
        if key.lower() == "partitionname":
            options = {name.lower(): text for name, text in _OPTION.findall(line)}
            partitions[options["partitionname"]] = Partition(
                pools=tuple(options.get("nodes", "").split(",")),
                max_time=_limit(options.get("maxtime", "UNLIMITED")),
                default_memory=int(memory) if (memory := options.get("defmempercpu", "")).isdigit() else None,
            )
        elif key.lower() != "nodeset":
            settings[key.lower()] = value
    return SlurmConf(settings=settings, partitions=partitions)
