"""Any change of the stack file while jobs come and go: each accepted job runs once, or what becomes of it was said."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from cli.errors import REFUSED
from tests.changes import series
from tests.e2e.harness import SlurmOnKubernetes, slurmstack
from tests.e2e.job_stream import stream_of_jobs

CHANGES = int(os.environ.get("SLURMSTACK_CHANGES", "2"))
"""How many changes: a few where every test runs, hundreds for a night (SLURMSTACK_CHANGES=300). The seed of the few: a
partition, and a pool that is rolled, and rolled again when it may wait for half a minute only."""

SEED = int(os.environ.get("SLURMSTACK_CHANGES_SEED", "71"))


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
    later = re.findall(r"(?m)^ +(\S+) alice .*is ended: ", printed)
    cancelled = [job for line in re.findall(r"(?m)^cancelled: (.*)$", printed) for job in line.split(", ")]
    told = {job["id"] for job in said["jobs"]["jobs"] if job["fate"] in {"ends", "never_starts"}}
    return told | set(later) | set(cancelled)


@pytest.mark.timeout(600 + 150 * CHANGES)
def test_every_accepted_job_runs_once_through_a_series_of_changes(two_nodes: SlurmOnKubernetes) -> None:
    slurm, before = two_nodes, two_nodes.sections
    told: set[str] = set()
    made: list[str] = []
    try:
        with stream_of_jobs(slurm, SEED) as stream:
            for change, sections in series(before, seed=SEED, count=CHANGES):
                made.append(str(change))
                told |= apply(slurm, {**sections, "protect": False})
    finally:
        told |= apply(slurm, before)
    wrong = stream.wrong(told)
    assert not wrong, f"started and ended (once each is right), after {made} with seed {SEED}: {wrong}"
    assert len(stream.accepted) > CHANGES, "the stream has to be one"
