"""Slurm's configuration files, rendered from `slurm_templates/`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import jinja2

from config.cluster import ClusterConfig
from slurm.job_submit import FILE as JOB_SUBMIT
from slurm.job_submit import has_rules, script_values
from slurm.names import JAIL_DIR
from slurm.partitions import partition_lines
from slurm.settings import effective_settings
from slurm.templates import environment
from slurm.topology import topology_files
from slurm.users import identity_files

FILES = ("slurm.conf", "cgroup.conf", "gres.conf", "plugstack.conf")
"""The files that slurmctld hands out to all nodes."""

PMIX = "mpi.conf"
"""Handed out where Slurm has PMIx."""


def render(config: ClusterConfig) -> dict[str, str]:
    """All configuration files by name. The same configuration always gives the same bytes.

    The size of a pool is in none of them, so that scaling changes nothing here (but see `sizing.max_node_count`).
    """
    settings = effective_settings(config)
    partitions = partition_lines(config)
    values = {
        "version": config.slurm.version,
        "settings": settings,
        "pools": list(config.worker_nodes),
        "partitions": partitions,
        "gpus": any(pool.resources.gpus for pool in config.worker_nodes.values()),
        "jail_dir": JAIL_DIR,
    }
    files = {name: _template(name).render(values) for name in FILES}
    if config.slurm.has_pmix:
        files[PMIX] = _template(PMIX).render(values)
    if has_rules(config):
        files[JOB_SUBMIT] = _template(JOB_SUBMIT).render(script_values(config, partitions))
    return files | topology_files(config, settings) | identity_files(config)


def _template(name: str) -> jinja2.Template:
    return environment().get_template(f"{name}.j2")


def config_hash(files: Mapping[str, str]) -> str:
    """16 hex digits that name this content. The configuration agent computes the same from the ConfigMap's data."""
    canonical = json.dumps(dict(files), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
