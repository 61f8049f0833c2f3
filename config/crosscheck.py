"""What must hold between sections of a stack file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from config.cloud import ExistingCloud
from config.errors import Problem, unknown_name
from config.health import Health
from config.identity_checks import identity_problems
from config.limits import MAX_NODES
from config.memory_checks import default_memory_problems
from config.nebius import NebiusCloud
from config.nebius_checks import nebius_problems
from config.partitions import Partition
from config.policy_checks import policy_problems
from config.preemption_checks import preemption_problems, priority_problems
from config.reservation_checks import reservation_problems
from config.sections import Sections
from config.service_checks import (
    accounting_problems,
    image_problems,
    limit_problems,
    network_problems,
    rest_problems,
    submit_problems,
)
from config.setting_checks import setting_problems
from config.volume_checks import ignored_problems, mount_problems, shared_memory_problems


def cross_check(valid: Mapping[str, Any], written: Mapping[str, Any], now: datetime | None = None) -> list[Problem]:
    """Problems between sections. `valid` has the sections that could be read, `written` all of them as written.

    `now`: what reservations are compared with; default: the clock's time.
    """
    pools = written.get("worker_nodes")
    pool_names = [str(name) for name in pools] if isinstance(pools, Mapping) else []
    problems: list[Problem] = []
    problems += _pools(valid.get("worker_nodes") or {}, pool_names)
    problems += _partitions(valid.get("partitions") or {}, pool_names)
    problems += _node_tests(valid.get("health"), pool_names, written.get("partitions"))
    login = valid.get("login")
    if login is not None and login.node_port is not None and login.service_type != "NodePort":
        problems.append(Problem(where="login.node_port", message="is only for service_type NodePort"))
    if login is not None and login.source_ranges and login.service_type != "LoadBalancer":
        problems.append(Problem(where="login.source_ranges", message="is only for service_type LoadBalancer"))
    problems += _policy(Sections(valid=valid, written=written), now or datetime.now(UTC))
    problems += mount_problems(valid.get("mounts") or {})
    problems += shared_memory_problems(valid.get("worker_nodes") or {})
    problems += default_memory_problems(Sections(valid=valid, written=written))
    cloud = valid.get("cloud") if "cloud" in written else ExistingCloud()
    if isinstance(cloud, NebiusCloud):
        problems += nebius_problems(cloud, valid)
    elif isinstance(cloud, ExistingCloud):
        problems += ignored_problems(valid)
    if isinstance(cloud, ExistingCloud) and cloud.kubeconfig is not None and cloud.context is None:
        message = "is of no use without a context; set cloud.context too (`kubectl config get-contexts` lists them)"
        problems.append(Problem(where="cloud.kubeconfig", message=message))
    return problems


def _policy(sections: Sections, now: datetime) -> Iterator[Problem]:
    """Who may use what, who goes first, and the services for that."""
    yield from identity_problems(sections)
    yield from policy_problems(sections)
    yield from limit_problems(sections)
    yield from preemption_problems(sections)
    yield from priority_problems(sections)
    yield from reservation_problems(sections, now)
    yield from accounting_problems(sections)
    yield from submit_problems(sections)
    yield from rest_problems(sections)
    yield from network_problems(sections)
    yield from image_problems(sections)
    yield from setting_problems(sections)


def _pools(pools: Mapping[str, Any], names: list[str]) -> Iterator[Problem]:
    total = sum(pool.size for pool in pools.values())
    if total > MAX_NODES:
        yield Problem(where="worker_nodes", message=f"{total} nodes in all pools together; {MAX_NODES} at most")
    for name in names:
        stem = re.sub(r"-\d+$", "", name)
        if stem != name and stem in names:
            message = f"is also the name of a node of the pool {stem!r}, and Slurm allows a name only once"
            yield Problem(where=f"worker_nodes.{name}", message=message)
    for name, pool in pools.items():
        for feature in pool.features:
            if feature != name and feature in names:
                message = f"{feature!r} is the name of another pool, whose partitions would take these nodes too: "
                message += "Slurm tells the nodes of a pool by this feature; take another name"
                yield Problem(where=f"worker_nodes.{name}.features", message=message)
    if not names:
        yield Problem(
            where="worker_nodes", message="has no pool; write at least one, for example 'default: {size: 2, ...}'"
        )


def _partitions(partitions: Mapping[str, Partition], pool_names: list[str]) -> Iterator[Problem]:
    for name, partition in partitions.items():
        for pool in partition.pools:
            if pool not in pool_names:
                message = unknown_name(pool, pool_names, what="a pool of worker_nodes")
                yield Problem(where=f"partitions.{name}.pools", message=message)
    default = [name for name, partition in partitions.items() if partition.default]
    if len(default) > 1:
        message = f"{' and '.join(default)} are all marked default; only one partition can be"
        yield Problem(where="partitions", message=message)


def _node_tests(health: Health | None, pool_names: list[str], written: object) -> Iterator[Problem]:
    """Names in `health.tests`. `written`: the partitions; without any there is one, with all pools."""
    if health is None:
        return
    for pool in health.tests.platforms:
        if pool not in pool_names:
            message = unknown_name(pool, pool_names, what="a pool of worker_nodes")
            yield Problem(where="health.tests.platforms", message=message)
    partitions = [str(name) for name in written] if isinstance(written, Mapping) and written else ["main"]
    partition = health.tests.partition
    if partition is not None and partition not in partitions:
        yield Problem(where="health.tests.partition", message=unknown_name(partition, partitions, what="a partition"))
