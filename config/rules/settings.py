"""What must hold between settings given key by key and the sections that write the same keys.

A setting wins over a default of ours. Refused is what would cut the cluster off, or let a limit not hold, and what the
stack file itself says twice: nobody can know which one was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from config.cluster import Sections
from config.errors import Problem
from config.sections.accounting import Accounting
from config.sections.scheduling import JobSubmit, Priority
from config.sections.slurm import Slurm, folded

_ALWAYS_OURS = {
    "accountingstoragetype": "accounting.enabled",
    "accountingstoragehost": "accounting (slurmdbd runs in the cluster)",
    "accountingstoragebackuphost": "accounting (slurmdbd runs in the cluster)",
    "accountingstorageport": "accounting (slurmdbd runs in the cluster)",
    "accountingstoragepass": "accounting (slurmdbd runs in the cluster)",
    "accountingstorageuser": "accounting (slurmdbd runs in the cluster)",
    "authalttypes": "rest (its key is made and configured in any case)",
    "authaltparameters": "rest (its key is made and configured in any case)",
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
    "priorityweightfairshare": "priority.weights.fairshare",
    "priorityweightqos": "priority.weights.qos",
    "priorityweightpartition": "priority.weights.partition",
    "priorityweightage": "priority.weights.age",
    "priorityweightjobsize": "priority.weights.job_size",
    "priorityweightassoc": "priority.weights.association",
    "priorityweighttres": "priority.weights.tres",
}
"""Keys of slurm.conf and the fields that write them."""

_OF_THE_WORKER = ("proctracktype", "taskplugin", "jobacctgathertype")
"""Keys that each worker decides about by its machine, where it holds jobs to what they asked for."""


_SAME_IN_PARTITIONS = {
    "nodes": "pools",
    "default": "default",
    "maxtime": "max_time",
    "defaulttime": "default_time",
    "allowaccounts": "allow_accounts",
    "denyaccounts": "deny_accounts",
    "allowgroups": "allow_groups",
    "allowqos": "allow_qos",
    "denyqos": "deny_qos",
    "qos": "qos",
    "prioritytier": "priority_tier",
    "priorityjobfactor": "priority_job_factor",
    "preemptmode": "preempt_mode",
}
"""Options of a `PartitionName` line and the fields that write them."""


def setting_problems(sections: Sections) -> Iterator[Problem]:
    """Keys that are not free, and what is said twice."""
    slurm: Slurm | None = sections.get("slurm")
    if slurm is not None:
        for key in slurm.settings:
            yield from _setting(key, sections)
        yield from _job_submit(slurm, sections.get("job_submit"))
        yield from _accounts_without_enforcement(slurm, sections)
        yield from _not_recorded(slurm, sections)
    for name, partition in sections.get("partitions").items():
        for key in partition.settings:
            field = _SAME_IN_PARTITIONS.get(key.lower())
            if field in partition.model_fields_set:
                message = f"has the key {key!r}, and {field} says the same thing; remove one of them"
                yield Problem(f"partitions.{name}.settings", message)


def _setting(key: str, sections: Sections) -> Iterator[Problem]:
    section = _ALWAYS_OURS.get(key.lower())
    if section is not None:
        yield Problem("slurm.settings", f"has the key {key!r}, which belongs to slurmstack:{section}; remove it")
    confining = [name for name, pool in sections.get("worker_nodes").items() if pool.confines]
    if key.lower() in _OF_THE_WORKER and confining:
        message = (
            f"has the key {key!r}, about which workers decide that hold jobs to what they asked for; remove it, or set "
            f"confinement: off in {', '.join(f'worker_nodes.{name}' for name in confining)}"
        )
        yield Problem("slurm.settings", message)
    field = _SAME.get(key.lower())
    if field is not None and _is_written(field, sections):
        yield Problem("slurm.settings", f"has the key {key!r}, and {field} says the same thing; remove one of them")


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


def _job_submit(slurm: Slurm, rules: JobSubmit | None) -> Iterator[Problem]:
    used = rules is not None and rules != JobSubmit()
    if used and "jobsubmitplugins" in folded(slurm.settings):
        message = (
            "has the key 'JobSubmitPlugins', and the rules of job_submit need that key for themselves; remove one of "
            "them"
        )
        yield Problem("slurm.settings", message)


def _accounts_without_enforcement(slurm: Slurm, sections: Sections) -> Iterator[Problem]:
    enforced = folded(slurm.settings).get("accountingstorageenforce")
    if enforced is not None and not sections.names("accounts") and str(enforced).lower() not in {"none", "no", "false"}:
        message = (
            "has the key 'AccountingStorageEnforce', but no accounts are declared, so that nobody could run a job; "
            "declare them in slurmstack:accounts, or remove it"
        )
        yield Problem("slurm.settings", message)


def _not_recorded(slurm: Slurm, sections: Sections) -> Iterator[Problem]:
    """Resources that Slurm records only if asked, where the list of them is written by hand."""
    tracked = folded(slurm.settings).get("accountingstoragetres")
    accounting: Accounting | None = sections.get("accounting")
    if tracked is None or accounting is None or not accounting.enabled:
        return
    parts = tracked if isinstance(tracked, tuple) else str(tracked).strip('"').split(",")
    needed = {resource for _, resource in named_resources(sections.get) if "/" in resource}
    needed |= ({"gres/gpu"} if has_gpus(sections) else set()) | ({"gres/shard"} if has_shards(sections) else set())
    missing = sorted(needed - {str(part).strip() for part in parts})
    if missing:
        message = (
            f"has the key 'AccountingStorageTRES' without {', '.join(missing)}, which would not be recorded, and no "
            f"limit of it would hold; add it there"
        )
        yield Problem("slurm.settings", message)


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


def has_gpus(sections: Sections) -> bool:
    """Whether a pool has GPUs."""
    return any(pool.resources.gpus.count for pool in sections.get("worker_nodes").values())


def has_shards(sections: Sections) -> bool:
    """Whether a pool has shares of GPUs."""
    return any(pool.resources.gpus.shard for pool in sections.get("worker_nodes").values())


_DBD_KEYS = {
    "dbdhost": "slurmdbd's Service",
    "dbdaddr": "slurmdbd's Service",
    "dbdbackuphost": "slurmdbd's Service",
    "dbdport": "slurmdbd's Service",
    "slurmuser": "the image",
    "pidfile": "the image",
    "authtype": "the cluster's keys",
    "authinfo": "the cluster's keys",
    "authalttypes": "the cluster's keys",
    "authaltparameters": "the cluster's keys",
    "storagetype": "accounting.database",
    "storagehost": "accounting.database.external.host",
    "storagebackuphost": "accounting.database.external.host",
    "storageport": "accounting.database.external.port",
    "storageuser": "accounting.database.external.user",
    "storageloc": "accounting.database.external.name",
}


def slurmdbd_setting_problems(accounting: Accounting) -> Iterator[Problem]:
    """Keys of slurmdbd.conf that other fields write, and the one that must never be in a stack file."""
    external = accounting.database.external
    has_tls = external is not None and external.tls is not None
    for key in accounting.settings:
        if key.lower() in {"storagepass", "storagepassscript"}:
            message = (
                f"has the key {key!r}: a password never belongs into a stack file; put it into a Secret and name that "
                f"in accounting.database.external.password, and replace the password that was written here"
            )
            yield Problem("accounting.settings", message)
        elif key.lower() in _DBD_KEYS:
            message = f"has the key {key!r}, which belongs to {_DBD_KEYS[key.lower()]}; remove it"
            yield Problem("accounting.settings", message)
        elif key.lower() == "storageparameters" and has_tls:
            message = f"has the key {key!r}, which would take the place of accounting.database.external.tls; remove it"
            yield Problem("accounting.settings", message)
