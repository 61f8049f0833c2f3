"""How long a pool waits for nodes that leave: by their numbers, or the idle ones and those whose jobs end soonest.

`python -m tests.bench.scale_in` prints the table behind decision 0076. A simulation, since jobs take
days: 64 nodes of eight places, of which eight leave; jobs of one place or of all eight, each put on the lowest number
that has room for it, as slurmctld does with nodes of one weight. Lengths are log-normal, a median of 5 minutes and a
mean of 2 hours, cut off at 7 days: many short ones and few long ones, but nobody's trace. Limits of time: the next of
1 h, 4 h, 1 day, 7 days, or, every third, 7 days.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

NODES, PLACES, LEAVE = 64, 8, 8
MEDIAN, MEAN = 300.0, 7200.0
LIMITS = (3600.0, 14400.0, 86400.0, 604800.0)
WHOLE = 0.5
"""Share of the work that is of jobs with whole nodes."""
WARM_UP = 14 * 86400.0
RUNS = 60
SEED = 17


@dataclass
class Pool:
    """What runs where, at one moment."""

    ends: list[list[tuple[float, float]]] = field(default_factory=lambda: [[] for _ in range(NODES)])
    """Of each node's jobs: when it ends, and when it must."""
    free: list[int] = field(default_factory=lambda: [PLACES] * NODES)

    def gone(self, node: int, now: float) -> float:
        """Seconds until no job is on a node."""
        return max((end - now for end, _ in self.ends[node]), default=0.0)

    def told(self, node: int, now: float) -> float:
        """The same as far as Slurm knows."""
        return max((limit - now for _, limit in self.ends[node]), default=0.0)


def _length(chance: random.Random) -> float:
    return min(chance.lognormvariate(math.log(MEDIAN), math.sqrt(2 * math.log(MEAN / MEDIAN))), LIMITS[-1])


_MEAN = statistics.mean(map(_length, [random.Random(SEED)] * 200_000))
"""As the longest limit leaves it."""


def pool_at(load: float, chance: random.Random) -> tuple[Pool, float]:
    """A pool that has been busy for two weeks, and the time."""
    pool, running, queue = Pool(), list[tuple[float, int, int, float]](), list[tuple[int, float, float]]()
    # Per job: half of the work is of whole nodes, so that those are one of nine jobs.
    whole = WHOLE / PLACES / (WHOLE / PLACES + 1 - WHOLE)
    rate = load * NODES * PLACES / (_MEAN * (whole * PLACES + 1 - whole))
    now = 0.0
    while now < WARM_UP:
        now += chance.expovariate(rate)
        while running and running[0][0] <= now:
            end, node, size, limit = heapq.heappop(running)
            pool.free[node] += size
            pool.ends[node].remove((end, limit))
            _start(pool, queue, running, end)
        length = _length(chance)
        limit = LIMITS[-1] if chance.random() < 1 / 3 else next(one for one in LIMITS if one >= length)
        queue.append((PLACES if chance.random() < whole else 1, length, limit))
        _start(pool, queue, running, now)
    return pool, now


def _start(
    pool: Pool, queue: list[tuple[int, float, float]], running: list[tuple[float, int, int, float]], now: float
) -> None:
    """First come, first served, and who has room goes before: most that fit, of the first 50."""
    room, tried = max(pool.free), queue[:50]
    waiting = []
    for size, length, limit in tried:
        node = next((one for one in range(NODES) if pool.free[one] >= size), None) if size <= room else None
        if node is None:
            waiting.append((size, length, limit))
            continue
        pool.free[node] -= size
        pool.ends[node].append((now + length, now + limit))
        heapq.heappush(running, (now + length, node, size, now + limit))
    queue[:50] = waiting


def _highest(_: Pool, __: float) -> list[int]:
    return list(range(NODES - LEAVE, NODES))


def _by_limit(pool: Pool, now: float) -> list[int]:
    return sorted(range(NODES), key=partial(pool.told, now=now))[:LEAVE]


def _by_end(pool: Pool, now: float) -> list[int]:
    return sorted(range(NODES), key=partial(pool.gone, now=now))[:LEAVE]


WAYS: dict[str, Callable[[Pool, float], list[int]]] = {
    "the highest numbers": _highest,
    "idle ones, then those whose limits end soonest": _by_limit,
    "idle ones, then those whose jobs end soonest, which nobody knows": _by_end,
}


def main() -> None:
    """Print the table."""
    print("| load | who leaves | the first | half of them | all | hours of machines |")
    print("| --- | --- | --- | --- | --- | --- |")
    for load in (0.5, 0.8, 0.95):
        chance = random.Random(SEED)
        pools = [pool_at(load, chance) for _ in range(RUNS)]
        for name, way in WAYS.items():
            waits = [sorted(pool.gone(one, now) for one in way(pool, now)) for pool, now in pools]
            columns = [statistics.median(run[at] for run in waits) for at in (0, LEAVE // 2 - 1, LEAVE - 1)]
            hours = statistics.mean(sum(run) for run in waits) / 3600
            print(f"| {load:.0%} | {name} | {' | '.join(map(_time, columns))} | {hours:.0f} |")


def _time(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 600
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


if __name__ == "__main__":
    main()
