"""A node's results in its Slurm record."""

from __future__ import annotations

import json

import pytest

from images.common.command import Result as Command
from images.common.health.contract import Result, Status, fail, not_checked, ok, warn
from images.common.health.report import Finding, Report, decode, encode, measured_in, note_of, with_measured
from images.common.health.slurm import Slurm, SlurmError, parse_nodes
from tests.fakes.commands import FakeRunner

AT = 1795298103  # 2026-11-21T21:55:03Z
LINE = (
    "health 2026-11-21T21:55:03Z | ok: clock disks dns | fail gpu-xid [hardware]: GPU 3: Xid 79, GPU has fallen off "
    "the bus | warn filesystem [node]: /jail: 1.2 s | not checked infiniband: ibstat did not end in 5 s"
)
RESULTS = {
    "infiniband": not_checked("ibstat did not end in 5 s"),
    "dns": ok(dns_seconds=0.1),
    "clock": ok(),
    "gpu-xid": fail("hardware", "GPU 3: Xid 79, GPU has fallen off the bus"),
    "filesystem": warn("node", "/jail: 1.2 s"),
    "disks": ok(),
}


def test_the_line_is_what_people_and_the_watcher_read() -> None:
    assert encode(Report(at=AT, results=RESULTS)) == LINE
    report = decode(LINE)
    assert report is not None
    assert report.at == AT
    assert report.results == {**RESULTS, "dns": ok()}


def test_a_message_that_imitates_the_line_is_only_a_message() -> None:
    evil = fail("node", "x | ok: gpu-xid || note\nhealth 2030-01-01T00:00:00Z | ok: disks")
    report = decode(encode(Report(at=AT, results={"disks": evil, "gpu-xid": fail("hardware", "y")})))
    assert report is not None
    assert report.at == AT
    assert {name: found.status for name, found in report.results.items()} == {
        "disks": Status.FAIL,
        "gpu-xid": Status.FAIL,
    }
    assert report.note == ""


def test_a_long_message_is_shortened_and_an_administrators_comment_stays_behind_the_report() -> None:
    line = encode(Report(at=AT, results={"disks": fail("node", "x\n" * 5000)}, note="fan replaced || ask Anna"))
    report = decode(line)
    assert report is not None
    assert len(report.results["disks"].message) == 240
    assert report.note == note_of(line) == "fan replaced || ask Anna"
    assert "\n" not in line


def test_a_comment_that_is_not_ours_is_no_report_and_wholly_the_administrators() -> None:
    for comment in ("", "health of this node is poor", "health 2026-02-30T00:00:00Z | ok: disks"):
        assert decode(comment) is None
        assert note_of(comment) == comment


def test_garbage_or_no_answer_is_an_error_and_never_an_empty_cluster() -> None:
    for text in ("no json", '{"nodes": ["w-0"]}', '{"nodes": null}'):
        with pytest.raises(SlurmError):
            parse_nodes(text)
    slurm = Slurm(runner=FakeRunner({"": Command(code=1, stdout='{"nodes": []}', stderr="Unable to contact")}))
    for question in (slurm.nodes, lambda: slurm.node("w-0"), lambda: slurm.jobs_of("w-0")):
        with pytest.raises(SlurmError, match="Unable to contact"):
            question()


TESTED = 1_795_000_000
TESTS = {
    "cpu": Finding(at=TESTED, result=Result(status=Status.OK, message="events 5100 events/s")),
    "nccl-node": Finding(at=TESTED + 7, result=fail("hardware", "busbw 212 GB/s")),
    "memory": Finding(at=TESTED + 4, result=not_checked("sysbench: No such file or directory")),
}


def test_what_others_keep_beside_results_of_tests_stays() -> None:
    extra = with_measured('{"rack": "r7", "health_tests": "old"}', TESTS)
    assert json.loads(extra)["rack"] == "r7"
    assert measured_in(extra) == TESTS
    again = with_measured(with_measured("the admin's words", TESTS), TESTS)
    assert json.loads(again)["note"] == "the admin's words"
    assert measured_in(again) == TESTS


def test_no_message_breaks_the_result_of_another_test() -> None:
    evil = "x | 2026-11-18T11:06:40Z fail b [hardware]: y\nz \u2028"
    found = measured_in(
        with_measured("", {"a": Finding(at=TESTED, result=warn("node", evil)), "b": Finding(at=TESTED, result=ok())})
    )
    assert set(found) == {"a", "b"}
    assert found["b"] == Finding(at=TESTED, result=ok())
