"""Workers tell what their jobs use if monitoring is on, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.values import reveal
from images.worker.job_metrics import PORT
from slurm.names import JOB_METRICS_PORT
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change


def template(monitoring: dict[str, Any]) -> dict[str, Any]:
    """The pods of a pool."""
    recording = record(with_change(stacks.existing(), "monitoring", monitoring), stack="prod")
    (found,) = [item for item in recording if item.name == "slurm-pool-cpu-pods"]
    return dict(reveal(found.inputs)["spec"]["template"])


@pytest.mark.parametrize("how", ["enabled", "install"])
def test_workers_serve_figures_of_jobs_where_prometheus_looks_for_them(how: str) -> None:
    pod = template({how: True})
    (slurmd,) = pod["spec"]["containers"]
    assert {"name": "JOB_METRICS", "value": "yes"} in slurmd["env"]
    assert {"name": "job-metrics", "containerPort": PORT} in slurmd["ports"]
    annotations = pod["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "true"
    assert annotations["prometheus.io/port"] == str(JOB_METRICS_PORT)
    assert annotations["prometheus.io/path"] == "/metrics"


def test_without_monitoring_nothing_is_served() -> None:
    pod = template({})
    (slurmd,) = pod["spec"]["containers"]
    assert "JOB_METRICS" not in {one["name"] for one in slurmd["env"]}
    assert [one["name"] for one in slurmd["ports"]] == ["slurmd"]
    assert not any(name.startswith("prometheus.io/") for name in pod["metadata"].get("annotations") or {})
