"""What becomes of submissions and jobs when the active one of two controllers is killed, or paused.

Real daemons in a sandbox, under a stream of submissions; the Kubernetes API is played (tests/fakes), and what starts a
pod anew is not Kubernetes.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.bench.figures import Bench
from tests.slurm.failover import SETTINGS, FailoverSandbox, Stream, came_back
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until

VERSION: Final = "24.11"
RUNS: Final = 20
SETTLE_SECONDS: Final = 600.0
"""For what waits when the submissions end."""

SEED: Final = 18
FAULTS: Final = 200
JOBS_OF_FAULT: Final = 50
"""At least so many jobs are accepted for each fault."""

TASKS: Final = 5
"""Of each array that is submitted: sbatch itself takes longer than a job."""

MOST_WAITING: Final = 200


def failover(bench: Bench) -> None:
    """Each run has a stream of its own, which has to end before the next one."""
    with sandbox(workers=2) as cluster:
        for name, number, goal in (("killed", signal.SIGKILL, 5), ("paused", signal.SIGSTOP, 8)):
            bench.measure(
                f"active controller {name} -> submissions accepted again",
                lambda _: again_after(cluster, number), runs=RUNS, goal=goal, worst=True,  # noqa: B023  at once
            )  # fmt: skip


def faults(bench: Bench) -> None:
    """Whether a job gets lost, or runs twice. `--runs` is the number of faults."""
    number = bench.times(FAULTS)
    chosen, met = random.Random(SEED), Counter[str]()
    with sandbox(workers=4) as cluster:
        wait_until(cluster.stands_by, cluster.logs)
        stream = Stream(cluster, tasks=TASKS, most=MOST_WAITING)
        started = time.monotonic()
        with stream.running():
            begin(cluster, stream)
            for count in range(1, number + 1):
                kind = chosen.choice(list(KINDS))
                KINDS[kind](cluster, stream, chosen)
                met[kind] += 1
                await_accepted(cluster, stream, count * JOBS_OF_FAULT)
                if count % 10 == 0:
                    bench.say(f"{count} faults, {len(stream.accepted):,} jobs accepted, {len(stream.ran()):,} have run")
        minutes = (time.monotonic() - started) / 60
        stream.settle(SETTLE_SECONDS)
        twice = stream.twice() & set(stream.accepted)
        kinds = ", ".join(f"{times} times {kind}" for kind, times in sorted(met.items()))
        held = f"{len(stream.released)} were queued again and held by Slurm, and released"
        note = (
            f"{number} faults in {minutes:.0f} minutes, seed {SEED}: {kinds}; {len(stream.accepted):,} accepted; {held}"
        )
        bench.take("jobs lost through seeded faults", [len(stream.lost())], unit="jobs", goal=0, note=note)
        bench.take("jobs begun twice through seeded faults", [len(twice)], unit="jobs", goal=0)


def sandbox(workers: int) -> FailoverSandbox:
    """Two controllers, a login node and workers of two CPUs."""
    return FailoverSandbox(VERSION, config=minimal_config(VERSION, SETTINGS), workers=workers)


def begin(cluster: FailoverSandbox, stream: Stream) -> None:
    """Wait until the stream flows."""
    wait_until(lambda: len(stream.accepted) >= 5, cluster.logs, 60)


def again_after(cluster: FailoverSandbox, number: signal.Signals) -> float:
    """Seconds from a signal to all of the active controller until a later submission is accepted. None is lost."""
    wait_until(cluster.stands_by, cluster.logs, 60)
    before, stream = cluster.active, Stream(cluster)
    with stream.running():
        begin(cluster, stream)
        at = time.monotonic()
        cluster.signal_all(before, number)
        seconds = stream.accepted_since(at)
        time.sleep(1)
    if number == signal.SIGSTOP:
        cluster.signal_all(before, signal.SIGCONT)
    stream.settle(SETTLE_SECONDS)
    assert not stream.lost(), f"{stream.lost()}\n{cluster.logs()}"
    if number == signal.SIGKILL:
        came_back(cluster, before)
    return seconds


def await_accepted(cluster: FailoverSandbox, stream: Stream, jobs: int) -> None:
    """What Slurm holds counts as waiting, and nothing would be submitted behind too much of it."""

    def are_accepted() -> bool:
        stream.release()
        return len(stream.accepted) >= jobs

    wait_until(are_accepted, lambda: f"{jobs} jobs: {len(stream.accepted)}\n{stream.look()}\n{cluster.logs()}", 120)


def kill(cluster: FailoverSandbox, stream: Stream, _: random.Random) -> None:
    """All processes of the active controller's pod, which is made anew."""
    before, at = cluster.active, time.monotonic()
    cluster.signal_all(before, signal.SIGKILL)
    stream.accepted_since(at, 60)
    came_back(cluster, before)


def kill_slurmctld(cluster: FailoverSandbox, stream: Stream, _: random.Random) -> None:
    at = time.monotonic()
    cluster.run("pkill -KILL -x slurmctld", pod=cluster.active.name)
    stream.accepted_since(at, 60)


def pause(cluster: FailoverSandbox, stream: Stream, chosen: random.Random) -> None:
    """For less than the other one waits, or for longer."""
    before = cluster.active
    cluster.signal_all(before, signal.SIGSTOP)
    time.sleep(chosen.uniform(0.5, 5))
    at = time.monotonic()
    cluster.signal_all(before, signal.SIGCONT)
    stream.accepted_since(at, 60)


def end(cluster: FailoverSandbox, stream: Stream, _: random.Random) -> None:
    """As Kubernetes ends a container, and starts it again."""
    before, at = cluster.active, time.monotonic()
    cluster.run("pkill -TERM -f libexec/slurmstack/supervisor", pod=before.name)
    stream.accepted_since(at, 60)
    cluster.start_supervisor(before)


def no_api(cluster: FailoverSandbox, stream: Stream, chosen: random.Random) -> None:
    assert cluster.api is not None
    cluster.api.down = True
    time.sleep(chosen.uniform(1, 5))
    cluster.api.down = False
    stream.accepted_since(time.monotonic(), 60)


KINDS: Final[dict[str, Callable[[FailoverSandbox, Stream, random.Random], None]]] = {
    "active controller killed": kill,
    "slurmctld killed": kill_slurmctld,
    "active controller paused": pause,
    "active controller ended in order": end,
    "API server away": no_api,
}
