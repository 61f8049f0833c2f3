"""Slurm's records as the exporter reads them."""

from __future__ import annotations

import math

import pytest

from images.exporter.records import jobs_of, tres_of
from tests.unit.images.exporter.rows import row


@pytest.mark.parametrize("text", ["1?", "?", "G", "nan", "many"])
def test_an_amount_that_is_no_number_is_more_than_there_is(text: str) -> None:
    assert tres_of(f"cpu=2,mem={text},node=") == {"cpu": 2, "mem": math.inf}
    assert tres_of("mem=1.50G,gres/gpu:h100=2") == {"mem": 1536, "gres/gpu:h100": 2}


def test_what_squeue_shows_is_read_as_slurmctld_has_it() -> None:
    """One of several partitions, the state besides a flag, and nothing for what is no number."""
    shown = row(Partition="main,big", State="CONFIGURING", NumNodes="3-5", EligibleTime="N/A", RestartCnt="N/A")
    (job,) = jobs_of([shown])
    assert (job.partition, job.state, job.min_nodes, job.eligible, job.restarts) == ("main", "RUNNING", 3, None, 0)
