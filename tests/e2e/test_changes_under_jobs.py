"""Any change of the stack file while jobs come and go: each accepted job runs once, or what becomes of it was said."""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cli.errors import REFUSED
from tests.changes import series
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until

CHANGES = int(os.environ.get("SLURMSTACK_CHANGES", "2"))
"""How many changes: a few where every test runs, hundreds for a night (SLURMSTACK_CHANGES=300). The seed of the few: a
partition, and a pool that is rolled, and rolled again when it may wait for half a minute only."""

SEED = int(os.environ.get("SLURMSTACK_CHANGES_SEED", "71"))

FOLDER = "/home/alice/stream"
SCRIPT = f"echo start $SLURM_JOB_ID >> {FOLDER}/log; sleep SECONDS; echo end $SLURM_JOB_ID >> {FOLDER}/log"


class JobStream(threading.Thread):
    """Submits jobs of alice, one after the other, and keeps the ids of those that slurmctld accepted."""

    def __init__(self, slurm: SlurmOnKubernetes) -> None:
        super().__init__(daemon=True, name="job-stream")
        self._slurm = slurm
        self._ended = threading.Event()
        self._chosen = random.Random(SEED)
        self.accepted: list[str] = []

    def run(self) -> None:
        while not self._ended.wait(0.5):
            script = SCRIPT.replace("SECONDS", str(self._chosen.choice((0, 1, 2, 15))))
            # slurmctld may be away for a moment: what it has not accepted is nobody's loss.
            printed = self._slurm.slurm(
                f"sbatch --parsable --uid=alice --chdir={FOLDER} --output=/dev/null --wrap '{script}'", check=False
            ).strip()
            if printed.isdigit():
                self.accepted.append(printed)

    def end(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def stream_of_jobs(slurm: SlurmOnKubernetes) -> Iterator[JobStream]:
    stream = JobStream(slurm)
    stream.start()
    try:
        yield stream
    finally:
        stream.end()


def apply(slurm: SlurmOnKubernetes, sections: dict[str, Any]) -> set[str]:
    """Apply a stack file. The jobs that it ends or never lets start, by what `preview` and `up` have said before."""
    slurm.sections = sections
    options = ("--engine", slurm.engine, "--config", str(slurm.file))
    previewed = slurmstack("preview", "--json", *options, check=False)
    assert previewed.returncode in {0, REFUSED}, previewed.stdout + previewed.stderr
    said = json.loads(previewed.stdout)
    assert said["outcome"] != "refused" or said["jobs"]["refused"], said["refusals"]
    # `up` looks again, and names those that have come since.
    printed = slurmstack("up", "--yes", "--kill-jobs", *options).stdout
    later = re.findall(r"(?m)^ +(\S+) alice .*(?:is ended|never starts): ", printed)
    return {job["id"] for job in said["jobs"]["jobs"] if job["fate"] in {"ends", "never_starts"}} | set(later)


@pytest.mark.timeout(600 + 150 * CHANGES)
def test_every_accepted_job_runs_once_through_a_series_of_changes(two_nodes: SlurmOnKubernetes) -> None:
    slurm, before = two_nodes, two_nodes.sections
    slurm.ssh(f"mkdir -p {FOLDER} && : > {FOLDER}/log")
    told: set[str] = set()
    made: list[str] = []
    try:
        with stream_of_jobs(slurm) as stream:
            for change, sections in series(before, seed=SEED, count=CHANGES):
                made.append(str(change))
                told |= apply(slurm, {**sections, "protect": False})
    finally:
        told |= apply(slurm, before)
    wait_until(
        lambda: not set(slurm.slurm("squeue --noheader --format=%A").split()) - told,
        f"an empty queue after {made}",
        timeout=300,
    )
    seen = Counter(slurm.ssh(f"cat {FOLDER}/log").splitlines())
    times = {job: (seen[f"start {job}"], seen[f"end {job}"]) for job in stream.accepted if job not in told}
    wrong = {job: counts for job, counts in times.items() if counts != (1, 1)}
    assert not wrong, f"started and ended (once each is right), after {made} with seed {SEED}: {wrong}"
    assert len(times) > CHANGES, "the stream has to be one"
