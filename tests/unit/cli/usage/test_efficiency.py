"""`slurmstack efficiency`: what it asks, what jobs used of what they asked for, and what nobody knows."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from cli.commands import usage as efficiency_commands
from cli.usage.report import EFFICIENCY, Report, as_data, efficiency, print_table, summarize
from images.common.slurm_runs import Run
from tests.unit.cli.usage.records import (
    GIB,
    MIB,
    START,
    Controller,
    epoch,
    job,
    job_line,
    step_line,
)


def call(monkeypatch: pytest.MonkeyPatch, controller: Controller, **options: Any) -> None:
    """The command, on the development stack with this controller."""
    monkeypatch.setattr(efficiency_commands, "reach", lambda _: controller)
    values = {**dict.fromkeys(("start", "end", "user", "account")), "by": "account", "as_json": True, **options}
    efficiency_commands.efficiency(**values)


TIMES = {"start": "2026-11-20", "end": "2026-11-21"}


def test_the_table_is_by_account_and_can_be_of_one_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [job_line(), step_line(), job_line(id="8", number="8", user="bob", account="bio"), step_line()]
    controller = Controller("\n".join(lines))
    call(monkeypatch, controller, **TIMES)
    assert [row["account"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["bio", "ml"]
    call(monkeypatch, controller, **TIMES, user="bob")
    assert [row["account"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["bio"]
    call(monkeypatch, controller, **TIMES, account="ml", by="user,job", as_json=False)
    assert ["alice", "7", "1", "2.00", "1.00", "50.0", "1.00", "4.00", "25.0", "0.00"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]
    assert controller.asked[1][:6] == ("exec", "-n", "slurm", "controller-0", "-c", "slurmctld")


# ---------------------------------------------------------------- records


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


# ---------------------------------------------------------------- sums


def report(*jobs: Run, hours: float = 24, **changes: Any) -> Report:
    """The report from START on, made at its end."""
    end = START + timedelta(hours=hours)
    return summarize(jobs, **{"start": START, "end": end, "now": end, "by": ("account",), **changes})


def percents(found: Report) -> tuple[float | None, float | None]:
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


def test_the_json_has_its_documented_shape() -> None:
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
