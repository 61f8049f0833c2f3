"""Slurm's records as the exporter reads them."""

from __future__ import annotations

from images.exporter.sources import jobs_of
from tests.unit.images.exporter.rows import row


def test_what_squeue_shows_is_read_as_slurmctld_has_it() -> None:
    """One of several partitions, the state besides a flag, and nothing for what is no number."""
    shown = row(Partition="main,big", State="CONFIGURING", NumNodes="3-5", EligibleTime="N/A", RestartCnt="N/A")
    (job,) = jobs_of([shown])
    assert (job.partition, job.base_state, job.min_nodes, job.eligible, job.restarts) == ("main", "RUNNING", 3, None, 0)
