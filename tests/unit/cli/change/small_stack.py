"""A stack of two pools, and stack files that differ from it by a word, for the jobs that a change touches."""

from __future__ import annotations

from typing import Any

from cli.change.jobs import JobsTouched, jobs_touched
from tests.fakes.queue_cluster import FakeKubectl, objects, slurm_conf

STACK: dict[str, Any] = {
    "cloud": {"kind": "existing", "context": "prod"},
    "worker_nodes": {
        "cpu": {"size": 4, "resources": {"cpus": 4, "memory": "8Gi"}, "features": ["avx2"]},
        "big": {"size": 2, "resources": {"cpus": 16, "memory": "64Gi"}},
    },
    "partitions": {
        "main": {"pools": ["cpu", "big"], "default": True},
        "small": {"pools": ["cpu"], "max_time": "1-00:00:00"},
        "large": {"pools": ["big"]},
    },
}
WEEK = 7 * 24 * 3600


def touched(
    after: dict[str, Any],
    *queue: str,
    before: dict[str, Any] = STACK,
    rolled: tuple[str, ...] = (),
    in_force: str = "",
    pods: str = "",
) -> JobsTouched:
    """What a change from one stack file to another does to these jobs."""
    text = "".join(f"{line}\n" for line in queue)
    kubectl = FakeKubectl(queue=text, in_force=in_force or slurm_conf(before), pods=pods)
    return jobs_touched(kubectl, "slurm", old=objects(before), new=objects(after), rolled=rolled)


def unread(after: dict[str, Any], before: dict[str, Any] = STACK) -> JobsTouched:
    return jobs_touched(FakeKubectl(queue=None), "slurm", old=objects(before), new=objects(after), rolled=())
