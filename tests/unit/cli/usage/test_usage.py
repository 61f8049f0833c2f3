"""`slurmstack usage`: what it asks, who used how much, and what it says where it cannot tell."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.commands import usage as usage_commands
from cli.errors import Failure
from cli.kubectl.client import NO_SLURMDBD
from cli.usage.report import HOURS, Report, as_data, hours, print_table, read_runs, summarize
from images.common.slurm_runs import Run, parse_runs
from tests.unit.cli.usage.records import NOW, START, Controller, epoch, job_line


class _Clock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        assert tz is UTC
        return NOW.replace(microsecond=5)


def call(monkeypatch: pytest.MonkeyPatch, controller: Controller, **options: Any) -> None:
    """The command, on the development stack with this controller."""
    monkeypatch.setattr(usage_commands, "reach", lambda _: controller)
    monkeypatch.setattr(usage_commands, "datetime", _Clock)
    usage_commands.usage(**{"by": "account", "as_json": False, **options})


def run(start: float, end: float, *, cpus: int = 1, gpus: int = 0, **changes: Any) -> Run:
    """A run between two hours after START."""
    values: dict[str, Any] = {
        "job": "1", "number": changes.get("job", "1"), "user": "alice", "account": "ml", "state": "COMPLETED",
        "nodes": 1, "memory": 512 << 20, "steps": (), "start": epoch(start), "end": epoch(end),
        "seconds": round((end - start) * 3600), "cpus": cpus, "gpus": gpus,
    }  # fmt: skip
    return Run(**{**values, **changes})


def total(runs: list[Run], **arguments: Any) -> Report:
    """The report of two days."""
    values: dict[str, Any] = {"start": START, "end": START + timedelta(days=2), "now": NOW, "by": ("account",)}
    return summarize(runs, **{**values, **arguments})


# ---------------------------------------------------------------- what is asked


def test_the_command_asks_the_controller_and_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Controller(job_line(tres="cpu=4", start=epoch(1), end=epoch(3), seconds=7200))
    options = {"start": "2026-11-20", "end": "2026-11-20T12:00", "by": "user, account"}
    call(monkeypatch, controller, **options, as_json=True)
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
    call(monkeypatch, controller, start=start, end=end)
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


# ---------------------------------------------------------------- runs and their hours


def test_jobs_that_have_not_run_count_nothing() -> None:
    waiting = [job_line(start=word, end="Unknown", seconds=0, tres="", cpus=0) for word in ("Unknown", "None")]
    assert total(parse_runs([*waiting, job_line(end=epoch(0), seconds=0), ""])).rows == ()


# ---------------------------------------------------------------- output


def test_the_json_has_its_documented_shape() -> None:
    found = total([run(22, 26, cpus=2, gpus=1, user="bob")], by=("account", "user"))
    when = {"start": "2026-11-20T00:00:00Z", "end": "2026-11-22T00:00:00Z"}
    numbers = {**when, "jobs": 1, "cpu_hours": 8.0, "cpu_percent": 100.0, "gpu_hours": 4.0, "gpu_percent": 100.0}
    assert as_data(found, hours, namespace="slurm") == {
        "namespace": "slurm",
        **when,
        "by": ["account", "user"],
        "rows": [{"account": "ml", "user": "bob", **numbers}],
        "total": numbers,
    }


def test_the_table_shows_groups_shares_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(total([run(0, 3), run(0, 1, account="bio", job="2")]), HOURS, hours)
    printed = capsys.readouterr().out
    lines = [row.split() for row in printed.splitlines()]
    assert ["ml", "1", "3.00", "75.0", "0.00", "-"] in lines
    assert ["all", "2", "4.00", "100.0", "0.00", "-"] in lines
    assert "2026-11-20 00:00 to 2026-11-22 00:00 UTC" in printed
    print_table(total([]), HOURS, hours)
    assert capsys.readouterr().out.startswith("no job ran from 2026-11-20 00:00 to 2026-11-22 00:00 UTC")
