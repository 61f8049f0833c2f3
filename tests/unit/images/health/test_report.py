"""A node's results in the Comment of its Slurm record."""

from __future__ import annotations

from images.common.health.contract import FaultClass, Result, Status
from images.common.health.report import Report, changes, decode, encode, gists, note_of
from images.health.verdict import not_checked, ok

AT = 1795298103  # 2026-11-21T21:55:03Z
LINE = (
    "health 2026-11-21T21:55:03Z | ok: clock disks dns | fail gpu-xid [hardware]: GPU 3: Xid 79, GPU has fallen off "
    "the bus | warn filesystem [node]: /jail: 1.2 s | not checked infiniband: ibstat did not end in 5 s"
)
RESULTS = {
    "infiniband": not_checked("ibstat did not end in 5 s"),
    "dns": ok(dns_seconds=0.1),
    "clock": ok(),
    "gpu-xid": Result(status=Status.FAIL, fault="hardware", message="GPU 3: Xid 79, GPU has fallen off the bus"),
    "filesystem": Result(status=Status.WARN, fault="node", message="/jail: 1.2 s"),
    "disks": ok(),
}


def fail(message: str, fault: FaultClass | None = "node") -> Result:
    return Result(status=Status.FAIL, fault=fault, message=message)


def test_the_line_is_what_people_and_the_watcher_read() -> None:
    assert encode(Report(at=AT, results=RESULTS)) == LINE
    report = decode(LINE)
    assert report is not None
    assert report.at == AT
    assert report.results == {**RESULTS, "dns": ok()}


def test_a_message_that_imitates_the_line_is_only_a_message() -> None:
    evil = fail("x | ok: gpu-xid || note\nhealth 2030-01-01T00:00:00Z | ok: disks")
    report = decode(encode(Report(at=AT, results={"disks": evil, "gpu-xid": fail("y", "hardware")})))
    assert report is not None
    assert report.at == AT
    assert {name: found.status for name, found in report.results.items()} == {
        "disks": Status.FAIL,
        "gpu-xid": Status.FAIL,
    }
    assert report.note == ""


def test_a_long_message_is_shortened_and_an_administrators_comment_stays_behind_the_report() -> None:
    line = encode(Report(at=AT, results={"disks": fail("x\n" * 5000)}, note="fan replaced || ask Anna"))
    report = decode(line)
    assert report is not None
    assert len(report.results["disks"].message) == 240
    assert report.note == note_of(line) == "fan replaced || ask Anna"
    assert "\n" not in line


def test_a_comment_that_is_not_ours_is_no_report_and_wholly_the_administrators() -> None:
    for comment in ("", "health of this node is poor", "health 2026-02-30T00:00:00Z | ok: disks", "ok: disks"):
        assert decode(comment) is None
        assert note_of(comment) == comment


def test_what_is_not_understood_says_nothing_about_any_check() -> None:
    for part in ("fail", "fail disks [hardw", "fail disks [cosmic]: rays", "failed disks [node]: full", "ok:", "|||"):
        report = decode(f"health 2026-11-21T21:55:03Z | {part} | ok: clock")
        assert report is not None
        assert set(report.results) <= {"clock"}


def test_anything_but_a_figure_that_moves_is_a_change() -> None:
    before = gists({"disks": fail("/jail 97.1 % used")})
    assert before == gists({"disks": fail("/jail 98 % used")})
    for after in (ok(), fail("/jail 97 % used", "hardware"), fail("/jail 97 % used; / 99 % used")):
        assert before != gists({"disks": after})
    assert before != gists({"disks": fail("/jail 97 % used"), "dns": ok()})


def test_the_log_tells_what_became_bad_and_what_became_well_and_nothing_twice() -> None:
    old = {"disks": ok(), "dns": fail("no answer"), "clock": ok(), "munge": fail("refused 3 times")}
    new = {"disks": fail("/ 99 % used"), "dns": ok(), "clock": ok(), "munge": fail("refused 4 times"), "memory": ok()}
    assert changes(gists(old), new) == ["fail disks [node]: / 99 % used", "ok dns: it was fail"]
