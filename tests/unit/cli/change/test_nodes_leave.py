"""Which jobs nodes that leave touch: pools that get smaller, change or go, and nodes that go already."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cli.change.jobs import jobs_destroyed, jobs_touched, lines, refuse_lost_jobs
from cli.errors import REFUSED, Failure
from tests.fakes.queue_cluster import FakeKubectl, fates, job, objects, pending, slurm_conf, without
from tests.stacks import with_change
from tests.unit.cli.change.small_stack import STACK, WEEK, touched, unread


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_preemptible_pool_that_leaves_or_becomes_fixed_does_not_wait_for_its_jobs(preemptible: bool) -> None:
    elastic = {"size": {"max": 4}, "preemptible": preemptible}
    before = with_change(STACK, "worker_nodes.cpu", {**STACK["worker_nodes"]["cpu"], **elastic})
    fixed = with_change(STACK, "worker_nodes.cpu.size", 4)
    queue = (job("1", nodes="cpu-0"), job("2", nodes="big-0"))
    gone = touched(without(before, "worker_nodes", "cpu"), *queue, before=before)
    assert fates(gone) == {"1": "ends" if preemptible else "waits"}
    assert ("cpu-0 gives its jobs back at once" in gone.touched[0].why) is preemptible
    becomes = touched(fixed, *queue, before=before)
    assert fates(becomes) == {"1": "ends" if preemptible else "waits"}
    assert becomes.touched[0].why.startswith("pool 'cpu' becomes fixed")
    assert fates(touched(before, *queue, before=fixed)) == {"1": "waits"}, "its StatefulSet goes"
    for after in (without(before, "worker_nodes", "cpu"), fixed):
        said = [danger for danger in unread(after, before).dangers if danger.startswith("nodes of pool 'cpu' ")]
        what = "give their jobs back at once" if preemptible else "leave and wait 7 days at most"
        assert said == [f"nodes of pool 'cpu' {what}"], "as long as nobody can read the queue"


def test_from_an_elastic_pool_those_leave_that_are_idle_and_then_those_whose_jobs_end_soonest() -> None:
    """The same as images/common/elastic/view.py does."""
    before = with_change(STACK, "worker_nodes.cpu", {**STACK["worker_nodes"]["cpu"], "size": {"max": 4}})
    before["worker_nodes"]["cpu"]["drain_timeout"] = 60
    smaller = with_change(before, "worker_nodes.cpu.size.max", 2)
    queue = (job("1", nodes="cpu-3"), job("2", nodes="cpu-0", left="1:00:00", limit="2:00:00"))
    assert not touched(smaller, *queue, before=before).touched, "the other two are idle"
    found = touched(smaller, *queue, job("3", nodes="cpu-[1,2]", left="2:00:00", limit="2:00:00"), before=before)
    assert fates(found) == {"2": "waits", "3": "waits"}, "however long they take"
    assert {item.why for item in found.touched} == {
        "pool 'cpu' shrinks to 2; cpu-0 waits for it",
        "pool 'cpu' shrinks to 2; cpu-2 waits for it",
    }
    assert not unread(smaller, before).refused
    assert not touched(before, job("4", nodes="cpu-5"), before=before).touched, "it stays until it is off"


def test_jobs_on_nodes_that_leave_are_waited_for_and_others_are_not_touched() -> None:
    smaller = with_change(STACK, "worker_nodes.cpu.size", 2)
    found = touched(smaller, job("1", nodes="cpu-[0-1]"), job("2", nodes="cpu-[1-2]"), job("3", nodes="big-0"))
    assert fates(found) == {"2": "waits"}
    assert "pool 'cpu' shrinks to 2; cpu-2 waits 7 days at most" in found.touched[0].why
    assert (found.running, found.pending, found.refused) == (3, 0, False)


def test_a_pool_that_grows_touches_nobody() -> None:
    found = touched(with_change(STACK, "worker_nodes.cpu.size", 9), job(), pending())
    assert lines(found) == ["jobs: 1 running, 1 pending; none is touched"]


def test_a_job_that_may_outlast_the_wait_of_its_node_is_said_to_end() -> None:
    before = with_change(STACK, "worker_nodes.cpu.drain_timeout", 3600)
    found = touched(
        with_change(before, "worker_nodes.cpu.size", 0),
        job("1", left="59:00", limit="1:00:00"),
        job("2", left="2:30:00", limit="3:00:00"),
        job("3"),
        before=before,
    )
    assert fates(found) == {"2": "ends", "3": "ends", "1": "waits"}
    assert "cpu-3 waits 60 minutes at most, but the job may run for another 2 hours" in found.touched[0].why
    assert "has no time limit" in found.touched[1].why
    with pytest.raises(Failure, match="2 jobs would end or never start") as caught:
        refuse_lost_jobs(found)
    assert caught.value.code == REFUSED
    assert "--kill-jobs" in caught.value.hint


def test_what_counts_is_how_long_the_pod_as_it_is_may_wait() -> None:
    short = with_change(STACK, "worker_nodes.cpu.drain_timeout", 60)
    found = touched(short, job(left="1:00:00"), rolled=("cpu",), pods=f"cpu-3 {WEEK}\n")
    assert fates(found) == {"7": "waits"}, "the old pod waits as long as it was made to"
    found = touched(with_change(STACK, "worker_nodes.cpu.size", 0), job(left="1:00:00"), pods="cpu-3 90\n")
    assert fates(found) == {"7": "ends"}, "the pod has not been made anew yet"


def test_a_changed_template_waits_for_the_jobs_of_its_pool_however_long_they_take() -> None:
    short = with_change(STACK, "worker_nodes.cpu.drain_timeout", 60)
    queue = (job("1", left="1:00:00"), job("2", nodes="big-0"), pending("3"))
    found = touched(STACK, *queue, before=short, rolled=("cpu",), pods="cpu-3 90\n")
    assert fates(found) == {"1": "waits"}
    assert found.touched[0].why == "pool 'cpu' gets new pods as its nodes fall idle; cpu-3 waits for it"
    assert not found.refused


def test_a_node_that_leaves_a_pool_which_gets_new_pods_waits_as_long_as_it_was_made_to() -> None:
    smaller = with_change(STACK, "worker_nodes.cpu.size", 3)
    found = touched(smaller, job(left="1:00:00"), rolled=("cpu",), pods="cpu-3 90\n")
    assert fates(found) == {"7": "ends"}


# Nodes that an earlier command takes away


def test_what_an_earlier_command_takes_away_is_said_and_refuses_nothing() -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=90)).strftime("%Y-%m-%dT%H:%M:%SZ")
    pods = f"cpu-3 {WEEK} {soon}\ncpu-2 {WEEK}\n"
    old = [item for item in objects(STACK) if item["metadata"]["name"] != "cpu"]
    queue = f"{job(left='1:00:00')}\n{job('6', nodes='cpu-2', left='1:00:00')}\n"
    kubectl = FakeKubectl(queue=queue, in_force=slurm_conf(STACK), pods=pods, there=old)
    for found in (
        jobs_touched(kubectl, "slurm", old=old, new=objects(STACK), rolled=()),
        jobs_destroyed(kubectl, "slurm", keeps_queue=True),
    ):
        item, *others = found.touched
        assert all(other.fate == "waits" for other in others), "destroy waits for the pod that is left"
        assert (item.id, item.fate, item.cause) == ("7", "ends", "earlier")
        assert item.why.startswith("cpu-3 is ending already, by an earlier command; cpu-3 waits")
        assert not found.refused, "nobody can take it back"
