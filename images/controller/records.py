"""Removes node records that no pod will ever take again.

A worker pod deletes its own record when it leaves (images/worker/leave.py). What remains here are pods that were
killed before they could, and nodes that an administrator had drained. A record is only removed when it is certain that
the node is gone for good: Slurm cannot reach it, there is no pod of that name, and its StatefulSet is too small to
ever make one. Where the API server or slurmctld does not answer, nothing is certain. The record of a node that a
pending job asks for by name stays as long as the job waits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from images.common.command import Result
from images.controller.kube import KubeError, Object

INTERVAL_SECONDS: Final = 10.0
MOST_PER_ROUND: Final = 50
"""A round has an end even when a pool of thousands of nodes was removed."""

_POD_NAME: Final = re.compile(r"^(?P<pool>.+)-(?P<ordinal>\d+)$")
_GONE: Final = frozenset({"DOWN", "NOT_RESPONDING"})
_KEPT: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "CLOUD", "ALLOCATED", "MIXED", "COMPLETING"})
"""Nodes that sleep until they are needed, and nodes that still have a job."""


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """What we look at in a node record of Slurm."""

    name: str
    states: frozenset[str]

    @property
    def may_be_gone(self) -> bool:
        """A dynamic node that Slurm cannot use and that is not merely asleep."""
        dynamic = any(state.startswith("DYNAMIC") for state in self.states)
        return dynamic and bool(self.states & _GONE) and not self.states & _KEPT


def parse_nodes(text: str) -> list[NodeRecord]:
    """Node records in the output of `scontrol show nodes --json`."""
    document: dict[str, Any] = json.loads(text)
    return [NodeRecord(name=node["name"], states=frozenset(node["state"])) for node in document.get("nodes") or []]


def removable(nodes: Iterable[NodeRecord], pods: Iterable[Object], stateful_sets: Iterable[Object]) -> list[str]:
    """Names of records whose pod neither exists nor can come back."""
    present = {pod["metadata"]["name"] for pod in pods}
    replicas = {item["metadata"]["name"]: int(item["spec"].get("replicas", 1)) for item in stateful_sets}
    names = []
    for node in nodes:
        found = _POD_NAME.match(node.name)
        if not node.may_be_gone or node.name in present or found is None:
            continue
        if replicas.get(found["pool"], 0) <= int(found["ordinal"]):
            names.append(node.name)
    return names


class Api(Protocol):
    """The part of the Kubernetes API that is needed here."""

    def list_pods(self) -> list[Object]:
        """All pods."""
        ...

    def list_stateful_sets(self) -> list[Object]:
        """All StatefulSets."""
        ...


class NodeControl(Protocol):
    """The part of slurmctld's control that is needed here."""

    def nodes_json(self) -> str | None:
        """All node records."""
        ...

    def wanted_nodes(self) -> frozenset[str] | None:
        """Those that pending jobs ask for by name."""
        ...

    def delete_node(self, name: str) -> Result:
        """Remove one."""
        ...


class Reaper:
    """Removes records, one bounded round at a time."""

    def __init__(self, *, api: Api, slurmctld: NodeControl, log: Callable[[str], None]) -> None:
        self._api = api
        self._slurmctld = slurmctld
        self._log = log
        self._refused: dict[str, str] = {}

    def round(self) -> None:
        """Look once. Costs no request to the API server while every node is well."""
        text = self._slurmctld.nodes_json()
        if text is None:
            return
        candidates = [node for node in parse_nodes(text) if node.may_be_gone]
        if not candidates:
            self._refused.clear()
            return
        try:
            # StatefulSets first: one that grows between the two questions has its pod in the second answer.
            stateful_sets = self._api.list_stateful_sets()
            names = removable(candidates, self._api.list_pods(), stateful_sets)
        except KubeError as error:
            self._log(f"node records are left alone: {error}")
            return
        wanted = self._slurmctld.wanted_nodes() if names else frozenset()
        if wanted is None:
            return
        for name in sorted(wanted.intersection(names)):
            self._keep(name, "a pending job asks for it by name")
        for name in [name for name in names if name not in wanted][:MOST_PER_ROUND]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        result = self._slurmctld.delete_node(name)
        if result.ok:
            self._refused.pop(name, None)
            self._log(f"removed the record of node {name}: its pod is gone for good")
        else:
            self._keep(name, result.message)

    def _keep(self, name: str, why: str) -> None:
        if self._refused.get(name) != why:
            self._refused[name] = why
            self._log(f"the record of node {name} stays for now: {why}")
