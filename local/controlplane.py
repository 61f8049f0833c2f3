"""etcd, API server, controller manager and scheduler, in one network namespace; and what we ask the API server."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from local import configs, namespaces, network, paths, processes
from local.addresses import Addresses
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


class ApiUnreachableError(Exception):
    """The API server gave no answer (it is starting, or it is down)."""


class Api:
    """The API server, as the cluster's administrator: without `kubectl`, which takes longer to start."""

    def __init__(self, addresses: Addresses, timeout_s: float = 5) -> None:
        self._address = addresses.control_plane
        self._timeout = timeout_s
        self._context: ssl.SSLContext | None = None

    def is_ready(self) -> bool:
        """Tell whether the API server says that it is ready."""
        try:
            status, _ = self.request("GET", "/readyz")
        except ApiUnreachableError:
            return False
        return status == 200

    def get(self, path: str) -> dict[str, Any]:
        """Read one object or list; `LocalError` for any answer but success."""
        status, body = self.request("GET", path)
        if status != 200:
            raise LocalError(f"the API server answered {status} to GET {path}: {body.decode(errors='replace')[:300]}")
        found: dict[str, Any] = json.loads(body)
        return found

    def ready_times(self) -> dict[str, float]:
        """Give, for each node that is Ready, when its kubelet last gave a sign, in seconds since 1970.

        A kubelet writes its status when it starts, and renews its lease every 10 s: the later of the two.
        """
        leases = self.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")["items"]
        renewed = {lease["metadata"]["name"]: _seconds(lease["spec"].get("renewTime")) for lease in leases}
        found = {}
        for node in self.get("/api/v1/nodes")["items"]:
            name = node["metadata"]["name"]
            for condition in node.get("status", {}).get("conditions", []):
                if condition["type"] == "Ready" and condition["status"] == "True":
                    found[name] = max(_seconds(condition.get("lastHeartbeatTime")), renewed.get(name, 0.0))
        return found

    def request(self, method: str, path: str, body: str | None = None, kind: str = "") -> tuple[int, bytes]:
        """Send one request; returns status and body."""
        try:
            connection = http.client.HTTPSConnection(
                self._address, 6443, timeout=self._timeout, context=self._ssl_context()
            )
            try:
                connection.request(method, path, body=body, headers={"Content-Type": kind} if kind else {})
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise ApiUnreachableError(str(error)) from error

    def _ssl_context(self) -> ssl.SSLContext:
        if self._context is None:
            pki = paths.pki()
            context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
            context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
            self._context = context
        return self._context


def _seconds(text: str | None) -> float:
    return dt.datetime.fromisoformat(text).timestamp() if text else 0.0
