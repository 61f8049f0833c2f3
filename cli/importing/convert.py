"""From the old cluster's files to the text of a stack file, and the list of what it has and has not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from cli.errors import Failure
from cli.importing.accounts import read_dump
from cli.importing.draft import Draft, plain
from cli.importing.files import Line, hosts, lines_of, read_lines, value_in
from cli.importing.keys import ALIASES, OF_ELASTIC_POOLS, PLACES
from cli.importing.nodes import Node, put_pools, read_nodes
from config import ConfigError, load_config
from config.load import PROJECT
from config.sections.slurm import Partition, Slurm
from images.common.slurm_records import compress
from slurm.conf import effective_settings


def convert(slurm_conf: Path, gres_conf: Path | None, dump: Path | None) -> tuple[str, Draft]:
    """The text, and what went into it. Raises Failure where a file cannot be read, or no node is found."""
    draft = Draft()
    lines = _understood(slurm_conf, draft)
    nodes = read_nodes(lines, _understood(gres_conf, draft) if gres_conf is not None else [], draft)
    if not nodes:
        message = "\n".join([f"{slurm_conf} has no node that could be taken", *draft.told()])
        raise Failure(message, hint="are its nodes dynamic? Or in a file that it includes?")
    members = _read_partitions(lines, nodes, draft)
    pools = put_pools(nodes, members, draft)
    for partition, names in members.items():
        draft.sections["partitions"][partition]["pools"] = [pool for pool, own in pools.items() if names & {*own}]
    users = read_dump(dump, draft) if dump is not None else {}
    _read_settings(lines, draft)
    draft.settle()
    draft.leave_rest()
    return _text(slurm_conf, draft.sections, pools, users), draft


def _understood(path: Path, draft: Draft) -> list[Line]:
    """The lines; a word that is no pair is left."""
    found: list[Line] = []
    for pairs in read_lines(path):
        draft.read.append(pairs)
        found.append({ALIASES.get(pair.key.lower(), pair.key.lower()): pair for pair in pairs})
        if word := found[-1].pop("", None):
            draft.leave(word, "is not understood: slurm.conf has KEY=VALUE, and quotes in pairs")
    return [line for line in found if line]


def _read_partitions(lines: Iterable[Line], nodes: Mapping[str, Node], draft: Draft) -> dict[str, set[str]]:
    """Partitions into the draft, without their pools; the nodes of each."""
    # A set may stand below the partitions over it.
    groups = {name: {name} for name in nodes} | {"ALL": {*nodes}}
    for head, line in lines_of("nodeset", lines):
        wanted = {*value_in(line, "feature").split(",")} - {""}
        having = {host for host, node in nodes.items() if wanted & {*value_in(node.options, "feature").split(",")}}
        groups[head.value] = having | _members(line, groups, draft)
    found: dict[str, set[str]] = {}
    for head, options in lines_of("partitionname", lines):
        name = re.sub("(?i)^(?=[.-]|all$|$)", "p-", re.sub("[^A-Za-z0-9_.-]", "-", head.value))
        members = _members(options, groups, draft)
        if not members:
            draft.leave(head, "has no node: a partition is over at least one pool")
        if not members or name in found:  # Slurm has a name once
            continue
        if name != head.value:
            draft.leave(head, f"is no name of a partition here: it became {name}")
        found[name] = members
        draft.put(("partitions", name), {"pools": []}, head, options["nodes"])
        for key in [key for key in options if key not in {"partitionname", "nodes", "default"}]:
            draft.put_option(("partitions", name), Partition, key, options[key])
        if value_in(options, "default").lower() in {"yes", "true", "up", "1"}:
            for other in found:  # to Slurm, the last one is
                draft.remove(("partitions", other, "default"))
            draft.put(("partitions", name, "default"), True, options["default"])
    return found


def _members(line: Line, groups: Mapping[str, set[str]], draft: Draft) -> set[str]:
    """The nodes in `Nodes`, by names, sets or ALL."""
    named = [name if name.upper() != "ALL" else "ALL" for name in hosts(value_in(line, "nodes"))]
    if unknown := [name for name in named if not groups.get(name)]:
        draft.leave(line["nodes"], f"{compress(unknown)[:100]} is no node of the NodeName lines that were taken")
    return set().union(*(groups.get(name, ()) for name in named))


def _read_settings(lines: Iterable[Line], draft: Draft) -> None:
    with suppress(ConfigError):  # what is wrong with the pools is told in the end
        ours = effective_settings(load_config({"worker_nodes": draft.sections["worker_nodes"]}))
        draft.defaults |= {"preemptmode=off", *(f"{key}={value}".lower() for key, value in ours.items())}
    elastic = [name for name, pool in draft.sections["worker_nodes"].items() if isinstance(pool["size"], dict)]
    for key, parameter in dict(next(iter(line.items())) for line in lines).items():  # Slurm goes by the last one
        if key == "licenses":
            for name, count in re.findall(r"([^\s,;:=*]+)[:=*]?([^\s,;]*)", parameter.value):
                draft.put(("licenses", name), plain(count or "1"), parameter)
        elif key in OF_ELASTIC_POOLS and re.fullmatch("[1-9][0-9]{0,6}", parameter.value):
            for name in elastic:
                draft.put(("worker_nodes", name, OF_ELASTIC_POOLS[key]), f"{parameter.value}s", parameter)
        elif key not in {"nodename", "partitionname"}:
            draft.put_option(*PLACES.get(key, (("slurm",), Slurm, key)), parameter)


_HEAD = """\
# Made by `slurmstack import` of {source}. A line with "decide" waits for you; then `slurmstack validate --config FILE`.
config:
  # decide: the context of your kubeconfig, as in {{kind: existing, context: my-context}}
  {project}:cloud: {{kind: existing}}
  # decide: where the nodes pull images from
  # {project}:images: {{registry: registry.example.com/slurm}}
  # decide: a storage class that offers ReadWriteMany, and the size of the homes
  # {project}:jail: {{size: 500Gi, storage_class: shared-rwx}}
  # decide: cpus and memory are those of the old nodes, of which Kubernetes keeps some for itself: take no more than
  # a machine has allocatable (`kubectl describe node`), and choose the machines with node_selector
"""


def _text(source: Path, sections: Mapping[str, Any], pools: Mapping[str, list[str]], users: Mapping[str, Any]) -> str:
    text = _HEAD.format(source=source.name, project=PROJECT)
    for name in sorted(sections, key=lambda name: (name != "worker_nodes", name)):
        if sections[name]:
            dumped = yaml.safe_dump({f"{PROJECT}:{name}": sections[name]}, sort_keys=False, width=110)
            text += "".join(f"  {line}\n" for line in dumped.splitlines())
    for pool, members in pools.items():
        text = text.replace(f"\n    {pool}:\n", f"\n    {pool}:  # {compress(members)[:100]}\n", 1)
    if users:
        text += f"  # decide: take away the '#', and write each user's own uid (`id -u`)\n  # {PROJECT}:users:\n"
        text += "".join(f"  #   {name}: {{uid: ..., accounts: [{', '.join(own)}]}}\n" for name, own in users.items())
    return text
