"""One look after the other at the login nodes' sessions, and the StatefulSet's scale by them (`logins.py`)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
SILENT_SECONDS: Final = 60.0
"""After which a node that says nothing is told in the log: none leaves meanwhile. And the longest time without a look
after which it is still known that the sessions have had room all the time."""
_LONGEST_ANSWER: Final = 4096
_AT_ONCE: Final = 16

_OWNER: Final = "slurmstack-elastic"
"""Who has set the scale, for Kubernetes: not `slurmstack`, which is who applies the stack."""


@dataclass(frozen=True, kw_only=True)
class LoginPod:
    """The pod of a login node."""

    number: int
    """-1: it is somebody's copy of one, for debugging."""
    leaves: bool
    runs: bool
    address: str


def login_pod_of(item: Object) -> LoginPod:
    """A pod as Kubernetes has it."""
    status, number = item.get("status", {}), item["metadata"]["name"].removeprefix("login-")
    return LoginPod(
        number=int(number) if number.isdecimal() else -1,
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
        self._looked_at = 0.0
        self._silent: dict[int, float] = {}
        """Nodes that say nothing, and since when; for ever: it was told."""

    def run(self) -> None:
        """Look for ever."""
        reminder = Reminder(self._log, self._clock)
        while True:
            try:
                self.look()
                reminder = Reminder(self._log, self._clock)
            except (KubeError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
                reminder.waiting(f"the scale of the login nodes: {error}")
            self._clock.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """One look. Raises KubeError; KeyError, TypeError and ValueError for an answer that is none."""
        if not self._synced():
            return
        replicas = int(self._kube.get(self._scale)["spec"].get("replicas", 0))
        pods = [pod for pod in self._pods().values() if 0 <= pod.number < replicas]
        told = self._ask_all([pod for pod in pods if pod.runs and not pod.leaves])
        known = [sessions for sessions in told.values() if sessions is not None]
        seen = Seen(
            replicas=replicas,
            leaving={pod.number for pod in pods if pod.leaves},
            sessions=sum(known),
            all_known=len(known) == len(told),
        )
        now = self._clock.now()
        self._tell_silent([number for number, sessions in told.items() if sessions is None], now)
        unbroken = now - self._looked_at <= SILENT_SECONDS
        since = self._roomy_since if self._roomy_since is not None and unbroken else now
        self._looked_at = now
        self._roomy_since = since if is_roomy(self._bounds, seen) else None
        wanted = replicas_wanted(self._bounds, seen, now - since)
        if wanted != replicas:
            change = {"spec": {"replicas": wanted}}
            self._kube.send(
                "PATCH", f"{self._scale}?fieldManager={_OWNER}", change, content_type="application/merge-patch+json"
            )
            self._log(f"login: {replicas} -> {wanted} nodes, for {seen.sessions} sessions on {seen.nodes}")
            self._roomy_since = None

    def _ask_all(self, pods: Sequence[LoginPod]) -> dict[int, int | None]:
        """Sessions by the number of the node."""
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as askers:
            told = askers.map(self._ask, [pod.address for pod in pods])
            return dict(zip((pod.number for pod in pods), told, strict=True))

    def _tell_silent(self, numbers: Iterable[int], now: float) -> None:
        self._silent = {number: self._silent.get(number, now) for number in numbers}
        for number, since in self._silent.items():
            if now - since > SILENT_SECONDS:
                self._log(f"login-{number} does not say how many sessions it has: until it does, no login node leaves")
                self._silent[number] = float("inf")
