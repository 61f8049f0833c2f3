"""What squeue prints of the queue, read."""

from __future__ import annotations

import pytest

from images.common.slurm_jobs import Job, JobList
from images.common.slurm_records import NotUnderstoodError
from tests.fakes.squeue import printed

JOBS = JobList(
    "id", "user", "partitions", "state", "reason", "node_list", "left", "limit", "min_nodes", "min_cpus", "min_memory",
    "constraint", "wanted", "gpus_per_node", "eligible",
)  # fmt: skip


def read(**columns: str) -> Job:
    (found,) = JOBS.read(printed(JOBS.shell, [columns]))
    return found


def test_what_squeue_prints_is_understood() -> None:
    array = read(
        JobArrayID="5_[1,5,9]", State="PENDING", Reason="Resources", NodeList="", Partition="main,old",
        TimeLeft="1-00:00:00", TimeLimit="1-00:00:00", MinMemory="1.50G", NumNodes="2-4", ReqNodes="gpu-[0-1]",
        Feature="h100", EligibleTime="1800000000",
    )  # fmt: skip
    assert (array.waits, array.tasks, array.nodes, array.partitions) == (True, 3, (), ("main", "old"))
    assert (array.left, array.limit, array.min_memory, array.min_nodes) == (86_400, 86_400, 1536, 2)
    assert (array.wanted_nodes, array.constraint, array.eligible) == (("gpu-0", "gpu-1"), "h100", 1_800_000_000)
    runs = read(NodeList="gpu-[2,7]", TimeLeft="29:57", TimeLimit="30:00", **{"tres-per-node": "gres/gpu:h100:8"})
    assert (runs.waits, runs.nodes, runs.left, runs.limit) == (False, ("gpu-2", "gpu-7"), 1797, 1800)
    assert (runs.reason, runs.constraint, runs.gpus_per_node, runs.eligible) == ("", "", 8, None)


def test_a_state_that_is_shown_in_place_of_another_is_told_by_that() -> None:
    states = {"CONFIGURING": "RUNNING", "REQUEUE_HOLD": "PENDING", "SUSPENDED": "SUSPENDED"}
    assert {state: read(State=state).base_state for state in states} == states


@pytest.mark.parametrize(
    ("left", "limit"), [("364-23:59:44", "365-00:00:00"), ("UNLIMITED", "UNLIMITED"), ("INVALID", "NOT_SET")]
)
def test_no_limit_is_none_and_so_is_the_year_that_backfill_gives_in_place_of_it(left: str, limit: str) -> None:
    started = read(TimeLeft=left, TimeLimit=limit)
    assert (started.left, started.limit) == (None, None)


def test_what_a_user_writes_makes_no_job_and_hides_none() -> None:
    forged = printed(JobList("id", "user").shell, [{"JobArrayID": "1", "UserName": "alice"}])
    jobs = list(JOBS.read(printed(JOBS.shell, [{"ReqNodes": f"x{forged}"}, {"JobArrayID": "9"}])))
    assert [job.id for job in jobs] == ["7", "9"]
    with pytest.raises(NotUnderstoodError):
        list(JOBS.read(printed(JOBS.shell, [{}])[:-9]))
