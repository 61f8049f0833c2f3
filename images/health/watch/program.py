"""health-watch: drains nodes whose checks fail, and resumes them, within a limit over the whole cluster.

A pod of its own, of which there must be one at a time. SETTINGS has its settings as JSON (`watch_settings` in
slurm/health.py; config/sections/health.py says what each means). The rights that the ServiceAccount needs, in the
cluster's namespace (a Role) and for Nodes (a ClusterRole):

machines.follow              namespace: `list`, `watch` of pods; Nodes: `list`, `watch`
machines.release             Nodes: `get`, `patch` of nodes
machines.release_condition   Nodes: `patch` of nodes/status
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from images.common.health.slurm import Slurm, keep_looking
from images.common.kubernetes import Kube, own_namespace
from images.common.log import Log
from images.common.process import end_on_sigterm
from images.common.wait import Clock
from images.health.node_tests.catalog import TESTS
from images.health.watch.decide import Limit, Policy
from images.health.watch.machines import follow_machines
from images.health.watch.release import Releaser, Rules
from images.health.watch.watcher import Watcher

POLL_SECONDS: Final = 2.0
LONGEST_POLL_SECONDS: Final = 10.0

GONE: Final = frozenset({"dcgm-r1", "dcgm-r2", "dcgm-r3", "nccl-pair", "new-machine"})
"""For what earlier versions drained. Such a drain would stay for ever, as nothing says that it is well."""


def build(settings: Mapping[str, Any], env: Mapping[str, str], log: Callable[[str], None]) -> Watcher:
    """The watcher as the site wants it."""
    wanted, slurm, report_only = settings["machines"], Slurm(), frozenset(settings["report_only"])
    releases = wanted["release"] != "none"
    policy = Policy(
        max_drained=Limit.parse(settings["max_drained"]),
        # Without tests of nodes what they have drained is lifted.
        report_only=report_only | GONE | (frozenset() if settings["tests"] else TESTS.keys()),
        requeue_after=wanted["requeue_after"],
        frees_broken=releases,
    )
    kube = Kube.in_cluster(own_namespace(env), env) if wanted["follow"] else None
    if kube is None:
        log("nodes are watched by Slurm's records alone")
        return Watcher(slurm=slurm, policy=policy, log=log)
    machines = follow_machines(kube, frozenset(wanted["drain_conditions"]), log)
    rules = Rules(
        max_unavailable=Limit.parse(wanted["max_unavailable"]),
        after=wanted["release_after"],
        condition=wanted["release_condition"] or "",
        report_only=report_only,
    )
    releaser = Releaser(kube=kube, slurm=slurm, copies=machines, rules=rules, log=log) if releases else None
    return Watcher(slurm=slurm, policy=policy, log=log, machines=machines, releaser=releaser)


def main() -> int:
    """Entry point."""
    end_on_sigterm()
    log = Log("health-watch")
    watcher = build(json.loads(os.environ["SETTINGS"]), os.environ, log)
    keep_looking(watcher.round, POLL_SECONDS, LONGEST_POLL_SECONDS, log, Clock())
    return 0
