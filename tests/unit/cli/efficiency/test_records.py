"""From sacct's lines to what is known of jobs, and what is not."""

from __future__ import annotations

import pytest

from images.common.slurm_runs import UNKNOWN, RecordError, parse_runs, runs_between, runs_named
from tests.unit.cli.efficiency.lines import GIB, MIB, REAL, job, job_line, step_line
from tests.unit.cli.usage.lines import NOW, START, epoch


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
    first = step_line("00:10:00", GIB, id="7.0", number="7.0", end=epoch(0.5), seconds=1800)
    beside = step_line("00:10:00", 2 * GIB, id="7.1", number="7.1", end=epoch(0.5), seconds=1800)
    after = step_line("00:10:00", GIB, id="7.2", number="7.2", start=epoch(0.5), seconds=1800)
    assert job(first, beside, after).memory_used == 3 * GIB
    assert job(first, after).memory_used == GIB


@pytest.mark.parametrize("state", ["CANCELLED by 1000", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"])
def test_what_a_killed_job_used_is_not_known_without_a_look(state: str) -> None:
    assert job(step_line("00:00.002", None, state=state), state=state).cpu_seconds is None
    # What was looked at for long counts, also if it did nothing: this one is to be blamed.
    assert job(step_line("00:00.002", GIB, state=state), state=state).cpu_seconds == pytest.approx(0.002)


def test_a_look_at_the_first_moment_of_a_killed_job_says_nothing_of_its_cpu_time() -> None:
    short = {"end": epoch(0) + 20, "seconds": 20, "state": "CANCELLED"}
    assert job(step_line("00:00.002", MIB, **short), **short).cpu_seconds is None
    assert job(step_line("00:09.002", MIB, **short), **short).cpu_seconds == pytest.approx(9.002)


def test_a_long_step_that_was_not_measured_leaves_the_whole_job_unknown() -> None:
    short = step_line("00:00.001", None, id="7.0", number="7.0", state="CANCELLED", seconds=300, end=epoch(1 / 12))
    long = step_line("00:00.001", None, id="7.0", number="7.0", state="NODE_FAIL")
    assert job(step_line(), short).cpu_seconds == 3600
    assert job(step_line(), short).memory_used == GIB
    assert (job(step_line(), long).cpu_seconds, job(step_line(), long).memory_used) == (None, None)


def test_a_job_without_steps_or_account_is_no_trouble() -> None:
    (found,) = parse_runs([job_line(account="", user="", tres="", seconds="", nodes="")])
    assert (found.user, found.account, found.cpus, found.memory) == (UNKNOWN, UNKNOWN, 2, None)
    assert (found.cpu_seconds, found.memory_used) == (None, None)


@pytest.mark.parametrize(
    "lines",
    [["hello"], [step_line()]],
)
def test_lines_that_sacct_cannot_have_printed_are_errors(lines: list[str]) -> None:
    with pytest.raises(RecordError, match="sacct printed"):
        parse_runs(lines)


def test_sacct_is_asked_for_all_runs_of_a_time_and_for_the_last_run_of_a_job() -> None:
    command = runs_between(START, NOW, whole=True)
    assert {"--duplicates", "--allusers", f"--starttime=uts{epoch(0)}"} <= set(command)
    assert not {"--allocations", "--truncate"} & set(command)
    assert {"--duplicates", "--allocations", "--truncate"} <= set(runs_between(START, NOW, whole=False))
    assert runs_named(["7", "8_1"])[-1] == "--jobs=7,8_1"
    assert "--duplicates" not in runs_named(["7"])
