"""Results as text for Prometheus."""

from __future__ import annotations

from images.common.health.contract import Result, Status
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
