"""Slurm's JSON as the exporter reads it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from images.common.slurm_records import NotUnderstoodError
from images.exporter.records import entries, job_of, mib, node_of, tasks_in
from images.exporter.slurm_figures import Figures, put_jobs
from images.exporter.text import exposition


@pytest.mark.parametrize(
    ("text", "tasks"), [("", 1), ("7", 1), ("1-5", 5), ("1-9:2,20", 6), ("0-99%3", 100), ("3,5,8", 3)]
)
def test_the_tasks_of_an_array_are_counted(text: str, tasks: int) -> None:
    assert tasks_in(text) == tasks


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


def job(**fields: Any) -> Any:
    return job_of({"job_state": ["PENDING"], "partition": "main", **fields})


def test_a_job_that_waits_for_several_partitions_is_counted_once() -> None:
    assert job(partition="main,big").partition == "main"


def test_what_a_job_has_is_read_from_its_resources() -> None:
    found = job(job_state=["RUNNING"], tres_alloc_str="cpu=2,mem=3G,gres/gpu=4,gres/gpu:h100=4", nodes="a-[1-2],b")
    assert (found.memory, found.gpus, found.nodes) == (3072, 4, ("a-1", "a-2", "b"))


def test_a_job_may_have_memory_beyond_all_numbers() -> None:
    figures = Figures()
    put_jobs(figures, [job(job_state=["RUNNING"], tres_alloc_str="mem=1?")], by_person=True)
    assert "slurm_jobs_memory_alloc +Inf\n" in exposition(figures.families.values())


def test_a_number_that_is_not_set_or_has_no_end_is_none() -> None:
    found = job(max_nodes={"set": False, "infinite": True, "number": 0}, node_count={"set": True, "number": 3})
    assert (found.min_nodes, found.max_nodes, found.eligible) == (3, 3, None)


def test_gpus_of_a_node_are_those_that_its_jobs_have() -> None:
    found = node_of({"name": "n", "tres": "cpu=8,gres/gpu=4", "gres_used": "gpu:h100:2(IDX:0-1),gpu:a:1,shard:9"})
    assert (found.gpus, found.gpus_alloc) == (4, 3)
