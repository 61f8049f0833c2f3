"""config-agent: the one small agent beside slurmctld. It applies configuration and removes dead node records.

It answers which configuration is in force:

GET /config   {"active": hash|null, "rejected": {"hash", "message"}|null,
                   "pending": hash|null, "slurm_version": "24.11.5"}
GET /store    {"free_bytes", "size_bytes": of the volume with slurmctld's state,
                   "published": seconds since 1970 when what is in force was}
GET /healthz  200 as long as the agent runs
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, NoReturn

from images.common import http_server, terms
from images.common.http_server import Answer
from images.common.kubernetes import Kube, own_namespace
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import end_with_threads, program
from images.common.wait import wait_for
from images.controller.agent import Agent
from images.controller.check import check
from images.controller.configuration import (
    MOUNTED,
    STATE,
    STORE,
    Changes,
    Store,
    first_files,
    follow_config_map,
    follow_mounted,
)
from images.controller.leftovers import INTERVAL_SECONDS, LeavingKeeper, Reaper
from images.controller.slurmctld import Slurmctld
from images.controller.topology import TopologyKeeper, follow_places

PORT: Final = 8817

TURN_SECONDS: Final = 0.2
"""Between two looks at whether this controller is still the active one."""

ELASTIC_POOLS: Final = "elastic.pools"
"""File with the names of the elastic pools (slurm/elastic.py)."""


def answer(agent: Agent, store: Path, path: str) -> Answer:
    """Of the HTTP server. `store`: where the configurations are kept."""
    if path == "/config":
        return Answer("application/json", agent.status.to_json())
    if path == "/store":
        return Answer("application/json", json.dumps(_state_of(store)))
    if path == "/healthz":
        return Answer("text/plain", "ok\n")
    return Answer("text/plain", "known: /config /store /healthz\n", HTTPStatus.NOT_FOUND)


def _state_of(store: Path) -> dict[str, float]:
    """Of the volume and of what is in force; nothing of what is not there."""
    found: dict[str, float] = {}
    with contextlib.suppress(OSError):
        volume = os.statvfs(store)
        found = {"free_bytes": volume.f_bavail * volume.f_frsize, "size_bytes": volume.f_blocks * volume.f_frsize}
        found["published"] = (store / "current").lstat().st_mtime
    return found


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
        threading.Thread(target=follow_mounted, args=(changes, log), daemon=True, name="config-source").start()
        return
    name = os.environ.get("CONFIG_MAP", "slurm-config")
    log(f"following ConfigMap {kube.namespace}/{name}")
    follow_config_map(kube, name, changes, log).start()


def _serve(log: Log) -> NoReturn:
    expect_volume(terms.VOLUME if terms.is_shared() else STATE)
    slurmctld, kube = Slurmctld(), Kube.in_cluster(own_namespace())
    agent = Agent(store=Store(), check=check, slurmctld=slurmctld, log=log)
    http_server.start_server(partial(answer, agent, STORE), PORT)
    topology = TopologyKeeper(
        locations=partial(follow_places, kube, log), slurmctld=slurmctld, published=agent.published,
        reload=agent.reload, log=log,
    )  # fmt: skip
    agent.first_topology = topology.initial
    leaving = LeavingKeeper(slurmctld=slurmctld, published=agent.published, drop=agent.drop, log=log)
    changes = Changes()
    _start_source(kube, changes, log)
    if kube is not None:
        reaper = Reaper(
            api=kube, slurmctld=slurmctld, log=log,
            elastic=lambda: agent.published().get(ELASTIC_POOLS, "").split(),
        )  # fmt: skip
        threading.Thread(target=_reap_for_ever, args=(reaper, log), daemon=True, name="node-records").start()
    agent.take(first_files(changes, log))
    while True:
        try:
            agent.take(changes.get(timeout=0.1 if agent.status.pending else 1.0))
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
