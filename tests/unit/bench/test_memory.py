"""What `make bench PARTS=memory` reads of kubelet, without one."""

from __future__ import annotations

import time
from unittest.mock import MagicMock

import pytest

from tests.bench.memory import memory
from tests.bench.row import Measuring

PODS = {
    "controller-0": {"app.kubernetes.io/component": "controller"},
    "controller-1": {"app.kubernetes.io/component": "controller", "slurmstack/active": "yes"},
    "rest-a": {"app.kubernetes.io/component": "rest"},
    "rest-b": {"app.kubernetes.io/component": "rest"},
    "default-0": {"app.kubernetes.io/component": "worker"},
}
MIB = {
    ("controller-0", "slurmctld"): 10, ("controller-1", "slurmctld"): 30, ("controller-1", "munged"): 2,
    ("rest-a", "slurmrestd"): 9, ("rest-b", "slurmrestd"): 8, ("default-0", "slurmd"): 7,
}  # fmt: skip


def test_a_row_has_the_containers_of_the_largest_pod_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    lines = [
        f'container_memory_working_set_bytes{{container="{container}",namespace="{space}",pod="{pod}"}} {mib}e+06 1'
        for space, more in (("bench", 0), ("other", 90))
        for (pod, container), mib in ((key, value * 1.048576 + more) for key, value in MIB.items())
    ]
    cluster = MagicMock(namespace="bench", sections={})
    cluster.pods.return_value = {name: {"metadata": {"labels": labels}} for name, labels in PODS.items()}
    cluster.kubectl.items.return_value = [{"metadata": {"name": "node-0"}}]
    cluster.kubectl.run.return_value.stdout = "\n".join(lines)
    bench = Measuring(runs=1)
    memory(bench, cluster)
    assert cluster.sections["controller"] == {"replicas": 2}
    assert {row.name: (round(row.median), row.note) for row in bench.rows} == {
        "memory at rest: controller, active": (32, "slurmctld 30, munged 2"),
        "memory at rest: controller, standing by": (10, "slurmctld 10"),
        "memory at rest: rest": (9, "slurmrestd 9"),
    }
