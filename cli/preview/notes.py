"""What a stack file may say, and hardly anybody means."""

from __future__ import annotations

from config.cluster import ClusterConfig
from slurm.conf import effective_settings

_ASKS = {"all", "associations", "limits", "qos", "safe", "wckeys"}
"""Of AccountingStorageEnforce: each asks for an association, some by way of another one (slurm.conf(5))."""


def notes_of(config: ClusterConfig) -> tuple[str, ...]:
    """One sentence for each; none of it is refused, as it may be on its way out of the stack."""
    served = {pool for partition in config.partitions.values() for pool in partition.pools}
    idle = [name for name in config.worker_nodes if config.partitions and name not in served]
    found = [f"worker_nodes.{name} is in no partition: no job can run there" for name in idle]
    enforced = effective_settings(config).get("AccountingStorageEnforce", "").lower().strip('"').split(",")
    if config.accounts and _ASKS & {part.strip() for part in enforced}:
        without = [name for name, user in config.users.items() if not user.accounts]
        found += [f"users.{name} has no accounts: Slurm refuses every job of theirs" for name in without]
    return tuple(found)
