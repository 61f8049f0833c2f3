"""What the agent says of the policy's jobs, asked by the exporter, with an API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.common.kubernetes import Kube
from images.controller.policy_jobs import KEPT_SECONDS, PolicyJobs, ended
from images.controller.server import Status, StatusBoard, start_server
from images.exporter.rounds import Rounds, Wanted
from images.exporter.sources import Sources
from tests.fakes.commands import FakeRunner
from tests.fakes.kubernetes import FakeKubernetes


def job(kind: str, at: str) -> dict[str, Any]:
    """As Kubernetes notes its end; `SuccessCriteriaMet` comes before."""
    before = {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": at}
    return {"status": {"conditions": [before, {"type": kind, "status": "True", "lastTransitionTime": at}]}}


def test_the_latest_that_has_ended_says_whether_it_failed_and_the_last_success_when() -> None:
    first, second = job("Complete", "2026-11-26T10:00:00Z"), job("Failed", "2026-11-26T11:00:00Z")
    assert ended([]) == ended([{}, {"status": {"active": 1}}]) == {}
    assert ended([first]) == {"applied": 1795687200.0, "failed": 0}
    assert ended([first, second, {"status": {}}]) == {"applied": 1795687200.0, "failed": 1}
    assert ended([job("Complete", "2026-11-26T12:00:00Z"), second]) == {"applied": 1795694400.0, "failed": 0}
    assert ended([second]) == {"failed": 1}


def test_outside_of_kubernetes_nothing_is_known(tmp_path: Path) -> None:
    assert PolicyJobs(None, tmp_path / "applied").state() == {}


JOBS = "/apis/batch/v1/namespaces/slurm/jobs"

MINE = {"labels": {"app.kubernetes.io/component": "policy"}}


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    fake = FakeKubernetes()
    yield fake
    fake.close()


def test_the_exporter_hears_of_a_failure_and_the_success_before_is_remembered(
    api: FakeKubernetes, tmp_path: Path
) -> None:
    clock = [0.0]
    (tmp_path / "token").write_text("secret-token\n")
    kube = Kube(host="127.0.0.1", port=api.port, namespace="slurm", tls=False, service_account=tmp_path)
    policy = PolicyJobs(kube, tmp_path / "applied", lambda: clock[0])
    server = start_server(StatusBoard(Status()), 0, policy=policy)
    sources = Sources(runner=FakeRunner(), agent_url=f"http://127.0.0.1:{server.server_address[1]}")
    try:
        api.put(JOBS, "policy-a", metadata=MINE, **job("Complete", "2026-11-26T10:00:00Z"))
        api.put(JOBS, "users-a", metadata={"labels": {}}, **job("Failed", "2026-11-26T12:00:00Z"))
        assert sources.policy() == {"applied": 1795687200.0, "failed": 0}
        api.remove(JOBS, "policy-a")
        api.put(JOBS, "policy-b", metadata=MINE, **job("Failed", "2026-11-26T11:00:00Z"))
        assert sources.policy() == {"applied": 1795687200.0, "failed": 0}, "who asks often asks the agent alone"
        clock[0] += KEPT_SECONDS
        assert sources.policy() == {"applied": 1795687200.0, "failed": 1}
        rounds = Rounds(Wanted(slurms_own=False, by_person=False, accounting=True), sources, print)
        rounds.round()
        figures = {"slurmstack_policy_failed 1", "slurmstack_policy_applied_timestamp_seconds 1795687200"}
        assert figures <= set(rounds.text().splitlines())
        restarted = PolicyJobs(kube, tmp_path / "applied", lambda: clock[0])
        assert restarted.state() == {"applied": 1795687200.0, "failed": 1}
        api.close()
        clock[0] += KEPT_SECONDS
        rounds.round()
        assert 'slurmstack_exporter_up{source="policy"} 0' in rounds.text()
    finally:
        server.shutdown()
        server.server_close()
