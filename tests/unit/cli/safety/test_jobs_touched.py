"""Which jobs a change touches, and how: stack files before and after, and a queue as squeue prints it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cli.errors import Failure
from cli.safety.jobs import (
    JobsTouched,
    cancel_lost_jobs,
    jobs_touched,
    lines,
    print_jobs,
    refuse_lost_jobs,
)
from images.controller.leaving import BLOCK
from tests.fakes.queue_cluster import FakeKubectl, fates, job, objects, pending, slurm_conf, without
from tests.fakes.slurmctld import AWAY
from tests.stacks import with_change
from tests.unit.cli.safety.small_stack import STACK, touched, unread


def controller(**slurmctld: Any) -> dict[str, Any]:
    spec = {"template": {"spec": {"containers": [{"name": "slurmctld", **slurmctld}]}}}
    return {"kind": "StatefulSet", "metadata": {"name": "controller"}, "spec": spec}


@pytest.mark.parametrize(
    ("there", "fate"), [(controller(), "ends"), (controller(lifecycle={"preStop": {"exec": {}}}), "nothing")]
)
def test_an_older_configuration_agent_would_end_the_jobs_of_a_partition_that_leaves(
    there: dict[str, Any], fate: str
) -> None:
    queue = job(partition="small") + "\n" + pending(partition="small") + "\n"
    kubectl = FakeKubectl(queue=queue, in_force=slurm_conf(STACK))
    old, new = objects(STACK), objects(without(STACK, "partitions", "small"))
    assert fates(jobs_touched(kubectl, "slurm", old=[*old, there], new=new, rolled=())) == {"7": fate, "8": fate}


# Partitions that leave


def test_a_partition_that_leaves_keeps_its_jobs_where_its_nodes_stay() -> None:
    gone = without(STACK, "partitions", "large")
    queue = [job("1", partition="large", nodes="big-0"), pending("2", partition="large", user="bob"), job("3")]
    found = touched(gone, *queue)
    assert fates(found) == {"1": "nothing", "2": "nothing"}
    assert lines(found)[0] == "jobs: 2 running, 1 pending; 2 go on (alice 1, bob 1)"
    assert any("2 bob large PENDING" in line and "still starts there" in line for line in lines(found))
    refuse_lost_jobs(found)


def test_jobs_of_a_partition_that_leaves_with_all_its_nodes_never_start() -> None:
    gone = without(STACK, "worker_nodes", "big")
    assert "large" not in gone["partitions"]
    queue = [
        job("1", partition="large", nodes="big-0"),
        pending("2_[4-100%8]", partition="large"),
        pending("3", partition="large,small"),
        pending("4"),
    ]
    found = touched(gone, *queue)
    assert fates(found) == {"2_[4-100%8]": "never_starts", "1": "waits"}
    with pytest.raises(Failure, match="1 job would end or never start") as caught:
        refuse_lost_jobs(found)
    assert str(caught.value).endswith(": 2_[4-100%8]")
    assert "  2_[4-100%8] alice large PENDING never starts: " in "\n".join(lines(found))
    kubectl = FakeKubectl()
    cancel_lost_jobs(kubectl, "slurm", found.lost)
    ((command, stdin),) = kubectl.calls
    assert (command[-2:], stdin) == (
        ("scancel", "--state=pending"),
        "\n".join(sorted(f"2_{task}" for task in range(4, 101))),
    )


def test_a_job_that_could_not_start_before_either_would_keep_its_partition_for_ever() -> None:
    before = with_change(STACK, "worker_nodes.big.size", 0)
    found = touched(without(before, "worker_nodes", "big"), pending(partition="large"), before=before)
    assert fates(found) == {"8": "never_starts"}


def test_a_partition_that_left_earlier_and_is_kept_for_its_jobs_still_counts() -> None:
    before = without(STACK, "partitions", "large")
    kept = slurm_conf(before) + BLOCK + "PartitionName=large Nodes=big State=DRAIN\n"
    found = touched(before, pending(partition="large"), before=before, in_force=kept)
    assert not found.touched, "it was said when the partition left"
    found = touched(before, pending(partition="large", cpus="99"), before=before, in_force=kept)
    assert not found.refused, "another change does not make it worse"
    found = touched(without(before, "worker_nodes", "big"), pending(partition="large"), before=before, in_force=kept)
    assert fates(found) == {"8": "never_starts"}


# Jobs that wait


@pytest.mark.parametrize(
    ("path", "value", "needs"),
    [
        ("worker_nodes.big.size", 0, {"constraint": "big"}),
        ("worker_nodes.big.size", 1, {"partition": "large", "count": "2"}),
        ("worker_nodes.big.size", 1, {"wanted": "big-[0-1]"}),
        ("worker_nodes.big.size", 0, {"cpus": "8"}),
        ("worker_nodes.big.size", 0, {"memory": "32G"}),
        ("worker_nodes.cpu.size", 0, {"partition": "small"}),
        ("worker_nodes.cpu.features", [], {"constraint": "avx2"}),
        ("partitions.small.max_time", "12:00:00", {"partition": "small", "limit": "20:00:00"}),
    ],
)
def test_a_waiting_job_that_nothing_could_run_is_named_and_kept(
    path: str, value: object, needs: dict[str, str]
) -> None:
    found = touched(with_change(STACK, path, value), pending(**needs))
    assert fates(found) == {"8": "stays_pending"}
    assert not found.refused, "the stack file can be set back, and the job starts"


@pytest.mark.parametrize(
    "needs",
    [
        {},
        {"constraint": "avx2"},
        {"constraint": "big|avx2"},
        {"constraint": "[big*2&avx2]"},
        {"constraint": "unknown"},
        {"cpus": "99"},
        {"partition": "other"},
        {"partition": "large,small"},
        {"wanted": "cpu-3"},
        {"memory": "0"},
        {"count": "4"},
    ],
)
def test_nothing_is_said_of_a_waiting_job_without_certainty(needs: dict[str, str]) -> None:
    assert not touched(with_change(STACK, "worker_nodes.big.size", 0), pending(**needs)).touched


@pytest.mark.parametrize(
    ("scratch", "why"), [(None, "pool 'big' has no scratch any more"), ("1Gi", "pool 'big' has 1024 MiB of scratch")]
)
def test_a_pool_that_loses_its_scratch_cannot_run_who_asked_for_it(scratch: str | None, why: str) -> None:
    before = with_change(STACK, "worker_nodes.big.scratch", {"size": "2Ti", "storage_class": "fast"})
    after = with_change(before, "worker_nodes.big.scratch.size", scratch) if scratch else STACK
    queue = [pending("1", tmp="4000M"), pending("2", tmp="1000M"), pending("3"), job("4", nodes="big-0")]
    found = touched(after, *queue, before=before, rolled=("big",))
    assert fates(found) == {"1": "stays_pending", "4": "waits"} | ({} if scratch else {"2": "stays_pending"})
    assert any(why in item.why for item in found.touched)
    assert fates(touched(before, *queue, before=STACK, rolled=("big",))) == {"4": "waits"}, "it only adds"


def test_a_time_limit_that_was_too_long_before_is_no_news() -> None:
    found = touched(
        with_change(STACK, "partitions.small.max_time", "12:00:00"),
        pending("1", partition="small", limit="2-00:00:00"),
        pending("2", partition="small", limit="11:00:00"),
        pending("3", partition="small,main", limit="20:00:00"),
        job("4", partition="small", limit="20:00:00"),
    )
    assert not found.touched


# Settings


@pytest.mark.parametrize(
    ("count", "lost"),
    [(14, ""), (13, "9"), (12, "8 9"), (9, "5 6 7 8 9"), (4, "4 5 6 7 8 9"), (3, "3_[1,3,5,7,9%3] 4")],
)
def test_fewer_jobs_than_there_are_drop_the_newest_as_slurm_does(count: int, lost: str) -> None:
    """What was left of this queue was measured with a real slurmctld, 24.11.5."""
    queue = [pending("9"), pending("3_[1,3,5,7,9%3]"), *map(pending, "45678"), job("1"), job("2")]
    found = touched(with_change(STACK, "slurm", {"settings": {"MaxJobCount": count}}), *queue)
    assert set(lost.split()) <= set(fates(found))
    assert len(fates(found)) == (7 if count == 3 else len(lost.split()))
    assert set(fates(found).values()) <= {"ends"}
    assert all(f"MaxJobCount becomes {count}" in item.why for item in found.touched)


def test_a_range_of_an_array_counts_each_of_its_tasks() -> None:
    found = touched(
        with_change(STACK, "slurm", {"settings": {"MaxJobCount": 36}}), pending("3_[1-100:3,200%8]"), pending("4+0")
    )
    assert fates(found) == {"4+0": "ends"}, "35 tasks are before it"
    assert not touched(
        with_change(STACK, "slurm", {"settings": {"MaxJobCount": 37}}), pending("3_[1-100:3,200]"), job("4")
    ).touched


def test_another_setting_touches_no_job_but_a_slurmctld_that_does_not_answer_is_said() -> None:
    after = with_change(STACK, "slurm", {"settings": {"MinJobAge": 5}})
    assert not touched(after, job()).touched
    for same_or_other in (STACK, after):
        found = unread(same_or_other)
        assert AWAY in found.unread
        assert not found.refused


# The configuration in force, not the one that was asked for


def test_without_the_config_map_the_jobs_are_found_all_the_same() -> None:
    old = [item for item in objects(STACK) if item["kind"] != "ConfigMap"]
    kubectl = FakeKubectl(queue=pending(partition="large") + "\n", in_force=slurm_conf(STACK))
    new = objects(without(STACK, "worker_nodes", "big"))
    assert fates(jobs_touched(kubectl, "slurm", old=old, new=new, rolled=())) == {"8": "never_starts"}


def test_a_job_without_a_limit_of_its_own_follows_its_partition() -> None:
    shorter = with_change(STACK, "partitions.small.max_time", "12:00:00")
    (found,) = touched(shorter, pending(partition="small", limit="1-00:00:00")).touched
    assert found.fate == "nothing"
    assert found.why.startswith("it may run for max_time of 'small', which becomes 12 hours; if it has asked for 1 day")


def test_a_default_of_memory_that_no_node_has_would_hold_those_who_asked_for_none() -> None:
    before = with_change(STACK, "slurm", {"settings": {"DefMemPerCPU": 500}})
    after = with_change(STACK, "slurm", {"settings": {"DefMemPerCPU": 40000}})
    queue = [
        pending("1", memory="500M", partition="small"),
        pending("2", memory="400M", partition="small"),
        pending("3", memory="500M", partition="large"),
        pending("4", memory="500M", partition="large", cpus="2"),
    ]
    found = touched(after, *queue, before=before)
    assert fates(found) == {"1": "never_starts", "4": "never_starts"}
    assert "DefMemPerCPU becomes 40000 MiB" in found.touched[0].why
    assert not touched(with_change(STACK, "slurm", {"settings": {"DefMemPerCPU": 100}}), *queue, before=before).touched


def test_the_default_of_memory_is_that_of_the_job_s_partition() -> None:
    before = with_change(STACK, "partitions.small.settings", {"DefMemPerCPU": 500})
    after = with_change(STACK, "partitions.small.settings", {"DefMemPerCPU": 5000})
    queue = [
        pending("1", memory="500M", partition="small", cpus="2"),
        pending("2", memory="500M", partition="large", cpus="2"),
        pending("3", memory="500M", partition="small,large", cpus="2"),
        pending("4", memory="500M", partition="small"),
    ]
    assert fates(touched(after, *queue, before=before)) == {"1": "never_starts"}
    assert not touched(before, *queue, before=after).touched


# A queue that cannot be read


def test_a_queue_that_cannot_be_read_is_said_and_refuses_only_what_could_end_jobs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = unread(with_change(STACK, "partitions.small.max_time", "2-00:00:00"))
    assert lines(found) == [f"jobs: the queue could not be read: slurm_load_jobs error: {AWAY}"]
    print_jobs(replace(found, unread="\x1b[2Jgone"))
    assert capsys.readouterr().out == "jobs: the queue could not be read:  [2Jgone\n"
    refuse_lost_jobs(found)
    smaller = unread(with_change(STACK, "worker_nodes.cpu.size", 1))
    assert smaller.dangers == ("nodes of pool 'cpu' leave and wait 7 days at most",), "a job may take a month"
    with pytest.raises(Failure, match="Unable to contact slurm controller") as caught:
        refuse_lost_jobs(unread(without(STACK, "worker_nodes", "big")))
    assert "partition 'large' leaves with all its pools" in str(caught.value)
    fewer = unread(with_change(STACK, "slurm", {"settings": {"MaxJobCount": 100}}))
    assert fewer.dangers == ("MaxJobCount becomes 100: Slurm drops the jobs that are over it",)
    assert fewer.refused
    short = with_change(STACK, "worker_nodes.cpu.drain_timeout", 60)
    assert unread(with_change(short, "worker_nodes.cpu.size", 1), short).dangers == (
        "nodes of pool 'cpu' leave and wait 90 seconds at most",
    )


def test_where_no_slurmctld_has_run_there_are_no_jobs() -> None:
    assert jobs_touched(FakeKubectl(queue=None), "slurm", old=[], new=objects(STACK), rolled=()) == JobsTouched()


# What is printed


def test_the_list_is_cut_for_people_and_whole_for_scripts() -> None:
    queue = [job(str(number), user=f"user{number % 7}") for number in range(30)]
    found = touched(with_change(STACK, "worker_nodes.cpu.size", 0), *queue)
    printed = lines(found)
    assert printed[0].startswith("jobs: 30 running, 0 pending; 30 are waited for (user0 5, user1 5, ")
    assert "2 more users" in printed[0]
    assert (len(printed), printed[-1]) == (22, "  ... and 10 more")
    document = json.loads(json.dumps(found.as_data()))
    assert (document["counts"], len(document["jobs"])) == ({"waits": 30}, 30)
    assert document["jobs"][0] == {
        "id": "0",
        "user": "user0",
        "partition": "main",
        "state": "RUNNING",
        "nodes": ["cpu-3"],
        "fate": "waits",
        "why": "pool 'cpu' shrinks to 0; cpu-3 waits 7 days at most",
        "cause": "change",
    }
