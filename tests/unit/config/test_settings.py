"""Settings of slurm.conf that would let users harm others."""

from __future__ import annotations

import pytest

from config import ConfigError, load_config
from tests import stacks
from tests.stacks import with_change


@pytest.mark.parametrize("settings", [{"UnkillableStepTimeout": 329}, {"unkillablesteptimeout": "60"}])
def test_a_timeout_with_which_a_user_drains_a_node_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="make it 330 at least"):
        load_config(with_change(stacks.existing(), "slurm.settings", settings))


@pytest.mark.parametrize("value", [330, "600"])
def test_a_longer_timeout_is_taken(value: object) -> None:
    load_config(with_change(stacks.existing(), "slurm.settings", {"UnkillableStepTimeout": value}))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("30 SlurmctldPort=1", "has a blank or a double quote in the value of 'KillWait'"),
        ("30\tSlurmctldPort += 1", "has a blank or a double quote in the value of 'KillWait'"),
        ("30 SlurmctldPort*=1", "has a blank or a double quote in the value of 'KillWait'"),
        ('a"b SlurmctldPort=1 c"d', "has a blank or a double quote in the value of 'KillWait'"),
        ("30, 40", "has a blank or a double quote in the value of 'KillWait'"),
        ("30\N{NO-BREAK SPACE}", "has a blank or a double quote in the value of 'KillWait'"),
        (("30", '"a', 'b"'), "has a blank or a double quote in the value of 'KillWait'"),
        ("30\\", "has a backslash at the end of the value of 'KillWait'"),
        ("", "has no value for 'KillWait'"),
        ((), "has no value for 'KillWait'"),
        ("3\x000", "has a control character in the value of 'KillWait'"),
        ('"3\N{LINE SEPARATOR}SlurmctldPort=1"', "has a control character in the value of 'KillWait'"),
        ("3\nSlurmctldPort=1", "has a line break or '#' in the value of 'KillWait'"),
    ],
)
def test_a_value_brings_no_other_key(value: object, told: str) -> None:
    """Not in the cluster's settings, nor a partition's or slurmdbd's: they are of one type."""
    for path in ("slurm.settings", "partitions.gpu.settings", "accounting.settings"):
        with pytest.raises(ConfigError, match=told):
            load_config(with_change(stacks.existing_full(), path, {"KillWait": value}))


@pytest.mark.parametrize("value", ['"a KEY=b"', '"a b"', "a=b,c=d", ("a", "b"), "a\\b", '""', 0, False])
def test_a_value_that_slurm_reads_as_one_is_taken(value: object) -> None:
    load_config(with_change(stacks.existing(), "slurm.settings", {"PrologFlags": value}))


def test_parameters_of_the_storage_do_not_take_the_place_of_tls() -> None:
    stack = with_change(stacks.existing(), "accounting.settings", {"StorageParameters": "CONNECT_TIMEOUT=5"})
    database = {"host": "db", "password": {"name": "db", "key": "password"}}
    load_config(with_change(stack, "accounting.database", {"external": database}))
    with pytest.raises(ConfigError, match="would take the place of"):
        load_config(with_change(stack, "accounting.database", {"external": {**database, "tls": {}}}))
