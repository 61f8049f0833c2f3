"""What is seen of pools: how pods are read, which window is on, and who stays in a pool."""

from __future__ import annotations

import json
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from config.sections.machines import days_of, minutes_of
from images.common.command import Result
from images.elastic.decide import LEAVES
from images.elastic.nodes import Nodes
from images.elastic.view import SETTINGS, Node, Pool, Window, members, pod_of, pool_of, pools_read, share
from tests.fakes.commands import FakeRunner

BERLIN = ZoneInfo("Europe/Berlin")


def window(days: str, hours: str) -> Window:
    begin, end = minutes_of(hours)
    return Window(name=hours, days=frozenset(days_of(days)), begin=begin, end=end, least=4, most=8)


def is_on(one: Window, zone: tzinfo, now: float) -> bool:
    pool = Pool(name="gpu", least=0, most=9, conf="CPUs=2", windows=(one,), zone=zone).at(now)
    return (pool.least, pool.limit, pool.window) == (4, 8, f"{one.name} {zone}")


@pytest.mark.parametrize(
    ("days", "hours", "on"),
    [("mon-fri", "08:00-19:00", 5 * 660), ("sun", "22:00-06:00", 480), ("fri-mon", "00:00-24:00", 4 * 1440)],
)
def test_it_is_on_for_as_many_minutes_of_a_week_as_it_says(days: str, hours: str, on: int) -> None:
    monday = datetime(2026, 11, 23, tzinfo=UTC).timestamp()
    one = window(days, hours)
    assert sum(is_on(one, UTC, monday + 60 * minute + 59) for minute in range(7 * 1440)) == on


def test_in_the_hour_that_a_clock_repeats_a_window_is_on_twice() -> None:
    one, midnight = window("sun", "02:00-03:00"), datetime(2026, 10, 25, tzinfo=BERLIN).timestamp()
    assert [hour for hour in range(12) if is_on(one, BERLIN, midnight + 3600 * hour)] == [2, 3]


def test_why_a_pod_is_not_ready_is_what_kubernetes_says_of_it() -> None:
    def trouble(**status: object) -> str:
        return pod_of({"metadata": {"name": "gpu-0"}, "status": status}).trouble

    waits = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such\nimage"}}}
    starts = {"state": {"waiting": {"reason": "PodInitializing"}}}
    no_machine = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    assert trouble(initContainerStatuses=[waits], containerStatuses=[starts]) == "ImagePullBackOff: no such image"
    assert trouble(conditions=[no_machine]) == "Unschedulable: 0/2 nodes"
    assert trouble(phase="Failed", reason="OutOfcpu") == "OutOfcpu"
    assert trouble(containerStatuses=[{"state": {"running": {}}}]) == ""


def template(**more: object) -> dict[str, Any]:
    said = {"min": 1, "max": 9, "conf": "CPUs=2", "windows": [ALWAYS], **more}
    return {"metadata": {"name": "gpu", "annotations": {SETTINGS: json.dumps(said)}}, "template": {}}


ALWAYS = {"name": "always", "days": [*range(7)], "begin": 0, "end": 1440, "min": 4, "max": 8}


def test_in_a_zone_that_the_image_lacks_windows_are_not_obeyed() -> None:
    there, lacking = (pool_of(template(timezone=zone)) for zone in ("Europe/Berlin", "Mars/Olympus"))
    assert there is not None
    assert lacking is not None
    assert (there.at(0.0).least, lacking.at(0.0).least) == (4, 1)


def test_what_is_not_understood_any_more_keeps_its_old_value_and_what_never_was_stops_all() -> None:
    """As without its settings its nodes would be sent off."""
    log = list[str]()
    read = pools_read(log.append)
    with pytest.raises(ValueError, match="invalid literal"):
        read(template(max="many"))
    good = read(template())
    assert good is not None
    assert read(template(max="many")) == good
    assert len(log) == 1
    assert (share("a few", 40), share("11%", 40), share("3", 40)) == (1, 5, 3)


def test_records_of_an_administrator_are_not_seen() -> None:
    records = [{"name": name, "state": ["IDLE", "CLOUD"]} for name in ("Own1", "gpu-a", "gpu_0", "gpu-0")]
    runner = FakeRunner({"scontrol show nodes": Result(code=0, stdout=json.dumps({"nodes": records}))})
    assert Nodes(print, runner).read().keys() == {"gpu-0"}


POOL = Pool(name="gpu", least=0, most=3, conf="CPUs=2")
OFF = "IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN"
UP = "IDLE+CLOUD+DYNAMIC_NORM"
BUSY = "MIXED+CLOUD+DYNAMIC_NORM"
COMING = f"{BUSY}+NOT_RESPONDING+POWERING_UP"
LEAVING = f"{BUSY}+DRAIN+POWER_DOWN"


def nodes(*states: str) -> dict[str, Node]:
    names = [f"gpu-{number}" for number in range(len(states))]
    there = zip(names, states, strict=True)
    return {
        name: Node(name=name, states=frozenset(text.split("+")), reason=LEAVES if "POWER_DOWN" in text else "works")
        for name, text in there
        if text
    }


def test_who_is_idle_leaves_first_and_then_whose_jobs_end_soonest() -> None:
    ends = {"gpu-0": 900.0, "gpu-1": 100.0, "gpu-2": 800.0, "gpu-3": 300.0}  # gpu-4: without a limit
    for there, stay in [
        (["", "", ""], [0, 1, 2]),
        ([OFF, UP, OFF, BUSY, UP], [1, 3, 4]),
        ([UP, UP, UP, COMING], [0, 1, 3]),
        ([UP, UP, UP, "ALLOCATED+CLOUD+DYNAMIC_NORM+POWERED_DOWN"], [0, 1, 3]),  # Slurm is about to start it for a job
        ([f"{OFF}+DRAIN", BUSY, BUSY, BUSY], [1, 2, 3]),  # it stays drained, and takes no place of who has a job
        ([UP, UP, f"{UP}+DRAIN", BUSY], [0, 2, 3]),  # and one that is up would lose it
        ([LEAVING, BUSY, BUSY, BUSY], [1, 2, 3]),
        (["DOWN+CLOUD+DYNAMIC_NORM", BUSY, BUSY, BUSY], [1, 2, 3]),
        (["IDLE+DYNAMIC_NORM", OFF, OFF, BUSY], [0, 1, 3]),  # of the StatefulSet that the pool was
        ([BUSY, BUSY, BUSY, BUSY, BUSY], [0, 2, 4]),
    ]:
        assert members(POOL, nodes(*there), ends) == tuple(f"gpu-{number}" for number in stay), there


def test_nodes_of_a_pool_whose_name_begins_alike_are_none_of_it() -> None:
    there = {"gpu-big-7": Node(name="gpu-big-7", states=frozenset({"MIXED", "CLOUD"}))}
    assert members(POOL, there, {}) == POOL.nodes()


def test_where_there_is_a_switch_tree_a_new_node_is_in_no_partition_before_it_is_in_the_tree() -> None:
    pool = Pool(name="gpu", least=0, most=2, conf="CPUs=2 Feature=gpu,a Weight=7")
    runner = FakeRunner({"scontrol show config": Result(code=0, stdout="TopologyPlugin          = topology/tree\n")})
    asked = Nodes(print, runner)
    asked.create(pool, pool.nodes())
    asked.place(pool, pool.nodes())
    assert runner.commands[2:] == [
        "scontrol create nodename=gpu-[0-1] state=CLOUD CPUs=2 Weight=7",
        f'scontrol update nodename=gpu-[0-1] state=power_down_force extra={{"elastic": "{pool.mark}"}}',
        "scontrol update nodename=gpu-[0-1] state=drain reason=slurmstack:waiting-for-topology features=gpu,a",
    ]
    runner.answers, runner.commands = {}, []
    asked.create(pool, pool.nodes())
    assert "Feature=gpu,a" in runner.commands[2]
