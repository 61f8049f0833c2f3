"""Where the workers run: their pods' Kubernetes nodes, and the labels of those, kept up to date by watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from images.common.wait import Clock, Reminder
from images.controller.kube import Kube, KubeError, Object
from images.controller.topology import Path, path_of

RETRY_SECONDS: Final = 5.0
WORKER_PODS: Final = "slurmstack/pool"
"""Label that every worker pod has."""

Value = TypeVar("Value")
Followed_co = TypeVar("Followed_co", covariant=True)


class Follower(Generic[Value]):
    """A copy of one kind of object, by name: what `extract` takes of each."""

    def __init__(
        self,
        kube: Kube,
        path: str,
        extract: Callable[[Object], Value],
        log: Callable[[str], None],
        *,
        selector: str = "",
        metadata_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._kube = kube
        self._path = path
        self._extract = extract
        self._log = log
        self._selector = selector
        self._metadata_only = metadata_only
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._values: dict[str, Value] = {}
        self._version = ""
        """Where the last watch ended, if the next one may go on from there."""
        self.synced = False
        """Whether the API server has answered at least once."""

    def values(self) -> dict[str, Value]:
        """The latest copy; after a failure the last one that could be had."""
        with self._lock:
            return dict(self._values)

    def run(self) -> None:
        """Follow for ever."""
        reminder = Reminder(self._log, self._clock)
        while True:
            try:
                self.follow_once()
                reminder = Reminder(self._log, self._clock)
            except (KubeError, KeyError, TypeError, ValueError) as error:
                if not (isinstance(error, KubeError) and error.status == 410):
                    reminder.waiting(f"{self._path} of the API server, for the topology: {error}")
                    self._clock.sleep(RETRY_SECONDS)

    def follow_once(self) -> None:
        """Watch until the server ends the watch: from where the last one ended, or else after reading all.

        To read all again each few minutes would be most of what thousands of nodes cost the API server.
        """
        selector, short = self._selector, self._metadata_only
        version, self._version = self._version, ""
        if not version:
            items, version = self._kube.list_all(self._path, selector=selector, metadata_only=short)
            with self._lock:
                self._values = {item["metadata"]["name"]: self._extract(item) for item in items}
                self.synced = True
        try:
            for kind, changed in self._kube.watch(self._path, version, selector=selector, metadata_only=short):
                self._take(kind, changed)
                version = str(changed["metadata"]["resourceVersion"])
        except KubeError as error:
            if error.may_resume:
                self._version = version
            raise
        self._version = version

    def _take(self, kind: str, changed: Object) -> None:
        """One event. Any of them shows that the server is there again."""
        self.synced = True
        if kind == "BOOKMARK":
            return
        name = changed["metadata"]["name"]
        with self._lock:
            if kind == "DELETED":
                self._values.pop(name, None)
            else:
                self._values[name] = self._extract(changed)


class Following(Protocol[Followed_co]):
    """What is asked of a follower."""

    @property
    def synced(self) -> bool:
        """Whether the API server has answered at least once."""
        ...

    def values(self) -> Mapping[str, Followed_co]:
        """The latest copy."""
        ...


def node_of(pod: Object) -> str:
    """Kubernetes node that a pod was given to; empty before."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def labels_of(node: Object) -> dict[str, str]:
    """Labels of an object."""
    return dict(node["metadata"].get("labels") or {})


class Places:
    """Paths of Slurm nodes by name."""

    def __init__(self, pods: Following[str], nodes: Following[Mapping[str, str]]) -> None:
        self._pods = pods
        self._nodes = nodes
        self._last: dict[str, Mapping[str, str]] = {}

    @property
    def synced(self) -> bool:
        """Whether the API server has told all."""
        return self._pods.synced and self._nodes.synced

    def of(self, names: Iterable[str], keys: Iterable[str]) -> dict[str, Path]:
        """Where these nodes are.

        A node whose pod or machine is away just now keeps its place, so that the tree does not change twice while it
        is replaced; one that was never seen has none.
        """
        keys = tuple(keys)
        pods, nodes = self._pods.values(), self._nodes.values()
        found: dict[str, Mapping[str, str]] = {}
        for name in names:
            labels = nodes.get(pods.get(name, ""))
            found[name] = labels if labels is not None else self._last.get(name, {})
        self._last = found
        return {name: path_of(labels, keys) for name, labels in found.items()}


def follow_places(kube: Kube, log: Callable[[str], None]) -> Places:
    """Follow the API server in the background."""
    pods = Follower(kube, f"/api/v1/namespaces/{kube.namespace}/pods", node_of, log, selector=WORKER_PODS)
    # Only metadata: the rest of a Node is large and changes every few minutes.
    nodes = Follower(kube, "/api/v1/nodes", labels_of, log, metadata_only=True)
    for name, follower in (("worker-pods", pods), ("kubernetes-nodes", nodes)):
        threading.Thread(target=follower.run, daemon=True, name=name).start()
    return Places(pods, nodes)
