"""elastic: makes and ends the pods of elastic pools as Slurm's power saving wants it.

A pod of its own, of which there must be one at a time. Slurm decides: it powers a node up for a job and down when it
has been idle. ResumeProgram and SuspendProgram have this program look at once (`resume.py`); what is to be done it sees
in Slurm's records (`decide.py`), so that a call too many or too few changes nothing.

It also scales the login nodes by their sessions where the stack file wants that (`logins.py`).

The rights that the ServiceAccount needs, in the cluster's namespace: `list`, `watch`, `create`, `delete` of pods;
`list`, `watch` of podtemplates. For login nodes: `list`, `watch` of pods; `get`, `patch` of their StatefulSet's scale.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from images.common.follow import Follower
from images.common.kubernetes import WORKER_PODS, Kube, own_namespace
from images.common.log import Log
from images.common.process import RefusedError, program
from images.common.wait import Clock, Reminder
from images.elastic import server
from images.elastic.login_rounds import LOGIN_PODS, LoginRounds, login_pod_of
from images.elastic.logins import Bounds
from images.elastic.nodes import Nodes, SlurmError
from images.elastic.pods import Pods
from images.elastic.rounds import Ready, Rounds
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
        if logins := os.environ.get("LOGIN"):
            _follow_sessions(kube, Bounds.parse(logins), log)
        if os.environ.get("POOLS") == "none":
            server.start(Ready(), lambda: None)
            threading.Event().wait()
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


def _follow_sessions(kube: Kube, bounds: Bounds, log: Log) -> None:
    """Scale the login nodes in the background."""
    pods = Follower(kube, kube.path("pods"), login_pod_of, log, selector=LOGIN_PODS)
    rounds = LoginRounds(kube=kube, bounds=bounds, pods=pods.values, synced=lambda: pods.synced, log=log)
    pods.start()
    threading.Thread(target=rounds.run, daemon=True, name="logins").start()
