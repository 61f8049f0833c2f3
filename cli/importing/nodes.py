"""Nodes of slurm.conf and gres.conf as pools: those that are alike, and in the same partitions, are one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from cli.importing.draft import Draft
from cli.importing.files import UNITS, Line, Parameter, hosts
from config.sections.workers import RESERVED_POOL_NAMES
from slurm.sizing import memory_for

_TAKEN = {"nodename", "cpus", "procs", "realmemory", "feature", "features", "gres", "weight", "tmpdisk", "state"}
_LAYOUT = {"boards", "sockets", "socketsperboard", "corespersocket", "threadspercore"}
_SLURMS_OWN = {"state=unknown", "state=idle", "weight=1", "tmpdisk=0"}
_OF_DEVICES = {"nodename", "name", "type", "count", "file", "autodetect"}
_MIB_OF_A_CPU = 1024
"""What a CPU has where nothing says how much memory there is."""


@dataclass(frozen=True)
class Device:
    """A line of gres.conf: its nodes (None: all), the `Type` of its GPUs, and how many there are."""

    words: tuple[Parameter, ...]
    nodes: frozenset[str] | None
    kind: str
    count: int
    amd: bool


@dataclass(frozen=True)
class Node:
    """What one node offers."""

    options: Mapping[str, Parameter]
    """What its line and `NodeName=DEFAULT` say, by keys in small letters."""
    cpus: int
    gres: tuple[tuple[str, int], ...]
    """`gpu:h100` -> 8, `shard` -> 32."""
    amd: bool
    devices: tuple[Device, ...]
    """Lines of gres.conf that say more of these."""

    def value(self, key: str, otherwise: str = "") -> str:
        """What is said of it; empty where nothing is."""
        return self.options[key].value if key in self.options else otherwise

    @property
    def kind(self) -> tuple[object, ...]:
        """What nodes of one pool have in common."""
        keys = ("realmemory", "feature", "weight", "tmpdisk")
        return (self.cpus, self.gres, self.amd, self.value("state").upper() == "CLOUD", *map(self.value, keys))


def read_nodes(lines: Iterable[Line], gres: Iterable[Line], draft: Draft) -> dict[str, Node]:
    """All nodes by name, in the order of the file."""
    devices = _read_devices(gres, draft)
    defaults: Line = {}
    found: dict[str, Node] = {}
    for line in lines:
        if next(iter(line)) != "nodename":
            continue
        _leave_others(line, draft)
        aliases = {"procs": "cpus", "features": "feature"}
        own, head = {aliases.get(key, key): parameter for key, parameter in line.items()}, line["nodename"]
        if head.value.upper() == "DEFAULT":
            defaults |= own
            continue
        try:
            new = {host: _node(host, defaults | own, devices) for host in hosts(head.value)}
        except ValueError as error:
            draft.leave(head, f"is not understood: {error}")
            continue
        if twice := next((host for host in new if host in found), None):
            draft.leave(head, f"{twice} is in {found[twice].options['nodename'].place} already: Slurm has a name once")
        elif (defaults | own).get("state", head).value.upper() == "FUTURE":
            draft.leave(head, "is no node yet: raise worker_nodes.<pool>.size when it is to be there")
        else:
            found |= new
    return found


def _read_devices(lines: Iterable[Line], draft: Draft) -> list[Device]:
    """What has a type, or is AMD's."""
    found: dict[frozenset[tuple[str, str]], Device] = {}
    for line in lines:
        said, head = {key: parameter.value for key, parameter in line.items()}, next(iter(line.values()))
        amd = any("rsmi" in value or value.startswith("/dev/dri") for value in said.values())
        useless = [line[key] for key in line if key not in _OF_DEVICES] if amd or "type" in line else [head]
        of_gpus = said.get("name", "gpu").lower() in {"gpu", "shard", "mps"}
        why = "slurmd finds the devices and what is near to them itself" if of_gpus else "is no GPU of the nodes"
        for parameter in useless:
            draft.leave(parameter, why)
        try:
            nodes = frozenset(hosts(said["nodename"])) if "nodename" in said else None
            count = len(hosts(said["file"])) if "file" in said else _amount(said.get("count", "0"))
        except ValueError as error:
            draft.leave(head, f"is not understood: {error}")
            continue
        kind = said.get("type", "") if said.get("name") == "gpu" else ""
        device = Device(tuple(line.values()), nodes, kind, count, amd)
        if (first := found.setdefault(frozenset(said.items()), device)) is not device:
            draft.leave(head, f"is in {first.words[0].place} already, with all of its line")
    return [*found.values()]


def _amount(text: str) -> int:
    """`8`, or `1K`. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,15})([kmgt]?)", text.lower())
    if not found:
        raise ValueError(f"{text[:60]} is no number")
    return int(found[1]) * UNITS[found[2]]


def _leave_others(line: Line, draft: Draft) -> None:
    for key, parameter in line.items():
        value = parameter.value.lower()
        if f"{key}={value}" in _SLURMS_OWN:
            draft.same.append(parameter)
        elif key in _LAYOUT:
            draft.leave(parameter, "counts in cpus: each CPU of a pool is given to jobs by itself")
        elif key not in _TAKEN:
            draft.leave(parameter, "belongs to the old machine: a pool has nothing of the kind")
        elif key == "state" and value not in {"cloud", "future"}:
            draft.leave(parameter, "nodes begin idle: drain them with scontrol")


def _node(name: str, options: Line, devices: Iterable[Device]) -> Node:
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
        counts[key] = counts.get(key, 0) + (int(found[1]) * UNITS[found[2]] if found else 1)
    own = [device for device in devices if device.nodes is None or name in device.nodes]
    typed = [device for device in own if device.kind]
    amd = [device for device in own if device.amd]
    types = {one.kind: sum(other.count for other in typed if other.kind == one.kind) for one in typed}
    if len(types) == 1:  # they are all of it
        types = dict.fromkeys(types, counts.get("gpu", 0))
    if types and sum(types.values()) == counts.get("gpu"):  # slurm.conf has their number alone
        del counts["gpu"]
        counts |= {f"gpu:{kind}": count for kind, count in types.items()}
    else:
        typed = []
    return Node(options, cpus, tuple((key, count) for key, count in counts.items() if count), bool(amd), (*typed, *amd))


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


def _put_pool(name: str, members: list[Node], draft: Draft) -> None:
    node, size, pool = members[0], len(members), ("worker_nodes", name)

    def words(key: str) -> tuple[Parameter, ...]:
        return tuple(dict.fromkeys(node.options[key] for node in members if key in node.options))

    lines, elastic = words("nodename"), node.value("state").upper() == "CLOUD"
    draft.put((*pool, "size"), {"min": 0, "max": size} if elastic else size, *lines, *(words("state") * elastic))
    draft.put((*pool, "resources", "cpus"), node.cpus, *(words("cpus") or lines))
    memory = int(node.value("realmemory", "0"))
    for line in lines if not memory else ():
        draft.leave(line, f"has no RealMemory: {name} has 1Gi for each CPU; write what there is")
    ours = memory_for(memory or node.cpus * _MIB_OF_A_CPU)
    draft.put((*pool, "resources", "memory"), ours, *(words("realmemory") or lines))
    given = dict.fromkeys(word for word in node.value("feature").split(",") if word and word != name)
    features = [word for word in given if re.fullmatch("[A-Za-z][A-Za-z0-9_.-]*", word)]
    for word, line in product(sorted(given.keys() - features), words("feature")):
        draft.leave(line, f"{word} is no feature here: letters, digits, '_', '.', '-'")
    if features:
        draft.put((*pool, "features"), features, *words("feature"))
    else:
        draft.same += words("feature")  # the pool's name
    if node.value("weight", "1") != "1":
        draft.put((*pool, "weight"), int(node.value("weight")), *words("weight"))
    if int(node.value("tmpdisk", "0")):
        draft.put((*pool, "tmp"), f"{node.value('tmpdisk')}Mi", *words("tmpdisk"))
    _put_gres((*pool, "resources", "gpus"), members, words("gres"), draft)


def _put_gres(place: tuple[str, ...], members: list[Node], lines: tuple[Parameter, ...], draft: Draft) -> None:
    node = members[0]
    gpus = {key.partition(":")[2]: count for key, count in node.gres if key.partition(":")[0] == "gpu"}
    devices = {word: None for node in members for device in node.devices for word in device.words}
    if gpus:
        draft.put((*place, "count"), sum(gpus.values()), *lines)
    if gpus and node.amd:
        draft.put((*place, "vendor"), "amd", *lines, *devices)
    if len(gpus) > 1:
        draft.put((*place, "kinds"), [{"type": kind, "count": count} for kind, count in gpus.items()], *lines, *devices)
        draft.put((*place[:2], "confinement"), "required", *lines)
    elif any(gpus):
        draft.put((*place, "type"), next(iter(gpus)), *lines, *devices)
    for key, count in node.gres:
        if key == "shard" and gpus:
            draft.put((*place, "shard"), count, *lines)
        elif key.partition(":")[0] != "gpu":
            for line in lines:
                draft.leave(line, f"{key} is no GPU of the node: licenses count other things")
