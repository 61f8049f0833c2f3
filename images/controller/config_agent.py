"""config-agent: the one small agent beside slurmctld. It applies configuration and removes dead node records."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from pathlib import Path

from images.common.log import Log
from images.common.mountinfo import WrongFilesystemError, expect_filesystem
from images.common.process import end_on_sigterm
from images.controller.agent import Agent, initial_status
from images.controller.capacity import Capacity
from images.controller.check import Checker
from images.controller.control import Slurmctld
from images.controller.kube import Kube, own_namespace
from images.controller.leaving_rounds import LeavingKeeper
from images.controller.node_list import NodeList
from images.controller.publish import STATE, Store
from images.controller.records import INTERVAL_SECONDS, Reaper
from images.controller.server import PORT, STATE_FILE, StatusBoard, start_server
from images.controller.source import MOUNTED, Changes, ConfigMapSource, MountedSource, start
from images.controller.topology_places import follow_places
from images.controller.topology_rounds import Locations, Nowhere, TopologyKeeper


def _reap_for_ever(reaper: Reaper, log: Log) -> None:
    while True:
        time.sleep(INTERVAL_SECONDS)
        try:
            reaper.round()
        except (ValueError, KeyError, TypeError) as error:
            log(f"node records are left alone: an answer that was not understood ({error!r})")


def _agent(
    kube: Kube | None, slurmctld: Slurmctld, nodes: NodeList, board: StatusBoard, log: Log
) -> tuple[Agent, TopologyKeeper]:
    def locations() -> Locations:
        return Nowhere() if kube is None else follow_places(kube, log)

    def first_topology(keys: tuple[str, ...]) -> str:
        return topology.initial(keys)

    agent = Agent(
        store=Store(), check=Checker(), slurmctld=slurmctld, board=board, log=log, first_topology=first_topology,
        too_small=Capacity(slurmctld=slurmctld).obstacle,
    )  # fmt: skip
    topology = TopologyKeeper(locations=locations, nodes=nodes, published=agent.published, reload=agent.reload, log=log)
    return agent, topology


def main() -> None:
    """Entry point."""
    end_on_sigterm()
    log = Log("config-agent")
    try:
        expect_filesystem(STATE, os.environ.get("EXPECT_FILESYSTEM", ""))
    except WrongFilesystemError as error:
        log(str(error))
        sys.exit(1)
    slurmctld = Slurmctld()
    board = StatusBoard(initial_status(slurmctld.version()), STATE_FILE)
    start_server(board, int(os.environ.get("PORT", PORT)))
    kube = Kube.in_cluster(own_namespace())
    nodes = NodeList(slurmctld=slurmctld)
    agent, topology = _agent(kube, slurmctld, nodes, board, log)
    leaving = LeavingKeeper(slurmctld=slurmctld, published=agent.published, drop=agent.drop, log=log)

    changes: Changes = queue.Queue()
    mounted = Path(os.environ.get("CONFIG_DIR", str(MOUNTED)))
    if kube is None:
        log(f"not in a Kubernetes pod: following the files in {mounted}")
        start(MountedSource(mounted, changes, log))
    else:
        name = os.environ.get("CONFIG_MAP", "slurm-config")
        log(f"following ConfigMap {kube.namespace}/{name}")
        start(ConfigMapSource(kube, name, changes, log, mounted=mounted))
        reaper = Reaper(api=kube, nodes=nodes, wanted_nodes=slurmctld.wanted_nodes, log=log)
        threading.Thread(target=_reap_for_ever, args=(reaper, log), daemon=True, name="node-records").start()

    while True:
        try:
            files = changes.get(timeout=0.1 if board.get().pending else 1.0)
        except queue.Empty:
            agent.tick()
            topology.round()
            leaving.round()
            continue
        agent.take(files)
