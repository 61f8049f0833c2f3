"""`slurmstack doctor cloud` against a Nebius server of our own: real gRPC, real SDK, the service's own messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nebius.api.nebius.compute.v1 as compute
import nebius.api.nebius.mk8s.v1 as mk8s
import pytest
from grpc import StatusCode
from nebius.api.nebius.common.v1 import ResourceMetadata

from cli.doctor.nebius import diagnose
from cli.doctor.report import Finding
from config import load_config
from config.nebius import NebiusCloud
from tests import nebius_answers as cloud
from tests.nebius_answers import GIB
from tests.nebius_server import Fails, Never, Reply, serve
from tests.stacks import with_change

TOKEN = "token-for-tests"

Doctor = Callable[..., list[Finding]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Doctor:
    """Findings for a stack (default: the example) in a cloud that is good but for the replies given."""

    def run(replies: dict[str, Reply] | None = None, sections: dict[str, Any] | None = None, limit: float = 20) -> Any:
        config = load_config(sections or cloud.stack())
        assert isinstance(config.cloud, NebiusCloud)
        with serve(cloud.good() | (replies or {}), token=TOKEN) as server:
            monkeypatch.setenv("SLURMSTACK_NEBIUS_SERVER", server.address)
            return diagnose(config, config.cloud, limit=limit)

    monkeypatch.setenv("NEBIUS_IAM_TOKEN", TOKEN)
    monkeypatch.setenv("HOME", str(tmp_path))
    return run


def only(findings: list[Finding], check: str) -> Finding:
    """The one finding of a check."""
    (found,) = (item for item in findings if item.check == check)
    return found


def worst(findings: list[Finding], check: str) -> Finding:
    """The gravest finding of a check."""
    gravity = ("change", "unchecked", "warning", "fine")
    return min((item for item in findings if item.check == check), key=lambda item: gravity.index(item.state))


def test_a_cloud_in_which_everything_fits_is_fine_in_every_check(doctor: Doctor) -> None:
    found = doctor()
    assert {item.state for item in found} == {"fine"}, found
    assert {item.check for item in found} >= {
        "credentials", "project", "subnet", "machines", "drivers", "fabric", "quotas", "capacity", "kubernetes"
    }  # fmt: skip
    assert only(found, "credentials").message == "user alice@example.com"
    assert "2 x gpu-h100-sxm" in only(found, "capacity").message


def test_refused_credentials_are_to_change_and_nothing_else_is_asked_or_called_fine(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEBIUS_IAM_TOKEN", "expired")
    found = doctor()
    assert only(found, "credentials").state == "change"
    assert "the token has expired" in only(found, "credentials").message
    assert {item.state for item in found if item.check != "credentials"} == {"unchecked"}
    assert "not asked, since the credentials were refused" in only(found, "kubernetes").message


@pytest.mark.parametrize(
    "method",
    [
        "ProfileService/Get",
        "ProjectService/Get",
        "ClusterService/GetByName",
        "ClusterService/ListControlPlaneVersions",
        "PlatformService/List",
        "NodeGroupService/GetCompatibilityMatrix",
        "SubnetService/Get",
        "QuotaAllowanceService/List",
        "ResourceAdviceService/List",
    ],
)
@pytest.mark.parametrize("reply", [cloud.FORBIDDEN, Fails(code=StatusCode.UNIMPLEMENTED), Never()], ids=repr)
def test_a_question_without_an_answer_is_never_fine(doctor: Doctor, method: str, reply: Reply) -> None:
    checks = {
        "ProfileService/Get": "credentials",
        "ProjectService/Get": "project",
        "ClusterService/GetByName": "present",
        "ClusterService/ListControlPlaneVersions": "kubernetes",
        "PlatformService/List": "machines",
        "NodeGroupService/GetCompatibilityMatrix": "drivers",
        "SubnetService/Get": "subnet",
        "QuotaAllowanceService/List": "quotas",
        "ResourceAdviceService/List": "capacity",
    }
    limit = 1 if isinstance(reply, Never) else 20
    found = doctor({method: reply}, limit=limit)
    assert {item.state for item in found if item.check == checks[method]} == {"unchecked"}
    reason = {Never: "no answer within 1 s"}.get(
        type(reply), "may not ask that" if reply is cloud.FORBIDDEN else "does not know this question"
    )
    assert reason in only(found, checks[method]).message
    assert "change" not in {item.state for item in found}


def test_one_silent_service_does_not_hold_the_others_up(doctor: Doctor) -> None:
    started = time.monotonic()
    found = doctor({"QuotaAllowanceService/List": Never()}, limit=1.5)
    assert time.monotonic() - started < 6
    assert only(found, "quotas").state == "unchecked"
    assert only(found, "capacity").state == "fine"


def test_a_question_that_takes_too_long_is_given_up_before_the_limit_for_all(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.doctor.ask.Cloud.__init__.__kwdefaults__", {"call_timeout": 1.0})
    started = time.monotonic()
    found = doctor({"SubnetService/Get": Never()}, limit=60)
    assert time.monotonic() - started < 10
    assert "did not answer in time" in only(found, "subnet").message


def test_a_passing_fault_is_tried_again(doctor: Doctor) -> None:
    tries: list[object] = []

    def reply(request: object) -> Reply:
        tries.append(request)
        return Fails(code=StatusCode.UNAVAILABLE) if len(tries) == 1 else cloud.project()

    assert only(doctor({"ProjectService/Get": reply}), "project").state == "fine"
    assert len(tries) == 2


@pytest.mark.parametrize(
    ("replies", "check", "said"),
    [
        ({"ProjectService/Get": cloud.NOT_FOUND}, "project", "there is no project project-e00a"),
        (
            {"ProjectService/Get": cloud.project(region="eu-west1")},
            "project",
            "is in eu-west1, but cloud.region is eu-no",
        ),
        ({"ProjectService/Get": cloud.project(state="PARKED")}, "project", "is parked"),
        (
            {"ClusterService/ListControlPlaneVersions": cloud.versions("1.35", "1.37")},
            "kubernetes",
            "these: 1.35, 1.37",
        ),
        ({"SubnetService/Get": cloud.NOT_FOUND}, "subnet", "there is no subnet vpcsubnet-e00a"),
        ({"SubnetService/Get": cloud.subnet("10.0.0.0/13", project="project-b")}, "subnet", "is in project-b"),
        ({"PlatformService/List": cloud.platforms(cloud.CPU)}, "machines", "no platform gpu-h100-sxm"),
        (
            {"PlatformService/List": cloud.platforms(cloud.CPU, cloud.platform(cloud.H100, **{"1gpu": (16, 200, 1)}))},
            "machines",
            "gpu-h100-sxm has no preset 8gpu-128vcpu-1600gb; offered: 1gpu",
        ),
        ({"NodeGroupService/GetCompatibilityMatrix": cloud.images("cuda12.8")}, "drivers", "one of these: cuda12.8"),
        ({"NodeGroupService/GetCompatibilityMatrix": cloud.images("cuda13.0", version="1.35")}, "drivers", "no image"),
        (
            {"NodeGroupService/GetCompatibilityMatrix": cloud.images("cuda13.0", platforms=("x",))},
            "drivers",
            "no image",
        ),
        (
            {"QuotaAllowanceService/List": cloud.quota_reply({"compute.instance.gpu.h100": (16, 8)})},
            "quotas",
            "16 more",
        ),
        (
            {"QuotaAllowanceService/List": cloud.quota_reply({"compute.filesystem.size.network-ssd": (1024 * GIB, 0)})},
            "quotas",
            "2048 GiB more needed, the tenant's quota has 1024 GiB left of 1024 GiB",
        ),
        ({"ResourceAdviceService/List": cloud.advices(cloud.advice(machines=1))}, "capacity", "only 1 can be had now"),
        (
            {"ResourceAdviceService/List": cloud.advices(cloud.advice(machines=0), cloud.advice(fabric="fabric-2"))},
            "capacity",
            "there is enough on fabric-2 in eu-north1",
        ),
        (
            {"ResourceAdviceService/List": cloud.advices(cloud.advice(platform="gpu-h200-sxm"))},
            "fabric",
            "fabric-6 in eu-north1 is for gpu-h200-sxm, not for gpu-h100-sxm",
        ),
        (
            {
                "ResourceAdviceService/List": cloud.advices(
                    cloud.advice(region="eu-west1"), cloud.advice(fabric="fabric-3")
                )
            },
            "fabric",
            "fabric-6 is in eu-west1, not in eu-north1; fabrics of gpu-h100-sxm in eu-north1: fabric-3",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_make_up_fail_is_to_change(doctor: Doctor, replies: dict[str, Reply], check: str, said: str) -> None:
    found = worst(doctor(replies), check)
    assert found.state == "change"
    assert said in found.message


@pytest.mark.parametrize(
    ("replies", "check", "said"),
    [
        (
            {"ClusterService/ListControlPlaneVersions": cloud.versions("1.36", deprecated=True)},
            "kubernetes",
            "deprecated",
        ),
        ({"AllocationService/ListBySubnet": cloud.FORBIDDEN}, "subnet", "if nothing is taken yet"),
        (
            {
                "PlatformService/List": cloud.platforms(
                    cloud.CPU, cloud.platform(cloud.H100, **{cloud.EIGHT: (96, 1600, 8)})
                )
            },
            "machines",
            "has 96 vCPUs",
        ),
        ({"ResourceAdviceService/List": cloud.advices(cloud.advice(fresh=False))}, "capacity", "out of date"),
        (
            {"ResourceAdviceService/List": cloud.advices(cloud.advice(fabric="fabric-3"))},
            "fabric",
            "may be wrong; fabrics",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_only_may_go_wrong_is_a_warning(doctor: Doctor, replies: dict[str, Reply], check: str, said: str) -> None:
    found = only(doctor(replies), check)
    assert found.state == "warning"
    assert said in found.message


def test_a_quota_that_the_service_does_not_list_is_not_called_enough(doctor: Doctor) -> None:
    none = cloud.quota_reply({"compute.instance.gpu.h100": (64, 0)})
    sections = with_change(cloud.stack(), "worker_nodes.default.boot_disk", {"type": "NETWORK_HDD"})
    found = doctor({"QuotaAllowanceService/List": none}, sections)
    assert "compute.disk.size.network-hdd: the service lists no such quota" in worst(found, "quotas").message
    assert worst(found, "quotas").state == "unchecked"


def test_autoscaling_beyond_a_quota_is_a_warning(doctor: Doctor) -> None:
    five = cloud.quota_reply({"compute.instance.count": (5, 0)})
    found = worst(doctor({"QuotaAllowanceService/List": five}), "quotas")
    assert (found.state, "autoscaling" in found.message) == ("warning", True)


def test_the_projects_own_quota_binds_too(doctor: Doctor) -> None:
    tenant = cloud.quota_reply()

    def reply(request: Any) -> Any:
        answer = tenant(request)
        if request.parent_id == cloud.PROJECT:
            for item in answer.items:
                item.spec.limit = 12 if item.metadata.name == "compute.instance.gpu.h100" else None
        return answer

    found = worst(doctor({"QuotaAllowanceService/List": reply}), "quotas")
    assert found.state == "change"
    assert "the project's quota has 12 left of 12" in found.message


def test_a_subnet_too_small_says_what_would_help(doctor: Doctor) -> None:
    small = {"SubnetService/Get": cloud.subnet("10.0.0.0/16")}
    found = only(doctor(small), "subnet")
    assert found.state == "change"
    assert "set cloud.kubernetes.service_cidr to a smaller one" in found.message
    narrow = with_change(cloud.stack(), "cloud.kubernetes.service_cidr", "10.0.64.0/20")
    assert only(doctor(small, narrow), "subnet").state == "fine"
    tiny = only(doctor({"SubnetService/Get": cloud.subnet("10.0.0.0/24")}, narrow), "subnet")
    assert "take a larger subnet" in tiny.message


def test_a_free_sum_that_is_in_pieces_is_not_enough(doctor: Doctor) -> None:
    sections = with_change(cloud.stack(), "cloud.kubernetes.service_cidr", "10.0.0.0/20")
    pieces = {
        "SubnetService/Get": cloud.subnet("10.0.0.0/18"),
        # Half of the addresses are free, more than enough in sum, but nowhere as many in one range as are needed.
        "AllocationService/ListBySubnet": cloud.allocations(*(f"10.0.{number}.128/25" for number in range(64))),
    }
    assert only(doctor(pieces, sections), "subnet").state == "change"


def test_what_is_there_already_is_not_needed_once_more(doctor: Doctor) -> None:
    groups = [
        cloud.group("slurm-default-0", cloud.EIGHT, cloud.H100, 2),
        cloud.group("slurm-system", "16vcpu-64gb", "cpu-d3", 1),
        cloud.group("slurm-controller", "8vcpu-32gb", "cpu-d3", 1),
        cloud.group("slurm-login", "16vcpu-64gb", "cpu-d3", 1),
    ]
    used = {name: (limit, limit) for name, limit in cloud.QUOTAS.items()}
    there = {
        "ClusterService/GetByName": mk8s.Cluster(metadata=ResourceMetadata(id="mk8scluster-e00a", name="slurm")),
        "NodeGroupService/List": mk8s.ListNodeGroupsResponse(items=groups),
        "FilesystemService/List": compute.ListFilesystemsResponse(items=[cloud.filesystem(name="slurm-jail")]),
        "GpuClusterService/List": compute.ListGpuClustersResponse(items=[cloud.gpu_cluster(name="slurm-fabric-6")]),
        "QuotaAllowanceService/List": cloud.quota_reply(used),
        "ResourceAdviceService/List": cloud.advices(cloud.advice(machines=0)),
    }
    found = doctor(there)
    assert "0 of 5 machines are still to be made" in only(found, "present").message
    assert not [item for item in found if item.state == "change"]
    more = doctor(there, cloud.stack(size=3))
    short = [item.message for item in more if item.check == "quotas" and item.state == "change"]
    assert any("compute.instance.gpu.h100 in eu-north1: 8 more needed" in message for message in short)
    assert not any("filesystem" in message or "mk8s" in message for message in short)
    assert "1 x gpu-h100-sxm" in only(more, "capacity").message
    larger = doctor(there, with_change(cloud.stack(), "jail.size", "3Ti"))
    assert "1024 GiB more needed" in worst(larger, "quotas").message


@pytest.mark.parametrize(
    ("block", "policy", "state", "said"),
    [
        (cloud.block(free=16), "STRICT", "fine", "16 more GPUs needed, reservations have 16"),
        (cloud.block(free=8), "STRICT", "change", "policy STRICT takes no others"),
        (cloud.block(free=8), "AUTO", "warning", "the rest comes out of other capacity"),
        (cloud.block(free=16, platform="gpu-h200-sxm"), "STRICT", "change", "is for gpu-h200-sxm"),
        (cloud.block(free=16, region="eu-west1"), "STRICT", "change", "is in eu-west1"),
        (cloud.block(free=16, fabric="fabric-2"), "STRICT", "change", "is on fabric-2"),
        (cloud.block(free=16, active=False), "STRICT", "change", "is not active"),
    ],
)
def test_a_reservation_must_fit_the_pool(doctor: Doctor, block: Any, policy: str, state: str, said: str) -> None:
    sections = cloud.stack(reservation={"policy": policy, "ids": ["capacityblockgroup-e00a"]})
    found = worst(doctor({"CapacityBlockGroupService/List": cloud.blocks(block)}, sections), "reservation")
    assert found.state == state
    assert said in found.message


def test_a_reservation_that_is_not_there_is_to_change(doctor: Doctor) -> None:
    sections = cloud.stack(reservation={"policy": "STRICT", "ids": ["capacityblockgroup-e00b"]})
    assert "is not in this tenant" in only(doctor(None, sections), "reservation").message


def test_reserved_gpus_need_no_quota_and_are_not_given_to_two_pools(doctor: Doctor) -> None:
    none_left = cloud.quota_reply({"compute.instance.gpu.h100": (0, 0), "compute.disk.count": (20, 0)})
    replies = {
        "QuotaAllowanceService/List": none_left,
        "CapacityBlockGroupService/List": cloud.blocks(cloud.block(free=16)),
    }
    assert worst(doctor(replies), "quotas").state != "change"
    sections = cloud.stack()
    sections["worker_nodes"]["more"] = sections["worker_nodes"]["default"]
    assert "16 more needed" in worst(doctor(replies, sections), "quotas").message


def test_preemptible_machines_have_a_quota_and_capacity_of_their_own(doctor: Doctor) -> None:
    replies = {
        "QuotaAllowanceService/List": cloud.quota_reply(
            {"compute.instance.gpu.h100": (0, 0), "compute.instance.preemptible.count": (1, 0)}
        )
    }
    found = doctor(replies, cloud.stack(preemptible=True))
    short = [item.message for item in found if item.check == "quotas" and item.state == "change"]
    assert [message.split(" in ")[0] for message in short] == ["compute.instance.preemptible.count"]
    assert "preemptible: only 1 can be had now" in only(found, "capacity").message


@pytest.mark.parametrize(
    ("reply", "state", "said"),
    [
        (cloud.filesystem(), "fine", "2048 GiB"),
        (cloud.filesystem(size_gib=1024), "change", "has 1024 GiB, but jail.size says 2048 GiB"),
        (cloud.filesystem(project="project-b"), "change", "is in project-b"),
        (cloud.filesystem(state="ERROR"), "change", "is error"),
        (cloud.filesystem(kind="NETWORK_HDD"), "warning", "type NETWORK_HDD, not NETWORK_SSD"),
        (cloud.NOT_FOUND, "change", "there is no file system computefilesystem-e00a (jail)"),
        (cloud.FORBIDDEN, "unchecked", "may not ask"),
    ],
)
def test_an_existing_file_system_must_be_there_and_large_enough(
    doctor: Doctor, reply: Reply, state: str, said: str
) -> None:
    sections = with_change(cloud.stack(), "jail.filesystem", {"id": "computefilesystem-e00a"})
    found = only(doctor({"FilesystemService/Get": reply}, sections), "filesystems")
    assert found.state == state
    assert said in found.message


@pytest.mark.parametrize(
    ("reply", "state", "said"),
    [
        (cloud.gpu_cluster(), "fine", "fabric-6 in eu-north1 is for gpu-h100-sxm"),
        (cloud.gpu_cluster(project="project-b"), "change", "is in project-b"),
        (cloud.gpu_cluster(fabric="fabric-9"), "warning", "fabric-9"),
        (cloud.NOT_FOUND, "change", "there is no GPU cluster"),
        (cloud.FORBIDDEN, "unchecked", "may not ask"),
    ],
)
def test_an_existing_gpu_cluster_must_be_there(doctor: Doctor, reply: Reply, state: str, said: str) -> None:
    sections = cloud.stack(gpu_cluster={"id": "computegpucluster-e00a"})
    found = worst(doctor({"GpuClusterService/Get": reply}, sections), "fabric")
    assert found.state == state
    assert said in found.message
