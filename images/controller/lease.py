"""Which of two controllers is to be active: a Lease of Kubernetes, and how the active one knows that it still is.

A Lease has run out when nobody has renewed it for so long as this program has watched it; no clock of another machine
is believed. The Lease alone keeps nobody from writing: a paused controller knows nothing of it. That is what terms are
for (terms.py), and `leaseTransitions` is their number.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from images.common import terms
from images.common.kubernetes import MERGE_PATCH, Kube, KubeError
from images.common.wait import Clock, Reminder

NAME: Final = "controller"
SECONDS: Final = 2
"""Until a Lease that nobody renews has run out."""

RENEW_SECONDS: Final = 0.5

_TRIES: Final = 3
"""To give it back: a renewal of one's own may come between."""

_NOT_YET: Final = "", 0.0

ACTIVE: Final = "slurmstack/active"
"""Label of the pod to which the Service of slurmctld leads (components/controller.py)."""

PODS: Final = ("controller-0", "controller-1")

LOOK_SECONDS: Final = 0.2
ROUND_SECONDS: Final = 0.05
SILENT_SECONDS: Final = 0.75 * SECONDS
"""For how long there may be no word that it is still this one's turn: less than another one waits for. Rounds of this
program are counted: one that was paused, or had no CPU, asks first and hears from the volume at once."""

VOLUME_SECONDS: Final = 8.0
"""For how long the volume alone may answer no write, in rounds as well. A loaded one takes seconds for one."""

UNANSWERED: Final = 6
"""Questions to slurmctld: a minute or more. One that reads all nodes or users anew may be silent for a while."""


class Lease:
    """The Lease as one candidate sees it."""

    def __init__(self, kube: Kube, me: str, clock: Clock | None = None) -> None:
        """`me`: the same when the container starts again in its pod, another one in each pod."""
        self._kube, self._me, self._clock = kube, me, clock or Clock()
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{kube.namespace}/leases"
        self._seen = _NOT_YET
        """The latest version, and since when it has been the latest."""

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
        if found is not None and not self._has(found, term):
            return False
        self._write(found, term)
        return True

    def is_mine(self, term: int) -> bool:
        """Whether this one has it. Raises KubeError."""
        found = self._read()
        return found is not None and self._has(found, term)

    def _has(self, found: dict[str, Any], term: int) -> bool:
        spec = found["spec"]
        return bool(spec.get("holderIdentity") == self._me and spec.get("leaseTransitions") == term)

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
        if version != self._seen[0]:
            self._seen = version, now
        return now - self._seen[1] >= SECONDS

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


def lead_to(kube: Kube, me: str) -> None:
    """Take the label from the other pod, which may be paused and would answer nobody, and give it to this one.

    Raises KubeError.
    """
    for pod in sorted(PODS, key=lambda name: name == me):
        value = "yes" if pod == me else None
        try:
            kube.send("PATCH", f"{kube.path('pods')}/{pod}", {"metadata": {"labels": {ACTIVE: value}}}, MERGE_PATCH)
        except KubeError as error:
            if pod == me or error.status != http.client.NOT_FOUND:
                raise


class Over(StrEnum):
    """Why a turn is over."""

    LEASE = "another controller has the Lease"
    STATE = "another controller has taken the state over"
    SILENCE = f"neither the API server nor the volume has said anything for {SILENT_SECONDS} s"
    VOLUME = f"the state volume has answered no write for {VOLUME_SECONDS:g} s"
    HANGS = f"slurmctld runs, and has not answered {UNANSWERED} times, one after the other"


class Turn:
    """What is known about whether it is still this one's turn. Two threads ask, each of which may hang."""

    def __init__(self, directory: Path, lease: Lease, log: Callable[[str], None]) -> None:
        self._directory, self._lease, self._log, self._clock = directory, lease, log, Clock()
        self.term = terms.number_of(directory)
        self._heard = self._clock.now()
        self._answers = self._counted = 0
        self._silent_rounds = self._unanswered_rounds = 0
        self._over: Over | None = None
        self.ended = threading.Event()

    def begin(self) -> None:
        """Ask from now on."""
        for ask in (self._ask_lease, self._ask_volume):
            threading.Thread(target=ask, daemon=True).start()

    def over(self) -> Over | None:
        """Why this one must not go on, if so. To be asked once a round."""
        is_silent = self._clock.now() - self._heard > 2 * LOOK_SECONDS
        self._silent_rounds = self._silent_rounds + 1 if is_silent else 0
        # Slow answers are answers: here it does not matter from when they are.
        self._unanswered_rounds = self._unanswered_rounds + 1 if self._counted == self._answers else 0
        self._counted = self._answers
        if self._over is None and self._silent_rounds * ROUND_SECONDS > SILENT_SECONDS:
            return Over.SILENCE
        if self._over is None and self._unanswered_rounds * ROUND_SECONDS > VOLUME_SECONDS:
            return Over.VOLUME
        return self._over

    def stop(self) -> None:
        """Ask no more."""
        self.ended.set()

    def _ask_lease(self) -> None:
        reminder = Reminder(self._log, self._clock)
        while not self.ended.wait(RENEW_SECONDS):
            try:
                asked = self._clock.now()
                if not self._lease.renew(self.term):
                    self._over = Over.LEASE
                    return
                self._heard = max(self._heard, asked)
            except (KubeError, OSError, ValueError, KeyError) as error:
                reminder.waiting(f"the API server, for the Lease; the state is still ours: {error}")

    def _ask_volume(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            asked = self._clock.now()
            try:
                terms.touch(self._directory)
                is_there = terms.current(self._directory.parent) == self._directory  # names may be remembered
            except FileNotFoundError:
                is_there = False
            except OSError:
                continue  # says nothing
            if not is_there:
                self._over = Over.STATE
                return
            self._answers += 1
            self._heard = max(self._heard, asked)
