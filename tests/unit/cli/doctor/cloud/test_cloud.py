"""`slurmstack doctor cloud` against a Nebius server of our own: real gRPC, real SDK, the service's own messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nebius.api.nebius.mk8s.v1 as mk8s
import pytest
from nebius.api.nebius.common.v1 import ResourceMetadata

from cli.doctor.cloud.check import Finding, diagnose
from config import load_config
from config.sections.cloud import NebiusCloud
from tests.fakes import nebius_answers as cloud
from tests.fakes.nebius import Never, Reply, serve
from tests.fakes.nebius_answers import GIB
from tests.stacks import with_change

TOKEN = "token-for-tests"

Doctor = Callable[..., list[Finding]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Doctor:
    """Findings for a stack (default: the example) in a cloud that is good but for the replies given."""

    def run(
        replies: dict[str, Reply] | None = None, sections: dict[str, Any] | None = None, limit: float = 20
    ) -> list[Finding]:
        config = load_config(sections or cloud.stack())
        assert isinstance(config.cloud, NebiusCloud)
        with serve(cloud.good() | (replies or {}), token=TOKEN) as server:
            monkeypatch.setenv("SLURMSTACK_NEBIUS_SERVER", server.address)
            return diagnose(config, config.cloud, limit=limit)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NEBIUS_IAM_TOKEN", TOKEN)
    return run


def only(findings: list[Finding], check: str) -> Finding:
    """The one finding of a check."""
    (found,) = (item for item in findings if item.check == check)
    return found


def worst(findings: list[Finding], check: str) -> Finding:
    """The gravest finding of a check."""
    gravity = ("change", "unchecked", "warning", "fine")
    return min((item for item in findings if item.check == check), key=lambda item: gravity.index(item.state))


# ---------------------------------------------------------------- questions


CHECKS = {
    "QuotaAllowanceService/List": (cloud.FORBIDDEN, "quotas", "PERMISSION_DENIED (no access)"),
    "ResourceAdviceService/List": (Never(), "capacity", "no answer within 3 s"),
}


@pytest.mark.parametrize("method", CHECKS)
def test_a_question_without_an_answer_is_never_fine_and_the_others_are_answered(doctor: Doctor, method: str) -> None:
    reply, asked, reason = CHECKS[method]
    found = doctor({method: reply}, limit=3 if isinstance(reply, Never) else 20)
    states = {item.check: item.state for item in found}
    assert states == {check: "unchecked" if check == asked else "fine" for check in states}
    assert reason in next(item.message for item in found if item.check == asked)


# ---------------------------------------------------------------- answers


STACK = cloud.stack()
SLOW = with_change(STACK, "jail.filesystem", {"type": "NETWORK_HDD"})
STRICT = cloud.stack(reservation={"policy": "STRICT"})
JOINED = cloud.stack(gpu_cluster={"id": "computegpucluster-e00a"})
ELSEWHERE = cloud.advices(cloud.advice(region="eu-west1"), cloud.advice(fabric="fabric-3"))
LESS = cloud.quota_reply({"compute.filesystem.size.network-ssd": (1024 * GIB, 0)})

ANSWERS: dict[str, list[tuple[Reply, dict[str, Any], str, str, str]]] = {
    "ProjectService/Get": [
        (cloud.project(region="eu-west1"), STACK, "project", "change", "in eu-west1, of tenant-e00a: cloud.region is"),
    ],
    "QuotaAllowanceService/List": [
        (cloud.quota_reply({"compute.instance.gpu.h100": (16, 8)}), STACK, "quotas", "change", "16 more"),
        (LESS, STACK, "quotas", "change", "2048 GiB more needed, and the tenant's quota has 1024 GiB left of 1024 GiB"),
        (cloud.quota_reply({"compute.instance.count": (5, 0)}), STACK, "quotas", "warning", "autoscaling"),
        (cloud.quota_reply({"compute.disk.count": (4, 0)}), STACK, "quotas", "change", "7 more needed"),
        (cloud.quota_reply({"compute.disk.size.network-ssd": (640 * GIB, 0)}), STACK, "quotas", "change",
         "660 GiB more needed"),
        (cloud.quota_reply({"vpc.allocation.count": (9, 0)}), STACK, "quotas", "change", "10 more needed"),
        (cloud.quota_reply({"compute.instance.gpu.h100": (64, 0)}), SLOW, "quotas", "unchecked",
         "compute.filesystem.size.network-hdd: no such quota is listed"),
    ],
    "ResourceAdviceService/List": [
        (cloud.advices(cloud.advice(machines=1)), STACK, "capacity", "change", "only 1 can be had now"),
        (ELSEWHERE, STACK, "capacity", "warning", "the service names none in eu-north1"),
        (cloud.advices(cloud.advice(reserved=1)), STRICT, "capacity", "change", "reserved: only 1 can be had now"),
    ],
    "GpuClusterService/List": [
        (cloud.gpu_cluster("fabric-2"), JOINED, "capacity", "change", "on fabric-2, reserved or on demand: only 0"),
        (cloud.FORBIDDEN, JOINED, "capacity", "warning", "the fabric of an existing GPU cluster is not known"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "number"), [(method, number) for method, rows in ANSWERS.items() for number in range(len(rows))]
)
def test_what_would_fail_is_to_change_and_what_may_is_a_warning(doctor: Doctor, method: str, number: int) -> None:
    reply, sections, check, state, said = ANSWERS[method][number]
    found = worst(doctor({method: reply}, sections), check)
    assert (found.state, said in found.message) == (state, True), found


# ---------------------------------------------------------------- amounts


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
        "QuotaAllowanceService/List": cloud.quota_reply(used),
        "ResourceAdviceService/List": cloud.advices(cloud.advice(machines=0)),
    }
    found = doctor(there)
    assert "0 of 5 machines are still to be made" in only(found, "present").message
    assert not [item for item in found if item.state == "change"]
    more = doctor(there, cloud.stack(size=3))
    short = [item.message for item in more if item.check == "quotas" and item.state == "change"]
    assert any("compute.instance.gpu.h100: 8 more needed" in message for message in short)
    assert not any("filesystem" in message or "mk8s" in message for message in short)
    assert "1 x gpu-h100-sxm" in only(more, "capacity").message


def test_reserved_gpus_need_no_quota_and_are_not_given_to_two_pools(doctor: Doctor) -> None:
    none_left = cloud.quota_reply({"compute.instance.gpu.h100": (0, 0)})
    replies = {
        "QuotaAllowanceService/List": none_left,
        "ResourceAdviceService/List": cloud.advices(cloud.advice(reserved=2)),
    }
    assert worst(doctor(replies), "quotas").state != "change"
    sections = cloud.stack()
    for other in ({}, {"reservation": {"policy": "STRICT"}}):
        sections["worker_nodes"]["more"] = sections["worker_nodes"]["default"] | other
        assert "16 more needed" in worst(doctor(replies, sections), "quotas").message


def test_preemptible_machines_have_a_quota_and_capacity_of_their_own(doctor: Doctor) -> None:
    replies = {
        "QuotaAllowanceService/List": cloud.quota_reply(
            {"compute.instance.gpu.h100": (0, 0), "compute.instance.preemptible.count": (1, 0)}
        )
    }
    found = doctor(replies, cloud.stack(preemptible=True))
    short = [item.message for item in found if item.check == "quotas" and item.state == "change"]
    assert [message.split(":")[0] for message in short] == ["compute.instance.preemptible.count"]
    assert "preemptible: only 1 can be had now" in only(found, "capacity").message
