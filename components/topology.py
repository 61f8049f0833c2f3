"""What the controller may see of Kubernetes so that Slurm knows the network: where workers run, and nodes' labels."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.kit import rbac
from components.kit.context import Scope, apart, children_of
from slurm.names import CONTROLLER

COMPONENT = "topology"


@dataclass(frozen=True, kw_only=True)
class TopologyArgs:
    """Inputs of `Topology`."""

    scope: Scope
    account: k8s.core.v1.ServiceAccount
    """The controller's."""


class Topology(pulumi.ComponentResource):
    """Rights of the configuration agent, for a stack with a switch tree only: to follow worker pods and nodes.

    Kubernetes nodes are in no namespace, so this is the one right that reaches out of the cluster's own: to read them.
    """

    def __init__(self, name: str, args: TopologyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Topology", name, None, apart(opts))
        metadata = args.scope.metadata(f"{CONTROLLER}-topology", COMPONENT)
        rbac.allow(name, metadata, args.account, [rbac.rule("pods", "list", "watch")], children_of(self, opts))
        rbac.allow_everywhere(
            name, args.scope, COMPONENT, args.account, [rbac.rule("nodes", "list", "watch")], parent=self
        )
        self.register_outputs({})
