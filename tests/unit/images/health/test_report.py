"""A node's results in the Comment of its Slurm record."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.health.contract import FaultClass, Result, Status
from images.health.report import Report, changes, decode, encode, gists, note_of, one_line
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


def test_what_was_written_is_read_back_without_the_figures() -> None:
    report = decode(LINE)
    assert report is not None
    assert report.at == AT
    assert report.results == {**RESULTS, "dns": ok()}


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
        st.builds(
            Result,
            status=st.sampled_from([Status.FAIL, Status.WARN, Status.NOT_CHECKED]),
            message=st.text(max_size=300),
            fault=st.none(),
        ),
        max_size=4,
    ),
    st.integers(min_value=0, max_value=4_000_000_000),
)
def test_any_message_survives_as_one_line_and_never_looks_like_another_check(
    results: dict[str, Result], at: int
) -> None:
    line = encode(Report(at=at, results=results, note="RMA 17"))
    report = decode(line)
    assert "\n" not in line
    assert report is not None
    assert report.note == "RMA 17"
    assert {name: (found.status, found.message) for name, found in report.results.items()} == {
        name: (given.status, one_line(given.message)) for name, given in results.items()
    }
    assert report.at == at


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


def test_a_long_message_is_shortened_so_that_the_record_stays_small() -> None:
    report = decode(encode(Report(at=AT, results={"disks": fail("x" * 5000)})))
    assert report is not None
    assert len(report.results["disks"].message) == 240
    assert report.results["disks"].message.endswith("...")


def test_an_administrators_comment_stays_behind_the_report() -> None:
    line = encode(Report(at=AT, results={"disks": ok()}, note="fan replaced || ask Anna"))
    assert line == "health 2026-11-21T21:55:03Z | ok: disks || fan replaced || ask Anna"
    assert note_of(line) == "fan replaced || ask Anna"


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "RMA 4711",
        "health of this node is poor",
        "health 2026-13-01T00:00:00Z | ok: disks",
        "health 2026-02-30T00:00:00Z | ok: disks",
        "ok: disks",
    ],
)
def test_a_comment_that_is_not_ours_is_no_report_and_wholly_the_administrators(comment: str) -> None:
    assert decode(comment) is None
    assert note_of(comment) == comment


@pytest.mark.parametrize(
    "part",
    [
        "fail",
        "fail disks",
        "fail disks [hardw",
        "fail disks [cosmic]: rays",
        "failed disks [node]: full",
        "okay: disks",
        "ok:",
        "not checked",
        "|||",
    ],
)
def test_what_is_not_understood_says_nothing_about_any_check(part: str) -> None:
    report = decode(f"health 2026-11-21T21:55:03Z | {part} | ok: clock")
    assert report is not None
    assert set(report.results) <= {"clock"}


def test_a_figure_that_moves_is_no_change() -> None:
    assert gists({"disks": fail("/jail 97.1 % used")}) == gists({"disks": fail("/jail 98 % used")})


@pytest.mark.parametrize(
    "after",
    [
        {"disks": ok()},
        {"disks": Result(status=Status.WARN, fault="node", message="/jail 97 % used")},
        {"disks": fail("/jail 97 % used", "hardware")},
        {"disks": fail("/jail 97 % used; / 99 % used")},
        {"disks": fail("/jail 97 % used"), "dns": ok()},
        {},
    ],
)
def test_anything_else_is_a_change(after: dict[str, Result]) -> None:
    assert gists({"disks": fail("/jail 97 % used")}) != gists(after)


def test_the_log_tells_what_became_bad_and_what_became_well_and_nothing_twice() -> None:
    old = {"disks": ok(), "dns": fail("no answer"), "clock": ok(), "munge": fail("refused 3 times")}
    new = {"disks": fail("/ 99 % used"), "dns": ok(), "clock": ok(), "munge": fail("refused 4 times"), "memory": ok()}
    assert changes(gists(old), new) == ["fail disks [node]: / 99 % used", "ok dns: it was fail"]
