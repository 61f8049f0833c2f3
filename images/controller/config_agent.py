"""config-agent: the one small agent beside slurmctld. It applies configuration and removes dead node records."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from functools import partial
from typing import Final, NoReturn

from images.common import terms
from images.common.kubernetes import Kube, own_namespace
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import end_with_threads, program
from images.common.wait import wait_for
from images.controller.agent import Agent
from images.controller.capacity import too_small
from images.controller.check import Checker
from images.controller.configuration import (
    MOUNTED,
    STATE,
    STORE,
    Changes,
    MountedSource,
    Store,
    first_files,
    follow_config_map,
)
from images.controller.control import Slurmctld
from images.controller.leaving_rounds import LeavingKeeper
from images.controller.node_list import NodeList
from images.controller.records import INTERVAL_SECONDS, Reaper
from images.controller.server import STATE_FILE, Status, StatusBoard, start_server
from images.controller.topology_places import Nowhere, follow_places
from images.controller.topology_rounds import TopologyKeeper


def _reap_for_ever(reaper: Reaper, log: Log) -> None:
    while True:
        time.sleep(INTERVAL_SECONDS)
        try:
            reaper.round()
        except (ValueError, KeyError, TypeError) as error:
            log(f"node records are left alone: an answer that was not understood ({error!r})")


def _start_source(kube: Kube | None, changes: Changes, log: Log) -> None:
    if kube is None:
        log(f"not in a Kubernetes pod: following the files in {MOUNTED}")
        MountedSource(MOUNTED, changes, log).start()
        return
    name = os.environ.get("CONFIG_MAP", "slurm-config")
    log(f"following ConfigMap {kube.namespace}/{name}")
    follow_config_map(kube, name, changes, log).start()


TURN_SECONDS: Final = 0.2
"""Between two looks at whether this controller is still the active one."""

ELASTIC_POOLS: Final = "elastic.pools"
"""File with the names of the elastic pools (slurm/elastic.py)."""


def _serve(log: Log) -> NoReturn:
    expect_volume(terms.VOLUME if terms.is_shared() else STATE)
    slurmctld = Slurmctld()
    board = StatusBoard(Status(slurm_version=slurmctld.version()), STATE_FILE)
    kube = Kube.in_cluster(own_namespace())
    start_server(board, store=STORE)
    nodes = NodeList(slurmctld=slurmctld)

    def first_topology(keys: tuple[str, ...]) -> str:
        return topology.initial(keys)

    agent = Agent(
        store=Store(), check=Checker(), slurmctld=slurmctld, board=board, log=log, first_topology=first_topology,
        too_small=partial(too_small, slurmctld),
    )  # fmt: skip
    topology = TopologyKeeper(
        locations=lambda: Nowhere() if kube is None else follow_places(kube, log),
        nodes=nodes, published=agent.published, reload=agent.reload, log=log,
    )  # fmt: skip
    leaving = LeavingKeeper(slurmctld=slurmctld, published=agent.published, drop=agent.drop, log=log)
    changes = Changes()
    _start_source(kube, changes, log)
    if kube is not None:
        reaper = Reaper(
            api=kube, nodes=nodes, wanted_nodes=slurmctld.wanted_nodes, log=log,
            elastic=lambda: agent.published().get(ELASTIC_POOLS, "").split(),
        )  # fmt: skip
        threading.Thread(target=_reap_for_ever, args=(reaper, log), daemon=True, name="node-records").start()
    agent.take(first_files(changes, log))
    while True:
        try:
            agent.take(changes.get(timeout=0.1 if board.get().pending else 1.0))
        except queue.Empty:
            agent.tick()
            topology.round()
            leaving.round()


def _stand_by(log: Log) -> None:
    """Return when slurmctld of this pod is the active one. When it is no longer, this program begins anew."""
    wait_for("the turn of this controller; standing by", STATE.exists, log)
    turn = STATE.readlink()

    def watch() -> None:
        while STATE.is_symlink() and STATE.readlink() == turn and STATE.exists():
            time.sleep(TURN_SECONDS)
        log("another controller has taken over; standing by")
        os.execv(sys.argv[0], sys.argv)  # noqa: S606

    threading.Thread(target=watch, daemon=True, name="turn").start()


def main() -> None:
    """Entry point."""
    with program("config-agent") as log:
        end_with_threads(log)
        if terms.is_shared():
            _stand_by(log)
        else:
            terms.return_to_one_of_pod(STATE)
        _serve(log)
