"""Keeps Slurm's switch tree up to date, without restarts and with few reconfigurations.

slurmctld reads topology.conf when it starts and at `scontrol reconfigure`, and knows then only the nodes that have
registered. A node that registers later is in no switch: jobs that need it are refused (measured with 24.11 and 26.05),
and a queued one that tries to use it is put aside for good (`BadConstraints`, measured with 26.05). So a worker
registers drained, with a reason of its own (images/worker/slurmd.py), and takes jobs once it has its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from images.common.command import Result
from images.common.slurm_node import waits_for_topology
from images.common.slurm_records import NodeRecord, compress
from images.common.wait import Clock
from images.controller.configuration import Files
from images.controller.node_list import NodeList
from images.controller.topology import LABELS_FILE, TOPOLOGY_CONF, Path, label_keys, render, unplaced
from images.controller.topology_places import Places

POLL_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 2.0
"""A change is read when nothing more has changed for this time: nodes that come together are read in one go."""
LONGEST_SETTLE_SECONDS: Final = 10.0
"""But not later than this after the first change."""
SPACING_SECONDS: Final = 10.0
"""Between two reconfigurations: each makes every slurmd read its configuration again."""
REMOVAL_SECONDS: Final = 60.0
"""Nodes that have left, or are off, do no harm where they were; they go with the next change, or after this time."""
PATIENCE_SECONDS: Final = 10.0
"""How long to wait for a first answer of the API server before nodes are taken for unlabelled."""

OFF: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})
"""A node of an elastic pool without a machine, or whose job waits for it: the tree is not read under that."""


class TopologyKeeper:
    """Decides when the tree is read again."""

    def __init__(
        self,
        *,
        locations: Callable[[], Places],
        nodes: NodeList,
        published: Callable[[], Files],
        reload: Callable[[str], bool],
        log: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        """`locations` is called once, when a tree is first asked for; `reload` makes slurmctld read a topology.conf."""
        self._make_locations = locations
        self._locations: Places | None = None
        self._nodes = nodes
        self._published = published
        self._reload = reload
        self._log = log
        self._clock = clock or Clock()
        self._next = self._first = self._latest = 0.0
        self._pending = ""
        self._started = self._last = float("-inf")
        self._loaded: dict[str, Path] = {}

    def initial(self, keys: tuple[str, ...]) -> str:
        """A first topology.conf, for the moment when a tree is asked for: no running node may be without a switch."""
        nodes = self._nodes.nodes(newest=True) or []
        return render(self._places(nodes, keys))

    def round(self) -> None:
        """Look once, at most every `POLL_SECONDS`."""
        now = self._clock.now()
        if now < self._next:
            return
        self._next = now + POLL_SECONDS
        files = self._published()
        if LABELS_FILE in files and TOPOLOGY_CONF in files:
            self._keep(files, now)
        else:
            # There was a tree until a moment ago, perhaps of another agent's time: a worker may have asked before and
            # registered after, or nodes of an elastic pool are off and waited.
            self._next = now + SPACING_SECONDS
            self._release(self._nodes.nodes() or [])

    def _keep(self, files: Files, now: float) -> None:
        nodes = self._nodes.nodes()
        if nodes is None:
            return
        places = self._places(nodes, label_keys(files[LABELS_FILE]))
        wanted = render(places)
        waiting = any(waits_for_topology(node) for node in nodes)
        if not self._is_known(now, urgent=waiting):
            return
        if not waiting and wanted == files[TOPOLOGY_CONF]:
            self._loaded, self._pending = places, ""
            return
        self._note(wanted, now)
        only_removed = not waiting and all(
            self._loaded.get(name) == path or (name in self._loaded and path == unplaced(name))
            for name, path in places.items()
        )
        if only_removed:
            due = self._first + REMOVAL_SECONDS
        else:
            due = min(self._latest + SETTLE_SECONDS, self._first + LONGEST_SETTLE_SECONDS)
        if now < max(due, self._last + SPACING_SECONDS):
            return
        loaded = self._reload(wanted)
        self._last, self._pending = self._clock.now(), ""
        if loaded:
            self._loaded = places
            self._log(f"the topology of {len(places)} nodes at {len(set(places.values()))} leaf switches is in force")
            self._release(nodes)

    def _note(self, wanted: str, now: float) -> None:
        """Remember since when a change waits, and when there was the latest one."""
        if not self._pending:
            self._first = now
        if wanted != self._pending:
            self._pending, self._latest = wanted, now

    def _places(self, nodes: list[NodeRecord], keys: tuple[str, ...]) -> dict[str, Path]:
        if self._locations is None:
            self._locations = self._make_locations()
            self._started = self._clock.now()
        off = {node.name for node in nodes if node.states & OFF}
        found = self._locations.of((node.name for node in nodes), keys, off)
        elastic = {node.name for node in nodes if "CLOUD" in node.states}
        return {name: path or (unplaced(name) if name in elastic else ()) for name, path in found.items()}

    def _is_known(self, now: float, *, urgent: bool) -> bool:
        """Whether the API server has told where nodes are. Without it, a tree from before stays unless nodes wait."""
        locations = self._locations
        return locations is not None and (locations.synced or (urgent and now - self._started >= PATIENCE_SECONDS))

    def _release(self, nodes: list[NodeRecord]) -> None:
        """Let nodes that waited for their place take jobs; of elastic pools as many as `elastic` finds room for."""
        waiting = [node for node in nodes if waits_for_topology(node)]
        elastic = [node.name for node in waiting if "CLOUD" in node.states]
        self._let_go(elastic, self._nodes.leave_to_elastic)
        self._let_go([node.name for node in waiting if node.name not in elastic], self._nodes.undrain)

    def _let_go(self, waiting: list[str], let: Callable[[str], Result]) -> None:
        if waiting and not let(compress(waiting)).ok:
            # One that has left meanwhile spoils the command for all.
            waiting = [name for name in waiting if let(name).ok]
        if waiting:
            self._log(f"nodes that waited for the topology have their places now: {compress(waiting)}")
