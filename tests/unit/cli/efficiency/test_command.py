"""`slurmstack efficiency`: what it asks, what it shows, and what it says where it cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.commands import efficiency as efficiency_commands
from cli.errors import FAILED, Failure
from tests.unit.cli.efficiency.lines import REAL, job_line, step_line
from tests.unit.cli.usage.controller import Controller


def call(monkeypatch: pytest.MonkeyPatch, controller: Controller, *jobs: str, **options: Any) -> None:
    """The command, on the development stack with this controller."""
    monkeypatch.setattr(efficiency_commands, "reach", lambda _: controller)
    names = ("by", "start", "end", "user", "account")
    values = {**dict.fromkeys(names), "as_json": False, "as_csv_": False, **options}
    efficiency_commands.efficiency(list(jobs) or None, **values)


def test_named_jobs_are_shown_however_old(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    controller = Controller(REAL)
    call(monkeypatch, controller, "10", "13", as_json=True)
    assert [job["job"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["10", "13+0", "13+1", "12_[1-3]"]
    assert "--jobs=10,13" in controller.asked[-1]
    assert not [part for part in controller.asked[-1] if "uts" in part]


def test_a_few_jobs_are_shown_one_by_one_and_many_as_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [f"{job_line(id=f'7_{task}', number=str(50 + task))}\n{step_line()}" for task in range(4)]
    call(monkeypatch, Controller("\n".join(tasks[:3])), "7")
    assert capsys.readouterr().out.count("elapsed") == 3
    call(monkeypatch, Controller("\n".join(tasks)), "7")
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["7_3", "2.00", "1.00", "50.0", "1.00", "4.00", "25.0"] in printed
    assert ["all", "8.00", "4.00", "50.0", "4.00", "16.00", "25.0"] in printed


def test_a_job_without_records_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="no records of 99") as caught:
        call(monkeypatch, Controller(REAL), "10", "99")
    assert caught.value.code == FAILED
    assert "accounting.retention.jobs" in caught.value.hint


TIMES = {"start": "2026-11-20", "end": "2026-11-21"}


def test_the_table_is_by_account_and_can_be_of_one_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [job_line(), step_line(), job_line(id="8", number="8", user="bob", account="bio"), step_line()]
    controller = Controller("\n".join(lines))
    call(monkeypatch, controller, **TIMES, as_json=True)
    assert [row["account"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["bio", "ml"]
    call(monkeypatch, controller, **TIMES, user="bob", as_json=True)
    assert [row["account"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["bio"]
    call(monkeypatch, controller, **TIMES, account="ml", by="user,job", as_csv_=True)
    assert capsys.readouterr().out.splitlines()[1].startswith("alice,7,1,2.0,2.0,1.0")
    assert controller.asked[1][:6] == ("exec", "-n", "slurm", "controller-0", "-c", "slurmctld")
