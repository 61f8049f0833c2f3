"""One look after the other at the login nodes' sessions, and the StatefulSet's scale by them (`logins.py`)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from images.common.kubernetes import Kube, KubeError, Object
from images.common.wait import Clock, Reminder
from images.elastic.logins import Bounds, Seen, is_roomy, replicas_wanted

LOGIN_PODS: Final = "app.kubernetes.io/component=login"
"""Selector of the login nodes' pods."""

PORT: Final = 8819
PATH: Final = "/sessions"
"""Where a login node tells how many sessions it has (images/login/session_server.py)."""

LOOK_SECONDS: Final = 5.0
"""Between two looks."""
ANSWER_SECONDS: Final = 3.0
"""For one node's answer, all in all."""
_LONGEST_ANSWER: Final = 4096
_AT_ONCE: Final = 16

_OWNER: Final = "slurmstack-elastic"
"""Who has set the scale, for Kubernetes: not `slurmstack`, which is who applies the stack."""


@dataclass(frozen=True, kw_only=True)
class LoginPod:
    """The pod of a login node."""

    number: int
    leaves: bool
    runs: bool
    address: str


def login_pod_of(item: Object) -> LoginPod:
    """A pod as Kubernetes has it."""
    status = item.get("status", {})
    return LoginPod(
        number=int(item["metadata"]["name"].rpartition("-")[2]),
        leaves="deletionTimestamp" in item["metadata"],
        runs=status.get("phase") == "Running",
        address=status.get("podIP", ""),
    )


def ask_sessions(address: str, port: int = PORT) -> int | None:
    """How many sessions a node has; None where it does not say it.

    Were the program there gone, a user's could answer in its place. So nothing is waited for or read without a bound.
    """
    end, said = time.monotonic() + ANSWER_SECONDS, b""
    try:
        with socket.create_connection((address, port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(f"GET {PATH} HTTP/1.0\r\n\r\n".encode())
            while len(said) < _LONGEST_ANSWER and (left := end - time.monotonic()) > 0:
                connection.settimeout(left)
                chunk = connection.recv(_LONGEST_ANSWER)
                if not chunk:
                    break
                said += chunk
    except OSError:
        return None
    head, _, body = said.partition(b"\r\n\r\n")
    status, number = head.split(b" ")[1:2], body.strip()
    return int(number) if status == [b"200"] and number.isdigit() and len(number) < 10 else None


class LoginRounds:
    """Looks, decides and scales. One thread."""

    def __init__(
        self,
        *,
        kube: Kube,
        bounds: Bounds,
        pods: Callable[[], Mapping[str, LoginPod]],
        synced: Callable[[], bool],
        log: Callable[[str], None],
        ask: Callable[[str], int | None] = ask_sessions,
        clock: Clock | None = None,
    ) -> None:
        self._kube, self._bounds, self._pods, self._synced = kube, bounds, pods, synced
        self._log, self._ask, self._clock = log, ask, clock or Clock()
        self._scale = f"/apis/apps/v1/namespaces/{kube.namespace}/statefulsets/login/scale"
        self._roomy_since: float | None = None

    def run(self) -> None:
        """Look for ever."""
        reminder = Reminder(self._log, self._clock)
        while True:
            try:
                self.look()
                reminder = Reminder(self._log, self._clock)
            except (KubeError, KeyError, TypeError, ValueError) as error:
                reminder.waiting(f"the scale of the login nodes: {error}")
            self._clock.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """One look. Raises KubeError; KeyError, TypeError and ValueError for an answer that is none."""
        if not self._synced():
            return
        replicas = int(self._kube.get(self._scale)["spec"].get("replicas", 0))
        pods = [pod for pod in self._pods().values() if pod.number < replicas]
        told = self._ask_all(pod for pod in pods if pod.runs and not pod.leaves)
        known = [number for number in told if number is not None]
        seen = Seen(
            replicas=replicas,
            leaving={pod.number for pod in pods if pod.leaves},
            sessions=sum(known),
            all_known=len(known) == len(told),
        )
        now = self._clock.now()
        since = now if self._roomy_since is None else self._roomy_since
        self._roomy_since = since if is_roomy(self._bounds, seen) else None
        wanted = replicas_wanted(self._bounds, seen, now - since)
        if wanted != replicas:
            change = {"spec": {"replicas": wanted}}
            self._kube.send(
                "PATCH", f"{self._scale}?fieldManager={_OWNER}", change, content_type="application/merge-patch+json"
            )
            self._log(f"login: {replicas} -> {wanted} nodes, for {seen.sessions} sessions on {seen.nodes}")
            self._roomy_since = None

    def _ask_all(self, pods: Iterable[LoginPod]) -> list[int | None]:
        addresses = [pod.address for pod in pods]
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as askers:
            return list(askers.map(self._ask, addresses))
