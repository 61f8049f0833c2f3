"""Accounting in slurm.conf: where records go, which are kept, and how strictly the declared policy holds."""

from __future__ import annotations

from config.cluster import ClusterConfig
from slurm.names import ACCOUNTING_HOST, SLURMDBD_PORT

MAX_DBD_MESSAGES = 1_000_000
"""Records that slurmctld keeps while slurmdbd is away. A job has about four, of less than 1 KiB each: a quarter of a
million jobs. Slurm's own default, twice MaxJobCount, is a fifth of that; beyond it records are thrown away."""


def accounting_settings(config: ClusterConfig) -> dict[str, str]:
    """Keys of slurm.conf; none without accounting."""
    if not config.accounting.enabled:
        return {}
    enforce = enforcement(config)
    gpus = any(pool.resources.gpus for pool in config.worker_nodes.values())
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": ACCOUNTING_HOST,
        "AccountingStoragePort": str(SLURMDBD_PORT),
        **({"AccountingStorageTRES": "gres/gpu"} if gpus else {}),
        **({"AccountingStorageEnforce": ",".join(enforce)} if enforce else {}),
        "JobAcctGatherType": "jobacct_gather/linux",
        "MaxDBDMsgs": str(MAX_DBD_MESSAGES),
    }


def enforcement(config: ClusterConfig) -> tuple[str, ...]:
    """What a job must have: as declared, else everything once there are accounts."""
    if config.accounting.enforce is not None:
        return tuple(config.accounting.enforce)
    return ("associations", "limits", "qos", "safe") if config.accounts else ()
