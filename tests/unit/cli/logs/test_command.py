"""`slurmstack logs`, on a cluster that has written this and that; and what a line is, and whether it names a job."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from cli.commands import logs as command
from cli.errors import Failure
from cli.logs.lines import Line, in_order, is_probe, names_job, parse_log
from cli.status.snapshot import JOBS
from cli.text import parse_time
from images.common.slurm_runs import DELIMITER
from tests.fakes.squeue import printed
from tests.fakes.written_cluster import CONTROLLER, FakeCluster, pod, worker

SLURMCTLD = """\
2026-11-25T16:27:51.563535123Z slurmctld: _slurm_rpc_submit_batch_job: JobId=5 usec=2717
2026-11-25T16:27:52.000521668Z slurmctld: sched: Allocate JobId=5 NodeList=a-[0-1] #CPUs=2 Partition=main
2026-11-25T16:27:53.368944902Z slurmctld: _job_complete: JobId=5 WEXITSTATUS 0
2026-11-25T16:27:54.100000000Z slurmctld: sched: Allocate JobId=55 NodeList=a-10 #CPUs=1 Partition=main
"""
LOGS = {
    "controller-0/slurmctld": SLURMCTLD,
    "controller-0/munged": "2026-11-25T16:20:00.1Z munged: Info: Created 64 work threads\n",
    "a-0/slurmd": "2026-11-25T16:27:52.025841428Z slurmd-a-0: Launching batch job 5 for UID 10001\n"
    "2026-11-25T16:27:53.5Z health-epilog: job 5: removed 1 files and directories\n",
    "a-1/slurmd": "2026-11-25T16:27:52.177Z slurmd-a-1: launch task StepId=5.0 request from UID:10001\n",
    "a-10/slurmd": "2026-11-25T16:27:54.2Z slurmd-a-10: Launching batch job 55 for UID 10001\n",
    "health-watch-75b77755c7-85g89/health-watch": "2026-11-25T16:28:00.1Z health-watch: drained a-1: health/disks\n",
}
PODS = (
    CONTROLLER, worker("a-0"), worker("a-1"), worker("a-10"),
    pod("health-watch-75b77755c7-85g89", "health-watch", "health-watch"),
)  # fmt: skip
BEGUN, ENDED = (f"{datetime(2026, 11, 25, 16, 27, second, tzinfo=UTC).timestamp():.0f}" for second in (51, 53))
LAUNCHED = f"{int(BEGUN) + 1}"
SACCT = "\n".join(
    DELIMITER.join(row)
    for row in [
        ("5", "5", "alice", "main", "COMPLETED", BEGUN, BEGUN, BEGUN, ENDED, "a-[0-1]", "0:0", "None", "7", "train"),
        ("5.0", "5.0", "", "", "COMPLETED", BEGUN, BEGUN, LAUNCHED, ENDED, "a-1", "0:0", "None", "", "x"),
    ]
)
CLUSTER = FakeCluster(pods=PODS, logs=LOGS, slurm={"sacct": SACCT, "squeue": ""})
ALL = ("--since", "2026-11-25T16:00")


def logs(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, *arguments: str) -> Result:
    monkeypatch.setattr(command, "reach", lambda _: cluster)
    return CliRunner().invoke(app, ["logs", *arguments])


def shown(result: Result) -> list[str]:
    """Each line without its date."""
    assert result.exit_code == 0, result.output
    return [line.removeprefix("2026-11-25T16:") for line in result.stdout.splitlines()]


def with_(**more: Any) -> FakeCluster:
    return FakeCluster(**{"pods": PODS, "logs": LOGS, "slurm": CLUSTER.slurm, **more})


@pytest.mark.parametrize(
    ("component", "places"),
    [
        ("controller", {"controller-0/slurmctld", "controller-0/munged"}),
        ("slurmctld", {"controller-0/slurmctld"}),
        ("a-1", {"a-1/slurmd"}),
        ("a", {"a-0/slurmd", "a-1/slurmd", "a-10/slurmd"}),
    ],
)
def test_a_component_is_found_by_its_name_its_container_its_pool_or_its_pod(
    monkeypatch: pytest.MonkeyPatch, component: str, places: set[str]
) -> None:
    result = logs(monkeypatch, CLUSTER, component, *ALL, "--json")
    assert {json.loads(line)["place"] for line in result.stdout.splitlines()} == places


def test_the_last_hour_is_what_is_asked_for_and_of_a_job_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    result = logs(monkeypatch, cluster := with_())
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing was written in that time" in result.stderr
    (begin,) = {word.partition("=")[2] for words in cluster.asked for word in words if word.startswith("--since-time")}
    assert 3600 <= (datetime.now(UTC) - datetime.fromisoformat(begin)).total_seconds() < 3700
    logs(monkeypatch, cluster := with_(), "--job", "5")
    asked = {word for words in cluster.asked for word in words if word.startswith("--since-time")}
    assert asked == {"--since-time=2026-11-25T16:27:51Z"}


def test_what_was_written_before_a_restart_is_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = (pod("controller-0", "controller", "slurmctld", restarts=1),)
    before = {"controller-0/slurmctld previous": "2026-11-25T16:10:00.5Z slurmctld: fatal: no room\n"}
    lines = shown(logs(monkeypatch, with_(pods=pods, logs=LOGS | before), "slurmctld", *ALL))
    assert lines[0] == "10:00.500Z controller(controller-0/slurmctld) slurmctld: fatal: no room"


@pytest.mark.parametrize(
    ("refused", "arguments", "note", "kept"),
    [
        ("a-0/slurmd", ALL, "not read: a-0/slurmd: Error from server (Forbidden)", "slurmd-a-1"),
        ("logs", ("--job", "5"), "not read: controller-0/slurmctld", "job 5 submitted by alice"),
    ],
)
def test_what_cannot_be_read_is_said_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, refused: str, arguments: tuple[str, ...], note: str, kept: str
) -> None:
    result = logs(monkeypatch, with_(refused=frozenset({refused})), *arguments)
    assert result.exit_code == 0
    assert note in result.stderr
    assert kept in result.stdout


NO_ANSWER = with_(refused=frozenset({"pod"}))
PODS_ALONE = with_(slurm={}, refused=frozenset({"logs"}))
NO_RECORDS = with_(slurm={"sacct": "", "squeue": ""})


@pytest.mark.parametrize(
    ("cluster", "words", "code", "told"),
    [
        (NO_ANSWER, "", 1, "pod is forbidden"),
        (with_(pods=()), "", 1, "no pod runs in namespace slurm"),
        (PODS_ALONE, "--job 5", 1, "controller-0/slurmctld: Error from server (Forbidden)"),
        (NO_RECORDS, "--job 99", 1, "Slurm knows no job 99"),
        (CLUSTER, "slurmctl", 2, "there is no component, container, pool or pod 'slurmctl'; there are: "),
    ],
)
def test_where_there_is_nothing_to_show_that_is_an_error(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, words: str, code: int, told: str
) -> None:
    result = logs(monkeypatch, cluster, *words.split())
    assert isinstance(result.exception, Failure)
    assert (result.exception.code, told in result.exception.message) == (code, True), result.exception.message


def test_a_node_of_a_job_that_has_no_pod_any_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result = logs(monkeypatch, with_(pods=(CONTROLLER, worker("a-0"))), "--job", "5")
    assert "not read: a-1: there is no such pod now\n" in result.stderr


def test_a_job_whose_records_are_away_is_found_in_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    result = logs(monkeypatch, with_(slurm={}), "--job", "5")
    assert "not read: sacct:" in result.stderr
    assert [line.split()[1] for line in result.stdout.splitlines()].count("worker(a-0/slurmd)") == 2
    assert "JobId=55" not in result.stdout


def test_a_job_that_waits_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = datetime(2026, 11, 25, 16, 29, tzinfo=UTC).timestamp()
    waits = {"JobArrayID": "9", "JobID": "9", "State": "PENDING", "Reason": "Resources", "NodeList": ""}
    job = printed(JOBS.shell, [{**waits, "SubmitTime": f"{submitted:.0f}"}])
    result = logs(monkeypatch, with_(slurm={"sacct": "", "squeue": job}), "--job", "9")
    assert "16:29:00Z     squeue(job/9) job 9 submitted by alice (main)" in result.stdout
    assert re.search(r"Z +squeue\(job/9\) job 9 is PENDING, reason Resources\n", result.stdout)
    assert "started" not in result.stdout


def test_a_job_s_name_may_have_anything_in_it_and_is_no_record_of_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = "\t".join(("7", "7", "bob", "main", "FAILED", *(BEGUN,) * 3, ENDED, "a-10", "1:0", "None", "7", "x"))
    odd = SACCT.replace("train", f"x\ty\x1b[2J\n{forged}")
    result = logs(monkeypatch, with_(slurm={"sacct": odd, "squeue": ""}), "--job", "5")
    assert "sacct(job/5) job 5 submitted by alice: x y [2J (main)\n" in result.stdout
    assert "JobId=5 NodeList=a-[0-1]" in result.stdout
    assert "bob" not in result.stdout


def test_no_log_can_move_the_cursor_and_json_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = with_(logs={"a-0/slurmd": "2026-11-25T16:27:52Z \x1b[2Jall \u202ewell\r\n"})
    assert shown(logs(monkeypatch, cluster, "a-0", *ALL)) == ["27:52Z     worker(a-0/slurmd)  [2Jall  well "]
    (line,) = logs(monkeypatch, cluster, "a-0", *ALL, "--json").stdout.splitlines()
    assert json.loads(line) == {
        "time": "2026-11-25T16:27:52Z", "component": "worker", "place": "a-0/slurmd", "text": "\x1b[2Jall \u202ewell\r",
    }  # fmt: skip
    assert "\x1b" not in line


def test_a_complaint_in_the_place_of_a_log_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = "unable to retrieve container logs for containerd://4f2a"
    result = logs(monkeypatch, with_(logs={"a-0/slurmd": gone}), "a-0", *ALL)
    assert f"not read: a-0/slurmd: {gone}" in result.stderr


# ---------------------------------------------------------------- lines in the order of time, and what they name

NOW = datetime(2026, 11, 25, 16, 30, tzinfo=UTC)


def line(time: str, text: str = "x") -> Line:
    (found,) = parse_log(f"{time} {text}\n", "worker", "a-0/slurmd")
    return found


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
    assert is_probe(Line(at="", component="login", place=place, text=text)) == probe
