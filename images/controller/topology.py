"""Slurm's switch tree, from labels of the Kubernetes nodes: who is near to whom on the network.

The labels name a node's switches from the core of the network to the node, so their values are a path. Each path
becomes a leaf switch, each beginning of a path a switch above it, and one root joins all: a job may then use any nodes,
and gets near ones where it can.

slurmctld reads topology.conf when it starts and at `scontrol reconfigure`, and knows then only the nodes that have
registered. A node that registers later is in no switch: jobs that need it are refused (measured with 24.11 and 26.05),
and a queued one that tries to use it is put aside for good (`BadConstraints`, measured with 26.05). So a worker
registers drained, with a reason of its own (images/worker/slurmd.py), and takes jobs once it has its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from images.common.command import Result
from images.common.kubernetes import WORKER_PODS, Follower, Kube
from images.common.slurm_node import waits_for_topology
from images.common.slurm_records import NodeRecord, compress
from images.controller.configuration import TOPOLOGY_CONF, Files
from images.controller.slurmctld import Slurmctld

LABELS_FILE: Final = "topology.labels"
"""File of the ConfigMap that asks for a tree: keys of labels, one a line, from the core of the network to the node."""

ROOT: Final = "root"
UNKNOWN: Final = "unknown"
"""Leaf switch of the nodes of which no label is known, as those of elastic pools that are off; also what stands for a
single label that is missing."""

LONGEST_NAME: Final = 40
"""Of a switch. Slurm takes 64 characters; with 200 slurmctld does not start (measured with 24.11 and 26.05)."""

_NO_NODE: Final = "none"
"""Slurm has no empty leaf switch, and 26.05 does not start without any switch (measured). Nodes are named
`<pool>-<number>`, so none has this name."""

Path = tuple[str, ...]
"""Values of a node's labels, from the core to the node; empty: none is known."""


def label_keys(text: str) -> tuple[str, ...]:
    """The keys in `LABELS_FILE`."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def path_of(labels: Mapping[str, str], keys: Iterable[str]) -> Path:
    """Where a node with these labels is."""
    values = tuple(labels.get(key, "") for key in keys)
    return tuple(value or UNKNOWN for value in values) if any(values) else ()


def switch_name(path: Path) -> str:
    """A name that depends on the path alone, so that it stays when other switches come and go.

    The labels themselves where that is short and cannot be taken for another path; else the last one and a digest.
    """
    joined = ".".join(path)
    clear = not any("." in value for value in path) and joined not in {ROOT, UNKNOWN}
    if clear and len(joined) <= LONGEST_NAME:
        return joined
    digest = hashlib.sha256("\0".join(path).encode()).hexdigest()[:8]
    return f"{path[-1][: LONGEST_NAME - 9]}-{digest}"


def render(places: Mapping[str, Path]) -> str:
    """topology.conf for nodes at these places. The same places always give the same bytes."""
    leaves: dict[Path, list[str]] = {}
    for node, path in places.items():
        leaves.setdefault(path, []).append(node)
    below: dict[Path, set[Path]] = {}
    for path in leaves:
        for depth in range(len(path)):
            below.setdefault(path[:depth], set()).add(path[: depth + 1])
    unlabelled = leaves.pop((), [] if leaves else [_NO_NODE])

    lines = ["# Made by config-agent from labels of the Kubernetes nodes: changes made here are lost."]
    lines += [f"SwitchName={switch_name(path)} Nodes={compress(leaves[path])}" for path in sorted(leaves)]
    if unlabelled:
        lines.append(f"SwitchName={UNKNOWN} Nodes={compress(unlabelled)}")
    tops = [switch_name(path) for path in sorted(below.pop((), set()))]
    for path in sorted(below, key=lambda path: (-len(path), path)):
        lines.append(f"SwitchName={switch_name(path)} Switches={','.join(map(switch_name, sorted(below[path])))}")
    lines.append(f"SwitchName={ROOT} Switches={','.join([*tops, *([UNKNOWN] if unlabelled else [])])}")
    return "\n".join(lines) + "\n"


class Places:
    """Paths of Slurm nodes by name, from watches on pods and Kubernetes nodes. Without these no node has labels."""

    def __init__(self, pods: Follower[str] | None = None, nodes: Follower[dict[str, str]] | None = None) -> None:
        """`pods`: the Kubernetes node that each was given to; `nodes`: the labels of each."""
        self._pods = pods
        self._nodes = nodes
        self._last: dict[str, Mapping[str, str]] = {}

    @property
    def synced(self) -> bool:
        """Whether the API server has told all."""
        return all(follower.synced for follower in (self._pods, self._nodes) if follower is not None)

    def of(self, names: Iterable[str], keys: Iterable[str], off: Container[str] = ()) -> dict[str, Path]:
        """Where these nodes are.

        A node whose pod or machine is away just now keeps its place, so that the tree does not change twice while it
        is replaced; one that was never seen, or is `off` and comes back on another machine, has none.
        """
        keys = tuple(keys)
        pods = self._pods.values() if self._pods else {}
        nodes = self._nodes.values() if self._nodes else {}
        found: dict[str, Mapping[str, str]] = {}
        for name in names:
            labels = nodes.get(pods.get(name, ""))
            if name in off:
                labels = {}
            found[name] = labels if labels is not None else self._last.get(name, {})
        self._last = found
        return {name: path_of(labels, keys) for name, labels in found.items()}


def follow_places(kube: Kube | None, log: Callable[[str], None]) -> Places:
    """Follow the API server in the background; outside of Kubernetes there is nothing to follow."""
    if kube is None:
        return Places()
    pods = Follower(kube, kube.path("pods"), lambda pod: str((pod.get("spec") or {}).get("nodeName") or ""), log,
                    selector=WORKER_PODS)  # fmt: skip
    # Only metadata: the rest of a Node is large and changes every few minutes.
    nodes = Follower(kube, "/api/v1/nodes", lambda node: dict(node["metadata"].get("labels") or {}), log,
                     metadata_only=True)  # fmt: skip
    pods.start()
    nodes.start()
    return Places(pods, nodes)


POLL_SECONDS: Final = 1.0
SHARE: Final = 5.0
"""A look that took long, with thousands of nodes, is followed by a pause of so many times that."""
SETTLE_SECONDS: Final = 2.0
"""After the first change: nodes that come together are read in one go."""
SPACING_SECONDS: Final = 10.0
"""Between two reconfigurations: each makes every slurmd read its configuration again."""
PATIENT_SECONDS: Final = 30.0
"""Where no node waits: who has left or is off does no harm where it was, and who has moved takes jobs there."""
PATIENCE_SECONDS: Final = 10.0
"""How long to wait for a first answer of the API server before nodes are taken for unlabelled."""

OFF: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})
"""A node of an elastic pool without a machine, or whose job waits for it: the tree is not read under that."""


class TopologyKeeper:
    """Decides when the tree is read again."""

    def __init__(
        self, *, locations: Callable[[], Places], slurmctld: Slurmctld, published: Callable[[], Files],
        reload: Callable[[str], bool], log: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`locations` is called once, when a tree is first asked for; `reload` makes slurmctld read a topology.conf."""
        self._make_locations, self._slurmctld, self._log = locations, slurmctld, log
        self._published, self._reload = published, reload
        self._locations: Places | None = None
        self._next = 0.0
        self._since: float | None = None
        """When the change came that waits, if any does."""
        self._started = self._last = float("-inf")

    def initial(self, keys: tuple[str, ...]) -> str:
        """A first topology.conf, for the moment when a tree is asked for: no running node may be without a switch."""
        nodes = self._slurmctld.nodes() or []
        return render(self._places(nodes, keys))

    def round(self) -> None:
        """Look once, at most every `POLL_SECONDS`."""
        now = self._slurmctld.clock.now()
        if now < self._next:
            return
        self._next = now + POLL_SECONDS
        files = self._published()
        if LABELS_FILE in files and TOPOLOGY_CONF in files:
            nodes = self._slurmctld.nodes()
            self._next += min(SHARE * (self._slurmctld.clock.now() - now), SPACING_SECONDS)
            if nodes is not None:
                self._keep(files, nodes, now)
        else:
            # There was a tree until a moment ago, perhaps of another agent's time: a worker may have asked before and
            # registered after, or nodes of an elastic pool are off and waited.
            self._next = now + SPACING_SECONDS
            self._release(self._slurmctld.nodes() or [])

    def _keep(self, files: Files, nodes: list[NodeRecord], now: float) -> None:
        places = self._places(nodes, label_keys(files[LABELS_FILE]))
        wanted = render(places)
        waiting = any(waits_for_topology(node) for node in nodes)
        if not self._is_known(now, urgent=waiting):
            return
        if not waiting and wanted == files[TOPOLOGY_CONF]:
            self._since = None
            return
        self._since = now if self._since is None else self._since
        due = self._since + (SETTLE_SECONDS if waiting else PATIENT_SECONDS)
        if now < max(due, self._last + SPACING_SECONDS):
            return
        loaded = self._reload(wanted)
        self._last, self._since = self._slurmctld.clock.now(), None
        if loaded:
            self._log(f"the topology of {len(places)} nodes at {len(set(places.values()))} leaf switches is in force")
            self._release(nodes)

    def _places(self, nodes: list[NodeRecord], keys: tuple[str, ...]) -> dict[str, Path]:
        if self._locations is None:
            self._locations = self._make_locations()
            self._started = self._slurmctld.clock.now()
        off = {node.name for node in nodes if node.states & OFF}
        return self._locations.of((node.name for node in nodes), keys, off)

    def _is_known(self, now: float, *, urgent: bool) -> bool:
        """Whether the API server has told where nodes are. Without it, a tree from before stays unless nodes wait."""
        locations = self._locations
        return locations is not None and (locations.synced or (urgent and now - self._started >= PATIENCE_SECONDS))

    def _release(self, nodes: list[NodeRecord]) -> None:
        """Let nodes that waited for their place take jobs; of elastic pools as many as `elastic` finds room for."""
        waiting = [node for node in nodes if waits_for_topology(node)]
        elastic = [node.name for node in waiting if node.is_cloud]
        self._let_go(elastic, self._slurmctld.leave_to_elastic)
        self._let_go([node.name for node in waiting if node.name not in elastic], self._slurmctld.undrain)

    def _let_go(self, waiting: list[str], let: Callable[[str], Result]) -> None:
        if waiting and not let(compress(waiting)).ok:
            # One that has left meanwhile spoils the command for all.
            waiting = [name for name in waiting if let(name).ok]
        if waiting:
            self._log(f"nodes that waited for the topology have their places now: {compress(waiting)}")
