"""Where the workers run: their pods' Kubernetes nodes, and the labels of those, kept up to date by watches."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from images.common.kubernetes import WORKER_PODS, Follower, Kube, Object
from images.controller.topology import Path, path_of


def node_of(pod: Object) -> str:
    """Kubernetes node that a pod was given to; empty before."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def labels_of(node: Object) -> dict[str, str]:
    """Labels of an object."""
    return dict(node["metadata"].get("labels") or {})


class Places:
    """Paths of Slurm nodes by name."""

    def __init__(self, pods: Follower[str], nodes: Follower[dict[str, str]]) -> None:
        self._pods = pods
        self._nodes = nodes
        self._last: dict[str, Mapping[str, str]] = {}

    @property
    def synced(self) -> bool:
        """Whether the API server has told all."""
        return self._pods.synced and self._nodes.synced

    def of(self, names: Iterable[str], keys: Iterable[str], off: Container[str] = ()) -> dict[str, Path]:
        """Where these nodes are.

        A node whose pod or machine is away just now keeps its place, so that the tree does not change twice while it
        is replaced; one that was never seen, or is `off` and comes back on another machine, has none.
        """
        keys = tuple(keys)
        pods, nodes = self._pods.values(), self._nodes.values()
        found: dict[str, Mapping[str, str]] = {}
        for name in names:
            labels = nodes.get(pods.get(name, ""))
            if name in off:
                labels = {}
            found[name] = labels if labels is not None else self._last.get(name, {})
        self._last = found
        return {name: path_of(labels, keys) for name, labels in found.items()}


class Nowhere(Places):
    """Outside of Kubernetes no node has labels."""

    synced = True

    def __init__(self) -> None:
        """Nobody is followed."""

    def of(self, names: Iterable[str], keys: Iterable[str], off: Container[str] = ()) -> dict[str, Path]:
        """All unlabelled."""
        del keys, off
        return dict.fromkeys(names, ())


def follow_places(kube: Kube, log: Callable[[str], None]) -> Places:
    """Follow the API server in the background."""
    pods = Follower(kube, kube.path("pods"), node_of, log, selector=WORKER_PODS)
    # Only metadata: the rest of a Node is large and changes every few minutes.
    nodes = Follower(kube, "/api/v1/nodes", labels_of, log, metadata_only=True)
    pods.start()
    nodes.start()
    return Places(pods, nodes)
