"""What network policies allow, worked out from their text as a network plugin does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from cli.program.recording import Recording
from cli.program.values import reveal
from tests.recordings import pod_template

Labels = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class End:
    """A pod of the namespace by its labels, or an address outside."""

    labels: Labels = field(default_factory=dict)
    address: str = ""


@dataclass(frozen=True)
class Network:
    """Pods of a stack by the component that they belong to, and its policies."""

    pods: Mapping[str, End]
    policies: Sequence[Mapping[str, Any]]

    def allows(self, source: str, target: str, port: int, protocol: str = "TCP") -> bool:
        """Whether a connection passes both ends. Who is no component is an address outside, and decides nothing."""
        begin, end = self._end(source), self._end(target)
        return self._passes("Egress", begin, end, port, protocol) and self._passes(
            "Ingress", end, begin, port, protocol
        )

    def _end(self, name: str) -> End:
        return self.pods.get(name) or End(address=name)

    def _passes(self, direction: str, own: End, other: End, port: int, protocol: str) -> bool:
        mine = [spec for spec in self.policies if own.labels and direction in spec["policyTypes"]]
        mine = [spec for spec in mine if _selects(spec["podSelector"], own.labels)]
        side = "to" if direction == "Egress" else "from"
        rules = [rule for spec in mine for rule in spec.get(direction.lower()) or ()]
        return not mine or any(
            (not rule.get(side) or any(_is(peer, other) for peer in rule[side])) and _opens(rule, port, protocol)
            for rule in rules
        )


def network(recording: Recording) -> Network:
    """The pods that a program's workloads make, and its policies."""
    pods: dict[str, End] = {}
    policies = []
    for item in recording:
        inputs = reveal(item.inputs)
        if item.type.endswith(":NetworkPolicy"):
            policies.append(inputs["spec"])
        elif (template := pod_template(inputs)) and "slurmstack:index:GpuStack" not in item.parent:
            labels = template["metadata"]["labels"]
            pods[labels["app.kubernetes.io/component"]] = End(labels=labels)
    return Network(pods, policies)


def _selects(selector: Mapping[str, Any], labels: Labels) -> bool:
    assert set(selector) <= {"matchLabels"}, "other selectors are not understood here"
    return (selector.get("matchLabels") or {}).items() <= labels.items()


def _is(peer: Mapping[str, Any], other: End) -> bool:
    """A selector of pods means those of the namespace; a range means addresses outside the cluster."""
    if "podSelector" in peer:
        return bool(other.labels) and _selects(peer["podSelector"], other.labels)
    block = peer["ipBlock"]
    closed = block.get("except") or ()
    return _in(other.address, block["cidr"]) and not any(_in(other.address, part) for part in closed)


def _in(address: str, cidr: str) -> bool:
    return bool(address) and ip_address(address) in ip_network(cidr)


def _opens(rule: Mapping[str, Any], port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    return not ports or any((found["port"], found.get("protocol", "TCP")) == (port, protocol) for found in ports)
