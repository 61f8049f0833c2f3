"""`slurmstack usage`: what it asks, and what it says where it cannot."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.commands import usage as usage_commands
from cli.errors import Failure
from cli.kubectl.client import NO_SLURMDBD
from cli.usage.query import read_runs
from tests.unit.cli.usage.controller import Controller
from tests.unit.cli.usage.lines import NOW, START, epoch, line


def call(monkeypatch: pytest.MonkeyPatch, controller: Controller, **options: Any) -> None:
    """The command, on the development stack with this controller."""
    monkeypatch.setattr(usage_commands, "reach", lambda _: controller)
    values = {"by": "account", "as_json": False, "as_csv_": False}
    usage_commands.usage(**{**values, **options})


def test_the_command_asks_the_controller_and_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Controller(line("7", ("alice", "ml"), 1, 3, "cpu=4"))
    options = {"start": "2026-11-20", "end": "2026-11-20T12:00", "by": "user, account"}
    monkeypatch.setattr(usage_commands, "datetime", _Clock)
    call(monkeypatch, controller, **options, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["cpu_hours"] == 8.0
    assert document["by"] == ["user", "account"]
    assert document["namespace"] == "slurm"
    first, asked = controller.asked
    assert "sacctmgr" in first[-3]  # whether slurmdbd answers at all
    assert asked[:6] == ("exec", "-n", "slurm", "controller-0", "-c", "slurmctld")
    assert f"--endtime=uts{epoch(12)}" in asked


class _Clock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        assert tz is UTC
        return NOW.replace(microsecond=5)


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
    monkeypatch.setattr(usage_commands, "datetime", _Clock)
    call(monkeypatch, controller, start=start, end=end)
    times = [
        datetime.fromtimestamp(int(part.partition("=uts")[2]), UTC) for part in controller.asked[-1] if "uts" in part
    ]
    assert tuple(f"{time:%m-%d %H:%M}" for time in times) == expected


def test_a_slurmdbd_that_is_silent_is_not_asked_for_the_records() -> None:
    controller: Any = Controller(code=NO_SLURMDBD)
    with pytest.raises(Failure, match="the records cannot be read: slurmdbd does not answer"):
        read_runs(controller, "slurm", START, NOW)
    assert len([words for words in controller.asked if words[0] == "exec"]) == 1


@pytest.mark.parametrize(
    ("complaint", "hint"),
    [
        ("sacct: error: Problem talking to the database: Connection refused", "slurmdbd-0"),
        ("Slurm accounting storage is disabled", "`slurmstack up` turns it on"),
        ("error: You must be logged in to the server (Unauthorized)", "log in to the cluster anew"),
        ('Error from server (Forbidden): pods "controller-0" is forbidden', "ask its administrator for rights"),
        ("Error from server: Internal error occurred: error dialing backend: EOF", "is in trouble itself"),
        ('Error from server (NotFound): pods "controller-0" not found', "whether controller-0, slurmdbd-0"),
    ],
)
def test_what_to_do_fits_who_has_refused(complaint: str, hint: str) -> None:
    controller: Any = Controller(stderr=f"{complaint}\n", code=1)
    with pytest.raises(Failure) as caught:
        read_runs(controller, "slurm", START, NOW)
    assert hint in caught.value.hint


def test_what_sacct_cannot_have_printed_is_no_traceback() -> None:
    controller: Any = Controller("hello\n")
    with pytest.raises(Failure, match="not understood"):
        read_runs(controller, "slurm", START, NOW)
