"""What a rehearsal makes of what it sees, and the slurm.conf that its slurmctld has."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from config import load_config
from images.backup.database import Database
from images.backup.rehearse import judge, scratch_conf
from slurm.conf import render
from tests import stacks
from tests.stacks import with_change

TOLD: dict[str, list[str]] = {
    "records": ["40"], "open": ["3\t0\t900", "4\t0\t950"], "newest": ["3", "4"],
    "associations": ["1"], "users": ["alice"],
}  # fmt: skip


def judged(opened: str = "", **lost: str) -> list[str]:
    """`opened`: one more record without an end. `lost`: what slurmdbd does not know."""
    told = {**TOLD, "open": [*TOLD["open"], *([opened] if opened else [])]}
    answered = {what: {*TOLD[what]} - {lost.get(what)} for what in ("newest", "associations", "users")}
    return judge("19700101T001640Z", told, {**answered, "jobs": {"2", "3", "4"}}, {"3", "4", "5"})[1]


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        (judged(), []),
        (judged("5\t0\t989"), ["state: slurmctld has lost jobs of the queue: 5"]),
        (judged("77\t5\t989"), ["state: slurmctld has lost jobs of the queue: 77"]),
        (judged("5\t0\t990"), []),
        (judged("8\t0\t10"), []),
        (judged(newest="3"), ["database: slurmdbd does not know records of jobs: 3"]),
        (judged(users="alice"), ["database: slurmdbd does not know users: alice"]),
    ],
    ids=["all there", "lost", "of an array", "between the parts", "no script", "no record", "no user"],
)
def test_what_is_not_as_it_was_is_a_problem(problems: list[str], said: list[str]) -> None:
    assert problems == said


def test_a_dump_of_before_slurmctld_had_registered_has_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Database, "ask", lambda *_: ["user_table"])
    assert Database(Mock(database="slurm_acct_db"), tmp_path).records("slurm", 5) == {}


def test_all_partitions_are_down_and_nobody_outside_is_told() -> None:
    outside = ("epilogslurmctld", "AccountingStorageExternalHost", "ResvEpilog", "BurstBufferType")
    theirs = {"MailProg": "/usr/bin/mail", "KillWait": 5, **dict.fromkeys(outside, "x")}
    sections = with_change(stacks.existing_full(), "slurm.settings", theirs)
    sections = with_change(sections, "partitions.gpu.settings", {"state": "UP", "PriorityTier": 10})
    lines = scratch_conf(render(load_config(sections))["slurm.conf"]).splitlines()
    partitions = [line for line in lines if line.startswith("PartitionName=")]
    assert len(partitions) == 2
    assert all("State=DOWN" in line and line.lower().count("state=") == 1 for line in partitions)
    own = {
        "MailProg=/bin/true",
        "SlurmdTimeout=0",
        "StateSaveLocation=/stage/volume",
        "AccountingStorageHost=127.0.0.1",
    }
    assert {"KillWait=5", "ClusterName=slurm", *own} <= set(lines)
    away = (*outside, "MailProg=/usr", "SlurmctldHost=controller", "AuthAlt")
    assert not [line for line in lines for key in away if line.lower().startswith(key.lower())]
