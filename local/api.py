"""A few requests to the API server without `kubectl`, which takes longer to start: these are sent many times."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import ssl
from typing import Any

from local import paths
from local.addresses import Addresses
from local.errors import LocalError


class ApiUnreachableError(Exception):
    """The API server gave no answer (it is starting, or it is down)."""


class Api:
    """The API server, as the cluster's administrator."""

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
