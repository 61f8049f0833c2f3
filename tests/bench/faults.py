"""Whether a job gets lost among 10,000 while two controllers meet with 200 faults, chosen by a seed."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.bench.failover import Outcome, begin, sandbox
from tests.bench.row import Measuring
from tests.slurm.failover import FailoverSandbox, Stream, came_back
from tests.slurm.pod import wait_until

SEED: Final = 18
FAULTS: Final = 200
JOBS_OF_FAULT: Final = 50
"""At least so many jobs are accepted for each fault."""

WORKERS: Final = 4
TASKS: Final = 5
"""Of each array that is submitted: sbatch itself takes longer than a job."""

MOST_WAITING: Final = 200

Fault = Callable[[FailoverSandbox, Stream, random.Random], None]


def faults(bench: Measuring) -> None:
    """`--runs` is the number of faults."""
    number = bench.times(FAULTS)
    chosen, met, outcome = random.Random(SEED), Counter[str](), Outcome()
    with sandbox(WORKERS) as cluster:
        wait_until(cluster.stands_by, cluster.logs)
        stream = Stream(cluster, tasks=TASKS, most=MOST_WAITING)
        started = time.monotonic()
        with stream.running():
            begin(cluster, stream)
            for count in range(1, number + 1):
                kind = chosen.choice(list(KINDS))
                KINDS[kind](cluster, stream, chosen)
                met[kind] += 1
                _await(cluster, stream, count * JOBS_OF_FAULT)
                if count % 10 == 0:
                    bench.say(f"{count} faults, {len(stream.accepted):,} jobs accepted, {len(stream.ran()):,} have run")
        outcome.add(stream)
        minutes = (time.monotonic() - started) / 60
    kinds = ", ".join(f"{times} times {kind}" for kind, times in sorted(met.items()))
    note = f"{number} faults in {minutes:.0f} minutes, seed {SEED}: {kinds}; "
    outcome.take(bench, "seeded faults", note)


def _await(cluster: FailoverSandbox, stream: Stream, jobs: int) -> None:
    """What Slurm holds counts as waiting, and nothing would be submitted behind too much of it."""

    def are_accepted() -> bool:
        stream.release()
        return len(stream.accepted) >= jobs

    wait_until(are_accepted, lambda: f"{jobs} jobs: {len(stream.accepted)}\n{stream.look()}\n{cluster.logs()}", 120)


def _kill(cluster: FailoverSandbox, stream: Stream, chosen: random.Random) -> None:
    """All processes of the active controller's pod, which is made anew."""
    del chosen
    before, at = cluster.active, time.monotonic()
    cluster.signal_all(before, signal.SIGKILL)
    stream.accepted_since(at, 60)
    came_back(cluster, before)


def _kill_slurmctld(cluster: FailoverSandbox, stream: Stream, chosen: random.Random) -> None:
    del chosen
    at = time.monotonic()
    cluster.run("pkill -KILL -x slurmctld", pod=cluster.active.name)
    stream.accepted_since(at, 60)


def _pause(cluster: FailoverSandbox, stream: Stream, chosen: random.Random) -> None:
    """For less than the other one waits, or for longer."""
    before = cluster.active
    cluster.signal_all(before, signal.SIGSTOP)
    time.sleep(chosen.uniform(0.5, 5))
    at = time.monotonic()
    cluster.signal_all(before, signal.SIGCONT)
    stream.accepted_since(at, 60)


def _end(cluster: FailoverSandbox, stream: Stream, chosen: random.Random) -> None:
    """As Kubernetes ends a container, and starts it again."""
    del chosen
    before, at = cluster.active, time.monotonic()
    cluster.run("pkill -TERM -f libexec/slurmstack/supervisor", pod=before.name)
    stream.accepted_since(at, 60)
    cluster.start_supervisor(before)


def _no_api(cluster: FailoverSandbox, stream: Stream, chosen: random.Random) -> None:
    assert cluster.api is not None
    cluster.api.down = True
    time.sleep(chosen.uniform(1, 5))
    cluster.api.down = False
    stream.accepted_since(time.monotonic(), 60)


KINDS: Final[dict[str, Fault]] = {
    "active controller killed": _kill,
    "slurmctld killed": _kill_slurmctld,
    "active controller paused": _pause,
    "active controller ended in order": _end,
    "API server away": _no_api,
}
