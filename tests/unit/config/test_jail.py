"""The section `jail`: names of roots, and what may be carried from one to another."""

from __future__ import annotations

from typing import Any

import pytest

from config import ConfigError, load_config
from tests import stacks


def problems(**jail: Any) -> str:
    stack = {**stacks.existing(), "jail": jail}
    try:
        load_config(stack)
    except ConfigError as error:
        return str(error)
    return ""


def test_a_root_with_what_it_carries_is_taken() -> None:
    config = load_config(
        {**stacks.existing(), "jail": {"root": "slurm-26.05", "carry": ["/opt", "/usr/local", "/etc/profile.d", "/sw"]}}
    )
    assert (config.jail.root, config.jail.carry_from) == ("slurm-26.05", None)


@pytest.mark.parametrize(
    "name", ["top", "first", "root", "..", ".first", "a/b", "Blue", "-a", "a-", "a.", "", "a" * 41, "a b", "..a", "a\n"]
)
def test_names_that_lead_elsewhere_or_could_mean_something_else_are_refused(name: str) -> None:
    assert "jail.root" in problems(root=name)
    assert "jail.carry_from" in problems(root="blue", carry=["/opt"], carry_from=name)


@pytest.mark.parametrize(
    "path",
    [
        "/", "/etc", "/etc/passwd", "/etc/passwd-", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/sudoers",
        "/etc/sudoers.d", "/etc/sudoers.d/x", "/etc/sudo.conf", "/etc/ssh", "/etc/ssh/authorized_keys.d", "/etc/pam.d",
        "/etc/security", "/etc/subuid", "/etc/ld.so.preload", "/etc/hosts", "/etc/slurm", "/root", "/root/.ssh",
        "/home", "/home/alice", "/srv", "/usr", "/usr/bin", "/usr/lib/x", "/var", "/var/lib", "/var/lib/dpkg",
        "/var/spool/cron", "/bin", "/lib", "/tmp", "/proc/1", "/dev", "/run", "/.slurmstack", "/.slurmstack-roots",
        "opt", "/opt/../etc",
        "/opt/", "//etc", "/opt/./x", "/opt\n",
    ],
)  # fmt: skip
def test_accounts_the_system_and_what_all_roots_share_cannot_be_carried(path: str) -> None:
    assert "jail.carry" in problems(root="blue", carry=[path])


def test_each_path_is_carried_once() -> None:
    assert "'/opt/a', which is within '/opt' already" in problems(root="blue", carry=["/opt/a", "/opt"])
    assert "more than once" in problems(root="blue", carry=["/opt", "/opt"])


def test_what_has_no_effect_is_said() -> None:
    assert "jail.carry: is what a new root gets" in problems(carry=["/opt"])
    assert "jail.carry_from: has no effect without jail.carry" in problems(root="blue", carry_from="green")
    assert "jail.carry_from: is the root itself" in problems(root="blue", carry=["/opt"], carry_from="blue")


def test_a_mount_is_not_carried() -> None:
    stack = {
        **stacks.existing(),
        "mounts": {"sw": {"path": "/opt/sw", "storage_class": "x"}},
        "jail": {"root": "blue", "carry": ["/opt/sw/lib"]},
    }
    with pytest.raises(ConfigError, match="is on the mount 'sw'"):
        load_config(stack)
