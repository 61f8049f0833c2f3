"""`slurmstack logs`, on a cluster that has written this and that."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from cli.commands import logs as command
from cli.errors import Failure
from cli.status.job import JOBS
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
        ("5", "5", "alice", "main", "COMPLETED", BEGUN, BEGUN, BEGUN, ENDED, "a-[0-1]", "0:0", "None", "train"),
        ("5.0", "5.0", "", "", "COMPLETED", BEGUN, BEGUN, LAUNCHED, ENDED, "a-1", "0:0", "None", "x"),
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


NO_ANSWER = with_(refused=frozenset({"pod", "namespace"}))
PODS_ALONE = with_(slurm={}, refused=frozenset({"logs"}))
NO_RECORDS = with_(slurm={"sacct": "", "squeue": ""})


@pytest.mark.parametrize(
    ("cluster", "words", "code", "told"),
    [
        (NO_ANSWER, "", 1, "nothing could be read"),
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


def test_a_time_that_no_calendar_has_takes_no_other_line_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a job that is to begin in thousands of years."""
    late = SACCT.replace(ENDED, "999999999999")
    lines = logs(monkeypatch, with_(slurm={"sacct": late, "squeue": ""}), "--job", "5").stdout
    assert "job 5 submitted by alice" in lines
    assert "ended: COMPLETED" not in lines


def test_a_job_s_name_may_have_anything_in_it_and_is_no_record_of_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = "\t".join(("7", "7", "bob", "main", "FAILED", *(BEGUN,) * 3, ENDED, "a-10", "1:0", "None", "x"))
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
