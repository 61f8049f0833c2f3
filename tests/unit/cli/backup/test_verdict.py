"""What a rehearsal makes of what it sees."""

from __future__ import annotations

from typing import Any

from cli.backup.verdict import Outcome, Shown, brief, judge, text

TOLD: dict[str, dict[str, Any]] = {
    "state": {"saved": 1000, "scripts": [3, 4, 5]},
    "database": {"records": 40, "open": [[3, 0, 10001, 900], [4, 0, 10001, 950]], "newest": [3, 4]},
    "jail": {"files": 7, "bytes": 70, "different": 0, "named": []},
}
SHOWN = Shown(
    jobs={3: (10001, "PENDING"), 4: (10001, "RUNNING"), 2: (0, "COMPLETED")},
    partitions={"main": "down", "hidden": "inact"},
    answered={3, 4},
)


def judged(told: dict[str, Any] | None = None, **shown: Any) -> Outcome:
    outcome = Outcome(backup="19700101T001640Z", version="24.11", seconds={"total": 33, "state": 3, "slurmctld": 4})
    fields = {"jobs": SHOWN.jobs, "partitions": SHOWN.partitions, "answered": SHOWN.answered, **shown}
    judge(outcome, {**TOLD, **(told or {})}, Shown(**fields))
    return outcome


def opened(*records: list[int]) -> dict[str, Any]:
    return {"database": {**TOLD["database"], "open": [*TOLD["database"]["open"], *records]}}


def test_a_backup_that_is_as_it_was() -> None:
    outcome = judged()
    assert outcome.ok
    assert outcome.found["state"] == {"jobs": 2, "compared": 2}
    said = text(outcome)
    assert "is as it was (33 s)" in said
    assert "2 jobs in the queue; put back in 3.0 s, slurmctld answered after 4.0 s" in said


def test_a_list_tells_what_was_rehearsed_and_what_could_not_be() -> None:
    def kept(outcome: Outcome) -> str:
        return brief({"time": "T", **outcome.as_data()})

    assert kept(judged()) == "rehearsed T (state, database, jail)"
    without_jail = judged()
    del without_jail.found["jail"]
    assert kept(without_jail) == "rehearsed T (state, database)"
    assert kept(judged(opened([5, 0, 10001, 999]))) == "NOT AS IT WAS T (state, database, jail)"
    no_room = Outcome(backup="b", version="24.11", failed="there is no room\nfor it")
    assert not no_room.ok
    assert kept(no_room) == "could not be rehearsed T: there is no room"
    before = {"time": "T", "ok": False, "found": {}, "problems": ["no room"]}
    assert brief(before) == "REHEARSAL FAILED T", "as earlier versions have kept both"


def test_a_job_with_a_script_that_slurmctld_does_not_show_is_lost() -> None:
    outcome = judged(opened([5, 0, 10001, 999]))
    assert outcome.problems == ["state: slurmctld has lost jobs of the queue: 5"]
    assert "is NOT as it was" in text(outcome)


def test_a_task_of_an_array_has_the_script_of_its_array() -> None:
    assert not judged(opened([77, 5, 10001, 999])).ok


def test_a_job_that_came_between_the_two_parts_is_none_of_the_queue() -> None:
    assert judged(opened([5, 0, 10001, 1000])).ok


def test_a_job_of_the_last_save_s_second_counts_where_the_backup_began_long_after() -> None:
    told = opened([5, 0, 10001, 1000])
    outcome = Outcome(backup="19700101T001651Z", version="24.11")  # 1011
    judge(outcome, {**TOLD, **told}, SHOWN)
    assert outcome.problems == ["state: slurmctld has lost jobs of the queue: 5"]


def test_a_record_without_an_end_and_without_a_script_is_told_and_no_fault_of_the_backup() -> None:
    outcome = judged(opened([8, 0, 10001, 10]))
    assert outcome.ok
    assert "runaway" in outcome.notes[0]


def test_a_job_of_another_user_is_a_problem() -> None:
    assert not judged(jobs={**SHOWN.jobs, 3: (10002, "PENDING")}).ok


def test_a_partition_that_was_open_is_a_problem() -> None:
    assert judged(partitions={"main": "up"}).problems == ["state: partitions were open to jobs: main"]


def test_records_that_slurmdbd_does_not_know_are_a_problem() -> None:
    assert judged(answered={3}).problems == ["database: slurmdbd does not know records of jobs: 4"]


def test_files_that_differ_are_a_problem_and_named_and_an_empty_jail_is_one() -> None:
    different = {"jail": {"files": 7, "bytes": 70, "different": 1, "named": ["'/jail/x': is missing"]}}
    assert judged(different).problems == ["jail: 1 files are not as they were; '/jail/x': is missing"]
    assert not judged({"jail": {"files": 0, "bytes": 0, "different": 0, "named": []}}).ok


def test_without_accounting_what_was_not_compared_is_said() -> None:
    outcome = Outcome(backup="b", version="24.11")
    judge(outcome, {"state": TOLD["state"]}, Shown(jobs=SHOWN.jobs, partitions=SHOWN.partitions, answered=None))
    assert outcome.ok
    assert "not compared" in outcome.notes[0]
