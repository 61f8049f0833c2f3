"""What is answered at the port of jobs' figures; those themselves: tests/machine/test_usage.py."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from images.worker.job_metrics import answer


def test_a_node_without_cgroups_tells_of_its_health_alone(tmp_path: Path) -> None:
    assert answer("default-0", "/metrics", tmp_path / "metrics.prom").text == ""
    (tmp_path / "metrics.prom").write_text("slurmstack_health_last_run_timestamp_seconds 1\n")
    assert answer("default-0", "/metrics", tmp_path / "metrics.prom").text.endswith("_seconds 1\n")
    assert answer("default-0", "/", tmp_path / "metrics.prom").status == HTTPStatus.NOT_FOUND
