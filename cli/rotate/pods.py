"""Containers that have a key: whether its new file has reached them, and how they start again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cli.backup.jobs import statuses
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, complaint
from local.report import Step

POLL = 0.3
"""Seconds between two looks."""

SPREAD_SECONDS = 180.0
"""Until a file has reached all pods: kubelet takes a second where it is told, and a minute and a half by itself."""

RESTART_SECONDS = 300.0
"""Until a container runs again: kubelet waits 10 s, or longer, for one that has ended not long ago."""

AT_A_TIME = 16
"""Pods that are asked at the same time."""

_END = "kill -TERM $(cat /proc/1/task/1/children)"

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


class Places:
    """All running containers of some names in a cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str, containers: Collection[str]) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._containers = containers

    def running(self) -> list[Place]:
        """Those that run now."""
        return [place for pod in self._pods() for place in self._of(pod)]

    def ended(self, container: str) -> list[Place]:
        """Where one does not run, and kubelet waits before it starts it again."""
        found = [place for pod in self._pods() for place in self._of(pod, "waiting", "terminated")]
        return [replace(place, id="", ready=False) for place in found if place.container == container]

    def refuse_missing(self) -> None:
        """Raise Failure where one of them does not run, or does not answer: it would be left behind."""
        pods = [pod for pod in self._pods() if pod.get("status", {}).get("phase") == "Running"]
        silent = [pod["metadata"]["name"] for pod in pods if self._has(pod) and not self._of(pod)]
        places = self.running()
        answers = self._each(places, lambda place: self.run(place, "true"))
        silent += [place.pod for place in places if answers[place] != 0]
        if silent:
            raise Failure(
                f"these pods do not run, or do not answer: {', '.join(sorted(set(silent))[:8])}",
                hint="this has touched nothing. `slurmstack status` and `slurmstack doctor` say what is wrong; wait "
                "until all pods run, or delete those whose machine is lost",
            )

    def stale(self, path: str, digest: str) -> list[Place]:
        """Those whose file is another one, or who do not answer."""
        places = self.running()
        asked = f'[ "$(sha256sum <{path})" = "{digest}  -" ]'
        answers = self._each(places, lambda place: self.run(place, "sh", "-c", asked))
        return [place for place in places if answers[place] != 0]

    def spread(self, path: str, digest: str, step: Step) -> None:
        """Wait until the Secret's new file has reached all of them."""
        deadline = time.monotonic() + SPREAD_SECONDS
        touched: set[str] = set()
        while stale := self.stale(path, digest):
            new = {place.pod for place in stale} - touched
            if new:
                self._touch(new)
                touched |= new
            step.progress(0, 0, _names(stale))
            _refuse_late(deadline, f"the new key has not reached {_names(stale)}")
            time.sleep(POLL)

    def restart(self, places: Iterable[Place], user: str, step: Step, *, together: bool = False) -> float:
        """End the first process of containers, and wait until they run again and are ready. Seconds of that.

        `together`: at one moment, by the clocks of their machines, however long it takes to tell them.
        """
        ended = list(places)
        lead = 2 + len(ended) / AT_A_TIME if together else 0
        begun = time.monotonic()
        at = self._now(ended[0]) + int(lead) + 1 if together and ended else 0
        self._each(ended, partial(self._end, user=user, at=at))
        return self._await(ended, step, begun + lead)

    def run(self, place: Place, *command: str) -> int:
        """Exit status of a command in a container."""
        return self._exec(place, *command).returncode

    def must(self, place: Place, *command: str, stdin: str = "") -> None:
        """Run a command in a container. Raises Failure with its own words where it fails."""
        done = self._exec(place, *command, stdin=stdin, seconds=60)
        if done.returncode != 0:
            raise Failure(f"{place.pod}: {complaint(done)}", hint="run this again: it goes on")

    def _exec(
        self, place: Place, *command: str, stdin: str | None = None, seconds: float = 30
    ) -> subprocess.CompletedProcess[str]:
        where = (
            "exec",
            *(["-i"] if stdin is not None else []),
            "-n",
            self._namespace,
            place.pod,
            "-c",
            place.container,
        )
        return self._kubectl.run(*where, "--", *command, stdin=stdin, check=False, seconds=seconds)

    def _end(self, place: Place, *, user: str, at: int) -> int:
        """As the first process's user: root may end no process of others in most containers. What waits is left to it.

        The container's very first one is only that process's parent, and ends with it.
        """
        if not place.id:  # a new pod starts at once
            return self._kubectl.run(
                "delete", "pod", place.pod, "-n", self._namespace, "--wait=false", "--ignore-not-found", check=False
            ).returncode
        wait = f"while [ $(date +%s) -lt {at} ]; do sleep 0.05; done"
        kill = f"exec setpriv --reuid={user} --regid={user} --clear-groups sh -c '{_END}'"
        return self.run(place, "sh", "-c", 'setsid sh -c "$0" >/dev/null 2>&1 </dev/null &', f"{wait}; {kill}")

    def _now(self, place: Place) -> int:
        where = ("exec", "-n", self._namespace, place.pod, "-c", place.container, "--", "date", "+%s")
        return int(self._kubectl.run(*where).stdout)

    def _await(self, ended: list[Place], step: Step, begun: float) -> float:
        deadline = time.monotonic() + RESTART_SECONDS
        while True:
            pods = {pod["metadata"]["name"] for pod in self._pods()}
            now = {(place.pod, place.container): place for place in self.running()}
            left = [
                place
                for place in ended
                if (place.pod in pods or not place.id)  # one that has left is waited for by nobody
                and ((new := now.get((place.pod, place.container))) is None or new.id == place.id or not new.ready)
            ]
            if not left:
                return max(0.0, time.monotonic() - begun)
            step.progress(0, 0, _names(left))
            _refuse_late(deadline, f"{_names(left)} does not run again")
            time.sleep(POLL)

    def _touch(self, pods: Collection[str]) -> None:
        told = f"{_TOUCHED}={time.time():.0f}"
        self._kubectl.run(
            "annotate", "pod", *sorted(pods), "-n", self._namespace, told, "--overwrite",
            f"--field-manager={FIELD_MANAGER}", check=False,
        )  # fmt: skip

    def _each(self, places: Iterable[Place], work: Callable[[Place], int]) -> dict[Place, int]:
        these = list(places)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return dict(zip(these, pool.map(work, these), strict=True))

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
            )
            for item in statuses(pod)
            if item["name"] in self._containers and {*(states or ("running",))} & {*item.get("state", {})}
        ]


def _names(places: Iterable[Place]) -> str:
    names = sorted({place.pod for place in places})
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _refuse_late(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise Failure(f"{what}", hint="run this again: it goes on where this has ended")
