"""Slurm's JSON as the exporter reads it."""

from __future__ import annotations

import math

import pytest

from images.common.slurm_records import NotUnderstoodError
from images.exporter.records import Job, entries, jobs_of, mib, node_of
from images.exporter.slurm_figures import Figures, put_jobs
from images.exporter.text import exposition
from tests.unit.images.exporter.rows import row


@pytest.mark.parametrize(
    ("text", "found"), [("100M", 100), ("1.50G", 1536), ("2T", 2097152), ("64", 64), ("512K", 0.5)]
)
def test_memory_is_read_in_the_unit_that_slurm_writes(text: str, found: float) -> None:
    assert mib(text) == found


@pytest.mark.parametrize("text", ["1?", "?", "", "G", "nan"])
def test_memory_that_is_no_number_is_more_than_there_is(text: str) -> None:
    assert mib(text) == math.inf


def test_records_are_read_one_by_one_and_what_comes_after_them_is_not() -> None:
    text = '{"jobs": [ {"a": [1, "]"]} ,\n {"b": {}} ], "errors": ['
    assert list(entries(text, "jobs")) == [{"a": [1, "]"]}, {"b": {}}]
    assert list(entries('{\n "jobs": [\n ]}', "jobs")) == []


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error", '{"nodes": []}', '{"jobs": [{"a": 1}', '{"jobs": [{"a"'])
def test_a_list_that_is_cut_off_is_not_taken_for_a_whole_one(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        list(entries(text, "jobs"))


def job(*, tres: str = "", states: frozenset[str] | None = None, **fields: str) -> Job:
    (found,) = jobs_of([row(**{"tres-alloc": tres, **fields})], {"7": states} if states else {})
    return found


def test_a_job_that_waits_for_several_partitions_is_counted_once() -> None:
    assert job(Partition="main,big").partition == "main"


def test_the_tasks_of_an_array_that_wait_together_are_one_record() -> None:
    assert [found.tasks for found in jobs_of([row(JobID="7"), row(JobID="7"), row(JobID="8")], {})] == [2, 1]


def test_what_squeue_hides_behind_a_flag_is_told() -> None:
    assert job(State="COMPLETING", states=frozenset({"FAILED", "COMPLETING"})).is_finished
    assert not job(State="COMPLETING").is_finished


def test_what_a_job_has_is_read_from_its_resources() -> None:
    found = job(State="RUNNING", tres="cpu=2,mem=3G,gres/gpu=4,gres/gpu:h100=4", NodeList="a-[1-2],b")
    assert (found.memory, found.gpus, found.nodes) == (3072, 4, ("a-1", "a-2", "b"))


def test_a_job_may_have_memory_beyond_all_numbers() -> None:
    figures = Figures()
    put_jobs(figures, [job(State="RUNNING", tres="mem=1?")])
    assert "slurm_jobs_memory_alloc +Inf\n" in exposition(figures.families.values())


def test_what_squeue_has_no_number_for_is_none_or_nothing() -> None:
    found = job(MaxNodes="0", NumNodes="3-5", EligibleTime="N/A", RestartCnt="N/A")
    assert (found.min_nodes, found.max_nodes, found.eligible, found.restarts) == (3, 3, None, 0)


def test_gpus_of_a_node_are_those_that_its_jobs_have() -> None:
    found = node_of({"name": "n", "tres": "cpu=8,gres/gpu=4", "gres_used": "gpu:h100:2(IDX:0-1),gpu:a:1,shard:9"})
    assert (found.gpus, found.gpus_alloc) == (4, 3)
