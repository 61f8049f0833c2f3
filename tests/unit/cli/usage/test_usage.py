"""`slurmstack usage` and `efficiency`: who used how much, what was used of what was asked for, what nobody knows."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.commands import usage as commands
from cli.errors import Failure
from cli.kubectl.client import NO_SLURMDBD
from cli.usage.report import (
    EFFICIENCY,
    HOURS,
    Summary,
    as_csv,
    as_data,
    efficiency,
    hours,
    print_table,
    read_runs,
    summarize,
)
from images.common.slurm_runs import DELIMITER, Run, parse_runs

NOW = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)  # a Saturday
START = datetime(2026, 11, 20, tzinfo=UTC)
MIB, GIB = 2**20, 2**30


class Controller:
    """kubectl with a controller whose sacct gives one answer."""

    standby = False

    def __init__(self, stdout: str = "", stderr: str = "", code: int = 0) -> None:
        self.answer = subprocess.CompletedProcess([], code, stdout, stderr)
        self.asked: list[tuple[str, ...]] = []

    def run(self, *arguments: str, **_: Any) -> subprocess.CompletedProcess[str]:
        self.asked.append(arguments)
        return self.answer


def epoch(hour: float) -> int:
    """Seconds since 1970 at an hour after START."""
    return int((START + timedelta(hours=hour)).timestamp())


def job_line(**changes: Any) -> str:
    """A job of two CPUs and 4 GiB that ran for an hour."""
    job = {
        "id": "7", "number": "7", "user": "alice", "state": "COMPLETED", "start": epoch(0),
        "end": epoch(1), "seconds": 3600, "tres": "billing=2,cpu=2,mem=4G,node=1", "cpus": 2, "nodes": 1,
        "used": "00:00:00", "usage": "", "account": "ml",
    }  # fmt: skip
    return DELIMITER.join(str(value) for value in {**job, **changes}.values())


def step_line(cpu: str = "01:00:00", memory: int | None = GIB, **changes: Any) -> str:
    """Its batch step, which used one CPU and 1 GiB. No memory: it was never looked at."""
    usage = "energy=0" if memory is None else f"cpu={cpu.partition('.')[0]},energy=0,mem={memory}"
    values = {"id": "7.batch", "number": "7.batch", "user": "", "used": cpu, "usage": usage}
    return job_line(**{**values, **changes})


def job(*steps: str, **changes: Any) -> Run:
    """The job with these steps, or with its usual one."""
    (found,) = parse_runs([job_line(**changes), *(steps or (step_line(),))])
    return found


def run(start: float, end: float, *, cpus: int = 1, gpus: int = 0, **changes: Any) -> Run:
    """A run between two hours after START."""
    times = {"start": epoch(start), "end": epoch(end), "seconds": round((end - start) * 3600)}
    return job(**{**times, "tres": f"cpu={cpus},gres/gpu={gpus}", **changes})


def report(*jobs: Run, hours: float = 24, **changes: Any) -> Summary:
    """The report from START on, made at its end."""
    end = START + timedelta(hours=hours)
    return summarize(jobs, **{"start": START, "end": end, "now": end, "by": ("account",), **changes})


class _Clock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        assert tz is UTC
        return NOW.replace(microsecond=5)


def call(monkeypatch: pytest.MonkeyPatch, command: str, controller: Controller, **options: Any) -> None:
    """The command, on the development stack with this controller."""
    monkeypatch.setattr(commands, "reach", lambda _: controller)
    monkeypatch.setattr(commands, "datetime", _Clock)
    getattr(commands, command)(**{"by": "account", **options})


def test_the_command_asks_the_controller_and_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Controller(job_line(tres="cpu=4", start=epoch(1), end=epoch(3), seconds=7200))
    options = {"start": "2026-11-20", "end": "2026-11-20T12:00", "by": "user, account"}
    call(monkeypatch, "usage", controller, **options, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["cpu_hours"] == 8.0
    assert (document["by"], document["namespace"]) == (["user", "account"], "slurm")
    first, asked = controller.asked
    assert "sacctmgr" in first[-3]  # whether slurmdbd answers at all
    assert asked[:6] == ("exec", "-n", "slurm", "controller-0", "-c", "slurmctld")
    assert f"--endtime=uts{epoch(12)}" in asked


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, ("10-22 18:30", "11-21 18:30")),
        (None, "2026-11-01", ("10-02 00:00", "11-01 00:00")),
        ("2026-11-20", None, ("11-20 00:00", "11-21 18:30")),
        ("now-1day", "2027-01-01", ("11-20 18:30", "11-21 18:30")),
    ],
)
def test_the_last_30_days_are_shown_and_never_the_future(
    monkeypatch: pytest.MonkeyPatch, start: str | None, end: str | None, expected: tuple[str, str]
) -> None:
    controller = Controller()
    call(monkeypatch, "usage", controller, start=start, end=end)
    seconds = [int(part.partition("=uts")[2]) for part in controller.asked[-1] if "uts" in part]
    assert tuple(f"{datetime.fromtimestamp(one, UTC):%m-%d %H:%M}" for one in seconds) == expected


@pytest.mark.parametrize(
    ("controller", "message", "hint"),
    [
        (Controller(code=NO_SLURMDBD), "the records cannot be read: slurmdbd does not answer", ""),
        (Controller("hello\n"), "not understood", ""),
        (Controller("", "sacct: error: Problem talking to the database: Connection refused", 1), "", "slurmdbd-0"),
        (Controller("", "Slurm accounting storage is disabled", 1), "", "`slurmstack up` turns it on"),
        (Controller("", "(Forbidden): pods is forbidden", 1), "", "ask its administrator for rights"),
    ],
)
def test_where_there_are_no_records_that_is_said_with_what_to_do(controller: Any, message: str, hint: str) -> None:
    with pytest.raises(Failure, match=message or "sacct could not read the records") as caught:
        read_runs(controller, "slurm", START, NOW)
    assert hint in caught.value.hint
    if controller.answer.returncode == NO_SLURMDBD:  # then it is not asked for the records
        assert len([words for words in controller.asked if words[0] == "exec"]) == 1


# ---------------------------------------------------------------- output


def test_the_json_of_usage_has_its_documented_shape_and_the_csv_the_same_rows() -> None:
    found = report(run(22, 26, cpus=2, gpus=1, user="a\x1b[2J"), hours=48, by=("account", "user"))
    when = {"start": "2026-11-20T00:00:00Z", "end": "2026-11-22T00:00:00Z"}
    numbers = {**when, "jobs": 1, "cpu_hours": 8.0, "cpu_percent": 100.0, "gpu_hours": 4.0, "gpu_percent": 100.0}
    assert as_data(found, hours, namespace="slurm") == {
        "namespace": "slurm",
        **when,
        "by": ["account", "user"],
        "rows": [{"account": "ml", "user": "a\x1b[2J", **numbers}],
        "total": numbers,
    }
    (row,) = csv.DictReader(io.StringIO(as_csv(found, hours)))
    told = {"account": "ml", "user": "a [2J", **{name: str(value) for name, value in numbers.items()}}
    assert row == told, "and nothing that moves a cursor"


@pytest.mark.parametrize(
    ("account", "cell"),
    [
        ("=LINK(1,2)", "'=LINK(1,2)"), ("\t=1", "' =1"), ("\uff1d1", "'\uff1d1"), ("x;=1;", "x;'=1;"), ("a=1", "a=1"),
    ],
)  # fmt: skip
def test_no_cell_of_the_csv_is_a_formula(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], account: str, cell: str
) -> None:
    controller = Controller(job_line(account=account, tres="cpu=3"))
    call(monkeypatch, "usage", controller, start="2026-11-20", as_csv=True)
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out, newline=""))
    assert (row["account"], row["jobs"], row["cpu_hours"]) == (cell, "1", "3.0")


def test_the_table_shows_groups_shares_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(report(run(0, 3), run(0, 1, account="bio", id="2", number="2"), hours=48), HOURS, hours)
    printed = capsys.readouterr().out
    lines = [row.split() for row in printed.splitlines()]
    assert ["ml", "1", "3.00", "75.0", "0.00", "-"] in lines
    assert ["all", "2", "4.00", "100.0", "0.00", "-"] in lines
    assert "2026-11-20 00:00 to 2026-11-22 00:00 UTC" in printed
    print_table(report(hours=48), HOURS, hours)
    assert capsys.readouterr().out.startswith("no job ran from 2026-11-20 00:00 to 2026-11-22 00:00 UTC")


# ---------------------------------------------------------------- efficiency

TIMES = {"start": "2026-11-20", "end": "2026-11-21"}


def test_the_table_is_by_account_or_by_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [job_line(), step_line(), job_line(id="8", number="8", user="bob", account="bio"), step_line()]
    controller = Controller("\n".join(lines))
    call(monkeypatch, "efficiency", controller, **TIMES, as_json=True)
    assert [row["account"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["bio", "ml"]
    call(monkeypatch, "efficiency", controller, **TIMES, by="user,job", as_json=False)
    assert ["alice", "7", "1", "2.00", "1.00", "50.0", "1.00", "4.00", "25.0", "0.00"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]
    assert controller.asked[1][:6] == ("exec", "-n", "slurm", "controller-0", "-c", "slurmctld")


def test_memory_of_steps_side_by_side_is_added_up_and_of_steps_in_a_row_is_not() -> None:
    half = {"end": epoch(0.5), "seconds": 1800}
    first = step_line("00:10:00", GIB, id="7.0", number="7.0", **half)
    beside = step_line("00:10:00", 2 * GIB, id="7.1", number="7.1", **half)
    after = step_line("00:10:00", GIB, id="7.2", number="7.2", start=epoch(0.5), seconds=1800)
    assert (job(first, beside, after).memory_used, job(first, after).memory_used) == (3 * GIB, GIB)


LOST, SHORT = {"state": "NODE_FAIL"}, {"end": epoch(0) + 20, "seconds": 20, "state": "CANCELLED by 1000"}


@pytest.mark.parametrize(
    ("cpu", "memory", "changes", "seconds"),
    [
        ("00:00.002", None, LOST, None),
        # What was looked at for long counts, also if it did nothing: this one is to be blamed.
        ("00:00.002", GIB, LOST, 0.002),
        # A look at the first moment of a killed job says nothing of its CPU time.
        ("00:00.002", MIB, SHORT, None),
        ("00:09.002", MIB, SHORT, 9.002),
    ],
)
def test_what_a_killed_job_used_is_not_known_without_a_look(
    cpu: str, memory: int | None, changes: dict[str, Any], seconds: float | None
) -> None:
    found = job(step_line(cpu, memory, **changes), **changes).cpu_seconds
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_a_long_step_that_was_not_measured_leaves_the_whole_job_unknown() -> None:
    short = step_line("00:00.001", None, id="7.0", number="7.0", state="CANCELLED", seconds=300, end=epoch(1 / 12))
    long = step_line("00:00.001", None, id="7.0", number="7.0", state="NODE_FAIL")
    for other, known in ((short, (3600, GIB)), (long, (None, None))):
        found = job(step_line(), other)
        assert (found.cpu_seconds, found.memory_used) == known


def percents(found: Summary) -> tuple[float | None, float | None]:
    """Of the CPU time and the memory that were measured."""
    numbers = efficiency(found, found.total)
    return numbers["cpu_percent"], numbers["memory_percent"]


def test_the_largest_waste_comes_first() -> None:
    idle = job(step_line("00:00:36"), id="8", number="8", account="bio")
    found = report(job(), idle)
    assert [(row.group, row.cpu_asked, row.cpu_used, row.cpu_wasted) for row in found.rows] == [
        (("bio",), 2.0, pytest.approx(0.01), pytest.approx(1.99)),
        (("ml",), 2.0, 1.0, 1.0),
    ]
    assert found.total.jobs == 2
    assert percents(found) == (25.25, 25.0)


def test_jobs_that_were_not_measured_are_no_waste() -> None:
    lost = job(step_line("00:00:00", None, state="NODE_FAIL"), id="8", number="8", state="NODE_FAIL")
    (row,) = report(job(), lost).rows
    assert (row.cpu_asked, row.cpu_measured, row.cpu_wasted) == (4.0, 2.0, 1.0)
    assert (row.memory_asked, row.memory_measured) == (8.0, 4.0)
    assert percents(report(lost)) == (None, None)


def test_a_job_counts_for_the_part_that_lies_between_the_times() -> None:
    (row,) = report(job(), hours=0.25).rows
    assert (row.cpu_asked, row.cpu_used, row.memory_used) == (0.5, 0.25, 0.25)
    assert report(job(start=epoch(-2), end=epoch(-1))).rows == ()


def test_the_json_of_efficiency_has_its_documented_shape() -> None:
    row = {
        "jobs": 1, "cpu_hours_asked": 2.0, "cpu_hours_measured": 2.0, "cpu_hours_used": 1.0, "cpu_hours_wasted": 1.0,
        "cpu_percent": 50.0, "memory_gib_hours_asked": 4.0, "memory_gib_hours_measured": 4.0,
        "memory_gib_hours_used": 1.0, "memory_percent": 25.0, "gpu_hours_asked": 3.0,
    }  # fmt: skip
    found = report(job(tres="cpu=2,mem=4G,gres/gpu=3"), by=("account", "job"))
    assert as_data(found, efficiency, namespace="slurm") == {
        "namespace": "slurm",
        "start": "2026-11-20T00:00:00Z",
        "end": "2026-11-21T00:00:00Z",
        "by": ["account", "job"],
        "rows": [{"account": "ml", "job": "7", **row}],
        "total": row,
    }


def test_the_table_says_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(report(job(end="Unknown", state="RUNNING")), EFFICIENCY, efficiency)
    printed = capsys.readouterr().out
    assert ["ml", "1", "2.00", "-", "-", "-", "4.00", "-", "0.00"] in [line.split() for line in printed.splitlines()]
