"""The nodes of pools in Slurm, and their pods in Kubernetes: read and changed with Slurm's own commands and the API."""

from __future__ import annotations

import http.client
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from images.common.command import Runner, run
from images.common.kubernetes import Kube, KubeError
from images.common.slurm_jobs import ENVIRONMENT, JobList
from images.common.slurm_node import (
    ELASTIC_PARTITION,
    TOPOLOGY_REASON,
    WANTED_NODES,
    ControllerUnreachableError,
    shows_switch_tree,
    wanted_nodes,
)
from images.common.slurm_records import compress, node_records
from images.elastic.view import FEATURES, TEMPLATE, Node, Pod, Pool, marked

TIMEOUT_SECONDS: Final = 30.0
AT_ONCE: Final = 16
"""Requests at a time: a job of a thousand nodes asks for a thousand pods."""
SUBDOMAIN: Final = "nodes"
"""The headless Service that gives each pod a name in DNS (slurm/names.py)."""

_OF_US: Final = re.compile(r"[a-z0-9][a-z0-9-]*-\d+")

Item = TypeVar("Item")


class Nodes:
    """All commands about nodes. A change returns why it was refused, or nothing."""

    def __init__(self, log: Callable[[str], None], runner: Runner = run) -> None:
        self._log = log
        self._runner = runner

    def read(self) -> dict[str, Node]:
        """All records but an administrator's own, by name. Raises ControllerUnreachableError, NotUnderstoodError."""
        output = self._ask("scontrol", "show", "nodes", "--all", "--json")
        records = [] if output.startswith("No nodes") else node_records(output, Node)
        return {node.name: node for node in records if _OF_US.fullmatch(node.name)}

    def ends(self) -> dict[str, float]:
        """Node -> when its jobs end at the latest, in seconds since 1970. Raises as `read`."""
        question, found = JobList("end", "node_list"), dict[str, float]()
        output = self._ask(*question.command, "--states=running", env=ENVIRONMENT)
        for job in question.read(output):
            for name in job.nodes:
                found[name] = max(found.get(name, 0.0), math.inf if job.end is None else job.end)
        return found

    def create(self, pool: Pool, names: Collection[str]) -> str:
        """Make records of nodes that are powered down. Raises ControllerUnreachableError.

        None where slurmctld does not have the pool's partition: the configuration agent would delete it. 24.11 gives it
        the place of a deleted one, which no job may have before a power_down_force (`share_node_bitmap`). Where there
        is a switch tree, it gets its features, by which partitions find it, with `place`.
        """
        conf, partition = pool.conf.split(), f"{ELASTIC_PARTITION}{pool.name}"
        if not self._runner(["scontrol", "show", "partition", partition], timeout=TIMEOUT_SECONDS).ok:
            return f"{compress(names)}: no records before slurmctld has the pool in its configuration"
        if shows_switch_tree(self._ask("scontrol", "show", "config")):
            conf = [word for word in conf if not word.startswith(FEATURES)]
        refused = self._change("create", names, "state=CLOUD", *conf)
        return refused or self._change("update", names, "state=power_down_force", f"extra={marked(pool.mark)}")

    def place(self, pool: Pool, names: Collection[str]) -> str:
        """Let new records be found, drained until the configuration agent has put them into the switch tree.

        A job that tries a node that is in no switch is put aside for good, and no record can be made drained.
        """
        how = ("state=drain", f"reason={TOPOLOGY_REASON}", f"features={pool.features}")
        return self._change("update", names, *how)

    def wanted(self) -> frozenset[str]:
        """Nodes that a pending job asks for by name: their records have to stay. Raises ControllerUnreachableError."""
        return wanted_nodes(self._ask(*WANTED_NODES))

    def delete(self, names: Iterable[str]) -> str:
        """Delete records."""
        return self._change("delete", names)

    def update(self, names: Iterable[str], state: str, reason: str) -> str:
        """Change the state of nodes."""
        return self._change("update", names, f"state={state}", *([f"reason={reason}"] if reason else []))

    def _ask(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        done = self._runner(argv, timeout=TIMEOUT_SECONDS, env={**os.environ, **env} if env else None)
        if not done.ok:
            raise ControllerUnreachableError(done.message)
        return done.stdout

    def _change(self, what: str, names: Iterable[str], *how: str) -> str:
        argv = ["scontrol", what, f"nodename={compress(names)}", *how]
        result = self._runner(argv, timeout=TIMEOUT_SECONDS)
        if result.ok:
            self._log(" ".join(argv))
        return "" if result.ok else f"{' '.join(argv)}: {result.message}"


class Pods:
    """Makes and ends pods. What was made already, and what is gone, is no failure."""

    def __init__(self, kube: Kube, log: Callable[[str], None]) -> None:
        self._kube = kube
        self._log = log

    def there(self) -> frozenset[str] | None:
        """Names of the pods that the API server has now, whatever a watch has told; None: it does not answer."""
        try:
            return frozenset(item["metadata"]["name"] for item in self._kube.list_workers())
        except KubeError:
            return None  # which who follows the pods logs

    def start(self, pool: Pool, names: Collection[str]) -> str:
        """Make the pods of these nodes; why Kubernetes refuses one, or empty."""
        self._log(f"{compress(names)}: making the pods")
        return _all(lambda name: self._make(pool, name), names)

    def end(self, pods: Collection[Pod]) -> str:
        """End pods, each after its jobs; those of which nothing runs, at once. Why not, or empty."""
        self._log(f"{compress(pod.name for pod in pods)}: ending the pods")
        return _all(self._delete, pods)

    def _make(self, pool: Pool, name: str) -> str:
        try:
            self._kube.send("POST", self._kube.path("pods"), manifest(pool, name))
        except KubeError as error:
            if error.status != http.client.CONFLICT:  # it is there, or the one before has not gone yet
                return f"cannot make the pod {name}: {error}"
        return ""

    def _delete(self, pod: Pod) -> str:
        try:
            self._kube.delete_pod(pod.name, pod.uid, force=pod.has_ended)
        except KubeError as error:
            problem = f"cannot end the pod {pod.name}: {error}"
            if error.status is None:  # each of a hundred would wait for as long
                return problem
            self._log(problem)
        return ""


def _all(do: Callable[[Item], str], items: Collection[Item]) -> str:
    """What went wrong first, after which no more is done: a quota that is used up would refuse each of a thousand."""
    wrong: list[str] = []

    def once(item: Item) -> None:
        if not wrong and (problem := do(item)):
            wrong.append(problem)

    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(items))) as workers:
        list(workers.map(once, items))
    return wrong[0] if wrong else ""


def manifest(pool: Pool, name: str) -> Mapping[str, Any]:
    """The pod of one node. It goes with its pool's template, after its jobs."""
    declared = pool.template.get("metadata") or {}
    labels = {**(declared.get("labels") or {}), TEMPLATE: pool.digest}
    owner = {"apiVersion": "v1", "kind": "PodTemplate", "name": pool.name, "uid": pool.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**declared, "name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {**pool.template["spec"], "hostname": name, "subdomain": SUBDOMAIN},
    }
