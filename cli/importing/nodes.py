"""Nodes of slurm.conf and gres.conf as pools: those that are alike, and in the same partitions, are one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from cli.importing.draft import Draft
from cli.importing.files import Parameter, hosts
from config.sections.workers import RESERVED_POOL_NAMES
from slurm.sizing import memory_for

_TAKEN = {"nodename", "cpus", "procs", "realmemory", "feature", "features", "gres", "weight", "tmpdisk", "state"}
_LAYOUT = {"boards", "sockets", "socketsperboard", "corespersocket", "threadspercore"}
_OF_DEVICES = {"nodename", "name", "type", "count", "file", "autodetect"}
_MIB_OF_A_CPU = 1024
"""What a CPU has where nothing says how much memory there is."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class Node:
    """What one node offers."""

    options: Mapping[str, Parameter]
    """What its line and `NodeName=DEFAULT` say, by keys in small letters."""
    cpus: int
    gres: tuple[tuple[str, int], ...]
    """`gpu:h100` -> 8, `shard` -> 32."""
    amd: bool

    def value(self, key: str, otherwise: str = "") -> str:
        """What is said of it; empty where nothing is."""
        return self.options[key].value if key in self.options else otherwise

    @property
    def kind(self) -> tuple[object, ...]:
        """What nodes of one pool have in common."""
        keys = ("realmemory", "feature", "weight", "tmpdisk")
        return (self.cpus, self.gres, self.amd, self.value("state").upper() == "CLOUD", *map(self.value, keys))


def read_nodes(lines: Iterable[list[Parameter]], gres: Iterable[list[Parameter]], draft: Draft) -> dict[str, Node]:
    """All nodes by name, in the order of the file."""
    devices = [{parameter.key.lower(): parameter for parameter in pairs} for pairs in gres]
    for parameter in (parameter for line in devices for key, parameter in line.items() if key not in _OF_DEVICES):
        draft.leave(parameter, "slurmd finds the devices and what is near to them itself")
    defaults: dict[str, Parameter] = {}
    found: dict[str, Node] = {}
    for pairs in lines:
        own = {parameter.key.lower(): parameter for parameter in pairs}
        if pairs[0].key.lower() != "nodename":
            continue
        _leave_others(pairs, draft)
        own |= {new: own.pop(old) for old, new in (("procs", "cpus"), ("features", "feature")) if old in own}
        name = pairs[0].value
        if name.upper() == "DEFAULT":
            defaults |= own
        elif own.get("state", pairs[0]).value.upper() == "FUTURE":
            draft.leave(own["state"], "is no node yet: raise worker_nodes.<pool>.size when it is to be there")
        else:
            try:
                found |= {host: _node(host, defaults | own, devices) for host in hosts(name)}
            except ValueError as error:
                draft.leave(pairs[0], f"is not understood: {error}")
    return found


@cache
def _names(listed: str) -> frozenset[str]:
    return frozenset(hosts(listed))


def _leave_others(pairs: list[Parameter], draft: Draft) -> None:
    for parameter in pairs:
        if parameter.key.lower() in _LAYOUT:
            draft.leave(parameter, "counts in cpus: each CPU of a pool is given to jobs by itself")
        elif parameter.key.lower() not in _TAKEN:
            draft.leave(parameter, "belongs to the old machine: a pool has nothing of the kind")


def _node(name: str, options: dict[str, Parameter], devices: list[dict[str, Parameter]]) -> Node:
    """Raises ValueError."""

    def number(key: str) -> int:
        value = options[key].value if key in options else "1"
        if not re.fullmatch("[0-9]{1,15}", value):
            raise ValueError(f"{options[key].text} is no number")
        return int(value)

    for key in ("realmemory", "weight", "tmpdisk"):
        number(key)
    sockets = number("sockets") if "sockets" in options else number("boards") * number("socketsperboard")
    cpus = number("cpus") if "cpus" in options else sockets * number("corespersocket") * number("threadspercore")
    counts: dict[str, int] = {}
    written = options["gres"].value if "gres" in options else ""
    for part in filter(None, re.sub(r"\([^)]*\)", "", written).split(",")):
        *words, last = part.replace(":no_consume", "").split(":")
        found = re.fullmatch(r"(\d+)([kmgt]?)", last.lower()) if words else None
        key = ":".join(words if found else [*words, last])
        counts[key] = counts.get(key, 0) + (int(found[1]) * _UNITS[found[2]] if found else 1)
    own = [line for line in devices if "nodename" not in line or name in _names(line["nodename"].value)]
    types = _types(own, counts.get("gpu", 0))
    if types and sum(types.values()) == counts.get("gpu"):  # slurm.conf has their number alone
        del counts["gpu"]
        counts |= {f"gpu:{kind}": count for kind, count in types.items()}
    amd = any(
        "rsmi" in parameter.value or parameter.value.startswith("/dev/dri")
        for line in own
        for parameter in line.values()
    )
    return Node(options, cpus, tuple((key, count) for key, count in counts.items() if count), amd)


def _types(devices: list[dict[str, Parameter]], gpus: int) -> dict[str, int]:
    """Types of a node's GPUs in gres.conf, and how many of each; of one type they are all. Raises ValueError."""
    found: dict[str, int] = {}
    for line in devices:
        if "type" in line and line.get("name", line["type"]).value == "gpu":
            count = (
                len(hosts(line["file"].value)) if "file" in line else int(line["count"].value if "count" in line else 0)
            )
            found[line["type"].value] = found.get(line["type"].value, 0) + count
    return dict.fromkeys(found, gpus) if len(found) == 1 else found


def put_pools(nodes: Mapping[str, Node], partitions: Mapping[str, set[str]], draft: Draft) -> dict[str, list[str]]:
    """Pools into the draft; their nodes by the pool's name. `partitions` has the nodes of each."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, node in nodes.items():
        homes = tuple(partition for partition, members in partitions.items() if name in members)
        groups.setdefault((*node.kind, homes), []).append(name)
    features = {feature for node in nodes.values() for feature in node.value("feature").split(",")}
    pools: dict[str, list[str]] = {}
    for members in groups.values():
        # A feature of this name, which others have, too, would put their nodes into this pool's node set.
        name = _pool_name(members, {*pools, *features, *RESERVED_POOL_NAMES})
        pools[name] = members
        _put_pool(name, nodes[members[0]], len(members), draft)
    return pools


def _pool_name(members: list[str], taken: set[str]) -> str:
    """What the nodes' names begin with, as Kubernetes takes it; `-b`, `-c` behind it where it is taken."""
    first, last = (name.partition(".")[0] for name in (min(members), max(members)))
    common = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    stem = re.sub("[^a-z0-9]+", "-", (first[:common] or first).rstrip("0123456789").lower()).strip("-")[:30].strip("-")
    # `cpu-2` is the name of a node of the pool `cpu`.
    stem = re.sub(r"-(\d+)$", r"\1", stem if stem[:1].isalpha() else f"n{stem}")
    return next(name for name in (stem, *(f"{stem}-{_letters(at)}" for at in range(1, 10_000))) if name not in taken)


def _letters(number: int) -> str:
    """`b` for 1, `z` for 25, `ba` for 26."""
    return (_letters(number // 26) if number >= 26 else "") + chr(ord("a") + number % 26)


def _put_pool(name: str, node: Node, size: int, draft: Draft) -> None:
    line, pool = node.options["nodename"], ("worker_nodes", name)
    draft.put((*pool, "size"), {"min": 0, "max": size} if node.value("state").upper() == "CLOUD" else size, line)
    draft.put((*pool, "resources", "cpus"), node.cpus, line)
    memory = int(node.value("realmemory", "0"))
    if not memory:
        draft.leave(line, f"has no RealMemory: {name} has 1Gi for each CPU; write what there is")
    draft.put((*pool, "resources", "memory"), memory_for(memory or node.cpus * _MIB_OF_A_CPU), line)
    words = [word for word in node.value("feature").split(",") if word and word != name]
    features = [word for word in dict.fromkeys(words) if re.fullmatch("[A-Za-z][A-Za-z0-9_.-]*", word)]
    for word in {*words} - {*features}:
        draft.leave(node.options["feature"], f"{word} is no feature here: letters, digits, '_', '.', '-'")
    if features:
        draft.put((*pool, "features"), features, node.options["feature"])
    if node.value("weight", "1") != "1":
        draft.put((*pool, "weight"), int(node.value("weight")), node.options["weight"])
    if int(node.value("tmpdisk", "0")) >= 100:
        draft.put((*pool, "tmp"), f"{node.value('tmpdisk')}Mi", node.options["tmpdisk"])
    _put_gres((*pool, "resources", "gpus"), node, draft)


def _put_gres(place: tuple[str, ...], node: Node, draft: Draft) -> None:
    gpus = {key.partition(":")[2]: count for key, count in node.gres if key.partition(":")[0] == "gpu"}
    if gpus:
        draft.put((*place, "count"), sum(gpus.values()), node.options["gres"])
    if gpus and node.amd:
        draft.put((*place, "vendor"), "amd", node.options["gres"])
    if len(gpus) > 1:
        kinds = [{"type": kind, "count": count} for kind, count in gpus.items()]
        draft.put((*place, "kinds"), kinds, node.options["gres"])
        draft.put((*place[:2], "confinement"), "required", node.options["gres"])
    elif any(gpus):
        draft.put((*place, "type"), next(iter(gpus)), node.options["gres"])
    for key, count in node.gres:
        if key == "shard" and gpus:
            draft.put((*place, "shard"), count, node.options["gres"])
        elif key.partition(":")[0] != "gpu":
            draft.leave(node.options["gres"], f"{key} is no GPU of the node: licenses count other things")
