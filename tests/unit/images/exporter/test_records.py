"""Slurm's records as the exporter reads them."""

from __future__ import annotations

import math

import pytest

from images.exporter.records import JOB_FIELDS, jobs_of, tres_of

USUAL = {
    "JobID": "7", "State": "PENDING", "Reason": "Resources", "Partition": "main", "Account": "physics",
    "NumCPUs": "1", "MinCpus": "1", "NumNodes": "1", "EligibleTime": "N/A", "RestartCnt": "0", "tres-alloc": "",
    "ReqNodes": "", "ExcNodes": "", "Feature": "", "ClusterFeature": "", "Reservation": "", "Licenses": "",
    "Dependency": "", "tres-per-job": "N/A", "tres-per-node": "N/A", "tres-per-socket": "N/A", "tres-per-task": "N/A",
    "cpus-per-tres": "N/A", "mem-per-tres": "N/A", "Contiguous": "0", "ReqSwitch": "0", "MinTmpDisk": "0",
    "SCT": "*:*:*", "NTPerCore": "N/A", "NTPerSocket": "N/A", "Network": "", "MCSLabel": "", "BurstBuffer": "",
    "CoreSpec": "N/A", "HetJobID": "N/A",
}  # fmt: skip
"""Columns of a job of `sbatch -n1`, with 24.11 and 26.05."""


def row(**changes: str) -> dict[str, str]:
    """A job that waits."""
    assert tuple(USUAL) == JOB_FIELDS
    assert changes.keys() <= USUAL.keys()
    return {**USUAL, **changes}


@pytest.mark.parametrize("text", ["1?", "?", "G", "nan", "many"])
def test_an_amount_that_is_no_number_is_more_than_there_is(text: str) -> None:
    assert tres_of(f"cpu=2,mem={text},node=") == {"cpu": 2, "mem": math.inf}
    assert tres_of("mem=1.50G,gres/gpu:h100=2") == {"mem": 1536, "gres/gpu:h100": 2}


def test_what_squeue_shows_is_read_as_slurmctld_has_it() -> None:
    """One of several partitions, the state besides a flag, and nothing for what is no number."""
    shown = row(Partition="main,big", State="CONFIGURING", NumNodes="3-5", EligibleTime="N/A", RestartCnt="N/A")
    (job,) = jobs_of([shown])
    assert (job.partition, job.state, job.min_nodes, job.eligible, job.restarts) == ("main", "RUNNING", 3, None, 0)
