"""What must hold between settings given key by key and the sections that write the same keys.

A setting wins over a default of ours. Refused is what would cut the cluster off, or let a limit not hold, and what the
stack file itself says twice: nobody can know which one was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from config.cluster import Sections
from config.errors import Found, unknown_name
from config.sections.accounting import Accounting
from config.sections.scheduling import JobSubmit, Partition, Priority, Weights
from config.sections.slurm import SettingValue, Slurm, folded
from config.sections.workers import WorkerPool

Pools = Mapping[str, WorkerPool]

_ALWAYS_OURS = {
    "accountingstoragetype": "accounting.enabled",
    **{
        f"accountingstorage{what}": "accounting (slurmdbd runs in the cluster)"
        for what in ("host", "backuphost", "port", "pass", "user")
    },
    **dict.fromkeys(("authalttypes", "authaltparameters"), "rest (its key is made and configured in any case)"),
}
"""Keys that belong to pods, Services and keys of ours, and the section that decides about them."""

_SAME = {
    "accountingstorageenforce": "accounting.enforce",
    "licenses": "licenses",
    "preempttype": "preemption.type",
    "preemptmode": "preemption.mode",
    "preemptexempttime": "preemption.exempt_time",
    "prioritytype": "priority",
    "prioritydecayhalflife": "priority.decay_half_life",
    "priorityusageresetperiod": "priority.usage_reset_period",
    "prioritymaxage": "priority.max_age",
    "priorityweightassoc": "priority.weights.association",
    **{f"priorityweight{field.replace('_', '')}": f"priority.weights.{field}" for field in Weights.model_fields},
}
"""Keys of slurm.conf and the fields that write them."""

_OF_THE_WORKER = ("proctracktype", "taskplugin", "jobacctgathertype")
"""Keys that each worker decides about by its machine, where it holds jobs to what they asked for."""

_DBD_KEYS = {
    **dict.fromkeys(("dbdhost", "dbdaddr", "dbdbackuphost", "dbdport"), "slurmdbd's Service"),
    **dict.fromkeys(("slurmuser", "pidfile"), "the image"),
    **dict.fromkeys(("authtype", "authinfo", "authalttypes", "authaltparameters"), "the cluster's keys"),
    "storagetype": "accounting.database",
    "storagehost": "accounting.database.external.host",
    "storagebackuphost": "accounting.database.external.host",
    "storageport": "accounting.database.external.port",
    "storageuser": "accounting.database.external.user",
    "storageloc": "accounting.database.external.name",
}
"""Keys of slurmdbd.conf, and what decides about them."""

_SAME_IN_PARTITIONS = {
    "nodes": "pools",
    **{field.replace("_", ""): field for field in Partition.model_fields if field not in {"pools", "settings"}},
}
"""Options of a `PartitionName` line and the fields that write them."""


def settings(
    sections: Sections,
    *,
    slurm: Slurm | None,
    job_submit: JobSubmit | None,
    accounting: Accounting | None,
    worker_nodes: Pools,
    partitions: Mapping[str, Partition],
) -> Found:
    """Keys that are not free, and what is said twice."""
    if slurm is not None:
        written, where = folded(slurm.settings), "slurm.settings"
        for key in slurm.settings:
            yield from ((where, f"has the key {key!r}, {what}") for what in _key(key.lower(), sections, worker_nodes))
        if job_submit not in (None, JobSubmit()) and "jobsubmitplugins" in written:
            message = (
                "has the key 'JobSubmitPlugins', and the rules of job_submit need that key for themselves; remove one "
                "of them"
            )
            yield where, message
        enforced = written.get("accountingstorageenforce")
        holds = enforced is not None and str(enforced).lower() not in {"none", "no", "false"}
        if holds and not sections.names("accounts"):
            message = (
                "has the key 'AccountingStorageEnforce', but no accounts are declared, so that nobody could run a job; "
                "declare them in slurmstack:accounts, or remove it"
            )
            yield where, message
        tracked = written.get("accountingstoragetres")
        missing = _not_recorded(tracked, sections, worker_nodes) if tracked is not None else []
        if missing and accounting is not None and accounting.enabled:
            message = (
                f"has the key 'AccountingStorageTRES' without {', '.join(missing)}, which would not be recorded, and "
                f"no limit of it would hold; add it there"
            )
            yield where, message
    for name, partition in partitions.items():
        for key in partition.settings:
            field = _SAME_IN_PARTITIONS.get(key.lower())
            if field in partition.model_fields_set:
                message = f"has the key {key!r}, and {field} says the same thing; remove one of them"
                yield f"partitions.{name}.settings", message


def _key(key: str, sections: Sections, pools: Pools) -> Iterator[str]:
    """What is wrong with a key of slurm.conf, in small letters."""
    if key in _ALWAYS_OURS:
        yield f"which belongs to slurmstack:{_ALWAYS_OURS[key]}; remove it"
    confining = [f"worker_nodes.{name}" for name, pool in pools.items() if pool.confines]
    if key in _OF_THE_WORKER and confining:
        yield (
            "about which workers decide that hold jobs to what they asked for; remove it, or set confinement: off in "
            f"{', '.join(confining)}"
        )
    field = _SAME.get(key)
    if field is not None and _is_written(field, sections):
        yield f"and {field} says the same thing; remove one of them"


def _is_written(path: str, sections: Sections) -> bool:
    """Whether the stack file itself has a value at a dotted path."""
    section, *fields = path.split(".")
    if section not in sections.written:
        return False
    value = sections.get(section)
    for field in fields:
        if not isinstance(value, BaseModel) or field not in value.model_fields_set:
            return False
        value = getattr(value, field)
    return value is not None and value != {}


def _not_recorded(tracked: SettingValue, sections: Sections, pools: Pools) -> list[str]:
    """Resources that Slurm records only if asked, and that a list of them written by hand leaves out."""
    parts = tracked if isinstance(tracked, tuple) else str(tracked).strip('"').split(",")
    needed = {resource for _, resource in named_resources(sections.get) if "/" in resource}
    needed |= {f"gres/{name}" for name, there in _generic(pools).items() if there}
    return sorted(needed - {str(part).strip() for part in parts})


def named_resources(section: Callable[[str], Any]) -> Iterator[tuple[str, str]]:
    """Every resource that a limit or a weight names, with its place. `section` gives a section by its name."""
    levels: list[tuple[str, BaseModel]] = []
    for key in ("accounts", "qos"):
        levels += [(f"{key}.{name}", one) for name, one in section(key).items()]
    for user, person in section("users").items():
        levels += [(f"users.{user}.accounts.{name}", one) for name, one in person.accounts.items()]
    priority: Priority | None = section("priority")
    if priority is not None:
        levels.append(("priority.weights", priority.weights))
    for where, level in levels:
        for field, value in level:
            yield from ((f"{where}.{field}", str(resource)) for resource in (value if isinstance(value, dict) else ()))


def _generic(pools: Pools) -> dict[str, bool]:
    """Generic resources, and whether a node has some."""
    gpus = [pool.resources.gpus for pool in pools.values()]
    return {"gpu": any(one.count for one in gpus), "shard": any(one.shard for one in gpus)}


def limits(sections: Sections, worker_nodes: Pools) -> Found:
    """Limits of what the cluster does not have: licenses, generic resources, types of GPUs."""
    unknown = "worker_nodes" not in sections.valid
    there = {name: some or unknown for name, some in _generic(worker_nodes).items()}
    pools = [pool for pool in worker_nodes.values() if pool.resources.gpus.count]
    types = {kind for pool in pools for kind in pool.gpu_types}
    all_known = not unknown and all(pool.gpu_types for pool in pools)
    for where, resource in named_resources(sections.get):
        kind, _, name = resource.partition("/")
        if kind == "license" and name not in sections.names("licenses"):
            yield where, f"names {resource!r}, and slurmstack:licenses has no {name!r}; add it there, or remove this"
        generic, _, type_ = name.partition(":")
        if generic == "gpu" and type_ and all_known and types and type_ not in types:
            yield where, f"names {resource!r}: {unknown_name(type_, types, what='a type of GPU of any pool')}"
        elif kind == "gres" and not there.get(generic, False):
            what = _NONE_OF.get(generic, "nodes have no generic resource but gpu and shard")
            yield where, f"names {resource!r}, and {what}; remove it"


_NONE_OF = {
    "gpu": "no pool has GPUs",
    "shard": "no pool has shares of GPUs (worker_nodes.<pool>.resources.gpus.shard)",
}
"""Generic resource -> what is said where no node has it."""


def slurmdbd_settings(accounting: Accounting) -> Found:
    """Keys of slurmdbd.conf that other fields write, and the one that must never be in a stack file."""
    external = accounting.database.external
    for key in accounting.settings:
        if key.lower() in {"storagepass", "storagepassscript"}:
            message = (
                f"has the key {key!r}: a password never belongs into a stack file; put it into a Secret and name that "
                f"in accounting.database.external.password, and replace the password that was written here"
            )
            yield "accounting.settings", message
        elif key.lower() in _DBD_KEYS:
            yield "accounting.settings", f"has the key {key!r}, which belongs to {_DBD_KEYS[key.lower()]}; remove it"
        elif key.lower() == "storageparameters" and external is not None and external.tls is not None:
            message = f"has the key {key!r}, which would take the place of accounting.database.external.tls; remove it"
            yield "accounting.settings", message
