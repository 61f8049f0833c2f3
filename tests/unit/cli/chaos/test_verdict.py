"""What is said of a job, by its marks and its records."""

from __future__ import annotations

import pytest

from cli.chaos.stream import Mark, Record, Submitted, gaps, judge, marks_in, records_in


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
    assert gaps([1, 2, 12, 13], begin=0, end=20, least=5) == [(2, 10), (13, 7)]
    assert gaps([], begin=0, end=20, least=5) == [(0, 20)]
