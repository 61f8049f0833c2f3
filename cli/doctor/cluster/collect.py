"""Reads a running cluster into facts: three calls to Kubernetes and one to Slurm, at the same time. Changes nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from cli.change.in_place import has_put_back
from cli.change.owner import is_stopped, note_of
from cli.doctor.cluster import kubernetes
from cli.doctor.cluster.facts import Facts, Pool
from cli.doctor.cluster.slurm import SECONDS, ask_slurm
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from config.cluster import ClusterConfig
from slurm.conf import config_hash, render
from slurm.names import CONTROLLER


def collect(
    kubectl: Kubectl, config: ClusterConfig, *, job: str = "", ask_pulumi: Callable[[], list[str]] = list
) -> Facts:
    """All that can be read within some seconds. Never raises: what could not be read is in `unread`.

    `job`: the number of one that is asked about. `ask_pulumi`: what its state says is not finished; may raise Failure.
    """
    namespace, here = config.cluster.namespace, time.time()
    with ThreadPoolExecutor() as pool:  # each is a process that mostly waits
        asked = [(kinds, pool.submit(_get, kubectl, namespace, verb)) for kinds, verb in kubernetes.ASKED]
        slurm = pool.submit(ask_slurm, kubectl, namespace, accounting=config.accounting.enabled, job=job)
        pulumi = pool.submit(ask_pulumi)
        wanted = config_hash(render(config))
    items: list[Any] = []
    unread: dict[str, str] = {}
    for kinds, answer in asked:
        found, missing = _answer(answer, kinds)
        items += found
        unread |= missing
    of_slurm, silent = _of_slurm(slurm)
    # One that is ahead, here or there, would have a pod deleted by force that has just begun to end.
    now = min(of_slurm.get("clock") or here, here)
    parts, odd = kubernetes.parse(items, now)
    try:
        unfinished = tuple(pulumi.result())
    except Failure as failure:
        unfinished, silent = (), {**silent, "pulumi": failure.message}
    return Facts(
        namespace=namespace,
        reached_by=kubectl.shown,
        now=now,
        pools={
            name: Pool(size=pool.most, gpus=pool.resources.gpus.count, elastic=pool.is_elastic)
            for name, pool in config.worker_nodes.items()
        },
        partition_pools={name: partition.pools for name, partition in config.partitions.items()},
        wanted_configuration=wanted,
        accounting=config.accounting.enabled,
        unread={**unread, **odd, **silent},
        unfinished=unfinished,
        restore=_restore(items),
        **parts,
        **of_slurm,
    )


def _is_workload(item: Any) -> bool:
    """Whether it is one of the form that commands write."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(notes, dict) and item["kind"] in {"StatefulSet", "Deployment"} and "name" in item["metadata"]


def _restore(items: list[Any]) -> tuple[str, str] | None:
    """Why Slurm is stopped, and what starts it, where a restore has stopped it."""
    objects = [item for item in items if _is_workload(item)]
    stopped = [str(item["metadata"]["name"]) for item in objects if is_stopped(item)]
    if CONTROLLER not in stopped:
        return None
    if any(map(has_put_back, objects)):
        return f"a restore has left {', '.join(stopped)} stopped", "slurmstack up"
    note = note_of(objects)
    cause = f"a restore that has stopped {', '.join(stopped)} runs, or was not finished"
    return cause, note.command if note is not None else "slurmstack restore"


def _get(kubectl: Kubectl, namespace: str, verb: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return kubectl.run(*verb, "-n", namespace, "-o", "json", check=False, seconds=SECONDS)


def _answer(answer: Future[Any], kinds: tuple[str, ...]) -> tuple[list[Any], dict[str, str]]:
    try:
        return kubernetes.items_of(answer.result(), kinds)
    except Failure as failure:
        return [], {kubernetes.PARTS[kind]: failure.message for kind in kinds}


def _of_slurm(answer: Future[Any]) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        found: tuple[dict[str, Any], dict[str, str]] = answer.result()
    except Failure as failure:
        return {}, {"slurm": failure.message}
    return found
