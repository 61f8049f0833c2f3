"""The live queue: what `squeue` says, and the configuration that slurmctld runs with."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import typer

from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint, in_controller
from images.common.slurm_conf import IN_FORCE, without_block
from images.common.slurm_conf import SLURM_CONF as CONF
from images.common.slurm_jobs import ENDED, Job, JobList
from images.common.slurm_records import NotUnderstoodError
from slurm.names import CONTROLLER, CONTROLLER_HOST

JOBS = JobList("id", "user", "partitions", "state", "node_list", "left", "limit", "wanted")
"""What a change may touch of a job."""

_TIMEOUT = 10
"""Seconds that slurmctld may take to answer; squeue alone would try for minutes."""

STARTING = 30
"""Seconds that a controller is waited for which is starting."""

_PAUSE = 0.5
"""Seconds between two tries meanwhile."""

_END_OF_FILE = "# the queue"


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What slurmctld says at one moment."""

    jobs: tuple[Job, ...]
    slurm_conf: str
    """The slurm.conf in force, with what the configuration agent added to it."""

    @property
    def stack_conf(self) -> str:
        """The same as the stack file has made it: without the partitions that left it and are kept for their jobs."""
        return without_block({CONF: self.slurm_conf})[CONF]


def read_queue(kubectl: Kubectl, namespace: str) -> Queue:
    """Ask slurmctld, in one call. Raises Failure with the reason if it does not answer."""
    script = f"cat {IN_FORCE} && echo '{_END_OF_FILE}' && timeout {_TIMEOUT} env {JOBS.shell}"
    done = in_controller(kubectl, namespace, "sh", "-c", script)
    if done.returncode != 0:
        raise Failure(complaint(done) if done.returncode != 124 else f"no answer within {_TIMEOUT} s")
    slurm_conf, _, jobs = done.stdout.partition(f"{_END_OF_FILE}\n")
    return Queue(jobs=parse_jobs(jobs), slurm_conf=slurm_conf)


def read_patiently(kubectl: Kubectl, namespace: str) -> Queue:
    """Read the queue; a controller that is starting is waited for. Raises Failure."""
    try:
        return read_queue(kubectl, namespace)
    except Failure as failure:
        return await_queue(kubectl, namespace, failure)


def await_queue(kubectl: Kubectl, namespace: str, failure: Failure) -> Queue:
    """Read the queue once more after a failure, for STARTING s if the controller is on its way.

    Raises the failure at once if it is not, else the last one.
    """
    if not _is_starting(kubectl, namespace):
        raise failure
    typer.echo(f"{CONTROLLER_HOST} is starting: waiting until it answers, {STARTING} s at most", err=True)
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline:
        time.sleep(_PAUSE)
        try:
            return read_queue(kubectl, namespace)
        except Failure as last:
            failure = last
    raise Failure(f"{CONTROLLER_HOST} is starting, and does not answer after {STARTING} s: {failure}")


def _is_starting(kubectl: Kubectl, namespace: str) -> bool:
    """Whether there is to be a controller whose pod is away, leaves, or has just begun to run."""
    found = kubectl.items(f"statefulset/{CONTROLLER}", f"pod/{CONTROLLER_HOST}", "-n", namespace)
    staying = {item["kind"]: item for item in found if "deletionTimestamp" not in item["metadata"]}
    if "StatefulSet" not in staying or "Pod" not in staying:
        return "StatefulSet" in staying
    containers = staying["Pod"].get("status", {}).get("containerStatuses", [])
    started = [container.get("state", {}).get("running", {}).get("startedAt") for container in containers]
    recently = datetime.now(UTC) - timedelta(seconds=STARTING)
    return not started or not all(started) or max(map(datetime.fromisoformat, started)) > recently


def parse_jobs(printed: str) -> tuple[Job, ...]:
    """The jobs in what squeue printed, but those that only clean up. Raises Failure."""
    try:
        return tuple(job for job in JOBS.read(printed) if job.state != ENDED)
    except NotUnderstoodError as error:
        raise Failure(f"squeue: {error}") from error
