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
from functools import partial

from images.common.elastic.view import Pod, Pool, pod_of, pool_of
from images.common.kubernetes import WORKER_PODS, Follower, Kube, own_namespace
from images.common.log import Log
from images.common.process import RefusedError, end_with_threads, program
from images.elastic import server
from images.elastic.nodes import Nodes
from images.elastic.pods import Pods
from images.elastic.rolls import fixed_pool_of
from images.elastic.rounds import ROLL_SECONDS, Ready, RollRounds, Rounds, Wake, keep_looking


def main() -> int:
    """Entry point."""
    with program("elastic") as log:
        end_with_threads(log)
        kube = Kube.in_cluster(own_namespace(), os.environ)
        if kube is None:
            raise RefusedError("there is no Kubernetes around this program")
        wake, rolls = Wake(), Wake()

        def changed(_: object) -> None:
            wake.change()
            rolls.change()

        pods = Follower(kube, kube.path("pods"), pod_of, log, selector=WORKER_PODS, changed=changed)
        _roll(kube, pods, rolls, log)
        if os.environ.get("POOLS") == "none":
            pods.start()
            nobody = Ready()
            nobody.put({})
            server.start(nobody, lambda: None)
            threading.Event().wait()
        pools = Follower(
            kube, kube.path("podtemplates"), pool_of, log, selector=WORKER_PODS, changed=lambda _: wake.change()
        )

        def known() -> dict[str, Pool]:
            return {name: pool for name, pool in pools.values().items() if pool is not None}

        rounds = Rounds(
            nodes=Nodes(log), pods=Pods(kube, log), pools=known, there=pods.values,
            synced=lambda: pods.synced and pools.synced, log=log,
        )  # fmt: skip
        pods.start()
        pools.start()
        server.start(rounds.ready, wake.ask)
        keep_looking(rounds.look, wake, log, lambda: rounds.quick_seconds, rounds.ready.give_up)


def _roll(kube: Kube, pods: Follower[Pod], wake: Wake, log: Log) -> None:
    """Replace the pods of fixed pools in the background."""
    sets = Follower(
        kube, f"/apis/apps/v1/namespaces/{kube.namespace}/statefulsets", fixed_pool_of, log, selector=WORKER_PODS,
        changed=lambda _: wake.change(),
    )  # fmt: skip
    rounds = RollRounds(
        nodes=Nodes(log), pods=Pods(kube, log), pools=sets.values, there=pods.values,
        synced=lambda: pods.synced and sets.synced, log=log,
    )  # fmt: skip
    sets.start()
    work = partial(keep_looking, rounds.look, wake, log, lambda: ROLL_SECONDS)
    threading.Thread(target=work, daemon=True, name="rolls").start()
