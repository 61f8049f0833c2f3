"""Who used how much: from sacct's lines to hours and tables."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.usage.report import Usage, as_csv, as_data, print_table, summarize
from images.common.slurm_runs import DELIMITER, UNKNOWN, Run, parse_runs
from tests.unit.cli.usage.lines import START, epoch, line


def run(start: float, end: float, *, cpus: int = 1, gpus: int = 0, **changes: Any) -> Run:
    """A run between two hours after START."""
    values: dict[str, Any] = {
        "job": "1",
        "number": changes.get("job", "1"),
        "user": "alice",
        "account": "ml",
        "state": "COMPLETED",
        "nodes": 1,
        "memory": 512 << 20,
        "steps": (),
        "start": epoch(start),
        "end": epoch(end),
        "seconds": round((end - start) * 3600),
        "cpus": cpus,
        "gpus": gpus,
    }
    return Run(**{**values, **changes})


def total(runs: list[Run], **arguments: Any) -> Usage:
    """The report of two days."""
    values: dict[str, Any] = {"start": START, "end": START + timedelta(days=2), "by": ("account",)}
    return summarize(runs, **{**values, **arguments})


def hours(found: Usage) -> dict[tuple[str, ...], float]:
    """CPU hours by group and beginning of the interval."""
    return {(*row.group, f"{row.start:%d}"): row.cpu_hours for row in found.rows}


# ---------------------------------------------------------------- sacct's lines


def test_a_line_of_sacct_is_a_run_with_cpus_and_gpus() -> None:
    (found,) = parse_runs([line("7", ("alice", "ml"), 1, 3, "billing=4,cpu=4,gres/gpu=2,mem=512M,node=1")])
    assert found == run(1, 3, cpus=4, gpus=2, job="7")


@pytest.mark.parametrize(
    ("tres", "cpus", "gpus"),
    [
        ("billing=8,cpu=8,gres/gpu:h100=2,gres/gpu=2,mem=1G,node=2", 8, 2),
        ("cpu=8,gres/gpu:h100=2,gres/gpu:a100=1", 8, 3),
        ("", 3, 0),
        ("mem=5K,cpu=12", 12, 0),
    ],
)
def test_gpus_of_all_types_are_counted_once(tres: str, cpus: int, gpus: int) -> None:
    (found,) = parse_runs([line("7", ("alice", "ml"), 0, 1, tres, cpus=3)])
    assert (found.cpus, found.gpus) == (cpus, gpus)


def test_jobs_that_have_not_run_count_nothing() -> None:
    waiting = [
        "8|8|alice|PENDING|Unknown|Unknown|0||0|1|00:00:00||ml".replace("|", DELIMITER),
        "9|9|alice|PENDING|None|Unknown|0||0|1|00:00:00||ml".replace("|", DELIMITER),
        line("10", ("alice", "ml"), 1, 1, "cpu=4"),
        "",
    ]
    assert not any(run.has_run for run in parse_runs(waiting))


def test_a_job_without_account_or_name_is_shown_as_such() -> None:
    (found,) = parse_runs([line("7", ("", ""), 0, 1, "cpu=1")])
    assert (found.user, found.account) == (UNKNOWN, UNKNOWN)


# ---------------------------------------------------------------- hours


def test_hours_are_summed_up_by_account_and_the_largest_comes_first() -> None:
    found = total([run(0, 2, cpus=2), run(1, 2, account="bio", cpus=10), run(5, 6, job="2", gpus=8)])
    assert [(row.group, row.jobs, row.cpu_hours, row.gpu_hours) for row in found.rows] == [
        (("bio",), 1, 10.0, 0.0),
        (("ml",), 2, 5.0, 8.0),
    ]
    assert (found.total.jobs, found.total.cpu_hours, found.total.gpu_hours) == (2, 15.0, 8.0)


def test_a_suspended_run_counts_the_time_that_it_ran() -> None:
    found = total([run(22, 26, seconds=3600)], step="day")
    assert hours(found) == {("ml", "20"): 0.5, ("ml", "21"): 0.5}


runs = st.builds(
    lambda start, length, cpus, gpus, account, suspended: run(
        start / 3600, (start + length) / 3600, cpus=cpus, gpus=gpus, account=account,
        seconds=max(length - suspended, 1),
    ),
    st.integers(0, 80 * 86400), st.integers(1, 9 * 86400), st.integers(1, 512), st.integers(0, 64),
    st.sampled_from(["a", "b", "c"]), st.integers(0, 10**6),
)  # fmt: skip


@given(st.lists(runs, max_size=20), st.sampled_from(["day", "week", "month", None]))
def test_the_hours_of_all_steps_are_those_of_the_whole(found: list[Run], step: str | None) -> None:
    report = total(found, end=START + timedelta(days=90), step=step, by=("account",))
    assert sum(row.cpu_hours for row in report.rows) == pytest.approx(report.total.cpu_hours)
    assert sum(row.gpu_hours for row in report.rows) == pytest.approx(report.total.gpu_hours)
    assert report.total.cpu_hours == pytest.approx(sum(one.seconds * one.cpus for one in found) / 3600)
    assert all(row.start < row.end for row in report.rows)


# ---------------------------------------------------------------- output


def test_the_json_has_its_documented_shape() -> None:
    document = as_data(total([run(22, 26, cpus=2, gpus=1)], step="day", by=("account", "user")), namespace="slurm")
    assert document == {
        "namespace": "slurm",
        "start": "2026-11-20T00:00:00Z",
        "end": "2026-11-22T00:00:00Z",
        "by": ["account", "user"],
        "step": "day",
        "rows": [
            {
                "account": "ml", "user": "alice", "start": "2026-11-20T00:00:00Z", "end": "2026-11-21T00:00:00Z",
                "jobs": 1, "cpu_hours": 4.0, "gpu_hours": 2.0,
            },
            {
                "account": "ml", "user": "alice", "start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z",
                "jobs": 1, "cpu_hours": 4.0, "gpu_hours": 2.0,
            },
        ],
        "total": {
            "start": "2026-11-20T00:00:00Z", "end": "2026-11-22T00:00:00Z", "jobs": 1, "cpu_hours": 8.0,
            "gpu_hours": 4.0,
        },
    }  # fmt: skip


def test_the_csv_has_one_line_per_row_and_a_heading() -> None:
    (row,) = csv.DictReader(io.StringIO(as_csv(total([run(0, 1, account='a,"b"', cpus=3)]))))
    assert row["account"] == 'a,"b"'
    assert (row["jobs"], row["cpu_hours"], row["gpu_hours"]) == ("1", "3.0", "0.0")


@pytest.mark.parametrize(
    ("account", "cell"),
    [
        ("=1+2", "'=1+2"), ("+x", "'+x"), ("-x", "'-x"), ("-", "'-"), ("@SUM(1)", "'@SUM(1)"), ("\t=1", "'\t'=1"),
        ("\r=1", "' =1"), ("a\r=1", "a =1"), ("\n=1", "'\n=1"), ("\uff1d1", "'\uff1d1"), ("-1+2", "'-1+2"),
        ("a\x1b[2J", "a [2J"), ("x;=1;", "x;'=1;"), ("x;1", "x;1"), ("x\t@1", "x\t'@1"),
        ("-1\n", "'-1\n"), ("-1.5", "-1.5"), ("a=1", "a=1"), ("", ""), ("'=1", "'=1"),
    ],
)  # fmt: skip
def test_no_cell_of_the_csv_is_a_formula_and_numbers_stay(account: str, cell: str) -> None:
    text = as_csv(total([run(0, 1, account=account, cpus=3)]))
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["account"], row["jobs"], row["cpu_hours"]) == (cell, "1", "3.0")


def test_the_table_shows_groups_shares_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(total([run(0, 3), run(0, 1, account="bio", job="2")]))
    printed = capsys.readouterr().out
    lines = [row.split() for row in printed.splitlines()]
    assert ["ml", "1", "3.00", "75.0", "0.00", "-"] in lines
    assert ["all", "2", "4.00", "100.0", "0.00", "-"] in lines
    assert "2026-11-20 00:00 to 2026-11-22 00:00 UTC" in printed


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_with_everything_fits_a_terminal_and_is_not_broken_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, terminal: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    account = "physics-of-the-university-of-somewhere"
    runs = [run(0, 23, account=account, job=str(job), cpus=10**6, gpus=10**5) for job in range(1000)]
    print_table(total(runs, by=("account", "user"), step="month"))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    whole = [line for line in lines if account in line]
    assert (max(map(len, lines)) <= 80, len(whole)) == ((True, 0) if terminal else (False, 1))
    assert lines[1].startswith("2026-11-20 ")
    assert lines[1].split()[-5:] == ["1,000", "23,000.0M", "100.0", "2,300.0M", "100.0"]


def test_an_empty_report_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(total([]))
    assert capsys.readouterr().out.startswith("no job ran from 2026-11-20 00:00 to 2026-11-22 00:00 UTC")
