"""What a change does to the parts of a cluster that jobs depend on: pools and partitions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

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

    @property
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
    return Pool(
        size=int(spec.get("replicas", 1)),
        grace=int(pod.get("terminationGracePeriodSeconds", 30)),
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
