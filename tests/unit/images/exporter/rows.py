"""Rows of squeue, as the exporter asks for them."""

from __future__ import annotations

from images.exporter.sources import COLUMNS

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
    assert tuple(USUAL) == COLUMNS
    assert changes.keys() <= USUAL.keys()
    return {**USUAL, **changes}
