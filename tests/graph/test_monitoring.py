"""Prometheus and Alertmanager in the graph: what they are made of, what they may do, and what changes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.graph.reachability import Network, network
from tests.recordings import record
from tests.stacks import with_change


def sections(**monitoring: Any) -> dict[str, Any]:
    return with_change(stacks.existing_full(), "monitoring", {"install": True, **monitoring})


def recorded(given: dict[str, Any]) -> Recording:
    return record(given, stack="prod")


@pytest.fixture(scope="module")
def installed() -> Recording:
    return recorded(sections())


def pod(recording: Recording) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == "slurm-monitoring-pods"]
    return dict(reveal(found.inputs)["spec"]["template"]["spec"])


def container(recording: Recording, name: str) -> dict[str, Any]:
    spec = pod(recording)
    (found,) = [one for one in (*spec["containers"], *spec["initContainers"]) if one["name"] == name]
    return dict(found)


def files(recording: Recording) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == "slurm-monitoring-files"]
    return dict(reveal(found.inputs))


def test_a_stack_without_it_has_no_part_of_it_and_the_figures_alone_make_none() -> None:
    for monitoring in ({}, {"enabled": True}):
        found = recorded(with_change(stacks.existing_full(), "monitoring", monitoring))
        assert not [item.name for item in found if "slurm-monitoring" in item.name]


def test_it_is_one_pod_two_services_a_claim_and_its_files_and_has_no_right(installed: Recording) -> None:
    made = sorted(
        (item.type.rpartition(":")[2], reveal(item.inputs)["metadata"]["name"])
        for item in installed
        if "slurm-monitoring" in item.name and item.type.startswith("kubernetes:")
    )
    config_map = files(installed)["metadata"]["name"]
    assert made == [
        ("ConfigMap", config_map), ("ConfigMap", "prometheus-targets"), ("PersistentVolumeClaim", "prometheus-data"),
        ("Service", "alertmanager"), ("Service", "prometheus"), ("StatefulSet", "prometheus"),
    ]  # fmt: skip
    assert pod(installed)["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod(installed)


@pytest.mark.parametrize("name", ["prometheus", "alertmanager"])
def test_both_are_a_user_without_capabilities_on_a_file_system_that_is_read_only(
    installed: Recording, name: str
) -> None:
    context = container(installed, name)["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"], context["readOnlyRootFilesystem"]) == (954, True, True)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False


def test_what_gives_them_the_volume_may_do_nothing_else(installed: Recording) -> None:
    context = container(installed, "own-data")["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}


def test_the_figures_are_protected_as_the_records_are(installed: Recording) -> None:
    protects = {item.name: item.protect for item in installed if item.type.endswith(":PersistentVolumeClaim")}
    assert protects["slurm-monitoring-data"] is protects["slurm-database-data"] is True


def test_size_class_and_age_are_those_of_the_stack_file() -> None:
    found = recorded(sections(storage="50Gi", storage_class="fast", retention=90))
    (claim,) = [reveal(item.inputs)["spec"] for item in found if item.name == "slurm-monitoring-data"]
    assert (claim["resources"]["requests"], claim["storageClassName"]) == ({"storage": "50Gi"}, "fast")
    assert "--storage.tsdb.retention.time=90d" in container(found, "prometheus")["command"]


def test_another_configuration_is_another_pod_and_more_workers_are_not(installed: Recording) -> None:
    more = recorded(with_change(sections(), "worker_nodes.cpu.size", 5))
    assert pod(more) == pod(installed)
    (targets,) = [reveal(item.inputs) for item in more if item.name == "slurm-monitoring-targets"]
    assert "cpu-4:9306" in json.loads(targets["data"]["nodes.json"])[0]["targets"]
    renamed = recorded(with_change(sections(), "slurm.cluster_name", "other"))
    assert pod(renamed) != pod(installed)


def test_whom_alertmanager_tells_is_in_the_secret_of_the_stack_file_or_nowhere(installed: Recording) -> None:
    def source(recording: Recording) -> dict[str, Any]:
        (found,) = [volume for volume in pod(recording)["volumes"] if volume["name"] == "alertmanager"]
        return dict(found)

    assert source(installed)["configMap"]["name"] == files(installed)["metadata"]["name"]
    told = recorded(sections(alertmanager_secret="pager"))
    assert source(told)["secret"]["secretName"] == "pager"
    assert "alertmanager.yml" not in files(told)["data"]


def reached(given: dict[str, Any]) -> Network:
    return network(recorded(given))


def test_prometheus_reaches_what_it_reads_and_users_do_not_reach_it() -> None:
    own = with_change(sections(), "network_policies.egress", [])
    found = Network(reached(own).pods, _plain(reached(own)))
    assert found.allows("prometheus", "exporter", 9341)
    assert found.allows("prometheus", "worker", 9306)
    assert not found.allows("prometheus", "controller", 6817)
    assert not any(found.allows(user, "prometheus", port) for user in ("worker", "login") for port in (9090, 9093))
    assert not found.allows("prometheus", "203.0.113.7", 443)
    newer = reached(with_change(own, "slurm.version", "26.05"))
    assert Network(newer.pods, _plain(newer)).allows("prometheus", "controller", 6817)
    told = reached(sections(alertmanager_secret="pager"))
    assert Network(told.pods, _plain(told)).allows("prometheus", "203.0.113.7", 587)
    assert not Network(told.pods, _plain(told)).allows("prometheus", "169.254.169.254", 80)


def test_prometheus_alone_reaches_the_node_exporters() -> None:
    given = reached(sections(nodes=True))
    found = Network(given.pods, _plain(given))
    assert found.allows("prometheus", "node-exporter", 9100)
    assert not any(found.allows(user, "node-exporter", 9100) for user in ("worker", "login", "rest", "exporter"))
    assert not found.allows("node-exporter", "prometheus", 9090)


def test_one_who_asks_much_does_not_take_all_memory(installed: Recording) -> None:
    command = container(installed, "prometheus")["command"]
    assert {"--query.max-samples=10000000", "--query.max-concurrency=8", "--query.timeout=30s"} <= set(command)


def _plain(found: Network) -> list[Any]:
    """The policies without what opens ports to other namespaces, which decides nothing between pods of this one."""
    return [
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
