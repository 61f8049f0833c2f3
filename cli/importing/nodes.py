"""Nodes of slurm.conf and gres.conf as pools: those that are alike, and in the same partitions, are one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from os.path import commonprefix
from typing import Any

from cli.importing.draft import Draft
from cli.importing.files import Line, Parameter, hosts, lines_of, value_in
from config.sections.workers import RESERVED_POOL_NAMES
from images.common.slurm_records import count, size
from slurm.sizing import memory_for

_FROM = {"cpus": "cpus", "memory": "realmemory", "features": "feature", "weight": "weight", "tmp": "tmpdisk"}
"""Value of a pool -> the key that it is from; others are from Gres."""


@dataclass(kw_only=True)
class Node:
    """What one node offers."""

    options: Line
    """What its line and `NodeName=DEFAULT` say, by keys in small letters."""
    pool: dict[tuple[str, ...], Any]
    """Place in its pool -> value. Nodes of one pool have the same."""
    types: Counter[str] = field(default_factory=Counter)
    """Of its GPUs by gres.conf."""
    amd: bool = False
    """Whether they are AMD's."""
    devices: list[Parameter] = field(default_factory=list)
    """What says so."""


def read_nodes(lines: Iterable[Line], gres: Iterable[Line], draft: Draft) -> dict[str, Node]:
    """All nodes by name, in the order of the file."""
    found: dict[str, Node] = {}
    for head, options in lines_of("nodename", lines):
        try:
            new = {host: _node(host, options) for host in hosts(head.value)}
        except ValueError as error:
            draft.leave(head, f"is not understood: {error}")
            continue
        if value_in(options, "state").upper() == "FUTURE":
            draft.leave(head, "is no node yet: raise worker_nodes.<pool>.size when it is to be there")
        elif not found.keys() & new:  # Slurm has a name once
            found |= new
    _read_devices(gres, found)
    for node in found.values():
        _put_gpus(node, draft)
    return found


def _node(name: str, options: Line) -> Node:
    """Raises ValueError."""
    if re.search(r"[\[\]=]", name):
        raise ValueError(f"{name[:60]} is no list of hosts that Slurm takes, as n[1-3,07],login")
    number = partial(_number, options)
    sockets = number("sockets", number("boards") * number("socketsperboard"))
    cpus = number("cpus", sockets * number("corespersocket") * number("threadspercore"))
    memory, weight, disk = number("realmemory", cpus * 1024), number("weight"), number("tmpdisk", 0)
    pool: dict[tuple[str, ...], Any] = {("resources", "cpus"): cpus, ("resources", "memory"): memory_for(memory)}
    given = dict.fromkeys(value_in(options, "feature").split(","))
    features = [word for word in given if re.fullmatch("[A-Za-z][A-Za-z0-9_.-]*", word)]
    pool |= {("features",): features} if features else {}
    pool |= {("weight",): weight} if weight != 1 else {}
    pool |= {("tmp",): f"{disk}Mi"} if disk else {}
    return Node(options=options, pool=pool)


def _number(line: Line, key: str, otherwise: int = 1) -> int:
    if not re.fullmatch("[0-9]{0,15}", value_in(line, key)):
        raise ValueError(f"{line[key].text} is no number")
    return int(value_in(line, key) or otherwise)


def _read_devices(lines: Iterable[Line], nodes: Mapping[str, Node]) -> None:
    """The types of GPUs, and whose they are."""
    for line in lines:
        words = [line[key] for key in ("nodename", "name", "type", "count", "file", "autodetect") if key in line]
        amd = any("rsmi" in word.value or word.value.startswith("/dev/dri") for word in words)
        typed = "type" in line and value_in(line, "name") == "gpu"
        named = hosts(line["nodename"].value) if "nodename" in line else nodes
        number = len(hosts(value_in(line, "file"))) or count(value_in(line, "count"))
        for node in (nodes[name] for name in named if name in nodes and (amd or typed)):
            node.amd |= amd
            node.devices += words
            node.types.update({line["type"].value: number} if typed else {})


def _put_gpus(node: Node, draft: Draft) -> None:
    gres: Counter[str] = Counter()  # `gpu:h100` -> 8, `shard` -> 32
    # Without sockets, flags, and the type of the GPUs that are shared.
    offered = re.sub(r"\([^)]*\)|:no_consume|(?<=shard):[^:,]+(?=:)", "", value_in(node.options, "gres"))
    for part in filter(None, offered.split(",")):
        counted = re.fullmatch("(?i)(.+):([0-9]{1,9}[KMGTP]?)", part)
        gres[counted[1] if counted else part] += int(size(counted[2].upper()) or 0) if counted else 1
    whole = {key: number for key, number in gres.items() if re.match(r"gpu(:(?!(.*_)?[1-7]g\.)|$)", key)}
    total = gres["gpu"]
    types = dict.fromkeys(node.types, total) if len(node.types) == 1 else node.types  # one is that of all
    if not total or sum(types.values()) != total:  # Gres has the types, or nobody
        types, node.devices = {"": total}, node.devices if node.amd else []
    gpus = Counter({key[4:]: number for key, number in whole.items() if key != "gpu"}) + Counter(types)
    if gpus:
        value: dict[str, Any] = {"count": gpus.total()} | ({"vendor": "amd"} if node.amd else {})
        if len(gpus) > 1:
            value["kinds"] = [{"type": kind, "count": number} for kind, number in gpus.items()]
            node.pool["confinement",] = "required"
        elif "" not in gpus:
            value["type"] = next(iter(gpus))
        node.pool["resources", "gpus"] = value
    for key, number in gres.items():
        if key == "shard" and gpus:
            node.pool["resources", "gpus", "shard"] = number
        elif key not in whole:
            why = "licenses count other things, and resources.gpus.mig parts of GPUs, where all are divided"
            draft.leave(node.options["gres"], f"{key} is no GPU of the node: {why}")


def put_pools(nodes: Mapping[str, Node], partitions: Mapping[str, set[str]], draft: Draft) -> dict[str, list[str]]:
    """Pools into the draft; their nodes by the pool's name. `partitions` has the nodes of each."""
    groups: dict[str, list[str]] = {}
    for name, node in nodes.items():
        homes = [partition for partition, members in partitions.items() if name in members]
        groups.setdefault(str((node.pool, value_in(node.options, "state").lower() == "cloud", homes)), []).append(name)
    pools: dict[str, list[str]] = {}
    for members in groups.values():
        # A feature of this name, which others have, would put their nodes into this pool's node set.
        others = {value_in(nodes[name].options, "feature") for name in nodes.keys() - members}
        features = {feature for listed in others for feature in listed.split(",")}
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
    return next(name for at in ("", *range(2, len(taken) + 3)) if (name := f"{stem}{at}") not in taken)


def _put_pool(name: str, members: list[Node], draft: Draft) -> None:
    node, size = members[0], len(members)

    def words(key: str) -> list[Parameter]:
        return list(dict.fromkeys(node.options[key] for node in members if key in node.options))

    lines, elastic = words("nodename"), value_in(node.options, "state").lower() == "cloud"
    origin = [*lines, *(words("state") if elastic else [])]
    draft.put(("worker_nodes", name, "size"), {"min": 0, "max": size} if elastic else size, *origin)
    for path, value in node.pool.items():
        devices = (word for node in members for word in node.devices) if path[-1] == "gpus" else ()
        draft.put(("worker_nodes", name, *path), value, *(words(_FROM.get(path[-1], "gres")) or lines), *devices)
    for line in lines if "realmemory" not in node.options else ():
        draft.leave(line, f"has no RealMemory: {name} has 1Gi for each CPU; write what there is")
    for word in {*value_in(node.options, "feature").split(",")} - {"", *node.pool.get(("features",), ())}:
        draft.leave(node.options["feature"], f"{word} is no feature here: letters, digits, '_', '.', '-'")
