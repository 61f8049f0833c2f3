"""Memory that ended jobs have left, on directories in place of cgroups; tests/machine has real ones."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from images.common.kept_memory import CLOSING_SECONDS, ENDED, has_processes, kept_bytes, unowned
from images.worker.kept_memory import Account, KeptMemory, share_out
from tests.unit.images.kept import MIB, SCOPE, Jobs, empty, limit


@pytest.fixture
def node(tmp_path: Path) -> Jobs:
    return Jobs(mount=tmp_path)


def was_ended(group: Path) -> bool:
    return (group / "step_0/user/cgroup.kill").read_text() == "1"


@pytest.mark.parametrize(
    ("stat", "kept"),
    [
        ("anon 1\nfile 99999999\nslab_reclaimable 88888888\nshmem 7000000", 7_000_000),
        ("shmem 0\nsock 500000\nkernel 9000000\nslab_reclaimable 2000000\npercpu 1000000", 500_000 + 6_000_000 - MIB),
        ("shmem 0\nkernel 900000", 0),
        ("shmem 0\nunevictable 58720256\nfile 59000000", 58_720_256),  # mlock of cached files
        ("shmem 7000000\ninactive_anon 5000000\nactive_anon 1000000\nunevictable 1000000", 7_000_000),
        ("shmem 0\nslab_unreclaimable 3048576", 3_048_576 - MIB),  # before Linux 5.18
    ],
)
def test_what_the_kernel_can_take_back_is_not_kept(tmp_path: Path, stat: str, kept: int) -> None:
    assert kept_bytes(tmp_path) == 0, "it has just gone"
    (tmp_path / "memory.stat").write_text(stat + "\n")
    assert kept_bytes(tmp_path) == kept


def test_removed_cgroups_of_many_ranks_are_nothing_that_somebody_keeps(tmp_path: Path) -> None:
    (tmp_path / "memory.stat").write_text(f"shmem 0\nkernel {20 * MIB}\n")
    (tmp_path / "cgroup.stat").write_text("nr_descendants 1\nnr_dying_descendants 6000\n")
    assert kept_bytes(tmp_path) == 0


@pytest.mark.parametrize(
    ("owed", "limits", "more"),
    [
        (0, [100, 200], 0),
        (50, [50, 200], 0),  # what the first one has no use for
        (120, [40, 140], 0),  # and the second one
        (180, [20, 100], 0),  # then what they use, one after the other: no more tasks end than must
        (200, [20, 80], 0),
        (500, [20, 30], 250),
    ],
)
def test_jobs_pay_first_with_what_they_do_not_use(owed: int, limits: list[int], more: int) -> None:
    jobs = [Account(own=100, used=40, least=20), Account(own=200, used=120, least=30)]
    assert share_out(owed, jobs) == (limits, more)


def test_what_an_ended_job_has_left_is_taken_off_what_its_user_s_other_job_may_have(node: Jobs) -> None:
    node.job(1, kept=30)
    node.job(2, kept=12)
    keeper, other = node.job(3, limit=100, used=50), node.job(4, uid=2, limit=100, used=50)
    node.settle()
    assert limit(keeper) == 58
    assert limit(other) == 100
    assert not was_ended(keeper)
    assert len(node.log) == 1


def test_what_another_user_has_locked_of_files_that_a_job_has_read_costs_its_user_nothing(node: Jobs) -> None:
    """Any user could so have another one's jobs ended, by 8 MiB in each of many processes, and needs no fault for it:
    `mlockall` locks the libraries, too, which somebody's job has read first."""
    ended, other = node.job(1, kept=10), node.job(2, limit=100, used=50)
    stat = f"shmem {10 * MIB}\ninactive_anon {4 * MIB}\nunevictable {66 * MIB}\n"  # of the first 10 MiB, 6 are locked
    (ended / "memory.stat").write_text(stat)
    node.process(7, uid=1, locked=30)
    node.settle()
    assert limit(other) == 30, "that user alone has locked anything"
    node.process(8, uid=2, locked=20)
    node.settle()
    assert limit(other) == 50
    node.process(9, uid=3, locked=500)
    node.settle()
    assert limit(other) == 90
    (other / "cgroup.events").write_text("populated 0\n")
    assert unowned(node.mount, node.mount / "proc").kept == 10 * MIB
    shutil.rmtree(node.mount / "proc")
    assert unowned(node.mount, node.mount / "proc").kept == 70 * MIB, "memfd_secret, kept by an open file"


def test_connections_cost_nothing_while_the_kernel_may_still_close_them(node: Jobs) -> None:
    """Who asks a job's server for much and takes nothing of it would have its user's other jobs pay."""
    ended, other = node.job(1, kept=10), node.job(2, limit=100)
    (ended / "memory.stat").write_text(f"shmem {10 * MIB}\nsock {40 * MIB}\n")
    node.settle()
    assert limit(other) == 90
    long_ago = time.time() - CLOSING_SECONDS - 1
    os.utime(ended / ENDED, (long_ago, long_ago))
    node.settle()
    assert limit(other) == 50


def test_slurm_sets_a_limit_with_each_step_and_it_is_taken_off_again(node: Jobs) -> None:
    node.job(1, kept=30)
    keeper = node.job(3, limit=100)
    for _ in range(2):
        node.settle()
        assert limit(keeper) == 70
        (keeper / "memory.max").write_text(str(100 * MIB))


def test_a_job_that_has_asked_for_nothing_has_the_node_s_memory_as_its_own(node: Jobs) -> None:
    ended, keeper = node.job(1, kept=30), node.job(3)
    node.job(5, uid=2)
    node.settle()
    assert limit(keeper) == 970
    assert (node.mount / SCOPE / "job_5/memory.max").read_text() == "max\n"
    empty(ended)
    node.settle()
    assert limit(keeper) == 1000


def test_who_owes_more_than_the_jobs_have_loses_their_tasks_and_not_their_end(node: Jobs) -> None:
    node.job(1, kept=300)
    keeper, other = node.job(3, limit=100, used=90), node.job(4, uid=2, limit=100, used=90)
    node.settle()
    assert limit(keeper) == 14, "what slurmstepd has, and a little more"
    assert was_ended(keeper)
    assert not was_ended(other)


def test_when_nobody_keeps_it_any_more_the_cgroup_goes_and_the_limit_is_as_before(node: Jobs) -> None:
    ended, keeper = node.job(1, kept=30), node.job(3, limit=100)
    node.settle()
    empty(ended)
    node.settle()
    assert not ended.exists()
    assert limit(keeper) == 100


def test_what_belongs_to_nobody_who_is_here_is_said_to_the_check_of_the_node(node: Jobs) -> None:
    node.job(1, kept=30)
    assert unowned(node.mount).kept == 30 * MIB
    node.job(3, limit=100)
    assert unowned(node.mount).kept == 0, "that one pays for it"
    assert unowned(node.mount / "nowhere").kept == 0


def test_the_cgroup_of_a_job_that_leaves_nothing_goes_at_once(node: Jobs) -> None:
    group = node.job(1)
    kept = KeptMemory(node.mount, node.log.append)
    kept.begin(group, 1)
    empty(group)
    assert kept.end(group)
    assert not group.exists()
    assert kept.wakes_in() is None


def test_a_job_is_not_over_as_long_as_a_process_is_there(node: Jobs) -> None:
    group = node.job(1)
    kept = KeptMemory(node.mount, node.log.append)
    assert not kept.end(group)
    assert (group / "cgroup.kill").read_text() == "1"
    assert has_processes(group)


def test_memory_that_is_freed_a_moment_later_is_kept_by_nobody(node: Jobs) -> None:
    group = node.job(1, kept=30)
    (group / ENDED).rmdir()
    kept = KeptMemory(node.mount, node.log.append, lambda: 0.0)
    assert not kept.end(group)
    empty(group)
    assert kept.end(group)
    assert not group.exists()
    assert not node.log


def test_a_job_that_starts_again_pays_for_what_it_had_left_by_itself(node: Jobs) -> None:
    group = node.job(1, kept=30)
    KeptMemory(node.mount, node.log.append).begin(group, 1)
    assert not (group / ENDED).exists()


def test_a_number_that_is_given_once_more_is_the_job_of_its_new_user_alone(node: Jobs) -> None:
    """slurmctld has lost its state. Else the new job, of user 2, paid for what user 1 has left."""
    node.job(1, kept=30)
    again = node.job(2, uid=1, limit=100)
    KeptMemory(node.mount, node.log.append).begin(again, 2)
    assert [mark.name for mark in again.glob("of_*")] == ["of_2"]
    assert node.log == ["job_2 is user 2's now, and has 0 MiB of an earlier one of that number"]
    node.settle()
    assert limit(again) == 100


def test_a_job_without_a_step_has_no_more_to_pay_with_than_slurm_gave_it(node: Jobs) -> None:
    """`salloc --no-shell` of 30 MiB once paid for all, with what the whole node has."""
    node.job(1, kept=70)
    idle, keeper = node.job(2, limit=60), node.job(3, limit=150, used=50)
    for step in ("step_extern", "step_0"):
        shutil.rmtree(idle / step)
    node.settle()
    assert limit(idle) + limit(keeper) == 60 + 150 - 70, "a step is about to come"
    for group, mib in ((idle, 60), (keeper, 150)):
        (group / "memory.max").write_text(str(mib * MIB))
    (idle / "cgroup.events").write_text("populated 0\n")
    node.settle()
    assert (limit(idle), limit(keeper)) == (60, 80)
    (keeper / "cgroup.events").write_text("populated 0\n")
    assert unowned(node.mount).kept == 70 * MIB, "none of the user's jobs can keep it"
