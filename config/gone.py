"""Sections and keys of earlier versions, and what became of each."""

from __future__ import annotations

from typing import Final

_FOLLOWED: Final = "this key is gone, as login nodes follow their sessions no longer: remove it"
_SETTING: Final = "this key is gone: write it as {}.settings.{}, or remove it"

GONE: Final = {
    "health.machines.conditions": "this key is gone: remove it. `release: cordon` with `release_condition` sets a "
    "condition of your choice on machines that are drained for a hardware fault and free of jobs",
    "accounting.retention.events": _SETTING.format("accounting", "PurgeEventAfter"),
    "accounting.retention.reservations": _SETTING.format("accounting", "PurgeResvAfter"),
    "accounting.retention.suspends": _SETTING.format("accounting", "PurgeSuspendAfter"),
    "accounting.retention.transactions": _SETTING.format("accounting", "PurgeTXNAfter"),
    "backup.rehearse_every": "this key is gone: remove it. The alert BackupUnrehearsed fires after 30 days",
    "dashboard.cpu": "this key is gone: remove it. The page asks for 20m",
    "dashboard.memory": "this key is gone: remove it. The page asks for 64Mi, and has up to 2Gi",
    "health.interval": _SETTING.format("slurm", "HealthCheckInterval"),
    "priority.calc_period": _SETTING.format("slurm", "PriorityCalcPeriod"),
    "priority.favor_small": _SETTING.format("slurm", "PriorityFavorSmall"),
    "rest.max_connections": "this key is gone: remove it. slurmrestd takes 124 at a time; `rest.size` adds pods",
    "rest.threads": "this key is gone: remove it. slurmrestd has 8; `rest.size` adds pods",
    "prices": "this section is gone, and so is `slurmstack cost`: remove it. Your provider's own price list and "
    "calculator serve instead",
    "worker_nodes.*.launch": "this key is gone: remove it. Where a node of a job does not come, its others are always "
    "ended at once",
    "worker_nodes.*.warm_machines": "this key is gone: remove it. `size.min` keeps nodes, and so their machines, in "
    "`windows` too",
    "login.sessions_per_node": _FOLLOWED,
    "login.idle_timeout": _FOLLOWED,
    "login.drain_timeout": _FOLLOWED,
}
"""By their places in a stack file; `*` is a name of the user's."""


def what_became(where: str) -> str | None:
    """Of a section or key that there was once; None for any other."""
    parts = where.split(".")
    for place, said in GONE.items():
        words = place.split(".")
        if len(words) == len(parts) and all(word in ("*", part) for word, part in zip(words, parts, strict=True)):
            return said
    return None
