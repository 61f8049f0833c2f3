"""From jobs to sums, tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest

from cli.efficiency.report import (
    Efficiency,
    advice,
    as_csv,
    as_data,
    clock,
    job_as_data,
    jobs_as_csv,
    print_job,
    print_table,
    summarize,
    unknown,
)
from images.common.slurm_runs import Run
from tests.unit.cli.efficiency.lines import GIB, MIB, job, step_line
from tests.unit.cli.usage.lines import START, epoch


def report(*jobs: Run, hours: float = 24, **changes: Any) -> Efficiency:
    """The report from START on, made at its end."""
    end = START + timedelta(hours=hours)
    return summarize(jobs, **{"start": START, "end": end, "now": end, "by": ("account",), **changes})


def test_the_largest_waste_comes_first() -> None:
    idle = job(step_line("00:00:36"), id="8", number="8", account="bio")
    found = report(job(), idle)
    assert [(row.group, row.cpu_asked, row.cpu_used, row.cpu_wasted) for row in found.rows] == [
        (("bio",), 2.0, pytest.approx(0.01), pytest.approx(1.99)),
        (("ml",), 2.0, 1.0, 1.0),
    ]
    assert (found.total.jobs, found.total.memory_percent) == (2, 25.0)
    assert found.total.cpu_percent == pytest.approx(25.25)


def test_jobs_that_were_not_measured_are_no_waste() -> None:
    lost = job(step_line("00:00:00", None, state="NODE_FAIL"), id="8", number="8", state="NODE_FAIL")
    (row,) = report(job(), lost).rows
    assert (row.cpu_asked, row.cpu_measured, row.cpu_wasted, row.cpu_percent) == (4.0, 2.0, 1.0, 50.0)
    assert (row.memory_asked, row.memory_measured, row.memory_percent) == (8.0, 4.0, 25.0)
    (row,) = report(lost).rows
    assert (row.cpu_percent, row.memory_percent) == (None, None)


def test_a_job_that_took_more_than_its_cpus_hides_no_waste_of_another() -> None:
    greedy = job(step_line("06:00:00"), id="8", number="8")
    (row,) = report(job(), greedy).rows
    assert (row.cpu_wasted, row.cpu_percent) == (1.0, 175.0)


def test_a_job_counts_for_the_part_that_lies_between_the_times() -> None:
    (row,) = report(job(), hours=0.25).rows
    assert (row.cpu_asked, row.cpu_used, row.memory_used) == (0.5, 0.25, 0.25)
    assert report(job(start=epoch(-2), end=epoch(-1))).rows == ()


def test_a_running_job_counts_as_asked_up_to_the_end() -> None:
    running = job(end="Unknown", state="RUNNING", seconds=7200)
    (row,) = report(running, hours=1, now=START + timedelta(hours=2)).rows
    assert (row.cpu_asked, row.cpu_measured) == (2.0, 0.0)


def test_a_requeued_job_counts_all_its_runs_but_is_one_job() -> None:
    (row,) = report(job(), job(step_line(start=epoch(2)), start=epoch(2), end=epoch(3))).rows
    assert (row.jobs, row.cpu_asked) == (1, 4.0)


def test_the_json_has_its_documented_shape() -> None:
    row = {
        "jobs": 1, "cpu_hours_asked": 2.0, "cpu_hours_measured": 2.0, "cpu_hours_used": 1.0, "cpu_hours_wasted": 1.0,
        "cpu_percent": 50.0, "memory_gib_hours_asked": 4.0, "memory_gib_hours_measured": 4.0,
        "memory_gib_hours_used": 1.0, "memory_percent": 25.0, "memory_gib_largest_job": 1.0, "gpu_hours_asked": 3.0,
        "gpu_hours_used": None,
    }  # fmt: skip
    found = report(job(tres="cpu=2,mem=4G,gres/gpu=3"), by=("account", "job"))
    assert as_data(found, namespace="slurm") == {
        "namespace": "slurm",
        "start": "2026-11-20T00:00:00Z",
        "end": "2026-11-21T00:00:00Z",
        "by": ["account", "job"],
        "rows": [{"account": "ml", "job": "7", **row}],
        "total": row,
    }


def test_the_csv_has_the_rows_of_the_json_and_nothing_where_nothing_is_known() -> None:
    (row,) = csv.DictReader(io.StringIO(as_csv(report(job(step_line("00:00:00", None), account='a,"b"')))))
    assert {row[name] for name in row if name.endswith(("used", "wasted", "percent", "largest_job"))} == {""}
    assert (row["account"], row["cpu_hours_asked"], row["cpu_percent"], row["gpu_hours_used"]) == (
        'a,"b"',
        "2.0",
        "",
        "",
    )
    assert as_csv(report()).startswith("account,jobs,cpu_hours_asked")


def test_one_job_as_json_and_csv() -> None:
    data = job_as_data(job())
    assert (data["cpu_seconds_used"], data["cpu_percent"]) == (3600, 50.0)
    assert (data["memory_bytes_asked"], data["memory_bytes_used"], data["memory_percent"]) == (4 * GIB, GIB, 25.0)
    assert (data["start"], data["elapsed_seconds"], data["unknown"]) == ("2026-11-20T00:00:00Z", 3600, "")
    (row,) = csv.DictReader(io.StringIO(jobs_as_csv([job()])))
    assert row["advice"] == "; ".join(data["advice"])


def test_no_cell_of_the_csv_is_a_formula() -> None:
    odd = job(account="=1+2", user="@me")
    (line,) = csv.DictReader(io.StringIO(jobs_as_csv([odd])))
    assert (line["account"], line["user"], line["cpus"]) == ("'=1+2", "'@me", "2")
    (row,) = csv.DictReader(io.StringIO(as_csv(report(odd, by=("account", "user")))))
    assert (row["account"], row["user"], row["jobs"]) == ("'=1+2", "'@me", "1")


def test_the_table_of_a_large_cluster_with_gpus_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    who = {"user": "alice-of-the-institute", "account": "physics-of-the-university"}
    tres = "cpu=512000,mem=2000T,gres/gpu=6400"
    large = job(step_line("90-00:00:00"), seconds=9 * 10**6, end=epoch(2500), tres=tres, **who)
    print_table(report(large, hours=3000, by=("account", "user")))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:2] == ["ACCOUNT", "USER"]
    cells = ["1", "1,280.0M", "2,160", "0.0", "1,280.0M", "5,120.0M", "0.0", "16.0M", "-"]
    assert cells == lines[1].split()[2:]


def test_the_table_says_what_was_not_measured_and_leaves_out_gpus_that_nobody_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(report(job(end="Unknown", state="RUNNING")))
    printed = capsys.readouterr().out
    assert ["ml", "1", "2.00", "-", "-", "-", "4.00", "-"] in [line.split() for line in printed.splitlines()]
    assert "2.00 of the CPU hours were not measured" in printed
    assert "GPU" not in printed


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(report())
    assert capsys.readouterr().out.startswith("no job ran from 2026-11-20 00:00")


# ---------------------------------------------------------------- one job


def test_one_job_is_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_job(job(tres="cpu=2,mem=4G,gres/gpu=1"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "7 of alice, account ml state COMPLETED nodes 1 elapsed 01:00:00" in printed
    assert "01:00:00, 50.0 % of 02:00:00 (2 x 01:00:00)" in printed
    assert "1.00 GiB, 25.0 % of 4.00 GiB" in printed
    assert "1; what they did is not recorded" in printed
    assert "--mem=2G would do" in printed


def test_what_is_not_known_of_a_job_is_said_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    print_job(job(step_line("00:00:00", None)))
    printed = " ".join(capsys.readouterr().out.split())
    assert "CPU unknown of 02:00:00" in printed
    assert "memory unknown of 4.00 GiB" in printed
    assert "0.0 %" not in printed
    assert "JobAcctGatherType is none" in printed


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (job(), ""),
        (job(end="Unknown", state="RUNNING"), "still running"),
        (job(start="Unknown", end="Unknown", state="PENDING"), "has not run"),
        (job(seconds=0), "less than a second"),
        (job(step_line("00:30:00", None)), "its memory was never looked at"),
    ],
)
def test_each_gap_has_its_own_reason(found: Run, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert unknown(found).startswith(why) if not why else why in unknown(found)
    print_job(found)
    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job(step_line("02:00:00", 3 * GIB)), []),
        (job(step_line("01:30:00", 2 * GIB), tres="cpu=2,mem=64G"), ["used 2.00 GiB: --mem=4G would do"]),
        (job(step_line("01:30:00", 90 * MIB), tres="cpu=2,mem=1000M"), ["used 90.0 MiB: --mem=200M would do"]),
        (job(step_line("01:30:00", MIB), tres="cpu=2,mem=64G,node=2", nodes=2), ["2 nodes together: much less would"]),
        (job(step_line("02:30:00", 3 * GIB), tres="cpu=8,mem=4G"), ["asked for 8 CPUs, 2.5 were busy on average: 3 "]),
        (job(step_line("00:00:01", MIB), seconds=120, end=epoch(1 / 30)), []),
        (job(state="OUT_OF_MEMORY"), ["because 4.00 GiB of memory were not enough: ask for more"]),
        (job(step_line("00:00:00", None)), []),
    ],
)
def test_advice_is_given_where_less_would_do(found: Run, expected: list[str]) -> None:
    given = advice(found)
    assert len(given) == len(expected)
    assert all(part in line for part, line in zip(expected, given, strict=True))


def test_long_times_are_written_as_slurm_writes_them() -> None:
    assert [clock(seconds) for seconds in (59.6, 3723, 90000)] == ["00:01:00", "01:02:03", "1-01:00:00"]
