"""What is still missing of a stack that is partly there: only that has to fit into quotas, capacity and the subnet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cli.doctor.cloud.answers import Present
from config.nebius.needs import FilesystemNeed, Needs, NodeNeed


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the next `up` adds."""

    needs: Needs
    """Without what is there. Machines of another preset than now wanted do not help."""
    new_cluster: bool
    new_filesystems: int
    """File systems to make; others may only grow."""


def missing(needs: Needs, present: Present, name: str) -> Missing:
    """What is not there yet of a stack whose names begin with `name`."""
    fabrics = {cluster.fabric for cluster in present.gpu_clusters if cluster.name.startswith(name)}
    filesystems = {item.name for item in present.filesystems}
    return Missing(
        needs=replace(
            needs,
            nodes=tuple(_missing_nodes(node, present, name) for node in needs.nodes),
            filesystems=tuple(_missing_filesystem(item, present, name) for item in needs.filesystems),
            volume_gib={} if present.cluster else needs.volume_gib,
            fabrics={fabric: pools for fabric, pools in needs.fabrics.items() if fabric not in fabrics},
            load_balancers=0 if present.cluster else needs.load_balancers,
            public_addresses=0 if present.cluster else needs.public_addresses,
        ),
        new_cluster=not present.cluster,
        new_filesystems=sum(
            item.existing_id is None and f"{name}-{item.tag}" not in filesystems for item in needs.filesystems
        ),
    )


def _missing_nodes(node: NodeNeed, present: Present, name: str) -> NodeNeed:
    there = sum(
        group.machines
        for group in present.groups
        if _holds(group.name, node, name) and (group.platform, group.preset) == (node.platform, node.preset)
    )
    return replace(node, count=max(0, node.count - there), most=max(0, node.most - there))


def _holds(group: str, node: NodeNeed, name: str) -> bool:
    """Whether the node group is one of these machines': `<prefix>-<role>`, or `<prefix>-<pool>-<number>`."""
    if node.pool is None:
        return group == f"{name}-{node.role}"
    stem, _, number = group.rpartition("-")
    return stem == f"{name}-{node.pool}" and number.isdecimal()


def _missing_filesystem(need: FilesystemNeed, present: Present, name: str) -> FilesystemNeed:
    there = sum(item.size_gib for item in present.filesystems if item.name == f"{name}-{need.tag}")
    return replace(need, size_gib=max(0, need.size_gib - there)) if need.existing_id is None else need
