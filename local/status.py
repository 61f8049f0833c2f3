"""What is there, read without changing anything."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from local import controlplane, nodes, paths, processes
from local.addresses import Addresses
from local.api import Api, ApiUnreachableError
from local.errors import LocalError


@dataclass(frozen=True, kw_only=True)
class Component:
    """One daemon: `pid` and `since` only while it runs."""

    name: str
    pid: int | None
    since: dt.datetime | None
    log: Path


@dataclass(frozen=True, kw_only=True)
class Status:
    """The local cluster as it is now. `exists` is False where there is none."""

    exists: bool
    components: tuple[Component, ...] = ()
    nodes_ready: dict[str, bool] = field(default_factory=dict)
    addresses: Addresses | None = None
    kubeconfig: Path
    directory: Path

    @property
    def healthy(self) -> bool:
        """Tell whether everything runs and every node is Ready, which an API server has to say."""
        runs = all(component.pid for component in self.components)
        return runs and bool(self.nodes_ready) and all(self.nodes_ready.values())


def read(addresses: Addresses | None, names: Sequence[str]) -> Status:
    """Read the state of a cluster that was made with these addresses and nodes (None: there is none)."""
    if addresses is None:
        return Status(exists=False, kubeconfig=paths.kubeconfig(), directory=paths.root())
    components = [*controlplane.COMPONENTS, *(part for name in names for part in nodes.components(name))]
    try:
        ready = Api(addresses, timeout_s=2).ready_times()
    except (ApiUnreachableError, LocalError):
        ready = {}
    return Status(
        exists=True,
        components=tuple(_component(name) for name in components),
        nodes_ready={name: name in ready for name in names},
        addresses=addresses,
        kubeconfig=paths.kubeconfig(),
        directory=paths.root(),
    )


def lines(status: Status) -> list[str]:
    """Write the status for a person."""
    if status.addresses is None:
        return [f"no cluster in {status.directory}"]
    found = [f"API server  {status.addresses.api_url}", f"kubeconfig  {status.kubeconfig}"]
    found += [f"node        {name}: {'Ready' if ready else 'not Ready'}" for name, ready in status.nodes_ready.items()]
    for component in status.components:
        since = f"pid {component.pid} since {component.since:%H:%M:%S}" if component.since else "not running"
        found.append(f"{component.name:24} {since:30} {component.log}")
    return found


def _component(name: str) -> Component:
    started, pid = processes.started_at(name), processes.pid_of(name)
    return Component(
        name=name,
        pid=pid,
        since=dt.datetime.fromtimestamp(started).astimezone() if started and pid else None,
        log=processes.log_path(name),
    )
