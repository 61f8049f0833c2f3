"""What the agent says of the policy's jobs, asked by the exporter, with an API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from images.controller.policy_jobs import PolicyJobs, ended


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
