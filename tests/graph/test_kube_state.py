"""kube-state-metrics: what it may read, where it is, and who reaches it."""

from __future__ import annotations

from typing import Any

from cli.program.recording import Recording, record
from cli.program.values import reveal
from slurm.local_cluster import KUBE_STATE_IMAGE
from slurm.network import METADATA as METADATA_RANGES
from tests import stacks
from tests.graph.reachability import network
from tests.stacks import with_change

METADATA = [cidr.partition("/")[0] for cidr in METADATA_RANGES]
IMAGE = "registry.example.com/kube-state-metrics:v2.15.0"


def recorded(sections: dict[str, Any], **more: Any) -> Recording:
    return record(with_change(sections, "monitoring", {"install": True, "kube_state": True, **more}), stack="prod")


def inputs(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == f"slurm-kube-state-{name}"]
    return dict(reveal(found.inputs))


def test_it_lists_pods_claims_and_what_makes_pods_in_its_namespace_and_nothing_else() -> None:
    recording = recorded(stacks.existing_full(), kube_state_image=IMAGE)
    rules = inputs(recording, "role")["rules"]
    allowed = {(group, kind) for rule in rules for group in rule["apiGroups"] for kind in rule["resources"]}
    assert allowed == {
        ("", "pods"), ("", "persistentvolumeclaims"),
        ("apps", "statefulsets"), ("apps", "deployments"), ("apps", "daemonsets"),
            ("batch", "cronjobs"),
    }  # fmt: skip
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}
    everywhere = [item.name for item in recording if "ClusterRole" in item.kind and "kube-state" in item.name]
    assert everywhere == []
    (container,) = inputs(recording, "pods")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    given = dict(argument.removeprefix("--").split("=") for argument in container["args"])
    assert given["namespaces"] == "slurm"
    assert set(given["resources"].split(",")) == {kind for _, kind in allowed}
    assert "kube_pod_container_status_restarts_total" in given["metric-allowlist"].split(",")


def test_it_is_nobody_on_a_root_that_it_cannot_write_and_can_read_its_token() -> None:
    spec = inputs(recorded(stacks.existing_full(), kube_state_image=IMAGE), "pods")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"], context["readOnlyRootFilesystem"]) == (65534, True, True)
    assert context["capabilities"] == {"drop": ["ALL"]}
    (token,) = spec["volumes"]
    assert token["projected"]["defaultMode"] == 0o444
    assert spec["automountServiceAccountToken"] is False


def test_prometheus_alone_reaches_it_and_it_reaches_the_api_server_wherever_that_is() -> None:
    found = network(recorded(stacks.existing_full(), kube_state_image=IMAGE))
    assert found.allows("prometheus", "kube-state", 8080)
    assert not any(found.allows(user, "kube-state", 8080) for user in ("worker", "login", "rest", "exporter"))
    assert not found.allows("kube-state", "slurmdbd", 6819)
    assert found.allows("kube-state", "10.96.0.1", 443)
    assert found.allows("kube-state", "203.0.113.7", 16443)
    assert not any(found.allows("kube-state", address, 80) for address in METADATA)


def test_on_the_local_cluster_its_image_is_the_one_that_is_built_there() -> None:
    spec = inputs(recorded(stacks.dev()), "pods")["spec"]["template"]["spec"]
    assert [container["image"] for container in spec["containers"]] == [KUBE_STATE_IMAGE]
