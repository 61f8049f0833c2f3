"""What is being written, as it comes, until somebody has seen enough."""

from __future__ import annotations

import contextlib
import heapq
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from datetime import datetime

from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl
from cli.logs.lines import Line, nanoseconds
from cli.logs.sources import Container

MOST = 60
"""Logs that are followed side by side: each is a process here and a connection at the API server."""

DELAY = 0.7
"""Seconds that a line waits for earlier ones of others, which come by another way."""

AGAIN = 5.0
"""Seconds between two looks for new pods, and until a log that has ended is opened again."""

Wanted = Mapping[Container, Callable[[str], bool]]
"""Containers, each with which of its lines are wanted."""


def follow(
    kubectl: Kubectl, namespace: str, plan: Callable[[], Wanted], since: datetime
) -> Generator[Line, None, None]:
    """Lines from this time on, in the order of time as far as they come within DELAY. Never ends by itself.

    `plan` is asked again and again, as pods come and go. Raises Failure if it fails the first time, or has too much.
    """
    streams = _Streams(kubectl, namespace, since)
    try:
        streams.open(plan())
        plans = _Plans(plan)
        waiting: list[tuple[int, int, float, Line]] = []
        number = 0
        while True:
            try:
                line = streams.lines.get(timeout=DELAY / 2)
                number += 1
                heapq.heappush(waiting, (line.at, number, time.monotonic(), line))
            except queue.Empty:
                pass
            while waiting and time.monotonic() - waiting[0][2] >= DELAY:
                yield heapq.heappop(waiting)[3]
            if (wanted := plans.next()) is not None:
                with contextlib.suppress(Failure):  # too many by now: those that are open go on
                    streams.open(wanted)
    finally:
        streams.close()


class _Plans:
    """Looks for what there is to follow, aside: a silent slurmctld or API server keeps no line from being shown."""

    def __init__(self, plan: Callable[[], Wanted]) -> None:
        self._plan = plan
        self._made: queue.Queue[Wanted] = queue.Queue()
        self._looked = time.monotonic()
        self._looking: threading.Thread | None = None

    def next(self) -> Wanted | None:
        """A new plan, if one has been made since the last."""
        if self._looking is None and time.monotonic() - self._looked >= AGAIN:
            self._looking = threading.Thread(target=self._look, daemon=True)  # Ctrl-C does not wait for it
            self._looking.start()
        elif self._looking is not None and not self._looking.is_alive():
            self._looking, self._looked = None, time.monotonic()
        with contextlib.suppress(queue.Empty):
            return self._made.get_nowait()
        return None

    def _look(self) -> None:
        with contextlib.suppress(Failure):
            self._made.put(self._plan())


class _Streams:
    """One `kubectl logs --follow` for each container, and a thread that reads it."""

    def __init__(self, kubectl: Kubectl, namespace: str, since: datetime) -> None:
        self.lines: queue.Queue[Line] = queue.Queue(100_000)
        self._kubectl = kubectl
        self._namespace = namespace
        self._since = f"{since:%Y-%m-%dT%H:%M:%SZ}"
        self._last: dict[str, tuple[int, str]] = {}
        """Place -> time and text of time of its last line: where a log that is opened again goes on."""
        self._running: dict[str, subprocess.Popen[str]] = {}

    def open(self, wanted: Wanted) -> None:
        """Follow what is not followed yet, or no longer."""
        if len(wanted) > MOST:
            hint = "name a component, a node or a job"
            raise Failure(f"{len(wanted)} logs are too many to follow; {MOST} go", hint=hint, code=USAGE)
        for container, matches in wanted.items():
            running = self._running.get(container.place)
            if running is None or (running.poll() is not None and not container.over):
                self._start(container, matches)

    def _start(self, container: Container, matches: Callable[[str], bool]) -> None:
        shown, since = self._last.get(container.place, (0, self._since))
        where = ["logs", "--follow", "-n", self._namespace, container.pod, "-c", container.name, "--timestamps"]
        process = subprocess.Popen(
            [*self._kubectl.command(), *where, f"--since-time={since}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a container that has not begun yet: it is tried again
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **self._kubectl.environment},
        )
        self._running[container.place] = process
        threading.Thread(target=self._read, args=(process, container, matches, shown), daemon=True).start()

    def _read(
        self, process: subprocess.Popen[str], container: Container, matches: Callable[[str], bool], shown: int
    ) -> None:
        assert process.stdout is not None
        for printed in process.stdout:
            stamp, _, text = printed.removesuffix("\n").partition(" ")
            at = nanoseconds(stamp)
            if at is None or at <= shown:
                continue  # a kubelet's complaint; or it was shown before the log was opened again
            self._last[container.place] = (at, stamp)
            if matches(text):
                self.lines.put(Line(at=at, component=container.component, place=container.place, text=text))

    def close(self) -> None:
        """End all, and wait until they have ended."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
