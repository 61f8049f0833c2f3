"""Results as text for Prometheus."""

from __future__ import annotations

from images.health.contract import Result, Status
from images.health.metrics import metrics
from images.health.runner import Outcome


def test_each_check_has_a_status_a_time_and_its_figures() -> None:
    values = {'disk_used_ratio{path="/jail"}': 0.5, 'disk_used_ratio{path="/"}': 1.0, "zombies": 3.0}
    text = metrics({"disks": Outcome(result=Result(status=Status.WARN, values=values), seconds=0.25)}, at=1795298103.7)
    assert text.splitlines() == [
        "# TYPE slurmstack_health_check_seconds gauge",
        'slurmstack_health_check_seconds{check="disks"} 0.25',
        "# TYPE slurmstack_health_check_status gauge",
        'slurmstack_health_check_status{check="disks",status="ok"} 0',
        'slurmstack_health_check_status{check="disks",status="warn"} 1',
        'slurmstack_health_check_status{check="disks",status="fail"} 0',
        'slurmstack_health_check_status{check="disks",status="not checked"} 0',
        "# TYPE slurmstack_health_disk_used_ratio gauge",
        'slurmstack_health_disk_used_ratio{path="/jail"} 0.5',
        'slurmstack_health_disk_used_ratio{path="/"} 1',
        "# TYPE slurmstack_health_last_run_timestamp_seconds gauge",
        "slurmstack_health_last_run_timestamp_seconds 1795298103",
        "# TYPE slurmstack_health_zombies gauge",
        "slurmstack_health_zombies 3",
    ]


def test_what_prometheus_would_refuse_is_left_out() -> None:
    odd = Result(status=Status.OK, values={"a b": 1.0, 'c{d="\n"}': 1.0, "nan": float("nan"), "inf": float("inf")})
    lines = metrics({"x": Outcome(result=odd)}, at=0).splitlines()
    assert "slurmstack_health_inf +Inf" in lines
    assert not [line for line in lines if "a b" in line or "c{" in line or "nan" in line]
