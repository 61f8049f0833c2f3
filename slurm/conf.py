"""Slurm's configuration files, rendered from `slurm_templates/`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import jinja2

from config.cluster import ClusterConfig
from config.rules.settings import named_resources
from config.sections.slurm import folded, merge
from slurm import names
from slurm.elastic import devices_of_nodes_that_are_off, elastic_files, elastic_pools, kept_up
from slurm.gpus import has_shards
from slurm.job_submit import script_values
from slurm.monitoring import slurmctld_gives_figures
from slurm.partitions import partition_lines
from slurm.sizing import default_memory_per_cpu_mib, max_node_count, most_memory_mib
from slurm.topology import topology_files, wants_tree
from slurm.users import identity_files

FILES = ("slurm.conf", "cgroup.conf", "gres.conf", "plugstack.conf")
"""The files that slurmctld hands out to all nodes."""

PMIX = "mpi.conf"
"""Handed out where Slurm has PMIx."""

JOB_SUBMIT = "job_submit.lua"
"""Rules for every job. slurmctld looks for it beside slurm.conf, and it alone: workers do not get it."""

SLURMDBD = "slurmdbd.conf"

_CONFIGLESS = "enable_configless"
"""The one of SlurmctldParameters that no setting can take away: without it no worker would find its configuration."""

_POWER = ("power_save_interval=0", "power_save_min_interval=0")
"""Those that elastic pools need: by itself Slurm looks only every ten seconds which nodes are to come or go."""

_NODES_DIFFER = "NO_CONF_HASH"
"""The one of DebugFlags that stays: slurmctld would complain of each worker that reads lines of its own, for ever."""

_OBJECTS = ("nodeset", "partitionname")
"""Keys of lines that are no settings."""

_TEMPLATES = Path(__file__).resolve().parent.parent / "slurm_templates"


def render(config: ClusterConfig) -> dict[str, str]:
    """All configuration files by name. The same configuration always gives the same bytes.

    The size of a pool is in none of them, so that scaling changes nothing here (but see `sizing.max_node_count`).
    """
    wanted = [*FILES[1:], *([PMIX] if config.slurm.has_pmix else [])]
    values = {
        "version": config.slurm.version,
        "jail_dir": names.JAIL_DIR,
        "nodes_that_are_off": devices_of_nodes_that_are_off(config),
    }
    files = {FILES[0]: slurm_conf(config), **{name: _template(name).render(values) for name in wanted}}
    if config.job_submit.needs_script:
        files[JOB_SUBMIT] = _template(JOB_SUBMIT).render(script_values(config, partition_lines(config)))
    more = topology_files(config, settings_of(files[FILES[0]])) | elastic_files(config)
    return files | more | identity_files(config)


def slurm_conf(config: ClusterConfig) -> str:
    """The text of slurm.conf: our defaults, each replaced by the user's value."""
    pools, written = config.worker_nodes.values(), folded(config.slurm.settings)
    text = _template(FILES[0]).render(
        config=config,
        names=names,
        partitions=partition_lines(config),
        gpus=any(pool.resources.gpus.count for pool in config.worker_nodes.values()),
        shards=has_shards(config.worker_nodes.values()),
        tree=wants_tree(config),
        gives_figures=slurmctld_gives_figures(config),
        elastic=elastic_pools(config),
        kept_up=kept_up(config),
        enforcement=enforcement(config),
        tracked_resources=tracked_resources(config),
        max_node_count=max_node_count(config.worker_nodes),
        # Slurm would take ours, and pass over the user's of the other kind without a word.
        default_memory_per_cpu=None if "defmempernode" in written else default_memory_per_cpu_mib(pools),
        most_memory=None if "maxmempercpu" in written else most_memory_mib(pools),
    )
    settings = merge(settings_of(text), config.slurm.settings)
    parameters = _parts(settings["SlurmctldParameters"])
    needed = [_CONFIGLESS, *(_POWER if elastic_pools(config) else ())]
    if missing := [parameter for parameter in needed if parameter not in parameters]:
        settings["SlurmctldParameters"] = ",".join([*missing, *parameters])
    flags = _parts(settings["DebugFlags"])
    if _NODES_DIFFER not in flags:
        settings["DebugFlags"] = ",".join([_NODES_DIFFER, *flags])
    return _with_settings(text, settings)


def _parts(value: str) -> list[str]:
    """Of a list, which may have blanks where it is quoted."""
    return [part for part in map(str.strip, value.strip('"').split(",")) if part]


def effective_settings(config: ClusterConfig) -> dict[str, str]:
    """Every key of slurm.conf but nodes and partitions."""
    return settings_of(slurm_conf(config))


def slurmdbd_conf(config: ClusterConfig) -> str:
    """The text of slurmdbd.conf without `StoragePass`, which only the pod adds."""
    text = _template(SLURMDBD).render(config=config, names=names)
    return _with_settings(text, merge(settings_of(text), config.accounting.settings))


def settings_of(text: str) -> dict[str, str]:
    """Every setting of a file as `slurm_templates/` have it: one a line."""
    pairs = (line.partition("=") for line in text.removesuffix("\n").split("\n") if not line.startswith("#"))
    return {key: value for key, equals, value in pairs if equals and key.lower() not in _OBJECTS}


def _with_settings(text: str, settings: Mapping[str, str]) -> str:
    """The file with these values in place of its own, each where its key stands; the others come at the end."""
    left = dict(settings)
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        key = line.partition("=")[0]
        lines.append(f"{key}={left.pop(key)}" if key in left else line)
    return "\n".join([*lines, *(f"{key}={value}" for key, value in left.items())]) + "\n"


def enforcement(config: ClusterConfig) -> tuple[str, ...]:
    """What a job must have (`AccountingStorageEnforce`): as declared, else everything once there are accounts."""
    if config.accounting.enforce is not None:
        return tuple(config.accounting.enforce)
    return ("associations", "limits", "qos", "safe") if config.accounts else ()


def tracked_resources(config: ClusterConfig) -> list[str]:
    """Resources that Slurm tracks only if asked: GPUs, and all that a limit or a weight names.

    sacctmgr refuses a limit of a resource that is not tracked. Shares of GPUs are tracked where there are some.
    """
    named = (resource for _, resource in named_resources(partial(getattr, config)))
    shards = {"gres/shard"} if has_shards(config.worker_nodes.values()) else set()
    return sorted({"gres/gpu", *shards, *(resource for resource in named if "/" in resource)})


def config_hash(files: Mapping[str, str]) -> str:
    """16 hex digits that name this content. The configuration agent computes the same from the ConfigMap's data."""
    canonical = json.dumps(dict(files), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(f"{name}.j2")


@cache
def _environment() -> jinja2.Environment:
    """Plain text for Slurm's own parser; a name that a template does not know is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  plain text for Slurm's own parser, never HTML
        keep_trailing_newline=True,
        trim_blocks=True,
    )
