"""health-watch: drains nodes whose checks fail, and resumes them, within a limit over the whole cluster.

A pod of its own, of which there must be one at a time. Its settings are environment variables:

MAX_DRAINED       how many nodes may be drained for checks at a time: `3`, or `10%` of all; the default is 10%
REPORT_ONLY       names of checks whose failure drains nothing; a drain for one of them is lifted
REQUEUE_AFTER     seconds that jobs may go on when their machine is wanted free; empty: to their end
MEASURE_NEW       `yes`: a node that was drained for its machine, and may be another one now, stays drained until the
                  tests of nodes (`node_tests/`) have measured it. `no`, the default: tests are off, and drains for
                  them are lifted and their reservations deleted
MACHINES          `no`: do not look at the Kubernetes nodes
DRAIN_CONDITIONS  types of Kubernetes node conditions that, while they are True, are to be drained for, within
                  MAX_DRAINED; a cordon is drained for without a limit
CONDITIONS        `yes`: write the condition SlurmNodeFault to the Kubernetes nodes
RELEASE           what becomes of a machine with a hardware fault, or with one of the DRAIN_CONDITIONS, that is drained
                  and free of jobs (`release.py`): `no`, the default: nothing; `cordon`: its Kubernetes node is cordoned
                  and annotated, for a cloud's controller or a person to replace it; `evict`: the worker pods leave it
                  too. With the latter two the deadline of REQUEUE_AFTER holds for hardware faults as well
RELEASE_AFTER     seconds that the drain has to stand before that; the default is 600
RELEASE_CONDITION type of the condition that is set on such a Kubernetes node, `HardwareIssuesSuspected` for Nebius; the
                  default is none
MAX_UNAVAILABLE   how many machines may be released or not ready at a time, as in MAX_DRAINED; the default is 1

The rights that the ServiceAccount needs, in the cluster's namespace (a Role) and for Nodes (a ClusterRole):

MACHINES=yes            namespace: `list`, `watch` of pods, `create` of events; Nodes: `list`, `watch`
CONDITIONS=yes          Nodes: `patch` of nodes/status
RELEASE=cordon, evict   Nodes: `get`, `patch` of nodes
RELEASE=evict           namespace: `create` of pods/eviction
RELEASE_CONDITION       Nodes: `patch` of nodes/status

`--once`: one round, for tests and by hand; exit code 1 if slurmctld does not answer. `--dry-run`: change nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from images.common.log import Log
from images.common.process import end_on_sigterm
from images.common.wait import Clock, Reminder
from images.controller.kube import SERVICE_ACCOUNT, Kube
from images.health.node_list import Sharing
from images.health.node_tests.catalog import TESTS
from images.health.watch.decide import KUBERNETES, Policy
from images.health.watch.kube_write import WritingKube
from images.health.watch.kubernetes import Teller, follow_machines
from images.health.watch.limit import Limit
from images.health.watch.machines import CONDITION, Machines
from images.health.watch.release import RELEASE_AFTER_SECONDS, Rules
from images.health.watch.releaser import Releaser
from images.health.watch.slurm import Slurm, SlurmError
from images.health.watch.watcher import Watcher

POLL_SECONDS: Final = 2.0
LONGEST_POLL_SECONDS: Final = 10.0
SHARE: Final = 5.0
"""A round that takes long, with thousands of nodes, is followed by a pause of this many times its length, up to
`LONGEST_POLL_SECONDS`."""
SYNC_SECONDS: Final = 5.0
"""How long `--once` waits for the API server."""
_CONDITION_TYPE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9./_-]{0,250}[A-Za-z0-9])?")
_NOT_OURS: Final = frozenset(
    {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", CONDITION}
)
"""Conditions that others write, and the one that says something else."""


def watch(watcher: Watcher, log: Callable[[str], None], clock: Clock | None = None) -> None:
    """Watch for ever."""
    clock = clock or Clock()
    reminder = Reminder(log, clock)
    while True:
        started = clock.now()
        try:
            watcher.round()
            reminder = Reminder(log, clock)
        except SlurmError as error:
            reminder.waiting(f"slurmctld: {error}")
        clock.sleep(min(max(POLL_SECONDS, SHARE * (clock.now() - started)), LONGEST_POLL_SECONDS))


def policy_from(env: Mapping[str, str]) -> Policy:
    """What the site wants. Raises ValueError."""
    measures_new = flag(env, "MEASURE_NEW", default=False)
    return Policy(
        max_drained=Limit.parse(env.get("MAX_DRAINED", "").strip() or "10%"),
        # A drain for a test that nobody runs any more would else stay for ever.
        report_only=words(env.get("REPORT_ONLY", "")) | (frozenset() if measures_new else TESTS.keys()),
        requeue_after=_seconds(env, "REQUEUE_AFTER"),
        frees_broken=_release(env) != "no",
        measures_new=measures_new,
    )


def rules_from(env: Mapping[str, str], namespace: str) -> Rules | None:
    """When machines are released; None: never. Raises ValueError."""
    way, after = _release(env), _seconds(env, "RELEASE_AFTER")
    condition = env.get("RELEASE_CONDITION", "").strip()
    if condition and (condition in _NOT_OURS or not _CONDITION_TYPE.fullmatch(condition)):
        raise ValueError(f"RELEASE_CONDITION: {condition!r} is no type of condition to set")
    max_unavailable = Limit.parse(env.get("MAX_UNAVAILABLE", "").strip() or "1")
    if way == "no":
        return None
    return Rules(
        namespace=namespace,
        evict=way == "evict",
        max_unavailable=max_unavailable,
        after=RELEASE_AFTER_SECONDS if after is None else after,
        condition=condition,
        report_only=words(env.get("REPORT_ONLY", "")),
    )


def _release(env: Mapping[str, str]) -> str:
    way = env.get("RELEASE", "").strip() or "no"
    if way not in {"no", "cordon", "evict"}:
        raise ValueError(f"RELEASE: {way!r} is none of no, cordon, evict")
    return way


def _seconds(env: Mapping[str, str], name: str) -> float | None:
    """A number of seconds; None where there is none. Raises ValueError."""
    text = env.get(name, "").strip()
    if text and not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"{name}: {text!r} is no number of seconds")
    return float(text) if text else None


def words(text: str) -> frozenset[str]:
    """Names, divided by commas or blanks."""
    return frozenset(text.replace(",", " ").split())


def flag(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    """`yes` or `no`. Raises ValueError."""
    value = env.get(name, "").strip() or ("yes" if default else "no")
    if value not in {"yes", "no"}:
        raise ValueError(f"{name}: {value!r} is neither yes nor no")
    return value == "yes"


def _namespace(env: Mapping[str, str]) -> str:
    mounted = SERVICE_ACCOUNT / "namespace"
    return env.get("NAMESPACE") or (mounted.read_text(encoding="ascii").strip() if mounted.is_file() else "")


class _Events:
    """Of what was done, without conditions on the nodes."""

    def __init__(self, teller: Teller) -> None:
        self.acted = teller.acted

    def saw(self, views: object, now: float) -> None:
        """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """The watcher with what it stands on."""

    watcher: Watcher
    machines: Machines | None = None
    teller: Teller | None = None
    releaser: Releaser | None = None


def build(env: Mapping[str, str], log: Callable[[str], None], *, dry_run: bool) -> Built:
    """The watcher as the environment wants it. Raises ValueError."""
    policy, slurm = policy_from(env), Slurm(runner=Sharing())
    wants_machines = flag(env, "MACHINES", default=True)
    wants_conditions = flag(env, "CONDITIONS", default=False)
    namespace = _namespace(env)
    rules = rules_from(env, namespace)
    if rules is not None and not wants_machines:
        raise ValueError("RELEASE: without MACHINES nothing is known about the machines")
    kube = Kube.in_cluster(namespace, env) if wants_machines else None
    if kube is None:
        log("nodes are watched by Slurm's records alone" + ("" if wants_machines else ": MACHINES=no"))
        return Built(watcher=Watcher(slurm=slurm, policy=policy, log=log, dry_run=dry_run))
    machines = follow_machines(kube, words(env.get("DRAIN_CONDITIONS", "")), log)
    writing = WritingKube.of(kube)
    teller = Teller(kube=writing, machines=machines, log=log)
    telling = None if dry_run else teller if wants_conditions else _Events(teller)
    releaser = None
    if rules is not None:
        releaser = Releaser(
            kube=writing, slurm=slurm, copies=machines, rules=rules, log=log, events=teller, dry_run=dry_run
        )
    watcher = Watcher(
        slurm=slurm,
        policy=policy,
        log=log,
        machines=(KUBERNETES, machines),
        teller=telling,
        releaser=releaser,
        dry_run=dry_run,
    )
    return Built(watcher=watcher, machines=machines, teller=teller, releaser=releaser)


def once(built: Built, log: Callable[[str], None], clock: Clock) -> int:
    """One round; the exit code."""
    deadline = clock.now() + SYNC_SECONDS
    while built.machines is not None and not built.machines.synced and clock.now() < deadline:
        clock.sleep(0.1)
    try:
        built.watcher.round()
    except SlurmError as error:
        log(f"slurmctld: {error}")
        return 1
    if built.releaser is not None:
        built.releaser.finish()
    if built.teller is not None:
        built.teller.write_waiting()
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
        built = build(os.environ, log, dry_run=arguments.dry_run)
    except ValueError as error:
        log(str(error))
        return 2
    if arguments.once:
        return once(built, log, Clock())
    if built.teller is not None:
        built.teller.start()
    watch(built.watcher, log)
    return 0


if __name__ == "__main__":
    sys.exit(main())
