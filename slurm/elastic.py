"""Elastic pools, whose nodes Slurm starts and ends: what slurm.conf and the program `elastic` are told of them."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from config.cluster import ClusterConfig
from config.sections.workers import MAX_POOL_SIZE, WorkerPool
from slurm.sizing import node_conf

POOLS_FILE: Final = "elastic.pools"  # their names, one a line, for await-nodes (images/elastic/native)
WEIGHT: Final = 1000  # of nodes without another one; fixed ones have 1. Slurm takes those of a small weight first


def kept_up(config: ClusterConfig) -> str:
    """`SuspendExcNodes`: how many nodes of which pools stay without jobs."""
    pools = config.elastic_pools.items()
    return ",".join(f"{name}-[0-{pool.most - 1}]:{pool.least}" for name, pool in pools if pool.least)


def devices_of_nodes_that_are_off(config: ClusterConfig) -> list[str]:
    """Lines of gres.conf, without which slurmctld makes no node that has GPUs before its pod is there.

    It only counts the files ("Ignoring file-less GPU", 24.11.5 and 26.05.5). A worker reads its own lines instead
    (images/worker/gres.py). For as many nodes as a pool may ever have: a size changes nothing here.
    """
    lines = []
    for name, pool in config.elastic_pools.items():
        first = 0
        for kind, count in pool.gpu_kinds.items():
            typed, files = f" Type={kind}" if kind else "", f"File=/dev/gpu[{first}-{first + count - 1}]"
            lines.append(f"NodeName={name}-[0-{MAX_POOL_SIZE - 1}] Name=gpu{typed} {files}")
            first += count
    return lines


def mark(name: str, pool: WorkerPool) -> str:
    """What records of its nodes say: another one is of an older configuration."""
    return hashlib.sha256(_conf(name, pool).encode()).hexdigest()[:12]


def _conf(name: str, pool: WorkerPool) -> str:
    return f"{node_conf(name, pool)} Weight={WEIGHT}"


def settings(name: str, pool: WorkerPool) -> str:
    """What the program `elastic` is told of a pool (images/elastic/nodes.py)."""
    told = {"min": pool.least, "max": pool.most, "conf": _conf(name, pool), "mark": mark(name, pool)}
    return json.dumps(told, sort_keys=True)
