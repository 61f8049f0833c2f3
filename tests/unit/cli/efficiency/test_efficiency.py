"""`slurmstack efficiency`: what it asks, what jobs used of what they asked for, and what nobody knows."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta
from typing import Any

import pytest

from cli.commands import efficiency as efficiency_commands
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
from cli.errors import FAILED, Failure
from images.common.slurm_runs import UNKNOWN, RecordError, Run, parse_runs, runs_between, runs_named
from tests.unit.cli.usage.records import (
    GIB,
    MIB,
    NOW,
    REAL,
    START,
    Controller,
    epoch,
    job,
    job_line,
    step_line,
)


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


# ---------------------------------------------------------------- records


def test_what_slurm_prints_is_jobs_with_their_steps() -> None:
    jobs = parse_runs(REAL.splitlines())
    assert [(one.job, one.number, len(one.steps)) for one in jobs] == [
        ("10", "10", 2), ("13+0", "13", 2), ("13+1", "14", 1), ("12_[1-3]", "12", 0),
    ]  # fmt: skip
    held = jobs[0]
    assert (held.cpus, held.nodes, held.gpus, held.memory) == (1, 1, 0, 400 * MIB)
    assert held.cpu_seconds == pytest.approx(0.172)
    assert held.memory_used == 12685312 + 165842944  # the script's and its step's, which ran at the same time


def test_memory_of_steps_side_by_side_is_added_up_and_of_steps_in_a_row_is_not() -> None:
    half = {"end": epoch(0.5), "seconds": 1800}
    first = step_line("00:10:00", GIB, id="7.0", number="7.0", **half)
    beside = step_line("00:10:00", 2 * GIB, id="7.1", number="7.1", **half)
    after = step_line("00:10:00", GIB, id="7.2", number="7.2", start=epoch(0.5), seconds=1800)
    assert (job(first, beside, after).memory_used, job(first, after).memory_used) == (3 * GIB, GIB)


KILLED = ("CANCELLED by 1000", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
SHORT = {"end": epoch(0) + 20, "seconds": 20, "state": "CANCELLED"}


@pytest.mark.parametrize(
    ("cpu", "memory", "changes", "seconds"),
    [
        *(("00:00.002", None, {"state": state}, None) for state in KILLED),
        # What was looked at for long counts, also if it did nothing: this one is to be blamed.
        *(("00:00.002", GIB, {"state": state}, 0.002) for state in KILLED),
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


def test_a_job_without_steps_or_account_is_no_trouble() -> None:
    (found,) = parse_runs([job_line(account="", user="", tres="", seconds="", nodes="")])
    assert (found.user, found.account, found.cpus, found.memory) == (UNKNOWN, UNKNOWN, 2, None)
    assert (found.cpu_seconds, found.memory_used) == (None, None)


@pytest.mark.parametrize("line", ["hello", step_line()])
def test_lines_that_sacct_cannot_have_printed_are_errors(line: str) -> None:
    with pytest.raises(RecordError, match="sacct printed"):
        parse_runs([line])


def test_sacct_is_asked_for_all_runs_of_a_time_and_for_the_last_run_of_a_job() -> None:
    command = runs_between(START, NOW, whole=True)
    assert {"--duplicates", "--allusers", f"--starttime=uts{epoch(0)}"} <= set(command)
    assert not {"--allocations", "--truncate"} & set(command)
    assert {"--duplicates", "--allocations", "--truncate"} <= set(runs_between(START, NOW, whole=False))
    assert runs_named(["7", "8_1"])[-1] == "--jobs=7,8_1"
    assert "--duplicates" not in runs_named(["7"])


# ---------------------------------------------------------------- sums


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


def test_the_csv_has_the_rows_of_the_json_nothing_where_nothing_is_known_and_no_formula() -> None:
    odd = job(step_line("00:00:00", None), account="=1+2")
    (row,) = csv.DictReader(io.StringIO(as_csv(report(odd))))
    assert {row[name] for name in row if name.endswith(("used", "wasted", "percent", "largest_job"))} == {""}
    assert (row["account"], row["jobs"], row["cpu_hours_asked"]) == ("'=1+2", "1", "2.0")
    assert as_csv(report()).startswith("account,jobs,cpu_hours_asked")


def test_one_job_as_json_and_csv() -> None:
    found = job(user="@me")
    data = job_as_data(found)
    assert (data["cpu_seconds_used"], data["cpu_percent"]) == (3600, 50.0)
    assert (data["memory_bytes_asked"], data["memory_bytes_used"], data["memory_percent"]) == (4 * GIB, GIB, 25.0)
    assert (data["start"], data["elapsed_seconds"], data["unknown"]) == ("2026-11-20T00:00:00Z", 3600, "")
    (row,) = csv.DictReader(io.StringIO(jobs_as_csv([found])))
    assert (row["user"], row["cpus"], row["advice"]) == ("'@me", "2", "; ".join(data["advice"]))


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


@pytest.mark.parametrize(
    ("found", "why", "told"),
    [
        (job(), "", "unknown"),
        (job(end="Unknown", state="RUNNING"), "still running", ""),
        (job(start="Unknown", end="Unknown", state="PENDING"), "has not run", ""),
        (job(seconds=0), "less than a second", ""),
        (job(step_line("00:30:00", None)), "its memory was never looked at", "memory unknown of 4.00 GiB"),
        (job(step_line("00:00:00", None)), "JobAcctGatherType is none", "CPU unknown of 02:00:00"),
    ],
)
def test_what_is_not_known_of_a_job_is_said_with_the_reason(
    found: Run, why: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (why in unknown(found)) if why else unknown(found) == ""
    print_job(found)
    printed = " ".join(capsys.readouterr().out.split())
    assert why in printed
    assert (told in printed) == bool(why)
    assert "0.0 %" not in printed or not why


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
