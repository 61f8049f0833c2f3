"""A stream of small jobs beside whatever is done to a cluster: each that slurmctld accepts has to run once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from tests.e2e.harness import SlurmOnKubernetes, wait_until

FOLDER = "/home/alice/stream"
SCRIPT = f"echo start $SLURM_JOB_ID >> {FOLDER}/log; sleep SECONDS; echo end $SLURM_JOB_ID >> {FOLDER}/log"


class JobStream(threading.Thread):
    """Submits jobs of alice, one after the other, and keeps the ids of those that slurmctld accepted."""

    def __init__(self, slurm: SlurmOnKubernetes, seed: int, seconds: Sequence[int], pause: float) -> None:
        super().__init__(daemon=True, name="job-stream")
        self._slurm, self._seconds, self._pause = slurm, seconds, pause
        self._ended = threading.Event()
        self._chosen = random.Random(seed)
        self.accepted: list[str] = []
        self.times: list[float] = []
        """When they were accepted (CLOCK_MONOTONIC)."""

    def run(self) -> None:
        while not self._ended.wait(self._pause):
            script = SCRIPT.replace("SECONDS", str(self._chosen.choice(self._seconds)))
            # slurmctld may be away for a moment: what it has not accepted is nobody's loss.
            printed = self._slurm.slurm(
                f"sbatch --parsable --uid=alice --chdir={FOLDER} --output=/dev/null --wrap '{script}'", check=False
            ).strip()
            if printed.isdigit():
                self.accepted.append(printed)
                self.times.append(time.monotonic())

    @property
    def longest_gap(self) -> float:
        """Seconds between two that were accepted, one after the other."""
        return max(after - before for before, after in pairwise(self.times))

    def end(self) -> None:
        self._ended.set()
        self.join()

    def wrong(self, told: Collection[str] = (), *, timeout: float = 300) -> dict[str, tuple[int, int]]:
        """Starts and ends of those jobs that have not started and ended once, when all have run. `told`: those that
        a change had said it would end.
        """
        wait_until(
            lambda: not set(self._slurm.slurm("squeue --noheader --format=%A").split()).difference(told),
            "an empty queue",
            timeout=timeout,
        )
        seen = Counter(self._slurm.ssh(f"cat {FOLDER}/log").splitlines())
        times = {job: (seen[f"start {job}"], seen[f"end {job}"]) for job in self.accepted if job not in told}
        return {job: counts for job, counts in times.items() if counts != (1, 1)}


@contextmanager
def stream_of_jobs(
    slurm: SlurmOnKubernetes, seed: int, *, seconds: Sequence[int] = (0, 1, 2, 15), pause: float = 0.5
) -> Iterator[JobStream]:
    """`seconds`: that jobs take, one of these; `pause`: seconds between two submissions."""
    slurm.ssh(f"mkdir -p {FOLDER} && : > {FOLDER}/log")
    stream = JobStream(slurm, seed, seconds, pause)
    stream.start()
    try:
        yield stream
    finally:
        stream.end()


def all_recorded(slurm: SlurmOnKubernetes, jobs: Sequence[str]) -> bool:
    """Whether accounting has each of them, as one that has ended well."""
    records = slurm.ssh(f"sacct --noheader --parsable2 --allocations --format=jobid,state --jobs={','.join(jobs)}")
    return set(records.split()) == {f"{job}|COMPLETED" for job in jobs}
