"""`slurmstack doctor cloud` against a Nebius server of our own: real gRPC, real SDK, the service's own messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from grpc import StatusCode

from cli.doctor.cloud.answers import Project, Unanswered
from cli.doctor.cloud.ask import CALL_TIMEOUT_S, Cloud
from cli.doctor.cloud.interview import Interview
from config import load_config
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import needs
from tests.fakes import nebius_answers as cloud
from tests.fakes.nebius import Fails, Never, Reply
from tests.unit.cli.doctor.cloud.nebius_doctor import Doctor, only


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


CHECKS = {
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
UNKNOWN = Fails(code=StatusCode.UNIMPLEMENTED)
NEVER = [(method, Never()) for method in ("ProfileService/Get", "ResourceAdviceService/List")]
"""Each costs a second."""


@pytest.mark.parametrize(
    ("method", "reply"),
    [*((method, reply) for method in CHECKS for reply in (cloud.FORBIDDEN, UNKNOWN)), *NEVER],
    ids=repr,
)
def test_a_question_without_an_answer_is_never_fine(doctor: Doctor, method: str, reply: Reply) -> None:
    found = doctor({method: reply}, limit=1 if isinstance(reply, Never) else 20)
    assert {item.state for item in found if item.check == CHECKS[method]} == {"unchecked"}
    reason = {Never: "no answer within 1 s"}.get(
        type(reply), "may not ask that" if reply is cloud.FORBIDDEN else "does not know this question"
    )
    assert reason in only(found, CHECKS[method]).message
    assert "change" not in {item.state for item in found}


def test_one_slow_service_does_not_hold_the_others_up(doctor: Doctor) -> None:
    """It answers when all others have been asked, and not before."""
    slow = "QuotaAllowanceService/List"
    waiting = set(cloud.good()) - {slow}
    all_asked = threading.Event()

    def asked(name: str, reply: Reply) -> Reply:
        def answer(request: object) -> Reply:
            waiting.discard(name)
            if not waiting:
                all_asked.set()
            return reply(request) if callable(reply) else reply

        return answer

    def answer_at_last(request: object) -> Reply:
        all_asked.wait(30)  # longer than the doctor waits for an answer
        return cloud.quota_reply()(request)

    found = doctor({name: asked(name, reply) for name, reply in cloud.good().items()} | {slow: answer_at_last})
    assert {item.state for item in found} == {"fine"}, found


class SilentAboutQuotas:
    """A cloud that says the same to every question at once, but never what the quotas are."""

    said = Unanswered(reason="said at once")

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def answer(*_: object) -> object:
            if name == "quotas":
                await asyncio.sleep(5)  # longer than no time at all
            return Project(name="p", tenant="t", region="r", state="ACTIVE") if name == "project" else self.said

        return answer


def test_at_the_limit_a_silent_service_is_given_up_and_what_others_said_is_kept() -> None:
    config = load_config(cloud.stack())
    assert isinstance(config.cloud, NebiusCloud)
    silent = SilentAboutQuotas()
    interview = Interview(cast(Cloud, silent), limit=0, tell=lambda *_: None)
    found = asyncio.run(interview.run(config, config.cloud, needs(config)))
    assert found.tenant_quotas == found.project_quotas
    assert found.project_quotas == Unanswered(reason="no answer within 0 s in all", code="DEADLINE_EXCEEDED")
    others: list[Any] = [found.identity, found.present, found.versions, found.platforms, *found.images.values()]
    others += [found.subnet, found.taken, found.blocks, found.advice]
    assert others == [silent.said] * len(others)


def test_a_question_that_takes_too_long_is_given_up_before_the_limit_for_all(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.doctor.cloud.ask.Cloud.__init__.__kwdefaults__", {"call_timeout": 1.0})
    found = doctor({"SubnetService/Get": Never()}, limit=CALL_TIMEOUT_S - 1)
    assert "did not answer in time" in only(found, "subnet").message


def test_a_passing_fault_is_tried_again(doctor: Doctor) -> None:
    tries: list[object] = []

    def reply(request: object) -> Reply:
        tries.append(request)
        return Fails(code=StatusCode.UNAVAILABLE) if len(tries) == 1 else cloud.project()

    assert only(doctor({"ProjectService/Get": reply}), "project").state == "fine"
    assert len(tries) == 2
