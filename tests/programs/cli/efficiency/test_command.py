"""`slurmstack efficiency`: what it asks, what it shows, and what it says where it cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.commands import efficiency as efficiency_commands
from tests.unit.cli.efficiency.lines import job_line, step_line
from tests.unit.cli.usage.controller import Controller

TIMES = {"start": "2026-11-20", "end": "2026-11-21"}


def call(monkeypatch: pytest.MonkeyPatch, controller: Controller, *jobs: str, **options: Any) -> None:
    """The command, on the development stack with this controller."""
    monkeypatch.setattr(efficiency_commands, "reach", lambda _: controller)
    names = ("by", "start", "end", "user", "account")
    values = {**dict.fromkeys(names), "as_json": False, "as_csv_": False, **options}
    efficiency_commands.efficiency(list(jobs) or None, **values)


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
