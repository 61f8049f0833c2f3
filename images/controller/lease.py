"""Which of two controllers is to be active: a Lease of Kubernetes.

A Lease has run out when nobody has renewed it for so long as this program has watched it; no clock of another machine
is believed. The Lease alone keeps nobody from writing: a paused controller knows nothing of it. That is what terms are
for (terms.py), and `leaseTransitions` is their number.
"""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from images.common.kubernetes import MERGE_PATCH, Kube, KubeError
from images.common.wait import Clock

NAME: Final = "controller"
SECONDS: Final = 2
"""Until a Lease that nobody renews has run out."""

RENEW_SECONDS: Final = 0.5

_TRIES: Final = 3
"""To give it back: a renewal of one's own may come between."""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    version: str
    at: float


_NOT_YET: Final = _Seen(version="", at=0.0)


class Lease:
    """The Lease as one candidate sees it."""

    def __init__(self, kube: Kube, me: str, clock: Clock | None = None) -> None:
        """`me`: the same when the container starts again in its pod, another one in each pod."""
        self._kube, self._me, self._clock = kube, me, clock or Clock()
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{kube.namespace}/leases"
        self._seen = _NOT_YET

    def acquire(self, least: int) -> int | None:
        """Take the Lease if nobody has it: the term, which is `least` or more. None while another one has it.

        Raises KubeError.
        """
        try:
            found = self._read()
        except KubeError:
            self._seen = _NOT_YET  # while nobody could renew it, nobody can be said not to have
            raise
        if found is None:
            return least if self._write(None, least) else None
        holder = found["spec"].get("holderIdentity") or ""
        if holder not in {"", self._me} and not self._has_run_out(found):
            return None
        term = max(least, int(found["spec"].get("leaseTransitions") or 0) + 1)
        return term if self._write(found, term) else None

    def renew(self, term: int) -> bool:
        """Say that this one is there. False where another one has the Lease now. Raises KubeError."""
        found = self._read()
        if found is None:
            self._write(None, term)
            return True
        spec = found["spec"]
        if spec.get("holderIdentity") != self._me or spec.get("leaseTransitions") != term:
            return False
        self._write(found, term)
        return True

    def is_mine(self, term: int) -> bool:
        """Whether this one has it. Raises KubeError."""
        found = self._read() or {"spec": {}}
        return bool(found["spec"].get("holderIdentity") == self._me and found["spec"].get("leaseTransitions") == term)

    def release(self, term: int) -> None:
        """Let another one have it at once. Raises KubeError."""
        for _ in range(_TRIES):  # a renewal that is under way may be faster
            found = self._read()
            if found is None or found["spec"].get("holderIdentity") != self._me:
                return
            if self._write(found, term, holder=""):
                return

    def _has_run_out(self, found: dict[str, Any]) -> bool:
        version, now = str(found["metadata"]["resourceVersion"]), self._clock.now()
        if version != self._seen.version:
            self._seen = _Seen(version=version, at=now)
        return now - self._seen.at >= SECONDS

    def _read(self) -> dict[str, Any] | None:
        try:
            return dict(self._kube.get(f"{self._collection}/{NAME}"))
        except KubeError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def _write(self, before: dict[str, Any] | None, term: int, *, holder: str | None = None) -> bool:
        """Whether it is written: not where somebody else was faster."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {
            "holderIdentity": self._me if holder is None else holder,
            "leaseDurationSeconds": SECONDS, "leaseTransitions": term, "renewTime": now,
        }  # fmt: skip
        try:
            if before is None:
                what = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}}
                self._kube.send("POST", self._collection, {**what, "spec": spec})
            else:
                seen = {"resourceVersion": before["metadata"]["resourceVersion"]}
                self._kube.send("PATCH", f"{self._collection}/{NAME}", {"metadata": seen, "spec": spec}, MERGE_PATCH)
        except KubeError as error:
            if error.status in {http.client.CONFLICT, http.client.NOT_FOUND}:
                return False
            raise
        return True
