"""Slurm's JSON as the exporter reads it."""

from __future__ import annotations

import math

import pytest

from images.common.slurm_records import NotUnderstoodError
from images.exporter.records import Job, entries, jobs_of, mib
from tests.unit.images.exporter.rows import row


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


def job(**fields: str) -> Job:
    (found,) = jobs_of([row(**fields)], {})
    return found


def test_a_job_that_waits_for_several_partitions_is_counted_once() -> None:
    assert job(Partition="main,big").partition == "main"


def test_what_squeue_has_no_number_for_is_none_or_nothing() -> None:
    found = job(MaxNodes="0", NumNodes="3-5", EligibleTime="N/A", RestartCnt="N/A")
    assert (found.min_nodes, found.max_nodes, found.eligible, found.restarts) == (3, 3, None, 0)
