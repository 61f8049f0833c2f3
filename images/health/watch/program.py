"""health-watch: drains nodes whose checks fail, and resumes them, within a limit over the whole cluster.

A pod of its own, of which there must be one at a time. Its settings are environment variables, named after the keys of
the stack file and checked when they were written (config/sections/health.py says what each means): MAX_DRAINED,
REPORT_ONLY, REQUEUE_AFTER, DRAIN_CONDITIONS, RELEASE, RELEASE_AFTER, RELEASE_CONDITION and MAX_UNAVAILABLE. What is
missing or empty has a default that spares the cluster. Besides these:

MACHINES          `no`: do not look at the Kubernetes nodes
MEASURE_NEW       `yes`: a node that was drained for its machine, and may be another one now, stays drained until the
                  tests of nodes (`node_tests/`) have measured it. `no`, the default: tests are off, and drains for
                  them are lifted and their reservations deleted

The rights that the ServiceAccount needs, in the cluster's namespace (a Role) and for Nodes (a ClusterRole):

MACHINES=yes            namespace: `list`, `watch` of pods, `create` of events; Nodes: `list`, `watch`
RELEASE=cordon, evict   Nodes: `get`, `patch` of nodes
RELEASE=evict           namespace: `create` of pods/eviction
RELEASE_CONDITION       Nodes: `patch` of nodes/status

`--once`: one round, for tests and by hand; exit code 1 if slurmctld does not answer. `--dry-run`: change nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Final

from images.common.health.slurm import Slurm, SlurmError, keep_looking
from images.common.kubernetes import Kube, own_namespace
from images.common.log import Log
from images.common.process import end_on_sigterm
from images.common.wait import Clock
from images.health.node_tests.catalog import TESTS
from images.health.watch.decide import Limit, Policy
from images.health.watch.kubernetes import Teller
from images.health.watch.machines import follow_machines
from images.health.watch.release import RELEASE_AFTER_SECONDS, Releaser, Rules
from images.health.watch.watcher import Watcher

POLL_SECONDS: Final = 2.0
LONGEST_POLL_SECONDS: Final = 10.0
SYNC_SECONDS: Final = 5.0
"""How long `--once` waits for the API server."""


def policy_from(env: Mapping[str, str]) -> Policy:
    """What the site wants. Raises ValueError."""
    measures_new = env.get("MEASURE_NEW") == "yes"
    return Policy(
        max_drained=Limit.parse(env.get("MAX_DRAINED") or "10%"),
        # A drain for a test that nobody runs any more would else stay for ever.
        report_only=_words(env, "REPORT_ONLY") | (frozenset() if measures_new else TESTS.keys()),
        requeue_after=float(env["REQUEUE_AFTER"]) if env.get("REQUEUE_AFTER") else None,
        frees_broken=env.get("RELEASE", "no") != "no",
        measures_new=measures_new,
    )


def rules_from(env: Mapping[str, str]) -> Rules | None:
    """When machines are released; None: never. Raises ValueError."""
    if env.get("RELEASE", "no") == "no":
        return None
    return Rules(
        evict=env["RELEASE"] == "evict",
        max_unavailable=Limit.parse(env.get("MAX_UNAVAILABLE") or "1"),
        after=float(env.get("RELEASE_AFTER") or RELEASE_AFTER_SECONDS),
        condition=env.get("RELEASE_CONDITION", ""),
        report_only=_words(env, "REPORT_ONLY"),
    )


def _words(env: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(env.get(name, "").replace(",", " ").split())


def build(env: Mapping[str, str], log: Callable[[str], None], *, dry_run: bool) -> Watcher:
    """The watcher as the environment wants it. Raises ValueError."""
    policy, slurm, rules = policy_from(env), Slurm(), rules_from(env)
    unfollowed = env.get("MACHINES") == "no"
    kube = None if unfollowed else Kube.in_cluster(own_namespace(env), env)
    if kube is None:
        log("nodes are watched by Slurm's records alone" + (": MACHINES=no" if unfollowed else ""))
        return Watcher(slurm=slurm, policy=policy, log=log, dry_run=dry_run)
    machines = follow_machines(kube, _words(env, "DRAIN_CONDITIONS"), log)
    teller = None if dry_run else Teller(kube=kube, machines=machines, log=log)
    releaser = None
    if rules is not None:
        releaser = Releaser(
            kube=kube, slurm=slurm, copies=machines, rules=rules, log=log, events=teller, dry_run=dry_run
        )
    return Watcher(
        slurm=slurm, policy=policy, log=log, machines=machines, teller=teller, releaser=releaser, dry_run=dry_run
    )


def once(watcher: Watcher, log: Callable[[str], None], clock: Clock) -> int:
    """One round; the exit code."""
    deadline = clock.now() + SYNC_SECONDS
    while watcher.machines is not None and not watcher.machines.synced and clock.now() < deadline:
        clock.sleep(0.1)
    try:
        watcher.round()
    except SlurmError as error:
        log(f"slurmctld: {error}")
        return 1
    if watcher.releaser is not None:
        watcher.releaser.finish()
    if watcher.teller is not None:
        watcher.teller.write_waiting()
    return 0


def main() -> int:
    """Entry point."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(prog="health-watch", description="Drains and resumes nodes by their checks.")
    parser.add_argument("--once", action="store_true", help="one round")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, say what would be done")
    arguments = parser.parse_args()
    log = Log("health-watch")
    try:
        watcher = build(os.environ, log, dry_run=arguments.dry_run)
    except ValueError as error:
        log.failure(f"the settings cannot be used: {error}")
        return 2
    if arguments.once:
        return once(watcher, log, Clock())
    if watcher.teller is not None:
        watcher.teller.start()
    keep_looking(watcher.round, POLL_SECONDS, LONGEST_POLL_SECONDS, log, Clock())
    return 0
