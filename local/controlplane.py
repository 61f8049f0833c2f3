"""etcd, API server, controller manager and scheduler, in one network namespace."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from local import configs, namespaces, network, paths, processes
from local.addresses import Addresses
from local.api import Api
from local.build import Binaries
from local.errors import LocalError
from local.tools import Tools

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_READY_S = 90


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What everything that is started needs to know."""

    addresses: Addresses
    tools: Tools
    binaries: Binaries
    nodes: tuple[str, ...]
    """Their names."""


def ensure_network(setup: Setup) -> None:
    """Make namespace and cable where they are missing, after a crash or a reboot."""
    if not namespaces.exists(namespaces.CONTROL, with_mounts=False):
        for component in reversed(COMPONENTS):
            processes.stop(component)
        namespaces.create_control()
    if not network.is_connected(namespaces.CONTROL):
        network.connect_control(setup.addresses, len(setup.nodes))


def is_running() -> bool:
    """Tell whether all four run."""
    return all(processes.is_running(component) for component in COMPONENTS)


def ensure_store_and_api(setup: Setup) -> None:
    """Start etcd and the API server where they do not run; the second waits for the first for 20 s."""
    if not processes.is_running("etcd"):
        (paths.cluster() / "etcd").mkdir(parents=True, exist_ok=True, mode=0o700)
        _start(setup, "etcd", setup.tools.path("etcd"))
    if not processes.is_running("kube-apiserver"):
        _start(setup, "kube-apiserver", setup.binaries.path("kube-apiserver"))


def ensure_controllers(setup: Setup) -> None:
    """Start controller manager and scheduler where they do not run."""
    for component in ("kube-controller-manager", "kube-scheduler"):
        if not processes.is_running(component):
            _start(setup, component, setup.binaries.path(component))


def wait_ready(api: Api) -> None:
    """Wait until the API server is ready; a component that died meanwhile is named with its last words."""
    deadline = time.monotonic() + _READY_S
    while not api.is_ready():
        require_alive(("etcd", "kube-apiserver"))
        if time.monotonic() > deadline:
            tail = processes.log_tail("kube-apiserver")
            raise LocalError(f"the API server is not ready after {_READY_S} s:\n{tail}", _where("kube-apiserver"))
        time.sleep(0.1)


def require_alive(components: Sequence[str]) -> None:
    """Fail with the log's end where a started component has died."""
    for component in components:
        if not processes.is_running(component):
            tail = processes.log_tail(component)
            raise LocalError(f"{component} ended just after its start:\n{tail}", _where(component))


def _start(setup: Setup, component: str, program: str) -> None:
    inside = namespaces.enter(namespaces.CONTROL, with_mounts=False)
    processes.start(component, [*inside, program, *configs.flags(component, setup.addresses)], setup.tools.env())


def _where(component: str) -> str:
    return f"the whole log is {processes.log_path(component)}"
