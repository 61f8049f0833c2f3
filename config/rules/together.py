"""What must hold between sections of a stack file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from config.base import MAX_NODES
from config.cluster import Sections
from config.errors import Problem, unknown_name
from config.nebius.cloud import NebiusCloud
from config.nebius.rules import nebius_problems
from config.rules.availability import availability_problems
from config.rules.confinement import confinement_problems
from config.rules.elastic import elastic_problems
from config.rules.identities import identity_problems
from config.rules.memory import default_memory_problems
from config.rules.policy import policy_problems
from config.rules.preemption import preemption_problems, priority_problems
from config.rules.reservations import reservation_problems
from config.rules.services import (
    accounting_problems,
    dashboard_problems,
    image_problems,
    limit_problems,
    monitoring_problems,
    network_problems,
    rest_problems,
    submit_problems,
)
from config.rules.settings import setting_problems
from config.rules.volumes import filesystem_problems, mount_problems, shared_memory_problems
from config.sections.cloud import Cloud
from config.sections.health import Health
from config.sections.scheduling import Partition
from config.sections.services import Cluster, Login
from config.sections.workers import WorkerPool


def cross_check(valid: Mapping[str, Any], written: Mapping[str, Any], now: datetime | None = None) -> list[Problem]:
    """Problems between sections. `valid` has the sections that could be read, `written` all of them as written.

    `now`: what reservations are compared with; default: the clock's time.
    """
    sections = Sections(valid=valid, written=written, now=now or datetime.now(UTC))
    return [problem for rule in _RULES for problem in rule(sections)]


def _login(sections: Sections) -> Iterator[Problem]:
    login: Login | None = sections.get("login")
    if login is not None and login.source_ranges and login.service_type != "LoadBalancer":
        yield Problem("login.source_ranges", "is only for service_type LoadBalancer")


def _cloud(sections: Sections) -> Iterator[Problem]:
    cloud: Cloud | None = sections.get("cloud")
    if isinstance(cloud, NebiusCloud):
        yield from nebius_problems(cloud, sections)
    elif cloud is not None:
        yield from filesystem_problems(sections)
        if cloud.kubeconfig is not None and cloud.context is None:
            message = "is of no use without a context; set cloud.context too (`kubectl config get-contexts` lists them)"
            yield Problem("cloud.kubeconfig", message)


def _pools(sections: Sections) -> Iterator[Problem]:
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    names = sections.names("worker_nodes")
    cluster: Cluster | None = sections.get("cluster")
    total = sum(pool.most for pool in pools.values())
    if total > MAX_NODES:
        yield Problem("worker_nodes", f"{total} nodes in all pools together; {MAX_NODES} at most")
    for name in names:
        stem = re.sub(r"-\d+$", "", name)
        if stem != name and stem in names:
            message = f"is also the name of a node of the pool {stem!r}, and Slurm allows a name only once"
            yield Problem(f"worker_nodes.{name}", message)
    for name, pool in pools.items():
        for feature in pool.features:
            if feature != name and feature in names:
                message = f"{feature!r} is the name of another pool, whose partitions would take these nodes too: "
                message += "Slurm tells the nodes of a pool by this feature; take another name"
                yield Problem(f"worker_nodes.{name}.features", message)
        if (
            pool.confinement == "required"
            and pool.resources.gpus.count
            and cluster is not None
            and cluster.user_namespaces
        ):
            # Cores and memory are another matter: a runtime may delegate the cgroups (docs/confinement.md).
            message = (
                "is required, and so is cluster.user_namespaces, where the kernel lets no pod say which GPUs a job "
            )
            message += "may open: no worker would start. Take confinement: auto, or leave user_namespaces out"
            yield Problem(f"worker_nodes.{name}.confinement", message)
    if not names:
        yield Problem("worker_nodes", "has no pool; write at least one, for example 'default: {size: 2, ...}'")


def _partitions(sections: Sections) -> Iterator[Problem]:
    partitions: Mapping[str, Partition] = sections.get("partitions")
    pool_names = sections.names("worker_nodes")
    for name, partition in partitions.items():
        for pool in partition.pools:
            if pool not in pool_names:
                yield Problem(f"partitions.{name}.pools", unknown_name(pool, pool_names, what="a pool of worker_nodes"))
    default = [name for name, partition in partitions.items() if partition.default]
    if len(default) > 1:
        yield Problem("partitions", f"{' and '.join(default)} are all marked default; only one partition can be")


def _node_tests(sections: Sections) -> Iterator[Problem]:
    """Names in `health.tests`. Without partitions there is one, with all pools."""
    health: Health | None = sections.get("health")
    if health is None:
        return
    pool_names = sections.names("worker_nodes")
    for pool in health.tests.platforms:
        if pool not in pool_names:
            yield Problem("health.tests.platforms", unknown_name(pool, pool_names, what="a pool of worker_nodes"))
    amd = [name for name, pool in sections.get("worker_nodes").items() if pool.resources.gpus.vendor == "amd"]
    unfit = [name for name in health.tests.run if name.startswith(("nccl", "dcgm"))]
    if health.tests.enabled and amd and unfit:
        message = (
            f"has {', '.join(unfit)}, which need NVIDIA's GPUs, and the pool {amd[0]!r} has those of AMD; name the "
            "other tests only"
        )
        yield Problem("health.tests.run", message)
    partitions = sections.names("partitions") or ["main"]
    partition = health.tests.partition
    if partition is not None and partition not in partitions:
        yield Problem("health.tests.partition", unknown_name(partition, partitions, what="a partition"))


_RULES: tuple[Callable[[Sections], Iterator[Problem]], ...] = (
    _pools,
    _partitions,
    _node_tests,
    _login,
    identity_problems,
    policy_problems,
    limit_problems,
    preemption_problems,
    priority_problems,
    reservation_problems,
    accounting_problems,
    submit_problems,
    rest_problems,
    dashboard_problems,
    monitoring_problems,
    network_problems,
    image_problems,
    setting_problems,
    mount_problems,
    shared_memory_problems,
    default_memory_problems,
    confinement_problems,
    elastic_problems,
    availability_problems,
    _cloud,
)
"""In the order in which their problems are told."""
