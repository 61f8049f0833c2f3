"""Which jobs a change touches, and how: stack files before and after, and a queue as squeue prints it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cli.change.jobs import (
    JobsTouched,
    cancel_lost_jobs,
    jobs_touched,
    lines,
    print_jobs,
    refuse_lost_jobs,
)
from cli.errors import Failure
from images.common.slurm_conf import BLOCK
from tests.fakes.queue_cluster import FakeKubectl, fates, job, objects, pending, slurm_conf, without
from tests.fakes.slurmctld import AWAY
from tests.stacks import with_change
from tests.unit.cli.change.small_stack import STACK, touched, unread

# Partitions that leave


def test_a_partition_that_leaves_keeps_its_jobs_where_its_nodes_stay() -> None:
    gone = without(STACK, "partitions", "large")
    queue = [job("1", partition="large", nodes="big-0"), pending("2", partition="large", user="bob"), job("3")]
    found = touched(gone, *queue)
    assert fates(found) == {"1": "nothing"}, "the one that waits still starts there"
    assert lines(found)[0] == "jobs: 2 running, 1 pending; 1 goes on (alice 1)"
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
    assert lines(found)[-1] == "  1 pending job never starts, as the partition leaves with its nodes: 2_[4-100%8]"
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
    without_nodes = with_change(before, "worker_nodes.big.size", 0)
    found = touched(without_nodes, pending(partition="large"), before=without_nodes, in_force=kept)
    assert not found.touched, "another change does not make it worse"
    found = touched(without(before, "worker_nodes", "big"), pending(partition="large"), before=before, in_force=kept)
    assert fates(found) == {"8": "never_starts"}


# Jobs that wait


def test_a_pending_job_that_asks_for_a_node_that_leaves_is_named_and_kept() -> None:
    smaller = with_change(STACK, "worker_nodes.cpu.size", 3)
    found = touched(smaller, *(pending(str(number), wanted="cpu-[2-3]") for number in range(12)), pending("20"))
    assert set(fates(found).values()) == {"stays_pending"}
    assert not found.refused, "the stack file can be set back, and the jobs start"
    ids = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..."
    assert lines(found)[1:] == [f"  12 pending jobs stay pending, as a node that they ask for leaves: {ids}"]
    gone = touched(without(STACK, "worker_nodes", "cpu"), pending(wanted="cpu-0"))
    assert fates(gone) == {"8": "stays_pending"}


@pytest.mark.parametrize(
    "needs",
    [{"cpus": "99"}, {"constraint": "big"}, {"memory": "64G"}, {"count": "4"}, {"partition": "other"},
     {"partition": "large,small"}, {"wanted": "cpu-3"}],
)  # fmt: skip
def test_nothing_is_forecast_for_a_pending_job_that_names_nothing_that_leaves(needs: dict[str, str]) -> None:
    assert not touched(with_change(STACK, "worker_nodes.big.size", 0), pending(**needs)).touched


def test_which_nodes_leave_an_elastic_pool_is_not_known_before() -> None:
    before = with_change(STACK, "worker_nodes.cpu", {**STACK["worker_nodes"]["cpu"], "size": {"max": 4}})
    smaller = with_change(before, "worker_nodes.cpu.size.max", 2)
    assert not touched(smaller, pending(wanted="cpu-3"), before=before).touched


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
