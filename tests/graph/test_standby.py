"""A standby: what two controllers are made of, and what all others see of them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from images.common import terms
from images.controller import standby
from slurm import names
from tests import stacks
from tests.graph.objects import containers, environment, inputs, mounts, objects, pod, recorded

PODS = "slurm-controller-pods"
SHARED: dict[str, Any] = {"controller__storage_class": "nfs", "controller__access_mode": "ReadWriteMany"}


@pytest.fixture(scope="module")
def one() -> Recording:
    return recorded(**SHARED)


@pytest.fixture(scope="module")
def two() -> Recording:
    return recorded(**SHARED, controller__standby=True)


def test_a_standby_may_be_added_to_a_cluster_that_runs(one: Recording, two: Recording) -> None:
    """Neither the claim nor what Kubernetes never changes in a StatefulSet is another one."""
    assert objects(one, "PersistentVolumeClaim") == objects(two, "PersistentVolumeClaim")
    before, after = (inputs(recording, PODS)["spec"] for recording in (one, two))
    fixed = ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates")
    assert {key: before.get(key) for key in fixed} == {key: after.get(key) for key in fixed}
    assert (before["replicas"], after["replicas"]) == (1, 2)


def test_one_address_leads_to_the_active_one_and_nobody_else_is_told_of_two(one: Recording, two: Recording) -> None:
    services = objects(one, "Service"), objects(two, "Service")
    assert {name for name, service in services[1].items() if service != services[0][name]} == {"controller-0"}
    selector = services[1]["controller-0"]["spec"]["selector"]
    assert selector[standby.ACTIVE] == "yes"
    assert "statefulset.kubernetes.io/pod-name" not in selector
    assert objects(one, "StatefulSet")["gpu"] == objects(two, "StatefulSet")["gpu"]
    (conf,) = [text for text in objects(two, "ConfigMap")["slurm-config"]["data"].values() if "SlurmctldHost" in text]
    assert "\nSlurmctldHost=localhost(controller-0)\n" in conf, "each of two has that name, whatever its pod is called"


def test_their_rights_are_more_by_the_label_of_two_pods(one: Recording, two: Recording) -> None:
    before, after = (objects(recording, "Role")["controller"]["rules"] for recording in (one, two))
    more = [(rule["resources"], rule["verbs"], rule["resourceNames"]) for rule in after if rule not in before]
    assert more == [(["pods"], ["patch"], [name]) for name in standby.PODS]


def test_the_volume_is_where_the_programs_expect_it(two: Recording) -> None:
    spec = pod(two, PODS)
    for name in ("slurmctld", "config-agent"):
        container = containers(spec)[name]
        assert mounts(container, "state").keys() == {str(terms.VOLUME)} == {names.SHARED_STATE}
        assert mounts(container, "spool").keys() == {"/var/spool"}
    slurmctld = containers(spec)["slurmctld"]
    assert slurmctld["command"][-1].endswith("/standby")
    assert "POD_UID" in environment(slurmctld)
    assert slurmctld["readinessProbe"]["httpGet"] == {"path": "/ready", "port": standby.PORT}
    assert names.STANDBY_PORT == standby.PORT
    assert spec["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["controller-0"]}]


def test_they_are_on_two_machines_where_there_are_any_and_are_not_evicted_at_once(two: Recording) -> None:
    (wish,) = pod(two, PODS)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    term: dict[str, Any] = wish["podAffinityTerm"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    template = inputs(two, PODS)["spec"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= template.items()
    assert objects(two, "PodDisruptionBudget")["controller"]["spec"]["maxUnavailable"] == 1


def test_on_the_local_cluster_too() -> None:
    local = recorded(stacks.dev(), controller__access_mode="ReadWriteMany", controller__standby=True)
    assert inputs(local, PODS)["spec"]["replicas"] == 2
