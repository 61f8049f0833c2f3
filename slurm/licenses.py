"""Licenses: things that jobs share besides nodes, and that Slurm only counts."""

from __future__ import annotations

from config.cluster import ClusterConfig


def license_settings(config: ClusterConfig) -> dict[str, str]:
    """Keys of slurm.conf for `slurmstack:licenses`."""
    if not config.licenses:
        return {}
    return {"Licenses": ",".join(f"{name}:{count}" for name, count in config.licenses.items())}


def license_parameters(config: ClusterConfig) -> tuple[str, ...]:
    """SchedulerParameters where there are licenses.

    Without `bf_licenses` nothing is kept for a job that waits for many licenses, and jobs that need few pass it for
    ever.
    """
    return ("bf_licenses",) if config.licenses else ()
