"""Which machines the pods go to, as the cloud and the stack file say; what workers find there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cli.program.recording import Recording, record
from components.clouds.base import Placement
from components.clouds.existing import ExistingCluster
from config.sections.cloud import Role
from config.sections.workers import Toleration, WorkerPool
from slurm.rights import INTO_JAIL, WITHOUT_JAIL
from tests import stacks
from tests.graph.objects import (
    COMPONENT,
    changed,
    containers,
    everything,
    inputs,
    pod,
    templates,
)
from tests.recordings import record as recorded

SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


def _of_role(role: Role) -> Placement:
    taint = Toleration(key="slurmstack/role", value=role, effect="NoSchedule")
    return Placement(node_selector={"slurmstack/role": role}, tolerations=() if role == "system" else (taint,))


def _of_workers(pool_name: str, pool: WorkerPool) -> Placement:
    gpus = pool.resources.gpus.count
    taint = Toleration(key="nvidia.com/gpu", value=str(gpus), effect="NoSchedule")
    return Placement(
        node_selector={"slurmstack/pool": pool_name, "disk": "any"},
        tolerations=(taint,) if gpus else (),
        devices={"rdma/ib": "1"} if gpus else {},
    )


Cloud = Callable[..., Recording]


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """What is registered in a cloud that makes machines: it wants each role and each pool on its own."""
    monkeypatch.setattr(ExistingCluster, "placement", lambda _, role: _of_role(role))
    monkeypatch.setattr(ExistingCluster, "worker_placement", lambda _, name, pool: _of_workers(name, pool))
    annotations = {"cloud/address": "allocation-1", "cloud/type": "external"}
    monkeypatch.setattr(ExistingCluster, "login_annotations", annotations)
    return lambda **changes: record(changed(**changes), stack="prod")


def slurmd(recording: Recording, pool: str) -> dict[str, Any]:
    return containers(pod(recording, f"slurm-pool-{pool}-pods"))["slurmd"]


def added(container: dict[str, Any]) -> set[str]:
    """Its capabilities."""
    return {*container["securityContext"]["capabilities"]["add"]}


def test_each_role_and_each_pool_goes_to_its_own_machines(cloud: Cloud) -> None:
    recording = cloud()
    for name, role in (
        ("slurm-controller-pods", "controller"),
        ("slurm-login-pods", "login"),
        ("slurm-jail-populate", "system"),
        ("slurm-users-job", "system"),
        ("slurm-configuration-active", "system"),
    ):
        spec = pod(recording, name)
        assert spec["nodeSelector"] == {"slurmstack/role": role}
        taint = {"key": "slurmstack/role", "operator": "Equal", "value": role, "effect": "NoSchedule"}
        assert spec.get("tolerations", []) == ([] if role == "system" else [taint])
    assert pod(recording, "slurm-pool-cpu-pods")["nodeSelector"] == {"slurmstack/pool": "cpu", "disk": "any"}


def test_a_pool_s_own_selector_and_tolerations_come_first(cloud: Cloud) -> None:
    spec = pod(cloud(worker_nodes__gpu__node_selector={"disk": "nvme"}), "slurm-pool-gpu-pods")
    assert spec["nodeSelector"] == {"slurmstack/pool": "gpu", "disk": "nvme"}
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "8", "effect": "NoSchedule"},
    ]


@pytest.mark.parametrize(("security", "usual"), [("confined", INTO_JAIL), ("baseline", WITHOUT_JAIL)])
def test_devices_come_with_the_permission_to_raise_the_limit_of_locked_memory_and_nothing_more(
    cloud: Cloud, security: str, usual: tuple[str, ...]
) -> None:
    recording = cloud(worker_nodes__gpu__security=security)
    gpu, cpu = slurmd(recording, "gpu"), slurmd(recording, "cpu")
    assert gpu["resources"]["requests"]["rdma/ib"] == gpu["resources"]["limits"]["rdma/ib"] == "1"
    assert added(gpu) - {*usual} == {"SYS_RESOURCE", "SYSLOG"}
    assert "rdma/ib" not in cpu["resources"]["requests"]
    assert added(cpu) == {*INTO_JAIL}


def test_the_user_s_annotations_of_the_login_service_win_over_the_cloud_s(cloud: Cloud) -> None:
    recording = cloud(login__annotations={"cloud/type": "internal", "mine": "yes"})
    assert inputs(recording, "slurm-login-service")["metadata"]["annotations"] == {
        "cloud/address": "allocation-1",
        "cloud/type": "internal",
        "mine": "yes",
    }


@pytest.mark.parametrize("sections", [stacks.dev(), everything(), stacks.nebius_full()])
def test_no_autoscaler_takes_the_machine_of_jobs_sessions_and_slurm_s_service(sections: dict[str, Any]) -> None:
    """Of all others it may: they are started elsewhere, and nobody sees it."""
    recording = recorded(sections, stack="test")
    jobs = {item.name for item in recording if item.type.endswith((":Job", ":CronJob"))}
    for name, made in templates(recording).items():
        component = made["metadata"]["labels"][COMPONENT]
        stays = component in {"worker", "login", "controller", "slurmdbd", "database"} or name in jobs
        noted = made["metadata"].get("annotations") or {}
        assert {key: noted.get(key) for key in SAFE} == (SAFE if stays else dict.fromkeys(SAFE)), name
