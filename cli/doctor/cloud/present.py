"""What is still missing of a stack that is partly there: only that has to fit into quotas, capacity and the subnet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cli.doctor.cloud.answers import Answers, Unanswered, listed
from cli.doctor.cloud.report import Finding, fine, unchecked
from config.base import GIBIBYTE
from config.nebius.needs import FilesystemNeed, Needs, NodeNeed


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the next `up` adds."""

    needs: Needs
    """Without what is there. Machines of another preset than now wanted do not help."""
    new_cluster: bool
    new_filesystems: int
    """File systems to make; others may only grow."""


def missing(needs: Needs, answers: Answers, name: str) -> Missing:
    """What is not there yet of a stack whose names begin with `name`. What the cloud does not say is not there."""
    new_cluster = answers.groups is None or isinstance(answers.groups, Unanswered)
    clusters = [item for item in listed(answers.gpu_clusters) if item.metadata.name.startswith(name)]
    fabrics = {item.spec.infiniband_fabric for item in clusters}
    sizes = {item.metadata.name: item.status.size_bytes // GIBIBYTE for item in listed(answers.filesystems)}
    return Missing(
        needs=replace(
            needs,
            nodes=tuple(_missing_nodes(node, answers, name) for node in needs.nodes),
            filesystems=tuple(
                _missing_filesystem(item, sizes.get(f"{name}-{item.tag}", 0)) for item in needs.filesystems
            ),
            volume_gib=needs.volume_gib if new_cluster else {},
            fabrics={fabric: pools for fabric, pools in needs.fabrics.items() if fabric not in fabrics},
            load_balancers=needs.load_balancers if new_cluster else 0,
            public_addresses=needs.public_addresses if new_cluster else 0,
        ),
        new_cluster=new_cluster,
        new_filesystems=sum(
            item.existing_id is None and f"{name}-{item.tag}" not in sizes for item in needs.filesystems
        ),
    )


def check_present(answers: Answers, lack: Missing, needs: Needs) -> Finding:
    """How much is still to be made."""
    for answer in (answers.groups, answers.filesystems, answers.gpu_clusters):
        if isinstance(answer, Unanswered):
            return unchecked("present", "what is there already (what is not known counts as still to be made)", answer)
    if lack.new_cluster:
        return fine("present", f"nothing yet: {needs.machines} machines to be made")
    return fine("present", f"the cluster; {lack.needs.machines} of {needs.machines} machines are still to be made")


def _missing_nodes(node: NodeNeed, answers: Answers, name: str) -> NodeNeed:
    there = 0
    for group in listed(answers.groups or ()):
        made_of = group.spec.template.resources
        if _holds(group.metadata.name, node, name) and (made_of.platform, made_of.preset) == (
            node.platform,
            node.preset,
        ):
            there += group.status.node_count
    return replace(node, count=max(0, node.count - there), most=max(0, node.most - there))


def _holds(group: str, node: NodeNeed, name: str) -> bool:
    """Whether the node group is one of these machines': `<prefix>-<role>`, or `<prefix>-<pool>-<number>`."""
    if node.pool is None:
        return group == f"{name}-{node.role}"
    stem, _, number = group.rpartition("-")
    return stem == f"{name}-{node.pool}" and number.isdecimal()


def _missing_filesystem(need: FilesystemNeed, there_gib: int) -> FilesystemNeed:
    return replace(need, size_gib=max(0, need.size_gib - there_gib)) if need.existing_id is None else need
