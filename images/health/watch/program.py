"""health-watch: drains nodes whose checks fail, and resumes them, within a limit over the whole cluster.

A pod of its own, of which there must be one at a time. Its settings are environment variables, named after the keys of
the stack file and checked when they were written (config/sections/health.py says what each means): MAX_DRAINED,
REPORT_ONLY, REQUEUE_AFTER, DRAIN_CONDITIONS, RELEASE, RELEASE_AFTER, RELEASE_CONDITION and MAX_UNAVAILABLE. What is
missing or empty has a default that spares the cluster. Besides these:

MACHINES   `no`: do not look at the Kubernetes nodes
TESTS      `yes`: tests of nodes run (`node_tests/`). `no`, the default: drains for them are lifted

The rights that the ServiceAccount needs, in the cluster's namespace (a Role) and for Nodes (a ClusterRole):

MACHINES=yes        namespace: `list`, `watch` of pods; Nodes: `list`, `watch`
RELEASE=cordon      Nodes: `get`, `patch` of nodes
RELEASE_CONDITION   Nodes: `patch` of nodes/status
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from images.common.health.slurm import Slurm, keep_looking
from images.common.kubernetes import Kube, own_namespace
from images.common.log import Log
from images.common.process import end_on_sigterm
from images.common.wait import Clock
from images.health.node_tests.catalog import TESTS
from images.health.watch.decide import Limit, Policy
from images.health.watch.machines import follow_machines
from images.health.watch.release import RELEASE_AFTER_SECONDS, Releaser, Rules
from images.health.watch.watcher import Watcher

POLL_SECONDS: Final = 2.0
LONGEST_POLL_SECONDS: Final = 10.0

GONE: Final = frozenset({"dcgm-r1", "dcgm-r2", "dcgm-r3", "nccl-pair", "new-machine"})
"""For what earlier versions drained. Such a drain would stay for ever, as nothing says that it is well."""


def policy_from(env: Mapping[str, str]) -> Policy:
    """What the site wants. Raises ValueError."""
    return Policy(
        max_drained=Limit.parse(env.get("MAX_DRAINED") or "10%"),
        report_only=_words(env, "REPORT_ONLY") | GONE | (frozenset() if env.get("TESTS") == "yes" else TESTS.keys()),
        requeue_after=float(env["REQUEUE_AFTER"]) if env.get("REQUEUE_AFTER") else None,
        frees_broken=env.get("RELEASE", "no") != "no",
    )


def rules_from(env: Mapping[str, str]) -> Rules | None:
    """When machines are released; None: never. Raises ValueError."""
    if env.get("RELEASE", "no") == "no":
        return None
    return Rules(
        max_unavailable=Limit.parse(env.get("MAX_UNAVAILABLE") or "1"),
        after=float(env.get("RELEASE_AFTER") or RELEASE_AFTER_SECONDS),
        condition=env.get("RELEASE_CONDITION", ""),
        report_only=_words(env, "REPORT_ONLY"),
    )


def _words(env: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(env.get(name, "").replace(",", " ").split())


def build(env: Mapping[str, str], log: Callable[[str], None]) -> Watcher:
    """The watcher as the environment wants it. Raises ValueError."""
    policy, slurm, rules = policy_from(env), Slurm(), rules_from(env)
    kube = None if env.get("MACHINES") == "no" else Kube.in_cluster(own_namespace(env), env)
    if kube is None:
        log("nodes are watched by Slurm's records alone")
        return Watcher(slurm=slurm, policy=policy, log=log)
    machines = follow_machines(kube, _words(env, "DRAIN_CONDITIONS"), log)
    releaser = None
    if rules is not None:
        releaser = Releaser(kube=kube, slurm=slurm, copies=machines, rules=rules, log=log)
    return Watcher(slurm=slurm, policy=policy, log=log, machines=machines, releaser=releaser)


def main() -> int:
    """Entry point."""
    end_on_sigterm()
    log = Log("health-watch")
    keep_looking(build(os.environ, log).round, POLL_SECONDS, LONGEST_POLL_SECONDS, log, Clock())
    return 0
