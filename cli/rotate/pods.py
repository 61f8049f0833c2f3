"""Containers that have a key: whether its new file has reached them, and how they start again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from cli.backup.jobs import statuses
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, complaint, labels_of
from local.report import Step
from slurm.names import ACTIVE

POLL = 0.3
"""Seconds between two looks."""

SPREAD_SECONDS = 180.0
"""Until a file has reached all pods: kubelet takes a second where it is told, and a minute and a half by itself."""

RESTART_SECONDS = 300.0
"""Until a container runs again: kubelet waits 10 s, or longer, for one that has ended not long ago."""

AT_A_TIME = 16
"""Pods that are asked at the same time."""

_TOUCHED = "slurmstack/key-touched"
"""Annotation of pods: a changed one makes kubelet look at their Secrets at once (0.2 s instead of 43 s, measured)."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A container that runs."""

    pod: str
    container: str
    id: str
    """Of this run of it; empty where it has ended."""
    ready: bool
    active: bool
    """Whether it is in the active one of two controllers."""


class Places:
    """All running containers of some names in a cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str, containers: Collection[str]) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._containers = containers

    def running(self, *names: str) -> list[Place]:
        """Those that run now; with names those that are called so."""
        return [place for pod in self._pods() for place in self._of(pod) if not names or place.container in names]

    def ended(self, name: str) -> list[Place]:
        """Where one does not run, and kubelet waits before it starts it again."""
        found = [place for pod in self._pods() for place in self._of(pod, "waiting", "terminated")]
        return [replace(place, id="") for place in found if place.container == name]

    def refuse_missing(self) -> None:
        """Raise Failure where one of them does not run, or does not answer: it would be left behind."""
        pods = [pod for pod in self._pods() if pod.get("status", {}).get("phase") == "Running"]
        silent = {pod["metadata"]["name"] for pod in pods if self._has(pod) and not self._of(pod)}
        silent |= {place.pod for place in self._failing(self.running(), "true")}
        if silent:
            raise Failure(
                f"these pods do not run, or do not answer: {', '.join(sorted(silent)[:8])}",
                hint="this has touched nothing. `slurmstack doctor` says what is wrong; wait until all pods run, or "
                "delete those whose machine is lost",
            )

    def stale(self, path: str, digest: str) -> list[Place]:
        """Those whose file is another one, or who do not answer."""
        return self._failing(self.running(), "sh", "-c", f'[ "$(sha256sum <{path})" = "{digest}  -" ]')

    def spread(self, path: str, digest: str, step: Step) -> None:
        """Wait until the Secret's new file has reached all of them."""
        deadline = time.monotonic() + SPREAD_SECONDS
        touched: set[str] = set()
        while stale := self.stale(path, digest):
            if new := {place.pod for place in stale} - touched:
                self._kubectl.run(
                    "annotate", "pod", *sorted(new), "-n", self._namespace, f"{_TOUCHED}={time.time():.0f}",
                    "--overwrite", f"--field-manager={FIELD_MANAGER}", check=False,
                )  # fmt: skip
                touched |= new
            _wait(stale, step, deadline, "do not have the new key")

    def restart(self, places: Iterable[Place], user: str, step: Step) -> float:
        """End the first process of containers, and wait until they run again and are ready. Seconds of that.

        As that process's user: root may end no process of others in most containers. The container's very first one is
        only its parent, and ends with it. One that has ended is started by a new pod at once.
        """
        left, begun = list(places), time.monotonic()
        end = "kill -TERM $(cat /proc/1/task/1/children)"
        if waiting := [place.pod for place in left if not place.id]:
            self._kubectl.run("delete", "pod", *waiting, "-n", self._namespace, "--wait=false", "--ignore-not-found")
        running = [place for place in left if place.id]
        self._failing(running, "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sh", "-c", end)
        while left := self._not_back(left):
            _wait(left, step, begun + RESTART_SECONDS, "do not run again")
        return time.monotonic() - begun

    def must(self, place: Place, *command: str, stdin: str | None = None) -> None:
        """Run a command in a container. Raises Failure with its own words where it fails."""
        done = self._exec(place, *command, stdin=stdin, seconds=60)
        if done.returncode != 0:
            raise Failure(f"{place.pod}: {complaint(done)}", hint="run this again: it goes on")

    def _exec(
        self, place: Place, *command: str, stdin: str | None = None, seconds: float = 30
    ) -> subprocess.CompletedProcess[str]:
        where = ("-n", self._namespace, place.pod, "-c", place.container, "--")
        given = ["-i"] if stdin is not None else []
        return self._kubectl.run("exec", *given, *where, *command, stdin=stdin, check=False, seconds=seconds)

    def _failing(self, places: list[Place], *command: str) -> list[Place]:
        """Those in which a command fails."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            done = pool.map(lambda place: self._exec(place, *command), places)
            return [place for place, each in zip(places, done, strict=True) if each.returncode != 0]

    def _not_back(self, ended: Iterable[Place]) -> list[Place]:
        """Those that do not run anew, or are not ready. One whose pod has left is waited for by nobody."""
        now = {str(pod["metadata"]["name"]): self._of(pod) for pod in self._pods()}

        def is_back(old: Place) -> bool:
            return any(it.container == old.container and it.ready and it.id != old.id for it in now.get(old.pod, ()))

        return [place for place in ended if (place.pod in now or not place.id) and not is_back(place)]

    def _pods(self) -> list[dict[str, Any]]:
        return self._kubectl.items("pod", "-n", self._namespace, "-l", "app.kubernetes.io/part-of=slurmstack")

    def _has(self, pod: Mapping[str, Any]) -> bool:
        spec = pod["spec"]
        return any(item["name"] in self._containers for item in [*spec.get("initContainers", []), *spec["containers"]])

    def _of(self, pod: Mapping[str, Any], *states: str) -> list[Place]:
        """Its containers that run, or are in one of these states."""
        return [
            Place(
                pod=str(pod["metadata"]["name"]),
                container=str(item["name"]),
                id=str(item.get("containerID", "")),
                ready=bool(item.get("ready")),
                active=labels_of(pod).get(ACTIVE) == "yes",
            )
            for item in statuses(pod)
            if item["name"] in self._containers and {*(states or ("running",))} & {*item.get("state", {})}
        ]


def _wait(places: Iterable[Place], step: Step, deadline: float, what: str) -> None:
    names = sorted({place.pod for place in places})
    named = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    if time.monotonic() > deadline:
        raise Failure(f"{named}: {what}", hint="run this again: it goes on where this has ended")
    step.progress(0, 0, named)
    time.sleep(POLL)
