"""How the jobs that apply the policy have ended, as Kubernetes knows it; for the exporter.

Not by the policy's own program: it does not run where it cannot start, and would need somewhere to write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from images.common.files import write_atomically
from images.common.kubernetes import Kube, KubeError, Object

SELECTOR: Final = "app.kubernetes.io/component=policy"

FILE_NAME: Final = "policy-applied"

KEPT_SECONDS: Final = 20.0
"""Users reach the port, and shall not make the API server work. The exporter asks each 30 s."""


def _condition(job: Object, kind: str) -> Mapping[str, Any] | None:
    conditions = (job.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found.get("type") == kind and found.get("status") == "True"), None)


def _seconds(time_: str) -> float:
    return datetime.fromisoformat(time_).timestamp()


def ended(jobs: Iterable[Object]) -> dict[str, float]:
    """`applied`: seconds since 1970 of the last success; `failed`: 1 if the latest that has ended failed, else 0.

    Each is missing where no job tells it: the one before is deleted when another takes its place.
    """
    ends = []
    for job in jobs:
        for kind, has_failed in (("Complete", 0), ("Failed", 1)):
            if (found := _condition(job, kind)) is not None:
                ends.append((_seconds(found["lastTransitionTime"]), has_failed))
    applied = [{"applied": at} for at, has_failed in sorted(ends) if not has_failed][-1:]
    return {**(applied[0] if applied else {}), **({"failed": max(ends)[1]} if ends else {})}


class PolicyJobs:
    """Asks Kubernetes, and remembers the last success in a file: its job is deleted when another document is tried."""

    def __init__(self, kube: Kube | None, file: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._file, self._now = kube, file, now
        self._lock = threading.Lock()
        self._again, self._state = float("-inf"), dict[str, float]()
        self._error: KubeError | None = None

    def state(self) -> dict[str, float]:
        """What `ended` says, with what is remembered; nothing outside of Kubernetes. Raises KubeError."""
        with self._lock:
            if self._kube is not None and self._now() >= self._again:
                # First: a server that refuses is not asked more often either.
                self._again, self._error = self._now() + KEPT_SECONDS, None
                try:
                    found = ended(self._kube.list_jobs(SELECTOR))
                except KubeError as error:
                    self._error = error
                else:
                    self._state = {**self._remembered(found.get("applied")), **found}
            if self._error is not None:
                raise self._error
            return self._state

    def _remembered(self, applied: float | None) -> dict[str, float]:
        try:
            before = float(self._file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            before = None
        if applied is not None and applied != before:
            try:
                write_atomically(self._file, repr(applied))
            except OSError:  # a full volume: it is known as long as the job is there
                return {}
        return {} if before is None else {"applied": before}
