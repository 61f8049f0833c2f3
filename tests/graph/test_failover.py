"""Two controllers: what they are made of, and what all others see of them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from config.errors import ConfigError
from config.load import load_config
from images.common import terms
from images.controller import lease, supervisor
from slurm import names
from tests import stacks
from tests.graph.elastic import objects
from tests.recordings import record
from tests.stacks import with_change


def two(sections: dict[str, Any] | None = None, **more: Any) -> Recording:
    found = with_change(sections or stacks.dev(), "controller.replicas", 2)
    for path, value in more.items():
        found = with_change(found, path.replace("__", "."), value)
    return record(found, stack="prod")


def controller(recording: Recording) -> dict[str, Any]:
    spec: dict[str, Any] = objects(recording, "StatefulSet")["controller"]["spec"]
    return spec


def test_two_are_on_different_machines_and_one_of_them_may_be_evicted() -> None:
    both = two()
    spec = controller(both)
    (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["replicas"] == 2
    budget = objects(both, "PodDisruptionBudget")["controller"]["spec"]
    assert budget["maxUnavailable"] == 1


def test_the_second_one_may_be_added_to_a_cluster_that_runs() -> None:
    """Neither the claim nor what Kubernetes never changes in a StatefulSet is another one."""
    one, both = record(stacks.dev(), stack="prod"), two()
    assert objects(one, "PersistentVolumeClaim") == objects(both, "PersistentVolumeClaim")
    fixed = ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates")
    assert {key: controller(one).get(key) for key in fixed} == {key: controller(both).get(key) for key in fixed}


def test_what_a_storage_class_serves_is_asked_for_by_both() -> None:
    claims = objects(two(stacks.existing(), controller__storage_class="nfs"), "PersistentVolumeClaim")
    assert claims["controller-state"]["spec"]["accessModes"] == ["ReadWriteMany"]


def test_their_rights_are_of_one_lease_and_of_two_pods() -> None:
    rules = objects(two(), "Role")["controller"]["rules"]
    more = [
        rule for rule in rules if rule not in objects(record(stacks.dev(), stack="prod"), "Role")["controller"]["rules"]
    ]
    assert [(rule["resources"], rule["verbs"], rule.get("resourceNames")) for rule in more] == [
        (["leases"], ["create"], None),
        (["leases"], ["get", "patch"], [lease.NAME]),
        (["pods"], ["patch"], ["controller-0"]),
        (["pods"], ["patch"], ["controller-1"]),
    ]
    assert lease.PODS == ("controller-0", "controller-1")


def test_the_pods_and_their_programs_use_the_same_places() -> None:
    pod = controller(two())["template"]["spec"]
    mounts = {(mount["name"], mount["mountPath"]) for mount in pod["containers"][0]["volumeMounts"]}
    assert {("state", str(terms.VOLUME)), ("spool", "/var/spool")} <= mounts
    assert str(terms.VOLUME) == names.SHARED_STATE
    assert (names.ACTIVE, names.SUPERVISOR_PORT) == (lease.ACTIVE, supervisor.PORT)
    for container in pod["containers"]:
        assert {"name": "SLURMSTACK_HOST", "value": "controller-0"} in container["env"]


def test_both_programs_know_which_file_system_the_state_must_be_on() -> None:
    """Where a machine has not mounted the cloud's, its own disk is empty there: a first term would begin on it."""
    machines = with_change(stacks.nebius(), "cloud.controller_nodes.max_size", 2)
    cloud = two(with_change(machines, "controller.filesystem", {}))
    for container in controller(cloud)["template"]["spec"]["containers"]:
        assert {"name": "EXPECT_FILESYSTEM", "value": "virtiofs"} in container["env"], container["name"]


@pytest.mark.parametrize(
    ("sections", "change", "said"),
    [
        (stacks.existing(), {}, "controller.storage_class"),
        (stacks.nebius(), {"cloud.controller_nodes.max_size": 2}, "controller.filesystem"),
        (stacks.nebius(), {"controller.filesystem": {}}, "cloud.controller_nodes.max_size"),
        (stacks.dev(), {"controller.replicas": True}, "not a whole number"),
        (stacks.dev(), {"slurm.settings": {"SlurmctldParameters": "enable_rpc_queue"}}, "enable_rpc_queue"),
    ],
)
def test_what_two_cannot_work_with_is_said_in_one_message(
    sections: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    for path, value in {"controller.replicas": 2, **change}.items():
        sections = with_change(sections, path, value)
    with pytest.raises(ConfigError) as caught:
        load_config(sections)
    assert len(caught.value.problems) == 1
    assert said in str(caught.value.problems[0])


def test_three_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(with_change(stacks.dev(), "controller.replicas", 3))
    assert "less than or equal to 2" in str(caught.value.problems[0])


def test_one_address_leads_to_the_active_one_and_nobody_else_is_told_of_two() -> None:
    """Everything that names the controller is the same with one and with two."""
    one, both = record(stacks.dev(), stack="prod"), two()
    service = objects(both, "Service")["controller-0"]["spec"]
    assert service["selector"][names.ACTIVE] == "yes"
    assert "statefulset.kubernetes.io/pod-name" not in service["selector"]
    assert objects(one, "ConfigMap")["slurm-config"] == objects(both, "ConfigMap")["slurm-config"]
    assert objects(one, "StatefulSet")["default"] == objects(both, "StatefulSet")["default"]
