"""What a rehearsal makes of what it sees."""

from __future__ import annotations

from typing import Any

import pytest

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


def judged(told: dict[str, Any] | None = None, backup: str = "19700101T001640Z", **shown: Any) -> Outcome:
    outcome = Outcome(backup=backup, version="24.11", seconds={"total": 33, "state": 3, "slurmctld": 4})
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


LOST = "state: slurmctld has lost jobs of the queue: 5"

VERDICTS: dict[str, tuple[dict[str, Any], dict[str, Any], str, list[str]]] = {
    "a job with a script that is not shown": (opened([5, 0, 10001, 999]), {}, "", [LOST]),
    "a task of an array": (
        opened([77, 5, 10001, 999]), {}, "", ["state: slurmctld has lost jobs of the queue: 77"]
    ),
    "a job that came between the two parts": (opened([5, 0, 10001, 1000]), {}, "", []),
    "one of the last save's second, long before": (opened([5, 0, 10001, 1000]), {}, "19700101T001651Z", [LOST]),
    "a record without an end and without a script": (opened([8, 0, 10001, 10]), {}, "", []),
    "a job of another user": (
        {}, {"jobs": {**SHOWN.jobs, 3: (10002, "PENDING")}}, "",
        ["state: jobs belong to other users than accounting says: 3"],
    ),
    "an open partition": ({}, {"partitions": {"main": "up"}}, "", ["state: partitions were open to jobs: main"]),
    "records that slurmdbd does not know": (
        {}, {"answered": {3}}, "", ["database: slurmdbd does not know records of jobs: 4"]
    ),
    "files that differ": (
        {"jail": {"files": 7, "bytes": 70, "different": 1, "named": ["'/jail/x': is missing"]}}, {}, "",
        ["jail: 1 files are not as they were; '/jail/x': is missing"],
    ),
    "an empty jail": (
        {"jail": {"files": 0, "bytes": 0, "different": 0, "named": []}}, {}, "", ["jail: the backup has no files of it"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_what_is_not_as_it_was_is_a_problem(name: str) -> None:
    told, shown, backup, problems = VERDICTS[name]
    outcome = judged(told, backup or "19700101T001640Z", **shown)
    assert outcome.problems == problems
    assert (outcome.ok, "is NOT as it was" in text(outcome)) == (not problems, bool(problems))
    assert ("runaway" in "".join(outcome.notes)) == (name == "a record without an end and without a script")


def test_without_accounting_what_was_not_compared_is_said() -> None:
    outcome = Outcome(backup="b", version="24.11")
    judge(outcome, {"state": TOLD["state"]}, Shown(jobs=SHOWN.jobs, partitions=SHOWN.partitions, answered=None))
    assert outcome.ok
    assert "not compared" in outcome.notes[0]
