"""Network policies: who may connect to what inside the namespace."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.pods import SLURM_NODE_LABEL, Scope, children_of
from config.rest import Rest
from slurm.health import WATCH
from slurm.names import (
    ACCOUNTING,
    AGENT_PORT,
    CONTROLLER,
    DATABASE,
    DATABASE_PORT,
    REST,
    REST_PORT,
    SLURMCTLD_PORT,
    SLURMD_PORT,
    SLURMDBD_PORT,
    SSH_PORT,
)


@dataclass(frozen=True, kw_only=True)
class NetworkPoliciesArgs:
    """Inputs of `NetworkPolicies`."""

    scope: Scope
    rest: Rest


class NetworkPolicies(pulumi.ComponentResource):
    """Nothing may connect to the cluster's pods but what is listed here. Outgoing connections are free.

    They have effect where the cluster's network plugin enforces them; the local cluster's does not.
    """

    def __init__(self, name: str, args: NetworkPoliciesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:NetworkPolicies", name, None, opts)
        self._child = children_of(self, opts)
        self._name = name
        self._scope = args.scope
        members = _pods({"app.kubernetes.io/instance": args.scope.name})
        slurm_nodes = _pods({SLURM_NODE_LABEL: "true"})
        controller = _pods(args.scope.selector(CONTROLLER))
        # Both kinds of jobs wait until slurmctld has its new configuration.
        waiting = [_pods(args.scope.selector(component)) for component in ("configuration", "policy")]
        self._create_policy("default-deny", k8s.meta.v1.LabelSelectorArgs(), [])
        self._create_policy(
            "controller",
            args.scope.selector(CONTROLLER),
            [_ingress([members], SLURMCTLD_PORT), _ingress(waiting, AGENT_PORT)],
        )
        self._create_policy("slurmdbd", args.scope.selector(ACCOUNTING), [_ingress([members], SLURMDBD_PORT)])
        clients = [_pods(args.scope.selector(component)) for component in (ACCOUNTING, "policy")]
        self._create_policy("database", args.scope.selector(DATABASE), [_ingress(clients, DATABASE_PORT)])
        # The watcher asks slurmd whether it is there when Kubernetes has lost the machine.
        watcher = _pods(args.scope.selector(WATCH))
        # MPI programs, srun and steps connect to each other on ports of their own choice.
        self._create_policy(
            "slurm-nodes",
            {SLURM_NODE_LABEL: "true"},
            [_ingress([slurm_nodes, controller]), _ingress([watcher], SLURMD_PORT)],
        )
        self._create_policy("login", args.scope.selector("login"), [_ingress(None, SSH_PORT)])
        if args.rest.enabled:
            self._create_policy(REST, args.scope.selector(REST), [_ingress(_rest_peers(args.rest, members), REST_PORT)])
        self.register_outputs({})

    def _create_policy(
        self,
        policy: str,
        selects: dict[str, str] | k8s.meta.v1.LabelSelectorArgs,
        ingress: list[k8s.networking.v1.NetworkPolicyIngressRuleArgs],
    ) -> None:
        selector = k8s.meta.v1.LabelSelectorArgs(match_labels=selects) if isinstance(selects, dict) else selects
        k8s.networking.v1.NetworkPolicy(
            f"{self._name}-{policy}",
            metadata=self._scope.metadata(policy, "network-policy"),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=selector, policy_types=["Ingress"], ingress=ingress
            ),
            opts=self._child,
        )


def _rest_peers(
    rest: Rest, members: k8s.networking.v1.NetworkPolicyPeerArgs
) -> list[k8s.networking.v1.NetworkPolicyPeerArgs] | None:
    """The cluster's own pods and the address ranges of the stack file; all, where the Service leads outside without."""
    if not rest.source_ranges and rest.service_type != "ClusterIP":
        return None
    ranges = [
        k8s.networking.v1.NetworkPolicyPeerArgs(ip_block=k8s.networking.v1.IPBlockArgs(cidr=cidr))
        for cidr in rest.source_ranges
    ]
    return [members, *ranges]


def _pods(labels: dict[str, str]) -> k8s.networking.v1.NetworkPolicyPeerArgs:
    return k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels))


def _ingress(
    peers: list[k8s.networking.v1.NetworkPolicyPeerArgs] | None, port: int | None = None
) -> k8s.networking.v1.NetworkPolicyIngressRuleArgs:
    """From these peers (None: from anywhere) to this port (None: to all)."""
    ports = [k8s.networking.v1.NetworkPolicyPortArgs(port=port, protocol="TCP")] if port is not None else None
    return k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=peers, ports=ports)
