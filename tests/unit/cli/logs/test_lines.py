"""Lines of many in the order of time, and whether one names a node or a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cli.errors import Failure
from cli.logs.lines import Line, in_order, is_probe, names_job, nanoseconds, parse_log
from cli.text import parse_time

NOW = datetime(2026, 11, 25, 16, 30, tzinfo=UTC)


def line(time: str, text: str = "x") -> Line:
    at = nanoseconds(time)
    assert at is not None
    return Line(at=at, component="worker", place="a-0/slurmd", text=text)


def test_what_is_known_to_the_second_stands_at_its_end_and_says_no_milliseconds() -> None:
    whole, exact, later = line("2026-11-25T16:27:52Z"), line("2026-11-25T16:27:52.999Z"), line("2026-11-25T16:27:53.0Z")
    assert in_order([later, whole, exact]) == [exact, whole, later]
    assert (whole.time, exact.time) == ("2026-11-25T16:27:52Z", "2026-11-25T16:27:52.999Z")


def test_a_line_without_a_time_belongs_to_the_one_before_it() -> None:
    printed = "2026-11-25T16:27:52.5Z 10 %\r20 %\n30 %\n\n2026-11-25T16:27:53Z\n"
    found = parse_log(printed, "c", "p")
    assert [(each.time[17:], each.text) for each in found] == [
        ("52.500Z", "10 %\r20 %"), ("52.500Z", "30 %"), ("52.500Z", ""),
        ("53Z", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172_800), ("now-7days", 604_800), ("today", 59_400),
        ("2026-11-25T16:00", 1800), ("2026-11-25T16:29:59Z", 1), ("2026-11-25T16:29:59.500Z", 0.5),
    ],
)  # fmt: skip
def test_times_are_written_as_spans_as_slurm_has_them_and_as_the_lines_show_them(text: str, ago: float) -> None:
    assert parse_time(text, NOW) == NOW - timedelta(seconds=ago)


@pytest.mark.parametrize("text", ["yesterday", "1y", "999999999w", "2026-02-30T00:00:00Z"])
def test_what_is_no_time_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(Failure, match="write 30m, 1h or 2d"):
        parse_time(text, NOW)


def test_a_line_that_names_a_job_is_the_job_s_and_no_other_s() -> None:
    for text in (
        "_job_complete: JobId=1 WEXITSTATUS 0", "slurmd-a-0: Launching batch job 1 for UID 10001",
        "launch task StepId=1.0 request from UID:10001", "sched: Allocate JobId=1_3(7) NodeList=a-0",
        "health-epilog: job 1: removed 2 files", "[1.batch] done with step", "JobId=1_* held", "SLURM_JOB_ID=1",
        "error: *** JOB 1 ON a-0 CANCELLED AT 2026-11-25T16:27:51 ***", '{"job_id": 1, "user": 11}',
    ):  # fmt: skip
        assert names_job({"1"})(text), text
        assert not any(names_job({other})(text) for other in ("11", "0", "16", "10001", "2026")), text
    for text in ("JobId=11", "JobId=21", "job 1x", "step 11.1", "JobId=2 NodeList=a-1", "uid 1", "3_1", "1 jobs"):
        assert not names_job({"1"})(text), text


def test_a_task_of_an_array_is_found_by_its_own_number_too() -> None:
    matches = names_job({"5_3", "7"})
    assert matches("Allocate JobId=5_3(7) NodeList=a-0")
    assert matches("Launching batch job 7 for UID 10001")
    assert not matches("Allocate JobId=5_30(8)")
    assert not matches("Allocate JobId=5_4(5)")


@pytest.mark.parametrize(
    ("place", "text", "probe"),
    [
        ("login-0/sshd", "Connection closed by 10.197.64.1 port 54454", True),
        ("login-0/sshd", "Connection closed by authenticating user x 10.0.0.1 port 1 [preauth]", False),
        ("login-0/sackd", "Connection closed by 10.197.64.1 port 54454", False),
    ],
)
def test_what_is_left_out_is_only_what_sshd_writes_of_probes(place: str, text: str, probe: bool) -> None:
    assert is_probe(Line(at=0, component="login", place=place, text=text)) == probe
