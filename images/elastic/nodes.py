"""The nodes of pools in Slurm, and their pods in Kubernetes: read and changed with Slurm's own commands and the API."""

from __future__ import annotations

import http.client
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from images.common.command import Result, Runner, run
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


@dataclass
class Nodes:
    """All commands about nodes. A change returns why it was refused, or nothing."""

    _log: Callable[[str], None]
    _runner: Runner = run

    def read(self) -> dict[str, Node]:
        """All records but an administrator's own, by name. Raises ControllerUnreachableError, NotUnderstoodError."""
        output = self._ask("scontrol", "show", "nodes", "--all", "--json")
        records = [] if output.startswith("No nodes") else node_records(output, Node)
        return {node.name: node for node in records if _OF_US.fullmatch(node.name)}

    def ends(self) -> dict[str, float]:
        """Node -> when its jobs end at the latest, in seconds since 1970. Raises as `read`."""
        question, found = JobList("end", "node_list"), dict[str, float]()
        for job in question.read(self._ask(*question.command, "--states=running")):
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
        if not self._run("scontrol", "show", "partition", partition).ok:
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

    def _run(self, *argv: str) -> Result:
        return self._runner(argv, timeout=TIMEOUT_SECONDS, env={**os.environ, **ENVIRONMENT})

    def _ask(self, *argv: str) -> str:
        done = self._run(*argv)
        if not done.ok:
            raise ControllerUnreachableError(done.message)
        return done.stdout

    def _change(self, what: str, names: Iterable[str], *how: str) -> str:
        argv = ["scontrol", what, f"nodename={compress(names)}", *how]
        done = self._run(*argv)
        if done.ok:
            self._log(" ".join(argv))
        return "" if done.ok else f"{' '.join(argv)}: {done.message}"


@dataclass
class Pods:
    """Makes and ends pods. What was made already, and what is gone, is no failure."""

    _kube: Kube
    _log: Callable[[str], None]

    def there(self) -> frozenset[str] | None:
        """Names of the pods that the API server has now, whatever a watch has told; None: it does not answer."""
        try:
            return frozenset(item["metadata"]["name"] for item in self._kube.list_workers())
        except KubeError:
            return None  # which who follows the pods logs

    def start(self, pool: Pool, names: Iterable[str]) -> str:
        """Make the pods of these nodes; why Kubernetes refuses one, or empty."""
        path = self._kube.path("pods")
        return self._all("make", names, lambda name: self._kube.send("POST", path, manifest(pool, name)))

    def end(self, pods: Mapping[str, Pod]) -> str:
        """End pods, each after its jobs; those of which nothing runs, at once. Why not, or empty."""
        return self._all(
            "end", pods, lambda name: self._kube.delete_pod(name, pods[name].uid, force=pods[name].has_ended)
        )

    def _all(self, what: str, names: Iterable[str], do: Callable[[str], None]) -> str:
        """What went wrong first, after which no more is done: a used-up quota would refuse each of a thousand."""
        self._log(f"{what} the pods {compress(names)}")
        wrong: list[str] = []

        def once(name: str) -> None:
            try:
                if not wrong:
                    do(name)
            except KubeError as error:
                problem = f"cannot {what} the pod {name}: {error}"
                if error.status is None or (what == "make" and error.status != http.client.CONFLICT):
                    wrong.append(problem)
                elif what == "end":  # the others may go
                    self._log(problem)

        with ThreadPoolExecutor(max_workers=AT_ONCE) as workers:
            list(workers.map(once, names))
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
