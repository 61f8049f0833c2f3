"""What of a stack is there already, and whether its project is in its region."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nebius.api.nebius.iam.v2 import Project

from cli.doctor.cloud.ask import Answers, Unanswered, listed
from cli.doctor.cloud.report import Finding, change, fine, unchecked
from config.nebius.needs import Needs, NodeNeed
from config.sections.cloud import NebiusCloud


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the next `up` adds. Of a cluster that is there, machines alone are counted."""

    nodes: tuple[NodeNeed, ...]
    """Machines of another preset than now wanted do not help."""
    new_cluster: bool

    @property
    def machines(self) -> int:
        """Machines in all."""
        return sum(node.count for node in self.nodes)


def missing(needs: Needs, answers: Answers, name: str) -> Missing:
    """What is not there yet of a stack whose names begin with `name`. What the cloud does not say is not there."""
    return Missing(
        nodes=tuple(_missing_nodes(node, answers, name) for node in needs.nodes),
        new_cluster=answers.groups is None or isinstance(answers.groups, Unanswered),
    )


def check_present(answers: Answers, lack: Missing, needs: Needs) -> Finding:
    """How much is still to be made."""
    if isinstance(answers.groups, Unanswered):
        what = "what is there already (what is not known counts as still to be made)"
        return unchecked("present", what, answers.groups)
    if lack.new_cluster:
        return fine("present", f"nothing yet: {needs.machines} machines to be made")
    return fine("present", f"the cluster; {lack.machines} of {needs.machines} machines are still to be made")


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
