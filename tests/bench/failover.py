"""What becomes of submissions and jobs when the active one of two controllers is killed, or paused.

Real daemons in a sandbox, under a stream of submissions; the Kubernetes API is played (tests/fakes), and what starts a
pod anew is not Kubernetes.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import Final

from tests.bench.row import Measuring
from tests.slurm.failover import SETTINGS, FailoverSandbox, Stream, came_back, content
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until

VERSION: Final = "24.11"
RUNS: Final = 20
AWAKE_SECONDS: Final = 3.0
"""So long an old primary that wakes is watched, with nobody else who could write."""

SETTLE_SECONDS: Final = 600.0
"""For what waits when the submissions end."""


@dataclass
class Outcome:
    """What became of all jobs that were accepted."""

    accepted: int = 0
    twice: int = 0
    held: int = 0
    samples: list[float] = field(default_factory=list)
    """Lost jobs of each stream."""

    def add(self, stream: Stream) -> None:
        """Wait until the queue is empty, and count."""
        stream.settle(SETTLE_SECONDS)
        self.accepted += len(stream.accepted)
        self.samples.append(len(stream.lost()))
        self.twice += len(stream.twice() & set(stream.accepted))
        self.held += len(stream.released)

    def take(self, bench: Measuring, through: str, note: str = "") -> None:
        """Rows of it."""
        held = f"{self.held} were queued again and held by Slurm, and released"
        note = f"{note}{self.accepted:,} accepted; {held}"
        bench.take(f"jobs lost through {through}", self.samples, unit="jobs", goal=0, worst=True, note=note)
        bench.take(f"jobs begun twice through {through}", [self.twice], unit="jobs", goal=0)


def sandbox(workers: int) -> FailoverSandbox:
    """Two controllers, a login node and workers of two CPUs."""
    return FailoverSandbox(VERSION, config=minimal_config(VERSION, SETTINGS), workers=workers)


def failover(bench: Measuring) -> None:
    """Each run has a stream of its own, which has to end before the next one."""
    with sandbox(workers=2) as cluster:
        outcome = Outcome()
        bench.measure(
            "active controller killed -> submissions accepted again", lambda _: _killed(cluster, outcome),
            runs=RUNS, goal=5, worst=True,
        )  # fmt: skip
        changed: list[float] = []
        bench.measure(
            "active controller paused -> submissions accepted again", lambda _: _paused(cluster, outcome, changed),
            runs=RUNS, goal=8, worst=True,
        )  # fmt: skip
        bench.take("files of the state that an old primary changes when it wakes", changed, unit="files", goal=0,
                   worst=True, note=f"each watched for {AWAKE_SECONDS:g} s")  # fmt: skip
        outcome.take(bench, "these kills and pauses")


def begin(cluster: FailoverSandbox, stream: Stream) -> None:
    """Wait until the stream flows."""
    wait_until(lambda: len(stream.accepted) >= 5, cluster.logs, 60)


def _killed(cluster: FailoverSandbox, outcome: Outcome) -> float:
    wait_until(cluster.stands_by, cluster.logs, 60)
    before, stream = cluster.active, Stream(cluster)
    with stream.running():
        begin(cluster, stream)
        killed = time.monotonic()
        cluster.signal_all(before, signal.SIGKILL)
        seconds = stream.accepted_since(killed)
        time.sleep(1)
    outcome.add(stream)
    came_back(cluster, before)
    return seconds


def _paused(cluster: FailoverSandbox, outcome: Outcome, changed: list[float]) -> float:
    """The samples of `changed`: files that are other ones, or newer, or gone, after the old one has woken."""
    assert cluster.api is not None
    wait_until(cluster.stands_by, cluster.logs, 60)
    before, stream = cluster.active, Stream(cluster)
    with stream.running():
        begin(cluster, stream)
        paused = time.monotonic()
        cluster.signal_all(before, signal.SIGSTOP)
        seconds = stream.accepted_since(paused)
        time.sleep(1)
    after = cluster.active
    assert after is not before, cluster.logs()
    cluster.api.down = True
    cluster.signal_all(after, signal.SIGSTOP)  # so that whatever is written is the old one's
    found = content(cluster.state)
    cluster.signal_all(before, signal.SIGCONT)
    time.sleep(AWAKE_SECONDS)
    changed.append(len({path for path, _ in set(found.items()) ^ set(content(cluster.state).items())}))
    cluster.signal_all(after, signal.SIGCONT)
    cluster.api.down = False
    outcome.add(stream)
    return seconds
