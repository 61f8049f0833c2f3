"""A stack file, the cluster that it makes as far as jobs depend on it, and a queue as squeue prints it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

from cli.change.jobs import (
    JOBS,
    JobsTouched,
)
from config import load_config
from config.sections.workers import WorkerPool
from slurm.conf import render
from slurm.sizing import node_document
from tests.fakes.kubectl import PlayedKubectl
from tests.fakes.slurmctld import AWAY
from tests.fakes.squeue import printed


def without(sections: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    """The stack without one of its pools or partitions; a pool leaves the partitions too."""
    kept = {key: value for key, value in sections[section].items() if key != name}
    changed = {**sections, section: kept}
    if section == "worker_nodes":
        partitions = {
            key: {**value, "pools": [pool for pool in value["pools"] if pool != name]}
            for key, value in sections["partitions"].items()
        }
        changed["partitions"] = {key: value for key, value in partitions.items() if value["pools"]}
    return changed


def objects(sections: dict[str, Any]) -> list[dict[str, Any]]:
    """What the program makes of a stack file, as far as jobs depend on it (tests/graph holds it against the real)."""
    config = load_config(sections)
    pools = [_pool(name, pool) for name, pool in config.worker_nodes.items()]
    return [*pools, {"kind": "ConfigMap", "metadata": {"name": "slurm-config"}, "data": render(config)}]


def _pool(name: str, pool: WorkerPool) -> dict[str, Any]:
    env = [{"name": "NODE_CONF", "value": json.dumps(node_document(name, pool))}]
    env += [{"name": "PREEMPTIBLE", "value": "yes"}] if pool.gives_back else []
    containers = [{"name": "slurmd", "env": env}]
    template = {"spec": {"terminationGracePeriodSeconds": pool.drain_timeout + 30, "containers": containers}}
    metadata: dict[str, Any] = {"name": name, "labels": {"slurmstack/pool": name}}
    if pool.is_elastic:
        return {"kind": "PodTemplate", "metadata": metadata, "template": template}
    return {"kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": pool.size, "template": template}}


def slurm_conf(sections: dict[str, Any]) -> str:
    """The slurm.conf of a stack file."""
    return render(load_config(sections))["slurm.conf"]


_COLUMNS = {
    "user": "UserName", "partition": "Partition", "state": "State", "nodes": "NodeList", "left": "TimeLeft",
    "limit": "TimeLimit", "count": "NumNodes", "cpus": "MinCpus", "memory": "MinMemory", "constraint": "Feature",
}  # fmt: skip


def job(id_: str = "7", **fields: str) -> str:
    """What squeue prints of a job: one that runs on cpu-3 without a time limit unless said otherwise."""
    row = {"JobArrayID": id_, **{_COLUMNS[name]: value for name, value in fields.items()}}
    return printed(JOBS.shell, [row]).removesuffix("\n")


def pending(id_: str = "8", **fields: str) -> str:
    return job(id_, **{"state": "PENDING", "nodes": "", **fields})


@dataclass(frozen=True, kw_only=True)
class FakeKubectl(PlayedKubectl):
    """A cluster with a queue, and with pods that wait as long as their lines say."""

    queue: str | None = ""
    """What squeue prints; None: slurmctld does not answer."""
    in_force: str = ""
    pods: str = ""
    there: list[dict[str, Any]] = field(default_factory=list)
    """The objects that `kubectl get` finds."""
    calls: list[tuple[tuple[str, ...], str | None]] = field(default_factory=list)

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        assert check is (arguments[0] == "get")
        self.calls.append((arguments, stdin))
        if arguments[:2] == ("get", "--ignore-not-found"):
            there = [(item["kind"].lower(), item) for item in self.there]
            asked = {kind for kind, _ in there} & set(",".join(arguments).split(","))
            found = [item for kind, item in there if kind in asked or f"{kind}/{item['metadata']['name']}" in arguments]
            return subprocess.CompletedProcess(arguments, 0, json.dumps({"items": found}), "")
        if arguments[0] == "get":
            return subprocess.CompletedProcess(arguments, 0, self.pods, "")
        if self.queue is None:
            return subprocess.CompletedProcess(arguments, 1, "", f"slurm_load_jobs error: {AWAY}\n")
        return subprocess.CompletedProcess(arguments, 0, f"{self.in_force}# the queue\n{self.queue}", "")


def effects(found: JobsTouched) -> dict[str, str]:
    return {item.id: item.effect for item in found.touched}
