"""`backup`: where backups go, and when."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.sections.backup import Backup
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints

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


@pytest.mark.parametrize(
    ("backup", "told"),
    [
        ({"endpoint": "storage.example.com"}, "endpoint: 'storage.example.com' is not the address of an S3 store"),
        ({"endpoint": "https://storage.example.com/backups"}, "endpoint: "),
        ({"endpoint": "https://key:secret@storage"}, "endpoint: "),
        ({"endpoint": "https://storage:0"}, "endpoint: 'https://storage:0' has the port 0"),
        ({"bucket": "Backups"}, "bucket: 'Backups' is not the name of a bucket"),
        ({"prefix": "../other"}, "prefix: '../other' is not a folder in a bucket"),
        ({"schedule": "daily"}, "schedule: 'daily' is not a schedule: five fields"),
        ({"schedule": "61 2 * * *"}, "schedule: '61 2 * * *' has '61' for its minute, which goes from 0 to 59"),
        ({"schedule": "0 2 0 * *"}, "schedule: '0 2 0 * *' has '0' for its day, which goes from 1 to 31"),
        ({"schedule": "0 5-2 * * *"}, "schedule: '0 5-2 * * *' has '5-2' for its hour"),
        ({"schedule": "*/0 2 * * *"}, "schedule: '*/0 2 * * *' has '*/0' for its minute: a step is 1 at least"),
        ({"schedule": "0 2 * * 7"}, "schedule: '0 2 * * 7' has '7' for its weekday, which goes from 0 to 6"),
        ({"schedule": "0 2 30 2 *"}, "schedule: '0 2 30 2 *' has '30' for its day, which no month of '2' has"),
        ({"schedule": "0 2 31 4-6/2,9 *"}, "has '31' for its day, which no month of '4-6/2,9' has"),
        ({"schedule": "\u0660 2 * * *"}, "schedule: '\u0660 2 * * *' has '\u0660' for its minute: a number"),
        ({"schedule": "0 2 * * mon"}, "schedule: '0 2 * * mon' has 'mon' for its weekday: a number"),
        ({"keep": {"last": 0, "daily": 0, "weekly": 0, "monthly": 0}}, "keep: keeps nothing"),
        ({"exclude": ["scratch"]}, "'scratch' is not a path such as /scratch"),
        ({"exclude": ["/home/*/cache"]}, "is not a path"),
        ({"exclude": ["/a", "/a"]}, "has '/a' more than once"),
        ({"time_limit": "30s"}, "time_limit: '30s' is out of range: 60s"),
        ({"kep": {}}, "kep"),
    ],
)
def test_what_is_wrong_is_said_with_its_value(backup: dict[str, Any], told: str) -> None:
    (complaint,) = complaints(sections(**backup))
    assert told in complaint
