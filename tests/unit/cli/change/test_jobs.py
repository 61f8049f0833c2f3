"""Which jobs a change touches, and how: stack files before and after, and a queue as squeue prints it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from cli.change.apply import cancel_lost_jobs
from cli.change.jobs import (
    JobsTouched,
    jobs_destroyed,
    jobs_touched,
    lines,
    refuse_lost_jobs,
)
from cli.errors import REFUSED, Failure
from tests.fakes.queue_cluster import FakeKubectl, effects, job, objects, pending, slurm_conf, without
from tests.fakes.slurmctld import AWAY
from tests.stacks import with_change

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

WITHOUT_BIG, WITHOUT_LARGE = without(STACK, "worker_nodes", "big"), without(STACK, "partitions", "large")
SHORT = with_change(STACK, "worker_nodes.cpu.drain_timeout", 60)
ELASTIC = with_change(STACK, "worker_nodes.cpu", {**STACK["worker_nodes"]["cpu"], "size": {"max": 4}})


def sized(size: Any, stack: dict[str, Any] = STACK, pool: str = "cpu") -> dict[str, Any]:
    return with_change(stack, f"worker_nodes.{pool}.size", size)


def touched(
    after: dict[str, Any],
    *queue: str,
    before: dict[str, Any] = STACK,
    in_force: str = "",
    pods: str = "",
) -> JobsTouched:
    """What a change from one stack file to another does to these jobs."""
    text = "".join(f"{line}\n" for line in queue)
    kubectl = FakeKubectl(queue=text, in_force=in_force or slurm_conf(before), pods=pods)
    return jobs_touched(kubectl, "slurm", old=objects(before), new=objects(after))


def unread(after: dict[str, Any], before: dict[str, Any] = STACK) -> JobsTouched:
    return jobs_touched(FakeKubectl(queue=None), "slurm", old=objects(before), new=objects(after))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change, the jobs that are there, and what becomes of those that it touches."""

    after: dict[str, Any]
    queue: list[str]
    effects: dict[str, str] = field(default_factory=dict)
    why: str = ""
    """What is said of the first one."""
    how: dict[str, Any] = field(default_factory=dict)


LASTS = job(left="1:00:00")
"""A job on cpu-3 that may last another hour."""

ROWS: dict[str, Row] = {
    "a partition leaves, its nodes stay: the job that waits still starts there": Row(
        after=WITHOUT_LARGE,
        queue=[job("1", partition="large", nodes="big-0"), pending("2", partition="large", user="bob"), job("3")],
    ),
    "a partition leaves with all its nodes": Row(
        after=WITHOUT_BIG,
        queue=[
            job("1", partition="large", nodes="big-0"),
            pending("2_[4-100%8]", partition="large"),
            pending("3", partition="large,small"),
            pending("4"),
        ],
        effects={"2_[4-100%8]": "never_starts", "1": "waits"},
    ),
    "nothing is forecast for a pending job that names nothing that leaves": Row(
        after=sized(0, pool="big"), queue=[pending(partition="large,small")]
    ),
    "a pool grows": Row(after=sized(9), queue=[job(), pending()]),
    "some nodes leave": Row(
        after=sized(2),
        queue=[job("1", nodes="cpu-[0-1]"), job("2", nodes="cpu-[1-2]"), job("3", nodes="big-0")],
        effects={"2": "waits"},
        why="pool 'cpu' shrinks to 2; cpu-2 waits 7 d at most",
    ),
    "a pod that was not made anew yet waits as long as it was made to": Row(
        after=sized(0), queue=[LASTS], effects={"7": "ends"}, how={"pods": "cpu-3 90\n"}
    ),
    "another template waits for the jobs of its pool however long they take": Row(
        after=STACK, queue=[job("1", left="1:00:00"), pending("3")], how={"before": SHORT, "pods": "cpu-3 90\n"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_change_touches_those_jobs_whose_nodes_or_partition_it_takes(name: str) -> None:
    row = ROWS[name]
    found = touched(row.after, *row.queue, **row.how)
    assert effects(found) == row.effects
    assert not row.why or found.touched[0].why == row.why
    assert found.refused == bool({"ends", "never_starts"} & {*row.effects.values()})
    assert found.running + found.pending == len(row.queue)


def test_jobs_that_never_start_are_refused_and_cancelled_task_by_task() -> None:
    found = touched(WITHOUT_BIG, pending("2_[4-100%8]", partition="large"), pending("4"))
    with pytest.raises(Failure, match="1 job would end or never start") as caught:
        refuse_lost_jobs(found)
    assert str(caught.value).endswith(": 2_[4-100%8]")
    assert lines(found)[-1] == "  1 pending job never starts, as the partition leaves with its nodes: 2_[4-100%8]"
    kubectl = FakeKubectl()
    cancel_lost_jobs(kubectl, "slurm", found.lost)
    ((command, stdin),) = kubectl.calls
    assert command[-2:] == ("scancel", "--state=pending")
    assert stdin == "\n".join(sorted(f"2_{task}" for task in range(4, 101)))


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_preemptible_pool_that_leaves_or_becomes_fixed_does_not_wait_for_its_jobs(preemptible: bool) -> None:
    before = with_change(ELASTIC, "worker_nodes.cpu.preemptible", preemptible)
    queue = (job("1", nodes="cpu-0"), job("2", nodes="big-0"))
    for after in (without(before, "worker_nodes", "cpu"), STACK):
        found = touched(after, *queue, before=before)
        assert effects(found) == {"1": "ends" if preemptible else "waits"}
        assert found.touched[0].why.startswith("pool 'cpu' becomes fixed" if after is STACK else "pool 'cpu' leaves")
        assert ("cpu-0 gives its jobs back at once" in found.touched[0].why) is preemptible
        assert "nodes of pool 'cpu' leave" in unread(after, before).dangers, "as long as nobody can read the queue"
    assert effects(touched(before, *queue, before=STACK)) == {"1": "waits"}, "its StatefulSet goes"


def test_from_an_elastic_pool_nodes_go_when_they_are_idle() -> None:
    before = with_change(ELASTIC, "worker_nodes.cpu.drain_timeout", 60)
    smaller = sized({"max": 2}, before)
    assert not touched(smaller, job("1", nodes="cpu-3"), before=before).touched
    assert not unread(smaller, before).refused


def test_a_job_that_may_outlast_the_wait_of_its_node_is_said_to_end_and_refused() -> None:
    before = with_change(STACK, "worker_nodes.cpu.drain_timeout", 3600)
    queue = [job("1", left="59:00", limit="1:00:00"), job("2", left="2:30:00", limit="3:00:00"), job("3")]
    found = touched(sized(0, before), *queue, before=before)
    assert effects(found) == {"2": "ends", "3": "ends", "1": "waits"}
    assert "cpu-3 waits 60 min at most, but the job may run for another 2 h" in found.touched[0].why
    assert "has no time limit" in found.touched[1].why
    with pytest.raises(Failure, match="2 jobs would end or never start") as caught:
        refuse_lost_jobs(found)
    assert caught.value.code == REFUSED
    assert "--kill-jobs" in caught.value.hint


def test_without_the_config_map_the_jobs_are_found_by_the_configuration_in_force() -> None:
    old = [item for item in objects(STACK) if item["kind"] != "ConfigMap"]
    kubectl = FakeKubectl(queue=pending(partition="large") + "\n", in_force=slurm_conf(STACK))
    found = jobs_touched(kubectl, "slurm", old=old, new=objects(WITHOUT_BIG))
    assert effects(found) == {"8": "never_starts"}
    assert jobs_touched(FakeKubectl(queue=None), "slurm", old=[], new=objects(STACK)) == JobsTouched()


@pytest.mark.parametrize(
    ("after", "before", "dangers"),
    [
        (STACK, STACK, ()),
        (sized(1), STACK, ("nodes of pool 'cpu' leave",)),
        (
            WITHOUT_BIG,
            STACK,
            ("partition 'large' leaves with all its pools", "nodes of pool 'big' leave"),
        ),
    ],
)
def test_a_queue_that_cannot_be_read_is_said_and_refuses_only_what_could_end_jobs(
    after: dict[str, Any], before: dict[str, Any], dangers: tuple[str, ...]
) -> None:
    found = unread(after, before)
    assert lines(found) == [f"jobs: the queue could not be read: slurm_load_jobs error: {AWAY}"]
    assert found.dangers == dangers
    if not dangers:
        refuse_lost_jobs(found)
        return
    with pytest.raises(Failure, match="Unable to contact slurm controller") as caught:
        refuse_lost_jobs(found)
    assert dangers[0] in str(caught.value)


def test_the_list_is_cut_for_people_and_whole_for_scripts() -> None:
    found = touched(sized(0), *(job(str(number), user=f"user{number % 7}") for number in range(30)))
    printed = lines(found)
    assert printed[0] == "jobs: 30 running, 0 pending; 30 are waited for"
    assert (len(printed), printed[-1]) == (22, "  ... and 10 more")
    document = json.loads(json.dumps(found.as_data()))
    assert (document["counts"], len(document["jobs"])) == ({"waits": 30}, 30)
    assert lines(touched(STACK, job())) == ["jobs: 1 running, 0 pending; none is touched"]


# destroy


def destroyed(*queue: str, keeps_queue: bool = False, grace: int = WEEK, there: Any = None) -> JobsTouched:
    """What destroying the cluster does to these jobs."""
    pods = "".join(f"cpu-{number} {grace}\n" for number in range(4))
    text = "".join(f"{line}\n" for line in queue)
    there = objects(STACK) if there is None else there
    kubectl = FakeKubectl(queue=text, in_force=slurm_conf(STACK), pods=pods, there=there)
    return jobs_destroyed(kubectl, "slurm", keeps_queue=keeps_queue)


IN_TIME = job(left="1:00:00", limit="2:00:00")


@pytest.mark.parametrize(
    ("queue", "how", "expected"),
    [
        ([IN_TIME], {}, {"7": "waits"}),
        ([IN_TIME, pending()], {"grace": 90}, {"7": "ends", "8": "never_starts"}),
        ([pending()], {"keeps_queue": True}, {}),
        ([LASTS], {"keeps_queue": True, "grace": 90, "there": []}, {"7": "ends"}),
        ([IN_TIME], {"keeps_queue": True, "grace": 90, "there": objects(ELASTIC)}, {"7": "ends"}),
    ],
    ids=["waited for", "outlast the wait, and lose the queue", "the queue stays", "cut off before", "elastic"],
)  # fmt: skip
def test_destroy_waits_for_jobs_and_is_refused_where_they_would_be_lost(
    queue: list[str], how: dict[str, Any], expected: dict[str, str]
) -> None:
    found = destroyed(*queue, **how)
    assert effects(found) == expected
    assert found.refused == bool({"ends", "never_starts"} & {*expected.values()})
    if found.refused:
        with pytest.raises(Failure, match="would end or never start: 7") as caught:
            refuse_lost_jobs(found, "destroy")
        assert "destroy --kill-jobs" in str(caught.value.hint)


def test_destroy_without_an_answer_is_refused_while_workers_run_and_only_then() -> None:
    running = FakeKubectl(queue=None, pods="cpu-0 630\n", there=objects(STACK))
    found = jobs_destroyed(running, "slurm", keeps_queue=True)
    assert found.dangers == ("cpu-0 waits 10 min at most for jobs that it may have",)
    assert found.refused
    idle = jobs_destroyed(FakeKubectl(queue=None, there=objects(STACK)), "slurm", keeps_queue=True)
    assert not idle.refused, "no job can run without a worker"
    assert idle.as_data()["running"] is None, "nobody has counted"
    assert jobs_destroyed(FakeKubectl(queue=None), "slurm", keeps_queue=False) == JobsTouched()


@pytest.mark.parametrize("pools", [STACK["worker_nodes"], {}])
def test_a_queue_that_nobody_can_read_is_not_deleted_unasked(pools: dict[str, Any]) -> None:
    controller = {"kind": "StatefulSet", "metadata": {"name": "controller"}, "spec": {"template": {}}}
    there = [controller, *(item for item in objects(STACK) if item["metadata"]["name"] in pools)]
    found = jobs_destroyed(FakeKubectl(queue=None, there=there), "slurm", keeps_queue=False)
    assert found.dangers == ("the queue is deleted, and nobody knows what is in it",)
    kubectl = FakeKubectl(queue=f"{pending()}\n", in_force=slurm_conf(STACK), there=there)
    assert effects(jobs_destroyed(kubectl, "slurm", keeps_queue=False)) == {"8": "never_starts"}
