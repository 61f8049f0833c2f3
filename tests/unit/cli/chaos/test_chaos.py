"""Faults by plan, and what is said of a job by its marks and its records."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from cli.chaos.run import BETWEEN, DEFAULT, DELETE, LOSE, allowed, plan, shown
from cli.chaos.stream import Mark, Record, Submitted, gaps, judge, marks_in, records_in
from cli.commands.chaos import chaos
from slurm.names import CONTROLLER
from tests import stacks
from tests.unit.cli.command_line import stack_file


def test_the_same_seed_gives_the_same_faults_and_another_one_others() -> None:
    assert plan(7, 240, DEFAULT, controllers=2) == plan(7, 240, DEFAULT, controllers=2)
    assert plan(7, 240, DEFAULT, controllers=2) != plan(8, 240, DEFAULT, controllers=2)


def test_faults_are_some_seconds_apart_and_the_begin_and_the_end_are_calm() -> None:
    for seed in range(50):
        times = [fault.at for fault in plan(seed, 240, DEFAULT, controllers=2)]
        assert times[0] == 10
        assert times[-1] <= 230
        spans = [later - first for first, later in pairwise(times)]
        assert all(BETWEEN[0] - 0.2 <= span <= BETWEEN[1] + 0.2 for span in spans)
        assert 11 <= len(times) <= 36


def test_workers_are_hit_where_they_are_named_alone() -> None:
    assert "worker" not in allowed(())
    assert plan(1, 240, (), controllers=2) == [], "nothing that is there"
    assert allowed(["worker"]) == ("worker",)
    assert allowed(["slurmdbd,controller", "login"]) == ("controller", "slurmdbd", "login")
    assert {fault.component for fault in plan(1, 3600, allowed(["controller"]), controllers=2)} == {"controller"}


def test_a_fault_picks_one_of_the_pods_that_are_there() -> None:
    fault = plan(3, 240, ["login"], controllers=2)[0]
    assert fault.pod(["b", "a"]) in {"a", "b"}
    assert fault.pod(["a"]) == "a"
    assert "login" in shown([fault])


def test_the_only_controller_always_gets_its_goodbye() -> None:
    """Two that write one state destroy it; all else of the plan is the same."""
    one, two = (plan(1, 3600, DEFAULT, controllers=number) for number in (1, 2))
    hard = [fault for fault in two if (fault.component, fault.kind) == (CONTROLLER, LOSE)]
    assert hard
    assert [fault for fault in one if fault not in two] == [replace(fault, kind=DELETE) for fault in hard]


def mark(job: int = 17, restart: int = 0, *, ended: bool = True, number: int = 1) -> Mark:
    return Mark(number=number, job=job, restart=restart, ended=ended)


def record(state: str, job: int = 17, number: int = 1) -> Record:
    return Record(number=number, job=job, state=state)


ACCEPTED = Submitted(accepted={1: 17})

CASES: list[tuple[str, list[Mark], list[Record], list[int]]] = [
    ("once", [mark()], [record("COMPLETED")], []),
    # Slurm queued it again when its node was lost, and says so.
    ("requeued", [mark(ended=False), mark(restart=1)], [record("NODE_FAIL"), record("COMPLETED")], []),
    ("requeued", [mark(), mark(restart=1)], [record("COMPLETED")], []),
    ("requeued", [mark(restart=1)], [record("REQUEUED"), record("COMPLETED")], []),
    # slurmctld lost what it had accepted, or accounting alone knows of it.
    ("lost", [], [], []),
    ("lost", [], [record("PENDING")], []),
    ("lost", [mark(ended=False)], [], []),
    # Accounting says that it ran, and it left nothing.
    ("lost", [], [record("COMPLETED")], []),
    ("twice", [mark(), mark()], [record("COMPLETED")], []),
    ("twice", [mark(), mark(ended=False)], [record("COMPLETED")], []),
    ("unrecorded", [mark()], [], []),
    ("unrecorded", [mark()], [record("RUNNING")], []),
    ("waiting", [], [record("PENDING")], [17]),
    ("otherwise", [], [record("NODE_FAIL")], []),
]


@pytest.mark.parametrize(("what", "marks", "records", "queued"), CASES)
def test_each_job_is_sorted_by_what_it_left_and_what_accounting_says(
    what: str, marks: list[Mark], records: list[Record], queued: list[int]
) -> None:
    verdict = judge(ACCEPTED, marks, records, queued)
    sorted_ = {name: getattr(verdict, name) for name in ("once", "requeued", "lost", "twice", "unrecorded", "waiting")}
    sorted_["otherwise"] = [job for jobs in verdict.otherwise.values() for job in jobs]
    assert {name: jobs for name, jobs in sorted_.items() if jobs} == {what: [17]}
    assert verdict.ok == (what in {"once", "requeued", "waiting", "otherwise"})


def test_a_submission_without_an_answer_counts_where_it_was_accepted_after_all() -> None:
    submitted = Submitted(unknown={1, 2})
    assert judge(submitted, [mark()], [record("COMPLETED")], []).once == [17]
    assert judge(submitted, [], [record("PENDING")], []).lost == [17], "accounting has it, and it never ran"
    assert judge(submitted, [], [], []).ok, "nobody has accepted it"


def test_jobs_of_others_are_nobody_s_business() -> None:
    assert judge(ACCEPTED, [mark(), mark(99, number=5)], [record("COMPLETED"), record("FAILED", 98, 6)], []).once == [
        17
    ]


def test_the_user_s_directory_may_have_anything_in_it() -> None:
    listed = (
        "m.1.17.0.abcDEF 4\nm.1.17.0.x\nm.x.17.0.abcdef 4\n../m.1.2.0.abcdef 4\nm.2.18.1.abcdef 0\n\nm.1.17.0.abcdef\n"
    )
    assert marks_in(listed) == [mark(), mark(18, 1, ended=False, number=2)]


def test_records_are_those_of_our_jobs() -> None:
    others = "18|chaos-cd-1|COMPLETED\n19|chaos-ab-x|FAILED\n20|a|b|FAILED\n"
    listed = f"17|chaos-ab-1|COMPLETED\n{others}21|chaos-ab-2|CANCELLED by 0\n"
    assert records_in(listed, "chaos-ab-") == [record("COMPLETED"), record("CANCELLED", 21, 2)]


def test_the_longest_gap_is_told_first_with_the_begin_and_the_end() -> None:
    assert gaps([1, 2, 12, 13], 20) == [(2, 10), (13, 7)]
    assert gaps([], 20) == [(0, 20)]


def test_a_dry_run_asks_nobody_and_prints_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stack_file(tmp_path, stacks.existing())
    chaos(file, seed=7, dry_run=True)
    first = capsys.readouterr().out
    chaos(file, seed=7, dry_run=True)
    assert capsys.readouterr().out == first
    assert first.startswith("seed 7\n  10.0 s  ")
    assert "elastic" not in first, "the stack has none"
