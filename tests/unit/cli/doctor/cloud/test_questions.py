"""`slurmstack doctor cloud` against a Nebius server of our own: real gRPC, real SDK, the service's own messages."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from tests.fakes import nebius_answers as cloud
from tests.fakes.nebius import Fails, Never, Reply
from tests.unit.cli.doctor.cloud.nebius_doctor import Doctor, only


def test_a_cloud_in_which_everything_fits_is_fine_in_every_check(doctor: Doctor) -> None:
    found = doctor()
    assert {item.state for item in found} == {"fine"}, found
    assert {item.check for item in found} == {"project", "present", "machines", "subnet", "quotas", "capacity"}
    assert "2 x gpu-h100-sxm" in only(found, "capacity").message


def test_refused_credentials_are_to_change_and_nothing_is_called_fine(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEBIUS_IAM_TOKEN", "expired")
    (found,) = doctor()
    assert (found.check, found.state) == ("project", "change")
    assert "the token has expired" in found.message


CHECKS = {
    "ClusterService/GetByName": "present",
    "PlatformService/List": "machines",
    "SubnetService/Get": "subnet",
    "QuotaAllowanceService/List": "quotas",
    "ResourceAdviceService/List": "capacity",
}
UNKNOWN = Fails(code=StatusCode.UNIMPLEMENTED)


@pytest.mark.parametrize(
    ("method", "reply", "reason"),
    [
        *((method, cloud.FORBIDDEN, "may not ask that") for method in CHECKS),
        ("PlatformService/List", UNKNOWN, "does not know this question"),
        ("ResourceAdviceService/List", Never(), "no answer within 3 s"),
    ],
)
def test_a_question_without_an_answer_is_never_fine_and_the_others_are_answered(
    doctor: Doctor, method: str, reply: Reply, reason: str
) -> None:
    found = doctor({method: reply}, limit=3 if isinstance(reply, Never) else 20)
    states = {item.check: item.state for item in found}
    assert states == {check: "unchecked" if check == CHECKS[method] else "fine" for check in states}
    assert reason in next(item.message for item in found if item.check == CHECKS[method])


def test_a_passing_fault_is_tried_again(doctor: Doctor) -> None:
    tries: list[object] = []

    def reply(request: object) -> Reply:
        tries.append(request)
        return Fails(code=StatusCode.UNAVAILABLE) if len(tries) == 1 else cloud.project()

    assert only(doctor({"ProjectService/Get": reply}), "project").state == "fine"
    assert len(tries) == 2
