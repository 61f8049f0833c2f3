"""What of a stack is there already, and whether its project is in its region."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nebius.api.nebius.iam.v2 import Project

from cli.doctor.cloud.ask import Answers, Unanswered, listed
from cli.doctor.cloud.report import Finding, change, fine, unchecked
from config.base import GIBIBYTE
from config.nebius.needs import Needs, NodeNeed
from config.sections.cloud import NebiusCloud


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
    own = [item for item in needs.filesystems if item.existing_id is None]
    there = {item.tag: sizes.get(f"{name}-{item.tag}") for item in own}
    return Missing(
        needs=replace(
            needs,
            nodes=tuple(_missing_nodes(node, answers, name) for node in needs.nodes),
            filesystems=tuple(
                replace(item, size_gib=max(0, item.size_gib - (there[item.tag] or 0))) if item in own else item
                for item in needs.filesystems
            ),
            volume_gib=needs.volume_gib if new_cluster else {},
            fabrics={fabric: pools for fabric, pools in needs.fabrics.items() if fabric not in fabrics},
            load_balancers=needs.load_balancers if new_cluster else 0,
            public_addresses=needs.public_addresses if new_cluster else 0,
        ),
        new_cluster=new_cluster,
        new_filesystems=sum(size is None for size in there.values()),
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
        same = (made_of.platform, made_of.preset) == (node.platform, node.preset)
        there += group.status.node_count if same and _holds(group.metadata.name, node, name) else 0
    return replace(node, count=max(0, node.count - there), most=max(0, node.most - there))


def _holds(group: str, node: NodeNeed, name: str) -> bool:
    """Whether the node group is one of these machines': `<prefix>-<role>`, or `<prefix>-<pool>-<number>`."""
    if node.pool is None:
        return group == f"{name}-{node.role}"
    stem, _, number = group.rpartition("-")
    return stem == f"{name}-{node.pool}" and number.isdecimal()


def check_project(project: Project, cloud: NebiusCloud) -> Finding:
    """Whether the project is in the region of the stack."""
    region = project.spec.region
    told = f"{cloud.project_id} ({project.metadata.name}) in {region}, of {project.metadata.parent_id}"
    if region != cloud.region:
        return change("project", f"{told}: cloud.region is {cloud.region}; correct one of them")
    return fine("project", told)
