"""Network policies: who may connect to what inside the namespace, and what its pods reach outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods
from components.kit.context import Scope
from config.sections.services import Rest
from slurm.names import KUBE_STATE, LOGIN, REST, REST_PORT, SSH_PORT, WORKER
from slurm.network import API_PORTS, DNS_PORTS, FREE, NODES, Destination, Link, links, outside, scraped

Ingress = k8s.networking.v1.NetworkPolicyIngressRuleArgs
Egress = k8s.networking.v1.NetworkPolicyEgressRuleArgs
Peer = k8s.networking.v1.NetworkPolicyPeerArgs
Port = k8s.networking.v1.NetworkPolicyPortArgs

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Label that Kubernetes gives each namespace."""


class NetworkPolicies(pulumi.ComponentResource):
    """Nothing may connect to the cluster's pods, and they to nothing, but what slurm/network.py lists.

    They have effect where the cluster's network plugin enforces them. A policy for each component has both sides of its
    connections.
    """

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:NetworkPolicies", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._name = name
        self._scope = scope
        rest, self._existing = scope.config.rest, scope.config.monitoring.existing
        table, beyond, outsiders = links(scope.config), outside(scope.config), scraped(scope.config)
        self._create_policy("default-deny", k8s.meta.v1.LabelSelectorArgs(), [], [])
        ends = (end for link in table for end in (link.source, link.target))
        for component in dict.fromkeys((*ends, *beyond)):
            if component == LOGIN:  # below, beside that of all nodes
                continue
            ingress = [self._from(port, found) for port, found in _by_port(table, target=component)]
            if component == REST and (others := _rest_peers(rest)) is not None:
                ingress.append(Ingress(from_=others or None, ports=_ports((REST_PORT,))))
            if component in outsiders:
                ingress.append(Ingress(from_=[self._readers()], ports=_ports((outsiders[component],))))
            egress = [self._to(port, found) for port, found in _by_port(table, source=component)]
            egress += [_outside(destination) for destination in beyond.get(component, ())]
            if component == KUBE_STATE:
                egress.append(_API)
            egress = [Egress()] if component in FREE else [*egress, _DNS] if egress else []
            self._create_policy(component, self._selector(component), ingress, egress)
        if WORKER in outsiders:  # beside that of all nodes
            metrics = Ingress(from_=[self._readers()], ports=_ports((outsiders[WORKER],)))
            self._create_policy(WORKER, self._selector(WORKER), [metrics], None)
        exposed = [self._from(port, found) for port, found in _by_port(table, target=LOGIN)]
        self._create_policy(LOGIN, self._selector(LOGIN), [Ingress(ports=_ports((SSH_PORT,))), *exposed], None)
        self.register_outputs({})

    def _selector(self, component: str) -> k8s.meta.v1.LabelSelectorArgs:
        if component == NODES:
            return k8s.meta.v1.LabelSelectorArgs(match_labels={pods.SLURM_NODE_LABEL: "true"})
        return self._scope.label_selector(component)

    def _peers(self, components: Iterable[str]) -> list[Peer]:
        return [Peer(pod_selector=self._selector(component)) for component in components]

    def _readers(self) -> Peer:
        """Who may read metrics: the namespace of the one Prometheus that the stack file names.

        Else all pods but those of this namespace, where users' programs run.
        """
        if self._existing is not None:
            named = {_NAMESPACE_NAME: self._existing.namespace}
            return Peer(namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=named))
        apart = k8s.meta.v1.LabelSelectorRequirementArgs(
            key=_NAMESPACE_NAME, operator="NotIn", values=[self._scope.name]
        )
        return Peer(namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_expressions=[apart]))

    def _from(self, port: int | None, found: Sequence[Link]) -> Ingress:
        return Ingress(from_=self._peers(link.source for link in found), ports=_ports((port,) if port else ()))

    def _to(self, port: int | None, found: Sequence[Link]) -> Egress:
        return Egress(to=self._peers(link.target for link in found), ports=_ports((port,) if port else ()))

    def _create_policy(
        self,
        policy: str,
        selector: k8s.meta.v1.LabelSelectorArgs,
        ingress: list[Ingress],
        egress: list[Egress] | None,
    ) -> None:
        """`egress`: None where another policy of the same pods says it."""
        k8s.networking.v1.NetworkPolicy(
            f"{self._name}-{policy}",
            metadata=self._scope.metadata(policy, "network-policy"),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=selector,
                policy_types=["Ingress"] if egress is None else ["Ingress", "Egress"],
                ingress=ingress,
                egress=egress,
            ),
            opts=self._child,
        )


def _by_port(table: Sequence[Link], **end: str) -> list[tuple[int | None, list[Link]]]:
    """Links with this `source` or `target`, by their port."""
    ((side, component),) = end.items()
    found = [link for link in table if getattr(link, side) == component]
    return [
        (port, [link for link in found if link.port == port]) for port in dict.fromkeys(link.port for link in found)
    ]


def _rest_peers(rest: Rest) -> list[Peer] | None:
    """Address ranges of the stack file; all (an empty list), where the Service leads outside without; else None."""
    if not rest.source_ranges and rest.service_type == "ClusterIP":
        return None
    return [Peer(ip_block=k8s.networking.v1.IPBlockArgs(cidr=cidr)) for cidr in rest.source_ranges]


def _outside(destination: Destination) -> Egress:
    block = k8s.networking.v1.IPBlockArgs(cidr=destination.cidr, except_=list(destination.without) or None)
    return Egress(to=[Peer(ip_block=block)], ports=_ports(destination.ports, destination.protocol))


def _ports(ports: Sequence[int], protocol: str = "TCP") -> list[Port] | None:
    """None: all."""
    return [Port(port=port, protocol=protocol) for port in ports] or None


# To any address: where DNS is differs between clusters, and some have a cache on each machine.
_DNS = Egress(ports=[Port(port=port, protocol=protocol) for port in DNS_PORTS for protocol in ("UDP", "TCP")])

# Some networks, Cilium among them, do not count the cluster's own machines, where the API may be, to any range.
_API = Egress(ports=[Port(port=port, protocol="TCP") for port in API_PORTS])
