"""Prometheus with Alertmanager, and its exporters of machines and of Kubernetes: what they may do, what changes them.

That none has a capability, a token or a root that it can write to, test_confinement.py says of all pods.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.program.recording import Recording
from tests import stacks
from tests.graph.objects import changed, containers, inputs, named, objects, pod, recorded, volumes
from tests.graph.reachability import Network, network

KUBE_STATE = {"kube_state": True, "kube_state_image": "registry.example.com/kube-state-metrics:v2.15.0"}
PODS = "slurm-monitoring-pods"


def sections(**monitoring: Any) -> dict[str, Any]:
    return changed(stacks.existing_full(), monitoring={"install": True, **monitoring})


@pytest.fixture(scope="module")
def installed() -> Recording:
    return recorded(sections())


def command(recording: Recording) -> list[str]:
    return list(containers(pod(recording, PODS))["prometheus"]["command"])


def test_another_configuration_is_another_pod_and_more_workers_are_not(installed: Recording) -> None:
    more = recorded(sections(), worker_nodes__cpu__size=5)
    assert pod(more, PODS) == pod(installed, PODS)
    targets = inputs(more, "slurm-monitoring-targets")["data"]["nodes.json"]
    assert "cpu-4:9306" in json.loads(targets)[0]["targets"]
    assert pod(recorded(sections(), slurm__cluster_name="other"), PODS) != pod(installed, PODS)


def test_whom_alertmanager_tells_is_in_the_secret_of_the_stack_file_or_nowhere(installed: Recording) -> None:
    files = inputs(installed, "slurm-monitoring-files")
    assert volumes(pod(installed, PODS))["alertmanager"]["configMap"]["name"] == files["metadata"]["name"]
    told = recorded(sections(alertmanager_secret="pager"))
    assert volumes(pod(told, PODS))["alertmanager"]["secret"]["secretName"] == "pager"
    assert "alertmanager.yml" not in inputs(told, "slurm-monitoring-files")["data"]


# Connections


def reached(given: dict[str, Any]) -> Network:
    """Without what opens ports to other namespaces, which decides nothing between pods of this one."""
    found = network(recorded(given))
    policies = [
        {
            **spec,
            "ingress": [
                rule
                for rule in spec.get("ingress") or ()
                if not any("namespaceSelector" in peer for peer in rule.get("from") or ())
            ],
        }
        for spec in found.policies
    ]
    return Network(found.pods, policies)


def test_prometheus_reaches_what_it_reads_and_users_do_not_reach_it() -> None:
    own = changed(sections(**KUBE_STATE), network_policies__egress=[])
    found = reached(own)
    for exporter, port in (("exporter", 9341), ("worker", 9306), ("kube-state", 8080)):
        assert found.allows("prometheus", exporter, port)
        if exporter not in {"worker", "exporter"}:
            assert not any(found.allows(one, exporter, port) for one in ("worker", "login", "rest", "exporter"))
    assert not found.allows("prometheus", "controller", 6817)
    assert not any(found.allows(user, "prometheus", port) for user in ("worker", "login") for port in (9090, 9093))
    assert not found.allows("kube-state", "slurmdbd", 6819)
    assert not found.allows("prometheus", "203.0.113.7", 443)
    told = reached(sections(alertmanager_secret="pager"))
    assert told.allows("prometheus", "203.0.113.7", 587)
    assert not told.allows("prometheus", "169.254.169.254", 80)


# A Prometheus that is there already


def operated(**more: Any) -> Recording:
    existing = {"namespace": "monitoring", "labels": {"release": "kube-prometheus-stack"}}
    return recorded(stacks.existing_full(), monitoring={"existing": existing, **more})


def operators_objects(recording: Recording) -> list[dict[str, Any]]:
    return [inputs(recording, item.name) for item in recording if ":monitoring.coreos.com/" in item.type]


def test_selectors_and_ports_are_those_of_the_services_and_pods_that_there_are() -> None:
    recording = operated()
    workloads = [*objects(recording, "StatefulSet").values(), *objects(recording, "Deployment").values()]
    pods = [workload["spec"]["template"] for workload in workloads]
    services = list(objects(recording, "Service").values())

    def chosen(candidates: list[dict[str, Any]], spec: dict[str, Any]) -> list[dict[str, Any]]:
        wanted = spec["selector"]["matchLabels"].items()
        return [one for one in candidates if wanted <= one["metadata"]["labels"].items()]

    for spec in (document["spec"] for document in operators_objects(recording)):
        for endpoint in spec.get("endpoints", ()):
            (service,) = chosen(services, spec)
            assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        for endpoint in spec.get("podMetricsEndpoints", ()):
            found = chosen(pods, spec)
            assert len(found) == 3
            for one in found:
                ports = (port for container in one["spec"]["containers"] for port in container.get("ports", ()))
                assert endpoint["port"] in {port.get("name") for port in ports}


def test_the_namespace_of_that_prometheus_is_let_in_and_no_other() -> None:
    let_in = {
        (name, rule["ports"][0]["port"]): peer["namespaceSelector"]
        for name, policy in objects(operated(), "NetworkPolicy").items()
        for rule in policy["spec"].get("ingress") or ()
        for peer in rule.get("from") or ()
        if "namespaceSelector" in peer
    }
    only = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert let_in == {("exporter", 9341): only, ("worker", 9306): only}


def test_dashboards_come_with_it_and_can_be_left_away() -> None:
    found = inputs(operated(), "slurm-grafana-files")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert sorted(found["data"]) == ["slurm-slurm-cluster.json", "slurm-slurm-jobs.json", "slurm-slurm-nodes.json"]
    assert sum(map(len, found["data"].values())) < 500_000, "of the 1 MiB that a ConfigMap may have"
    assert not named(operated(dashboards=False), "slurm-grafana-files")
    assert not named(recorded(sections()), "slurm-grafana-files")
    assert named(recorded(sections(dashboards=True)), "slurm-grafana-files")
