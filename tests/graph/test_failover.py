"""Two controllers: what they are made of, and what all others see of them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from images.controller import lease, supervisor
from slurm import names
from tests import stacks
from tests.graph.objects import inputs, objects, recorded

PODS = "slurm-controller-pods"


def two(sections: dict[str, Any] | None = None, **more: Any) -> Recording:
    return recorded(sections or stacks.dev(), controller__replicas=2, **more)


@pytest.fixture(scope="module")
def both() -> Recording:
    return two()


@pytest.fixture(scope="module")
def one() -> Recording:
    return recorded(stacks.dev())


def controller(recording: Recording) -> dict[str, Any]:
    return dict(inputs(recording, PODS)["spec"])


def test_the_second_one_may_be_added_to_a_cluster_that_runs(one: Recording, both: Recording) -> None:
    """Neither the claim nor what Kubernetes never changes in a StatefulSet is another one."""
    assert objects(one, "PersistentVolumeClaim") == objects(both, "PersistentVolumeClaim")
    fixed = ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates")
    assert {key: controller(one).get(key) for key in fixed} == {key: controller(both).get(key) for key in fixed}
    served = objects(two(stacks.existing(), controller__storage_class="nfs"), "PersistentVolumeClaim")
    assert served["controller-state"]["spec"]["accessModes"] == ["ReadWriteMany"], "a storage class has to be told"


def test_their_rights_are_of_one_lease_and_of_two_pods(one: Recording, both: Recording) -> None:
    of_one = objects(one, "Role")["controller"]["rules"]
    more = [rule for rule in objects(both, "Role")["controller"]["rules"] if rule not in of_one]
    assert [(rule["resources"], rule["verbs"], rule.get("resourceNames")) for rule in more] == [
        (["leases"], ["create"], None),
        (["leases"], ["get", "patch"], [lease.NAME]),
        *((["pods"], ["patch"], [name]) for name in lease.PODS),
    ]
    assert lease.PODS == ("controller-0", "controller-1")


def test_one_address_leads_to_the_active_one_and_nobody_else_is_told_of_two(one: Recording, both: Recording) -> None:
    """Everything that names the controller is the same with one and with two."""
    selector = objects(both, "Service")["controller-0"]["spec"]["selector"]
    assert selector[names.ACTIVE] == "yes"
    assert (names.ACTIVE, names.SUPERVISOR_PORT) == (lease.ACTIVE, supervisor.PORT)
    assert "statefulset.kubernetes.io/pod-name" not in selector
    assert objects(one, "ConfigMap")["slurm-config"] == objects(both, "ConfigMap")["slurm-config"]
    assert objects(one, "StatefulSet")["default"] == objects(both, "StatefulSet")["default"]
