"""Which machines the pods go to, as the cloud and the stack file say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cli.program.recording import Recording, record
from cli.program.values import reveal
from components.clouds.base import Placement
from components.clouds.existing import ExistingCluster
from components.workers import placement_of
from config.nebius.cloud import Role
from config.sections.machines import Taint
from config.sections.workers import Resources, Toleration, WorkerPool
from slurm.rights import INTO_JAIL, WITHOUT_JAIL
from tests import stacks
from tests.stacks import with_change

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


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud that makes machines: it wants each role and each pool on its own."""
    monkeypatch.setattr(ExistingCluster, "placement", lambda _, role: _of_role(role))
    monkeypatch.setattr(ExistingCluster, "worker_placement", lambda _, name, pool: _of_workers(name, pool))
    annotations = {"cloud/address": "allocation-1", "cloud/type": "external"}
    monkeypatch.setattr(ExistingCluster, "login_annotations", annotations)


def template(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name]
    pod: dict[str, Any] = reveal(found.inputs)["spec"]["template"]
    return pod


def slurmd(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = [item for item in pod["spec"]["containers"] if item["name"] == "slurmd"]
    return dict(container)


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("slurm-controller-pods", "controller"),
        ("slurm-login-pods", "login"),
        ("slurm-jail-populate", "system"),
        ("slurm-users-job", "system"),
        ("slurm-configuration-active", "system"),
    ],
)
def test_each_role_goes_to_its_own_machines(name: str, role: str) -> None:
    spec = template(record(stacks.existing(), stack="prod"), name)["spec"]
    assert spec["nodeSelector"] == {"slurmstack/role": role}
    taint = {"key": "slurmstack/role", "operator": "Equal", "value": role, "effect": "NoSchedule"}
    assert spec.get("tolerations", []) == ([] if role == "system" else [taint])


@pytest.mark.usefixtures("cloud")
def test_workers_go_to_the_machines_of_their_pool_and_keep_them_while_they_are_busy() -> None:
    pod = template(record(stacks.existing(), stack="prod"), "slurm-pool-cpu-pods")
    assert pod["spec"]["nodeSelector"] == {"slurmstack/pool": "cpu", "disk": "any"}
    assert pod["metadata"]["annotations"] == SAFE


def _with_all() -> dict[str, Any]:
    """With everything that has pods, and an elastic pool."""
    sections = with_change(stacks.existing_full(), "monitoring", {"install": True, "nodes": True})
    return with_change(sections, "worker_nodes.gpu.size", {"max": 64})


@pytest.mark.parametrize("sections", [stacks.dev, _with_all, stacks.nebius_full])
def test_no_autoscaler_takes_the_machine_of_jobs_sessions_and_slurm_s_service(sections: Callable[[], Any]) -> None:
    """Of all others it may: they are started elsewhere, and nobody sees it."""
    for item in record(sections(), stack="test"):
        inputs = reveal(item.inputs) if item.type.startswith("kubernetes:") else {}
        pod = inputs.get("template") or (inputs.get("spec") or {}).get("template")
        if not isinstance(pod, dict) or item.name.startswith("slurm-gpu-stack"):
            continue
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        stays = component in {"worker", "login", "controller", "slurmdbd", "database"} or item.type.endswith(":Job")
        noted = pod["metadata"].get("annotations") or {}
        assert {key: noted.get(key) for key in SAFE} == (SAFE if stays else dict.fromkeys(SAFE)), item.name


@pytest.mark.usefixtures("cloud")
def test_a_pool_s_own_selector_and_tolerations_come_first() -> None:
    sections = with_change(stacks.existing(), "worker_nodes.gpu.node_selector", {"disk": "nvme"})
    spec = template(record(sections, stack="prod"), "slurm-pool-gpu-pods")["spec"]
    assert spec["nodeSelector"] == {"slurmstack/pool": "gpu", "disk": "nvme"}
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "8", "effect": "NoSchedule"},
    ]


def test_a_pool_s_taints_are_tolerated_once() -> None:
    taint = Taint(key="team", value="a", effect="NoExecute")
    toleration = Toleration(key="team", value="a", effect="NoExecute")
    resources = Resources(cpus=2, memory="4Gi")
    pool = WorkerPool(size=1, resources=resources, taints=(taint,))
    assert placement_of(pool, Placement(tolerations=(toleration,))).tolerations == (toleration,)


@pytest.mark.usefixtures("cloud")
def test_rdma_devices_come_with_the_permission_to_raise_the_limit_of_locked_memory() -> None:
    recording = record(stacks.existing(), stack="prod")
    gpu, cpu = (slurmd(template(recording, f"slurm-pool-{pool}-pods")) for pool in ("gpu", "cpu"))
    assert gpu["resources"]["requests"]["rdma/ib"] == gpu["resources"]["limits"]["rdma/ib"] == "1"
    assert {*gpu["securityContext"]["capabilities"]["add"]} - {*INTO_JAIL} == {"SYS_RESOURCE", "SYSLOG"}
    assert "rdma/ib" not in cpu["resources"]["requests"]
    assert {*cpu["securityContext"]["capabilities"]["add"]} == {*INTO_JAIL}


@pytest.mark.usefixtures("cloud")
def test_a_baseline_pool_gets_nothing_but_the_limit_for_its_devices_and_the_kernel_s_log() -> None:
    sections = with_change(stacks.existing(), "worker_nodes.gpu.security", "baseline")
    container = slurmd(template(record(sections, stack="prod"), "slurm-pool-gpu-pods"))
    assert {*container["securityContext"]["capabilities"]["add"]} - {*WITHOUT_JAIL} == {"SYS_RESOURCE", "SYSLOG"}


def test_a_pool_without_the_jail_has_the_users_whom_slurmctld_knows_and_no_more_of_its_configuration() -> None:
    recording = record(stacks.existing(), stack="prod")
    plain, cpu = (template(recording, f"slurm-pool-{pool}-pods") for pool in ("plain", "cpu"))

    volumes = {volume["name"]: volume for volume in plain["spec"]["volumes"]}
    items = [{"key": name, "path": name} for name in ("passwd", "group")]
    assert volumes["users"]["configMap"] == {"name": "slurm-config", "items": items}
    users = {"name": "users", "mountPath": "/var/lib/extrausers", "readOnly": True}
    assert users in slurmd(plain)["volumeMounts"]
    assert "jail" not in volumes
    assert users not in slurmd(cpu)["volumeMounts"]
    (published,) = [
        item
        for item in recording
        if item.type == "kubernetes:core/v1:ConfigMap" and reveal(item.inputs)["metadata"]["name"] == "slurm-config"
    ]
    assert reveal(published.inputs)["data"]["passwd"].startswith("alice:x:10001:")


@pytest.mark.usefixtures("cloud")
def test_the_user_s_annotations_of_the_login_service_win_over_the_cloud_s() -> None:
    sections = with_change(stacks.existing(), "login.annotations", {"cloud/type": "internal", "mine": "yes"})
    (service,) = [item for item in record(sections, stack="prod") if item.name == "slurm-login-service"]
    assert reveal(service.inputs)["metadata"]["annotations"] == {
        "cloud/address": "allocation-1",
        "cloud/type": "internal",
        "mine": "yes",
    }


def test_on_a_cluster_that_is_there_pods_go_where_the_stack_file_says_and_carry_nothing_else() -> None:
    for item in record(stacks.dev(), stack="dev"):
        pod = reveal(item.inputs).get("spec", {}).get("template") if item.type.startswith("kubernetes:") else None
        if pod:
            # The watcher's are about the controller's machine, and both say how long they stay on a lost one.
            stays = {"slurm-health-pods": {"affinity", "tolerations"}, "slurm-elastic-pods": {"tolerations"}}
            more = {"affinity", "tolerations"} - stays.get(item.name, set())
            assert not {"nodeSelector", *more} & pod["spec"].keys(), item.name
            assert pod["spec"].get("affinity", {}).keys() <= {"podAffinity"}, item.name
            assert (pod["metadata"].get("annotations") or {}).keys() <= SAFE.keys(), item.name
            names = {
                variable["name"] for container in pod["spec"]["containers"] for variable in container.get("env", [])
            }
            assert not {"MOUNTS", "EXPECT_FILESYSTEM", "NVIDIA_DRIVER_CAPABILITIES"} & names, item.name


def test_images_are_taken_by_digest_where_one_is_given() -> None:
    digest = f"sha256:{'7' * 64}"
    recording = record(with_change(stacks.existing(), "images.digests", {"worker": digest}), stack="prod")
    assert slurmd(template(recording, "slurm-pool-cpu-pods"))["image"] == (
        f"registry.example/slurmstack/worker@{digest}"
    )
    (populate,) = template(recording, "slurm-jail-populate")["spec"]["containers"]
    assert populate["image"].startswith("registry.example/slurmstack/jail:24.11-")
