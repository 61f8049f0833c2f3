"""elastic: makes and ends the pods of worker pools as Slurm's power saving wants it, and as new templates need it.

A pod of its own, of which there must be one at a time. Slurm decides: it powers a node up for a job and down when it
has been idle. ResumeProgram and SuspendProgram have this program look at once (`ask.py`); what is to be done it sees
in Slurm's records (`decide.py`), so that a call too many or too few changes nothing.

In every cluster it replaces the pods of fixed pools whose template has changed, as their nodes fall idle (`rolls.py`).

The rights that the ServiceAccount needs, in the cluster's namespace: `list`, `watch`, `delete` of pods; `list`, `watch`
of statefulsets. For elastic pools: `create` of pods; `list`, `watch` of podtemplates.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from images.common.kubernetes import WORKER_PODS, Follower, Kube, Object, own_namespace
from images.common.process import RefusedError, end_with_threads, program
from images.elastic import server
from images.elastic.nodes import Nodes
from images.elastic.pods import Pods
from images.elastic.rolls import fixed_pool_of
from images.elastic.rounds import Rounds, keep_looking
from images.elastic.view import pod_of, pools_read

Value = TypeVar("Value")


def main() -> int:
    """Entry point."""
    with program("elastic") as log:
        end_with_threads(log)
        kube = Kube.in_cluster(own_namespace(), os.environ)
        if kube is None:
            raise RefusedError("there is no Kubernetes around this program")
        wake = threading.Event()

        def follow(path: str, extract: Callable[[Object], Value]) -> Follower[Value]:
            return Follower(kube, path, extract, log, selector=WORKER_PODS, changed=lambda _: wake.set())

        elastic = os.environ.get("POOLS") != "none"
        pods = follow(kube.path("pods"), pod_of)
        sets = follow(f"/apis/apps/v1/namespaces/{kube.namespace}/statefulsets", fixed_pool_of)
        pools = follow(kube.path("podtemplates"), pools_read(log))
        followed: list[Follower[Any]] = [pods, sets, *([pools] if elastic else [])]
        rounds = Rounds(
            nodes=Nodes(log), pods=Pods(kube, log), pools=pools.values, sets=sets.values, there=pods.values,
            synced=lambda: all(one.synced for one in followed), log=log, elastic=elastic,
        )  # fmt: skip
        for one in followed:
            one.start()
        server.start(rounds.ready, wake.set)
        keep_looking(rounds.look, wake, log, rounds.ready.give_up)
