"""Accounting in slurm.conf: where records go, which are kept, and how strictly the declared policy holds."""

from __future__ import annotations

from config.accounting import Database
from config.cluster import ClusterConfig
from slurm.names import ACCOUNTING_HOST, SLURMDBD_PORT

MAX_DBD_MESSAGES = 1_000_000
"""Records that slurmctld keeps while slurmdbd is away. A job has about four, of less than 1 KiB each: a quarter of a
million jobs. Slurm's own default, twice MaxJobCount, is a fifth of that; beyond it records are thrown away."""


ALWAYS_TRACKED = "gres/gpu"
"""Also where there is no GPU yet. A resource that is new to slurmctld moves the others in its arrays, and a node that
registers in that moment may end it (24.11.5, a fault in gres_clear_tres_cnt, seen once)."""


def accounting_settings(config: ClusterConfig) -> dict[str, str]:
    """Keys of slurm.conf; none without accounting."""
    if not config.accounting.enabled:
        return {}
    enforce = enforcement(config)
    tracked = sorted({*tracked_resources(config), ALWAYS_TRACKED})
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": ACCOUNTING_HOST,
        "AccountingStoragePort": str(SLURMDBD_PORT),
        "AccountingStorageTRES": ",".join(tracked),
        **({"AccountingStorageEnforce": ",".join(enforce)} if enforce else {}),
        "JobAcctGatherType": "jobacct_gather/linux",
        "MaxDBDMsgs": str(MAX_DBD_MESSAGES),
    }


def own_database(config: ClusterConfig) -> Database | None:
    """The MariaDB that the cluster brings along; None without accounting, and with an external server."""
    database = config.accounting.database
    return database if config.accounting.enabled and database.external is None else None


def enforcement(config: ClusterConfig) -> tuple[str, ...]:
    """What a job must have: as declared, else everything once there are accounts."""
    if config.accounting.enforce is not None:
        return tuple(config.accounting.enforce)
    return ("associations", "limits", "qos", "safe") if config.accounts else ()


def tracked_resources(config: ClusterConfig) -> list[str]:
    """Resources that Slurm tracks only if asked: GPUs where there are any, and all that a limit or a weight names.

    sacctmgr refuses a limit of a resource that is not tracked.
    """
    holders = [*config.accounts.values(), *config.qos.values()]
    holders += [association for user in config.users.values() for association in user.accounts.values()]
    limits = (value for holder in holders for _, value in holder if isinstance(value, dict))
    named = {resource for limit in (*limits, config.priority.weights.tres) for resource in limit}
    gpus = any(pool.resources.gpus for pool in config.worker_nodes.values())
    return sorted({resource for resource in named if "/" in resource} | ({"gres/gpu"} if gpus else set()))
