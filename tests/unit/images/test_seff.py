"""seff, on records that real daemons hardly make (tests/slurm/test_job_metrics.py has the others)."""

from __future__ import annotations

from images.jail.seff import FIELDS, report


def test_a_time_that_slurm_calls_invalid_counts_for_nothing() -> None:
    row = dict.fromkeys(FIELDS, "") | {"State": "COMPLETED", "ElapsedRaw": "10", "AllocCPUS": "1", "NNodes": "1"}
    lines = report([row, row | {"TotalCPU": "INVALID"}, row | {"TotalCPU": "00:05"}])
    assert "CPU Utilized: 00:00:05" in lines
