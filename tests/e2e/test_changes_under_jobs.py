"""Any change of the stack file while jobs come and go: each accepted job runs once, or what becomes of it was said."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cli.errors import REFUSED
from config import ConfigError, load_config
from tests.e2e.harness import SlurmOnKubernetes, slurmstack
from tests.e2e.job_stream import stream_of_jobs
from tests.stacks import dev, with_change

CHANGES = int(os.environ.get("SLURMSTACK_CHANGES", "2"))
"""How many changes: a few where every test runs, hundreds for a night (SLURMSTACK_CHANGES=300). The seed of the few: a
partition, and a pool that is rolled."""

SEED = int(os.environ.get("SLURMSTACK_CHANGES_SEED", "193"))

PARTITIONS = dev()["partitions"]
EDITS: dict[str, tuple[Any, ...]] = {
    "worker_nodes.default.size": (1, 2, 3),
    "worker_nodes.default.resources.memory": ("1Gi", "2Gi"),
    "worker_nodes.default.features": ([], ["avx2"]),
    "worker_nodes.default.shared_memory": ("64Mi", "128Mi"),
    "worker_nodes.default.drain_timeout": (30, 3600),
    "worker_nodes.default.confinement": ("auto", "off"),
    "worker_nodes.default.containers": (False, True),
    "partitions": (PARTITIONS, {**PARTITIONS, "extra": {"pools": ["default"], "priority_tier": 2}}),
    "partitions.main.max_time": ("1:00:00", "UNLIMITED"),
    "login.size": (1, 2),
    "users.bob": ({"uid": 10002}, {"uid": 10002, "sudo": True}),
    "groups": ({}, {"team": {"gid": 20001}}),
    "qos": ({}, {"urgent": {"priority": 10}}),
    "licenses": ({}, {"matlab": 3}),
    "slurm.settings.MinJobAge": (301, 302),
    "rest.enabled": (False, True),
    "monitoring": ({}, {"install": True, "storage": "1Gi"}),
    "health.enabled": (True, False),
}
"""Place in the stack file -> what may stand there: of each kind of change that one local cluster can make."""


def series(sections: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Random edits, each on top of those before: what each is, and the stack file."""
    chosen = random.Random(SEED)
    for _ in range(CHANGES):
        while True:
            path = chosen.choice(sorted(EDITS))
            changed = with_change(sections, path, value := chosen.choice(EDITS[path]))
            if changed != sections and _is_valid(changed):
                break
        sections = changed
        yield f"{path}: {value}", sections


def _is_valid(sections: dict[str, Any]) -> bool:
    try:
        load_config(sections)
    except ConfigError:
        return False
    return True


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
    told = {job["id"] for job in said["jobs"]["jobs"] if job["effect"] in {"ends", "never_starts"}}
    return told | set(later) | set(cancelled)


@pytest.mark.timeout(600 + 150 * CHANGES)
def test_every_accepted_job_runs_once_through_a_series_of_changes(two_nodes: SlurmOnKubernetes) -> None:
    slurm, before = two_nodes, two_nodes.sections
    told: set[str] = set()
    made: list[str] = []
    try:
        with stream_of_jobs(slurm, SEED) as stream:
            for change, sections in series(before):
                made.append(change)
                told |= apply(slurm, {**sections, "protect": False})
    finally:
        told |= apply(slurm, before)
    wrong = stream.wrong(told)
    assert not wrong, f"started and ended (once each is right), after {made} with seed {SEED}: {wrong}"
    assert len(stream.accepted) > CHANGES, "the stream has to be one"
