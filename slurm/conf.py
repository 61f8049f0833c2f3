"""Slurm's configuration files, rendered from `slurm_templates/`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import jinja2

from config.base import span_seconds
from config.cluster import ClusterConfig
from config.rules.limits import named_resources, weighed_resources
from config.rules.nodes import HIDDEN
from config.sections.slurm import Partition, Preemption, folded, merge
from slurm import names
from slurm.elastic import POOLS_FILE, devices_of_nodes_that_are_off, kept_up
from slurm.sizing import default_memory_per_cpu_mib, has_shards, max_node_count, most_memory_mib
from slurm.users import identity_files

FILES = ("slurm.conf", "cgroup.conf", "gres.conf", "plugstack.conf")
"""The files that slurmctld hands out to all nodes."""

PMIX = "mpi.conf"
"""Handed out where Slurm has PMIx."""

JOB_SUBMIT = "job_submit.lua"
"""Rules for every job. slurmctld looks for it beside slurm.conf, and it alone: workers do not get it."""

SLURMDBD = "slurmdbd.conf"

LABELS_FILE = "topology.labels"
"""Beside Slurm's own files: the labels that name a node's switches, one a line. Where it is, the agent makes
topology.conf: which node runs on which machine is known in the cluster only (images/controller/topology.py)."""

WEIGHTS_FILE = "pool.weights"
"""Pools and the weights that the stack file gives their nodes, one a line. The configuration agent sets them
(images/controller/weights.py): in what workers are told of themselves, each change would need new pods."""

TREE = "topology/tree"

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
        files[JOB_SUBMIT] = _job_submit(config)
    if uses_tree(settings_of(files[FILES[0]])):
        files[LABELS_FILE] = "".join(f"{label}\n" for label in config.topology.labels)
    if config.elastic_pools:
        files[POOLS_FILE] = "".join(f"{name}\n" for name in config.elastic_pools)
    if weights := {name: pool.weight for name, pool in config.worker_nodes.items() if pool.weight is not None}:
        files[WEIGHTS_FILE] = "".join(f"{name} {weight}\n" for name, weight in weights.items())
    return files | identity_files(config)


def slurm_conf(config: ClusterConfig) -> str:
    """The text of slurm.conf: our defaults, each replaced by the user's value."""
    pools, written = config.worker_nodes.values(), folded(config.slurm.settings)
    text = _template(FILES[0]).render(
        config=config,
        names=names,
        partitions=partition_lines(config),
        confined=bool(pools) and all(pool.confinement == "required" for pool in pools),
        gpus=any(pool.resources.gpus.count for pool in config.worker_nodes.values()),
        shards=has_shards(config.worker_nodes.values()),
        tree=wants_tree(config),
        elastic=config.elastic_pools,
        hidden=HIDDEN,
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
    needed = [_CONFIGLESS, *(_POWER if config.elastic_pools else ())]
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

    sacctmgr refuses a limit of a resource that is not tracked, and slurmctld ends on a weight of one. Shares of GPUs
    are tracked where there are some.
    """
    named = {name for _, name in named_resources(partial(getattr, config))} | set(weighed_resources(config.slurm))
    shards = {"gres/shard"} if has_shards(config.worker_nodes.values()) else set()
    return sorted({"gres/gpu", *shards, *(name for name in named if "/" in name)})


def config_hash(files: Mapping[str, str]) -> str:
    """16 hex digits that name this content. The configuration agent computes the same from the ConfigMap's data."""
    canonical = json.dumps(dict(files), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(f"{name}.j2")


@cache
def _environment() -> jinja2.Environment:
    """Plain text for Slurm's own parser; a name that a template does not know is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  plain text for Slurm's own parser, never HTML
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    environment.filters["seconds"] = span_seconds
    return environment


_DEFAULT_MEMORY = frozenset({"defmempercpu", "defmempernode", "defmempergpu"})
"""Keys that say what memory a job has that asks for none; one at a time holds."""


@dataclass(frozen=True, kw_only=True)
class PartitionLine:
    """One `PartitionName` line of slurm.conf."""

    name: str
    node_sets: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        options = " ".join(f"{key}={value}" for key, value in self.options)
        return f"PartitionName={self.name} Nodes={','.join(self.node_sets)} {options}"

    def option(self, key: str) -> str:
        """Value of an option, empty where it is not set. Slurm's keys do not depend on case."""
        return next((value for name, value in self.options if name.lower() == key.lower()), "")


def partition_lines(config: ClusterConfig) -> list[PartitionLine]:
    """The partitions as written, or the one partition `main` with all pools if none is written.

    A partition that is alone is the default one, so that `sbatch` without `--partition` always works there.
    """
    declared = config.partitions or {"main": Partition(pools=tuple(config.worker_nodes))}
    return [_line(config, name, partition, alone=len(declared) == 1) for name, partition in declared.items()]


def _line(config: ClusterConfig, name: str, partition: Partition, *, alone: bool) -> PartitionLine:
    options = {"MaxTime": partition.max_time, "State": "UP"}
    if partition.default or alone:
        options["Default"] = "YES"
    # The common one is an option of partitions and no rule at submission: a job that names several partitions gets the
    # time of the one in which it starts.
    default_time = partition.default_time or config.job_submit.default_time
    if default_time is not None:
        options["DefaultTime"] = default_time
    options |= _default_memory(config, partition)
    options |= _access(partition)
    options |= _preemption(config.preemption, partition)
    options = merge(options, partition.settings)
    return PartitionLine(name=name, node_sets=partition.pools, options=tuple(options.items()))


def _default_memory(config: ClusterConfig, partition: Partition) -> dict[str, str]:
    """A job's memory if it asks for none: the share of a CPU in these pools, where it is not what all pools have.

    What the stack file says of that, for the cluster or for the partition, stands alone. A job that names several
    partitions has the memory of the one in which it starts (tests/slurm/test_memory.py).
    """
    if _DEFAULT_MEMORY & (folded(config.slurm.settings).keys() | folded(partition.settings).keys()):
        return {}
    everywhere = default_memory_per_cpu_mib(config.worker_nodes.values())
    here = default_memory_per_cpu_mib(config.worker_nodes[name] for name in partition.pools)
    return {"DefMemPerCPU": str(here)} if here != everywhere else {}


def _access(partition: Partition) -> dict[str, str]:
    """Who may run jobs in it, and how they stand against those of other partitions."""
    values = {
        "AllowAccounts": ",".join(partition.allow_accounts),
        "DenyAccounts": ",".join(partition.deny_accounts),
        "AllowGroups": ",".join(partition.allow_groups),
        "AllowQos": ",".join(partition.allow_qos),
        "DenyQos": ",".join(partition.deny_qos),
        "QOS": partition.qos,
        "PriorityTier": partition.priority_tier,
    }
    given = {key: str(value) for key, value in values.items() if value not in (None, "")}
    # In quotes what has a blank, as a directory's group may.
    return {key: f'"{value}"' if " " in value else value for key, value in given.items()}


def _preemption(preemption: Preemption, partition: Partition) -> dict[str, str]:
    """Whether its jobs give way otherwise than all others do."""
    if preemption.type != "partition":
        return {}
    options = {}
    if partition.preempt_mode is not None:
        options["PreemptMode"] = partition.preempt_mode.upper()
    if (partition.preempt_mode or preemption.mode) == "suspend":
        # With OverSubscribe=NO nothing in the partition is suspended (slurm.conf(5)). FORCE:1 still gives a CPU to one
        # running job only.
        options["OverSubscribe"] = "FORCE:1"
    return options


def _job_submit(config: ClusterConfig) -> str:
    """The script of rules for every job.

    Of a partition it knows whether a node may have GPUs (`some`), and whether a job without would keep others from
    them (`every`).
    """
    lines, partitions = partition_lines(config), []
    for line in lines:
        gpus = [config.worker_nodes[pool].resources.gpus.count > 0 for pool in line.node_sets]
        # Where every job gets whole nodes, it gets their GPUs too and need not ask.
        whole_nodes = line.option("OverSubscribe").upper() == "EXCLUSIVE"
        partitions.append({"name": line.name, "some": any(gpus), "every": all(gpus) and not whole_nodes})
    return _template(JOB_SUBMIT).render(
        rules=config.job_submit,
        default_partition=next((line.name for line in lines if line.option("Default").upper() == "YES"), None),
        gpu_partitions=partitions,
        with_gpus=" or ".join(str(one["name"]) for one in partitions if one["some"]),
        without_gpus=" or ".join(str(one["name"]) for one in partitions if not one["every"]),
    )


def wants_tree(config: ClusterConfig) -> bool:
    """Whether the stack file asks for a tree, or has pools on a fabric. Without one all nodes are alike to Slurm."""
    if config.topology.plugin is not None:
        return config.topology.plugin == "tree"
    return any(pool.gpu_cluster for pool in config.worker_nodes.values())


def uses_tree(settings: Mapping[str, str]) -> bool:
    """Whether slurm.conf with these settings, the user's own included, asks for a tree."""
    return any(key.lower() == "topologyplugin" and value.lower() == TREE for key, value in settings.items())
