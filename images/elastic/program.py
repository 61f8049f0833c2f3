"""elastic: makes and ends the pods of elastic pools as Slurm's power saving wants it.

A pod of its own, of which there must be one at a time. Slurm decides: it powers a node up for a job and down when it
has been idle. ResumeProgram and SuspendProgram have this program look at once (`resume.py`); what is to be done it sees
in Slurm's records (`decide.py`), so that a call too many or too few changes nothing.

The rights that the ServiceAccount needs, in the cluster's namespace: `list`, `watch`, `create`, `delete` of pods;
`list`, `watch` of podtemplates.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from images.common.follow import Follower
from images.common.kubernetes import WORKER_PODS, Kube, own_namespace
from images.common.process import RefusedError, program
from images.common.wait import Clock, Reminder
from images.elastic import server
from images.elastic.nodes import Nodes, SlurmError
from images.elastic.pods import Pods
from images.elastic.rounds import Rounds
from images.elastic.view import Pool, pod_of, pool_of

SILENT_SECONDS: Final = 2.0
"""Until the next try where slurmctld does not answer."""
LONGEST_SILENT_SECONDS: Final = 30.0
"""For which jobs wait for an answer while slurmctld gives none."""
SHORTEST_SECONDS: Final = 0.1
"""Between two looks, however many programs ask for one."""


def main() -> int:
    """Entry point."""
    with program("elastic") as log:
        kube = Kube.in_cluster(own_namespace(), os.environ)
        if kube is None:
            raise RefusedError("there is no Kubernetes around this program")
        woken = threading.Event()
        pods = Follower(kube, kube.path("pods"), pod_of, log, selector=WORKER_PODS, changed=lambda _: woken.set())
        pools = Follower(
            kube, kube.path("podtemplates"), pool_of, log, selector=WORKER_PODS, changed=lambda _: woken.set()
        )

        def known() -> dict[str, Pool]:
            return {name: pool for name, pool in pools.values().items() if pool is not None}

        rounds = Rounds(
            nodes=Nodes(log), pods=Pods(kube, log), pools=known, there=pods.values,
            synced=lambda: pods.synced and pools.synced, log=log,
        )  # fmt: skip
        pods.start()
        pools.start()
        server.start(rounds.ready, woken.set)
        clock, reminder = Clock(), Reminder(log, Clock())
        silent_since = clock.now()
        while True:
            woken.clear()
            try:
                pause = rounds.look()
                reminder = Reminder(log, clock)
                silent_since = clock.now()
            except SlurmError as error:
                reminder.waiting(f"slurmctld: {error}")
                pause = SILENT_SECONDS
                if clock.now() - silent_since > LONGEST_SILENT_SECONDS:
                    rounds.ready.give_up()
            clock.sleep(SHORTEST_SECONDS)
            woken.wait(max(0.0, pause - SHORTEST_SECONDS))
