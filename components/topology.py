"""What the controller may see of Kubernetes so that Slurm knows the network: where workers run, and nodes' labels."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.pods import Scope, apart, children_of
from slurm.names import CONTROLLER

COMPONENT = "topology"


@dataclass(frozen=True, kw_only=True)
class TopologyArgs:
    """Inputs of `Topology`."""

    scope: Scope
    account: k8s.core.v1.ServiceAccount
    """The controller's."""
    outside_namespace: pulumi.ResourceOptions
    """For the cluster role and its binding, which do not go away with the namespace."""


class Topology(pulumi.ComponentResource):
    """Rights of the configuration agent, for a stack with a switch tree only: to follow worker pods and nodes.

    Kubernetes nodes are in no namespace, so this is the one right that reaches out of the cluster's own: to read them.
    """

    def __init__(self, name: str, args: TopologyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Topology", name, None, apart(opts))
        self._child = children_of(self, opts)
        self._outside = args.outside_namespace.merge(pulumi.ResourceOptions(parent=self))
        self._follow_pods(name, args)
        self._follow_nodes(name, args)
        self.register_outputs({})

    def _follow_pods(self, name: str, args: TopologyArgs) -> None:
        role = k8s.rbac.v1.Role(
            f"{name}-role",
            metadata=args.scope.metadata(f"{CONTROLLER}-topology", COMPONENT),
            rules=[k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=["pods"], verbs=["list", "watch"])],
            opts=self._child,
        )
        k8s.rbac.v1.RoleBinding(
            f"{name}-role-binding",
            metadata=args.scope.metadata(f"{CONTROLLER}-topology", COMPONENT),
            role_ref=_reference("Role", role.metadata.name),
            subjects=[_subject(args.account)],
            opts=self._child,
        )

    def _follow_nodes(self, name: str, args: TopologyArgs) -> None:
        # Names of cluster roles are shared by all clusters in one Kubernetes, so the namespace is in them.
        metadata = k8s.meta.v1.ObjectMetaArgs(name=f"{args.scope.name}-topology", labels=args.scope.labels(COMPONENT))
        role = k8s.rbac.v1.ClusterRole(
            f"{name}-cluster-role",
            metadata=metadata,
            rules=[k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=["nodes"], verbs=["list", "watch"])],
            opts=self._outside,
        )
        k8s.rbac.v1.ClusterRoleBinding(
            f"{name}-cluster-role-binding",
            metadata=metadata,
            role_ref=_reference("ClusterRole", role.metadata.name),
            subjects=[_subject(args.account)],
            opts=self._outside,
        )


def _reference(kind: str, name: pulumi.Input[str]) -> k8s.rbac.v1.RoleRefArgs:
    return k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=name)


def _subject(account: k8s.core.v1.ServiceAccount) -> k8s.rbac.v1.SubjectArgs:
    return k8s.rbac.v1.SubjectArgs(
        kind="ServiceAccount", name=account.metadata.name, namespace=account.metadata.namespace
    )
