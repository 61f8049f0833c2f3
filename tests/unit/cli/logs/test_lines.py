"""Lines of many in the order of time, and whether one names a node or a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.logs.lines import Line, in_order, names_job, names_node, nanoseconds, parse_log, when
from cli.logs.sources import is_probe
from cli.usage.times import TimeError

NOW = datetime(2026, 11, 25, 16, 30, tzinfo=UTC)


def line(time: str, text: str = "x") -> Line:
    at = nanoseconds(time)
    assert at is not None
    return Line(at=at, component="worker", place="a-0/slurmd", text=text)


def test_what_is_known_to_the_second_stands_at_its_end_and_says_no_milliseconds() -> None:
    whole, exact, later = line("2026-11-25T16:27:52Z"), line("2026-11-25T16:27:52.999Z"), line("2026-11-25T16:27:53.0Z")
    assert in_order([later, whole, exact]) == [exact, whole, later]
    assert (whole.time, exact.time) == ("2026-11-25T16:27:52Z", "2026-11-25T16:27:52.999Z")


def test_lines_of_one_moment_stay_as_they_were_written() -> None:
    printed = "".join(f"2026-11-25T16:27:52.5Z {number}\n" for number in range(20))
    assert [found.text for found in in_order(parse_log(printed, "c", "p"))] == [str(number) for number in range(20)]


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
        ("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172_800), ("now-7days", 604_800), ("now", 0),
        ("2026-11-25T16:00", 1800), ("2026-11-25T16:29:59Z", 1), ("2026-11-25T16:29:59.500Z", 0.5),
    ],
)  # fmt: skip
def test_times_are_written_as_spans_as_slurm_has_them_and_as_the_lines_show_them(text: str, ago: float) -> None:
    assert when(text, NOW) == NOW - timedelta(seconds=ago)


@pytest.mark.parametrize("text", ["yesterday", "1y", "999999999w", "2026-02-30T00:00:00Z"])
def test_what_is_no_time_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(TimeError, match="write 30m, 1h or 2d"):
        when(text, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "_job_complete: JobId=1 WEXITSTATUS 0",
        "slurmd-a-0: Launching batch job 1 for UID 10001",
        "launch task StepId=1.0 request from UID:10001",
        "sched: Allocate JobId=1_3(7) NodeList=a-0",
        "health-epilog: job 1: removed 2 files",
        "[1.batch] done with step",
        "error: *** JOB 1 ON a-0 CANCELLED AT 2026-11-25T16:27:51 ***",
        "launch task 1+0.0 (StepId=1.0) request",
        "JobId=1_* held",
        '{"job_id": 1, "user": 11}',
        "SLURM_JOB_ID=1",
    ],
)
def test_a_line_that_names_a_job_is_the_job_s_and_no_other_s(text: str) -> None:
    assert names_job({"1"})(text)
    for other in ("11", "0", "16", "10001", "2026", "100"):
        assert not names_job({other})(text)


@pytest.mark.parametrize(
    "text", ["JobId=11", "JobId=21", "job 1x", "step 11.1", "JobId=2 NodeList=a-1", "uid 1", "3_1", "[11.1]", "1 jobs"]
)
def test_job_1_is_not_job_11_nor_anything_else_with_a_1(text: str) -> None:
    assert not names_job({"1"})(text)


def test_a_task_of_an_array_is_found_by_its_own_number_too() -> None:
    matches = names_job({"5_3", "7"})
    assert matches("Allocate JobId=5_3(7) NodeList=a-0")
    assert matches("Launching batch job 7 for UID 10001")
    assert not matches("Allocate JobId=5_30(8)")
    assert not matches("Allocate JobId=5_4(5)")


@pytest.mark.parametrize(
    "text",
    [
        "node a-1 not responding",
        "NodeList=a-[0-2,5]",
        "NodeList=b-7,a-1",
        "a-1.nodes.slurm:6818",
        "a-1: x",
        "(a-[1,3])",
    ],
)
def test_a_line_that_names_a_node_is_the_node_s(text: str) -> None:
    assert names_node("a-1")(text)


@pytest.mark.parametrize(
    "text",
    ["a-10", "a-11", "a-[2-9]", "aa-1", "b-a-1", "a-1-0", "a-1-[0-3]", "a-[10-12]", "a-", "A-1", "a-1b", "a-[0,2-9]"],
)
def test_node_a_1_is_not_a_10_nor_a_node_of_another_pool(text: str) -> None:
    assert not names_node("a-1")(f"update_node: node {text} state set to DOWN")


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_a_list_of_hosts_names_the_nodes_within_it(number: int, first: int, last: int) -> None:
    assert names_node(f"a-{number}")(f"NodeList=a-[{first}-{last}] #CPUs=2") is (first <= number <= last)
    assert names_node(f"a-{number}")(f"NodeList=a-{first}") is (first == number)


def test_blanks_that_a_user_has_written_into_a_log_cost_no_time() -> None:
    """slurmctld logs the name of a partition that is not there, as sbatch was given it: 5 s for each line of 16,000.

    With the square of their number these here take longer than a test may.
    """
    assert not names_job({"1"})(f"slurmctld: invalid partition specified: job{' ' * 400_000}x")
    assert names_job({"1"})(f"job{' ' * 100}:{' ' * 100}1")


def test_a_number_of_thousands_of_digits_names_no_node() -> None:
    digits = "1" * 5000  # Python itself refuses to read more than 4300
    assert not names_node("a-1")(f"error: Invalid node name a-{digits}, a-[{digits}], a-[0-{digits}]")
    assert names_node("a-1")(f"a-[{digits},0-2]")


@pytest.mark.parametrize(
    ("place", "text", "probe"),
    [
        ("login-0/sshd", "Connection closed by 10.197.64.1 port 54454", True),
        ("login-0/sshd", "Connection reset by 10.197.64.1 port 54454", True),
        ("login-0/sshd", "Connection closed by authenticating user x 10.0.0.1 port 1 [preauth]", False),
        ("login-0/sackd", "Connection closed by 10.197.64.1 port 54454", False),
    ],
)
def test_what_is_left_out_is_only_what_sshd_writes_of_probes(place: str, text: str, probe: bool) -> None:
    assert is_probe(Line(at=0, component="login", place=place, text=text)) == probe
