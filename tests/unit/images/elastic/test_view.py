"""What is seen of pools: how pods are read, which window is on, and who stays in a pool."""

from __future__ import annotations

import json
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from config.sections.machines import days_of, minutes_of
from images.common.command import Result
from images.elastic.nodes import Nodes
from images.elastic.view import SETTINGS, Pool, Window, pod_of, pools_read, share
from tests.fakes.commands import FakeRunner

BERLIN = ZoneInfo("Europe/Berlin")


def window(days: str, hours: str) -> Window:
    begin, end = minutes_of(hours)
    return Window(days=frozenset(days_of(days)), begin=begin, end=end, least=4)


def is_on(one: Window, zone: tzinfo, now: float) -> bool:
    return Pool(name="gpu", least=0, most=9, conf="CPUs=2", windows=(one,), zone=zone).at(now).least == 4


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


def test_a_pod_leaves_since_it_was_told_to_and_not_from_when_its_time_is_over() -> None:
    leaving = {"deletionTimestamp": "2027-01-22T08:00:00Z", "deletionGracePeriodSeconds": 7 * 86_400}
    assert pod_of({"metadata": {"name": "gpu-0", **leaving}}).left_at == 1_800_000_000.0


def template(**more: object) -> dict[str, Any]:
    said = {"min": 1, "max": 9, "conf": "CPUs=2", "windows": [ALWAYS], **more}
    return {"metadata": {"name": "gpu", "annotations": {SETTINGS: json.dumps(said)}}, "template": {}}


ALWAYS = {"days": [*range(7)], "begin": 0, "end": 1440, "min": 4}


def test_what_is_not_understood_any_more_keeps_its_old_value_and_what_never_was_is_known_as_such() -> None:
    """As without its settings its nodes would be sent off."""
    log = list[str]()
    read = pools_read(log.append)
    for _ in range(2):
        new = read(template(timezone="Mars/Olympus"))
        assert new is not None
        assert not new.is_understood
    assert len(log) == 1, "told once"
    log.clear()
    good = read(template())
    assert good is not None
    assert read(template(max="many")) == good
    assert read(template(timezone="Mars/Olympus")) == good
    assert len(log) == 2
    assert (share("a few", 40), share("11%", 40), share("3", 40)) == (1, 5, 3)


def test_records_of_an_administrator_are_not_seen() -> None:
    records = [{"name": name, "state": ["IDLE", "CLOUD"]} for name in ("Own1", "gpu-a", "gpu_0", "gpu-0")]
    runner = FakeRunner({"scontrol show nodes": Result(code=0, stdout=json.dumps({"nodes": records}))})
    assert Nodes(print, runner).read().keys() == {"gpu-0"}
