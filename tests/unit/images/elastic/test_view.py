"""What is seen of pools: how pods are read, and who stays in a pool."""

from __future__ import annotations

import json
from typing import Any

from images.common.command import Result
from images.elastic.nodes import SETTINGS, TEMPLATE, Nodes, pod_of, pool_of, share
from tests.fakes.commands import FakeRunner


def test_why_a_pod_is_not_ready_is_what_kubernetes_says_of_it() -> None:
    def trouble(**status: object) -> str:
        return pod_of({"metadata": {"name": "gpu-0"}, "status": status}).trouble

    waits = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such\nimage"}}}
    starts = {"state": {"waiting": {"reason": "PodInitializing"}}}
    no_machine = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    assert trouble(initContainerStatuses=[waits], containerStatuses=[starts]) == "ImagePullBackOff: no such image"
    assert trouble(conditions=[no_machine]) == "Unschedulable: 0/2 nodes"
    assert trouble(phase="Failed", reason="OutOfcpu") == "OutOfcpu"
    assert trouble(containerStatuses=[{"state": {"running": {}}}]) == "its slurmd has not registered"


def test_a_pod_leaves_since_it_was_told_to_and_not_from_when_its_time_is_over() -> None:
    leaving = {"deletionTimestamp": "2027-01-22T08:00:00Z", "deletionGracePeriodSeconds": 7 * 86_400}
    pod = pod_of({"metadata": {"name": "gpu-0", **leaving}})
    assert (pod.left_at, pod.trouble) == (1_800_000_000.0, "it does not go")


def template(**more: object) -> dict[str, Any]:
    said = {"min": 1, "max": 9, "conf": "CPUs=2", "mark": "now", **more}
    annotations = {SETTINGS: json.dumps(said), TEMPLATE: "0123"}
    return {"metadata": {"name": "gpu", "annotations": annotations}, "template": {}}


def test_a_pool_that_is_not_understood_is_known_as_such() -> None:
    """As without its settings its nodes would be sent off."""
    log = list[str]()
    known = pool_of(template(), log.append)
    assert known is not None
    bare = {"metadata": {"name": "gpu"}, "template": {}}
    assert [pool_of(bad, log.append) for bad in (template(min="few"), bare)] == [None, None]
    assert len(log) == 2
    newer = {**template(), "template": {"a default of a newer Kubernetes": 1}}
    assert pool_of(newer) == known, "no node is made anew for it"
    assert (share("a few", 40), share("11%", 40), share("3", 40)) == (1, 5, 3)


def test_records_of_an_administrator_are_not_seen() -> None:
    records = [{"name": name, "state": ["IDLE", "CLOUD"]} for name in ("Own1", "gpu-a", "gpu_0", "gpu-0")]
    runner = FakeRunner({"scontrol show nodes": Result(code=0, stdout=json.dumps({"nodes": records}))})
    assert Nodes(print, runner).read().keys() == {"gpu-0"}
