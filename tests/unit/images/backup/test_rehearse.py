"""What a rehearsal makes of what it sees, and the slurm.conf that its slurmctld has."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from config import load_config
from images.backup.database import Database
from images.backup.rehearse import lost, queued, scratch_conf
from slurm.conf import render
from tests import stacks
from tests.stacks import with_change


@pytest.mark.parametrize(
    ("opened", "queue"),
    [
        (["3\t0\t900", "4\t0\t989"], {"3", "4"}),
        (["77\t5\t989"], {"77"}),
        (["3\t0\t990"], set()),
        (["8\t0\t10"], set()),
    ],
    ids=["there", "of an array", "between the parts", "no script"],
)
def test_what_accounting_says_to_wait_or_run_is_in_the_queue(opened: list[str], queue: set[str]) -> None:
    assert queued("19700101T001640Z", opened, {"3", "4", "5"}) == queue


def test_what_is_not_as_it_was_is_named() -> None:
    dumped = {"jobs": {"3", "4"}, "associations": {"1"}, "users": {"alice"}, "in the queue": {"4"}}
    assert lost(dumped, {**dumped, "in the queue": {"2", "4"}}) == []
    answered = {**dumped, "jobs": {"4"}, "in the queue": {"2"}}
    assert lost(dumped, answered) == ["1 jobs, such as 3", "1 in the queue, such as 4"]


def test_a_dump_of_before_slurmctld_had_registered_has_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Database, "ask", lambda *_: ["user_table"])
    found = Database(Mock(database="slurm_acct_db"), tmp_path).records("slurm", 5)
    assert not any(found.values())


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
