"""`backup`: where backups go, and when."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.sections.backup import Backup
from tests import stacks
from tests.stacks import with_change

LEAST = {"endpoint": "https://storage.example.com", "bucket": "site-backups", "credentials_secret": "backup"}


def sections(**backup: Any) -> dict[str, Any]:
    return with_change(stacks.existing(), "backup", {**LEAST, **backup})


def loaded(**backup: Any) -> Backup:
    found = load_config(sections(**backup)).backup
    assert found is not None
    return found


def test_there_are_none_unless_somebody_says_where_to() -> None:
    assert load_config(stacks.existing()).backup is None


def test_each_cluster_has_a_repository_of_its_own() -> None:
    assert loaded().repository("slurm") == "https://storage.example.com/site-backups/slurm"
    assert loaded(prefix="a/b").repository("slurm") == "https://storage.example.com/site-backups/a/b"


@pytest.mark.parametrize(
    "schedule",
    ["0 2 * * *", "*/15 * * * *", "5,35 0-6/2 1 1-12 1-5", "0  3 * *  0", "0 2 29 2 *", "0 2 31 */2 *", "0 2 30 2 1"],
)
def test_schedules_are_those_of_cron(schedule: str) -> None:
    assert loaded(schedule=schedule).schedule == " ".join(schedule.split())
