"""Objects for an existing Prometheus: what they select, and nobody else is let in for it."""

from __future__ import annotations

from typing import Any

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change


def recorded(version: str = "24.11", **more: Any) -> Recording:
    sections = with_change(stacks.existing_full(), "slurm.version", version)
    existing = {"namespace": "monitoring", "labels": {"release": "kube-prometheus-stack"}}
    return record(with_change(sections, "monitoring", {"existing": existing, **more}), stack="prod")


def objects(recording: Recording) -> list[dict[str, Any]]:
    documents = (reveal(item.inputs) for item in recording if ":monitoring.coreos.com/" in item.type)
    return [dict(document) for document in documents]


def test_they_carry_the_labels_that_the_prometheus_selects_by_and_nothing_runs_for_it() -> None:
    recording = recorded()
    assert len(objects(recording)) == 3
    for document in objects(recording):
        assert document["metadata"]["labels"]["release"] == "kube-prometheus-stack"
        assert document["metadata"]["labels"]["app.kubernetes.io/instance"] == "slurm"
    assert not [item.name for item in recording if "slurm-monitoring" in item.name or "node-exporter" in item.name]
    names = {document["metadata"]["name"] for document in objects(recorded("26.05"))}
    assert names == {"exporter", "workers", "slurm", "controller"}


def ports(pod: dict[str, Any]) -> set[str]:
    return {port.get("name") for container in pod["spec"]["containers"] for port in container.get("ports", ())}


def test_selectors_and_ports_are_those_of_the_services_and_pods_that_there_are() -> None:
    recording = recorded("26.05")
    inputs = [(item.type.rpartition(":")[2], reveal(item.inputs)) for item in recording]
    services = [given for kind, given in inputs if kind == "Service"]
    pods = [given["spec"]["template"] for kind, given in inputs if kind in {"StatefulSet", "Deployment"}]

    def chosen(candidates: list[dict[str, Any]], spec: dict[str, Any]) -> list[dict[str, Any]]:
        wanted = spec["selector"]["matchLabels"].items()
        return [one for one in candidates if wanted <= one["metadata"]["labels"].items()]

    for document in objects(recording):
        spec = document["spec"]
        for endpoint in spec.get("endpoints", ()):
            (service,) = chosen(services, spec)
            assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        for endpoint in spec.get("podMetricsEndpoints", ()):
            found = chosen(pods, spec)
            assert len(found) == 3
            assert all(endpoint["port"] in ports(pod) for pod in found)


def test_the_namespace_of_that_prometheus_is_let_in_and_no_other() -> None:
    policies = {
        item.name.removeprefix("slurm-network-policies-"): reveal(item.inputs)["spec"]
        for item in recorded("26.05")
        if item.type.endswith(":NetworkPolicy")
    }
    let_in = {
        (name, rule["ports"][0]["port"]): peer["namespaceSelector"]
        for name, spec in policies.items()
        for rule in spec.get("ingress") or ()
        for peer in rule.get("from") or ()
        if "namespaceSelector" in peer
    }
    only = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert let_in == {("exporter", 9341): only, ("worker", 9306): only, ("controller", 6817): only}


def test_dashboards_come_with_it_and_can_be_left_away() -> None:
    def maps(recording: Recording) -> list[dict[str, Any]]:
        return [reveal(item.inputs) for item in recording if item.name == "slurm-grafana-files"]

    (found,) = maps(recorded())
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert sorted(found["data"]) == ["slurm-slurm-cluster.json", "slurm-slurm-jobs.json", "slurm-slurm-nodes.json"]
    assert sum(map(len, found["data"].values())) < 500_000, "of the 1 MiB that a ConfigMap may have"
    assert not maps(recorded(dashboards=False))
    ours = with_change(stacks.existing_full(), "monitoring", {"install": True})
    assert not maps(record(ours, stack="prod"))
    assert maps(record(with_change(ours, "monitoring.dashboards", True), stack="prod"))
