"""What looks right and is not, to Slurm, to Kubernetes or to a store."""

from __future__ import annotations

from typing import Any

import pytest

from config import ConfigError, load_config
from config.load import sections_of
from slurm.conf import render
from tests import stacks
from tests.stacks import with_change

ARABIC = "\N{ARABIC-INDIC DIGIT ZERO}"
MOST = 253
"""Characters of an object's name in Kubernetes."""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("accounting.retention.jobs", f"9{ARABIC}days"),
        ("slurm.settings", {"KillWait": float("nan")}),
        ("slurm.settings", {"UnkillableStepTimeout": 600.0}),
        ("slurm.settings", {"UnkillableStepTimeout": "0x10"}),
        ("slurm.settings", {"UnkillableStepTimeout": '"60"'}),
        ("backup.credentials_secret", "a..b"),
        ("backup.credentials_secret", f"{'a' * MOST}b"),
        ("backup.bucket", "a..b"),
        ("backup.bucket", "192.168.1.1"),
        ("backup.endpoint", "https://store:http"),
        ("backup.endpoint", "https://a:b:c"),
        ("backup.endpoint", "https://store:"),
        ("backup.endpoint", "https://store:0"),
        ("backup.schedule", "0 2 31 2 */1"),
        ("backup.exclude", ["/home/../etc"]),
        ("backup.exclude", ["/a\x7fb"]),
        ("login.source_ranges", ["fe80::%eth0/64"]),
        ("mounts.data.path", "/jail"),
        ("mounts.data.path", "/lib32/x"),
    ],
)
def test_it_is_refused(path: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=path.partition(".")[0]):
        load_config(with_change(stacks.existing_full(), path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("backup.credentials_secret", "a.b-c"),
        ("backup.credentials_secret", "a" * MOST),
        ("backup.bucket", "192.168.1.a"),
        ("backup.endpoint", "https://[fd00::1]:9000"),
        ("backup.endpoint", "https://[fd00::1]"),
        ("backup.schedule", "0 2 31 2 1"),
        ("backup.exclude", ["/home/..data"]),
    ],
)
def test_it_is_taken(path: str, value: Any) -> None:
    load_config(with_change(stacks.existing_full(), path, value))


def of_a_directory(path: str, value: Any) -> dict[str, Any]:
    return with_change(with_change(stacks.existing_full(), "sssd", {"secret": "ldap"}), path, value)


@pytest.mark.parametrize(
    "group", ["", " a", "hpc\nStateSaveLocation=/tmp/x", "hpc Nodes=ALL", "a,b", 'a"b', "a#b", "a\\"]
)
def test_a_group_of_a_directory_brings_nothing_else_into_slurm_conf(group: str) -> None:
    with pytest.raises(ConfigError, match="is not the name of a group"):
        load_config(of_a_directory("partitions.gpu.allow_groups", [group]))


def test_a_group_with_a_blank_is_one_group() -> None:
    lines = render(load_config(of_a_directory("partitions.gpu.allow_groups", ["domain users", "hpc"])))["slurm.conf"]
    assert 'AllowGroups="domain users,hpc"' in lines


def test_people_of_a_directory_may_have_reservations() -> None:
    week = {"start": "2026-12-01T08:00:00", "duration": "1-00:00:00", "node_count": 1}
    users = ["anna.schmidt", "Anna", "anna@example.org"]
    load_config(of_a_directory("reservations.week", {**week, "users": users}))
    with pytest.raises(ConfigError, match="is not the name of a user"):
        load_config(of_a_directory("reservations.week", {**week, "users": ["anna flags=MAINT"]}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 200_000, "is nested too deeply"),
        ('{"a":' * 900 + "1" + "}" * 900, "is nested too deeply"),
        ('{"default": {"size": 2}, "default": {"size": 5}}', "has the key 'default' twice"),
    ],
)
def test_text_of_a_section_is_read_as_carefully_as_a_file(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        sections_of({"config": {"slurmstack:worker_nodes": text}}, where=stacks.ROOT)
