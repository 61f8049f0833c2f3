"""What a stack is made of, in a few lines: nodes, GPUs, CPUs, volumes, and which changes cost somebody something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from cli.change.effects import Effect
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import Needs, needs
from config.volumes import data_volumes


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Nodes of one kind: a worker pool's, or the machines of one of our own roles."""

    name: str
    """The pool, or `system`, `controller`, `login`."""
    role: str
    count: int
    most: int
    """Nodes that autoscaling may come to."""
    kind: str
    """Platform and preset; empty where the cluster is already there."""
    cpus: int
    """CPUs of all of them: of the machines where the cloud makes them, else of the worker pods."""
    gpus: int
    """GPUs of all of them."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume that holds data."""

    name: str
    """Key in the stack file: `jail`, `controller`, `accounting.database`, `mounts.<name>`."""
    size_gib: int
    """Capacity in GiB, rounded up."""
    kind: str
    """Kind of file system, `disk`, or empty where the cluster's storage class decides."""
    existing: str
    """Id of the file system that is used as it is; empty for a new one."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Everything that a stack has while it runs."""

    cloud: str
    nodes: tuple[Nodes, ...]
    volumes: tuple[Volume, ...]
    fabrics: tuple[str, ...]
    """InfiniBand fabrics on which GPU clusters are made."""

    @property
    def total(self) -> int:
        """Nodes in all."""
        return sum(item.count for item in self.nodes)

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(item.gpus for item in self.nodes)

    @property
    def cpus(self) -> int:
        """CPUs in all."""
        return sum(item.cpus for item in self.nodes)


def summarize(config: ClusterConfig) -> Summary:
    """What the stack file asks for. The stack file must have been checked."""
    made = needs(config) if isinstance(config.cloud, NebiusCloud) else None
    return Summary(
        cloud=config.cloud.kind,
        nodes=tuple(_pools(config) if made is None else _machines(made)),
        volumes=tuple(_volumes(config)),
        fabrics=() if made is None else tuple(sorted(made.fabrics)),
    )


def _pools(config: ClusterConfig) -> Iterator[Nodes]:
    for name, pool in config.worker_nodes.items():
        cpus, gpus = pool.least * pool.resources.cpus, pool.least * pool.resources.gpus.count
        yield Nodes(name=name, role="worker", count=pool.least, most=pool.most, kind="", cpus=cpus, gpus=gpus)


def _machines(needed: Needs) -> Iterator[Nodes]:
    for item in needed.nodes:
        yield Nodes(
            name=item.pool or item.role,
            role=item.role,
            count=item.count,
            most=item.most,
            kind=f"{item.platform} {item.preset}",
            cpus=item.count * item.size.vcpus,
            gpus=item.count * item.size.gpus,
        )


def _volumes(config: ClusterConfig) -> Iterator[Volume]:
    made = isinstance(config.cloud, NebiusCloud)
    for item in data_volumes(config):
        filesystem = item.filesystem if made else None
        kind = filesystem.type if filesystem is not None else "disk" if made else ""
        existing = (filesystem.id if filesystem is not None else None) or ""
        yield Volume(name=item.name, size_gib=item.size_gib, kind=kind, existing=existing)


def as_data(summary: Summary, effects: Sequence[Effect] = ()) -> dict[str, Any]:
    """The summary for scripts, with the changes that replace, delete or are refused."""
    return {
        "cloud": summary.cloud,
        "nodes": {"total": summary.total, "kinds": [asdict(item) for item in summary.nodes]},
        "gpus": {"total": summary.gpus, "pools": {item.name: item.gpus for item in summary.nodes if item.gpus}},
        "vcpus": summary.cpus,
        "filesystems": [asdict(item) for item in summary.volumes],
        "fabrics": list(summary.fabrics),
        "effects": [asdict(effect) for effect in effects],
    }


def lines(summary: Summary) -> list[str]:
    """The summary for people: two or three lines where the cluster is already there, else some more."""
    if summary.cloud != "nebius":
        nodes = _joined(f"{item.count} {item.name}" for item in summary.nodes)
        gpus = f", {summary.gpus} GPUs" if summary.gpus else ""
        return [
            f"{_counted(summary.total, 'node')} ({nodes}), {summary.cpus} CPUs{gpus}",
            f"volumes: {_joined(_volume(item) for item in summary.volumes)}",
        ]
    width = max(len(item.name) for item in summary.nodes)
    table = [f"  {item.name:{width}}  {_of_kind(item)}" for item in summary.nodes]
    fabrics = [f"GPU clusters: {_joined(summary.fabrics)}"] if summary.fabrics else []
    return [
        f"{_counted(summary.total, 'node')}, {summary.gpus} GPUs, {summary.cpus} vCPUs",
        *table,
        *fabrics,
        f"file systems: {_joined(_volume(item) for item in summary.volumes)}",
    ]


def _of_kind(item: Nodes) -> str:
    most = f" (up to {item.most})" if item.most > item.count else ""
    gpus = f"{item.gpus} GPUs, " if item.gpus else ""
    return f"{_counted(item.count, 'node')}{most} {item.kind}: {gpus}{item.cpus} vCPUs"


def _volume(item: Volume) -> str:
    kind = f" {item.kind}" if item.kind else ""
    return f"{item.name} {_size(item.size_gib)}{kind}{f' (existing, {item.existing})' if item.existing else ''}"


def _size(gib: int) -> str:
    return f"{gib // 1024}Ti" if gib >= 1024 and gib % 1024 == 0 else f"{gib}Gi"


def _joined(items: Iterator[str] | Sequence[str]) -> str:
    return ", ".join(items) or "none"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def print_summary(summary: Summary) -> None:
    """The summary, line by line."""
    console = Console(highlight=False, emoji=False)
    for line in lines(summary):
        console.print(escape(line), soft_wrap=True)
