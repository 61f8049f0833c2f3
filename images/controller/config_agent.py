"""config-agent: the one small agent beside slurmctld. It applies configuration, and takes out what has left the stack.

That are node records that no pod will take again, and partitions whose last job has gone. And it answers what is in
force:

GET /config   {"active": hash|null, "rejected": {"hash", "message"}|null,
                   "pending": hash|null, "slurm_version": "24.11.5"}
GET /store    {"free_bytes", "size_bytes": of the volume with slurmctld's state}
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, NoReturn

from images.common import http_server, terms
from images.common.http_server import Answer
from images.common.kubernetes import Kube, KubeError, Object, own_namespace
from images.common.log import Log
from images.common.mountinfo import expect_volume, mount_points
from images.common.process import end_with_threads, program
from images.common.slurm_conf import leaving_partitions
from images.common.slurm_records import NodeRecord, NotUnderstoodError
from images.common.wait import wait_for
from images.controller.agent import Agent
from images.controller.check import check
from images.controller.configuration import (
    MOUNTED,
    STATE,
    STORE,
    Changes,
    Files,
    Store,
    first_files,
    follow_config_map,
    follow_mounted,
)
from images.controller.slurmctld import Slurmctld
from images.controller.topology import TopologyKeeper, follow_places
from images.controller.weights import WeightKeeper

PORT: Final = 8817

ELASTIC_POOLS: Final = "elastic.pools"
"""File with the names of the elastic pools (slurm/elastic.py)."""


def answer(agent: Agent, store: Path, path: str) -> Answer:
    """Of the HTTP server. `store`: where the configurations are kept."""
    if path == "/config":
        return Answer("application/json", agent.status.to_json())
    if path == "/store":
        return Answer("application/json", json.dumps(_state_of(store)))
    return Answer("text/plain", "known: /config /store\n", HTTPStatus.NOT_FOUND)


def _state_of(store: Path) -> dict[str, float]:
    """Of the volume; nothing before there is a first version on it."""
    with contextlib.suppress(OSError):
        volume = os.statvfs(store)
        return {"free_bytes": volume.f_bavail * volume.f_frsize, "size_bytes": volume.f_blocks * volume.f_frsize}
    return {}


INTERVAL_SECONDS: Final = 10.0
"""Between two looks at the node records."""

MOST_PER_ROUND: Final = 50
"""Records that are removed in one round at most."""

_GONE: Final = frozenset({"DOWN", "NOT_RESPONDING"})
_KEPT: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "CLOUD"})
"""Nodes that sleep until they are needed."""


def may_be_gone(node: NodeRecord, elastic: Collection[str] = ()) -> bool:
    """Whether it is a dynamic node that Slurm cannot use and that is not merely asleep.

    `elastic`: pools whose nodes the program `elastic` looks after. One that is of none of them, and that Slurm was to
    start, is of a pool that was elastic. Nobody will start it, and when the last such pool goes slurmctld takes all of
    its nodes for nodes that are up.
    """
    dynamic = any(state.startswith("DYNAMIC") for state in node.states)
    if dynamic and node.is_cloud and node.name.rpartition("-")[0] not in elastic:
        return not node.is_busy
    return dynamic and bool(node.states & _GONE) and not (node.is_busy or node.states & _KEPT)


def removable(candidates: Iterable[NodeRecord], pods: Iterable[Object], stateful_sets: Iterable[Object]) -> list[str]:
    """Names of those that may be gone whose pod neither exists nor can come back."""
    present = {pod["metadata"]["name"] for pod in pods}
    replicas = {item["metadata"]["name"]: int(item["spec"].get("replicas", 1)) for item in stateful_sets}
    names = []
    for node in candidates:
        pool, _, ordinal = node.name.rpartition("-")
        if node.name in present or not (pool and ordinal.isdecimal()):
            continue
        # A node that sleeps keeps its record from the pod that comes: that one deletes it itself, if it is there first.
        if node.is_cloud or replicas.get(pool, 0) <= int(ordinal):
            names.append(node.name)
    return names


class Reaper:
    """Removes node records.

    A worker pod deletes its own record when it leaves (images/worker/leave.py). What remains are pods that were killed
    before they could, and nodes that an administrator had drained. A record is only removed when it is certain that
    the node is gone for good: Slurm cannot reach it, there is no pod of that name, and its StatefulSet is too small to
    ever make one. Where the API server or slurmctld does not answer, nothing is certain. The record of a node that a
    pending job asks for by name stays as long as the job waits.
    """

    def __init__(
        self, *, api: Kube, slurmctld: Slurmctld, log: Callable[[str], None],
        elastic: Callable[[], Collection[str]] = tuple,
    ) -> None:  # fmt: skip
        """`elastic`: names of the elastic pools."""
        self._api, self._slurmctld, self._log, self._elastic = api, slurmctld, log, elastic
        self._refused: dict[str, str] = {}

    def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            time.sleep(INTERVAL_SECONDS)
            self.round()

    def round(self) -> None:
        """Look once. Costs no request to the API server while every node is well."""
        nodes = self._slurmctld.nodes()
        if nodes is None:
            return
        elastic = self._elastic()
        candidates = [node for node in nodes if may_be_gone(node, elastic)]
        if not candidates:
            self._refused.clear()
            return
        try:
            # StatefulSets first: one that grows between the two questions has its pod in the second answer.
            stateful_sets = self._api.list_stateful_sets()
            names = removable(candidates, self._api.list_pods(), stateful_sets)
            wanted = self._slurmctld.wanted_nodes() if names else frozenset()
        except (KubeError, NotUnderstoodError, ValueError) as error:  # the last: what a user wrote as a list of nodes
            self._log(f"node records are left alone: {error}")
            return
        if wanted is None:
            return
        for name in sorted(wanted.intersection(names)):
            self._keep(name, "a pending job asks for it by name, or a completing one had it")
        # Few at a time: what the API server said of pods is old soon.
        for name in [name for name in names if name not in wanted][:MOST_PER_ROUND]:
            result = self._slurmctld.delete_node(name)
            if result.ok:
                self._refused.pop(name, None)
                self._log(f"removed the record of node {name}: its pod is gone for good")
            else:
                self._keep(name, result.message)

    def _keep(self, name: str, why: str) -> None:
        if self._refused.get(name) != why:
            self._refused[name] = why
            self._log(f"the record of node {name} stays for now: {why}")


LAST_LINES: Final = 10
"""Of slurmctld's log, where it has ended."""

POLL_SECONDS: Final = 10.0
"""Between two looks at the queue, while a partition is kept."""

_PENDING: Final = "PD"


class LeavingKeeper:
    """Takes a partition that has left the stack out of slurm.conf when its last job has gone.

    A partition is closed before the queue is looked at, even if the queue looks empty: no job can come in between, also
    none that names several partitions, since Slurm takes the closed one from its list.

    The queue does not tell everything. A job that was submitted with several partitions shows the one in which it runs,
    but slurmctld 24.11 ends it when it no longer finds one of the others (measured; 26.05 does not). So every job that
    ran when the partition was closed keeps it, whatever the job names.
    """

    def __init__(
        self, *, slurmctld: Slurmctld, published: Callable[[], Files], drop: Callable[[Collection[str]], bool],
        log: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`drop` makes slurmctld read its files without these partitions."""
        self._slurmctld, self._published, self._drop, self._log = slurmctld, published, drop, log
        self._next = 0.0
        self._before: dict[str, set[str]] = {}
        """Partition that is kept -> jobs that ran or named it when that was first seen. Another agent begins anew."""

    def round(self) -> None:
        """Look once, at most every `POLL_SECONDS`, but at once when a partition has just left."""
        kept = sorted(leaving_partitions(self._published()))
        new = [name for name in kept if name not in self._before]
        self._before = {name: jobs for name, jobs in self._before.items() if name in kept}
        now = self._slurmctld.clock.now()
        if not kept or (now < self._next and not new):
            return
        text = self._slurmctld.queue_text()
        if text is None:
            return
        self._next = now + POLL_SECONDS
        queue = [line.split() for line in text.splitlines()]
        there = {job for job, *_ in queue}
        naming = {name: [job for job, _, names in queue if name in names.split(",")] for name in kept}
        for name in new:
            self._before[name] = {*naming[name], *(job for job, state, _ in queue if state != _PENDING)}
            self._log(
                f"partition {name} has left the stack: closed for new jobs, kept while it has any "
                f"({len(naming[name])}) and until all jobs have ended that run now, which may have named it as well"
            )
        self._before = {name: jobs & there for name, jobs in self._before.items()}
        gone = [name for name in kept if not naming[name] and not self._before[name]]
        if gone and self._drop(gone):
            self._log(f"no job is left of {', '.join(gone)}: taken out of slurm.conf")


def last_words(kube: Kube | None) -> str:
    """What slurmctld of this pod said before it ended last, as kubelet has kept it; empty where nobody has."""
    if kube is None:
        return ""
    try:
        pod = kube.get(f"{kube.path('pods')}/{socket.gethostname()}")
    except KubeError:
        return ""
    for status in pod.get("status", {}).get("containerStatuses", ()):
        if status["name"] == "slurmctld":
            ended = status.get("lastState", {}).get("terminated") or {}
            return "\n".join(ended.get("message", "").splitlines()[-LAST_LINES:])
    return ""


def _start_source(kube: Kube | None, changes: Changes, log: Log) -> None:
    if kube is None:
        log(f"not in a Kubernetes pod: following the files in {MOUNTED}")
        threading.Thread(target=follow_mounted, args=(changes, log), daemon=True, name="config-source").start()
        return
    name = os.environ.get("CONFIG_MAP", "slurm-config")
    log(f"following ConfigMap {kube.namespace}/{name}")
    follow_config_map(kube, name, changes, log).start()


def _serve(log: Log) -> NoReturn:
    expect_volume(STATE.resolve())
    slurmctld, kube = Slurmctld(), Kube.in_cluster(own_namespace())
    agent = Agent(store=Store(), check=check, slurmctld=slurmctld, log=log, last_words=partial(last_words, kube))
    http_server.start_server(partial(answer, agent, STORE), PORT)
    topology = TopologyKeeper(
        locations=partial(follow_places, kube, log), slurmctld=slurmctld, published=agent.published,
        reload=agent.reload, log=log,
    )  # fmt: skip
    agent.first_topology = topology.initial
    leaving = LeavingKeeper(slurmctld=slurmctld, published=agent.published, drop=agent.drop, log=log)
    weights = WeightKeeper(slurmctld=slurmctld, published=agent.published, log=log)
    changes = Changes()
    _start_source(kube, changes, log)
    if kube is not None:
        reaper = Reaper(
            api=kube, slurmctld=slurmctld, log=log,
            elastic=lambda: agent.published().get(ELASTIC_POOLS, "").split(),
        )  # fmt: skip
        threading.Thread(target=reaper.run, daemon=True, name="node-records").start()
    agent.take(first_files(changes, log))
    while True:
        try:
            agent.take(changes.get(timeout=0.1 if agent.status.pending else 1.0))
        except queue.Empty:
            agent.tick()
            topology.round()
            leaving.round()
            weights.round()


def _stand_by(log: Log) -> None:
    """Return when the state is this pod's (images/controller/standby.py). When it is no longer, this begins anew."""
    wait_for("this controller to be the active one; standing by", STATE.exists, log)
    epoch = STATE.resolve()

    def watch() -> None:
        while STATE.resolve() == epoch and epoch.exists():
            time.sleep(0.2)
        log("another controller has taken over; standing by")
        os.execv(sys.argv[0], sys.argv)  # noqa: S606 - its port is free: what it has open closes with it

    threading.Thread(target=watch, daemon=True, name="epoch").start()


def main() -> None:
    """Entry point."""
    with program("config-agent") as log:
        end_with_threads(log)
        if str(terms.VOLUME) in mount_points():  # a volume that hangs is not asked
            _stand_by(log)
        terms.return_to_one_of_pod(STATE)
        _serve(log)
