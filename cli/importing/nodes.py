"""Nodes of slurm.conf and gres.conf as pools: those that are alike, and in the same partitions, are one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, product
from os.path import commonprefix
from typing import Any

from cli.importing.draft import Draft
from cli.importing.files import Line, Parameter, hosts
from config.sections.workers import RESERVED_POOL_NAMES
from slurm.sizing import memory_for

_ALIASES = {"procs": "cpus", "features": "feature"}
_OF_DEVICES = ("nodename", "name", "type", "count", "file", "autodetect")
_MIB_OF_A_CPU = 1024
"""What a CPU has where nothing says how much memory there is."""


@dataclass(kw_only=True)
class Node:
    """What one node offers."""

    options: Line
    """What its line and `NodeName=DEFAULT` say, by keys in small letters."""
    cpus: int
    gres: Counter[str]
    """`gpu:h100` -> 8, `shard` -> 32."""
    types: Counter[str] = field(default_factory=Counter)
    """Of its GPUs by gres.conf."""
    amd: bool = False
    """Whether they are AMD's."""
    devices: list[Parameter] = field(default_factory=list)
    """What says so."""

    def value(self, key: str, otherwise: str = "") -> str:
        """What is said of it; empty where nothing is."""
        return self.options[key].value if key in self.options else otherwise

    @property
    def kind(self) -> tuple[object, ...]:
        """What nodes of one pool have in common."""
        keys = ("realmemory", "feature", "weight", "tmpdisk")
        return (self.cpus, *self.gres.items(), self.amd, self.value("state").lower(), *map(self.value, keys))


def read_nodes(lines: Iterable[Line], gres: Iterable[Line], draft: Draft) -> dict[str, Node]:
    """All nodes by name, in the order of the file."""
    defaults: Line = {}
    found: dict[str, Node] = {}
    for line in lines:
        if next(iter(line)) != "nodename":
            continue
        head = line["nodename"]
        options = defaults | {_ALIASES.get(key, key): parameter for key, parameter in line.items()}
        if head.value.upper() == "DEFAULT":
            defaults = options
            continue
        try:
            new = {host: _node(options) for host in hosts(head.value)}
        except ValueError as error:
            draft.leave(head, f"is not understood: {error}")
            continue
        if options.get("state", head).value.upper() == "FUTURE":
            draft.leave(head, "is no node yet: raise worker_nodes.<pool>.size when it is to be there")
        elif not found.keys() & new:  # Slurm has a name once
            found |= new
    _read_devices(gres, found, draft)
    return found


def _node(options: Line) -> Node:
    """Raises ValueError."""

    def number(key: str) -> int:
        return _number(options[key]) if key in options else 1

    for key in ("realmemory", "weight", "tmpdisk"):
        number(key)
    sockets = number("sockets") if "sockets" in options else number("boards") * number("socketsperboard")
    cpus = number("cpus") if "cpus" in options else sockets * number("corespersocket") * number("threadspercore")
    gres: Counter[str] = Counter()
    written = options["gres"].value if "gres" in options else ""
    for part in filter(None, re.sub(r"\([^)]*\)|:no_consume", "", written).split(",")):
        name, _, last = part.rpartition(":")
        gres[name if name and last.isdecimal() else part] += int(last) if name and last.isdecimal() else 1
    return Node(options=options, cpus=cpus, gres=+gres)


def _number(parameter: Parameter) -> int:
    if not re.fullmatch("[0-9]{1,15}", parameter.value):
        raise ValueError(f"{parameter.text} is no number")
    return int(parameter.value)


def _read_devices(lines: Iterable[Line], nodes: Mapping[str, Node], draft: Draft) -> None:
    """The types of GPUs, and whose they are."""
    for line in lines:
        words = [line[key] for key in _OF_DEVICES if key in line]
        amd = any("rsmi" in word.value or word.value.startswith("/dev/dri") for word in words)
        typed = "type" in line and "name" in line and line["name"].value == "gpu"
        try:
            named = hosts(line["nodename"].value) if "nodename" in line else nodes
            number = _number(line["count"]) if "count" in line else 0
            number = len(hosts(line["file"].value)) if "file" in line else number
        except ValueError as error:
            draft.leave(next(iter(line.values())), f"is not understood: {error}")
            continue
        for node in (nodes[name] for name in named if name in nodes and (amd or typed)):
            node.amd |= amd
            node.devices += words
            node.types.update({line["type"].value: number} if typed else {})
    for node in nodes.values():
        gpus = node.gres.get("gpu", 0)
        types = node.types if len(node.types) != 1 else Counter(dict.fromkeys(node.types, gpus))  # they are all of it
        if gpus and sum(types.values()) == gpus:  # slurm.conf has their number alone
            node.gres += Counter({"gpu": -gpus, **{f"gpu:{kind}": number for kind, number in types.items()}})
        elif not node.amd:
            node.devices = []


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
        _put_pool(name, [nodes[host] for host in members], draft)
    return pools


def _pool_name(members: Iterable[str], taken: set[str]) -> str:
    """What the nodes' names begin with, as Kubernetes takes it; with a number behind it where it is taken."""
    short = [name.partition(".")[0] for name in members]
    begin = (commonprefix(short) or short[0]).rstrip("0123456789").lower()  # noqa: RUF071 - no paths
    stem = re.sub("[^a-z0-9]+", "-", begin).strip("-")[:30].strip("-")
    # `cpu-2` is the name of a node of the pool `cpu`.
    stem = re.sub(r"-(\d+)$", r"\1", stem if stem[:1].isalpha() else f"n{stem}")
    return next(name for at in count(1) if (name := stem if at == 1 else f"{stem}{at}") not in taken)


def _put_pool(name: str, members: list[Node], draft: Draft) -> None:
    node, size, pool = members[0], len(members), ("worker_nodes", name)

    def words(key: str) -> tuple[Parameter, ...]:
        return tuple(dict.fromkeys(node.options[key] for node in members if key in node.options))

    lines, elastic = words("nodename"), node.value("state").lower() == "cloud"
    draft.put((*pool, "size"), {"min": 0, "max": size} if elastic else size, *lines, *(words("state") * elastic))
    draft.put((*pool, "resources", "cpus"), node.cpus, *(words("cpus") or lines))
    memory = int(node.value("realmemory", "0"))
    for line in lines if not memory else ():
        draft.leave(line, f"has no RealMemory: {name} has 1Gi for each CPU; write what there is")
    ours = memory_for(memory or node.cpus * _MIB_OF_A_CPU)
    draft.put((*pool, "resources", "memory"), ours, *(words("realmemory") or lines))
    given = dict.fromkeys(filter(None, node.value("feature").split(",")))
    if features := [word for word in given if re.fullmatch("[A-Za-z][A-Za-z0-9_.-]*", word)]:
        draft.put((*pool, "features"), features, *words("feature"))
    for word, line in product(sorted(given.keys() - features), words("feature")):
        draft.leave(line, f"{word} is no feature here: letters, digits, '_', '.', '-'")
    if node.value("weight", "1") != "1":
        draft.put((*pool, "weight"), int(node.value("weight")), *words("weight"))
    if int(node.value("tmpdisk", "0")):
        draft.put((*pool, "tmp"), f"{node.value('tmpdisk')}Mi", *words("tmpdisk"))
    _put_gres((*pool, "resources", "gpus"), members, words("gres"), draft)


def _put_gres(place: tuple[str, ...], members: list[Node], lines: tuple[Parameter, ...], draft: Draft) -> None:
    node = members[0]
    if gpus := {key.partition(":")[2]: number for key, number in node.gres.items() if key.partition(":")[0] == "gpu"}:
        kinds = [{"type": kind, "count": number} for kind, number in gpus.items()]
        said: dict[str, Any] = {"count": sum(gpus.values()), "vendor": "amd" if node.amd else None}
        said |= {"kinds": kinds} if len(gpus) > 1 else {"type": next(iter(gpus)) or None}
        devices = (word for node in members for word in node.devices)
        draft.put(place, {key: value for key, value in said.items() if value}, *lines, *devices)
        if len(gpus) > 1:
            draft.put((*place[:2], "confinement"), "required", *lines)
    for key, number in node.gres.items():
        if key == "shard" and gpus:
            draft.put((*place, "shard"), number, *lines)
        elif key.partition(":")[0] != "gpu":
            for line in lines:
                draft.leave(line, f"{key} is no GPU of the node: licenses count other things")
