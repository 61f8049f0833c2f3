"""What `destroy` does to the jobs."""

from __future__ import annotations

from typing import Any

import pytest

from cli.safety.jobs import jobs_destroyed
from tests.fakes.queue_cluster import FakeKubectl, fates, objects, pending, slurm_conf
from tests.unit.cli.safety.small_stack import STACK


@pytest.mark.parametrize("pools", [STACK["worker_nodes"], {}])
def test_a_queue_that_nobody_can_read_is_not_deleted_unasked(pools: dict[str, Any]) -> None:
    controller = {"kind": "StatefulSet", "metadata": {"name": "controller"}, "spec": {"template": {}}}
    there = [controller, *(item for item in objects(STACK) if item["metadata"]["name"] in pools)]
    found = jobs_destroyed(FakeKubectl(queue=None, there=there), "slurm", keeps_queue=False)
    assert found.dangers == ("the queue is deleted, and nobody knows what is in it",)
    queue = f"{pending()}\n"
    kubectl = FakeKubectl(queue=queue, in_force=slurm_conf(STACK), there=there)
    assert fates(jobs_destroyed(kubectl, "slurm", keeps_queue=False)) == {"8": "never_starts"}
