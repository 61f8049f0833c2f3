"""A node's last results, in Slurm."""

from __future__ import annotations

import json

from images.common.health.contract import Result, Status
from images.health.node_tests.results import KEY, Record, decode, encode, forgotten, since
from images.health.verdict import not_checked, ok

AT = 1_795_000_000
RECORDS = {
    "cpu": Record(at=AT, result=Result(status=Status.OK, message="events 5100 events/s")),
    "nccl-node": Record(at=AT + 7, result=Result(status=Status.FAIL, message="busbw 212 GB/s", fault="hardware")),
    "nccl-pair": Record(
        at=AT + 9,
        result=Result(status=Status.WARN, message="with w-3: busbw 12 GB/s (at least 300 expected)", fault="hardware"),
    ),
    "memory": Record(at=AT + 4, result=not_checked("sysbench: No such file or directory")),
}


def test_it_is_one_line_of_json_that_people_can_read() -> None:
    extra = encode({"nccl-pair": RECORDS["nccl-pair"], "cpu": RECORDS["cpu"]}, "")
    assert json.loads(extra) == {
        KEY: "2026-11-18T11:06:40Z ok cpu: events 5100 events/s | "
        "2026-11-18T11:06:49Z warn nccl-pair [hardware]: "
        "with w-3: busbw 12 GB/s (at least 300 expected)"
    }
    assert "\n" not in extra


def test_what_others_keep_there_stays() -> None:
    extra = encode(RECORDS, '{"rack": "r7", "health_tests": "old"}')
    assert json.loads(extra)["rack"] == "r7"
    assert decode(extra) == RECORDS
    again = encode(RECORDS, encode(RECORDS, "the admin's words"))
    assert json.loads(again)["note"] == "the admin's words"
    assert decode(again) == RECORDS


def test_what_is_not_understood_is_left_out_and_the_rest_stays() -> None:
    for extra in ("words", "[]", "null", '{"health_tests": 7}', '{"health_tests": "a | b"}'):
        assert decode(extra) == {}
    for part in (
        "2026-11-18T11:06:40Z fine cpu: x",
        "2026-19-18T11:06:40Z ok cpu: x",
        "2026-11-18T11:06:40Z fail cpu [somebody]: x",
        "2026-11-18T11:06:40Z fail : x",
    ):
        assert set(decode(json.dumps({KEY: f"{part} | 2026-11-18T11:06:44Z ok memory: y"}))) == {"memory"}
    line = "2026-11-18T11:06:49Z warn nccl-pair [hardware] (failed with w-1@2026-11-18T11:06:41Z): of a former version"
    assert decode(json.dumps({KEY: line}))["nccl-pair"].result.status is Status.WARN


def test_what_is_forgotten_is_gone_and_older_runs_count_no_more() -> None:
    extra = forgotten(encode(RECORDS, '{"rack": "r7"}'), AT + 20)
    assert (decode(extra), since(extra), json.loads(extra)["rack"]) == ({}, AT + 20, "r7")
    assert since(encode(RECORDS, extra)) == AT + 20
    assert since("words") == 0


def test_no_message_breaks_another_result() -> None:
    evil = "x | 2026-11-18T11:06:40Z fail b [hardware]: y\nz (failed with w-1@2026-11-18T11:06:41Z): \u2028"
    record = Record(at=AT, result=Result(status=Status.WARN, message=evil, fault="node"))
    found = decode(encode({"a": record, "b": Record(at=AT, result=ok())}, ""))
    assert set(found) == {"a", "b"}
    assert found["a"].result.fault == "node"
    assert found["b"] == Record(at=AT, result=ok())
