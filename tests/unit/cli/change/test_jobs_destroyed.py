"""What `destroy` does to the jobs."""

from __future__ import annotations

from typing import Any

import pytest

from cli.change import jobs as queue_module
from cli.change.jobs import JobsTouched, jobs_destroyed, refuse_lost_jobs
from cli.errors import Failure
from config import load_config
from images.common.elastic.view import SETTINGS
from slurm.elastic import settings
from tests.fakes.queue_cluster import FakeKubectl, fates, job, objects, pending, slurm_conf
from tests.stacks import with_change
from tests.unit.cli.change.small_stack import STACK, WEEK


def destroyed(*queue: str, keeps_queue: bool = False, grace: int = WEEK) -> JobsTouched:
    """What destroying the cluster does to these jobs."""
    pods = "".join(f"cpu-{number} {grace}\n" for number in range(4))
    text = "".join(f"{line}\n" for line in queue)
    kubectl = FakeKubectl(queue=text, in_force=slurm_conf(STACK), pods=pods, there=objects(STACK))
    return jobs_destroyed(kubectl, "slurm", keeps_queue=keeps_queue)


def test_destroy_waits_for_jobs_that_end_in_time_and_says_so() -> None:
    found = destroyed(job(left="1:00:00", limit="2:00:00"))
    assert fates(found) == {"7": "waits"}
    assert not found.refused


def test_destroy_is_refused_for_jobs_that_outlast_the_wait_and_for_a_queue_that_goes() -> None:
    found = destroyed(job(left="1:00:00", limit="2:00:00"), pending(), grace=90)
    assert fates(found) == {"7": "ends", "8": "never_starts"}
    assert (found.running, found.pending) == (1, 1)
    with pytest.raises(Failure, match="2 jobs would end or never start: 7, 8") as caught:
        refuse_lost_jobs(found, "destroy")
    assert "destroy --kill-jobs" in str(caught.value.hint)


def test_jobs_that_wait_outlive_destroy_where_their_queue_does() -> None:
    found = destroyed(pending(), pending("9", partition="large"), keeps_queue=True)
    assert fates(found) == {"8": "stays_pending", "9": "stays_pending"}
    assert not found.refused


def test_destroy_without_an_answer_is_refused_while_workers_run_and_only_then() -> None:
    running = FakeKubectl(queue=None, pods="cpu-0 630\n", there=objects(STACK))
    found = jobs_destroyed(running, "slurm", keeps_queue=True)
    assert found.dangers == ("cpu-0 waits 10 minutes at most for jobs that it may have",)
    assert found.refused
    idle = jobs_destroyed(FakeKubectl(queue=None, there=objects(STACK)), "slurm", keeps_queue=True)
    assert not idle.refused, "no job can run without a worker"
    assert idle.as_data()["running"] is None, "nobody has counted"
    assert jobs_destroyed(FakeKubectl(queue=None), "slurm", keeps_queue=False) == JobsTouched()


@pytest.mark.parametrize("pools", [STACK["worker_nodes"], {}])
def test_a_queue_that_nobody_can_read_is_not_deleted_unasked(
    monkeypatch: pytest.MonkeyPatch, pools: dict[str, Any]
) -> None:
    monkeypatch.setattr(queue_module, "STARTING", 0)
    monkeypatch.setattr(queue_module, "_PAUSE", 0)
    controller = {"kind": "StatefulSet", "metadata": {"name": "controller"}, "spec": {"template": {}}}
    there = [controller, *(item for item in objects(STACK) if item["metadata"]["name"] in pools)]
    found = jobs_destroyed(FakeKubectl(queue=None, there=there), "slurm", keeps_queue=False)
    assert found.dangers == ("the queue is deleted, and nobody knows what is in it",)
    queue = f"{pending()}\n"
    kubectl = FakeKubectl(queue=queue, in_force=slurm_conf(STACK), there=there)
    assert fates(jobs_destroyed(kubectl, "slurm", keeps_queue=False)) == {"8": "never_starts"}


def test_after_a_destroy_that_was_cut_off_a_job_on_a_pod_of_a_pool_that_has_gone_counts() -> None:
    kubectl = FakeKubectl(queue=f"{job(left='1:00:00')}\n", in_force=slurm_conf(STACK), pods="cpu-3 90\n")
    assert fates(jobs_destroyed(kubectl, "slurm", keeps_queue=True)) == {"7": "ends"}


def test_jobs_on_nodes_of_an_elastic_pool_count_as_well() -> None:
    sections = with_change(STACK, "worker_nodes.cpu.size", {"max": 4})
    _, big, configuration = objects(STACK)
    template = {
        "kind": "PodTemplate",
        "metadata": {
            "name": "cpu",
            "labels": {"slurmstack/pool": "cpu"},
            "annotations": {SETTINGS: settings("cpu", load_config(sections).worker_nodes["cpu"])},
        },
        "template": {"spec": objects(STACK)[0]["spec"]["template"]["spec"]},
    }
    there = [template, big, configuration]
    kubectl = FakeKubectl(
        queue=f"{job(left='1:00:00', limit='2:00:00')}\n", in_force=slurm_conf(STACK), pods="cpu-3 90\n", there=there
    )
    assert fates(jobs_destroyed(kubectl, "slurm", keeps_queue=True)) == {"7": "ends"}
