"""Nodes and what their checks found, as the controller's `health-nodes` prints them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["well", "failing", "unknown", "asleep"]
"""Of a node as a whole. `failing`: a check fails, or keeps the node drained. `unknown`: no report, an old one, a check
that could not tell, or a node that does not answer. `asleep`: not there on purpose. Warnings are well."""

_ABSENT = {"FUTURE", "POWERED_DOWN"}
"""Slurm's states of nodes that are not there, on purpose."""

_ORDER = ("fail", "not checked", "warn")


class NodesError(ValueError):
    """What `health-nodes` cannot have printed."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one check found."""

    check: str
    status: str
    """`ok`, `warn`, `fail` or `not checked`. Any other, of a later version, is taken for not checked."""
    fault: str | None = None
    """`user`, `node` or `hardware`, of warnings and failures."""
    message: str = ""

    @property
    def line(self) -> str:
        """For people: `fail disks [node]: /jail: 97 % of the space used, 95 % allowed`."""
        fault = f" [{self.fault}]" if self.fault else ""
        message = f": {self.message}" if self.message else ""
        return f"{self.status} {self.check}{fault}{message}"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of Slurm."""

    name: str
    states: frozenset[str]
    reason: str
    closed: bool
    """Drained, failing or down."""
    drained_for: str | None
    """The check that keeps it drained."""
    age: float | None
    """Seconds since its report; negative where its clock is ahead, None without a report."""
    fresh: bool
    """Whether the report says something about now."""
    found: tuple[Found, ...]
    data: Mapping[str, Any]
    """All that was printed about it."""

    @property
    def findings(self) -> list[Found]:
        """What is not well, the worst first."""
        rank = {status: number for number, status in enumerate(_ORDER)}
        bad = (found for found in self.found if found.status != "ok")
        return sorted(bad, key=lambda found: (rank.get(found.status, rank["not checked"]), found.check))

    @property
    def answers(self) -> bool:
        """Whether slurmctld hears from it."""
        return "NOT_RESPONDING" not in self.states

    @property
    def verdict(self) -> Verdict:
        """How it is, in a word."""
        statuses = {found.status for found in self.found}
        if self.drained_for is not None:
            return "failing"
        if self.states & _ABSENT:
            return "asleep"
        if not self.fresh:
            return "unknown"
        if "fail" in statuses:
            return "failing"
        return "well" if self.answers and statuses and statuses <= {"ok", "warn"} else "unknown"


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """All nodes at a time."""

    at: str
    """In UTC, by the controller's clock."""
    nodes: tuple[Node, ...]

    def only(self, names: Iterable[str]) -> Nodes:
        """Some of them."""
        wanted = set(names)
        return Nodes(at=self.at, nodes=tuple(node for node in self.nodes if node.name in wanted))

    @property
    def bad(self) -> tuple[Node, ...]:
        """Those that fail or of which nobody knows."""
        return tuple(node for node in self.nodes if node.verdict in {"failing", "unknown"})

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many there are of each verdict."""
        count = Counter(node.verdict for node in self.nodes)
        return {verdict: count[verdict] for verdict in ("well", "failing", "unknown", "asleep")}


def parse_nodes(text: str) -> Nodes:
    """What `health-nodes` printed, in the order in which people count. Raises NodesError."""
    try:
        printed = json.loads(text)
        nodes = [_node(node) for node in printed["nodes"]]
        return Nodes(at=str(printed["at"]), nodes=tuple(sorted(nodes, key=lambda node: in_order(node.name))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NodesError(f"what the controller says about its nodes is not understood: {text[:200]!r}") from error


def _node(printed: Mapping[str, Any]) -> Node:
    age = printed["age_seconds"]
    return Node(
        name=str(printed["name"]),
        states=frozenset(str(state) for state in printed["states"]),
        reason=str(printed["reason"]),
        closed=bool(printed["closed"]),
        drained_for=printed["drained_for"],
        age=None if age is None else float(age),
        fresh=bool(printed["fresh"]),
        found=tuple(
            Found(check=check, status=str(result["status"]), fault=result["fault"], message=str(result["message"]))
            for check, result in printed["results"].items()
        ),
        data=printed,
    )


def in_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts `w-10` after `w-9`."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)]
