"""What must hold for resources that limits and weights name: of one that is not there no limit holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from config.cluster import Sections
from config.errors import Found, unknown_name
from config.sections.accounting import Accounting, tres_name
from config.sections.slurm import Partition, SettingValue, Slurm, folded
from config.sections.workers import WorkerPool

Pools = Mapping[str, WorkerPool]


def named_resources(section: Callable[[str], Any]) -> Iterator[tuple[str, str]]:
    """Every resource that a limit names, with its place. `section` gives a section by its name."""
    levels = [(f"{key}.{name}", one) for key in ("accounts", "qos") for name, one in section(key).items()]
    for user, person in section("users").items():
        levels += [(f"users.{user}.accounts.{name}", one) for name, one in person.accounts.items()]
    for where, level in levels:
        for field, value in level:
            yield from ((f"{where}.{field}", str(resource)) for resource in (value if isinstance(value, dict) else ()))


def weighed_resources(slurm: Slurm) -> list[str]:
    """Those that PriorityWeightTRES names."""
    return _names(folded(slurm.settings).get("priorityweighttres", ""))


def _names(weights: SettingValue) -> list[str]:
    """Resources in `CPU=1,GRES/gpu=2`. Slurm takes no notice of the case of their kind: `GRES/gpu`."""
    kinds = [part.partition("=")[0].partition("/") for part in _parts(weights)]
    return [f"{kind.lower()}{slash}{rest}" for kind, slash, rest in kinds]


def _parts(value: SettingValue) -> list[str]:
    return [text for part in str(value).strip('"').split(",") if (text := part.strip())]


def limits(sections: Sections, worker_nodes: Pools, slurm: Slurm | None) -> Found:
    """Limits of what the cluster does not have: licenses, generic resources, types of GPUs."""
    unknown = "worker_nodes" not in sections.valid
    there = {name: some or unknown for name, some in _generic(worker_nodes).items()}
    pools = [pool for pool in worker_nodes.values() if pool.resources.gpus.count]
    types = {kind.lower() for pool in pools for kind in pool.gpu_kinds}  # limits know no capitals
    all_known = not unknown and "" not in types
    other_licenses = slurm is None or "licenses" in folded(slurm.settings)
    for where, resource in named_resources(sections.get):
        kind, _, name = resource.partition("/")
        if kind == "license" and not other_licenses and name not in sections.names("licenses"):
            yield where, f"names {resource!r}, and slurmstack:licenses has no {name!r}; add it there, or remove this"
        generic, _, type_ = name.partition(":")
        if generic == "gpu" and type_ and all_known and types and type_.lower() not in types:
            yield where, f"names {resource!r}: {unknown_name(type_, types, what='a type of GPU of any pool')}"
        elif kind == "gres" and not there.get(generic, False):
            what = _NONE_OF.get(generic, "nodes have no generic resource but gpu and shard")
            yield where, f"names {resource!r}, and {what}; remove it"


_NONE_OF = {
    "gpu": "no pool has GPUs",
    "shard": "no pool has shares of GPUs (worker_nodes.<pool>.resources.gpus.shard)",
}
"""Generic resource -> what is said where no node has it."""


def _generic(pools: Pools) -> dict[str, bool]:
    """Generic resources, and whether a node has some."""
    gpus = [pool.resources.gpus for pool in pools.values()]
    return {"gpu": any(one.count for one in gpus), "shard": any(one.shard for one in gpus)}


def tracked(
    sections: Sections,
    slurm: Slurm,
    accounting: Accounting,
    worker_nodes: Pools,
    partitions: Mapping[str, Partition],
) -> Found:
    """Names and weights of what Slurm does not know, on which slurmctld ends, and lists that leave some out."""
    written = folded(slurm.settings)
    lists = {f"slurm.settings.{key}": written.get(key.lower(), "") for key in ("PriorityWeightTRES", _LIST)}
    for name, partition in partitions.items():
        lists[f"partitions.{name}.settings.{_BILLING}"] = folded(partition.settings).get(_BILLING.lower(), "")
    for where, value in lists.items():
        for part in _parts(value) if _LIST not in where else ():
            if not re.fullmatch(r"[^=]+=(\d+\.?\d*|\.\d+)[KMGTP]?", part, re.IGNORECASE):
                yield where, f"{part!r} is no weight: write names and numbers, as in 'CPU=1.0,Mem=0.25G'"
        for name in _names(value):
            try:
                tres_name(name)
            except ValueError as error:
                yield where, f"{name!r} {error}"
    generic = {name for name, there in _generic(worker_nodes).items() if there}
    if "grestypes" in written and (lacks := sorted(generic - {part.lower() for part in _parts(written["grestypes"])})):
        yield "slurm.settings.GresTypes", f"lacks {', '.join(lacks)}, which nodes have; leave it out, or add it"
    listed = written.get("accountingstoragetres")
    if listed is None or not accounting.enabled:
        return
    needed = {resource for _, resource in named_resources(sections.get)} | set(weighed_resources(slurm))
    needed |= {f"gres/{name}" for name in generic}
    there = {part.lower() for part in _parts(listed)}
    missing = sorted(name for name in needed if "/" in name and name.lower() not in there)
    if missing:
        message = f"lacks {', '.join(missing)}, which would not be recorded, and no limit of it would hold; add it"
        yield f"slurm.settings.{_LIST}", message


_LIST, _BILLING = "AccountingStorageTRES", "TRESBillingWeights"
